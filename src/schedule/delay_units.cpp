// What is computed long before it is read is computed later.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "schedule/internal.h"
#include "schedule/ordered_list.h"

namespace tatara::sched {

namespace {

/// Moves what is computed long before it is read to right before its first reader, where that leaves less in memory. A backward
/// graph begins with all that is computed again, of every layer.
class Delay {
 public:
  explicit Delay(State& s) : s_(s), list_(s.order), results_(s.units.size()), last_readers_(s.values.size()) {
    for (size_t u = 0; u < s.units.size(); ++u) {
      for (const ValueId v : s.units[u].reads) note_reader(v, static_cast<int>(u));
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
      const int u = before[i];
      const int target = first_reader(u);
      if (target < 0 || list_.next(u) == target || !list_.before(u, target) || !pays(u, target)) continue;
      list_.move_before(u, target);
      for (const ValueId v : s_.units[static_cast<size_t>(u)].reads) note_reader(v, u);
    }
    s_.order = list_.order();
  }

 private:
  /// The two that read a value last.
  struct LastReaders {
    int last = -1, before = -1;
  };

  /// The unit reads the value, where the unit is now: units only move back.
  void note_reader(ValueId v, int u) {
    LastReaders& readers = last_readers_[static_cast<size_t>(v)];
    const auto later = [&](int other) { return other < 0 || list_.before(other, u); };
    if (u == readers.last) return;
    if (later(readers.last)) {
      readers.before = std::exchange(readers.last, u);
    } else if (u != readers.before && later(readers.before)) {
      readers.before = u;
    }
  }

  /// The unit that it could stand before at the latest: -1 where it must stay.
  int first_reader(int u) const {
    const Unit& unit = s_.units[static_cast<size_t>(u)];
    if (unit.node >= 0 && s_.graph.node(unit.node).op->nondeterministic) return -1;
    int first = -1;
    const auto consider = [&](int reader) {
      if (first < 0 || list_.before(reader, first)) first = reader;
    };
    for (const ValueId v : results_[static_cast<size_t>(u)]) {
      if (stays_[static_cast<size_t>(v)]) return -1;
      for (const int reader : s_.readers[static_cast<size_t>(v)]) {
        if (reader != u) consider(reader);
      }
    }
    for (const ValueId v : unit.reads) {
      // The new contents may be computed over the old ones, which are read here.
      const auto writer = written_.find(v);
      if (writer != written_.end() && writer->second >= 0) consider(writer->second);
    }
    return first;
  }

  /// Whether more bytes wait for their reader than would wait to be read.
  bool pays(int u, int target) const {
    int64_t gained = 0, lost = 0;
    for (const ValueId v : results_[static_cast<size_t>(u)]) {
      if (s_.values[static_cast<size_t>(v)].stored) gained += bytes_of(s_, v);
    }
    for (const ValueId v : s_.units[static_cast<size_t>(u)].reads) {
      const LastReaders& readers = last_readers_[static_cast<size_t>(v)];
      const int last = readers.last == u ? readers.before : readers.last;
      if ((last < 0 || list_.before(last, target)) && !stays_[static_cast<size_t>(v)]) lost += bytes_of(s_, v);
    }
    return lost < gained;
  }

  State& s_;
  OrderedList list_;
  std::vector<std::vector<ValueId>> results_;  // per unit
  std::vector<LastReaders> last_readers_;      // per value
  std::vector<bool> stays_;                    // per value: in memory until the end
  std::map<ValueId, int> written_;             // inputs: the unit that computes their new contents
};

}  // namespace

void delay_units(State& s) { Delay(s).run(); }

}  // namespace tatara::sched
