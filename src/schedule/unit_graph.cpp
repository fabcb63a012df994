#include "schedule/unit_graph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tatara::sched {

int UnitGraph::add() {
  needs_.emplace_back();
  needed_by_.emplace_back();
  levels_.push_back(0);
  visited_.push_back(0);
  return static_cast<int>(needs_.size()) - 1;
}

bool UnitGraph::first_visit(int unit) {
  return std::exchange(visited_[static_cast<size_t>(unit)], question_) != question_;
}

bool UnitGraph::may_need(int later, int earlier) {
  if (later == earlier) return true;
  if (level(earlier) >= level(later)) return false;
  ++question_;
  pending_.assign(1, later);
  size_t looked = 0;
  bool found = false;
  while (!pending_.empty() && !found) {
    const int unit = pending_.back();
    if ((looked += 1 + needs(unit).size()) > kMostLooked) break;
    pending_.pop_back();
    for (const int before : needs(unit)) {
      if (before == earlier) {
        found = true;
        break;
      }
      if (level(before) > level(earlier) && first_visit(before)) pending_.push_back(before);
    }
  }
  looked_at_ += static_cast<int64_t>(looked);
  return found || !pending_.empty();
}

int UnitGraph::level_above(int unit, const std::vector<int>& others) {
  int result = level(unit);
  for (const int other : others) result = std::max(result, level(other) + 1);
  return result;
}

bool UnitGraph::can_need(int unit, const std::vector<int>& others) {
  return raise(unit, level_above(unit, others), true);
}

void UnitGraph::need(int unit, const std::vector<int>& others) {
  for (const int other : others) {
    std::vector<int>& list = needs_[static_cast<size_t>(unit)];
    if (std::find(list.begin(), list.end(), other) != list.end()) continue;
    list.push_back(other);
    needed_by_[static_cast<size_t>(other)].push_back(unit);
  }
  raise(unit, level_above(unit, others), false);
}

bool UnitGraph::raise(int unit, int to, bool only_try) {
  if (level(unit) >= to) return true;
  using Raised = std::pair<int, int>;  // the level before, the unit
  // By the old levels, so that each unit comes after all that raise it.
  std::priority_queue<Raised, std::vector<Raised>, std::greater<>> pending;
  std::vector<Raised> all;
  ++question_;
  const auto raise_one = [&](int one, int least) {
    if (level(one) >= least) return;
    if (first_visit(one)) {
      pending.emplace(level(one), one);
      all.emplace_back(level(one), one);
    }
    levels_[static_cast<size_t>(one)] = least;
  };
  raise_one(unit, to);
  size_t looked = 0;
  while (!pending.empty()) {
    const int raised = pending.top().second;
    looked += 1 + needed_by(raised).size();
    if (only_try && looked > kMostLooked) break;
    pending.pop();
    for (const int after : needed_by(raised)) raise_one(after, level(raised) + 1);
  }
  looked_at_ += static_cast<int64_t>(looked);
  const bool good = pending.empty();
  if (only_try) {
    for (const auto& [old, one] : all) levels_[static_cast<size_t>(one)] = old;
  }
  return good;
}

}  // namespace tatara::sched
