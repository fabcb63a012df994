// Gradients of one-operand pointwise operators and activations. `g` is the cotangent of the result, `x` the operand, `y` the
// result. Where eager has a convention at a kink, it is kept.
#include <cmath>
#include <numbers>

#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

constexpr double kPi = std::numbers::pi;
constexpr double kLn2 = std::numbers::ln2;
constexpr double kLn10 = std::numbers::ln10;
constexpr double kSqrt2 = std::numbers::sqrt2;
constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
const double kInvSqrt2Pi = 1 / std::sqrt(2 * kPi);

using WithArgs = Term (*)(Term g, Term x, Term y, const Args& args);

Term normal_density(Term x) { return (x * x * -0.5).un("exp") * kInvSqrt2Pi; }
Term normal_cdf(Term x) { return ((x / kSqrt2).un("erf") + 1.0) * 0.5; }

/// sign(x); x / |x| of complex numbers, 0 at 0.
Term direction(Term x, Term magnitude) {
  if (!is_complex(x.type().dtype)) return x.un("sign");
  const Term zero = magnitude.bin("eq", 0.0);
  return x / zero.choose(Term{x.b, x.b->unary("ones_like", magnitude.id)}, magnitude);
}

struct UnaryRow {
  const char* name;
  UnaryRule rule;
  bool complex = false;  // holds for complex numbers with x and y conjugated
};

constexpr UnaryRow kUnary[] = {
    {"neg", [](Term g, Term, Term) { return -g; }, true},
    {"square", [](Term g, Term x, Term) { return g * (x * 2.0); }, true},
    {"sqrt", [](Term g, Term, Term y) { return g / (y * 2.0); }, true},
    {"rsqrt", [](Term g, Term, Term y) { return g * -0.5 * (y * y * y); }, true},
    {"reciprocal", [](Term g, Term, Term y) { return -g * (y * y); }, true},
    {"exp", [](Term g, Term, Term y) { return g * y; }, true},
    {"exp2", [](Term g, Term, Term y) { return g * y * kLn2; }, true},
    {"expm1", [](Term g, Term, Term y) { return g * (y + 1.0); }, true},
    {"log", [](Term g, Term x, Term) { return g / x; }, true},
    {"log2", [](Term g, Term x, Term) { return g / (x * kLn2); }, true},
    {"log10", [](Term g, Term x, Term) { return g / (x * kLn10); }, true},
    {"log1p", [](Term g, Term x, Term) { return g / (x + 1.0); }, true},
    {"sin", [](Term g, Term x, Term) { return g * x.un("cos"); }, true},
    {"cos", [](Term g, Term x, Term) { return g * -x.un("sin"); }, true},
    {"tan", [](Term g, Term, Term y) { return g * (y * y + 1.0); }, true},
    {"asin", [](Term g, Term x, Term) { return g * (1.0 - x * x).un("rsqrt"); }},
    {"acos", [](Term g, Term x, Term) { return g * -(1.0 - x * x).un("rsqrt"); }},
    {"atan", [](Term g, Term x, Term) { return g / (x * x + 1.0); }},
    {"sinh", [](Term g, Term x, Term) { return g * x.un("cosh"); }, true},
    {"cosh", [](Term g, Term x, Term) { return g * x.un("sinh"); }, true},
    {"tanh", [](Term g, Term, Term y) { return g * (1.0 - y * y); }, true},
    {"asinh", [](Term g, Term x, Term) { return g * (x * x + 1.0).un("rsqrt"); }},
    {"acosh", [](Term g, Term x, Term) { return g * (x * x - 1.0).un("rsqrt"); }},
    {"atanh", [](Term g, Term x, Term) { return g / (1.0 - x * x); }},
    {"erf", [](Term g, Term x, Term) { return g * ((-(x * x)).un("exp") * kTwoOverSqrtPi); }},
    {"erfc", [](Term g, Term x, Term) { return g * ((-(x * x)).un("exp") * -kTwoOverSqrtPi); }},
    {"erfinv", [](Term g, Term, Term y) { return g * ((y * y).un("exp") * (1 / kTwoOverSqrtPi)); }},
    {"sigmoid", [](Term g, Term, Term y) { return g * ((1.0 - y) * y); }, true},
    {"lgamma", [](Term g, Term x, Term) { return g * x.un("digamma"); }},
    {"i0", [](Term g, Term x, Term) { return g * x.un("special_i1"); }},
    {"special_i0e", [](Term g, Term x, Term y) { return g * (x.un("special_i1e") - x.un("sign") * y); }},
    {"special_ndtri", [](Term g, Term, Term y) { return g * ((y * y * 0.5).un("exp") / kInvSqrt2Pi); }},
    {"special_ndtr", [](Term g, Term x, Term) { return g * normal_density(x); }},
    {"special_log_ndtr", [](Term g, Term x, Term y) { return g * ((x * x * -0.5 - y).un("exp") * kInvSqrt2Pi); }},
    {"special_entr", [](Term g, Term x, Term) { return g * (-x.un("log") - 1.0); }},
    {"deg2rad", [](Term g, Term, Term) { return g * (kPi / 180.0); }},
    {"rad2deg", [](Term g, Term, Term) { return g * (180.0 / kPi); }},
    {"frac", [](Term g, Term, Term) { return g; }},
    {"conj_complex", [](Term g, Term, Term) { return g.conj(); }},
    {"abs", [](Term g, Term x, Term y) { return g * direction(x, y); }},
    {"silu",
     [](Term g, Term x, Term) {
       const Term s = x.un("sigmoid");
       return g * (s * (x * (1.0 - s) + 1.0));
     }},
    {"mish",
     [](Term g, Term x, Term) {
       const Term t = x.un("softplus").un("tanh");
       return g * (t + x * x.un("sigmoid") * (1.0 - t * t));
     }},
    {"relu", [](Term g, Term, Term y) { return (y <= 0.0).choose(0.0, g); }},
    {"relu6", [](Term g, Term x, Term) { return ((x > 0.0) && (x < 6.0)).choose(g, 0.0); }},
    {"hardsigmoid", [](Term g, Term x, Term) { return ((x > -3.0) && (x < 3.0)).choose(g / 6.0, 0.0); }},
    {"hardswish",
     [](Term g, Term x, Term) { return (x <= -3.0).choose(0.0, (x >= 3.0).choose(g, g * (x / 3.0 + 0.5))); }},
    {"log_sigmoid", [](Term g, Term x, Term) { return g * (-x).un("sigmoid"); }},
    {"special_i1",
     [](Term g, Term x, Term y) {
       const Term apart = x.un("abs") > 1e-7;
       const Term safe = apart.choose(x, 1e-7);
       return g * apart.choose(safe.un("i0") - y / safe, 0.5);
     }},
    {"special_i1e",
     [](Term g, Term x, Term y) {
       const Term apart = x.un("abs") > 1e-7;
       const Term safe = apart.choose(x, 1e-7);
       return g * apart.choose(safe.un("special_i0e") - y * (safe.un("sign") + safe.un("reciprocal")), 0.5);
     }},
};

/// Slope of elu: `below` * exp(x * rate) at and below 0, `above` over it.
Term exponential_slope(Term g, Term x, const Quantity& below, const Quantity& rate, const Quantity& above) {
  return (x > 0.0).choose(g * above, g * ((x * rate).un("exp") * below));
}

Term gelu(Term g, Term x, Term, const Args& args) {
  if (args.str(1) != "tanh") return g * (normal_cdf(x) + x * normal_density(x));
  constexpr double kCubic = 0.044715;
  const double scale = kSqrt2 * kTwoOverSqrtPi * 0.5;
  const Term squared = x * x;
  const Term t = ((x + squared * x * kCubic) * scale).un("tanh");
  const Term inner = (squared * (3 * kCubic) + 1.0) * scale;
  return g * ((t + 1.0) * 0.5 + x * 0.5 * ((1.0 - t * t) * inner));
}

struct ArgsRow {
  const char* name;
  WithArgs rule;
};

constexpr ArgsRow kWithArgs[] = {
    {"gelu", gelu},
    {"hardtanh",
     [](Term g, Term x, Term, const Args& a) { return ((x > a.quantity(1)) && (x < a.quantity(2))).choose(g, 0.0); }},
    {"elu",
     [](Term g, Term x, Term, const Args& a) {
       const Quantity alpha = a.quantity(1), scale = a.quantity(2), rate = a.quantity(3);
       return exponential_slope(g, x, alpha * scale * rate, rate, scale);
     }},
    {"selu",
     [](Term g, Term x, Term, const Args&) {
       constexpr double kAlpha = 1.6732632423543772848170429916717, kScale = 1.0507009873554804934193349852946;
       return exponential_slope(g, x, kAlpha * kScale, 1.0, kScale);
     }},
    {"celu",
     [](Term g, Term x, Term, const Args& a) { return exponential_slope(g, x, 1.0, 1.0 / a.quantity(1), 1.0); }},
    {"leaky_relu", [](Term g, Term x, Term, const Args& a) { return (x > 0.0).choose(g, g * a.quantity(1)); }},
    {"softplus",
     [](Term g, Term x, Term, const Args& a) {
       const Term scaled = x * a.quantity(1);
       return (scaled > a.quantity(2)).choose(g, g * scaled.un("sigmoid"));
     }},
    {"softshrink",
     [](Term g, Term x, Term, const Args& a) {
       const Quantity l = a.quantity(1);
       return ((x < -l) || (x > l)).choose(g, 0.0);
     }},
    {"hardshrink",
     [](Term g, Term x, Term, const Args& a) {
       const Quantity l = a.quantity(1);
       return ((x < -l) || (x > l)).choose(g, 0.0);
     }},
    {"threshold", [](Term g, Term x, Term, const Args& a) { return (x <= a.quantity(1)).choose(0.0, g); }},
    {"nan_to_num", [](Term g, Term x, Term, const Args&) { return x.fixed().un("isfinite").choose(g, 0.0); }},
};

void unary_rule(VjpContext& v, const UnaryRow& row) {
  Term x = operand(v, 0), y = result(v);
  const bool complex = is_complex(x.type().dtype);
  const bool real_result = !is_complex(y.type().dtype);
  if (complex && !row.complex && !real_result && std::string_view(row.name) != "conj_complex") {
    throw Unsupported(str_cat("the derivative of complex ", row.name));
  }
  if (complex && row.complex) {
    x = x.conj();
    y = y.conj();
  }
  v.give(0, row.rule(gradient(v), x, y).id);
}

void logit_rule(VjpContext& v) {
  const bool clamped = !v.args().none(1);
  const Quantity low = clamped ? v.args().quantity(1) : Quantity(0.0), high = 1.0 - low;
  const Term g = gradient(v), x = operand(v, 0);
  const auto choose = [&](Term condition, Arg yes, Arg no) {
    return Term{x.b, x.b->op("where", {TensorArg{condition.id}, std::move(yes), std::move(no)})};
  };
  const Term outside = (x.fixed() < low) || (x.fixed() > high);
  // Where the slope is not taken its own derivative must be a number.
  const Term inside = choose(outside, Scalar(0.5), TensorArg{x.id});
  const Term divisor = inside * (1.0 - inside);
  const Scalar beyond(clamped ? 0.0 : NAN);
  if (v.for_tangents()) return v.give(0, (g * choose(outside, beyond, TensorArg{divisor.un("reciprocal").id})).id);
  v.give(0, choose(outside, beyond, TensorArg{(g / divisor).id}).id);
}

void sinc_rule(VjpContext& v) {
  const Term x = operand(v, 0), px = x * kPi;
  const Term slope = (px * px.un("cos") - px.un("sin")) / (px * x);
  v.give(0, masked_product(v, x.bin("eq", 0.0), gradient(v), slope).id);
}

/// From the result, as in eager: where the absolute value is not positive this is another gradient than the product's. Eager's
/// tangents are the product's.
void polar_rule(VjpContext& v) {
  const Term g = gradient(v).conj(), z = result(v);
  const Term turned = term(v, v.builder().binary("mul", z.id, Scalar(std::complex<double>(0, 1))));
  const auto unit = [&] {
    const Term angle = operand(v, 1);
    return Term{z.b, z.b->binary("from_parts", angle.un("cos").id, angle.un("sin").id)};
  };
  const auto along = [&] { return v.for_tangents() ? unit() : direction(z, z.un("abs")); };
  if (v.needs(0)) v.give(0, (g * along()).un("real").id);
  if (v.needs(1)) v.give(1, (g * turned).un("real").id);
}

}  // namespace

void register_derivatives_pointwise(OpRegistry& r) {
  r.amend("polar").vjp = polar_rule;
  r.amend("logit").vjp = logit_rule;
  r.amend("sinc").vjp = sinc_rule;
  for (const UnaryRow& row : kUnary) {
    r.amend(row.name).vjp = [&row](VjpContext& v) { unary_rule(v, row); };
  }
  for (const ArgsRow& row : kWithArgs) {
    r.amend(row.name).vjp = [&row](VjpContext& v) {
      v.give(0, row.rule(gradient(v), operand(v, 0), result(v), v.args()).id);
    };
  }
  for (const char* name : {"floor",
                           "ceil",
                           "trunc",
                           "round",
                           "round.decimals",
                           "sign",
                           "sgn",
                           "zero",
                           "bernoulli",
                           "bernoulli.p",
                           "native_dropout",
                           "bernoulli_fill",
                           "uniform_fill",
                           "normal_fill",
                           "exponential_fill",
                           "cauchy_fill",
                           "log_normal_fill",
                           "geometric_fill",
                           "random_fill",
                           "random_fill.to",
                           "random_fill.from"}) {
    r.amend(name).vjp = [](VjpContext& v) { v.give_zeros(0); };
  }
  r.amend("bernoulli_fill.tensor").vjp = [](VjpContext& v) {
    v.give_zeros(0);
    v.give_zeros(1);
  };
  for (const char* name : {"cast", "cast_format", "clone", "relayout", "alias"}) {
    r.amend(name).vjp = [](VjpContext& v) { v.give(0, v.grad()); };
  }
  r.mark(&OpTraits::hands_tangent_on, {"frac"});
  r.mark(&OpTraits::always_saves,
         {"relu", "gelu", "silu", "tanh", "sigmoid", "exp", "softplus", "leaky_relu", "sin", "cos", "abs", "log"});
  r.amend("rrelu").vjp = [](VjpContext& v) {
    if (v.args().flag(3)) throw Unsupported("the derivative of rrelu in training");
    const Quantity slope = (v.args().quantity(1) + v.args().quantity(2)) / 2.0;
    const Term g = gradient(v);
    v.give(0, (operand(v, 0) > 0.0).choose(g, g * slope).id);
  };
  for (const char* name : {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "rand_like",
                           "randn_like", "randint_like", "randint_like.low_dtype", "detach"}) {
    r.amend(name).not_differentiable = true;
  }
}

}  // namespace tatara
