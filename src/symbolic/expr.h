// Symbolic integers: hash-consed expressions over named symbols.
//
// An Expr is a cheap handle (one pointer) into an ExprContext, which owns every node, each symbol's value range and
// the facts learned while tracing. Equal expressions of one context are the same pointer. Expressions are kept in a
// canonical form: a sum of products with integer coefficients, over atoms that are symbols, floor divisions, modulos,
// mins, maxes. Division and modulo are Python's (floor; the sign of the result follows the divisor).
// Booleans are expressions with value 0 or 1. Building applies only rules that hold for all integers, so the result does
// not depend on ranges or facts; simplify() and decide() use these too. Every rule takes divisors to be non-zero: who
// divides by an expression that may be zero guards that first. Arithmetic that leaves 64 bits raises Unsupported.
// Comparisons are kept as `terms <= terms` (a < b is a + 1 <= b), so kLt and kNot appear only in parsed or foreign text.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tatara {

class ExprContext;
struct ExprNode;

enum class ExprKind : uint8_t {
  kConst,     // integer
  kSymbol,    // named integer with a range
  kAdd,       // sum of (coefficient * product) terms plus a constant
  kMul,       // product of atoms
  kFloorDiv,  // a // b
  kMod,       // a % b
  kMin,
  kMax,
  kEq,  // a == b
  kNe,
  kLt,  // a < b
  kLe,
  kAnd,
  kOr,
  kNot,
};

/// A handle to an immutable node; the null handle is `valid() == false`.
class Expr {
 public:
  Expr() = default;
  explicit Expr(const ExprNode* node) : node_(node) {}

  bool valid() const { return node_ != nullptr; }
  const ExprNode* node() const { return node_; }
  ExprKind kind() const;
  ExprContext& context() const;

  bool is_const() const;
  /// The value of a constant; InternalError when it is not one.
  int64_t const_value() const;
  bool is_const(int64_t value) const;
  bool is_symbol() const;
  /// Operands (for kAdd the terms, with coefficients folded into kMul/kConst nodes).
  std::span<const Expr> operands() const;
  /// Coefficient of `symbol` if this is affine in it (symbol * c + rest, rest free of symbol), else an invalid Expr.
  Expr coefficient_of(Expr symbol) const;
  /// True when `symbol` occurs anywhere in the expression.
  bool contains(Expr symbol) const;
  /// Python-like text: "4*s0 + i1 // 2". Deterministic.
  std::string str() const;
  size_t hash() const { return std::hash<const void*>{}(node_); }
  /// Pointer equality, which is structural equality inside a context.
  friend bool operator==(Expr a, Expr b) { return a.node_ == b.node_; }

 private:
  const ExprNode* node_ = nullptr;
};

struct ExprHash {
  size_t operator()(Expr e) const { return e.hash(); }
};

/// Inclusive range; the ends saturate at the int64 limits (meaning unbounded).
struct IntRange {
  int64_t lo = INT64_MIN;
  int64_t hi = INT64_MAX;
  friend bool operator==(const IntRange&, const IntRange&) = default;
};

using ExprMap = std::unordered_map<Expr, Expr, ExprHash>;

/// One use of a rewrite rule (symbolic/rules.h): the text before, which no longer exists as an expression, and after.
struct ExprRewrite {
  std::string_view rule;
  std::string before;
  std::string after;
};

/// Adds the symbols of `e` (invalid: none) that are not among `found`.
void collect_symbols(Expr e, std::vector<Expr>& found);

/// Owns expressions. Not thread-safe: one per trace/compile. Movable handles stay valid while the context lives.
class ExprContext {
 public:
  ExprContext();
  ~ExprContext();
  ExprContext(const ExprContext&) = delete;
  ExprContext& operator=(const ExprContext&) = delete;

  Expr constant(int64_t value);
  /// A new or existing symbol of this name. A fresh one takes the range (default: any) and the hint.
  Expr symbol(std::string_view name, IntRange range = {}, std::optional<int64_t> hint = std::nullopt);
  /// Symbols s0, s1, ... for sizes: range [2, INT64_MAX] unless told; with the hint that specialisation uses.
  Expr fresh_size_symbol(int64_t hint, IntRange range = {2, INT64_MAX});
  /// A loop variable: range [0, extent), known also where the extent is symbolic.
  Expr loop_symbol(std::string_view name, Expr extent);
  /// All symbols in the order of creation.
  std::vector<Expr> symbols() const;
  std::string_view symbol_name(Expr symbol) const;
  std::optional<int64_t> hint(Expr symbol) const;

  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr neg(Expr a);
  /// Floor division; InvalidArgument when b is the constant 0.
  Expr floordiv(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr ceildiv(Expr a, Expr b);
  Expr min(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr eq(Expr a, Expr b);
  Expr ne(Expr a, Expr b);
  Expr lt(Expr a, Expr b);
  Expr le(Expr a, Expr b);
  Expr logical_and(Expr a, Expr b);
  Expr logical_or(Expr a, Expr b);
  Expr logical_not(Expr a);

  /// Bounds of e by interval arithmetic over the symbols' ranges and facts.
  IntRange range(Expr e) const;
  /// Narrow the range of a symbol (intersection).
  void refine(Expr symbol, IntRange range);
  /// true/false when ranges and facts decide it, nullopt otherwise. Never records anything.
  std::optional<bool> decide(Expr condition) const;
  /// Decide, else evaluate with the hints and record the outcome as a guard and as a fact. InternalError when a
  /// symbol of the condition has no hint.
  bool guard(Expr condition);
  /// Value of e under the hints, recording `e == value` as a guard (specialisation).
  int64_t specialize(Expr e);
  /// Conditions recorded by guard()/specialize(), in order, without duplicates and without those that hold by ranges.
  const std::vector<Expr>& guards() const;
  /// Forgets all of them: the symbols that they speak of are not used any more.
  void drop_guards();
  /// How many of them, from the first on, each later call checks. What is decided later holds for the present sizes only.
  size_t checked_guards() const;
  void note_checked_guards();
  /// Adopt a fact (known true from elsewhere) without making it a guard.
  void assume(Expr condition);
  /// What assume() and guard() were told, in order (ranges of symbols given at their creation are not among it).
  std::vector<Expr> facts() const;

  /// Simplify with the present ranges and facts ((4*i + j) // 4 with 0 <= j < 4 is i, and so on).
  Expr simplify(Expr e);
  /// Replace symbols (or any sub-expressions that are keys) simultaneously.
  Expr substitute(Expr e, const ExprMap& map);
  /// Value of e; `values` maps symbols. InternalError when one is missing.
  int64_t evaluate(Expr e, const std::unordered_map<Expr, int64_t, ExprHash>& values) const;
  /// Value of e under hints, if every symbol has one.
  std::optional<int64_t> evaluate_hint(Expr e) const;
  /// Copy an expression of another context into this one by symbol names.
  Expr import(Expr foreign);
  /// Parse what str() prints; unknown names become symbols. InvalidArgument with the position on bad text.
  Expr parse(std::string_view text);

  /// Calls `observer` at each use of a rewrite rule (empty: stop). For tests and debugging; slow.
  void observe_rewrites(std::function<void(const ExprRewrite&)> observer);

  struct Impl;

 private:
  friend class Expr;
  std::unique_ptr<Impl> impl_;
};

/// A postfix program for fast evaluation at run time without the context: sizes, strides, guards, arena offsets.
/// `symbols[i]` of the run-time array is the i-th entry of the order given at compile time.
class ExprProgram {
 public:
  ExprProgram() = default;
  ExprProgram(Expr e, std::span<const Expr> symbol_order);
  /// InvalidArgument on a division by zero and where arithmetic leaves 64 bits.
  int64_t evaluate(std::span<const int64_t> symbol_values) const;
  /// The same without exceptions: nullopt.
  std::optional<int64_t> try_evaluate(std::span<const int64_t> symbol_values) const noexcept;
  bool is_const() const;
  /// Serialised form for the disk cache.
  std::vector<int64_t> encode() const;
  /// CompilationError when the data is not what encode() gave.
  static ExprProgram decode(std::span<const int64_t> data);

 private:
  struct Instruction {
    ExprKind kind;
    int64_t value;  // constant, symbol slot, or operand count
  };
  void check();  // stack discipline; sets the two below
  std::vector<Instruction> code_;
  size_t num_slots_ = 0;
  size_t max_depth_ = 0;
};

// Operators take the context of the left operand (of the right one, when the left is an integer).
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator+(Expr a, int64_t b);
Expr operator-(Expr a, int64_t b);
Expr operator*(Expr a, int64_t b);
Expr operator+(int64_t a, Expr b);
Expr operator-(int64_t a, Expr b);
Expr operator*(int64_t a, Expr b);

}  // namespace tatara
