// A loop of the program as native code: what it was made for, and how it runs in place of the loop.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "capture/host/numpy_api.h"
#include "capture/vm/vm.h"
#include "runtime/plan/executable.h"

namespace tatara::capture::native {

/// The object as the program sees it in this call, where it is a placeholder of a trace; null: not to be told.
Ref seen_value(PyObject* object);

/// What a local of the frame has to be.
struct LocalFact {
  enum class Kind : uint8_t { kArray, kWhole, kFloat, kFloat64, kFloat32, kUnbound };
  int local = -1;
  Kind kind = Kind::kUnbound;
  int64_t value = 0;  // kWhole
  DType dtype = DType::kFloat64;
  std::vector<int64_t> sizes, strides;
  int array = -1;  // its buffer; names of one array share it
};

/// A name that the code looks up, and what it found: an attribute of `module`, or a global or builtin (null).
struct NameFact {
  Ref module, name, value;
};

/// A local that the loop assigns: what it is afterwards.
struct LocalResult {
  int local = -1;
  bool number = false;  // else an int
  int slot = -1;
};

/// An array that a statement of the loop gives a local: a view of an array of the frame, or a new one. The slot of an int has
/// where it begins, and its flag the number of the statement.
struct ArrayResult {
  int local = -1, slot = -1;
  int64_t statement = 0;
  int buffer = -1;
  std::vector<int64_t> sizes, strides;
};

/// Kinds of numbers in the kernel's memory; 0: the loop has not assigned it.
enum class NumberTag : int64_t { kNone, kFloat, kFloat64, kFloat32, kWhole };

struct LoopRange {
  int64_t first = 0, step = 1, turns = 0;
};

class LoopMemory;

struct LoopProgram {
  LoopRange range;
  std::vector<LocalFact> locals;
  std::vector<NameFact> names;
  std::vector<std::pair<Ref, Ref>> functions;  // that were read, and their code
  std::vector<LocalResult> results;
  std::vector<ArrayResult> arrays;
  /// A buffer of the kernel.
  struct Buffer {
    enum class Kind : uint8_t { kNumbers, kTags, kWholes, kArray, kScratch } kind = Kind::kScratch;
    DType dtype = DType::kFloat64;
    int local = -1;        // kArray: one of the names of the array
    bool written = false;  // kArray
    int64_t low = 0;       // kArray: elements from its lowest address to its first one
    int64_t numel = 0;
  };
  std::vector<Buffer> buffers;
  std::vector<std::pair<int, int>> given;  // locals that are numbers, and their slots
  int numbers = 0, wholes = 0;             // slots
  KernelCode code;
  int exit = 0;      // byte offset behind the loop
  int failures = 0;  // runs that were taken back

  /// Hands the references that it owns to the cycle collector.
  int traverse(const Visitor& visit) const;
  /// Whether the frame, which stands before the loop, is as it was made for.
  bool fits(const Frame& f, const NumpyApi& np) const;
  enum class Outcome : uint8_t { kDone, kInterrupted, kTakenBack };
  /// Runs the loop and sets the frame's locals. `done`: turns that have run. kTakenBack: nothing has happened.
  Outcome run(Frame& f, const NumpyApi& np, int64_t& done);

 private:
  bool set_locals(Frame& f, const NumpyApi& np, LoopMemory& memory) const;
};

}  // namespace tatara::capture::native
