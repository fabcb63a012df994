// Arithmetic of a loop's code: numbers at once, arrays element by element where they are wanted.
#include <opcode.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "capture/native/loop_reader.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr int64_t kMostWhole = int64_t{1} << 52;

bool is_number(const Value& v) { return std::holds_alternative<Number>(v); }
bool is_grid(const Value& v) { return std::holds_alternative<GridRef>(v); }
bool is_whole(const Value& v) { return std::holds_alternative<Whole>(v); }

std::optional<ScalarOp> operator_of(int op) {
  switch (op) {
    case NB_ADD: return ScalarOp::kAdd;
    case NB_SUBTRACT: return ScalarOp::kSub;
    case NB_MULTIPLY: return ScalarOp::kMul;
    case NB_TRUE_DIVIDE: return ScalarOp::kDiv;
    default: return std::nullopt;
  }
}

Strength joined_strength(Strength a, Strength b) {
  if (a == Strength::kStrong || b == Strength::kStrong) return Strength::kStrong;
  return a == b ? a : Strength::kEither;
}

}  // namespace

Value LoopReader::binary(int op, const Value& a, const Value& b) {
  if (op == NB_MATRIX_MULTIPLY) return dot(a, b);
  const auto* power = std::get_if<Whole>(&b);
  if (op == NB_POWER && power != nullptr && power->value.is_const(2)) {
    const auto* grid = std::get_if<GridRef>(&a);
    const Value once = grid != nullptr && (*grid)->costly ? Value(materialise(*grid)) : a;
    return binary(NB_MULTIPLY, once, once);
  }
  if (is_whole(a) && is_whole(b)) return whole_binary(op, std::get<Whole>(a), std::get<Whole>(b));
  const std::optional<ScalarOp> scalar = operator_of(op);
  if (!scalar) throw Unsupported(str_cat("the operator ", op, " on floats"));
  if (is_grid(a) || is_grid(b)) return combine(*scalar, a, b);
  if (!(is_number(a) || is_whole(a)) || !(is_number(b) || is_whole(b))) throw Unsupported("an operator on objects");
  const DType dtype = *scalar == ScalarOp::kDiv && is_integral(joined(a, b)) ? DType::kFloat64 : joined(a, b);
  return number_binary(op, as_number(a, dtype), as_number(b, dtype));
}

Value LoopReader::whole_binary(int op, const Whole& a, const Whole& b) {
  ExprContext& ctx = builder_->ctx();
  const auto bounded = [](Whole result) -> Value {
    if (result.range.lo < -kMostWhole || result.range.hi > kMostWhole) throw Unsupported("an int that may be large");
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
      if (b.range.lo <= 0) throw Unsupported("a division of ints by what may be zero or below");
      const Expr result = op == NB_REMAINDER ? ctx.mod(a.value, b.value) : ctx.floordiv(a.value, b.value);
      return bounded({result, range_of(result)});
    }
    case NB_TRUE_DIVIDE: {
      const DType dtype = DType::kFloat64;
      return number_binary(op, as_number(a, dtype), as_number(b, dtype));
    }
    default: throw Unsupported(str_cat("the operator ", op, " on ints"));
  }
}

/// NumPy warns where an int of its own leaves its type.
Value LoopReader::small_int_binary(int op, const Number& a, const Number& b) {
  const DType dtype = a.dtype;
  if (dtype_size(dtype) > 4) throw Unsupported("arithmetic on 64-bit ints of NumPy's");
  const DType wide = DType::kInt64;
  const ScalarId result =
      builder_->emit(*operator_of(op), wide, {builder_->cast(a.id, wide), builder_->cast(b.id, wide)});
  const ScalarId narrow = builder_->cast(result, dtype);
  builder_->stop_if(builder_->emit(ScalarOp::kNe, DType::kBool, {builder_->cast(narrow, wide), result}));
  return Number{narrow, dtype, Strength::kStrong};
}

Value LoopReader::number_binary(int op, const Number& a, const Number& b) {
  if (is_integral(a.dtype)) return small_int_binary(op, a, b);
  const Strength strength = joined_strength(a.strength, b.strength);
  // Python raises for a division by zero, NumPy warns.
  if (op == NB_TRUE_DIVIDE && strength != Strength::kStrong)
    builder_->stop_if(builder_->emit(ScalarOp::kEq, DType::kBool, {b.id, builder_->number(0, b.dtype)}));
  return Number{builder_->emit(*operator_of(op), a.dtype, {a.id, b.id}), a.dtype, strength};
}

Value LoopReader::negative(const Value& value) {
  if (const auto* whole = std::get_if<Whole>(&value))
    return Whole{builder_->ctx().neg(whole->value), {-whole->range.hi, -whole->range.lo}};
  return apply_unary(ScalarOp::kNeg, value, true);
}

/// In this type: an int, or a number of a type that joins to it.
Number LoopReader::as_number(const Value& value, DType dtype) {
  if (const auto* whole = std::get_if<Whole>(&value)) {
    if (whole->range.lo < -kMostWhole || whole->range.hi > kMostWhole) throw Unsupported("an int that may be large");
    const int bits = 8 * dtype_size(dtype);
    const bool is_unsigned = is_integral(dtype) && !is_signed(dtype);
    const int64_t most = bits == 64 ? kMostWhole : (int64_t{1} << (is_unsigned ? bits : bits - 1)) - 1;
    if (is_integral(dtype) && (whole->range.lo < (is_unsigned ? 0 : -most) || whole->range.hi > most))
      throw Unsupported("an int that may not fit into the type of an array");
    const ScalarId number = builder_->index(whole->value, is_complex(dtype) ? real_dtype(dtype) : dtype);
    return {builder_->cast(number, dtype), dtype, Strength::kWeak};
  }
  const auto* number = std::get_if<Number>(&value);
  if (number == nullptr) throw Unsupported("a value that is no number");
  return {builder_->cast(number->id, dtype), dtype, number->strength};
}

/// An int becomes a number of this type.
GridRef LoopReader::as_grid(const Value& value, DType dtype) {
  if (const auto* grid = std::get_if<GridRef>(&value)) return *grid;
  const auto* given = std::get_if<Number>(&value);
  const Number number = as_number(value, given != nullptr ? given->dtype : dtype);
  auto grid = std::make_shared<Grid>();
  grid->dtype = number.dtype;
  grid->at = [id = number.id](const std::vector<Expr>&) { return id; };
  return grid;
}

/// The type of two that have one.
DType LoopReader::joined_types(DType a, DType b) {
  if (a == b) return a;
  if (is_complex(a) || is_complex(b)) {
    const bool narrow = real_dtype(a) == DType::kFloat32 && real_dtype(b) == DType::kFloat32;
    return narrow ? DType::kComplex64 : DType::kComplex128;
  }
  if (is_floating(a) && is_floating(b)) return DType::kFloat64;
  if (a != DType::kFloat64 && b != DType::kFloat64) throw Unsupported("ints of two types");
  return DType::kFloat64;
}

/// The type in which NumPy computes with both.
DType LoopReader::joined(const Value& a, const Value& b) const {
  std::optional<DType> strong;
  bool either = false, weak = false;
  for (const Value* each : {&a, &b}) {
    const auto* number = std::get_if<Number>(each);
    const auto* grid = std::get_if<GridRef>(each);
    either = either || (number != nullptr && number->strength == Strength::kEither);
    weak = weak || (number != nullptr && number->strength != Strength::kStrong);
    if (grid == nullptr && (number == nullptr || number->strength != Strength::kStrong)) continue;
    const DType own = grid != nullptr ? (*grid)->dtype : number->dtype;
    strong = strong ? joined_types(*strong, own) : own;
  }
  if (either && strong && strong != DType::kFloat64) throw Unsupported("a float of an unknown type with another type");
  if (weak && strong && is_integral(*strong)) return DType::kFloat64;
  return strong.value_or(DType::kFloat64);
}

std::vector<Expr> LoopReader::joined_extents(const std::vector<Expr>& a, const std::vector<Expr>& b) {
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

GridRef LoopReader::combine(ScalarOp op, const Value& a, const Value& b) {
  const DType dtype = op == ScalarOp::kDiv && is_integral(joined(a, b)) ? DType::kFloat64 : joined(a, b);
  if (is_complex(dtype) && (op == ScalarOp::kMin || op == ScalarOp::kMax))
    throw Unsupported("an order of complex numbers");
  GridRef x = as_grid(a, dtype), y = as_grid(b, dtype);
  auto result = std::make_shared<Grid>();
  result->dtype = dtype;
  result->extents = joined_extents(x->extents, y->extents);
  for (GridRef* each : {&x, &y}) {
    if ((*each)->costly && (*each)->extents != result->extents) *each = materialise(*each);
    result->reads.insert(result->reads.end(), (*each)->reads.begin(), (*each)->reads.end());
    result->costly = result->costly || (*each)->costly;
  }
  const auto element = [this, dtype](const GridRef& grid, const std::vector<Expr>& at) {
    std::vector<Expr> own(at.end() - static_cast<std::ptrdiff_t>(grid->extents.size()), at.end());
    for (size_t d = 0; d < own.size(); ++d) {
      if (grid->extents[d].is_const(1)) own[d] = builder_->constant(0);
    }
    return builder_->cast(grid->at(own), dtype);
  };
  result->at = [this, op, dtype, x, y, element](const std::vector<Expr>& at) {
    const ScalarId left = element(x, at);
    return builder_->emit(op, dtype, {left, element(y, at)});
  };
  return result;
}

Value LoopReader::apply_unary(ScalarOp op, const Value& value, bool python) {
  if (const auto* grid = std::get_if<GridRef>(&value)) {
    const bool real = !is_complex((*grid)->dtype);
    if (!is_floating((*grid)->dtype) && op != ScalarOp::kNeg && !(op == ScalarOp::kAbs && real))
      throw Unsupported("a function of ints, which gives floats");
    auto result = std::make_shared<Grid>(**grid);
    result->view.reset();
    result->costly = result->costly || loops::is_elementary_function(op);
    result->at = [this, op, of = *grid](const std::vector<Expr>& at) {
      return builder_->emit(op, of->dtype, {of->at(at)});
    };
    return result;
  }
  if (is_whole(value) && op == ScalarOp::kAbs) throw Unsupported("abs of an int");
  const DType dtype = joined(value, value);
  const Number x = as_number(value, dtype);
  if (!is_floating(dtype)) throw Unsupported("a function of an int of NumPy's");
  if (!python && x.strength == Strength::kEither) throw Unsupported("a float of an unknown type");
  return Number{builder_->emit(op, dtype, {x.id}), dtype, python ? x.strength : Strength::kStrong};
}

Value LoopReader::apply_binary(ScalarOp op, const Value& a, const Value& b) {
  if (is_grid(a) || is_grid(b)) return combine(op, a, b);
  if (is_whole(a) && is_whole(b)) throw Unsupported("a function of NumPy of ints");
  const DType dtype = joined(a, b);
  if (!is_floating(dtype)) throw Unsupported("a function of NumPy of ints or complex numbers");
  const Number x = as_number(a, dtype), y = as_number(b, dtype);
  return Number{builder_->emit(op, dtype, {x.id, y.id}), dtype, Strength::kStrong};
}

/// Python's max(a, b) or min(a, b): the first of equal ones.
Value LoopReader::extremum(bool largest, const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) {
    const Whole x = std::get<Whole>(a), y = std::get<Whole>(b);
    ExprContext& ctx = builder_->ctx();
    if (largest)
      return Whole{ctx.max(x.value, y.value), {std::max(x.range.lo, y.range.lo), std::max(x.range.hi, y.range.hi)}};
    return Whole{ctx.min(x.value, y.value), {std::min(x.range.lo, y.range.lo), std::min(x.range.hi, y.range.hi)}};
  }
  if (!is_number(a) || !is_number(b)) throw Unsupported("max or min of other values than floats or ints");
  const Number& x = std::get<Number>(a);
  const Number& y = std::get<Number>(b);
  if (is_complex(x.dtype) || x.dtype != y.dtype || x.strength != y.strength)
    throw Unsupported("max or min of floats of two types");
  const ScalarId better = builder_->emit(largest ? ScalarOp::kGt : ScalarOp::kLt, DType::kBool, {y.id, x.id});
  return Number{builder_->emit(ScalarOp::kSelect, x.dtype, {better, y.id, x.id}), x.dtype, x.strength};
}

Value LoopReader::dot(const Value& a, const Value& b) {
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

Value LoopReader::matrix_product(const GridRef& a, const GridRef& b) {
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
  return result;
}

Value LoopReader::outer(ScalarOp op, const Value& a, const Value& b) {
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

/// The sum of all elements.
Value LoopReader::total(const Value& value) {
  if (!is_grid(value)) throw Unsupported("a sum of a number");
  const GridRef grid = std::get<GridRef>(value);
  if (is_integral(grid->dtype)) throw Unsupported("a sum of ints");
  std::vector<Expr> at;
  const std::function<ScalarId()> sum_from = [&]() -> ScalarId {
    if (at.size() == grid->extents.size()) return grid->at(at);
    const Expr extent = grid->extents[at.size()];
    const Expr variable = builder_->new_variable(extent);
    const bool last = at.size() + 1 == grid->extents.size();
    at.push_back(variable);
    const ScalarId sum =
        builder_->sum(variable, extent, last ? LoopKind::kVector : LoopKind::kSerial, grid->dtype, sum_from);
    at.pop_back();
    return sum;
  };
  return Number{sum_from(), grid->dtype, Strength::kStrong};
}

GridRef LoopReader::reversed(const GridRef& grid) {
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
