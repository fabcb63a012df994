// Integers that the tape computes with Python's own arithmetic (`math.floor` of a float that varies): each operation goes onto
// the tape, and a value that is asked for is guarded.
#include "capture/numbers/number_type.h"
#include "capture/numbers/symbolic_int.h"

namespace tatara::capture {
namespace {

struct DerivedInt {
  IntHead head;
  TraceSymbols* owner;
  int slot;
};

DerivedInt* as_derived(PyObject* object) { return reinterpret_cast<DerivedInt*>(object); }

PyTypeObject* derived_type() {
  static PyTypeObject* const made = number_type<PyLong_Type, DerivedInt>(set_int_slots);
  return made;
}

}  // namespace

bool is_derived_int(PyObject* object) { return object != nullptr && Py_TYPE(object) == derived_type(); }

TraceSymbols* derived_int_symbols(PyObject* object) {
  return is_derived_int(object) ? as_derived(object)->owner : nullptr;
}

int derived_int_slot(PyObject* object) { return is_derived_int(object) ? as_derived(object)->slot : -1; }

Ref derived_int_value(PyObject* object, bool guarded) {
  const Ref held = Ref::borrow(object);  // a graph break lets go of it
  if (guarded) as_derived(object)->owner->need(as_derived(object)->slot);
  return Ref::steal(_PyLong_Copy(&as_derived(object)->head.number));
}

void settle_derived_int(PyObject* object) {
  if (is_derived_int(object)) Py_SET_TYPE(object, &PyLong_Type);
}

Ref TraceSymbols::make_derived_int(PyObject* value, int slot) {
  auto* made = PyObject_New(DerivedInt, derived_type());
  if (made == nullptr) return {};
  made->head.set(value);
  made->owner = this;
  made->slot = slot;
  Ref result = Ref::steal(reinterpret_cast<PyObject*>(made));
  made_derived_.emplace(result.get(), std::make_pair(result, slot));
  return result;
}

}  // namespace tatara::capture
