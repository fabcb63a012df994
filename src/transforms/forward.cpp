#include "transforms/forward.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ops/core/family_util.h"
#include "ops/rules/custom_gradient.h"
#include "ops/rules/derivative.h"
#include "ops/rules/host_transform.h"
#include "support/error.h"
#include "support/made_once.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

const OpDef& tangents_op() {
  return made_once([] {
    OpDef made;
    made.name = "tangents";
    made.not_differentiable = true;
    return made;
  });
}

const std::vector<ValueId>& values_at(const Node& node, size_t arg) {
  return std::get<TensorList>(node.args[arg]).values;
}

bool differentiable_type(const TensorType& type) { return is_floating(type.dtype) || is_complex(type.dtype); }

TensorType contiguous(ExprContext& ctx, TensorType type) {
  type.strides = contiguous_strides(ctx, type.sizes);
  type.is_wrapped_number = false;
  return type;
}

/// Which values before the node change with one of its variables.
std::vector<bool> changed_by(const Graph& graph, size_t node) {
  const Node& asked = graph.node(static_cast<NodeId>(node));
  std::vector<bool> changes(graph.num_values(), false), stopped(graph.num_values(), false);
  for (const ValueId v : values_at(asked, 1)) changes[static_cast<size_t>(v)] = true;
  for (const ValueId v : values_at(asked, 3)) stopped[static_cast<size_t>(v)] = true;
  for (size_t n = 0; n < node; ++n) {
    const Node& each = graph.node(static_cast<NodeId>(n));
    if (!gives_tangents(each, changes)) continue;
    for (const ValueId v : each.outputs) {
      const auto at = static_cast<size_t>(v);
      changes[at] = changes[at] || (!stopped[at] && differentiable_type(graph.type(v)));
    }
  }
  return changes;
}

/// Whether another node asks for tangents in the same directions, of values that are there before node `count`. What they have in
/// common is then computed once, and their tangents share memory as in eager.
bool asks_the_same(const Graph& graph, const Node& asked, const Node& other, size_t count) {
  if (!is_tangents(other) || values_at(asked, 1) != values_at(other, 1) || values_at(asked, 2) != values_at(other, 2)) {
    return false;
  }
  const std::vector<ValueId>& roots = values_at(other, 0);
  return std::all_of(roots.begin(), roots.end(),
                     [&](ValueId root) { return graph.value(root).producer < static_cast<NodeId>(count); });
}

/// Weights of classes have no derivative in eager, and the spread of one number has one that is no NaN.
void check_operands(const Graph& graph, size_t count, const std::vector<bool>& changes) {
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const std::optional<size_t> at = node.op->traits.class_weights;
    const auto* weight = at && node.args.size() > *at ? std::get_if<TensorArg>(&node.args[*at]) : nullptr;
    if (weight != nullptr && weight->value != kNoValue && changes[static_cast<size_t>(weight->value)]) {
      throw Unsupported("a tangent of the weights of " + node.op->name);
    }
    const auto* of = node.op->traits.spread && !node.args.empty() ? std::get_if<TensorArg>(&node.args[0]) : nullptr;
    if (of != nullptr && changes[static_cast<size_t>(of->value)] && graph.type(of->value).dim() == 0) {
      throw Unsupported("a tangent of " + node.op->name + " of one number");
    }
  }
}

/// A call of ATen's whose reverse rule is not that of one call (kByWholeTape): its tangents are.
bool is_left_to_host(const OpDef& op) {
  const std::vector<int>& aliases = op.schema.output_alias;
  if (std::any_of(aliases.begin(), aliases.end(), [](int alias) { return alias >= 0; })) return false;
  return op.kind == OpKind::kHost && !op.vjp && !op.differentiable_parts && !op.draws() && !is_library_operator(op);
}

/// Pushes tangents through the nodes of a graph; what it needs is added at the end.
class Forward {
 public:
  Forward(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), builder_(graph), tangents_(graph.num_values(), kNoValue) {}

  ValueId tangent(ValueId v) const { return tangents_[static_cast<size_t>(v)]; }
  void set(ValueId v, ValueId tangent) { tangents_[static_cast<size_t>(v)] = tangent; }

  /// The value with the strides of a type, if that has no gaps.
  ValueId laid_out(ValueId v, const TensorType& type) {
    const std::vector<Expr> strides = ops::dense_strides(graph_.ctx(), type);
    return strides.empty() ? v : laid_out(v, strides);
  }
  /// The value with the given strides.
  ValueId laid_out(ValueId v, const std::vector<Expr>& strides) {
    if (ops::same_sizes(graph_.ctx(), graph_.type(v).strides, strides)) return v;
    return builder_.op("relayout", {TensorArg{v}, SymInts{strides}});
  }

  /// `changes`: which values of the graph may have a tangent.
  void through(NodeId id, const std::vector<bool>& changes) {
    const Node node = graph_.node(id);
    bool any = false;
    for_each_operand(node, [&](ValueId v) { any = any || tangent(v) != kNoValue; });
    const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](ValueId v) { return changes[static_cast<size_t>(v)]; });
    if (!any || !wanted || node.op->not_differentiable) return;
    if (is_custom_gradient(*node.op)) throw Unsupported("a tangent through an autograd.Function");
    builder_.set_location(node.location);
    const size_t first_new = graph_.num_nodes();
    std::vector<ValueId> results;
    if (is_plain_view(node)) {
      results = {along_view(node)};
    } else if (!node.op->traits.linear_operands.empty()) {
      results = {applied(node, node.op->traits.linear_operands)};
    } else {
      const bool host = is_host_differentiated(*node.op) || is_left_to_host(*node.op);
      results = host ? by_host(node) : by_reversing_twice(node);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!changes[static_cast<size_t>(node.outputs[i])]) continue;
      const TensorType type = graph_.type(node.outputs[i]);
      ValueId result = results[i] != kNoValue ? results[i] : zeros_of(builder_, type);
      // The host copies a tangent that lies otherwise than its primal.
      if (!is_plain_view(node)) result = laid_out(result, type);
      set(node.outputs[i], result);
    }
    for (size_t n = first_new; n < graph_.num_nodes(); ++n) {
      Node& made = graph_.node(static_cast<NodeId>(n));
      made.take_marks(node);
      made.derived = true;
    }
  }

 private:
  static bool is_plain_view(const Node& node) {
    if (node.op->kind != OpKind::kView || node.outputs.size() != 1) return false;
    if (node.op->traits.stride_use == StrideUse::kMemory) return false;
    int operands = 0;
    for_each_operand(node, [&](ValueId) { ++operands; });
    return operands == 1 && std::holds_alternative<TensorArg>(node.args[0]);
  }

  ValueId along_view(const Node& node) {
    const ValueId operand = std::get<TensorArg>(node.args[0]).value;
    std::vector<Arg> args = node.args;
    const bool by_strides = node.op->traits.stride_use != StrideUse::kNone;
    const ValueId moved = tangent(operand);
    args[0] = TensorArg{by_strides ? laid_out(moved, graph_.type(operand).strides) : moved};
    return builder_.call(*node.op, std::move(args)).front();
  }

  /// Reversing twice would lose what the host's own rules say of operands that are taken to be symmetric.
  std::vector<ValueId> by_host(const Node& node) {
    TensorList tangents;
    for_each_operand(node, [&](ValueId v) { tangents.values.push_back(tangent(v)); });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) {
      if (differentiable_type(graph_.type(v))) types.push_back(contiguous(graph_.ctx(), graph_.type(v)));
    }
    std::vector<Arg> args = node.args;
    args.emplace_back(std::move(tangents));
    const OpDef& host = host_transform(*node.op, HostTransform::kForward);
    const std::vector<ValueId> made = builder_.host_call(host, std::move(args), std::move(types));
    std::vector<ValueId> results;
    size_t next = 0;
    for (const ValueId v : node.outputs) {
      results.push_back(differentiable_type(graph_.type(v)) ? made[next++] : kNoValue);
    }
    return results;
  }

  /// The operator itself on tangents.
  ValueId applied(const Node& node, const std::vector<size_t>& operands) {
    std::vector<Arg> args = node.args;
    for (const size_t i : operands) {
      const ValueId operand = std::get<TensorArg>(node.args[i]).value;
      const ValueId moved = tangent(operand);
      args[i] = TensorArg{moved != kNoValue ? moved : zeros_of(builder_, graph_.type(operand))};
    }
    if (node.op->meta || node.op->decompose || node.op->choose) {
      return builder_.call(*node.op, std::move(args)).front();
    }
    return builder_.host_call(*node.op, std::move(args), {graph_.type(node.outputs[0])}).front();
  }

  std::vector<ValueId> by_reversing_twice(const Node& node) {
    if (!node.op->vjp) throw Unsupported(str_cat("no derivative rule for ", node.op->name));
    // The rule as a graph of its own: cotangents of the results in, cotangents of the operands out.
    Graph rule(graph_.ctx_ptr());
    std::vector<ValueId> inputs;  // values of the whole that its inputs stand for; kNoValue: a cotangent
    std::unordered_map<ValueId, ValueId> inside;
    const auto bring = [&](ValueId v) {
      if (v == kNoValue || inside.contains(v)) return;
      inside[v] = rule.add_input(graph_.type(v));
      inputs.push_back(v);
    };
    for_each_operand(node, bring);
    for (const ValueId v : node.outputs) bring(v);
    Node within = node;
    within.args = with_operands(std::move(within.args), [&](ValueId v) { return inside[v]; });
    for (ValueId& v : within.outputs) v = inside[v];
    std::vector<ValueId> cotangents;
    std::vector<int> result_of;  // of each cotangent: the result that it belongs to
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorType type = graph_.type(node.outputs[i]);
      cotangents.push_back(differentiable_type(type) ? rule.add_input(contiguous(rule.ctx(), type)) : kNoValue);
      if (cotangents.back() == kNoValue) continue;
      result_of.push_back(static_cast<int>(i));
      inputs.push_back(kNoValue);
    }
    std::vector<bool> moves(rule.num_values(), false), by_cotangents(inputs.size(), false);
    for (size_t i = 0; i < inputs.size(); ++i) {
      by_cotangents[i] = inputs[i] == kNoValue;
      if (inputs[i] != kNoValue) moves[static_cast<size_t>(rule.inputs()[i])] = tangent(inputs[i]) != kNoValue;
    }
    GraphBuilder builder(rule, builder_.default_dtype());
    VjpContext context(builder, within, cotangents, moves);
    context.set_for_tangents();
    node.op->vjp(context);
    std::unordered_map<ValueId, ValueId> outside;
    for (const auto& [whole, part] : inside) outside[part] = whole;
    std::vector<ValueId> moved;  // tangents of the operands that cotangents were given to
    for (const VjpContext::Given& given : context.given()) {
      rule.add_output(given.cotangent);
      moved.push_back(tangent(outside.at(given.operand)));
    }
    return reverse_by(rule, by_cotangents, inputs, moved, node.outputs.size(), result_of);
  }

  /// The second reversal: of `rule`, by its inputs that `by` names, weighted by `weights`.
  std::vector<ValueId> reverse_by(const Graph& rule, const std::vector<bool>& by, const std::vector<ValueId>& inputs,
                                  const std::vector<ValueId>& weights, size_t results,
                                  const std::vector<int>& result_of) {
    const JointGraph joint = joint_graph(differentiable_form(rule, by, options_), by);
    Graph wanted = joint.graph;
    wanted.outputs().erase(wanted.outputs().begin(),
                           wanted.outputs().begin() + static_cast<std::ptrdiff_t>(joint.forward_outputs));
    wanted = eliminate_dead_code(wanted, options_);
    const std::vector<int> uses = wanted.use_counts();
    std::vector<ValueId> map(wanted.num_values(), kNoValue);
    for (size_t i = 0; i < wanted.inputs().size(); ++i) {
      const ValueId v = wanted.inputs()[i];
      ValueId& place = map[static_cast<size_t>(v)];
      if (i >= inputs.size()) {
        const auto output = static_cast<size_t>(joint.cotangents[i - inputs.size()]);
        place = uses[static_cast<size_t>(v)] > 0 ? laid_out(weights[output], wanted.type(v).strides) : weights[output];
      } else if (inputs[i] != kNoValue) {
        place = inputs[i];
      } else if (uses[static_cast<size_t>(v)] > 0) {
        place = zeros_of(builder_, wanted.type(v));  // the map does not depend on it
      }
    }
    const size_t before = graph_.outputs().size();
    graph_ = copy_into(wanted, std::move(graph_), std::move(map));
    tangents_.resize(std::max(tangents_.size(), graph_.num_values()), kNoValue);
    std::vector<ValueId> tangents(results, kNoValue);
    std::vector<int> places;  // results by input of the rule
    for (size_t i = 0, next = 0; i < inputs.size(); ++i) places.push_back(by[i] ? result_of[next++] : -1);
    for (size_t k = 0; k < joint.gradients.size(); ++k) {
      const int result = places[static_cast<size_t>(joint.gradients[k])];
      tangents[static_cast<size_t>(result)] = graph_.outputs()[before + k].value;
    }
    graph_.outputs().resize(before);
    return tangents;
  }

  Graph& graph_;
  const PassOptions& options_;
  GraphBuilder builder_;
  std::vector<ValueId> tangents_;
};

}  // namespace

std::vector<ValueId> add_tangents(GraphBuilder& builder, const TangentsCall& call, std::vector<TensorType> types) {
  return builder.host_call(tangents_op(),
                           {TensorList{call.roots}, TensorList{call.variables}, TensorList{call.tangents},
                            TensorList{call.stops}, TensorList{call.histories}},
                           std::move(types));
}

bool is_tangents(const Node& node) { return node.op == &tangents_op(); }

Graph expand_tangents_at(const Graph& graph, size_t node, std::vector<std::optional<GradientFound>>& found,
                         const PassOptions& options) {
  check_operands(graph, node, changed_by(graph, node));
  const Graph whole = written_out(graph, changed_by, true, node);
  const std::vector<bool> changes = changed_by(whole, node);
  GraphCopy copy(whole);
  for (size_t n = 0; n < node; ++n) copy.copy(whole.node(static_cast<NodeId>(n)));
  Graph& to = copy.to();
  const Node& asked = whole.node(static_cast<NodeId>(node));
  std::vector<bool> now(to.num_values(), false);
  for (size_t v = 0; v < changes.size(); ++v) {
    const ValueId there = copy[static_cast<ValueId>(v)];
    if (changes[v] && there != kNoValue) now[static_cast<size_t>(there)] = true;
  }
  const size_t first_new = to.num_nodes();
  Forward forward(to, options);
  const std::vector<ValueId>&variables = values_at(asked, 1), &tangents = values_at(asked, 2);
  for (size_t i = 0; i < variables.size(); ++i) forward.set(copy[variables[i]], copy[tangents[i]]);
  for (size_t n = 0; n < first_new; ++n) {
    const auto id = static_cast<NodeId>(n);
    const Node through = to.node(id);
    at_node(through, [&] { forward.through(id, now); });
  }
  std::vector<ValueId> leaves;
  for (const ValueId v : values_at(asked, 4)) leaves.push_back(copy[v]);
  const std::vector<bool> histories = values_with_history(to, leaves);
  GraphBuilder builder(to);
  const auto answer = [&](const Node& question) {
    builder.set_location(question.location);
    found.clear();
    const std::vector<ValueId>& wanted = values_at(question, 0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const TensorType& type = whole.type(question.outputs[i]);
      ValueId value = forward.tangent(copy[wanted[i]]);
      found.emplace_back();
      if (value != kNoValue) {
        found.back() = GradientFound{to.type(value), histories[static_cast<size_t>(value)]};
      } else {
        value = zeros_of(builder, type);
      }
      copy.set(question.outputs[i], forward.laid_out(value, type.strides));
    }
  };
  answer(asked);
  for (size_t n = node + 1; n < whole.num_nodes(); ++n) {
    const Node& other = whole.node(static_cast<NodeId>(n));
    if (asks_the_same(whole, asked, other, node)) {
      answer(other);
    } else {
      copy.copy(other);
    }
  }
  return copy.finish();
}

}  // namespace tatara
