#include "transforms/loop_stretch.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>

#include "ops/core/op_def.h"
#include "ops/rules/derivative.h"
#include "support/hash.h"

namespace tatara {
namespace {

constexpr size_t kLongestTurn = 2000;  // nodes
constexpr size_t kMostTurnsBack = 4;
constexpr size_t kMostLikeParts = 6;

std::optional<int64_t> integer_of(const Arg& arg) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return std::nullopt;
  if (const auto* n = std::get_if<int64_t>(scalar)) return *n;
  const auto* e = std::get_if<Expr>(scalar);
  return e != nullptr && e->is_const() ? std::optional(e->const_value()) : std::nullopt;
}

std::optional<double> number_of(const Arg& arg) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return std::nullopt;
  if (const auto* real = std::get_if<double>(scalar)) return *real;
  constexpr int64_t kExact = int64_t{1} << 24;
  const auto* whole = std::get_if<int64_t>(scalar);
  if (whole == nullptr || *whole > kExact || *whole < -kExact) return std::nullopt;
  return static_cast<double>(*whole);
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool is_slice(const Node& node) {
  static const OpDef* const slice = &OpRegistry::global().get("slice");
  return node.op == slice;
}

bool reads_part(const Node& node) { return node.op->traits.picks_index || is_slice(node); }

bool all_constant(const TensorType& type) {
  const auto constant = [](const std::vector<Expr>& list) {
    return std::all_of(list.begin(), list.end(), [](Expr e) { return e.is_const(); });
  };
  return constant(type.sizes) && constant(type.strides);
}

/// Hashes of nodes without their operands, and of a part's place: equal where nodes may be those of two turns.
class NodeKinds {
  static constexpr uint64_t kNumber = 0x9E3779B97F4A7C15U;

 public:
  explicit NodeKinds(const Graph& graph) : graph_(graph) {}

  uint64_t of(const Node& node, size_t number) {
    if (!may_repeat(node)) return hash_combine(0x5851F42D4C957F2DU, number);
    uint64_t h = reinterpret_cast<uintptr_t>(node.op);
    h = hash_combine(h, (node.no_grad ? 1U : 0U) + (node.closed ? 2U : 0U) + (node.derived ? 4U : 0U));
    for (const ValueId v : node.outputs) h = hash_combine(h, reinterpret_cast<uintptr_t>(graph_.value(v).type));
    const std::optional<PartRead> part = reads_part(node) ? part_read(graph_, node) : std::nullopt;
    if (part)
      return hash_combine(hash_combine(h, static_cast<uint64_t>(part->dim)), static_cast<uint64_t>(part->width));
    const int varying = turn_number(graph_, node);
    for (size_t i = 0; i < node.args.size(); ++i) {
      h = static_cast<int>(i) == varying ? hash_combine(h, kNumber) : hash_combine(h, of(node.args[i]));
    }
    return h;
  }

 private:
  uint64_t of(const Arg& arg) const {
    const std::hash<std::string> text;
    uint64_t h = arg.index();
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) return hash_combine(h, tensor->value == kNoValue ? 1 : 0);
    if (const auto* list = std::get_if<TensorList>(&arg)) {
      for (const ValueId v : list->values) h = hash_combine(h, v == kNoValue ? 1 : 0);
    } else if (const auto* scalar = std::get_if<Scalar>(&arg)) {
      h = hash_combine(hash_combine(h, scalar->index()), text(scalar_str(*scalar)));
    } else if (const auto* ints = std::get_if<SymInts>(&arg)) {
      for (const Expr e : ints->values) h = hash_combine(h, e.hash());
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      h = hash_combine(h, static_cast<uint64_t>(*dtype));
    } else if (const auto* device = std::get_if<Device>(&arg)) {
      h = hash_combine(h, text(device->str()));
    } else if (const auto* string = std::get_if<std::string>(&arg)) {
      h = hash_combine(h, text(*string));
    } else if (const auto* bools = std::get_if<std::vector<bool>>(&arg)) {
      for (const bool b : *bools) h = hash_combine(h, b ? 1 : 0);
    } else if (const auto* reals = std::get_if<std::vector<double>>(&arg)) {
      for (const double d : *reals) h = hash_combine(h, text(scalar_str(Scalar(d))));
    }
    return h;
  }

  bool may_repeat(const Node& node) {
    const OpDef& op = *node.op;
    const bool plain = !op.draws() && !op.traits.varies && !op.decides && !is_loop(op) &&
                       op.traits.stride_use != StrideUse::kMemory && !is_tie(op);
    if (!plain || node.rule != nullptr || node.region != nullptr || node.again != 0) return false;
    if (OpRegistry::global().find(op.name) != &op) return false;
    for (const ValueId v : node.outputs) {
      if (!fits(graph_.value(v).type)) return false;
    }
    bool fine = true;
    for_each_operand(node, [&](ValueId v) { fine = fine && fits(graph_.value(v).type); });
    for_each_integer(node, [&](Expr e) { fine = fine && e.is_const(); });
    return fine;
  }

  bool fits(const TensorType* type) {
    const auto [found, added] = fits_.try_emplace(type, false);
    if (added) {
      found->second = type->device.kind == DeviceKind::kCpu && all_constant(*type) && !type->is_wrapped_number;
    }
    return found->second;
  }

  const Graph& graph_;
  std::unordered_map<const TensorType*, bool> fits_;
};

struct Candidate {
  size_t at = 0, period = 0, times = 0;
  size_t nodes() const { return period * times; }
};

/// Where windows of nodes come again at equal distances.
Candidate best_candidate(const std::vector<uint64_t>& kinds, size_t fewest) {
  struct Seen {
    size_t last = 0, distance = 0, times = 0, first = 0;
  };
  Candidate best;
  for (const size_t window : {size_t{1}, size_t{4}, size_t{16}}) {
    std::unordered_map<uint64_t, Seen> classes;
    for (size_t i = 0; i + window <= kinds.size(); ++i) {
      uint64_t h = window;
      for (size_t k = 0; k < window; ++k) h = hash_combine(h, kinds[i + k]);
      const auto [found, added] = classes.try_emplace(h, Seen{i, 0, 0, i});
      if (added) continue;
      Seen& seen = found->second;
      const size_t distance = i - seen.last;
      if (distance != seen.distance) seen = {seen.last, distance, 0, seen.last};
      seen.last = i;
      ++seen.times;
      const Candidate now{seen.first, distance, seen.times};
      const bool enough = now.times + 1 >= fewest && distance <= kLongestTurn;
      if (enough && (now.nodes() > best.nodes() || (now.nodes() == best.nodes() && distance < best.period))) best = now;
    }
  }
  return best;
}

/// The longest part of where the candidate is, and of what follows and precedes, in which all nodes come again.
NodeRange alike(const std::vector<uint64_t>& kinds, const Candidate& found, size_t period) {
  NodeRange best{found.at, found.at};
  const auto again = [&](size_t n) { return n + period < kinds.size() && kinds[n] == kinds[n + period]; };
  for (size_t n = found.at; n < found.at + found.nodes();) {
    if (!again(n)) {
      ++n;
      continue;
    }
    size_t end = n;
    while (again(end)) ++end;
    if (end + period - n > best.second - best.first) best = {n, end + period};
    n = end;
  }
  while (best.second > best.first && best.first > 0 && again(best.first - 1)) --best.first;
  return best;
}

/// Operands of all nodes, one after the other.
struct OperandTable {
  explicit OperandTable(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      begins.push_back(values.size());
      for_each_operand(node, [&](ValueId v) { values.push_back(v); });
    }
    begins.push_back(values.size());
  }
  size_t count(size_t node) const { return begins[node + 1] - begins[node]; }
  ValueId get(size_t node, size_t slot) const { return values[begins[node] + slot]; }

  std::vector<ValueId> values;
  std::vector<size_t> begins;
};

class Describer {
 public:
  Describer(const Graph& graph, LoopStretch& stretch) : graph_(graph), table_(graph), s_(stretch) {}

  /// Moves the ends of the run until its turns are alike. False: too few are.
  bool run(size_t fewest) {
    for (int tries = 0; tries < 6 && s_.turns >= fewest; ++tries) {
      bad_low_ = 0;
      bad_high_ = s_.turns;
      clear();
      const bool fine = describe();
      if (!fine && bad_low_ == 0 && bad_high_ == s_.turns) return false;
      if (fine) return true;
      s_.first += bad_low_ * s_.period;
      s_.turns = bad_high_ - bad_low_;
    }
    return false;
  }

 private:
  void clear() {
    s_.carries.clear();
    s_.scans.clear();
    s_.stays.clear();
    s_.operands.assign(s_.period, {});
    s_.part.assign(s_.period, -1);
    s_.number.assign(s_.period, -1);
  }

  size_t number(size_t place, size_t turn) const { return s_.first + turn * s_.period + place; }

  bool bad(size_t turn) {
    if (turn < s_.turns / 2) {
      bad_low_ = std::max(bad_low_, turn + 1);
    } else if (turn > s_.turns / 2) {
      bad_high_ = std::min(bad_high_, turn);
    }
    return false;
  }

  bool describe() {
    bool fine = true;
    for (size_t place = 0; place < s_.period; ++place) {
      if (scanned_node(place)) continue;
      fine = same_part(place) && fine;
      find_number(place);
      const size_t count = table_.count(number(place, 0));
      for (size_t slot = 0; slot < count; ++slot) fine = operand(place, slot) && fine;
    }
    return fine;
  }

  /// Numbers that change with the turn are a table.
  void find_number(size_t place) {
    const auto node = [&](size_t turn) -> const Node& { return graph_.node(static_cast<NodeId>(number(place, turn))); };
    const int arg = turn_number(graph_, node(0));
    if (arg < 0) return;
    std::vector<double> numbers;
    for (size_t t = 0; t < s_.turns; ++t) numbers.push_back(*number_of(node(t).args[static_cast<size_t>(arg)]));
    if (std::all_of(numbers.begin(), numbers.end(), [&](double n) { return same_bits(n, numbers[0]); })) return;
    s_.number[place] = static_cast<int>(s_.scans.size());
    s_.scans.push_back({kNoValue, LoopScan{}, nullptr, std::move(numbers), graph_.type(node(0).outputs[0]).dtype});
  }

  ValueId at(size_t place, size_t slot, size_t turn) const { return table_.get(number(place, turn), slot); }

  /// Whether the node reads another part of the same tensor in each turn.
  bool scanned_node(size_t place) {
    const auto node = [&](size_t turn) -> const Node& { return graph_.node(static_cast<NodeId>(number(place, turn))); };
    if (!reads_part(node(0))) return false;
    const size_t mid = s_.turns / 2;
    const std::optional<PartRead> here = part_read(graph_, node(mid)), next = part_read(graph_, node(mid + 1));
    if (!here || !next || here->start == next->start || s_.holds(graph_, here->source)) return false;
    const auto value = [&](size_t turn) { return node(turn).outputs[0]; };
    const int scan = add_scan(value);
    s_.part[place] = scan;
    return scan >= 0;
  }

  /// A node that reads a part reads the same one in each turn.
  bool same_part(size_t place) {
    const auto part = [&](size_t turn) {
      const Node& node = graph_.node(static_cast<NodeId>(number(place, turn)));
      return reads_part(node) ? part_read(graph_, node) : std::nullopt;
    };
    const std::optional<PartRead> model = part(s_.turns / 2);
    bool fine = true;
    for (size_t t = 0; t < s_.turns && model; ++t) {
      if (part(t)->start != model->start) fine = bad(t);
    }
    return fine && (!model || part(s_.turns / 2 + 1)->start == model->start);
  }

  /// The scan that gives these values turn by turn; -1: none does.
  template <typename ValueFn>
  int add_scan(ValueFn&& value) {
    const size_t mid = s_.turns / 2;
    const std::optional<PartRead> here = part_of(graph_, value(mid)), next = part_of(graph_, value(mid + 1));
    if (!here || !next || here->source != next->source || s_.holds(graph_, here->source)) return -1;
    const int64_t step = next->start - here->start;
    if (step == 0) return -1;
    const int64_t first = here->start - step * static_cast<int64_t>(mid);
    bool fine = true;
    for (size_t t = 0; t < s_.turns; ++t) {
      const std::optional<PartRead> part = part_of(graph_, value(t));
      const bool same = part && part->source == here->source && part->dim == here->dim && part->width == here->width &&
                        part->start == first + step * static_cast<int64_t>(t);
      if (!same) fine = bad(t);
    }
    if (!fine) return -1;
    const LoopScan scan{here->dim, first, step, here->width};
    for (size_t i = 0; i < s_.scans.size(); ++i) {
      const LoopScan& other = s_.scans[i].scan;
      const bool same = s_.scans[i].source == here->source && other.dim == scan.dim && other.start == scan.start &&
                        other.step == scan.step && other.width == scan.width;
      if (same) return static_cast<int>(i);
    }
    s_.scans.push_back({here->source, scan, graph_.value(value(mid)).type, {}, {}});
    return static_cast<int>(s_.scans.size()) - 1;
  }

  bool operand(size_t place, size_t slot) {
    using Kind = LoopStretch::Operand::Kind;
    const size_t mid = s_.turns / 2;
    const ValueId model = at(place, slot, mid);
    if (s_.holds(graph_, model)) {
      const TurnValue value = s_.place_of(graph_, model);
      const size_t back = mid - s_.turn_of(graph_, model);
      bool fine = back <= kMostTurnsBack;
      std::vector<ValueId> inits;
      for (size_t t = 0; t < s_.turns && back <= kMostTurnsBack; ++t) {
        const ValueId v = at(place, slot, t);
        const bool inside = s_.holds(graph_, v);
        if (t < back) {
          const TensorType &own = graph_.type(v), &other = graph_.type(model);
          const bool fits = !inside && own.dtype == other.dtype && own.sizes == other.sizes;
          if (!fits) fine = bad(t);
          inits.push_back(v);
          continue;
        }
        const bool same = inside && s_.turn_of(graph_, v) + back == t && s_.place_of(graph_, v) == value;
        if (!same) fine = bad(t);
      }
      if (!fine) return false;
      if (back == 0) {
        s_.operands[place].push_back({Kind::kTurn, value, 0});
      } else {
        s_.operands[place].push_back({Kind::kCarry, {}, add_carry({value, std::move(inits)})});
      }
      return true;
    }
    bool same = true;
    for (size_t t = 0; t < s_.turns; ++t) same = same && at(place, slot, t) == model;
    if (same) {
      const auto found = std::find(s_.stays.begin(), s_.stays.end(), model);
      s_.operands[place].push_back({Kind::kStays, {}, static_cast<size_t>(found - s_.stays.begin())});
      if (found == s_.stays.end()) s_.stays.push_back(model);
      return true;
    }
    if (at(place, slot, mid + 1) == model) {  // it stays, but for some turns
      for (size_t t = 0; t < s_.turns; ++t) {
        if (at(place, slot, t) != model) bad(t);
      }
      return false;
    }
    const int scan = add_scan([&](size_t turn) { return at(place, slot, turn); });
    if (scan < 0) return false;
    s_.operands[place].push_back({Kind::kScan, {}, static_cast<size_t>(scan)});
    return true;
  }

  size_t add_carry(LoopStretch::Carry carry) {
    if (const int known = s_.find_carry(carry); known >= 0) return static_cast<size_t>(known);
    const size_t index = s_.carries.size();
    s_.carries.push_back(carry);
    if (carry.inits.size() > 1) {
      carry.inits.erase(carry.inits.begin());
      add_carry(std::move(carry));
    }
    return index;
  }

  const Graph& graph_;
  const OperandTable table_;
  LoopStretch& s_;
  size_t bad_low_ = 0, bad_high_ = 0;
};

/// Where in the period turns begin: where least is handed from one to the next.
size_t best_phase(const Graph& graph, size_t first, size_t period, size_t turns) {
  std::vector<int64_t> cost(period, 0);
  const size_t mid = first + turns / 2 * period;
  std::map<ValueId, size_t> last;  // node of the last use
  for (size_t n = mid; n < std::min(first + turns * period, mid + 2 * period); ++n) {
    for_each_operand(graph.node(static_cast<NodeId>(n)), [&](ValueId v) { last[v] = n; });
  }
  for (const auto& [value, use] : last) {
    const NodeId made = graph.value(value).producer;
    if (made < static_cast<NodeId>(mid) || made >= static_cast<NodeId>(mid + period)) continue;
    if (reads_part(graph.node(made)) && part_of(graph, value) && part_of(graph, value)->source < value &&
        graph.value(part_of(graph, value)->source).producer < static_cast<NodeId>(first)) {
      continue;  // is read again
    }
    for (size_t n = static_cast<size_t>(made) + 1; n <= use; ++n) ++cost[(n - first) % period];
  }
  return static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
}

}  // namespace

std::optional<PartRead> part_read(const Graph& graph, const Node& node) {
  if (!reads_part(node)) return std::nullopt;
  PartRead part;
  part.source = std::get<TensorArg>(node.args[0]).value;
  const TensorType& type = graph.type(part.source);
  const auto rank = type.dim();
  std::optional<int64_t> dim = integer_of(node.args[1]);
  if (!dim || rank == 0) return std::nullopt;
  part.dim = *dim < 0 ? *dim + rank : *dim;
  const Expr size = type.sizes[static_cast<size_t>(part.dim)];
  if (!size.is_const()) return std::nullopt;
  const std::optional<int64_t> start =
      std::holds_alternative<NoneArg>(node.args[2]) ? std::optional<int64_t>(0) : integer_of(node.args[2]);
  if (!start) return std::nullopt;
  part.start = *start < 0 ? *start + size.const_value() : *start;
  if (node.op->traits.picks_index) return part;
  const std::optional<int64_t> step = integer_of(node.args[4]);
  const Expr width = graph.type(node.outputs[0]).sizes[static_cast<size_t>(part.dim)];
  if (step != 1 || !width.is_const()) return std::nullopt;
  part.width = width.const_value();
  if (part.start < 0 || part.start + part.width > size.const_value()) return std::nullopt;
  return part;
}

int turn_number(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::kPointwise || node.args.size() < 2 || node.outputs.size() != 1) return -1;
  const ArgSpec& spec = node.op->schema.args[1];
  if (spec.type != ArgType::kTensorOrScalar || spec.name != "other" || !number_of(node.args[1])) return -1;
  const auto* operand = std::get_if<TensorArg>(&node.args[0]);
  if (operand == nullptr || operand->value == kNoValue) return -1;
  const DType dtype = graph.type(node.outputs[0]).dtype;
  const TensorType& type = graph.type(operand->value);
  const bool fits = (dtype == DType::kFloat32 || dtype == DType::kFloat64) && type.dtype == dtype;
  return fits && !type.is_wrapped_number ? 1 : -1;
}

std::optional<PartRead> part_of(const Graph& graph, ValueId v) {
  const Node* node = graph.producer(v);
  return node == nullptr ? std::nullopt : part_read(graph, *node);
}

int LoopStretch::find_carry(const Carry& carry) const {
  const auto found = std::find(carries.begin(), carries.end(), carry);
  return found == carries.end() ? -1 : static_cast<int>(found - carries.begin());
}

bool describe_turns(const Graph& graph, LoopStretch& stretch) {
  const size_t turns = stretch.turns;
  return turns >= 3 && Describer(graph, stretch).run(turns);
}

std::optional<LoopStretch> find_stretch(const Graph& graph, size_t fewest, std::vector<NodeRange>& closed,
                                        std::string& why_not) {
  constexpr int kMostTries = 6;
  std::vector<uint64_t> kinds;
  NodeKinds hashes(graph);
  for (size_t n = 0; n < graph.num_nodes(); ++n) kinds.push_back(hashes.of(graph.node(static_cast<NodeId>(n)), n));
  const auto close = [&](const NodeRange& range) {
    for (size_t n = range.first; n < range.second; ++n) kinds[n] = hash_combine(0x2545F4914F6CDD1DU, n);
  };
  for (const NodeRange& range : closed) close(range);
  for (int tries = 0; tries < kMostTries; ++tries) {
    const Candidate found = best_candidate(kinds, fewest);
    if (found.period == 0) return std::nullopt;
    // Halves of a turn may look alike.
    for (size_t times = 1; times <= kMostLikeParts && times * found.period <= kLongestTurn; ++times) {
      LoopStretch stretch;
      stretch.period = times * found.period;
      const auto [first, end] = alike(kinds, found, stretch.period);
      const size_t turns = (end - first) / stretch.period;
      if (turns < fewest) continue;
      stretch.first = first + best_phase(graph, first, stretch.period, turns);
      stretch.turns = (end - stretch.first) / stretch.period;
      if (Describer(graph, stretch).run(fewest)) return stretch;
    }
    why_not =
        str_cat(found.times + 1, " turns of ", found.period, " nodes, in which operands come from different places");
    closed.emplace_back(found.at, found.at + found.nodes());
    close(closed.back());
  }
  return std::nullopt;
}

}  // namespace tatara
