// Names of the C library's functions for scalar operators that have no code of their own.
#pragma once

#include "loops/kernel.h"

namespace tatara::codegen {

/// Of float64: float32's has an "f" behind it. Null where C has none.
const char* c_function(loops::ScalarOp op);
/// The same for complex numbers.
const char* complex_c_function(loops::ScalarOp op);

}  // namespace tatara::codegen
