// Floating formats narrower than float32.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace tatara::codegen {

struct SmallFloat {
  int mantissa;   // bits
  int exponent;   // bits
  bool infinity;  // false: the greatest exponent holds numbers too, and one NaN

  int bias() const { return (1 << (exponent - 1)) - 1; }
  uint32_t infinity_bits() const { return ((1U << exponent) - 1) << mantissa; }
  uint32_t nan_bits() const;
  /// As bits of float32: a magnitude beyond these (with `infinity`: at these or beyond) rounds to none of the finite
  /// numbers.
  uint32_t overflow_bits() const;
  /// The bits of `value` rounded to nearest even.
  uint32_t bits_of(double value) const;
};

/// Null for types that are not narrower than float32, and for integers.
const SmallFloat* small_float(DType dtype);

}  // namespace tatara::codegen
