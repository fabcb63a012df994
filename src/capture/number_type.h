// What the placeholders for numbers of a program have in common (symbolic_int.cpp, symbolic_float.cpp, symbolic_derived.cpp).
#pragma once

#include "capture/py.h"
#include "capture/symbolic_int.h"

namespace tatara::capture {

/// The trace of a placeholder of one kind; null for other objects.
TraceSymbols* int_symbols(PyObject* object);
TraceSymbols* float_symbols(PyObject* object);
TraceSymbols* derived_int_symbols(PyObject* object);

/// An operation of Python's: a function of the module `operator`, and what computes it with plain values.
struct UnaryOp {
  const char* name;
  PyObject* (*plain)(PyObject*);
};
struct BinaryOp {
  const char* name;
  PyObject* (*plain)(PyObject*, PyObject*);
};

inline constexpr BinaryOp kAdd{"add", PyNumber_Add};
inline constexpr BinaryOp kSubtract{"sub", PyNumber_Subtract};
inline constexpr BinaryOp kMultiply{"mul", PyNumber_Multiply};
inline constexpr BinaryOp kDivide{"truediv", PyNumber_TrueDivide};
inline constexpr BinaryOp kFloorDivide{"floordiv", PyNumber_FloorDivide};
inline constexpr BinaryOp kRemainder{"mod", PyNumber_Remainder};
inline constexpr BinaryOp kPower{"pow", [](PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }};
inline constexpr BinaryOp kLeft{"lshift", PyNumber_Lshift};
inline constexpr BinaryOp kRight{"rshift", PyNumber_Rshift};
inline constexpr BinaryOp kAnd{"and_", PyNumber_And};
inline constexpr BinaryOp kOr{"or_", PyNumber_Or};
inline constexpr BinaryOp kXor{"xor", PyNumber_Xor};
inline constexpr UnaryOp kNegative{"neg", PyNumber_Negative};
inline constexpr UnaryOp kAbsolute{"abs", PyNumber_Absolute};
inline constexpr UnaryOp kInvert{"invert", PyNumber_Invert};

/// The operation as the tape repeats it; with values, which are guarded, where it cannot. One of the operands is a placeholder.
PyObject* number_binary(const BinaryOp& op, PyObject* a, PyObject* b);
PyObject* number_power(PyObject* a, PyObject* b, PyObject* modulus);
/// What a comparison of numbers gives, with that as a guard on the tape; null: by value.
Ref compare_on_tape(PyObject* a, PyObject* b, int op);
PyObject* compare_by_value(PyObject* a, PyObject* b, int op);

/// For a slot that asks for the value.
template <PyObject* (*Plain)(PyObject*)>
PyObject* by_value(PyObject* number) {
  return Plain(plain_number(number).get());
}

/// For METH_NOARGS and METH_O: a number is its own copy.
inline PyObject* number_itself(PyObject* number, PyObject*) { return Py_NewRef(number); }

/// The slots of all placeholders: the tape computes where it can.
void set_number_slots(PyTypeObject& type, PyNumberMethods& number);
/// What those for ints have beside them.
void set_int_slots(PyTypeObject& type, PyNumberMethods& number);

/// A static type that only a trace makes objects of, freed by PyObject_Free. `Like` is the Python type whose name it has and
/// whose `__class__` it answers with; `fill(type, number)` sets the slots that set_number_slots() does not, or others.
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
  set_number_slots(type, number);
  fill(type, number);
  return PyType_Ready(&type) == 0 ? &type : nullptr;
}

/// What a placeholder for an int begins with, as an int does, so that it can become one: room for any 64-bit integer.
struct IntHead {
  PyLongObject number;
  uint32_t more_digits[3];  // of 30 bits

  /// Takes the sign, length and digits of `value`.
  void set(PyObject* value);
};

}  // namespace tatara::capture
