// Elementary functions of complex numbers over pairs of Val. float32 parts are computed in float64. Branch cuts, infinities and
// signs of zeros as in C99's annex G.
#pragma once

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
