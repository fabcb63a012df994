// Smaller parts of neural networks: shuffles, distances, dropout.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- Shuffles --------------------------------------------------------------------------------------------------------

TensorType in_layout_of(MetaContext& m, const TensorType& self, std::vector<Expr> sizes) {
  TensorType type = contiguous_type(m.ctx(), self.dtype, self.device, std::move(sizes));
  type.strides = layout_strides(m.ctx(), type.sizes, suggested_layout(m.ctx(), self));
  return type;
}

Expr divided(ExprContext& ctx, Expr size, int64_t by) {
  if (!is_zero(ctx, ctx.mod(size, ctx.constant(by))))
    throw InvalidArgument(str_cat("size ", size.str(), " is not divisible by ", by));
  return ctx.floordiv(size, ctx.constant(by));
}

int64_t factor_of(int64_t factor) {
  if (factor <= 0) throw InvalidArgument("expects a positive factor");
  return factor;
}

/// Sizes of pixel_shuffle's result (or its inverse's).
std::vector<Expr> shuffled_sizes(ExprContext& ctx, const TensorType& self, int64_t factor, bool inverse) {
  if (self.dim() < 3) throw InvalidArgument("expects input to have at least 3 dimensions");
  factor_of(factor);
  std::vector<Expr> sizes = self.sizes;
  Expr* tail = &sizes[sizes.size() - 3];
  if (inverse) {
    tail[0] = tail[0] * (factor * factor);
    tail[1] = divided(ctx, tail[1], factor);
    tail[2] = divided(ctx, tail[2], factor);
  } else {
    tail[0] = divided(ctx, tail[0], factor * factor);
    tail[1] = tail[1] * factor;
    tail[2] = tail[2] * factor;
  }
  return sizes;
}

/// On a CPU as the operand; elsewhere the host permutes and copies.
TensorType shuffled(MetaContext& m, const std::vector<Expr>& sizes) {
  const TensorType& self = m.tensor(0);
  return self.device.kind == DeviceKind::kCpu ? in_layout_of(m, self, sizes)
                                              : contiguous_type(m.ctx(), self.dtype, self.device, sizes);
}

MetaFn shuffle_meta(bool inverse) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    return {shuffled(m, shuffled_sizes(m.ctx(), self, m.integer(1), inverse))};
  };
}

DecomposeFn shuffle(bool inverse) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    ExprContext& ctx = b.ctx();
    const TensorType self = args.type(0);
    const int64_t n = args.integer(1);
    const Expr r = ctx.constant(n);
    const std::vector<Expr> result = shuffled_sizes(ctx, self, n, inverse);
    if (is_zero(ctx, self.numel(ctx))) return {b.reshape(args.tensor(0), result)};
    const size_t lead = self.sizes.size() - 3;
    std::vector<Expr> split(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(lead));
    std::vector<int64_t> order;
    for (size_t d = 0; d < lead; ++d) order.push_back(static_cast<int64_t>(d));
    const Expr c = inverse ? self.sizes[lead] : result[lead];
    const Expr h = inverse ? result[lead + 1] : self.sizes[lead + 1];
    const Expr w = inverse ? result[lead + 2] : self.sizes[lead + 2];
    const auto at = static_cast<int64_t>(lead);
    if (inverse) {
      split.insert(split.end(), {c, h, r, w, r});
      for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(at + d);
    } else {
      split.insert(split.end(), {c, r, r, h, w});
      for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(at + d);
    }
    return {b.op("clone", {TensorArg{b.reshape(b.permute(b.reshape(args.tensor(0), split), order), result)}})};
  };
}

std::vector<TensorType> channel_shuffle_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (self.dim() < 3) throw InvalidArgument("channel_shuffle expects input with > 2 dims");
  divided(m.ctx(), self.sizes[1], factor_of(m.integer(1)));
  if (m.integer(1) == 1 || is_zero(m.ctx(), self.numel(m.ctx()))) throw Unsupported("channel_shuffle of nothing");
  return {shuffled(m, self.sizes)};
}

Values decompose_channel_shuffle(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType self = args.type(0);
  const int64_t groups = args.integer(1);
  std::vector<Expr> split = self.sizes;
  split[1] = b.ctx().constant(groups);
  split.insert(split.begin() + 2, divided(b.ctx(), self.sizes[1], groups));
  std::vector<int64_t> order{0, 2, 1};
  for (int64_t d = 3; d <= self.dim(); ++d) order.push_back(d);
  return {b.op("clone", {TensorArg{b.reshape(b.permute(b.reshape(args.tensor(0), split), order), self.sizes)}})};
}

// ---- Distances -------------------------------------------------------------------------------------------------------

ValueId euclidean(GraphBuilder& b, ValueId x, int64_t dim) {
  return b.op("linalg_vector_norm", {TensorArg{x}, Scalar(int64_t{2}), ints_arg(b.ctx(), {dim}), bool_arg(true)});
}

Values decompose_cosine_similarity(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const DType dtype = promote_types(args.type(0).dtype, args.type(1).dtype);
  if (!is_floating(dtype)) throw InvalidArgument("expected common dtype to be floating point");
  ValueId x = b.cast(args.tensor(0), dtype);
  ValueId y = b.cast(args.tensor(1), dtype);
  const int64_t rank = std::max(args.rank(0), args.rank(1));
  const int64_t dim = args.dim(2, rank);
  const Quantity eps = args.quantity(3);
  if (args.rank(0) != args.rank(1) || !same_sizes(b.ctx(), args.type(0).sizes, args.type(1).sizes)) {
    const ValueId sum = b.binary("add", x, y);  // only its shape is used
    const std::vector<Expr> sizes = b.type(sum).sizes;
    x = b.expand(x, sizes);
    y = b.expand(y, sizes);
  }
  // Eager raises short lengths without gradients: what comes back is the length's own.
  const auto unit = [&](ValueId v) {
    const ValueId length = euclidean(b, v, dim), fixed = b.unary("detach", length);
    const ValueId raised = with_number(b, "add", b.binary("sub", length, fixed), eps);
    return b.binary("div", v, b.where(with_number(b, "lt", fixed, eps), raised, length));
  };
  return {b.reduce("sum", b.binary("mul", unit(x), unit(y)), {dim}, false)};
}

Values decompose_pairwise_distance(GraphBuilder& b, std::span<const Arg> arguments) {
  // (x1, x2, p, eps, keepdim)
  const Args args(b, arguments);
  const ValueId d = with_number(b, "add", b.binary("sub", args.tensor(0), args.tensor(1)), args.quantity(3));
  const int64_t last = b.type(d).dim() - 1;
  if (last < 0) throw Unsupported("pairwise_distance of tensors without dimensions runs in eager");
  return {b.op("linalg_vector_norm", {TensorArg{d}, Scalar(args.number(2)), ints_arg(b.ctx(), {last}), arguments[4]})};
}

// ---- Dropout ---------------------------------------------------------------------------------------------------------

/// Dimensions in the order in which a dense tensor fills its memory; empty where it does not, or where sizes decide.
std::vector<int64_t> memory_order(ExprContext& ctx, const TensorType& type) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < type.dim(); ++d) {
    const auto at = static_cast<size_t>(d);
    if (!type.sizes[at].is_const() || !type.strides[at].is_const()) return {};
    order.push_back(d);
  }
  const auto step = [&type](int64_t d) {
    const auto at = static_cast<size_t>(d);
    return type.sizes[at].is_const(1) ? std::numeric_limits<int64_t>::max() : type.strides[at].const_value();
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return step(a) > step(b); });
  TensorType sorted = type;
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.sizes[i] = type.sizes[static_cast<size_t>(order[i])];
    sorted.strides[i] = type.strides[static_cast<size_t>(order[i])];
  }
  return is_contiguous(ctx, sorted) ? order : std::vector<int64_t>();
}

/// In evaluation the very input comes back; in training the host draws the mask, so the generator moves as in eager.
Values decompose_dropout(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Quantity p = args.quantity(1);
  if (!p.varies() && (p.fixed() < 0 || p.fixed() > 1)) {
    throw InvalidArgument(str_cat("dropout probability has to be between 0 and 1, but got ", p.fixed()));
  }
  const ValueId x = args.tensor(0);
  if (p.is(0) || !args.flag(2) || b.type(x).numel(b.ctx()).is_const(0)) return {x};
  if (p.is(1)) return {b.binary("mul", x, b.constant(0, b.type(x).dtype, b.type(x).device))};
  const bool contiguous = is_contiguous(b.ctx(), b.type(x)), on_gpu = b.type(x).device.kind == DeviceKind::kCuda;
  // The host fills a mask as it lies in memory.
  const std::vector<int64_t> order = contiguous || on_gpu ? std::vector<int64_t>() : memory_order(b.ctx(), b.type(x));
  if (!contiguous && !on_gpu && order.empty()) {
    throw Unsupported("dropout of a tensor that is not dense runs in eager");
  }
  if (on_gpu) {
    // Its kernel looks where each element lies, and its mask lies as the tensor does.
    const ValueId mask = b.op_multi("native_dropout", {TensorArg{x}, p.arg(), Scalar(true)})[1];
    return {with_number(b, "mul", b.binary("mul", x, b.cast(mask, b.type(x).dtype)), 1.0 / (1.0 - p))};
  }
  const DType dtype = b.type(x).dtype;
  std::vector<Expr> sizes = b.type(x).sizes;
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    sizes[i] = b.type(x).sizes[static_cast<size_t>(order[i])];
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const Quantity kept = 1.0 - p;
  ValueId mask = b.op("bernoulli_mask", {SymInts{sizes}, kept.arg(), dtype});
  if (!contiguous) mask = b.permute(mask, back);
  return {b.binary("mul", x, with_number(b, "div", b.cast(mask, dtype), kept))};
}

/// Zeros and ones, as the host's `empty(...).bernoulli_(kept)` draws them.
ValueId draw_noise(GraphBuilder& b, ValueId x, const std::vector<Expr>& sizes, const Quantity& kept) {
  const TensorType& type = b.type(x);
  if (type.device.kind == DeviceKind::kCpu) {
    return b.cast(b.op("bernoulli_mask", {SymInts{sizes}, kept.arg(), type.dtype}), type.dtype);
  }
  const ValueId memory = b.op("full", {SymInts{sizes}, Scalar(0.0), type.dtype, NoneArg{}, type.device, NoneArg{}});
  return b.op("bernoulli_fill", {TensorArg{memory}, kept.arg(), NoneArg{}});
}

/// Of SELU's inputs in place: the identity in evaluation.
Values decompose_eval_dropout(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.flag(2) && args.number(1) != 0) throw Unsupported("this kind of dropout, in place, runs in eager");
  return {args.tensor(0)};
}

/// Dropout of whole channels (`feature`), and to the mean and variance of SELU's inputs (`alpha`; Klambauer et al. 2017,
/// "Self-Normalizing Neural Networks"). In evaluation the very input comes back.
DecomposeFn dropout_of(bool feature, bool alpha) {
  return [feature, alpha](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const double p = args.number(1);
    if (p < 0 || p > 1) throw InvalidArgument(str_cat("dropout probability has to be between 0 and 1, but got ", p));
    const ValueId x = args.tensor(0);
    const TensorType type = b.type(x);
    if (p == 0 || !args.flag(2) || type.numel(b.ctx()).is_const(0)) return {x};
    if (p == 1) return {b.binary("mul", x, b.constant(0, type.dtype, type.device))};
    std::vector<Expr> sizes = type.sizes;
    if (feature) {
      if (type.dim() < 2) throw InvalidArgument("Feature dropout requires at least 2 dimensions in the input");
      for (size_t d = 2; d < sizes.size(); ++d) sizes[d] = b.ctx().constant(1);
    } else if (!is_contiguous(b.ctx(), type)) {
      throw Unsupported("alpha_dropout of a tensor that is not contiguous runs in eager");
    }
    const Quantity kept = 1.0 - args.quantity(1);
    const ValueId noise = draw_noise(b, x, sizes, kept);
    if (!alpha) return {b.binary("mul", x, with_number(b, "div", noise, kept))};
    constexpr double kAlpha = 1.7580993408473766;  // of SELU: its scale times its alpha
    const double a = 1.0 / std::sqrt((kAlpha * kAlpha * p + 1.0) * (1.0 - p));
    const ValueId lower = b.binary("mul", b.binary("add", noise, Scalar(-1.0)), Scalar(kAlpha * a));
    const ValueId shift = b.binary("add", lower, Scalar(kAlpha * a * p));
    return {b.binary("add", b.binary("mul", x, b.binary("mul", noise, Scalar(a))), shift)};
  };
}

}  // namespace

void register_misc_nn(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  r.add(make_op({"pixel_shuffle", composite, "(Tensor self, int upscale_factor) -> Tensor", "torch.pixel_shuffle"},
                shuffle_meta(false), shuffle(false)));
  r.add(
      make_op({"pixel_unshuffle", composite, "(Tensor self, int downscale_factor) -> Tensor", "torch.pixel_unshuffle"},
              shuffle_meta(true), shuffle(true)));
  r.add(make_op({"channel_shuffle", composite, "(Tensor self, SymInt groups) -> Tensor",
                 "torch.channel_shuffle torch.native_channel_shuffle"},
                channel_shuffle_meta, decompose_channel_shuffle));
  r.add(make_op({"cosine_similarity", composite, "(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
                 "torch.cosine_similarity"},
                nullptr, decompose_cosine_similarity));
  r.add(make_op(
      {"pairwise_distance", composite,
       "(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor", "torch.pairwise_distance"},
      nullptr, decompose_pairwise_distance));
  const char* schema = "(Tensor(a) input, float p, bool train) -> Tensor(a)";
  r.add(make_op({"dropout", composite, schema, "torch.dropout", "torch.dropout_"}, nullptr, decompose_dropout));
  r.add(make_op({"alpha_dropout", composite, schema, "torch.alpha_dropout"}, nullptr, dropout_of(false, true)));
  r.add(make_op({"feature_dropout", composite, schema, "torch.feature_dropout", "torch.feature_dropout_"}, nullptr,
                dropout_of(true, false)));
  r.add(make_op({"feature_alpha_dropout", composite, schema, "torch.feature_alpha_dropout"}, nullptr,
                dropout_of(true, true)));
  // In place eager writes a product and then a sum, and counts both.
  r.add(make_op({"alpha_dropout_in_place", composite, schema, "", "torch.alpha_dropout_"}, nullptr,
                decompose_eval_dropout));
  r.add(make_op({"feature_alpha_dropout_in_place", composite, schema, "", "torch.feature_alpha_dropout_"}, nullptr,
                decompose_eval_dropout));
  for (bool OpTraits::* trait : {&OpTraits::varies, &OpTraits::may_write_nothing}) {
    r.mark(trait, {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "alpha_dropout_in_place",
                   "feature_alpha_dropout_in_place"});
  }
  r.take_value("cosine_similarity", "eps");
  r.take_value("pairwise_distance", "eps");
  r.take_value("dropout", "p", {.low = 1e-30, .high = 1 - 1e-15});  // 0 and 1 draw no numbers
}

}  // namespace tatara
