// Comparisons of Python's numbers, by their names in the module `operator`.
#pragma once

namespace tatara::capture {

/// Functions of the module `operator` that compare: Py_LT... by their names (-1: none), and the names by these.
int comparison_of(const char* name);
const char* comparison_name(int op);
/// What says the same of the operands in the other order.
int mirrored(int op);

}  // namespace tatara::capture
