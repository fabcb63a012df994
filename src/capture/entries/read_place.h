// Places of objects that exist before a trace: what is there may be another number or tensor in each call.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// Where a number or tensor is read: a dict and a key, an object and the name of a slot of it, a list and an index from its start,
/// or a cell.
struct ReadPlace {
  PyObject* holder = nullptr;
  PyObject* key = nullptr;
  Py_ssize_t index = -1;
  Py_ssize_t item = -1;  // of a tuple that is there
  auto operator<=>(const ReadPlace&) const = default;
};

/// Dimensions, a bit for each: those whose sizes, and strides, vary.
struct DimBits {
  uint64_t sizes = 0, strides = 0;
  DimBits& operator|=(DimBits o) {
    sizes |= o.sizes;
    strides |= o.strides;
    return *this;
  }
};

/// A torch module in whose place another one is now. Both may be compared only, and be kept no longer than the comparison.
struct ReplacedModule {
  size_t key = 0;  // of the item
  PyObject *before = nullptr, *now = nullptr;
};

/// What earlier calls with the same structure tell, by the item's key in a guard's walk.
struct VaryingItems {
  std::unordered_map<size_t, DimBits> tensors;
  std::unordered_set<size_t> numbers;     // Python ints or floats
  std::unordered_set<size_t> modules;     // torch modules that are made anew: guarded by structure, with those in them
  std::unordered_set<PyObject*> staying;  // but for these
  std::unordered_set<size_t> functions;   // functions of one code that are made anew: guarded by what they come with
  std::unordered_set<size_t> slotted;     // likewise instances with slots: guarded by structure
  std::unordered_set<size_t> generators;  // of random numbers, another one in each call: guarded by device
  std::vector<ReplacedModule> replaced;   // of which EntryCache::decide_modules decides
  /// Nothing varies but modules that stay what they are.
  bool stays() const {
    return !replaced.empty() && tensors.empty() && numbers.empty() && modules.empty() && functions.empty() &&
           slotted.empty() && generators.empty();
  }
};

/// Where earlier calls have found another object.
using VaryingPlaces = std::map<ReadPlace, VaryingItems>;

}  // namespace tatara::capture
