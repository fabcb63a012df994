// What the placeholders for numbers of a program have in common (symbolic_int.cpp, symbolic_float.cpp, symbolic_derived.cpp).
#pragma once

#include "capture/numbers/symbolic_int.h"
#include "capture/python/py.h"

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
  binaryfunc PyNumberMethods::* slot;  // null: power
};

inline constexpr BinaryOp kAdd{"add", PyNumber_Add, &PyNumberMethods::nb_add};
inline constexpr BinaryOp kSubtract{"sub", PyNumber_Subtract, &PyNumberMethods::nb_subtract};
inline constexpr BinaryOp kMultiply{"mul", PyNumber_Multiply, &PyNumberMethods::nb_multiply};
inline constexpr BinaryOp kDivide{"truediv", PyNumber_TrueDivide, &PyNumberMethods::nb_true_divide};
inline constexpr BinaryOp kFloorDivide{"floordiv", PyNumber_FloorDivide, &PyNumberMethods::nb_floor_divide};
inline constexpr BinaryOp kRemainder{"mod", PyNumber_Remainder, &PyNumberMethods::nb_remainder};
inline constexpr BinaryOp kPower{"pow", [](PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); },
                                 nullptr};
inline constexpr BinaryOp kLeft{"lshift", PyNumber_Lshift, &PyNumberMethods::nb_lshift};
inline constexpr BinaryOp kRight{"rshift", PyNumber_Rshift, &PyNumberMethods::nb_rshift};
inline constexpr BinaryOp kAnd{"and_", PyNumber_And, &PyNumberMethods::nb_and};
inline constexpr BinaryOp kOr{"or_", PyNumber_Or, &PyNumberMethods::nb_or};
inline constexpr BinaryOp kXor{"xor", PyNumber_Xor, &PyNumberMethods::nb_xor};
inline constexpr UnaryOp kNegative{"neg", PyNumber_Negative};
inline constexpr UnaryOp kAbsolute{"abs", PyNumber_Absolute};
inline constexpr UnaryOp kInvert{"invert", PyNumber_Invert};

/// Where one operand is a placeholder and the other is no number: what a slot of int or float gives. Objects with operators in
/// Python get the placeholder in turn, those in C are asked with the value. Null without an error set: both are numbers.
PyObject* meet_other(const BinaryOp& op, PyObject* a, PyObject* b);
/// The operation as the tape repeats it; with values, which are guarded, where it cannot. One of the operands is a placeholder.
PyObject* number_binary(const BinaryOp& op, PyObject* a, PyObject* b);
PyObject* number_power(PyObject* a, PyObject* b, PyObject* modulus);
/// What a comparison of numbers gives, with that as a guard on the tape; null: by value.
Ref compare_on_tape(PyObject* a, PyObject* b, int op);
PyObject* compare_by_value(PyObject* a, PyObject* b, int op);
/// As meet_other(), for a comparison with what is no number.
PyObject* compare_with_other(PyObject* a, PyObject* b, int op);

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
