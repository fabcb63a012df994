// What the placeholders for numbers of a program have in common (symbolic_int.cpp, symbolic_float.cpp).
#pragma once

#include "capture/py.h"

namespace tatara::capture {

/// A static type that only a trace makes objects of, freed by PyObject_Free. `Like` is the Python type whose name it has and
/// whose `__class__` it answers with; `fill(type, number)` sets its slots.
template <PyTypeObject& Like, typename Object, typename Fill>
PyTypeObject* number_type(Fill&& fill) {
  static PyTypeObject type{};
  static PyNumberMethods number{};
  static PyGetSetDef getset[] = {
      {"__class__", [](PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&Like)); }, nullptr, nullptr,
       nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = Like.tp_name;
  type.tp_basicsize = sizeof(Object);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_dealloc = [](PyObject* object) { PyObject_Free(object); };
  type.tp_as_number = &number;
  type.tp_getset = getset;
  fill(type, number);
  return PyType_Ready(&type) == 0 ? &type : nullptr;
}

/// For METH_NOARGS and METH_O: a number is its own copy.
inline PyObject* number_itself(PyObject* number, PyObject*) { return Py_NewRef(number); }

}  // namespace tatara::capture
