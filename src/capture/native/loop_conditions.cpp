// Comparisons and truth values of a loop's code.
#include <array>
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr std::array<ScalarOp, 6> kComparisons = {ScalarOp::kLt, ScalarOp::kLe, ScalarOp::kEq,
                                                  ScalarOp::kNe, ScalarOp::kGt, ScalarOp::kGe};  // by Py_LT ... Py_GE

/// What the ranges of two ints say about `a op b`.
std::optional<bool> known_comparison(int op, const IntRange& a, const IntRange& b) {
  const bool below = a.hi<b.lo, above = a.lo> b.hi;
  const bool equal = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
  switch (op) {
    case Py_LT: return below ? std::optional(true) : a.lo >= b.hi ? std::optional(false) : std::nullopt;
    case Py_GE: return below ? std::optional(false) : a.lo >= b.hi ? std::optional(true) : std::nullopt;
    case Py_GT: return above ? std::optional(true) : a.hi <= b.lo ? std::optional(false) : std::nullopt;
    case Py_LE: return above ? std::optional(false) : a.hi <= b.lo ? std::optional(true) : std::nullopt;
    case Py_EQ: return equal ? std::optional(true) : below || above ? std::optional(false) : std::nullopt;
    case Py_NE: return equal ? std::optional(false) : below || above ? std::optional(true) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

Condition LoopOperations::compare(int op, const Value& a, const Value& b) {
  // Bools compare as the ints that they are.
  for (const Value* each : {&a, &b}) {
    const auto* condition = std::get_if<Condition>(each);
    if (condition == nullptr) continue;
    const Value number = as_int({condition->known, condition->id});
    Condition result = each == &a ? compare(op, number, b) : compare(op, a, number);
    result.strength = joined_strength(result.strength, condition->strength);
    return result;
  }
  const auto* x = std::get_if<Whole>(&a);
  const auto* y = std::get_if<Whole>(&b);
  const ScalarOp scalar = kComparisons.at(static_cast<size_t>(op));
  if (x != nullptr && y != nullptr) {
    if (const std::optional<bool> known = known_comparison(op, x->range, y->range)) return {known};
    const ScalarId left = builder_->index(x->value, DType::kInt64);
    return {std::nullopt, builder_->emit(scalar, DType::kBool, {left, builder_->index(y->value, DType::kInt64)})};
  }
  const auto* left_number = std::get_if<Number>(&a);
  const auto* right_number = std::get_if<Number>(&b);
  if ((x == nullptr && left_number == nullptr) || (y == nullptr && right_number == nullptr))
    throw Unsupported("a comparison of arrays or objects");
  DType dtype = joined(a, b);
  if (is_complex(dtype)) throw Unsupported("a comparison of complex numbers");
  const auto strength = [](const Number* n) { return n != nullptr ? n->strength : Strength::kWeak; };
  const Strength both = joined_strength(strength(left_number), strength(right_number));
  // NumPy compares ints of its own with any int.
  if (is_integral(dtype) && (is_python_int(a) || is_python_int(b))) {
    if (dtype == DType::kUInt64) throw Unsupported("an int of Python's with an unsigned one");
    dtype = DType::kInt64;
  }
  const Number left = as_number(a, dtype);
  return {std::nullopt, builder_->emit(scalar, DType::kBool, {left.id, as_number(b, dtype).id}), both};
}

Condition LoopOperations::opposite(const Condition& condition) {
  if (condition.known) return {!*condition.known};
  return {std::nullopt, builder_->emit(ScalarOp::kNot, DType::kBool, {condition.id})};
}

Condition LoopOperations::truth(const Value& value) {
  if (const auto* condition = std::get_if<Condition>(&value)) return *condition;
  if (const auto* whole = std::get_if<Whole>(&value))
    return compare(Py_NE, *whole, Whole{builder_->constant(0), {0, 0}});
  const auto* number = std::get_if<Number>(&value);
  if (number == nullptr || is_complex(number->dtype)) throw Unsupported("the truth of a value");
  const ScalarId zero = is_integral(number->dtype) ? builder_->index(builder_->constant(0), number->dtype)
                                                   : builder_->number(0, number->dtype);
  return {std::nullopt, builder_->emit(ScalarOp::kNe, DType::kBool, {number->id, zero})};
}

}  // namespace tatara::capture::native
