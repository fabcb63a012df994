// Normalisation layers, in two passes over the data (mean, then squared deviations): rows of the usual sizes stay in the
// cache, plain sums vectorise better than Welford's update, and the result is at least as exact.
//
// batch_norm and instance_norm in training also write their running statistics: the new values follow the declared outputs,
// in the order of the written arguments.
#include "ops/core/family_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

struct Stats {
  ValueId deviation;  // x - mean
  ValueId mean;       // dimensions kept
  ValueId var;        // biased, dimensions kept
  ValueId rstd;
};

Expr elements_over(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims) {
  Expr count = b.ctx().constant(1);
  for (int64_t d : dims) count = b.ctx().mul(count, b.type(x).sizes[static_cast<size_t>(d)]);
  return count;
}

Scalar count_scalar(Expr count) {
  return count.is_const() ? Scalar(static_cast<double>(count.const_value())) : Scalar(count);
}

ValueId mean_over(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims) {
  return b.binary("div", b.reduce("sum", x, dims, true), count_scalar(elements_over(b, x, dims)));
}

ValueId inverse_std(GraphBuilder& b, ValueId var, const Quantity& eps) {
  return b.unary("rsqrt", with_number(b, "add", var, eps));
}

/// x must be in its compute dtype.
Stats stats_of(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims, const Quantity& eps) {
  Stats s{};
  s.mean = mean_over(b, x, dims);
  s.deviation = b.binary("sub", x, s.mean);
  s.var = mean_over(b, b.binary("mul", s.deviation, s.deviation), dims);
  s.rstd = inverse_std(b, s.var, eps);
  return s;
}

/// y * weight + bias with optional operands (already shaped to broadcast), in y's dtype.
ValueId affine(GraphBuilder& b, ValueId y, ValueId weight, ValueId bias) {
  const DType dtype = b.type(y).dtype;
  if (weight != kNoValue) y = b.binary("mul", y, b.cast(weight, dtype));
  if (bias != kNoValue) y = b.binary("add", y, b.cast(bias, dtype));
  return y;
}

/// An operand whose gradient comes in eager from one node with others: it requires grad when one of `deciding` does, be it
/// that nothing of the gradient depends on that.
ValueId of_one_node(GraphBuilder& b, ValueId operand, std::vector<ValueId> deciding) {
  return operand == kNoValue ? operand : with_tied_gradient(b, operand, std::move(deciding), false);
}

/// A vector over the channels as [1, C, 1, ...].
ValueId per_channel(GraphBuilder& b, ValueId vector, int64_t rank) {
  if (vector == kNoValue) return vector;
  std::vector<Expr> sizes(static_cast<size_t>(rank), b.ctx().constant(1));
  sizes[1] = b.type(vector).sizes[0];
  return b.reshape(vector, sizes);
}

void only_floats(const MetaContext& m, DType dtype) {
  if (is_complex(dtype)) throw Unsupported(str_cat(m.op().name, " of complex numbers runs in eager"));
  if (!is_floating(dtype)) {
    throw InvalidArgument(str_cat("\"", m.op().name, "\" not implemented for '", dtype_name(dtype), "'"));
  }
}

// ---- layer_norm, rms_norm --------------------------------------------------------------------------------------------

/// Trailing dimensions named by normalized_shape, after eager's checks.
std::vector<int64_t> trailing_dims(ExprContext& ctx, const TensorType& input, const std::vector<Expr>& shape) {
  const size_t rank = input.sizes.size();
  if (shape.empty() || shape.size() > rank) throw InvalidArgument("normalized_shape does not match the input's shape");
  std::vector<int64_t> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t d = rank - shape.size() + i;
    if (!same_size(ctx, shape[i], input.sizes[d])) {
      throw InvalidArgument(str_cat("Given normalized_shape, expected input with shape [*, ..., ", shape[i].str(),
                                    "], but got input of size ", input.sizes[d].str()));
    }
    dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

void check_shape(const MetaContext& m, size_t i, const std::vector<Expr>& shape) {
  if (m.is_none(i)) return;
  if (!same_sizes(m.ctx(), m.tensor(i).sizes, shape)) {
    throw InvalidArgument("Expected weight and bias to be of the same shape as normalized_shape");
  }
}

DType stat_dtype(const MetaContext& m, size_t weight, size_t bias) {
  const DType input = m.tensor(0).dtype;
  for (size_t i : {weight, bias}) {
    if (!m.is_none(i) && is_low_precision(input) && m.tensor(i).dtype == DType::kFloat32) return DType::kFloat32;
  }
  return input;
}

/// Mean and reciprocal deviation of layer_norm: those of half types are as wide as the parameters on a CPU, float32 on a GPU.
DType layer_stat_dtype(const TensorType& input, bool wide_parameter) {
  const bool wide = wide_parameter || input.device.kind == DeviceKind::kCuda;
  return is_low_precision(input.dtype) && wide ? DType::kFloat32 : input.dtype;
}

MetaFn layer_norm_meta(bool with_stats) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& input = m.tensor(0);
    only_floats(m, input.dtype);
    const std::vector<Expr> shape = m.ints(1);
    const auto dims = trailing_dims(m.ctx(), input, shape);
    check_shape(m, 2, shape);
    check_shape(m, 3, shape);
    for (size_t i : {size_t{2}, size_t{3}}) {
      if (!m.is_none(i) && m.tensor(i).dtype != input.dtype &&
          !(is_low_precision(input.dtype) && m.tensor(i).dtype == DType::kFloat32)) {
        throw InvalidArgument("mixed dtype (CPU): expect parameter to have scalar type of Float");
      }
    }
    std::vector<TensorType> types{contiguous_type(m.ctx(), input.dtype, input.device, input.sizes)};
    if (with_stats) {
      const auto sizes = reduced_sizes(m.ctx(), input.sizes, dims, true);
      const bool wide = stat_dtype(m, 2, 3) == DType::kFloat32;
      const auto stat = contiguous_type(m.ctx(), layer_stat_dtype(input, wide), input.device, sizes);
      types.push_back(stat);
      types.push_back(stat);
    }
    return types;
  };
}

DecomposeFn layer_norm_decompose(bool with_stats) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const DType out = args.type(0).dtype;
    const auto dims = trailing_dims(b.ctx(), args.type(0), args.exprs(1));
    const Stats s = stats_of(b, b.cast(args.tensor(0), compute_dtype(out)), dims, args.quantity(4));
    const std::vector<ValueId> deciding{args.tensor(0), args.tensor(2), args.tensor(3)};
    const ValueId weight = of_one_node(b, args.tensor(2), deciding);
    const ValueId bias = of_one_node(b, args.tensor(3), deciding);
    const ValueId y = affine(b, b.binary("mul", s.deviation, s.rstd), weight, bias);
    Values results{b.cast(y, out)};
    if (with_stats) {
      bool wide = false;
      for (size_t i : {size_t{2}, size_t{3}}) {
        wide = wide || (!args.none(i) && args.type(i).dtype == DType::kFloat32);
      }
      const DType stat = layer_stat_dtype(args.type(0), wide);
      results.push_back(b.cast(s.mean, stat));
      results.push_back(b.cast(s.rstd, stat));
    }
    return results;
  };
}

Values decompose_rms_norm(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType input = args.type(0);
  if (!is_floating(input.dtype)) throw Unsupported("rms_norm of such a dtype runs in eager");
  const std::vector<Expr> shape = args.exprs(1);
  const auto dims = trailing_dims(b.ctx(), input, shape);
  if (!args.none(2) && !same_sizes(b.ctx(), args.type(2).sizes, shape)) {
    throw InvalidArgument("Expected weight to be of same shape as normalized_shape");
  }
  const DType wide = compute_dtype(input.dtype);
  const double machine = wide == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
  const Quantity eps = args.none(3) ? Quantity(machine) : args.quantity(3);
  const ValueId x = b.cast(args.tensor(0), wide);
  const ValueId rstd = inverse_std(b, mean_over(b, b.binary("mul", x, x), dims), eps);
  const ValueId y = b.cast(affine(b, b.binary("mul", x, rstd), args.tensor(2), kNoValue), input.dtype);
  const bool as_it_is = suggested_layout(b.ctx(), input) == Layout::kChannelsLast;
  return {as_it_is || is_contiguous(b.ctx(), b.type(y)) ? y : contiguous_copy(b, y)};
}

// ---- Groups of channels ----------------------------------------------------------------------------------------------

Values normalize_groups(GraphBuilder& b, const Args& args, Expr groups, ValueId weight, ValueId bias,
                        const Quantity& eps) {
  ExprContext& ctx = b.ctx();
  const TensorType input = args.type(0);
  const Expr channels = input.sizes[1];
  const Expr each = ctx.floordiv(channels, groups);
  // Groups of channels that come last are short runs far apart: eager's kernels for GPUs copy such images, too.
  const bool scattered = input.device.kind == DeviceKind::kCuda && !is_contiguous(ctx, input);
  const ValueId images =
      scattered ? b.op("relayout", {TensorArg{args.tensor(0)}, SymInts{contiguous_strides(ctx, input.sizes)}})
                : args.tensor(0);
  const ValueId x = b.cast(images, compute_dtype(input.dtype));
  // [N, G, C/G, spatial...]: splitting one dimension is a view in any layout.
  std::vector<Expr> split{input.sizes[0], groups, each};
  split.insert(split.end(), input.sizes.begin() + 2, input.sizes.end());
  std::vector<int64_t> dims;
  for (size_t d = 2; d < split.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  const Stats s = stats_of(b, b.reshape(x, split), dims, eps);
  // Statistics back on the channels, [N, C, 1, ...].
  std::vector<Expr> spread(split.size(), ctx.constant(1));
  spread[0] = split[0];
  spread[1] = groups;
  spread[2] = each;
  std::vector<Expr> joined(input.sizes.size(), ctx.constant(1));
  joined[0] = input.sizes[0];
  joined[1] = channels;
  const auto on_channels = [&](ValueId v) { return b.reshape(b.expand(v, spread), joined); };
  const ValueId centred = b.binary("sub", x, on_channels(s.mean));
  const ValueId scale = of_one_node(b, weight, {args.tensor(0), weight});
  const ValueId y = affine(b, b.binary("mul", centred, on_channels(s.rstd)), per_channel(b, scale, input.dim()),
                           per_channel(b, bias, input.dim()));
  return {b.cast(y, input.dtype), s.mean, s.rstd};
}

/// On a GPU the host's kernels know contiguous images only.
std::vector<Expr> group_norm_strides(ExprContext& ctx, const TensorType& input) {
  const bool on_gpu = input.device.kind == DeviceKind::kCuda;
  return layout_strides(ctx, input.sizes, on_gpu ? Layout::kContiguous : suggested_layout(ctx, input));
}

ValueId in_group_norm_layout(GraphBuilder& b, const Args& args, ValueId y) {
  const bool copies = args.type(0).device.kind == DeviceKind::kCuda && !is_contiguous(b.ctx(), b.type(y));
  return copies ? contiguous_copy(b, y) : y;
}

std::vector<TensorType> group_norm_meta(MetaContext& m) {
  const TensorType& input = m.tensor(0);
  only_floats(m, input.dtype);
  if (input.dim() < 2) throw InvalidArgument("Expected at least 2 dimensions for input tensor");
  const Expr groups = m.ctx().constant(m.integer(1));
  if (groups.const_value() <= 0 || !is_zero(m.ctx(), m.ctx().mod(input.sizes[1], groups))) {
    throw InvalidArgument("Expected number of channels in input to be divisible by num_groups");
  }
  TensorType type = contiguous_type(m.ctx(), input.dtype, input.device, input.sizes);
  type.strides = group_norm_strides(m.ctx(), input);
  return {type};
}

Values decompose_group_norm(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Expr groups = b.ctx().constant(args.integer(1));
  return {in_group_norm_layout(b, args,
                               normalize_groups(b, args, groups, args.tensor(2), args.tensor(3), args.quantity(4))[0])};
}

std::vector<TensorType> native_group_norm_meta(MetaContext& m) {
  // (input, weight, bias, N, C, HxW, group, eps)
  const TensorType& input = m.tensor(0);
  only_floats(m, input.dtype);
  if (input.dim() < 2 || is_zero(m.ctx(), input.numel(m.ctx()))) throw Unsupported("native_group_norm of this shape");
  const int64_t groups = m.integer(6);
  if (groups <= 0 || !same_size(m.ctx(), input.sizes[0], Args(m).expr(3)) ||
      !same_size(m.ctx(), input.sizes[1], Args(m).expr(4)) ||
      !is_zero(m.ctx(), m.ctx().mod(input.sizes[1], m.ctx().constant(groups)))) {
    throw Unsupported("native_group_norm of other sizes than those of its input");
  }
  TensorType type = contiguous_type(m.ctx(), input.dtype, input.device, input.sizes);
  type.strides = group_norm_strides(m.ctx(), input);
  const TensorType stat =
      contiguous_type(m.ctx(), stat_dtype(m, 1, 2), input.device, {input.sizes[0], m.ctx().constant(m.integer(6))});
  return {type, stat, stat};
}

Values decompose_native_group_norm(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Values v =
      normalize_groups(b, args, b.ctx().constant(args.integer(6)), args.tensor(1), args.tensor(2), args.quantity(7));
  const std::vector<Expr> sizes{args.type(0).sizes[0], b.ctx().constant(args.integer(6))};
  DType stat = args.type(0).dtype;
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (!args.none(i) && args.type(i).dtype == DType::kFloat32) stat = DType::kFloat32;
  }
  // Eager's statistics come with a history from the same node.
  const auto statistic = [&](ValueId value) {
    return tied(b, b.cast(b.reshape(value, sizes), stat), {args.tensor(1), args.tensor(2)}, false);
  };
  return {in_group_norm_layout(b, args, v[0]), statistic(v[1]), statistic(v[2])};
}

// ---- batch_norm, instance_norm ---------------------------------------------------------------------------------------

// (input, weight, bias, running_mean, running_var, training, momentum, eps, ...)
constexpr size_t kWeight = 1;
constexpr size_t kBias = 2;
constexpr size_t kRunningMean = 3;
constexpr size_t kRunningVar = 4;
constexpr size_t kTraining = 5;
constexpr size_t kMomentum = 6;
constexpr size_t kEps = 7;

std::vector<int64_t> all_but_channels(int64_t rank) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < rank; ++d) dims.push_back(d);
  return dims;
}

enum class BatchForm : uint8_t { kPlain, kNative };

MetaFn batch_norm_meta(BatchForm form) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& input = m.tensor(0);
    only_floats(m, input.dtype);
    if (input.dim() == 1 && is_zero(m.ctx(), input.sizes[0])) throw Unsupported("batch_norm of no elements");
    if (input.dim() < 2) throw InvalidArgument("batch_norm: input must have at least 2 dimensions");
    const bool training = m.boolean(kTraining);
    if (is_zero(m.ctx(), input.numel(m.ctx()))) throw Unsupported("batch_norm of no elements");
    if (m.is_none(kRunningMean) != m.is_none(kRunningVar)) throw Unsupported("one running statistic without the other");
    if (!training && m.is_none(kRunningMean)) throw InvalidArgument("running_mean must be defined in evaluation mode");
    for (size_t i : {kWeight, kBias, kRunningMean, kRunningVar}) {
      if (m.is_none(i)) continue;
      if (m.tensor(i).dim() != 1 || !same_size(m.ctx(), m.tensor(i).sizes[0], input.sizes[1])) {
        throw InvalidArgument("batch_norm: a parameter should contain one element per channel");
      }
    }
    TensorType type = contiguous_type(m.ctx(), input.dtype, input.device, input.sizes);
    type.strides = layout_strides(m.ctx(), input.sizes, suggested_layout(m.ctx(), input));
    std::vector<TensorType> types{type};
    if (form == BatchForm::kNative) {
      if (input.device.kind == DeviceKind::kCuda) throw Unsupported("native_batch_norm's statistics on a GPU");
      DType stat = input.dtype;
      for (size_t i : {kWeight, kRunningMean}) {
        if (!m.is_none(i)) stat = promote_types(stat, m.tensor(i).dtype);
      }
      const Expr length = training ? input.sizes[1] : m.ctx().constant(0);
      types.push_back(contiguous_type(m.ctx(), stat, input.device, {length}));
      types.push_back(types.back());
    }
    if (training && !m.is_none(kRunningMean)) {
      types.push_back(m.tensor(kRunningMean));
      types.push_back(m.tensor(kRunningVar));
    }
    return types;
  };
}

/// running * (1 - momentum) + momentum * fresh, in the running statistic's dtype.
ValueId updated(GraphBuilder& b, ValueId running, ValueId fresh, const Args& args) {
  const DType dtype = b.type(running).dtype;
  const ValueId old = b.cast(running, compute_dtype(dtype)), now = b.cast(fresh, compute_dtype(dtype));
  const Quantity momentum = args.none(kMomentum) ? Quantity(0.0) : args.quantity(kMomentum);
  const ValueId old_part = with_number(b, "mul", old, 1.0 - momentum);
  const ValueId new_part = with_number(b, "mul", now, momentum);
  return b.cast(b.binary("add", old_part, new_part), dtype);
}

/// The unbiased form of a biased variance over `count` elements.
ValueId unbiased(GraphBuilder& b, ValueId var, Expr count) {
  if (count.is_const()) {
    const auto n = static_cast<double>(count.const_value());
    return b.binary("mul", var, Scalar(n / (n - 1)));
  }
  return b.binary("div", b.binary("mul", var, Scalar(count)), Scalar(count - 1));
}

DecomposeFn batch_norm_decompose(BatchForm form) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const TensorType input = args.type(0);
    const DType wide = compute_dtype(input.dtype);
    const auto operand = [&](size_t i) {
      return of_one_node(b, args.tensor(i), {args.tensor(0), args.tensor(kWeight)});
    };
    const ValueId x = b.cast(operand(0), wide);
    const Quantity eps = args.quantity(kEps);
    const ValueId weight = per_channel(b, operand(kWeight), input.dim());
    const ValueId bias = per_channel(b, operand(kBias), input.dim());
    if (!args.flag(kTraining)) {
      const ValueId mean = per_channel(b, args.tensor(kRunningMean), input.dim());
      const ValueId var = per_channel(b, args.tensor(kRunningVar), input.dim());
      const ValueId scale = affine(b, inverse_std(b, b.cast(var, wide), eps), weight, kNoValue);
      const ValueId y = b.binary("mul", b.binary("sub", x, b.cast(mean, wide)), scale);
      Values results{b.cast(affine(b, y, kNoValue, bias), input.dtype)};
      if (form == BatchForm::kNative) {
        DType stat = input.dtype;
        for (size_t i : {kWeight, kRunningMean}) {
          if (!args.none(i)) stat = promote_types(stat, args.type(i).dtype);
        }
        for (int i = 0; i < 2; ++i) {
          const ValueId zero = b.constant(0, stat, input.device);
          results.push_back(b.expand(b.unsqueeze(zero, 0), {b.ctx().constant(0)}));
        }
      }
      return results;
    }
    const auto dims = all_but_channels(input.dim());
    const Stats s = stats_of(b, x, dims, eps);
    const std::vector<Expr> flat{input.sizes[1]};
    const ValueId mean = b.reshape(s.mean, flat);
    const ValueId var = b.reshape(s.var, flat);
    Values results{b.cast(affine(b, b.binary("mul", s.deviation, s.rstd), weight, bias), input.dtype)};
    if (form == BatchForm::kNative) {
      DType stat = input.dtype;
      for (size_t i : {kWeight, kRunningMean}) {
        if (!args.none(i)) stat = promote_types(stat, args.type(i).dtype);
      }
      results.push_back(b.cast(mean, stat));
      results.push_back(b.cast(b.reshape(s.rstd, flat), stat));
    }
    if (!args.none(kRunningMean)) {
      // In bfloat16, and not in float16, eager goes on from the mean as the statistic's dtype holds it.
      const bool rounded = args.type(kRunningMean).dtype == DType::kBFloat16;
      const ValueId held = rounded ? b.cast(mean, DType::kBFloat16) : mean;
      results.push_back(updated(b, args.tensor(kRunningMean), held, args));
      results.push_back(updated(b, args.tensor(kRunningVar), unbiased(b, var, elements_over(b, x, dims)), args));
    }
    return results;
  };
}

std::vector<TensorType> instance_norm_meta(MetaContext& m) {
  const TensorType& input = m.tensor(0);
  only_floats(m, input.dtype);
  if (input.dim() < 2) throw InvalidArgument("instance_norm: input must have at least 2 dimensions");
  const bool own_stats = m.boolean(kTraining);
  if (!own_stats && (m.is_none(kRunningMean) || m.is_none(kRunningVar))) {
    throw InvalidArgument("Expected running_mean and running_var to be defined when use_input_stats is false");
  }
  std::vector<TensorType> types{contiguous_type(m.ctx(), input.dtype, input.device, input.sizes)};
  if (own_stats && !m.is_none(kRunningMean)) {
    types.push_back(m.tensor(kRunningMean));
    types.push_back(m.tensor(kRunningVar));
  }
  return types;
}

Values decompose_instance_norm(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType input = args.type(0);
  if (!args.flag(kTraining)) {
    Values results = batch_norm_decompose(BatchForm::kPlain)(b, arguments);
    results.resize(1);
    return results;
  }
  std::vector<int64_t> dims;
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  const ValueId x = b.cast(args.tensor(0), compute_dtype(input.dtype));
  const Stats s = stats_of(b, x, dims, args.quantity(kEps));
  const std::vector<ValueId> deciding{args.tensor(0), args.tensor(kWeight)};
  const auto vector = [&](size_t i) { return per_channel(b, of_one_node(b, args.tensor(i), deciding), input.dim()); };
  const ValueId weight = vector(kWeight), bias = vector(kBias);
  const ValueId y = affine(b, b.binary("mul", s.deviation, s.rstd), weight, bias);
  Values results{b.cast(y, input.dtype)};
  if (!args.none(kRunningMean)) {
    const std::vector<Expr> flat{input.sizes[0], input.sizes[1]};
    const auto over_batch = [&](ValueId v) {
      return b.reshape(mean_over(b, b.reshape(v, flat), {0}), {input.sizes[1]});
    };
    const ValueId var = unbiased(b, s.var, elements_over(b, x, dims));
    results.push_back(updated(b, args.tensor(kRunningMean), over_batch(s.mean), args));
    results.push_back(updated(b, args.tensor(kRunningVar), over_batch(var), args));
  }
  return results;
}

}  // namespace

void register_norm(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  r.add(make_op({"layer_norm", composite,
                 "(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
                 "bool cudnn_enable=True) -> Tensor",
                 "torch.layer_norm"},
                layer_norm_meta(false), layer_norm_decompose(false)));
  r.add(make_op({"native_layer_norm", composite,
                 "(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> "
                 "(Tensor, Tensor, Tensor)",
                 "torch.native_layer_norm"},
                layer_norm_meta(true), layer_norm_decompose(true)));
  r.add(make_op(
      {"rms_norm", composite,
       "(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor", "torch.rms_norm"},
      nullptr, decompose_rms_norm));
  r.add(make_op({"group_norm", composite,
                 "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
                 "bool cudnn_enabled=True) -> Tensor",
                 "torch.group_norm"},
                group_norm_meta, decompose_group_norm));
  r.add(
      make_op({"native_group_norm", composite,
               "(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> "
               "(Tensor, Tensor, Tensor)",
               "torch.native_group_norm"},
              native_group_norm_meta, decompose_native_group_norm));
  r.add(make_op({"batch_norm", composite,
                 "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
                 "bool training, Operand momentum, float eps, bool cudnn_enabled) -> Tensor",
                 "torch.batch_norm"},
                batch_norm_meta(BatchForm::kPlain), batch_norm_decompose(BatchForm::kPlain)));
  r.add(make_op({"native_batch_norm", composite,
                 "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
                 "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
                 "torch.native_batch_norm"},
                batch_norm_meta(BatchForm::kNative), batch_norm_decompose(BatchForm::kNative)));
  r.add(make_op({"instance_norm", composite,
                 "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
                 "bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
                 "torch.instance_norm"},
                instance_norm_meta, decompose_instance_norm));
  r.mark(&OpTraits::uncounted_statistics, {"batch_norm", "native_batch_norm"});
  r.take_values({"layer_norm", "native_layer_norm", "rms_norm", "group_norm", "native_group_norm", "batch_norm",
                 "native_batch_norm", "instance_norm"});
}

}  // namespace tatara
