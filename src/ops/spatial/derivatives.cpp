// Gradients of convolutions, by the host's kernel for the gradients of all convolutions.
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

constexpr const char* kConvolutionBackward = "convolution_backward";
enum : size_t { kOfInput, kOfWeight, kOfBias };

// (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
std::vector<TensorType> convolution_backward_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& x = m.tensor(1);
  const TensorType& w = m.tensor(2);
  const bool last =
      suggested_layout(ctx, x) == Layout::kChannelsLast || suggested_layout(ctx, w) == Layout::kChannelsLast;
  std::vector<TensorType> types;
  for (const TensorType* t : {&x, &w}) {
    types.push_back(contiguous_type(ctx, t->dtype, t->device, t->sizes));
    if (last) types.back().strides = layout_strides(ctx, t->sizes, Layout::kChannelsLast);
  }
  types.push_back(contiguous_type(ctx, x.dtype, x.device, {m.tensor(0).sizes[1]}));
  return types;
}

/// One gradient of a convolution whose further arguments stand in `args` from `first` on.
ValueId convolution_gradient(GraphBuilder& b, const Args& args, size_t first, ValueId g, ValueId x, ValueId w,
                             size_t of) {
  std::vector<bool> mask(3, false);
  mask[of] = true;
  std::vector<Arg> all{TensorArg{g}, TensorArg{x}, TensorArg{w}, NoneArg{}};
  for (size_t i = 0; i < 6; ++i) all.push_back(args[first + i]);
  all.emplace_back(std::move(mask));
  return b.op_multi(kConvolutionBackward, std::move(all))[of];
}

ValueId convolved(GraphBuilder& b, const Args& args, size_t first, ValueId x, ValueId w) {
  std::vector<Arg> all{TensorArg{x}, TensorArg{w}, NoneArg{}};
  for (size_t i = 0; i < 6; ++i) all.push_back(args[first + i]);
  return b.op("convolution", std::move(all));
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Term g = gradient(v);
  const ValueId x = v.args().tensor(0), w = v.args().tensor(1);
  if (is_empty(v, x) || is_empty(v, w) || is_empty(v, g.id))
    throw Unsupported("the derivative of an empty convolution");
  if (is_complex(g.type().dtype)) return host_derivative(v);
  const auto give = [&](size_t arg, ValueId gradient) { v.give(arg, tied(b, gradient, {x, w}, false)); };
  if (v.needs(0)) give(0, convolution_gradient(b, v.args(), 3, g.id, x, w, kOfInput));
  if (v.needs(1)) give(1, convolution_gradient(b, v.args(), 3, g.id, x, w, kOfWeight));
  if (v.needs(2)) {
    std::vector<int64_t> dims{0};
    for (int64_t d = 2; d < g.type().dim(); ++d) dims.push_back(d);
    give(2, b.reduce("sum", g.id, dims, false));
  }
}

/// Each of the gradients is linear in two of the operands; one node computes one gradient.
void convolution_backward_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Args& a = v.args();
  const ValueId g = a.tensor(0), x = a.tensor(1), w = a.tensor(2);
  if (v.has_grad(kOfInput)) {
    const ValueId h = v.grad(kOfInput);
    if (v.needs(0)) v.give(0, convolved(b, a, 4, h, w));
    if (v.needs(2)) v.give(2, convolution_gradient(b, a, 4, g, h, w, kOfWeight));
  }
  if (v.has_grad(kOfWeight)) {
    const ValueId h = v.grad(kOfWeight);
    if (v.needs(0)) v.give(0, convolved(b, a, 4, x, h));
    if (v.needs(1)) v.give(1, convolution_gradient(b, a, 4, g, x, h, kOfInput));
  }
  if (v.has_grad(kOfBias)) throw InternalError("the gradient of a bias is a sum");
}

}  // namespace

void register_derivatives_spatial(OpRegistry& r) {
  OpDef backward = make_op(
      {kConvolutionBackward, OpKind::kHost,
       "(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, "
       "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> "
       "(Tensor, Tensor, Tensor)",
       ""},
      convolution_backward_meta);
  backward.vjp = convolution_backward_rule;
  backward.traits.images = ImageArgs{.first = 0, .last = 1, .groups = 9, .transposed = 7, .gradient_strides = 4};
  r.add(std::move(backward));
  OpDef& convolution = r.amend("convolution");
  convolution.vjp = convolution_rule;
  convolution.traits.images = ImageArgs{.first = 0, .last = 0, .groups = 8, .transposed = 6};
  for (const char* name : {"conv2d", "conv3d"}) {
    r.amend(name).traits.images = ImageArgs{.first = 0, .last = 0, .groups = 6};
  }
  for (const char* name : {"conv_transpose2d", "conv_transpose3d"}) {
    r.amend(name).traits.images = ImageArgs{.first = 0, .last = 0, .groups = 6, .always_transposed = true};
  }
  r.mark(&OpTraits::always_saves, {"conv1d", "conv2d", "conv3d", "max_pool2d"});
  for (const char* name : {"max_unpool2d", "max_unpool3d"}) r.amend(name).traits.linear_operands = {0};
}

}  // namespace tatara
