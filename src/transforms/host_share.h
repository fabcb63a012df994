// What of a graph on a GPU the CPU computes by itself.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A graph of the CPU's share; nothing: there is none.
struct HostGraph {
  std::optional<Graph> graph;
  std::vector<size_t> inputs;  // of it: their places among the inputs of the whole
};

/// A graph on a GPU in up to three: the CPU runs one before it and one behind it.
struct HostShare {
  Graph gpu;
  HostGraph ahead;                 // looks at conditions (`decided`) and computes nothing else
  HostGraph behind;                // writes to inputs of the CPU, and nothing else
  std::vector<InputWrite> writes;  // the same as those of `behind`, by the inputs of the whole
};

/// Conditions of the CPU, and writes to inputs on the CPU (counters of steps) whose values come from the CPU alone. Nothing: there
/// are none, or no GPU. The GPU's kernels get numbers of the CPU by value when they are launched, so they see what was there before.
std::optional<HostShare> take_host_share(const Graph& graph);

/// Per value: whether the CPU can compute it of its own. Not what draws random numbers, whose order the whole plan keeps.
std::vector<bool> values_of_host(const Graph& graph);

}  // namespace tatara
