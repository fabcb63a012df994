// Inverse trigonometric and hyperbolic functions.
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

namespace tatara::codegen {

namespace {

/// pi/2 minus its value in x's type.
double half_pi_low(const Val& x) { return by_lane(x, kHalfPiInF32[1], kHalfPiInF64[1]); }

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
  return {small, t, t * z * poly(z, by_lane(x, kAsinF32, kAsinF64))};
}

/// atan for 0 <= x <= 1.
Val atan_small(const Val& x) {
  const Val z = x * x;
  return fma(x * z, poly(z, by_lane(x, kAtanF32, kAtanF64)), x);
}

}  // namespace

Val asin(const Val& x) {
  const auto [small, t, tail] = half_angle(x);
  const Pair rest = fast_two_sum(like(x, kPi / 2), -(t + t));
  const Val far = rest.high - ((tail + tail - half_pi_low(x)) - rest.low);
  return copysign(select(small, t + tail, far), x);
}

Val acos(const Val& x) {
  const auto [small, t, tail] = half_angle(x);
  const Val y = t + tail;
  const Val middle = kPi / 2 - (copysign(y, x) - half_pi_low(x));
  const Val twice = y + y;
  const Val far = select(x < 0.0, kPi - (twice - 2 * half_pi_low(x)), twice);
  return select(small, middle, far);
}

/// atan(x) = pi/2 - atan(1 / x) beyond 1.
Val atan(const Val& x) {
  const Val size = abs(x);
  const Val steep = size > 1.0;
  const Val y = atan_small(select(steep, like(x, 1), size) / select(steep, size, like(x, 1)));
  return copysign(select(steep, kPi / 2 - (y - half_pi_low(x)), y), x);
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
  angle = select(steep, kPi / 2 - (angle - half_pi_low(x)), angle);
  angle = select(bits(x) < 0.0, kPi - (angle - 2 * half_pi_low(x)), angle);
  return select(x.b->compare("fcmp uno", x, y), std::nan(""), copysign(angle, y));
}

/// log(x + sqrt(x^2 + 1)). For float32 in float64, by two terms of the series where that cancels; for float64 as log1p, and
/// as log(2x) where the square overflows.
Val asinh(const Val& x) {
  const Val size = abs(x);
  if (x.lane == Lane::kF64) {
    const Val big = size > 0x1p500;
    const Val square = size * size;
    const Val t = select(big, size, size + square / (sqrt(square + 1.0) + 1.0));
    return copysign(log1p(t) + select(big, like(x, kLn2), 0.0), x);
  }
  const Val wide = to_f64(size);
  const Val y = to_f32(log2_low(wide + sqrt(fma(wide, wide, 1.0))) * kLn2);
  const Val small = fma(size * size * (-1.0 / 6), size, size);
  const Val usual = select(size < 0x1p-12, small, y);
  return select(size < infinity(x), copysign(usual, x), x);
}

Val acosh(const Val& x) {
  if (x.lane == Lane::kF64) {
    const Val big = x > 0x1p500;
    const Val above = x - 1.0;
    const Val t = select(big, x, above + sqrt(above * (x + 1.0)));
    return select(x < 1.0, std::nan(""), log1p(t) + select(big, like(x, kLn2), 0.0));
  }
  const Val wide = to_f64(x);
  const Val y = to_f32(log2_low(wide + sqrt(fma(wide, wide, -1.0))) * kLn2);
  const Val usual = (x >= 1.0) & (x < infinity(x));
  return select(usual, y, select(x < 1.0, std::nan(""), x));
}

/// log((1 + x) / (1 - x)) / 2; for float32 in float64.
Val atanh(const Val& x) {
  const Val size = abs(x);
  if (x.lane == Lane::kF64) return copysign(log1p((size + size) / (1.0 - size)) * 0.5, x);
  const Val wide = to_f64(size);
  const Val y = to_f32(log2_low((wide + 1.0) / (1.0 - wide)) * (kLn2 / 2));
  const Val small = fma(size * size * (1.0 / 3), size, size);
  const Val usual = select(size < 0x1p-12, small, y);
  const Val limits = select(size == 1.0, INFINITY, not_a_number(x));
  return copysign(select(size < 1.0, usual, limits), x);
}

}  // namespace tatara::codegen
