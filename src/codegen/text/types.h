// LLVM spellings of scalar types and floating constants.
#pragma once

#include <string>

#include "ir/dtype.h"

namespace tatara::codegen {

/// The type of a value in a register. Throws InternalError for complex types, which take two registers.
std::string llvm_type(DType dtype);

/// The type of an element in memory; of its real part if it is complex. A bool is one byte in memory and i1 in a register.
std::string memory_type(DType dtype);

/// "<8 x float>"
std::string vector_of(int lanes, const std::string& element);

/// False for bfloat16 and float8, which are kept as bits in integer registers.
inline bool is_llvm_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

/// Whether to use signed instructions. A bool counts as unsigned.
inline bool is_signed_integer(DType dtype) { return dtype != DType::kBool && is_signed(dtype); }

/// A floating constant: `value` rounded to the nearest number of the type, ties to even.
std::string float_bits(double value, DType dtype);

}  // namespace tatara::codegen
