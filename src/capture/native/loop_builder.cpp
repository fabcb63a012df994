#include "capture/native/loop_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using namespace loops;

LoopBuilder::LoopBuilder(std::string name) {
  kernel_.name = std::move(name);
  kernel_.ctx = std::make_shared<ExprContext>();
}

int LoopBuilder::add_buffer(std::string name, DType dtype, Expr numel, ArgKind kind) {
  kernel_.buffers.push_back({std::move(name), dtype, kind, numel});
  return static_cast<int>(kernel_.buffers.size()) - 1;
}

Expr LoopBuilder::new_variable(Expr extent) {
  const Expr variable = ctx().loop_symbol(str_cat("i", variables_++), extent);
  extents_.emplace_back(variable, extent);
  return variable;
}

void LoopBuilder::add_size(const IntRange& range) {
  kernel_.sizes.push_back(ctx().symbol(str_cat("s", kernel_.sizes.size()), range));
}

bool LoopBuilder::is_known(Expr e) const {
  std::vector<Expr> symbols;
  collect_symbols(e, symbols);
  return std::all_of(symbols.begin(), symbols.end(), [this](Expr symbol) {
    return std::find(kernel_.sizes.begin(), kernel_.sizes.end(), symbol) != kernel_.sizes.end();
  });
}

Expr LoopBuilder::most_of(Expr e) {
  if (kernel_.sizes.empty() || e.is_const()) return constant(ctx().range(e).hi);
  // Inner loops come behind outer ones.
  for (auto it = extents_.rbegin(); it != extents_.rend(); ++it) {
    const auto& [variable, extent] = *it;
    if (!e.contains(variable)) continue;
    const Expr factor = e.coefficient_of(variable);
    if (!factor.valid() || !factor.is_const()) throw Unsupported("an array whose largest size is not known");
    const Expr worst = factor.const_value() > 0 ? ctx().sub(extent, constant(1)) : constant(0);
    e = ctx().substitute(e, {{variable, worst}});
  }
  if (!is_known(e)) throw Unsupported("an array whose largest size is not known");
  return ctx().range(e).lo < 0 ? ctx().max(e, constant(0)) : e;
}

ScalarId LoopBuilder::let(loops::Scalar scalar) {
  const ScalarId id = kernel_.new_scalar(scalar.dtype);
  put(Let{id, std::move(scalar)});
  return id;
}

ScalarId LoopBuilder::emit(ScalarOp op, DType dtype, std::vector<ScalarId> operands) {
  loops::Scalar scalar;
  scalar.op = op;
  scalar.dtype = dtype;
  scalar.operands = std::move(operands);
  return let(std::move(scalar));
}

ScalarId LoopBuilder::number(double value, DType dtype) {
  loops::Scalar scalar;
  scalar.op = ScalarOp::kConst;
  scalar.dtype = dtype;
  if (is_floating(dtype) || is_complex(dtype)) {
    scalar.const_re = value;
  } else {
    scalar.const_int = static_cast<int64_t>(value);
  }
  return let(std::move(scalar));
}

ScalarId LoopBuilder::index(Expr value, DType dtype) {
  loops::Scalar scalar;
  scalar.op = ScalarOp::kIndex;
  scalar.dtype = dtype;
  scalar.index = value;
  return let(std::move(scalar));
}

ScalarId LoopBuilder::cast(ScalarId x, DType to) { return dtype(x) == to ? x : emit(ScalarOp::kCast, to, {x}); }

ScalarId LoopBuilder::load(int buffer, Expr at) {
  const ScalarId id = kernel_.new_scalar(kernel_.buffers[static_cast<size_t>(buffer)].dtype);
  put(Load{id, buffer, at, kNoScalar, kNoScalar});
  return id;
}

void LoopBuilder::store(int buffer, Expr at, ScalarId value) {
  const ScalarId cast_value = cast(value, kernel_.buffers[static_cast<size_t>(buffer)].dtype);
  put(Store{buffer, at, cast_value, kNoScalar, StoreMode::kSet, false});
}

Expr LoopBuilder::checked(ScalarId value, Expr size, bool wrap) {
  const Expr symbol = ctx().symbol(str_cat("x", values_++), {0, std::max<int64_t>(ctx().range(size).hi - 1, 0)});
  put(IndexValue{value, symbol, size, wrap, true, kNoScalar});
  return symbol;
}

void LoopBuilder::stop_if(ScalarId condition) {
  const ScalarId as_int = cast(condition, DType::kInt64);
  put(IndexValue{as_int, ctx().symbol(str_cat("x", values_++), {0, 0}), constant(1), false, true, kNoScalar});
}

void LoopBuilder::open_loop(Expr variable, Expr extent, LoopKind kind) {
  For loop;
  loop.var = variable;
  loop.extent = extent;
  loop.kind = kind;
  loop.body = std::make_unique<Block>();
  open_.push_back(std::move(loop));
}

void LoopBuilder::close_loop(ScalarId until) {
  For loop = std::move(open_.back());
  loop.until = until;
  open_.pop_back();
  put(std::move(loop));
}

ScalarId LoopBuilder::sum(Expr variable, Expr extent, LoopKind kind, DType dtype,
                          const std::function<ScalarId()>& term) {
  return fold({ScalarOp::kAdd, Combine::kAdd}, variable, extent, kind, dtype, term);
}

/// What changes nothing.
ScalarId LoopBuilder::neutral(Combine combine, DType dtype) {
  if (combine != Combine::kMin && combine != Combine::kMax) return number(combine == Combine::kMul ? 1 : 0, dtype);
  const bool most = combine == Combine::kMin;
  if (is_floating(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return number(most ? kInfinity : -kInfinity, dtype);
  }
  const int bits = 8 * dtype_size(dtype) - (is_signed(dtype) ? 1 : 0);
  loops::Scalar scalar;
  scalar.op = ScalarOp::kConst;
  scalar.dtype = dtype;
  scalar.const_int = bits == 64 ? -1 : bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
  if (!most) scalar.const_int = is_signed(dtype) ? -scalar.const_int - 1 : 0;
  return let(std::move(scalar));
}

ScalarId LoopBuilder::fold(const Fold& fold, Expr variable, Expr extent, LoopKind kind, DType dtype,
                           const std::function<ScalarId()>& term) {
  const ScalarId start = neutral(fold.combine, dtype);
  open_loop(variable, extent, kind);
  Carried total{dtype, start, kernel_.new_scalar(dtype), kNoScalar, kernel_.new_scalar(dtype), fold.combine};
  total.next = emit(fold.op, dtype, {total.arg, term()});
  open_.back().carried.push_back(total);
  close_loop();
  return total.result;
}

ScalarId LoopBuilder::carried(DType dtype, ScalarId start) {
  open_.back().carried.push_back(
      {dtype, start, kernel_.new_scalar(dtype), kNoScalar, kernel_.new_scalar(dtype), Combine::kNone});
  return open_.back().carried.back().arg;
}

void LoopBuilder::carry_on(const std::vector<ScalarId>& next) {
  for (size_t n = 0; n < next.size(); ++n) open_.back().carried[n].next = next[n];
}

ScalarId LoopBuilder::close_carried(size_t n) {
  const ScalarId result = open_.back().carried[n].result;
  close_loop();
  return result;
}

void LoopBuilder::when(ScalarId condition, const std::function<void()>& body) {
  // The statements are gathered in a loop that is none.
  open_loop(Expr(), Expr(), LoopKind::kSerial);
  body();
  For gathered = std::move(open_.back());
  open_.pop_back();
  if (!gathered.body->stmts.empty()) put(If{condition, std::move(gathered.body)});
}

bool LoopBuilder::in_vector_loop() const {
  return std::any_of(open_.begin(), open_.end(), [](const For& loop) { return loop.kind == LoopKind::kVector; });
}

Kernel LoopBuilder::finish() { return std::move(kernel_); }

}  // namespace tatara::capture::native
