// The inside of an ExprContext: what is computed over its tables (tables.h). Private to symbolic/; each part of the work has
// its own .cpp file, named in the comments below.
#pragma once

#include "support/arena.h"
#include "symbolic/node.h"
#include "symbolic/rules.h"
#include "symbolic/tables.h"

namespace tatara {

struct ExprContext::Impl {
  explicit Impl(ExprContext& owner);

  // --- nodes (expr.cpp) ---
  NodePtr constant(int64_t value) { return nodes.constant(value); }
  NodePtr symbol(std::string_view name, IntRange range, std::optional<int64_t> hint);
  NodePtr intern(ExprKind kind, int64_t value, std::span<const NodePtr> operands, NodePtr base = nullptr) {
    return nodes.intern(kind, value, operands, base);
  }
  /// The canonical node of a sum; uses up `linear`.
  NodePtr sum(Linear& linear);
  NodePtr scaled(NodePtr base, int64_t coef);
  NodePtr product(std::span<const NodePtr> sorted_atoms);
  NodePtr term_node(Term term) { return term.base == nullptr ? constant(term.coef) : scaled(term.base, term.coef); }
  NodePtr multiply_bases(NodePtr a, NodePtr b);  // null: the empty product
  NodePtr add(NodePtr a, NodePtr b);
  NodePtr add(NodePtr a, int64_t b);
  NodePtr sub(NodePtr a, NodePtr b);
  NodePtr neg(NodePtr a) { return scale(a, -1); }
  NodePtr scale(NodePtr a, int64_t factor);
  NodePtr mul(NodePtr a, NodePtr b);
  /// (x // a) * a + x % a -> x and the like; true when it changed the (sorted) terms.
  bool join_div_mod(Linear& linear, bool with_ranges);
  bool join_at(Linear& linear, size_t m, size_t at, bool with_ranges);

  // --- division (division.cpp) ---
  NodePtr floordiv(NodePtr a, NodePtr b);
  NodePtr mod(NodePtr a, NodePtr b);
  NodePtr floordiv_const(NodePtr a, int64_t c);
  NodePtr mod_const(NodePtr a, int64_t c);
  NodePtr floordiv_symbolic(NodePtr a, NodePtr b);
  NodePtr mod_symbolic(NodePtr a, NodePtr b);
  /// b * quotient + rest == a, taking what divides evenly.
  void split_multiples(NodePtr a, NodePtr b, Linear& quotient, Linear& rest);
  bool split_by_sum(NodePtr a, NodePtr b, Linear& quotient, NodePtr& rest);
  std::optional<Term> divide_term(Term t, Term by);
  Term exact_quotient(Term t, Term by);
  Term term_gcd(Term a, Term b);

  // --- comparisons, logic, min and max (logic.cpp) ---
  NodePtr min_max(ExprKind kind, std::span<const NodePtr> operands);
  NodePtr le(NodePtr a, NodePtr b);
  NodePtr eq(NodePtr a, NodePtr b);
  NodePtr ne(NodePtr a, NodePtr b);
  /// Canonical d with the same truth of d <= 0: content divided out, floor divisions removed where possible.
  NodePtr tighten_le(NodePtr d);
  NodePtr comparison(ExprKind kind, NodePtr d);  // d canonical and not constant
  NodePtr truth(NodePtr a);                      // as a boolean: a != 0
  NodePtr logical(ExprKind kind, std::span<const NodePtr> operands);
  NodePtr logical_not(NodePtr a);

  // --- ranges (range.cpp) ---
  IntRange range(NodePtr e);
  IntRange compute_range(NodePtr e);
  IntRange product_range(NodePtr base);
  IntRange fact_range(NodePtr e);
  bool positive(NodePtr e) { return range(e).lo >= 1; }

  // --- facts and decisions (facts.cpp) ---
  void refine(NodePtr symbol, IntRange range);
  void assume(NodePtr condition);
  void assume_le(NodePtr d);  // d <= 0
  void propagate(NodePtr d);
  void assume_eq(NodePtr condition);
  std::optional<bool> decide(NodePtr condition);
  std::optional<bool> decide_structural(NodePtr condition);
  bool prove_le_zero(NodePtr d);
  NodePtr clear_division(NodePtr d);
  bool prove_search(NodePtr d, int depth, int& budget);
  bool try_fact(NodePtr d, Term term, Term in_fact, NodePtr fact, int depth, int& budget);
  bool try_implicit(NodePtr d, Term term, NodePtr atom, int depth, int& budget);
  bool prove_le(NodePtr a, NodePtr b) { return prove_le_zero(sub(a, b)); }
  bool prove_lt(NodePtr a, NodePtr b) { return prove_le_zero(add(sub(a, b), 1)); }

  // --- simplification (simplify.cpp) ---
  NodePtr simplify(NodePtr e);
  NodePtr rebuild(NodePtr e);     // with simplified operands
  NodePtr contextual(NodePtr e);  // one rule that needs ranges or facts
  NodePtr contextual_div(NodePtr e);
  NodePtr contextual_sum(NodePtr e);
  NodePtr split_known_multiples(NodePtr e);
  NodePtr contextual_min_max(NodePtr e);
  NodePtr split_division(NodePtr e);
  std::optional<int64_t> block_of(NodePtr rest, Term size);
  std::optional<int64_t> block_of_sum(NodePtr rest, NodePtr width);

  // --- values (values.cpp) ---
  NodePtr build(ExprKind kind, std::span<const NodePtr> operands);  // through the canonical constructors
  std::optional<int64_t> hint_value(NodePtr e);

  // --- rules ---
  void report(Rule rule, ExprKind op, NodePtr a, NodePtr b, NodePtr after);
  NodePtr fired(Rule rule, ExprKind op, NodePtr a, NodePtr b, NodePtr after) {
    if (observer) [[unlikely]]
      report(rule, op, a, b, after);
    return after;
  }

  BumpArena arena;
  SymbolTable symbols;
  NodeTable nodes;
  FactTable facts;

  NodeCache<IntRange> ranges;      // by epoch of the facts
  NodeCache<NodePtr> simplified;   // likewise
  NodeCache<NodePtr> substituted;  // results of one substitution, by `substitutions`
  uint32_t substitutions = 0;
  int simplify_depth = 0;
  int propagation_depth = 0;

  std::function<void(const ExprRewrite&)> observer;
};

}  // namespace tatara
