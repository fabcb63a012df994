// Products as reductions. Those of a matrix with a few rows: what computes the matrix (a dequantisation) is part of the loops. Those of
// matrices that stay in a CPU's cache. The passes `thin_products` and `cpu_products` make them; no program has them.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// All operands are seen with the sizes of what is multiplied: two dims of the result, then those that are summed over.
std::vector<TensorType> thin_meta(MetaContext& m) {
  const TensorType& first = *m.tensor_list(0).at(0);
  if (first.dim() < 3 || m.tensor_list(0).size() != m.tensor_list(1).size()) {
    throw InvalidArgument("thin_product of other operands than pairs of the same sizes");
  }
  return {contiguous_type(m.ctx(), compute_dtype(first.dtype), first.device, {first.sizes[0], first.sizes[1]})};
}

ReductionDef sum_of_products(const LowerContext& c, int64_t first_dim) {
  const DType dtype = c.result().dtype;
  const auto pairs = static_cast<size_t>(c.num_operands()) / 2;
  ReductionDef def;
  for (int64_t d = first_dim; d < c.operand(0).dim(); ++d) def.dims.push_back(d);
  def.dtypes = {dtype};
  def.combine = {loops::Combine::kAdd};
  def.init = [=](LoopBuilder& b) {
    return std::vector{is_complex(dtype) ? b.constant_complex(0, 0, dtype) : b.constant(0, dtype)};
  };
  const auto sum = [=](LoopBuilder& b, std::span<const Expr> at, ScalarId acc) {
    for (size_t i = 0; i < pairs; ++i) {
      const ScalarId row = b.cast(b.load(static_cast<int>(i), at), dtype);
      const ScalarId weight = b.cast(b.load(static_cast<int>(pairs + i), at), dtype);
      if (acc == loops::kNoScalar || is_complex(dtype)) {
        const ScalarId product = b.apply2(ScalarOp::kMul, row, weight);
        acc = acc == loops::kNoScalar ? product : b.apply2(ScalarOp::kAdd, acc, product);
        continue;
      }
      const ScalarId operands[] = {row, weight, acc};
      acc = b.apply(ScalarOp::kFma, dtype, operands);
    }
    return std::vector{acc};
  };
  def.element = [=](LoopBuilder& b, std::span<const Expr> at) { return sum(b, at, loops::kNoScalar); };
  def.fold = [=](LoopBuilder& b, std::span<const ScalarId> acc, std::span<const Expr> at) {
    return sum(b, at, acc[0]);
  };
  for (size_t i = 0; i < pairs; ++i) def.in_memory.push_back(static_cast<int>(i));
  return def;
}

void lower_thin(LowerContext& c) {
  ReductionDef def = sum_of_products(c, 2);
  def.few = static_cast<size_t>(Args(c).integer(2));
  c.reduction(std::move(def));
}

/// [rows, k] and the parts of the weight, each [results, words] or [results, runs, words of a run].
std::vector<TensorType> weighed_meta(MetaContext& m) {
  const TensorType& rows = m.tensor(0);
  const std::vector<const TensorType*> parts = m.tensor_list(1);
  if (rows.dim() != 2 || parts.empty()) throw InvalidArgument("weighed_product of other operands");
  return {contiguous_type(m.ctx(), DType::kFloat32, rows.device, {rows.sizes[0], parts[0]->sizes[0]})};
}

/// Both operands have the sizes of the result and, behind these, that which is summed over.
std::vector<TensorType> loop_meta(MetaContext& m) {
  const TensorType &left = m.tensor(0), &right = m.tensor(1);
  if (left.dim() < 3 || left.sizes != right.sizes) throw InvalidArgument("cpu_product of operands of other sizes");
  return {contiguous_type(m.ctx(), compute_dtype(left.dtype), left.device, {left.sizes.begin(), left.sizes.end() - 1})};
}

void lower_loop(LowerContext& c) {
  const auto rank = static_cast<size_t>(c.operand(0).dim());
  ReductionDef def = sum_of_products(c, static_cast<int64_t>(rank) - 1);
  if (!Args(c).flag(3)) def.in_memory.push_back(1);
  if (Args(c).flag(2)) {
    def.lanes = rank - 2;
    def.beside = rank - 3;
  } else {
    def.few = rank - 3;
  }
  c.reduction(std::move(def));
}

}  // namespace

void register_thin_product(OpRegistry& r) {
  // Of each pair the product is summed; dim `few` of the result is the one of `rows`.
  r.add(make_op({"thin_product", OpKind::kReduction, "(Tensor[] rows, Tensor[] weight, int few) -> Tensor", ""},
                thin_meta, nullptr, lower_thin));
  // The weight is computed by each warp that multiplies it with tensor cores; neighbours in k of a part are `run`.
  r.add(make_op({"weighed_product", OpKind::kIndexing, "(Tensor rows, Tensor[] weight, int run) -> Tensor", ""},
                weighed_meta, nullptr, [](LowerContext& c) { c.weighed_product(); }));
  // [.., rows, columns, summed]: lanes lie along columns, rows beside each other; else lanes lie along what is summed. `computed`: what
  // makes the right matrix is part of the loops.
  r.add(make_op({"cpu_product", OpKind::kReduction,
                 "(Tensor left, Tensor right, bool columns, bool computed=False) -> Tensor", ""},
                loop_meta, nullptr, lower_loop));
}

}  // namespace tatara
