// Losses over margins and embeddings, and what softmax and dropout have beside their plain forms.
#include <limits>
#include <numbers>

#include "ops/reduce/loss_util.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

ValueId zero_like(GraphBuilder& b, ValueId x) { return b.constant(0, b.type(x).dtype, b.type(x).device); }
ValueId positive(GraphBuilder& b, ValueId x) { return b.op("clamp_min", {TensorArg{x}, Scalar(int64_t{0})}); }

void require_floating(const Args& args) {
  if (!is_floating(args.type(0).dtype)) throw Unsupported("this loss of this dtype");
}

Values decompose_hinge_embedding(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, target, margin, reduction)
  const Args args(b, arguments);
  require_floating(args);
  const ValueId x = args.tensor(0), target = args.tensor(1);
  const ValueId margin = positive(b, with_number(b, "rsub", x, args.quantity(2)));
  const ValueId apart = b.where(b.binary("ne", target, Scalar(int64_t{1})), margin, zero_like(b, x));
  const ValueId near = b.where(b.binary("ne", target, Scalar(int64_t{-1})), x, zero_like(b, x));
  return {reduced(b, b.binary("add", apart, near), args.integer(3))};
}

Values decompose_triplet_margin(GraphBuilder& b, std::span<const Arg> arguments) {
  // (anchor, positive, negative, margin, p, eps, swap, reduction)
  const Args args(b, arguments);
  require_floating(args);
  if (args.rank(0) != args.rank(1) || args.rank(0) != args.rank(2)) {
    throw InvalidArgument("triplet_margin_loss: anchor, positive and negative need the same number of dimensions");
  }
  const auto distance = [&](size_t i, size_t j) {
    return b.op("pairwise_distance", {arguments[i], arguments[j], Scalar(args.number(4)), args.quantity(5).arg()});
  };
  const ValueId near = distance(0, 1);
  ValueId apart = distance(0, 2);
  if (args.flag(6)) apart = b.binary("minimum", apart, distance(1, 2));
  const ValueId gap = b.binary("sub", with_number(b, "add", near, args.quantity(3)), apart);
  return {reduced(b, positive(b, gap), args.integer(7))};
}

Values decompose_cosine_embedding(GraphBuilder& b, std::span<const Arg> arguments) {
  // (input1, input2, target, margin, reduction)
  const Args args(b, arguments);
  require_floating(args);
  const int64_t dim = args.rank(2);
  if ((dim != 0 || args.rank(0) != 1 || args.rank(1) != 1) && (dim != 1 || args.rank(0) != 2 || args.rank(1) != 2)) {
    throw InvalidArgument("cosine_embedding_loss: target and inputs of these ranks do not go together");
  }
  const ValueId x = args.tensor(0), y = args.tensor(1), target = args.tensor(2);
  constexpr double kEps = 1e-12;
  const auto inner = [&](ValueId a, ValueId c) { return b.reduce("sum", b.binary("mul", a, c), {dim}, false); };
  const auto square = [&](ValueId a) { return b.binary("add", inner(a, a), Scalar(kEps)); };
  const ValueId cosine = b.binary("div", inner(x, y), b.unary("sqrt", b.binary("mul", square(x), square(y))));
  const ValueId zero = zero_like(b, cosine);
  const ValueId same =
      b.where(b.binary("eq", target, Scalar(int64_t{1})), b.op("rsub", {TensorArg{cosine}, Scalar(int64_t{1})}), zero);
  const ValueId other = b.where(b.binary("eq", target, Scalar(int64_t{-1})),
                                positive(b, with_number(b, "sub", cosine, args.quantity(3))), zero);
  return {reduced(b, b.binary("add", same, other), args.integer(4))};
}

Values decompose_multi_margin(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, target, p, margin, weight, reduction)
  const Args args(b, arguments);
  require_floating(args);
  const DType dtype = args.type(0).dtype;
  const DType wide = compute_dtype(dtype);
  const int64_t p = args.integer(2);
  if (p != 1 && p != 2) throw InvalidArgument("only p == 1 and p == 2 supported");
  const bool single = args.rank(0) < 2;
  ValueId x = b.cast(args.tensor(0), wide);
  if (args.rank(0) == 0 || args.rank(0) > 2) throw Unsupported("multi_margin_loss of this rank");
  if (single) x = b.unsqueeze(x, 0);
  const Expr rows = b.type(x).sizes[0], classes = b.type(x).sizes[1];
  if (is_zero(b.ctx(), classes)) throw Unsupported("multi_margin_loss without classes");
  if (args.rank(1) > 1 || !same_size(b.ctx(), product(b.ctx(), args.type(1).sizes), rows)) {
    throw InvalidArgument("inconsistent target size");
  }
  const ValueId target = b.reshape(args.tensor(1), {rows, b.ctx().constant(1)});
  const ValueId own = b.op("gather", {TensorArg{x}, int_arg(1), TensorArg{target}});
  ValueId gap = b.binary("add", with_number(b, "rsub", own, args.quantity(3)), x);
  gap = b.where(b.binary("gt", gap, Scalar(int64_t{0})), gap, zero_like(b, gap));  // also where it is NaN
  if (p == 2) gap = b.binary("mul", gap, gap);
  if (!args.none(4)) {
    const ValueId weight = b.op(
        "index_select", {TensorArg{b.cast(args.tensor(4), wide)}, int_arg(0), TensorArg{b.reshape(target, {rows})}});
    gap = b.binary("mul", gap, b.unsqueeze(weight, 1));
  }
  const ValueId places = b.op("arange.step", {Scalar(int64_t{0}), Scalar(classes), Scalar(int64_t{1})});
  const ValueId counted = b.where(b.binary("eq", places, target), zero_like(b, gap), gap);
  const ValueId sums = b.reduce("sum", counted, {1}, false);
  const ValueId count = b.op("full", {SymInts{}, Scalar(classes), wide, NoneArg{}, b.type(x).device});
  const ValueId losses = b.cast(b.binary("div", sums, count), dtype);
  const int64_t reduction = args.integer(5);
  if (reduction == 0) return {args.rank(1) == 0 ? b.reshape(losses, {}) : losses};
  return {reduced(b, losses, reduction)};
}

/// Zero where a whole row is masked out (-inf everywhere).
Values decompose_safe_softmax(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  require_floating(args);
  const double inf = std::numeric_limits<double>::infinity();
  const ValueId masked = b.binary("eq", args.tensor(0), Scalar(-inf));
  const ValueId all = b.reduce("all", masked, {args.dim(1, args.rank(0))}, true);
  const ValueId plain = b.op("softmax", {arguments[0], arguments[1], arguments[2]});
  return {b.where(all, zero_like(b, plain), plain)};
}

/// (grad_output, output, dim, input_dtype)
DecomposeFn softmax_backward(bool log) {
  return [log](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    require_floating(args);
    const DType wide = compute_dtype(args.type(0).dtype);
    const ValueId grad = b.cast(args.tensor(0), wide);
    const ValueId output = b.cast(args.tensor(1), wide);
    const int64_t dim = args.dim(2, args.rank(0));
    const ValueId product_of = b.binary("mul", grad, output);
    const ValueId sum = b.reduce("sum", log ? grad : product_of, {dim}, true);
    const ValueId own = b.binary("mul", log ? b.unary("exp", output) : output, sum);
    return {b.cast(b.binary("sub", log ? grad : product_of, own), args.dtype(3).value_or(args.type(0).dtype))};
  };
}

Values decompose_dropout_backward(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  require_floating(args);
  const DType mask_dtype = args.type(1).dtype;
  if (mask_dtype != DType::kBool && mask_dtype != args.type(0).dtype) throw Unsupported("a mask of another dtype");
  const ValueId mask = b.cast(args.tensor(1), args.type(0).dtype);
  return {b.binary("mul", args.tensor(0), b.binary("mul", mask, Scalar(args.number(2))))};
}

}  // namespace

void register_loss_more(OpRegistry& r) {
  const auto add = [&](const char* name, const char* schema, const char* names, DecomposeFn fn) {
    r.add(make_op({name, OpKind::kComposite, schema, names}, nullptr, std::move(fn)));
  };
  add("hinge_embedding_loss", "(Tensor self, Tensor target, float margin=1.0, int reduction=1) -> Tensor",
      "torch.hinge_embedding_loss", decompose_hinge_embedding);
  add("triplet_margin_loss",
      "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, bool "
      "swap=False, "
      "int reduction=1) -> Tensor",
      "torch.triplet_margin_loss", decompose_triplet_margin);
  add("cosine_embedding_loss",
      "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
      "torch.cosine_embedding_loss", decompose_cosine_embedding);
  add("multi_margin_loss",
      "(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> Tensor",
      "torch._C._nn.multi_margin_loss", decompose_multi_margin);
  add("_safe_softmax", "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
      "torch.ops.aten._safe_softmax.default torch._safe_softmax", decompose_safe_softmax);
  // With types of its own it stays one node, for a rule of its own: that of its parts would be 0 * nan in masked rows.
  r.amend("_safe_softmax").meta = r.get("softmax").meta;
  const char* backward = "(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor";
  add("_softmax_backward_data", backward, "torch._softmax_backward_data", softmax_backward(false));
  add("_log_softmax_backward_data", backward, "torch._log_softmax_backward_data", softmax_backward(true));
  add("native_dropout_backward", "(Tensor grad_output, Tensor mask, float scale) -> Tensor",
      "torch.ops.aten.native_dropout_backward.default", decompose_dropout_backward);
  for (const char* name :
       {"hinge_embedding_loss", "triplet_margin_loss", "cosine_embedding_loss", "multi_margin_loss"}) {
    r.take_value(name, "margin");
  }
  r.take_value("triplet_margin_loss", "eps");
}

}  // namespace tatara
