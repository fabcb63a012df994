// Batching of convolutions, pooling, interpolation and padding: the batch is folded into the examples' own batch, or into the
// channels.
#include <optional>

#include "ops/rules/batching_rule.h"

namespace tatara {
namespace {

using namespace ops;

/// [batch, N, ...] -> [batch * N, ...]; dimension `at` of an example.
ValueId fold(const BatchContext& c, ValueId x, int64_t at) {
  GraphBuilder& b = c.builder();
  x = move_dim(b, x, 0, at);
  std::vector<Expr> sizes = b.type(x).sizes;
  const auto place = static_cast<size_t>(at);
  sizes[place] = sizes[place] * sizes[place + 1];
  sizes.erase(sizes.begin() + at + 1);
  return b.reshape(x, sizes);
}

/// The reverse: [.., batch * n, ..] -> [batch, .., n, ..].
ValueId unfold(const BatchContext& c, ValueId x, int64_t at, Expr own) {
  GraphBuilder& b = c.builder();
  std::vector<Expr> sizes = b.type(x).sizes;
  sizes[static_cast<size_t>(at)] = own;
  sizes.insert(sizes.begin() + at, c.size());
  return move_dim(b, b.reshape(x, sizes), at, 0);
}

/// Operators over [N, C, spatial...] that take no other number of dimensions, or [C, spatial...] too.
bool over_images(BatchContext& c, int64_t spatial) {
  const int64_t rank = c.args().rank(0);
  std::vector<Arg> args = c.node().args;
  if (rank == spatial + 1) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (c.args().is_tensor(i)) args[i] = TensorArg{c.all(i)};
    }
    c.give_call(std::move(args));
    return true;
  }
  if (rank != spatial + 2) return false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (c.args().is_tensor(i)) args[i] = TensorArg{fold(c, c.all(i), 0)};
  }
  const std::vector<ValueId> results = c.builder().call(*c.node().op, std::move(args));
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    c.give(i, unfold(c, results[i], 0, c.out_type(i).sizes[0]));
  }
  return true;
}

BatchFn over_images(int64_t spatial) {
  return [spatial](BatchContext& c) { return over_images(c, spatial); };
}

// (self, pad): two numbers a dimension
bool batch_pad(BatchContext& c) { return over_images(c, static_cast<int64_t>(c.args().exprs(1).size() / 2)); }

// (grad, indices, size, ...)
bool batch_max_gradient(BatchContext& c) {
  const size_t spatial = c.args().integers(3).size();
  const size_t rank = static_cast<size_t>(c.args().rank(0));
  std::vector<Arg> args = c.node().args;
  std::vector<Expr> size = c.args().exprs(2);
  if (rank == spatial + 1) {
    for (const size_t i : {0, 1}) args[i] = TensorArg{c.all(i)};
    size.insert(size.begin(), c.size());
    args[2] = SymInts{size};
    c.give_call(std::move(args));
    return true;
  }
  for (const size_t i : {0, 1}) args[i] = TensorArg{fold(c, c.all(i), 0)};
  const Expr own = size[0];
  size[0] = own * c.size();
  args[2] = SymInts{size};
  c.give(0, unfold(c, c.builder().call(*c.node().op, std::move(args))[0], 0, own));
  return true;
}

// ---- Convolution -------------------------------------------------------------------------------------------------------

Arg times_batch(const BatchContext& c, size_t arg) { return expr_arg(c.args().expr(arg) * c.size()); }

/// The examples' convolutions side by side, as groups of one: values with a batch have it in their channels.
ValueId grouped(const BatchContext& c, ValueId example, int64_t channels) {
  return fold(c, c.all_of(example), channels);
}

/// Adds a bias of one number a channel.
ValueId with_bias(const BatchContext& c, ValueId out, size_t bias, int64_t spatial) {
  GraphBuilder& b = c.builder();
  ValueId x = c.as_is(bias);
  const bool own = c.batched(bias);
  for (int64_t d = 0; d < spatial; ++d) x = b.unsqueeze(x, b.type(x).dim());
  if (own) x = b.unsqueeze(x, 1);
  return b.binary("add", out, x);
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
bool batch_convolution(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const int64_t rank = c.args().rank(0);
  const std::vector<Expr>& out = c.out_type().sizes;
  std::vector<Arg> args = c.mapped_args();
  if (rank != c.args().rank(1)) return false;
  if (!c.batched(1)) {
    const bool has_bias = c.args().is_tensor(2);
    const bool inside = has_bias && !c.batched(2);
    if (!inside) args[2] = NoneArg{};
    ValueId result = kNoValue;
    if (c.batched(0)) {
      args[0] = TensorArg{fold(c, c.as_is(0), 0)};
      result = unfold(c, b.op("convolution", std::move(args)), 0, out[0]);
    } else {
      result = b.unsqueeze(b.op("convolution", std::move(args)), 0);
    }
    c.give(0, inside || !has_bias ? result : with_bias(c, result, 2, rank - 2));
    return true;
  }
  const bool one_group = c.args().expr(8).is_const(1);
  args[2] = NoneArg{};
  const bool transposed = c.args().flag(6);
  if (!c.batched(0) && one_group) {
    // One image for all: more channels of results.
    args[1] = TensorArg{fold(c, c.as_is(1), transposed ? 1 : 0)};
  } else {
    args[0] = TensorArg{grouped(c, c.args().tensor(0), 1)};
    args[1] = TensorArg{grouped(c, c.args().tensor(1), 0)};
    args[8] = times_batch(c, 8);
  }
  const ValueId result = unfold(c, b.op("convolution", std::move(args)), 1, out[1]);
  c.give(0, c.args().is_tensor(2) ? with_bias(c, result, 2, rank - 2) : result);
  return true;
}

// (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
bool batch_convolution_backward(BatchContext& c) {
  GraphBuilder& b = c.builder();
  std::vector<Arg> args = c.mapped_args();
  const auto& mask = std::get<std::vector<bool>>(args[10]);
  const bool of_input = mask[0];
  if (mask[2] || mask[0] == mask[1]) return false;
  const std::vector<Expr>& out = c.out_type(of_input ? 0 : 1).sizes;
  const size_t wanted = of_input ? 0 : 1;
  if (of_input && !c.batched(2)) {
    args[0] = TensorArg{fold(c, c.all(0), 0)};
    args[1] = TensorArg{fold(c, c.all(1), 0)};
    c.give(wanted, unfold(c, b.op_multi("convolution_backward", std::move(args))[0], 0, out[0]));
  } else {
    args[0] = TensorArg{grouped(c, c.args().tensor(0), 1)};
    args[1] = TensorArg{grouped(c, c.args().tensor(1), 1)};
    args[2] = TensorArg{grouped(c, c.args().tensor(2), 0)};
    args[9] = times_batch(c, 9);
    const ValueId result = b.op_multi("convolution_backward", std::move(args))[wanted];
    const int64_t at = of_input ? 1 : 0;
    c.give(wanted, unfold(c, result, at, out[static_cast<size_t>(at)]));
  }
  return true;
}

}  // namespace

void register_batching_spatial(OpRegistry& r) {
  r.amend("convolution").batch = batch_convolution;
  r.amend("convolution_backward").batch = batch_convolution_backward;
  for (int64_t spatial = 1; spatial <= 3; ++spatial) {
    const std::string d = std::to_string(spatial) + "d";
    std::vector<std::string> names;
    for (const char* pool : {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"})
      names.push_back(pool + d);
    names.push_back("max_pool" + d + "_with_indices");
    for (const char* nearest : {"upsample_nearest", "_upsample_nearest_exact"}) {
      names.push_back(nearest + d);
      names.push_back(nearest + d + ".vec");
    }
    const char* linear[] = {"upsample_linear", "upsample_bilinear", "upsample_trilinear"};
    names.push_back(linear[spatial - 1] + d);
    names.push_back(linear[spatial - 1] + d + ".vec");
    for (const std::string& name : names) r.amend(name).batch = over_images(spatial);
  }
  for (const char* name : {"upsample_bicubic2d", "upsample_bicubic2d.vec", "grid_sampler_2d", "im2col"}) {
    r.amend(name).batch = over_images(2);
  }
  r.amend("_max_pool_gradient").batch = batch_max_gradient;
  r.amend("grid_sampler_3d").batch = over_images(3);
  for (const char* name : {"_pad_reflect", "_pad_replicate", "_pad_circular"}) r.amend(name).batch = batch_pad;
}

}  // namespace tatara
