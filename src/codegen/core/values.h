// Operations on register values of any dtype, complex ones included.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// Broadcasts a scalar to all lanes. Vectors, and scalars outside of vector loops, are returned unchanged.
Reg widened(IrWriter& ir, DType dtype, const Reg& value);

Reg lane_of(IrWriter& ir, DType dtype, const Reg& value, int lane);

/// condition ? a : b. With `vec`, the condition may be a scalar.
Reg choose(IrWriter& ir, DType dtype, const Reg& condition, const Reg& a, const Reg& b, bool vec);

/// A phi: `a` if control came from block `from_a`, `b` if from `from_b`.
Reg merged(IrWriter& ir, DType dtype, const Reg& a, const std::string& from_a, const Reg& b, const std::string& from_b);

std::vector<DType> carried_types(const loops::For& loop);

// -- Conversions (convert.cpp) --

/// Converts as eager does: floating to integer truncates, anything to bool compares with zero, complex to real drops the
/// imaginary part.
Reg cast(IrWriter& ir, DType from, DType to, const Reg& x);
Reg constant(const loops::Scalar& s);
Reg zero(DType dtype);
/// A constant of a floating or an integer type.
std::string number(double value, DType dtype, bool vec);

// -- Integers (integers.cpp). None of these traps. --

/// Division by zero gives some number; the least number divide_position by -1 is itself, as in two's complement.
Reg integer_division(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
/// Shifting by the width or more, or by a negative amount, shifts all bits out.
Reg shift(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
/// A vector of unsigned bytes, all to the right by as much (i8), where IrWriter::permutes_bytes().
Reg shift_bytes(IrWriter& ir, const std::string& bytes, const std::string& by);

// -- Complex numbers (complex.cpp). `part` is the dtype of the real and imaginary parts. --

Reg complex_quotient(IrWriter& ir, DType part, const Reg& x, const Reg& y, bool vec);
/// |re + im i| without overflow.
std::string magnitude(IrWriter& ir, DType part, const std::string& re, const std::string& im, bool vec, bool has_fma);
Reg complex_comparison(IrWriter& ir, loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);

}  // namespace tatara::codegen
