// Products of a matrix with a few rows, as reductions: what computes the matrix (a dequantisation) is part of the loops. The pass
// `thin_products` makes them; no program has them.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

constexpr size_t kMostSums = 2;  // that a result has side by side

/// All operands are seen with the sizes of what is multiplied: two dims of the result, then those that are summed over.
std::vector<TensorType> thin_meta(MetaContext& m) {
  const TensorType& first = *m.tensor_list(0).at(0);
  if (first.dim() < 3 || m.tensor_list(0).size() != m.tensor_list(1).size()) {
    throw InvalidArgument("thin_product of other operands than pairs of the same sizes");
  }
  return {contiguous_type(m.ctx(), compute_dtype(first.dtype), first.device, {first.sizes[0], first.sizes[1]})};
}

void lower_thin(LowerContext& c) {
  const DType dtype = c.result().dtype;
  const auto pairs = static_cast<size_t>(c.num_operands()) / 2;
  const size_t sums = std::min(pairs, kMostSums);
  ReductionDef def;
  for (int64_t d = 2; d < c.operand(0).dim(); ++d) def.dims.push_back(d);
  def.dtypes.assign(sums, dtype);
  def.combine.assign(sums, loops::Combine::kAdd);
  def.init = [=](LoopBuilder& b) { return std::vector<ScalarId>(sums, b.constant(0, dtype)); };
  def.element = [=](LoopBuilder& b, std::span<const Expr> at) {
    std::vector<ScalarId> result;
    for (size_t i = 0; i < pairs; ++i) {
      const ScalarId row = b.cast(b.load(static_cast<int>(i), at), dtype);
      const ScalarId weight = b.cast(b.load(static_cast<int>(pairs + i), at), dtype);
      if (i < sums) {
        result.push_back(b.apply2(ScalarOp::kMul, row, weight));
      } else {
        const ScalarId factors[] = {row, weight, result[i % sums]};
        result[i % sums] = b.apply(ScalarOp::kFma, dtype, factors);
      }
    }
    return result;
  };
  if (sums > 1) {
    def.finish = [=](LoopBuilder& b, std::span<const ScalarId> acc, std::span<const Expr>) {
      return std::vector{b.apply2(ScalarOp::kAdd, acc[0], acc[1])};
    };
  }
  def.few = static_cast<size_t>(Args(c).integer(2));
  for (size_t i = 0; i < pairs; ++i) def.in_memory.push_back(static_cast<int>(i));
  c.reduction(std::move(def));
}

}  // namespace

void register_thin_product(OpRegistry& r) {
  // Of each pair the product is summed; dim `few` of the result is the one of `rows`.
  r.add(make_op({"thin_product", OpKind::kReduction, "(Tensor[] rows, Tensor[] weight, int few) -> Tensor", ""},
                thin_meta, nullptr, lower_thin));
}

}  // namespace tatara
