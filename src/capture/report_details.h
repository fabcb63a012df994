// What tatara.explain() shows of a compilation, as plain Python data.
#pragma once

#include <vector>

#include "capture/entry_cache.h"
#include "compiler/compiler.h"

namespace tatara::capture {

/// What this thread's compilations keep beyond what runs need.
enum class Explaining : int {
  kOff,
  kKeep,     // all texts and the lowered graph
  kMeasure,  // also run each new graph a few times to measure it
};
Explaining explaining();
/// Returns what was set before.
Explaining set_explaining(Explaining level);

/// A dict: id, nodes, inputs, outputs, kernels, steps, buffers, host_calls, times, notes (see python/tatara/_report.py).
/// Null with a Python error set.
Ref details_of(const CompileResult& compiled);

/// Runs a new entry's graph on the inputs it was traced with and drops the results, so that whoever listens to the
/// history sees its steps. Inputs that the graph writes are copied first, and the host's random state is put back.
void measure_entry(const Entry& entry, const std::vector<PyObject*>& objects, TorchApi& api);

}  // namespace tatara::capture
