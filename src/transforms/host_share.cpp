#include "transforms/host_share.h"

#include <algorithm>
#include <utility>

#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool is_on(const Graph& graph, ValueId v, DeviceKind kind) { return graph.type(v).device.kind == kind; }

/// Which values the CPU can compute of its own: no random numbers, whose order the GPU's plan keeps.
std::vector<bool> values_of_host(const Graph& graph) {
  std::vector<bool> host(graph.num_values(), false);
  for (const ValueId v : graph.inputs()) host[static_cast<size_t>(v)] = is_on(graph, v, DeviceKind::kCpu);
  for (const Node& node : graph.nodes()) {
    bool all = !node.op->draws() && !node.op->traits.varies && !node.op->checks_values;
    for_each_operand(node, [&](ValueId v) { all = all && host[static_cast<size_t>(v)]; });
    for (const ValueId v : node.outputs)
      host[static_cast<size_t>(v)] = all && is_on(graph, v, DeviceKind::kCpu);
  }
  return host;
}

Graph without_dead_nodes(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(
      graph, [](const Node& node) { return node.op->nondeterministic || node.op->draws() || node.op->checks_values; });
  GraphCopy copy(graph);
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    if (needed[n]) copy.copy(graph.node(static_cast<NodeId>(n)));
  }
  return copy.finish();
}

/// The nodes that lead to the writes, with the inputs that these read.
Graph host_graph(const Graph& graph, const std::vector<InputWrite>& writes, std::vector<size_t>& inputs) {
  std::vector<bool> wanted(graph.num_values(), false);
  for (const InputWrite& write : writes) {
    wanted[static_cast<size_t>(write.value)] = true;
    wanted[static_cast<size_t>(graph.inputs()[static_cast<size_t>(write.input_index)])] = true;
  }
  std::vector<size_t> nodes;
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
    if (!any) continue;
    nodes.push_back(n);
    for_each_operand(node, [&](ValueId v) { wanted[static_cast<size_t>(v)] = true; });
  }
  Graph made(graph.ctx_ptr());
  std::vector<ValueId> map(graph.num_values(), kNoValue);
  std::vector<int> place(graph.inputs().size(), -1);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId v = graph.inputs()[i];
    if (!wanted[static_cast<size_t>(v)]) continue;
    place[i] = static_cast<int>(inputs.size());
    inputs.push_back(i);
    map[static_cast<size_t>(v)] = made.add_input(graph.type(v), graph.name(v));
  }
  const auto mapped = [&](ValueId v) { return map[static_cast<size_t>(v)]; };
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(nodes[i]));
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph.type(v));
    const NodeId id = made.add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
    made.node(id).take_marks(node);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      map[static_cast<size_t>(node.outputs[k])] = made.node(id).outputs[k];
  }
  for (const InputWrite& write : writes)
    made.add_input_write(place[static_cast<size_t>(write.input_index)], mapped(write.value), write.times);
  return made;
}

}  // namespace

std::optional<HostShare> take_host_share(const Graph& graph) {
  bool gpu = false;
  for (size_t v = 0; v < graph.num_values(); ++v)
    gpu = gpu || is_on(graph, static_cast<ValueId>(v), DeviceKind::kCuda);
  const auto to_host = [&](const InputWrite& write) {
    return is_on(graph, graph.inputs()[static_cast<size_t>(write.input_index)], DeviceKind::kCpu);
  };
  if (!gpu || std::none_of(graph.input_writes().begin(), graph.input_writes().end(), to_host)) return std::nullopt;
  const std::vector<bool> host = values_of_host(graph);
  HostShare share{graph, Graph(graph.ctx_ptr()), {}, {}};
  std::vector<InputWrite> others;
  for (const InputWrite& write : graph.input_writes()) {
    (to_host(write) && host[static_cast<size_t>(write.value)] ? share.writes : others).push_back(write);
  }
  if (share.writes.empty()) return std::nullopt;
  share.gpu.input_writes() = std::move(others);
  share.gpu = without_dead_nodes(share.gpu);
  share.cpu = host_graph(graph, share.writes, share.inputs);
  return share;
}

}  // namespace tatara
