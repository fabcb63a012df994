// Floor division and modulo: the rules that hold for all integers.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

/// t / by as a term when it divides evenly (integer coefficient, factors of `by` all present).
std::optional<Term> Impl::divide_term(Term t, Term by) {
  if (by.coef == 0 || t.coef % by.coef != 0 || (t.coef == INT64_MIN && by.coef == -1)) return std::nullopt;
  if (by.base == nullptr) return Term{t.coef / by.coef, t.base};
  if (t.base == nullptr || (by.base->symbols & ~t.base->symbols) != 0) return std::nullopt;
  const Atoms have(t.base);
  const Atoms want(by.base);
  InlineVec<NodePtr, 10> left;
  size_t w = 0;
  for (size_t i = 0; i < have.size(); ++i) {
    if (w < want.size() && have[i] == want[w]) {
      ++w;
    } else {
      left.push_back(have[i]);
    }
  }
  if (w != want.size()) return std::nullopt;
  return Term{t.coef / by.coef, product(left)};
}

Term Impl::exact_quotient(Term t, Term by) {
  const auto quotient = divide_term(t, by);
  TATARA_CHECK(quotient.has_value(), Expr(term_node(by)).str(), " does not divide ", Expr(term_node(t)).str());
  return *quotient;
}

/// The largest term that divides both: gcd of the coefficients, common factors.
Term Impl::term_gcd(Term a, Term b) {
  Term out{safe_gcd(a.coef, b.coef), nullptr};
  if (a.base == nullptr || b.base == nullptr) return out;
  const Atoms fa(a.base);
  const Atoms fb(b.base);
  InlineVec<NodePtr, 10> common;
  size_t i = 0;
  size_t j = 0;
  while (i < fa.size() && j < fb.size()) {
    const int order = compare_nodes(fa[i], fb[j]);
    if (order == 0) {
      common.push_back(fa[i]);
      ++i;
      ++j;
    } else if (order < 0) {
      ++i;
    } else {
      ++j;
    }
  }
  out.base = product(common);
  return out;
}

NodePtr Impl::floordiv(NodePtr a, NodePtr b) {
  if (b->kind == ExprKind::kConst) {
    const int64_t c = b->value;
    if (c == 0) throw InvalidArgument(str_cat("division by zero: ", Expr(a).str(), " // 0"));
    if (c == 1) return a;
    if (a->kind == ExprKind::kConst) {
      return constant(c == -1 ? checked_neg(a->value) : floor_div(a->value, c));
    }
    if (c < 0) {
      const NodePtr flipped = neg(a);
      return fired(Rule::kDivNegativeDivisor, ExprKind::kFloorDiv, a, b, floordiv(flipped, constant(checked_neg(c))));
    }
    return floordiv_const(a, c);
  }
  if (a->kind == ExprKind::kConst && a->value == 0) return a;
  if (a == b) return constant(1);
  return floordiv_symbolic(a, b);
}

NodePtr Impl::mod(NodePtr a, NodePtr b) {
  if (b->kind == ExprKind::kConst) {
    const int64_t c = b->value;
    if (c == 0) throw InvalidArgument(str_cat("division by zero: ", Expr(a).str(), " % 0"));
    if (a->kind == ExprKind::kConst) return constant(floor_mod(a->value, c));
    if (c == 1 || c == -1) return constant(0);
    if (c < 0) {
      const NodePtr flipped = neg(a);
      return fired(Rule::kModNegativeDivisor, ExprKind::kMod, a, b, neg(mod(flipped, constant(checked_neg(c)))));
    }
    return mod_const(a, c);
  }
  if (a->kind == ExprKind::kConst && a->value == 0) return a;
  if (a == b) return constant(0);
  return mod_symbolic(a, b);
}

// Both expect c > 1 and a not constant, but take any a.
NodePtr Impl::floordiv_const(NodePtr a, int64_t c) {
  if (a->kind == ExprKind::kConst) return constant(floor_div(a->value, c));
  if (c == 1) return a;
  Linear all;
  all.add(a);
  Linear quotient;
  Linear rest;
  quotient.constant = floor_div(all.constant, c);
  rest.constant = floor_mod(all.constant, c);
  int64_t content = c;
  for (const Term& term : all.terms) {
    if (term.coef % c == 0) {
      quotient.terms.push_back({term.coef / c, term.base});
    } else {
      rest.terms.push_back(term);
      content = safe_gcd(content, term.coef);
    }
  }
  if (!quotient.terms.empty() || quotient.constant != 0) {
    const NodePtr inner = floordiv_const(sum(rest), c);
    quotient.add(inner);
    const NodePtr out = sum(quotient);
    return fired(Rule::kDivExtractMultiples, ExprKind::kFloorDiv, a, constant(c), out);
  }
  if (content > 1) {
    for (Term& term : rest.terms) term.coef /= content;
    rest.constant = floor_div(rest.constant, content);
    const NodePtr out = floordiv_const(sum(rest), c / content);
    return fired(Rule::kDivCancelGcd, ExprKind::kFloorDiv, a, constant(c), out);
  }
  if (std::all_of(rest.terms.begin(), rest.terms.end(), [](const Term& term) { return term.coef < 0; })) {
    // So that ceildiv has one form, and dividends are positive where they can be.
    const NodePtr flipped = add(neg(a), c - 1);
    return fired(Rule::kDivFlip, ExprKind::kFloorDiv, a, constant(c), neg(floordiv_const(flipped, c)));
  }
  if (rest.terms.size() == 1 && rest.terms[0].coef == 1) {
    const NodePtr inner = rest.terms[0].base;
    if (inner->kind == ExprKind::kFloorDiv) {
      // (x // d + k) // c = (x + d * k) // (d * c)
      const NodePtr x = inner->operand(0);
      const NodePtr d = inner->operand(1);
      int64_t unused = 0;
      if (d->kind != ExprKind::kConst || (!__builtin_mul_overflow(d->value, c, &unused) &&
                                          !__builtin_mul_overflow(d->value, rest.constant, &unused))) {
        const NodePtr out = floordiv(add(x, scale(d, rest.constant)), scale(d, c));
        return fired(Rule::kDivOfDiv, ExprKind::kFloorDiv, a, constant(c), out);
      }
    }
    if (inner->kind == ExprKind::kMod && rest.constant == 0) {
      const NodePtr m = inner->operand(1);
      if (m->kind == ExprKind::kConst && m->value > 0 && m->value % c == 0) {
        const NodePtr out = mod(floordiv_const(inner->operand(0), c), constant(m->value / c));
        return fired(Rule::kDivOfMod, ExprKind::kFloorDiv, a, constant(c), out);
      }
    }
  }
  return intern(ExprKind::kFloorDiv, 0, std::array{a, constant(c)});
}

NodePtr Impl::mod_const(NodePtr a, int64_t c) {
  if (a->kind == ExprKind::kConst) return constant(floor_mod(a->value, c));
  if (c == 1) return constant(0);
  Linear all;
  all.add(a);
  Linear rest;
  rest.constant = floor_mod(all.constant, c);
  bool changed = rest.constant != all.constant;
  bool unwrapped = false;
  int64_t content = c;
  for (const Term& term : all.terms) {
    const int64_t coef = term.coef % c;
    changed |= coef != term.coef;
    if (coef == 0) continue;
    if (term.base->kind == ExprKind::kMod && term.base->operand(1)->kind == ExprKind::kConst) {
      // k * (y % m) is k * y modulo k * m
      const __int128 period = static_cast<__int128>(coef) * term.base->operand(1)->value;
      if (period % c == 0) {
        rest.add(term.base->operand(0), coef);
        unwrapped = true;
        continue;
      }
    }
    rest.terms.push_back({coef, term.base});
    content = safe_gcd(content, coef);
  }
  if (unwrapped) return fired(Rule::kModOfMod, ExprKind::kMod, a, constant(c), mod_const(sum(rest), c));
  if (changed) return fired(Rule::kModDropMultiples, ExprKind::kMod, a, constant(c), mod_const(sum(rest), c));
  if (content > 1) {
    for (Term& term : rest.terms) term.coef /= content;
    const int64_t low = floor_mod(rest.constant, content);
    rest.constant = floor_div(rest.constant, content);
    const NodePtr out = add(scale(mod_const(sum(rest), c / content), content), low);
    return fired(Rule::kModFactorGcd, ExprKind::kMod, a, constant(c), out);
  }
  return intern(ExprKind::kMod, 0, std::array{a, constant(c)});
}

void Impl::split_multiples(NodePtr a, NodePtr b, Linear& quotient, Linear& rest) {
  const Term divisor = term_of(b);
  Linear all;
  all.add(a);
  rest.constant = all.constant;
  for (const Term& term : all.terms) {
    if (const auto q = divide_term(term, divisor)) {
      quotient.add_term(q->coef, q->base);
    } else {
      rest.terms.push_back(term);
    }
  }
}

/// Polynomial division by a sum, for products of sums that were expanded: (s0*s1 + s1) // (s0 + 1). True when at least
/// one multiple came out and the rest has fewer terms.
bool Impl::split_by_sum(NodePtr a, NodePtr b, Linear& quotient, NodePtr& rest) {
  if (a->kind != ExprKind::kAdd || a->num_operands < 2) return false;
  // The leading term in a graded order, so that each step lowers the rest.
  Term lead{0, nullptr};
  size_t lead_degree = 0;
  for (Expr operand : b->operands()) {
    const Term term = term_of(operand.node());
    const size_t degree = Atoms(term.base).size();
    if (lead.coef == 0 || degree > lead_degree) {
      lead = term;
      lead_degree = degree;
    }
  }
  NodePtr left = a;
  for (int step = 0; step < 32; ++step) {
    std::optional<Term> q;
    const Expr single(left);
    const auto terms = left->kind == ExprKind::kAdd ? left->operands() : std::span(&single, 1);
    for (Expr operand : terms) {
      const Term term = term_of(operand.node());
      if (term.coef == 0) continue;
      if ((q = divide_term(term, lead))) break;
    }
    if (!q) break;
    quotient.add_term(q->coef, q->base);
    left = sub(left, mul(term_node(*q), b));
  }
  const size_t left_terms = left->kind == ExprKind::kAdd ? left->num_operands : 1;
  rest = left;
  return left != a && (left->kind == ExprKind::kConst || left_terms < a->num_operands);
}

NodePtr Impl::floordiv_symbolic(NodePtr a, NodePtr b) {
  const NodePtr original_b = b;
  const auto done = [&](Rule rule, NodePtr out) { return fired(rule, ExprKind::kFloorDiv, a, original_b, out); };
  if (b->kind == ExprKind::kAdd) {
    if (term_of(b->operand(0)).coef < 0) return done(Rule::kDivNegativeDivisor, floordiv(neg(a), neg(b)));
    Linear quotient;
    NodePtr rest = nullptr;
    if (split_by_sum(a, b, quotient, rest)) {
      quotient.add(floordiv(rest, b));
      return done(Rule::kDivBySum, sum(quotient));
    }
    Linear all;
    all.add(a);
    Linear divisor;
    divisor.add(b);
    int64_t content = safe_gcd(all.constant, divisor.constant);
    for (const Term& term : all.terms) content = safe_gcd(content, term.coef);
    for (const Term& term : divisor.terms) content = safe_gcd(content, term.coef);
    if (content > 1) {
      for (Term& term : all.terms) term.coef /= content;
      for (Term& term : divisor.terms) term.coef /= content;
      all.constant /= content;
      divisor.constant /= content;
      return done(Rule::kDivCancelFactor, floordiv(sum(all), sum(divisor)));
    }
    return intern(ExprKind::kFloorDiv, 0, std::array{a, b});
  }
  if (term_of(b).coef < 0) return done(Rule::kDivNegativeDivisor, floordiv(neg(a), neg(b)));
  Linear quotient;
  Linear rest;
  split_multiples(a, b, quotient, rest);
  if (!quotient.terms.empty() || quotient.constant != 0) {
    quotient.add(floordiv(sum(rest), b));
    return done(Rule::kDivExtractMultiples, sum(quotient));
  }
  Term common = term_of(b);
  if (rest.constant != 0) common = term_gcd(common, {rest.constant, nullptr});
  for (const Term& term : rest.terms) common = term_gcd(common, term);
  if (common.base != nullptr || common.coef > 1) {
    Linear top;
    if (rest.constant != 0) top.constant = rest.constant / common.coef;
    for (const Term& term : rest.terms) {
      const Term q = exact_quotient(term, common);
      top.add_term(q.coef, q.base);
    }
    return done(Rule::kDivCancelFactor, floordiv(sum(top), term_node(exact_quotient(term_of(b), common))));
  }
  return intern(ExprKind::kFloorDiv, 0, std::array{a, b});
}

NodePtr Impl::mod_symbolic(NodePtr a, NodePtr b) {
  const auto done = [&](Rule rule, NodePtr out) { return fired(rule, ExprKind::kMod, a, b, out); };
  if (b->kind == ExprKind::kAdd) {
    if (term_of(b->operand(0)).coef < 0) return done(Rule::kModNegativeDivisor, neg(mod(neg(a), neg(b))));
    Linear quotient;
    NodePtr rest = nullptr;
    if (split_by_sum(a, b, quotient, rest)) return done(Rule::kModBySum, mod(rest, b));
    return intern(ExprKind::kMod, 0, std::array{a, b});
  }
  const Term divisor = term_of(b);
  if (divisor.coef < 0) return done(Rule::kModNegativeDivisor, neg(mod(neg(a), neg(b))));
  Linear quotient;
  Linear rest;
  split_multiples(a, b, quotient, rest);
  if (!quotient.terms.empty() || quotient.constant != 0) return done(Rule::kModDropMultiples, mod(sum(rest), b));
  // k * (y % m) is k * y modulo k * m
  for (size_t i = 0; i < rest.terms.size(); ++i) {
    const Term term = rest.terms[i];
    if (term.base->kind != ExprKind::kMod) continue;
    const NodePtr period = scale(term.base->operand(1), term.coef);
    if (period->kind == ExprKind::kAdd || !divide_term(term_of(period), divisor)) continue;
    rest.terms.erase(i);
    rest.add(term.base->operand(0), term.coef);
    return done(Rule::kModOfMod, mod(sum(rest), b));
  }
  Term common = divisor;
  if (rest.constant != 0) common = term_gcd(common, {rest.constant, nullptr});
  for (const Term& term : rest.terms) common = term_gcd(common, term);
  if (common.base != nullptr || common.coef > 1) {
    Linear top;
    if (rest.constant != 0) top.constant = rest.constant / common.coef;
    for (const Term& term : rest.terms) {
      const Term q = exact_quotient(term, common);
      top.add_term(q.coef, q.base);
    }
    const NodePtr inner = mod(sum(top), term_node(exact_quotient(divisor, common)));
    return done(Rule::kModFactorFactor, mul(term_node(common), inner));
  }
  return intern(ExprKind::kMod, 0, std::array{a, b});
}

}  // namespace tatara
