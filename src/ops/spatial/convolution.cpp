// Convolutions: kernels of the host, with eager's layouts.
#include <algorithm>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

/// The type of a result over one dimension. The host makes the input contiguous, puts a dimension of one before the last of both
/// operands, and goes by the layouts that these have then: a weight whose channels come last decides.
TensorType convolved_rows(ExprContext& ctx, const TensorType& x, const TensorType& w, TensorType type) {
  const auto image = [&ctx](TensorType rows) {
    const Expr stride = ctx.mul(rows.sizes[2], rows.strides[2]);
    rows.sizes.insert(rows.sizes.begin() + 2, ctx.constant(1));
    rows.strides.insert(rows.strides.begin() + 2, stride);
    return rows;
  };
  const TensorType input = is_contiguous(ctx, x) ? x : contiguous_type(ctx, x.dtype, x.device, x.sizes);
  if (suggested_layout(ctx, image(w)) != Layout::kChannelsLast &&
      suggested_layout(ctx, image(input)) != Layout::kChannelsLast) {
    return type;
  }
  type.strides = layout_strides(ctx, image(type).sizes, Layout::kChannelsLast);
  type.strides.erase(type.strides.begin() + 2);
  return type;
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::vector<TensorType> convolution_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& x = m.tensor(0);
  const TensorType& w = m.tensor(1);
  if (x.dtype != w.dtype) throw InvalidArgument("Input type and weight type should be the same");
  if (x.dim() != w.dim() || x.dim() < 3 || x.dim() > 5) throw InvalidArgument("convolution: ranks do not match");
  const auto stride = m.ints(3);
  const auto padding = m.ints(4);
  const auto dilation = m.ints(5);
  const bool transposed = m.boolean(6);
  const auto output_padding = m.ints(7);
  const Expr groups = ctx.constant(m.integer(8));
  const auto check = [&](const std::vector<Expr>& list, int64_t least, const char* what) {
    if (list.size() != 1 && list.size() + 2 != x.sizes.size()) throw InvalidArgument(str_cat("wrong number of ", what));
    for (const Expr e : list) {
      if (!ctx.guard(ctx.le(ctx.constant(least), e))) throw InvalidArgument(str_cat("convolution: ", what));
    }
  };
  check(stride, 1, "strides");
  check(padding, 0, "paddings");
  check(dilation, 1, "dilations");
  check(output_padding, 0, "output paddings");
  if (groups.const_value() <= 0) throw InvalidArgument("non-positive groups is not supported");
  const Expr filters = transposed ? w.sizes[1] * groups : w.sizes[0];
  if (!transposed && !is_zero(ctx, ctx.mod(filters, groups))) {
    throw InvalidArgument("convolution: the filters are not a multiple of the groups");
  }
  if (!m.is_none(2)) {
    const TensorType& bias = m.tensor(2);
    if (bias.dtype != x.dtype) throw InvalidArgument("Input type and bias type should be the same");
    if (bias.dim() != 1 || !same_size(ctx, bias.sizes[0], filters)) throw InvalidArgument("convolution: shape of bias");
  }
  const auto at = [](const std::vector<Expr>& list, size_t i) { return list.size() == 1 ? list[0] : list.at(i); };
  const Expr in_channels = transposed ? w.sizes[0] : ctx.mul(w.sizes[1], groups);
  if (!same_size(ctx, x.sizes[1], in_channels)) throw InvalidArgument("convolution: channels do not match");
  std::vector<Expr> sizes{x.sizes[0], transposed ? ctx.mul(w.sizes[1], groups) : w.sizes[0]};
  for (size_t d = 2; d < x.sizes.size(); ++d) {
    const Expr span = at(dilation, d - 2) * (w.sizes[d] - 1);
    if (!transposed && !ctx.guard(ctx.le(span + 1, x.sizes[d] + at(padding, d - 2) * 2))) {
      throw InvalidArgument("Kernel size can't be greater than actual input size");
    }
    if (transposed) {
      sizes.push_back((x.sizes[d] - 1) * at(stride, d - 2) - at(padding, d - 2) * 2 + span + at(output_padding, d - 2) +
                      1);
    } else {
      sizes.push_back(ctx.floordiv(x.sizes[d] + at(padding, d - 2) * 2 - span - 1, at(stride, d - 2)) + 1);
    }
    if (sizes.back().is_const() && sizes.back().const_value() < 0) {
      throw InvalidArgument("Kernel size can't be greater than actual input size");
    }
  }
  TensorType type = contiguous_type(ctx, x.dtype, x.device, sizes);
  bool empty = false;
  for (Expr size : sizes) empty = empty || size.is_const(0);
  if (empty || (x.dtype == DType::kFloat64 && x.dim() == 5)) return {type};
  if (x.dim() == 3) return {convolved_rows(ctx, x, w, std::move(type))};
  const bool last =
      suggested_layout(ctx, x) == Layout::kChannelsLast || suggested_layout(ctx, w) == Layout::kChannelsLast;
  if (last) type.strides = layout_strides(ctx, sizes, Layout::kChannelsLast);
  return {type};
}

std::vector<Expr> zeros(ExprContext& ctx, size_t n) { return std::vector<Expr>(n, ctx.constant(0)); }

/// Three real convolutions for one of complex numbers (Gauss's way to multiply these), as the host does.
template <typename Convolve>
ValueId complex_convolution(GraphBuilder& b, ValueId x, const Args& args, const Convolve& convolve) {
  const ValueId w = args.tensor(1), bias = args.none(2) ? kNoValue : args.tensor(2);
  const auto part = [&](const char* name, ValueId of) { return of == kNoValue ? of : b.unary(name, of); };
  const auto argument = [](ValueId v) { return v == kNoValue ? Arg(NoneArg{}) : Arg(TensorArg{v}); };
  const ValueId xr = part("real", x), xi = part("imag", x), wr = part("real", w), wi = part("imag", w);
  const ValueId br = part("real", bias), bi = part("imag", bias);
  const ValueId first = convolve(xr, argument(wr), argument(br)), second = convolve(xi, argument(wi), NoneArg{});
  const ValueId both = convolve(b.binary("add", xr, xi), argument(b.binary("add", wr, wi)),
                                argument(bias == kNoValue ? bias : b.binary("add", br, bi)));
  return b.binary("from_parts", b.binary("sub", first, second), b.binary("sub", b.binary("sub", both, first), second));
}

/// Calls `convolution`, with a batch dimension put on and taken off when the input has none.
Values convolve(GraphBuilder& b, const Args& args, std::vector<Expr> padding, bool transposed,
                std::vector<Expr> output_padding, Arg groups, Arg dilation, int64_t spatial) {
  ValueId x = args.tensor(0);
  const bool batched = b.type(x).dim() == spatial + 2;
  if (b.type(args.tensor(1)).dim() != spatial + 2) throw InvalidArgument("convolution: weight of the wrong rank");
  if (!batched && b.type(x).dim() != spatial + 1) throw InvalidArgument("convolution: input of the wrong rank");
  if (!batched) x = b.unsqueeze(x, 0);
  const Arg paddings = exprs_arg(std::move(padding)), output_paddings = exprs_arg(std::move(output_padding));
  const auto of = [&](ValueId image, Arg weight, Arg bias) {
    return b.op("convolution", {TensorArg{image}, std::move(weight), std::move(bias), args[3], paddings, dilation,
                                bool_arg(transposed), output_paddings, groups});
  };
  const ValueId y = is_complex(b.type(x).dtype) && b.type(args.tensor(1)).dtype == b.type(x).dtype
                        ? complex_convolution(b, x, args, of)
                        : of(x, args[1], args[2]);
  return {batched ? y : b.squeeze(y, 0)};
}

DecomposeFn conv(int64_t spatial) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    return convolve(b, args, args.exprs(4), false, zeros(b.ctx(), static_cast<size_t>(spatial)), args[6], args[5],
                    spatial);
  };
}

/// padding="valid" or "same".
DecomposeFn conv_named_padding(int64_t spatial) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    ExprContext& ctx = b.ctx();
    std::vector<Expr> padding = zeros(ctx, static_cast<size_t>(spatial));
    if (args.rank(1) != spatial + 2) throw InvalidArgument("convolution: weight of the wrong rank");
    const std::string mode = args.str(4);
    if (mode == "same") {
      std::vector<Expr> extra = zeros(ctx, 2 * padding.size());
      const auto dilation = args.integers(5);
      for (int64_t s : args.integers(3)) {
        if (s != 1) throw InvalidArgument("padding='same' is not supported for strided convolutions");
      }
      for (size_t d = 0; d < padding.size(); ++d) {
        const Expr k = args.type(1).sizes[d + 2];
        const Expr total = (k - 1) * (dilation.size() == 1 ? dilation[0] : dilation.at(d));
        padding[d] = ctx.floordiv(total, ctx.constant(2));
        // What is left over goes behind the input (the list starts with the last dimension).
        const size_t pair = 2 * (padding.size() - 1 - d);
        extra[pair + 1] = ctx.sub(total, padding[d] * 2);
      }
      if (std::any_of(extra.begin(), extra.end(), [&](Expr e) { return !is_zero(ctx, e); })) {
        std::vector<Arg> padded(arguments.begin(), arguments.end());
        padded[0] = TensorArg{b.op("constant_pad_nd", {arguments[0], exprs_arg(extra), Scalar(int64_t{0})})};
        return convolve(b, Args(b, padded), padding, false, zeros(ctx, padding.size()), args[6], args[5], spatial);
      }
    } else if (mode != "valid") {
      throw InvalidArgument("Invalid padding string");
    }
    return convolve(b, args, padding, false, zeros(ctx, padding.size()), args[6], args[5], spatial);
  };
}

DecomposeFn conv_transpose(int64_t spatial) {
  // (input, weight, bias, stride, padding, output_padding, groups, dilation)
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    return convolve(b, args, args.exprs(4), true, args.exprs(5), args[6], args[7], spatial);
  };
}

}  // namespace

void register_convolution(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  r.add(make_op({"convolution", OpKind::kHost,
                 "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
                 "bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
                 "torch.convolution"},
                convolution_meta));
  struct Row {
    int64_t spatial;
    const char* name;
    const char* schema;
    const char* named;
    const char* transpose_name;
    const char* transpose;
  };
  static constexpr Row kRows[] = {
      {1, "conv1d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, str padding=\"valid\", SymInt[1] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "conv_transpose1d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, "
       "SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> Tensor"},
      {2, "conv2d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, str padding=\"valid\", SymInt[2] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "conv_transpose2d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, "
       "SymInt[2] output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> Tensor"},
      {3, "conv3d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, str padding=\"valid\", SymInt[3] "
       "dilation=1, "
       "SymInt groups=1) -> Tensor",
       "conv_transpose3d",
       "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, "
       "SymInt[3] output_padding=0, SymInt groups=1, SymInt[3] dilation=1) -> Tensor"},
  };
  for (const Row& row : kRows) {
    const std::string name = str_cat("torch.", row.name);
    const std::string named = str_cat(row.name, ".padding");
    const std::string transposed = str_cat("torch.", row.transpose_name);
    r.add(make_op({row.name, composite, row.schema, name.c_str()}, nullptr, conv(row.spatial)));
    r.add(make_op({named.c_str(), composite, row.named, name.c_str()}, nullptr, conv_named_padding(row.spatial)));
    r.add(make_op({row.transpose_name, composite, row.transpose, transposed.c_str()}, nullptr,
                  conv_transpose(row.spatial)));
  }
}

}  // namespace tatara
