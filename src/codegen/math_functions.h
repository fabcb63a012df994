// The elementary functions over Val, by family, and what they share. Each takes and returns lanes of one floating type
// and is right for all arguments: subnormals, infinities, NaN and signed zeros as in C99's annex F.
#pragma once

#include "codegen/math_builder.h"

namespace tatara::codegen {

inline constexpr double kLn2 = 0.69314718055994530942;
inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kSqrtHalf = 0.70710678118654752440;

Val not_a_number(const Val& x);
Val infinity(const Val& x);

// ---- math_exp_log.cpp
/// 2^n for integer lanes n within the exponents of normal numbers.
Val power_of_two(const Val& n);
/// x * 2^k for integer lanes k, in two steps, so that only the last one may over- or underflow.
Val scale(const Val& x, const Val& k);
Val exp(const Val& x);
Val exp2(const Val& x);
Val expm1(const Val& x);
Val log(const Val& x);
Val log2(const Val& x);
Val log10(const Val& x);
Val log1p(const Val& x);
Val tanh(const Val& x);
Val sigmoid(const Val& x);

// ---- math_trig.cpp
Val sin(const Val& x);
Val cos(const Val& x);
Val tan(const Val& x);

// ---- math_power.cpp
Val pow(const Val& x, const Val& y);

// ---- math_special.cpp
Val erf(const Val& x);

}  // namespace tatara::codegen
