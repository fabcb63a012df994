// How the scalar types are written in LLVM IR, and how numbers are.
#pragma once

#include <string>

#include "ir/dtype.h"

namespace tatara::codegen {

/// The type of a register. Throws InternalError for complex types, which have no single register.
std::string llvm_type(DType dtype);

/// The type of an element in memory (of one part of it, where it is complex): a bool takes a byte.
std::string memory_type(DType dtype);

/// "<8 x float>"
std::string vector_of(int lanes, const std::string& element);

/// Whether LLVM computes with the type: bfloat16 and the float8 kinds are bits in integer registers.
inline bool is_llvm_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

/// Whether instructions for signed integers apply; bool counts as unsigned.
inline bool is_signed_integer(DType dtype) { return dtype != DType::kBool && is_signed(dtype); }

/// A constant of a floating type: `value` rounded to nearest even.
std::string float_bits(double value, DType dtype);

}  // namespace tatara::codegen
