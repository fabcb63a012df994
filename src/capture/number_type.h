// What the placeholders for numbers of a program have in common (symbolic_int.cpp, symbolic_float.cpp).
#pragma once

#include <algorithm>
#include <cstring>

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

/// Gives `object`, which begins as an int does and has room for any 64-bit integer, the sign, length and digits of `value`.
template <typename Object>
void copy_digits(Object* object, PyObject* value) {
  constexpr size_t kHead = sizeof(PyObject), kBits = 30;
  const size_t digits = std::max<size_t>((_PyLong_NumBits(value) + kBits - 1) / kBits, 1);
  const size_t bytes = static_cast<size_t>(PyLong_Type.tp_basicsize) + digits * sizeof(uint32_t);
  const size_t whole = sizeof(PyLongObject) + sizeof(object->more_digits);
  std::memset(reinterpret_cast<char*>(object) + kHead, 0, whole - kHead);
  std::memcpy(reinterpret_cast<char*>(object) + kHead, reinterpret_cast<const char*>(value) + kHead,
              std::min(bytes, whole) - kHead);
}

/// For METH_NOARGS and METH_O: a number is its own copy.
inline PyObject* number_itself(PyObject* number, PyObject*) { return Py_NewRef(number); }

}  // namespace tatara::capture
