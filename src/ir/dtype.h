// Element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tatara {

// The order is part of the disk format: append only.
enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4M3FN,
  kFloat8E5M2,
};
inline constexpr int kNumDTypes = 18;

/// Bytes of one element.
int dtype_size(DType dtype);
/// Short name as printed in the IR: "bool", "u8", "i64", "f16", "bf16", "f32", "c64", "f8e4m3fn", ...
std::string_view dtype_name(DType dtype);
/// Inverse of dtype_name; also takes the host's names ("float32", "int64", "complex64", ...).
std::optional<DType> parse_dtype(std::string_view name);
bool is_floating(DType dtype);
bool is_complex(DType dtype);
/// Integers without bool.
bool is_integral(DType dtype);
bool is_signed(DType dtype);
bool is_low_precision(DType dtype);  // f16, bf16, f8
/// complex64 -> float32; other types unchanged.
DType real_dtype(DType dtype);
/// float32 -> complex64; InvalidArgument for integers.
DType complex_dtype(DType dtype);
/// The type in which arithmetic on `dtype` is done: float32 for f16/bf16/f8, complex64 for complex32, else itself.
DType compute_dtype(DType dtype);
/// torch.promote_types: the lattice of PyTorch's type promotion
/// (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
DType promote_types(DType a, DType b);

}  // namespace tatara
