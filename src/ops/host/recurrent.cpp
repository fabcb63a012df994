// Cells of recurrent networks, as the products and gates that they are made of.
#include "ops/core/family_util.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

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

}  // namespace

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
}

}  // namespace tatara
