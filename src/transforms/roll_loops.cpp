// Loops that a trace wrote out become nodes again.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/rules/loop_node.h"
#include "support/error.h"
#include "support/log.h"
#include "transforms/loop_stretch.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kFewestTurns = 24;
constexpr int kMostTries = 8;
constexpr size_t kMostLastTurns = 8;  // turns at the end that are written out for what is read of them
constexpr size_t kRowsPerRead = 4;    // of a stack, for each that is read
constexpr int64_t kFewStackBytes = 1 << 20;
constexpr size_t kFewestRows = 4;  // of a list of tensors, to be taken as a part of a stack

bool joins(const Node& node, bool& stacks) {
  static const OpDef* const stack = &OpRegistry::global().get("stack");
  static const OpDef* const cat = &OpRegistry::global().get("cat");
  stacks = node.op == stack;
  return stacks || node.op == cat;
}

bool writes_part(const Node& node) {
  static const OpDef* const select = &OpRegistry::global().get("select_scatter");
  static const OpDef* const slice = &OpRegistry::global().get("slice_scatter");
  return node.op == select || node.op == slice;
}

std::optional<int64_t> integer_argument(const Node& node, size_t arg) {
  const auto* scalar = std::get_if<Scalar>(&node.args[arg]);
  const auto* number = scalar == nullptr ? nullptr : std::get_if<int64_t>(scalar);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

class LoopRoller {
 public:
  LoopRoller(const Graph& graph, LoopStretch stretch, bool training)
      : graph_(graph), s_(std::move(stretch)), training_(training), to_(graph.ctx_ptr()), builder_(to_) {}

  /// False: the loop stays as it is, for the reason `why_not`.
  bool roll(Graph& result, std::string& why_not) {
    if (!prepare(why_not)) return false;
    map_.assign(graph_.num_values(), kNoValue);
    for (const ValueId v : graph_.inputs()) set(v, to_.add_input(graph_.type(v), graph_.name(v)));
    for (size_t n = 0; n < s_.first; ++n) copy(graph_.node(static_cast<NodeId>(n)));
    add_node();
    for (size_t n = s_.end(); n < graph_.num_nodes(); ++n) copy(graph_.node(static_cast<NodeId>(n)));
    for (const GraphOutput& output : graph_.outputs()) to_.add_output(now(output.value), output.alias);
    for (const InputWrite& write : graph_.input_writes()) {
      to_.add_input_write(write.input_index, now(write.value), write.times);
    }
    result = std::move(to_);
    return true;
  }

 private:
  // ---- What the rest of the graph reads ----

  bool prepare(std::string& why_not) {
    bool uniform = true;  // of other graphs nobody asks
    const Node& model = graph_.node(static_cast<NodeId>(s_.first));
    for (size_t n = s_.first; training_ && n < s_.first + s_.period; ++n) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      uniform =
          uniform && node.no_grad == model.no_grad && node.closed == model.closed && node.derived == model.derived;
    }
    if (!uniform) {
      why_not = "gradients are recorded for a part of a turn only";
      return false;
    }
    if (training_ && !results_fit(why_not)) return false;
    if (const size_t last = find_reads(); last > 0) {
      // The last turns are written out: what is read of them alone then needs no row for each turn.
      s_.turns -= std::min(last, s_.turns);
      if (s_.turns < kFewestTurns / 2 || !describe_turns(graph_, s_) || find_reads() > 0) {
        why_not = "what is read of turns";
        return false;
      }
    }
    if (read_ && computes()) return true;
    why_not = read_ ? "turns compute nothing" : "nothing reads what turns compute";
    return false;
  }

  /// In eager a result is a place of its own among gradients: what turns give as results is computed outside.
  bool results_fit(std::string& why_not) {
    bool last = false;
    for (const GraphOutput& output : graph_.outputs()) {
      ValueId v = output.value;
      while (v != kNoValue && graph_.producer(v) != nullptr && graph_.producer(v)->op->kind == OpKind::kView) {
        if (s_.holds(graph_, v)) break;
        v = std::get<TensorArg>(graph_.producer(v)->args.front()).value;
      }
      if (v == kNoValue || !s_.holds(graph_, v)) continue;
      if (s_.turn_of(graph_, v) + 1 != s_.turns) {
        why_not = "values of turns in the middle are results";
        return false;
      }
      last = true;
    }
    if (!last) return true;
    --s_.turns;
    if (describe_turns(graph_, s_)) return true;
    why_not = "its last turn differs";
    return false;
  }

  /// Whether more than views comes out of turns.
  bool computes() const {
    const std::vector<bool> needed = needed_places({stacked_.begin(), stacked_.end()});
    for (size_t place = 0; place < s_.period; ++place) {
      if (needed[place] && s_.part[place] < 0 && model(place).op->kind != OpKind::kView) return true;
    }
    return false;
  }

  /// Finds what needs a row for each turn. How many of the last turns something is read of alone; all, where it is read of so few
  /// turns that the rows would take much more memory than they do.
  size_t find_reads() {
    size_t alone = 0;
    stacked_.clear();
    std::map<TurnValue, std::set<size_t>> read;
    const auto look = [&](ValueId v) {
      if (v == kNoValue || !s_.holds(graph_, v)) return;
      const TurnValue value = s_.place_of(graph_, v);
      if (s_.part[value.place] < 0) read[value].insert(s_.turn_of(graph_, v));
    };
    for (size_t n = s_.end(); n < graph_.num_nodes(); ++n) for_each_operand(graph_.node(static_cast<NodeId>(n)), look);
    for (const GraphOutput& output : graph_.outputs()) look(output.value);
    for (const InputWrite& write : graph_.input_writes()) look(write.value);
    read_ = !read.empty();
    for (const auto& [value, turns] : read) {
      const bool kept = std::all_of(turns.begin(), turns.end(), [&](size_t t) { return final_of(value, t) >= 0; });
      if (kept) continue;
      const size_t last = s_.turns - *turns.begin();
      if (last <= kMostLastTurns) alone = std::max(alone, last);
      if (last > kMostLastTurns && turns.size() * kRowsPerRead < s_.turns && bytes_of(value) > kFewStackBytes)
        alone = s_.turns;
      stacked_.insert(value);
    }
    return alone;
  }

  /// Of all rows.
  int64_t bytes_of(const TurnValue& value) const {
    const TensorType& type = graph_.type(model(value.place).outputs[static_cast<size_t>(value.output)]);
    return type.numel(graph_.ctx()).const_value() * dtype_size(type.dtype) * static_cast<int64_t>(s_.turns);
  }

  /// The carried value that is this one after the last turn; -1: none is.
  int final_of(const TurnValue& value, size_t turn) const {
    for (size_t k = 0; k < s_.carries.size(); ++k) {
      if (s_.carries[k].value == value && turn + s_.carries[k].inits.size() == s_.turns) return static_cast<int>(k);
    }
    return -1;
  }
  /// A carried value that is this one in the next turn; -1: none is.
  int carry_of(const TurnValue& value) const {
    for (size_t k = 0; k < s_.carries.size(); ++k) {
      if (s_.carries[k].value == value && s_.carries[k].inits.size() == 1) return static_cast<int>(k);
    }
    return -1;
  }

  // ---- The node ----

  const Node& model(size_t place) const { return graph_.node(static_cast<NodeId>(s_.first + s_.period + place)); }

  void add_node() {
    LoopForm form;
    form.turns = static_cast<int64_t>(s_.turns);
    form.history.assign(s_.carries.size(), false);
    std::vector<ValueId> operands;
    for (const LoopStretch::Carry& carry : s_.carries) operands.push_back(now(carry.inits.front()));
    for (const LoopStretch::Scan& scan : s_.scans) {
      operands.push_back(scan.source == kNoValue ? add_number_table(builder_, scan.numbers, scan.dtype)
                                                 : now(scan.source));
      form.scans.push_back(scan.scan);
    }
    for (const ValueId v : s_.stays) operands.push_back(now(v));
    std::vector<TurnValue> stacks;
    for (const TurnValue& value : stacked_) {
      if (const int carry = carry_of(value); carry >= 0) {
        form.history[static_cast<size_t>(carry)] = true;
      } else {
        stacks.push_back(value);
      }
    }
    form.body = std::make_shared<const Graph>(body_with(stacks));
    const Node& first = graph_.node(static_cast<NodeId>(s_.first));
    builder_.set_location(first.location);
    results_ = add_loop(builder_, form, std::move(operands));
    Node& made = to_.node(to_.value(results_[0]).producer);
    made.no_grad = first.no_grad;
    made.closed = first.closed;
    made.derived = first.derived;
    for (const TurnValue& value : stacked_) {
      const int carry = carry_of(value);
      rows_[value] =
          carry >= 0 ? Rows{results_[form.history_result(static_cast<size_t>(carry))], 1} : Rows{kNoValue, 0};
    }
    for (size_t k = 0; k < stacks.size(); ++k) rows_[stacks[k]] = {results_[form.stack_result(k)], 0};
  }

  Graph body_with(const std::vector<TurnValue>& stacks) const {
    Graph body(graph_.ctx_ptr());
    std::vector<ValueId> carried, scanned, stays;
    for (const LoopStretch::Carry& carry : s_.carries) {
      const Node& node = model(carry.value.place);
      carried.push_back(body.add_input(graph_.type(node.outputs[static_cast<size_t>(carry.value.output)])));
    }
    for (const LoopStretch::Scan& scan : s_.scans) {
      TensorType one;
      one.dtype = scan.dtype;
      scanned.push_back(body.add_input(scan.type == nullptr ? one : *scan.type));
    }
    for (const ValueId v : s_.stays) stays.push_back(body.add_input(graph_.type(v)));
    const std::vector<bool> needed = needed_places(stacks);
    std::vector<std::vector<ValueId>> made(s_.period);
    for (size_t place = 0; place < s_.period; ++place) {
      if (s_.part[place] >= 0) made[place] = {scanned[static_cast<size_t>(s_.part[place])]};
      if (!needed[place] || s_.part[place] >= 0) continue;
      size_t slot = 0;
      const auto operand = [&](ValueId) {
        const LoopStretch::Operand& from = s_.operands[place][slot++];
        using Kind = LoopStretch::Operand::Kind;
        switch (from.kind) {
          case Kind::kTurn: return made[from.value.place][static_cast<size_t>(from.value.output)];
          case Kind::kCarry: return carried[from.index];
          case Kind::kScan: return scanned[from.index];
          case Kind::kStays: return stays[from.index];
        }
        throw InternalError("an operand of no kind");
      };
      const Node& node = model(place);
      std::vector<TensorType> types;
      for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
      std::vector<Arg> args = with_operands(node.args, operand);
      if (const int number = s_.number[place]; number >= 0) {
        args[static_cast<size_t>(turn_number(graph_, node))] = TensorArg{scanned[static_cast<size_t>(number)]};
      }
      const NodeId id = body.add_node(node.op, std::move(args), std::move(types), node.location);
      made[place] = body.node(id).outputs;
    }
    for (const LoopStretch::Carry& carry : s_.carries) {
      if (carry.inits.size() == 1) {
        body.add_output(made[carry.value.place][static_cast<size_t>(carry.value.output)]);
        continue;
      }
      const std::vector<ValueId> rest(carry.inits.begin() + 1, carry.inits.end());
      body.add_output(carried[static_cast<size_t>(s_.find_carry({carry.value, rest}))]);
    }
    for (const TurnValue& value : stacks) body.add_output(made[value.place][static_cast<size_t>(value.output)]);
    return body;
  }

  std::vector<bool> needed_places(const std::vector<TurnValue>& stacks) const {
    std::vector<bool> needed(s_.period, false);
    for (const LoopStretch::Carry& carry : s_.carries) needed[carry.value.place] = true;
    for (const TurnValue& value : stacks) needed[value.place] = true;
    for (size_t place = 0; place < s_.period; ++place) needed[place] = needed[place] || model(place).op->checks_values;
    for (size_t place = s_.period; place-- > 0;) {
      if (!needed[place] || s_.part[place] >= 0) continue;
      for (const LoopStretch::Operand& from : s_.operands[place]) {
        if (from.kind == LoopStretch::Operand::Kind::kTurn) needed[from.value.place] = true;
      }
    }
    return needed;
  }

  // ---- The rest of the graph ----

  struct Rows {
    ValueId value = kNoValue;
    int64_t first = 0;  // row of the first turn
  };

  void set(ValueId old, ValueId now) { map_[static_cast<size_t>(old)] = now; }

  ValueId in_layout(ValueId v, const TensorType& type) {
    if (builder_.type(v).strides == type.strides) return v;
    return builder_.op("relayout", {TensorArg{v}, SymInts{type.strides}});
  }

  ValueId now(ValueId v) {
    if (v == kNoValue) return v;
    ValueId& known = map_[static_cast<size_t>(v)];
    if (known != kNoValue) return known;
    TATARA_CHECK(s_.holds(graph_, v), "a value of no turn");
    const TurnValue value = s_.place_of(graph_, v);
    const size_t turn = s_.turn_of(graph_, v);
    if (s_.part[value.place] >= 0) {
      copy(*graph_.producer(v));
      return map_[static_cast<size_t>(v)];
    }
    ValueId made = kNoValue;
    if (const int carry = final_of(value, turn); carry >= 0) {
      made = results_[static_cast<size_t>(carry)];
    } else {
      const Rows& rows = rows_.at(value);
      const int64_t row = rows.first + static_cast<int64_t>(turn);
      made = builder_.op("select", {TensorArg{rows.value}, Scalar(int64_t{0}), Scalar(row)});
    }
    return map_[static_cast<size_t>(v)] = in_layout(made, graph_.type(v));
  }

  void copy(const Node& node) {
    bool stacks = false;
    builder_.set_no_grad(node.no_grad);
    builder_.set_closed(node.closed);
    if (!s_.holds(graph_, node.outputs[0]) && joins(node, stacks) && join(node, stacks)) return;
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
    std::vector<Arg> args = with_operands(node.args, [this](ValueId v) { return now(v); });
    const NodeId id = to_.add_node(node.op, std::move(args), std::move(types), node.location);
    to_.node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], to_.node(id).outputs[i]);
  }

  /// How many items of the list from `at` on are rows of one stack, one after the other, forwards or backwards.
  size_t rows_from(const std::vector<ValueId>& list, size_t at) const {
    if (list[at] == kNoValue || !s_.holds(graph_, list[at])) return 0;
    const TurnValue value = s_.place_of(graph_, list[at]);
    if (!rows_.contains(value)) return 0;
    const auto turn = static_cast<int64_t>(s_.turn_of(graph_, list[at]));
    const int64_t step = is_row(list, at + 1, value, turn - 1) ? -1 : 1;
    size_t count = 1;
    while (is_row(list, at + count, value, turn + step * static_cast<int64_t>(count))) ++count;
    return count;
  }
  bool is_row(const std::vector<ValueId>& list, size_t at, const TurnValue& value, int64_t turn) const {
    if (at >= list.size() || list[at] == kNoValue || !s_.holds(graph_, list[at])) return false;
    return s_.place_of(graph_, list[at]) == value && static_cast<int64_t>(s_.turn_of(graph_, list[at])) == turn;
  }

  /// The items of cat() with a new dimension each, as of stack(): what they are without it. kNoValue: it is no such item.
  ValueId without_dimension(ValueId item, int64_t dim) const {
    static const OpDef* const unsqueeze = &OpRegistry::global().get("unsqueeze");
    const Node* node = item == kNoValue || s_.holds(graph_, item) ? nullptr : graph_.producer(item);
    if (node == nullptr || node->op != unsqueeze) return kNoValue;
    const std::optional<int64_t> own = integer_argument(*node, 1);
    const int64_t rank = graph_.type(item).dim();
    return own && (*own < 0 ? *own + rank : *own) == dim ? std::get<TensorArg>(node->args[0]).value : kNoValue;
  }

  /// stack() or cat() of values of many turns.
  bool join(const Node& node, bool stacks) {
    const std::vector<ValueId>& list = std::get<TensorList>(node.args[0]).values;
    const TensorType& type = graph_.type(node.outputs[0]);
    const std::optional<int64_t> number = integer_argument(node, 1);
    if (!number) return false;
    const int64_t dim = *number < 0 ? *number + type.dim() : *number;
    std::vector<ValueId> rows = list;  // of which runs of rows are looked for
    std::vector<bool> thin(list.size(), stacks);
    for (size_t i = 0; i < list.size() && !stacks; ++i) {
      const ValueId below = without_dimension(list[i], dim);
      thin[i] = below != kNoValue;
      if (thin[i]) rows[i] = below;
    }
    std::vector<ValueId> parts;
    bool any = false;
    for (size_t i = 0; i < list.size();) {
      size_t count = rows_from(rows, i);
      for (size_t k = 0; k < count; ++k) count = thin[i + k] == thin[i] ? count : k;
      if (count >= kFewestRows && graph_.type(rows[i]).dtype == type.dtype) {
        parts.push_back(rows_along(rows[i], rows[i + 1], count, dim, thin[i]));
        i += count;
        any = true;
        continue;
      }
      parts.push_back(stacks ? builder_.unsqueeze(now(list[i]), dim) : now(list[i]));
      ++i;
    }
    if (!any) return false;
    ValueId joined = parts[0];
    if (parts.size() > 1) joined = builder_.op("cat", {TensorList{parts}, Scalar(dim)});
    const bool own = parts.size() > 1 || std::find(results_.begin(), results_.end(), joined) != results_.end();
    // In eager it has memory of its own.
    if (!own || builder_.type(joined).strides != type.strides) {
      joined = builder_.op("relayout", {TensorArg{joined}, SymInts{type.strides}});
    }
    set(node.outputs[0], joined);
    return true;
  }

  ValueId rows_along(ValueId first, ValueId second, size_t count, int64_t dim, bool stacks) {
    const Rows& rows = rows_.at(s_.place_of(graph_, first));
    const bool backwards = s_.turn_of(graph_, second) < s_.turn_of(graph_, first);
    auto turn = static_cast<int64_t>(s_.turn_of(graph_, first));
    if (backwards) turn -= static_cast<int64_t>(count) - 1;
    ExprContext& ctx = to_.ctx();
    const int64_t begin = rows.first + turn, end = begin + static_cast<int64_t>(count);
    ValueId part = rows.value;
    if (begin != 0 || builder_.type(part).sizes[0].const_value() != end) {
      part = builder_.slice(part, 0, ctx.constant(begin), ctx.constant(end), ctx.constant(1));
    }
    if (backwards) part = builder_.op("flip", {TensorArg{part}, SymInts{{ctx.constant(0)}}});
    std::vector<int64_t> order;
    for (int64_t d = 1; d < builder_.type(part).dim(); ++d) order.push_back(d);
    order.insert(order.begin() + dim, 0);
    part = builder_.permute(part, order);
    if (stacks) return part;
    std::vector<Expr> sizes = builder_.type(part).sizes;
    const auto at = static_cast<size_t>(dim);
    sizes[at] = ctx.mul(sizes[at], sizes[at + 1]);
    sizes.erase(sizes.begin() + dim + 1);
    return builder_.reshape(part, sizes);
  }

  const Graph& graph_;
  LoopStretch s_;
  bool training_;
  Graph to_;
  GraphBuilder builder_;
  std::vector<ValueId> map_;
  std::set<TurnValue> stacked_;
  bool read_ = false;  // whether anything of turns is read outside
  std::vector<ValueId> results_;
  std::map<TurnValue, Rows> rows_;
};

std::pair<int, int> calls_of(const Graph& graph, const LoopStretch& stretch) {
  std::pair<int, int> calls{graph.node(static_cast<NodeId>(stretch.first)).location.call, -1};
  for (size_t n = stretch.first; n < stretch.end(); ++n) {
    const int call = graph.node(static_cast<NodeId>(n)).location.call;
    calls = {std::min(calls.first, call), std::max(calls.second, call)};
  }
  return calls;
}

/// Steps of scanned tensors have gradients where parts don't overlap.
bool parts_apart(const LoopStretch& stretch) {
  return std::all_of(stretch.scans.begin(), stretch.scans.end(), [](const LoopStretch::Scan& scan) {
    return scan.scan.width < 0 || std::abs(scan.scan.step) == scan.scan.width;
  });
}

}  // namespace

Graph roll_loops(const Graph& graph, bool training, const PassOptions& options,
                 std::vector<std::pair<int, int>>* calls) {
  return run_pass("roll_loops", graph, options, [&](const Graph& g) {
    // A graph of many turns is copied only where a pass changes it.
    std::deque<Graph> made;
    const Graph* now = &g;
    const auto apply = [&](Graph (*pass)(const Graph&, const PassOptions&)) {
      now = &made.emplace_back(pass(*now, options));
    };
    // Gradients of rows, too, are writes to a tensor, where they are part of the graph.
    const auto any_node = [&](const auto& is) { return std::any_of(now->nodes().begin(), now->nodes().end(), is); };
    if (!training && any_node(writes_part)) apply(sum_parts);
    if (any_node(writes_part)) apply(join_writes);
    if (any_node([](const Node& node) { return node.op->draws(); })) apply(draw_ahead);
    std::vector<NodeRange> closed;
    bool any = false;
    for (int tries = 0; tries < kMostTries; ++tries) {
      std::string why_not;
      const std::optional<LoopStretch> stretch = find_stretch(*now, kFewestTurns, closed, why_not);
      Graph next(g.ctx_ptr());
      const bool rolled =
          stretch && (!training || parts_apart(*stretch)) && LoopRoller(*now, *stretch, training).roll(next, why_not);
      if (!why_not.empty()) TATARA_LOG(kPasses, "roll_loops: ", why_not);
      if (!stretch) break;
      if (!rolled) {
        closed.emplace_back(stretch->first, stretch->end());
        continue;
      }
      if (calls != nullptr) calls->push_back(calls_of(*now, *stretch));
      closed.clear();
      now = &made.emplace_back(std::move(next));
      any = true;
    }
    return any ? eliminate_dead_code(*now, options) : g;
  });
}

}  // namespace tatara
