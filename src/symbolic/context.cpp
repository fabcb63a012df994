// The public face of ExprContext: checks that operands are of this context, then hands on to the implementation.
#include "support/cancel.h"
#include "symbolic/impl.h"

namespace tatara {

namespace {

/// Operands must be of this context: a foreign one would be a silent mix-up of two traces. All work on expressions comes
/// through here, so this is where it may be cancelled.
NodePtr own(const ExprContext* ctx, Expr e) {
  check_cancelled();
  TATARA_CHECK(e.valid(), "an invalid Expr as operand");
  TATARA_CHECK(e.node()->ctx == ctx, "an expression of another context as operand: ", e.str());
  return e.node();
}

}  // namespace

ExprContext::ExprContext() : impl_(std::make_unique<Impl>(*this)) {}
ExprContext::~ExprContext() = default;

Expr ExprContext::constant(int64_t value) { return Expr(impl_->constant(value)); }
Expr ExprContext::symbol(std::string_view name, IntRange range, std::optional<int64_t> hint) {
  return Expr(impl_->symbol(name, range, hint));
}
Expr ExprContext::fresh_size_symbol(int64_t hint_value, IntRange range) {
  return symbol(impl_->symbols.next_size_name(), range, hint_value);
}
Expr ExprContext::loop_symbol(std::string_view wanted_name, Expr extent) {
  own(this, extent);
  // Callers make names from extents ("i0_4*s0"): what cannot be in a name becomes its code, so that names stay distinct.
  std::string name;
  for (const char c : wanted_name) {
    if (kNotInNames.find(c) == std::string_view::npos) {
      name += c;
    } else if (c != ' ') {
      str_append(name, '.');
      str_append(name, static_cast<int>(c));
    }
  }
  if (extent.is_const()) return symbol(name, {0, std::max<int64_t>(extent.const_value() - 1, 0)});
  if (const SymbolInfo* existing = impl_->symbols.find(name)) {
    TATARA_CHECK(impl_->symbols.loop_extent(existing->node) == extent.node(), "symbol ", name,
                 " exists and is no loop variable below ", extent.str());
    return Expr(existing->node);
  }
  const Expr var = symbol(name, {0, INT64_MAX});
  impl_->symbols.set_loop_extent(var.node(), extent.node());
  const Expr inside = lt(var, extent);
  assume(inside);
  const IntRange bound = this->range(extent);
  if (bound.hi != INT64_MAX) impl_->refine(var.node(), {0, std::max<int64_t>(bound.hi - 1, 0)});
  return var;
}
std::vector<Expr> ExprContext::symbols() const {
  std::vector<Expr> out;
  out.reserve(impl_->symbols.all().size());
  for (const SymbolInfo& info : impl_->symbols.all()) out.emplace_back(info.node);
  return out;
}
std::string_view ExprContext::symbol_name(Expr symbol) const {
  TATARA_CHECK(symbol.is_symbol() && &symbol.context() == this, "symbol_name() of what is no symbol of this context");
  return impl_->symbols[symbol.node()].name;
}
std::optional<int64_t> ExprContext::hint(Expr symbol) const {
  TATARA_CHECK(symbol.is_symbol() && &symbol.context() == this, "hint() of what is no symbol of this context");
  return impl_->symbols[symbol.node()].hint;
}

Expr ExprContext::add(Expr a, Expr b) { return Expr(impl_->add(own(this, a), own(this, b))); }
Expr ExprContext::sub(Expr a, Expr b) { return Expr(impl_->sub(own(this, a), own(this, b))); }
Expr ExprContext::mul(Expr a, Expr b) { return Expr(impl_->mul(own(this, a), own(this, b))); }
Expr ExprContext::neg(Expr a) { return Expr(impl_->neg(own(this, a))); }
Expr ExprContext::floordiv(Expr a, Expr b) { return Expr(impl_->floordiv(own(this, a), own(this, b))); }
Expr ExprContext::mod(Expr a, Expr b) { return Expr(impl_->mod(own(this, a), own(this, b))); }
Expr ExprContext::ceildiv(Expr a, Expr b) {
  const NodePtr divisor = own(this, b);
  if (divisor->kind != ExprKind::kConst &&
      impl_->positive(divisor)) {  // a constant divisor leads to this form by itself
    return Expr(impl_->floordiv(impl_->add(impl_->add(own(this, a), divisor), -1), divisor));
  }
  return Expr(impl_->neg(impl_->floordiv(impl_->neg(own(this, a)), divisor)));
}
Expr ExprContext::min(Expr a, Expr b) {
  return Expr(impl_->min_max(ExprKind::kMin, std::array{own(this, a), own(this, b)}));
}
Expr ExprContext::max(Expr a, Expr b) {
  return Expr(impl_->min_max(ExprKind::kMax, std::array{own(this, a), own(this, b)}));
}
Expr ExprContext::eq(Expr a, Expr b) { return Expr(impl_->eq(own(this, a), own(this, b))); }
Expr ExprContext::ne(Expr a, Expr b) { return Expr(impl_->ne(own(this, a), own(this, b))); }
Expr ExprContext::le(Expr a, Expr b) { return Expr(impl_->le(own(this, a), own(this, b))); }
Expr ExprContext::lt(Expr a, Expr b) { return Expr(impl_->logical_not(impl_->le(own(this, b), own(this, a)))); }
Expr ExprContext::logical_and(Expr a, Expr b) {
  return Expr(impl_->logical(ExprKind::kAnd, std::array{own(this, a), own(this, b)}));
}
Expr ExprContext::logical_or(Expr a, Expr b) {
  return Expr(impl_->logical(ExprKind::kOr, std::array{own(this, a), own(this, b)}));
}
Expr ExprContext::logical_not(Expr a) { return Expr(impl_->logical_not(own(this, a))); }

// --- ExprContext: ranges, facts, simplification ---

IntRange ExprContext::range(Expr e) const { return impl_->range(own(this, e)); }
void ExprContext::refine(Expr symbol, IntRange range) {
  TATARA_CHECK(symbol.is_symbol(), "refine() of what is no symbol");
  impl_->refine(own(this, symbol), range);
}
std::optional<bool> ExprContext::decide(Expr condition) const { return impl_->decide(own(this, condition)); }
void ExprContext::assume(Expr condition) { impl_->assume(impl_->truth(own(this, condition))); }
const std::vector<Expr>& ExprContext::guards() const { return impl_->facts.guards(); }
void ExprContext::drop_guards() { impl_->facts.drop_guards(); }
size_t ExprContext::checked_guards() const { return impl_->facts.checked; }
void ExprContext::note_checked_guards() { impl_->facts.checked = impl_->facts.guards().size(); }
std::vector<Expr> ExprContext::facts() const {
  std::vector<Expr> out;
  for (NodePtr fact : impl_->facts.assumed()) out.emplace_back(fact);
  return out;
}
Expr ExprContext::simplify(Expr e) { return Expr(impl_->simplify(own(this, e))); }
void ExprContext::observe_rewrites(std::function<void(const ExprRewrite&)> observer) {
  impl_->observer = std::move(observer);
}

bool ExprContext::guard(Expr condition) {
  const NodePtr wanted = impl_->truth(own(this, condition));
  if (const std::optional<bool> known = impl_->decide(wanted)) return *known;
  const std::optional<int64_t> value = evaluate_hint(condition);
  TATARA_CHECK(value.has_value(), "guard on ", condition.str(), ": a symbol has no hint");
  const NodePtr holds = *value != 0 ? wanted : impl_->logical_not(wanted);
  impl_->facts.add_guard(Expr(holds));
  impl_->assume(holds);
  return *value != 0;
}

int64_t ExprContext::specialize(Expr e) {
  if (e.is_const()) return e.const_value();
  const NodePtr simple = impl_->simplify(own(this, e));
  if (simple->kind == ExprKind::kConst) return simple->value;
  const std::optional<int64_t> value = evaluate_hint(e);
  TATARA_CHECK(value.has_value(), "specialize of ", e.str(), ": a symbol has no hint");
  guard(eq(e, constant(*value)));
  return *value;
}

}  // namespace tatara
