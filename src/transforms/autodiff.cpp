#include "transforms/autodiff.h"

#include <algorithm>

#include "ops/core/builder.h"
#include "ops/rules/derivative.h"
#include "ops/rules/loop_node.h"
#include "support/error.h"
#include "support/made_once.h"
#include "transforms/batching.h"
#include "transforms/loop_gradients.h"
#include "transforms/pass.h"
#include "transforms/recompute.h"

namespace tatara {
namespace {

constexpr int kMaxRounds = 16;

bool carries_grad(const Node& node, const std::vector<bool>& needs, bool forward = false) {
  if ((node.no_grad && !forward) || node.op->not_differentiable) return false;
  bool any = false;
  for_each_operand(node, [&](ValueId v) { any = any || needs[static_cast<size_t>(v)]; });
  return any;
}

/// A loop that keeps what its gradients read takes its place.
bool write_loop_out(const Graph& graph, const Node& node, const std::vector<bool>& needs, GraphCopy& copy) {
  std::vector<ValueId> operands, results;
  for (const ValueId v : loop_operands(node)) operands.push_back(copy[v]);
  const size_t first_new = copy.to().num_nodes();
  at_node(node, [&] { results = with_loop_gradients(copy.to(), graph, node, needs, operands); });
  for (size_t i = 0; i < results.size(); ++i) copy.set(node.outputs[i], results[i]);
  for (size_t k = first_new; k < copy.to().num_nodes(); ++k) copy.to().node(static_cast<NodeId>(k)).take_marks(node);
  return !results.empty();
}

/// One round of writing out, of the first `count` nodes; false when nothing changed.
bool write_out(const Graph& graph, const std::vector<bool>& needs, size_t count, Graph& result, bool forward = false) {
  GraphCopy copy(graph);
  bool changed = false;
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const bool loop = n < count && is_loop(*node.op) && carries_grad(node, needs, forward);
    if (loop && write_loop_out(graph, node, needs, copy)) {
      changed = true;
      continue;
    }
    if (n >= count || !node.op->differentiable_parts || !carries_grad(node, needs, forward)) {
      copy.copy(node);
      continue;
    }
    GraphBuilder builder(copy.to());
    builder.set_location(node.location);
    const size_t first_new = copy.to().num_nodes();
    const std::vector<Arg> args = copy.args(node);
    std::vector<ValueId> parts;
    at_node(node, [&] { parts = node.op->differentiable_parts(builder, args); });
    for (size_t k = first_new; k < copy.to().num_nodes(); ++k) copy.to().node(static_cast<NodeId>(k)).take_marks(node);
    if (parts.size() < node.outputs.size()) {
      throw Unsupported(str_cat(node.op->name, " has no derivative for these arguments"), node.location.user());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      copy.set(node.outputs[i], with_type(copy, parts[i], graph.type(node.outputs[i]), first_new));
    }
    for (size_t k = first_new; k < copy.to().num_nodes(); ++k)
      copy.to().node(static_cast<NodeId>(k)).closed = node.closed;
    changed = true;
  }
  result = copy.finish();
  return changed;
}

/// Builds the second half of a joint graph.
class Reverse {
 public:
  Reverse(Graph& graph, std::vector<bool> needs, size_t forward_values)
      : graph_(graph), builder_(graph), needs_(std::move(needs)), cotangents_(forward_values, kNoValue) {}

  bool needs(ValueId v) const { return needs_[static_cast<size_t>(v)]; }
  ValueId cotangent(ValueId v) const { return cotangents_[static_cast<size_t>(v)]; }

  void add(ValueId v, ValueId value) {
    ValueId& sum = cotangents_[static_cast<size_t>(v)];
    sum = sum == kNoValue ? value : sum_of(sum, value);
  }

  void through(NodeId id) {
    const Node node = graph_.node(id);
    if (!carries_grad(node, needs_)) return;
    std::vector<ValueId> cotangents;
    bool any = false;
    for (const ValueId v : node.outputs) {
      cotangents.push_back(needs(v) ? cotangent(v) : kNoValue);
      any = any || cotangents.back() != kNoValue;
    }
    if (!any) return;
    if (!node.op->vjp) throw Unsupported(str_cat("no derivative rule for ", node.op->name), node.location.user());
    builder_.set_location(node.location);
    builder_.set_region(node.region);
    VjpContext context(builder_, node, std::move(cotangents), needs_);
    at_node(node, [&] { node.op->vjp(context); });
    for (const VjpContext::Given& given : context.given()) add(given.operand, given.cotangent);
    builder_.set_region(nullptr);
  }

 private:
  ValueId sum_of(ValueId a, ValueId b) {
    if (adds_to_zeros(b, a)) std::swap(a, b);
    if (!adds_to_zeros(a, b)) return builder_.binary("add", a, b);
    // The rows of a look-up's gradient: added to the other gradient, and there is no table of zeros.
    const Node node = graph_.node(graph_.value(a).producer);
    std::vector<Arg> args = node.args;
    args[0] = TensorArg{b};
    return builder_.call(*node.op, std::move(args)).at(0);
  }

  /// Whether `part` adds elements to a tensor of zeros that `sum` may stand in for.
  bool adds_to_zeros(ValueId part, ValueId sum) const {
    const NodeId made = graph_.value(part).producer;
    if (made < 0) return false;
    const Node& node = graph_.node(made);
    if (!node.op->traits.adds_elements) return false;
    const NodeId base = graph_.value(std::get<TensorArg>(node.args[0]).value).producer;
    if (base < 0 || !graph_.node(base).op->traits.fills) return false;
    const auto* const filler = std::get_if<Scalar>(&graph_.node(base).args[1]);
    const auto* const number = filler != nullptr ? std::get_if<double>(filler) : nullptr;
    if (number == nullptr || *number != 0) return false;
    const TensorType &ours = graph_.type(part), &theirs = graph_.type(sum);
    const bool exact = ours.dtype == DType::kFloat32 || ours.dtype == DType::kFloat64;
    return exact && ours.dtype == theirs.dtype && ours.sizes == theirs.sizes && ours.strides == theirs.strides;
  }

  Graph& graph_;
  GraphBuilder builder_;
  const std::vector<bool> needs_;
  std::vector<ValueId> cotangents_;
};

// ---- Gradients inside a graph ----------------------------------------------------------------------------------------

const OpDef& gradients_op() {
  return made_once([] {
    OpDef made;
    made.name = "gradients";
    made.not_differentiable = true;
    return made;
  });
}

const std::vector<ValueId>& list_of(const Node& node, size_t arg) {
  return std::get<TensorList>(node.args[arg]).values;
}

bool flag_of(const Node& node, size_t arg) { return std::get<bool>(std::get<Scalar>(node.args[arg])); }

/// Which values before the node carry a gradient to one of its variables.
std::vector<bool> needed_by(const Graph& graph, size_t node) {
  std::vector<bool> needs(graph.num_values(), false);
  const bool level = flag_of(graph.node(static_cast<NodeId>(node)), 6);
  for (const ValueId v : list_of(graph.node(static_cast<NodeId>(node)), 2)) needs[static_cast<size_t>(v)] = true;
  for (size_t n = 0; n < node; ++n) {
    const Node& each = graph.node(static_cast<NodeId>(n));
    if ((each.closed && !level) || !carries_grad(each, needs)) continue;
    for (const ValueId v : each.outputs) {
      const auto at = static_cast<size_t>(v);
      needs[at] = needs[at] || differentiable_result(graph, v);
    }
  }
  return needs;
}

/// Whether the engine would reach the values from one of the roots.
bool decides(const Graph& graph, const std::vector<ValueId>& values, const std::vector<ValueId>& roots,
             const GraphCopy& copy) {
  const std::vector<bool> touched = values_with_history(graph, values);
  return std::any_of(roots.begin(), roots.end(), [&](ValueId v) { return touched[static_cast<size_t>(copy[v])]; });
}

/// Replaces the node by the gradients' own nodes.
Graph expand_one(const Graph& graph, size_t at, std::vector<std::optional<GradientFound>>& found,
                 const PassOptions& options) {
  GraphCopy copy(graph);
  for (size_t n = 0; n < at; ++n) copy.copy(graph.node(static_cast<NodeId>(n)));
  Graph& to = copy.to();
  const Node& node = graph.node(static_cast<NodeId>(at));
  std::vector<bool> needs(to.num_values(), false);
  const std::vector<bool> old_needs = needed_by(graph, at);
  for (size_t v = 0; v < old_needs.size(); ++v) {
    const ValueId now = copy[static_cast<ValueId>(v)];
    if (old_needs[v] && now != kNoValue) needs[static_cast<size_t>(now)] = true;
  }
  const size_t first_new = to.num_nodes();
  Reverse reverse(to, std::move(needs), to.num_values());
  const std::vector<ValueId>&roots = list_of(node, 0), &cotangents = list_of(node, 1), &variables = list_of(node, 2);
  for (size_t i = 0; i < roots.size(); ++i) {
    if (old_needs[static_cast<size_t>(roots[i])]) reverse.add(copy[roots[i]], copy[cotangents[i]]);
  }
  for (size_t n = first_new; n-- > 0;) reverse.through(static_cast<NodeId>(n));
  GraphBuilder builder(to);
  builder.set_location(node.location);
  size_t next = 0;
  const std::vector<Expr>& counts = std::get<SymInts>(node.args[3]).values;
  for (size_t n = first_new; n < to.num_nodes(); ++n) to.node(static_cast<NodeId>(n)).derived = true;
  std::vector<ValueId> leaves;
  for (const ValueId v : list_of(node, 4)) leaves.push_back(copy[v]);
  const std::vector<bool> histories = values_with_history(to, leaves);
  for (size_t k = 0; k < counts.size(); ++k) {
    ValueId sum = kNoValue;
    std::vector<ValueId> values;
    for (int64_t i = 0; i < counts[k].const_value(); ++i) {
      values.push_back(copy[variables[next++]]);
      const ValueId part = reverse.cotangent(values.back());
      if (part != kNoValue) sum = sum == kNoValue ? part : builder.binary("add", sum, part);
    }
    const TensorType& type = graph.type(node.outputs[k]);
    found.emplace_back();
    if (sum != kNoValue) {
      const auto place = static_cast<size_t>(sum);
      found.back() = GradientFound{to.type(sum), place >= histories.size() || histories[place]};
    } else if (decides(to, values, roots, copy)) {
      found.back() = GradientFound{type, false};
    }
    if (sum == kNoValue) sum = zeros_of(builder, type);
    if (to.type(sum).strides != type.strides) {
      sum = builder.op("relayout", {TensorArg{sum}, SymInts{type.strides}});
    }
    copy.set(node.outputs[k], sum);
  }
  for (size_t n = first_new; n < to.num_nodes(); ++n) {
    if (!flag_of(node, 5)) to.node(static_cast<NodeId>(n)).no_grad = true;  // in eager nothing of this is recorded
    to.node(static_cast<NodeId>(n)).closed = node.closed;
  }
  // What can be differentiated again must come from the values that later passes know.
  const bool keeps = flag_of(node, 5) || flag_of(node, 6);
  const size_t end = to.num_nodes();
  for (size_t n = first_new; keeps && n < end; ++n) to.node(static_cast<NodeId>(n)).region = nullptr;
  for (size_t n = at + 1; n < graph.num_nodes(); ++n) copy.copy(graph.node(static_cast<NodeId>(n)));
  return keeps ? copy.finish() : rematerialize(copy.finish(), first_new, end, options);
}

/// Gradients come in any layout: the caller hands them over in the order of `cotangent_order`.
TensorType cotangent_type(ExprContext& ctx, TensorType type) {
  if (cotangent_order(ctx, type).empty()) type.strides = contiguous_strides(ctx, type.sizes);
  type.is_wrapped_number = false;
  return type;
}

}  // namespace

bool differentiable_result(const Graph& graph, ValueId v) {
  const DType dtype = graph.type(v).dtype;
  const Node* node = graph.producer(v);
  if (!is_floating(dtype) && !is_complex(dtype)) return false;
  if (node == nullptr) return true;
  const int index = graph.value(v).output_index;
  return index >= node->op->first_differentiable && index < node->op->differentiable_results;
}

std::vector<int> cotangent_order(ExprContext& ctx, const TensorType& type) {
  if (type.strides == contiguous_strides(ctx, type.sizes)) return {};
  std::vector<int> order(type.sizes.size(), -1);
  Expr expected = ctx.constant(1);
  for (size_t place = order.size(); place-- > 0;) {
    // A dimension of one element goes where its stride says, if anywhere: it does not change what is expected next.
    int found = -1;
    for (size_t d = 0; d < order.size(); ++d) {
      const bool taken = std::find(order.begin(), order.end(), static_cast<int>(d)) != order.end();
      if (taken || type.strides[d] != expected) continue;
      if (found < 0 || type.sizes[d].is_const(1)) found = static_cast<int>(d);
    }
    if (found < 0) return {};
    order[place] = found;
    expected = ctx.mul(expected, type.sizes[static_cast<size_t>(found)]);
  }
  return order;
}

bool gives_gradients(const Node& node, const std::vector<bool>& needs) { return carries_grad(node, needs); }

bool gives_tangents(const Node& node, const std::vector<bool>& needs) { return carries_grad(node, needs, true); }

std::vector<ValueId> add_gradients(GraphBuilder& builder, const GradientsCall& call, std::vector<TensorType> types) {
  SymInts counts;
  TensorList variables;
  for (const std::vector<ValueId>& each : call.variables) {
    counts.values.push_back(builder.ctx().constant(static_cast<int64_t>(each.size())));
    variables.values.insert(variables.values.end(), each.begin(), each.end());
  }
  return builder.host_call(
      gradients_op(),
      {TensorList{call.roots}, TensorList{call.cotangents}, std::move(variables), std::move(counts),
       TensorList{call.histories}, Scalar(call.create_graph), Scalar(call.level)},
      std::move(types));
}

bool is_gradients(const Node& node) { return node.op == &gradients_op(); }

Graph numbered(const Graph& graph) {
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes()) copy.copy(node);
  return copy.finish();
}

Graph written_out(Graph graph, const NeedsFn& needs, bool forward, size_t& at) {
  for (int round = 0; round < kMaxRounds; ++round) {
    Graph next(graph.ctx_ptr());
    const size_t behind = graph.num_nodes() - at;
    if (!write_out(graph, needs(graph, at), at, next, forward)) return graph;
    graph = numbered(next);
    at = graph.num_nodes() - behind;
  }
  throw InternalError("differentiable forms do not end");
}

Graph expand_gradients_at(const Graph& graph, size_t node, std::vector<std::optional<GradientFound>>& found,
                          const PassOptions& options) {
  const Graph whole = with_generator_states(written_out(graph, needed_by, false, node), options);
  return expand_one(whole, node, found, options);
}

std::vector<bool> values_needing_grad(const Graph& graph, const std::vector<bool>& inputs) {
  std::vector<bool> needs(graph.num_values(), false);
  for (size_t i = 0; i < graph.inputs().size(); ++i) needs[static_cast<size_t>(graph.inputs()[i])] = inputs[i];
  for (const Node& node : graph.nodes()) {
    if (node.closed || !carries_grad(node, needs)) continue;
    if (is_loop(*node.op)) {
      const std::vector<bool> results = loop_results_needing(graph, node, needs);
      for (size_t i = 0; i < results.size(); ++i) needs[static_cast<size_t>(node.outputs[i])] = results[i];
      continue;
    }
    for (const ValueId v : node.outputs) needs[static_cast<size_t>(v)] = differentiable_result(graph, v);
  }
  return needs;
}

std::vector<bool> values_with_history(const Graph& graph, const std::vector<ValueId>& leaves) {
  std::vector<bool> has(graph.num_values(), false);
  for (const ValueId v : leaves) has[static_cast<size_t>(v)] = true;
  for (const Node& node : graph.nodes()) {
    // An example of a batch whose level is still open has the history of all.
    const bool example = is_batch_in(node) && has[static_cast<size_t>(std::get<TensorArg>(node.args[0]).value)];
    if (node.closed || !(example || carries_grad(node, has))) continue;
    for (const ValueId v : node.outputs) {
      const auto at = static_cast<size_t>(v);
      has[at] = has[at] || node.derived || differentiable_result(graph, v);
    }
  }
  return has;
}

Graph differentiable_form(const Graph& graph, const std::vector<bool>& inputs, const PassOptions& options) {
  return run_pass("differentiable_form", graph, options, [&](const Graph& g) {
    Graph result = numbered(g);
    for (int round = 0; round < kMaxRounds; ++round) {
      Graph next(g.ctx_ptr());
      const bool changed = write_out(result, values_needing_grad(result, inputs), result.num_nodes(), next);
      result = numbered(next);
      if (!changed) return result;
    }
    throw InternalError("differentiable forms do not end");
  });
}

void refuse_written_gradients(const Graph& graph, const std::vector<bool>& inputs) {
  if (graph.input_writes().empty()) return;
  const std::vector<bool> needs = values_needing_grad(graph, inputs);
  for (const InputWrite& write : graph.input_writes()) {
    const auto input = static_cast<size_t>(write.input_index);
    if (!is_changed(graph, graph.inputs()[input])) continue;
    if (!inputs[input] && !needs[static_cast<size_t>(write.value)]) continue;
    const auto refuse = [] { throw Unsupported("an in-place write to an input takes part in gradients"); };
    if (const Node* writer = graph.producer(write.value)) at_node(*writer, refuse);
    refuse();
  }
}

JointGraph joint_graph(const Graph& forward, const std::vector<bool>& inputs, const std::vector<bool>& outputs) {
  GraphCopy copy(forward);
  for (const Node& node : forward.nodes()) copy.copy(node);
  JointGraph joint{copy.finish(), 0, 0, 0, 0, {}, {}};
  Graph& g = joint.graph;
  joint.forward_values = g.num_values();
  joint.forward_nodes = g.num_nodes();
  joint.forward_inputs = g.inputs().size();
  joint.forward_outputs = g.outputs().size();
  const std::vector<bool> needs = values_needing_grad(g, inputs);
  refuse_written_gradients(g, inputs);
  Reverse reverse(g, needs, joint.forward_values);
  for (size_t i = 0; i < joint.forward_outputs; ++i) {
    const GraphOutput output = g.outputs()[i];
    const bool fresh = output.alias.kind == OutputAlias::Kind::kFresh;
    if (output.value == kNoValue || !fresh || !needs[static_cast<size_t>(output.value)]) continue;
    if (!outputs.empty() && !outputs[i]) continue;
    const ValueId cotangent = g.add_input(cotangent_type(g.ctx(), g.type(output.value)), {});
    joint.cotangents.push_back(static_cast<int>(i));
    reverse.add(output.value, cotangent);
  }
  for (size_t n = joint.forward_nodes; n-- > 0;) reverse.through(static_cast<NodeId>(n));
  for (size_t n = joint.forward_nodes; n < g.num_nodes(); ++n) g.node(static_cast<NodeId>(n)).derived = true;
  for (size_t i = 0; i < joint.forward_inputs; ++i) {
    if (!inputs[i]) continue;
    const ValueId gradient = reverse.cotangent(g.inputs()[i]);
    if (gradient == kNoValue) continue;
    joint.gradients.push_back(static_cast<int>(i));
    g.add_output(gradient);
  }
  return joint;
}

}  // namespace tatara
