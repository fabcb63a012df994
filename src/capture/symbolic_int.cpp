#include "capture/symbolic_int.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "capture/number_type.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

constexpr size_t kDigits = 3;  // of 30 bits: any 64-bit integer

/// Begins as an int does, so that it can become one.
struct SymInt {
  PyLongObject number;
  uint32_t more_digits[kDigits];
  const ExprNode* node;
  TraceSymbols* owner;
};

PyTypeObject* int_type();

SymInt* cast(PyObject* object) { return reinterpret_cast<SymInt*>(object); }

/// The operand as an expression of `owner`'s context; nothing for other objects and integers beyond 64 bits.
std::optional<Expr> operand(PyObject* object, const TraceSymbols& owner) {
  if (is_symbolic_int(object)) {
    if (cast(object)->owner != &owner) return std::nullopt;
    return Expr(cast(object)->node);
  }
  if (!PyLong_Check(object)) return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) return std::nullopt;
  return owner.ctx().constant(value);
}

bool is_number(PyObject* object) {
  return is_symbolic_number(object) || PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
}

using PlainBinary = PyObject* (*)(PyObject*, PyObject*);

/// Computes with values: the operands are guarded.
PyObject* plain_binary(PyObject* a, PyObject* b, PlainBinary op) {
  const Ref x = plain_number(a), y = plain_number(b);
  if (!x || !y) return nullptr;
  return op(x.get(), y.get());
}

/// `symbolic(owner, x, y)` gives the result as an Expr, or an invalid one to compute with values.
template <typename Fn>
PyObject* binary(PyObject* a, PyObject* b, PlainBinary plain, Fn&& symbolic, const char* name = nullptr) {
  if (!is_number(a) || !is_number(b))
    return plain_binary(a, b, plain);  // sequences repeat, others have their own slots
  TraceSymbols& owner = *symbols_of(is_symbolic_int(a) ? a : b);
  const std::optional<Expr> x = operand(a, owner), y = operand(b, owner);
  if (x && y) {
    try {
      const Expr result = symbolic(owner, *x, *y);
      if (result.valid()) return owner.make(result).release();
    } catch (const Error&) {
      // Beyond 64 bits, or a division by zero: Python's own arithmetic says what happens.
    }
  }
  if (name != nullptr) {
    Ref made = owner.derive(name, a, b);  // where the result is a float
    if (made || PyErr_Occurred() != nullptr) return made.release();
  }
  return plain_binary(a, b, plain);
}

PyObject* plain_power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

PyObject* int_add(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_Add, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().add(x, y); }, "add");
}
PyObject* int_subtract(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_Subtract, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().sub(x, y); }, "sub");
}
PyObject* int_multiply(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_Multiply, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().mul(x, y); }, "mul");
}
bool decide(TraceSymbols& s, Expr condition) {
  const bool holds = s.ctx().guard(condition);
  s.note_guards();
  return holds;
}
bool divides(TraceSymbols& s, Expr y) { return decide(s, s.ctx().ne(y, s.ctx().constant(0))); }
PyObject* int_floor_divide(PyObject* a, PyObject* b) {
  return binary(
      a, b, PyNumber_FloorDivide,
      [](TraceSymbols& s, Expr x, Expr y) { return divides(s, y) ? s.ctx().floordiv(x, y) : Expr(); }, "floordiv");
}
PyObject* int_remainder(PyObject* a, PyObject* b) {
  return binary(
      a, b, PyNumber_Remainder,
      [](TraceSymbols& s, Expr x, Expr y) { return divides(s, y) ? s.ctx().mod(x, y) : Expr(); }, "mod");
}
PyObject* int_divmod(PyObject* a, PyObject* b) {
  if (!is_number(a) || !is_number(b)) Py_RETURN_NOTIMPLEMENTED;
  const Ref quotient = Ref::steal(PyNumber_FloorDivide(a, b));
  if (!quotient) return nullptr;
  const Ref rest = Ref::steal(PyNumber_Remainder(a, b));
  if (!rest) return nullptr;
  return PyTuple_Pack(2, quotient.get(), rest.get());
}
PyObject* int_true_divide(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_TrueDivide, [](TraceSymbols&, Expr, Expr) { return Expr(); }, "truediv");
}
PyObject* int_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) {
    const Ref x = plain_number(a), y = plain_number(b), m = plain_number(modulus);
    return PyNumber_Power(x.get(), y.get(), m.get());
  }
  return binary(
      a, b, plain_power,
      [](TraceSymbols& s, Expr x, Expr y) {
        constexpr int64_t kLargest = 8;
        if (!y.is_const() || y.const_value() < 1 || y.const_value() > kLargest) return Expr();
        Expr result = x;
        for (int64_t i = 1; i < y.const_value(); ++i) result = s.ctx().mul(result, x);
        return result;
      },
      "pow");
}
Expr two_to(TraceSymbols& s, Expr y) {
  if (!y.is_const() || y.const_value() < 0 || y.const_value() > 61) return {};
  return s.ctx().constant(int64_t{1} << y.const_value());
}
PyObject* int_lshift(PyObject* a, PyObject* b) {
  return binary(
      a, b, PyNumber_Lshift,
      [](TraceSymbols& s, Expr x, Expr y) {
        const Expr factor = two_to(s, y);
        return factor.valid() ? s.ctx().mul(x, factor) : Expr();
      },
      "lshift");
}
PyObject* int_rshift(PyObject* a, PyObject* b) {
  return binary(
      a, b, PyNumber_Rshift,
      [](TraceSymbols& s, Expr x, Expr y) {
        const Expr divisor = two_to(s, y);
        return divisor.valid() ? s.ctx().floordiv(x, divisor) : Expr();
      },
      "rshift");
}
PyObject* int_and(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_And, [](TraceSymbols&, Expr, Expr) { return Expr(); }, "and_");
}
PyObject* int_or(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_Or, [](TraceSymbols&, Expr, Expr) { return Expr(); }, "or_");
}
PyObject* int_xor(PyObject* a, PyObject* b) {
  return binary(a, b, PyNumber_Xor, [](TraceSymbols&, Expr, Expr) { return Expr(); }, "xor");
}
PyObject* int_matmul(PyObject* a, PyObject* b) { return plain_binary(a, b, PyNumber_MatrixMultiply); }

template <typename Fn>
PyObject* unary(PyObject* a, PyObject* (*plain)(PyObject*), Fn&& symbolic) {
  TraceSymbols& owner = *cast(a)->owner;
  try {
    return owner.make(symbolic(owner.ctx(), Expr(cast(a)->node))).release();
  } catch (const Error&) {
    const Ref value = plain_int(a);
    return plain(value.get());
  }
}
PyObject* int_negative(PyObject* a) {
  return unary(a, PyNumber_Negative, [](ExprContext& c, Expr x) { return c.neg(x); });
}
PyObject* int_positive(PyObject* a) { return Py_NewRef(a); }
PyObject* int_absolute(PyObject* a) {
  return unary(a, PyNumber_Absolute,
               [](ExprContext& c, Expr x) { return c.guard(c.le(c.constant(0), x)) ? x : c.neg(x); });
}
PyObject* int_invert(PyObject* a) {
  return unary(a, PyNumber_Invert, [](ExprContext& c, Expr x) { return c.sub(c.constant(-1), x); });
}
int int_bool(PyObject* a) {
  ExprContext& ctx = cast(a)->owner->ctx();
  try {
    return decide(*cast(a)->owner, ctx.ne(Expr(cast(a)->node), ctx.constant(0))) ? 1 : 0;
  } catch (const Error&) {
    return PyObject_IsTrue(plain_int(a).get());
  }
}
PyObject* int_index(PyObject* a) { return plain_int(a).release(); }
PyObject* int_float(PyObject* a) { return PyNumber_Float(plain_int(a).get()); }
Py_hash_t int_hash(PyObject* a) { return PyObject_Hash(plain_int(a).get()); }
PyObject* int_repr(PyObject* a) { return PyObject_Repr(plain_int(a).get()); }

PyObject* int_compare(PyObject* a, PyObject* b, int op) {
  TraceSymbols& owner = *cast(a)->owner;
  const std::optional<Expr> y = operand(b, owner);
  if (!y) {
    if (b == Py_None || PyUnicode_Check(b) || PyTuple_Check(b) || PyType_Check(b)) Py_RETURN_NOTIMPLEMENTED;
    if (PyFloat_CheckExact(b) || is_symbolic_number(b)) {
      Ref known = compare_floats(owner, a, b, op);
      if (known || PyErr_Occurred() != nullptr) return known.release();
    }
    const Ref x = plain_int(a), other = plain_number(b);
    return PyObject_RichCompare(x.get(), other.get(), op);
  }
  ExprContext& c = owner.ctx();
  const Expr x(cast(a)->node);
  try {
    switch (op) {
      case Py_LT: return PyBool_FromLong(decide(owner, c.lt(x, *y)));
      case Py_LE: return PyBool_FromLong(decide(owner, c.le(x, *y)));
      case Py_EQ: return PyBool_FromLong(decide(owner, c.eq(x, *y)));
      case Py_NE: return PyBool_FromLong(decide(owner, c.ne(x, *y)));
      case Py_GT: return PyBool_FromLong(decide(owner, c.lt(*y, x)));
      default: return PyBool_FromLong(decide(owner, c.le(*y, x)));
    }
  } catch (const Error&) {
    const Ref plain = plain_number(a), other = plain_number(b);
    return PyObject_RichCompare(plain.get(), other.get(), op);
  }
}

PyObject* int_getattr(PyObject* a, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(a, name);
  if (found != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return found;
  PyErr_Clear();
  return PyObject_GetAttr(plain_int(a).get(), name);
}

PyObject* int_round(PyObject* a, PyObject* args) {
  if (PyTuple_GET_SIZE(args) == 0) return Py_NewRef(a);
  const Ref method = attr(plain_int(a).get(), "__round__");
  return PyObject_Call(method.get(), args, nullptr);
}
PyObject* int_format(PyObject* a, PyObject* spec) { return PyObject_Format(plain_int(a).get(), spec); }
PyObject* int_reduce(PyObject* a, PyObject* protocol) {
  return PyObject_CallMethod(plain_int(a).get(), "__reduce_ex__", "O", protocol);
}

PyTypeObject* int_type() {
  static PyTypeObject* const made = number_type<PyLong_Type, SymInt>([](PyTypeObject& type, PyNumberMethods& number) {
    number.nb_add = int_add;
    number.nb_subtract = int_subtract;
    number.nb_multiply = int_multiply;
    number.nb_floor_divide = int_floor_divide;
    number.nb_remainder = int_remainder;
    number.nb_divmod = int_divmod;
    number.nb_true_divide = int_true_divide;
    number.nb_power = int_power;
    number.nb_lshift = int_lshift;
    number.nb_rshift = int_rshift;
    number.nb_and = int_and;
    number.nb_or = int_or;
    number.nb_xor = int_xor;
    number.nb_matrix_multiply = int_matmul;
    number.nb_negative = int_negative;
    number.nb_positive = int_positive;
    number.nb_absolute = int_absolute;
    number.nb_invert = int_invert;
    number.nb_bool = int_bool;
    number.nb_int = int_index;
    number.nb_index = int_index;
    number.nb_float = int_float;
    static PyMethodDef methods[] = {{"__trunc__", number_itself, METH_NOARGS, nullptr},
                                    {"__floor__", number_itself, METH_NOARGS, nullptr},
                                    {"__ceil__", number_itself, METH_NOARGS, nullptr},
                                    {"__round__", int_round, METH_VARARGS, nullptr},
                                    {"__copy__", number_itself, METH_NOARGS, nullptr},
                                    {"__deepcopy__", number_itself, METH_O, nullptr},
                                    {"__format__", int_format, METH_O, nullptr},
                                    {"__reduce_ex__", int_reduce, METH_O, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
    type.tp_hash = int_hash;
    type.tp_repr = int_repr;
    type.tp_richcompare = int_compare;
    type.tp_getattro = int_getattr;
    type.tp_methods = methods;
  });
  return made;
}

struct SizeRef {
  PyObject_HEAD const ExprNode* node;
  std::shared_ptr<ExprContext>* ctx;
  ExprProgram* program;
};

void size_ref_dealloc(PyObject* self) {
  auto* ref = reinterpret_cast<SizeRef*>(self);
  delete ref->program;
  delete ref->ctx;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* size_ref_repr(PyObject* self) { return PyUnicode_FromString(size_ref_expr(self).str().c_str()); }

PyTypeObject* size_ref_type() {
  return made_once([] {
    static PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(size_ref_repr)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(size_ref_dealloc)},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.Size", sizeof(SizeRef), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

}  // namespace

bool is_symbolic_int(PyObject* object) { return object != nullptr && Py_TYPE(object) == int_type(); }

Expr symbolic_expr(PyObject* object) { return is_symbolic_int(object) ? Expr(cast(object)->node) : Expr(); }

TraceSymbols* symbols_of(PyObject* object) { return is_symbolic_int(object) ? cast(object)->owner : nullptr; }

Ref plain_int(PyObject* object) {
  if (!is_symbolic_int(object)) return Ref::borrow(object);
  return Ref::steal(PyLong_FromLongLong(cast(object)->owner->specialize(Expr(cast(object)->node))));
}

bool holds_symbolic_number(PyObject* object, int depth) {
  if (object == nullptr || depth < 0) return false;
  if (is_symbolic_number(object)) return true;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (holds_symbolic_number(PySequence_Fast_GET_ITEM(object, i), depth - 1)) return true;
    }
  } else if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_symbolic_number(slice->start) || is_symbolic_number(slice->stop) || is_symbolic_number(slice->step);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) {
      if (holds_symbolic_number(value, depth - 1)) return true;
    }
  }
  return false;
}

void settle_in(PyObject* object, int depth) {
  if (object == nullptr || depth < 0) return;
  if (is_symbolic_int(object)) {
    cast(object)->owner->specialize(Expr(cast(object)->node));
    Py_SET_TYPE(object, &PyLong_Type);
  } else if (is_symbolic_float(object)) {
    plain_number(object);
    settle_float(object);
  } else if (is_derived_int(object)) {
    plain_number(object);
    settle_derived_int(object);
  } else if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      settle_in(PySequence_Fast_GET_ITEM(object, i), depth - 1);
    }
  } else if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) settle_in(part, depth - 1);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) settle_in(value, depth - 1);
  }
}

Expr TraceSymbols::add(int64_t hint, SymbolSource source, IntRange range) {
  const Expr symbol = ctx_->fresh_size_symbol(hint, range);
  symbols_.push_back(symbol);
  hints_.push_back(hint);
  ranges_.push_back(range);
  sources_.push_back(source);
  return symbol;
}

void TraceSymbols::note_guards() {
  while (places_.size() < ctx_->guards().size()) places_.push_back(place_ ? place_() : std::string());
}

std::string TraceSymbols::guard_text(size_t guard) const {
  const std::string text = ctx_->guards()[guard].str();
  return guard < places_.size() && !places_[guard].empty() ? text + " (" + places_[guard] + ")" : text;
}

int64_t TraceSymbols::specialize(Expr e) {
  try {
    const int64_t value = ctx_->specialize(e);
    note_guards();
    return value;
  } catch (const Error&) {
    // The comparison leaves 64 bits: every symbol by its value says more.
    for (const Expr symbol : symbols_) {
      if (e.contains(symbol)) ctx_->specialize(symbol);
    }
    return ctx_->evaluate_hint(e).value_or(0);
  }
}

Ref TraceSymbols::make(Expr e) {
  if (!e.is_const()) {
    const Expr simple = ctx_->simplify(e);
    if (simple.is_const()) e = simple;
  }
  if (e.is_const()) return Ref::steal(PyLong_FromLongLong(e.const_value()));
  const std::optional<int64_t> hint = ctx_->evaluate_hint(e);
  TATARA_CHECK(hint.has_value(), "a symbolic integer without a value");
  const Ref value = Ref::steal(PyLong_FromLongLong(*hint));
  auto* object = static_cast<SymInt*>(PyObject_Malloc(sizeof(SymInt)));
  if (object == nullptr || !value) return {};
  PyObject_Init(reinterpret_cast<PyObject*>(object), int_type());
  copy_digits(object, value.get());
  object->node = e.node();
  object->owner = this;
  Ref result = Ref::steal(reinterpret_cast<PyObject*>(object));
  made_.emplace(result.get(), result);
  return result;
}

void TraceSymbols::settle() {
  for (const auto& [object, held] : made_) {
    if (is_symbolic_int(object)) Py_SET_TYPE(object, &PyLong_Type);
  }
  made_.clear();
  for (const auto& [object, held] : made_floats_) settle_float(object);
  made_floats_.clear();
  for (const auto& [object, held] : made_derived_) settle_derived_int(object);
  made_derived_.clear();
}

Expr TraceSymbols::made_of(PyObject* object) const {
  return made_.contains(object) ? Expr(cast(object)->node) : Expr();
}

Ref make_size_ref(Expr e, const TraceSymbols& symbols) {
  auto* object = PyObject_New(SizeRef, size_ref_type());
  if (object == nullptr) return {};
  object->node = e.node();
  object->ctx = new std::shared_ptr<ExprContext>(symbols.ctx_ptr());
  object->program = new ExprProgram(symbols.program(e));
  return Ref::steal(reinterpret_cast<PyObject*>(object));
}

bool is_size_ref(PyObject* object) { return Py_TYPE(object) == size_ref_type(); }

Expr size_ref_expr(PyObject* object) {
  return is_size_ref(object) ? Expr(reinterpret_cast<SizeRef*>(object)->node) : Expr();
}

bool holds_size_ref(PyObject* object) {
  if (object == nullptr) return false;
  if (is_size_ref(object)) return true;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (holds_size_ref(PySequence_Fast_GET_ITEM(object, i))) return true;
    }
  } else if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_size_ref(slice->start) || is_size_ref(slice->stop) || is_size_ref(slice->step);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) {
      if (holds_size_ref(value)) return true;
    }
  }
  return false;
}

Ref size_ref_value(PyObject* object, std::span<const int64_t> symbol_values) {
  const std::optional<int64_t> value = reinterpret_cast<SizeRef*>(object)->program->try_evaluate(symbol_values);
  if (!value) {
    PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    return {};
  }
  return Ref::steal(PyLong_FromLongLong(*value));
}

}  // namespace tatara::capture
