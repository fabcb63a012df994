// Products with matrices of int8, as eager has them for quantised weights: a product of numbers that are as wide as eager's sums. With few
// rows it becomes a reduction, whose loops widen the weight (thin_products); else a product of the host's, whose kernels for int8 are slow.
#include "ops/core/family_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr int64_t kMostSummed = 1 << 16;  // products of int8, which an int32 holds for sure

void need(bool fits, const char* what) {
  if (!fits) throw Unsupported(what);
}

bool is_small_matrix_type(const TensorType& type) { return type.dtype == DType::kInt8 && type.dim() == 2; }

/// (self, mat2, scales): rows of float numbers with an int8 matrix [results, summed], each result by its scale.
std::vector<TensorType> weight_meta(MetaContext& m) {
  const TensorType &x = m.tensor(0), &w = m.tensor(1), &scales = m.tensor(2);
  need(x.device.kind == DeviceKind::kCpu, "a product with int8 weights elsewhere than on a CPU");
  need(x.dtype == DType::kFloat32 || is_low_precision(x.dtype), "a product of this type with int8 weights");
  need(x.dim() == 2 && is_small_matrix_type(w) && scales.dim() == 1 && scales.dtype == x.dtype,
       "a product of these types with int8 weights");
  need(x.strides[1].is_const(1) && is_contiguous(m.ctx(), w), "a product with int8 weights that lie otherwise");
  need(same_size(m.ctx(), x.sizes[1], w.sizes[1]) && same_size(m.ctx(), w.sizes[0], scales.sizes[0]),
       "a product of these sizes with int8 weights");
  return {contiguous_type(m.ctx(), x.dtype, x.device, {x.sizes[0], w.sizes[0]})};
}

/// Eager's kernel sums in float32 and rounds once, behind the scale.
Values weight_product(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const DType wide = DType::kFloat32;
  const ValueId w = b.permute(b.cast(args.tensor(1), wide), {1, 0});
  const ValueId sums = b.binary("mm", b.cast(args.tensor(0), wide), w);
  return {b.cast(b.binary("mul", sums, b.cast(args.tensor(2), wide)), args.type(0).dtype)};
}

std::vector<TensorType> int_meta(MetaContext& m) {
  const TensorType &x = m.tensor(0), &w = m.tensor(1);
  need(x.device.kind == DeviceKind::kCpu, "a product of int8 elsewhere than on a CPU");
  need(is_small_matrix_type(x) && is_small_matrix_type(w) && same_size(m.ctx(), x.sizes[1], w.sizes[0]),
       "a product of these types and sizes as int32");
  need(m.ctx().range(x.sizes[1]).hi <= kMostSummed, "a product of int8 with long sums");
  return {contiguous_type(m.ctx(), DType::kInt32, x.device, {x.sizes[0], w.sizes[1]})};
}

/// Of float32, bfloat16 or int8, as float32: cpu_products makes it, no program has it.
std::vector<TensorType> wide_meta(MetaContext& m) {
  const TensorType &left = m.tensor(0), &right = m.tensor(1);
  if (left.dim() != 2 || right.dim() != 2 || !same_size(m.ctx(), left.sizes[1], right.sizes[0]))
    throw InvalidArgument("wide_mm of these sizes");
  return {contiguous_type(m.ctx(), DType::kFloat32, left.device, {left.sizes[0], right.sizes[1]})};
}

/// Exact: sums are integers below 2^53.
Values int_product(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const DType wide = DType::kFloat64;
  return {b.cast(b.binary("mm", b.cast(args.tensor(0), wide), b.cast(args.tensor(1), wide)), DType::kInt32)};
}

}  // namespace

void register_integer_products(OpRegistry& r) {
  OpDef weights = make_op({"_weight_int8pack_mm", OpKind::kComposite,
                           "(Tensor self, Tensor mat2, Tensor scales) -> Tensor", "torch._weight_int8pack_mm"},
                          weight_meta, weight_product);
  weights.vjp = [](VjpContext&) { throw Unsupported("eager has no derivative of _weight_int8pack_mm"); };
  r.add(std::move(weights));
  OpDef product = make_op({"_int_mm", OpKind::kComposite, "(Tensor self, Tensor mat2) -> Tensor", "torch._int_mm"},
                          int_meta, int_product);
  product.not_differentiable = true;
  r.add(std::move(product));
  OpDef wide = make_op({"wide_mm", OpKind::kHost, "(Tensor self, Tensor mat2) -> Tensor", ""}, wide_meta);
  wide.host_name = "tatara::wide_mm";
  wide.host_overload = "out";
  r.add(std::move(wide));
}

}  // namespace tatara
