// Error functions and their kin.
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

namespace tatara::codegen {

Val erf(const Val& x) {
  const Val magnitude = abs(x);
  // x + x * (erf(x) / x - 1): the large term is added last.
  const Val near = fma(x, poly(x * x, kErfNearF32), x);
  // 1 - exp(log(erfc(|x|))); erf is 1 to the last bit from 4 on, and NaN stays.
  const Val far = copysign(1.0 - exp(poly(least(like(x, 4.0), magnitude), kErfFarF32)), x);
  return select(magnitude < 0.875, near, far);
}

}  // namespace tatara::codegen
