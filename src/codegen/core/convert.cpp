// Constants and conversions. bfloat16 and float8 are kept as bits in integer registers and converted to float32 and back.
#include <bit>
#include <cmath>
#include <cstdint>

#include "codegen/core/values.h"
#include "codegen/text/small_float.h"
#include "support/str_cat.h"

namespace tatara::codegen {

using loops::Scalar;
using loops::ScalarOp;

Reg constant(const Scalar& s) {
  if (s.dtype == DType::kBool) return {s.const_int != 0 ? "true" : "false", false};
  if (is_complex(s.dtype)) {
    const DType part = real_dtype(s.dtype);
    return {float_bits(s.const_re, part), false, float_bits(s.const_im, part)};
  }
  if (is_floating(s.dtype)) return {float_bits(s.const_re, s.dtype), false};
  return {std::to_string(s.const_int), false};
}

Reg zero(DType dtype) {
  Scalar s{};
  s.op = ScalarOp::kConst;
  s.dtype = dtype;
  return constant(s);
}

std::string number(double value, DType dtype, bool vec) {
  const std::string text = is_floating(dtype) ? float_bits(value, dtype) : std::to_string(static_cast<int64_t>(value));
  return vec ? "splat (" + llvm_type(dtype) + " " + text + ")" : text;
}

namespace {

/// An i32 constant.
std::string word(uint32_t value, bool vec) {
  const std::string text = std::to_string(static_cast<int32_t>(value));
  return vec ? "splat (i32 " + text + ")" : text;
}

/// Pairs of 8-bit floats by instructions of GPUs (compute capability 8.9), through float16, which has all of them.
Reg widen_pairs(IrWriter& ir, DType from, const std::string& bytes) {
  const int lanes = ir.lanes();
  const std::string pairs = vector_of(lanes / 2, "i16"), halves = ir.vec_type("half");
  const std::string all = ir.assign("bitcast " + ir.vec_type("i8") + " " + bytes + " to " + pairs);
  const std::string name = str_cat("@llvm.nvvm.", from == DType::kFloat8E4M3FN ? "e4m3x2" : "e5m2x2", ".to.f16x2.rn");
  ir.declare("declare <2 x half> " + name + "(i16)");
  std::string result = "poison";
  for (int i = 0; i < lanes / 2; ++i) {
    const std::string pair = ir.assign(str_cat("extractelement ", pairs, " ", all, ", i32 ", i));
    const std::string two = ir.call(name, "<2 x half>", "i16 " + pair);
    for (int k = 0; k < 2; ++k) {
      const std::string one = ir.assign(str_cat("extractelement <2 x half> ", two, ", i32 ", k));
      result = ir.assign(str_cat("insertelement ", halves, " ", result, ", half ", one, ", i32 ", 2 * i + k));
    }
  }
  return {ir.assign("fpext " + halves + " " + result + " to " + ir.vec_type("float")), true};
}

/// From a narrow format to float32: shifts the bits into place, then corrects the exponent by a multiplication, which also
/// handles subnormals.
Reg widen_small(IrWriter& ir, DType from, const Reg& x) {
  const bool vec = x.vec;
  const SmallFloat& f = *small_float(from);
  const std::string i32 = ir.type_of("i32", vec);
  const auto c = [&](uint32_t value) { return word(value, vec); };
  const std::string wide = ir.assign("zext " + ir.type_of(llvm_type(from), vec) + " " + x.text + " to " + i32);
  const auto to_float = [&](const std::string& bits) {
    return ir.assign("bitcast " + i32 + " " + bits + " to " + ir.type_of("float", vec));
  };
  if (vec && ir.permutes_bytes() && ir.rounds_to_bfloat() && ir.lanes() % 2 == 0 && dtype_size(from) == 1)
    return widen_pairs(ir, from, x.text);
  if (from == DType::kBFloat16) return {to_float(ir.binary("shl", i32, wide, c(16))), vec};
  const int width = f.exponent + f.mantissa;
  const std::string magnitude = ir.binary("and", i32, wide, c((1U << width) - 1));
  const std::string sign =
      ir.binary("shl", i32, ir.binary("and", i32, wide, c(1U << width)), c(static_cast<uint32_t>(31 - width)));
  const std::string shifted = to_float(ir.binary("shl", i32, magnitude, c(static_cast<uint32_t>(23 - f.mantissa))));
  const std::string scaled = ir.binary("fmul", ir.type_of("float", vec), shifted,
                                       number(std::ldexp(1.0, 127 - f.bias()), DType::kFloat32, vec));
  std::string bits = ir.assign("bitcast " + ir.type_of("float", vec) + " " + scaled + " to " + i32);
  const auto special = [&](const char* test, uint32_t from_bits, uint32_t becomes) {
    const std::string is = ir.assign(std::string("icmp ") + test + " " + i32 + " " + magnitude + ", " + c(from_bits));
    bits = ir.select(is, i32, c(becomes), bits, vec);
  };
  if (f.infinity) special("eq", f.infinity_bits(), 0x7f800000U);
  special(f.infinity ? "ugt" : "uge", f.infinity ? f.infinity_bits() : f.nan_bits(), 0x7fc00000U);
  return {to_float(ir.binary("or", i32, bits, sign)), vec};
}

/// Rounds float32 bits to the mantissa of a narrow format, ties to even. Not for numbers that are subnormal in the format.
std::string rounded(IrWriter& ir, const SmallFloat& f, const std::string& bits, bool vec) {
  const std::string i32 = ir.type_of("i32", vec);
  const auto c = [&](uint32_t value) { return word(value, vec); };
  const auto drop = static_cast<uint32_t>(23 - f.mantissa);
  const std::string odd = ir.binary("and", i32, ir.binary("lshr", i32, bits, c(drop)), c(1));
  const uint32_t rebias = static_cast<uint32_t>(f.bias() - 127) << 23;
  const std::string sum = ir.binary("add", i32, bits, ir.binary("add", i32, odd, c(rebias + (1U << (drop - 1)) - 1)));
  return ir.binary("lshr", i32, sum, c(drop));
}

/// float32 bits to those of a narrow format whose exponent range differs from float32's. Subnormal results are rounded by
/// adding a number whose last place is the smallest subnormal.
std::string narrow_bits(IrWriter& ir, const SmallFloat& f, const std::string& bits, bool vec) {
  const std::string i32 = ir.type_of("i32", vec);
  const std::string f32 = ir.type_of("float", vec);
  const auto c = [&](uint32_t value) { return word(value, vec); };
  const std::string magnitude = ir.binary("and", i32, bits, c(0x7fffffffU));
  const std::string sign =
      ir.binary("and", i32, ir.binary("lshr", i32, bits, c(static_cast<uint32_t>(31 - f.exponent - f.mantissa))),
                c(1U << (f.exponent + f.mantissa)));
  // 2^e with e such that its last place is the smallest subnormal.
  const uint32_t ruler = static_cast<uint32_t>(1 - f.bias() - f.mantissa + 23 + 127) << 23;
  const std::string real = ir.assign("bitcast " + i32 + " " + magnitude + " to " + f32);
  const std::string sum = ir.binary("fadd", f32, real, number(std::bit_cast<float>(ruler), DType::kFloat32, vec));
  const std::string low = ir.binary("sub", i32, ir.assign("bitcast " + f32 + " " + sum + " to " + i32), c(ruler));
  const std::string tiny =
      ir.assign("icmp ult " + i32 + " " + magnitude + ", " + c(static_cast<uint32_t>(128 - f.bias()) << 23));
  std::string result = ir.select(tiny, i32, low, rounded(ir, f, magnitude, vec), vec);
  const std::string over =
      ir.assign("icmp uge " + i32 + " " + magnitude + ", " + c(f.overflow_bits() + (f.infinity ? 0U : 1U)));
  result = ir.select(over, i32, c(f.infinity ? f.infinity_bits() : f.nan_bits()), result, vec);
  const std::string nan = ir.assign("icmp ugt " + i32 + " " + magnitude + ", " + c(0x7f800000U));
  result = ir.select(nan, i32, c(f.nan_bits()), result, vec);
  return ir.binary("or", i32, result, sign);
}

/// From float32 to a narrow format, ties to even.
Reg narrow_small(IrWriter& ir, DType to, const Reg& x) {
  const bool vec = x.vec;
  const SmallFloat& f = *small_float(to);
  const std::string i32 = ir.type_of("i32", vec);
  const std::string f32 = ir.type_of("float", vec);
  const std::string bits = ir.assign("bitcast " + f32 + " " + x.text + " to " + i32);
  std::string result;
  if (to == DType::kBFloat16 && ir.rounds_to_bfloat()) {
    const std::string brain = ir.assign("fptrunc " + f32 + " " + x.text + " to " + ir.type_of("bfloat", vec));
    return {ir.assign("bitcast " + ir.type_of("bfloat", vec) + " " + brain + " to " + ir.type_of("i16", vec)), vec};
  }
  if (to == DType::kBFloat16) {
    // Same exponent range as float32; rounding keeps the sign.
    result = rounded(ir, f, bits, vec);
    const std::string nan = ir.assign("fcmp uno " + f32 + " " + x.text + ", " + x.text);
    result = ir.select(nan, i32, word(f.nan_bits(), vec), result, vec);
  } else {
    result = narrow_bits(ir, f, bits, vec);
  }
  return {ir.assign("trunc " + i32 + " " + result + " to " + ir.type_of(llvm_type(to), vec)), vec};
}

/// Bytes that are integers, as float32: each becomes the last byte of 2^23, of which the difference is exact. The instruction for conversions
/// takes several times as long as all of this.
Reg bytes_to_float(IrWriter& ir, bool sign, const std::string& bytes) {
  const int lanes = ir.lanes();
  const std::string words = vector_of(lanes / 4, "i32");
  std::string all = ir.assign("bitcast " + ir.vec_type("i8") + " " + bytes + " to " + words);
  if (sign) all = ir.binary("xor", words, all, "splat (i32 " + std::to_string(static_cast<int32_t>(0x80808080U)) + ")");
  ir.declare("declare i32 @llvm.nvvm.prmt(i32, i32, i32)");
  constexpr int32_t kTwo23 = 0x4B000000;
  std::string result = "poison";
  for (int i = 0; i < lanes; ++i) {
    const std::string word = ir.assign(str_cat("extractelement ", words, " ", all, ", i32 ", i / 4));
    const int32_t selected = 0x7540 + i % 4;
    const std::string bits =
        ir.call("@llvm.nvvm.prmt", "i32", str_cat("i32 ", word, ", i32 ", kTwo23, ", i32 ", selected));
    const std::string one = ir.assign("bitcast i32 " + bits + " to float");
    result = ir.assign(str_cat("insertelement ", ir.vec_type("float"), " ", result, ", float ", one, ", i32 ", i));
  }
  const double zero = sign ? 8388608.0 + 128 : 8388608.0;
  return {ir.binary("fsub", ir.vec_type("float"), result, number(zero, DType::kFloat32, true)), true};
}

Reg complex_cast(IrWriter& ir, DType from, DType to, const Reg& x) {
  const DType a = real_dtype(from);
  if (!is_complex(to)) {
    if (to != DType::kBool) return cast(ir, a, to, {x.text, x.vec});
    const std::string re = cast(ir, a, to, {x.text, x.vec}).text;
    const std::string im = cast(ir, a, to, {x.im, x.vec}).text;
    return {ir.binary("or", ir.type_of("i1", x.vec), re, im), x.vec};
  }
  const DType b = real_dtype(to);
  Reg result = cast(ir, a, b, {x.text, x.vec});
  result.im = is_complex(from) ? cast(ir, a, b, {x.im, x.vec}).text : (x.vec ? "zeroinitializer" : float_bits(0, b));
  return result;
}

}  // namespace

Reg cast(IrWriter& ir, DType from, DType to, const Reg& x) {
  if (from == to) return x;
  const bool vec = x.vec;
  if (is_complex(from) || is_complex(to)) return complex_cast(ir, from, to, x);
  const auto convert = [&](const char* op, const std::string& text, DType a, DType b) {
    return ir.assign(std::string(op) + " " + ir.type_of(llvm_type(a), vec) + " " + text + " to " +
                     ir.type_of(llvm_type(b), vec));
  };
  const auto through = [&](DType middle) { return cast(ir, middle, to, cast(ir, from, middle, x)); };
  if (small_float(from) != nullptr && from != DType::kFloat16)
    return cast(ir, DType::kFloat32, to, widen_small(ir, from, x));
  if (small_float(to) != nullptr && to != DType::kFloat16)
    return narrow_small(ir, to, cast(ir, from, DType::kFloat32, x));
  const std::string type = ir.type_of(llvm_type(from), vec);
  if (to == DType::kBool) {
    const char* test = is_llvm_float(from) ? "fcmp une " : "icmp ne ";
    const char* scalar_zero = is_llvm_float(from) ? "0.0" : "0";
    return {ir.assign(test + type + " " + x.text + ", " + (vec ? "zeroinitializer" : scalar_zero)), vec};
  }
  if (is_llvm_float(from) && is_llvm_float(to)) {
    // Eager goes through float32 and so rounds twice.
    if (from == DType::kFloat64 && to == DType::kFloat16) return through(DType::kFloat32);
    return {convert(dtype_size(from) < dtype_size(to) ? "fpext" : "fptrunc", x.text, from, to), vec};
  }
  if (is_llvm_float(from)) {
    // Like eager, narrow types take the low bits of a conversion to a wider one.
    const DType middle = dtype_size(to) < 4 ? DType::kInt32 : to == DType::kUInt32 ? DType::kInt64 : to;
    std::string value = convert(is_signed(middle) ? "fptosi" : "fptoui", x.text, from, middle);
    value = ir.assign("freeze " + ir.type_of(llvm_type(middle), vec) + " " + value);
    if (dtype_size(middle) > dtype_size(to)) value = convert("trunc", value, middle, to);
    return {value, vec};
  }
  if (is_llvm_float(to)) {
    const bool sign = is_signed_integer(from);
    if (to == DType::kFloat16) return through(DType::kFloat32);
    if (to == DType::kFloat32 && vec && ir.permutes_bytes() && from != DType::kBool && dtype_size(from) == 1 &&
        ir.lanes() % 4 == 0) {
      return bytes_to_float(ir, sign, x.text);
    }
    return {convert(sign ? "sitofp" : "uitofp", x.text, from, to), vec};
  }
  const int a = from == DType::kBool ? 0 : dtype_size(from);
  if (a == dtype_size(to)) return x;
  const bool sign = is_signed_integer(from);
  return {convert(a > dtype_size(to) ? "trunc" : sign ? "sext" : "zext", x.text, from, to), vec};
}

}  // namespace tatara::codegen
