#include "transforms/autodiff.h"

#include <algorithm>

#include "ops/builder.h"
#include "ops/derivative.h"
#include "support/error.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

constexpr int kMaxRounds = 16;

bool differentiable_type(const TensorType& type) { return is_floating(type.dtype) || is_complex(type.dtype); }

bool carries_grad(const Node& node, const std::vector<bool>& needs) {
  if (node.no_grad || node.op->not_differentiable) return false;
  bool any = false;
  for_each_operand(node, [&](ValueId v) { any = any || needs[static_cast<size_t>(v)]; });
  return any;
}

/// Numbers values densely: inputs first, then results in the order of the nodes.
Graph numbered(const Graph& graph) {
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes()) copy.copy(node);
  return copy.finish();
}

/// One round of writing out; false when nothing changed.
bool write_out(const Graph& graph, const std::vector<bool>& inputs, Graph& result) {
  const std::vector<bool> needs = values_needing_grad(graph, inputs);
  GraphCopy copy(graph);
  bool changed = false;
  for (const Node& node : graph.nodes()) {
    if (!node.op->differentiable_parts || !carries_grad(node, needs)) {
      copy.copy(node);
      continue;
    }
    GraphBuilder builder(copy.to());
    builder.set_location(node.location);
    const size_t first_new = copy.to().num_nodes();
    const std::vector<Arg> args = copy.args(node);
    const std::vector<ValueId> parts = node.op->differentiable_parts(builder, args);
    if (parts.size() < node.outputs.size()) {
      throw Unsupported(str_cat(node.op->name, " has no derivative for these arguments"));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      copy.set(node.outputs[i], with_type(copy, parts[i], graph.type(node.outputs[i]), first_new));
    }
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
    sum = sum == kNoValue ? value : builder_.binary("add", sum, value);
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
    if (!node.op->vjp) throw Unsupported(str_cat("no derivative rule for ", node.op->name));
    builder_.set_location(node.location);
    VjpContext context(builder_, node, std::move(cotangents), needs_);
    node.op->vjp(context);
    for (const VjpContext::Given& given : context.given()) add(given.operand, given.cotangent);
  }

 private:
  Graph& graph_;
  GraphBuilder builder_;
  const std::vector<bool> needs_;
  std::vector<ValueId> cotangents_;
};

/// Gradients come in any layout: the caller hands them over contiguous.
TensorType cotangent_type(ExprContext& ctx, TensorType type) {
  type.strides = contiguous_strides(ctx, type.sizes);
  type.is_wrapped_number = false;
  return type;
}

}  // namespace

std::vector<bool> values_needing_grad(const Graph& graph, const std::vector<bool>& inputs) {
  std::vector<bool> needs(graph.num_values(), false);
  for (size_t i = 0; i < graph.inputs().size(); ++i) needs[static_cast<size_t>(graph.inputs()[i])] = inputs[i];
  for (const Node& node : graph.nodes()) {
    if (!carries_grad(node, needs)) continue;
    for (const ValueId v : node.outputs) needs[static_cast<size_t>(v)] = differentiable_type(graph.type(v));
  }
  return needs;
}

Graph differentiable_form(const Graph& graph, const std::vector<bool>& inputs) {
  return run_pass("differentiable_form", graph, [&](const Graph& g) {
    Graph result = numbered(g);
    for (int round = 0; round < kMaxRounds; ++round) {
      Graph next(g.ctx_ptr());
      const bool changed = write_out(result, inputs, next);
      result = numbered(next);
      if (!changed) return result;
    }
    throw InternalError("differentiable forms do not end");
  });
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
  for (const InputWrite& write : g.input_writes()) {
    if (inputs[static_cast<size_t>(write.input_index)] || needs[static_cast<size_t>(write.value)]) {
      throw Unsupported("an in-place write to an input takes part in gradients");
    }
  }
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
