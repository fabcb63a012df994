// Integer division, remainders and shifts with the rounding of eager.
#include "codegen/core/values.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::codegen {

using Op = loops::ScalarOp;

Reg integer_division(IrWriter& ir, Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const bool sign = is_signed_integer(dtype);
  const std::string type = ir.type_of(llvm_type(dtype), vec);
  const auto c = [&](int value) { return number(value, dtype, vec); };
  const auto test = [&](const char* how, const std::string& x, const std::string& y) {
    return ir.assign(std::string("icmp ") + how + " " + type + " " + x + ", " + y);
  };
  const std::string none = test("eq", b.text, c(0));
  const bool remainder = op == Op::kMod || op == Op::kFmod;
  if (!sign) {
    const std::string divisor = ir.select(none, type, c(1), b.text, vec);
    return {ir.binary(remainder ? "urem" : "udiv", type, a.text, divisor), vec};
  }
  const std::string minus = test("eq", b.text, c(-1));
  const std::string special = ir.binary("or", ir.type_of("i1", vec), none, minus);
  const std::string divisor = ir.select(special, type, c(1), b.text, vec);
  const std::string plain = ir.binary("sdiv", type, a.text, divisor);
  const std::string quotient = ir.select(minus, type, ir.binary("sub", type, c(0), a.text), plain, vec);
  if (op == Op::kTruncDiv) return {quotient, vec};
  // For divisor -1 the quotient and the product both wrap, so the remainder is 0.
  const std::string rest = ir.binary("sub", type, a.text, ir.binary("mul", type, quotient, b.text));
  if (op == Op::kFmod) return {rest, vec};
  const std::string inexact = test("ne", rest, c(0));
  const std::string apart = test("slt", ir.binary("xor", type, rest, b.text), c(0));
  const std::string down = ir.binary("and", ir.type_of("i1", vec), inexact, apart);
  if (op == Op::kMod) return {ir.select(down, type, ir.binary("add", type, rest, b.text), rest, vec), vec};
  return {ir.select(down, type, ir.binary("add", type, quotient, c(-1)), quotient, vec), vec};
}

Reg shift(IrWriter& ir, Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  if (dtype == DType::kBool) throw Unsupported("shifts of bool");
  const std::string type = ir.type_of(llvm_type(dtype), vec);
  const bool sign = is_signed(dtype);
  const int width = 8 * dtype_size(dtype);
  const std::string last = number(width - 1, dtype, vec);
  const std::string inside = ir.assign("icmp ule " + type + " " + b.text + ", " + last);
  const std::string by = ir.select(inside, type, b.text, last, vec);
  const std::string shifted = ir.binary(op == Op::kShl ? "shl" : sign ? "ashr" : "lshr", type, a.text, by);
  if (op == Op::kShr && sign) return {shifted, vec};
  return {ir.select(inside, type, shifted, number(0, dtype, vec), vec), vec};
}

/// Unsigned bytes, all to the right by as much, as words of four.
Reg shift_bytes(IrWriter& ir, const std::string& bytes, const std::string& by) {
  const std::string words = vector_of(ir.lanes() / 4, "i32");
  ir.declare("declare i32 @llvm.umin.i32(i32, i32)");
  const std::string amount =
      ir.call("@llvm.umin.i32", "i32", "i32 " + ir.assign("zext i8 " + by + " to i32") + ", i32 8");
  const std::string mask = ir.binary("mul", "i32", ir.binary("lshr", "i32", "255", amount), "16843009");
  const auto all = [&](const std::string& one) {
    const std::string first = ir.assign("insertelement " + words + " poison, i32 " + one + ", i64 0");
    return ir.assign(str_cat("shufflevector ", words, " ", first, ", ", words, " poison, ", words, " zeroinitializer"));
  };
  const std::string given = ir.assign("bitcast " + ir.vec_type("i8") + " " + bytes + " to " + words);
  const std::string moved = ir.binary("and", words, ir.binary("lshr", words, given, all(amount)), all(mask));
  return {ir.assign("bitcast " + words + " " + moved + " to " + ir.vec_type("i8")), true};
}

}  // namespace tatara::codegen
