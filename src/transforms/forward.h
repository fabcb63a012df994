// Forward-mode derivatives inside a graph.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/core/builder.h"
#include "transforms/autodiff.h"

namespace tatara {

/// How the roots change when each variable moves along its tangent.
struct TangentsCall {
  std::vector<ValueId> roots, variables, tangents;
  std::vector<ValueId> stops;      // values that do not change, whatever they are made of
  std::vector<ValueId> histories;  // as of GradientsCall
};
/// A node that stands for the tangents of the roots until expand_transforms().
std::vector<ValueId> add_tangents(GraphBuilder& builder, const TangentsCall& call, std::vector<TensorType> types);
bool is_tangents(const Node& node);

/// Replaces the node, in a graph that is numbered densely. The tangent of an operator's result comes from its reverse rule:
/// that is linear in the cotangent, and reversing it once more, by the cotangent, gives the map of tangents. So every
/// operator with a reverse rule has a forward one. Views are applied to tangents as they are. `found`: per root, nothing where
/// no variable takes part in it.
Graph expand_tangents_at(const Graph& graph, size_t node, std::vector<std::optional<GradientFound>>& found,
                         const PassOptions& options = {});

}  // namespace tatara
