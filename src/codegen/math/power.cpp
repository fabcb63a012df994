// Powers, lengths and remainders.
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

namespace tatara::codegen {

Val log2_low(const Val& x) {
  const Val pattern = bits(x);
  const Val e = ashr(pattern - x.b->integer(Lane::kI64, 0x3fe6a09e667f3bcd), 52);
  const Val f = from_bits(pattern - shl(e, 52)) - 1.0;
  return fma(f, poly(f, kLog2LowF64), to_float(e));
}

Val exp2_low(const Val& x) {
  const Val k = round_even(x);
  const Val y = poly(x - k, kExp2LowF64);
  return x.b->can_scale(x.lane) ? scale_by(y, k) : y * power_of_two(to_int(k));
}

/// log2(m * 2^e) = e + s * (2 + 2/3 s^2 + ...) / ln2 with s = (m-1) / (m+1); the first two terms of the series and s itself
/// are sums of two numbers (the double-double arithmetic of T. J. Dekker).
Pair log2_pair(const Val& x) {
  const Val tiny = x < 0x1p-1022;
  const Val pattern = bits(select(tiny, x * 0x1p52, x));
  const Val exponent = ashr(pattern - x.b->integer(Lane::kI64, 0x3fe6a09e667f3bcd), 52);
  const Val f = from_bits(pattern - shl(exponent, 52)) - 1.0;
  const Val e0 = to_float(exponent);
  const Val e = select(tiny, e0 - 52.0, e0);
  const Pair divisor = fast_two_sum(like(f, 2), f);
  const Val s = f / divisor.high;
  const Pair back = two_product(s, divisor.high);
  const Val s_low = (((f - back.high) - back.low) - s * divisor.low) / divisor.high;
  const Pair z = two_product(s, s);
  const Val z_low = fma(s + s, s_low, z.low);
  const auto add = [](std::span<const double> constant, const Val& high, const Val& low) {
    const Pair sum = fast_two_sum(like(high, constant[0]), high);
    return Pair{sum.high, sum.low + (low + constant[1])};
  };
  const auto times = [](const Val& a, const Val& a_low, const Pair& c) {
    const Pair product = two_product(a, c.high);
    return Pair{product.high, product.low + fma(a, c.low, a_low * c.high)};
  };
  const Pair inner = add(kTwoThirdsOverLn2, z.high * poly(z.high, kLog2TailF64), like(f, 0));
  const Pair next = times(z.high, z_low, inner);
  const Pair m = times(s, s_low, add(kTwoOverLn2, next.high, next.low));
  const Pair sum = fast_two_sum(e, m.high);
  return fast_two_sum(sum.high, sum.low + m.low);
}

namespace {

/// The cases of C99's annex F.9.4.4 beside |x|^|y| itself, given y * log2|x|'s power.
Val power_limits(const Val& x, const Val& y, const Val& magnitude) {
  const Val whole = floor(y) == y;
  const Val halved = y * 0.5;
  const Val odd = whole & (floor(halved) != halved);
  const Val sign_x = bits(x) < 0;
  Val r = select(odd & sign_x, -magnitude, magnitude);
  r = select((x < 0.0) & (x > -INFINITY) & !whole, std::nan(""), r);
  const Val size = abs(x);
  const Val one = (y == 0.0) | (x == 1.0) | ((size == 1.0) & (abs(y) == INFINITY));
  return select(one, 1.0, r);
}

}  // namespace

/// 2^(y * log2|x|); for float32 by float64.
Val pow(const Val& x, const Val& y) {
  const Val size = abs(x);
  // The logarithm of 0, infinity and NaN: y decides the rest by its sign.
  const Val usual = (size > 0.0) & (size < INFINITY);
  const Val limits = select(size == 0.0, -INFINITY, size);
  if (x.lane == Lane::kF32) {
    const Val logarithm = log2_low(to_f64(size));
    const Val exponent = to_f64(y) * select(usual, logarithm, to_f64(limits));
    return power_limits(x, y, to_f32(exp2_low(clamp(exponent, -200, 200))));
  }
  const Pair logarithm = log2_pair(size);
  const Pair product = two_product(y, logarithm.high);
  const Val ordinary = usual & (abs(product.high) < 1100.0);
  const Val high = select(usual, product.high, y * limits);
  const Val low = select(ordinary, fma(y, logarithm.low, product.low), 0.0);
  const Val bounded = clamp(high, -1100, 1100);
  const Val k = round_even(bounded);
  const Val r = (bounded - k) + low;
  const Val e = fma(r, poly(r, kExp2F64), 1.0);
  return power_limits(x, y, scale_by(e, k));
}

/// By squaring, as many times as the largest exponent has bits.
Val integer_pow(const Val& x, const Val& n) {
  const Val negative = n < 0.0;
  const Val one = like(x, 1);
  const std::vector<Val> end = x.b->repeat(
      {one, x, select(negative, 0.0, n)}, [](const std::vector<Val>& s) { return s[2] != 0.0; },
      [](const std::vector<Val>& s) {
        const Val result = select((s[2] & 1) != 0.0, s[0] * s[1], s[0]);
        return std::vector<Val>{result, s[1] * s[1], lshr(s[2], 1)};
      });
  const Val unit = select(x == -1.0, select((n & 1) == 0.0, one, -one), select(x == 1.0, one, 0.0));
  return select(negative, unit, end[0]);
}

Val hypot(const Val& x, const Val& y) {
  const Val a = abs(x);
  const Val c = abs(y);
  const Val infinite = (a == INFINITY) | (c == INFINITY);
  if (x.lane == Lane::kF32) {
    const Val p = to_f64(x);
    const Val q = to_f64(y);
    return select(infinite, INFINITY, to_f32(sqrt(fma(p, p, q * q))));
  }
  // The larger one is brought near 1 by a power of two; what underflows then does not count.
  const Val most = select(a > c, a, c);
  const Val fewest = select(a > c, c, a);
  const Val exponent = lshr(bits(most), 52) - 1023.0;
  const Val down = power_of_two(largest(least(-exponent, like(exponent, 1022)), like(exponent, -1022)));
  const Val p = most * down;
  const Val q = fewest * down;
  return select(infinite, INFINITY, sqrt(fma(p, p, q * q)) / down);
}

/// Long division: each round takes 27 bits of the quotient (52 in float64, where that needs FMA), so every product and
/// difference is exact. Most operands need one round.
Val fmod(const Val& x, const Val& y) {
  const bool single = x.lane == Lane::kF32;
  const auto wide = [&](const Val& v) { return single ? to_f64(v) : v; };
  const int step = single ? 27 : 52;
  // Subnormals have no exponent of their own: they are scaled first.
  const auto exponent = [](const Val& v) { return lshr(bits(v), 52); };
  const Val d = wide(abs(y));
  const Val tiny = d < 0x1p-1022;
  const Val normal = single ? d : select(tiny, d * 0x1p52, d);
  const Val scaled_by = select(tiny, d.b->integer(Lane::kI64, single ? 0 : 52), d.b->integer(Lane::kI64, 0));
  const Val d_exponent = exponent(normal) - scaled_by;
  const Val size = wide(abs(x));
  const Val possible = (d > 0.0) & (size < INFINITY);
  const std::vector<Val> end = x.b->repeat(
      {select(possible, size, 0.0)}, [&](const std::vector<Val>& s) { return (s[0] >= d) & possible; },
      [&](const std::vector<Val>& s) {
        const Val& r = s[0];
        const Val gap = exponent(r) - d_exponent - step;
        const Val t = scale(normal, select(gap > 0.0, gap, 0.0) - scaled_by);
        const Val q = trunc(r / t);
        const Val rest = single ? r - q * t : fma(q, -t, r);
        // The rounded quotient may be one too large.
        const Val fixed = select(rest < 0.0, rest + t, rest);
        return std::vector<Val>{select((r >= d) & possible, fixed, r)};
      });
  const Val rest = single ? to_f32(end[0]) : end[0];
  const Val bad = !((abs(y) > 0.0) & (abs(x) < INFINITY));
  return select(bad | is_nan(y), std::nan(""), copysign(rest, x));
}

}  // namespace tatara::codegen
