// What is computed long before it is read is computed later.
#include <algorithm>
#include <map>
#include <vector>

#include "schedule/internal.h"

namespace tatara::sched {

namespace {

/// Moves what is computed long before it is read to right before its first reader, where that leaves less in memory. A backward
/// graph begins with all that is computed again, of every layer.
class Delay {
 public:
  explicit Delay(State& s) : s_(s), position_(s.units.size()), results_(s.units.size()) {
    for (size_t i = 0; i < s.order.size(); ++i) position_[static_cast<size_t>(s.order[i])] = static_cast<int>(i);
    readers_.resize(s.values.size());
    for (size_t u = 0; u < s.units.size(); ++u) {
      for (const ValueId v : s.units[u].reads) readers_[static_cast<size_t>(v)].push_back(static_cast<int>(u));
    }
    stays_.assign(s.values.size(), false);
    for (size_t v = 0; v < s.values.size(); ++v) {
      const int unit = s.values[v].unit;
      if (unit >= 0) results_[static_cast<size_t>(unit)].push_back(static_cast<ValueId>(v));
    }
    for (const GraphOutput& output : s.graph.outputs()) {
      if (output.value != kNoValue) stays_[static_cast<size_t>(base_of(s_, output.value))] = true;
    }
    for (const InputWrite& write : s.graph.input_writes()) {
      const ValueId base = base_of(s_, write.value);
      stays_[static_cast<size_t>(base)] = true;
      const ValueId input = s.graph.inputs()[static_cast<size_t>(write.input_index)];
      written_[input] = s.values[static_cast<size_t>(base)].unit;
    }
  }

  void run() {
    const std::vector<int> before = s_.order;
    for (size_t i = before.size(); i-- > 0;) {
      const int target = first_reader(before[i]);
      if (target > position_[static_cast<size_t>(before[i])] + 1 && pays(before[i], target)) move(before[i], target);
    }
  }

 private:
  /// Where the unit could go at the latest: -1 where it must stay.
  int first_reader(int u) const {
    const Unit& unit = s_.units[static_cast<size_t>(u)];
    if (unit.node >= 0 && s_.graph.node(unit.node).op->nondeterministic) return -1;
    int first = static_cast<int>(s_.order.size());
    for (const ValueId v : results_[static_cast<size_t>(u)]) {
      if (stays_[static_cast<size_t>(v)]) return -1;
      for (const int reader : readers_[static_cast<size_t>(v)]) {
        if (reader != u) first = std::min(first, position_[static_cast<size_t>(reader)]);
      }
    }
    for (const ValueId v : unit.reads) {
      // The new contents may be computed over the old ones, which are read here.
      const auto writer = written_.find(v);
      if (writer != written_.end() && writer->second >= 0) {
        first = std::min(first, position_[static_cast<size_t>(writer->second)]);
      }
    }
    return first == static_cast<int>(s_.order.size()) ? -1 : first;
  }

  /// Whether more bytes wait for their reader than would wait to be read.
  bool pays(int u, int target) const {
    int64_t gained = 0, lost = 0;
    for (const ValueId v : results_[static_cast<size_t>(u)]) {
      if (s_.values[static_cast<size_t>(v)].stored) gained += bytes_of(s_, v);
    }
    for (const ValueId v : s_.units[static_cast<size_t>(u)].reads) {
      int last = -1;
      for (const int reader : readers_[static_cast<size_t>(v)]) {
        if (reader != u) last = std::max(last, position_[static_cast<size_t>(reader)]);
      }
      if (last < target && !stays_[static_cast<size_t>(v)]) lost += bytes_of(s_, v);
    }
    return lost < gained;
  }

  /// To right before the unit at `target`.
  void move(int u, int target) {
    const auto from = static_cast<size_t>(position_[static_cast<size_t>(u)]), to = static_cast<size_t>(target) - 1;
    const auto begin = s_.order.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(from) + 1,
                begin + static_cast<std::ptrdiff_t>(to) + 1);
    for (size_t i = from; i <= to; ++i) position_[static_cast<size_t>(s_.order[i])] = static_cast<int>(i);
  }

  State& s_;
  std::vector<int> position_;                  // per unit
  std::vector<std::vector<ValueId>> results_;  // per unit
  std::vector<std::vector<int>> readers_;      // per value: units
  std::vector<bool> stays_;                    // per value: in memory until the end
  std::map<ValueId, int> written_;             // inputs: the unit that computes their new contents
};

}  // namespace

void delay_units(State& s) { Delay(s).run(); }

}  // namespace tatara::sched
