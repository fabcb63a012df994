// Results of a function with a backward of the user's (torch.autograd.Function).
#pragma once

#include "ops/core/builder.h"

namespace tatara {

/// What a backward of the user's makes of cotangents, as a graph. Inputs: the captured values, the function's results, their
/// cotangents (contiguous). Outputs: a gradient per operand, kNoValue where it gives none.
using BackwardRule = Graph;

/// The values themselves, whose gradients are those that the rule gives for `operands`. `captured` are what the rule reads
/// beside the results.
std::vector<ValueId> add_custom_gradient(GraphBuilder& builder, const std::vector<ValueId>& values,
                                         const std::vector<ValueId>& operands);
/// A value that stands for a cotangent while a backward becomes part of the graph.
ValueId add_cotangent(GraphBuilder& builder, TensorType type);
/// Takes the nodes from `first` on, a backward, out of the graph: they become the rule of the node with these results.
void cut_backward(Graph& graph, size_t first, const std::vector<ValueId>& results,
                  const std::vector<ValueId>& cotangents, const std::vector<ValueId>& gradients);
bool is_custom_gradient(const OpDef& op);

}  // namespace tatara
