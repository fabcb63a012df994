#include "ops/core/pointwise_util.h"

#include <algorithm>
#include <memory>

#include "support/error.h"

namespace tatara::ops {

namespace {
// torch.get_default_dtype() matters only while types are inferred; what was inferred then is the result's dtype.
DType floating(DType dtype, DType default_dtype) {
  return is_floating(dtype) || is_complex(dtype) ? dtype : default_dtype;
}
}  // namespace

DType promoted(MetaContext& m, std::span<const size_t> operands, Promotion promotion) {
  const DType dtype = m.result_type(operands);
  switch (promotion) {
    case Promotion::kSame: return dtype;
    case Promotion::kIntToFloat: return floating(dtype, m.default_dtype());
    case Promotion::kBool: return DType::kBool;
  }
  return dtype;
}

TensorType pointwise_type(MetaContext& m, std::span<const size_t> operands, DType dtype, Numbers numbers_are) {
  std::vector<const std::vector<Expr>*> shapes;
  std::vector<const TensorType*> types;
  bool numbers = false;
  const auto is_tensor = [&m](size_t i) { return m.is_tensor(i) && !m.tensor(i).is_wrapped_number; };
  const bool tensors = std::any_of(operands.begin(), operands.end(), is_tensor);
  for (const size_t i : operands) {
    // A number that varies is one among tensors.
    if (!m.is_tensor(i) || (tensors && !is_tensor(i))) {
      numbers = numbers || !m.is_none(i);
      continue;
    }
    types.push_back(&m.tensor(i));
    shapes.push_back(&m.tensor(i).sizes);
  }
  if (types.empty()) throw InternalError(m.op().name + ": no tensor operand");
  TensorType result;
  result.dtype = dtype;
  result.device = types.front()->device;
  for (const TensorType* type : types) {
    if (type->dim() > 0) result.device = type->device;
  }
  result.sizes = m.broadcast(shapes);
  if (numbers && numbers_are == Numbers::kTensors) types.push_back(nullptr);
  result.strides = m.iterator_strides(result.sizes, types);
  return result;
}

std::vector<Expr> preserved_strides(MetaContext& m, const TensorType& self) {
  const TensorType* one[] = {&self};
  return is_dense(m.ctx(), self) ? self.strides : m.iterator_strides(self.sizes, one);
}

MetaFn pointwise_meta(std::vector<size_t> operands, Promotion promotion) {
  return [operands = std::move(operands), promotion](MetaContext& m) -> std::vector<TensorType> {
    return {pointwise_type(m, operands, promoted(m, operands, promotion))};
  };
}

ScalarId number_as(LoopBuilder& b, const Scalar& value, DType dtype) {
  if (const auto* e = std::get_if<Expr>(&value)) return b.index_value(*e, dtype);
  if (const auto* c = std::get_if<std::complex<double>>(&value)) {
    if (is_complex(dtype)) return b.constant_complex(c->real(), c->imag(), dtype);
    if (dtype == DType::kBool) return b.constant_int(*c != 0.0 ? 1 : 0, dtype);
    return b.constant(c->real(), dtype);
  }
  if (is_complex(dtype)) {
    const double re = std::holds_alternative<double>(value)    ? std::get<double>(value)
                      : std::holds_alternative<int64_t>(value) ? static_cast<double>(std::get<int64_t>(value))
                                                               : (std::get<bool>(value) ? 1.0 : 0.0);
    return b.constant_complex(re, 0, dtype);
  }
  if (const auto* d = std::get_if<double>(&value)) {
    if (is_floating(dtype)) return b.constant(*d, dtype);
    return b.constant_int(dtype == DType::kBool ? (*d != 0 ? 1 : 0) : static_cast<int64_t>(*d), dtype);
  }
  const int64_t n = std::holds_alternative<int64_t>(value) ? std::get<int64_t>(value) : (std::get<bool>(value) ? 1 : 0);
  if (is_floating(dtype)) return b.constant(static_cast<double>(n), dtype);
  return b.constant_int(dtype == DType::kBool ? (n != 0 ? 1 : 0) : n, dtype);
}

ScalarId operand_at(LowerContext& ctx, LoopBuilder& b, size_t arg, DType dtype, std::span<const Expr> indices) {
  const int operand = ctx.operand_number(arg);
  if (operand < 0) {
    const auto* const scalar = std::get_if<Scalar>(&ctx.node().args[arg]);
    if (scalar == nullptr) throw InternalError(ctx.node().op->name + ": operand is no tensor");
    return number_as(b, *scalar, dtype);
  }
  const std::vector<Expr> at = broadcast_indices(ctx.ctx(), indices, ctx.operand(operand).sizes);
  return b.cast(b.load(operand, at), dtype);
}

ScalarId converted_at(LowerContext& ctx, LoopBuilder& b, size_t arg, DType common, bool kept,
                      std::span<const Expr> indices) {
  const DType dtype = compute_dtype(common);
  const ScalarId value = operand_at(ctx, b, arg, dtype, indices);
  if (dtype == common) return value;
  const int operand = ctx.operand_number(arg);
  const TensorType* const type = operand < 0 ? nullptr : &ctx.operand(operand);
  if (type != nullptr && type->dtype == common) return value;
  const auto is_one = [](Expr size) { return size.is_const() && size.const_value() == 1; };
  const bool number = type == nullptr || type->is_wrapped_number;
  const bool single =
      number || (type->device.kind == DeviceKind::kCpu && std::all_of(type->sizes.begin(), type->sizes.end(), is_one));
  // Kernels of GPUs read what is one number of the CPU as it is.
  if (single && (kept || ctx.result().device.kind != DeviceKind::kCpu)) return value;
  return b.cast(b.cast(value, common), dtype);
}

DType common_dtype(const LowerContext& ctx, std::span<const size_t> operands, Promotion promotion) {
  const MetaContext meta(ctx.graph(), *ctx.node().op, ctx.node().args, DType::kFloat32);
  const DType dtype = meta.result_type(operands);
  return promotion == Promotion::kIntToFloat ? floating(dtype, ctx.result().dtype) : dtype;
}

namespace {
/// Of an operator: what its nodes' element functions share.
struct Pointwise {
  std::vector<size_t> operands;
  Promotion promotion;
  PointwiseBody body;
  Keeps keeps;

  ScalarId element(LowerContext& ctx, LoopBuilder& b, std::span<const Expr> indices) const {
    // Computed in the result's own type where that is the promoted one, so that inference and lowering cannot disagree.
    const DType common = promotion == Promotion::kBool ? common_dtype(ctx, operands, promotion) : ctx.result().dtype;
    std::vector<ScalarId> scalars;
    for (const size_t i : operands) {
      const int tensor = ctx.operand_number(i);
      const bool number = tensor < 0 || ctx.operand(tensor).is_wrapped_number;
      const bool kept = (keeps != Keeps::kNone && i == operands.back()) || (keeps == Keeps::kLastAndNumbers && number);
      scalars.push_back(converted_at(ctx, b, i, common, kept, indices));
    }
    return body(b, compute_dtype(common), scalars);
  }
};
}  // namespace

LowerFn pointwise_lower(std::vector<size_t> operands, Promotion promotion, PointwiseBody body, Keeps keeps) {
  const auto shared =
      std::make_shared<const Pointwise>(Pointwise{std::move(operands), promotion, std::move(body), keeps});
  return [shared](LowerContext& ctx) {
    // The operator outlives its nodes, and two pointers need no memory of their own.
    const Pointwise* const op = shared.get();
    ctx.pointwise(0,
                  [&ctx, op](LoopBuilder& b, std::span<const Expr> indices) { return op->element(ctx, b, indices); });
  };
}

}  // namespace tatara::ops
