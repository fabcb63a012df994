// Numbers rounded to the steps of a quantised type, and given back as floats (quantisation-aware training). Steps and zero points are
// Python's numbers or tensors of one element. Gradients go straight through where nothing was cut off.
#include "ops/core/family_util.h"
#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr const char* kByTensors = "fake_quantize_per_tensor_affine.tensor_qparams";
constexpr const char* kMaskByTensors = "fake_quantize_mask.tensor_qparams";
constexpr const char* kByNumbers = "fake_quantize_per_tensor_affine";
constexpr const char* kMaskByNumbers = "fake_quantize_mask";

/// What a call quantises by, in the type of `x`.
struct Steps {
  ValueId x, scale, zero;
  double low, high;
};

void check_element(const TensorType& type, DType dtype) {
  for (const Expr size : type.sizes) {
    if (!size.is_const() || size.const_value() != 1) throw Unsupported("a step or zero point of several elements");
  }
  if (type.dtype != dtype) throw Unsupported("a step or zero point of this type");
}

std::vector<TensorType> checked_type(MetaContext& m, DType dtype) {
  const size_t self[] = {0};
  const DType given = m.tensor(0).dtype;
  if (given != DType::kFloat32 && given != DType::kFloat64) throw Unsupported("fake quantisation of this type");
  const int64_t low = m.integer(3), high = m.integer(4);
  if (low > high) throw InvalidArgument("`quant_min` should be less than or equal to `quant_max`.");
  if (const Args args(m); args.is_tensor(1)) {
    check_element(m.tensor(1), DType::kFloat32);
    check_element(m.tensor(2), DType::kInt32);
  } else if (m.integer(2) < low || m.integer(2) > high) {
    throw InvalidArgument("`zero_point` must be between `quant_min` and `quant_max`.");
  }
  TensorType type = pointwise_type(m, self, dtype == DType::kBool ? dtype : given);
  type.strides = preserved_strides(m, m.tensor(0));
  return {type};
}

Steps steps_of(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const DType dtype = args.type(0).dtype;
  Steps s{args.tensor(0), kNoValue, kNoValue, static_cast<double>(args.integer(3)),
          static_cast<double>(args.integer(4))};
  if (args.is_tensor(1)) {
    s.scale = b.reshape(args.tensor(1), {});
    s.zero = b.cast(b.reshape(args.tensor(2), {}), dtype);
  } else {
    const Device device = args.type(0).device;
    s.scale = b.constant(args.number(1), DType::kFloat32, device);
    s.zero = b.constant(static_cast<double>(args.integer(2)), dtype, device);
  }
  return s;
}

/// The whole number of steps, before it is cut off.
ValueId quantised(GraphBuilder& b, const Steps& s) {
  return b.binary("add", b.unary("round", b.binary("mul", s.x, b.unary("reciprocal", s.scale))), s.zero);
}

Values fake_quantize(GraphBuilder& b, std::span<const Arg> arguments) {
  const Steps s = steps_of(b, arguments);
  const ValueId value = quantised(b, s);
  const TensorType type = b.type(value);
  const ValueId low = b.constant(s.low, type.dtype, type.device), high = b.constant(s.high, type.dtype, type.device);
  // A NaN is cut off below, as eager does.
  const ValueId cut = b.where(b.binary("ge", value, low), b.where(b.binary("gt", value, high), high, value), low);
  // The product is of float32 whatever the operand is.
  return {b.cast(b.binary("mul", b.cast(b.binary("sub", cut, s.zero), DType::kFloat32), s.scale), type.dtype)};
}

/// Where nothing was cut off.
Values fake_quantize_mask(GraphBuilder& b, std::span<const Arg> arguments) {
  const Steps s = steps_of(b, arguments);
  const ValueId value = quantised(b, s);
  return {b.binary("logical_and", b.binary("ge", value, Scalar(s.low)), b.binary("le", value, Scalar(s.high)))};
}

void add_form(OpRegistry& r, const char* name, const char* mask, const char* schema) {
  OpDef def = make_op(
      {name, OpKind::kComposite, schema, "torch.fake_quantize_per_tensor_affine"},
      [](MetaContext& m) { return checked_type(m, DType::kFloat32); }, fake_quantize);
  def.vjp = [mask](VjpContext& v) {
    if (std::holds_alternative<TensorArg>(v.node().args[1]) && v.needs(1)) throw Unsupported("the gradient of a step");
    GraphBuilder& b = v.builder();
    std::vector<Arg> args(v.node().args.begin(), v.node().args.end());
    v.give(0, b.binary("mul", v.grad(), b.op(mask, std::move(args))));
  };
  r.add(std::move(def));
  OpDef of_mask = make_op(
      {mask, OpKind::kComposite, schema, ""}, [](MetaContext& m) { return checked_type(m, DType::kBool); },
      fake_quantize_mask);
  of_mask.not_differentiable = true;
  r.add(std::move(of_mask));
}

}  // namespace

void register_quantize(OpRegistry& r) {
  add_form(r, kByTensors, kMaskByTensors,
           "(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor");
  add_form(r, kByNumbers, kMaskByNumbers,
           "(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> Tensor");
}

}  // namespace tatara
