// Floats of a program whose value differs from call to call. As operands of tensors they are read when the graph runs; all
// else asks for the value, which then is guarded.
#include <cstring>

#include "capture/numbers/number_type.h"
#include "capture/numbers/symbolic_int.h"

namespace tatara::capture {
namespace {

/// Begins as a float does, so that it can become one.
struct SymFloat {
  PyFloatObject number;
  TraceSymbols* owner;
  const ExprNode *high, *low;  // the two halves of its bits; null: the tape computes it
  int object, slot;
};

SymFloat* as_float(PyObject* object) { return reinterpret_cast<SymFloat*>(object); }

PyObject* float_attribute(PyObject* a, PyObject* name) {
  // isinstance() asks for it.
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
    return Py_NewRef(reinterpret_cast<PyObject*>(&PyFloat_Type));
  }
  // What no float has says nothing of the value: torch looks for methods that override its own.
  if (_PyType_Lookup(&PyFloat_Type, name) == nullptr) {
    PyErr_Format(PyExc_AttributeError, "'float' object has no attribute '%U'", name);
    return nullptr;
  }
  return PyObject_GetAttr(plain_number(a).get(), name);
}

template <const char* const& Name>
PyObject* method(PyObject* a, PyObject* args) {
  const Ref bound = attr(plain_number(a).get(), Name);
  return bound ? PyObject_Call(bound.get(), args, nullptr) : nullptr;
}

constexpr const char* kRound = "__round__";
constexpr const char* kTrunc = "__trunc__";
constexpr const char* kFloor = "__floor__";
constexpr const char* kCeil = "__ceil__";
constexpr const char* kFormat = "__format__";
constexpr const char* kReduce = "__reduce_ex__";

PyTypeObject* float_type() {
  static PyTypeObject* const made =
      number_type<PyFloat_Type, SymFloat>([](PyTypeObject& type, PyNumberMethods& number) {
        number.nb_positive = by_value<PyNumber_Positive>;
        number.nb_int = by_value<PyNumber_Long>;
        static PyMethodDef methods[] = {{"__round__", method<kRound>, METH_VARARGS, nullptr},
                                        {"__trunc__", method<kTrunc>, METH_VARARGS, nullptr},
                                        {"__floor__", method<kFloor>, METH_VARARGS, nullptr},
                                        {"__ceil__", method<kCeil>, METH_VARARGS, nullptr},
                                        {"__format__", method<kFormat>, METH_VARARGS, nullptr},
                                        {"__reduce_ex__", method<kReduce>, METH_VARARGS, nullptr},
                                        {"__copy__", number_itself, METH_NOARGS, nullptr},
                                        {"__deepcopy__", number_itself, METH_O, nullptr},
                                        {nullptr, nullptr, 0, nullptr}};
        type.tp_getattro = float_attribute;
        type.tp_methods = methods;
      });
  return made;
}

}  // namespace

bool is_symbolic_float(PyObject* object) { return object != nullptr && Py_TYPE(object) == float_type(); }

TraceSymbols* float_symbols(PyObject* object) { return is_symbolic_float(object) ? as_float(object)->owner : nullptr; }

int float_slot(PyObject* object) { return is_symbolic_float(object) ? as_float(object)->slot : -1; }

Ref plain_number(PyObject* object) {
  if (is_derived_int(object)) return derived_int_value(object, true);
  if (!is_symbolic_float(object)) return plain_int(object);
  SymFloat* self = as_float(object);
  if (self->high == nullptr) {
    const Ref held = Ref::borrow(object);  // a graph break lets go of it
    self->owner->need(self->slot);
    return Ref::steal(PyFloat_FromDouble(self->number.ob_fval));
  }
  self->owner->specialize(Expr(self->high));
  self->owner->specialize(Expr(self->low));
  return Ref::steal(PyFloat_FromDouble(self->number.ob_fval));
}

void settle_float(PyObject* object) {
  if (is_symbolic_float(object)) Py_SET_TYPE(object, &PyFloat_Type);
}

int64_t number_part(PyObject* number, int dim) {
  if (dim == SymbolSource::kInt) return PyLong_AsLongLong(number);
  const double value = PyFloat_AS_DOUBLE(number);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  constexpr uint64_t kLow = 0xffffffff;
  return static_cast<int64_t>(dim == SymbolSource::kFloatHigh ? bits >> 32 : bits & kLow);
}

std::pair<Expr, Expr> TraceSymbols::add_float(PyObject* value, int object) {
  constexpr int64_t kLargest = 0xffffffff;
  const Expr high =
      add(number_part(value, SymbolSource::kFloatHigh), {object, SymbolSource::kFloatHigh, false}, {0, kLargest});
  const Expr low =
      add(number_part(value, SymbolSource::kFloatLow), {object, SymbolSource::kFloatLow, false}, {0, kLargest});
  return {high, low};
}

Ref TraceSymbols::make_float(PyObject* value, std::pair<Expr, Expr> bits, int object, int slot) {
  auto* made = PyObject_New(SymFloat, float_type());
  if (made == nullptr) return {};
  made->number.ob_fval = PyFloat_AS_DOUBLE(value);
  made->owner = this;
  made->high = bits.first.node();
  made->low = bits.second.node();
  made->object = object;
  made->slot = slot;
  Ref result = Ref::steal(reinterpret_cast<PyObject*>(made));
  made_floats_.emplace(result.get(), result);
  return result;
}

Ref TraceSymbols::make_derived(PyObject* value, int slot) { return make_float(value, {}, -1, slot); }

int TraceSymbols::derived_slot(PyObject* object) const {
  if (const auto found = made_derived_.find(object); found != made_derived_.end()) return found->second.second;
  return made_floats_.contains(object) && as_float(object)->high == nullptr ? as_float(object)->slot : -1;
}

double float_value(PyObject* object) { return as_float(object)->number.ob_fval; }

int TraceSymbols::float_object(PyObject* object) const {
  return made_floats_.contains(object) ? as_float(object)->object : -1;
}

}  // namespace tatara::capture
