// A captured graph as a Python object, for users' backends and reports; and the helpers of runners.
#pragma once

#include <memory>
#include <vector>

#include "capture/entry_cache.h"

namespace tatara::capture {

/// A Python object: callable with the inputs, `str()`, `nodes`, `inputs`, `outputs`.
Ref make_graph_object(std::shared_ptr<Tape> tape);
bool is_graph_object(PyObject* object);
/// Compiles the tape and sets entry.runner; false (no error set) when the tape is to run as it is, with
/// entry.fallback_reason.
bool attach_compiled(Entry& entry, TorchApi& api);

}  // namespace tatara::capture
