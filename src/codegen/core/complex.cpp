// Complex arithmetic on pairs of registers. Quotients use the order of operations of eager; elementary functions call the C
// library, as eager does.
#include <cmath>

#include "codegen/core/values.h"
#include "support/error.h"

namespace tatara::codegen {

using Op = loops::ScalarOp;

/// Very large and very small parts are scaled by a power of two before they are squared, which is exact.
std::string magnitude(IrWriter& ir, DType part, const std::string& re, const std::string& im, bool vec, bool has_fma) {
  const bool single = part == DType::kFloat32;
  const std::string type = ir.type_of(llvm_type(part), vec);
  const auto c = [&](double value) { return number(value, part, vec); };
  const std::string first[] = {re};
  const std::string second[] = {im};
  const std::string a = ir.intrinsic("fabs", part, vec, first);
  const std::string b = ir.intrinsic("fabs", part, vec, second);
  // The larger part, if neither is NaN. An infinite part gives infinity even if the other is NaN (see the end).
  const std::string above = ir.assign("fcmp ogt " + type + " " + a + ", " + b);
  const std::string top = ir.select(above, type, a, b, vec);
  const std::string big = ir.assign("fcmp ogt " + type + " " + top + ", " + c(std::ldexp(1.0, single ? 62 : 510)));
  const std::string small = ir.assign("fcmp olt " + type + " " + top + ", " + c(std::ldexp(1.0, single ? -40 : -400)));
  const auto scale = [&](int down, int up) {
    return ir.select(big, type, c(std::ldexp(1.0, down)), ir.select(small, type, c(std::ldexp(1.0, up)), c(1.0), vec),
                     vec);
  };
  const std::string there = single ? scale(-68, 100) : scale(-600, 600);
  const std::string back = single ? scale(68, -100) : scale(600, -600);
  const std::string x = ir.binary("fmul", type, a, there);
  const std::string y = ir.binary("fmul", type, b, there);
  const std::string square = ir.binary("fmul", type, y, y);
  std::string sum;
  if (has_fma) {
    const std::string operands[] = {x, x, square};
    sum = ir.intrinsic("fma", part, vec, operands);
  } else {
    sum = ir.binary("fadd", type, ir.binary("fmul", type, x, x), square);
  }
  const std::string operand[] = {sum};
  const std::string root = ir.binary("fmul", type, ir.intrinsic("sqrt", part, vec, operand), back);
  const auto infinite = [&](const std::string& v) {
    return ir.assign("fcmp oeq " + type + " " + v + ", " + c(INFINITY));
  };
  const std::string any = ir.binary("or", ir.type_of("i1", vec), infinite(a), infinite(b));
  return ir.select(any, type, c(INFINITY), root, vec);
}

/// Smith's method (Communications of the ACM 5, 1962), with eager's result for a zero divisor: the parts divided by +0.
Reg complex_quotient(IrWriter& ir, DType part, const Reg& x, const Reg& y, bool vec) {
  const std::string type = ir.type_of(llvm_type(part), vec);
  const auto c = [&](double value) { return number(value, part, vec); };
  const std::string first[] = {y.text};
  const std::string second[] = {y.im};
  const std::string p = ir.intrinsic("fabs", part, vec, first);
  const std::string q = ir.intrinsic("fabs", part, vec, second);
  const std::string wide = ir.assign("fcmp oge " + type + " " + p + ", " + q);
  const auto pick = [&](const std::string& a, const std::string& b) { return ir.select(wide, type, a, b, vec); };
  const std::string major = pick(y.text, y.im);
  const std::string minor = pick(y.im, y.text);
  const std::string nothing = ir.assign("fcmp oeq " + type + " " + pick(p, q) + ", " + c(0.0));
  const std::string ratio = ir.binary("fdiv", type, minor, major);
  const std::string whole = ir.binary("fadd", type, major, ir.binary("fmul", type, minor, ratio));
  const std::string scale = ir.binary("fdiv", type, c(1.0), ir.select(nothing, type, p, whole, vec));
  // wide: a + b*r, b - a*r; else a*r + b, b*r - a
  const std::string ar = ir.binary("fmul", type, x.text, ratio);
  const std::string br = ir.binary("fmul", type, x.im, ratio);
  const std::string re = ir.binary("fadd", type, pick(x.text, ar), pick(br, x.im));
  const std::string im = ir.binary("fsub", type, pick(x.im, br), pick(ar, x.text));
  return {ir.binary("fmul", type, ir.select(nothing, type, x.text, re, vec), scale), vec,
          ir.binary("fmul", type, ir.select(nothing, type, x.im, im, vec), scale)};
}

Reg complex_comparison(IrWriter& ir, Op op, DType dtype, const Reg& a, const Reg& b, bool vec) {
  const Reg x = vec ? widened(ir, dtype, a) : a;
  const Reg y = vec ? widened(ir, dtype, b) : b;
  const std::string type = ir.type_of(llvm_type(real_dtype(dtype)), vec);
  if (op != Op::kEq && op != Op::kNe) throw Unsupported("an order of complex numbers");
  const auto test = [&](const std::string& p, const std::string& q) {
    return ir.assign(std::string("fcmp ") + (op == Op::kEq ? "oeq " : "une ") + type + " " + p + ", " + q);
  };
  const std::string re = test(x.text, y.text);
  return {ir.binary(op == Op::kEq ? "and" : "or", ir.type_of("i1", vec), re, test(x.im, y.im)), vec};
}

}  // namespace tatara::codegen
