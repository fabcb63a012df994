// Functions that C++ lacks, in long double: references for the tests of the math table.
#pragma once

#include <cmath>
#include <limits>

namespace tatara::reference {

using Real = long double;
inline constexpr Real kPi = 3.14159265358979323846264338327950288L;
inline constexpr Real kSqrt2 = 1.41421356237309504880168872420969808L;

/// Half of erfc(x / sqrt 2)'s logarithm, by the asymptotic series where erfc underflows.
inline Real log_tail(Real x) {
  if (x < 100) return std::log(std::erfc(x / kSqrt2) / 2);
  const Real w = 1 / (x * x);
  return -x * x / 2 - std::log(x * std::sqrt(2 * kPi)) + std::log1p(w * (-1 + w * (3 + w * (-15 + w * 105))));
}

inline Real log_ndtr(Real x) {
  if (std::isinf(x)) return x < 0 ? x : 0;
  return x < -1 ? log_tail(-x) : std::log1p(-std::erfc(x / kSqrt2) / 2);
}

/// Newton's method on the tail's logarithm; in the middle on erf itself.
inline Real ndtri(Real p) {
  if (std::isnan(p) || p < 0 || p > 1) return std::numeric_limits<Real>::quiet_NaN();
  if (p == 0 || p == 1) return p == 0 ? -INFINITY : INFINITY;
  const Real y = p - 0.5L;
  const Real q = y > 0 ? 1 - p : p;
  Real x = std::sqrt(-2 * std::log(q));
  if (std::fabs(y) < 0.3L) {
    x = std::fabs(y) * std::sqrt(2 * kPi);
    for (int i = 0; i < 50; ++i)
      x -= (std::erf(x / kSqrt2) / 2 - std::fabs(y)) * std::sqrt(2 * kPi) * std::exp(x * x / 2);
  } else {
    const Real log_q = std::log(q);
    for (int i = 0; i < 50; ++i) {
      const Real tail = log_tail(x);
      x += (tail - log_q) * std::exp(tail + x * x / 2) * std::sqrt(2 * kPi);
    }
  }
  return std::copysign(x, y);
}

inline Real erfinv(Real x) {
  const Real size = std::fabs(x);
  if (std::isnan(x) || size > 1) return std::numeric_limits<Real>::quiet_NaN();
  if (size == 1) return std::copysign(static_cast<Real>(INFINITY), x);
  // Winitzki's approximation, then Newton's method on the side where erfc keeps its digits.
  const Real logarithm = std::log1p(-size * size);
  const Real term = 2 / (kPi * 0.147L) + logarithm / 2;
  Real y = size < 1e-6L ? size * std::sqrt(kPi) / 2 : std::sqrt(std::sqrt(term * term - logarithm / 0.147L) - term);
  for (int i = 0; i < 6; ++i) {
    const Real error = size < 0.5L ? std::erf(y) - size : (1 - size) - std::erfc(y);
    y -= error * std::sqrt(kPi) / 2 * std::exp(y * y);
  }
  return std::copysign(y, x);
}

inline Real digamma(Real x) {
  if (x == 0) return std::copysign(static_cast<Real>(INFINITY), -x);
  if (std::isinf(x)) return x > 0 ? x : std::numeric_limits<Real>::quiet_NaN();
  if (x < 0) {
    const Real r = x - std::nearbyint(x);
    if (r == 0) return std::numeric_limits<Real>::quiet_NaN();
    return digamma(1 - x) - kPi / std::tan(kPi * r);
  }
  Real sum = 0;
  for (; x < 30; x += 1) sum -= 1 / x;
  const Real w = 1 / (x * x);
  const Real series = w * (1.0L / 12 - w * (1.0L / 120 - w * (1.0L / 252 - w * (1.0L / 240 - w * (1.0L / 132)))));
  return sum + std::log(x) - 1 / (2 * x) - series;
}

/// exp(-|x|) times the modified Bessel function: the power series, or the asymptotic one from 60 on.
inline Real bessel_scaled(int order, Real x) {
  const Real a = std::fabs(x);
  const Real sign = order == 1 && std::signbit(x) ? -1 : 1;
  if (std::isnan(a)) return a;
  if (std::isinf(a)) return sign * 0;
  Real sum = 1;
  Real term = 1;
  if (a < 60) {
    for (int k = 1; k < 300; ++k) sum += term *= a * a / 4 / k / (k + order);
    return sign * sum * (order == 1 ? a / 2 : 1) * std::exp(-a);
  }
  const Real mu = 4 * order * order;
  for (int k = 1; k < 30; ++k) {
    const Real odd = 2 * k - 1;
    sum += term *= -(mu - odd * odd) / (k * 8 * a);
  }
  return sign * sum / std::sqrt(2 * kPi * a);
}

inline Real bessel(int order, Real x) {
  if (std::isinf(x)) return order == 1 ? x : std::fabs(x);
  return bessel_scaled(order, x) * std::exp(std::fabs(x));
}

}  // namespace tatara::reference
