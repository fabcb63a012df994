#include "schedule/ordered_list.h"

#include <bit>

namespace tatara::sched {
namespace {

constexpr int kLabelBits = 62;
/// Of the labels in twice the range, this share may be taken: below 2, so that larger ranges are emptier.
constexpr double kGrowth = 1.5;

}  // namespace

OrderedList::OrderedList(const std::vector<int>& order) : items_(order.size()) {
  const uint64_t step = (uint64_t{1} << kLabelBits) / (order.size() + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    Item& item = items_[at(order[i])];
    item.label = step * (i + 1);
    item.previous = i > 0 ? order[i - 1] : -1;
    item.next = i + 1 < order.size() ? order[i + 1] : -1;
  }
  if (!order.empty()) first_ = order.front();
}

void OrderedList::move_before(int number, int target) {
  Item& item = items_[at(number)];
  if (item.next == target) return;
  (item.previous >= 0 ? items_[at(item.previous)].next : first_) = item.next;
  if (item.next >= 0) items_[at(item.next)].previous = item.previous;
  const auto below = [&] {
    const int previous = items_[at(target)].previous;
    return previous >= 0 ? items_[at(previous)].label : 0;
  };
  if (items_[at(target)].label - below() < 2) make_room(target);
  item.label = below() + (items_[at(target)].label - below()) / 2;
  item.previous = items_[at(target)].previous;
  item.next = target;
  (item.previous >= 0 ? items_[at(item.previous)].next : first_) = number;
  items_[at(target)].previous = number;
}

/// Spreads the labels of the smallest range around the number, of the sizes that are powers of two, that is not too full.
void OrderedList::make_room(int number) {
  int first = number, last = number;
  size_t count = 1;
  double most = 1;
  for (int bits = 1; bits <= kLabelBits; ++bits) {
    most *= kGrowth;
    const uint64_t begin = items_[at(number)].label >> bits << bits, end = begin + (uint64_t{1} << bits);
    for (int other = items_[at(first)].previous; other >= 0 && items_[at(other)].label >= begin; ++count) {
      first = other;
      other = items_[at(other)].previous;
    }
    for (int other = items_[at(last)].next; other >= 0 && items_[at(other)].label < end; ++count) {
      last = other;
      other = items_[at(other)].next;
    }
    const uint64_t step = (end - begin) / (count + 1);
    if (static_cast<double>(count) > most || step < 2) continue;
    uint64_t label = begin;
    for (int other = first;; other = items_[at(other)].next) {
      items_[at(other)].label = label += step;
      if (other == last) return;
    }
  }
}

std::vector<int> OrderedList::order() const {
  std::vector<int> result;
  result.reserve(items_.size());
  for (int number = first_; number >= 0; number = items_[at(number)].next) result.push_back(number);
  return result;
}

}  // namespace tatara::sched
