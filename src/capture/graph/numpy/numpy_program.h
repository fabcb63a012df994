// A tape of NumPy calls as plain data, for tatara.wrap_numpy: operators of the registry and, where no rule knows a call, the call
// itself. The package's Python code makes a function of tensors of it.
#pragma once

#include "capture/host/numpy_api.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

/// A dict: "inputs" (places among input_slots()), "steps", "outputs" (values, of computed_outputs()), "writes" ([(input, value)]),
/// "constants". A step is (operator, names in Python, arguments, results, file, line), each argument
/// (name, keyword only, kind, value), each result (value, dtype, shape); a call's operator is None, its names the name of NumPy's
/// function, its arguments (args, kwargs). Values are `value(number)`. What a call gives that depends on nothing but constants is
/// an array among "constants" ({value: array}). Null with a Python error set; throws Unsupported.
Ref numpy_program(const Tape& tape, const NumpyApi& np, PyObject* value);

}  // namespace tatara::capture
