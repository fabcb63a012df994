// What integers a kernel computes at most, for targets on which 64 bits cost more than 32.
#pragma once

#include <vector>

#include "loops/kernel.h"

namespace tatara::codegen {

/// Per scalar: bounds of an int64, from the ranges of index symbols through sums, products, minima and selections. Without bounds, all.
std::vector<IntRange> scalar_ranges(const loops::Kernel& kernel);

/// Whether all of it fits into 32 bits.
inline bool is_narrow(const IntRange& range) { return range.lo >= INT32_MIN && range.hi <= INT32_MAX; }

}  // namespace tatara::codegen
