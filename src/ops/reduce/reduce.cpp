// Reductions. Sums accumulate in the compute dtype of the result and round once, as eager's do.
#include <cmath>
#include <limits>

#include "ops/reduce/reduce_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using loops::Combine;

/// (values, indices) of one dimension.
std::vector<TensorType> dim_pair_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  require_real(m, self.dtype);
  const std::vector<int64_t> dims = wrap_dims({m.integer(1)}, self.dim());
  require_elements(m, self, dims);
  std::vector<Expr> sizes = reduced_sizes(m.ctx(), self.sizes, dims, m.boolean(2));
  return {contiguous_type(m.ctx(), self.dtype, self.device, sizes),
          contiguous_type(m.ctx(), DType::kInt64, self.device, sizes)};
}

// ---- Loops -----------------------------------------------------------------------------------------------------------

/// The dtype comparisons are done in: bool as a byte.
DType order_dtype(DType dtype) { return dtype == DType::kBool ? DType::kUInt8 : compute_dtype(dtype); }

/// The identity of min (largest value) or max (smallest).
ScalarId extreme(LoopBuilder& b, DType dtype, bool largest) {
  if (is_floating(dtype)) {
    const double inf = std::numeric_limits<double>::infinity();
    return b.constant(largest ? inf : -inf, dtype);
  }
  const int bits = 8 * dtype_size(dtype);
  if (!is_signed(dtype)) {
    if (!largest) return b.constant_int(0, dtype);
    return b.constant_int(bits == 64 ? -1 : (int64_t{1} << bits) - 1, dtype);
  }
  const int64_t top = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
  return b.constant_int(largest ? top : -top - 1, dtype);
}

ScalarId number(LoopBuilder& b, double value, DType dtype) {
  if (is_complex(dtype)) return b.constant_complex(value, 0, dtype);
  if (is_floating(dtype)) return b.constant(value, dtype);
  return b.constant_int(static_cast<int64_t>(value), dtype);
}

void lower_fold(LowerContext& ctx, Combine combine, DType acc, double identity) {
  const Args args(ctx);
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {acc};
  def.combine = {combine};
  def.init = [=](LoopBuilder& b) { return std::vector{number(b, identity, acc)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.cast(b.load(0, indices), acc)};
  };
  ctx.reduction(std::move(def));
}

LowerFn fold(Combine combine, double identity) {
  return [=](LowerContext& ctx) {
    DType acc = compute_dtype(ctx.result().dtype);
    if (acc == DType::kBool) acc = DType::kUInt8;
    lower_fold(ctx, combine, acc, identity);
  };
}

void lower_any_all(LowerContext& ctx, bool all) {
  const Args args(ctx);
  const DType in = compute_dtype(ctx.operand(0).dtype);
  const DType out = ctx.result().dtype;
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {DType::kBool};
  def.combine = {all ? Combine::kAnd : Combine::kOr};
  def.init = [=](LoopBuilder& b) { return std::vector{b.constant_int(all ? 1 : 0, DType::kBool)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    const ScalarId x = b.load(0, indices);
    if (in == DType::kBool) return std::vector{x};
    const Calc calc{b, in};
    return std::vector{calc.cmp(ScalarOp::kNe, x, number(b, 0, in))};
  };
  if (out != DType::kBool) {
    def.finish = [=](LoopBuilder& b, std::span<const ScalarId> acc, std::span<const Expr>) {
      return std::vector{b.cast(acc[0], out)};
    };
  }
  ctx.reduction(std::move(def));
}

void lower_extreme(LowerContext& ctx, bool largest) {
  const Args args(ctx);
  const DType acc = order_dtype(ctx.operand(0).dtype);
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {acc};
  def.combine = {largest ? Combine::kMax : Combine::kMin};
  def.init = [=](LoopBuilder& b) { return std::vector{extreme(b, acc, !largest)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.cast(b.load(0, indices), acc)};
  };
  ctx.reduction(std::move(def));
}

/// Keeps the better of two (value, index) pairs: NaN beats all, ties go to the lower index.
std::vector<ScalarId> better(LoopBuilder& b, DType acc, bool largest, std::span<const ScalarId> x,
                             std::span<const ScalarId> y) {
  const Calc value{b, acc};
  const Calc index{b, DType::kInt64};
  ScalarId wins = value.cmp(largest ? ScalarOp::kGt : ScalarOp::kLt, y[0], x[0]);
  ScalarId ties = value.cmp(ScalarOp::kEq, y[0], x[0]);
  if (is_floating(acc)) {
    const Calc flag{b, DType::kBool};
    const ScalarId x_nan = flag.un(ScalarOp::kIsNan, x[0]);
    const ScalarId y_nan = flag.un(ScalarOp::kIsNan, y[0]);
    wins = logical_or(b, wins, logical_and(b, y_nan, flag.un(ScalarOp::kNot, x_nan)));
    ties = logical_or(b, ties, logical_and(b, x_nan, y_nan));
  }
  wins = logical_or(b, wins, logical_and(b, ties, index.cmp(ScalarOp::kLt, y[1], x[1])));
  return {value.select(wins, y[0], x[0]), index.select(wins, y[1], x[1])};
}

void lower_arg_extreme(LowerContext& ctx, bool largest, bool values_too) {
  const Args args(ctx);
  const TensorType& self = ctx.operand(0);
  const DType acc = order_dtype(self.dtype);
  const bool flat = args.none(1);
  const std::vector<int64_t> dims = arg_dims(args, 1, self.dim());
  ReductionDef def;
  def.dims = dims;
  def.dtypes = {acc, DType::kInt64};
  def.combine = {Combine::kCustom, Combine::kCustom};
  def.init = [=](LoopBuilder& b) {
    return std::vector{extreme(b, acc, !largest), b.constant_int(INT64_MAX, DType::kInt64)};
  };
  def.element = [=, sizes = self.sizes](LoopBuilder& b, std::span<const Expr> indices) {
    ExprContext& ec = b.ctx();
    Expr index = ec.constant(0);
    if (flat) {
      for (size_t i = 0; i < sizes.size(); ++i) index = ec.add(ec.mul(index, sizes[i]), indices[i]);
    } else if (!dims.empty()) {
      index = indices[static_cast<size_t>(dims[0])];
    }
    return std::vector{b.cast(b.load(0, indices), acc), b.index_value(index, DType::kInt64)};
  };
  def.merge = [=](LoopBuilder& b, std::span<const ScalarId> x, std::span<const ScalarId> y) {
    return better(b, acc, largest, x, y);
  };
  if (!values_too) {
    def.finish = [](LoopBuilder&, std::span<const ScalarId> a, std::span<const Expr>) { return std::vector{a[1]}; };
  }
  ctx.reduction(std::move(def));
}

void lower_aminmax(LowerContext& ctx) {
  const Args args(ctx);
  const DType acc = order_dtype(ctx.operand(0).dtype);
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {acc, acc};
  def.combine = {Combine::kMin, Combine::kMax};
  def.init = [=](LoopBuilder& b) { return std::vector{extreme(b, acc, true), extreme(b, acc, false)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    const ScalarId x = b.cast(b.load(0, indices), acc);
    return std::vector{x, x};
  };
  ctx.reduction(std::move(def));
}

/// The largest element, and the sum of exponentials of what the elements are less: one walk, in which the sum is scaled anew when a
/// larger element is met (Milakov and Gimelshein 2018).
void lower_softmax_parts(LowerContext& ctx) {
  const Args args(ctx);
  const DType acc = ctx.operand(0).dtype;
  const bool single = acc == DType::kFloat32;
  // Finite, so that what is not less than it is a number; -inf adds nothing to a sum.
  const double least = single ? std::numeric_limits<float>::lowest() : std::numeric_limits<double>::lowest();
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {acc, acc};
  def.combine = {Combine::kCustom, Combine::kCustom};
  def.init = [=](LoopBuilder& b) { return std::vector{b.constant(least, acc), b.constant(0, acc)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.load(0, indices), b.constant(1, acc)};
  };
  def.merge = [=](LoopBuilder& b, std::span<const ScalarId> x, std::span<const ScalarId> y) {
    const Calc c{b, acc};
    const ScalarId more = c.sub(y[0], x[0]);
    const ScalarId scale = c.un(ScalarOp::kExpTerm, c.neg(c.un(ScalarOp::kAbs, more)));
    const auto scaled = [&](ScalarId sum, ScalarId other) {
      return b.apply(ScalarOp::kFma, acc, std::vector<ScalarId>{sum, scale, other});
    };
    const ScalarId larger = c.cmp(ScalarOp::kGt, more, c.c(0));
    return std::vector{c.max(x[0], y[0]), c.select(larger, scaled(x[1], y[1]), scaled(y[1], x[1]))};
  };
  def.finish = [=](LoopBuilder& b, std::span<const ScalarId> a, std::span<const Expr>) {
    const Calc c{b, acc};
    const ScalarId none = b.constant(-std::numeric_limits<double>::infinity(), acc);
    const ScalarId largest = c.select(c.cmp(ScalarOp::kEq, a[1], c.c(0)), none, a[0]);
    // An infinity less itself is no number, and neither is the sum then.
    return std::vector{largest, c.add(a[1], c.sub(largest, largest))};
  };
  ctx.reduction(std::move(def));
}

// ---- Decompositions --------------------------------------------------------------------------------------------------

using Values = std::vector<ValueId>;

Values decompose_mean(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId x = args.tensor(0);
  const DType out = args.dtype(3).value_or(b.type(x).dtype);
  const ValueId wide = b.cast(b.cast(x, out), compute_dtype(out));
  // Nothing to reduce: a result of its own all the same.
  if (b.type(x).dim() == 0) return {b.cast(b.op("clone", {TensorArg{wide}}), out)};
  return {b.cast(mean_of(b, wide, args.dims(1, args.rank(0)), args.flag(2)), out)};
}

Values decompose_logsumexp(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId self = args.tensor(0);
  const DType in = b.type(self).dtype;
  const DType out = is_floating(in) ? in : b.default_dtype();
  const ValueId x = b.cast(self, compute_dtype(out));
  const auto dims = args.dims(1, args.rank(0));
  const double inf = std::numeric_limits<double>::infinity();
  const ValueId peak = b.reduce("amax", x, dims, true);
  const ValueId zero = b.constant(0, b.type(x).dtype, b.type(x).device);
  const ValueId shift = b.where(b.binary("eq", b.unary("abs", peak), Scalar(inf)), zero, peak);
  const ValueId sum = b.reduce("sum", b.unary("exp", b.binary("sub", x, shift)), dims, true);
  ValueId result = b.binary("add", b.unary("log", sum), shift);
  if (!args.flag(2)) {
    for (size_t i = dims.size(); i-- > 0;) result = b.squeeze(result, dims[i]);
  }
  return {b.cast(result, out)};
}

Values decompose_count_nonzero(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId x = args.tensor(0);
  const ValueId set = b.type(x).dtype == DType::kBool ? x : b.binary("ne", x, Scalar(int64_t{0}));
  return {b.reduce("sum", b.cast(set, DType::kInt64), args.dims(1, args.rank(0)), false)};
}

ValueId nan_to_zero(GraphBuilder& b, ValueId x) {
  if (!is_floating(b.type(x).dtype)) return x;
  return b.where(b.unary("isnan", x), b.constant(0, b.type(x).dtype, b.type(x).device), x);
}

Values decompose_nansum(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId self = args.tensor(0);
  const DType out = args.dtype(3).value_or(result_dtype(Result::kSum, b.type(self).dtype));
  const ValueId x = b.cast(nan_to_zero(b, self), compute_dtype(out));
  return {b.cast(b.reduce("sum", x, args.dims(1, args.rank(0)), args.flag(2)), out)};
}

Values decompose_nanmean(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId self = args.tensor(0);
  const auto dims = args.dims(1, args.rank(0));
  const ValueId nan = b.unary("isnan", b.unary("detach", self));
  const ValueId count = b.reduce("sum", b.unary("logical_not", nan), dims, args.flag(2));
  const ValueId sum = b.op("nansum", {TensorArg{self}, ints_arg(b.ctx(), dims), arguments[2], arguments[3]});
  return {b.binary("div", sum, count)};
}

// ---- Norms -----------------------------------------------------------------------------------------------------------

/// (sum |x|^p)^(1/p) with eager's special orders; x is real or complex, the result is real.
ValueId norm_of(GraphBuilder& b, ValueId x, double p, const std::vector<int64_t>& dims, bool keepdim) {
  const DType wide = compute_dtype(b.type(x).dtype);
  x = b.cast(x, wide);
  if (p == 0) {
    return b.reduce("sum", b.cast(b.binary("ne", x, Scalar(int64_t{0})), real_dtype(wide)), dims, keepdim);
  }
  if (p == 2 && !is_complex(wide)) {
    return b.unary("sqrt", b.reduce("sum", b.binary("mul", x, x), dims, keepdim));
  }
  const ValueId magnitude = b.unary("abs", x);
  if (std::isinf(p)) {
    for (int64_t d : dims) {
      if (b.type(x).sizes[static_cast<size_t>(d)].is_const(0)) {
        throw Unsupported("norm of infinite order over an empty dimension");
      }
    }
    return b.reduce(p > 0 ? "amax" : "amin", magnitude, dims, keepdim);
  }
  if (p == 1) return b.reduce("sum", magnitude, dims, keepdim);
  if (p == 2) return b.unary("sqrt", b.reduce("sum", b.binary("mul", magnitude, magnitude), dims, keepdim));
  const ValueId sum = b.reduce("sum", b.binary("pow", magnitude, Scalar(p)), dims, keepdim);
  return b.binary("pow", sum, Scalar(1.0 / p));
}

double order_of(const Args& args, size_t i) {
  if (args.none(i)) return 2.0;
  if (std::holds_alternative<std::string>(args[i])) throw Unsupported("matrix norms run in eager");
  return args.number(i);
}

/// Positions in the schemas of norm and vector_norm: order 1, then dim, keepdim, dtype where present (-1: absent).
struct NormArgs {
  int dim;
  int keepdim;
  int dtype;
};

MetaFn norm_meta(NormArgs at) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    DType dtype = self.dtype;
    if (at.dtype >= 0) dtype = m.dtype(static_cast<size_t>(at.dtype)).value_or(dtype);
    require_float(m, dtype);
    const auto dims = at.dim < 0 ? wrap_dims({}, self.dim()) : arg_dims(m, static_cast<size_t>(at.dim), self.dim());
    const bool keepdim = at.keepdim >= 0 && m.boolean(static_cast<size_t>(at.keepdim));
    return {
        contiguous_type(m.ctx(), real_dtype(dtype), self.device, reduced_sizes(m.ctx(), self.sizes, dims, keepdim))};
  };
}

DecomposeFn norm_decompose(NormArgs at) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    ValueId x = args.tensor(0);
    if (at.dtype >= 0) {
      if (const auto dtype = args.dtype(static_cast<size_t>(at.dtype))) x = b.cast(x, *dtype);
    }
    const DType out = real_dtype(b.type(x).dtype);
    const auto dims = at.dim < 0 ? wrap_dims({}, args.rank(0)) : args.dims(static_cast<size_t>(at.dim), args.rank(0));
    const bool keepdim = at.keepdim >= 0 && args.flag(static_cast<size_t>(at.keepdim));
    return {b.cast(norm_of(b, x, order_of(args, 1), dims, keepdim), out)};
  };
}

/// max(self) and min(self): all dimensions at once.
MetaFn whole_meta() {
  return [](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    require_real(m, self.dtype);
    require_elements(m, self, wrap_dims({}, self.dim()));
    return {contiguous_type(m.ctx(), self.dtype, self.device, {})};
  };
}

DecomposeFn whole(const char* name) {
  return [name](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    return {b.reduce(name, args.tensor(0), wrap_dims({}, args.rank(0)), false)};
  };
}

DecomposeFn rename_binary(const char* name) {
  return [name](GraphBuilder& b, std::span<const Arg> args) -> Values { return {b.op(name, {args[0], args[1]})}; };
}

/// Two results of the operand's dtype.
std::vector<TensorType> two_of_a_row(MetaContext& m) {
  std::vector<TensorType> types = reduce_meta(Result::kSame, true, true)(m);
  types.push_back(types[0]);
  return types;
}

void register_extremes(OpRegistry& r) {
  const auto reduction = OpKind::kReduction;
  const auto composite = OpKind::kComposite;
  r.add(make_op(
      {"amax", reduction, "(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", "torch.amax torch.Tensor.amax"},
      reduce_meta(Result::kSame, true, true), nullptr, [](LowerContext& c) { lower_extreme(c, true); }));
  r.add(make_op(
      {"amin", reduction, "(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", "torch.amin torch.Tensor.amin"},
      reduce_meta(Result::kSame, true, true), nullptr, [](LowerContext& c) { lower_extreme(c, false); }));
  r.add(make_op({"max", composite, "(Tensor self) -> Tensor", "torch.max torch.Tensor.max"}, whole_meta(),
                whole("amax")));
  r.add(make_op({"min", composite, "(Tensor self) -> Tensor", "torch.min torch.Tensor.min"}, whole_meta(),
                whole("amin")));
  const char* dim_schema = "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)";
  r.add(make_op({"max.dim", reduction, dim_schema, "torch.max torch.Tensor.max"}, dim_pair_meta, nullptr,
                [](LowerContext& c) { lower_arg_extreme(c, true, true); }));
  r.add(make_op({"min.dim", reduction, dim_schema, "torch.min torch.Tensor.min"}, dim_pair_meta, nullptr,
                [](LowerContext& c) { lower_arg_extreme(c, false, true); }));
  r.add(make_op({"max.other", composite, "(Tensor self, Tensor other) -> Tensor", "torch.max torch.Tensor.max"},
                nullptr, rename_binary("maximum")));
  r.add(make_op({"min.other", composite, "(Tensor self, Tensor other) -> Tensor", "torch.min torch.Tensor.min"},
                nullptr, rename_binary("minimum")));
  const char* arg_schema = "(Tensor self, int? dim=None, bool keepdim=False) -> Tensor";
  r.add(make_op({"argmax", reduction, arg_schema, "torch.argmax torch.Tensor.argmax"},
                reduce_meta(Result::kInt64, true, true), nullptr,
                [](LowerContext& c) { lower_arg_extreme(c, true, false); }));
  r.add(make_op({"argmin", reduction, arg_schema, "torch.argmin torch.Tensor.argmin"},
                reduce_meta(Result::kInt64, true, true), nullptr,
                [](LowerContext& c) { lower_arg_extreme(c, false, false); }));
  r.add(
      make_op({"aminmax", reduction, "(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
               "torch.aminmax torch.Tensor.aminmax"},
              two_of_a_row, nullptr, lower_aminmax));
}

void register_softmax_parts(OpRegistry& r) {
  r.add(make_op({"_softmax_parts", OpKind::kReduction,
                 "(Tensor self, int[1] dim, bool keepdim) -> (Tensor largest, Tensor sum)", ""},
                two_of_a_row, nullptr, lower_softmax_parts));
}

void register_norms(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  r.add(
      make_op({"linalg_vector_norm", composite,
               "(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
               "torch.linalg.vector_norm"},
              norm_meta({2, 3, 4}), norm_decompose({2, 3, 4})));
  r.add(make_op({"norm.ScalarOpt_dim_dtype", composite,
                 "(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
                 "torch._C._VariableFunctions.norm"},
                norm_meta({2, 3, 4}), norm_decompose({2, 3, 4})));
  r.add(make_op({"norm.ScalarOpt_dim", composite, "(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
                 "torch._C._VariableFunctions.norm"},
                norm_meta({2, 3, -1}), norm_decompose({2, 3, -1})));
  r.add(make_op({"norm.ScalarOpt_dtype", composite, "(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
                 "torch._C._VariableFunctions.norm"},
                norm_meta({-1, -1, 2}), norm_decompose({-1, -1, 2})));
  r.add(make_op({"norm.Scalar", composite, "(Tensor self, Scalar p=2) -> Tensor", "torch._C._VariableFunctions.norm"},
                norm_meta({-1, -1, -1}), norm_decompose({-1, -1, -1})));
}

}  // namespace

void register_reduce(OpRegistry& r) {
  const auto reduction = OpKind::kReduction;
  const auto composite = OpKind::kComposite;
  const char* sum_schema = "(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
  r.add(make_op({"sum", reduction, sum_schema, "torch.sum torch.Tensor.sum"},
                reduce_meta(Result::kSum, false, false, 3), nullptr, fold(Combine::kAdd, 0)));
  r.add(make_op(
      {"prod", reduction, "(Tensor self, int? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
       "torch.prod torch.Tensor.prod"},
      reduce_meta(Result::kSum, false, false, 3), nullptr, fold(Combine::kMul, 1)));
  r.add(make_op({"mean", composite, sum_schema, "torch.mean torch.Tensor.mean"},
                reduce_meta(Result::kFloat, false, false, 3), decompose_mean));
  r.add(make_op({"nansum", composite, sum_schema, "torch.nansum torch.Tensor.nansum"},
                reduce_meta(Result::kSum, true, false, 3), decompose_nansum));
  r.add(make_op({"nanmean", composite, sum_schema, "torch.nanmean torch.Tensor.nanmean"},
                reduce_meta(Result::kFloat, true, false, 3), decompose_nanmean));
  const char* any_schema = "(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor";
  r.add(
      make_op({"any", reduction, any_schema, "torch.any torch.Tensor.any torch._is_any_true torch.Tensor._is_any_true"},
              reduce_meta(Result::kBool, false, false), nullptr, [](LowerContext& c) { lower_any_all(c, false); }));
  r.add(
      make_op({"all", reduction, any_schema, "torch.all torch.Tensor.all torch._is_all_true torch.Tensor._is_all_true"},
              reduce_meta(Result::kBool, false, false), nullptr, [](LowerContext& c) { lower_any_all(c, true); }));
  r.add(make_op(
      {"logsumexp", composite, "(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
       "torch.logsumexp torch.Tensor.logsumexp torch.special.logsumexp"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const TensorType& self = m.tensor(0);
        if (is_complex(self.dtype)) throw Unsupported("logsumexp of complex numbers runs in eager");
        const auto dims = arg_dims(m, 1, self.dim());
        for (int64_t d : dims) {
          if (self.sizes[static_cast<size_t>(d)].is_const(0)) {
            throw Unsupported("logsumexp over an empty dimension runs in eager");
          }
        }
        const DType out = is_floating(self.dtype) ? self.dtype : m.default_dtype();
        return {contiguous_type(m.ctx(), out, self.device, reduced_sizes(m.ctx(), self.sizes, dims, m.boolean(2)))};
      },
      decompose_logsumexp));
  r.add(make_op(
      {"count_nonzero", composite, "(Tensor self, int[1]? dim=None) -> Tensor",
       "torch.count_nonzero torch.Tensor.count_nonzero"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const TensorType& self = m.tensor(0);
        return {contiguous_type(m.ctx(), DType::kInt64, self.device,
                                reduced_sizes(m.ctx(), self.sizes, arg_dims(m, 1, self.dim()), false))};
      },
      decompose_count_nonzero));
  register_extremes(r);
  register_softmax_parts(r);
  register_norms(r);
}

}  // namespace tatara
