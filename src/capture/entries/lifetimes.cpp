#include "capture/entries/lifetimes.h"

#include <algorithm>

#include "capture/entries/entry_cache.h"
#include "capture/entries/guards.h"
#include "capture/entries/held_object.h"
#include "capture/host/object_kinds.h"
#include "capture/vm/vm.h"
#include "support/made_once.h"

namespace tatara::capture {

bool has_finalizer(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__del__");
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_finalize != nullptr &&
         _PyType_Lookup(type, name) != nullptr;
}

const char* const kOwnCallback = "watched_ended";

Ref own_weak_reference(PyObject* object) {
  if (object == nullptr || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return {};
  static PyObject* const callback = made_once([] {
    static PyMethodDef method = {kOwnCallback, [](PyObject*, PyObject*) { return Py_NewRef(Py_None); }, METH_O,
                                 nullptr};
    return PyCFunction_New(&method, nullptr);
  });
  Ref reference = Ref::steal(PyWeakref_NewRef(object, callback));
  if (!reference) forget_error();
  return reference;
}

HeldObject::HeldObject(PyObject* object) : held_(own_weak_reference(object)), weak_(held_) {
  if (!weak_) held_ = Ref::borrow(object);
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

/// What our own weak references call.
bool is_own_callback(PyObject* callback) {
  return PyCFunction_Check(callback) != 0 &&
         reinterpret_cast<PyCFunctionObject*>(callback)->m_ml->ml_name == kOwnCallback;
}

/// A weak reference of the program's whose callback says that the object has ended. With `asked`, to a plain instance, any: the
/// program may ask whether it is dead.
bool is_referred_weakly(PyObject* object, bool asked) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  const auto* reference = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  if (reference == nullptr) return false;
  asked = asked && is_plain_instance(object) && !TorchApi::get()->is_module(object);
  for (; reference != nullptr; reference = reference->wr_next) {
    PyObject* const callback = reference->wr_callback;
    if (callback == nullptr && !asked) continue;
    if (callback == nullptr || !is_own_callback(callback)) return true;
  }
  return false;
}

}  // namespace

bool end_is_noticed(PyObject* object, bool asked) {
  return has_finalizer(Py_TYPE(object)) || is_referred_weakly(object, asked) || runs_code_when_closed(object);
}

bool stops_a_callback(PyObject* object) {
  if (PyWeakref_CheckRefExact(object) == 0) return false;
  PyObject* const callback = reinterpret_cast<PyWeakReference*>(object)->wr_callback;
  if (callback == nullptr || is_own_callback(callback)) return false;
  // The standard library's classes (WeakMethod, WeakValueDictionary) have callbacks of their own.
  return text_of(attr_or_null(callback, "__module__").get()) != "weakref";
}

bool end_is_noticed_below(PyObject* object, int depth, bool asked) {
  constexpr Py_ssize_t kMost = 1000;
  if (object == nullptr || PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object)) return false;
  if (end_is_noticed(object, asked)) return true;
  if (depth == 0) return false;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < std::min(kMost, PySequence_Fast_GET_SIZE(object)); ++i) {
      if (end_is_noticed_below(PySequence_Fast_GET_ITEM(object, i), depth - 1, asked)) return true;
    }
    return false;
  }
  PyObject* dict = PyDict_Check(object) ? object : nullptr;
  const Ref attributes = is_plain_instance(object) && dict == nullptr ? attr_or_null(object, "__dict__") : Ref();
  if (attributes && PyDict_Check(attributes.get())) dict = attributes.get();
  for (const InstanceSlot& slot : dict == nullptr ? instance_slots(object) : std::vector<InstanceSlot>()) {
    if (end_is_noticed_below(slot.of(object), depth - 1, asked)) return true;
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0, seen = 0;
  while (dict != nullptr && seen++ < kMost && PyDict_Next(dict, &at, &key, &value) != 0) {
    if (end_is_noticed_below(key, depth - 1, asked) || end_is_noticed_below(value, depth - 1, asked)) return true;
  }
  return false;
}

std::string keeps_noticed(Entry& entry, ObjectGuards& object_guards) {
  PyObject* const container = object_guards.holds_noticed();
  entry.keeps_nothing = container != nullptr;
  if (container == nullptr) return {};
  return "a graph would keep a container (" + type_name(container) +
         ") whose end, or that of its items, the program notices";
}

bool is_held_weakly(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  return has_finalizer(Py_TYPE(object)) || (is_plain_instance(object) && !TorchApi::get()->is_module(object));
}

Ref weak_where_noticed(PyObject* object) { return is_held_weakly(object) ? own_weak_reference(object) : Ref(); }

}  // namespace tatara::capture
