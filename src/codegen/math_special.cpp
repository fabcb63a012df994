// Error functions and their kin.
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

namespace tatara::codegen {

Val erf(const Val& x) {
  const Val size = abs(x);
  // x + x * (erf(x) / x - 1): the large term is added last.
  const Val near = fma(x, poly(x * x, by_lane(x, kErfNearF32, kErfNearF64)), x);
  // 1 - exp(log(erfc(|x|))); erf is 1 to the last bit beyond the bound, and NaN stays.
  const Val bounded = least(like(x, by_lane(x, 4, 6)), size);
  const Val far = copysign(1.0 - exp(poly(bounded, by_lane(x, kErfFarF32, kErfFarF64))), x);
  return select(size < 0.875, near, far);
}

/// exp(-x^2) times a polynomial in (x-2)/(x+2) (the mapping of M. M. Shepherd and J. G. Laframboise, Mathematics of
/// Computation 36, 1981), in float64.
Val erfc(const Val& x) {
  const Val size = to_f64(least(like(x, 10.3), abs(x)));
  const Val t = (size - 2.0) / (size + 2.0);
  const Val tail = poly(t, kErfcLowF64) * exp2_low(size * size * (-1 / kLn2));
  return to_f32(select(to_f64(x) < 0.0, 2.0 - tail, tail));
}

/// Two polynomials over w = -log(1 - x^2), as in M. Giles's "Approximating the erfinv function" (GPU Computing Gems, 2011).
Val erfinv(const Val& x) {
  const Val wide = to_f64(x);
  const Val size = abs(x);
  const Val inside = size < 1.0;
  const Val w = log2_low(select(to_f64(size) < 1.0, fma(wide, -wide, 1.0), 1.0)) * -kLn2;
  const Val ratio = select(w < 5.0, poly(w, kErfinvNear), poly(sqrt(w), kErfinvFar));
  const Val limits = select(size == 1.0, copysign(infinity(x), x), std::nan(""));
  return select(inside, to_f32(wide * ratio), limits);
}

}  // namespace tatara::codegen
