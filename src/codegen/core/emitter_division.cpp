// Division, remainders and shifts with the host's rounding, and without traps.
#include "codegen/core/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;
using Op = ScalarOp;

std::string Emitter::number(double value, DType dtype, bool vec) const {
  const std::string type = llvm_type(dtype);
  const std::string text = is_floating(dtype) ? float_bits(value, dtype) : std::to_string(static_cast<int64_t>(value));
  return vec ? "splat (" + type + " " + text + ")" : text;
}

/// Division by zero gives something; the least number divided by -1 is itself, as in two's complement.
Reg Emitter::integer_division(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const bool sign = is_signed(dtype) && dtype != DType::kBool;
  const std::string type = ir_.type_of(llvm_type(dtype), vec);
  const auto c = [&](int value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return ir_.assign(std::string("icmp ") + how + " " + type + " " + x + ", " + y);
  };
  const std::string none = test("eq", b.text, c(0));
  const bool remainder = op == Op::kMod || op == Op::kFmod;
  if (!sign) {
    const std::string divisor = ir_.select(none, type, c(1), b.text, vec);
    return {ir_.binary(remainder ? "urem" : "udiv", type, a.text, divisor), vec};
  }
  const std::string minus = test("eq", b.text, c(-1));
  const std::string special = ir_.binary("or", ir_.type_of("i1", vec), none, minus);
  const std::string divisor = ir_.select(special, type, c(1), b.text, vec);
  const std::string plain = ir_.binary("sdiv", type, a.text, divisor);
  const std::string quotient = ir_.select(minus, type, ir_.binary("sub", type, c(0), a.text), plain, vec);
  if (op == Op::kTruncDiv) return {quotient, vec};
  // After division by -1 the quotient wraps, and so does the product: the rest is 0.
  const std::string rest = ir_.binary("sub", type, a.text, ir_.binary("mul", type, quotient, b.text));
  if (op == Op::kFmod) return {rest, vec};
  const std::string inexact = test("ne", rest, c(0));
  const std::string apart = test("slt", ir_.binary("xor", type, rest, b.text), c(0));
  const std::string down = ir_.binary("and", ir_.type_of("i1", vec), inexact, apart);
  if (op == Op::kMod) return {ir_.select(down, type, ir_.binary("add", type, rest, b.text), rest, vec), vec};
  return {ir_.select(down, type, ir_.binary("add", type, quotient, c(-1)), quotient, vec), vec};
}

/// Floors of quotients by way of the exact remainder, as CPython and the host do it.
Reg Emitter::real_division(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const std::string type = ir_.type_of(llvm_type(dtype), vec);
  const std::string bits = ir_.type_of("i1", vec);
  const auto c = [&](double value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return ir_.assign(std::string("fcmp ") + how + " " + type + " " + x + ", " + y);
  };
  if (op == Op::kTruncDiv) {
    const std::string ratio[] = {ir_.binary("fdiv", type, a.text, b.text)};
    return {ir_.intrinsic("trunc", dtype, vec, ratio), vec};
  }
  const Reg operands[] = {a, b};
  const Reg rest = function(Op::kFmod, dtype, operands, vec);
  if (op == Op::kFmod) return rest;
  const std::string apart = ir_.binary("xor", bits, test("olt", b.text, c(0)), test("olt", rest.text, c(0)));
  const std::string down = ir_.binary("and", bits, test("une", rest.text, c(0)), apart);
  if (op == Op::kMod) return {ir_.select(down, type, ir_.binary("fadd", type, rest.text, b.text), rest.text, vec), vec};
  const std::string ratio = ir_.binary("fdiv", type, a.text, b.text);
  const std::string exact = ir_.binary("fdiv", type, ir_.binary("fsub", type, a.text, rest.text), b.text);
  const std::string lower = ir_.select(down, type, ir_.binary("fsub", type, exact, c(1)), exact, vec);
  const std::string one_arg[] = {lower};
  const std::string floor = ir_.intrinsic("floor", dtype, vec, one_arg);
  const std::string off = test("ogt", ir_.binary("fsub", type, lower, floor), c(0.5));
  const std::string nearest = ir_.select(off, type, ir_.binary("fadd", type, floor, c(1)), floor, vec);
  const std::string sign_args[] = {c(0), ratio};
  const std::string zero = ir_.intrinsic("copysign", dtype, vec, sign_args);
  const std::string result = ir_.select(test("oeq", lower, c(0)), type, zero, nearest, vec);
  return {ir_.select(test("oeq", b.text, c(0)), type, ratio, result, vec), vec};
}

/// Shifts by the width or more (or by negative amounts) shift everything out.
Reg Emitter::shift(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  if (dtype == DType::kBool) throw Unsupported("shifts of bool");
  const std::string type = ir_.type_of(llvm_type(dtype), vec);
  const bool sign = is_signed(dtype);
  const int width = 8 * dtype_size(dtype);
  const std::string last = number(width - 1, dtype, vec);
  const std::string inside = ir_.assign("icmp ule " + type + " " + b.text + ", " + last);
  const std::string by = ir_.select(inside, type, b.text, last, vec);
  const std::string shifted = ir_.binary(op == Op::kShl ? "shl" : sign ? "ashr" : "lshr", type, a.text, by);
  if (op == Op::kShr && sign) return {shifted, vec};
  return {ir_.select(inside, type, shifted, number(0, dtype, vec), vec), vec};
}

}  // namespace tatara::codegen
