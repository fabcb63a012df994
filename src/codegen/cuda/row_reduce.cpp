#include "codegen/cuda/row_reduce.h"

#include <algorithm>
#include <unordered_set>

namespace tatara::codegen {

using namespace loops;

std::vector<bool> same_in_lanes(const For& loop, const Scope& scope) {
  std::vector<bool> same;
  for (const Carried& c : loop.carried) same.push_back(!scope.reg(c.init).vec);
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

/// Partial values of two threads become one; `swapped` (i1) says that `b` comes first.
void RowReduction::merge(std::vector<Reg>& a, const std::vector<Reg>& b, const std::string& swapped) {
  if (loop_.combine_fn == nullptr) {
    for (size_t i = 0; i < a.size(); ++i) {
      const Carried& c = loop_.carried[i];
      a[i] = gpu_.scalars.combine(c.combine, c.dtype, a[i], b[i], false);
    }
    return;
  }
  Scope& scope = gpu_.context.scope;
  const CombineFn& fn = *loop_.combine_fn;
  for (size_t i = 0; i < a.size(); ++i) {
    const DType dtype = loop_.carried[i].dtype;
    scope.set(fn.left[i], choose(ir_, dtype, {swapped, false}, b[i], a[i], false));
    scope.set(fn.right[i], choose(ir_, dtype, {swapped, false}, a[i], b[i], false));
  }
  emitter_.block(*fn.body);
  for (size_t i = 0; i < a.size(); ++i) a[i] = scope.reg(fn.result[i]);
}

/// All threads of a group of `threads` neighbours (at most a warp) get the total of the group.
void RowReduction::combine_warp(std::vector<Reg>& carried, int threads, const std::string& lane) {
  for (int distance = threads / 2; distance > 0; distance /= 2) {
    std::vector<Reg> other;
    for (size_t i = 0; i < carried.size(); ++i) {
      other.push_back(gpu_.threads.shuffle(loop_.carried[i].dtype, carried[i], "bfly", distance));
    }
    const std::string bit = ir_.binary("and", "i64", lane, std::to_string(distance));
    merge(carried, other, ir_.assign("icmp ne i64 " + bit + ", 0"));
  }
}

void RowReduction::run(std::vector<Reg>& carried) {
  Threads& threads = gpu_.threads;
  const int row = gpu_.context.kernel.gpu.row;
  threads.compute_row_mask();
  combine_warp(carried, std::min(row, kWarp), threads.lane());
  if (row <= kWarp) return;
  // One partial value of each warp goes through shared memory; every warp combines them all.
  const int warps = row / kWarp;
  const std::string lane = ir_.binary("and", "i64", threads.lane(), std::to_string(kWarp - 1));
  const std::string warp = ir_.binary("lshr", "i64", threads.lane(), "5");
  std::vector<std::pair<DType, std::string*>> parts;
  for (size_t i = 0; i < carried.size(); ++i) {
    const DType part = real_dtype(loop_.carried[i].dtype);
    parts.emplace_back(part, &carried[i].text);
    if (is_complex(loop_.carried[i].dtype)) parts.emplace_back(part, &carried[i].im);
  }
  ir_.when(ir_.assign("icmp eq i64 " + lane + ", 0"), [&] {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string word = to_word(ir_, parts[i].first, *parts[i].second);
      ir_.line("store i64 " + word + ", ptr addrspace(3) " + threads.shared_slot(i, warp) + ", align 8");
    }
  });
  threads.barrier();
  const std::string from = ir_.binary("and", "i64", lane, std::to_string(warps - 1));
  for (size_t i = 0; i < parts.size(); ++i) {
    *parts[i].second = from_word(ir_, parts[i].first, threads.load_shared(i, from));
  }
  threads.barrier();
  combine_warp(carried, warps, from);
}

}  // namespace tatara::codegen
