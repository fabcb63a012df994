#include "capture/native/loop_ints.h"

#include <opcode.h>

#include <algorithm>
#include <limits>

#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {

constexpr DType kWide = DType::kInt64;

ScalarId int_op(LoopBuilder& b, ScalarOp op, ScalarId x, ScalarId y) { return b.emit(op, b.dtype(x), {x, y}); }
ScalarId test(LoopBuilder& b, ScalarOp op, ScalarId x, ScalarId y) { return b.emit(op, DType::kBool, {x, y}); }
ScalarId int_constant(LoopBuilder& b, int64_t value, DType dtype = kWide) { return b.index(b.constant(value), dtype); }

bool may_be(const IntRange& range, int64_t value) { return range.lo <= value && value <= range.hi; }

void stop_at(LoopBuilder& b, ScalarId x, int64_t value) {
  b.stop_if(test(b, ScalarOp::kEq, x, int_constant(b, value, b.dtype(x))));
}

/// The shift stays below the bits that there are.
void check_shift(LoopBuilder& b, ScalarId by, const IntRange& range, int bits) {
  if (range.lo < 0) b.stop_if(test(b, ScalarOp::kLt, by, int_constant(b, 0, b.dtype(by))));
  if (range.hi >= bits) b.stop_if(test(b, ScalarOp::kGe, by, int_constant(b, bits, b.dtype(by))));
}

ScalarId wide_sum(LoopBuilder& b, bool minus, ScalarId x, ScalarId y) {
  const ScalarId sum = int_op(b, minus ? ScalarOp::kSub : ScalarOp::kAdd, x, y);
  // It has left 64 bits where its sign differs from both (a sum), or from the first one while theirs differ (a difference).
  const ScalarId first = int_op(b, ScalarOp::kXor, x, minus ? y : sum);
  const ScalarId second = int_op(b, ScalarOp::kXor, minus ? x : y, sum);
  const ScalarId both = int_op(b, ScalarOp::kAnd, first, second);
  b.stop_if(test(b, ScalarOp::kLt, both, int_constant(b, 0)));
  return sum;
}

ScalarId wide_product(LoopBuilder& b, ScalarId x, ScalarId y) {
  // As floats the product is known well enough: what may be beyond 2^62 stops.
  const DType dtype = DType::kFloat64;
  const ScalarId about = b.emit(ScalarOp::kMul, dtype, {b.cast(x, dtype), b.cast(y, dtype)});
  const ScalarId size = b.emit(ScalarOp::kAbs, dtype, {about});
  b.stop_if(test(b, ScalarOp::kGe, size, b.number(0x1p62, dtype)));
  return int_op(b, ScalarOp::kMul, x, y);
}

ScalarId divided(LoopBuilder& b, int op, ScalarId x, ScalarId y, const IntRange& range) {
  if (may_be(range, 0)) stop_at(b, y, 0);
  if (may_be(range, -1) && is_signed(b.dtype(x))) {
    // The least int by -1 leaves the type.
    const int64_t least = std::numeric_limits<int64_t>::min() >> (64 - 8 * dtype_size(b.dtype(x)));
    const ScalarId at_least = test(b, ScalarOp::kEq, x, int_constant(b, least, b.dtype(x)));
    const ScalarId by_minus = test(b, ScalarOp::kEq, y, int_constant(b, -1, b.dtype(y)));
    b.stop_if(b.emit(ScalarOp::kAnd, DType::kBool, {at_least, by_minus}));
  }
  return int_op(b, op == NB_REMAINDER ? ScalarOp::kMod : ScalarOp::kFloorDiv, x, y);
}

std::optional<ScalarOp> bit_operator(int op) {
  switch (op) {
    case NB_AND: return ScalarOp::kAnd;
    case NB_OR: return ScalarOp::kOr;
    case NB_XOR: return ScalarOp::kXor;
    default: return std::nullopt;
  }
}

constexpr IntRange kAnyInt{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};

}  // namespace

std::optional<ScalarOp> scalar_operator(int op) {
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

bool is_python_int(const Value& value) {
  const auto* number = std::get_if<Number>(&value);
  return std::holds_alternative<Whole>(value) ||
         (number != nullptr && number->dtype == kWide && number->strength == Strength::kWeak);
}

bool is_loose_int(const Value& value) {
  const auto* number = std::get_if<Number>(&value);
  return is_python_int(value) || (number != nullptr && number->dtype == kWide && number->strength == Strength::kEither);
}

DType joined_types(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool || b == DType::kBool) throw Unsupported("bools and numbers");
  if (is_complex(a) || is_complex(b)) {
    const bool narrow = real_dtype(a) == DType::kFloat32 && real_dtype(b) == DType::kFloat32;
    return narrow ? DType::kComplex64 : DType::kComplex128;
  }
  if (is_floating(a) && is_floating(b)) return DType::kFloat64;
  if (is_integral(a) && is_integral(b)) {
    const DType wider = dtype_size(a) >= dtype_size(b) ? a : b, other = wider == a ? b : a;
    if (is_signed(a) == is_signed(b)) return wider;
    if (is_signed(wider) && dtype_size(wider) > dtype_size(other)) return wider;
    throw Unsupported("ints of two types");
  }
  if (a != DType::kFloat64 && b != DType::kFloat64) throw Unsupported("an int and a float of another size");
  return DType::kFloat64;
}

DType joined(const Value& a, const Value& b) {
  std::optional<DType> strong;
  bool either = false, either_int = false, floats = false, pairs = false;
  for (const Value* each : {&a, &b}) {
    const auto* number = std::get_if<Number>(each);
    const auto* grid = std::get_if<GridRef>(each);
    if (number != nullptr && number->strength == Strength::kEither)
      (is_integral(number->dtype) ? either_int : either) = true;
    const bool weak = number != nullptr && number->strength != Strength::kStrong;
    floats = floats || (weak && is_floating(number->dtype));
    pairs = pairs || (weak && is_complex(number->dtype));
    if (grid == nullptr && (number == nullptr || number->strength != Strength::kStrong)) continue;
    const DType own = grid != nullptr ? (*grid)->dtype : number->dtype;
    strong = strong ? joined_types(*strong, own) : own;
  }
  if (either && strong && strong != DType::kFloat64) throw Unsupported("a float of an unknown type with another type");
  if (either_int && strong && strong != DType::kFloat64 && strong != kWide)
    throw Unsupported("an int of an unknown type with another type");
  if (strong == DType::kBool) throw Unsupported("arithmetic on bools of NumPy's");
  if (pairs) {
    if (!strong) return DType::kComplex128;
    return joined_types(*strong, *strong == DType::kFloat32 ? DType::kComplex64 : DType::kComplex128);
  }
  if (!strong) return floats ? DType::kFloat64 : kWide;
  return floats && is_integral(*strong) ? DType::kFloat64 : *strong;
}

ScalarId python_int(LoopBuilder& b, int op, ScalarId x, ScalarId y, const IntRange& range) {
  if (const std::optional<ScalarOp> bits = bit_operator(op)) return int_op(b, *bits, x, y);
  switch (op) {
    case NB_ADD: return wide_sum(b, false, x, y);
    case NB_SUBTRACT: return wide_sum(b, true, x, y);
    case NB_MULTIPLY: return wide_product(b, x, y);
    case NB_FLOOR_DIVIDE:
    case NB_REMAINDER: return divided(b, op, x, y, range);
    case NB_RSHIFT: check_shift(b, y, range, 64); return int_op(b, ScalarOp::kShr, x, y);
    case NB_LSHIFT: {
      check_shift(b, y, range, 63);
      const ScalarId shifted = int_op(b, ScalarOp::kShl, x, y);
      b.stop_if(test(b, ScalarOp::kNe, int_op(b, ScalarOp::kShr, shifted, y), x));
      return shifted;
    }
    default: throw Unsupported(str_cat("the operator ", op, " on ints"));
  }
}

ScalarId numpy_int(LoopBuilder& b, int op, ScalarId x, ScalarId y) {
  const DType dtype = b.dtype(x);
  const int bits = 8 * dtype_size(dtype);
  if (const std::optional<ScalarOp> bitwise = bit_operator(op)) return int_op(b, *bitwise, x, y);
  if (op == NB_FLOOR_DIVIDE || op == NB_REMAINDER) return divided(b, op, x, y, kAnyInt);
  if (op == NB_LSHIFT || op == NB_RSHIFT) {
    check_shift(b, y, kAnyInt, bits);
    return int_op(b, op == NB_LSHIFT ? ScalarOp::kShl : ScalarOp::kShr, x, y);
  }
  if (!scalar_operator(op) || op == NB_TRUE_DIVIDE)
    throw Unsupported(str_cat("the operator ", op, " on ints of NumPy's"));
  if (dtype == kWide) return python_int(b, op, x, y, kAnyInt);
  if (bits == 64) throw Unsupported("arithmetic on unsigned 64-bit ints of NumPy's");
  // NumPy warns where an int of its own leaves its type.
  const ScalarId result = int_op(b, *scalar_operator(op), b.cast(x, kWide), b.cast(y, kWide));
  const ScalarId narrow = b.cast(result, dtype);
  b.stop_if(test(b, ScalarOp::kNe, b.cast(narrow, kWide), result));
  return narrow;
}

void stop_beyond(LoopBuilder& b, ScalarId value, int bits) {
  const int64_t most = int64_t{1} << bits;
  const ScalarId below = test(b, ScalarOp::kLt, value, int_constant(b, -most));
  const ScalarId above = test(b, ScalarOp::kGt, value, int_constant(b, most));
  b.stop_if(b.emit(ScalarOp::kOr, DType::kBool, {below, above}));
}

ScalarId truncated(LoopBuilder& b, ScalarId value) {
  const DType dtype = b.dtype(value);
  const ScalarId size = b.emit(ScalarOp::kAbs, dtype, {value});
  // So NaN stops, too.
  b.stop_if(b.emit(ScalarOp::kNot, DType::kBool, {test(b, ScalarOp::kLt, size, b.number(0x1p62, dtype))}));
  return b.cast(value, kWide);
}

}  // namespace tatara::capture::native
