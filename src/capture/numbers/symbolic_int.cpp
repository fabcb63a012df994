#include "capture/numbers/symbolic_int.h"

#include <algorithm>
#include <optional>

#include "capture/numbers/number_type.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

struct SymInt {
  IntHead head;
  const ExprNode* node;
  TraceSymbols* owner;
};

PyTypeObject* int_type();

SymInt* as_int(PyObject* object) { return reinterpret_cast<SymInt*>(object); }

/// The operand as an expression of `owner`'s context; nothing for other objects and integers beyond 64 bits.
std::optional<Expr> operand(PyObject* object, const TraceSymbols& owner) {
  if (is_symbolic_int(object)) {
    if (as_int(object)->owner != &owner) return std::nullopt;
    return Expr(as_int(object)->node);
  }
  if (!PyLong_Check(object)) return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) return std::nullopt;
  return owner.ctx().constant(value);
}

/// `symbolic(owner, x, y)` gives the result as an Expr; where it is invalid, number_binary() does.
template <typename Fn>
PyObject* int_binary(const BinaryOp& op, PyObject* a, PyObject* b, Fn&& symbolic) {
  TraceSymbols* owner = int_symbols(is_symbolic_int(a) ? a : b);
  if (owner == nullptr) return number_binary(op, a, b);  // settled by a method of the other operand's
  const std::optional<Expr> x = operand(a, *owner), y = operand(b, *owner);
  if (x && y) {
    try {
      const Expr result = symbolic(*owner, *x, *y);
      if (result.valid()) return owner->make(result).release();
    } catch (const Error&) {
      // Beyond 64 bits, or a division by zero: Python's own arithmetic says what happens.
    }
  }
  return number_binary(op, a, b);
}

PyObject* int_add(PyObject* a, PyObject* b) {
  return int_binary(kAdd, a, b, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().add(x, y); });
}
PyObject* int_subtract(PyObject* a, PyObject* b) {
  return int_binary(kSubtract, a, b, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().sub(x, y); });
}
PyObject* int_multiply(PyObject* a, PyObject* b) {
  return int_binary(kMultiply, a, b, [](TraceSymbols& s, Expr x, Expr y) { return s.ctx().mul(x, y); });
}
bool decide(TraceSymbols& s, Expr condition) { return s.decide(condition); }
bool divides(TraceSymbols& s, Expr y) { return decide(s, s.ctx().ne(y, s.ctx().constant(0))); }
PyObject* int_floor_divide(PyObject* a, PyObject* b) {
  return int_binary(kFloorDivide, a, b,
                    [](TraceSymbols& s, Expr x, Expr y) { return divides(s, y) ? s.ctx().floordiv(x, y) : Expr(); });
}
PyObject* int_remainder(PyObject* a, PyObject* b) {
  return int_binary(kRemainder, a, b,
                    [](TraceSymbols& s, Expr x, Expr y) { return divides(s, y) ? s.ctx().mod(x, y) : Expr(); });
}
PyObject* int_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) return number_power(a, b, modulus);
  return int_binary(kPower, a, b, [](TraceSymbols& s, Expr x, Expr y) {
    constexpr int64_t kLargest = 8;
    if (!y.is_const() || y.const_value() < 1 || y.const_value() > kLargest) return Expr();
    Expr result = x;
    for (int64_t i = 1; i < y.const_value(); ++i) result = s.ctx().mul(result, x);
    return result;
  });
}
Expr two_to(TraceSymbols& s, Expr y) {
  if (!y.is_const() || y.const_value() < 0 || y.const_value() > 61) return {};
  return s.ctx().constant(int64_t{1} << y.const_value());
}
PyObject* int_lshift(PyObject* a, PyObject* b) {
  return int_binary(kLeft, a, b, [](TraceSymbols& s, Expr x, Expr y) {
    const Expr factor = two_to(s, y);
    return factor.valid() ? s.ctx().mul(x, factor) : Expr();
  });
}
PyObject* int_rshift(PyObject* a, PyObject* b) {
  return int_binary(kRight, a, b, [](TraceSymbols& s, Expr x, Expr y) {
    const Expr divisor = two_to(s, y);
    return divisor.valid() ? s.ctx().floordiv(x, divisor) : Expr();
  });
}
PyObject* int_matmul(PyObject* a, PyObject* b) {
  static constexpr BinaryOp kProduct{"matmul", PyNumber_MatrixMultiply, &PyNumberMethods::nb_matrix_multiply};
  return number_binary(kProduct, a, b);
}

template <typename Fn>
PyObject* int_unary(PyObject* a, PyObject* (*plain)(PyObject*), Fn&& symbolic) {
  TraceSymbols& owner = *as_int(a)->owner;
  try {
    return owner.make(symbolic(owner.ctx(), Expr(as_int(a)->node))).release();
  } catch (const Error&) {
    const Ref value = plain_int(a);
    return plain(value.get());
  }
}
PyObject* int_negative(PyObject* a) {
  return int_unary(a, PyNumber_Negative, [](ExprContext& c, Expr x) { return c.neg(x); });
}
PyObject* int_absolute(PyObject* a) {
  TraceSymbols& owner = *as_int(a)->owner;
  return int_unary(a, PyNumber_Absolute,
                   [&owner](ExprContext& c, Expr x) { return decide(owner, c.le(c.constant(0), x)) ? x : c.neg(x); });
}
PyObject* int_invert(PyObject* a) {
  return int_unary(a, PyNumber_Invert, [](ExprContext& c, Expr x) { return c.sub(c.constant(-1), x); });
}
int int_bool(PyObject* a) {
  ExprContext& ctx = as_int(a)->owner->ctx();
  try {
    return decide(*as_int(a)->owner, ctx.ne(Expr(as_int(a)->node), ctx.constant(0))) ? 1 : 0;
  } catch (const Error&) {
    return PyObject_IsTrue(plain_int(a).get());
  }
}

PyObject* int_compare(PyObject* a, PyObject* b, int op) {
  TraceSymbols& owner = *as_int(a)->owner;
  const std::optional<Expr> y = operand(b, owner);
  if (!y) {
    if (!PyLong_Check(b) && !PyFloat_Check(b) && !is_symbolic_number(b)) return compare_with_other(a, b, op);
    if (PyFloat_CheckExact(b) || is_symbolic_number(b)) {
      Ref known = compare_on_tape(a, b, op);
      if (known || PyErr_Occurred() != nullptr) return known.release();
    }
    return compare_by_value(a, b, op);
  }
  ExprContext& c = owner.ctx();
  const Expr x(as_int(a)->node);
  if (op == Py_EQ && owner.looks_up()) return PyBool_FromLong(c.evaluate_hint(x) == c.evaluate_hint(*y));
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
    return compare_by_value(a, b, op);
  }
}

Py_hash_t int_hash(PyObject* a) {
  return PyObject_Hash(as_int(a)->owner->looks_up() ? int_now(a).get() : plain_int(a).get());
}

PyTypeObject* int_type() {
  static PyTypeObject* const made = number_type<PyLong_Type, SymInt>([](PyTypeObject& type, PyNumberMethods& number) {
    set_int_slots(type, number);
    number.nb_add = int_add;
    number.nb_subtract = int_subtract;
    number.nb_multiply = int_multiply;
    number.nb_floor_divide = int_floor_divide;
    number.nb_remainder = int_remainder;
    number.nb_power = int_power;
    number.nb_lshift = int_lshift;
    number.nb_rshift = int_rshift;
    number.nb_matrix_multiply = int_matmul;
    number.nb_negative = int_negative;
    number.nb_absolute = int_absolute;
    number.nb_invert = int_invert;
    number.nb_bool = int_bool;
    type.tp_richcompare = int_compare;
    type.tp_hash = int_hash;
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

Expr symbolic_expr(PyObject* object) { return is_symbolic_int(object) ? Expr(as_int(object)->node) : Expr(); }

TraceSymbols* int_symbols(PyObject* object) { return is_symbolic_int(object) ? as_int(object)->owner : nullptr; }

Ref int_now(PyObject* object) {
  if (!is_symbolic_int(object)) return Ref::borrow(object);
  return Ref::steal(PyLong_FromLongLong(as_int(object)->owner->ctx().evaluate_hint(symbolic_expr(object)).value_or(0)));
}

Ref plain_int(PyObject* object) {
  if (!is_symbolic_int(object)) return Ref::borrow(object);
  return Ref::steal(PyLong_FromLongLong(as_int(object)->owner->specialize(Expr(as_int(object)->node))));
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
    as_int(object)->owner->specialize(Expr(as_int(object)->node));
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
    while (PyDict_Next(object, &at, &key, &value) != 0) {
      settle_in(key, depth - 1);  // read by its hash, guarded already
      settle_in(value, depth - 1);
    }
  }
}

Expr TraceSymbols::begin_turn(int64_t hint, IntRange range, std::function<void()> other) {
  TATARA_CHECK(symbols_.empty(), "the turn of a loop beside other symbols");
  const Expr symbol = add(hint, {}, range);
  other_ = std::move(other);
  return symbol;
}

void TraceSymbols::end_turn() {
  if (!in_turn()) return;
  other_ = nullptr;
  for (const auto& [object, held] : made_) {
    if (is_symbolic_int(object)) Py_SET_TYPE(object, &PyLong_Type);
  }
  made_.clear();
  for (const Ref& each : turn_refs_) {
    auto* size = reinterpret_cast<SizeRef*>(each.get());
    const Expr value = ctx_->constant(ctx_->evaluate_hint(Expr(size->node)).value_or(0));
    size->node = value.node();
    *size->program = ExprProgram(value, {});
  }
  turn_refs_.clear();
  symbols_.clear();
  hints_.clear();
  ranges_.clear();
  sources_.clear();
  places_.clear();
  program_guards_.clear();
  ctx_->drop_guards();
}

Expr TraceSymbols::add(int64_t hint, SymbolSource source, IntRange range) {
  if (const std::function<void()> other = other_; other) other();
  const Expr symbol = ctx_->fresh_size_symbol(hint, range);
  symbols_.push_back(symbol);
  hints_.push_back(hint);
  ranges_.push_back(range);
  sources_.push_back(source);
  return symbol;
}

Expr TraceSymbols::add_made(int64_t hint, int slot, int dim, IntRange range) {
  made_symbols_.push_back(add(hint, {-1, dim, false, slot}, range));
  return made_symbols_.back();
}

bool TraceSymbols::is_made(Expr e) const {
  return std::any_of(made_symbols_.begin(), made_symbols_.end(), [e](Expr symbol) { return e.contains(symbol); });
}

bool TraceSymbols::decide(Expr condition) {
  if (!is_made(condition)) {
    const bool holds = ctx_->guard(condition);
    note_guards();
    return holds;
  }
  if (const std::optional<bool> known = ctx_->decide(condition)) return *known;
  return take_decision([&] { return ctx_->guard(condition) ? 1 : 0; }) != 0;
}

/// By what data decide, as it falls in this call.
int64_t TraceSymbols::take_decision(const std::function<int64_t()>& decide) {
  if (undecided_ && !settled_ && !may_decide()) undecided_();
  const size_t before = ctx_->guards().size();
  const int64_t value = decide();
  note_guards();
  for (size_t guard = before; guard < ctx_->guards().size(); ++guard) program_guards_.insert(guard);
  return value;
}

void TraceSymbols::note_guards() {
  while (places_.size() < ctx_->guards().size()) places_.push_back(place_ ? place_() : std::string());
}

std::string TraceSymbols::guard_text(size_t guard) const {
  const std::string text = ctx_->guards()[guard].str();
  return guard < places_.size() && !places_[guard].empty() ? text + " (" + places_[guard] + ")" : text;
}

int64_t TraceSymbols::specialize(Expr e) {
  if (is_made(e)) {
    return settled_ ? ctx_->evaluate_hint(e).value_or(0) : take_decision([&] { return ctx_->specialize(e); });
  }
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

void TraceSymbols::keep_in_words(Expr e, int64_t hint) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const IntRange range = ctx_->range(e);
  if (range.lo >= -kMost && range.hi <= kMost) return;
  if (hint < -kMost || hint > kMost) throw Unsupported("a symbolic integer near the ends of 64 bits");
  ctx_->guard(ctx_->le(ctx_->constant(-kMost), e));
  ctx_->guard(ctx_->le(e, ctx_->constant(kMost)));
  note_guards();
}

Ref TraceSymbols::make(Expr e) {
  if (!e.is_const()) {
    const Expr simple = ctx_->simplify(e);
    if (simple.is_const()) e = simple;
  }
  if (e.is_const()) return Ref::steal(PyLong_FromLongLong(e.const_value()));
  const std::optional<int64_t> hint = ctx_->evaluate_hint(e);
  TATARA_CHECK(hint.has_value(), "a symbolic integer without a value");
  if (settled_) return Ref::steal(PyLong_FromLongLong(*hint));  // the trace has ended inside of the arithmetic
  keep_in_words(e, *hint);
  const Ref value = Ref::steal(PyLong_FromLongLong(*hint));
  auto* object = value ? PyObject_New(SymInt, int_type()) : nullptr;
  if (object == nullptr) return {};
  object->head.set(value.get());
  object->node = e.node();
  object->owner = this;
  Ref result = Ref::steal(reinterpret_cast<PyObject*>(object));
  made_.emplace(result.get(), result);
  return result;
}

void TraceSymbols::settle_all() {
  std::vector<Ref> all;
  for (const auto& [object, held] : made_) all.push_back(held);
  for (const auto& [object, held] : made_floats_) all.push_back(held);
  for (const auto& [object, held] : made_derived_) all.push_back(held.first);
  for (const Ref& each : all) settle_in(each.get());
}

void TraceSymbols::settle() {
  settled_ = true;
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
  return made_.contains(object) ? Expr(as_int(object)->node) : Expr();
}

Ref make_size_ref(Expr e, TraceSymbols& symbols) {
  auto* object = PyObject_New(SizeRef, size_ref_type());
  if (object == nullptr) return {};
  object->node = e.node();
  object->ctx = new std::shared_ptr<ExprContext>(symbols.ctx_ptr());
  object->program = new ExprProgram(symbols.program(e));
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(object));
  symbols.note_size_ref(made);
  return made;
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
