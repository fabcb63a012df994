// What addmm and baddbmm do beside the product.
#pragma once

#include <span>

#include "ops/core/builder.h"

namespace tatara {

/// Whether an argument is this number (an integer or a floating-point number; no bool and no symbol).
bool is_factor(const Arg& arg, double value);

/// beta * self + alpha * product. With beta 0 nothing is added: the host leaves that out, and with it infinities and NaN.
ValueId product_sum(GraphBuilder& b, ValueId product, ValueId self, const Arg& beta, const Arg& alpha);

}  // namespace tatara
