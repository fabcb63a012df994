// Padding.
#include <algorithm>

#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

enum class Mode : uint8_t { kConstant, kReflect, kReplicate, kCircular };

/// Amounts before and after each dimension; the list runs from the last dimension backwards, in pairs.
struct Amounts {
  std::vector<Expr> before;
  std::vector<Expr> after;
};

Amounts amounts(ExprContext& ctx, const std::vector<Expr>& list, size_t rank) {
  if (list.size() % 2 != 0 || list.size() > 2 * rank)
    throw InvalidArgument("Length of pad must be even and fit the input");
  Amounts a{std::vector<Expr>(rank, ctx.constant(0)), std::vector<Expr>(rank, ctx.constant(0))};
  for (size_t i = 0; i < list.size() / 2; ++i) {
    a.before[rank - 1 - i] = list[2 * i];
    a.after[rank - 1 - i] = list[2 * i + 1];
  }
  return a;
}

std::vector<Expr> padded_sizes(ExprContext& ctx, const TensorType& self, const Amounts& a) {
  std::vector<Expr> sizes = self.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    sizes[d] = ctx.add(ctx.add(sizes[d], a.before[d]), a.after[d]);
    if (sizes[d].is_const() && sizes[d].const_value() < 0)
      throw InvalidArgument("The input size resulted in a negative output size");
  }
  return sizes;
}

bool grows(const std::vector<Expr>& list) {
  return std::any_of(list.begin(), list.end(), [](Expr e) { return !e.is_const() || e.const_value() > 0; });
}

std::vector<TensorType> constant_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  const auto list = m.ints(1);
  TensorType type =
      contiguous_type(ctx, self.dtype, self.device, padded_sizes(ctx, self, amounts(ctx, list, self.sizes.size())));
  if (grows(list)) {
    type.strides = layout_strides(ctx, type.sizes, suggested_layout(ctx, self));
  } else {
    // Eager clones a narrowed view here, which keeps the order of its dimensions.
    TensorType narrowed = self;
    narrowed.sizes = type.sizes;
    const TensorType* operands[] = {&narrowed};
    type.strides = m.iterator_strides(type.sizes, operands);
  }
  return {type};
}

/// The modes that read the input everywhere. `mode` arrives as the operator.
MetaFn wrapped_meta(Mode mode) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    ExprContext& ctx = m.ctx();
    const TensorType& self = m.tensor(0);
    const auto list = m.ints(1);
    const size_t padded = list.size() / 2;
    if (self.sizes.size() != padded + 1 && self.sizes.size() != padded + 2) {
      throw InvalidArgument("padding does not fit the input's rank");
    }
    const Amounts a = amounts(ctx, list, self.sizes.size());
    for (size_t d = 0; d < self.sizes.size(); ++d) {
      for (Expr amount : {a.before[d], a.after[d]}) {
        if (!amount.is_const()) throw Unsupported("padding by a symbolic amount");
        if (amount.const_value() < 0) throw Unsupported("negative padding in this mode runs in eager");
        const Expr limit = mode == Mode::kCircular ? self.sizes[d] : self.sizes[d] - 1;
        if (mode != Mode::kReplicate && amount.const_value() > 0 && !ctx.guard(ctx.le(amount, limit))) {
          throw InvalidArgument("Padding size should be less than the corresponding input dimension");
        }
      }
      const bool batch = d == 0 && self.sizes.size() == padded + 2;
      if (!batch && is_zero(ctx, self.sizes[d])) throw Unsupported("padding of an empty tensor runs in eager");
    }
    TensorType type = contiguous_type(ctx, self.dtype, self.device, padded_sizes(ctx, self, a));
    if (mode != Mode::kCircular) type.strides = layout_strides(ctx, type.sizes, suggested_layout(ctx, self));
    return {type};
  };
}

void lower_constant(LowerContext& ctx) {
  const Args args(ctx);
  const TensorType self = ctx.operand(0);
  const Amounts a = amounts(ctx.ctx(), args.exprs(1), self.sizes.size());
  const DType dtype = compute_dtype(self.dtype);
  const bool given = !args.none(2);
  ctx.pointwise(0, [=, &ctx](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    std::vector<Expr> at(out.begin(), out.end());
    ScalarId mask = loops::kNoScalar;
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] = ec.sub(out[d], a.before[d]);
      if (!a.before[d].is_const(0) || !a.after[d].is_const(0)) {
        mask = logical_and(b, mask, in_range(b, at[d], ec.constant(0), self.sizes[d]));
      }
    }
    const ScalarId fill = given ? operand_at(ctx, b, 2, dtype, {}) : number_as(b, Scalar(0.0), dtype);
    return load_if(b, 0, at, mask, fill);
  });
}

LowerFn lower_wrapped(Mode mode) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Amounts a = amounts(ctx.ctx(), Args(ctx).exprs(1), self.sizes.size());
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      ExprContext& ec = b.ctx();
      std::vector<Expr> at(out.begin(), out.end());
      for (size_t d = 0; d < at.size(); ++d) {
        if (a.before[d].is_const(0) && a.after[d].is_const(0)) continue;
        const Expr i = ec.sub(out[d], a.before[d]);
        const Expr last = self.sizes[d] - 1;
        if (mode == Mode::kReflect) {
          const Expr left = ec.max(i, ec.neg(i));  // |i|
          const Expr right = ec.sub(last, left);
          at[d] = ec.sub(last, ec.max(right, ec.neg(right)));
        } else if (mode == Mode::kReplicate) {
          at[d] = ec.min(ec.max(i, ec.constant(0)), last);
        } else {
          at[d] = ec.mod(i, self.sizes[d]);
        }
      }
      return b.load(0, at);
    });
  };
}

Values decompose_pad(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, pad, mode, value)
  const Args args(b, arguments);
  const std::string mode = args.str(2);
  if (mode == "constant") {
    return {b.op("constant_pad_nd", {arguments[0], arguments[1], args.none(3) ? Arg(Scalar(0.0)) : arguments[3]})};
  }
  const char* name = mode == "reflect" ? "_pad_reflect" : mode == "replicate" ? "_pad_replicate" : "_pad_circular";
  if (mode != "reflect" && mode != "replicate" && mode != "circular")
    throw InvalidArgument("Unrecognised padding mode");
  return {b.op(name, {arguments[0], arguments[1]})};
}

}  // namespace

void register_pad(OpRegistry& r) {
  const auto kind = OpKind::kIndexing;
  const char* schema = "(Tensor self, SymInt[] pad) -> Tensor";
  r.add(make_op(
      {"constant_pad_nd", kind, "(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", "torch.constant_pad_nd"},
      constant_meta, nullptr, lower_constant));
  r.add(make_op({"pad", OpKind::kComposite,
                 "(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor", "torch._C._nn.pad"},
                nullptr, decompose_pad));
  r.add(make_op({"_pad_reflect", kind, "(Tensor self, SymInt[] padding) -> Tensor",
                 "torch._C._nn.reflection_pad1d torch._C._nn.reflection_pad2d torch._C._nn.reflection_pad3d"},
                wrapped_meta(Mode::kReflect), nullptr, lower_wrapped(Mode::kReflect)));
  r.add(make_op({"_pad_replicate", kind, "(Tensor self, SymInt[] padding) -> Tensor",
                 "torch._C._nn.replication_pad1d torch._C._nn.replication_pad2d torch._C._nn.replication_pad3d"},
                wrapped_meta(Mode::kReplicate), nullptr, lower_wrapped(Mode::kReplicate)));
  r.add(make_op({"_pad_circular", kind, schema, "torch._C._nn._pad_circular"}, wrapped_meta(Mode::kCircular), nullptr,
                lower_wrapped(Mode::kCircular)));
  r.take_value("constant_pad_nd", "value");
  r.take_value("pad", "value");
}

}  // namespace tatara
