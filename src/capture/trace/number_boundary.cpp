// Where numbers that vary meet code in C. A placeholder is no int: code that checks the type of what it gets, or calls a slot
// and checks what that gives, must get a real one. So all code in C gets plain numbers, each guarded by value, except for
// what the tables below name, which asks for values through slots alone. The same holds for what functions in Python
// return to code in C.
#include <opcode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// What a function in C does with numbers that it is given.
enum class Taking : uint8_t {
  kSlots,   ///< hands them on, or asks their slots
  kItems,   ///< the same for those inside of containers; numbers that are arguments themselves are read
  kValues,  ///< reads what it finds
};

/// Types whose constructors and methods, where they are C code, only keep, find and compare objects.
bool is_holder(const PyTypeObject* type) {
  return known_type(type).is(kHolds) || is_dict_view(type->tp_name) ||
         PyType_IsSubtype(const_cast<PyTypeObject*>(type), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

Taking taking_of(const PyTypeObject* type) {
  if (is_holder(type)) return Taking::kSlots;
  return known_type(type).is(kCounts) ? Taking::kItems : Taking::kValues;
}

Taking worse(Taking a, Taking b) { return std::max(a, b); }

/// The C type that a class has a special method from: its own or a base's. Null: Python code.
const PyTypeObject* c_owner(PyTypeObject* type, const char* name) {
  const Ref key = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* found = _PyType_Lookup(type, key.get());
  if (found == nullptr) return nullptr;
  if (PyCFunction_Check(found)) {  // __new__
    PyObject* self = PyCFunction_GET_SELF(found);
    return self != nullptr && PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : &PyLong_Type;
  }
  if (Py_TYPE(found) == &PyWrapperDescr_Type || Py_TYPE(found) == &PyMethodDescr_Type) {
    return reinterpret_cast<PyDescrObject*>(found)->d_type;
  }
  return nullptr;
}

Taking taking_of_class(PyObject* cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  // A metaclass in Python decides itself what to do.
  if (Py_TYPE(cls)->tp_call != PyType_Type.tp_call) {
    return c_owner(Py_TYPE(cls), "__call__") == nullptr ? Taking::kSlots : Taking::kValues;
  }
  Taking result = Taking::kSlots;
  for (const char* name : {"__new__", "__init__"}) {
    if (const PyTypeObject* owner = c_owner(type, name); owner != nullptr) result = worse(result, taking_of(owner));
  }
  return result;
}

Taking taking_of_builtin(const KnownCall& known) {
  if (known.is(kReadsNumbers)) return Taking::kValues;
  if (known.is(kTakesItems)) return Taking::kItems;
  return known.is(kTakesNumbers) ? Taking::kSlots : Taking::kValues;
}

/// Functions in C that compute with objects of any type: these may check what they meet.
bool computes(PyObject* callable, const KnownCall& known) {
  if (!known.is(kComputes) || !PyCFunction_Check(callable)) return false;
  PyObject* self = reinterpret_cast<PyCFunctionObject*>(callable)->m_self;
  return self != nullptr && PyModule_Check(self);
}

/// Code in C that calls what it is given.
bool calls_arguments(PyObject* callable, const KnownCall& known) {
  const bool takes = PyType_Check(callable) || PyCFunction_Check(callable) || Py_TYPE(callable) == &PyMethodDescr_Type;
  return takes && known.is(kCallsArguments);
}

Taking taking(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs);

/// What a function does that code in C calls with numbers. `type` asks for the type that is there.
Taking taking_when_called(PyObject* o) {
  if (o == reinterpret_cast<PyObject*>(&PyType_Type)) return Taking::kValues;
  const bool code = PyType_Check(o) || PyCFunction_Check(o) || Py_TYPE(o) == &PyMethodDescr_Type ||
                    Py_TYPE(o) == &PyWrapperDescr_Type || is_partial(o) || Py_TYPE(o)->tp_call != nullptr;
  if (!code) return Taking::kSlots;
  const bool unbound = Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type;
  if (unbound) {
    PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(o)->d_type;
    return owner == &PyLong_Type || owner == &PyFloat_Type || owner == &PyBaseObject_Type ? Taking::kValues
                                                                                          : taking(o, {}, nullptr, 0);
  }
  return taking(o, known_call(o), nullptr, 0);
}

/// The type among `type` and its bases whose method this is; null: of none.
PyTypeObject* owner_of_method(const PyMethodDef* method, PyTypeObject* type) {
  for (; type != nullptr; type = type->tp_base) {
    const PyMethodDef* def = type->tp_methods;
    while (def != nullptr && def->ml_name != nullptr && def != method) ++def;
    if (def != nullptr && def == method) return type;
  }
  return nullptr;
}

/// A bound method in C, a function of a module or what a type makes (`dict.fromkeys`).
Taking taking_of_function(PyObject* callable, const KnownCall& known) {
  const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
  PyObject* self = function->m_self;
  if (self != nullptr && !PyModule_Check(self)) {
    if (PyTypeObject* owner = owner_of_method(function->m_ml, Py_TYPE(self)); owner != nullptr) return taking_of(owner);
  }
  if (self != nullptr && PyType_Check(self)) {
    const std::string_view name = function->m_ml->ml_name;
    auto* type = reinterpret_cast<PyTypeObject*>(self);
    return name == "__new__" || is_holder(type) ? taking_of(type) : Taking::kValues;
  }
  if (self != nullptr && !PyModule_Check(self) && function->m_module == nullptr) return taking_of(Py_TYPE(self));
  return taking_of_builtin(known);
}

/// A method of a type in C that gets its object as the first argument.
Taking taking_of_descriptor(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs > 0 && is_symbolic_number(args[0])) return Taking::kValues;  // it asks for an int of its own kind
  return taking_of(reinterpret_cast<PyDescrObject*>(callable)->d_type);
}

Taking taking(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs) {
  if (PyFunction_Check(callable)) return Taking::kSlots;
  if (PyMethod_Check(callable)) {
    std::vector<PyObject*> all{PyMethod_GET_SELF(callable)};
    all.insert(all.end(), args, args + nargs);
    return taking(PyMethod_GET_FUNCTION(callable), known, all.data(), nargs + 1);
  }
  if (PyType_Check(callable)) return taking_of_class(callable);
  if (PyCFunction_Check(callable)) return taking_of_function(callable, known);
  if (is_partial(callable)) {
    const Ref function = attr_or_null(callable, "func"), first = attr_or_null(callable, "args");
    if (!function || !first || !PyTuple_Check(first.get())) return Taking::kValues;
    std::vector<PyObject*> all;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first.get()); ++i) all.push_back(PyTuple_GET_ITEM(first.get(), i));
    all.insert(all.end(), args, args + nargs);
    return taking(function.get(), known_call(function.get()), all.data(), static_cast<Py_ssize_t>(all.size()));
  }
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) return taking_of_descriptor(callable, args, nargs);
  if (std::strcmp(type->tp_name, "method-wrapper") == 0) {
    const Ref owner = attr_or_null(callable, "__objclass__"), self = attr_or_null(callable, "__self__");
    if (owner && PyType_Check(owner.get())) return taking_of(reinterpret_cast<PyTypeObject*>(owner.get()));
    return self ? taking_of(Py_TYPE(self.get())) : Taking::kValues;
  }
  if (std::strcmp(type->tp_name, "types.GenericAlias") == 0) {
    const Ref origin = attr_or_null(callable, "__origin__");
    return origin ? taking(origin.get(), known_call(origin.get()), args, nargs) : Taking::kValues;
  }
  if (c_owner(type, "__call__") == nullptr) return Taking::kSlots;  // Python code
  return is_holder(type) ? Taking::kSlots : Taking::kValues;
}

/// Classes that a class statement, or type(), made have this one.
bool made_in_python(const PyTypeObject* type) {
  static const destructor made = made_once([] {
    const Ref cls = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "T"));
    return cls ? reinterpret_cast<PyTypeObject*>(cls.get())->tp_dealloc : nullptr;
  });
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_dealloc == made;
}

/// All its operators are Python code, if it has any, or those of a container of the language's own.
bool is_python_object(PyObject* object) {
  PyObject* bases = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
    const auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    const bool known = base == &PyBaseObject_Type || base == &PyTuple_Type || base == &PyList_Type ||
                       base == &PyDict_Type || base == &PySet_Type || base == &PyFrozenSet_Type;
    if (!known && !made_in_python(base)) return false;
  }
  return true;
}

/// A subclass of int whose operators are those of int (enum.IntEnum).
bool is_like_int(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  if (!PyLong_Check(object) || type->tp_richcompare != PyLong_Type.tp_richcompare) return false;
  const PyNumberMethods &own = *type->tp_as_number, &ints = *PyLong_Type.tp_as_number;
  return own.nb_add == ints.nb_add && own.nb_subtract == ints.nb_subtract && own.nb_multiply == ints.nb_multiply &&
         own.nb_remainder == ints.nb_remainder && own.nb_power == ints.nb_power && own.nb_lshift == ints.nb_lshift &&
         own.nb_rshift == ints.nb_rshift && own.nb_and == ints.nb_and && own.nb_or == ints.nb_or &&
         own.nb_xor == ints.nb_xor && own.nb_floor_divide == ints.nb_floor_divide &&
         own.nb_true_divide == ints.nb_true_divide;
}

/// Every object that code in C may get at from one that it is given.
class Reach {
 public:
  /// Settles the numbers found. False: there is too much to look at.
  bool settle_from(PyObject* object, const TorchApi& api) {
    constexpr size_t kMost = 20000;
    visit(object, this);
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_.size() > kMost) return false;
      PyObject* o = found_[i].get();
      const traverseproc traverse = Py_TYPE(o)->tp_traverse;
      if (traverse != nullptr && PyObject_IS_GC(o) && !is_closed(o, api)) traverse(o, visit, this);
    }
    for (const Ref& number : numbers_) settle_in(number.get());
    return true;
  }

 private:
  /// Python code, which the virtual machine runs, and what holds no number of the program's.
  static bool is_closed(PyObject* o, const TorchApi& api) {
    return PyFunction_Check(o) || PyMethod_Check(o) || PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o) ||
           PyGen_Check(o) || PyFrame_Check(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o) || api.is_tensor(o);
  }
  static int visit(PyObject* o, void* self) {
    auto* reach = static_cast<Reach*>(self);
    if (o == nullptr || PyUnicode_CheckExact(o) || o == Py_None) return 0;
    if (is_symbolic_number(o)) {
      reach->numbers_.push_back(Ref::borrow(o));
    } else if (PyObject_IS_GC(o) && reach->seen_.insert(o).second) {
      reach->found_.push_back(Ref::borrow(o));
    }
    return 0;
  }
  std::unordered_set<PyObject*> seen_;
  std::vector<Ref> found_, numbers_;
};

/// Special methods whose results code in C reads.
constexpr std::array kRead = {"__hash__", "__len__",     "__length_hint__", "__index__",  "__int__",    "__float__",
                              "__bool__", "__complex__", "__trunc__",       "__sizeof__", "__fspath__", "__bytes__"};

/// Whether `function`, called by code in C, is one of these for `self`.
bool is_read_method(PyObject* function, PyObject* self) {
  static PyObject* const* const names = made_once([] {
    static std::array<PyObject*, kRead.size()> interned;
    for (size_t i = 0; i < kRead.size(); ++i) interned[i] = PyUnicode_InternFromString(kRead[i]);
    return interned.data();
  });
  for (size_t i = 0; i < kRead.size(); ++i) {
    if (_PyType_Lookup(Py_TYPE(self), names[i]) == function) return true;
  }
  return false;
}

/// Whether calling `callable` runs the function itself, whose result is that of the call.
bool calls_directly(PyObject* callable, PyObject* function) {
  if (callable == function) return true;
  if (PyMethod_Check(callable)) return calls_directly(PyMethod_GET_FUNCTION(callable), function);
  if (is_partial(callable)) {
    const Ref inner = attr_or_null(callable, "func");
    return inner && calls_directly(inner.get(), function);
  }
  static PyObject* const call = PyUnicode_InternFromString("__call__");
  return _PyType_Lookup(Py_TYPE(callable), call) == function;
}

}  // namespace

void NumberTracing::settle_reachable(PyObject* object) {
  if (object == nullptr || trace_->symbols.empty()) return;
  if (is_symbolic_number(object)) return settle_in(object);
  if (!Reach().settle_from(object, api_)) trace_->symbols.settle_all();
}

/// From 3.12 on `sum` adds floats with more digits than they have.
static bool reads_floats(PyObject* callable) {
  return PY_VERSION_HEX >= 0x030C0000 && PyCFunction_Check(callable) &&
         std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "sum") == 0;
}

void NumberTracing::settle_floats(std::span<PyObject* const> objects) {
  for (PyObject* o : objects) {
    if (is_symbolic_float(o)) settle_in(o);
    if (!PyList_Check(o) && !PyTuple_Check(o)) continue;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      if (PyObject* item = PySequence_Fast_GET_ITEM(o, i); is_symbolic_float(item)) settle_in(item);
    }
  }
}

bool NumberTracing::settle_arguments(PyObject* callable, const KnownCall& known, PyObject* const* args,
                                     Py_ssize_t nargs, Py_ssize_t keywords) {
  if (trace_->symbols.empty()) return false;
  const std::span<PyObject* const> all(args, static_cast<size_t>(nargs + keywords));
  Taking how = taking(callable, known, args, nargs);
  if (calls_arguments(callable, known)) {
    for (PyObject* each : all) {
      if (taking_when_called(each) == Taking::kSlots) continue;
      how = Taking::kValues;
      own_.hidden_readers = true;
    }
  }
  if (how == Taking::kSlots && computes(callable, known)) {
    const bool plain = std::all_of(all.begin(), all.end(), [this](PyObject* o) { return meets_numbers(o); });
    if (!plain) how = Taking::kItems;
  }
  if (reads_floats(callable)) settle_floats(all);
  if (how == Taking::kSlots) return false;
  for (Py_ssize_t i = 0; i < nargs + keywords && tracing(); ++i) {
    if (how == Taking::kValues) {
      settle_reachable(args[i]);
    } else if (is_symbolic_number(args[i])) {
      settle_in(args[i]);
    }
  }
  if (how == Taking::kValues && tracing()) settle_reachable(callable);
  return true;
}

bool NumberTracing::meets_numbers(PyObject* other) const {
  return is_symbolic_number(other) || PyLong_CheckExact(other) || PyBool_Check(other) || PyFloat_CheckExact(other) ||
         api_.is_tensor(other) || other == Py_None || PyUnicode_CheckExact(other) || PyBytes_CheckExact(other) ||
         PyType_Check(other) || is_like_int(other) || (!PyLong_Check(other) && is_python_object(other));
}

void NumberTracing::settle_operands(PyObject* left, PyObject* right) {
  if (is_symbolic_number(left) && !meets_numbers(right)) settle_in(left);
  if (is_symbolic_number(right) && !meets_numbers(left)) settle_in(right);
}

/// `is` of ints. Python has each small one once; what was a placeholder is another object.
PyObject* NumberTracing::is_number(PyObject* left, PyObject* right, bool invert) {
  constexpr long kSmallest = -5, kLargest = 256;
  const auto whole = [](PyObject* o) { return PyLong_CheckExact(o) || is_symbolic_int(o) || is_derived_int(o); };
  if (!tracing() || trace_->symbols.empty() || left == right || !whole(left) || !whole(right)) return not_handled();
  const Ref a = plain_number(left), b = plain_number(right);
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(a.get(), &overflow);
  const bool small = overflow == 0 && value >= kSmallest && value <= kLargest;
  const int same = small ? PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) : 0;
  return PyBool_FromLong((same != 0) != invert);
}

/// The other questions about identities: `operator.is_`, `id`, and `object.__eq__`, which compares nothing else.
PyObject* NumberTracing::identity_of_numbers(PyObject* callable, std::string_view name, PyObject* const* args,
                                             Py_ssize_t nargs) {
  if (!tracing() || trace_->symbols.empty()) return not_handled();
  if (nargs == 2 && (name == "is_" || name == "is_not")) return is_number(args[0], args[1], name == "is_not");
  if (nargs == 1 && name == "id" && is_symbolic_number(args[0])) {
    const Ref value = plain_number(args[0]);
    PyObject* same = is_number(args[0], value.get(), false);
    if (same == not_handled()) return same;
    Py_DECREF(same);
    return same == Py_True ? PyLong_FromVoidPtr(value.get()) : not_handled();
  }
  const bool equality = nargs == 2 && name == "__eq__" && Py_TYPE(callable) == &PyWrapperDescr_Type &&
                        reinterpret_cast<PyDescrObject*>(callable)->d_type == &PyBaseObject_Type;
  PyObject* same = equality ? is_number(args[0], args[1], false) : not_handled();
  if (same != Py_False) return same;
  Py_DECREF(same);
  Py_RETURN_NOTIMPLEMENTED;
}

void NumberTracing::settle_result(const Frame& f, PyObject* result) {
  if (trace_->symbols.empty() || context_.frames.empty() || !holds_symbolic_number(result)) return;
  PyObject* function = f.function();
  PyObject* called = context_.frames.back()->called();
  if (called != nullptr && function != nullptr && calls_directly(called, function)) return;
  PyObject* self = f.code()->co_argcount > 0 && f.local_count() > 0 ? f.local(0) : nullptr;
  if (self != nullptr && PyCell_Check(self)) self = PyCell_GET(self);
  const bool read = own_.hidden_readers || (self != nullptr && function != nullptr && is_read_method(function, self)) ||
                    (called != nullptr && taking(called, known_call(called), nullptr, 0) == Taking::kValues);
  if (read) {
    settle_reachable(result);
  } else if (called != nullptr && reads_floats(called)) {
    settle_floats({&result, 1});
  }
}

}  // namespace tatara::capture
