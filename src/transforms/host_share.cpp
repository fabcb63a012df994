#include "transforms/host_share.h"

#include <algorithm>
#include <utility>

#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool lies_on(const Graph& graph, ValueId v, DeviceKind kind) { return graph.type(v).device.kind == kind; }

/// `taken`: results of what the CPU does.
Graph without_dead_nodes(const Graph& graph, const std::vector<ValueId>& taken) {
  const std::vector<bool> needed = needed_nodes(graph, [&](const Node& node) {
    const bool stays = node.op->draws() || node.op->checks_values;
    return stays && std::find(taken.begin(), taken.end(), node.outputs[0]) == taken.end();
  });
  GraphCopy copy(graph);
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    if (needed[n]) copy.copy(graph.node(static_cast<NodeId>(n)));
  }
  return copy.finish();
}

/// The nodes that lead to these values, with the inputs that they read, and those named.
HostGraph host_graph(const Graph& graph, const std::vector<ValueId>& values, const std::vector<InputWrite>& writes) {
  std::vector<bool> wanted(graph.num_values(), false);
  const auto want = [&](ValueId v) { wanted[static_cast<size_t>(v)] = true; };
  for (const ValueId v : values) want(v);
  for (const InputWrite& write : writes) {
    want(write.value);
    want(graph.inputs()[static_cast<size_t>(write.input_index)]);
  }
  std::vector<size_t> nodes;
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
    if (!any) continue;
    nodes.push_back(n);
    for_each_operand(node, want);
  }
  HostGraph made{Graph(graph.ctx_ptr()), {}};
  std::vector<ValueId> map(graph.num_values(), kNoValue);
  std::vector<int> place(graph.inputs().size(), -1);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId v = graph.inputs()[i];
    if (!wanted[static_cast<size_t>(v)]) continue;
    place[i] = static_cast<int>(made.inputs.size());
    made.inputs.push_back(i);
    map[static_cast<size_t>(v)] = made.graph->add_input(graph.type(v), graph.name(v));
  }
  const auto mapped = [&](ValueId v) { return map[static_cast<size_t>(v)]; };
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(nodes[i]));
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph.type(v));
    const NodeId id = made.graph->add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
    made.graph->node(id).take_marks(node);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      map[static_cast<size_t>(node.outputs[k])] = made.graph->node(id).outputs[k];
  }
  for (const ValueId v : values) made.graph->add_output(mapped(v));
  for (const InputWrite& write : writes)
    made.graph->add_input_write(place[static_cast<size_t>(write.input_index)], mapped(write.value), write.times);
  return made;
}

}  // namespace

std::vector<bool> values_of_host(const Graph& graph) {
  std::vector<bool> host(graph.num_values(), false);
  for (const ValueId v : graph.inputs()) host[static_cast<size_t>(v)] = lies_on(graph, v, DeviceKind::kCpu);
  for (const Node& node : graph.nodes()) {
    bool all = !node.op->draws() && !node.op->traits.varies;
    for_each_operand(node, [&](ValueId v) { all = all && host[static_cast<size_t>(v)]; });
    for (const ValueId v : node.outputs) host[static_cast<size_t>(v)] = all && lies_on(graph, v, DeviceKind::kCpu);
  }
  return host;
}

std::optional<HostShare> take_host_share(const Graph& graph) {
  bool gpu = false;
  for (size_t v = 0; v < graph.num_values(); ++v)
    gpu = gpu || lies_on(graph, static_cast<ValueId>(v), DeviceKind::kCuda);
  if (!gpu) return std::nullopt;
  const std::vector<bool> host = values_of_host(graph);
  HostShare share{graph, {}, {}, {}};
  std::vector<InputWrite> others;
  for (const InputWrite& write : graph.input_writes()) {
    const bool to_host = lies_on(graph, graph.inputs()[static_cast<size_t>(write.input_index)], DeviceKind::kCpu);
    (to_host && host[static_cast<size_t>(write.value)] ? share.writes : others).push_back(write);
  }
  std::vector<ValueId> decided;
  for (const Node& node : graph.nodes()) {
    if (node.op->decides && node.op->kind != OpKind::kHost && host[static_cast<size_t>(node.outputs[0])])
      decided.push_back(node.outputs[0]);
  }
  if (share.writes.empty() && decided.empty()) return std::nullopt;
  if (!share.writes.empty()) share.behind = host_graph(graph, {}, share.writes);
  if (!decided.empty()) share.ahead = host_graph(graph, decided, {});
  share.gpu.input_writes() = std::move(others);
  for (GraphOutput& output : share.gpu.outputs()) {
    if (std::find(decided.begin(), decided.end(), output.value) != decided.end()) output = {};
  }
  share.gpu = without_dead_nodes(share.gpu, decided);
  return share;
}

}  // namespace tatara
