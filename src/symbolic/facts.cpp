// Facts and decisions. A comparison d <= 0 is proved by ranges, or by subtracting positive multiples of known facts
// f <= 0 until ranges prove what is left; the search is small and bounded.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

namespace {

constexpr int kMaxDepth = 5;
constexpr int kStep = 16,
              kMaxSteps = 80 * kStep;  // what a fact leads to that is not searched further costs one of these
constexpr size_t kMaxFactsPerAtom = 24;

}  // namespace

// --- learning ---

void Impl::refine(NodePtr symbol_node, IntRange range) {
  SymbolInfo& info = symbols[symbol_node];
  const IntRange narrowed{std::max(info.range.lo, range.lo), std::min(info.range.hi, range.hi)};
  if (narrowed == info.range || narrowed.lo > narrowed.hi) return;
  info.range = narrowed;
  facts.changed();
  const std::vector<uint32_t>* with_symbol = facts.linear_with(symbol_node);
  if (with_symbol == nullptr) return;
  // Copied: propagation may learn more. It ends because bounds only tighten, and a chain of at most 8 is followed.
  if (propagation_depth >= 8) return;
  ++propagation_depth;
  const std::vector<uint32_t> related = *with_symbol;
  for (uint32_t index : related) propagate(facts.linear(index));
  --propagation_depth;
}

/// Narrows each symbol of the fact d <= 0 by the ranges of the other terms.
void Impl::propagate(NodePtr d) {
  Linear all;
  all.add(d);
  for (size_t i = 0; i < all.terms.size(); ++i) {
    const Term term = all.terms[i];
    if (term.base->kind != ExprKind::kSymbol) continue;
    __int128 low = all.constant;
    bool bounded = true;
    for (size_t j = 0; j < all.terms.size() && bounded; ++j) {
      if (j == i) continue;
      const IntRange r = range(all.terms[j].base);
      const int64_t end = all.terms[j].coef > 0 ? r.lo : r.hi;
      bounded = end != INT64_MIN && end != INT64_MAX;
      low += static_cast<__int128>(all.terms[j].coef) * end;
    }
    if (!bounded) continue;
    // coef * symbol <= -low
    const __int128 limit = -low;
    if (limit <= INT64_MIN || limit >= INT64_MAX) continue;
    const auto bound = static_cast<int64_t>(limit);
    if (term.coef > 0) {
      refine(term.base, {INT64_MIN, floor_div(bound, term.coef)});
    } else if (term.coef != INT64_MIN && bound != INT64_MIN) {
      refine(term.base, {-floor_div(bound, -term.coef), INT64_MAX});
    }
  }
}

void Impl::assume_le(NodePtr d) {
  Linear all;
  all.add(d);
  if (all.terms.empty()) return;
  // d <= 0 as a bound of its part without constant: content is 1 after tighten_le.
  const bool flip = all.terms[0].coef < 0;
  const int64_t constant_term = all.constant;
  if (constant_term != INT64_MIN) {
    NodePtr key = add(d, -constant_term);
    if (flip) key = neg(key);
    if (key->kind == ExprKind::kSymbol) {
      refine(key, flip ? IntRange{constant_term, INT64_MAX} : IntRange{INT64_MIN, -constant_term});
      return;
    }
    IntRange& bound = facts.bound(key);
    const IntRange next = flip ? IntRange{std::max(bound.lo, constant_term), bound.hi}
                               : IntRange{bound.lo, std::min(bound.hi, -constant_term)};
    if (next.lo <= next.hi) bound = next;
  }
  facts.changed();
  facts.add_linear(d, all);
  propagate(d);
}

void Impl::assume_eq(NodePtr condition) {
  const NodePtr d = condition->base;
  if (d->kind == ExprKind::kMod && d->operand(1)->kind == ExprKind::kConst) {
    facts.add_multiple(d->operand(0), d->operand(1)->value);
  }
  // Which symbol does the equation define? The last in order with coefficient 1 or -1, so that s1 becomes s0.
  const NodePtr simple = simplify(d);
  Linear all;
  all.add(simple);
  for (size_t i = all.terms.size(); i-- > 0;) {
    const Term term = all.terms[i];
    if (term.base->kind != ExprKind::kSymbol || (term.coef != 1 && term.coef != -1)) continue;
    const NodePtr rest = sub(simple, term_node(term));
    if (Expr(rest).contains(Expr(term.base))) continue;
    const NodePtr value = term.coef == 1 ? neg(rest) : rest;
    facts.set_value(term.base, value);
    refine(term.base, range(value));
    break;
  }
  assume_le(tighten_le(d));
  assume_le(tighten_le(neg(d)));
}

void Impl::assume(NodePtr condition) {
  if (condition->kind == ExprKind::kConst) return;
  if (facts.known(condition) == true) return;
  if (condition->kind == ExprKind::kAnd) {
    for (Expr operand : condition->operands()) assume(operand.node());
    return;
  }
  facts.add_assumed(condition);
  const NodePtr opposite = logical_not(condition);
  facts.set_known(condition, true);
  facts.set_known(opposite, false);
  facts.changed();
  if (condition->kind == ExprKind::kLe) {
    assume_le(condition->base);
  } else if (condition->kind == ExprKind::kEq) {
    assume_eq(condition);
  } else if (condition->kind == ExprKind::kNe) {
    Linear all;
    all.add(condition->base);
    if (all.terms.size() == 1 && all.terms[0].base->kind == ExprKind::kSymbol && all.constant != INT64_MIN) {
      const NodePtr sym = all.terms[0].base;
      const int64_t excluded = -all.constant;
      const IntRange r = symbols[sym].range;
      if (r.lo == excluded && excluded != INT64_MAX) refine(sym, {excluded + 1, INT64_MAX});
      if (r.hi == excluded && excluded != INT64_MIN) refine(sym, {INT64_MIN, excluded - 1});
    }
  }
  facts.changed();
}

// --- deciding ---

bool Impl::prove_le_zero(NodePtr d) {
  int budget = kMaxSteps;
  try {
    return prove_search(d, kMaxDepth, budget);
  } catch (const ExprOverflow&) {
    return false;
  }
}

/// x // b + m <= 0 is x + b*m - b + 1 <= 0, and m - x // b <= 0 is b*m - x <= 0, for a symbolic b > 0: as tighten_le does
/// for constants.
NodePtr Impl::clear_division(NodePtr d) {
  Linear all;
  all.add(d);
  size_t at = all.terms.size();
  for (size_t i = 0; i < all.terms.size(); ++i) {
    if (all.terms[i].base->kind != ExprKind::kFloorDiv) continue;
    if (at != all.terms.size() || (all.terms[i].coef != 1 && all.terms[i].coef != -1)) return d;
    at = i;
  }
  if (at == all.terms.size()) return d;
  const Term division = all.terms[at];
  const NodePtr x = division.base->operand(0);
  const NodePtr b = division.base->operand(1);
  if (!positive(b)) return d;
  all.terms.erase(at);
  const NodePtr scaled_m = mul(sum(all), b);
  return division.coef == 1 ? add(sub(add(x, scaled_m), b), 1) : sub(scaled_m, x);
}

bool Impl::prove_search(NodePtr d, int depth, int& budget) {
  d = tighten_le(d);
  if (d->kind == ExprKind::kConst) return d->value <= 0;
  const IntRange r = range(d);
  if (r.hi <= 0) return true;
  budget -= r.lo > 0 || depth == 0 ? 1 : kStep;
  if (r.lo > 0 || depth == 0 || budget <= 0) return false;
  if (const NodePtr cleared = clear_division(d); cleared != d) return prove_search(cleared, depth - 1, budget);
  Linear all;
  all.add(d);
  // Terms that are unbounded above have to go; with none unbounded any term may be the one to cancel.
  const auto unbounded = [&](const Term& term) {
    const IntRange t = range(term.base);
    return term.coef > 0 ? t.hi == INT64_MAX : t.lo == INT64_MIN;
  };
  const bool any = std::none_of(all.terms.begin(), all.terms.end(), unbounded);
  for (const Term& term : all.terms) {
    if (!any && !unbounded(term)) continue;
    const Atoms atoms(term.base);
    for (size_t k = 0; k < atoms.size(); ++k) {
      const NodePtr atom = atoms[k];
      if (k > 0 && atoms[k - 1] == atom) continue;
      if (try_implicit(d, term, atom, depth, budget)) return true;
      const std::vector<uint32_t>* with_atom = facts.linear_with(atom);
      if (with_atom == nullptr) continue;
      const size_t count = std::min(with_atom->size(), kMaxFactsPerAtom);
      for (size_t f = 0; f < count; ++f) {
        const NodePtr fact = facts.linear((*with_atom)[with_atom->size() - 1 - f]);
        Linear fact_terms;
        fact_terms.add(fact);
        for (const Term& in_fact : fact_terms.terms) {
          if (try_fact(d, term, in_fact, fact, depth, budget)) return true;
          if (budget <= 0) return false;
        }
      }
    }
  }
  return false;
}

/// Subtracts the multiple of `fact` that cancels `term` of d by its own term `in_fact`; the multiple must not be negative.
bool Impl::try_fact(NodePtr d, Term term, Term in_fact, NodePtr fact, int depth, int& budget) {
  if ((term.coef < 0) != (in_fact.coef < 0) || term.coef == INT64_MIN || in_fact.coef == INT64_MIN) return false;
  const auto cofactor = divide_term({1, term.base}, {1, in_fact.base});
  if (!cofactor) return false;
  if (cofactor->base != nullptr && range(cofactor->base).lo < 0) return false;
  const int64_t g = std::gcd(term.coef, in_fact.coef);
  const int64_t for_d = std::abs(in_fact.coef / g);
  const int64_t for_fact = std::abs(term.coef / g);
  const NodePtr times = cofactor->base == nullptr ? constant(for_fact) : scaled(cofactor->base, for_fact);
  const NodePtr next = sub(scale(d, for_d), mul(fact, times));
  return next != d && prove_search(next, depth - 1, budget);
}

/// The facts that a floor division, modulo, minimum or maximum brings with it.
bool Impl::try_implicit(NodePtr d, Term term, NodePtr atom, int depth, int& budget) {
  const auto attempt = [&](NodePtr fact, Term in_fact) { return try_fact(d, term, in_fact, fact, depth, budget); };
  const bool upper = term.coef > 0;
  switch (atom->kind) {
    case ExprKind::kFloorDiv: {
      const NodePtr x = atom->operand(0);
      const NodePtr b = atom->operand(1);
      if (b->kind == ExprKind::kAdd || !positive(b)) return false;
      const NodePtr multiple = mul(b, atom);
      const Term own = term_of(multiple);
      if (upper) return attempt(sub(multiple, x), own);                                     // b*q <= x
      return attempt(add(sub(sub(x, multiple), b), 1), {checked_neg(own.coef), own.base});  // x - b*q <= b - 1
    }
    case ExprKind::kMod: {
      const NodePtr x = atom->operand(0);
      const NodePtr b = atom->operand(1);
      if (!upper || !positive(b)) return false;
      if (b->kind != ExprKind::kConst && attempt(add(sub(atom, b), 1), {1, atom})) return true;
      return range(x).lo >= 0 && attempt(sub(atom, x), {1, atom});
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      if (upper != (atom->kind == ExprKind::kMin)) return false;
      for (Expr operand : atom->operands()) {
        const NodePtr fact = upper ? sub(atom, operand.node()) : sub(operand.node(), atom);
        if (attempt(fact, {upper ? 1 : -1, atom})) return true;
      }
      return false;
    }
    case ExprKind::kConst:
    case ExprKind::kSymbol:
    case ExprKind::kAdd:
    case ExprKind::kMul:
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: return false;
  }
  TATARA_UNREACHABLE("ExprKind ", atom->kind);
}

std::optional<bool> Impl::decide_structural(NodePtr condition) {
  if (condition->kind == ExprKind::kConst) return condition->value != 0;
  if (const std::optional<bool> known = facts.known(condition)) return known;
  switch (condition->kind) {
    case ExprKind::kLe: {
      const NodePtr d = condition->base;
      const IntRange r = range(d);
      if (r.hi <= 0) return true;
      if (r.lo > 0) return false;
      if (prove_le_zero(d)) return true;
      if (prove_le_zero(add(neg(d), 1))) return false;
      return std::nullopt;
    }
    case ExprKind::kEq:
    case ExprKind::kNe: {
      const bool equal = condition->kind == ExprKind::kEq;
      const NodePtr d = condition->base;
      const IntRange r = range(d);
      if (r.lo > 0 || r.hi < 0) return !equal;
      if (r.lo == 0 && r.hi == 0) return equal;
      const NodePtr minus = neg(d);
      if (prove_le_zero(add(d, 1)) || prove_le_zero(add(minus, 1))) return !equal;
      if (prove_le_zero(d) && prove_le_zero(minus)) return equal;
      return std::nullopt;
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const bool absorbing = condition->kind == ExprKind::kOr;
      bool all_known = true;
      for (Expr operand : condition->operands()) {
        const auto value = decide_structural(operand.node());
        if (value == absorbing) return absorbing;
        all_known &= value.has_value();
      }
      return all_known ? std::optional(!absorbing) : std::nullopt;
    }
    case ExprKind::kLt:
    case ExprKind::kNot: return std::nullopt;  // not built
    case ExprKind::kConst:
    case ExprKind::kSymbol:
    case ExprKind::kAdd:
    case ExprKind::kMul:
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const IntRange r = range(condition);
      if (r.lo > 0 || r.hi < 0) return true;
      if (r.lo == 0 && r.hi == 0) return false;
      return std::nullopt;
    }
  }
  TATARA_UNREACHABLE("ExprKind ", condition->kind);
}

std::optional<bool> Impl::decide(NodePtr condition) {
  try {
    if (const auto value = decide_structural(condition)) return value;
    const NodePtr simple = simplify(condition);
    return simple == condition ? std::nullopt : decide_structural(simple);
  } catch (const ExprOverflow&) {
    return std::nullopt;
  }
}

}  // namespace tatara
