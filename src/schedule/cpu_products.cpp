// Products on a CPU: an iteration computes several rows of a vector of columns or two, whose sums stay in registers, and what follows is
// applied to them there. (The tile is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008;
// nothing is packed, since what is multiplied stays in the cache.)
#include <algorithm>

#include "loops/cpu_tile.h"
#include "schedule/emit.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr int64_t kWideSums = 16;          // in registers, of processors with vectors of 64 bytes, and
constexpr int64_t kNarrowSums = 12;        // of others
constexpr int64_t kChunkVectors = 4;       // of columns
constexpr int64_t kWholeMatrix = 1 << 18;  // bytes, that stay in the second cache
constexpr int64_t kPiecesPerThread = 2;

const ReductionDef* loop_product(const State& s, const Member& m) {
  if (m.kind != Member::Kind::kReduce) return nullptr;
  const ReductionDef& def = s.nodes[static_cast<size_t>(m.node)]->reduction_def();
  return def.lanes ? &def : nullptr;
}

/// The dim whose neighbours are those of dim `d` of the product: where the group's space has it in parts, the last of them.
Expr dim_of(State& s, const Group& group, const Member& m, size_t d) {
  const auto index = index_map(s, *group.space, *m.sizes, true);
  if (!index) return {};
  const Expr at = (*index)[d];
  for (const Expr symbol : group.space->symbols) {
    if (!symbol.is_symbol() || !at.contains(symbol)) continue;
    const Expr step = at.coefficient_of(symbol);
    if (step.valid() && step.is_const(1)) return symbol;
  }
  return {};
}

/// Of all products of the group the same; invalid where they differ.
Expr common_dim(State& s, const Group& group, std::optional<size_t> ReductionDef::* dim) {
  Expr common;
  for (const Member& m : group.members) {
    const ReductionDef* def = loop_product(s, m);
    if (def == nullptr) continue;
    const Expr own = dim_of(s, group, m, *(def->*dim));
    if (!own.valid() || (common.valid() && !(common == own))) return {};
    common = own;
  }
  return common;
}

/// Whether what the group reads is also what it writes: a row computed again would be another one.
bool writes_what_it_reads(const std::vector<Access>& accesses) {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
    return a.store && std::any_of(accesses.begin(), accesses.end(),
                                  [&](const Access& b) { return !b.store && b.buffer == a.buffer; });
  });
}

/// Columns in chunks of a few vectors, ahead of the loops over rows: what they read of a big matrix stays near, and threads share them.
void split_columns(State& s, NestPlan& plan, size_t rows_at, int64_t element_bytes, int64_t summed) {
  LoopSpec& lanes = plan.outer.back();
  const int64_t columns = s.hint(lanes.extent, 64);
  const int64_t chunk = kChunkVectors * std::max(s.options.vector_bytes, 16) / element_bytes;
  const int64_t pieces = s.hint(parallel_iterations(s, plan), 64);
  const bool big = columns * summed * element_bytes > kWholeMatrix;
  const bool idle = s.options.num_threads > 1 && pieces < kPiecesPerThread * s.options.num_threads;
  if (columns <= chunk || !(big || idle)) return;
  ExprContext& ctx = s.ctx;
  const Expr size = ctx.constant(chunk), whole = lanes.extent;
  const Expr count = s.simplify(ctx.ceildiv(whole, size)), block = s.pooled_symbol(count, 212);
  const bool even = whole.is_const() && whole.const_value() % chunk == 0;
  const Expr inside = even ? size : ctx.min(size, whole - block * size), at = s.pooled_symbol(inside, 213);
  plan.substitution[lanes.dim] = block * size + at;
  lanes = {at, inside, LoopKind::kVector, Expr(), size};
  plan.outer.insert(plan.outer.begin() + static_cast<std::ptrdiff_t>(rows_at),
                    {block, count, LoopKind::kParallel, Expr(), Expr()});
}

}  // namespace

Expr product_lanes(State& s, const Group& group) {
  if (s.options.gpu || !group.space->has_reduction) return {};
  return common_dim(s, group, &ReductionDef::lanes);
}

void keep_products_plain(State& s, const std::vector<Member>& others, const Member& member) {
  const auto is_product = [&s](const Member& m) { return loop_product(s, m) != nullptr; };
  const auto is_plain = [&](const Member& m) {
    return m.kind == Member::Kind::kStore ? !m.full : is_product(m) && m.stage == 0;
  };
  if (!is_product(member) && std::none_of(others.begin(), others.end(), is_product)) return;
  if (!is_plain(member) || !std::all_of(others.begin(), others.end(), is_plain)) {
    throw CannotFuse{"the rows of a product are computed side by side"};
  }
}

bool tile_products(State& s, const Group& group, const std::vector<Access>& accesses, NestPlan& plan) {
  if (s.options.gpu || plan.inner.empty() || plan.tile || plan.outer.empty()) return false;
  const Expr lanes = common_dim(s, group, &ReductionDef::lanes), beside = common_dim(s, group, &ReductionDef::beside);
  if (!lanes.valid() || plan.outer.back().kind != LoopKind::kVector) return false;
  const auto products = std::count_if(group.members.begin(), group.members.end(),
                                      [&s](const Member& m) { return loop_product(s, m) != nullptr; });
  const auto own = std::find_if(plan.outer.begin(), plan.outer.end(), [&](const LoopSpec& l) {
    return beside.valid() && l.dim == beside && l.kind == LoopKind::kParallel;
  });
  auto rows_at = static_cast<size_t>(own - plan.outer.begin());
  int64_t rows = 1;
  if (own != plan.outer.end()) {
    const Expr extent = own->extent;
    const int64_t count = s.hint(extent, 64);
    const int64_t sums = s.options.vector_bytes >= 64 ? kWideSums : kNarrowSums;
    rows = loops::rows_beside(count, std::clamp<int64_t>(sums / products, 1, loops::kMostRowsBeside));
    const bool full = extent.is_const() && count % rows == 0;
    if (!full && writes_what_it_reads(accesses)) rows = 1;
    if (rows > 1 || extent.is_const(1)) {
      const bool all = extent.is_const(rows);
      plan.copies.push_back(
          {beside, rows, !all, full ? Expr() : extent - s.ctx.constant(1), merged_dim(*group.space, *own)});
      plan.outer.erase(own);
      if (!all) {
        const Expr step = s.ctx.constant(rows), blocks = s.simplify(s.ctx.ceildiv(extent, step));
        const Expr block = s.pooled_symbol(blocks, 211);
        plan.substitution[beside] = block * step;
        plan.outer.insert(plan.outer.begin() + static_cast<std::ptrdiff_t>(rows_at),
                          {block, blocks, LoopKind::kParallel, Expr(), Expr()});
      }
    }
  } else {
    rows_at = plan.outer.size() - 1;
  }
  int64_t summed = 1;
  for (const LoopSpec& loop : plan.inner) summed *= std::max<int64_t>(s.hint(loop.extent, 64), 1);
  int64_t bytes = 4;
  for (const Access& a : accesses) bytes = std::max<int64_t>(bytes, dtype_size(a.dtype));
  if (plan.outer.back().dim.valid()) split_columns(s, plan, rows_at, bytes, summed);
  s.note(s.name_of(s.graph.node(group.members.front().node).outputs[0]),
         str_cat("a product as loops: ", rows, " rows side by side"));
  return true;
}

}  // namespace tatara::sched
