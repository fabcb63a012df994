// Evaluation, substitution and copies between contexts.
#include "symbolic/impl.h"

namespace tatara {

using Impl = ExprContext::Impl;

NodePtr Impl::build(ExprKind kind, std::span<const NodePtr> operands) {
  switch (kind) {
    case ExprKind::kAdd: {
      Linear linear;
      for (NodePtr operand : operands) linear.add(operand);
      return sum(linear);
    }
    case ExprKind::kMul: {
      NodePtr out = operands[0];
      for (NodePtr operand : operands.subspan(1)) out = mul(out, operand);
      return out;
    }
    case ExprKind::kFloorDiv: return floordiv(operands[0], operands[1]);
    case ExprKind::kMod: return mod(operands[0], operands[1]);
    case ExprKind::kMin:
    case ExprKind::kMax: return min_max(kind, operands);
    case ExprKind::kEq: return eq(operands[0], operands[1]);
    case ExprKind::kNe: return ne(operands[0], operands[1]);
    case ExprKind::kLe: return le(operands[0], operands[1]);
    case ExprKind::kLt: return logical_not(le(operands[1], operands[0]));
    case ExprKind::kAnd:
    case ExprKind::kOr: return logical(kind, operands);
    case ExprKind::kNot: return logical_not(operands[0]);
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  TATARA_UNREACHABLE("a leaf has no operands: ", kind);
}

namespace {

/// Evaluates with `leaf` for the value of a symbol; arithmetic is checked.
template <typename Leaf>
int64_t evaluate_node(NodePtr e, const Leaf& leaf) {
  const auto operand = [&](size_t i) { return evaluate_node(e->operand(i), leaf); };
  switch (e->kind) {
    case ExprKind::kConst: return e->value;
    case ExprKind::kSymbol: return leaf(e);
    case ExprKind::kAdd: {
      int64_t out = 0;
      for (size_t i = 0; i < e->num_operands; ++i) out = checked_add(out, operand(i));
      return out;
    }
    case ExprKind::kMul: {
      int64_t out = 1;
      for (size_t i = 0; i < e->num_operands; ++i) out = checked_mul(out, operand(i));
      return out;
    }
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      const int64_t a = operand(0);
      const int64_t b = operand(1);
      if (b == 0) throw InvalidArgument(str_cat("division by zero: ", Expr(e).str()));
      if (a == INT64_MIN && b == -1 && e->kind == ExprKind::kFloorDiv) throw ExprOverflow();
      return e->kind == ExprKind::kFloorDiv ? floor_div(a, b) : floor_mod(a, b);
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      int64_t out = operand(0);
      for (size_t i = 1; i < e->num_operands; ++i) {
        out = e->kind == ExprKind::kMin ? std::min(out, operand(i)) : std::max(out, operand(i));
      }
      return out;
    }
    case ExprKind::kEq: return operand(0) == operand(1);
    case ExprKind::kNe: return operand(0) != operand(1);
    case ExprKind::kLt: return operand(0) < operand(1);
    case ExprKind::kLe: return operand(0) <= operand(1);
    case ExprKind::kAnd:
      for (size_t i = 0; i < e->num_operands; ++i) {
        if (operand(i) == 0) return 0;
      }
      return 1;
    case ExprKind::kOr:
      for (size_t i = 0; i < e->num_operands; ++i) {
        if (operand(i) != 0) return 1;
      }
      return 0;
    case ExprKind::kNot: return operand(0) == 0;
  }
  TATARA_UNREACHABLE("ExprKind ", e->kind);
}

/// Rebuilds a tree in `target`, once per node of the tree if the subclass keeps what is done.
class Rewriter {
 public:
  explicit Rewriter(Impl& target) : target_(target) {}
  virtual ~Rewriter() = default;

  NodePtr run(NodePtr e) {
    if (const NodePtr* done = find(e)) return *done;
    NodePtr out = replace(e);
    if (out == nullptr) {
      InlineVec<NodePtr, 12> operands;
      bool changed = false;
      for (Expr operand : e->operands()) {
        operands.push_back(run(operand.node()));
        changed |= operands.back() != operand.node();
      }
      out = changed ? target_.build(e->kind, operands) : e;
    }
    keep(e, out);
    return out;
  }

 protected:
  virtual NodePtr replace(NodePtr e) = 0;  // null: go into the operands
  virtual const NodePtr* find(NodePtr e) const = 0;
  virtual void keep(NodePtr e, NodePtr out) = 0;
  Impl& target_;
};

/// Within one context, so what is done is kept by id in a table of the context, which the next substitution uses again.
class Substitution : public Rewriter {
 public:
  Substitution(Impl& target, const ExprMap& map) : Rewriter(target), map_(map) {
    target.substituted.reserve(target.nodes.count());
    ++target.substitutions;
    for (const auto& [key, value] : map) key_symbols_ |= key.node()->symbols == 0 ? ~uint64_t{0} : key.node()->symbols;
  }

 private:
  NodePtr replace(NodePtr e) override {
    if (const auto it = map_.find(Expr(e)); it != map_.end()) return it->second.node();
    if (e->num_operands == 0 || (e->symbols & key_symbols_) == 0) return e;
    if (e->kind == ExprKind::kMul && e->base != e) {
      const NodePtr base = run(e->base);  // a product is a key without its coefficient, too
      return base == e->base ? e : target_.scale(base, e->value);
    }
    return nullptr;
  }
  const NodePtr* find(NodePtr e) const override { return target_.substituted.find(e, target_.substitutions); }
  void keep(NodePtr e, NodePtr out) override { target_.substituted.put(e, target_.substitutions, out, 0); }

  const ExprMap& map_;
  uint64_t key_symbols_ = 0;
};

/// From a context that may be far larger than the target, where a table by id would cost each kernel as much as the graph.
class Import : public Rewriter {
 public:
  Import(Impl& target, const Impl& source) : Rewriter(target), source_(source) {}

 private:
  NodePtr replace(NodePtr e) override {
    if (e->kind == ExprKind::kConst) return target_.constant(e->value);
    if (e->kind != ExprKind::kSymbol) return nullptr;
    const SymbolInfo& info = source_.symbols[e];
    const SymbolInfo* existing = target_.symbols.find(info.name);
    return existing != nullptr ? existing->node : target_.symbol(info.name, info.range, info.hint);
  }
  const NodePtr* find(NodePtr e) const override {
    const auto it = done_.find(e);
    return it == done_.end() ? nullptr : &it->second;
  }
  void keep(NodePtr e, NodePtr out) override {
    if (e->num_operands > 0) done_.emplace(e, out);
  }

  const Impl& source_;
  std::unordered_map<NodePtr, NodePtr> done_;
};

}  // namespace

Expr ExprContext::substitute(Expr e, const ExprMap& map) {
  TATARA_CHECK(e.valid() && &e.context() == this, "substitute() in an expression of another context");
  if (map.empty()) return e;
  for (const auto& [key, value] : map) {
    TATARA_CHECK(key.valid() && value.valid() && &key.context() == this && &value.context() == this,
                 "substitute() with an expression of another context");
  }
  if (e.is_symbol()) {
    const auto it = map.find(e);
    return it == map.end() ? e : it->second;
  }
  return Expr(Substitution(*impl_, map).run(e.node()));
}

Expr ExprContext::import(Expr foreign) {
  TATARA_CHECK(foreign.valid(), "import() of an invalid Expr");
  if (&foreign.context() == this) return foreign;
  return Expr(Import(*impl_, *foreign.context().impl_).run(foreign.node()));
}

int64_t ExprContext::evaluate(Expr e, const std::unordered_map<Expr, int64_t, ExprHash>& values) const {
  TATARA_CHECK(e.valid(), "evaluate() of an invalid Expr");
  return evaluate_node(e.node(), [&](NodePtr symbol) {
    const auto it = values.find(Expr(symbol));
    TATARA_CHECK(it != values.end(), "evaluate(): no value for ", Expr(symbol).str());
    return it->second;
  });
}

std::optional<int64_t> Impl::hint_value(NodePtr e) {
  struct NoHint {};
  try {
    return evaluate_node(e, [&](NodePtr symbol) {
      const auto& info = symbols[symbol];
      if (!info.hint) throw NoHint();
      return *info.hint;
    });
  } catch (const NoHint&) {
    return std::nullopt;
  }
}

std::optional<int64_t> ExprContext::evaluate_hint(Expr e) const {
  TATARA_CHECK(e.valid() && &e.context() == this, "evaluate_hint() of an expression of another context");
  return impl_->hint_value(e.node());
}

}  // namespace tatara
