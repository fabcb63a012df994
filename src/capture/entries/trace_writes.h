// Objects from outside of a trace that it changed, and what they were before.
#pragma once

#include <unordered_map>

#include "capture/python/py.h"

namespace tatara::capture {

class TraceWrites {
 public:
  /// An object that the trace changed.
  struct Written {
    Ref object;
    Ref before;  // a copy: dict, list, set; the value of a cell; a tuple for each name of a slot: its value, if it had one
    Ref keys;  // a set
    bool all = false;
    int traverse(const Visitor& visit) const { return visit(object, before, keys); }
  };
  bool empty() const { return written_.empty(); }
  /// Null: the trace did not change it.
  const Written* of(PyObject* object) const;
  /// What a read of all of its contents can tell nothing of.
  bool all_of(PyObject* object) const;
  bool contains(PyObject* object, PyObject* key) const;

  /// Before the first change of a dict, list, set, deque or cell, and each later one: remembers what it was.
  void before_write(PyObject* object);
  /// Before a write to a slot of an object (`__slots__`).
  void before_slot(PyObject* object, PyObject* name);
  /// The trace gave `key` (of a dict or list, or the name of a slot of `object`) its value.
  void written(PyObject* object, PyObject* key);
  /// The trace gave all of the object's contents.
  void written_all(PyObject* object);
  /// All is as it was before. False where something stays changed.
  bool undo();
  int traverse(const Visitor& visit) const;

 private:
  std::unordered_map<PyObject*, Written> written_;
};

}  // namespace tatara::capture
