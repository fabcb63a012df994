// Products with a few rows: an iteration computes all rows of some results, since they share the elements of the matrix, and these may
// be dear (dequantised) or come from memory.
#include <algorithm>

#include "schedule/emit.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr int64_t kMostFew = 8;         // rows
constexpr int64_t kWideRegisters = 32;  // of the processors whose vectors have 64 bytes; of others 16
constexpr int64_t kGpuSums = 16;        // of a thread
constexpr int64_t kCpuPieces = 16;      // that threads share, at least
constexpr int64_t kMostBeside = 4;      // results of a row

/// The dim of the few rows; invalid where that is none of its own, or where another kind of member is in the group.
Expr few_of(State& s, const Group& group) {
  Expr few;
  bool plain = true;
  for (const Member& m : group.members) {
    if (m.kind == Member::Kind::kStore) {
      plain = plain && !m.full;
      continue;
    }
    const LoweredNode& node = *s.nodes[static_cast<size_t>(m.node)];
    plain = plain && m.stage == 0 && !is_custom(node.reduction_def());
    if (!node.reduction_def().few) continue;
    const auto index = index_map(s, *group.space, *m.sizes, true);
    if (!index) return {};
    const Expr dim = (*index)[*node.reduction_def().few];
    if (few.valid() && !(few == dim)) return {};
    few = dim;
  }
  return plain ? few : Expr();
}

}  // namespace

bool share_weight(State& s, const Group& group, NestPlan& plan) {
  if (plan.inner.empty() || plan.tile) return false;
  const Expr few = few_of(s, group);
  if (!few.valid()) return false;
  int64_t rows = 1;
  if (few.is_symbol()) {
    const auto own = std::find_if(plan.outer.begin(), plan.outer.end(), [&](const LoopSpec& loop) {
      return loop.dim == few && loop.kind == LoopKind::kParallel;
    });
    if (own == plan.outer.end()) return false;
    const IntRange count = s.ctx.range(own->extent);
    if (count.lo != count.hi) return false;
    rows = std::min(count.hi, kMostFew);
    while (count.hi % rows != 0) --rows;
    plan.copies.push_back({few, rows, rows < count.hi, {}, merged_dim(*group.space, *own)});
    const auto behind = plan.outer.erase(own);
    if (rows < count.hi) {
      // Blocks of rows follow each other while what they share of the matrix is near.
      const Expr blocks = s.ctx.constant(count.hi / rows), block = s.pooled_symbol(blocks, 211);
      plan.substitution[few] = block * s.ctx.constant(rows);
      const bool parallel = std::all_of(plan.outer.begin(), plan.outer.end(),
                                        [](const LoopSpec& l) { return l.kind == LoopKind::kParallel; });
      plan.outer.insert(parallel ? plan.outer.end() : behind, {block, blocks, LoopKind::kParallel, Expr(), Expr()});
    }
  }
  int64_t sums = 0;
  for (const Member& m : group.members) {
    if (m.kind != Member::Kind::kReduce) continue;
    sums += static_cast<int64_t>(s.nodes[static_cast<size_t>(m.node)]->reduction_def().dtypes.size());
  }
  const int64_t most =
      s.options.gpu ? kGpuSums : (s.options.vector_bytes >= 64 ? kWideRegisters : kWideRegisters / 2) / 2;
  const auto loop = std::find_if(plan.outer.begin(), plan.outer.end(), [&](const LoopSpec& l) {
    return l.kind == LoopKind::kParallel && l.dim.valid() && l.extent.is_const();
  });
  if (plan.inner.back().kind != LoopKind::kVector || loop == plan.outer.end()) return true;
  // On a CPU whatever the number of threads: it may change no bit.
  const int64_t threads = s.options.gpu ? 8 * s.options.gpu->multiprocessors : kCpuPieces;
  int64_t beside = 1;
  while (2 * beside <= kMostBeside && 2 * beside * rows * sums <= most &&
         loop->extent.const_value() % (2 * beside) == 0 && loop->extent.const_value() / (2 * beside) >= threads) {
    beside *= 2;
  }
  if (beside > 1) {
    const Expr count = s.ctx.constant(loop->extent.const_value() / beside);
    const Expr block = s.pooled_symbol(count, 210);
    plan.substitution[loop->dim] = block * s.ctx.constant(beside);
    plan.copies.push_back({loop->dim, beside, true, {}, merged_dim(*group.space, *loop)});
    *loop = {block, count, LoopKind::kParallel, Expr(), Expr()};
  }
  s.note(s.name_of(s.graph.node(group.members.front().node).outputs[0]),
         str_cat("a product of few rows as a reduction: ", rows, " rows of ", beside, " results side by side"));
  return true;
}

}  // namespace tatara::sched
