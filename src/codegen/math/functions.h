// The elementary functions over Val, by family, and what they share. Each takes and returns lanes of one floating type
// and is right for all arguments: subnormals, infinities, NaN and signed zeros as in C99's annex F.
#pragma once

#include "codegen/math/builder.h"

namespace tatara::codegen {

inline constexpr double kLn2 = 0.69314718055994530942;
inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kSqrtHalf = 0.70710678118654752440;

Val not_a_number(const Val& x);
Val infinity(const Val& x);

inline std::span<const double> by_lane(const Val& x, std::span<const double> f32, std::span<const double> f64) {
  return x.lane == Lane::kF32 ? f32 : f64;
}
inline double by_lane(const Val& x, double f32, double f64) { return x.lane == Lane::kF32 ? f32 : f64; }
/// Bounds keep NaN: the comparison is false for it.
inline Val clamp(const Val& x, double low, double high) { return largest(like(x, low), least(like(x, high), x)); }

// ---- exp_log.cpp
/// 2^n for integer lanes n within the exponents of normal numbers.
Val power_of_two(const Val& n);
/// x * 2^k for integer lanes k, in two steps, so that only the last one may over- or underflow.
Val scale(const Val& x, const Val& k);
/// x * 2^(k + shift) for floating lanes k that hold whole numbers.
Val scale_by(const Val& x, const Val& k, int shift = 0);
Val exp(const Val& x);
/// For x <= 0 with an error of at most 2^-22 beside 1.
Val exp_term(const Val& x);
/// exp(x) * 2^shift for x where exp(x) is not far out of range.
Val exp_shifted(const Val& x, int shift);
Val exp2(const Val& x);
Val expm1(const Val& x);
Val log(const Val& x);
Val log2(const Val& x);
Val log10(const Val& x);
Val log1p(const Val& x);
Val sinh(const Val& x);
Val cosh(const Val& x);
Val tanh(const Val& x);
Val sigmoid(const Val& x);

// ---- trig.cpp
Val sin(const Val& x);
Val cos(const Val& x);
Val tan(const Val& x);
/// On [-pi/4, pi/4].
Val sine_polynomial(const Val& r);
Val cosine_polynomial(const Val& r);

// ---- inverse.cpp
Val asin(const Val& x);
Val acos(const Val& x);
Val atan(const Val& x);
Val atan2(const Val& y, const Val& x);
Val asinh(const Val& x);
Val acosh(const Val& x);
Val atanh(const Val& x);

// ---- power.cpp
/// log2 of positive normal float64 numbers to 2^-38, and 2^x to 2^-34 for |x| < 1022: enough for results of float32.
Val log2_low(const Val& x);
Val exp2_low(const Val& x);
/// log2 of finite positive numbers, float64, to about 2^-65.
Pair log2_pair(const Val& x);
Val pow(const Val& x, const Val& y);
/// x to the power n of 64-bit integers, modulo 2^64; n < 0 gives 0 but for x = 1 and -1.
Val integer_pow(const Val& x, const Val& n);
Val hypot(const Val& x, const Val& y);
/// The exact rest of x / y with the sign of x, as in C.
Val fmod(const Val& x, const Val& y);

// ---- special.cpp
Val erf(const Val& x);
Val erfc(const Val& x);
Val erfinv(const Val& x);
Val ndtri(const Val& p);
Val log_ndtr(const Val& x);

// ---- gamma.cpp
Val lgamma(const Val& x);
Val digamma(const Val& x);
/// Modified Bessel functions of the first kind; with e, times exp(-|x|).
Val i0(const Val& x);
Val i0e(const Val& x);
Val i1(const Val& x);
Val i1e(const Val& x);

}  // namespace tatara::codegen
