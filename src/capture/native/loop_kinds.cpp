// Numbers of a loop's code that are Python's or NumPy's, as the run decides: `max(0.0, x[i])`.
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr auto kPythons = static_cast<int64_t>(NumberTag::kFloat);
constexpr auto kNumpys = static_cast<int64_t>(NumberTag::kFloat64);
constexpr auto kWholeTag = static_cast<int64_t>(NumberTag::kWhole);

}  // namespace

/// The tag of a number that is computed with in this type, int64 or float64; kNoScalar: it is not told.
ScalarId LoopOperations::tag_in(const Value& value, DType dtype) {
  const auto* number = std::get_if<Number>(&value);
  const bool either = number != nullptr && number->strength == Strength::kEither;
  if (either && (number->dtype == dtype || number->tag == loops::kNoScalar)) return number->tag;
  if (either) {
    // An int in a float.
    const ScalarId numpys = builder_->index(builder_->constant(kNumpys), DType::kInt64);
    const ScalarId test = builder_->emit(ScalarOp::kEq, DType::kBool, {number->tag, numpys});
    const ScalarId whole = builder_->index(builder_->constant(kWholeTag), DType::kInt64);
    return builder_->emit(ScalarOp::kSelect, DType::kInt64, {test, numpys, whole});
  }
  const bool strong = number != nullptr && number->strength == Strength::kStrong;
  const int64_t tag = strong ? kNumpys : is_python_int(value) && is_floating(dtype) ? kWholeTag : kPythons;
  return builder_->index(builder_->constant(tag), DType::kInt64);
}

/// Of what an operator gives for both: NumPy's, where one is. `divided`: ints give floats.
ScalarId LoopOperations::joined_tag(const Value& a, const Value& b, DType dtype, bool divided) {
  const ScalarId x = tag_in(a, dtype), y = tag_in(b, dtype);
  if (x == loops::kNoScalar || y == loops::kNoScalar) return loops::kNoScalar;
  const auto constant = [&](int64_t tag) { return builder_->index(builder_->constant(tag), DType::kInt64); };
  const auto both = [&](ScalarOp op, ScalarId left, ScalarId right) {
    return builder_->emit(op, DType::kBool, {left, right});
  };
  const auto chosen = [&](ScalarId test, ScalarId left, ScalarId right) {
    return builder_->emit(ScalarOp::kSelect, DType::kInt64, {test, left, right});
  };
  const ScalarId numpys =
      both(ScalarOp::kOr, both(ScalarOp::kEq, x, constant(kNumpys)), both(ScalarOp::kEq, y, constant(kNumpys)));
  ScalarId pythons = constant(kPythons);
  if (is_floating(dtype) && !divided) {
    const ScalarId wholes =
        both(ScalarOp::kAnd, both(ScalarOp::kGe, x, constant(kWholeTag)), both(ScalarOp::kGe, y, constant(kWholeTag)));
    pythons = chosen(wholes, constant(kInexactWhole), pythons);
  }
  return chosen(numpys, constant(kNumpys), pythons);
}

/// max(a, b) or min(a, b) of numbers of two kinds: the result is of the kind of the one that it is.
Value LoopOperations::mixed_extremum(bool largest, const Value& a, const Value& b) {
  const auto type = [](const Value& v) {
    const auto* number = std::get_if<Number>(&v);
    return number != nullptr ? number->dtype : DType::kInt64;
  };
  const DType dtype = type(a) == type(b) ? type(a) : DType::kFloat64;
  const auto fits = [&](const Value& v) { return type(v) == dtype || (type(v) == DType::kInt64 && is_python_int(v)); };
  if ((dtype != DType::kFloat64 && dtype != DType::kInt64) || !fits(a) || !fits(b))
    throw Unsupported("max or min of numbers of two types");
  const Number x = as_number(a, dtype), y = as_number(b, dtype);
  const ScalarId better = builder_->emit(largest ? ScalarOp::kGt : ScalarOp::kLt, DType::kBool, {y.id, x.id});
  const auto chosen = [&](DType of, ScalarId left, ScalarId right) {
    return builder_->emit(ScalarOp::kSelect, of, {better, left, right});
  };
  const ScalarId first = tag_in(a, dtype), second = tag_in(b, dtype);
  const bool told = first != loops::kNoScalar && second != loops::kNoScalar;
  const ScalarId tag = told ? chosen(DType::kInt64, second, first) : loops::kNoScalar;
  return Number{chosen(dtype, y.id, x.id), dtype, Strength::kEither, -1, {}, tag};
}

}  // namespace tatara::capture::native
