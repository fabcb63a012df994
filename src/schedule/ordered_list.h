// Numbers in an order that changes: which of two comes first is known at once, and one moves in little time.
#pragma once

#include <cstdint>
#include <vector>

namespace tatara::sched {

/// Each number has a label, and labels grow along the list. Where there is no room for a label between two neighbours, those around
/// them get new ones, as many as lie thinly enough: on average that is few for each move.
class OrderedList {
 public:
  /// The numbers below order.size(), in this order.
  explicit OrderedList(const std::vector<int>& order);

  uint64_t label(int number) const { return items_[at(number)].label; }
  bool before(int a, int b) const { return label(a) < label(b); }
  /// The one after it; -1 behind the last.
  int next(int number) const { return items_[at(number)].next; }
  /// To right before `target`, which is another.
  void move_before(int number, int target);
  std::vector<int> order() const;

 private:
  struct Item {
    uint64_t label = 0;
    int previous = -1, next = -1;
  };
  static size_t at(int number) { return static_cast<size_t>(number); }
  void make_room(int number);

  std::vector<Item> items_;
  int first_ = -1;
};

}  // namespace tatara::sched
