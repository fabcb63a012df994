// Objects that entries remember: held weakly where they may end, so that compiled code keeps nothing alive.
#pragma once

#include "capture/python/py.h"

namespace tatara::capture {

/// The name of what our own weak references call when their object ends. By its address they are told from the program's.
extern const char* const kOwnCallback;
/// A new weak reference of ours, which the program does not share. Null, without an error, where the class has none.
Ref own_weak_reference(PyObject* object);

/// Held by a weak reference of ours where its class has these, else as it is.
class HeldObject {
 public:
  HeldObject() = default;
  explicit HeldObject(PyObject* object);
  bool is(PyObject* object) const { return object == get() && (!weak_ || object != Py_None); }
  /// Borrowed; None when it has ended, null when there was none.
  PyObject* get() const { return weak_ ? weak_object(held_.get()) : held_.get(); }
  bool weak() const { return weak_; }
  int traverse(const Visitor& visit) const { return visit(held_); }

 private:
  Ref held_;
  bool weak_ = false;
};

}  // namespace tatara::capture
