// One-operand pointwise operators: a row each.
#include <cmath>
#include <iterator>
#include <numbers>

#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;
using Body = ScalarId (*)(LoopBuilder&, DType, ScalarId);

template <Op op>
ScalarId direct(LoopBuilder& b, DType, ScalarId x) {
  return b.apply1(op, x);
}

template <Op op>
ScalarId rounding(LoopBuilder& b, DType t, ScalarId x) {
  return is_floating(t) ? b.apply1(op, x) : x;
}

template <Op op>
ScalarId test(LoopBuilder& b, DType t, ScalarId x) {
  if (!is_floating(t) && !is_complex(t)) return b.constant_int(0, DType::kBool);
  return b.apply(op, DType::kBool, std::vector<ScalarId>{x});
}

ScalarId typed_number(LoopBuilder& b, double value, DType t) { return number_as(b, Scalar(value), t); }

ScalarId absolute(LoopBuilder& b, DType t, ScalarId x) {
  if (t == DType::kBool || (is_integral(t) && !is_signed(t))) return x;
  if (is_complex(t)) return b.apply(Op::kAbs, real_dtype(t), std::vector<ScalarId>{x});
  return b.apply1(Op::kAbs, x);
}

ScalarId sign(LoopBuilder& b, DType t, ScalarId x) {
  if (t == DType::kBool) return x;
  const ScalarId zero = typed_number(b, 0, t);
  const ScalarId up = b.cast(b.compare(Op::kLt, zero, x), t);
  const ScalarId down = b.cast(b.compare(Op::kLt, x, zero), t);
  return b.apply2(Op::kSub, up, down);
}

ScalarId square(LoopBuilder& b, DType t, ScalarId x) { return t == DType::kBool ? x : b.apply2(Op::kMul, x, x); }

ScalarId finite(LoopBuilder& b, DType t, ScalarId x) {
  if (!is_floating(t)) return b.constant_int(1, DType::kBool);
  const ScalarId nan = test<Op::kIsNan>(b, t, x);
  const ScalarId inf = test<Op::kIsInf>(b, t, x);
  return b.apply1(Op::kNot, b.apply2(Op::kOr, nan, inf));
}

template <bool positive>
ScalarId signed_infinity(LoopBuilder& b, DType t, ScalarId x) {
  if (!is_floating(t)) return b.constant_int(0, DType::kBool);
  return b.compare(Op::kEq, x, b.constant(positive ? INFINITY : -INFINITY, t));
}

ScalarId fraction(LoopBuilder& b, DType t, ScalarId x) {
  (void)t;
  return b.apply2(Op::kSub, x, b.apply1(Op::kTrunc, x));
}

ScalarId degrees(LoopBuilder& b, DType t, ScalarId x) {
  return b.apply2(Op::kMul, x, typed_number(b, 180.0 / std::numbers::pi, t));
}
ScalarId radians(LoopBuilder& b, DType t, ScalarId x) {
  return b.apply2(Op::kMul, x, typed_number(b, std::numbers::pi / 180.0, t));
}

ScalarId sinc(LoopBuilder& b, DType t, ScalarId x) {
  const ScalarId product = b.apply2(Op::kMul, x, typed_number(b, std::numbers::pi, t));
  const ScalarId ratio = b.apply2(Op::kDiv, b.apply1(Op::kSin, product), product);
  return b.select(b.compare(Op::kEq, x, typed_number(b, 0, t)), typed_number(b, 1, t), ratio);
}

ScalarId normal_distribution(LoopBuilder& b, DType t, ScalarId x) {
  const ScalarId scaled = b.apply2(Op::kMul, x, typed_number(b, -std::numbers::sqrt2 / 2, t));
  return b.apply2(Op::kMul, b.apply1(Op::kErfc, scaled), typed_number(b, 0.5, t));
}

/// -x * log(x); 0 at 0 and -inf below.
ScalarId entropy(LoopBuilder& b, DType t, ScalarId x) {
  const ScalarId product = b.apply1(Op::kNeg, b.apply2(Op::kMul, x, b.apply1(Op::kLog, x)));
  const ScalarId limits =
      b.select(b.compare(Op::kLt, x, typed_number(b, 0, t)), typed_number(b, -INFINITY, t), product);
  return b.select(b.compare(Op::kEq, x, typed_number(b, 0, t)), typed_number(b, 0, t), limits);
}

/// exp(x^2) * erfc(x). At and above 0, (1 + 2 x) * erfcx(x) is a polynomial in t = (x - k) / (x + k), to 3e-16: its Chebyshev
/// series up to the degree of 26, written out in powers of t (that costs no accuracy: the coefficients are small). Below 0,
/// erfcx(-x) = 2 exp(x^2) - erfcx(x).
ScalarId scaled_erfc(LoopBuilder& b, DType t, ScalarId x) {
  constexpr double kCentre = 3.75;
  constexpr double kPowers[] = {
      1.2375126308378275,     -0.14024059858554702,   0.00358541548546369,     0.08227673849015102,
      -0.10880393014170746,   0.09230432116019834,    -0.05869339859054762,    0.0283622774215156,
      -0.009746579547619623,  0.0017556258324217529,  0.00029371359480570737,  -0.00029015397928986765,
      5.164940777546399e-05,  2.2383912036550678e-05, -1.1445049125831309e-05, -9.72849582211122e-07,
      1.7534434251106334e-06, -5.826281078800777e-08, -2.6114702359900956e-07, 2.4289762925488707e-08,
      4.0971223152703005e-08, -4.389284159986328e-09, -6.545560212480267e-09,  5.457157304704688e-10,
      9.02214970034059e-10,   -3.75315827795962e-11,  -7.33950500852954e-11};
  const Calc c{b, t};
  const ScalarId distance = c.un(Op::kAbs, x);
  // Not by a quotient of infinities.
  const ScalarId place = c.sub(c.c(1), c.div(c.c(2 * kCentre), c.add(distance, c.c(kCentre))));
  ScalarId sum = c.c(*std::rbegin(kPowers));
  for (auto power = std::next(std::rbegin(kPowers)); power != std::rend(kPowers); ++power) {
    sum = c.add(c.mul(sum, place), c.c(*power));
  }
  const ScalarId above = c.div(c.mul(sum, c.c(0.5)), c.add(distance, c.c(0.5)));
  const ScalarId below = c.sub(c.mul(c.exp(c.mul(x, x)), c.c(2)), above);
  return b.select(b.compare(Op::kLt, x, c.c(0)), below, above);
}

ScalarId bit_not(LoopBuilder& b, DType, ScalarId x) { return b.apply1(Op::kNot, x); }
ScalarId logic_not(LoopBuilder& b, DType t, ScalarId x) {
  return b.compare(Op::kEq, x, is_floating(t) ? b.constant(0, t) : typed_number(b, 0, t));
}
ScalarId sign_bit(LoopBuilder& b, DType t, ScalarId x) {
  if (is_floating(t)) return b.apply(Op::kSignbit, DType::kBool, std::vector<ScalarId>{x});
  return is_signed(t) ? b.compare(Op::kLt, x, typed_number(b, 0, t)) : b.constant_int(0, DType::kBool);
}
ScalarId conjugate(LoopBuilder& b, DType t, ScalarId x) { return is_complex(t) ? b.apply1(Op::kConj, x) : x; }

enum class Accepts : uint8_t { kAll, kNoBool, kReal, kFloatingOnly, kIntegers, kRealNoBool, kNoHalf };

struct UnaryOpRow {
  const char* name;
  Promotion promotion;
  Body body;
  Accepts accepts;
  const char* names;
  const char* inplace;
  UnaryRule rule = nullptr;  // of the derivative; most are in derivatives_unary.cpp
};

// clang-format off
constexpr UnaryOpRow kUnaryOpRows[] = {
    {"neg", Promotion::kSame, direct<Op::kNeg>, Accepts::kNoBool, "torch.neg torch.negative torch.Tensor.neg torch.Tensor.negative torch.Tensor.__neg__ numpy.negative", "torch.Tensor.neg_ torch.Tensor.negative_"},
    {"sign", Promotion::kSame, sign, Accepts::kReal, "torch.sign torch.Tensor.sign", "torch.Tensor.sign_"},
    {"sgn", Promotion::kSame, sign, Accepts::kReal, "torch.sgn torch.Tensor.sgn", "torch.Tensor.sgn_"},
    {"square", Promotion::kSame, square, Accepts::kNoBool, "torch.square torch.Tensor.square numpy.square", "torch.Tensor.square_"},
    {"floor", Promotion::kSame, rounding<Op::kFloor>, Accepts::kRealNoBool, "torch.floor torch.Tensor.floor", "torch.Tensor.floor_"},
    {"ceil", Promotion::kSame, rounding<Op::kCeil>, Accepts::kRealNoBool, "torch.ceil torch.Tensor.ceil", "torch.Tensor.ceil_"},
    {"trunc", Promotion::kSame, rounding<Op::kTrunc>, Accepts::kRealNoBool, "torch.trunc torch.fix torch.Tensor.trunc torch.Tensor.fix", "torch.Tensor.trunc_ torch.Tensor.fix_"},
    {"round", Promotion::kSame, rounding<Op::kRound>, Accepts::kRealNoBool, "torch.round torch.special.round torch.Tensor.round", "torch.Tensor.round_"},
    {"frac", Promotion::kSame, fraction, Accepts::kFloatingOnly, "torch.frac torch.Tensor.frac", "torch.Tensor.frac_"},
    {"bitwise_not", Promotion::kSame, bit_not, Accepts::kIntegers, "torch.bitwise_not torch.Tensor.bitwise_not torch.Tensor.__invert__ numpy.invert", "torch.Tensor.bitwise_not_"},
    {"isnan", Promotion::kBool, test<Op::kIsNan>, Accepts::kReal, "torch.isnan torch.Tensor.isnan numpy.isnan", ""},
    {"isinf", Promotion::kBool, test<Op::kIsInf>, Accepts::kReal, "torch.isinf torch.Tensor.isinf numpy.isinf", ""},
    {"isfinite", Promotion::kBool, finite, Accepts::kReal, "torch.isfinite torch.Tensor.isfinite numpy.isfinite", ""},
    {"isposinf", Promotion::kBool, signed_infinity<true>, Accepts::kReal, "torch.isposinf torch.Tensor.isposinf", ""},
    {"isneginf", Promotion::kBool, signed_infinity<false>, Accepts::kReal, "torch.isneginf torch.Tensor.isneginf", ""},
    {"logical_not", Promotion::kBool, logic_not, Accepts::kReal, "torch.logical_not torch.Tensor.logical_not numpy.logical_not", "torch.Tensor.logical_not_"},
    {"signbit", Promotion::kBool, sign_bit, Accepts::kReal, "torch.signbit torch.Tensor.signbit numpy.signbit", ""},
    {"sqrt", Promotion::kIntToFloat, direct<Op::kSqrt>, Accepts::kAll, "torch.sqrt torch.Tensor.sqrt numpy.sqrt", "torch.Tensor.sqrt_"},
    {"rsqrt", Promotion::kIntToFloat, direct<Op::kRsqrt>, Accepts::kReal, "torch.rsqrt torch.Tensor.rsqrt", "torch.Tensor.rsqrt_"},
    {"reciprocal", Promotion::kIntToFloat, direct<Op::kReciprocal>, Accepts::kReal, "torch.reciprocal torch.Tensor.reciprocal numpy.reciprocal", "torch.Tensor.reciprocal_"},
    {"exp", Promotion::kIntToFloat, direct<Op::kExp>, Accepts::kAll, "torch.exp torch.Tensor.exp numpy.exp", "torch.Tensor.exp_"},
    {"exp2", Promotion::kIntToFloat, direct<Op::kExp2>, Accepts::kReal, "torch.exp2 torch.special.exp2 torch.Tensor.exp2 numpy.exp2", "torch.Tensor.exp2_"},
    {"expm1", Promotion::kIntToFloat, direct<Op::kExpm1>, Accepts::kReal, "torch.expm1 torch.special.expm1 torch.Tensor.expm1 numpy.expm1", "torch.Tensor.expm1_"},
    {"log", Promotion::kIntToFloat, direct<Op::kLog>, Accepts::kAll, "torch.log torch.Tensor.log numpy.log", "torch.Tensor.log_"},
    {"log2", Promotion::kIntToFloat, direct<Op::kLog2>, Accepts::kReal, "torch.log2 torch.Tensor.log2 numpy.log2", "torch.Tensor.log2_"},
    {"log10", Promotion::kIntToFloat, direct<Op::kLog10>, Accepts::kReal, "torch.log10 torch.Tensor.log10 numpy.log10", "torch.Tensor.log10_"},
    {"log1p", Promotion::kIntToFloat, direct<Op::kLog1p>, Accepts::kReal, "torch.log1p torch.special.log1p torch.Tensor.log1p numpy.log1p", "torch.Tensor.log1p_"},
    {"sin", Promotion::kIntToFloat, direct<Op::kSin>, Accepts::kAll, "torch.sin torch.Tensor.sin numpy.sin", "torch.Tensor.sin_"},
    {"cos", Promotion::kIntToFloat, direct<Op::kCos>, Accepts::kAll, "torch.cos torch.Tensor.cos numpy.cos", "torch.Tensor.cos_"},
    {"tan", Promotion::kIntToFloat, direct<Op::kTan>, Accepts::kAll, "torch.tan torch.Tensor.tan numpy.tan", "torch.Tensor.tan_"},
    {"asin", Promotion::kIntToFloat, direct<Op::kAsin>, Accepts::kReal, "torch.asin torch.arcsin torch.Tensor.asin torch.Tensor.arcsin numpy.arcsin", "torch.Tensor.asin_ torch.Tensor.arcsin_"},
    {"acos", Promotion::kIntToFloat, direct<Op::kAcos>, Accepts::kReal, "torch.acos torch.arccos torch.Tensor.acos torch.Tensor.arccos numpy.arccos", "torch.Tensor.acos_ torch.Tensor.arccos_"},
    {"atan", Promotion::kIntToFloat, direct<Op::kAtan>, Accepts::kReal, "torch.atan torch.arctan torch.Tensor.atan torch.Tensor.arctan numpy.arctan", "torch.Tensor.atan_ torch.Tensor.arctan_"},
    {"sinh", Promotion::kIntToFloat, direct<Op::kSinh>, Accepts::kAll, "torch.sinh torch.Tensor.sinh numpy.sinh", "torch.Tensor.sinh_"},
    {"cosh", Promotion::kIntToFloat, direct<Op::kCosh>, Accepts::kAll, "torch.cosh torch.Tensor.cosh numpy.cosh", "torch.Tensor.cosh_"},
    {"tanh", Promotion::kIntToFloat, direct<Op::kTanh>, Accepts::kAll, "torch.tanh torch.Tensor.tanh numpy.tanh", "torch.Tensor.tanh_"},
    {"asinh", Promotion::kIntToFloat, direct<Op::kAsinh>, Accepts::kReal, "torch.asinh torch.arcsinh torch.Tensor.asinh torch.Tensor.arcsinh numpy.arcsinh", "torch.Tensor.asinh_ torch.Tensor.arcsinh_"},
    {"acosh", Promotion::kIntToFloat, direct<Op::kAcosh>, Accepts::kReal, "torch.acosh torch.arccosh torch.Tensor.acosh torch.Tensor.arccosh numpy.arccosh", "torch.Tensor.acosh_ torch.Tensor.arccosh_"},
    {"atanh", Promotion::kIntToFloat, direct<Op::kAtanh>, Accepts::kReal, "torch.atanh torch.arctanh torch.Tensor.atanh torch.Tensor.arctanh numpy.arctanh", "torch.Tensor.atanh_ torch.Tensor.arctanh_"},
    {"erf", Promotion::kIntToFloat, direct<Op::kErf>, Accepts::kReal, "torch.erf torch.special.erf torch.Tensor.erf", "torch.Tensor.erf_"},
    {"erfc", Promotion::kIntToFloat, direct<Op::kErfc>, Accepts::kReal, "torch.erfc torch.special.erfc torch.Tensor.erfc", "torch.Tensor.erfc_"},
    {"sigmoid", Promotion::kIntToFloat, direct<Op::kSigmoid>, Accepts::kReal, "torch.sigmoid torch.special.expit torch.Tensor.sigmoid", "torch.Tensor.sigmoid_"},
    {"erfinv", Promotion::kIntToFloat, direct<Op::kErfinv>, Accepts::kReal, "torch.erfinv torch.special.erfinv torch.Tensor.erfinv", "torch.Tensor.erfinv_"},
    {"lgamma", Promotion::kIntToFloat, direct<Op::kLgamma>, Accepts::kReal, "torch.lgamma torch.special.gammaln torch.Tensor.lgamma", "torch.Tensor.lgamma_"},
    {"digamma", Promotion::kIntToFloat, direct<Op::kDigamma>, Accepts::kReal, "torch.digamma torch.special.digamma torch.special.psi torch.Tensor.digamma", "torch.Tensor.digamma_"},
    {"i0", Promotion::kIntToFloat, direct<Op::kI0>, Accepts::kReal, "torch.i0 torch.special.i0 torch.Tensor.i0", "torch.Tensor.i0_"},
    {"special_i0e", Promotion::kIntToFloat, direct<Op::kI0e>, Accepts::kReal, "torch.special.i0e", ""},
    {"special_i1", Promotion::kIntToFloat, direct<Op::kI1>, Accepts::kReal, "torch.special.i1", ""},
    {"special_i1e", Promotion::kIntToFloat, direct<Op::kI1e>, Accepts::kReal, "torch.special.i1e", ""},
    {"special_ndtri", Promotion::kIntToFloat, direct<Op::kNdtri>, Accepts::kReal, "torch.special.ndtri", ""},
    {"special_log_ndtr", Promotion::kIntToFloat, direct<Op::kLogNdtr>, Accepts::kReal, "torch.special.log_ndtr", ""},
    {"special_ndtr", Promotion::kIntToFloat, normal_distribution, Accepts::kReal, "torch.special.ndtr", ""},
    {"special_entr", Promotion::kIntToFloat, entropy, Accepts::kReal, "torch.special.entr", ""},
    {"special_erfcx", Promotion::kIntToFloat, scaled_erfc, Accepts::kNoHalf, "torch.special.erfcx", "",
     [](Term g, Term x, Term y) { return g * (x * y * 2.0 - 2 * std::numbers::inv_sqrtpi); }},
    {"deg2rad", Promotion::kIntToFloat, radians, Accepts::kReal, "torch.deg2rad torch.Tensor.deg2rad numpy.deg2rad numpy.radians", "torch.Tensor.deg2rad_"},
    {"rad2deg", Promotion::kIntToFloat, degrees, Accepts::kReal, "torch.rad2deg torch.Tensor.rad2deg numpy.rad2deg numpy.degrees", "torch.Tensor.rad2deg_"},
    {"sinc", Promotion::kIntToFloat, sinc, Accepts::kReal, "torch.sinc torch.special.sinc torch.Tensor.sinc", "torch.Tensor.sinc_"},
};
// clang-format on

void check(const char* name, Accepts accepts, DType dtype) {
  bool fine = true;
  switch (accepts) {
    case Accepts::kAll: break;
    case Accepts::kNoBool: fine = dtype != DType::kBool; break;
    case Accepts::kReal: fine = !is_complex(dtype); break;
    case Accepts::kFloatingOnly: fine = is_floating(dtype); break;
    case Accepts::kIntegers: fine = is_integral(dtype) || dtype == DType::kBool; break;
    case Accepts::kRealNoBool: fine = !is_complex(dtype) && dtype != DType::kBool; break;
    case Accepts::kNoHalf: fine = !is_complex(dtype) && compute_dtype(dtype) == dtype; break;
  }
  if (!fine) throw Unsupported(str_cat(name, " of ", dtype_name(dtype), " runs in eager"));
}

MetaFn unary_row_meta(const UnaryOpRow& row) {
  return [row](MetaContext& m) -> std::vector<TensorType> {
    check(row.name, row.accepts, m.tensor(0).dtype);
    const size_t self[] = {0};
    DType dtype = m.tensor(0).dtype;
    if (row.promotion == Promotion::kBool) dtype = DType::kBool;
    if (row.promotion == Promotion::kIntToFloat && !is_floating(dtype) && !is_complex(dtype)) dtype = m.default_dtype();
    TensorType type = pointwise_type(m, self, dtype);
    const TensorType* with_number[] = {&m.tensor(0), nullptr};
    // Eager multiplies by a number here, and fills a tensor like self for tests that integers cannot fail.
    if (row.body == degrees || row.body == radians) {
      type.strides = is_dense(m.ctx(), m.tensor(0)) ? m.tensor(0).strides : m.iterator_strides(type.sizes, with_number);
    }
    const bool constant = !is_floating(m.tensor(0).dtype) && !is_complex(m.tensor(0).dtype) &&
                          (row.body == test<Op::kIsInf> || row.body == finite);
    if (constant && is_dense(m.ctx(), m.tensor(0))) type.strides = m.tensor(0).strides;
    return {type};
  };
}

LowerFn row_lower(const UnaryOpRow& row) {
  return [row](LowerContext& ctx) {
    const DType in = compute_dtype(ctx.operand(0).dtype);
    const DType dtype = row.promotion == Promotion::kIntToFloat ? compute_dtype(ctx.result().dtype) : in;
    ctx.pointwise(0, [&ctx, row, dtype](LoopBuilder& b, std::span<const Expr> indices) {
      return row.body(b, dtype, operand_at(ctx, b, 0, dtype, indices));
    });
  };
}

}  // namespace

void register_pointwise_unary(OpRegistry& r) {
  const auto same_tensor = [&](const char* name, const char* names, const char* other) {
    OpDef def = make_op({name, OpKind::kComposite, "(Tensor(a) self) -> Tensor(a)", names}, nullptr);
    def.choose = [other](MetaContext& m) -> Choice {
      if (m.tensor(0).dtype == DType::kBool && other == nullptr) {
        throw InvalidArgument("The `+` operator, on a bool tensor is not supported.");
      }
      if (other == nullptr || !is_complex(m.tensor(0).dtype)) return {"alias_self", {}};
      return {other, {m.arg(0)}};
    };
    r.add(std::move(def));
  };
  same_tensor("positive", "torch.positive torch.Tensor.positive torch.Tensor.__pos__", nullptr);
  same_tensor("conj_physical", "torch.conj_physical torch.Tensor.conj_physical", "conj_complex");
  r.add(make_op(
      {"conj_complex", OpKind::kPointwise, "(Tensor self) -> Tensor", ""},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t self[] = {0};
        TensorType type = pointwise_type(m, self, m.tensor(0).dtype);
        if (is_dense(m.ctx(), m.tensor(0))) type.strides = m.tensor(0).strides;
        return {type};
      },
      nullptr,
      [](LowerContext& ctx) {
        ctx.pointwise(0, [&ctx](LoopBuilder& b, std::span<const Expr> indices) {
          const DType t = compute_dtype(ctx.operand(0).dtype);
          return conjugate(b, t, operand_at(ctx, b, 0, t, indices));
        });
      }));
  for (const UnaryOpRow& row : kUnaryOpRows) {
    OpDef def = make_op({row.name, OpKind::kPointwise, "(Tensor self) -> Tensor", row.names, row.inplace},
                        unary_row_meta(row), nullptr, row_lower(row));
    if (row.rule != nullptr) def.vjp = unary_vjp(row.rule);
    r.add(std::move(def));
  }
  r.add(make_op(
      {"abs", OpKind::kPointwise, "(Tensor self) -> Tensor",
       "torch.abs torch.absolute torch.Tensor.abs torch.Tensor.absolute torch.Tensor.__abs__ numpy.fabs",
       "torch.Tensor.abs_ torch.Tensor.absolute_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t self[] = {0};
        if (m.tensor(0).dtype == DType::kBool) throw InvalidArgument("abs of bool is not implemented");
        TensorType type = pointwise_type(m, self, real_dtype(m.tensor(0).dtype));
        const TensorType* resized[] = {&m.tensor(0), nullptr};
        if (is_complex(m.tensor(0).dtype)) type.strides = m.iterator_strides(type.sizes, resized);
        return {type};
      },
      nullptr,
      [](LowerContext& ctx) {
        const DType dtype = compute_dtype(ctx.operand(0).dtype);
        ctx.pointwise(0, [&ctx, dtype](LoopBuilder& b, std::span<const Expr> indices) {
          return absolute(b, dtype, operand_at(ctx, b, 0, dtype, indices));
        });
      }));
}

}  // namespace tatara
