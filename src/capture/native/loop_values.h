// What the code of a loop works on while it is read: values whose types are known, and whose contents are the kernel's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "capture/native/loop_builder.h"
#include "capture/python/py.h"

namespace tatara::capture::native {

/// An int of Python's: an expression of constants and loop variables, and what it is within.
struct Whole {
  Expr value;
  IntRange range;
};

/// Beside the values of NumberTag: an int of Python's that was computed as a float, and may not be exact.
constexpr int64_t kInexactWhole = 8;

/// Of a number: Python's, which takes the type of what it meets; NumPy's, which has one; or one of them, as the run decides.
enum class Strength : uint8_t { kWeak, kStrong, kEither };

struct Number {
  ScalarId id;
  DType dtype = DType::kFloat64;
  Strength strength = Strength::kStrong;
  // Of an int: the element of the buffer that it was read from; -1: of none.
  int array = -1;
  Expr place = {};
  // Of kEither, an int or a float64: which one it is, as a NumberTag (of an int kFloat says Python's, kFloat64 NumPy's).
  // kNoScalar: it is not told.
  ScalarId tag = loops::kNoScalar;
};

/// A bool: what is known already, or a scalar.
struct Condition {
  std::optional<bool> known;
  ScalarId id = loops::kNoScalar;
  Strength strength = Strength::kWeak;
};

/// Memory of an array, or a view of it: element i lies at offset + sum of i[d] * strides[d].
struct View {
  int array = -1;  // the buffer
  Expr offset;
  std::vector<Expr> extents, strides;
  friend bool operator==(const View&, const View&) = default;
};

/// Memory that an element is computed from: the element of the view at the same place alone, or any.
struct Read {
  View view;
  bool same_place = true;
};

/// An array: a view, or elements that are computed where they are wanted.
struct Grid {
  DType dtype = DType::kFloat64;
  std::vector<Expr> extents;
  std::function<ScalarId(const std::vector<Expr>&)> at;
  std::vector<Read> reads;
  std::optional<View> view;
  bool in_rows = false;  // a new array without a name, which NumPy lays out row by row
  bool costly = false;   // an element is more than a few operations
  std::string recipe;    // of a mask: those made alike are equal, until what they are made of is written
};

struct Sequence;
struct Slice;
struct Range {
  Whole from, to, step;  // the step is above or below zero
};
struct Iteration;
struct Nothing {};  // a null on the stack, or an iterator that nothing is taken from any more
using GridRef = std::shared_ptr<const Grid>;
struct Method {
  GridRef self;
  Ref ufunc;  // in place of `self`
  std::string name;
};
/// The elements of an array where a mask of its size is true.
struct Masked {
  GridRef elements, mask;
};
using Value = std::variant<Nothing, Whole, Number, GridRef, std::shared_ptr<Slice>, std::shared_ptr<Sequence>, Range,
                           std::shared_ptr<Iteration>, Method, Condition, Masked, Ref>;
struct Sequence {
  std::vector<Value> items;
  bool is_list = false;
};
/// What a loop goes over: the items of one value, or tuples of those of several ones (zip), or of a number and one (enumerate).
struct Iteration {
  std::vector<Value> parts;
  bool is_zip = false;
  std::optional<int64_t> numbered_from;
};
/// Bounds are ints, of Python's or NumPy's.
struct Slice {
  std::optional<Value> from, to;
  bool reversed = false;
};

}  // namespace tatara::capture::native
