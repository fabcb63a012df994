#include "ops/linear/product_sum.h"

namespace tatara {

bool is_factor(const Arg& arg, double value) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return false;
  if (const auto* n = std::get_if<int64_t>(scalar)) return static_cast<double>(*n) == value;
  const auto* d = std::get_if<double>(scalar);
  return d != nullptr && *d == value;
}

ValueId product_sum(GraphBuilder& b, ValueId product, ValueId self, const Arg& beta, const Arg& alpha) {
  if (!is_factor(alpha, 1)) product = b.op("mul", {TensorArg{product}, alpha});
  if (is_factor(beta, 0)) return product;
  return b.binary("add", product, is_factor(beta, 1) ? self : b.op("mul", {TensorArg{self}, beta}));
}

}  // namespace tatara
