// The gamma function's logarithm and its derivative, and Bessel functions. Those of float32 are computed in float64.
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

namespace tatara::codegen {

/// A polynomial with the zeros at 1 and 2 split off, Stirling's formula beyond 3, and the reflection
/// lgamma(-x) = log(pi / (x |sin(pi x)|)) - lgamma(x).
Val lgamma(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const auto log_of = [&](const Val& v) { return single ? log2_low(v) * kLn2 : log(v); };
  const Val a = abs(wide);
  const Val logarithm = log_of(single ? largest(like(a, 1e-300), a) : a);
  const Val below = a < 1.0;
  const Val u = a - select(below, like(a, 1), like(a, 2));
  const Val middle = u * (u + 1.0) * (single ? poly(u, kLgammaNear) : poly(u, kLgammaNearF64));
  const Val near = middle - select(below, logarithm, 0.0);
  const Val r = 1.0 / a;
  const Val w = r * r;
  const Val rest = r * (single ? poly(w, kLgammaFar) : poly(w, kLgammaFarF64));
  // (a - 1/2) log a - a, written so that infinity minus infinity does not occur.
  const Val far = fma(a - 0.5, logarithm - 1.0, rest + (0.91893853320467274178 - 0.5));
  const Val positive = select(a < 3.0, near, far);
  const Val offset = a - round_even(a);
  const Val part = abs(offset);
  const Val steep = part > 0.25;
  const Val angle = select(steep, 0.5 - part, part) * kPi;
  const Val sine = single ? part * poly(offset * offset, kSinPi)
                          : select(steep, cosine_polynomial(angle), sine_polynomial(angle)) * (1 / kPi);
  // In float64 the product may underflow.
  const Val product = single ? log_of(a * sine * (1 / kPi)) : logarithm + log_of(sine);
  const Val reflected = -product - positive;
  const Val y = select(wide < 0.0, reflected, positive);
  const Val pole = (a == 0.0) | ((wide < 0.0) & (offset == 0.0)) | (a == INFINITY);
  const Val result = select(pole, INFINITY, y);
  return single ? to_f32(result) : result;
}

/// The asymptotic series beyond 6 (float64: 10); smaller arguments are raised by the recurrence, whose sum but for 1 / x is one
/// quotient.
/// Left of 0: digamma(x) = digamma(1 - x) - pi / tan(pi x).
Val digamma(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const int steps = single ? 6 : 10;
  const Val negative = wide < 0.0;
  const Val a = select(negative, 1.0 - wide, wide);
  const Val small = a < steps;
  Val numerator = like(a, 1);
  Val denominator = a + 1.0;
  for (int i = 2; i < steps; ++i) {
    const Val next = a + i;
    numerator = fma(numerator, next, denominator);
    denominator = denominator * next;
  }
  const Val z = select(small, a + steps, a);
  const Val r = 1.0 / z;
  const Val w = r * r;
  const Val logarithm = single ? log2_low(z) * kLn2 : log(z);
  const Val series = fma(r, -0.5, logarithm) - w * (single ? poly(w, kDigammaLowF64) : poly(w, kDigammaF64));
  Val y = select(small, (series - numerator / denominator) - 1.0 / a, series);
  const Val offset = wide - round_even(wide);
  const Val part = abs(offset);
  const Val steep = part > 0.25;
  const Val angle = select(steep, 0.5 - part, part) * kPi;
  const Val sine = sine_polynomial(angle);
  const Val cosine = cosine_polynomial(angle);
  const Val cotangent = select(steep, sine, cosine) / select(steep, cosine, sine);
  y = select(negative, fma(copysign(cotangent, offset), -kPi, y), y);
  y = select(wide == 0.0, copysign(infinity(wide), -wide), y);
  y = select(negative & (offset == 0.0), std::nan(""), y);
  y = select(wide == INFINITY, INFINITY, y);
  return single ? to_f32(y) : y;
}

namespace {

/// I(x) up to 8 by a polynomial in x^2; exp(-x) * sqrt(x) * I(x) beyond by one in 8 / x.
Val bessel(const Val& x, int order, bool scaled) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const Val a = abs(wide);
  const auto choose = [&](std::span<const double> low, std::span<const double> full) { return single ? low : full; };
  const Val square = a * a;
  Val near = poly(square, order == 0 ? choose(kI0NearLow, kI0NearF64) : choose(kI1NearLow, kI1NearF64));
  if (order == 1) near = near * a;
  const Val v = 8.0 / a;
  const Val far = poly(v, order == 0 ? choose(kI0FarLow, kI0FarF64) : choose(kI1FarLow, kI1FarF64)) / sqrt(a);
  const Val close = a <= 8.0;
  const auto low_exp = [](const Val& t) { return exp2_low(clamp(t * (1 / kLn2), -1000, 1000)); };
  Val y = far;
  if (scaled) {
    y = select(close, near * (single ? low_exp(-a) : exp(-a)), far);
  } else if (single) {
    y = select(close, near, far * low_exp(a));
  } else {
    // The exponential may overflow where the product with the small factor does not.
    y = select(close, near, far * exp_shifted(least(like(a, 720), a), -64) * 0x1p64);
  }
  if (!scaled) y = select(a > 714.0, INFINITY, y);
  if (order == 1) y = copysign(y, wide);
  return single ? to_f32(y) : y;
}

}  // namespace

Val i0(const Val& x) { return bessel(x, 0, false); }
Val i0e(const Val& x) { return bessel(x, 0, true); }
Val i1(const Val& x) { return bessel(x, 1, false); }
Val i1e(const Val& x) { return bessel(x, 1, true); }

}  // namespace tatara::codegen
