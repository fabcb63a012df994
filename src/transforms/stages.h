// Graphs whose results depend on each other, as a chain of graphs that gradients can stop at.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A part of a graph. Numbers stand for values of the whole: its inputs, then its outputs, then values between stages.
struct GraphStage {
  Graph graph;
  std::vector<bool> needs;   // per input of `graph`: whether it requires grad
  std::vector<int> inputs;   // number of each input
  std::vector<int> outputs;  // number of each output
  /// Values of the whole that have the numbers behind those of its inputs and outputs.
  std::vector<ValueId> crossing;
};

/// In eager every result is a place of its own in the graph of gradients: one may be differentiated by another, or hold a
/// hook. So a result that needs a gradient ends a stage, and what is computed from it belongs to a later one. A graph
/// without such results comes back as one stage.
std::vector<GraphStage> split_stages(const Graph& graph, const std::vector<bool>& inputs);

}  // namespace tatara
