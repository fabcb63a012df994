// Where the code of a function goes: loops, and where the two ways from a branch come together again.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture::native {

/// A part of the code: the turns of a loop from its head on, or all of the function (head -1). Places are in code units.
struct CodePart {
  int head = -1;
  std::set<int> inside;
  bool holds(int place) const { return inside.contains(place); }
  /// Whether a step to this place ends the turn, or leaves the part.
  bool is_left_by(int place) const { return place == head || !holds(place); }
};

class CodeFlow {
 public:
  explicit CodeFlow(PyCodeObject* code);

  const CodePart& whole() const { return whole_; }
  /// The turns of the loop with this head, without what runs once when it is left.
  const CodePart& loop_at(int head) const { return loops_.at(head); }
  bool is_head(int place) const { return loops_.contains(place); }
  const std::map<int, CodePart>& loops() const { return loops_; }
  /// Places outside of a loop that its turns may go to, but for the end of its iterator.
  std::set<int> exits_of(int head) const;
  /// How many steps end a turn: one or more.
  int ends_of(int head) const;
  /// How many returns there are.
  int returns() const;
  /// The first place that all ways from here come through which do not leave the part before its end; -1: there is none.
  int join_of(int place, const CodePart& part);

 private:
  using Bits = std::vector<bool>;
  struct Ways {
    std::map<int, int> number;
    std::vector<int> places;
    std::vector<Bits> behind;  // by number: what all ways come through; empty: none comes to an end inside
  };
  const Ways& ways_in(const CodePart& part);

  PyCodeObject* code_;
  std::map<int, std::vector<int>> next_;
  CodePart whole_;
  std::map<int, CodePart> loops_;
  std::map<int, Ways> ways_;  // by head
};

}  // namespace tatara::capture::native
