// Which numbers and sizes may be symbols.
#pragma once

#include <cstdint>

#include "capture/python/py.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// Two ints or two floats, of other values.
bool other_number(PyObject* before, PyObject* now);
/// Whether an int may be a symbol, and in which range it stays: 0, 1 and what is near the ends of 64 bits may not.
bool number_range(PyObject* number, IntRange& range);
/// The same for what only Python's own arithmetic sees: 0 and 1 too, and the sign may change.
bool any_number_range(PyObject* number, IntRange& range);
/// The range of a size or stride that varies.
IntRange size_range(int64_t size);

}  // namespace tatara::capture
