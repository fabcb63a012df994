#include "ops/linear/product_sum.h"

#include "ops/core/op_def.h"

namespace tatara {

std::optional<ProductArgs> product_args(const Node& node) {
  const std::string& name = node.op->name;
  if (name == "mm") return ProductArgs{};
  if (name == "mv") return ProductArgs{.vector = true};
  if (name == "bmm") return ProductArgs{.batched = true};
  if (name == "addmm") return ProductArgs{.left = 1, .added = true};
  if (name == "baddbmm") return ProductArgs{.left = 1, .added = true, .batched = true};
  return std::nullopt;
}

bool is_factor(const Arg& arg, double value) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return false;
  if (const auto* n = std::get_if<int64_t>(scalar)) return static_cast<double>(*n) == value;
  const auto* d = std::get_if<double>(scalar);
  return d != nullptr && *d == value;
}

bool is_plain_sum(const Node& node) { return node.op->name == "add" && is_factor(node.args[2], 1); }

ValueId product_sum(GraphBuilder& b, ValueId product, ValueId self, const Arg& beta, const Arg& alpha) {
  if (!is_factor(alpha, 1)) product = b.op("mul", {TensorArg{product}, alpha});
  if (is_factor(beta, 0)) return product;
  return b.binary("add", product, is_factor(beta, 1) ? self : b.op("mul", {TensorArg{self}, beta}));
}

}  // namespace tatara
