#include "codegen/math/complex.h"

#include <cmath>
#include <vector>

#include "codegen/math/functions.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::codegen {

using loops::ScalarOp;

namespace {

using Z = ComplexVal;

Val infinite(const Val& x) { return abs(x) == INFINITY; }
Val finite(const Val& x) { return abs(x) < INFINITY; }

Z chosen(const Val& condition, const Z& x, const Z& y) {
  return {select(condition, x.re, y.re), select(condition, x.im, y.im)};
}

/// i z and -i z.
Z turned(const Z& z) { return {-z.im, z.re}; }
Z turned_back(const Z& z) { return {z.im, -z.re}; }

/// A product in which an exact zero wins over what is infinite or no number.
Val times(const Val& x, const Val& y) {
  const auto with_sign = [](const Val& zero, const Val& other) { return zero * copysign(like(zero, 1), other); };
  const Val second = select((y == 0.0) & !finite(x), with_sign(y, x), x * y);
  return select((x == 0.0) & !finite(y), with_sign(x, y), second);
}

Z complex_exp(const Z& z) {
  // Where exp(x) overflows, exp(x) cos(y) need not.
  const Val large = z.re > 700.0;
  const Val e = exp(select(large, z.re * 0.5, z.re));
  const Val again = select(large, e, like(e, 1));
  const Z value{times(times(e, cos(z.im)), again), times(times(e, sin(z.im)), again)};
  // The angle is not known.
  const Val lost = infinite(z.re) & !finite(z.im);
  const Val nothing = z.re < 0.0;
  return {select(lost, select(nothing, like(e, 0), like(e, INFINITY)), value.re),
          select(lost & nothing, copysign(like(e, 0), z.im), value.im)};
}

Z complex_log(const Z& z) {
  const Val p = abs(z.re), q = abs(z.im);
  const Val most = largest(p, q), fewest = least(p, q);
  // Near the unit circle log |z|^2 is log1p of what the square differs by from 1, which is summed exactly but for its end.
  const Val near = (most > 0.7) & (most < 1.4) & !is_nan(p) & !is_nan(q);
  const Val close = select(near, most, like(most, 1));
  const Val beside = select(near, fewest, like(most, 0));
  const Pair square = two_product(close, close), added = two_product(beside, beside);
  const Pair apart = two_sum(square.high - 1.0, added.high);
  const Val on = 0.5 * log1p(apart.high + (apart.low + (square.low + added.low)));
  return {select(near, on, log(hypot(z.re, z.im))), atan2(z.im, z.re)};
}

Z complex_sqrt(const Z& z) {
  const Val most = largest(abs(z.re), abs(z.im));
  const Val large = most > 0x1p1000, small = most < 0x1p-900;
  const Val in = select(large, like(most, 0x1p-100), select(small, like(most, 0x1p200), like(most, 1)));
  const Val out = select(large, like(most, 0x1p50), select(small, like(most, 0x1p-100), like(most, 1)));
  const Val x = z.re * in, y = z.im * in;
  const Val root = sqrt((abs(x) + hypot(x, y)) * 0.5);
  const Val other = y / (root + root);
  const Val right = x >= 0.0;
  const Val zero = (z.re == 0.0) & (z.im == 0.0);
  Z value{select(right, root, abs(other)) * out, select(right, other, copysign(root, y)) * out};
  value = chosen(zero, Z{like(x, 0), z.im}, value);
  // On the real axis at infinity the other part is zero, but for what is no number.
  const Val far = infinite(z.re) & finite(z.im);
  const Val none = copysign(like(x, 0), z.im);
  const Z at_end{select(z.re > 0.0, z.re, like(x, 0)), select(z.re > 0.0, none, copysign(like(x, INFINITY), z.im))};
  return chosen(infinite(z.im), Z{like(x, INFINITY), z.im}, chosen(far, at_end, value));
}

Z complex_sinh(const Z& z) {
  const Val re = times(sinh(z.re), cos(z.im));
  return {select(infinite(z.re) & !finite(z.im), abs(z.re), re), times(cosh(z.re), sin(z.im))};
}

Z complex_cosh(const Z& z) {
  const Val re = times(cosh(z.re), cos(z.im));
  return {select(infinite(z.re) & !finite(z.im), abs(z.re), re), times(sinh(z.re), sin(z.im))};
}

Z complex_tanh(const Z& z) {
  const Val size = abs(z.re);
  const Val far = size > 22.0;  // 1 to all places
  const Val t = tan(z.im), s = sinh(select(far, like(size, 22), size));
  const Val slope = fma(t, t, like(t, 1));
  const Val down = fma(slope * s, s, like(t, 1));
  const Val near_re = slope * sqrt(fma(s, s, like(s, 1))) * s / down;
  const Val far_im = 4.0 * (sin(z.im) * cos(z.im)) * exp(-(size + size));
  const Val lost = !finite(z.im);
  const Val im = select(infinite(z.re) & lost, copysign(like(t, 0), z.im), select(far, far_im, t / down));
  const Val far_re = select(lost & finite(z.re), not_a_number(t), like(t, 1));
  const Val re = copysign(select(far, far_re, near_re), z.re);
  return {select(z.re == 0.0, z.re, re), select(z.im == 0.0, z.im, im)};
}

Z complex_sin(const Z& z) { return turned_back(complex_sinh(turned(z))); }
Z complex_cos(const Z& z) { return complex_cosh(turned(z)); }
Z complex_tan(const Z& z) { return turned_back(complex_tanh(turned(z))); }

Z complex_pow(const Z& z, const Z& w) {
  const Z l = complex_log(z);
  const Z value = complex_exp({l.re * w.re - l.im * w.im, l.re * w.im + l.im * w.re});
  return chosen((w.re == 0.0) & (w.im == 0.0), Z{like(z.re, 1), like(z.re, 0)}, value);
}

struct ComplexRow {
  ScalarOp op;
  const char* name;
  Z (*unary)(const Z&);
  Z (*binary)(const Z&, const Z&);
};

constexpr ComplexRow kComplexRows[] = {
    {ScalarOp::kExp, "exp", complex_exp, nullptr},    {ScalarOp::kLog, "log", complex_log, nullptr},
    {ScalarOp::kSqrt, "sqrt", complex_sqrt, nullptr}, {ScalarOp::kSin, "sin", complex_sin, nullptr},
    {ScalarOp::kCos, "cos", complex_cos, nullptr},    {ScalarOp::kTan, "tan", complex_tan, nullptr},
    {ScalarOp::kSinh, "sinh", complex_sinh, nullptr}, {ScalarOp::kCosh, "cosh", complex_cosh, nullptr},
    {ScalarOp::kTanh, "tanh", complex_tanh, nullptr}, {ScalarOp::kPow, "pow", nullptr, complex_pow},
};

const ComplexRow* complex_row(ScalarOp op) {
  for (const ComplexRow& row : kComplexRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

bool has_complex_math(ScalarOp op) { return complex_row(op) != nullptr; }

std::string define_complex_math(ScalarOp op, DType part, const MathTarget& target, Declarations& declarations) {
  const ComplexRow* row = complex_row(op);
  TATARA_CHECK(row != nullptr, "the table of complex functions has no ", loops::scalar_op_name(op));
  const bool single = part == DType::kFloat32;
  const Lane lane = single ? Lane::kF32 : Lane::kF64;
  std::string entry;
  IrWriter ir(declarations);
  MathBuilder builder(ir, target, &entry);
  const std::string type = builder.type(lane), both = "{ " + type + ", " + type + " }";
  std::string parameters;
  std::vector<Z> args;
  for (int i = 0; i < (row->unary != nullptr ? 1 : 2); ++i) {
    const Val re = builder.value(lane, str_cat("%x", i)), im = builder.value(lane, str_cat("%y", i));
    parameters += str_cat(i > 0 ? ", " : "", type, " ", re.text, ", ", type, " ", im.text);
    args.push_back(single ? Z{to_f64(re), to_f64(im)} : Z{re, im});
  }
  Z value = row->unary != nullptr ? row->unary(args[0]) : row->binary(args[0], args[1]);
  if (single) value = {to_f32(value.re), to_f32(value.im)};
  const std::string half = ir.assign("insertvalue " + both + " poison, " + type + " " + value.re.text + ", 0");
  const std::string whole = ir.assign("insertvalue " + both + " " + half + ", " + type + " " + value.im.text + ", 1");
  const std::string width = target.lanes > 0 ? str_cat("_v", target.lanes) : "_";
  const std::string name = str_cat("@tatara_c", row->name, width, single ? "c64" : "c128");
  declarations.insert("define internal " + both + " " + name + "(" + parameters + ") " + target.attributes +
                      " {\nentry:\n" + entry + ir.take() + "  ret " + both + " " + whole + "\n}");
  return name;
}

}  // namespace tatara::codegen
