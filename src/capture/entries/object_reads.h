// What guards on objects from outside of a trace have in common: a read, and the comparison of what is there now with it.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/entries/trace_writes.h"
#include "capture/host/torch_api.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// One place that the trace read, and what it found there.
struct ObjectRead {
  /// What was found; None for what ended since.
  PyObject* found() const { return weak ? weak_object(value.get()) : value.get(); }
  bool is_same(PyObject* now) const;
  bool ended() const { return weak && weak_object(value.get()) == Py_None; }
  Ref key, value;          // value: null when absent
  bool weak = false;       // `value` is a weak reference
  int source = -1;         // among the source tensors; -1: `value` itself
  bool rewritten = false;  // a number that the trace gives another value, so that the next call finds another one
  int traverse(const Visitor& visit) const { return visit(key, value); }
};

/// A tensor that was read from a place which the trace wrote to: later calls find another one there, of the same layout.
struct SourceTensor {
  Ref type;
  TensorMeta meta;
  bool grad = false, leaf = false;
  int traverse(const Visitor& visit) const { return visit(type); }
};

/// While a trace reads: what it has met, and what it wrote itself.
class ReadNotes {
 public:
  TraceWrites& writes() { return writes_; }
  const TraceWrites& writes() const { return writes_; }
  void know(PyObject* object) {
    if (object != nullptr) known_.insert(object);
  }
  /// Every object that was read from, or found in, something that existed before the trace. Alive, but for gradients: some
  /// guard or the trace holds them.
  const std::unordered_set<PyObject*>& known() const { return known_; }
  /// Whether this is the first read of the object, or of its `key`.
  bool first(PyObject* object) { return seen_.insert(object).second; }
  bool first(PyObject* owner, PyObject* key) { return keys_seen_[owner].insert(key).second; }

 private:
  TraceWrites writes_;
  std::unordered_set<PyObject*> known_;
  std::unordered_set<PyObject*> seen_;
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> keys_seen_;
};

/// One check of an entry's guards on objects.
struct ObjectCheck {
  const std::vector<SourceTensor>& sources;
  TorchApi& api;
  std::vector<PyObject*>& objects;  // from `base` on: the source tensors, as far as they were found
  std::string* why;
  size_t base;

  /// Says what became what, where that is wanted. False.
  [[gnu::cold]] bool fail(const char* what, PyObject* name, PyObject* before, PyObject* now) const;
  bool same(const char* what, const ObjectRead& read, PyObject* now);
};

/// Makes weak references where the program notices an object's end; one for each object.
class WeakMaker {
 public:
  explicit WeakMaker(std::vector<Ref>& made) : made_(made) {}
  /// `held` becomes a weak reference to what it held. False: that is held as it is.
  bool make_weak(Ref& held);

 private:
  std::vector<Ref>& made_;
  std::unordered_map<PyObject*, Ref> references_;
};

}  // namespace tatara::capture
