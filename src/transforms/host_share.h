// What of a graph on a GPU the CPU computes by itself.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A graph on a GPU in two: one runs there, and the CPU's runs behind it.
struct HostShare {
  Graph gpu;                        // without what the CPU writes to
  Graph cpu;                        // writes to inputs of the CPU, and nothing else
  std::vector<size_t> inputs;       // of `cpu`: their places among the graph's inputs
  std::vector<InputWrite> writes;   // the same as those of `cpu`, by the graph's inputs
};

/// The writes to inputs on the CPU (counters of steps) whose values come from the CPU alone. Nothing: there are none, or no GPU.
/// The GPU's kernels get numbers of the CPU by value when they are launched, so they see what was there before.
std::optional<HostShare> take_host_share(const Graph& graph);

}  // namespace tatara
