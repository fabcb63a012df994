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

}  // namespace

std::optional<NestPlan> parts_side_by_side(State& s, const Group& group, const std::vector<Access>& accesses,
                                           const std::vector<Expr>& index_uses, double operations) {
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
  NestPlan plan;
  const auto has_lanes = [&](Expr lanes) {
    if (!lanes.valid()) return false;
    plan = plan_nest(s, space, accesses, index_uses, true, lanes);
    if (plan.tile || plan.outer.empty() || plan.outer.back().kind != LoopKind::kVector) return false;
    const auto along = plan.substitution.find(lanes);
    return along != plan.substitution.end() && along->second.contains(plan.outer.back().var) &&
           s.hint(plan.outer.back().extent, 64) >= kLeastLanes;
  };
  // The dim before them stands for all that follow each other with it.
  if (!has_lanes(space.symbols[first - 1]) && !has_lanes(longest_of(s, space, first))) return {};
  for (size_t d = first; d < space.dims.size(); ++d) {
    const auto own = std::find_if(plan.outer.begin(), plan.outer.end(), [&](const LoopSpec& loop) {
      return loop.dim == space.symbols[d] && loop.kind == LoopKind::kParallel && loop.extent == space.dims[d];
    });
    if (own == plan.outer.end()) return {};
    plan.outer.erase(own);
    plan.copies.push_back({space.symbols[d], space.dims[d].const_value()});
  }
  s.note(s.name_of(group.members.front().value), str_cat(count, " parts side by side"));
  return plan;
}

}  // namespace tatara::sched
