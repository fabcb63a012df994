// Losses, written with other operators as eager composes them (each rounds where eager's parts round).
#include <limits>
#include <numbers>

#include "ops/reduce/loss_util.h"
#include "ops/rules/derivative.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr double kLeast = 1e-30;  // of what has to be more than zero

DType common_dtype(GraphBuilder& b, const Args& args) {
  const DType dtype = promote_types(args.type(0).dtype, args.type(1).dtype);
  if (!is_floating(dtype)) throw InvalidArgument("this loss needs floating-point input");
  static_cast<void>(b);
  return dtype;
}

/// An elementwise loss of (input, target) computed in the compute dtype and rounded once, then reduced.
using ElementLoss = ValueId (*)(GraphBuilder&, ValueId difference, const Quantity& parameter);

ValueId square(GraphBuilder& b, ValueId d, const Quantity&) { return b.binary("mul", d, d); }

/// Where `far` holds no square is taken: its derivative there must be zero, not infinity times zero.
ValueId unless(GraphBuilder& b, ValueId far, ValueId z) {
  return b.op("where", {TensorArg{far}, Scalar(0.0), TensorArg{z}});
}

ValueId smooth_l1(GraphBuilder& b, ValueId d, const Quantity& beta) {
  const ValueId z = b.unary("abs", d);
  if (beta.is(0)) return z;
  const ValueId far = with_number(b, "ge", z, beta), near = unless(b, far, z);
  const ValueId inner = with_number(b, "div", b.binary("mul", b.binary("mul", near, Scalar(0.5)), near), beta);
  return b.where(far, with_number(b, "sub", z, 0.5 * beta), inner);
}

ValueId huber(GraphBuilder& b, ValueId d, const Quantity& delta) {
  const ValueId z = b.unary("abs", d);
  const bool single = b.type(z).dtype != DType::kFloat64;
  const double largest = single ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  if (!delta.varies() && delta.fixed() > largest) return b.binary("mul", b.binary("mul", z, Scalar(0.5)), z);
  const ValueId far = with_number(b, "gt", z, delta), near = unless(b, far, z);
  const ValueId inner = b.binary("mul", b.binary("mul", near, Scalar(0.5)), near);
  const ValueId outer = with_number(b, "mul", with_number(b, "sub", z, 0.5 * delta), delta);
  return b.where(far, outer, inner);
}

/// Eager's is made of these operators, of any dtypes.
Values decompose_l1(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {reduced(b, b.unary("abs", b.binary("sub", args.tensor(0), args.tensor(1))), args.integer(2))};
}

DecomposeFn difference_loss(ElementLoss element) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const DType dtype = common_dtype(b, args);
    if (args.type(0).dtype != args.type(1).dtype) throw Unsupported("a loss of several dtypes");
    const DType wide = compute_dtype(dtype);
    const ValueId d = b.binary("sub", b.cast(args.tensor(0), wide), b.cast(args.tensor(1), wide));
    const Quantity parameter = args.size() > 3 ? args.quantity(3) : Quantity(0.0);
    if (!parameter.varies() && !(parameter.fixed() >= 0)) throw InvalidArgument("negative parameter of a loss");
    return {reduced(b, b.cast(element(b, d, parameter), dtype), args.integer(2))};
  };
}

Values decompose_bce_with_logits(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, target, weight, pos_weight, reduction)
  const Args args(b, arguments);
  const ValueId x = args.tensor(0);
  const ValueId target = args.tensor(1);
  common_dtype(b, args);
  for (size_t i = 1; i < 4; ++i) {
    if (!args.none(i) && args.type(i).dtype != args.type(0).dtype) throw Unsupported("a loss of several dtypes");
  }
  const ValueId log_sigmoid = b.unary("log_sigmoid", x);
  const ValueId rest = b.binary("mul", b.op("rsub", {TensorArg{target}, Scalar(int64_t{1})}), x);
  ValueId loss = kNoValue;
  if (args.none(3)) {
    loss = b.binary("sub", rest, log_sigmoid);
  } else {
    const ValueId scaled = b.binary("mul", b.binary("sub", args.tensor(3), Scalar(int64_t{1})), target);
    loss = b.binary("sub", rest, b.binary("mul", b.binary("add", scaled, Scalar(int64_t{1})), log_sigmoid));
  }
  if (!args.none(2)) loss = b.binary("mul", loss, args.tensor(2));
  return {reduced(b, loss, args.integer(4))};
}

Values decompose_kl_div(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId x = args.tensor(0);
  const ValueId target = args.tensor(1);
  common_dtype(b, args);
  ValueId loss = kNoValue;
  if (args.flag(3)) {
    loss = b.binary("mul", b.unary("exp", target), b.binary("sub", target, x));
  } else {
    loss = b.binary("sub", b.binary("xlogy", target, target), b.binary("mul", target, x));
  }
  return {reduced(b, loss, args.integer(2))};
}

// ---- Classification --------------------------------------------------------------------------------------------------

struct Picked {
  ValueId loss;    // -input[target] (times weight), zero where ignored; shape of target
  ValueId weight;  // weight of each target, zero where ignored
};

/// Picks along dimension 1 (or 0 of a vector). Everything in the compute dtype.
Picked pick(GraphBuilder& b, ValueId input, ValueId target, ValueId weight, int64_t ignore_index) {
  const int64_t dim = b.type(input).dim() == 1 ? 0 : 1;
  const DType dtype = b.type(input).dtype;
  const Device device = b.type(input).device;
  const ValueId valid = b.binary("ne", target, Scalar(ignore_index));
  const ValueId zero_index = b.constant(0, b.type(target).dtype, device);
  const ValueId index = b.where(valid, target, zero_index);
  const ValueId lookup = b.cast(index, DType::kInt64);
  const ValueId column = b.unsqueeze(lookup, dim);
  const ValueId taken = b.squeeze(b.op("gather", {TensorArg{input}, int_arg(dim), TensorArg{column}}), dim);
  ValueId share = b.cast(valid, dtype);
  ValueId loss = b.unary("neg", taken);
  const ValueId zero = b.constant(0, dtype, device);
  if (weight != kNoValue) {
    const ValueId flat = b.op("take", {TensorArg{b.cast(weight, dtype)}, TensorArg{lookup}});
    loss = b.binary("mul", loss, flat);
    share = b.where(valid, flat, zero);
  }
  return {b.where(valid, loss, zero), share};
}

ValueId nll(GraphBuilder& b, ValueId self, ValueId target, ValueId weight, int64_t reduction, int64_t ignore_index) {
  const TensorType& type = b.type(self);
  if (!is_floating(type.dtype)) throw InvalidArgument("nll_loss needs floating-point input");
  if (is_floating(b.type(target).dtype)) throw InvalidArgument("expected scalar type Long");
  if (type.dim() == 0 || b.type(target).dim() != std::max<int64_t>(type.dim() - 1, 0)) {
    throw InvalidArgument("nll_loss: input and target do not match in rank");
  }
  std::vector<Expr> expected = type.sizes;
  expected.erase(expected.begin() + (type.dim() == 1 ? 0 : 1));
  if (!same_sizes(b.ctx(), expected, b.type(target).sizes)) throw InvalidArgument("nll_loss: sizes do not match");
  const DType out = type.dtype;
  // In eager the gradient has a history with the input, which it does not depend on.
  const Picked p =
      pick(b, with_tied_gradient(b, b.cast(self, compute_dtype(out)), {self}), target, weight, ignore_index);
  if (reduction == kNone) {
    const ValueId loss = b.cast(p.loss, out);
    return b.type(loss).strides == contiguous_strides(b.ctx(), expected) ? loss : contiguous_copy(b, loss);
  }
  const ValueId sum = whole_sum(b, p.loss);
  if (reduction == kSumReduction) return b.cast(sum, out);
  return b.cast(b.binary("div", sum, whole_sum(b, p.weight)), out);
}

Values decompose_nll(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {nll(b, args.tensor(0), args.tensor(1), args.tensor(2), args.integer(3), args.integer(4))};
}

ValueId log_probabilities(GraphBuilder& b, ValueId self, int64_t dim) {
  return b.op("log_softmax", {TensorArg{self}, int_arg(dim), NoneArg{}});
}

ValueId class_shape(GraphBuilder& b, ValueId weight, int64_t rank, int64_t dim) {
  std::vector<Expr> sizes(static_cast<size_t>(rank), b.ctx().constant(1));
  sizes[static_cast<size_t>(dim)] = b.type(weight).sizes[0];
  return b.reshape(weight, sizes);
}

/// As eager asks: a NaN smooths nothing.
bool smooths(const Quantity& smoothing) { return smoothing.varies() || smoothing.fixed() > 0; }

ValueId probability_loss(GraphBuilder& b, ValueId self, ValueId target, ValueId weight, int64_t reduction,
                         const Quantity& smoothing) {
  const TensorType type = b.type(self);
  if (!is_floating(b.type(target).dtype)) throw InvalidArgument("Expected floating point type for target");
  const int64_t dim = type.dim() == 1 ? 0 : 1;
  const Expr classes = type.sizes[static_cast<size_t>(dim)];
  if (smooths(smoothing)) {
    if (!classes.is_const()) throw Unsupported("label smoothing over a symbolic number of classes");
    const ValueId kept = with_number(b, "mul", target, 1.0 - smoothing);
    target = with_number(b, "add", kept, smoothing / static_cast<double>(classes.const_value()));
  }
  ValueId product = b.binary("mul", log_probabilities(b, self, dim), target);
  if (weight != kNoValue) product = b.binary("mul", product, class_shape(b, weight, type.dim(), dim));
  if (reduction == kNone) return b.unary("neg", b.reduce("sum", product, {dim}, false));
  const ValueId sum = b.unary("neg", whole_sum(b, product));
  if (reduction == kSumReduction) return sum;
  const Expr rows = b.ctx().floordiv(type.numel(b.ctx()), classes);
  return b.binary("div", sum, std::get<Scalar>(expr_arg(rows)));
}

/// Cross entropy with class indices and label smoothing.
ValueId smoothed_loss(GraphBuilder& b, ValueId self, ValueId target, ValueId weight, int64_t reduction,
                      int64_t ignore_index, const Quantity& smoothing) {
  const TensorType type = b.type(self);
  const int64_t dim = type.dim() == 1 ? 0 : 1;
  const Expr classes = type.sizes[static_cast<size_t>(dim)];
  if (!classes.is_const()) throw Unsupported("label smoothing over a symbolic number of classes");
  const ValueId input = log_probabilities(b, self, dim);
  const ValueId plain = nll(b, input, target, weight, reduction, ignore_index);
  const ValueId weighted = weight == kNoValue ? input : b.binary("mul", input, class_shape(b, weight, type.dim(), dim));
  ValueId smooth = b.unary("neg", b.reduce("sum", weighted, {dim}, false));
  const ValueId valid = b.binary("ne", target, Scalar(ignore_index));
  smooth = b.op("masked_fill", {TensorArg{smooth}, TensorArg{b.unary("logical_not", valid)}, Scalar(0.0)});
  if (reduction != kNone) {
    const ValueId sum = whole_sum(b, smooth);
    if (reduction == kMean && weight == kNoValue) {
      smooth = b.binary("div", sum, whole_sum(b, valid));
    } else if (reduction == kMean) {
      const ValueId share = pick(b, b.cast(input, compute_dtype(type.dtype)), target, weight, ignore_index).weight;
      smooth = b.binary("div", sum, b.cast(whole_sum(b, share), type.dtype));
    } else {
      smooth = sum;
    }
  }
  const Quantity per_class = smoothing / static_cast<double>(classes.const_value());
  return b.binary("add", with_number(b, "mul", plain, 1.0 - smoothing), with_number(b, "mul", smooth, per_class));
}

Values decompose_cross_entropy(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, target, weight, reduction, ignore_index, label_smoothing)
  const Args args(b, arguments);
  const ValueId self = args.tensor(0);
  const ValueId target = args.tensor(1);
  const Quantity smoothing = args.quantity(5);
  if (!smoothing.varies() && (smoothing.fixed() < 0 || smoothing.fixed() > 1))
    throw InvalidArgument("label_smoothing must be between 0.0 and 1.0");
  const TensorType type = b.type(self);
  if (type.dim() == 0 || !is_floating(type.dtype)) throw InvalidArgument("cross_entropy: bad input");
  if (type.dim() == b.type(target).dim() && same_sizes(b.ctx(), type.sizes, b.type(target).sizes)) {
    if (args.integer(4) >= 0) throw InvalidArgument("ignore_index is not supported for floating point target");
    return {probability_loss(b, self, target, args.tensor(2), args.integer(3), smoothing)};
  }
  if (smooths(smoothing)) {
    return {smoothed_loss(b, self, target, args.tensor(2), args.integer(3), args.integer(4), smoothing)};
  }
  const int64_t dim = type.dim() == 1 ? 0 : 1;
  return {nll(b, log_probabilities(b, self, dim), target, args.tensor(2), args.integer(3), args.integer(4))};
}

// ---- Margins ---------------------------------------------------------------------------------------------------------

Values decompose_soft_margin(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.type(0).dtype != args.type(1).dtype) throw Unsupported("a loss of several dtypes");
  const ValueId inner = b.binary("mul", b.unary("neg", args.tensor(1)), args.tensor(0));
  return {reduced(b, b.unary("log1p", b.unary("exp", inner)), args.integer(2))};
}

Values decompose_margin_ranking(GraphBuilder& b, std::span<const Arg> arguments) {
  // (input1, input2, target, margin, reduction)
  const Args args(b, arguments);
  const ValueId difference = b.binary("sub", args.tensor(0), args.tensor(1));
  const ValueId inner = b.binary("mul", b.unary("neg", args.tensor(2)), difference);
  const ValueId loss =
      b.op("clamp_min", {TensorArg{with_number(b, "add", inner, args.quantity(3))}, Scalar(int64_t{0})});
  return {reduced(b, loss, args.integer(4))};
}

Values decompose_poisson_nll(GraphBuilder& b, std::span<const Arg> arguments) {
  // (input, target, log_input, full, eps, reduction)
  const Args args(b, arguments);
  const ValueId x = args.tensor(0);
  const ValueId target = args.tensor(1);
  ValueId loss = kNoValue;
  if (args.flag(2)) {
    loss = b.binary("sub", b.unary("exp", x), b.binary("mul", target, x));
  } else {
    const ValueId log = b.unary("log", with_number(b, "add", x, args.quantity(4)));
    loss = b.binary("sub", x, b.binary("mul", target, log));
  }
  if (args.flag(3)) {
    // Stirling's formula, where it is near enough.
    const ValueId half_log =
        b.binary("mul", b.unary("log", b.binary("mul", target, Scalar(2 * std::numbers::pi))), Scalar(0.5));
    const ValueId term =
        b.binary("add", b.binary("sub", b.binary("mul", target, b.unary("log", target)), target), half_log);
    const ValueId small = b.binary("le", target, Scalar(int64_t{1}));
    loss = b.binary("add", loss, b.where(small, b.constant(0, b.type(term).dtype, b.type(term).device), term));
  }
  return {reduced(b, loss, args.integer(5))};
}

}  // namespace

void register_loss(OpRegistry& r) {
  const auto add = [&](const char* name, const char* schema, const char* names, DecomposeFn decompose) {
    OpDef def = make_op({name, OpKind::kComposite, schema, names}, nullptr, std::move(decompose));
    def.checks_values = std::string_view(schema).find("ignore_index") != std::string_view::npos;  // classes
    r.add(std::move(def));
  };
  add("mse_loss", "(Tensor self, Tensor target, int reduction=1) -> Tensor", "torch._C._nn.mse_loss",
      difference_loss(square));
  add("l1_loss", "(Tensor self, Tensor target, int reduction=1) -> Tensor", "torch._C._nn.l1_loss", decompose_l1);
  add("smooth_l1_loss", "(Tensor self, Tensor target, int reduction=1, float beta=1.0) -> Tensor",
      "torch._C._nn.smooth_l1_loss", difference_loss(smooth_l1));
  add("huber_loss", "(Tensor self, Tensor target, int reduction=1, float delta=1.0) -> Tensor",
      "torch._C._nn.huber_loss", difference_loss(huber));
  add("binary_cross_entropy_with_logits",
      "(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
      "torch.binary_cross_entropy_with_logits", decompose_bce_with_logits);
  add("kl_div", "(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor", "torch.kl_div",
      decompose_kl_div);
  const char* nll_schema =
      "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100) -> Tensor";
  add("nll_loss_nd", nll_schema, "torch._C._nn.nll_loss_nd torch._C._nn.nll_loss torch._C._nn.nll_loss2d",
      decompose_nll);
  add("cross_entropy_loss",
      "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, "
      "float label_smoothing=0.0) -> Tensor",
      "torch._C._nn.cross_entropy_loss", decompose_cross_entropy);
  add("soft_margin_loss", "(Tensor self, Tensor target, int reduction=1) -> Tensor", "torch._C._nn.soft_margin_loss",
      decompose_soft_margin);
  add("margin_ranking_loss",
      "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
      "torch.margin_ranking_loss", decompose_margin_ranking);
  add("poisson_nll_loss",
      "(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
      "torch.poisson_nll_loss", decompose_poisson_nll);
  r.take_value("smooth_l1_loss", "beta", {.low = kLeast});
  r.take_value("cross_entropy_loss", "label_smoothing", {.low = kLeast, .high = 1.0});
  r.take_value("huber_loss", "delta", {.low = kLeast});
  r.take_values({"margin_ranking_loss", "poisson_nll_loss"});
}

}  // namespace tatara
