// Arithmetic of a loop's code: numbers at once, arrays element by element where they are wanted.
#include <opcode.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr int64_t kMostWhole = int64_t{1} << 52;

bool is_number(const Value& v) { return std::holds_alternative<Number>(v); }
bool is_grid(const Value& v) { return std::holds_alternative<GridRef>(v); }
/// A complex number of Python's for certain.
bool is_pair(const Value& v) {
  const auto* number = std::get_if<Number>(&v);
  return number != nullptr && is_complex(number->dtype) && number->strength == Strength::kWeak;
}
bool is_masked(const Value& v) { return std::holds_alternative<Masked>(v); }
bool is_mask(const Value& v) { return is_grid(v) && std::get<GridRef>(v)->dtype == DType::kBool; }
bool is_whole(const Value& v) { return std::holds_alternative<Whole>(v); }

}  // namespace

/// A bool of Python's as the int that it is.
Value LoopOperations::as_int(const Condition& condition) {
  if (condition.strength != Strength::kWeak) throw Unsupported("arithmetic on bools of NumPy's");
  if (!condition.known) return Number{builder_->cast(condition.id, DType::kInt64), DType::kInt64, Strength::kWeak};
  const int64_t value = *condition.known ? 1 : 0;
  return Whole{builder_->constant(value), {value, value}};
}

Value LoopOperations::binary(int op, const Value& a, const Value& b) {
  if (is_masked(a) || is_masked(b))
    return with_mask(a, b, [this, op](const Value& x, const Value& y) { return binary(op, x, y); });
  if (op == NB_MATRIX_MULTIPLY) return dot(a, b);
  for (const Value* each : {&a, &b}) {
    const auto* condition = std::get_if<Condition>(each);
    if (condition == nullptr) continue;
    if (op == NB_AND || op == NB_OR || op == NB_XOR) throw Unsupported("an operator on bools");
    const Value number = as_int(*condition);
    return each == &a ? binary(op, number, b) : binary(op, a, number);
  }
  const auto* power = std::get_if<Whole>(&b);
  const auto* base = std::get_if<Number>(&a);
  const bool of_pair = base != nullptr && is_complex(base->dtype) && base->strength != Strength::kStrong;
  if (op == NB_POWER && power != nullptr && power->value.is_const(2) && !of_pair) {
    const auto* grid = std::get_if<GridRef>(&a);
    const Value once = grid != nullptr && (*grid)->costly ? Value(materialise(*grid)) : a;
    return binary(NB_MULTIPLY, once, once);
  }
  if (is_whole(a) && is_whole(b)) {
    if (std::optional<Value> known = whole_binary(op, std::get<Whole>(a), std::get<Whole>(b))) return *known;
  }
  if (is_mask(a) && is_mask(b)) {
    if (op == NB_AND || op == NB_OR || op == NB_XOR)
      return combine(op == NB_AND ? ScalarOp::kAnd : op == NB_OR ? ScalarOp::kOr : ScalarOp::kXor, a, b);
    throw Unsupported("arithmetic on bools of NumPy's");
  }
  if (is_grid(a) || is_grid(b)) {
    const bool powers = op == NB_POWER && is_floating(joined(a, b));
    const std::optional<ScalarOp> scalar = powers ? ScalarOp::kPow : scalar_operator(op);
    if (!scalar) throw Unsupported(str_cat("the operator ", op, " on arrays"));
    return combine(*scalar, a, b);
  }
  if (!(is_number(a) || is_whole(a)) || !(is_number(b) || is_whole(b))) throw Unsupported("an operator on objects");
  const DType common = joined(a, b);
  const DType dtype = op == NB_TRUE_DIVIDE && is_integral(common) ? DType::kFloat64 : common;
  if (is_loose_int(a) && is_loose_int(b) && op != NB_TRUE_DIVIDE) {
    const IntRange range = is_whole(b) ? std::get<Whole>(b).range : IntRange{INT64_MIN, INT64_MAX};
    const ScalarId x = as_number(a, dtype).id;
    const ScalarId result = python_int(*builder_, op, x, as_number(b, dtype).id, range);
    if (is_python_int(a) && is_python_int(b)) return Number{result, dtype, Strength::kWeak};
    return Number{result, dtype, Strength::kEither, -1, {}, joined_tag(a, b, dtype, false)};
  }
  const Number x = as_number(a, dtype);
  const Value result = number_binary(op, x, as_number(b, dtype));
  const auto* either = std::get_if<Number>(&result);
  if (either == nullptr || either->strength != Strength::kEither) return result;
  if (dtype == DType::kFloat64)
    return Number{either->id, dtype, Strength::kEither, -1, {}, joined_tag(a, b, dtype, op == NB_TRUE_DIVIDE)};
  if (!(is_pair(a) || is_pair(b))) return result;
  // Whatever the other one is, the result is complex.
  return Number{either->id, dtype, Strength::kWeak};
}

/// Of ints that are expressions; nullopt: the result is none, and has to be computed when the loop runs.
std::optional<Value> LoopOperations::whole_binary(int op, const Whole& a, const Whole& b) {
  ExprContext& ctx = builder_->ctx();
  const auto bounded = [](Whole result) -> std::optional<Value> {
    if (result.range.lo < -kMostWhole || result.range.hi > kMostWhole) return std::nullopt;
    return result;
  };
  switch (op) {
    case NB_ADD: return bounded({ctx.add(a.value, b.value), {a.range.lo + b.range.lo, a.range.hi + b.range.hi}});
    case NB_SUBTRACT: return bounded({ctx.sub(a.value, b.value), {a.range.lo - b.range.hi, a.range.hi - b.range.lo}});
    case NB_MULTIPLY: {
      const Expr product = ctx.mul(a.value, b.value);
      return bounded({product, range_of(product)});
    }
    case NB_FLOOR_DIVIDE:
    case NB_REMAINDER: {
      if (b.range.lo <= 0) return std::nullopt;
      const Expr result = op == NB_REMAINDER ? ctx.mod(a.value, b.value) : ctx.floordiv(a.value, b.value);
      return bounded({result, range_of(result)});
    }
    default: return std::nullopt;
  }
}

Value LoopOperations::number_binary(int op, const Number& a, const Number& b) {
  if (is_integral(a.dtype)) return Number{numpy_int(*builder_, op, a.id, b.id), a.dtype, Strength::kStrong};
  const Strength strength = joined_strength(a.strength, b.strength);
  // Python's way to divide is another one.
  if (is_complex(a.dtype) && strength != Strength::kStrong && op == NB_TRUE_DIVIDE)
    throw Unsupported("a division of complex numbers of Python's");
  const std::optional<ScalarOp> scalar = scalar_operator(op);
  if (!scalar) throw Unsupported(str_cat("the operator ", op, " on floats"));
  // Python raises for a division by zero, NumPy warns.
  if (op == NB_TRUE_DIVIDE && strength != Strength::kStrong)
    builder_->stop_if(builder_->emit(ScalarOp::kEq, DType::kBool, {b.id, builder_->number(0, b.dtype)}));
  return Number{builder_->emit(*scalar, a.dtype, {a.id, b.id}), a.dtype, strength};
}

Value LoopOperations::negative(const Value& value) {
  if (const auto* whole = std::get_if<Whole>(&value))
    return Whole{builder_->ctx().neg(whole->value), {-whole->range.hi, -whole->range.lo}};
  if (is_python_int(value)) return binary(NB_SUBTRACT, Whole{builder_->constant(0), {0, 0}}, value);
  return apply_unary(ScalarOp::kNeg, value, true);
}

Value LoopOperations::inverted(const Value& value) {
  if (is_mask(value)) {
    auto result = std::make_shared<Grid>(*std::get<GridRef>(value));
    result->view.reset();
    result->recipe.clear();
    result->at = [this, of = std::get<GridRef>(value)](const std::vector<Expr>& at) {
      return builder_->emit(ScalarOp::kNot, DType::kBool, {of->at(at)});
    };
    return result;
  }
  const bool whole = is_whole(value);
  const auto* number = std::get_if<Number>(&value);
  if (!whole && (number == nullptr || !is_integral(number->dtype))) throw Unsupported("~ of a value that is no int");
  const Number x = whole ? as_number(value, DType::kInt64) : *number;
  return Number{builder_->emit(ScalarOp::kNot, x.dtype, {x.id}), x.dtype, x.strength};
}

/// In this type: an int, or a number of a type that joins to it.
Number LoopOperations::as_number(const Value& value, DType dtype) {
  const bool is_unsigned = is_integral(dtype) && !is_signed(dtype);
  const int bits = 8 * dtype_size(dtype) - (is_unsigned ? 0 : 1);
  if (const auto* whole = std::get_if<Whole>(&value)) {
    if (whole->range.lo < -kMostWhole || whole->range.hi > kMostWhole) throw Unsupported("an int that may be large");
    const int64_t most = bits >= 63 ? kMostWhole : (int64_t{1} << bits) - 1;
    if (is_integral(dtype) && (whole->range.lo < (is_unsigned ? 0 : -most) || whole->range.hi > most))
      throw Unsupported("an int that may not fit into the type of an array");
    const ScalarId number = builder_->index(whole->value, is_complex(dtype) ? real_dtype(dtype) : dtype);
    return {builder_->cast(number, dtype), dtype, Strength::kWeak};
  }
  const auto* number = std::get_if<Number>(&value);
  if (number == nullptr) throw Unsupported("a value that is no number");
  if (!is_loose_int(value) || dtype == number->dtype) {
    const ScalarId tag = dtype == number->dtype ? number->tag : loops::kNoScalar;
    return {builder_->cast(number->id, dtype), dtype, number->strength, -1, {}, tag};
  }
  if (!is_integral(dtype)) {
    // Floats take ints that they have exactly.
    stop_beyond(*builder_, number->id, dtype == DType::kFloat32 || dtype == DType::kComplex64 ? 24 : 52);
    return {builder_->cast(number->id, dtype), dtype, number->strength};
  }
  if (bits >= 63) throw Unsupported("an int of Python's with an unsigned one");
  const ScalarId narrow = builder_->cast(number->id, dtype);
  const ScalarId again = builder_->cast(narrow, DType::kInt64);
  builder_->stop_if(builder_->emit(ScalarOp::kNe, DType::kBool, {again, number->id}));
  return {narrow, dtype, number->strength};
}

/// An int as an expression: one that is not known stops the kernel where it is beyond 2^40.
Whole LoopOperations::as_whole(const Value& value) {
  if (const auto* whole = std::get_if<Whole>(&value)) return *whole;
  const auto* number = std::get_if<Number>(&value);
  if (number == nullptr || !is_integral(number->dtype) || number->dtype == DType::kUInt64)
    throw Unsupported("a value that is no int");
  constexpr int64_t kFar = int64_t{1} << 40;
  const ScalarId wide = builder_->cast(number->id, DType::kInt64);
  const ScalarId far = builder_->index(builder_->constant(kFar), DType::kInt64);
  const Expr symbol = builder_->checked(builder_->emit(ScalarOp::kAdd, DType::kInt64, {wide, far}),
                                        builder_->constant(2 * kFar), false);
  return {builder_->ctx().sub(symbol, builder_->constant(kFar)), {-kFar, kFar - 1}};
}

/// An int becomes a number of this type.
GridRef LoopOperations::as_grid(const Value& value, DType dtype) {
  if (const auto* grid = std::get_if<GridRef>(&value)) return *grid;
  const auto* given = std::get_if<Number>(&value);
  const Number number = as_number(value, given != nullptr && !is_loose_int(value) ? given->dtype : dtype);
  auto grid = std::make_shared<Grid>();
  grid->dtype = number.dtype;
  grid->at = [id = number.id](const std::vector<Expr>&) { return id; };
  return grid;
}

std::vector<Expr> LoopOperations::joined_extents(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  std::vector<Expr> joint = a.size() >= b.size() ? a : b;
  const std::vector<Expr>& other = a.size() >= b.size() ? b : a;
  for (size_t d = 0; d < other.size(); ++d) {
    Expr& mine = joint[joint.size() - other.size() + d];
    if (mine == other[d] || other[d].is_const(1)) continue;
    if (!mine.is_const(1)) throw Unsupported("arrays of sizes that are not known to be equal");
    mine = other[d];
  }
  return joint;
}

/// The element at a place of an array that the grid joins to.
ScalarId LoopOperations::element_of(const GridRef& grid, const std::vector<Expr>& at, DType dtype) {
  std::vector<Expr> own(at.end() - static_cast<std::ptrdiff_t>(grid->extents.size()), at.end());
  for (size_t d = 0; d < own.size(); ++d) {
    if (grid->extents[d].is_const(1)) own[d] = builder_->constant(0);
  }
  return builder_->cast(grid->at(own), dtype);
}

GridRef LoopOperations::combine(ScalarOp op, const Value& a, const Value& b, std::optional<DType> gives) {
  const DType common = is_mask(a) && is_mask(b) ? DType::kBool : joined(a, b);
  const DType dtype = op == ScalarOp::kDiv && is_integral(common) ? DType::kFloat64 : common;
  if (is_complex(dtype) && (op == ScalarOp::kMin || op == ScalarOp::kMax))
    throw Unsupported("an order of complex numbers");
  GridRef x = as_grid(a, dtype), y = as_grid(b, dtype);
  auto result = std::make_shared<Grid>();
  result->dtype = gives.value_or(dtype);
  result->extents = joined_extents(x->extents, y->extents);
  for (GridRef* each : {&x, &y}) {
    if ((*each)->costly && (*each)->extents != result->extents) *each = materialise(*each);
    result->reads.insert(result->reads.end(), (*each)->reads.begin(), (*each)->reads.end());
    result->costly = result->costly || (*each)->costly || loops::is_elementary_function(op);
  }
  result->at = [this, op, dtype, gives = result->dtype, x, y](const std::vector<Expr>& at) {
    const ScalarId left = element_of(x, at, dtype);
    return emit_function(op, gives, {left, element_of(y, at, dtype)});
  };
  return result;
}

/// The operator on these scalars. Kernels' own functions raise no flags where the result is NaN or infinite and no operand
/// is: there the kernel stops, for NumPy warns.
ScalarId LoopOperations::emit_function(ScalarOp op, DType dtype, std::vector<ScalarId> operands) {
  const ScalarId result = builder_->emit(op, dtype, operands);
  const bool silent = loops::is_elementary_function(op) && op != ScalarOp::kExp && op != ScalarOp::kTanh;
  if (!silent || !is_floating(dtype)) return result;
  const ScalarId infinity = builder_->number(std::numeric_limits<double>::infinity(), dtype);
  const auto both = [&](ScalarOp of, ScalarId x, ScalarId y) { return builder_->emit(of, DType::kBool, {x, y}); };
  const auto is_finite = [&](ScalarId x) {
    return both(ScalarOp::kLt, builder_->emit(ScalarOp::kAbs, dtype, {x}), infinity);
  };
  ScalarId invalid = both(ScalarOp::kNe, result, result);
  ScalarId infinite = builder_->emit(ScalarOp::kNot, DType::kBool, {is_finite(result)});
  for (const ScalarId x : operands) {
    invalid = both(ScalarOp::kAnd, invalid, both(ScalarOp::kEq, x, x));
    infinite = both(ScalarOp::kAnd, infinite, is_finite(x));
  }
  const ScalarId faulty = both(ScalarOp::kOr, invalid, infinite);
  builder_->stop_if(faulty);
  return result;
}

Value LoopOperations::apply_unary(ScalarOp op, const Value& value, bool python) {
  if (is_masked(value)) {
    const Whole zero{builder_->constant(0), {0, 0}};
    return with_mask(value, zero, [&](const Value& x, const Value&) { return apply_unary(op, x, python); });
  }
  if (const auto* grid = std::get_if<GridRef>(&value)) {
    const bool real = !is_complex((*grid)->dtype);
    const bool size_of_pair = !real && op == ScalarOp::kAbs;
    if ((*grid)->dtype == DType::kBool) throw Unsupported("a function of bools");
    if (!size_of_pair && !is_floating((*grid)->dtype) && op != ScalarOp::kNeg && !(op == ScalarOp::kAbs && real))
      throw Unsupported("a function of ints, which gives floats");
    auto result = std::make_shared<Grid>(**grid);
    result->view.reset();
    result->costly = result->costly || size_of_pair || loops::is_elementary_function(op);
    if (size_of_pair) result->dtype = real_dtype(result->dtype);
    result->at = [this, op, dtype = result->dtype, of = *grid](const std::vector<Expr>& at) {
      return emit_function(op, dtype, {of->at(at)});
    };
    return result;
  }
  DType dtype = joined(value, value);
  if (is_python_int(value)) {
    if (op == ScalarOp::kAbs && python) {
      const Number x = as_number(value, dtype);
      const ScalarId zero = builder_->index(builder_->constant(0), dtype);
      const ScalarId opposite = python_int(*builder_, NB_SUBTRACT, zero, x.id, {INT64_MIN, INT64_MAX});
      const ScalarId below = builder_->emit(ScalarOp::kLt, DType::kBool, {x.id, zero});
      return Number{builder_->emit(ScalarOp::kSelect, dtype, {below, opposite, x.id}), dtype, Strength::kWeak};
    }
    if (!loops::is_elementary_function(op) && op != ScalarOp::kSqrt) throw Unsupported("a function of an int");
    dtype = DType::kFloat64;
  }
  const Number x = as_number(value, dtype);
  if (is_complex(dtype) && (op == ScalarOp::kAbs || op == ScalarOp::kNeg) && x.strength != Strength::kEither) {
    const DType result = op == ScalarOp::kAbs ? real_dtype(dtype) : dtype;
    return Number{builder_->emit(op, result, {x.id}), result, python ? x.strength : Strength::kStrong};
  }
  if (!is_floating(dtype)) throw Unsupported("a function of an int of NumPy's");
  // What gives ints for ints has another type for 0 than for 0.0.
  const bool gives_floats = loops::is_elementary_function(op) || op == ScalarOp::kSqrt;
  if (!python && !gives_floats && x.strength == Strength::kEither) throw Unsupported("a float of an unknown type");
  return Number{emit_function(op, dtype, {x.id}), dtype, python ? x.strength : Strength::kStrong};
}

Value LoopOperations::apply_binary(ScalarOp op, const Value& a, const Value& b) {
  if (is_masked(a) || is_masked(b))
    return with_mask(a, b, [this, op](const Value& x, const Value& y) { return apply_binary(op, x, y); });
  if (is_mask(a) && is_mask(b)) throw Unsupported("arithmetic on bools of NumPy's");
  if (is_grid(a) || is_grid(b)) return combine(op, a, b);
  if (is_python_int(a) && is_python_int(b)) throw Unsupported("a function of NumPy of ints");
  const DType dtype = joined(a, b);
  if (!is_floating(dtype)) throw Unsupported("a function of NumPy of ints or complex numbers");
  const Number x = as_number(a, dtype), y = as_number(b, dtype);
  return Number{emit_function(op, dtype, {x.id, y.id}), dtype, Strength::kStrong};
}

/// Python's max(a, b) or min(a, b): the first of equal ones.
Value LoopOperations::extremum(bool largest, const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) {
    const Whole x = std::get<Whole>(a), y = std::get<Whole>(b);
    ExprContext& ctx = builder_->ctx();
    if (largest)
      return Whole{ctx.max(x.value, y.value), {std::max(x.range.lo, y.range.lo), std::max(x.range.hi, y.range.hi)}};
    return Whole{ctx.min(x.value, y.value), {std::min(x.range.lo, y.range.lo), std::min(x.range.hi, y.range.hi)}};
  }
  const bool ints = is_python_int(a) && is_python_int(b);
  if (!(is_number(a) || is_whole(a)) || !(is_number(b) || is_whole(b)))
    throw Unsupported("max or min of other values than floats or ints");
  const auto kind = [](const Value& v) {
    const auto* number = std::get_if<Number>(&v);
    return number != nullptr ? std::pair(number->dtype, number->strength) : std::pair(DType::kInt64, Strength::kWeak);
  };
  if (kind(a) != kind(b) || kind(a).second == Strength::kEither) return mixed_extremum(largest, a, b);
  const Number x = ints ? as_number(a, DType::kInt64) : std::get<Number>(a);
  const Number y = ints ? as_number(b, DType::kInt64) : std::get<Number>(b);
  if (is_complex(x.dtype)) throw Unsupported("an order of complex numbers");
  const ScalarId better = builder_->emit(largest ? ScalarOp::kGt : ScalarOp::kLt, DType::kBool, {y.id, x.id});
  return Number{builder_->emit(ScalarOp::kSelect, x.dtype, {better, y.id, x.id}), x.dtype, x.strength};
}

Value LoopOperations::dot(const Value& a, const Value& b) {
  if (!is_grid(a) || !is_grid(b)) throw Unsupported("a product of a number and an array");
  const GridRef x = std::get<GridRef>(a), y = std::get<GridRef>(b);
  if (x->extents.size() != 1 || y->extents.size() != 1) return matrix_product(x, y);
  if (x->extents[0] != y->extents[0]) throw Unsupported("arrays of sizes that are not known to be equal");
  const DType dtype = joined_types(x->dtype, y->dtype);
  const Expr variable = builder_->new_variable(x->extents[0]);
  const ScalarId sum = builder_->sum(variable, x->extents[0], LoopKind::kVector, dtype, [&] {
    const ScalarId left = builder_->cast(x->at({variable}), dtype);
    return builder_->emit(ScalarOp::kMul, dtype, {left, builder_->cast(y->at({variable}), dtype)});
  });
  return Number{sum, dtype, Strength::kStrong};
}

Value LoopOperations::matrix_product(const GridRef& a, const GridRef& b) {
  const size_t rows = a->extents.size(), columns = b->extents.size();
  if (rows == 0 || columns == 0 || rows > 2 || columns > 2) throw Unsupported("a product of stacks of matrices");
  const GridRef x = a->view ? a : materialise(a), y = b->view ? b : materialise(b);
  const Expr length = x->extents.back();
  if (length != y->extents[0]) throw Unsupported("arrays of sizes that are not known to be equal");
  auto result = std::make_shared<Grid>();
  result->dtype = joined_types(x->dtype, y->dtype);
  if (rows == 2) result->extents.push_back(x->extents[0]);
  if (columns == 2) result->extents.push_back(y->extents[1]);
  for (const GridRef& each : {x, y}) {
    for (const Read& read : each->reads) result->reads.push_back({read.view, false});
  }
  result->costly = true;
  result->at = [this, x, y, rows, columns, length, dtype = result->dtype](const std::vector<Expr>& at) {
    const LoopKind kind = builder_->in_vector_loop() ? LoopKind::kSerial : LoopKind::kVector;
    const Expr k = builder_->new_variable(length);
    return builder_->sum(k, length, kind, dtype, [&] {
      const ScalarId left = builder_->cast(x->at(rows == 2 ? std::vector{at[0], k} : std::vector{k}), dtype);
      const ScalarId right = builder_->cast(y->at(columns == 2 ? std::vector{k, at.back()} : std::vector{k}), dtype);
      return builder_->emit(ScalarOp::kMul, dtype, {left, right});
    });
  };
  if (is_in_order(*result)) return result;
  // Its own layout is not the operands'.
  auto made = std::make_shared<Grid>(*materialise(result));
  made->in_rows = true;
  return made;
}

Value LoopOperations::outer(ScalarOp op, const Value& a, const Value& b) {
  if (!is_grid(a) || !is_grid(b)) throw Unsupported("an outer function of numbers");
  GridRef x = std::get<GridRef>(a), y = std::get<GridRef>(b);
  if (x->extents.size() != 1 || y->extents.size() != 1) throw Unsupported("an outer function of matrices");
  for (GridRef* each : {&x, &y}) {
    if ((*each)->costly) *each = materialise(*each);
  }
  auto result = std::make_shared<Grid>();
  const DType dtype = result->dtype = joined_types(x->dtype, y->dtype);
  result->extents = {x->extents[0], y->extents[0]};
  for (const GridRef& each : {x, y}) {
    for (const Read& read : each->reads) result->reads.push_back({read.view, false});
  }
  result->at = [this, op, dtype, x, y](const std::vector<Expr>& at) {
    const ScalarId left = builder_->cast(x->at({at[0]}), dtype);
    return builder_->emit(op, dtype, {left, builder_->cast(y->at({at[1]}), dtype)});
  };
  return result;
}

GridRef LoopOperations::reversed(const GridRef& grid) {
  const GridRef source = grid->view ? grid : materialise(grid);
  View view = *source->view;
  for (size_t d = 0; d < view.extents.size(); ++d) {
    ExprContext& ctx = builder_->ctx();
    view.offset = ctx.add(view.offset, ctx.mul(ctx.sub(view.extents[d], ctx.constant(1)), view.strides[d]));
    view.strides[d] = ctx.neg(view.strides[d]);
  }
  return view_grid(std::move(view));
}

}  // namespace tatara::capture::native
