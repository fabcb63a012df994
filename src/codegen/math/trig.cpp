// Sine, cosine and tangent. Reduction: x = k * pi/2 + r in three parts of pi/2 (Cody and Waite), exact for the arguments
// that occur; lanes beyond take the integer reduction of M. Payne and R. Hanek (SIGNUM Newsletter 18, 1983).
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

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
  const Val upper = to_float(ashr(fraction, 32)) * 0x1p32;
  const Val r = (upper + to_float(fraction & x.b->integer(Lane::kI64, 0xffffffff))) * (kPi / 2 * 0x1p-62);
  const Val high = to_f32(r);
  const Val low = to_f32(r - to_f64(high));
  const Val negative = pattern < 0;
  const Val q = to_i32(quadrant);
  return {select(negative, -q, q), select(negative, -high, high), select(negative, -low, low)};
}

/// The same for float64: 53 bits times 192 bits in pieces of 32, of which the upper 128 bits of the fraction count.
std::vector<Val> payne_hanek_f64(const Val& x) {
  const Val pattern = bits(x);
  const auto whole = [&](int64_t value) { return x.b->integer(Lane::kI64, value); };
  const Val exponent = lshr(pattern, 52) & 2047;
  const Val mantissa = (pattern & whole((int64_t{1} << 52) - 1)) | whole(int64_t{1} << 52);
  const Val first = largest(exponent - 1045.0, like(exponent, 0));
  const Val word = lshr(first, 5);
  const Val shift = first & 31;
  const Val mask = whole(0xffffffff);
  std::vector<Val> a;
  Val window = to_i64_unsigned(x.b->lookup("tatara_two_over_pi", kTwoOverPi, word));
  for (int i = 1; i < 7; ++i) {
    const Val next = to_i64_unsigned(x.b->lookup("tatara_two_over_pi", kTwoOverPi, word + i));
    a.push_back(x.b->binary("lshr", x.b->binary("shl", shl(window, 32) | next, shift), whole(32)));
    window = next;
  }
  const Val low = mantissa & mask;
  const Val high = lshr(mantissa, 32);
  // Column i has weight 2^(32 i); of column 1 only what it carries counts.
  std::vector<Val> columns;
  Val carry = lshr(low * a[4], 32) + lshr(high * a[5], 32);
  for (size_t i = 2; i < 6; ++i) {
    const Val p = low * a[5 - i];
    const Val q = high * a[6 - i];
    const Val sum = (p & mask) + (q & mask) + carry;
    columns.push_back(sum & mask);
    carry = lshr(p, 32) + lshr(q, 32) + lshr(sum, 32);
  }
  const Val top = shl(columns[3], 32) | columns[2];
  const Val quadrant = lshr(top + whole(int64_t{1} << 61), 62);
  const Val fraction = top - shl(quadrant, 62);
  // Four exact pieces of the fraction, summed from the largest down.
  const auto piece = [&](const Val& v, int exponent_of_two) { return to_float(v) * std::ldexp(1.0, exponent_of_two); };
  const Pair s = two_sum(piece(ashr(fraction, 32), -30), piece(fraction & mask, -62));
  const Pair t = two_sum(s.high, piece(columns[1], -94));
  const Pair sum = fast_two_sum(t.high, s.low + t.low + piece(columns[0], -126));
  const Pair product = two_product(sum.high, like(x, kHalfPiF64[0]));
  const Pair r = fast_two_sum(product.high, fma(sum.low, kHalfPiF64[0], fma(sum.high, kHalfPiF64[1], product.low)));
  const Val negative = pattern < 0.0;
  const auto with_sign = [&](const Val& v) { return select(negative, -v, v); };
  return {with_sign(quadrant), with_sign(r.high), with_sign(r.low)};
}

/// Quadrant, r and low for |x| up to 2^17 (float64: 2^30). With FMA the products with k are exact; without it float64 has
/// room for those of float32.
std::vector<Val> cody_waite(const Val& x, bool with_low) {
  const Val k = round_even(x * (2 / kPi));
  const Val quadrant = to_int(k);
  if (!x.b->has_fma() && x.lane == Lane::kF32) {
    const Val wide = to_f64(k);
    const Val r = ((to_f64(x) - wide * kHalfPiShort[0]) - wide * kHalfPiShort[1]) - wide * kHalfPiShort[2];
    const Val high = to_f32(r);
    return {quadrant, high, to_f32(r - to_f64(high))};
  }
  const std::span<const double> half_pi = by_lane(x, kHalfPiF32, kHalfPiF64);
  if (!x.b->has_fma()) {
    const auto less = [&](const Val& from, double part) {
      const Pair product = two_product(k, like(x, part));
      return (from - product.high) - product.low;
    };
    return {quadrant, less(less(less(x, half_pi[0]), half_pi[1]), half_pi[2]), like(x, 0)};
  }
  const Val first = fma(k, -half_pi[0], x);
  if (!with_low) return {quadrant, fma(k, -half_pi[2], fma(k, -half_pi[1], first))};
  const auto [product, error] = two_product(k, like(x, -half_pi[1]));
  const auto [sum, lost] = two_sum(first, product);
  const auto [high, low] = fast_two_sum(sum, fma(k, -half_pi[2], lost + error));
  return {quadrant, high, low};
}

/// Without `with_low`, low is 0 and r is off by up to one unit in its last place.
Angle reduce(const Val& x, bool with_low) {
  std::vector<Val> parts = cody_waite(x, with_low);
  parts.resize(with_low ? 3 : 2, x);
  const bool single = x.lane == Lane::kF32;
  const auto far = [single](const Val& v) { return abs(v) > (single ? 0x1p17 : 0x1p30); };
  parts = x.b->patch_each(x, far, parts,
                          [single](const Val& v) { return single ? payne_hanek_f32(v) : payne_hanek_f64(v); });
  return {parts[0], select(abs(x) == infinity(x), std::nan(""), parts[1]), with_low ? parts[2] : like(x, 0)};
}

/// The sine for even quadrants, the cosine for odd ones.
Val sin_cos(const Val& r, const Val& quadrant) {
  const Val y = select((quadrant & 1) == 0.0, sine_polynomial(r), cosine_polynomial(r));
  return from_bits(bits(y) ^ shl(quadrant & 2, r.lane == Lane::kF32 ? 30 : 62));
}

}  // namespace

Val sine_polynomial(const Val& r) {
  const Val z = r * r;
  return fma(r * z, poly(z, by_lane(z, kSinF32, kSinF64)), r);
}

Val cosine_polynomial(const Val& r) {
  const Val z = r * r;
  return fma(z * z, poly(z, by_lane(z, kCosF32, kCosF64)), fma(z, -0.5, 1.0));
}

Val sin(const Val& x) {
  const Angle angle = reduce(x, false);
  return select(x == 0.0, x, sin_cos(angle.r, angle.quadrant));
}

Val cos(const Val& x) {
  const Angle angle = reduce(x, false);
  return sin_cos(angle.r, angle.quadrant + 1.0);
}

Val tan(const Val& x) {
  const bool single = x.lane == Lane::kF32;
  const auto [quadrant, r, low] = reduce(x, true);
  const Val odd = (quadrant & 1) != 0.0;
  if (!single) {
    // The quotient of sine and cosine, each corrected by the part of r that was rounded off.
    const Val z = r * r;
    const Val sine = fma(r * z, poly(z, kSinF64), low) + r;
    const Val cosine = fma(z * z, poly(z, kCosF64), -(r * low)) + fma(z, -0.5, 1.0);
    return select(x == 0.0, x, select(odd, -cosine, sine) / select(odd, sine, cosine));
  }
  const Val z = r * r;
  const Val tail = r * z * poly(z, kTanF32);
  // The derivative of tan at r, good enough for the part that was rounded off.
  const Val t = r + (tail + fma(low, z, low));
  return select(x == 0.0, x, select(odd, -1.0 / t, t));
}

}  // namespace tatara::codegen
