// The order in which kernels and host calls run: close to the program's, but what lets go of more memory than it takes does not wait.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "schedule/internal.h"
#include "support/error.h"
#include "support/options.h"

namespace tatara::sched {

namespace {

constexpr int64_t kLittle = 1 << 12;  // bytes that may wait in memory

class UnitOrder {
 public:
  explicit UnitOrder(State& s) : s_(s), readers_(s.values.size(), 0), bytes_(s.values.size(), 0) {}

  std::vector<int> run() {
    find_bytes();
    find_urgency();
    find_overwrites();
    std::vector<size_t> waiting(s_.units.size());
    keys_.resize(s_.units.size());
    for (size_t u = 0; u < waiting.size(); ++u) {
      waiting[u] = s_.needs.needs(static_cast<int>(u)).size();
      if (waiting[u] == 0) make_ready(static_cast<int>(u));
    }
    std::vector<int> order;
    while (!ready_.empty()) {
      const int u = ready_.begin()->unit;
      ready_.erase(ready_.begin());
      keys_[static_cast<size_t>(u)].reset();
      order.push_back(u);
      for (const ValueId v : unit(u).reads) {
        --readers_[static_cast<size_t>(v)];
        changed(v);
      }
      for (const int after : s_.needs.needed_by(u)) {
        if (--waiting[static_cast<size_t>(after)] == 0) make_ready(after);
      }
    }
    return order;
  }

 private:
  /// What runs first: what shrinks memory, then what the lowest number waits for.
  struct Key {
    int64_t growth;
    int urgency, unit;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  const Unit& unit(int u) const { return s_.units[static_cast<size_t>(u)]; }

  Key key(int u) const {
    const int64_t change = writes_too_early(u) ? 0 : growth(u);
    return {std::min<int64_t>(change, 0), urgency_[static_cast<size_t>(u)], u};
  }

  void make_ready(int u) { ready_.insert(keys_[static_cast<size_t>(u)].emplace(key(u))); }

  /// What is ready has another key, maybe, now that fewer units read the value: the last of them lets go of it, and what may be
  /// computed into it no longer has to wait.
  void changed(ValueId v) {
    const auto value = static_cast<size_t>(v);
    if (readers_[value] > 1) return;
    const auto renew = [&](int u) {
      std::optional<Key>& known = keys_[static_cast<size_t>(u)];
      if (!known) return;
      ready_.erase(*known);
      make_ready(u);
    };
    if (readers_[value] == 1) {
      for (const int u : s_.readers[value]) renew(u);
    }
    if (const auto found = writers_.find(v); found != writers_.end()) {
      for (const int u : found->second) renew(u);
    }
  }

  /// Units so that each comes after what it needs.
  std::vector<int> from_below() const {
    std::vector<int> order(s_.units.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return s_.needs.level(a) < s_.needs.level(b); });
    return order;
  }

  /// Where the program has what each unit needs: units are numbered by their first members, and later ones may have joined.
  std::vector<int> places() const {
    std::vector<int> result(s_.units.size());
    std::iota(result.begin(), result.end(), 0);
    for (const int u : from_below()) {
      int& place = result[static_cast<size_t>(u)];
      for (const ValueId v : unit(u).reads) {
        const int from = s_.values[static_cast<size_t>(v)].unit;
        if (from < 0 || from == u || bytes_of(s_, v) <= kLittle) continue;
        place = std::max(place, result[static_cast<size_t>(from)]);
      }
    }
    return result;
  }

  /// Among those that are ready, what the earliest place waits for. A kernel with late parts that need little (a parameter's update
  /// in the kernel of its gradient) has an early place, and what these parts need must not hold it up: whatever else is ready
  /// would run meanwhile, and lie in memory.
  void find_urgency() {
    urgency_ = places();
    const std::vector<int> order = from_below();
    for (size_t i = order.size(); i-- > 0;) {
      for (const int before : s_.needs.needs(order[i])) {
        int& urgent = urgency_[static_cast<size_t>(before)];
        urgent = std::min(urgent, urgency_[static_cast<size_t>(order[i])]);
      }
    }
  }

  /// Memory that comes and goes: not that of inputs and results.
  void find_bytes() {
    produced_.resize(s_.units.size());
    for (size_t i = 0; i < s_.values.size(); ++i) {
      const ValueInfo& info = s_.values[i];
      if (!info.stored || info.unit < 0) continue;
      bytes_[i] = bytes_of(s_, static_cast<ValueId>(i));
    }
    const auto stays = [&](ValueId v) { bytes_[static_cast<size_t>(base_of(s_, v))] = 0; };
    for (const GraphOutput& output : s_.graph.outputs()) {
      if (output.value != kNoValue) stays(output.value);
    }
    for (const InputWrite& write : s_.graph.input_writes()) stays(write.value);
    for (size_t i = 0; i < s_.values.size(); ++i) {
      if (bytes_[i] > 0) produced_[static_cast<size_t>(s_.values[i].unit)] += bytes_[i];
    }
    for (size_t v = 0; v < readers_.size(); ++v) readers_[v] = static_cast<int>(s_.readers[v].size());
  }

  void find_overwrites() {
    overwrites_.resize(s_.units.size());
    for (const InputWrite& write : s_.graph.input_writes()) {
      const int unit = s_.values[static_cast<size_t>(base_of(s_, write.value))].unit;
      if (unit >= 0) overwrite(unit, s_.graph.inputs()[static_cast<size_t>(write.input_index)]);
    }
    for (size_t u = 0; u < s_.units.size(); ++u) {
      if (s_.units[u].kind != Unit::Kind::kScatter) continue;
      const LoweredNode& node = *s_.nodes[static_cast<size_t>(s_.units[u].node)];
      overwrite(static_cast<int>(u), node.operands[static_cast<size_t>(node.scatter_def().base_operand)]);
    }
  }
  void overwrite(int unit, ValueId v) {
    overwrites_[static_cast<size_t>(unit)].push_back(v);
    writers_[v].push_back(unit);
  }

  /// What others still read cannot be computed in place of.
  bool writes_too_early(int u) const {
    const auto& inputs = overwrites_[static_cast<size_t>(u)];
    return std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) {
      return readers_[static_cast<size_t>(v)] > (unit(u).reads.contains(v) ? 1 : 0);
    });
  }

  /// Bytes that lie in memory after the unit and did not before.
  int64_t growth(int u) const {
    int64_t result = produced_[static_cast<size_t>(u)];
    for (const ValueId v : unit(u).reads) {
      if (readers_[static_cast<size_t>(v)] == 1) result -= bytes_[static_cast<size_t>(v)];
    }
    return result;
  }

  State& s_;
  std::vector<int> readers_;  // per value: units to come that read it
  std::vector<int64_t> bytes_;
  std::vector<int> urgency_;
  std::vector<int64_t> produced_;
  std::vector<std::vector<ValueId>> overwrites_;           // per unit: what it may be computed into
  std::unordered_map<ValueId, std::vector<int>> writers_;  // the same the other way round
  std::set<Key> ready_;
  std::vector<std::optional<Key>> keys_;  // per unit that is ready
};

/// Whether the unit is an operator of a GPU's library that reads places: one that is out of bounds stops the device for good.
bool may_stop_device(const State& s, const Unit& unit) {
  if (unit.kind != Unit::Kind::kHost) return false;
  const Node& node = s.graph.node(unit.node);
  bool places = false;
  for_each_operand(node, [&](ValueId v) {
    places = places || (v != kNoValue && is_integral(s.graph.type(v).dtype) && s.graph.type(v).dtype != DType::kBool);
  });
  return places && !node.op->decides;
}

/// What waits for a condition on a GPU waits as late as it may: until then the device has work.
void wait_late(State& s) {
  if (!s.options.gpu) return;
  for (size_t i = 0; i < s.order.size(); ++i) {
    const int u = s.order[i];
    const Unit& unit = s.units[static_cast<size_t>(u)];
    if (unit.kind != Unit::Kind::kHost || !s.graph.node(unit.node).op->decides) continue;
    size_t end = i + 1;
    while (end < s.order.size()) {
      const std::vector<int>& needs = s.needs.needs(s.order[end]);
      if (std::find(needs.begin(), needs.end(), u) != needs.end()) break;
      ++end;
    }
    const auto at = [&](size_t place) { return s.order.begin() + static_cast<std::ptrdiff_t>(place); };
    std::rotate(at(i), at(i + 1), at(end));
    return;  // a graph has one
  }
}

/// Conditions that the program asks for are looked at before inputs are written to: where one falls otherwise than in the trace,
/// nothing has happened yet, and the program itself runs.
void decide_before_writes(State& s) {
  std::vector<int> checks, writers;
  for (size_t n = 0; n < s.graph.num_nodes(); ++n) {
    const Node& node = s.graph.node(static_cast<NodeId>(n));
    if (!node.op->decides || s.nodes[n] == nullptr) continue;
    checks.push_back(s.values[static_cast<size_t>(node.outputs[0])].unit);
  }
  if (checks.empty()) return;
  for (const InputWrite& write : s.graph.input_writes()) {
    writers.push_back(s.values[static_cast<size_t>(base_of(s, write.value))].unit);
  }
  for (size_t u = 0; u < s.units.size(); ++u) {
    if (s.units[u].kind == Unit::Kind::kCopy || (s.options.gpu && may_stop_device(s, s.units[u])))
      writers.push_back(static_cast<int>(u));
  }
  for (const int check : checks) {
    for (const int writer : writers) {
      if (check < 0 || writer < 0 || s.needs.may_need(check, writer)) continue;  // check_decisions() says it
      if (s.needs.can_need(writer, {check})) s.needs.need(writer, {check});
    }
  }
}

}  // namespace

void check_decisions(const Plan& plan) {
  for (size_t i = static_cast<size_t>(std::max(plan.first_write, 0)); plan.first_write >= 0 && i < plan.steps.size();
       ++i) {
    const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i]);
    const bool decides = launch != nullptr && plan.kernels[static_cast<size_t>(launch->kernel)].decides();
    if (decides || awaits_condition(plan.steps[i])) throw Unsupported("a condition that comes behind a write");
  }
}

int64_t bytes_of(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  int64_t result = dtype_size(type.dtype);
  for (const Expr e : type.sizes) result *= std::max<int64_t>(s.hint(e, 64), 0);
  return result;
}

void order_units(State& s) {
  decide_before_writes(s);
  s.order = UnitOrder(s).run();
  TATARA_CHECK(s.order.size() == s.units.size(), "the units depend on each other in a circle");
  if (!s.options.passes.skips("delays")) delay_units(s);
  wait_late(s);
}

}  // namespace tatara::sched
