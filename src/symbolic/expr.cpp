// Symbols, sums and products; the public face of Expr.
#include "symbolic/expr.h"

#include "symbolic/impl.h"

namespace tatara {
namespace {

constexpr size_t kMaxExpandedTerms = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

// --- Impl: nodes ---

ExprContext::Impl::Impl(ExprContext& owner) : symbols(arena), nodes(owner, arena, symbols) {}

NodePtr ExprContext::Impl::symbol(std::string_view name, IntRange range, std::optional<int64_t> hint) {
  if (const SymbolInfo* info = symbols.find(name)) {
    // A loop variable of another kernel under the same name would make wrong code.
    TATARA_CHECK(range == IntRange{} || range == info->declared, "symbol ", name, " exists with the range [",
                 info->declared.lo, ", ", info->declared.hi, "], not [", range.lo, ", ", range.hi, "]");
    return info->node;
  }
  const std::string_view reserved[] = {"min", "max", "and", "or", "not", "True", "False"};
  const bool legal = !name.empty() && !is_digit(name.front()) &&
                     name.find_first_of(kNotInNames) == std::string_view::npos &&
                     std::find(std::begin(reserved), std::end(reserved), name) == std::end(reserved);
  if (!legal) throw InvalidArgument(str_cat("\"", name, "\" cannot name a symbol"));
  const auto index = static_cast<int64_t>(symbols.all().size());
  SymbolInfo& info = symbols.add(name, range, hint);
  info.node = intern(ExprKind::kSymbol, index, {});
  return info.node;
}

NodePtr ExprContext::Impl::product(std::span<const NodePtr> sorted_atoms) {
  if (sorted_atoms.empty()) return nullptr;
  if (sorted_atoms.size() == 1) return sorted_atoms[0];
  return intern(ExprKind::kMul, 1, sorted_atoms);
}

NodePtr ExprContext::Impl::scaled(NodePtr base, int64_t coef) {
  if (coef == 1) return base;
  if (coef == 0) return constant(0);
  InlineVec<NodePtr, 10> operands;
  operands.push_back(constant(coef));
  for (Expr atom : Atoms(base)) operands.push_back(atom.node());
  return intern(ExprKind::kMul, coef, operands, base);
}

NodePtr ExprContext::Impl::multiply_bases(NodePtr a, NodePtr b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  const Atoms fa(a);
  const Atoms fb(b);
  InlineVec<NodePtr, 10> merged;
  size_t i = 0;
  size_t j = 0;
  while (i < fa.size() && j < fb.size()) {
    merged.push_back(compare_nodes(fa[i], fb[j]) <= 0 ? fa[i++] : fb[j++]);
  }
  while (i < fa.size()) merged.push_back(fa[i++]);
  while (j < fb.size()) merged.push_back(fb[j++]);
  return product(merged);
}

/// Looks for the partner of the term number m, whose factor number `at` is x % a: a term with x // a, or with
/// (x // a) % b, of a times the weight. Joins them and says true.
bool ExprContext::Impl::join_at(Linear& linear, size_t m, size_t at, bool with_ranges) {
  auto& terms = linear.terms;
  const Term low = terms[m];
  const Atoms atoms(low.base);
  const NodePtr x = atoms[at]->operand(0);
  const NodePtr a = atoms[at]->operand(1);
  if (a->kind == ExprKind::kAdd) return false;  // (s + 1) * (x // (s + 1)) is expanded: no single term to find
  InlineVec<NodePtr, 10> others;
  for (size_t i = 0; i < atoms.size(); ++i) {
    if (i != at) others.push_back(atoms[i]);
  }
  const NodePtr weight = product(others);
  const NodePtr quotient = with_ranges ? simplify(floordiv(x, a)) : floordiv(x, a);
  const Term a_term = term_of(a);
  const Term q = term_of(quotient);
  int64_t coef = 0;
  int64_t q_coef = 0;
  if (quotient->kind == ExprKind::kAdd || q.base == nullptr || __builtin_mul_overflow(low.coef, a_term.coef, &coef) ||
      __builtin_mul_overflow(coef, q.coef, &q_coef)) {
    return false;
  }
  const NodePtr a_weight = multiply_bases(weight, a_term.base);
  const NodePtr wanted = multiply_bases(a_weight, q.base);
  for (size_t d = 0; d < terms.size(); ++d) {
    if (d == m) continue;
    NodePtr joined = nullptr;
    Rule rule = Rule::kJoinDivMod;
    if (terms[d].base == wanted && terms[d].coef == q_coef) {
      joined = x;
    } else if (terms[d].coef == coef && terms[d].base->has_mod) {
      for (Expr factor : Atoms(terms[d].base)) {
        const NodePtr high = factor.node();
        if (high->kind != ExprKind::kMod || high->operand(0) != quotient) continue;
        const NodePtr b = high->operand(1);
        const bool b_positive = b->kind == ExprKind::kConst ? b->value > 0 : with_ranges && positive(b);
        if (!b_positive || multiply_bases(a_weight, high) != terms[d].base) continue;
        joined = mod(x, mul(a, b));
        rule = Rule::kJoinModMod;
        break;
      }
    }
    if (joined == nullptr) continue;
    const NodePtr before_low = term_node(low);
    const NodePtr before_high = term_node(terms[d]);
    terms.erase(std::max(m, d));
    terms.erase(std::min(m, d));
    joined = weight == nullptr ? scale(joined, low.coef) : mul(scaled(weight, low.coef), joined);
    linear.add(joined);
    fired(rule, ExprKind::kAdd, before_low, before_high, joined);
    return true;
  }
  return false;
}

bool ExprContext::Impl::join_div_mod(Linear& linear, bool with_ranges) {
  for (size_t m = 0; m < linear.terms.size(); ++m) {
    if (!linear.terms[m].base->has_mod) continue;
    const Atoms atoms(linear.terms[m].base);
    for (size_t at = 0; at < atoms.size(); ++at) {
      if (atoms[at]->kind == ExprKind::kMod && join_at(linear, m, at, with_ranges)) return true;
    }
  }
  return false;
}

NodePtr ExprContext::Impl::sum(Linear& linear) {
  auto& terms = linear.terms;
  const auto before = [](const Term& a, const Term& b) { return compare_nodes(a.base, b.base) < 0; };
  while (true) {
    if (terms.size() <= 12) {
      for (size_t i = 1; i < terms.size(); ++i) {
        const Term term = terms[i];
        size_t j = i;
        for (; j > 0 && before(term, terms[j - 1]); --j) terms[j] = terms[j - 1];
        terms[j] = term;
      }
    } else {
      std::stable_sort(terms.begin(), terms.end(), before);
    }
    size_t kept = 0;
    size_t mods = 0;
    size_t divs = 0;
    for (size_t i = 0; i < terms.size();) {
      Term term = terms[i++];
      while (i < terms.size() && terms[i].base == term.base) term.coef = checked_add(term.coef, terms[i++].coef);
      if (term.coef == 0) continue;
      mods += term.base->has_mod ? 1 : 0;
      divs += term.base->has_div ? 1 : 0;
      terms[kept++] = term;
    }
    terms.resize_down(kept);
    if (mods == 0 || mods + divs < 2 || !join_div_mod(linear, false)) break;
  }
  if (terms.empty()) return constant(linear.constant);
  if (terms.size() == 1 && linear.constant == 0) return scaled(terms[0].base, terms[0].coef);
  InlineVec<NodePtr, 12> operands;
  for (const Term& term : terms) operands.push_back(scaled(term.base, term.coef));
  if (linear.constant != 0) operands.push_back(constant(linear.constant));
  return intern(ExprKind::kAdd, 0, operands);
}

NodePtr ExprContext::Impl::add(NodePtr a, NodePtr b) {
  if (b->kind == ExprKind::kConst) return add(a, b->value);
  if (a->kind == ExprKind::kConst) return add(b, a->value);
  Linear linear;
  linear.add(a);
  linear.add(b);
  return sum(linear);
}

NodePtr ExprContext::Impl::add(NodePtr a, int64_t b) {
  if (b == 0) return a;
  if (a->kind == ExprKind::kConst) return constant(checked_add(a->value, b));
  // Only the constant at the end changes: no terms to sort or join.
  InlineVec<NodePtr, 12> operands;
  int64_t value = b;
  if (a->kind == ExprKind::kAdd) {
    for (Expr operand : a->operands()) operands.push_back(operand.node());
    if (operands.back()->kind == ExprKind::kConst) {
      value = checked_add(value, operands.back()->value);
      operands.resize_down(operands.size() - 1);
    }
  } else {
    operands.push_back(a);
  }
  if (value != 0) operands.push_back(constant(value));
  if (operands.size() == 1) return operands[0];
  return intern(ExprKind::kAdd, 0, operands);
}

NodePtr ExprContext::Impl::sub(NodePtr a, NodePtr b) {
  if (a == b) return constant(0);
  if (b->kind == ExprKind::kConst) return add(a, checked_neg(b->value));
  Linear linear;
  linear.add(a);
  linear.add(b, -1);
  return sum(linear);
}

NodePtr ExprContext::Impl::scale(NodePtr a, int64_t factor) {
  if (factor == 1) return a;
  if (factor == 0) return constant(0);
  if (a->kind != ExprKind::kAdd) {
    const Term term = term_of(a);
    return term_node({checked_mul(term.coef, factor), term.base});
  }
  // The order of terms does not depend on coefficients.
  InlineVec<NodePtr, 12> operands;
  for (Expr operand : a->operands()) {
    const Term term = term_of(operand.node());
    operands.push_back(term_node({checked_mul(term.coef, factor), term.base}));
  }
  return intern(ExprKind::kAdd, 0, operands);
}

NodePtr ExprContext::Impl::mul(NodePtr a, NodePtr b) {
  if (a->kind == ExprKind::kConst) return scale(b, a->value);
  if (b->kind == ExprKind::kConst) return scale(a, b->value);
  const size_t na = a->kind == ExprKind::kAdd ? a->num_operands : 1;
  const size_t nb = b->kind == ExprKind::kAdd ? b->num_operands : 1;
  if (na == 1 && nb == 1) {
    const Term ta = term_of(a);
    const Term tb = term_of(b);
    return scaled(multiply_bases(ta.base, tb.base), checked_mul(ta.coef, tb.coef));
  }
  if (na * nb > kMaxExpandedTerms) {
    // Too many terms to expand: a product whose factors are sums.
    const Term ta = na == 1 ? term_of(a) : Term{1, a};
    const Term tb = nb == 1 ? term_of(b) : Term{1, b};
    return scaled(multiply_bases(ta.base, tb.base), checked_mul(ta.coef, tb.coef));
  }
  Linear linear;
  const Expr single_a(a);
  const Expr single_b(b);
  const std::span<const Expr> left = na == 1 ? std::span(&single_a, 1) : a->operands();
  const std::span<const Expr> right = nb == 1 ? std::span(&single_b, 1) : b->operands();
  for (Expr x : left) {
    const Term tx = term_of(x.node());
    for (Expr y : right) {
      const Term ty = term_of(y.node());
      linear.add_term(checked_mul(tx.coef, ty.coef), multiply_bases(tx.base, ty.base));
    }
  }
  return sum(linear);
}

// --- Expr ---

ExprKind Expr::kind() const {
  TATARA_CHECK(valid(), "kind() of an invalid Expr");
  return node_->kind;
}
ExprContext& Expr::context() const {
  TATARA_CHECK(valid(), "context() of an invalid Expr");
  return *node_->ctx;
}
bool Expr::is_const() const { return node_ != nullptr && node_->kind == ExprKind::kConst; }
bool Expr::is_const(int64_t value) const { return is_const() && node_->value == value; }
bool Expr::is_symbol() const { return node_ != nullptr && node_->kind == ExprKind::kSymbol; }
int64_t Expr::const_value() const {
  TATARA_CHECK(is_const(), "const_value() of ", valid() ? str() : "an invalid Expr");
  return node_->value;
}
std::span<const Expr> Expr::operands() const {
  TATARA_CHECK(valid(), "operands() of an invalid Expr");
  return node_->operands();
}

namespace {

bool node_contains(NodePtr node, NodePtr symbol) {
  if (node == symbol) return true;
  if ((node->symbols & symbol->symbols) != symbol->symbols) return false;
  for (Expr operand : node->operands()) {
    if (node_contains(operand.node(), symbol)) return true;
  }
  return false;
}

}  // namespace

void collect_symbols(Expr e, std::vector<Expr>& found) {
  if (!e.valid()) return;
  if (e.is_symbol()) {
    if (std::find(found.begin(), found.end(), e) == found.end()) found.push_back(e);
    return;
  }
  for (const Expr operand : e.operands()) collect_symbols(operand, found);
}

bool Expr::contains(Expr symbol) const {
  TATARA_CHECK(valid() && symbol.valid(), "contains() with an invalid Expr");
  return node_contains(node_, symbol.node_);
}

Expr Expr::coefficient_of(Expr symbol) const {
  TATARA_CHECK(valid() && symbol.valid(), "coefficient_of() with an invalid Expr");
  ExprContext::Impl& impl = *node_->ctx->impl_;
  if (!contains(symbol)) return Expr(impl.constant(0));
  Linear coefficient;
  const auto visit = [&](NodePtr summand) {
    if (!node_contains(summand, symbol.node_)) return true;
    const Term term = term_of(summand);
    InlineVec<NodePtr, 10> others;
    bool found = false;
    for (Expr atom : Atoms(term.base)) {
      if (atom == symbol && !found) {
        found = true;
      } else if (node_contains(atom.node(), symbol.node_)) {
        return false;
      } else {
        others.push_back(atom.node());
      }
    }
    if (!found) return false;
    coefficient.add_term(term.coef, impl.product(others));
    return true;
  };
  if (node_->kind == ExprKind::kAdd) {
    for (Expr operand : operands()) {
      if (!visit(operand.node_)) return {};
    }
  } else if (!visit(node_)) {
    return {};
  }
  return Expr(impl.sum(coefficient));
}

Expr operator+(Expr a, Expr b) { return a.context().add(a, b); }
Expr operator-(Expr a, Expr b) { return a.context().sub(a, b); }
Expr operator*(Expr a, Expr b) { return a.context().mul(a, b); }
Expr operator-(Expr a) { return a.context().neg(a); }
Expr operator+(Expr a, int64_t b) { return a.context().add(a, a.context().constant(b)); }
Expr operator-(Expr a, int64_t b) { return a.context().sub(a, a.context().constant(b)); }
Expr operator*(Expr a, int64_t b) { return a.context().mul(a, a.context().constant(b)); }
Expr operator+(int64_t a, Expr b) { return b + a; }
Expr operator-(int64_t a, Expr b) { return b.context().sub(b.context().constant(a), b); }
Expr operator*(int64_t a, Expr b) { return b * a; }

}  // namespace tatara
