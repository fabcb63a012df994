// The table of elementary functions that have code of their own for every target.
#pragma once

#include <optional>
#include <string>

#include "codegen/math/builder.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// How the table gives a function's value.
enum class MathForm : uint8_t {
  kNone,    // it does not: the C library is called, or the kernel is not generated
  kInline,  // expand_math prints it in place
  kCall,    // define_math prints a function of the module once; a use is a call
};
/// Of float32, float64 and int64 (which has pow alone).
Lane math_lane(DType dtype);
MathForm math_form(loops::ScalarOp op, DType dtype, const MathTarget& target);

Val expand_math(loops::ScalarOp op, std::span<const Val> args);

/// Name of the module's function for op, whose text is added to the declarations.
std::string define_math(loops::ScalarOp op, DType dtype, const MathTarget& target, Declarations& declarations);

}  // namespace tatara::codegen
