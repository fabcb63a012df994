// From a tape of host calls to an ir::Graph: operators found by identity, arguments bound, views and writes functionalised.
#pragma once

#include <vector>

#include "capture/tape.h"
#include "ir/graph.h"

namespace tatara::capture {

struct TapeGraph {
  Graph graph;
  std::vector<int> inputs;   // tape slot of each graph input
  std::vector<int> outputs;  // tape slot of the first graph outputs (hidden ones follow)
};

/// Throws tatara::Error (Unsupported: no operator, other result types than the host's).
TapeGraph build_graph(const Tape& tape, TorchApi& api);

/// Element type of a torch dtype object; Unsupported for others.
DType dtype_of(PyObject* dtype);
Device device_of(PyObject* device);

}  // namespace tatara::capture
