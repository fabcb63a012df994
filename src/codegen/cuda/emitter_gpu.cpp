// Kernels for NVIDIA GPUs: the shares of threads, values combined over threads. Statements are those of the CPU side.
#include <algorithm>
#include <bit>
#include <tuple>

#include "codegen/core/emitter.h"
#include "codegen/emit_gpu.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int kWarp = 32;
constexpr int64_t kTileBatch = 16;  // loads of a tile that a thread has under way at once
constexpr size_t kShortBody = 48;   // statements of a loop of which four passes are written out
constexpr int64_t kUnrolled =
    8;  // passes of a thread over a row that are written out, so that the row stays in registers

/// The vector loop of a kernel whose threads are independent; null when there is none.
const For* only_vector(const Block& block) {
  for (const Stmt& stmt : block.stmts) {
    const auto* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) continue;
    if (loop->kind == LoopKind::kVector) return loop;
    if (const For* found = only_vector(*loop->body)) return found;
  }
  return nullptr;
}

}  // namespace

std::string Emitter::special_register(const char* name) {
  const std::string full = std::string("@llvm.nvvm.read.ptx.sreg.") + name + ".x";
  ir_.declare("declare i32 " + full + "()");
  return ir_.assign("zext i32 " + ir_.call(full, "i32", "") + " to i64");
}

/// Quotient and remainder of a position among all threads. Dividing 64 bits takes several times the instructions of 32.
std::pair<std::string, std::string> Emitter::gpu_divided(const std::string& position, const std::string& count) {
  if (!gpu_narrow_) return {ir_.binary("udiv", "i64", position, count), ir_.binary("urem", "i64", position, count)};
  const auto narrow = [&](const std::string& text) {
    return text.front() == '%' ? ir_.assign("trunc i64 " + text + " to i32") : text;
  };
  const auto wide = [&](const std::string& text) { return ir_.assign("zext nneg i32 " + text + " to i64"); };
  const std::string whole = narrow(position);
  const std::string divisor = narrow(count);
  return {wide(ir_.binary("udiv", "i32", whole, divisor)), wide(ir_.binary("urem", "i32", whole, divisor))};
}

namespace {

/// Whether the iterations of the parallel loops, times `more`, are known to be few enough for positive 32-bit numbers.
bool narrow_positions(const Block& block, int64_t more) {
  constexpr int64_t kMost = INT32_MAX - 2048;  // the threads of the last block come on top
  for (const Block* at = &block; at != nullptr;) {
    const Block* inner = nullptr;
    for (const Stmt& stmt : at->stmts) {
      const auto* loop = std::get_if<For>(&stmt);
      if (loop == nullptr || loop->kind != LoopKind::kParallel) continue;
      if (!loop->extent.is_const() || loop->extent.const_value() <= 0) return false;
      if (more > kMost / loop->extent.const_value()) return false;
      more *= loop->extent.const_value();
      inner = loop->body.get();
    }
    at = inner;
  }
  return true;
}

}  // namespace

void Emitter::gpu_positions() {
  const GpuMapping& map = kernel_.gpu;
  const std::string thread = special_register("tid");
  const std::string block = map.items > 0 ? "%block" : special_register("ctaid");
  const auto stop_unless = [&](const std::string& condition) {
    const std::string go = ir_.label();
    ir_.line("br i1 " + condition + ", label %" + go + ", label %exit");
    ir_.start_block(go);
  };
  if (map.tiles) {
    gpu_narrow_ = narrow_positions(kernel_.body, 1);
    gpu_iteration_ = block;
    gpu_thread_ = ir_.binary("and", "i64", thread, std::to_string(map.threads - 1));
    gpu_lane_ = ir_.binary("and", "i64", thread, std::to_string(map.row - 1));
    gpu_group_ = ir_.binary("udiv", "i64", gpu_thread_, std::to_string(map.row));
    return;
  }
  if (map.row > 0) {
    const int rows = map.threads / map.row;
    gpu_narrow_ = narrow_positions(kernel_.body, 1);
    gpu_lane_ = rows == 1 ? thread : ir_.binary("and", "i64", thread, std::to_string(map.row - 1));
    gpu_iteration_ = block;
    if (rows == 1) return;
    const std::string first = ir_.binary("mul nuw nsw", "i64", block, std::to_string(rows));
    gpu_iteration_ =
        ir_.binary("add nuw nsw", "i64", first, ir_.binary("udiv", "i64", thread, std::to_string(map.row)));
    stop_unless(ir_.assign("icmp ult i64 " + gpu_iteration_ + ", %iterations"));
    return;
  }
  const std::string first = ir_.binary("mul nuw nsw", "i64", block, std::to_string(map.threads));
  const std::string flat = ir_.binary("add nuw nsw", "i64", first, thread);
  const For* loop = only_vector(kernel_.body);
  if (loop == nullptr || loop->extent.is_const()) {
    gpu_narrow_ =
        narrow_positions(kernel_.body, loop == nullptr ? 1 : std::max<int64_t>(loop->extent.const_value(), 1));
  }
  if (loop == nullptr) {
    gpu_iteration_ = flat;
    stop_unless(ir_.assign("icmp ult i64 " + flat + ", %iterations"));
    return;
  }
  std::string count = index(loop->extent);
  if (map.lanes * map.passes > 1) {
    ExprContext& ctx = *kernel_.ctx;
    count = index(ctx.simplify(ctx.ceildiv(loop->extent, ctx.constant(map.lanes * map.passes))));
  }
  const bool one = !has_parallel_loops(kernel_);
  stop_unless(ir_.assign("icmp ult i64 " + flat + ", " +
                         (one ? count : ir_.binary("mul nuw nsw", "i64", count, "%iterations"))));
  std::string part = flat;
  if (!one) std::tie(gpu_iteration_, part) = gpu_divided(flat, count);
  gpu_lane_ = map.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", part, std::to_string(map.lanes)) : part;
}

/// One pass of the vector loop for this thread.
void Emitter::gpu_pass(const For& loop, const std::string& base, int site, std::vector<Reg>& carried) {
  site_ = site;  // all copies of the body have the same sites
  gpu_note_vectors(loop);
  vector_pass(loop, base, "", carried);
  gpu_vectors_.clear();
  gpu_elements_.clear();
}

void Emitter::gpu_enter(const For& loop, int lanes) {
  ir_.set_lanes(lanes);
  if (lanes > 1) vector_var_ = loop.var;
  gpu_inside_ = true;
}

void Emitter::gpu_leave() {
  ir_.set_lanes(1);
  vector_var_ = Expr();
  gpu_inside_ = false;
}

bool Emitter::gpu_waits(const For& loop) const {
  const std::vector<Stmt>& body = loop.body->stmts;
  const bool innermost =
      std::none_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<For>(s); });
  return on_gpu() && innermost && body.size() <= kShortBody &&
         std::any_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<Load>(s); });
}

std::vector<bool> Emitter::same_in_lanes(const For& loop) const {
  std::vector<bool> same;
  for (const Carried& c : loop.carried) same.push_back(!reg(c.init).vec);
  // Those that come from one that differs differ, too, until no more are found.
  for (bool found = true; found;) {
    found = false;
    std::unordered_set<ScalarId> differ;
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      if (!same[i]) differ.insert(loop.carried[i].arg);
    }
    for (const Stmt& stmt : loop.body->stmts) {
      const auto* let = std::get_if<Let>(&stmt);
      const auto* load = std::get_if<Load>(&stmt);
      if (load != nullptr) differ.insert(load->dst);
      if (let == nullptr && load == nullptr) return std::vector<bool>(same.size());  // loops and branches
      if (let == nullptr) continue;
      const std::vector<ScalarId>& from = let->scalar.operands;
      const bool index = let->scalar.op == ScalarOp::kIndex || let->scalar.op == ScalarOp::kPhilox;
      if (index || std::any_of(from.begin(), from.end(), [&](ScalarId x) { return differ.contains(x); })) {
        differ.insert(let->dst);
      }
    }
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      if (!same[i] || !differ.contains(loop.carried[i].next)) continue;
      same[i] = false;
      found = true;
    }
  }
  return same;
}

void Emitter::gpu_independent(const For& loop) {
  const int lanes = kernel_.gpu.lanes;
  const int site = site_;
  std::vector<Reg> none;
  const bool even = multiple_of(loop.extent, lanes);
  const int passes = kernel_.gpu.passes;
  TATARA_CHECK(passes == 1 || (loop.extent.is_const() && loop.extent.const_value() % (lanes * passes) == 0),
               "passes of ", kernel_.name);
  const auto pass = [&] {
    for (int k = 0; k < passes; ++k) {
      const int64_t apart = k == 0 ? 0 : loop.extent.const_value() / passes * k;
      gpu_enter(loop, lanes);
      gpu_pass(loop, k == 0 ? gpu_lane_ : ir_.binary("add nuw nsw", "i64", gpu_lane_, std::to_string(apart)), site,
               none);
      gpu_leave();
    }
  };
  if (even) {
    pass();
    return;
  }
  const std::string end = ir_.binary("add nuw nsw", "i64", gpu_lane_, std::to_string(lanes));
  const std::string extent = index(loop.extent);
  const std::string whole = ir_.label();
  const std::string rest = ir_.label();
  const std::string done = ir_.label();
  ir_.line("br i1 " + ir_.assign("icmp ule i64 " + end + ", " + extent) + ", label %" + whole + ", label %" + rest);
  ir_.start_block(whole);
  pass();
  ir_.line("br label %" + done);
  ir_.start_block(rest);
  site_ = site;
  gpu_inside_ = true;
  serial_from(loop, gpu_lane_, extent, {});
  gpu_inside_ = false;
  ir_.line("br label %" + done);
  ir_.start_block(done);
}

/// This thread's passes over a row, combined with those of the other threads.
void Emitter::gpu_vector(const For& loop) {
  const GpuMapping& map = kernel_.gpu;
  if (loop.scan) {
    gpu_scan(loop);
    return;
  }
  if (map.row == 0) {
    gpu_independent(loop);
    return;
  }
  const bool custom = loop.combine_fn != nullptr;
  std::vector<Reg> inits;
  for (const Carried& c : loop.carried) inits.push_back(reg(c.init));
  const std::string extent = index(loop.extent);
  gpu_enter(loop, map.lanes);
  note_products(loop);
  std::vector<Reg> carried;
  std::vector<DType> dtypes;
  if (custom) gpu_same_ = same_in_lanes(loop);
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    const Reg first = custom ? inits[i] : identity(c.combine, c.dtype);
    carried.push_back(custom && gpu_same_[i] ? first : widened(c.dtype, first));
    dtypes.push_back(c.dtype);
  }
  const int site = site_;
  const std::string start =
      map.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", gpu_lane_, std::to_string(map.lanes)) : gpu_lane_;
  const int64_t step = int64_t{map.row} * map.lanes;
  const bool bounded = loop.extent.is_const() || map.tiles;
  const int64_t passes = bounded ? (kernel_.ctx->range(loop.extent).hi + step - 1) / step : kUnrolled + 1;
  if (passes <= kUnrolled) {
    for (int64_t k = 0; k < passes; ++k) {
      const std::string base = k == 0 ? start : ir_.binary("add nuw nsw", "i64", start, std::to_string(k * step));
      if (loop.extent.is_const() && (k + 1) * step <= loop.extent.const_value()) {
        gpu_pass(loop, base, site, carried);
      } else {
        const std::string inside = ir_.assign("icmp ult i64 " + base + ", " + extent);
        gpu_when(inside, dtypes, carried, [&](std::vector<Reg>& values) { gpu_pass(loop, base, site, values); });
      }
    }
  } else {
    counted(
        start, extent, std::to_string(step), dtypes, carried,
        [&](const std::string& base, std::vector<Reg>& values) { gpu_pass(loop, base, site, values); },
        gpu_waits(loop));
  }
  gpu_same_.clear();
  for (size_t i = 0; i < carried.size(); ++i) carried[i] = widened(dtypes[i], carried[i]);
  reduce_lanes(loop, carried);
  gpu_leave();
  if (!carried.empty()) combine_threads(loop, carried);
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    set(c.result, custom ? carried[i] : combine(c.combine, c.dtype, inits[i], carried[i], false));
  }
}

void Emitter::gpu_when(const std::string& condition, const std::vector<DType>& dtypes, std::vector<Reg>& carried,
                       const std::function<void(std::vector<Reg>&)>& body) {
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.line("br i1 " + condition + ", label %" + then + ", label %" + done);
  ir_.start_block(then);
  std::vector<Reg> changed = carried;
  body(changed);
  const std::string last = ir_.block();
  ir_.line("br label %" + done);
  ir_.start_block(done);
  for (size_t i = 0; i < carried.size(); ++i) {
    const std::string type = ir_.type_of(llvm_type(real_dtype(dtypes[i])), carried[i].vec);
    const auto merge = [&](const std::string& a, const std::string& b) {
      return ir_.assign("phi " + type + " [ " + a + ", %" + last + " ], [ " + b + ", %" + before + " ]");
    };
    carried[i].text = merge(changed[i].text, carried[i].text);
    if (is_complex(dtypes[i])) carried[i].im = merge(changed[i].im, carried[i].im);
  }
}

// ---- Values of other threads ------------------------------------------------------------------------------------------

/// A register of any scalar type as an integer of 64 bits and back.
std::string Emitter::as_word(DType part, const std::string& text) {
  const std::string type = llvm_type(part);
  if (type == "i64") return text;
  std::string bits = text;
  std::string integer = type;
  if (is_floating(part) && type.front() != 'i') {
    integer = "i" + std::to_string(dtype_size(part) * 8);
    bits = ir_.assign("bitcast " + type + " " + text + " to " + integer);
  }
  return integer == "i64" ? bits : ir_.assign("zext " + integer + " " + bits + " to i64");
}

std::string Emitter::from_word(DType part, const std::string& word) {
  const std::string type = llvm_type(part);
  if (type == "i64") return word;
  const bool real = is_floating(part) && type.front() != 'i';
  const std::string integer = real ? "i" + std::to_string(dtype_size(part) * 8) : type;
  const std::string bits = integer == "i64" ? word : ir_.assign("trunc i64 " + word + " to " + integer);
  return real ? ir_.assign("bitcast " + integer + " " + bits + " to " + type) : bits;
}

/// An element that came with the launch.
Reg Emitter::passed_value(int buffer) {
  const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
  const DType part = real_dtype(dtype);
  const std::string& word = bases_[static_cast<size_t>(buffer)];
  Reg value{from_word(part, word), false};
  if (is_complex(dtype)) {
    value.im = from_word(part, ir_.binary("lshr", "i64", word, std::to_string(8 * dtype_size(part))));
  }
  return value;
}

std::string Emitter::shuffle_word(DType part, const std::string& text, const char* mode, int operand, int clamp) {
  const std::string name = std::string("@llvm.nvvm.shfl.sync.") + mode + ".i32";
  ir_.declare("declare i32 " + name + "(i32, i32, i32, i32)");
  const auto fetch = [&](const std::string& word) {
    return ir_.call(name, "i32",
                    "i32 " + gpu_members_ + ", i32 " + word + ", i32 " + std::to_string(operand) + ", i32 " +
                        std::to_string(clamp));
  };
  const std::string word = as_word(part, text);
  const std::string low = ir_.assign("trunc i64 " + word + " to i32");
  const std::string other = ir_.assign("zext i32 " + fetch(low) + " to i64");
  const std::string type = llvm_type(part);
  if (type != "i64" && type != "double") return from_word(part, other);
  const std::string high = ir_.assign("trunc i64 " + ir_.binary("lshr", "i64", word, "32") + " to i32");
  const std::string upper = ir_.binary("shl", "i64", ir_.assign("zext i32 " + fetch(high) + " to i64"), "32");
  return from_word(part, ir_.binary("or", "i64", upper, other));
}

Reg Emitter::shuffled(DType dtype, const Reg& value, const char* mode, int operand, int clamp) {
  const DType part = real_dtype(dtype);
  Reg result{shuffle_word(part, value.text, mode, operand, clamp), false};
  if (is_complex(dtype)) result.im = shuffle_word(part, value.im, mode, operand, clamp);
  return result;
}

/// Partial values of two threads become one; `swapped` (i1) says that `b` comes first.
void Emitter::merge_values(const For& loop, std::vector<Reg>& a, const std::vector<Reg>& b,
                           const std::string& swapped) {
  if (loop.combine_fn == nullptr) {
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = combine(loop.carried[i].combine, loop.carried[i].dtype, a[i], b[i], false);
    }
    return;
  }
  const CombineFn& fn = *loop.combine_fn;
  for (size_t i = 0; i < a.size(); ++i) {
    const DType dtype = loop.carried[i].dtype;
    set(fn.left[i], choose(dtype, {swapped, false}, b[i], a[i], false));
    set(fn.right[i], choose(dtype, {swapped, false}, a[i], b[i], false));
  }
  block(*fn.body);
  for (size_t i = 0; i < a.size(); ++i) a[i] = reg(fn.result[i]);
}

/// All threads of a group of `threads` neighbours (at most a warp) get the total of the group.
void Emitter::combine_warp(const For& loop, std::vector<Reg>& carried, int threads, const std::string& lane) {
  for (int distance = threads / 2; distance > 0; distance /= 2) {
    std::vector<Reg> other;
    for (size_t i = 0; i < carried.size(); ++i) {
      other.push_back(shuffled(loop.carried[i].dtype, carried[i], "bfly", distance));
    }
    const std::string bit = ir_.binary("and", "i64", lane, std::to_string(distance));
    merge_values(loop, carried, other, ir_.assign("icmp ne i64 " + bit + ", 0"));
  }
}

/// The threads of this row within the warp; those of rows past the end are gone.
void Emitter::find_members() {
  const int row = kernel_.gpu.row;
  if (row >= kWarp) {
    gpu_members_ = "-1";
    return;
  }
  const std::string thread = special_register("tid");
  const std::string first =
      ir_.assign("trunc i64 " + ir_.binary("and", "i64", thread, std::to_string(kWarp - row)) + " to i32");
  gpu_members_ = ir_.binary("shl", "i32", std::to_string((int64_t{1} << row) - 1), first);
}

void Emitter::barrier() {
  ir_.declare("declare void @llvm.nvvm.barrier0()");
  ir_.line("call void @llvm.nvvm.barrier0()");
}

/// A place in shared memory: one word for each warp.
std::string Emitter::shared_slot(size_t word, const std::string& at) {
  gpu_shared_ = std::max(gpu_shared_, static_cast<int>(word + 1) * kWarp);
  const std::string place = ir_.binary("add nuw nsw", "i64", at, std::to_string(word * kWarp));
  return ir_.assign("getelementptr i64, ptr addrspace(3) @tatara_shared, i64 " + place);
}

void Emitter::combine_threads(const For& loop, std::vector<Reg>& carried) {
  const int row = kernel_.gpu.row;
  find_members();
  combine_warp(loop, carried, std::min(row, kWarp), gpu_lane_);
  if (row <= kWarp) return;
  // One partial value per warp goes through shared memory; every warp combines them all.
  const int warps = row / kWarp;
  const std::string lane = ir_.binary("and", "i64", gpu_lane_, std::to_string(kWarp - 1));
  const std::string warp = ir_.binary("lshr", "i64", gpu_lane_, "5");
  std::vector<std::pair<DType, std::string*>> words;
  for (size_t i = 0; i < carried.size(); ++i) {
    const DType part = real_dtype(loop.carried[i].dtype);
    words.emplace_back(part, &carried[i].text);
    if (is_complex(loop.carried[i].dtype)) words.emplace_back(part, &carried[i].im);
  }
  ir_.when(ir_.assign("icmp eq i64 " + lane + ", 0"), [&] {
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string word = as_word(words[i].first, *words[i].second);
      ir_.line("store i64 " + word + ", ptr addrspace(3) " + shared_slot(i, warp));
    }
  });
  barrier();
  const std::string from = ir_.binary("and", "i64", lane, std::to_string(warps - 1));
  for (size_t i = 0; i < words.size(); ++i) {
    *words[i].second = from_word(words[i].first, ir_.assign("load i64, ptr addrspace(3) " + shared_slot(i, from)));
  }
  barrier();
  combine_warp(loop, carried, warps, from);
}

// ---- Scans -------------------------------------------------------------------------------------------------------------

/// All threads of the row make every pass together; those past the end bring nothing and store nothing.
void Emitter::gpu_scan(const For& loop) {
  const GpuMapping& map = kernel_.gpu;
  std::vector<Reg> carried;
  std::vector<DType> dtypes;
  for (const Carried& c : loop.carried) {
    carried.push_back(reg(c.init));
    dtypes.push_back(c.dtype);
  }
  find_members();
  const std::string extent = index(loop.extent);
  const std::string own =
      map.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", gpu_lane_, std::to_string(map.lanes)) : gpu_lane_;
  const std::string last = ir_.binary("sub", "i64", extent, std::to_string(map.lanes));
  const int site = site_;
  counted("0", extent, std::to_string(int64_t{map.row} * map.lanes), dtypes, carried,
          [&](const std::string& base, std::vector<Reg>& values) {
            const std::string at = ir_.binary("add nuw nsw", "i64", base, own);
            const std::string inside = ir_.assign("icmp ule i64 " + at + ", " + last);
            const std::string safe = ir_.select(inside, "i64", at, last, false);
            site_ = site;
            gpu_enter(loop, map.lanes);
            gpu_guard_ = inside;
            symbols_[loop.var] = {safe, false};
            scan_body(loop, [&](const Let& let, size_t i) { gpu_scan_step(loop, let, i, values); });
            gpu_guard_.clear();
            gpu_leave();
          });
  for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].result, carried[i]);
}

void Emitter::gpu_scan_step(const For& loop, const Let& let, size_t i, std::vector<Reg>& carried) {
  const Carried& c = loop.carried[i];
  TATARA_CHECK(let.scalar.operands.size() == 2, "a scan by ", scalar_op_name(let.scalar.op), " in ", kernel_.name);
  const ScalarId element = let.scalar.operands[let.scalar.operands[0] == c.arg ? 1 : 0];
  const bool vec = ir_.lanes() > 1;
  const Reg nothing = identity(c.combine, c.dtype);
  const Reg wide = widened(c.dtype, nothing);
  Reg sum = choose(c.dtype, {gpu_guard_, false}, widened(c.dtype, reg(element)), wide, vec);
  if (vec) sum = scan_lanes(c, sum, wide);
  Reg through = vec ? lane_of(c.dtype, sum, ir_.lanes() - 1) : sum;  // the total up to this thread, within its warp
  const int width = std::min(kernel_.gpu.row, kWarp);
  const std::string lane = ir_.binary("and", "i64", gpu_lane_, std::to_string(width - 1));
  for (int distance = 1; distance < width; distance *= 2) {
    const Reg before = shuffled(c.dtype, through, "up", distance, 0);
    const Reg more = combine(c.combine, c.dtype, before, through, false);
    const std::string has = ir_.assign("icmp uge i64 " + lane + ", " + std::to_string(distance));
    through = choose(c.dtype, {has, false}, more, through, false);
  }
  const Reg left = width > 1 ? shuffled(c.dtype, through, "up", 1, 0) : nothing;
  Reg before = choose(c.dtype, {ir_.assign("icmp eq i64 " + lane + ", 0"), false}, nothing, left, false);
  Reg total = shuffled(c.dtype, through, "idx", width - 1, ((kWarp - width) << 8) | (kWarp - 1));
  if (kernel_.gpu.row > kWarp) {
    const auto [earlier, whole] = totals_of_warps(c, total, nothing);
    before = combine(c.combine, c.dtype, earlier, before, false);
    total = whole;
  }
  const Reg start = combine(c.combine, c.dtype, carried[i], before, false);
  set(c.next, combine(c.combine, c.dtype, widened(c.dtype, start), sum, vec));
  carried[i] = combine(c.combine, c.dtype, carried[i], total, false);
}

std::pair<Reg, Reg> Emitter::totals_of_warps(const Carried& c, const Reg& total, const Reg& nothing) {
  const DType part = real_dtype(c.dtype);
  const std::string lane = ir_.binary("and", "i64", gpu_lane_, std::to_string(kWarp - 1));
  const std::string warp = ir_.binary("lshr", "i64", gpu_lane_, "5");
  ir_.when(ir_.assign("icmp eq i64 " + lane + ", 0"), [&] {
    ir_.line("store i64 " + as_word(part, total.text) + ", ptr addrspace(3) " + shared_slot(0, warp));
    if (is_complex(c.dtype))
      ir_.line("store i64 " + as_word(part, total.im) + ", ptr addrspace(3) " + shared_slot(1, warp));
  });
  barrier();
  Reg before = nothing;
  Reg all = nothing;
  for (int w = 0; w < kernel_.gpu.row / kWarp; ++w) {
    const auto word = [&](size_t n) {
      return from_word(part, ir_.assign("load i64, ptr addrspace(3) " + shared_slot(n, std::to_string(w))));
    };
    Reg one{word(0), false};
    if (is_complex(c.dtype)) one.im = word(1);
    all = w == 0 ? one : combine(c.combine, c.dtype, all, one, false);
    const std::string is_next = ir_.assign("icmp eq i64 " + warp + ", " + std::to_string(w + 1));
    before = choose(c.dtype, {is_next, false}, all, before, false);
  }
  barrier();
  return {before, all};
}

// ---- Tiles -------------------------------------------------------------------------------------------------------------

/// Elements that a thread reads of a tile with one instruction: rows begin and end at multiples of them.
int64_t Emitter::gpu_tile_vector(const Transpose& tile, int64_t most) const {
  const int size = dtype_size(kernel_.buffers[static_cast<size_t>(tile.from)].dtype);
  int64_t n = std::min<int64_t>(most, 16 / size);
  while (n > 1 &&
         !(multiple_of(tile.from_index, n) && multiple_of(tile.from_stride, n) && multiple_of(tile.columns, n))) {
    n /= 2;
  }
  return n;
}

/// A tile into shared memory by all threads of the block; neighbours read neighbours. What lies past its ends is not read: in
/// its place the first element is, once more, and nobody looks there.
void Emitter::gpu_tile(const Transpose& tile) {
  const DType dtype = kernel_.buffers[static_cast<size_t>(tile.from)].dtype;
  TATARA_CHECK(tile.to_stride.is_const() && !is_complex(dtype), "a tile in ", kernel_.name);
  const int64_t pitch = tile.to_stride.const_value();
  const int64_t columns = kernel_.buffers[static_cast<size_t>(tile.to)].numel.const_value() / pitch;
  const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kernel_.ctx->range(tile.rows).hi)));
  const int64_t threads = kernel_.gpu.threads;
  TATARA_CHECK(rows <= pitch && std::has_single_bit(static_cast<uint64_t>(columns)), "a tile in ", kernel_.name);
  const int64_t vector = gpu_tile_vector(tile, std::max<int64_t>(rows * columns / threads, 1));
  const int64_t passes = (rows * columns + threads * vector - 1) / (threads * vector);
  const int64_t batch = std::min(passes, kTileBatch);
  const std::string element = memory_type(dtype);
  const std::string type = vector > 1 ? "<" + std::to_string(vector) + " x " + element + ">" : element;
  const std::string align = ", align " + std::to_string(dtype_size(dtype) * vector);
  const std::string size = std::to_string(dtype_size(dtype));
  const std::string from = index(tile.from_index);
  const std::string to = index(tile.to_index);
  const std::string stride = index(tile.from_stride);
  const std::string first = ir_.binary("mul nuw nsw", "i64", gpu_thread_, std::to_string(vector));
  const auto within = [&](const std::string& at, Expr extent, int64_t most) {
    return extent.is_const(most) ? std::string() : ir_.assign("icmp slt i64 " + at + ", " + index(extent));
  };
  // All loads before the first store: a thread waits for all of them at once.
  const auto copy = [&](const std::string& base) {
    std::vector<std::pair<std::string, std::string>> parts;  // value and place
    for (int64_t k = 0; k < batch; ++k) {
      std::string at = first;
      if (!base.empty()) at = ir_.binary("add nuw nsw", "i64", base, at);
      if (k > 0) at = ir_.binary("add nuw nsw", "i64", at, std::to_string(k * threads * vector));
      const std::string r = ir_.binary("udiv", "i64", at, std::to_string(columns));
      const std::string c = ir_.binary("urem", "i64", at, std::to_string(columns));
      std::string source = ir_.binary("add nsw", "i64", ir_.binary("mul nsw", "i64", r, stride), c);
      for (const std::string& inside : {within(r, tile.rows, rows), within(c, tile.columns, columns)}) {
        if (!inside.empty()) source = ir_.select(inside, "i64", source, "0", false);
      }
      source = address(tile.from, ir_.binary("add nsw", "i64", from, source));
      const std::string value = ir_.assign("load " + type + ", ptr " + source + align + load_flags(tile.from));
      const std::string place =
          ir_.binary("add nsw", "i64", ir_.binary("mul nuw nsw", "i64", c, std::to_string(pitch)), r);
      parts.emplace_back(value, ir_.binary("add nsw", "i64", to, place));
    }
    for (const auto& [value, place] : parts) {
      for (int64_t j = 0; j < vector; ++j) {
        std::string one = value;
        if (vector > 1) one = ir_.assign("extractelement " + type + " " + value + ", i64 " + std::to_string(j));
        const std::string at = j == 0 ? place : ir_.binary("add nuw nsw", "i64", place, std::to_string(j * pitch));
        ir_.line("store " + element + " " + one + ", ptr " + address(tile.to, at) + ", align " + size);
      }
    }
  };
  if (batch == passes) {
    copy("");
  } else {
    std::vector<Reg> none;
    counted("0", std::to_string(rows * columns), std::to_string(batch * threads * vector), {}, none,
            [&](const std::string& base, std::vector<Reg>&) { copy(base); });
  }
  gpu_tiles_ = true;
}

/// The loop over rows of tiles: groups of threads take turns.
void Emitter::gpu_tile_rows(const For& loop) {
  gpu_tiles_ = false;
  TATARA_CHECK(loop.carried.empty(), "values carried from row to row of a tile in ", kernel_.name);
  barrier();
  const int64_t groups = kernel_.gpu.threads / kernel_.gpu.row;
  const int64_t most = kernel_.ctx->range(loop.extent).hi;
  const bool even = loop.extent.is_const() && most % groups == 0;
  const std::string extent = index(loop.extent);
  std::vector<Reg> none;
  counted("0", std::to_string(most), std::to_string(groups), {}, none, [&](const std::string& base, std::vector<Reg>&) {
    const std::string row = ir_.binary("add nuw nsw", "i64", base, gpu_group_);
    symbols_[loop.var] = {row, false};
    if (even) {
      block(*loop.body);
    } else {
      ir_.when(ir_.assign("icmp slt i64 " + row + ", " + extent), [&] { block(*loop.body); });
    }
  });
}

// ---- The module --------------------------------------------------------------------------------------------------------

std::string Emitter::run_gpu(bool adds_vectors) {
  gpu_adds_vectors_ = adds_vectors;
  const GpuMapping& map = kernel_.gpu;
  if (!kernel_.scalar_args.empty()) throw Unsupported("numbers as arguments of a kernel on a GPU");
  std::string parameters;
  std::string tiles;
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const BufferArg& buffer = kernel_.buffers[i];
    if (buffer.kind == ArgKind::kScratch) {
      const int64_t bytes = buffer.numel.const_value() * dtype_size(buffer.dtype);
      const std::string name = "@tatara_tile" + std::to_string(i);
      tiles += name + " = internal addrspace(3) global [" + std::to_string(bytes) + " x i8] poison, align 16\n";
      bases_.push_back("addrspacecast (ptr addrspace(3) " + name + " to ptr)");
      continue;
    }
    bases_.push_back("%b" + std::to_string(i));
    if (buffer.kind == ArgKind::kValue) {
      if (buffer.dtype == DType::kComplex128) throw Unsupported("a complex128 number of the host in a kernel of a GPU");
      parameters += "i64 " + bases_.back() + ", ";
      continue;
    }
    parameters += std::string("ptr noalias align 16 ") + (buffer.kind == ArgKind::kInput ? "readonly " : "") +
                  bases_.back() + ", ";
  }
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    const std::string name = "%s" + std::to_string(i);
    parameters += "i64 " + name + ", ";
    symbols_[kernel_.sizes[i]] = {name, false};
  }
  gpu_positions();
  block(kernel_.body);
  ir_.line("br label %exit");
  const bool list = map.items > 0;
  std::string text = list ? "define internal void @tatara_item(" : "define ptx_kernel void @" + symbol_ + "(";
  text += parameters + "i64 %iterations, ptr noalias %fault" + (list ? ", i64 %block) #0" : ") #1") + " {\nentry:\n" +
          ir_.take() + "exit:\n  ret void\n}\n";
  text = tiles + text;
  if (list) text += list_entry();
  if (gpu_shared_ > 0) {
    text = "@tatara_shared = internal addrspace(3) global [" + std::to_string(gpu_shared_) +
           " x i64] poison, align 8\n" + text;
  }
  text += text_of(declarations_);
  return text + "attributes #0 = { nounwind alwaysinline }\nattributes #1 = { nounwind \"nvvm.maxntid\"=\"" +
         std::to_string(map.threads) + "\" }\n!0 = !{!\"branch_weights\", i32 1, i32 1000000}\n!1 = !{}\n" +
         (gpu_rolled_ ? "!2 = distinct !{!2, !3}\n!3 = !{!\"llvm.loop.unroll.disable\"}\n" : "") +
         (gpu_written_out_ ? "!4 = distinct !{!4, !5}\n!5 = !{!\"llvm.loop.unroll.count\", i32 4}\n" : "");
}

}  // namespace tatara::codegen

namespace tatara {

std::string emit_gpu(const loops::Kernel& kernel, const GpuTarget& target, std::string_view symbol) {
  loops::verify_kernel(kernel);
  if (kernel.gpu.threads <= 0) throw InternalError("a kernel for CPUs: " + kernel.name);
  CpuTarget lanes;
  lanes.isa = VectorIsa::kPtx;
  lanes.cpu = target.cpu;
  return codegen::Emitter(kernel, lanes, symbol).run_gpu(target.adds_vectors());
}

}  // namespace tatara
