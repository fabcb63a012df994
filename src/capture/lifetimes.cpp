#include "capture/lifetimes.h"

#include <algorithm>

#include "capture/entry_cache.h"
#include "capture/guards.h"
#include "capture/vm.h"

namespace tatara::capture {

bool has_finalizer(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__del__");
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_finalize != nullptr &&
         _PyType_Lookup(type, name) != nullptr;
}

PyObject* weak_where_finalized(PyObject* object) {
  if (!has_finalizer(Py_TYPE(object)) || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return nullptr;
  PyObject* reference = PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr) forget_error();
  return reference;
}

namespace {

/// What closing a generator depends on.
struct Suspended {
  explicit Suspended(PyObject* generator) {
    if (!PyGen_CheckExact(generator)) return;
    const Ref frame = attr_or_null(generator, "gi_frame");
    if (!frame || frame.get() == Py_None) return;  // it has ended
    code = attr_or_null(generator, "gi_code");
    globals = attr_or_null(frame.get(), "f_globals");
    builtins = attr_or_null(frame.get(), "f_builtins");
    last = attr_or_null(frame.get(), "f_lasti");
    found = code && last && globals && builtins && PyDict_Check(globals.get()) && PyDict_Check(builtins.get());
  }
  VmClosing closing() const { return {reinterpret_cast<PyCodeObject*>(code.get()), globals.get(), builtins.get()}; }
  Ref code, globals, builtins, last;
  bool found = false;
};

}  // namespace

bool runs_code_when_closed(PyObject* object) {
  const Suspended at(object);
  if (!at.found || attr_or_null(object, "gi_suspended").get() != Py_True) return false;
  const Ref inner = attr_or_null(object, "gi_yieldfrom");
  if (inner && inner.get() != Py_None) {
    // It is closed first, if it can be.
    if (PyGen_CheckExact(inner.get()) ? runs_code_when_closed(inner.get())
                                      : (Py_TYPE(inner.get())->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
      return true;
  }
  return vm_runs_code(at.closing(), static_cast<int>(PyLong_AsLong(at.last.get()) / 2));
}

bool may_run_code_when_closed(PyObject* object) {
  const Suspended at(object);
  return at.found && vm_runs_code(at.closing());
}

namespace {

bool has_callback(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  const auto* reference = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference != nullptr; reference = reference->wr_next) {
    if (reference->wr_callback != nullptr) return true;
  }
  return false;
}

}  // namespace

bool end_is_noticed(PyObject* object) {
  return has_finalizer(Py_TYPE(object)) || has_callback(object) || runs_code_when_closed(object);
}

bool end_is_noticed_below(PyObject* object, int depth) {
  constexpr Py_ssize_t kMost = 1000;
  if (object == nullptr || PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object)) return false;
  if (end_is_noticed(object)) return true;
  if (depth == 0) return false;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < std::min(kMost, PySequence_Fast_GET_SIZE(object)); ++i) {
      if (end_is_noticed_below(PySequence_Fast_GET_ITEM(object, i), depth - 1)) return true;
    }
    return false;
  }
  PyObject* dict = PyDict_Check(object) ? object : nullptr;
  const Ref attributes = is_plain_instance(object) && dict == nullptr ? attr_or_null(object, "__dict__") : Ref();
  if (attributes && PyDict_Check(attributes.get())) dict = attributes.get();
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0, seen = 0;
  while (dict != nullptr && seen++ < kMost && PyDict_Next(dict, &at, &key, &value) != 0) {
    if (end_is_noticed_below(key, depth - 1) || end_is_noticed_below(value, depth - 1)) return true;
  }
  return false;
}

std::string keeps_noticed(Entry& entry, Watches& watches) {
  PyObject* const container = watches.holds_noticed();
  entry.keeps_nothing = container != nullptr;
  if (container == nullptr) return {};
  return "a graph would keep a container (" + type_name(container) +
         ") whose items run code of the program when they end";
}

PyObject* weak_where_noticed(PyObject* object) {
  if (PyObject* const reference = weak_where_finalized(object)) return reference;
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) || TorchApi::get()->is_module(object) || !is_plain_instance(object) ||
      !end_is_noticed_below(object)) {
    return nullptr;
  }
  PyObject* reference = PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr) forget_error();
  return reference;
}

}  // namespace tatara::capture
