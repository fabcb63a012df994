// Function transforms inside a graph: gradients, tangents and batches stand as nodes until all of them are written out.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/core/builder.h"
#include "transforms/autodiff.h"

namespace tatara {

/// Replaces the nodes that close a transform (`gradients`, `tangents`, `batch_out`) by what they stand for, in order: what is
/// inside of another comes before it, so they nest. Outputs that may share memory with
/// inputs or with each other (OutputAlias::Sharing) do so where they are views of them. `found`: of the last one, what it gives per variable or root.
Graph expand_transforms(const Graph& graph, const PassOptions& options = {},
                        std::vector<std::optional<GradientFound>>* found = nullptr);

/// What the last node, a pass, gives per variable or root. The passes before it are written out only where it asks about what they
/// give: a loop that takes gradients in each turn would write all of them out in each.
std::vector<std::optional<GradientFound>> last_pass(const Graph& graph);

/// A tensor with memory of its own, laid out as the value is.
ValueId copied(GraphBuilder& builder, ValueId value);
/// What a value is of what is below its views, of a copy of that: it shares no memory with anything.
ValueId on_a_copy(GraphBuilder& builder, ValueId value);

}  // namespace tatara
