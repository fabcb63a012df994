// Inverse trigonometric and hyperbolic functions of float32.
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

namespace tatara::codegen {

namespace {

constexpr double kHalfPiLow = -4.37113900018624283e-8;  // pi/2 - float32(pi/2)

/// asin(x) = asin(t) for |x| <= 1/2, else pi/2 - 2 asin(t); asin(t) = t + tail.
struct HalfAngle {
  Val small;
  Val t;
  Val tail;
};

HalfAngle half_angle(const Val& x) {
  const Val size = abs(x);
  const Val small = size <= 0.5;
  const Val z = select(small, x * x, fma(size, -0.5, 0.5));
  const Val t = select(small, size, sqrt(z));
  return {small, t, t * z * poly(z, kAsinF32)};
}

/// atan for 0 <= x <= 1.
Val atan_small(const Val& x) {
  const Val z = x * x;
  return fma(x * z, poly(z, kAtanF32), x);
}

}  // namespace

Val asin(const Val& x) {
  const auto [small, t, tail] = half_angle(x);
  const Pair rest = fast_two_sum(like(x, kPi / 2), -(t + t));
  const Val far = rest.high - ((tail + tail - kHalfPiLow) - rest.low);
  return copysign(select(small, t + tail, far), x);
}

Val acos(const Val& x) {
  const auto [small, t, tail] = half_angle(x);
  const Val y = t + tail;
  const Val middle = kPi / 2 - (copysign(y, x) - kHalfPiLow);
  const Val twice = y + y;
  const Val far = select(x < 0.0, kPi - (twice - 2 * kHalfPiLow), twice);
  return select(small, middle, far);
}

/// atan(x) = pi/2 - atan(1 / x) beyond 1.
Val atan(const Val& x) {
  const Val size = abs(x);
  const Val steep = size > 1.0;
  const Val y = atan_small(select(steep, like(x, 1), size) / select(steep, size, like(x, 1)));
  return copysign(select(steep, kPi / 2 - (y - kHalfPiLow), y), x);
}

Val atan2(const Val& y, const Val& x) {
  const Val a = abs(y);
  const Val c = abs(x);
  const Val steep = a > c;
  const Val most = select(steep, a, c);
  const Val fewest = select(steep, c, a);
  // Equal sizes need a rule only for 0 and infinity.
  Val t = fewest / most;
  t = select(most == 0.0, 0.0, select(fewest == infinity(x), 1.0, t));
  Val angle = atan_small(t);
  angle = select(steep, kPi / 2 - (angle - kHalfPiLow), angle);
  angle = select(bits(x) < 0.0, kPi - (angle - 2 * kHalfPiLow), angle);
  return select(x.b->compare("fcmp uno", x, y), std::nan(""), copysign(angle, y));
}

/// log(x + sqrt(x^2 + 1)) in float64; two terms of the series where that cancels.
Val asinh(const Val& x) {
  const Val size = abs(x);
  const Val wide = to_f64(size);
  const Val y = to_f32(log2_low(wide + sqrt(fma(wide, wide, 1.0))) * kLn2);
  const Val small = fma(size * size * (-1.0 / 6), size, size);
  const Val usual = select(size < 0x1p-12, small, y);
  return select(size < infinity(x), copysign(usual, x), x);
}

Val acosh(const Val& x) {
  const Val wide = to_f64(x);
  const Val y = to_f32(log2_low(wide + sqrt(fma(wide, wide, -1.0))) * kLn2);
  const Val usual = (x >= 1.0) & (x < infinity(x));
  return select(usual, y, select(x < 1.0, std::nan(""), x));
}

/// log((1 + x) / (1 - x)) / 2 in float64.
Val atanh(const Val& x) {
  const Val size = abs(x);
  const Val wide = to_f64(size);
  const Val y = to_f32(log2_low((wide + 1.0) / (1.0 - wide)) * (kLn2 / 2));
  const Val small = fma(size * size * (1.0 / 3), size, size);
  const Val usual = select(size < 0x1p-12, small, y);
  const Val limits = select(size == 1.0, INFINITY, not_a_number(x));
  return copysign(select(size < 1.0, usual, limits), x);
}

}  // namespace tatara::codegen
