// A captured graph as a Python object, for users' backends and reports.
#pragma once

#include <memory>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// A Python object: callable with the inputs, `str()`, `nodes`, `inputs`, `outputs`.
Ref make_graph_object(std::shared_ptr<Tape> tape);
bool is_graph_object(PyObject* object);

}  // namespace tatara::capture
