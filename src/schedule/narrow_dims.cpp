// Joined parts side by side (quaternions, points, small matrices), on a CPU: what an element is depends on its place along a short dim. As
// lanes of a vector, each would compute all of them and choose. Instead an iteration computes all elements of that dim, each without a
// choice, and lanes lie along another one.
#include <algorithm>
#include <span>

#include "schedule/emit.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr int64_t kMostElements = 16;  // of the short dims
constexpr int64_t kLeastLanes = 8;     // of the other one
constexpr double kMostOperations = 1500;
constexpr double kAcrossLanes = 16;  // an access whose lanes lie apart, in operations of a vector
constexpr double kPays = 0.85;       // of what choosing costs

/// The longest of the first dims.
Expr longest_of(State& s, const Space& space, size_t dims) {
  Expr best;
  int64_t most = kLeastLanes - 1;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t length = s.hint(space.dims[d], 64);
    if (length <= most) continue;
    most = length;
    best = space.symbols[d];
  }
  return best;
}

/// Operations of a vector for as many rows as it has lanes: where lanes lie along the short dims, and each computes all to choose one.
double cost_of_choosing(State& s, const NestPlan& chosen, const std::vector<Access>& accesses, double operations,
                        int64_t lanes, int64_t count) {
  double vectors = static_cast<double>(count);
  const bool short_lanes = !chosen.outer.empty() && chosen.outer.back().kind == LoopKind::kVector &&
                           s.hint(chosen.outer.back().extent, 64) < lanes;
  if (short_lanes) vectors *= static_cast<double>(lanes) / static_cast<double>(s.hint(chosen.outer.back().extent, 64));
  return vectors * (operations + static_cast<double>(accesses.size()));
}

/// The same where they are computed side by side: what lies along the short dims is accessed once for each of their elements.
double cost_side_by_side(State& s, Expr lane, const std::vector<Access>& accesses, std::span<const Expr> narrow,
                         double operations, int64_t count) {
  double cost = operations;
  std::vector<std::pair<BufferId, Expr>> seen;
  for (const Access& a : accesses) {
    const std::pair<BufferId, Expr> place{a.buffer, a.address};
    if (!a.store && std::find(seen.begin(), seen.end(), place) != seen.end()) continue;
    seen.push_back(place);
    const bool along = std::any_of(narrow.begin(), narrow.end(), [&](Expr dim) { return a.address.contains(dim); });
    const Expr step = stride_of(s.ctx, a.address, lane);
    const bool together = step.valid() && (step.is_const(0) || step.is_const(1));
    cost += (together ? 1 : kAcrossLanes) * (along ? static_cast<double>(count) : 1);
  }
  return cost;
}

/// The nest of which an iteration computes all elements along the dims from `first` on, and lanes lie along another one; nullopt: there
/// is none.
std::optional<NestPlan> without_last_dims(State& s, const Space& space, const std::vector<Access>& accesses,
                                          const std::vector<Expr>& index_uses, size_t first) {
  NestPlan plan;
  const auto has_lanes = [&](Expr dim) {
    if (!dim.valid()) return false;
    plan = plan_nest(s, space, accesses, index_uses, true, dim);
    if (plan.tile || plan.outer.empty() || plan.outer.back().kind != LoopKind::kVector) return false;
    const auto along = plan.substitution.find(dim);
    return along != plan.substitution.end() && along->second.contains(plan.outer.back().var) &&
           s.hint(plan.outer.back().extent, 64) >= kLeastLanes;
  };
  // The dim before them stands for all that follow each other with it.
  if (first == 0) return {};
  if (!has_lanes(space.symbols[first - 1]) && !has_lanes(longest_of(s, space, first))) return {};
  for (size_t d = first; d < space.dims.size(); ++d) {
    const auto own = std::find_if(plan.outer.begin(), plan.outer.end(), [&](const LoopSpec& loop) {
      return loop.dim == space.symbols[d] && loop.kind == LoopKind::kParallel && loop.extent == space.dims[d];
    });
    if (own == plan.outer.end()) return {};
    plan.outer.erase(own);
    plan.copies.push_back({space.symbols[d], space.dims[d].const_value()});
  }
  return plan;
}

/// Null: the member takes no matrices apart.
const LoweredNode::Block* block_of(State& s, const Member& m) {
  if (m.kind != Member::Kind::kStore) return nullptr;
  const LoweredNode& node = *s.nodes[static_cast<size_t>(m.node)];
  return node.block_of(static_cast<size_t>(s.graph.value(m.value).output_index));
}

}  // namespace

std::optional<NestPlan> parts_side_by_side(State& s, const Group& group, const std::vector<Access>& accesses,
                                           const std::vector<Expr>& index_uses, const NestPlan& chosen,
                                           double operations) {
  const Space& space = *group.space;
  if (s.options.gpu || space.has_reduction || operations > kMostOperations) return {};
  size_t first = space.dims.size();  // of the short dims
  int64_t count = 1;
  while (first > 0 && space.dims[first - 1].is_const() &&
         count * space.dims[first - 1].const_value() <= kMostElements) {
    count *= space.dims[--first].const_value();
  }
  const std::span<const Expr> narrow = std::span(space.symbols).subspan(first);
  const bool masked = std::any_of(accesses.begin(), accesses.end(), [](const Access& a) { return a.masked; });
  const bool chooses = std::any_of(index_uses.begin(), index_uses.end(), [&](Expr use) {
    return std::any_of(narrow.begin(), narrow.end(), [&](Expr dim) { return use.contains(dim); });
  });
  if (first == 0 || !masked || !chooses) return {};
  int64_t bytes = 4;
  for (const Access& a : accesses) bytes = std::max<int64_t>(bytes, std::min(dtype_size(a.dtype), 8));
  const int64_t lanes = std::max<int64_t>(s.options.vector_bytes / bytes, 1);
  const double apart = cost_side_by_side(s, space.symbols[first - 1], accesses, narrow, operations, count);
  if (apart > kPays * cost_of_choosing(s, chosen, accesses, operations, lanes, count)) return {};
  std::optional<NestPlan> plan = without_last_dims(s, space, accesses, index_uses, first);
  if (!plan) return {};
  s.note(s.name_of(group.members.front().value), str_cat(count, " parts side by side"));
  return plan;
}

void keep_blocks_whole(State& s, const std::vector<Member>& others, const Member& member) {
  const auto reduces = [](const Member& m) { return m.kind == Member::Kind::kReduce || !m.full; };
  const auto is_whole = [&s](const Member& m) { return block_of(s, m) != nullptr; };
  const auto any = [&](const auto& fits) { return fits(member) || std::any_of(others.begin(), others.end(), fits); };
  if (any(is_whole) && any(reduces)) throw CannotFuse{"an iteration computes whole matrices"};
}

std::optional<NestPlan> whole_blocks(State& s, const Group& group, const std::vector<Access>& accesses,
                                     const std::vector<Expr>& index_uses) {
  const Space& space = *group.space;
  if (space.has_reduction) return {};
  int64_t elements = 1;
  for (const Member& m : group.members) {
    if (const LoweredNode::Block* const block = block_of(s, m)) elements = std::max(elements, block->elements);
  }
  size_t first = space.dims.size();
  int64_t count = 1;
  while (first > 0 && count < elements && space.dims[first - 1].is_const()) {
    count *= space.dims[--first].const_value();
  }
  if (elements == 1 || count != elements) return {};
  std::optional<NestPlan> plan = without_last_dims(s, space, accesses, index_uses, first);
  if (!plan) {
    if (s.options.gpu) return {};  // a thread an element, which it chooses
    // Too few for lanes.
    plan = plain_nest(space);
    plan->outer.resize(first);
    for (size_t d = first; d < space.dims.size(); ++d) {
      plan->copies.push_back({space.symbols[d], space.dims[d].const_value()});
    }
  }
  s.note(s.name_of(group.members.front().value), str_cat("matrices of ", count, " elements, each by one iteration"));
  return plan;
}

}  // namespace tatara::sched
