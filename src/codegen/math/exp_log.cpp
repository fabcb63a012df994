// Exponentials and logarithms: argument reduction by powers of two and one polynomial (W. J. Cody and W. Waite, Software
// Manual for the Elementary Functions, 1980).
#include <cmath>

#include "codegen/math/coefficients.h"
#include "codegen/math/functions.h"

namespace tatara::codegen {

Val not_a_number(const Val& x) { return like(x, std::nan("")); }
Val infinity(const Val& x) { return like(x, INFINITY); }

Val power_of_two(const Val& n) {
  const bool single = n.lane == Lane::kI32;
  return from_bits(shl(n + (single ? 127.0 : 1023.0), single ? 23 : 52));
}

Val scale(const Val& x, const Val& k) {
  const Val half = ashr(k, 1);
  return x * power_of_two(half) * power_of_two(k - half);
}

Val scale_by(const Val& x, const Val& k, int shift) {
  if (x.b->can_scale(x.lane)) {
    const Val whole = x.b->freeze(x.b->convert("fptosi", shift == 0 ? k : k + shift, Lane::kI32));
    return x.b->ldexp(x, whole);
  }
  const Val whole = to_int(k);
  return scale(x, shift == 0 ? whole : whole + shift);
}

namespace {

std::span<const double> ln2_parts(const Val& x) { return by_lane(x, kLn2F32, kLn2F64); }

}  // namespace

/// 2^(k + shift) * exp(r).
Val exp_shifted(const Val& x, int shift) {
  const auto ln2 = ln2_parts(x);
  const Val k = round_even(x * (1 / kLn2));
  // The first part of ln2 has few enough bits for an exact product.
  const Val r = fma(k, -ln2[1], fma(k, -ln2[0], x));
  const Val e = fma(r * r, poly(r, by_lane(x, kExpF32, kExpF64)), r) + 1.0;
  return scale_by(e, k, shift);
}

namespace {

/// 2^x for x = scaled + more, where `scaled` is nearly x: 2^k by its bits, the rest by the chip, which is small enough for it
/// and, where k is at a bound, takes what exceeds that.
Val power_in_parts(const Val& scaled, const std::function<Val(const Val&)>& less_whole) {
  // Adding this leaves k + 127 in the low bits; no exponent that is reached is beyond those of normal numbers.
  const double magic = 0x1.8p23 + 127;
  const Val shifted = within(scaled, -126, 126) + magic;
  const Val part = scaled.b->power(less_whole(shifted - magic));
  return part * from_bits(shl(bits(shifted), 23));
}

}  // namespace

Val exp(const Val& x) {
  if (x.b->has_power(x.lane)) {
    // Log2 of e as a sum of two numbers.
    const double high = 0x1.715476p0, low = 0x1.4ae0bep-26;
    return power_in_parts(x * high, [&](const Val& k) { return fma(x, low, fma(x, high, -k)); });
  }
  // What rounds to 0 is not computed: products in the subnormal range cost the processor a hundred cycles each, and
  // masked scores are full of them.
  const Val nothing = x < by_lane(x, -103.98, -745.14);
  const Val zero = like(x, 0.0);
  return select(nothing, zero, exp_shifted(least(like(x, by_lane(x, 89, 710)), select(nothing, zero, x)), 0));
}

/// The product with log2 of e is wrong by up to 2^-24 of itself, and so is the result by x * exp(x) * 2^-24, at most 2^-25.
Val exp_term(const Val& x) { return x.b->has_power(x.lane) ? x.b->power(x * (1 / kLn2)) : exp(x); }

Val exp2(const Val& x) {
  if (x.b->has_power(x.lane)) return power_in_parts(x, [&](const Val& k) { return x - k; });
  const Val bounded = clamp(x, by_lane(x, -151, -1076), by_lane(x, 129, 1025));
  const Val k = round_even(bounded);
  const Val r = bounded - k;
  return scale_by(fma(r, poly(r, by_lane(x, kExp2F32, kExp2F64)), 1.0), k);
}

/// 2^k * expm1(r) + (2^k - 1), with the rounding error of r, since that is doubled near 1/2.
Val expm1(const Val& x) {
  const auto ln2 = ln2_parts(x);
  const Val bounded = clamp(x, by_lane(x, -20, -40), by_lane(x, 89, 710));
  const Val k = round_even(bounded * (1 / kLn2));
  const Val first = fma(k, -ln2[0], bounded);
  const Val r = fma(k, -ln2[1], first);
  const Val low = fma(k, -ln2[1], first - r);
  const Val p = fma(r * r, poly(r, by_lane(x, kExpm1F32, kExpm1F64)), low) + r;
  const Val whole = to_int(k);
  const Val half = ashr(whole, 1);
  const Val rest = whole - half;
  const Val top = power_of_two(half);
  const Val y = fma(top, p, top - power_of_two(-rest)) * power_of_two(rest);
  return select(x == 0.0, x, y);
}

namespace {

/// x = 2^e * m with m in [sqrt(1/2), sqrt(2)), for positive normal x.
struct Split {
  Val e;  // integer lanes
  Val m;
};

Split split_exponent(const Val& x) {
  const Val pattern = bits(x);
  const bool single = x.lane == Lane::kF32;
  // Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
  const Val shifted = pattern - x.b->integer(pattern.lane, single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd);
  const Val e = ashr(shifted, single ? 23 : 52);
  return {e, from_bits(pattern - shl(e, single ? 23 : 52))};
}

/// The limits of logarithms: -inf at zero, +inf at infinity, NaN below zero.
Val log_limits(const Val& x, const Val& y) {
  const Val limits = select(x == 0.0, -INFINITY, select(x < 0.0, std::nan(""), x));
  // One test on the common path's result: positive finite numbers are strictly between.
  const Val usual = (x > 0.0) & (x < infinity(x));
  return select(usual, y, limits);
}

struct LogParts {
  Val e;  // floating
  Val f;  // m - 1
};

LogParts split_log(const Val& x) {
  // Subnormals are scaled up first.
  const Val tiny = x < by_lane(x, 0x1p-126, 0x1p-1022);
  const double bits = by_lane(x, 23, 52);
  const Split parts = split_exponent(select(tiny, x * std::exp2(bits), x));
  const Val e = to_float(parts.e);
  return {select(tiny, e - bits, e), parts.m - 1.0};
}

/// log(1 + f) + e * ln2. In float64 by the odd series in s = f / (2 + f), written so that f itself is added last, as P. T. P.
/// Tang does (Table-driven implementation of the logarithm function, ACM TOMS 16, 1990).
Val log_sum(const Val& e, const Val& f) {
  const Val square = f * f;
  if (f.lane == Lane::kF32) {
    Val y = square * f * poly(f, kLogF32);
    y = fma(e, kLn2F32[1], y);
    y = fma(square, -0.5, y) + f;
    return fma(e, kLn2F32[0], y);
  }
  const Val s = f / (f + 2.0);
  const Val z = s * s;
  const Val half = square * 0.5;
  const Val rest = fma(s, half + z * poly(z, kLogF64), e * kLn2F64[1]);
  return fma(e, kLn2F64[0], f - (half - rest));
}

}  // namespace

Val log(const Val& x) {
  const auto [e, f] = split_log(x);
  return log_limits(x, log_sum(e, f));
}

Val log2(const Val& x) {
  if (x.lane == Lane::kF64) {
    const auto [e, f] = split_log(x);
    return log_limits(x, fma(log_sum(like(f, 0), f), 1 / kLn2, e));
  }
  const auto [e, f] = split_log(x);
  return log_limits(x, fma(f, 1.44269502, f * poly(f, kLog2F32)) + e);
}

Val log10(const Val& x) {
  if (x.lane == Lane::kF64) {
    const Pair sum = log2_pair(x);
    const Pair product = two_product(sum.high, like(x, kLog10Of2F64[0]));
    const Val low = fma(sum.low, kLog10Of2F64[0], fma(sum.high, kLog10Of2F64[1], product.low));
    return log_limits(x, product.high + low);
  }
  const auto [e, f] = split_log(x);
  const Val y = fma(f, 0.434294492, fma(e, kLog10Of2F32[1], f * poly(f, kLog10F32)));
  return log_limits(x, fma(e, kLog10Of2F32[0], y));
}

/// 1 + x = u + c exactly; the correction c joins the mantissa's offset.
Val log1p(const Val& x) {
  const auto [u, c] = two_sum(like(x, 1.0), x);
  const Split parts = split_exponent(u);
  // Where 2^-e does not exist the correction is 0 anyway.
  const double most = by_lane(x, 126, 1022);
  const Val f = fma(c, power_of_two(-least(parts.e, like(parts.e, most))), parts.m - 1.0);
  const Val y = log_sum(to_float(parts.e), f);
  const Val limits = select(x == -1.0, -INFINITY, select(x < -1.0, std::nan(""), x));
  const Val usual = (x > -1.0) & (x < infinity(x)) & (x != 0.0);
  return select(usual, y, limits);
}

Val sinh(const Val& x) {
  const Val size = abs(x);
  const Val square = x * x;
  const Val small = fma(size, square * poly(square, by_lane(x, kSinhF32, kSinhF64)), size);
  const Val half = exp_shifted(least(like(x, by_lane(x, 91, 712)), size), -1);
  return copysign(select(size < 1.0, small, half - 0.25 / half), x);
}

Val cosh(const Val& x) {
  const Val half = exp_shifted(least(like(x, by_lane(x, 91, 712)), abs(x)), -1);
  return half + 0.25 / half;
}

Val tanh(const Val& x) {
  const Val size = abs(x);
  const Val square = x * x;
  const Val small = fma(size, square * poly(square, by_lane(x, kTanhF32, kTanhF64)), size);
  // 1 - 2 / (exp(2|x|) + 1), whose fraction is below a half: that of a GPU need not be rounded correctly.
  const bool power = x.b->has_power(x.lane);
  const Val large =
      power ? 1.0 - 2.0 * x.b->reciprocal(x.b->power(size * (2 / kLn2)) + 1.0) : 1.0 - 2.0 / (exp(size + size) + 1.0);
  return copysign(select(size < 0.625, small, large), x);
}

Val sigmoid(const Val& x) { return 1.0 / (exp(-x) + 1.0); }

}  // namespace tatara::codegen
