// Which results of a graph passes of gradients can go through one after the other.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// Who has memory that the gradients of a group may read, and whether the host minds when it is written before they do.
enum class Held : uint8_t {
  kAlone,  // the graph alone has it, or nothing is known
  kKept,   // the host's own nodes keep it: after a write it refuses the pass
  kFree,   // they don't: a write changes nothing
};
struct HeldMemory {
  std::vector<Held> inputs, outputs;  // of the graph
};

/// Results of one group share an operation that keeps tensors for its gradient: a pass through one of them uses it up, and the
/// host refuses another through any. A pass through one group leaves the others as they are.
struct ResultGroups {
  std::vector<int> of_output;    // per output: its group; -1: a view, or without a gradient
  std::vector<bool> used_up;     // per group: whether it is known, without asking, that a pass uses something up
  std::vector<HeldMemory> held;  // per group, or none where nothing is known
};

/// `saves`: whether the host keeps tensors for the gradient of the operation that the node is part of, asked where it counts. Where a result shares such
/// operations with others which share none among each other, it is a group of its own: no pass is refused that the host allows.
ResultGroups group_results(const Graph& graph, const std::vector<bool>& inputs,
                           const std::function<bool(const Node&)>& saves);

}  // namespace tatara
