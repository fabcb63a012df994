#include "capture/entries/trace_writes.h"

#include "capture/entries/effects.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

const TraceWrites::Written* TraceWrites::of(PyObject* object) const {
  const auto found = written_.find(object);
  return found == written_.end() ? nullptr : &found->second;
}

bool TraceWrites::all_of(PyObject* object) const {
  const Written* written = of(object);
  return written != nullptr && written->all;
}

void TraceWrites::before_write(PyObject* object) {
  const auto [found, inserted] = written_.emplace(object, Written());
  Written& state = found->second;
  if (!inserted) return;
  state.object = Ref::borrow(object);
  if (PyDict_Check(object)) {
    state.before = Ref::steal(PyDict_New());
    if (PyDict_Update(state.before.get(), object) != 0) forget_error();
  } else if (PyCell_Check(object)) {
    state.before = Ref::borrow(PyCell_GET(object));
  } else if (PyList_Check(object) || PySet_Check(object) || is_deque(object)) {
    state.before = Ref::steal(PySequence_List(object));
  }
}

void TraceWrites::written(PyObject* object, PyObject* key) {
  before_write(object);
  Written& state = written_[object];
  if (!state.keys) state.keys = Ref::steal(PySet_New(nullptr));
  if (!state.keys || PySet_Add(state.keys.get(), key) != 0) forget_error();
}

void TraceWrites::before_slot(PyObject* object, PyObject* name) {
  before_write(object);
  Written& state = written_[object];
  if (!state.before) state.before = Ref::steal(PyDict_New());
  if (PyDict_Contains(state.before.get(), name) != 0) return;
  const Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
  if (!value) forget_error();
  const Ref kept = Ref::steal(value ? PyTuple_Pack(1, value.get()) : PyTuple_New(0));
  if (PyDict_SetItem(state.before.get(), name, kept.get()) != 0) forget_error();
}

bool TraceWrites::undo() {
  bool all = true;
  for (const auto& [object, state] : written_) {
    if (restore_contents(object, state.before.get())) continue;
    forget_error();
    all = false;
  }
  return all;
}

void TraceWrites::written_all(PyObject* object) {
  before_write(object);
  written_[object].all = true;
}

bool TraceWrites::contains(PyObject* object, PyObject* key) const {
  const Written* state = of(object);
  if (state == nullptr) return false;
  if (state->all) return true;
  if (!state->keys) return false;
  const int found = PySet_Contains(state->keys.get(), key);
  if (found < 0) forget_error();
  return found == 1;
}

int TraceWrites::traverse(const Visitor& visit) const {
  int result = 0;
  for (auto it = written_.begin(); it != written_.end() && result == 0; ++it) result = visit(it->second);
  return result;
}

}  // namespace tatara::capture
