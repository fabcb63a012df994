#include "codegen/text/small_float.h"

#include <algorithm>
#include <cmath>

namespace tatara::codegen {

namespace {

constexpr SmallFloat kHalf{10, 5, true};
constexpr SmallFloat kBrain{7, 8, true};
constexpr SmallFloat kE4M3FN{3, 4, false};
constexpr SmallFloat kE5M2{2, 5, true};

}  // namespace

const SmallFloat* small_float(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return &kHalf;
    case DType::kBFloat16: return &kBrain;
    case DType::kFloat8E4M3FN: return &kE4M3FN;
    case DType::kFloat8E5M2: return &kE5M2;
    default: return nullptr;  // NOLINT: all others are LLVM's own
  }
}

uint32_t SmallFloat::nan_bits() const {
  const uint32_t all = (1U << (exponent + mantissa)) - 1;
  return infinity && mantissa > 2 ? all & ~((1U << (mantissa - 1)) - 1) : all;
}

uint32_t SmallFloat::overflow_bits() const {
  const int top = (1 << exponent) - (infinity ? 1 : 0) - bias();  // exponent of the first power of two out of range
  if (infinity) return static_cast<uint32_t>(top + 127) << 23;
  // 1.11..1 of the highest exponent is NaN: numbers end at 1.11..10, and halfway to 1.11..11 rounds to even, down.
  const uint32_t all_ones = ((1U << mantissa) - 1) << (23 - mantissa);
  return (static_cast<uint32_t>(top - 1 + 127) << 23) + all_ones;
}

uint32_t SmallFloat::bits_of(double value) const {
  const uint32_t sign = std::signbit(value) ? 1U << (exponent + mantissa) : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return nan_bits();
  if (std::isinf(value)) return sign | (infinity ? infinity_bits() : nan_bits());
  if (magnitude == 0) return sign;
  int power = 0;
  std::frexp(magnitude, &power);
  const int scale = std::max(power - 1, 1 - bias()) - mantissa;
  const double steps = std::nearbyint(std::ldexp(magnitude, -scale));
  const auto bits = static_cast<uint64_t>(steps) + (static_cast<uint64_t>(scale + mantissa + bias() - 1) << mantissa);
  const uint32_t limit = infinity ? infinity_bits() : nan_bits();
  return sign | (bits >= limit ? limit : static_cast<uint32_t>(bits));
}

}  // namespace tatara::codegen
