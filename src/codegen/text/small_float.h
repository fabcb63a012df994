// Floating formats narrower than float32.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace tatara::codegen {

struct SmallFloat {
  int mantissa;   // bits
  int exponent;   // bits
  bool infinity;  // false: the largest exponent encodes finite numbers too, except for one NaN pattern

  int bias() const { return (1 << (exponent - 1)) - 1; }
  uint32_t infinity_bits() const { return ((1U << exponent) - 1) << mantissa; }
  uint32_t nan_bits() const;
  /// The float32 bits of the magnitude above which a number overflows; with `infinity`, that magnitude overflows too.
  uint32_t overflow_bits() const;
  /// The bits of `value` rounded to nearest even.
  uint32_t bits_of(double value) const;
};

/// Null for integers and for types as wide as float32 or wider.
const SmallFloat* small_float(DType dtype);

}  // namespace tatara::codegen
