// Sine, cosine and tangent. Reduction: x = k * pi/2 + r in three parts of pi/2 (Cody and Waite), exact for the arguments
// that occur; lanes beyond take the integer reduction of M. Payne and R. Hanek (SIGNUM Newsletter 18, 1983).
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

namespace tatara::codegen {

namespace {

/// x = quadrant * pi/2 + r + low; only the last two bits of the quadrant count.
struct Angle {
  Val quadrant;  // integer lanes
  Val r;
  Val low;
};

/// The product of the mantissa with those 96 bits of 2/pi that decide the quadrant and 62 bits of its fraction.
std::vector<Val> payne_hanek_f32(const Val& x) {
  const Val pattern = bits(x);
  const Val exponent = lshr(pattern, 23) & 255;
  const Val mantissa = to_i64_unsigned((pattern & 0x7fffff) | 0x800000);
  // |x| = mantissa * 2^(exponent - 150). The first bit that counts has weight 2 after that shift; the table starts with a
  // word of zeros.
  const Val first = largest(exponent - 120.0, like(exponent, 0));
  const Val word = to_i64(lshr(first, 5));
  const Val shift = first & 31;
  std::vector<Val> words;
  for (int i = 0; i < 4; ++i) words.push_back(x.b->lookup("tatara_two_over_pi", kTwoOverPi, i == 0 ? word : word + i));
  const auto part = [&](size_t i) { return to_i64_unsigned(funnel_left(words[i], words[i + 1], shift)); };
  const Val product = shl(mantissa * part(0), 32) + mantissa * part(1) + lshr(mantissa * part(2), 32);
  const Val quadrant = lshr(product + x.b->integer(Lane::kI64, int64_t{1} << 61), 62);
  const Val fraction = product - shl(quadrant, 62);
  const Val r = to_float(fraction) * (kPi / 2 * 0x1p-62);
  const Val high = to_f32(r);
  const Val low = to_f32(r - to_f64(high));
  const Val negative = pattern < 0;
  const Val q = to_i32(quadrant);
  return {select(negative, -q, q), select(negative, -high, high), select(negative, -low, low)};
}

/// Quadrant, r and low for |x| up to 2^17. With FMA the products with k are exact; else float64 has room for them.
std::vector<Val> cody_waite_f32(const Val& x, bool with_low) {
  const Val k = round_even(x * (2 / kPi));
  const Val quadrant = to_int(k);
  if (!x.b->has_fma()) {
    const Val wide = to_f64(k);
    const Val r = ((to_f64(x) - wide * kHalfPiShort[0]) - wide * kHalfPiShort[1]) - wide * kHalfPiShort[2];
    const Val high = to_f32(r);
    return {quadrant, high, to_f32(r - to_f64(high))};
  }
  const Val first = fma(k, -kHalfPiF32[0], x);
  if (!with_low) return {quadrant, fma(k, -kHalfPiF32[2], fma(k, -kHalfPiF32[1], first))};
  const auto [product, error] = two_product(k, like(x, -kHalfPiF32[1]));
  const auto [sum, lost] = two_sum(first, product);
  const auto [high, low] = fast_two_sum(sum, fma(k, -kHalfPiF32[2], lost + error));
  return {quadrant, high, low};
}

/// Without `with_low`, low is 0 and r is off by up to one unit in its last place.
Angle reduce(const Val& x, bool with_low) {
  std::vector<Val> parts = cody_waite_f32(x, with_low);
  const Val size = abs(x);
  parts = x.b->patch(size > 131072.0, parts, [&] { return payne_hanek_f32(x); });
  return {parts[0], select(size == infinity(x), std::nan(""), parts[1]), with_low ? parts[2] : like(x, 0)};
}

/// The sine for even quadrants, the cosine for odd ones.
Val sin_cos(const Val& r, const Val& quadrant) {
  const Val z = r * r;
  const Val sine = fma(r * z, poly(z, kSinF32), r);
  const Val cosine = fma(z * z, poly(z, kCosF32), fma(z, -0.5, 1.0));
  const Val y = select((quadrant & 1) == 0.0, sine, cosine);
  return from_bits(bits(y) ^ shl(quadrant & 2, 30));
}

}  // namespace

Val sin(const Val& x) {
  const Angle angle = reduce(x, false);
  return select(x == 0.0, x, sin_cos(angle.r, angle.quadrant));
}

Val cos(const Val& x) {
  const Angle angle = reduce(x, false);
  return sin_cos(angle.r, angle.quadrant + 1.0);
}

Val tan(const Val& x) {
  const auto [quadrant, r, low] = reduce(x, true);
  const Val z = r * r;
  const Val tail = r * z * poly(z, kTanF32);
  // The derivative of tan at r, good enough for the part that was rounded off.
  const Val t = r + (tail + fma(low, z, low));
  const Val y = select((quadrant & 1) == 0.0, t, -1.0 / t);
  return select(x == 0.0, x, y);
}

}  // namespace tatara::codegen
