// Products of 8-bit floats with scales: torch's `_scaled_mm`, and the product that a kernel of ours makes of it on GPUs.
#include "ops/core/family_util.h"
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
  // As matrix_product, of float32; `scales`: of rows and blocks of k, and of blocks of columns and of k (none: they are not part of it).
  r.add(
      make_op({"scaled_product", OpKind::kIndexing,
               "(Tensor[] left, Tensor[] right, Tensor[] scales, SymInt[] size, bool by_blocks, int rows, int columns) "
               "-> Tensor",
               ""},
              own_scaled_meta, nullptr, [](LowerContext& c) { c.product(ProductKind::kScaled); }));
}

}  // namespace tatara
