// Constants and conversions. bfloat16 and the float8 kinds are bits in integer registers; arithmetic on them is float32's.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "codegen/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// A binary floating format narrower than float32.
struct SmallFloat {
  int mantissa;
  int exponent;
  bool infinity;  // else the greatest exponent holds numbers too, and one NaN
};

constexpr SmallFloat kHalf{10, 5, true};
constexpr SmallFloat kBrain{7, 8, true};
constexpr SmallFloat kE4M3FN{3, 4, false};
constexpr SmallFloat kE5M2{2, 5, true};

const SmallFloat* small_float(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return &kHalf;
    case DType::kBFloat16: return &kBrain;
    case DType::kFloat8E4M3FN: return &kE4M3FN;
    case DType::kFloat8E5M2: return &kE5M2;
    default: return nullptr;  // NOLINT: all others are LLVM's own
  }
}

int bias(const SmallFloat& f) { return (1 << (f.exponent - 1)) - 1; }
uint32_t nan_bits(const SmallFloat& f) {
  const uint32_t all = (1U << (f.exponent + f.mantissa)) - 1;
  return f.infinity && f.mantissa > 2 ? all & ~((1U << (f.mantissa - 1)) - 1) : all;
}
/// Bits at and beyond which a magnitude is out of range, as bits of float32 (rounding to the greatest number included).
uint32_t overflow_bits(const SmallFloat& f) {
  const int top = (1 << f.exponent) - (f.infinity ? 1 : 0) - bias(f);  // exponent of the first power of two outside
  if (f.infinity) return static_cast<uint32_t>(top + 127) << 23;
  // 1.11..1 of the highest exponent is NaN: numbers end at 1.11..10, and halfway to 1.11..11 rounds to even, down.
  const uint32_t all_ones = ((1U << f.mantissa) - 1) << (23 - f.mantissa);
  return (static_cast<uint32_t>(top - 1 + 127) << 23) + all_ones;
}

/// The bits of `value` rounded to nearest even in the format.
uint32_t small_bits(double value, const SmallFloat& f) {
  const uint32_t sign = std::signbit(value) ? 1U << (f.exponent + f.mantissa) : 0;
  const double magnitude = std::fabs(value);
  const uint32_t infinite = ((1U << f.exponent) - 1) << f.mantissa;
  if (std::isnan(value)) return nan_bits(f);
  if (std::isinf(value)) return sign | (f.infinity ? infinite : nan_bits(f));
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int scale = std::max(exponent - 1, 1 - bias(f)) - f.mantissa;
  double steps = std::nearbyint(std::ldexp(magnitude, -scale));
  const auto bits =
      static_cast<uint64_t>(steps) + (static_cast<uint64_t>(scale + f.mantissa + bias(f) - 1) << f.mantissa);
  const uint32_t limit = f.infinity ? infinite : nan_bits(f);
  return sign | (bits >= limit ? limit : static_cast<uint32_t>(bits));
}

bool floating_in_llvm(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

}  // namespace

std::string float_bits(double value, DType dtype) {
  char buffer[32];
  if (const SmallFloat* f = small_float(dtype)) {
    const uint32_t bits = small_bits(value, *f);
    if (dtype != DType::kFloat16) return std::to_string(bits);
    std::snprintf(buffer, sizeof(buffer), "0xH%04X", bits);
    return buffer;
  }
  const double rounded = dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  std::snprintf(buffer, sizeof(buffer), "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(rounded)));
  return buffer;
}

Reg Emitter::constant(const Scalar& s) {
  if (s.dtype == DType::kBool) return {s.const_int != 0 ? "true" : "false", false};
  if (is_complex(s.dtype)) {
    const DType part = real_dtype(s.dtype);
    return {float_bits(s.const_re, part), false, float_bits(s.const_im, part)};
  }
  if (is_floating(s.dtype)) return {float_bits(s.const_re, s.dtype), false};
  return {std::to_string(s.const_int), false};
}

Reg Emitter::zero(DType dtype) {
  Scalar s{};
  s.op = ScalarOp::kConst;
  s.dtype = dtype;
  return constant(s);
}

/// Narrow format (in an integer register) to float32: its bits moved into place and scaled by a power of two, which
/// also makes its subnormals right.
Reg Emitter::widen_small(DType from, const Reg& x) {
  const bool vec = x.vec;
  const SmallFloat& f = *small_float(from);
  const std::string i32 = type_of("i32", vec);
  const auto c = [&](uint32_t value) {
    const std::string text = std::to_string(static_cast<int32_t>(value));
    return vec ? "splat (i32 " + text + ")" : text;
  };
  const std::string wide = assign("zext " + type_of(llvm_type(from), vec) + " " + x.text + " to " + i32);
  const auto to_float = [&](const std::string& bits) {
    return assign("bitcast " + i32 + " " + bits + " to " + type_of("float", vec));
  };
  if (from == DType::kBFloat16) return {to_float(binary("shl", i32, wide, c(16))), vec};
  const int width = f.exponent + f.mantissa;
  const std::string magnitude = binary("and", i32, wide, c((1U << width) - 1));
  const std::string sign =
      binary("shl", i32, binary("and", i32, wide, c(1U << width)), c(static_cast<uint32_t>(31 - width)));
  const std::string shifted = to_float(binary("shl", i32, magnitude, c(static_cast<uint32_t>(23 - f.mantissa))));
  const std::string scaled =
      binary("fmul", type_of("float", vec), shifted, number(std::ldexp(1.0, 127 - bias(f)), DType::kFloat32, vec));
  std::string bits = assign("bitcast " + type_of("float", vec) + " " + scaled + " to " + i32);
  const uint32_t infinite = ((1U << f.exponent) - 1) << f.mantissa;
  const auto special = [&](const char* test, uint32_t from_bits, uint32_t becomes) {
    const std::string is = assign(std::string("icmp ") + test + " " + i32 + " " + magnitude + ", " + c(from_bits));
    bits = select(is, i32, c(becomes), bits, vec);
  };
  if (f.infinity) special("eq", infinite, 0x7f800000U);
  special(f.infinity ? "ugt" : "uge", f.infinity ? infinite : nan_bits(f), 0x7fc00000U);
  return {to_float(binary("or", i32, bits, sign)), vec};
}

/// float32 to a narrow format, to nearest even. Subnormal results are rounded by adding a number whose last place is
/// theirs.
Reg Emitter::narrow_small(DType to, const Reg& x) {
  const bool vec = x.vec;
  const SmallFloat& f = *small_float(to);
  const std::string i32 = type_of("i32", vec);
  const std::string f32 = type_of("float", vec);
  const auto c = [&](uint32_t value) {
    const std::string text = std::to_string(static_cast<int32_t>(value));
    return vec ? "splat (i32 " + text + ")" : text;
  };
  const std::string bits = assign("bitcast " + f32 + " " + x.text + " to " + i32);
  const auto rounded = [&](const std::string& of) {
    const auto drop = static_cast<uint32_t>(23 - f.mantissa);
    const std::string odd = binary("and", i32, binary("lshr", i32, of, c(drop)), c(1));
    const uint32_t rebias = static_cast<uint32_t>(bias(f) - 127) << 23;
    const std::string sum = binary("add", i32, of, binary("add", i32, odd, c(rebias + (1U << (drop - 1)) - 1)));
    return binary("lshr", i32, sum, c(drop));
  };
  std::string result;
  if (to == DType::kBFloat16) {
    // Exponents and subnormals are float32's own; the sign rides along.
    result = rounded(bits);
    const std::string nan = assign("fcmp uno " + f32 + " " + x.text + ", " + x.text);
    result = select(nan, i32, c(nan_bits(f)), result, vec);
  } else {
    const std::string magnitude = binary("and", i32, bits, c(0x7fffffffU));
    const std::string sign =
        binary("and", i32, binary("lshr", i32, bits, c(static_cast<uint32_t>(31 - f.exponent - f.mantissa))),
               c(1U << (f.exponent + f.mantissa)));
    // 2^e with e such that its last place is the smallest subnormal.
    const uint32_t ruler = static_cast<uint32_t>(1 - bias(f) - f.mantissa + 23 + 127) << 23;
    const std::string real = assign("bitcast " + i32 + " " + magnitude + " to " + f32);
    const std::string sum = binary("fadd", f32, real, number(std::bit_cast<float>(ruler), DType::kFloat32, vec));
    const std::string low = binary("sub", i32, assign("bitcast " + f32 + " " + sum + " to " + i32), c(ruler));
    const std::string tiny =
        assign("icmp ult " + i32 + " " + magnitude + ", " + c(static_cast<uint32_t>(128 - bias(f)) << 23));
    result = select(tiny, i32, low, rounded(magnitude), vec);
    const uint32_t infinite = ((1U << f.exponent) - 1) << f.mantissa;
    const std::string over =
        assign("icmp uge " + i32 + " " + magnitude + ", " + c(overflow_bits(f) + (f.infinity ? 0U : 1U)));
    result = select(over, i32, c(f.infinity ? infinite : nan_bits(f)), result, vec);
    const std::string nan = assign("icmp ugt " + i32 + " " + magnitude + ", " + c(0x7f800000U));
    result = select(nan, i32, c(nan_bits(f)), result, vec);
    result = binary("or", i32, result, sign);
  }
  return {assign("trunc " + i32 + " " + result + " to " + type_of(llvm_type(to), vec)), vec};
}

Reg Emitter::cast(DType from, DType to, const Reg& x) {
  if (from == to) return x;
  const bool vec = x.vec;
  if (is_complex(from) || is_complex(to)) return complex_cast(from, to, x);
  const auto convert = [&](const char* op, const std::string& text, DType a, DType b) {
    return assign(std::string(op) + " " + type_of(llvm_type(a), vec) + " " + text + " to " +
                  type_of(llvm_type(b), vec));
  };
  const auto through = [&](DType middle) { return cast(middle, to, cast(from, middle, x)); };
  if (small_float(from) != nullptr && from != DType::kFloat16) return cast(DType::kFloat32, to, widen_small(from, x));
  if (small_float(to) != nullptr && to != DType::kFloat16) return narrow_small(to, cast(from, DType::kFloat32, x));
  const std::string type = type_of(llvm_type(from), vec);
  if (to == DType::kBool) {
    const char* test = floating_in_llvm(from) ? "fcmp une " : "icmp ne ";
    const char* scalar_zero = floating_in_llvm(from) ? "0.0" : "0";
    return {assign(test + type + " " + x.text + ", " + (vec ? "zeroinitializer" : scalar_zero)), vec};
  }
  if (floating_in_llvm(from) && floating_in_llvm(to)) {
    // Eager rounds twice.
    if (from == DType::kFloat64 && to == DType::kFloat16) return through(DType::kFloat32);
    return {convert(dtype_size(from) < dtype_size(to) ? "fpext" : "fptrunc", x.text, from, to), vec};
  }
  if (floating_in_llvm(from)) {
    // Through a signed 64-bit integer and then the low bits, as the host's own conversion does for narrow types.
    const DType middle = dtype_size(to) < 4 ? DType::kInt32 : to == DType::kUInt32 ? DType::kInt64 : to;
    std::string value = convert(is_signed(middle) ? "fptosi" : "fptoui", x.text, from, middle);
    value = assign("freeze " + type_of(llvm_type(middle), vec) + " " + value);
    if (dtype_size(middle) > dtype_size(to)) value = convert("trunc", value, middle, to);
    return {value, vec};
  }
  if (floating_in_llvm(to)) {
    const bool sign = from != DType::kBool && is_signed(from);
    if (to == DType::kFloat16) return through(DType::kFloat32);
    return {convert(sign ? "sitofp" : "uitofp", x.text, from, to), vec};
  }
  const int a = from == DType::kBool ? 0 : dtype_size(from);
  if (a == dtype_size(to)) return x;
  const bool sign = from != DType::kBool && is_signed(from);
  return {convert(a > dtype_size(to) ? "trunc" : sign ? "sext" : "zext", x.text, from, to), vec};
}

}  // namespace tatara::codegen
