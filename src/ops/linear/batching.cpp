// Batching of matrix products and attention.
#include "ops/rules/batching_rule.h"

namespace tatara {
namespace {

using namespace ops;

/// matmul broadcasts over leading dimensions and folds them where the other operand has none, as in eager.
// (self, mat2)
bool batch_product(BatchContext& c) {
  c.give(0, c.builder().binary("matmul", c.as_is(0), c.as_is(1)));
  return true;
}

/// An operand of one dimension is a row or a column.
bool batch_mv(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const ValueId column = b.unsqueeze(c.as_is(1), b.type(c.as_is(1)).dim());
  const ValueId result = b.binary("matmul", c.as_is(0), column);
  c.give(0, b.squeeze(result, b.type(result).dim() - 1));
  return true;
}

bool batch_dot(BatchContext& c) {
  GraphBuilder& b = c.builder();
  if (!c.batched(0) || !c.batched(1)) {
    // A matrix by a vector.
    const bool first = c.batched(0);
    c.give(0, b.binary("mv", c.as_is(first ? 0 : 1), c.as_is(first ? 1 : 0)));
    return true;
  }
  const ValueId result = b.binary("bmm", b.unsqueeze(c.as_is(0), 1), b.unsqueeze(c.as_is(1), 2));
  c.give(0, b.reshape(result, {c.size()}));
  return true;
}

bool batch_bmm(BatchContext& c) {
  c.give(0, c.builder().binary("matmul", c.all(0), c.all(1)));
  return true;
}

/// beta * self + alpha * product, of one example.
BatchFn added_product(const char* product) {
  return [product](BatchContext& c) {
    refuse_promotion(c);
    c.give_parts([product](GraphBuilder& b, std::span<const Arg> args) -> std::vector<ValueId> {
      const Args a(b, args);
      const ValueId made = b.binary(product, a.tensor(1), a.tensor(2));
      const auto is_one = [&](size_t i) {
        const Scalar value = a.scalar(i);
        const auto* integer = std::get_if<int64_t>(&value);
        const auto* number = std::get_if<double>(&value);
        return (integer != nullptr && *integer == 1) || (number != nullptr && *number == 1.0);
      };
      ValueId self = a.tensor(0);
      // A factor of zero leaves out what would be NaN.
      const Scalar beta = a.scalar(3);
      const auto* zero = std::get_if<int64_t>(&beta);
      const auto* none = std::get_if<double>(&beta);
      if ((zero != nullptr && *zero == 0) || (none != nullptr && *none == 0.0)) {
        return {is_one(4) ? made : b.op("mul", {TensorArg{made}, args[4]})};
      }
      if (!is_one(3)) self = b.op("mul", {TensorArg{self}, args[3]});
      return {b.op("add", {TensorArg{self}, TensorArg{made}, args[4]})};
    });
    return true;
  };
}

/// Folds the batch into the first dimension of values that have `rank` dimensions an example.
ValueId folded(const BatchContext& c, ValueId x) {
  GraphBuilder& b = c.builder();
  std::vector<Expr> sizes = b.type(x).sizes;
  sizes[1] = sizes[0] * sizes[1];
  sizes.erase(sizes.begin());
  return b.reshape(x, sizes);
}

/// Attention over [N, heads, length, size]: the batch is folded into N.
bool batch_attention(BatchContext& c) {
  GraphBuilder& b = c.builder();
  std::vector<Arg> args = c.node().args;
  const std::string& name = c.node().op->name;
  const size_t mask_at = name == "scaled_dot_product_attention" ? 3 : name.ends_with("backward") ? 8 : 5;
  const size_t dropout_at = name == "scaled_dot_product_attention" ? 4 : name.ends_with("backward") ? 6 : 3;
  if (c.args().number(dropout_at) != 0.0) return false;
  const int64_t rank = c.args().rank(0);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!c.args().is_tensor(i)) continue;
    if (i == mask_at) {
      ValueId mask = c.all(i);
      while (b.type(mask).dim() < rank + 1) mask = b.unsqueeze(mask, 1);
      if (rank == 4) {
        std::vector<Expr> sizes = b.type(mask).sizes;
        sizes[1] = c.args().type(0).sizes[0];
        mask = folded(c, b.expand(mask, sizes));
      }
      args[i] = TensorArg{mask};
      continue;
    }
    if (c.args().rank(i) < 3 && rank == 4) return false;
    args[i] = TensorArg{rank == 4 ? folded(c, c.all(i)) : c.all(i)};
  }
  const std::vector<ValueId> results = b.call(*c.node().op, std::move(args));
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    c.give(i, rank == 4 ? b.reshape(results[i], c.with_batch(c.out_type(i).sizes)) : results[i]);
  }
  return true;
}

}  // namespace

void register_batching_linear(OpRegistry& r) {
  r.amend("mm").batch = batch_product;
  r.amend("bmm").batch = batch_bmm;
  r.amend("mv").batch = batch_mv;
  r.amend("dot").batch = batch_dot;
  r.amend("addmm").batch = added_product("mm");
  r.amend("baddbmm").batch = added_product("bmm");
  for (const char* name : {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
                           "_scaled_dot_product_flash_attention_for_cpu_backward"}) {
    r.amend(name).batch = batch_attention;
  }
}

}  // namespace tatara
