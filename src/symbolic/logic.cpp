// Minimum, maximum, comparisons and logic: canonical forms.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

namespace {

std::span<const Expr> without_constant(const Expr& self) {
  const NodePtr node = self.node();
  if (node->kind == ExprKind::kConst) return {};
  if (node->kind != ExprKind::kAdd) return {&self, 1};
  const auto operands = node->operands();
  return operands.back().is_const() ? operands.first(operands.size() - 1) : operands;
}

/// a - b when their terms are the same.
std::optional<int64_t> constant_difference(NodePtr a, NodePtr b) {
  const Expr ea(a);
  const Expr eb(b);
  const auto ta = without_constant(ea);
  const auto tb = without_constant(eb);
  if (!std::equal(ta.begin(), ta.end(), tb.begin(), tb.end())) return std::nullopt;
  int64_t difference = 0;
  if (__builtin_sub_overflow(constant_part(a), constant_part(b), &difference)) return std::nullopt;
  return difference;
}

}  // namespace

NodePtr Impl::min_max(ExprKind kind, std::span<const NodePtr> operands) {
  const bool is_min = kind == ExprKind::kMin;
  const int64_t neutral = is_min ? INT64_MAX : INT64_MIN;
  InlineVec<NodePtr, 10> kept;
  const auto put = [&](NodePtr item) {
    if (item->kind == ExprKind::kConst && item->value == neutral) return;
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto difference = constant_difference(item, kept[i]);
      if (!difference) continue;
      const bool item_wins = is_min ? *difference < 0 : *difference > 0;
      const NodePtr winner = item_wins ? item : kept[i];
      if (*difference != 0) fired(Rule::kMinMaxConstantDifference, kind, item, kept[i], winner);
      kept[i] = winner;
      return;
    }
    kept.push_back(item);
  };
  for (NodePtr operand : operands) {
    if (operand->kind == kind) {
      for (Expr inner : operand->operands()) put(inner.node());
    } else {
      put(operand);
    }
  }
  if (kept.empty()) return constant(neutral);
  // min(x, max(x, y)) is x
  const ExprKind dual = is_min ? ExprKind::kMax : ExprKind::kMin;
  for (size_t i = 0; i < kept.size();) {
    bool absorbed = false;
    if (kept[i]->kind == dual) {
      for (Expr inner : kept[i]->operands()) {
        for (NodePtr other : kept) absorbed |= other == inner.node();
      }
    }
    if (absorbed) {
      kept.erase(i);
    } else {
      ++i;
    }
  }
  if (kept.size() == 1) return kept[0];
  std::sort(kept.begin(), kept.end(), [](NodePtr a, NodePtr b) { return compare_nodes(a, b) < 0; });
  return intern(kind, 0, kept);
}

NodePtr Impl::tighten_le(NodePtr d) {
  while (d->kind != ExprKind::kConst) {
    Linear all;
    all.add(d);
    int64_t content = 0;
    for (const Term& term : all.terms) content = safe_gcd(content, term.coef);
    if (content > 1) {
      for (Term& term : all.terms) term.coef /= content;
      const int64_t low = floor_div(all.constant, content);
      all.constant = all.constant % content == 0 ? low : low + 1;  // ceil
      const NodePtr out = sum(all);
      fired(Rule::kLeTighten, ExprKind::kLe, d, nullptr, out);
      d = out;
      continue;
    }
    // One floor division with coefficient 1 or -1: x // c + m <= 0 is x + c*m - c + 1 <= 0; m - x // c <= 0 is c*m - x <= 0.
    size_t at = all.terms.size();
    int divisions = 0;
    for (size_t i = 0; i < all.terms.size(); ++i) {
      const NodePtr base = all.terms[i].base;
      if (base->kind != ExprKind::kFloorDiv) continue;
      ++divisions;
      if (base->operand(1)->kind == ExprKind::kConst && (all.terms[i].coef == 1 || all.terms[i].coef == -1)) at = i;
    }
    if (divisions != 1 || at == all.terms.size()) return d;
    const Term division = all.terms[at];
    const int64_t c = division.base->operand(1)->value;
    const NodePtr x = division.base->operand(0);
    all.terms.erase(at);
    const NodePtr m = sum(all);
    NodePtr out = nullptr;
    try {
      const NodePtr scaled_m = scale(m, c);
      if (division.coef == 1) {
        out = add(add(x, scaled_m), 1 - c);
        fired(Rule::kLeDivUpper, ExprKind::kLe, d, nullptr, out);
      } else {
        out = sub(scaled_m, x);
        fired(Rule::kLeDivLower, ExprKind::kLe, d, nullptr, out);
      }
    } catch (const ExprOverflow&) {
      return d;
    }
    d = out;
  }
  return d;
}

/// Positive terms on the left, the others on the right, the constant where it reads best.
NodePtr Impl::comparison(ExprKind kind, NodePtr d) {
  Linear all;
  all.add(d);
  Linear left;
  Linear right;
  for (const Term& term : all.terms) {
    if (term.coef > 0) {
      left.terms.push_back(term);
    } else {
      right.terms.push_back({checked_neg(term.coef), term.base});
    }
  }
  if (left.terms.empty() || (!right.terms.empty() && all.constant > 0)) {
    left.constant = all.constant;
  } else {
    right.constant = checked_neg(all.constant);
  }
  const NodePtr lhs = sum(left);
  const NodePtr rhs = sum(right);
  return intern(kind, 0, std::array{lhs, rhs}, d);
}

NodePtr Impl::le(NodePtr a, NodePtr b) {
  if (a == b) return constant(1);
  if (a->kind == ExprKind::kConst && b->kind == ExprKind::kConst) return constant(a->value <= b->value ? 1 : 0);
  // The ends of slices. Not for sums and products: rewriting may scale those beyond 64 bits.
  const auto is_sum = [](NodePtr e) { return e->kind == ExprKind::kAdd || e->kind == ExprKind::kMul; };
  if (a->kind == ExprKind::kConst && !is_sum(b)) {
    if (a->value == INT64_MIN) return constant(1);
    if (a->value == INT64_MAX) return eq(a, b);
  }
  if (b->kind == ExprKind::kConst && !is_sum(a)) {
    if (b->value == INT64_MAX) return constant(1);
    if (b->value == INT64_MIN) return eq(a, b);
  }
  const NodePtr d = tighten_le(sub(a, b));
  if (d->kind == ExprKind::kConst) return constant(d->value <= 0 ? 1 : 0);
  return comparison(ExprKind::kLe, d);
}

NodePtr Impl::eq(NodePtr a, NodePtr b) {
  if (a == b) return constant(1);
  if (a->kind == ExprKind::kConst && b->kind == ExprKind::kConst) return constant(a->value == b->value ? 1 : 0);
  // Truth values compared with 0 and 1 are themselves or their negation.
  if (a->kind == ExprKind::kConst) std::swap(a, b);
  if (b->kind == ExprKind::kConst && is_boolean(a)) {
    if (b->value == 1) return a;
    return b->value == 0 ? logical_not(a) : constant(0);
  }
  Linear all;
  all.add(sub(a, b));
  if (all.terms.empty()) return constant(all.constant == 0 ? 1 : 0);
  int64_t content = 0;
  for (const Term& term : all.terms) content = safe_gcd(content, term.coef);
  content = std::max<int64_t>(content, 1);
  if (all.constant % content != 0) return fired(Rule::kEqGcd, ExprKind::kEq, a, b, constant(0));
  if (all.terms[0].coef < 0) content = -content;
  if (content != 1) {
    for (Term& term : all.terms) {
      if (content == -1) {
        term.coef = checked_neg(term.coef);
      } else {
        term.coef /= content;
      }
    }
    all.constant = content == -1 ? checked_neg(all.constant) : all.constant / content;
  }
  const NodePtr d = sum(all);
  const NodePtr out = comparison(ExprKind::kEq, d);
  return content > 1 || content < -1 ? fired(Rule::kEqGcd, ExprKind::kEq, a, b, out) : out;
}

NodePtr Impl::ne(NodePtr a, NodePtr b) { return logical_not(eq(a, b)); }

NodePtr Impl::truth(NodePtr a) { return is_boolean(a) ? a : ne(a, constant(0)); }

NodePtr Impl::logical(ExprKind kind, std::span<const NodePtr> operands) {
  const int64_t neutral = kind == ExprKind::kAnd ? 1 : 0;
  InlineVec<NodePtr, 10> kept;
  for (NodePtr operand : operands) {
    const NodePtr item = truth(operand);
    if (item->kind == ExprKind::kConst) {
      if (item->value != neutral) return item;
    } else if (item->kind == kind) {
      for (Expr inner : item->operands()) kept.push_back(inner.node());
    } else {
      kept.push_back(item);
    }
  }
  if (kept.empty()) return constant(neutral);
  std::sort(kept.begin(), kept.end(), [](NodePtr a, NodePtr b) { return compare_nodes(a, b) < 0; });
  kept.resize_down(static_cast<size_t>(std::unique(kept.begin(), kept.end()) - kept.begin()));
  for (NodePtr item : kept) {
    if (item->kind == ExprKind::kAnd || item->kind == ExprKind::kOr) continue;
    const NodePtr opposite = logical_not(item);
    if (std::find(kept.begin(), kept.end(), opposite) != kept.end()) return constant(1 - neutral);
  }
  if (kept.size() == 1) return kept[0];
  return intern(kind, 0, kept);
}

NodePtr Impl::logical_not(NodePtr a) {
  switch (a->kind) {
    case ExprKind::kConst: return constant(a->value == 0 ? 1 : 0);
    case ExprKind::kEq: return comparison(ExprKind::kNe, a->base);
    case ExprKind::kNe: return comparison(ExprKind::kEq, a->base);
    case ExprKind::kLe: {
      // not d <= 0 is 1 - d <= 0
      const NodePtr d = tighten_le(add(neg(a->base), 1));
      return d->kind == ExprKind::kConst ? constant(d->value <= 0 ? 1 : 0) : comparison(ExprKind::kLe, d);
    }
    case ExprKind::kLt: return le(a->operand(1), a->operand(0));
    case ExprKind::kNot: return truth(a->operand(0));
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      InlineVec<NodePtr, 10> inverted;
      for (Expr operand : a->operands()) inverted.push_back(logical_not(operand.node()));
      return logical(a->kind == ExprKind::kAnd ? ExprKind::kOr : ExprKind::kAnd, inverted);
    }
    case ExprKind::kSymbol:
    case ExprKind::kAdd:
    case ExprKind::kMul:
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kMin:
    case ExprKind::kMax: return eq(a, constant(0));
  }
  TATARA_UNREACHABLE("ExprKind ", a->kind);
}

}  // namespace tatara
