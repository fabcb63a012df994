// What the units of a schedule in the making wait for.
#pragma once

#include <cstdint>
#include <vector>

namespace tatara::sched {

/// The units and what each needs directly. Units are added one after the other, and one that is there may come to need others that
/// were added later, as long as none of these needs it in turn.
///
/// A unit's level is higher than those of all that it needs, which answers most questions at once; for the others the units between
/// two levels are searched. No question, and no new need, looks at more than kMostLooked of them: where that does not do, the
/// answer is that there may be a circle.
class UnitGraph {
 public:
  static constexpr size_t kMostLooked = 4000;

  /// The next number.
  int add();
  size_t size() const { return needs_.size(); }
  const std::vector<int>& needs(int unit) const { return needs_[static_cast<size_t>(unit)]; }
  int level(int unit) const { return levels_[static_cast<size_t>(unit)]; }
  const std::vector<int>& needed_by(int unit) const { return needed_by_[static_cast<size_t>(unit)]; }

  /// Whether `later` needs `earlier`, or what needs that, and so on; true, too, when it takes too long to tell.
  bool may_need(int later, int earlier);
  /// Whether `unit` can come to need these, none of which may need it, within reasonable time.
  bool can_need(int unit, const std::vector<int>& others);
  /// `unit` needs these from now on: can_need() said yes, or nothing needs the unit yet.
  void need(int unit, const std::vector<int>& others);

  /// What all answers together looked at: how much work this was.
  int64_t looked_at() const { return looked_at_; }

 private:
  bool first_visit(int unit);
  int level_above(int unit, const std::vector<int>& others);
  /// Moves the unit, and what needs it where that must be, to higher levels. False, and nothing moved, when these are too many.
  bool raise(int unit, int to, bool only_try);

  std::vector<std::vector<int>> needs_, needed_by_;
  std::vector<int> levels_;
  std::vector<uint32_t> visited_;  // per unit: the question that saw it last
  uint32_t question_ = 0;
  std::vector<int> pending_;
  int64_t looked_at_ = 0;
};

}  // namespace tatara::sched
