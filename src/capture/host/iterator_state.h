// Iterators of the language's own containers: what their next steps depend on.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// All that the next steps of an iterator depend on, beside what its parts hold.
struct IteratorState {
  /// The container that it goes over, or the iterators that it moves on. None: it is at its end, for good.
  std::vector<Ref> parts;
  /// Where it is in the container. enumerate: the next number. zip: whether it is strict.
  int64_t position = 0;
};

/// Reads it, and moves nothing on. False, without an error: of this one it cannot be told.
bool read_state(PyObject* iterator, IteratorState& state);

/// An iterator made by this process, in the given state, and the iterators that it stands for by those in `made`. Null with or
/// without a Python error set.
Ref iterator_like(PyObject* iterator, const std::unordered_map<PyObject*, Ref>& made);

/// Its results are tuples that it makes itself (enumerate, zip, the items of a dict).
bool makes_tuples(PyObject* iterator);

bool is_dict_iterator(PyObject* object);
/// A function of a dict, the type of an iterator over it and the number of steps that it has before it: makes this iterator.
PyObject* dict_iterator_maker();

}  // namespace tatara::capture
