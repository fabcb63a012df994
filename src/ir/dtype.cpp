#include "ir/dtype.h"

#include <array>

#include "support/error.h"

namespace tatara {
namespace {

enum class Family : uint8_t { kBool, kUnsigned, kSigned, kFloat, kComplex };

struct Info {
  std::string_view name;
  std::string_view host_name;
  int size;
  Family family;
};

constexpr std::array<Info, kNumDTypes> kInfos = {{
    {"bool", "bool", 1, Family::kBool},
    {"u8", "uint8", 1, Family::kUnsigned},
    {"i8", "int8", 1, Family::kSigned},
    {"u16", "uint16", 2, Family::kUnsigned},
    {"i16", "int16", 2, Family::kSigned},
    {"u32", "uint32", 4, Family::kUnsigned},
    {"i32", "int32", 4, Family::kSigned},
    {"u64", "uint64", 8, Family::kUnsigned},
    {"i64", "int64", 8, Family::kSigned},
    {"f16", "float16", 2, Family::kFloat},
    {"bf16", "bfloat16", 2, Family::kFloat},
    {"f32", "float32", 4, Family::kFloat},
    {"f64", "float64", 8, Family::kFloat},
    {"c32", "complex32", 4, Family::kComplex},
    {"c64", "complex64", 8, Family::kComplex},
    {"c128", "complex128", 16, Family::kComplex},
    {"f8e4m3fn", "float8_e4m3fn", 1, Family::kFloat},
    {"f8e5m2", "float8_e5m2", 1, Family::kFloat},
}};

const Info& info(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

}  // namespace

int dtype_size(DType dtype) { return info(dtype).size; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name || kInfos[i].host_name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool is_floating(DType dtype) { return info(dtype).family == Family::kFloat; }
bool is_complex(DType dtype) { return info(dtype).family == Family::kComplex; }
bool is_integral(DType dtype) {
  return info(dtype).family == Family::kUnsigned || info(dtype).family == Family::kSigned;
}
bool is_signed(DType dtype) { return info(dtype).family != Family::kBool && info(dtype).family != Family::kUnsigned; }
bool is_low_precision(DType dtype) { return is_floating(dtype) && dtype_size(dtype) < 4; }

DType real_dtype(DType dtype) {
  switch (dtype) {
    case DType::kComplex32: return DType::kFloat16;
    case DType::kComplex64: return DType::kFloat32;
    case DType::kComplex128: return DType::kFloat64;
    default: return dtype;  // NOLINT: every other type is real
  }
}

DType complex_dtype(DType dtype) {
  if (is_complex(dtype)) return dtype;
  if (dtype == DType::kFloat16) return DType::kComplex32;
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return DType::kComplex64;
  if (dtype == DType::kFloat64) return DType::kComplex128;
  throw InvalidArgument("no complex type corresponds to " + std::string(dtype_name(dtype)));
}

DType compute_dtype(DType dtype) {
  if (is_low_precision(dtype)) return DType::kFloat32;
  if (dtype == DType::kComplex32) return DType::kComplex64;
  return dtype;
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (static_cast<int>(info(a).family) > static_cast<int>(info(b).family)) std::swap(a, b);
  const Family low = info(a).family;
  const Family high = info(b).family;
  if (low == Family::kBool) return b;
  if (high == Family::kFloat) {
    if (low != Family::kFloat) return b;
    const bool a8 = dtype_size(a) == 1;
    const bool b8 = dtype_size(b) == 1;
    if (a8 || b8) {
      if (a8 && b8) throw InvalidArgument("Promotion for Float8 Types is not supported");
      throw InvalidArgument("Promotion for Float8 Types is not supported");
    }
    if (dtype_size(a) == 2 && dtype_size(b) == 2) return DType::kFloat32;
    return dtype_size(a) > dtype_size(b) ? a : b;
  }
  if (high == Family::kComplex) {
    if (low == Family::kComplex) return dtype_size(a) > dtype_size(b) ? a : b;
    if (low != Family::kFloat) return b;
    const DType lifted = a == DType::kBFloat16 ? DType::kComplex64 : complex_dtype(a);
    return dtype_size(lifted) > dtype_size(b) ? lifted : b;
  }
  if (low == high) return dtype_size(a) > dtype_size(b) ? a : b;
  // Unsigned with signed: uint8 fits into wider signed types; wider unsigned types have no common signed type in torch.
  if (a != DType::kUInt8) {
    throw InvalidArgument("Promotion for uint16, uint32, uint64 types is not supported, attempted to promote " +
                          std::string(info(a).host_name) + " and " + std::string(info(b).host_name));
  }
  return b == DType::kInt8 ? DType::kInt16 : b;
}

}  // namespace tatara
