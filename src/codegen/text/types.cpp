#include "codegen/text/types.h"

#include <bit>
#include <cstdint>
#include <cstdio>

#include "codegen/text/small_float.h"
#include "support/error.h"

namespace tatara::codegen {

std::string llvm_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "i1";
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return "i8";
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kBFloat16: return "i16";
    case DType::kUInt32:
    case DType::kInt32: return "i32";
    case DType::kUInt64:
    case DType::kInt64: return "i64";
    case DType::kFloat16: return "half";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128: break;
  }
  throw InternalError("a complex scalar in one register");
}

std::string memory_type(DType dtype) { return dtype == DType::kBool ? "i8" : llvm_type(real_dtype(dtype)); }

std::string vector_of(int lanes, const std::string& element) {
  return "<" + std::to_string(lanes) + " x " + element + ">";
}

std::string float_bits(double value, DType dtype) {
  char buffer[32];
  if (const SmallFloat* format = small_float(dtype)) {
    const uint32_t bits = format->bits_of(value);
    if (dtype != DType::kFloat16) return std::to_string(bits);
    std::snprintf(buffer, sizeof(buffer), "0xH%04X", bits);
    return buffer;
  }
  const double rounded = dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  std::snprintf(buffer, sizeof(buffer), "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(rounded)));
  return buffer;
}

}  // namespace tatara::codegen
