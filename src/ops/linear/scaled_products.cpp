// Products of 8-bit floats with scales: torch's `_scaled_mm`, and the product that a kernel of ours makes of it on GPUs.
#include "ops/core/family_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

bool is_small_float(DType dtype) { return dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2; }

/// What else the host's kernel asks for, it says itself.
std::vector<TensorType> scaled_meta(MetaContext& m) {
  const TensorType &self = m.tensor(0), &mat2 = m.tensor(1);
  if (self.dim() != 2 || mat2.dim() != 2 || !is_small_float(self.dtype) || !is_small_float(mat2.dtype)) {
    throw Unsupported("_scaled_mm of other operands than matrices of 8-bit floats");
  }
  if (!same_size(m.ctx(), self.sizes[1], mat2.sizes[0])) {
    throw InvalidArgument("_scaled_mm: shapes cannot be multiplied");
  }
  const DType dtype = m.dtype(6).value_or(self.dtype);
  return {contiguous_type(m.ctx(), dtype, self.device, {self.sizes[0], mat2.sizes[1]})};
}

/// Arguments of `_scaled_mm_v2`: self, mat2, then of each operand a list of scales, of recipes and of swizzles, bias, type, dims, fast sums.
/// Those that `_scaled_mm` has, too: one scale of each operand (recipe 0), or of rows and of columns (1), on a GPU.
std::vector<TensorType> listed_meta(MetaContext& m) {
  const TensorType &self = m.tensor(0), &mat2 = m.tensor(1);
  const auto is = [&](size_t i, int64_t n) {
    const std::vector<Expr> list = m.ints(i);
    return list.size() == 1 && list[0].is_const(n);
  };
  const auto none = [&](size_t i) { return m.ints(i).empty() || is(i, 0); };
  const std::vector<const TensorType*> left = m.tensor_list(2), right = m.tensor_list(5);
  const bool plain = left.size() == 1 && right.size() == 1 && none(4) && none(7) && m.ints(10).empty();
  const bool alike = (is(3, 0) && is(6, 0)) || (is(3, 1) && is(6, 1));
  const bool on_gpu = self.device.kind == DeviceKind::kCuda && self.dim() == 2 && mat2.dim() == 2;
  if (!plain || !alike || !on_gpu || !is_small_float(self.dtype) || !is_small_float(mat2.dtype) || !m.dtype(9)) {
    throw Unsupported("_scaled_mm_v2 with scales that _scaled_mm does not have");
  }
  const auto fits = [&](const TensorType& scale, Expr rows, Expr columns) {
    if (is(3, 0)) return scale.dim() == 0;
    return scale.dim() == 2 && same_size(m.ctx(), scale.sizes[0], rows) && same_size(m.ctx(), scale.sizes[1], columns);
  };
  const Expr one = m.ctx().constant(1);
  if (!fits(*left[0], self.sizes[0], one) || !fits(*right[0], one, mat2.sizes[1])) {
    throw Unsupported("_scaled_mm_v2 with scales of such sizes");
  }
  if (!same_size(m.ctx(), self.sizes[1], mat2.sizes[0])) throw Unsupported("_scaled_mm_v2 of such sizes");
  return {contiguous_type(m.ctx(), *m.dtype(9), self.device, {self.sizes[0], mat2.sizes[1]})};
}

std::vector<ValueId> listed_product(GraphBuilder& b, std::span<const Arg> args) {
  const auto only = [&](size_t i) { return TensorArg{std::get<TensorList>(args[i]).values.at(0)}; };
  return {b.op("_scaled_mm", {args[0], args[1], only(2), only(5), args[8], NoneArg{}, args[9], args[11]})};
}

std::vector<TensorType> own_scaled_meta(MetaContext& m) {
  return {contiguous_type(m.ctx(), DType::kFloat32, m.tensor_list(0).at(0)->device, m.ints(3))};
}

}  // namespace

void register_scaled_products(OpRegistry& r) {
  OpDef product = make_op({"_scaled_mm", OpKind::kHost,
                           "(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? "
                           "scale_result=None, ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor",
                           "torch._scaled_mm"},
                          scaled_meta);
  product.has_out = false;
  r.add(std::move(product));
  OpDef listed =
      make_op({"_scaled_mm_v2", OpKind::kComposite,
               "(Tensor self, Tensor mat2, Tensor[] scale_a, int[] recipe_a, int[] swizzle_a, Tensor[] scale_b, "
               "int[] recipe_b, int[] swizzle_b, Tensor? bias, ScalarType? out_dtype, int[] contraction_dim=[], "
               "bool use_fast_accum=False) -> Tensor",
               "torch._scaled_mm_v2"},
              listed_meta, listed_product);
  listed.has_out = false;
  listed.vjp = [](VjpContext&) { throw Unsupported("eager has no derivative of _scaled_mm_v2"); };
  r.add(std::move(listed));
  // As matrix_product, of float32; `scales`: of rows and blocks of k, and of blocks of columns and of k (none: they are not part of it).
  r.add(
      make_op({"scaled_product", OpKind::kIndexing,
               "(Tensor[] left, Tensor[] right, Tensor[] scales, SymInt[] size, bool by_blocks, int rows, int columns) "
               "-> Tensor",
               ""},
              own_scaled_meta, nullptr, [](LowerContext& c) { c.product(ProductKind::kScaled); }));
}

}  // namespace tatara
