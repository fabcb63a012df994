// A captured graph as a Python object, for users' backends and reports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// A Python object: callable with the inputs, `str()`, `nodes`, `inputs`, `outputs`, `effects` (what else a call of the program
/// does, in words), `numpy_program()`.
Ref make_graph_object(std::shared_ptr<Tape> tape, std::vector<std::string> effects = {});
bool is_graph_object(PyObject* object);

}  // namespace tatara::capture
