// Batching of pointwise operators, and of those that make a tensor like another one.
#include "ops/rules/batching_rule.h"

namespace tatara {
namespace {

using namespace ops;

/// The values do not depend on the operand, so they are the same for all examples.
BatchFn constant_like(size_t value_arg, double value) {
  return [=](BatchContext& c) {
    const TensorType& type = c.out_type();
    Scalar fill = value;
    if (value_arg != 0) fill = c.args().scalar(value_arg);
    if (is_integral(type.dtype) && value_arg == 0) fill = static_cast<int64_t>(value);
    const ValueId made =
        c.builder().op("full_strided", {SymInts{type.sizes}, SymInts{type.strides}, fill, type.dtype, type.device});
    c.give(0, made, false);
    return true;
  };
}

/// Layouts over all examples are the compiler's own; the results of vmap get theirs at the end.
bool batch_clone(BatchContext& c) {
  c.give(0, c.builder().op("clone", {TensorArg{c.as_is(0)}}));
  return true;
}

bool batch_cast(BatchContext& c) {
  c.give(0, c.builder().op("cast", {TensorArg{c.as_is(0)}, c.out_type().dtype}));
  return true;
}

bool same_values(BatchContext& c) {
  c.give(0, c.as_is(0));
  return true;
}

/// Operands of one shape, which do not broadcast.
bool batch_same_shape(BatchContext& c) {
  c.give_call({TensorArg{c.all(0)}, TensorArg{c.all(1)}});
  return true;
}

/// linspace and logspace between tensors: start + step * i from the nearer end, as for one example.
bool batch_linspace(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const bool power = c.node().op->name == "logspace";
  const int64_t steps = c.args().integer(2);
  if (steps == 0 || !c.args().is_tensor(0) || !c.args().is_tensor(1)) {
    throw Unsupported("linspace under vmap, of another dtype in the host than alone");
  }
  const TensorType& out = c.out_type();
  const DType t = compute_dtype(out.dtype);
  const auto end = [&](size_t arg) { return b.cast(c.aligned(c.args().tensor(arg), 1), t); };
  const ValueId first = end(0), last = end(1);
  ValueId value = first;
  if (steps != 1) {
    const Scalar gaps = static_cast<double>(steps - 1);
    const ValueId step = b.binary("div", b.binary("sub", last, first), gaps);
    std::vector<Arg> args{Scalar(0.0), gaps, Scalar(steps), t, NoneArg(), out.device};
    const ValueId index = b.op("linspace", std::move(args));  // each one is exact
    const ValueId low = b.binary("add", first, b.binary("mul", step, index));
    const ValueId left = b.binary("rsub", index, gaps);
    const ValueId high = b.binary("sub", last, b.binary("mul", step, left));
    value = b.where(b.binary("lt", index, Scalar(static_cast<double>(steps / 2))), low, high);
  }
  if (power) value = b.binary("pow", b.constant(c.args().number(3), t, out.device), value);
  c.give(0, b.cast(b.expand(value, c.with_batch(out.sizes)), out.dtype));
  return true;
}

bool batch_tied(BatchContext& c) {
  c.give(0, c.as_is(0), c.batched(0));
  return true;
}

}  // namespace

void register_batching_pointwise(OpRegistry& r) {
  r.amend("clone").batch = batch_clone;
  r.amend("cast_format").batch = batch_cast;
  for (const char* name : {"tied", "gradient_tied"}) r.amend(name).batch = batch_tied;
  for (const char* name : {"linspace", "logspace"}) r.amend(name).batch = batch_linspace;
  r.amend("relayout").batch = same_values;
  r.amend("from_parts").batch = batch_same_shape;
  for (const char* name : {"zeros_like", "new_zeros"}) r.amend(name).batch = constant_like(0, 0);
  for (const char* name : {"ones_like", "new_ones"}) r.amend(name).batch = constant_like(0, 1);
  r.amend("full_like").batch = constant_like(1, 0);
  r.amend("new_full").batch = constant_like(2, 0);
  for (const char* name : {"copy", "fill", "masked_fill", "masked_fill.Tensor"}) r.amend(name).batch = batch_into_self;
  std::vector<std::string> others;
  for (const OpDef* op : r.all()) {
    if (op->kind == OpKind::kPointwise && !op->batch) others.push_back(op->name);
  }
  for (const std::string& name : others) r.amend(name).batch = batch_pointwise;
}

}  // namespace tatara
