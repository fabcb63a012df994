// Values of a kernel's types in registers: a complex one has two parts, a bool is an i1.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// A vector with the value in every lane; what is a vector, and everything outside of vector loops, stays as it is.
Reg widened(IrWriter& ir, DType dtype, const Reg& value);

Reg lane_of(IrWriter& ir, DType dtype, const Reg& value, int lane);

/// condition ? a : b. The condition may be one for all lanes.
Reg choose(IrWriter& ir, DType dtype, const Reg& condition, const Reg& a, const Reg& b, bool vec);

/// At the head of a block: `a` where the control came from the block `from_a`, else `b`.
Reg merged(IrWriter& ir, DType dtype, const Reg& a, const std::string& from_a, const Reg& b, const std::string& from_b);

std::vector<DType> carried_types(const loops::For& loop);

// -- Conversions (convert.cpp) --

/// As eager converts: floating numbers to integers by truncation, to bool by a comparison with zero, complex to real by
/// dropping the imaginary part.
Reg cast(IrWriter& ir, DType from, DType to, const Reg& x);
Reg constant(const loops::Scalar& s);
Reg zero(DType dtype);
/// A constant of a floating or an integer type.
std::string number(double value, DType dtype, bool vec);

// -- Integers (integers.cpp), without traps --

/// Division by zero gives some number; the least number divided by -1 is itself, as in two's complement.
Reg integer_division(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
/// By the width or more, or by a negative amount: everything is shifted out.
Reg shift(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);

// -- Complex numbers (complex.cpp); `part` is the type of their parts --

Reg complex_quotient(IrWriter& ir, DType part, const Reg& x, const Reg& y, bool vec);
/// |re + im i| without overflow.
std::string magnitude(IrWriter& ir, DType part, const std::string& re, const std::string& im, bool vec, bool has_fma);
Reg complex_comparison(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);

/// How the C functions of a target take and return complex numbers.
enum class ComplexCall : uint8_t {
  kParts,        // two numbers, and a structure of two
  kFloatVector,  // pairs of float32 as one vector of two; others as kParts
};
/// A function of C, lane by lane.
Reg complex_function(IrWriter& ir, loops::ScalarOp op, DType part, std::span<const Reg> operands, bool vec,
                     ComplexCall convention);

}  // namespace tatara::codegen
