// Builds the kernel of a loop of the program, statement by statement in the program's order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "loops/kernel.h"

namespace tatara::capture::native {

using loops::ScalarId;

/// How the values of a loop become one.
struct Fold {
  loops::ScalarOp op;
  loops::Combine combine;
};

/// Statements go to the innermost open loop. Buffers and symbols are numbered in the order of their creation.
class LoopBuilder {
 public:
  explicit LoopBuilder(std::string name);

  ExprContext& ctx() { return *kernel_.ctx; }
  DType dtype(ScalarId id) const { return kernel_.scalar_types[static_cast<size_t>(id)]; }

  int add_buffer(std::string name, DType dtype, Expr numel, loops::ArgKind kind = loops::ArgKind::kInOut);
  /// A symbol whose value comes with each run.
  void add_size(const IntRange& range);
  Expr size(int n) const { return kernel_.sizes[static_cast<size_t>(n)]; }
  size_t size_count() const { return kernel_.sizes.size(); }
  /// Whether the value is the same in all turns.
  bool is_known(Expr e) const;
  /// Of such a value.
  ExprProgram program_of(Expr e) const { return ExprProgram(e, kernel_.sizes); }
  /// The largest value that it takes in any turn. Throws Unsupported where that is not known.
  Expr most_of(Expr e);
  /// A loop variable over [0, extent).
  Expr new_variable(Expr extent);
  Expr constant(int64_t value) { return ctx().constant(value); }

  ScalarId emit(loops::ScalarOp op, DType dtype, std::vector<ScalarId> operands);
  ScalarId number(double value, DType dtype);
  ScalarId index(Expr value, DType dtype);
  ScalarId cast(ScalarId x, DType dtype);
  ScalarId load(int buffer, Expr at);
  void store(int buffer, Expr at, ScalarId value);
  /// The kernel stops where the integer is outside of [0, size); with `wrap` a negative one counts from the end.
  Expr checked(ScalarId value, Expr size, bool wrap);
  /// The kernel stops where the scalar is true.
  void stop_if(ScalarId condition);

  void open_loop(Expr variable, Expr extent, loops::LoopKind kind);
  /// `until`: the loop, a serial one, ends behind an iteration where it is true.
  /// A value that the open loop hands from turn to turn: what it is within the turn.
  ScalarId carried(DType dtype, ScalarId start);
  /// What the carried values are at the end of a turn, in their order.
  void carry_on(const std::vector<ScalarId>& next);
  /// Closes the loop: the last one of a carried value.
  ScalarId close_carried(size_t n);
  void close_loop(ScalarId until = loops::kNoScalar);
  /// The sum of `term` over a loop.
  ScalarId sum(Expr variable, Expr extent, loops::LoopKind kind, DType dtype, const std::function<ScalarId()>& term);
  /// The same with another operator.
  ScalarId fold(const Fold& fold, Expr variable, Expr extent, loops::LoopKind kind, DType dtype,
                const std::function<ScalarId()>& term);
  /// Statements inside of `body` run where the condition is true.
  void when(ScalarId condition, const std::function<void()>& body);
  /// Whether a vector loop is open: there may be one on each way.
  bool in_vector_loop() const;

  loops::Kernel finish();

 private:
  ScalarId neutral(loops::Combine combine, DType dtype);
  ScalarId let(loops::Scalar scalar);
  loops::Block& block() { return open_.empty() ? kernel_.body : *open_.back().body; }
  void put(loops::Stmt stmt) { block().stmts.push_back(std::move(stmt)); }

  loops::Kernel kernel_;
  std::vector<loops::For> open_;
  int variables_ = 0, values_ = 0;
  std::vector<std::pair<Expr, Expr>> extents_;  // of loop variables
};

}  // namespace tatara::capture::native
