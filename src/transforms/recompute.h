// Regions of the program that gradients compute again (torch.utils.checkpoint): what gradients read of a region comes from a
// second computation of it, which starts from what enters the region.
#pragma once

#include "ir/graph.h"
#include "support/pass_options.h"
#include "transforms/autodiff.h"

namespace tatara {

/// Whether some node belongs to a region.
bool has_regions(const Graph& graph);

/// Nodes [first, last) are gradients, made with the marks of the nodes that they belong to. What they read of a region is
/// computed again, right before the first of them that needs it. In a region inside of another it is computed again by what
/// is computed again of that one, so each is there only while its own gradients need it. Random numbers are kept where they
/// cannot be drawn from a state of the generator again. Values before `first` keep their numbers; the regions of gradients are forgotten.
Graph rematerialize(const Graph& graph, size_t first, size_t last, const PassOptions& options = {});
/// The same for a joint graph.
JointGraph rematerialize(JointGraph joint, const PassOptions& options = {});

/// Masks that regions draw, with the state of the generator before them: gradients draw them again from that. Nodes keep their
/// places.
Graph with_generator_states(const Graph& graph, const PassOptions& options = {});
bool keeps_state(const Node& node);
/// Adds the mask of such a node of `from`, drawn again from `state`.
ValueId draw_again(Graph& to, const Graph& from, const Node& node, ValueId state);

}  // namespace tatara
