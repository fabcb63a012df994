// Exponentials and logarithms: argument reduction by powers of two and one polynomial (W. J. Cody and W. Waite, Software
// Manual for the Elementary Functions, 1980).
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

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

namespace {

/// Bounds keep NaN: the comparison is false for it.
Val clamp(const Val& x, double low, double high) { return largest(like(x, low), least(like(x, high), x)); }

/// x = k * ln2 + r + low with |r| <= ln2 / 2; the parts of ln2 have few enough bits that k times the first is exact.
struct Reduced {
  Val k;
  Val r;
};

Reduced reduce_ln2(const Val& x) {
  const Val k = round_even(x * (1 / kLn2));
  return {k, fma(k, -kLn2F32[1], fma(k, -kLn2F32[0], x))};
}

}  // namespace

/// exp(x) = 2^k * exp(r).
Val exp(const Val& x) {
  const auto [k, r] = reduce_ln2(clamp(x, -104.5, 89.0));
  const Val e = fma(r * r, poly(r, kExpF32), r) + 1.0;
  return scale(e, to_int(k));
}

Val exp2(const Val& x) {
  const Val bounded = clamp(x, -151.0, 129.0);
  const Val k = round_even(bounded);
  const Val r = bounded - k;
  return scale(fma(r, poly(r, kExp2F32), 1.0), to_int(k));
}

/// 2^k * expm1(r) + (2^k - 1), with the rounding error of r, since that is doubled near 1/2.
Val expm1(const Val& x) {
  const Val bounded = clamp(x, -20.0, 89.0);
  const Val k = round_even(bounded * (1 / kLn2));
  const Val first = fma(k, -kLn2F32[0], bounded);
  const Val r = fma(k, -kLn2F32[1], first);
  const Val low = fma(k, -kLn2F32[1], first - r);
  const Val p = fma(r * r, poly(r, kExpm1F32), low) + r;
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
  // Subnormals are scaled up by 2^23 first.
  const Val tiny = x < 1.17549435e-38;
  const Split parts = split_exponent(select(tiny, x * 8388608.0, x));
  const Val e = to_float(parts.e);
  return {select(tiny, e - 23.0, e), parts.m - 1.0};
}

/// log(1 + f) + e * ln2.
Val log_sum(const Val& e, const Val& f) {
  const Val square = f * f;
  Val y = square * f * poly(f, kLogF32);
  y = fma(e, kLn2F32[1], y);
  y = fma(square, -0.5, y) + f;
  return fma(e, kLn2F32[0], y);
}

}  // namespace

Val log(const Val& x) {
  const auto [e, f] = split_log(x);
  return log_limits(x, log_sum(e, f));
}

Val log2(const Val& x) {
  const auto [e, f] = split_log(x);
  return log_limits(x, fma(f, 1.44269502, f * poly(f, kLog2F32)) + e);
}

Val log10(const Val& x) {
  const auto [e, f] = split_log(x);
  const Val y = fma(f, 0.434294492, fma(e, kLog10Of2F32[1], f * poly(f, kLog10F32)));
  return log_limits(x, fma(e, kLog10Of2F32[0], y));
}

/// 1 + x = u + c exactly; the correction c joins the mantissa's offset.
Val log1p(const Val& x) {
  const auto [u, c] = two_sum(like(x, 1.0), x);
  const Split parts = split_exponent(u);
  // 2^-e exists for all finite u: e is 0 at least for u > 1, and u is no less than 2^-24 else.
  const Val f = fma(c, power_of_two(-largest(least(parts.e, like(parts.e, 126)), like(parts.e, -126))), parts.m - 1.0);
  const Val y = log_sum(to_float(parts.e), f);
  const Val limits = select(x == -1.0, -INFINITY, select(x < -1.0, std::nan(""), x));
  const Val usual = (x > -1.0) & (x < infinity(x)) & (x != 0.0);
  return select(usual, y, limits);
}

Val tanh(const Val& x) {
  const Val magnitude = abs(x);
  const Val square = x * x;
  const Val small = fma(magnitude, square * poly(square, kTanhF32), magnitude);
  // 1 - 2 / (exp(2|x|) + 1)
  const Val large = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
  return copysign(select(magnitude < 0.625, small, large), x);
}

Val sigmoid(const Val& x) { return 1.0 / (exp(-x) + 1.0); }

}  // namespace tatara::codegen
