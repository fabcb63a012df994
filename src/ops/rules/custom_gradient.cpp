#include "ops/rules/custom_gradient.h"

#include <algorithm>
#include <utility>

#include "ops/rules/derivative.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara {
namespace {

const std::vector<ValueId>& list_of(const Node& node, size_t arg) {
  return std::get<TensorList>(node.args[arg]).values;
}

/// The nodes of the rule, once more, with the cotangents of this pass.
void backward(VjpContext& v) {
  const Node& node = v.node();
  if (node.rule == nullptr) throw InternalError("a custom gradient without a rule");
  const BackwardRule& rule = *node.rule;
  GraphBuilder& b = v.builder();
  std::vector<ValueId> map(rule.num_values(), kNoValue);
  const std::vector<ValueId>& captured = list_of(node, 2);
  const size_t results = node.outputs.size();
  for (size_t i = 0; i < rule.inputs().size(); ++i) {
    const ValueId input = rule.inputs()[i];
    ValueId& place = map[static_cast<size_t>(input)];
    if (i < captured.size()) {
      place = captured[i];
    } else if (i < captured.size() + results) {
      place = node.outputs[i - captured.size()];
    } else {
      place = v.grad(i - captured.size() - results);
      const std::vector<Expr> strides = rule.type(input).strides;
      if (b.type(place).strides != strides) place = b.op("relayout", {TensorArg{place}, SymInts{strides}});
    }
  }
  const auto mapped = [&map](ValueId value) { return map[static_cast<size_t>(value)]; };
  for (const Node& each : rule.nodes()) {
    std::vector<TensorType> types;
    for (const ValueId value : each.outputs) types.push_back(rule.type(value));
    const std::vector<ValueId> made = b.host_call(*each.op, with_operands(each.args, mapped), std::move(types));
    if (made.empty()) continue;
    Node& copy = b.graph().node(b.graph().value(made[0]).producer);
    copy.location = each.location;
    copy.no_grad = copy.no_grad || each.no_grad;
    copy.rule = each.rule;
    for (size_t i = 0; i < made.size(); ++i) map[static_cast<size_t>(each.outputs[i])] = made[i];
  }
  for (size_t i = 0; i < rule.outputs().size(); ++i) {
    const ValueId gradient = rule.outputs()[i].value;
    if (gradient != kNoValue) v.give(1, i, map[static_cast<size_t>(gradient)]);
  }
}

const OpDef& cotangent_op() {
  return made_once([] {
    OpDef made;
    made.name = "cotangent";
    return made;
  });
}

const OpDef& custom_gradient_op() {
  return made_once([] {
    OpDef made;
    made.name = "custom_gradient";
    made.kind = OpKind::kPointwise;
    made.schema = parse_schema("(Tensor[] values, Tensor[] operands, Tensor[] captured) -> Tensor[]");
    made.decompose = [](GraphBuilder&, std::span<const Arg> args) { return std::get<TensorList>(args[0]).values; };
    made.vjp = backward;
    return made;
  });
}

}  // namespace

std::vector<ValueId> add_custom_gradient(GraphBuilder& builder, const std::vector<ValueId>& values,
                                         const std::vector<ValueId>& operands) {
  std::vector<TensorType> types;
  for (const ValueId v : values) types.push_back(builder.type(v));
  return builder.host_call(custom_gradient_op(), {TensorList{values}, TensorList{operands}, TensorList{}},
                           std::move(types));
}

ValueId add_cotangent(GraphBuilder& builder, TensorType type) {
  return builder.host_call(cotangent_op(), {}, {std::move(type)}).front();
}

void cut_backward(Graph& graph, size_t first, const std::vector<ValueId>& results,
                  const std::vector<ValueId>& cotangents, const std::vector<ValueId>& gradients) {
  std::vector<ValueId> captured;
  const auto look = [&](ValueId v) {
    const bool inside = v == kNoValue || graph.value(v).producer >= static_cast<NodeId>(first);
    if (inside || std::find(results.begin(), results.end(), v) != results.end()) return;
    if (std::find(captured.begin(), captured.end(), v) == captured.end()) captured.push_back(v);
  };
  for (size_t n = first; n < graph.num_nodes(); ++n) for_each_operand(graph.node(static_cast<NodeId>(n)), look);
  for (const ValueId v : gradients) look(v);
  BackwardRule rule(graph.ctx_ptr());
  std::vector<ValueId> map(graph.num_values(), kNoValue);
  for (const std::vector<ValueId>* list : {&std::as_const(captured), &results, &cotangents}) {
    for (const ValueId v : *list) map[static_cast<size_t>(v)] = rule.add_input(graph.type(v));
  }
  const auto mapped = [&map](ValueId v) { return map[static_cast<size_t>(v)]; };
  for (size_t n = first; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    if (node.op == &cotangent_op()) continue;
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph.type(v));
    const NodeId made = rule.add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
    rule.node(made).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      map[static_cast<size_t>(node.outputs[i])] = rule.node(made).outputs[i];
    }
  }
  for (const ValueId v : gradients) rule.add_output(v == kNoValue ? v : map[static_cast<size_t>(v)]);
  graph.truncate_nodes(first);
  Node& node = graph.node(graph.value(results.at(0)).producer);
  node.args[2] = TensorList{std::move(captured)};
  node.rule = std::make_shared<const BackwardRule>(std::move(rule));
}

bool is_custom_gradient(const OpDef& op) { return &op == &custom_gradient_op(); }

}  // namespace tatara
