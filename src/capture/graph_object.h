// A captured graph as a Python object, for users' backends and reports; and the helpers of runners.
#pragma once

#include <memory>
#include <vector>

#include "capture/entry_cache.h"

namespace tatara {
struct CompileOptions;
}

namespace tatara::capture {

/// Slots of the tape's outputs that are not inputs, without repetition: what a backend returns.
std::vector<int> computed_outputs(const Tape& tape);
std::vector<int> input_slots(const Tape& tape);
/// A Python object: callable with the inputs, `str()`, `nodes`, `inputs`, `outputs`.
Ref make_graph_object(std::shared_ptr<Tape> tape);
bool is_graph_object(PyObject* object);
/// Compiles the tape and sets entry.runner; false (no error set) when the tape is to run as it is, with
/// entry.fallback_reason.
bool attach_compiled(Entry& entry, const CompileOptions& options, TorchApi& api);

}  // namespace tatara::capture
