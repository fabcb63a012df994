// Elementary functions of complex numbers over pairs of Val, for targets without a C library. float32 parts are computed in
// float64. Branch cuts and signs of zeros as in C99's annex G, infinities too; inverse functions by W. Kahan, Branch cuts for
// complex elementary functions, 1987.
#pragma once

#include <optional>
#include <string>

#include "codegen/math/builder.h"
#include "loops/kernel.h"

namespace tatara::codegen {

struct ComplexVal {
  Val re;
  Val im;
};

bool has_complex_math(loops::ScalarOp op);

/// Name of the module's function for op, whose text is added to the declarations: of the parts of one or two complex numbers,
/// to { re, im }.
std::string define_complex_math(loops::ScalarOp op, DType part, const MathTarget& target, Declarations& declarations);

}  // namespace tatara::codegen
