// Constants and conversions. bfloat16 and the float8 kinds are bits in integer registers; arithmetic on them is float32's.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "codegen/core/emitter.h"
#include "codegen/text/small_float.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

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
  const std::string i32 = ir_.type_of("i32", vec);
  const auto c = [&](uint32_t value) {
    const std::string text = std::to_string(static_cast<int32_t>(value));
    return vec ? "splat (i32 " + text + ")" : text;
  };
  const std::string wide = ir_.assign("zext " + ir_.type_of(llvm_type(from), vec) + " " + x.text + " to " + i32);
  const auto to_float = [&](const std::string& bits) {
    return ir_.assign("bitcast " + i32 + " " + bits + " to " + ir_.type_of("float", vec));
  };
  if (from == DType::kBFloat16) return {to_float(ir_.binary("shl", i32, wide, c(16))), vec};
  const int width = f.exponent + f.mantissa;
  const std::string magnitude = ir_.binary("and", i32, wide, c((1U << width) - 1));
  const std::string sign =
      ir_.binary("shl", i32, ir_.binary("and", i32, wide, c(1U << width)), c(static_cast<uint32_t>(31 - width)));
  const std::string shifted = to_float(ir_.binary("shl", i32, magnitude, c(static_cast<uint32_t>(23 - f.mantissa))));
  const std::string scaled = ir_.binary("fmul", ir_.type_of("float", vec), shifted,
                                        number(std::ldexp(1.0, 127 - f.bias()), DType::kFloat32, vec));
  std::string bits = ir_.assign("bitcast " + ir_.type_of("float", vec) + " " + scaled + " to " + i32);
  const uint32_t infinite = f.infinity_bits();
  const auto special = [&](const char* test, uint32_t from_bits, uint32_t becomes) {
    const std::string is = ir_.assign(std::string("icmp ") + test + " " + i32 + " " + magnitude + ", " + c(from_bits));
    bits = ir_.select(is, i32, c(becomes), bits, vec);
  };
  if (f.infinity) special("eq", infinite, 0x7f800000U);
  special(f.infinity ? "ugt" : "uge", f.infinity ? infinite : f.nan_bits(), 0x7fc00000U);
  return {to_float(ir_.binary("or", i32, bits, sign)), vec};
}

/// float32 to a narrow format, to nearest even. Subnormal results are rounded by adding a number whose last place is
/// theirs.
Reg Emitter::narrow_small(DType to, const Reg& x) {
  const bool vec = x.vec;
  const SmallFloat& f = *small_float(to);
  const std::string i32 = ir_.type_of("i32", vec);
  const std::string f32 = ir_.type_of("float", vec);
  const auto c = [&](uint32_t value) {
    const std::string text = std::to_string(static_cast<int32_t>(value));
    return vec ? "splat (i32 " + text + ")" : text;
  };
  const std::string bits = ir_.assign("bitcast " + f32 + " " + x.text + " to " + i32);
  const auto rounded = [&](const std::string& of) {
    const auto drop = static_cast<uint32_t>(23 - f.mantissa);
    const std::string odd = ir_.binary("and", i32, ir_.binary("lshr", i32, of, c(drop)), c(1));
    const uint32_t rebias = static_cast<uint32_t>(f.bias() - 127) << 23;
    const std::string sum = ir_.binary("add", i32, of, ir_.binary("add", i32, odd, c(rebias + (1U << (drop - 1)) - 1)));
    return ir_.binary("lshr", i32, sum, c(drop));
  };
  std::string result;
  if (to == DType::kBFloat16) {
    // Exponents and subnormals are float32's own; the sign rides along.
    result = rounded(bits);
    const std::string nan = ir_.assign("fcmp uno " + f32 + " " + x.text + ", " + x.text);
    result = ir_.select(nan, i32, c(f.nan_bits()), result, vec);
  } else {
    const std::string magnitude = ir_.binary("and", i32, bits, c(0x7fffffffU));
    const std::string sign =
        ir_.binary("and", i32, ir_.binary("lshr", i32, bits, c(static_cast<uint32_t>(31 - f.exponent - f.mantissa))),
                   c(1U << (f.exponent + f.mantissa)));
    // 2^e with e such that its last place is the smallest subnormal.
    const uint32_t ruler = static_cast<uint32_t>(1 - f.bias() - f.mantissa + 23 + 127) << 23;
    const std::string real = ir_.assign("bitcast " + i32 + " " + magnitude + " to " + f32);
    const std::string sum = ir_.binary("fadd", f32, real, number(std::bit_cast<float>(ruler), DType::kFloat32, vec));
    const std::string low = ir_.binary("sub", i32, ir_.assign("bitcast " + f32 + " " + sum + " to " + i32), c(ruler));
    const std::string tiny =
        ir_.assign("icmp ult " + i32 + " " + magnitude + ", " + c(static_cast<uint32_t>(128 - f.bias()) << 23));
    result = ir_.select(tiny, i32, low, rounded(magnitude), vec);
    const uint32_t infinite = f.infinity_bits();
    const std::string over =
        ir_.assign("icmp uge " + i32 + " " + magnitude + ", " + c(f.overflow_bits() + (f.infinity ? 0U : 1U)));
    result = ir_.select(over, i32, c(f.infinity ? infinite : f.nan_bits()), result, vec);
    const std::string nan = ir_.assign("icmp ugt " + i32 + " " + magnitude + ", " + c(0x7f800000U));
    result = ir_.select(nan, i32, c(f.nan_bits()), result, vec);
    result = ir_.binary("or", i32, result, sign);
  }
  return {ir_.assign("trunc " + i32 + " " + result + " to " + ir_.type_of(llvm_type(to), vec)), vec};
}

Reg Emitter::cast(DType from, DType to, const Reg& x) {
  if (from == to) return x;
  const bool vec = x.vec;
  if (is_complex(from) || is_complex(to)) return complex_cast(from, to, x);
  const auto convert = [&](const char* op, const std::string& text, DType a, DType b) {
    return ir_.assign(std::string(op) + " " + ir_.type_of(llvm_type(a), vec) + " " + text + " to " +
                      ir_.type_of(llvm_type(b), vec));
  };
  const auto through = [&](DType middle) { return cast(middle, to, cast(from, middle, x)); };
  if (small_float(from) != nullptr && from != DType::kFloat16) return cast(DType::kFloat32, to, widen_small(from, x));
  if (small_float(to) != nullptr && to != DType::kFloat16) return narrow_small(to, cast(from, DType::kFloat32, x));
  const std::string type = ir_.type_of(llvm_type(from), vec);
  if (to == DType::kBool) {
    const char* test = is_llvm_float(from) ? "fcmp une " : "icmp ne ";
    const char* scalar_zero = is_llvm_float(from) ? "0.0" : "0";
    return {ir_.assign(test + type + " " + x.text + ", " + (vec ? "zeroinitializer" : scalar_zero)), vec};
  }
  if (is_llvm_float(from) && is_llvm_float(to)) {
    // Eager rounds twice.
    if (from == DType::kFloat64 && to == DType::kFloat16) return through(DType::kFloat32);
    return {convert(dtype_size(from) < dtype_size(to) ? "fpext" : "fptrunc", x.text, from, to), vec};
  }
  if (is_llvm_float(from)) {
    // Through a signed 64-bit integer and then the low bits, as the host's own conversion does for narrow types.
    const DType middle = dtype_size(to) < 4 ? DType::kInt32 : to == DType::kUInt32 ? DType::kInt64 : to;
    std::string value = convert(is_signed(middle) ? "fptosi" : "fptoui", x.text, from, middle);
    value = ir_.assign("freeze " + ir_.type_of(llvm_type(middle), vec) + " " + value);
    if (dtype_size(middle) > dtype_size(to)) value = convert("trunc", value, middle, to);
    return {value, vec};
  }
  if (is_llvm_float(to)) {
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
