#include "capture/trace/young_objects.h"

#include "capture/python/py_errors.h"

namespace tatara::capture {
namespace {

/// What CPython 3.11 to 3.13 puts before a container: its place in a list of containers.
struct GcLinks {
  uintptr_t next, previous;
};

constexpr uintptr_t kGcFlags = 3;  // the lowest bits of `previous` are not part of the address

const GcLinks* gc_links(PyObject* container) { return reinterpret_cast<const GcLinks*>(container) - 1; }

/// How often cycles have been collected in this process; -1: not known.
long collections() {
  static PyObject* const ask = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("gc"));
    return module ? PyObject_GetAttrString(module.get(), "get_stats") : nullptr;
  }();
  const Ref stats = Ref::steal(ask != nullptr ? PyObject_CallNoArgs(ask) : nullptr);
  if (!stats || !PyList_CheckExact(stats.get())) {
    forget_error();
    return -1;
  }
  long sum = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stats.get()); ++i) {
    PyObject* const count = PyDict_GetItemString(PyList_GET_ITEM(stats.get(), i), "collections");
    sum += count != nullptr ? PyLong_AsLong(count) : 0;
  }
  if (PyErr_Occurred() != nullptr) forget_error();
  return sum;
}

}  // namespace

YoungObjects::YoungObjects() : mark_(Ref::steal(PyList_New(0))), collections_(collections()) {}

bool YoungObjects::made_since(PyObject* container) const {
  constexpr int kMostSteps = 1 << 16;
  if (!mark_ || collections_ < 0 || PyObject_GC_IsTracked(container) == 0 || collections() != collections_)
    return false;
  // From the end backwards: what code in C hands over was made just now.
  const Ref end = Ref::steal(PyList_New(0));
  if (!end) {
    forget_error();
    return false;
  }
  const GcLinks* at = gc_links(end.get());
  bool found = false;
  for (int i = 0; i < kMostSteps && !found && at != gc_links(mark_.get()); ++i) {
    at = reinterpret_cast<const GcLinks*>(at->previous & ~kGcFlags);
    found = at == gc_links(container);
  }
  return found;
}

}  // namespace tatara::capture
