// Less common pointwise operators, and operators with their operands exchanged.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;
using Scalars = std::span<const ScalarId>;

ScalarId number(LoopBuilder& b, double value, DType t) { return number_as(b, Scalar(value), t); }

/// Result of the promoted operands; complex and (on request) integers are left to the host.
MetaFn floating_meta(std::vector<size_t> operands, Promotion promotion) {
  return [operands = std::move(operands), promotion](MetaContext& m) -> std::vector<TensorType> {
    const DType dtype = promoted(m, operands, promotion);
    if (!is_floating(dtype)) throw Unsupported(str_cat(m.op().name, " of ", dtype_name(dtype), " runs by the host"));
    return {pointwise_type(m, operands, dtype)};
  };
}

// ---- one operand -----------------------------------------------------------------------------------------------------

void lower_logit(LowerContext& ctx) {
  const bool bounded = !Args(ctx).none(1);
  const DType t = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [&ctx, t, bounded](LoopBuilder& b, std::span<const Expr> at) {
    ScalarId x = operand_at(ctx, b, 0, t, at);
    if (bounded) {
      const DType wide = DType::kFloat64;  // of Python's arithmetic
      const ScalarId eps = operand_at(ctx, b, 1, wide, {});
      const ScalarId rest = b.apply2(Op::kSub, number(b, 1, wide), eps);
      // Compared as eager does: a NaN bounds nothing.
      const ScalarId low = b.cast(eps, t), high = b.cast(rest, t);
      x = b.select(b.compare(Op::kLt, x, low), low, b.select(b.compare(Op::kGt, x, high), high, x));
    }
    return b.apply1(Op::kLog, b.apply2(Op::kDiv, x, b.apply2(Op::kSub, number(b, 1, t), x)));
  });
}

std::pair<double, double> limits(DType t) {
  switch (t) {
    case DType::kFloat16: return {-65504.0, 65504.0};
    case DType::kBFloat16: return {-3.3895313892515355e38, 3.3895313892515355e38};
    case DType::kFloat64: return {-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
    default: return {-3.4028234663852886e38, 3.4028234663852886e38};  // NOLINT: floats of 32 bits
  }
}

std::vector<TensorType> nan_to_num_meta(MetaContext& m) {
  const size_t self[] = {0};
  const DType dtype = m.tensor(0).dtype;
  if (is_complex(dtype)) throw Unsupported("nan_to_num of complex numbers runs by the host");
  TensorType type = pointwise_type(m, self, dtype);
  type.strides = preserved_strides(m, m.tensor(0));
  return {type};
}

void lower_nan_to_num(LowerContext& ctx) {
  const Args args(ctx);
  const DType dtype = ctx.result().dtype;
  const DType t = compute_dtype(dtype);
  const auto [lowest, highest] = limits(dtype);
  const std::array<std::pair<bool, double>, 3> given = {
      {{!args.none(1), 0.0}, {!args.none(2), highest}, {!args.none(3), lowest}}};
  ctx.pointwise(0, [=, &ctx](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId x = operand_at(ctx, b, 0, t, at);
    if (!is_floating(t)) return x;
    const auto value = [&](size_t arg) {
      const auto [here, otherwise] = given[arg - 1];
      return here ? operand_at(ctx, b, arg, t, {}) : number(b, otherwise, t);
    };
    ScalarId y = b.select(b.compare(Op::kEq, x, number(b, INFINITY, t)), value(2), x);
    y = b.select(b.compare(Op::kEq, x, number(b, -INFINITY, t)), value(3), y);
    return b.select(b.apply1(Op::kIsNan, x), value(1), y);
  });
}

/// round(x, decimals): by scaling, as eager.
void lower_round_decimals(LowerContext& ctx) {
  const int64_t decimals = Args(ctx).integer(1);
  const DType t = compute_dtype(ctx.result().dtype);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  ctx.pointwise(0, [&ctx, t, scale, negative = decimals < 0](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId x = operand_at(ctx, b, 0, t, at);
    const ScalarId s = number(b, scale, t);
    const ScalarId scaled = b.apply1(Op::kRound, b.apply2(negative ? Op::kDiv : Op::kMul, x, s));
    return b.apply2(negative ? Op::kMul : Op::kDiv, scaled, s);
  });
}

std::vector<TensorType> isreal_meta(MetaContext& m) {
  if (is_complex(m.tensor(0).dtype)) throw Unsupported("isreal of complex numbers runs in eager");
  TensorType type = m.tensor(0);
  type.dtype = DType::kBool;
  type.is_wrapped_number = false;
  type.strides = preserved_strides(m, type);
  return {type};
}

// ---- the multivariate log-gamma function ------------------------------------------------------------------------------

constexpr int64_t kFewTerms = 16;  // written out

double term_shift(int64_t i) { return -0.5 * static_cast<double>(i); }

std::vector<TensorType> mvlgamma_meta(MetaContext& m) {
  const size_t self[] = {0};
  const DType dtype = promoted(m, self, Promotion::kIntToFloat);
  const int64_t p = m.integer(1);
  if (p < 1 || p > kFewTerms || !is_floating(dtype) || m.tensor(0).dtype == DType::kBool) {
    throw Unsupported("mvlgamma of this type or so many terms runs by the host");
  }
  return {contiguous_type(m.ctx(), dtype, m.tensor(0).device, m.tensor(0).sizes)};
}

/// log(pi) p (p - 1) / 4 + the sum of lgamma(x - i / 2), in the order of eager's sum.
void lower_mvlgamma(LowerContext& ctx) {
  const int64_t p = Args(ctx).integer(1);
  const DType t = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [&ctx, t, p](LoopBuilder& b, std::span<const Expr> at) {
    const Calc c{b, t};
    const ScalarId x = operand_at(ctx, b, 0, t, at);
    const auto value = [&](int64_t i) { return c.un(Op::kLgamma, c.add(x, c.c(term_shift(i)))); };
    ScalarId sum = value(p - 1);
    for (int64_t i = p - 1; i-- > 0;) sum = c.add(sum, value(i));
    return c.add(sum, c.c(static_cast<double>(p * (p - 1)) * 0.25 * std::log(std::numbers::pi)));
  });
}

void mvlgamma_rule(VjpContext& v) {
  const Term x = operand(v, 0);
  Term slope = x.un("digamma");
  for (int64_t i = 1; i < v.args().integer(1); ++i) slope = slope + (x + term_shift(i)).un("digamma");
  v.give(0, (gradient(v) * slope).id);
}

// ---- two operands ----------------------------------------------------------------------------------------------------

/// pow() of operands of double precision.
std::vector<ValueId> float_power(GraphBuilder& b, std::span<const Arg> arguments) {
  const size_t both[] = {0, 1};
  const MetaContext m(b.graph(), OpRegistry::global().get("float_power"), arguments, b.default_dtype());
  const DType dtype = is_complex(m.result_type(both)) ? DType::kComplex128 : DType::kFloat64;
  std::vector<Arg> args(arguments.begin(), arguments.end());
  for (Arg& arg : args) {
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) arg = TensorArg{b.cast(tensor->value, dtype)};
  }
  return {b.op("pow", std::move(args))};
}

ScalarId xlog1py(LoopBuilder& b, DType t, Scalars v) {
  const ScalarId zero = number(b, 0, t);
  const ScalarId product = b.apply2(Op::kMul, v[0], b.apply1(Op::kLog1p, v[1]));
  const ScalarId chosen = b.select(b.compare(Op::kEq, v[0], zero), zero, product);
  return b.select(b.apply1(Op::kIsNan, v[1]), v[1], chosen);
}

std::vector<TensorType> isclose_meta(MetaContext& m) {
  const size_t both[] = {0, 1};
  if (m.tensor(0).dtype != m.tensor(1).dtype) {
    throw InvalidArgument(str_cat(dtype_name(m.tensor(0).dtype), " did not match ", dtype_name(m.tensor(1).dtype)));
  }
  if (!is_floating(m.tensor(0).dtype)) throw Unsupported("isclose of these types runs by the host");
  return {pointwise_type(m, both, DType::kBool)};
}

void lower_isclose(LowerContext& ctx) {
  const Args args(ctx);
  const bool equal_nan = args.flag(4);
  const DType t = compute_dtype(ctx.operand(0).dtype);
  ctx.pointwise(0, [=, &ctx](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId x = operand_at(ctx, b, 0, t, at);
    const ScalarId y = operand_at(ctx, b, 1, t, at);
    ScalarId close = b.compare(Op::kEq, x, y);
    if (equal_nan)
      close = b.apply2(Op::kOr, close, b.apply2(Op::kAnd, b.apply1(Op::kIsNan, x), b.apply1(Op::kIsNan, y)));
    const ScalarId error = b.apply1(Op::kAbs, b.apply2(Op::kSub, x, y));
    const ScalarId bound = b.apply2(Op::kAdd, operand_at(ctx, b, 3, t, {}),
                                    b.apply1(Op::kAbs, b.apply2(Op::kMul, operand_at(ctx, b, 2, t, {}), y)));
    const ScalarId finite = b.apply1(Op::kNot, b.apply1(Op::kIsInf, error));
    return b.apply2(Op::kOr, close, b.apply2(Op::kAnd, finite, b.compare(Op::kLe, error, bound)));
  });
}

/// self // other and its kin with the operands the other way round.
ChooseFn exchanged(const char* op, std::optional<const char*> mode = std::nullopt) {
  return [op, mode](MetaContext& m) -> Choice {
    std::vector<Arg> args{m.arg(1), m.arg(0)};
    if (mode) args.push_back(std::string(*mode));
    return {op, std::move(args)};
  };
}

void add_choice(OpRegistry& r, const char* name, const char* schema, const char* names, const char* inplace,
                ChooseFn choose) {
  OpDef def = make_op({name, OpKind::kComposite, schema, names, inplace}, nullptr);
  def.choose = std::move(choose);
  r.add(std::move(def));
}

}  // namespace

void register_pointwise_more(OpRegistry& r) {
  r.add(make_op({"logit", OpKind::kPointwise, "(Tensor self, float? eps=None) -> Tensor",
                 "torch.logit torch.special.logit torch.Tensor.logit", "torch.Tensor.logit_ torch.logit_"},
                floating_meta({0}, Promotion::kIntToFloat), nullptr, lower_logit));
  r.add(make_op({"nan_to_num", OpKind::kPointwise,
                 "(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
                 "torch.nan_to_num torch.Tensor.nan_to_num", "torch.Tensor.nan_to_num_ torch.nan_to_num_"},
                nan_to_num_meta, nullptr, lower_nan_to_num));
  r.add(make_op({"round.decimals", OpKind::kPointwise, "(Tensor self, *, int decimals) -> Tensor",
                 "torch.round torch.special.round torch.Tensor.round", "torch.Tensor.round_"},
                floating_meta({0}, Promotion::kSame), nullptr, lower_round_decimals));
  r.add(make_op({"isreal", OpKind::kPointwise, "(Tensor self) -> Tensor", "torch.isreal torch.Tensor.isreal"},
                isreal_meta, nullptr, [](LowerContext& ctx) {
                  ctx.pointwise(0,
                                [](LoopBuilder& b, std::span<const Expr>) { return b.constant_int(1, DType::kBool); });
                }));
  OpDef mvlgamma =
      make_op({"mvlgamma", OpKind::kPointwise, "(Tensor self, int p) -> Tensor",
               "torch.mvlgamma torch.Tensor.mvlgamma torch.special.multigammaln", "torch.Tensor.mvlgamma_"},
              mvlgamma_meta, nullptr, lower_mvlgamma);
  mvlgamma.vjp = mvlgamma_rule;
  r.add(std::move(mvlgamma));
  const char* operands = "(Operand self, Operand other) -> Tensor";
  r.add(make_op({"float_power", OpKind::kComposite, operands, "torch.float_power torch.Tensor.float_power",
                 "torch.Tensor.float_power_"},
                nullptr, float_power));
  r.add(make_op({"special_xlog1py", OpKind::kPointwise, operands, "torch.special.xlog1py"},
                floating_meta({0, 1}, Promotion::kIntToFloat), nullptr,
                pointwise_lower({0, 1}, Promotion::kIntToFloat, xlog1py)));
  r.add(make_op({"isclose", OpKind::kPointwise,
                 "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
                 "torch.isclose torch.Tensor.isclose"},
                isclose_meta, nullptr, lower_isclose));
  add_choice(r, "rfloordiv", operands, "torch.Tensor.__rfloordiv__", "", exchanged("floor_divide"));
  add_choice(r, "rmod", operands, "torch.Tensor.__rmod__", "", exchanged("remainder"));
  add_choice(r, "rlshift", operands, "torch.Tensor.__rlshift__", "", exchanged("bitwise_left_shift"));
  add_choice(r, "rrshift", operands, "torch.Tensor.__rrshift__", "", exchanged("bitwise_right_shift"));
  add_choice(r, "floordiv_operator", operands, "torch.Tensor.__floordiv__", "torch.Tensor.__ifloordiv__",
             [](MetaContext& m) -> Choice { return {"floor_divide", {m.arg(0), m.arg(1)}}; });
  r.take_values({"logit", "nan_to_num", "isclose"});
}

}  // namespace tatara
