#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {

Graph eliminate_dead_code(const Graph& graph) {
  return run_pass("dce", graph, [](const Graph& g) {
    std::vector<bool> live(g.num_values(), false);
    for (const GraphOutput& output : g.outputs()) {
      if (output.value != kNoValue) live[static_cast<size_t>(output.value)] = true;
    }
    for (const InputWrite& write : g.input_writes()) live[static_cast<size_t>(write.value)] = true;
    std::vector<bool> keep(g.num_nodes(), false);
    for (size_t i = g.num_nodes(); i-- > 0;) {
      const Node& node = g.node(static_cast<NodeId>(i));
      // Random operators move the generator even when nobody looks at the numbers.
      keep[i] = node.op->nondeterministic;
      for (const ValueId v : node.outputs) keep[i] = keep[i] || live[static_cast<size_t>(v)];
      if (keep[i]) for_each_operand(node, [&](ValueId v) { live[static_cast<size_t>(v)] = true; });
    }
    GraphCopy copy(g);
    for (size_t i = 0; i < g.num_nodes(); ++i) {
      if (keep[i]) copy.copy(g.node(static_cast<NodeId>(i)));
    }
    return copy.finish();
  });
}

}  // namespace tatara
