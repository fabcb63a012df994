#include <algorithm>

#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {

std::vector<bool> needed_nodes(const Graph& graph, const std::function<bool(const Node&)>& kept) {
  std::vector<bool> live(graph.num_values(), false), needed(graph.num_nodes(), false);
  const auto mark = [&live](ValueId value) {
    if (value != kNoValue) live[static_cast<size_t>(value)] = true;
  };
  for (const GraphOutput& output : graph.outputs()) mark(output.value);
  for (const InputWrite& write : graph.input_writes()) mark(write.value);
  for (size_t i = graph.num_nodes(); i-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(i));
    const bool read =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return live[static_cast<size_t>(v)]; });
    needed[i] = read || kept(node);
    if (needed[i]) for_each_operand(node, mark);
  }
  return needed;
}

Graph eliminate_dead_code(const Graph& graph, const PassOptions& options) {
  return run_pass("dce", graph, options, [](const Graph& g) {
    // Random operators move the generator even when nobody looks at the numbers.
    const std::vector<bool> needed = needed_nodes(g, [](const Node& node) { return node.op->nondeterministic; });
    GraphCopy copy(g);
    for (size_t i = 0; i < g.num_nodes(); ++i) {
      if (needed[i]) copy.copy(g.node(static_cast<NodeId>(i)));
    }
    return copy.finish();
  });
}

}  // namespace tatara
