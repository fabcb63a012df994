#include "capture/numbers/number_type.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "capture/numbers/comparisons.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

bool is_real_number(PyObject* object) {
  return is_symbolic_number(object) || PyLong_Check(object) || PyFloat_Check(object);
}

/// A class with all operators in Python, for the functions in C that call them.
const PyTypeObject* python_class() {
  static const PyTypeObject* const made = made_once([] {
    // Made without running code: the first use may lie inside of a trace, which would see it.
    const Ref names = Ref::steal(PyDict_New());
    for (const char* name :
         {"__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__lshift__",
          "__rshift__", "__and__", "__or__", "__xor__", "__matmul__", "__divmod__", "__eq__"}) {
      PyDict_SetItemString(names.get(), name, Py_None);
    }
    PyObject* type = reinterpret_cast<PyObject*>(&PyType_Type);
    return reinterpret_cast<const PyTypeObject*>(PyObject_CallFunction(type, "s()O", "T", names.get()));
  });
  return made;
}

/// A tensor of the host's, whose methods in C take real numbers only: it has refused a symbolic one before.
bool is_host_tensor(const PyTypeObject* type) {
  while (type != nullptr && std::strcmp(type->tp_name, "torch._C.TensorBase") != 0) type = type->tp_base;
  return type != nullptr;
}

TraceSymbols* symbols_of(PyObject* number) {
  if (is_symbolic_float(number)) return float_symbols(number);
  return is_derived_int(number) ? derived_int_symbols(number) : int_symbols(number);
}

/// A function of the module `operator`, on the tape. Null without an error set: by value.
Ref on_tape(const char* name, PyObject* a, PyObject* b) {
  const TraceSymbols* owner = symbols_of(is_symbolic_number(a) ? a : b);
  return owner != nullptr ? owner->derive(name, a, b) : Ref();  // a method of the other operand's may have settled it
}

template <const BinaryOp& Op>
PyObject* binary(PyObject* a, PyObject* b) {
  return number_binary(Op, a, b);
}

template <const UnaryOp& Op>
PyObject* unary(PyObject* a) {
  Ref made = on_tape(Op.name, a, nullptr);
  if (made || PyErr_Occurred() != nullptr) return made.release();
  return by_value<Op.plain>(a);
}

PyObject* divmod(PyObject* a, PyObject* b) {
  static constexpr BinaryOp kDivmod{"divmod", PyNumber_Divmod, &PyNumberMethods::nb_divmod};
  if (PyObject* done = meet_other(kDivmod, a, b); done != nullptr || PyErr_Occurred() != nullptr) return done;
  const int divides = PyObject_IsTrue(b);
  if (divides < 0) return nullptr;
  if (divides == 0) return PyNumber_Divmod(plain_number(a).get(), plain_number(b).get());  // an error
  const Ref quotient = Ref::steal(PyNumber_FloorDivide(a, b));
  const Ref rest = quotient ? Ref::steal(PyNumber_Remainder(a, b)) : Ref();
  return rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
}

int truth(PyObject* a) {
  const Ref known = on_tape("truth", a, nullptr);
  if (!known && PyErr_Occurred() != nullptr) return -1;
  return PyObject_IsTrue(known ? known.get() : plain_number(a).get());
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  if (!is_real_number(b)) return compare_with_other(a, b, op);
  if (Ref known = compare_on_tape(a, b, op); known || PyErr_Occurred() != nullptr) return known.release();
  return compare_by_value(a, b, op);
}

/// A NaN's hash is that of its identity: it ends as a placeholder here.
Py_hash_t hash(PyObject* a) {
  const Ref value = plain_number(a);
  if (!PyFloat_Check(value.get()) || !std::isnan(PyFloat_AS_DOUBLE(value.get()))) return PyObject_Hash(value.get());
  settle_in(a);
  return PyObject_Hash(a);
}

PyObject* itself(PyObject* a) { return Py_NewRef(a); }
PyObject* value(PyObject* a) { return plain_number(a).release(); }

PyObject* get_attribute(PyObject* a, PyObject* name) {
  // isinstance() asks for it.
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) return PyObject_GenericGetAttr(a, name);
  // What no number has (the host asks an index for __torch_function__) does not depend on the value.
  PyTypeObject* const plain = reinterpret_cast<PyTypeObject*>(Py_TYPE(a)->tp_base);
  if (_PyType_Lookup(plain, name) == nullptr) {
    PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", plain->tp_name, name);
    return nullptr;
  }
  return PyObject_GetAttr(plain_number(a).get(), name);
}

PyObject* round_to(PyObject* a, PyObject* args) {
  if (PyTuple_GET_SIZE(args) == 0) return Py_NewRef(a);
  const Ref method = attr(plain_number(a).get(), "__round__");
  return method ? PyObject_Call(method.get(), args, nullptr) : nullptr;
}

PyObject* format(PyObject* a, PyObject* spec) { return PyObject_Format(plain_number(a).get(), spec); }

PyObject* reduce(PyObject* a, PyObject* protocol) {
  return PyObject_CallMethod(plain_number(a).get(), "__reduce_ex__", "O", protocol);
}

}  // namespace

PyObject* meet_other(const BinaryOp& op, PyObject* a, PyObject* b) {
  if (is_real_number(a) && is_real_number(b)) return nullptr;
  PyObject* other = is_symbolic_number(a) ? b : a;
  const PyNumberMethods* own = Py_TYPE(other)->tp_as_number;
  const PyNumberMethods* python = python_class()->tp_as_number;
  if (own == nullptr) Py_RETURN_NOTIMPLEMENTED;
  const bool by_value = is_host_tensor(Py_TYPE(other));
  if (op.slot == nullptr) {
    if (own->nb_power == nullptr || (own->nb_power == python->nb_power && !by_value)) Py_RETURN_NOTIMPLEMENTED;
    return own->nb_power(plain_number(a).get(), plain_number(b).get(), Py_None);
  }
  const binaryfunc slot = own->*op.slot;
  if (slot == nullptr || (slot == python->*op.slot && !by_value)) Py_RETURN_NOTIMPLEMENTED;
  return slot(plain_number(a).get(), plain_number(b).get());
}

PyObject* compare_with_other(PyObject* a, PyObject* b, int op) {
  const richcmpfunc slot = Py_TYPE(b)->tp_richcompare;
  const bool generic = slot == python_class()->tp_richcompare && !is_host_tensor(Py_TYPE(b));
  if (slot == nullptr || slot == PyBaseObject_Type.tp_richcompare || generic || b == Py_None || PyUnicode_Check(b) ||
      PyTuple_Check(b) || PyType_Check(b)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return slot(b, plain_number(a).get(), mirrored(op));
}

PyObject* number_binary(const BinaryOp& op, PyObject* a, PyObject* b) {
  if (PyObject* done = meet_other(op, a, b); done != nullptr || PyErr_Occurred() != nullptr) return done;
  Ref made = on_tape(op.name, a, b);
  if (made || PyErr_Occurred() != nullptr) return made.release();
  const Ref x = plain_number(a), y = plain_number(b);
  return x && y ? op.plain(x.get(), y.get()) : nullptr;
}

PyObject* number_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None) return number_binary(kPower, a, b);
  const Ref x = plain_number(a), y = plain_number(b), m = plain_number(modulus);
  return PyNumber_Power(x.get(), y.get(), m.get());
}

Ref compare_on_tape(PyObject* a, PyObject* b, int op) {
  return op >= Py_LT && op <= Py_GE ? on_tape(comparison_name(op), a, b) : Ref();
}

const char* comparison_name(int op) {
  static constexpr const char* kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // in the order of Py_LT...
  return kNames[op];
}

int comparison_of(const char* name) {
  for (int op = Py_LT; op <= Py_GE; ++op) {
    if (std::strcmp(comparison_name(op), name) == 0) return op;
  }
  return -1;
}

int mirrored(int op) {
  static constexpr int kMirrored[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};  // in the order of Py_LT...
  return kMirrored[op];
}

PyObject* compare_by_value(PyObject* a, PyObject* b, int op) {
  const Ref x = plain_number(a), y = plain_number(b);
  return PyObject_RichCompare(x.get(), y.get(), op);
}

void set_number_slots(PyTypeObject& type, PyNumberMethods& number) {
  number.nb_add = binary<kAdd>;
  number.nb_subtract = binary<kSubtract>;
  number.nb_multiply = binary<kMultiply>;
  number.nb_true_divide = binary<kDivide>;
  number.nb_floor_divide = binary<kFloorDivide>;
  number.nb_remainder = binary<kRemainder>;
  number.nb_divmod = divmod;
  number.nb_power = number_power;
  number.nb_negative = unary<kNegative>;
  number.nb_absolute = unary<kAbsolute>;
  number.nb_bool = truth;
  number.nb_float = by_value<PyNumber_Float>;
  type.tp_hash = hash;
  type.tp_repr = by_value<PyObject_Repr>;
  type.tp_richcompare = compare;
}

void set_int_slots(PyTypeObject& type, PyNumberMethods& number) {
  number.nb_lshift = binary<kLeft>;
  number.nb_rshift = binary<kRight>;
  number.nb_and = binary<kAnd>;
  number.nb_or = binary<kOr>;
  number.nb_xor = binary<kXor>;
  number.nb_positive = itself;
  number.nb_invert = unary<kInvert>;
  number.nb_int = value;
  number.nb_index = value;
  static PyMethodDef methods[] = {{"__trunc__", number_itself, METH_NOARGS, nullptr},
                                  {"__floor__", number_itself, METH_NOARGS, nullptr},
                                  {"__ceil__", number_itself, METH_NOARGS, nullptr},
                                  {"__round__", round_to, METH_VARARGS, nullptr},
                                  {"__copy__", number_itself, METH_NOARGS, nullptr},
                                  {"__deepcopy__", number_itself, METH_O, nullptr},
                                  {"__format__", format, METH_O, nullptr},
                                  {"__reduce_ex__", reduce, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  type.tp_getattro = get_attribute;
  type.tp_methods = methods;
}

void IntHead::set(PyObject* value) {
  constexpr size_t kHead = sizeof(PyObject), kBits = 30;
  const size_t digits = std::max<size_t>((_PyLong_NumBits(value) + kBits - 1) / kBits, 1);
  const size_t bytes = static_cast<size_t>(PyLong_Type.tp_basicsize) + digits * sizeof(uint32_t);
  constexpr size_t kWhole = sizeof(number) + sizeof(more_digits);
  std::memset(reinterpret_cast<char*>(this) + kHead, 0, kWhole - kHead);
  std::memcpy(reinterpret_cast<char*>(this) + kHead, reinterpret_cast<const char*>(value) + kHead,
              std::min(bytes, kWhole) - kHead);
}

}  // namespace tatara::capture
