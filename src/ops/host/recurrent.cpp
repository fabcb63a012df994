// Recurrent networks: cells as the products and gates that they are made of, and the types of whole layers.
#include "ops/host/recurrent.h"

#include <algorithm>
#include <array>

#include "ops/core/family_util.h"
#include "ops/core/meta.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr std::array<const char*, 4> kLayers = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

/// (input, hx, w_ih, w_hh, b_ih, b_hh); of the LSTM `hx` is a list of two.
enum : size_t { kInput, kHidden, kInputWeight, kHiddenWeight, kInputBias, kHiddenBias };

ValueId weighted(GraphBuilder& b, const Args& args, ValueId x, size_t weight, size_t bias) {
  return b.op("linear", {TensorArg{x}, args[weight], args[bias]});
}

/// Half types are rounded after each of eager's fused steps, so the host computes them.
bool computed_here(const Args& args) {
  const DType dtype = args.type(kInput).dtype;
  return args.type(kInput).dim() == 2 && (dtype == DType::kFloat32 || dtype == DType::kFloat64);
}

/// Columns `index` of `count` equal parts.
ValueId part(GraphBuilder& b, ValueId x, size_t index, size_t count) {
  const Expr width = b.ctx().floordiv(b.type(x).sizes[1], b.ctx().constant(static_cast<int64_t>(count)));
  const auto at = [&](size_t i) { return b.ctx().mul(width, b.ctx().constant(static_cast<int64_t>(i))); };
  return b.slice(x, 1, at(index), at(index + 1), b.ctx().constant(1));
}

DecomposeFn simple_cell(const char* activation) {
  return [activation](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    if (!computed_here(args)) return {};
    const ValueId fresh = weighted(b, args, args.tensor(kInput), kInputWeight, kInputBias);
    const ValueId old = weighted(b, args, args.tensor(kHidden), kHiddenWeight, kHiddenBias);
    return {b.unary(activation, b.binary("add", fresh, old))};
  };
}

Values gru_cell(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!computed_here(args)) return {};
  const ValueId hidden = args.tensor(kHidden);
  const ValueId fresh = weighted(b, args, args.tensor(kInput), kInputWeight, kInputBias);
  const ValueId old = weighted(b, args, hidden, kHiddenWeight, kHiddenBias);
  const auto gate = [&](size_t i) {
    return b.unary("sigmoid", b.binary("add", part(b, old, i, 3), part(b, fresh, i, 3)));
  };
  const ValueId reset = gate(0), keep = gate(1);
  const ValueId made =
      b.unary("tanh", b.binary("add", part(b, fresh, 2, 3), b.binary("mul", part(b, old, 2, 3), reset)));
  return {b.binary("add", b.binary("mul", b.binary("sub", hidden, made), keep), made)};
}

Values lstm_cell(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!computed_here(args)) return {};
  const std::vector<ValueId>& state = std::get<TensorList>(args[kHidden]).values;
  const ValueId gates = b.binary("add", weighted(b, args, args.tensor(kInput), kInputWeight, kInputBias),
                                 weighted(b, args, state[0], kHiddenWeight, kHiddenBias));
  const ValueId in = b.unary("sigmoid", part(b, gates, 0, 4)), forget = b.unary("sigmoid", part(b, gates, 1, 4));
  const ValueId made = b.unary("tanh", part(b, gates, 2, 4)), out = b.unary("sigmoid", part(b, gates, 3, 4));
  const ValueId cell = b.binary("add", b.binary("mul", forget, state[1]), b.binary("mul", in, made));
  return {b.binary("mul", out, b.unary("tanh", cell)), cell};
}

/// Whole layers, which the host runs. Sequences lie in memory by time, also where the batch is the first dimension.
enum : size_t { kSequence, kState };

TensorType fresh(const TensorType& like, std::vector<Expr> sizes, std::vector<Expr> strides) {
  TensorType type = like;
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  return type;
}

std::vector<TensorType> layers_meta(MetaContext& c, size_t state, bool batch_first) {
  ExprContext& ctx = c.ctx();
  const TensorType& input = c.tensor(kSequence);
  std::vector<const TensorType*> states = c.is_tensor(state) ? std::vector{&c.tensor(state)} : c.tensor_list(state);
  // (..., bidirectional, batch_first), and without the last of a packed sequence.
  const bool both = c.boolean(c.num_args() - (state == kState ? 2 : 1));
  for (const TensorType* each : states) {
    if (each->dim() != 3) throw Unsupported("a state of a recurrent layer that has not three dimensions");
  }
  const Expr width = ctx.mul(ctx.constant(both ? 2 : 1), states[0]->sizes[2]);
  std::vector<Expr> sizes = input.sizes;
  sizes.back() = width;
  std::vector<Expr> strides = contiguous_strides(ctx, sizes);
  if (batch_first) strides = {width, ctx.mul(sizes[0], width), ctx.constant(1)};
  std::vector<TensorType> results = {fresh(input, sizes, strides)};
  for (const TensorType* each : states) {
    results.push_back(fresh(input, each->sizes, contiguous_strides(ctx, each->sizes)));
  }
  return results;
}

std::vector<TensorType> sequence_meta(MetaContext& c) {
  if (c.tensor(kSequence).dim() != 3) throw Unsupported("a sequence that has not three dimensions");
  return layers_meta(c, kState, c.boolean(c.num_args() - 1));
}

/// (data, batch_sizes, hx, ...)
std::vector<TensorType> packed_meta(MetaContext& c) {
  if (c.tensor(kSequence).dim() != 2) throw Unsupported("a packed sequence that has not two dimensions");
  return layers_meta(c, kState + 1, false);
}

}  // namespace

bool repeats_steps(const OpDef& op) {
  return std::any_of(kLayers.begin(), kLayers.end(),
                     [&op](const char* name) { return op.name == str_cat(name, ".input"); });
}

void register_recurrent(OpRegistry& r) {
  const auto made_of = [&](const char* name, const DecomposeFn& parts) {
    OpDef& op = r.amend(name);
    op.decompose = parts;
    op.differentiable_parts = parts;
  };
  made_of("rnn_tanh_cell", simple_cell("tanh"));
  made_of("rnn_relu_cell", simple_cell("relu"));
  made_of("gru_cell", gru_cell);
  made_of("lstm_cell", lstm_cell);
  for (const char* name : kLayers) {
    // Torch, asked about its nodes of gradients, would go through all steps of the sequence.
    OpDef& whole = r.amend(str_cat(name, ".input"));
    whole.meta = sequence_meta;
    whole.traits.always_saves = true;
    OpDef& packed = r.amend(str_cat(name, ".data"));
    packed.meta = packed_meta;
    packed.traits.always_saves = true;
  }
}

}  // namespace tatara
