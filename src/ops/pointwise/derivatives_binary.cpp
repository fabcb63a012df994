// Gradients of pointwise operators of several operands. Operands may be Python numbers; broadcasting and casts are undone
// where the gradient is given.
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// `op` of a value and an operand that is a tensor or a number.
Term with(VjpContext& v, std::string_view op, Term x, size_t arg) {
  const Arg& other = v.args()[arg];
  return {x.b, x.b->op(op, {TensorArg{x.id}, other})};
}

/// Whether it is a number, which has no gradient and is no complex one.
bool is_real_number(const VjpContext& v, size_t arg) {
  if (v.args().is_tensor(arg)) return v.args().type(arg).is_wrapped_number;
  return !std::holds_alternative<std::complex<double>>(v.args().scalar(arg));
}

/// An operand as a tensor, conjugated when complex; numbers become tensors without dimensions.
Term value_operand(VjpContext& v, size_t arg) {
  if (v.args().is_tensor(arg)) return operand(v, arg);
  const TensorType& out = v.builder().type(v.out());
  return term(v, v.builder().op("full", {SymInts{}, v.args().scalar(arg), out.dtype, NoneArg{}, out.device}));
}

Term conj_operand(VjpContext& v, size_t arg) { return value_operand(v, arg).conj(); }

Term zeros_like(Term x) { return {x.b, x.b->unary("zeros_like", x.id)}; }

void add_rule(VjpContext& v, double self_sign, double other_sign, bool reversed) {
  const Term g = gradient(v);
  const bool varies = v.args().is_tensor(2);
  const Scalar alpha = varies ? Scalar(0.0) : v.args().scalar(2);
  const auto scaled = [&](double sign, bool by_alpha) {
    Term t = g;
    if (by_alpha && varies) {
      t = t * v.args().quantity(2);
      return sign < 0 ? -t : t;
    }
    const bool one = std::holds_alternative<int64_t>(alpha) && std::get<int64_t>(alpha) == 1;
    if (by_alpha && !one) {
      Scalar factor = alpha;
      if (const auto* c = std::get_if<std::complex<double>>(&factor)) factor = std::conj(*c);
      t = {t.b, t.b->binary("mul", t.id, factor)};
    }
    return sign < 0 ? -t : t;
  };
  if (v.needs(0)) v.give(0, scaled(self_sign, reversed).id);
  if (v.needs(1)) v.give(1, scaled(other_sign, !reversed).id);
}

void mul_rule(VjpContext& v) {
  const Term g = gradient(v);
  if (v.needs(0)) {
    v.give(0, is_real_number(v, 1) ? with(v, "mul", g, 1).id : (g * conj_operand(v, 1)).id);
  }
  if (v.needs(1)) v.give(1, (g * conj_operand(v, 0)).id);
}

/// numerator / denominator, by position.
void quotient_rule(VjpContext& v, size_t numerator, size_t denominator) {
  const Term g = gradient(v);
  if (is_real_number(v, denominator)) {
    v.give(numerator, with(v, "div", g, denominator).id);
    return;
  }
  const Term share = g / conj_operand(v, denominator);
  v.give(numerator, share.id);
  if (v.needs(denominator)) v.give(denominator, (-share * result(v).conj()).id);
}

void div_mode_rule(VjpContext& v) {
  if (v.args().none(2)) return quotient_rule(v, 0, 1);
  v.give_zeros(0);
  v.give_zeros(1);
}

void power_rule(VjpContext& v, size_t base, size_t exponent) {
  const Term g = gradient(v);
  if (v.needs(base)) {
    if (!v.args().is_tensor(exponent)) {
      const double e = v.args().number(exponent);
      if (e == 0) {
        v.give_zeros(base);
      } else {
        const Term x = operand(v, base);
        const Term lower = e == 1 ? Term{} : e == 2 ? x : x.bin("pow", e - 1);
        v.give(base, e == 1 ? copy_both_ways(v.builder(), g.id) : (g * (lower * e).conj()).id);
      }
    } else {
      const Term x = operand(v, base), e = operand(v, exponent);
      v.give(base, masked_product(v, e.bin("eq", 0.0), g, (e * x.bin("pow", e - 1.0)).conj()).id);
    }
  }
  if (v.needs(exponent)) {
    const Term x = value_operand(v, base), e = operand(v, exponent);
    const Term real = is_complex(e.type().dtype) ? e.un("real") : e;
    const Term zero = x.bin("eq", 0.0) && (real >= 0.0);
    v.give(exponent, masked_product(v, zero, g, (result(v) * x.un("log")).conj()).id);
  }
}

/// maximum and minimum: the winner takes the gradient, a tie is shared.
void extreme_rule(VjpContext& v, const char* loses) {
  const Term g = gradient(v), x = operand(v, 0).fixed(), y = operand(v, 1).fixed();
  const Term shared = x.bin("eq", y).choose(g * 0.5, g);
  v.give(0, x.bin(loses, y).choose(zeros_like(shared), shared).id);
  v.give(1, y.bin(loses, x).choose(zeros_like(shared), shared).id);
}

/// fmax and fmin: the first operand takes a tie (of fmax, the second's tangent does in eager), and what is no number loses.
void number_extreme_rule(VjpContext& v, const char* wins) {
  const Term g = gradient(v), x = operand(v, 0).fixed(), y = operand(v, 1).fixed();
  const Term first = x.bin(wins, y) || y.un("isnan");
  v.give(0, first.choose(g, 0.0).id);
  v.give(1, first.choose(zeros_like(g), g).id);
}

Term compared(VjpContext& v, std::string_view op, Term x, size_t arg) {
  return v.args().is_tensor(arg) ? x.bin(op, operand(v, arg).fixed()) : with(v, op, x, arg);
}

void clamp_rule(VjpContext& v, bool has_min, bool has_max, size_t min_arg, size_t max_arg) {
  const Term g = gradient(v), x = operand(v, 0).fixed();
  has_min = has_min && !v.args().none(min_arg);
  has_max = has_max && !v.args().none(max_arg);
  if (!has_min && !has_max) return v.give(0, g.id);
  Term inside;
  if (has_min) inside = compared(v, "ge", x, min_arg);
  if (has_max) {
    const Term below = compared(v, "le", x, max_arg);
    inside = has_min ? inside && below : below;
  }
  v.give(0, inside.choose(g, 0.0).id);
  const bool both = has_min && has_max;
  if (has_min && v.needs(min_arg)) {
    Term taken = compared(v, "lt", x, min_arg);
    if (both) taken = taken && compared(v, "lt", operand(v, min_arg).fixed(), max_arg);
    v.give(min_arg, taken.choose(g, 0.0).id);
  }
  if (has_max && v.needs(max_arg)) {
    Term taken = compared(v, "gt", x, max_arg);
    if (both) taken = taken || compared(v, "lt", operand(v, max_arg).fixed(), min_arg);
    v.give(max_arg, taken.choose(g, 0.0).id);
  }
}

void where_rule(VjpContext& v) {
  const Term g = gradient(v), c = operand(v, 0);
  if (v.needs(1)) v.give(1, c.choose(g, 0.0).id);
  if (v.needs(2)) v.give(2, c.choose(zeros_like(g), g).id);
}

void masked_fill_rule(VjpContext& v) {
  const Term g = gradient(v), mask = operand(v, 1);
  if (v.needs(0)) v.give(0, mask.choose(zeros_like(g), g).id);
  if (v.needs(2)) v.give(2, mask.choose(g, 0.0).id);
}

void lerp_rule(VjpContext& v) {
  const Term g = gradient(v);
  if (v.args().is_tensor(2) && v.args().type(2).is_wrapped_number) {
    const Quantity w = v.args().quantity(2);
    v.give(0, (g * (1.0 - w)).id);
    v.give(1, (g * w).id);
  } else if (v.args().is_tensor(2)) {
    const Term w = operand(v, 2);
    v.give(0, (g * (1.0 - w)).id);
    v.give(1, (g * w).id);
    if (v.needs(2)) v.give(2, (g * (operand(v, 1) - operand(v, 0))).id);
  } else {
    const double w = v.args().number(2);
    v.give(0, (g * (1 - w)).id);
    v.give(1, (g * w).id);
  }
}

void addc_rule(VjpContext& v, bool quotient) {
  const Term g = gradient(v);
  v.give(0, g.id);
  if (!v.needs(1) && !v.needs(2)) return;
  const Term scaled = g * v.args().quantity(3);
  const Term a = operand(v, 1).conj(), b = operand(v, 2).conj();
  if (v.needs(1)) v.give(1, (quotient ? scaled / b : scaled * b).id);
  if (v.needs(2)) v.give(2, (quotient ? -scaled * (a / (b * b)) : scaled * a).id);
}

void remainder_rule(VjpContext& v, const char* mode) {
  const Term g = gradient(v);
  v.give(0, g.id);
  if (v.needs(1)) {
    const Term self = conj_operand(v, 0), other = operand(v, 1);
    const Term whole =
        term(v, v.builder().op("div.mode", {TensorArg{self.id}, TensorArg{other.id}, std::string(mode)}));
    v.give(1, (-g * whole).id);
  }
}

void atan2_rule(VjpContext& v) {
  const Term g = gradient(v), y = operand(v, 0), x = operand(v, 1);
  const Term square = x * x + y * y;
  const Term share = v.for_tangents() ? g / square : masked_quotient(v, g, square);  // eager's tangent is no number
  v.give(0, (share * x).id);
  v.give(1, (share * -y).id);
}

void hypot_rule(VjpContext& v) {
  const Term g = gradient(v), out = result(v);
  v.give(0, (g * (operand(v, 0) / out)).id);
  v.give(1, (g * (operand(v, 1) / out)).id);
}

void copysign_rule(VjpContext& v) {
  if (v.needs(0)) {
    const Term x = operand(v, 0);
    v.give(0, masked_product(v, x.bin("eq", 0.0), gradient(v), result(v) / x).id);
  }
  v.give_zeros(1);
}

/// self * log(other + shift)
void x_log_rule(VjpContext& v, const char* op, double shift) {
  const Term g = gradient(v);
  if (v.needs(0)) {
    const Term x = operand(v, 0);
    const Term y = v.args().is_tensor(1) ? operand(v, 1) : zeros_like(x) + v.args().number(1);
    const Term zero = x.fixed().bin("eq", 0.0) && (y.fixed() <= -shift);
    // Eager has 0 where the cotangent is 0, whatever the logarithm is.
    const Term share = g.bin(op, y);
    v.give(0, (v.for_tangents() ? masked_product(v, zero, g, y.un(shift == 0 ? "log" : "log1p"))
                                : zero.choose(zeros_like(share), share))
                  .id);
  }
  if (v.needs(1)) {
    Term base = operand(v, 1);
    if (shift != 0) base = base + shift;
    v.give(1, (g * conj_operand(v, 0) / base).id);
  }
}

void from_parts_rule(VjpContext& v) {
  const Term g = gradient(v);
  v.give(0, g.un("real_part").id);
  v.give(1, g.un("imag_part").id);
}

}  // namespace

void register_derivatives_binary(OpRegistry& r) {
  const auto rule = [&r](const char* name, VjpFn fn) { r.amend(name).vjp = std::move(fn); };
  rule("add", [](VjpContext& v) { add_rule(v, 1, 1, false); });
  rule("sub", [](VjpContext& v) { add_rule(v, 1, -1, false); });
  rule("rsub", [](VjpContext& v) { add_rule(v, -1, 1, true); });
  rule("mul", mul_rule);
  rule("div", [](VjpContext& v) { quotient_rule(v, 0, 1); });
  rule("rdiv", [](VjpContext& v) { quotient_rule(v, 1, 0); });
  rule("div.mode", div_mode_rule);
  rule("pow", [](VjpContext& v) { power_rule(v, 0, 1); });
  r.mark(&OpTraits::always_saves, {"pow"});
  rule("rpow", [](VjpContext& v) { power_rule(v, 1, 0); });
  rule("maximum", [](VjpContext& v) { extreme_rule(v, "lt"); });
  rule("minimum", [](VjpContext& v) { extreme_rule(v, "gt"); });
  rule("fmax", [](VjpContext& v) { number_extreme_rule(v, v.for_tangents() ? "gt" : "ge"); });
  rule("fmin", [](VjpContext& v) { number_extreme_rule(v, "le"); });
  rule("clamp", [](VjpContext& v) { clamp_rule(v, true, true, 1, 2); });
  rule("clamp_min", [](VjpContext& v) { clamp_rule(v, true, false, 1, 1); });
  rule("clamp_max", [](VjpContext& v) { clamp_rule(v, false, true, 1, 1); });
  rule("where", where_rule);
  rule("masked_fill", masked_fill_rule);
  rule("masked_fill.Tensor", masked_fill_rule);
  rule("lerp", lerp_rule);
  rule("addcmul", [](VjpContext& v) { addc_rule(v, false); });
  rule("addcdiv", [](VjpContext& v) { addc_rule(v, true); });
  rule("remainder", [](VjpContext& v) { remainder_rule(v, "floor"); });
  rule("fmod", [](VjpContext& v) { remainder_rule(v, "trunc"); });
  rule("atan2", atan2_rule);
  rule("hypot", hypot_rule);
  rule("copysign", copysign_rule);
  rule("xlogy", [](VjpContext& v) { x_log_rule(v, "xlogy", 0); });
  rule("special_xlog1py", [](VjpContext& v) { x_log_rule(v, "special_xlog1py", 1); });
  rule("from_parts", from_parts_rule);
  rule("copy", [](VjpContext& v) {
    v.give_zeros(0);
    v.give(1, v.grad());
  });
  rule("fill", [](VjpContext& v) {
    v.give_zeros(0);
    v.give(1, v.grad());
  });
}

}  // namespace tatara
