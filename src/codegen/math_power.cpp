// Powers.
#include <cmath>

#include "codegen/math_coefficients.h"
#include "codegen/math_functions.h"

namespace tatara::codegen {

namespace {

/// log2 of positive normal float64 to 2^-38, and 2^x to 2^-34: enough for results of float32.
Val log2_low(const Val& x) {
  const Val pattern = bits(x);
  const Val e = ashr(pattern - x.b->integer(Lane::kI64, 0x3fe6a09e667f3bcd), 52);
  const Val f = from_bits(pattern - shl(e, 52)) - 1.0;
  return fma(f, poly(f, kLog2LowF64), to_float(e));
}

Val exp2_low(const Val& x) {
  const Val k = round_even(x);
  return poly(x - k, kExp2LowF64) * power_of_two(to_int(k));
}

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

/// 2^(y * log2|x|), in float64 between.
Val pow(const Val& x, const Val& y) {
  const Val size = abs(x);
  const Val logarithm = log2_low(to_f64(size));
  // The logarithm of 0, infinity and NaN: y decides the rest by its sign.
  const Val usual = (size > 0.0) & (size < INFINITY);
  const Val special = select(size == 0.0, -INFINITY, to_f64(size));
  const Val exponent = to_f64(y) * select(usual, logarithm, special);
  const Val bounded = largest(like(exponent, -200.0), least(like(exponent, 200.0), exponent));
  return power_limits(x, y, to_f32(exp2_low(bounded)));
}

}  // namespace tatara::codegen
