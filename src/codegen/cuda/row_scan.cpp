#include "codegen/cuda/row_scan.h"

#include <algorithm>

namespace tatara::codegen {

using namespace loops;

RowScan::RowScan(GpuContext& gpu, KernelEmitter& emitter, const For& loop)
    : ir_(gpu.context.ir),
      scope_(gpu.context.scope),
      scalars_(gpu.scalars),
      threads_(gpu.threads),
      gpu_(gpu),
      emitter_(emitter),
      loop_(loop),
      map_(gpu.context.kernel.gpu) {}

void RowScan::run() {
  std::vector<Reg> carried;
  for (const Carried& c : loop_.carried) carried.push_back(scope_.reg(c.init));
  threads_.compute_row_mask();
  const std::string extent = scope_.index(loop_.extent);
  const std::string& lane = threads_.lane();
  const std::string own = map_.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", lane, std::to_string(map_.lanes)) : lane;
  const std::string last = ir_.binary("sub", "i64", extent, std::to_string(map_.lanes));
  emitter_.counted_loop("0", extent, std::to_string(int64_t{map_.row} * map_.lanes), carried_types(loop_), carried,
                        [&](const std::string& base, std::vector<Reg>& values) {
                          const std::string at = ir_.binary("add nuw nsw", "i64", base, own);
                          const std::string inside = ir_.assign("icmp ule i64 " + at + ", " + last);
                          pass(inside, ir_.select(inside, "i64", at, last, false), values);
                        });
  for (size_t i = 0; i < loop_.carried.size(); ++i) scope_.set(loop_.carried[i].result, carried[i]);
}

void RowScan::pass(const std::string& inside, const std::string& first, std::vector<Reg>& carried) {
  gpu_.enter_loop(loop_, map_.lanes);
  gpu_.loop.guard = inside;
  scope_.bind(loop_.var, first);
  emitter_.scan_body(loop_, [&](const Let& let, size_t i) { step(let, i, carried); });
  gpu_.loop.guard.clear();
  gpu_.leave_loop();
}

/// In place of the Let that makes carried value i.
void RowScan::step(const Let& let, size_t i, std::vector<Reg>& carried) {
  const Carried& c = loop_.carried[i];
  const Reg element = emitter_.scan_element(c, let);
  const bool vec = ir_.lanes() > 1;
  const auto add = [&](const Reg& a, const Reg& b, bool lanes) {
    return scalars_.combine(c.combine, c.dtype, a, b, lanes);
  };
  const Reg nothing = scalars_.identity(c.combine, c.dtype);
  const Reg wide = widened(ir_, c.dtype, nothing);
  Reg sum = choose(ir_, c.dtype, {gpu_.loop.guard, false}, widened(ir_, c.dtype, element), wide, vec);
  if (vec) sum = emitter_.scan_lanes(c, sum, wide);
  const Reg own = vec ? lane_of(ir_, c.dtype, sum, ir_.lanes() - 1) : sum;
  const int width = std::min(map_.row, kWarp);
  const std::string lane = ir_.binary("and", "i64", threads_.lane(), std::to_string(width - 1));
  const Reg through = total_in_warp(c, own, lane, width);
  const Reg left = width > 1 ? threads_.shuffle(c.dtype, through, "up", 1, 0) : nothing;
  Reg before = choose(ir_, c.dtype, {ir_.assign("icmp eq i64 " + lane + ", 0"), false}, nothing, left, false);
  Reg total = threads_.shuffle(c.dtype, through, "idx", width - 1, ((kWarp - width) << 8) | (kWarp - 1));
  if (map_.row > kWarp) {
    const auto [earlier, whole] = totals_of_warps(c, total, nothing);
    before = add(earlier, before, false);
    total = whole;
  }
  const Reg start = add(carried[i], before, false);
  scope_.set(c.next, add(widened(ir_, c.dtype, start), sum, vec));
  carried[i] = add(carried[i], total, false);
}

/// The total of the threads of the warp up to this one.
Reg RowScan::total_in_warp(const Carried& c, Reg through, const std::string& lane, int width) {
  for (int distance = 1; distance < width; distance *= 2) {
    const Reg before = threads_.shuffle(c.dtype, through, "up", distance, 0);
    const Reg more = scalars_.combine(c.combine, c.dtype, before, through, false);
    const std::string has = ir_.assign("icmp uge i64 " + lane + ", " + std::to_string(distance));
    through = choose(ir_, c.dtype, {has, false}, more, through, false);
  }
  return through;
}

/// The totals of the warps before this thread's one, and of all of them.
std::pair<Reg, Reg> RowScan::totals_of_warps(const Carried& c, const Reg& total, const Reg& nothing) {
  const DType part = real_dtype(c.dtype);
  const std::string lane = ir_.binary("and", "i64", threads_.lane(), std::to_string(kWarp - 1));
  const std::string warp = ir_.binary("lshr", "i64", threads_.lane(), "5");
  ir_.when(ir_.assign("icmp eq i64 " + lane + ", 0"), [&] {
    const auto share = [&](size_t value, const std::string& text) {
      const std::string slot = threads_.shared_slot(value, warp);
      ir_.line("store i64 " + to_word(ir_, part, text) + ", ptr addrspace(3) " + slot + ", align 8");
    };
    share(0, total.text);
    if (is_complex(c.dtype)) share(1, total.im);
  });
  threads_.barrier();
  Reg before = nothing;
  Reg all = nothing;
  for (int w = 0; w < map_.row / kWarp; ++w) {
    const auto word = [&](size_t n) { return from_word(ir_, part, threads_.load_shared(n, std::to_string(w))); };
    Reg one{word(0), false};
    if (is_complex(c.dtype)) one.im = word(1);
    all = w == 0 ? one : scalars_.combine(c.combine, c.dtype, all, one, false);
    const std::string is_next = ir_.assign("icmp eq i64 " + warp + ", " + std::to_string(w + 1));
    before = choose(ir_, c.dtype, {is_next, false}, all, before, false);
  }
  threads_.barrier();
  return {before, all};
}

}  // namespace tatara::codegen
