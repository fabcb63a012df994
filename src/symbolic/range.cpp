// Interval arithmetic that saturates: INT64_MIN as lower end and INT64_MAX as upper end mean unbounded.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

namespace {

constexpr int64_t kNegInf = INT64_MIN;
constexpr int64_t kPosInf = INT64_MAX;

int64_t clamp(__int128 value) {
  if (value <= kNegInf) return kNegInf;
  if (value >= kPosInf) return kPosInf;
  return static_cast<int64_t>(value);
}

IntRange intersect(IntRange a, IntRange b) {
  const IntRange out{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
  return out.lo <= out.hi ? out : a;  // contradicting facts: dead code, any answer is right
}

IntRange hull(IntRange a, IntRange b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

IntRange range_add(IntRange a, IntRange b) {
  IntRange out;
  out.lo = a.lo == kNegInf || b.lo == kNegInf ? kNegInf : clamp(static_cast<__int128>(a.lo) + b.lo);
  out.hi = a.hi == kPosInf || b.hi == kPosInf ? kPosInf : clamp(static_cast<__int128>(a.hi) + b.hi);
  return out;
}

/// An end of a range; a lower end of INT64_MAX (or an upper one of INT64_MIN) is a number, not unbounded.
struct End {
  int64_t value;
  bool unbounded;
};

/// One corner of a product; 0 times unbounded is 0.
int64_t corner(End a, End b) {
  if (a.value == 0 || b.value == 0) return 0;
  if (a.unbounded || b.unbounded) return (a.value < 0) == (b.value < 0) ? kPosInf : kNegInf;
  return clamp(static_cast<__int128>(a.value) * b.value);
}

IntRange corners(End a_lo, End a_hi, End b_lo, End b_hi) {
  const int64_t c[] = {corner(a_lo, b_lo), corner(a_lo, b_hi), corner(a_hi, b_lo), corner(a_hi, b_hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

IntRange range_mul(IntRange a, IntRange b) {
  return corners({a.lo, a.lo == kNegInf}, {a.hi, a.hi == kPosInf}, {b.lo, b.lo == kNegInf}, {b.hi, b.hi == kPosInf});
}

IntRange range_scale(IntRange a, int64_t factor) {
  return corners({a.lo, a.lo == kNegInf}, {a.hi, a.hi == kPosInf}, {factor, false}, {factor, false});
}

IntRange range_negate(IntRange a) {
  return {a.hi == kPosInf ? kNegInf : clamp(-static_cast<__int128>(a.hi)),
          a.lo == kNegInf ? kPosInf : clamp(-static_cast<__int128>(a.lo))};
}

IntRange div_positive(IntRange a, IntRange b) {
  const auto by_largest = [&](int64_t x) { return b.hi != kPosInf ? floor_div(x, b.hi) : x < 0 ? -1 : 0; };
  IntRange out;
  if (a.lo != kNegInf) out.lo = std::min(floor_div(a.lo, b.lo), by_largest(a.lo));
  if (a.hi != kPosInf) out.hi = std::max(floor_div(a.hi, b.lo), by_largest(a.hi));
  return out;
}

IntRange mod_positive(IntRange a, IntRange b) {
  if (a.lo >= 0 && a.hi < b.lo) return a;
  if (b.lo == b.hi && a.lo != kNegInf && a.hi != kPosInf && floor_div(a.lo, b.lo) == floor_div(a.hi, b.lo)) {
    return {floor_mod(a.lo, b.lo), floor_mod(a.hi, b.lo)};
  }
  IntRange out{0, b.hi == kPosInf ? kPosInf : b.hi - 1};
  if (a.lo >= 0) out.hi = std::min(out.hi, a.hi);
  return out;
}

/// Calls fn for the positive part of the divisor, and with both signs flipped for the negative part; a divisor of zero
/// does not occur. `negate_result` says that the result has to be negated too (modulo).
template <typename Fn>
IntRange by_sign(IntRange a, IntRange b, bool negate_result, Fn fn) {
  std::optional<IntRange> out;
  if (b.hi >= 1) out = fn(a, IntRange{std::max<int64_t>(b.lo, 1), b.hi});
  if (b.lo <= -1) {
    IntRange part = fn(range_negate(a), range_negate({b.lo, std::min<int64_t>(b.hi, -1)}));
    if (negate_result) part = range_negate(part);
    out = out ? hull(*out, part) : part;
  }
  return out.value_or(IntRange{});
}

}  // namespace

IntRange Impl::product_range(NodePtr base) {
  IntRange out{1, 1};
  const Atoms atoms(base);
  for (size_t i = 0; i < atoms.size();) {
    size_t count = 1;
    while (i + count < atoms.size() && atoms[i + count] == atoms[i]) ++count;
    const IntRange factor = range(atoms[i]);
    IntRange power = factor;
    for (size_t k = 1; k < count; ++k) power = range_mul(power, factor);
    if (count % 2 == 0) power.lo = std::max<int64_t>(power.lo, 0);
    out = range_mul(out, power);
    i += count;
  }
  return out;
}

/// What the facts say of a sum or atom: its part without constant is looked up by content 1 and positive first term.
IntRange Impl::fact_range(NodePtr e) {
  if (facts.no_bounds() || e->kind == ExprKind::kConst) return {};
  const int64_t offset = constant_part(e);
  NodePtr key = offset == 0 ? e : nullptr;
  int64_t multiple = 1;
  try {
    if (key == nullptr) key = add(e, checked_neg(offset));
    if (key->kind == ExprKind::kMul) {
      multiple = key->value;
      key = key->base;
    } else if (key->kind == ExprKind::kAdd) {
      int64_t content = 0;
      for (Expr operand : key->operands()) content = safe_gcd(content, term_of(operand.node()).coef);
      if (term_of(key->operand(0)).coef < 0) content = -content;
      if (content != 1) {
        Linear linear;
        for (Expr operand : key->operands()) {
          const Term term = term_of(operand.node());
          linear.terms.push_back({content == -1 ? checked_neg(term.coef) : term.coef / content, term.base});
        }
        key = sum(linear);
        multiple = content;
      }
    }
  } catch (const ExprOverflow&) {
    return {};
  }
  const IntRange* bound = facts.bound_of(key);
  if (bound == nullptr) return {};
  return range_add(range_scale(*bound, multiple), {offset, offset});
}

IntRange Impl::compute_range(NodePtr e) {
  switch (e->kind) {
    case ExprKind::kConst: return {e->value, e->value};
    case ExprKind::kSymbol: return symbols[e].range;
    case ExprKind::kAdd: {
      IntRange out{0, 0};
      for (Expr operand : e->operands()) out = range_add(out, range(operand.node()));
      return out;
    }
    case ExprKind::kMul: return e->base == e ? product_range(e) : range_scale(range(e->base), e->value);
    case ExprKind::kFloorDiv: return by_sign(range(e->operand(0)), range(e->operand(1)), false, div_positive);
    case ExprKind::kMod: return by_sign(range(e->operand(0)), range(e->operand(1)), true, mod_positive);
    case ExprKind::kMin:
    case ExprKind::kMax: {
      IntRange out = range(e->operand(0));
      for (Expr operand : e->operands().subspan(1)) {
        const IntRange next = range(operand.node());
        out = e->kind == ExprKind::kMin ? IntRange{std::min(out.lo, next.lo), std::min(out.hi, next.hi)}
                                        : IntRange{std::max(out.lo, next.lo), std::max(out.hi, next.hi)};
      }
      return out;
    }
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLe:
    case ExprKind::kLt: {
      if (const std::optional<bool> known = facts.known(e)) return *known ? IntRange{1, 1} : IntRange{0, 0};
      const IntRange d = range(e->base);
      if (e->kind == ExprKind::kLe) {
        if (d.hi <= 0) return {1, 1};
        if (d.lo > 0) return {0, 0};
      } else {
        const bool never = d.lo > 0 || d.hi < 0;
        const bool always = d.lo == 0 && d.hi == 0;
        const int64_t equal = e->kind == ExprKind::kEq ? 1 : 0;
        if (never) return {1 - equal, 1 - equal};
        if (always) return {equal, equal};
      }
      return {0, 1};
    }
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: return {0, 1};
  }
  TATARA_UNREACHABLE("ExprKind ", e->kind);
}

IntRange Impl::range(NodePtr e) {
  if (e->kind == ExprKind::kConst) return {e->value, e->value};
  if (e->kind == ExprKind::kSymbol) return symbols[e].range;
  if (const IntRange* cached = ranges.find(e, facts.epoch())) return *cached;
  const IntRange out = intersect(compute_range(e), fact_range(e));
  ranges.put(e, facts.epoch(), out, nodes.count());
  return out;
}

}  // namespace tatara
