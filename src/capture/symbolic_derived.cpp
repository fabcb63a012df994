// Integers that the tape computes with Python's own arithmetic (`math.floor` of a float that varies): each operation goes onto
// the tape, and a value that is asked for is guarded.
#include <cstddef>

#include "capture/number_type.h"
#include "capture/symbolic_int.h"

namespace tatara::capture {
namespace {

constexpr size_t kDigits = 3;  // of 30 bits: any 64-bit integer

/// Begins as an int does, so that it can become one.
struct DerivedInt {
  PyLongObject number;
  uint32_t more_digits[kDigits];
  const TraceSymbols* owner;
  int slot;
};

DerivedInt* cast(PyObject* object) { return reinterpret_cast<DerivedInt*>(object); }

/// A function of the module `operator`; `plain` computes with values, which are guarded.
PyObject* computed(const char* name, PyObject* a, PyObject* b, PyObject* (*plain)(PyObject*, PyObject*)) {
  Ref made = cast(is_derived_int(a) ? a : b)->owner->derive(name, a, b);
  if (made || PyErr_Occurred() != nullptr) return made.release();
  const Ref x = plain_number(a), y = plain_number(b);
  return x && y ? plain(x.get(), y.get()) : nullptr;
}

constexpr const char* kAdd = "add";
constexpr const char* kSubtract = "sub";
constexpr const char* kMultiply = "mul";
constexpr const char* kDivide = "truediv";
constexpr const char* kFloorDivide = "floordiv";
constexpr const char* kRemainder = "mod";
constexpr const char* kLeft = "lshift";
constexpr const char* kRight = "rshift";
constexpr const char* kAnd = "and_";
constexpr const char* kOr = "or_";
constexpr const char* kXor = "xor";
constexpr const char* kNegative = "neg";
constexpr const char* kAbsolute = "abs";
constexpr const char* kInvert = "invert";

template <PyObject* (*Plain)(PyObject*, PyObject*), const char* const& Name>
PyObject* binary(PyObject* a, PyObject* b) {
  return computed(Name, a, b, Plain);
}

template <PyObject* (*Plain)(PyObject*), const char* const& Name>
PyObject* unary(PyObject* a) {
  Ref made = cast(a)->owner->derive(Name, a, nullptr);
  if (made || PyErr_Occurred() != nullptr) return made.release();
  return Plain(plain_number(a).get());
}

PyObject* divmod(PyObject* a, PyObject* b) {
  const Ref quotient = Ref::steal(PyNumber_FloorDivide(a, b));
  const Ref rest = quotient ? Ref::steal(PyNumber_Remainder(a, b)) : Ref();
  return rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None)
    return computed("pow", a, b, [](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); });
  const Ref x = plain_number(a), y = plain_number(b), m = plain_number(modulus);
  return PyNumber_Power(x.get(), y.get(), m.get());
}

PyObject* itself(PyObject* a) { return Py_NewRef(a); }
PyObject* value(PyObject* a) { return plain_number(a).release(); }
PyObject* as_float(PyObject* a) { return PyNumber_Float(plain_number(a).get()); }
Py_hash_t hash(PyObject* a) { return PyObject_Hash(plain_number(a).get()); }
PyObject* repr(PyObject* a) { return PyObject_Repr(plain_number(a).get()); }

int truth(PyObject* a) {
  const Ref known = cast(a)->owner->derive("truth", a, nullptr);
  if (!known && PyErr_Occurred() != nullptr) return -1;
  return PyObject_IsTrue(known ? known.get() : plain_number(a).get());
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  if (Ref known = compare_floats(*cast(a)->owner, a, b, op); known || PyErr_Occurred() != nullptr)
    return known.release();
  const Ref x = plain_number(a), y = plain_number(b);
  return PyObject_RichCompare(x.get(), y.get(), op);
}

PyObject* get_attribute(PyObject* a, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(a, name);
  if (found != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return found;
  PyErr_Clear();
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

PyTypeObject* derived_type() {
  static PyTypeObject* const made =
      number_type<PyLong_Type, DerivedInt>([](PyTypeObject& type, PyNumberMethods& number) {
        number.nb_add = binary<PyNumber_Add, kAdd>;
        number.nb_subtract = binary<PyNumber_Subtract, kSubtract>;
        number.nb_multiply = binary<PyNumber_Multiply, kMultiply>;
        number.nb_true_divide = binary<PyNumber_TrueDivide, kDivide>;
        number.nb_floor_divide = binary<PyNumber_FloorDivide, kFloorDivide>;
        number.nb_remainder = binary<PyNumber_Remainder, kRemainder>;
        number.nb_divmod = divmod;
        number.nb_power = power;
        number.nb_lshift = binary<PyNumber_Lshift, kLeft>;
        number.nb_rshift = binary<PyNumber_Rshift, kRight>;
        number.nb_and = binary<PyNumber_And, kAnd>;
        number.nb_or = binary<PyNumber_Or, kOr>;
        number.nb_xor = binary<PyNumber_Xor, kXor>;
        number.nb_negative = unary<PyNumber_Negative, kNegative>;
        number.nb_positive = itself;
        number.nb_absolute = unary<PyNumber_Absolute, kAbsolute>;
        number.nb_invert = unary<PyNumber_Invert, kInvert>;
        number.nb_bool = truth;
        number.nb_int = value;
        number.nb_index = value;
        number.nb_float = as_float;
        static PyMethodDef methods[] = {{"__trunc__", number_itself, METH_NOARGS, nullptr},
                                        {"__floor__", number_itself, METH_NOARGS, nullptr},
                                        {"__ceil__", number_itself, METH_NOARGS, nullptr},
                                        {"__round__", round_to, METH_VARARGS, nullptr},
                                        {"__copy__", number_itself, METH_NOARGS, nullptr},
                                        {"__deepcopy__", number_itself, METH_O, nullptr},
                                        {"__format__", format, METH_O, nullptr},
                                        {"__reduce_ex__", reduce, METH_O, nullptr},
                                        {nullptr, nullptr, 0, nullptr}};
        type.tp_hash = hash;
        type.tp_repr = repr;
        type.tp_richcompare = compare;
        type.tp_getattro = get_attribute;
        type.tp_methods = methods;
      });
  return made;
}

}  // namespace

bool is_derived_int(PyObject* object) { return object != nullptr && Py_TYPE(object) == derived_type(); }

int derived_int_slot(PyObject* object) { return is_derived_int(object) ? cast(object)->slot : -1; }

Ref derived_int_value(PyObject* object, bool guarded) {
  const Ref held = Ref::borrow(object);  // a graph break lets go of it
  if (guarded) cast(object)->owner->need(cast(object)->slot);
  return Ref::steal(_PyLong_Copy(&cast(object)->number));
}

void settle_derived_int(PyObject* object) {
  if (is_derived_int(object)) Py_SET_TYPE(object, &PyLong_Type);
}

Ref TraceSymbols::make_derived_int(PyObject* value, int slot) {
  auto* made = static_cast<DerivedInt*>(PyObject_Malloc(sizeof(DerivedInt)));
  if (made == nullptr) return {};
  PyObject_Init(reinterpret_cast<PyObject*>(made), derived_type());
  copy_digits(made, value);
  made->owner = this;
  made->slot = slot;
  Ref result = Ref::steal(reinterpret_cast<PyObject*>(made));
  made_derived_.emplace(result.get(), std::make_pair(result, slot));
  return result;
}

}  // namespace tatara::capture
