// Division, remainders and shifts with the host's rounding, and without traps.
#include "codegen/emitter.h"
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
  const std::string type = type_of(llvm_type(dtype), vec);
  const auto c = [&](int value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return assign(std::string("icmp ") + how + " " + type + " " + x + ", " + y);
  };
  const std::string none = test("eq", b.text, c(0));
  const bool remainder = op == Op::kMod || op == Op::kFmod;
  if (!sign) {
    const std::string divisor = select(none, type, c(1), b.text, vec);
    return {binary(remainder ? "urem" : "udiv", type, a.text, divisor), vec};
  }
  const std::string minus = test("eq", b.text, c(-1));
  const std::string special = binary("or", type_of("i1", vec), none, minus);
  const std::string divisor = select(special, type, c(1), b.text, vec);
  const std::string plain = binary("sdiv", type, a.text, divisor);
  const std::string quotient = select(minus, type, binary("sub", type, c(0), a.text), plain, vec);
  if (op == Op::kTruncDiv) return {quotient, vec};
  // After division by -1 the quotient wraps, and so does the product: the rest is 0.
  const std::string rest = binary("sub", type, a.text, binary("mul", type, quotient, b.text));
  if (op == Op::kFmod) return {rest, vec};
  const std::string inexact = test("ne", rest, c(0));
  const std::string apart = test("slt", binary("xor", type, rest, b.text), c(0));
  const std::string down = binary("and", type_of("i1", vec), inexact, apart);
  if (op == Op::kMod) return {select(down, type, binary("add", type, rest, b.text), rest, vec), vec};
  return {select(down, type, binary("add", type, quotient, c(-1)), quotient, vec), vec};
}

/// Floors of quotients by way of the exact remainder, as CPython and the host do it.
Reg Emitter::real_division(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const std::string type = type_of(llvm_type(dtype), vec);
  const std::string bits = type_of("i1", vec);
  const auto c = [&](double value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return assign(std::string("fcmp ") + how + " " + type + " " + x + ", " + y);
  };
  if (op == Op::kTruncDiv) {
    const std::string ratio[] = {binary("fdiv", type, a.text, b.text)};
    return {intrinsic("trunc", dtype, vec, ratio), vec};
  }
  const Reg operands[] = {a, b};
  const Reg rest = function(Op::kFmod, dtype, operands, vec);
  if (op == Op::kFmod) return rest;
  const std::string apart = binary("xor", bits, test("olt", b.text, c(0)), test("olt", rest.text, c(0)));
  const std::string down = binary("and", bits, test("une", rest.text, c(0)), apart);
  if (op == Op::kMod) return {select(down, type, binary("fadd", type, rest.text, b.text), rest.text, vec), vec};
  const std::string ratio = binary("fdiv", type, a.text, b.text);
  const std::string exact = binary("fdiv", type, binary("fsub", type, a.text, rest.text), b.text);
  const std::string lower = select(down, type, binary("fsub", type, exact, c(1)), exact, vec);
  const std::string one_arg[] = {lower};
  const std::string floor = intrinsic("floor", dtype, vec, one_arg);
  const std::string off = test("ogt", binary("fsub", type, lower, floor), c(0.5));
  const std::string nearest = select(off, type, binary("fadd", type, floor, c(1)), floor, vec);
  const std::string sign_args[] = {c(0), ratio};
  const std::string zero = intrinsic("copysign", dtype, vec, sign_args);
  const std::string result = select(test("oeq", lower, c(0)), type, zero, nearest, vec);
  return {select(test("oeq", b.text, c(0)), type, ratio, result, vec), vec};
}

/// Shifts by the width or more (or by negative amounts) shift everything out.
Reg Emitter::shift(Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  if (dtype == DType::kBool) throw Unsupported("shifts of bool");
  const std::string type = type_of(llvm_type(dtype), vec);
  const bool sign = is_signed(dtype);
  const int width = 8 * dtype_size(dtype);
  const std::string last = number(width - 1, dtype, vec);
  const std::string inside = assign("icmp ule " + type + " " + b.text + ", " + last);
  const std::string by = select(inside, type, b.text, last, vec);
  const std::string shifted = binary(op == Op::kShl ? "shl" : sign ? "ashr" : "lshr", type, a.text, by);
  if (op == Op::kShr && sign) return {shifted, vec};
  return {select(inside, type, shifted, number(0, dtype, vec), vec), vec};
}

}  // namespace tatara::codegen
