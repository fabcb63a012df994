// A loop of the program as native code: what it was made for, and how it runs in place of the loop.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/host/numpy_api.h"
#include "capture/native/loop_sizes.h"
#include "capture/vm/vm.h"
#include "runtime/plan/executable.h"

namespace tatara::capture::native {

/// The object as the program sees it in this call, where it is a placeholder of a trace; null: not to be told.
Ref seen_value(PyObject* object);

/// What a local of the frame has to be. Below zero: an array that the loop goes over, from -1 on downwards.
struct LocalFact {
  /// kWhole: this int; kInt: any int of 52 bits; kScalar: a scalar of NumPy's.
  enum class Kind : uint8_t { kArray, kWhole, kInt, kBool, kFloat, kComplex, kScalar, kList, kUnbound };
  int local = 0;
  Kind kind = Kind::kUnbound;
  int64_t value = 0;  // kWhole
  DType dtype = DType::kFloat64;
  std::vector<int64_t> sizes, strides;
  std::vector<SizeTerm> terms;  // sizes of an array some of which vary: its elements lie row by row
  SizeTerm whole;               // kWhole
  int array = -1;               // its buffer; names of one array share it
  bool has_layout(const std::vector<int64_t>& now, const std::vector<int64_t>& now_strides,
                  std::span<const int64_t> values) const;
};
bool describes_dense(const LocalFact& fact);

/// A name that the code looks up, and what it found: an attribute of `module`, or a global or builtin (null).
struct NameFact {
  Ref module, name, value;
};

/// A local that the loop assigns: what it is afterwards.
struct LocalResult {
  int local = -1;
  bool number = false;  // a float or complex number; else an int or a bool
  int slot = -1;
  DType dtype = DType::kInt64;
  bool numpys = false;
  bool either = false;  // an int64: the slot's flag is a NumberTag, kFloat64 for NumPy's
};

/// A local that the loop gives a tuple of numbers; the first one says whether it has.
struct TupleResult {
  int local = -1;
  std::vector<LocalResult> items;
};

/// A place where the program may leave the loop, and how many iterators of loops within it are on the stack there.
struct LoopExit {
  int offset = 0, iterators = 0;
};

/// An array that a statement of the loop gives a local: a view of an array of the frame, or a new one. The slot of an int has
/// where it begins, and its flag the number of the statement.
struct ArrayResult {
  int local = -1, slot = -1;
  int64_t statement = 0;
  int buffer = -1;
  std::vector<ExprProgram> sizes, strides;
};

/// Kinds of numbers in the kernel's memory; 0: the loop has not assigned it.
enum class NumberTag : int64_t { kNone, kFloat, kFloat64, kFloat32, kWhole, kComplex, kComplex128, kComplex64 };

constexpr int64_t kMostAppended = int64_t{1} << 18;  // in one run; then the kernel stops

/// A statement that appends a number to a list, or an item of a tuple.
struct AppendSite {
  int local = -1;
  bool whole = false;  // an int or a bool
  DType dtype = DType::kFloat64;
  bool numpys = false;
  NumberTag tag = NumberTag::kNone;  // of a float
  int of_tuple = 0;                  // 0: a number; of a tuple's first item how many it has; -1: a further one
};
NumberTag tag_of(DType dtype, bool numpys);

/// What the kernel has appended: buffers with the statement and the number of each item, and the flag that counts these.
struct AppendLog {
  int sites = -1, wholes = -1, floats = -1, count = -1;
};

/// What the iterator of a loop still goes over: a range, an array from an item on, several ones (zip), one with numbers
/// (enumerate). Of a `while`: nothing, without end.
struct LoopRange {
  enum class Kind : uint8_t { kRange, kArray, kZip, kEnumerate, kWhile } kind = Kind::kRange;
  int64_t first = 0, step = 1, turns = 0;
  Ref array;
  std::vector<LoopRange> parts;
  /// Whether the other one goes over equal ranges, and over arrays of any size in the same way.
  bool goes_as(const LoopRange& other) const;
};

/// The frame at a loop, and the arrays that the loop goes over, in their order.
struct LoopPlace {
  const Frame& frame;
  std::vector<PyObject*> iterated;
  /// A local of the frame, or an array that the loop goes over (LocalFact).
  PyObject* object(int local) const {
    return local >= 0 ? frame.local(local) : iterated[static_cast<size_t>(-1 - local)];
  }
};
LoopPlace place_of(const Frame& f, const LoopRange& range);

class LoopMemory;

/// Memory of an array.
struct LoopSpan {
  const char* begin;
  const char* end;
  bool meets(const LoopSpan& other) const { return begin < other.end && other.begin < end; }
};

struct LoopProgram {
  LoopRange range;
  SizeTerm first, turns;         // of the range
  std::vector<SizePlace> sizes;  // symbols of the kernel
  std::vector<LocalFact> locals;
  std::vector<NameFact> names;
  std::vector<std::pair<Ref, Ref>> functions;  // that were read, and their code
  std::vector<LocalResult> results;
  std::vector<TupleResult> tuples;
  std::vector<ArrayResult> arrays;
  std::vector<AppendSite> appends;
  AppendLog log;
  std::unique_ptr<std::byte[]> log_memory;  // of the last run, which the next one takes: a page that is new costs time
  /// A buffer of the kernel.
  struct Buffer {
    enum class Kind : uint8_t { kNumbers, kTags, kWholes, kFlags, kArray, kScratch, kLog } kind = Kind::kScratch;
    DType dtype = DType::kFloat64;
    int local = -1;        // kArray: one of the names of the array
    bool written = false;  // kArray
    int64_t low = 0;       // kArray: elements from its lowest address to its first one
    int64_t numel = 0;
    std::optional<ExprProgram> varying;  // how many elements there are, by the sizes
    int begins_as = -1;  // kScratch: the buffer of an array whose elements it holds before the first turn
  };
  std::vector<Buffer> buffers;
  /// A local that is a float, or with `pair` a complex number, and its slot.
  struct Given {
    int local = 0, slot = 0;
    bool pair = false;
  };
  std::vector<Given> given;
  std::vector<std::pair<int, int>> given_wholes;  // that are ints or bools
  int numbers = 0, wholes = 0, flags = 0;         // slots
  KernelCode code;
  int exit = 0;                 // byte offset behind the loop
  std::vector<LoopExit> exits;  // by the first flag, from 1 on; the second one has the turn
  int failures = 0;             // runs that were taken back

  /// Hands the references that it owns to the cycle collector.
  int traverse(const Visitor& visit) const;
  /// Whether the frame, which stands before the loop, and what the loop goes over are as it was made for.
  bool fits(const LoopPlace& place, const LoopRange& now, const NumpyApi& np) const;
  enum class Outcome : uint8_t { kDone, kLeft, kInterrupted, kTakenBack };
  /// Runs the loop and sets the frame's locals. `done`: turns that have run. kLeft: by `left`. kTakenBack: nothing has happened.
  Outcome run(Frame& f, const LoopPlace& place, const LoopRange& now, const NumpyApi& np, int64_t& done,
              const LoopExit*& left);

  // loop_sizes.cpp
  /// The symbols' values in this call; nullopt: it has none that they take.
  std::optional<std::vector<int64_t>> read_sizes(const LoopPlace& place, const LoopRange& now,
                                                 const NumpyApi& np) const;
  LoopSpan span_of(const Buffer& buffer, PyObject* array, std::span<const int64_t> values) const;
  size_t bytes_of(const Buffer& buffer, std::span<const int64_t> values) const;

 private:
  bool fits_range(const LoopRange& now, std::span<const int64_t> values) const;
  bool read_log(const LoopPlace& place, const NumpyApi& np, const LoopMemory& memory,
                std::vector<std::pair<PyObject*, Ref>>& lists) const;
  bool set_locals(Frame& f, const LoopPlace& place, const NumpyApi& np, LoopMemory& memory) const;
};

}  // namespace tatara::capture::native
