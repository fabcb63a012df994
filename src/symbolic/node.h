// The storage of expressions: interned nodes, terms and linear forms, overflow-checked arithmetic. Private to symbolic/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "support/error.h"
#include "support/inline_vec.h"
#include "symbolic/expr.h"

namespace tatara {

/// One interned node; the operands follow it in memory.
struct ExprNode {
  ExprContext* ctx;
  uint64_t hash;
  uint64_t order;        // leading bits of the structural order: most comparisons end here
  uint64_t symbols;      // bit (index % 64) of each symbol inside: a Bloom filter for contains()
  int64_t value;         // kConst: the value; kSymbol: its index; kMul: the coefficient
  const ExprNode* base;  // kMul: the product without its coefficient; comparisons: lhs - rhs; else the node itself
  uint32_t id;
  uint32_t num_operands;
  ExprKind kind;
  bool has_mod;  // a kMod, or a product with one: sums look for x // a to join it with
  bool has_div;  // a kFloorDiv, or a product with one
  uint16_t depth;

  std::span<const Expr> operands() const { return {reinterpret_cast<const Expr*>(this + 1), num_operands}; }
  const ExprNode* operand(size_t i) const { return operands()[i].node(); }
};

using NodePtr = const ExprNode*;

/// Expressions nested deeper than this raise Unsupported: every algorithm here recurses.
inline constexpr uint16_t kMaxExprDepth = 400;

/// Thrown when a coefficient leaves the 64 bits; callers outside see Unsupported.
class ExprOverflow : public Unsupported {
 public:
  ExprOverflow() : Unsupported("symbolic integer arithmetic overflows 64 bits") {}
};

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) [[unlikely]]
    throw ExprOverflow();
  return result;
}
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    throw ExprOverflow();
  return result;
}
inline int64_t checked_neg(int64_t a) {
  if (a == INT64_MIN) [[unlikely]]
    throw ExprOverflow();
  return -a;
}
/// Python's // and %, b != 0; INT64_MIN // -1 wraps.
inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}
/// gcd of the magnitudes, as a positive number where that fits (INT64_MIN counts as 1: gcd only guides rewrites).
inline int64_t safe_gcd(int64_t a, int64_t b) {
  if (a == INT64_MIN || b == INT64_MIN) return 1;
  return std::gcd(a, b);
}

/// coefficient * product; `base` is null for the empty product (a constant).
struct Term {
  int64_t coef;
  NodePtr base;
};

inline Term term_of(NodePtr node) {
  if (node->kind == ExprKind::kMul) return {node->value, node->base};
  if (node->kind == ExprKind::kConst) return {node->value, nullptr};
  return {1, node};
}

/// The factors of a product without coefficient, in order: a range over Expr.
class Atoms {
 public:
  explicit Atoms(NodePtr base) : single_(base) {
    if (base == nullptr) return;
    size_ = 1;
    if (base->kind == ExprKind::kMul) {
      const auto operands = base->operands().subspan(base->value == 1 ? 0 : 1);
      many_ = operands.data();
      size_ = operands.size();
    }
  }
  const Expr* begin() const { return many_ != nullptr ? many_ : &single_; }
  const Expr* end() const { return begin() + size_; }
  size_t size() const { return size_; }
  NodePtr operator[](size_t i) const { return begin()[i].node(); }

 private:
  Expr single_;
  const Expr* many_ = nullptr;
  size_t size_ = 0;
};

/// A sum under construction: terms in any order, like terms not yet joined.
struct Linear {
  int64_t constant = 0;
  InlineVec<Term, 10> terms;

  void add_term(int64_t coef, NodePtr base) {
    if (base == nullptr) {
      constant = checked_add(constant, coef);
    } else {
      terms.push_back({coef, base});
    }
  }
  void add(NodePtr node, int64_t scale = 1) {
    if (node->kind == ExprKind::kAdd) {
      for (Expr operand : node->operands()) {
        const Term term = term_of(operand.node());
        add_term(scale == 1 ? term.coef : checked_mul(term.coef, scale), term.base);
      }
    } else {
      const Term term = term_of(node);
      add_term(scale == 1 ? term.coef : checked_mul(term.coef, scale), term.base);
    }
  }
};

/// The constant summand of a node.
inline int64_t constant_part(NodePtr node) {
  if (node->kind == ExprKind::kConst) return node->value;
  if (node->kind == ExprKind::kAdd) {
    const NodePtr last = node->operands().back().node();
    if (last->kind == ExprKind::kConst) return last->value;
  }
  return 0;
}

inline bool is_comparison(ExprKind kind) {
  return kind == ExprKind::kEq || kind == ExprKind::kNe || kind == ExprKind::kLt || kind == ExprKind::kLe;
}
/// Its value is 0 or 1 whatever the symbols are.
inline bool is_boolean(NodePtr node) {
  if (node->kind == ExprKind::kConst) return node->value == 0 || node->value == 1;
  return is_comparison(node->kind) || node->kind == ExprKind::kAnd || node->kind == ExprKind::kOr ||
         node->kind == ExprKind::kNot;
}

/// Characters that end a name in text.
inline constexpr std::string_view kNotInNames = " \t\r\n+-*/%()<>=!,\"'";

/// Total order of nodes of one context by structure and symbol names, never by age: sums print alike in every run.
int compare_nodes(NodePtr a, NodePtr b);
/// "s2" before "s10".
int natural_compare(std::string_view a, std::string_view b);

}  // namespace tatara
