// Two products with a softmax between them as one kernel, on GPUs with tensor cores that multiply half types (loops::Attention).
#include <optional>
#include <vector>

#include "ops/core/op_def.h"
#include "transforms/attention_pattern.h"
#include "transforms/passes.h"

namespace tatara {

Graph fuse_attention(const Graph& graph, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("fuse_attention", graph, options, [](const Graph& g) {
    const AttentionFinder finder(g);
    std::vector<std::optional<FoundAttention>> at(g.num_nodes());  // by the number of either product, and of a copy
    bool any = false;
    std::vector<bool> taken(g.num_values(), false);
    const auto number = [&](const Node* node) { return static_cast<size_t>(g.value(node->outputs[0]).producer); };
    for (const Node& node : g.nodes()) {
      std::optional<FoundAttention> found = finder.find(node);
      if (!found || taken[static_cast<size_t>(found->first->outputs[0])]) continue;
      taken[static_cast<size_t>(found->first->outputs[0])] = any = true;
      for (const Node* each : {found->first, found->second, found->last}) at[number(each)] = found;
    }
    if (!any) return g;
    GraphCopy copy(g);
    GraphBuilder b(copy.to());
    for (size_t i = 0; i < g.num_nodes(); ++i) {
      const Node& node = g.node(static_cast<NodeId>(i));
      if (!at[i]) {
        copy.copy(node);
        continue;
      }
      const FoundAttention& found = *at[i];
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      AttentionMaker maker(copy, b, g.type(found.scores), g.type(found.second->outputs[0]).dtype);
      if (&node == found.first) {
        copy.set(node.outputs[0], maker.scores(node));
      } else if (&node == found.second) {
        // The copy of its result is made here, too, and what lies between them has no reader any more.
        const AttentionMaker::Values made = maker.values(found);
        copy.set(node.outputs[0], with_type(copy, made.product, g.type(node.outputs[0]), first_new));
        if (found.last != &node)
          copy.set(found.last->outputs[0], with_type(copy, made.last, g.type(found.last->outputs[0]), first_new));
        if (found.norms) copy.set(node.outputs[1], made.norms);
      }
    }
    return copy.finish();
  });
}

}  // namespace tatara
