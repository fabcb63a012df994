// Error functions and their kin.
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

namespace tatara::codegen {

namespace {

/// 1 - exp(-y) for y = -log(erfc(|x|)), as (1 - 2^k) - 2^k * expm1(r): exact where the two cancel, so that one polynomial
/// serves all x.
Val erf_f32(const Val& x) {
  const Val size = least(like(x, 4), abs(x));  // erf is 1 to the last bit beyond, and NaN stays
  const Val negated = -fma(size, poly(size, kErfF32), size);
  // Adding this number leaves k + 127, the exponent field of 2^k, in the lowest bits.
  const double magic = 0x1.8p23 + 127;
  const Val rounded = fma(negated, 1 / kLn2, magic);
  const Val power = from_bits(shl(bits(rounded), 23));
  // The rest of ln2 beside its float32 counts less than a thirtieth of an ulp: k * 2^k is at most 1/2.
  const Val r = fma(rounded - magic, -kLn2, negated);
  const Val grown = fma(r * r, poly(r, kExpF32), r);
  return copysign(fma(-power, grown, 1.0 - power), x);
}

}  // namespace

Val erf(const Val& x) {
  if (x.lane == Lane::kF32) return erf_f32(x);
  const Val size = abs(x);
  // x + x * (erf(x) / x - 1): the large term is added last.
  const Val near = fma(x, poly(x * x, kErfNearF64), x);
  // 1 - exp(log(erfc(|x|))); erf is 1 to the last bit beyond the bound, and NaN stays.
  const Val far = copysign(1.0 - exp(poly(least(like(x, 6), size), kErfFarF64)), x);
  return select(size < 0.875, near, far);
}

namespace {

constexpr double kRootHalfPi = 1.2533141373155002512;

/// erfc(x) * exp(x^2) for x >= 0 in float64: a polynomial in (x-2)/(x+2), divided by x + 2 (the mapping of M. M. Shepherd
/// and J. G. Laframboise, Mathematics of Computation 36, 1981).
Val erfc_scaled(const Val& x, bool low) {
  const Val inverse = 1.0 / (x + 2.0);
  const Val t = fma(inverse, -4.0, 1.0);
  return inverse * (low ? poly(t, kErfcLowF64) : poly(t, kErfcF64));
}

/// erfc(x) for x >= 0 in float64, given x^2; near 0 from erf, which is more accurate there.
Val erfc_tail(const Val& x, const Pair& square, bool low) {
  if (low) return erfc_scaled(x, true) * exp2_low(square.high * (-1 / kLn2));
  const Val tail = erfc_scaled(x, false) * exp(-square.high);
  const Val far = fma(tail, -square.low, tail);
  return select(x < 0.5, 1.0 - fma(x, poly(square.high, kErfNearF64), x), far);
}

/// For results of float32 one number holds the square.
Pair square_of(const Val& x, const Val& factor, bool low) {
  if (low) return {x * factor, like(x, 0)};
  return two_product(x, factor);
}

/// In float64: the logarithm, for results of float32 or of float64.
Val log_for(const Val& x, bool low) { return low ? log2_low(x) * kLn2 : log(x); }

}  // namespace

Val erfc(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const Val size = least(like(wide, single ? 10.5 : 27.5), abs(wide));
  const Val tail = erfc_tail(size, square_of(size, size, single), single);
  const Val y = select(wide < 0.0, 2.0 - tail, tail);
  return single ? to_f32(y) : y;
}

/// Two polynomials over w = -log(1 - x^2), as in M. Giles's "Approximating the erfinv function" (GPU Computing Gems, 2011).
/// For float64 one step of Newton's method follows, on erfc where erf is near 1.
Val erfinv(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const Val size = abs(wide);
  const Val inside = size < 1.0;
  const Val w = log2_low(select(inside, (1.0 - size) * (size + 1.0), 1.0)) * -kLn2;
  const Val ratio = select(w < 5.0, poly(w, kErfinvNear), poly(sqrt(w), kErfinvFar));
  Val y = wide * ratio;
  if (!single) {
    const Val start = abs(y);
    const Val error =
        select(size < 0.7, erf(start) - size, (1.0 - size) - erfc_tail(start, square_of(start, start, false), false));
    y = copysign(fma(error * exp(start * start), -0.5 * 1.7724538509055160273, start), x);
  }
  const Val limits = select(size == 1.0, copysign(infinity(wide), wide), std::nan(""));
  y = select(inside, y, limits);
  return single ? to_f32(y) : y;
}

/// The quantile of the normal distribution. Around 1/2 a polynomial in p - 1/2; in the tails one in 1 / sqrt(-2 log p), for
/// float64 followed by one step of Newton's method on the logarithm of the tail.
Val ndtri(const Val& p) {
  const bool single = p.lane == Lane::kF32;
  const Val wide = single ? to_f64(p) : p;
  const Val y = wide - 0.5;
  const Val z = y * y;
  const Val center = y * (single ? poly(z, kNdtriCenter) : poly(z, kNdtriCenterF64));
  const Val tail = select(y > 0.0, 1.0 - wide, wide);
  const Val inside = tail > 0.0;
  const Val q = select(inside, tail, 0.5);
  const Val t = sqrt(log_for(q, single) * -2.0);
  Val m = t * poly(1.0 / t, kNdtriTail);
  if (!single) {
    const Val ratio = erfc_scaled(m * kSqrtHalf, false);
    // The density's root, since the density itself may be subnormal.
    const Val part = exp(m * m * -0.25);
    const Val error = fma(ratio * part * 0.5, part / q, -1.0);
    m = fma(fma(error * error, -0.5, error), ratio * kRootHalfPi, m);
  }
  const Val far = copysign(select(inside, m, select(tail == 0.0, infinity(m), not_a_number(m))), y);
  const Val x = select(abs(y) < 0.3646, center, far);
  return single ? to_f32(x) : x;
}

/// log(erfc(-x / sqrt 2) / 2): by the scaled function below -1, else as log1p of the other tail.
Val log_ndtr(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const Val wide = single ? to_f64(x) : x;
  const Val size = abs(wide) * kSqrtHalf;
  const Val far = log_for(erfc_scaled(size, single) * 0.5, single) - wide * 0.5 * wide;
  const Val bounded = least(like(wide, single ? 15 : 39), abs(wide));
  // x^2 / 2, not the square of the rounded x / sqrt 2.
  const Pair square = square_of(bounded, bounded * 0.5, single);
  const Val tail = erfc_tail(bounded * kSqrtHalf, square, single) * 0.5;
  const Val other = select(wide < 0.0, 1.0 - tail, tail);
  const Val small = fma(other * other, -0.5, -other);
  const Val near = single ? select(other < 0x1p-14, small, log_for(1.0 - other, true)) : log1p(-other);
  const Val y = select(is_nan(wide), wide, select(wide < -1.0, far, near));
  return single ? to_f32(y) : y;
}

}  // namespace tatara::codegen
