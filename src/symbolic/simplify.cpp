// Simplification with ranges and facts: operands first, then one rule at a time until none applies.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

namespace {

constexpr int kMaxRounds = 200;  // nested rewrites of one expression; each rule shrinks it, so this is never near

}  // namespace

NodePtr Impl::simplify(NodePtr e) {
  if (e->kind == ExprKind::kConst) return e;
  if (const NodePtr* cached = simplified.find(e, facts.epoch())) return *cached;
  if (simplify_depth > kMaxRounds) return e;
  ++simplify_depth;
  NodePtr out = e;
  try {
    out = rebuild(e);
    if (out == e) out = contextual(e);
    if (out != e) out = simplify(out);
  } catch (const ExprOverflow&) {
    out = e;
  } catch (...) {
    --simplify_depth;
    throw;
  }
  --simplify_depth;
  simplified.put(e, facts.epoch(), out, nodes.count());
  return out;
}

NodePtr Impl::rebuild(NodePtr e) {
  if (e->num_operands == 0) return e;
  InlineVec<NodePtr, 12> operands;
  bool changed = false;
  for (Expr operand : e->operands()) {
    const NodePtr simple = simplify(operand.node());
    changed |= simple != operand.node();
    operands.push_back(simple);
  }
  return changed ? build(e->kind, operands) : e;
}

NodePtr Impl::contextual(NodePtr e) {
  const IntRange r = range(e);
  if (r.lo == r.hi && r.lo != INT64_MIN && r.hi != INT64_MAX)
    return fired(Rule::kPointRange, ExprKind::kSymbol, e, nullptr, constant(r.lo));
  switch (e->kind) {
    case ExprKind::kConst: return e;
    case ExprKind::kSymbol: {
      const NodePtr value = facts.value_of(e);
      return value == nullptr ? e : fired(Rule::kSymbolEqual, ExprKind::kSymbol, e, nullptr, value);
    }
    case ExprKind::kAdd:
    case ExprKind::kMul: return contextual_sum(e);
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: return contextual_div(e);
    case ExprKind::kMin:
    case ExprKind::kMax: return contextual_min_max(e);
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: {
      const auto value = decide_structural(e);
      return value ? fired(Rule::kDecided, ExprKind::kNot, e, nullptr, constant(*value ? 1 : 0)) : e;
    }
  }
  TATARA_UNREACHABLE("ExprKind ", e->kind);
}

/// k * c * (x // c) where x % c is known to be r: k * (x - r). Works on each term of a sum, or on a single product.
NodePtr Impl::contextual_sum(NodePtr e) {
  const Expr single(e);
  for (Expr operand : e->kind == ExprKind::kAdd ? e->operands() : std::span(&single, 1)) {
    const Term term = term_of(operand.node());
    for (Expr atom : Atoms(term.base)) {
      if (atom.kind() != ExprKind::kFloorDiv) continue;
      const NodePtr x = atom.node()->operand(0);
      const NodePtr c = atom.node()->operand(1);
      if (c->kind == ExprKind::kAdd) continue;
      const auto k = divide_term(term, term_of(mul(c, atom.node())));
      if (!k) continue;
      const IntRange remainder = range(simplify(mod(x, c)));
      if (remainder.lo != remainder.hi) continue;
      const NodePtr exact = mul(term_node(*k), add(x, checked_neg(remainder.lo)));
      const NodePtr rest = sub(e, operand.node());
      return fired(Rule::kDivExact, ExprKind::kAdd, operand.node(), rest, add(rest, exact));
    }
  }
  if (e->kind == ExprKind::kAdd) {
    Linear linear;
    linear.add(e);
    if (join_div_mod(linear, true)) return sum(linear);
  }
  return e;
}

/// rest lies in [m * size, (m + 1) * size) for this m. `size` is positive.
std::optional<int64_t> Impl::block_of(NodePtr rest, Term size) {
  if (size.base == nullptr) {
    const IntRange r = range(rest);
    if (r.lo != INT64_MIN && r.hi != INT64_MAX && floor_div(r.lo, size.coef) == floor_div(r.hi, size.coef)) {
      return floor_div(r.lo, size.coef);
    }
    // Facts may say more than ranges.
    const NodePtr width = constant(size.coef);
    if (!facts.no_linear() && prove_le(constant(0), rest) && prove_lt(rest, width)) return 0;
    return std::nullopt;
  }
  const NodePtr width = term_node(size);
  const IntRange r = range(rest);
  if (r.lo >= 0 && prove_lt(rest, width)) return 0;
  if (r.hi < 0 && prove_le(neg(width), rest)) return -1;
  if (prove_le(constant(0), rest) && prove_lt(rest, width)) return 0;
  if (prove_lt(rest, constant(0)) && prove_le(neg(width), rest)) return -1;
  return std::nullopt;
}

/// (G*X + rest) // (G*b) is (X + m) // b, and (G*X + rest) % (G*b) is G*((X + m) % b) + rest - m*G, where m*G <= rest <
/// (m+1)*G, G > 0, b > 0. G runs over the common factors of terms with the divisor, the largest first.
NodePtr Impl::split_division(NodePtr e) {
  const NodePtr a = e->operand(0);
  const NodePtr b = e->operand(1);
  if (a->kind != ExprKind::kAdd || b->kind == ExprKind::kAdd) return e;
  const Term divisor = term_of(b);
  Linear all;
  all.add(a);
  InlineVec<Term, 8> candidates;
  for (const Term& term : all.terms) {
    const Term g = term_gcd(term, divisor);
    if (g.base == nullptr && g.coef == 1) continue;
    const auto same = [&](const Term& t) { return t.coef == g.coef && t.base == g.base; };
    if (std::none_of(candidates.begin(), candidates.end(), same)) candidates.push_back(g);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Term& x, const Term& y) {
    const size_t dx = Atoms(x.base).size();
    const size_t dy = Atoms(y.base).size();
    return dx != dy ? dx > dy : x.coef > y.coef;
  });
  for (const Term& g : candidates) {
    if (g.base != nullptr && !positive(g.base)) continue;
    Linear multiples;
    Linear others;
    others.constant = all.constant;
    for (const Term& term : all.terms) {
      if (const auto q = divide_term(term, g)) {
        multiples.add_term(q->coef, q->base);
      } else {
        others.terms.push_back(term);
      }
    }
    const NodePtr rest = sum(others);
    if (rest->kind == ExprKind::kConst && rest->value == 0) continue;
    const auto m = block_of(rest, g);
    if (!m) continue;
    multiples.constant = checked_add(multiples.constant, *m);
    const NodePtr top = sum(multiples);
    const NodePtr bottom = term_node(exact_quotient(divisor, g));
    if (e->kind == ExprKind::kFloorDiv) {
      return fired(Rule::kDivSplit, ExprKind::kFloorDiv, a, b, floordiv(top, bottom));
    }
    const NodePtr unit = term_node(g);
    const NodePtr low = sub(rest, scale(unit, *m));
    return fired(Rule::kModSplit, ExprKind::kMod, a, b, add(mul(unit, mod(top, bottom)), low));
  }
  return e;
}

/// Terms that facts make multiples of a constant divisor leave it: (s0*i + j) % 8 is j % 8 where s0 % 8 == 0.
NodePtr Impl::split_known_multiples(NodePtr e) {
  const NodePtr a = e->operand(0);
  const NodePtr b = e->operand(1);
  if (facts.no_multiples() || b->kind != ExprKind::kConst) return e;
  Linear all;
  all.add(a);
  Linear rest;
  rest.constant = all.constant;
  Linear quotient;
  size_t known_terms = 0;
  for (const Term& term : all.terms) {
    if (static_cast<__int128>(term.coef) * facts.divisor_of(term.base) % b->value == 0) {
      ++known_terms;
      if (e->kind == ExprKind::kFloorDiv && all.terms.size() + (all.constant != 0) > 1) {
        quotient.add(floordiv(term_node(term), b));
      }
    } else {
      rest.terms.push_back(term);
    }
  }
  if (known_terms == 0) return e;
  if (e->kind == ExprKind::kMod) return fired(Rule::kModKnownMultiple, e->kind, a, b, mod(sum(rest), b));
  if (all.terms.size() + (all.constant != 0) < 2) return e;
  quotient.add(floordiv(sum(rest), b));
  return fired(Rule::kDivKnownMultiple, e->kind, a, b, sum(quotient));
}

NodePtr Impl::contextual_div(NodePtr e) {
  const NodePtr a = e->operand(0);
  const NodePtr b = e->operand(1);
  const bool is_div = e->kind == ExprKind::kFloorDiv;
  if (!positive(b)) return e;
  if (b->kind != ExprKind::kAdd || range(a).lo != INT64_MIN || range(a).hi != INT64_MAX || !facts.no_linear()) {
    const auto m = b->kind == ExprKind::kAdd ? block_of_sum(a, b) : block_of(a, term_of(b));
    if (m) {
      if (is_div) return fired(Rule::kDivByRange, e->kind, a, b, constant(*m));
      return fired(Rule::kModByRange, e->kind, a, b, sub(a, scale(b, *m)));
    }
  }
  NodePtr split = split_known_multiples(e);
  if (split == e) split = split_division(e);
  if (split != e || !is_div || b->kind == ExprKind::kConst) return split;
  if (a->kind == ExprKind::kFloorDiv) {
    return fired(Rule::kDivOfDivPositive, e->kind, a, b, floordiv(a->operand(0), mul(a->operand(1), b)));
  }
  if (a->kind == ExprKind::kMod && a->operand(1)->kind != ExprKind::kAdd && b->kind != ExprKind::kAdd) {
    const auto ratio = divide_term(term_of(a->operand(1)), term_of(b));
    if (ratio && ratio->coef > 0 && (ratio->base == nullptr || positive(ratio->base))) {
      return fired(Rule::kDivOfModPositive, e->kind, a, b, mod(floordiv(a->operand(0), b), term_node(*ratio)));
    }
  }
  return e;
}

std::optional<int64_t> Impl::block_of_sum(NodePtr rest, NodePtr width) {
  if (prove_le(constant(0), rest) && prove_lt(rest, width)) return 0;
  if (prove_lt(rest, constant(0)) && prove_le(neg(width), rest)) return -1;
  return std::nullopt;
}

NodePtr Impl::contextual_min_max(NodePtr e) {
  const auto operands = e->operands();
  const bool is_min = e->kind == ExprKind::kMin;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t j = 0; j < operands.size(); ++j) {
      if (i == j) continue;
      const NodePtr small = is_min ? operands[j].node() : operands[i].node();
      const NodePtr large = is_min ? operands[i].node() : operands[j].node();
      bool ordered = range(small).hi <= range(large).lo;
      if (!ordered) {
        try {
          ordered = prove_le(small, large);
        } catch (const ExprOverflow&) {
          ordered = false;
        }
      }
      if (!ordered) continue;
      InlineVec<NodePtr, 12> kept;  // without operand i
      for (size_t k = 0; k < operands.size(); ++k) {
        if (k != i) kept.push_back(operands[k].node());
      }
      return fired(Rule::kMinMaxOrdered, ExprKind::kNot, e, nullptr, min_max(e->kind, kept));
    }
  }
  return e;
}

}  // namespace tatara
