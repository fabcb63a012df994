// Gradients through loops that are nodes (ops/rules/loop_node.h).
#pragma once

#include <vector>

#include "ir/graph.h"
#include "support/pass_options.h"

namespace tatara {

/// Per result of the node: whether it has a gradient, given which values of the graph do.
std::vector<bool> loop_results_needing(const Graph& graph, const Node& node, const std::vector<bool>& needs);
/// The node's results as those of a loop that keeps what its gradients read, and knows the loop that gives them; `operands` are
/// values of `to`. Empty: the node is such a loop already, or no gradient flows through it. Unsupported where a body has none.
std::vector<ValueId> with_loop_gradients(Graph& to, const Graph& graph, const Node& node,
                                         const std::vector<bool>& needs, const std::vector<ValueId>& operands);

}  // namespace tatara
