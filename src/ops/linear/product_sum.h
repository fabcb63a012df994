// Products of matrices as the host has them: where their operands are, and what addmm and baddbmm do beside the product.
#pragma once

#include <optional>
#include <span>

#include "ops/core/builder.h"

namespace tatara {

/// A product [batch,] rows x summed by [batch,] summed [x columns].
struct ProductArgs {
  size_t left = 0;     // place of the left operand; the right one follows
  bool added = false;  // something comes first that is added, and factors last
  bool batched = false;
  bool vector = false;  // the right one has no columns
};
/// Nothing where the node is no such product.
std::optional<ProductArgs> product_args(const Node& node);

/// Whether an argument is this number (an integer or a floating-point number; no bool and no symbol).
bool is_factor(const Arg& arg, double value);

/// Whether the node is the sum of its first two arguments.
bool is_plain_sum(const Node& node);

/// beta * self + alpha * product. With beta 0 nothing is added: the host leaves that out, and with it infinities and NaN.
ValueId product_sum(GraphBuilder& b, ValueId product, ValueId self, const Arg& beta, const Arg& alpha);

}  // namespace tatara
