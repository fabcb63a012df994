#include "transforms/pass.h"

#include <algorithm>
#include <chrono>

#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/log.h"

namespace tatara {

namespace {

/// Values are defined before they are used, and by the node that says so.
void check_order(const Graph& graph, std::string_view pass) {
  std::vector<bool> defined(graph.num_values(), false);
  const auto use = [&](ValueId v) {
    TATARA_CHECK(v >= 0 && static_cast<size_t>(v) < defined.size() && defined[static_cast<size_t>(v)], "pass ", pass,
                 " uses %", v, " before it is defined");
  };
  for (const ValueId v : graph.inputs()) defined[static_cast<size_t>(v)] = true;
  for (const Node& node : graph.nodes()) {
    for_each_operand(node, use);
    for (const ValueId v : node.outputs) defined[static_cast<size_t>(v)] = true;
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value != kNoValue) use(output.value);
  }
  for (const InputWrite& write : graph.input_writes()) use(write.value);
}

}  // namespace

Graph run_pass(std::string_view name, const Graph& graph, const PassOptions& options,
               const std::function<Graph(const Graph&)>& pass) {
  if (options.skips(name)) {
    TATARA_LOG(kPasses, name, ": disabled");
    return graph;
  }
  const auto start = std::chrono::steady_clock::now();
  Graph result = pass(graph);
  check_order(result, name);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  TATARA_LOG(kPasses, name, ": ", graph.num_nodes(), " -> ", result.num_nodes(), " nodes, ", static_cast<int64_t>(us),
             " us");
  return result;
}

GraphCopy::GraphCopy(const Graph& from) : from_(from), to_(from.ctx_ptr()), map_(from.num_values(), kNoValue) {
  for (const ValueId v : from.inputs()) set(v, to_.add_input(from.type(v), from.name(v)));
}

std::vector<Arg> GraphCopy::args(const Node& node) const {
  return with_operands(node.args, [this](ValueId v) { return (*this)[v]; });
}

void GraphCopy::copy(const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId v : node.outputs) types.push_back(from_.type(v));
  const NodeId id = to_.add_node(node.op, args(node), std::move(types), node.location);
  to_.node(id).take_marks(node);
  for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], to_.node(id).outputs[i]);
}

Graph GraphCopy::finish() {
  for (const GraphOutput& output : from_.outputs()) to_.add_output((*this)[output.value], output.alias);
  for (const InputWrite& write : from_.input_writes())
    to_.add_input_write(write.input_index, (*this)[write.value], write.times);
  return std::move(to_);
}

Graph copy_into(const Graph& from, Graph to, std::vector<ValueId> map) {
  const auto mapped = [&](ValueId v) { return map[static_cast<size_t>(v)]; };
  for (const Node& node : from.nodes()) {
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(from.type(v));
    const NodeId id = to.add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
    to.node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      map[static_cast<size_t>(node.outputs[i])] = to.node(id).outputs[i];
    }
  }
  for (const GraphOutput& output : from.outputs())
    to.add_output(output.value == kNoValue ? kNoValue : mapped(output.value), output.alias);
  return to;
}

bool is_in_one_group(const Node& node, const ImageArgs& images) {
  const auto* scalar = std::get_if<Scalar>(&node.args[images.groups]);
  const int64_t* groups = scalar != nullptr ? std::get_if<int64_t>(scalar) : nullptr;
  return groups != nullptr && *groups == 1;
}

bool fills_zeros(const Node& node) {
  if (!node.op->traits.fills || node.args.size() < 2) return false;
  const auto* fill = std::get_if<Scalar>(&node.args[1]);
  const auto* real = fill == nullptr ? nullptr : std::get_if<double>(fill);
  const auto* integer = fill == nullptr ? nullptr : std::get_if<int64_t>(fill);
  return (real != nullptr && *real == 0) || (integer != nullptr && *integer == 0);
}

bool is_written(const Graph& graph, ValueId v) {
  return std::ranges::any_of(graph.input_writes(), [&](const InputWrite& write) {
    return graph.inputs()[static_cast<size_t>(write.input_index)] == v;
  });
}

bool is_changed(const Graph& graph, ValueId v) {
  return std::ranges::any_of(graph.input_writes(), [&](const InputWrite& write) {
    return graph.inputs()[static_cast<size_t>(write.input_index)] == v && write.value != v;
  });
}

std::vector<bool> escaping_values(const Graph& graph) {
  std::vector<bool> escapes(graph.num_values(), false);
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value != kNoValue) escapes[static_cast<size_t>(output.value)] = true;
  }
  for (const InputWrite& write : graph.input_writes()) escapes[static_cast<size_t>(write.value)] = true;
  for (size_t i = graph.num_nodes(); i-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(i));
    if (node.op->kind != OpKind::kView) continue;
    bool any = false;
    for (const ValueId v : node.outputs) any = any || escapes[static_cast<size_t>(v)];
    if (any) for_each_operand(node, [&](ValueId v) { escapes[static_cast<size_t>(v)] = true; });
  }
  return escapes;
}

}  // namespace tatara
