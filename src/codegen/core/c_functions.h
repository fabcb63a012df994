// C library functions, called for scalar operators that the math table does not have.
#pragma once

#include "loops/kernel.h"

namespace tatara::codegen {

/// The name for float64; float32 adds an "f". Null if C has no such function.
const char* c_function(loops::ScalarOp op);

}  // namespace tatara::codegen
