// Which calls with arrays are recorded, which are entered, and which break the graph.
#include <optional>
#include <string_view>
#include <unordered_set>

#include "capture/entries/compiled_object.h"
#include "capture/host/known_calls.h"
#include "capture/host/numpy_api.h"
#include "capture/host/package.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

/// C code of the interpreter that hands arrays on, or asks for their type only.
bool hands_on(PyObject* callable, const KnownCall& known) {
  if (!PyType_Check(callable)) return known.is(kHandsOn);
  // Classes are Python code, or store what they get.
  return (reinterpret_cast<PyTypeObject*>(callable)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 || known.is(kHandsOn);
}

std::string c_name(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (PyType_Check(callable)) return reinterpret_cast<PyTypeObject*>(callable)->tp_name;
  return name_of(callable);
}

bool is_descriptor(PyObject* callable) {
  return Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type ||
         Py_TYPE(callable) == &PyClassMethodDescr_Type;
}

PyObject* operator_for_builtin(std::string_view name) {
  static PyObject* module = PyImport_ImportModule("operator");
  return name == "abs" ? PyObject_GetAttrString(module, "abs") : PyObject_GetAttrString(module, "pow");
}

/// int and operator.index: the number is one of Python's.
bool takes_whole(PyObject* callable) {
  static PyObject* const index = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("operator"));
    return attr_or_null(module.get(), "index").release();
  }();
  return callable == reinterpret_cast<PyObject*>(&PyLong_Type) || callable == index;
}

/// Of C code that NumPy's own Python code calls with arrays: what it is, in Python.
std::optional<PackageFunction> stand_in_of(PyObject* callable) {
  constexpr std::pair<std::string_view, PackageFunction> kStandIns[] = {
      {"numpy._core._multiarray_umath._array_converter", PackageFunction::kNumpyArrayConverter},
      {"numpy.broadcast", PackageFunction::kNumpyBroadcast},
      {"_monotonicity", PackageFunction::kNumpyMonotonicity},
  };
  if (!PyType_Check(callable) && !PyCFunction_Check(callable)) return std::nullopt;
  const std::string name = c_name(callable);
  for (const auto& [each, function] : kStandIns) {
    if (each == name) return function;
  }
  return std::nullopt;
}

/// Whether the array that the constructor makes of these is np.empty's: not in a buffer of the program's, nor with its strides.
bool makes_own_memory(PyObject* args, PyObject* kwargs) {
  constexpr Py_ssize_t kSizesAndType = 2;
  if (PyTuple_GET_SIZE(args) > kSizesAndType) return false;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (kwargs != nullptr && PyDict_Next(kwargs, &at, &key, &value) != 0) {
    const std::string name = text_of(key);
    if (name != "shape" && name != "dtype") return false;
  }
  return true;
}

bool arguments_have_out(PyObject* kwargs) {
  if (kwargs == nullptr) return false;
  PyObject* out = PyDict_GetItemString(kwargs, "out");
  return out != nullptr && out != Py_None && out != Py_Ellipsis;
}

}  // namespace

NumpyTracing::Reader::Reader(NumpyTracing& numpy, PyObject* callable, const KnownCall& known)
    : numpy_(numpy), before_(numpy.reader_depth_) {
  numpy.reader_depth_ = hands_on(callable, known) ? 0 : numpy.context_.frames.size();
}

PyObject* NumpyTracing::numpy_vectorcall(PyObject* callable, const KnownCall& known, PyObject* const* args,
                                         Py_ssize_t nargs, PyObject* kwnames) {
  if (api_.numpy == nullptr) return not_handled();
  if (PyFunction_Check(callable) && !known.is(kArrayBuiltin)) return not_handled();
  // One item more is that, whatever it is: a loop's list is not searched in each turn. NumPy's append() is no method.
  if (PyCFunction_Check(callable) && known.is(kAdds) && known.is(kHandsOn) && !known.is(kReadsKey) &&
      !known.is(kIterates))
    return not_handled();
  if (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable))) return not_handled();
  const Ref tuple = Ref::steal(PyTuple_New(nargs));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  Ref kwargs;
  if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) > 0) {
    kwargs = Ref::steal(PyDict_New());
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i) {
      if (PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) != 0) return nullptr;
    }
  }
  if (callable == api_.numpy->array_type() && makes_own_memory(tuple.get(), kwargs.get())) {
    Ref empty;
    {
      const Bypass bypass(bypass_);
      empty = attr(api_.numpy->numpy.get(), "empty");
    }
    return numpy_builtin(empty.get(), known_call(empty.get()), "empty", tuple.get(), kwargs.get());
  }
  return numpy_call(callable, known, tuple.get(), kwargs.get());
}

PyObject* NumpyTracing::numpy_call(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs) {
  const NumpyApi& np = *api_.numpy;
  if (PyObject* done = random_call(callable, args, kwargs); done != not_handled() || !tracing()) return done;
  if (const auto ours = stand_in_of(callable); ours && inside_any(args, kwargs) && in_numpys_code()) {
    Ref function;
    {
      const Bypass bypass(bypass_);
      function = package_function(*ours);
    }
    return PyObject_Call(function.get(), args, kwargs);
  }
  if (PyFunction_Check(callable)) return numpy_builtin(callable, known, name_of(callable), args, kwargs);
  if (np.is_ufunc(callable)) {
    bool mutates = arguments_have_out(kwargs) || name_of(callable) == kWritesToOperand;
    for (Py_ssize_t i = PyLong_AsSsize_t(attr(callable, "nin").get()); i < PyTuple_GET_SIZE(args); ++i) {
      mutates = mutates || PyTuple_GET_ITEM(args, i) != Py_None;
    }
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), name_of(callable), mutates});
  }
  if (np.is_dispatcher(callable)) return numpy_dispatcher(callable, known, args, kwargs);
  if (PyObject* made = tensor_of_constant(callable, args, kwargs); made != not_handled()) return made;
  if (known.is(kArrayReads)) {
    PyObject* const bound = bound_to(callable);
    PyObject* const owner = bound != nullptr ? bound : PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    // A scalar that is the same in each call, as a number of Python's.
    if (owner != nullptr && np.is_scalar(owner) && !numpy_value(owner)) {
      const Bypass bypass(bypass_);
      return PyObject_Call(callable, args, kwargs);
    }
  }
  if ((PyCFunction_Check(callable) || is_descriptor(callable)) && c_name(callable) == "astype" &&
      !inside_any(args, kwargs)) {
    PyObject* const owner =
        is_descriptor(callable) && PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : bound_to(callable);
    if (owner != nullptr && np.is_scalar(owner) && !numpy_value(owner)) {
      const Bypass bypass(bypass_);
      return PyObject_Call(callable, args, kwargs);
    }
  }
  if (known.is(kArrayMethod) && !known.is(kMethodWrites) && !kwargs) {
    // So is what its methods give, where they are given nothing else.
    PyObject* const bound = bound_to(callable);
    const bool alone = PyTuple_GET_SIZE(args) == (bound != nullptr ? 0 : 1);
    PyObject* const owner = bound != nullptr ? bound : alone ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (alone && owner != nullptr && np.is_scalar(owner) && !numpy_value(owner)) {
      const Bypass bypass(bypass_);
      Ref made = Ref::steal(PyObject_Call(callable, args, nullptr));
      if (!made || np.is_scalar(made.get())) return made.release();
    }
  }
  const bool inside = numpy_inside(args) || (kwargs != nullptr && numpy_inside(kwargs));
  if (np.is_scalar_type(callable)) {
    if (!inside) return not_handled();
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), "cast", false});
  }
  std::string name = c_name(callable);
  if (PyCFunction_Check(callable)) {
    PyObject* self = reinterpret_cast<PyCFunctionObject*>(callable)->m_self;
    if (self != nullptr && !PyModule_Check(self) && (np.is_ufunc(self) || numpy_value(self))) {
      return numpy_method(callable, known, self, name, args, kwargs);
    }
    const std::string module = text_of(reinterpret_cast<PyCFunctionObject*>(callable)->m_module);
    if (module.substr(0, 5) == "numpy") return numpy_builtin(callable, known, name, args, kwargs);
    if (inside && known.is(kArrayOperator)) {
      if (PyTuple_GET_SIZE(args) == 3) return numpy_break("pow with three arguments");
      const bool divmod = name == "divmod";
      return numpy_record({divmod ? Ref::borrow(callable) : Ref::steal(operator_for_builtin(name)),
                           Ref::borrow(args),
                           {},
                           name == "abs"   ? "absolute"
                           : name == "pow" ? "power"
                                           : "divmod",
                           false});
    }
  } else if (is_descriptor(callable)) {
    PyObject* self = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (self != nullptr && np.is_ufunc(self)) {
      // np.add.reduce(x), as the machine calls methods.
      const Ref bound = attr_or_null(self, name.c_str());
      const Ref rest = Ref::steal(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
      if (bound) return numpy_method(bound.get(), known, self, name, rest.get(), kwargs);
    }
    if (self != nullptr && numpy_value(self)) return numpy_method(callable, known, nullptr, name, args, kwargs);
  }
  PyObject* bound = bound_to(callable);
  const bool self_inside = bound != nullptr && numpy_inside(bound);
  const bool partial = is_partial(callable) && numpy_inside(callable);
  if (!inside && !self_inside && !partial) return not_handled();
  if (callable == reinterpret_cast<PyObject*>(&PyFloat_Type) && PyTuple_GET_SIZE(args) == 1 && is_mixed()) {
    Ref number = number_of(PyTuple_GET_ITEM(args, 0));
    if (number || PyErr_Occurred() != nullptr) return number.release();
  }
  if (takes_whole(callable) && PyTuple_GET_SIZE(args) == 1 && numpy_value(PyTuple_GET_ITEM(args, 0)) && !is_mixed()) {
    std::string place;
    if (may_decide(place)) return numpy_record({Ref::borrow(callable), Ref::borrow(args), {}, "int", false});
  }
  if (PyObject* done = torch_call(callable, known, name, args, kwargs); done != not_handled() || !tracing())
    return done;
  return numpy_foreign(callable, known, name, args);
}

PyObject* NumpyTracing::numpy_foreign(PyObject* callable, const KnownCall& known, const std::string& name,
                                      PyObject* args) {
  const NumpyApi& np = *api_.numpy;
  if (as_compiled(callable) != nullptr) return not_handled();
  PyObject* dunder = _PyType_Lookup(Py_TYPE(callable), PyUnicode_InternFromString("__call__"));
  if (dunder != nullptr && PyFunction_Check(dunder)) return not_handled();  // entered
  if (!hands_on(callable, known)) return numpy_break("call of " + name + " with arrays");
  if (name == "next" && PyTuple_GET_SIZE(args) > 0) {
    // Its steps over an array are calls of the program; behind the last one it ends by itself.
    if (PyObject* item = numpy_iterate(PyTuple_GET_ITEM(args, 0)); item != not_handled()) return item;
  }
  // The first argument after self.
  const Py_ssize_t first = is_descriptor(callable) ? 1 : 0;
  if (known.is(kReadsKey) && PyTuple_GET_SIZE(args) > first && numpy_inside(PyTuple_GET_ITEM(args, first))) {
    return numpy_break("a NumPy value as key or position");
  }
  if (name == "map" || name == "itertools.starmap") {
    PyObject* function = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None;
    if (!PyFunction_Check(function) && !PyMethod_Check(function)) return numpy_break("map of C code over arrays");
  }
  if (!known.is(kIterates)) return not_handled();
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* const source = PyTuple_GET_ITEM(args, i);
    const bool steps = Py_TYPE(source) == &PySeqIter_Type && numpy_inside(source);
    const bool fixed = np.is_array(source) && constant(trace_->tape.find(source)) && NumpyApi::ndim(source) == 1;
    if (fixed && (name == "list" || name == "tuple")) {
      const Bypass bypass(bypass_);
      return PyObject_Call(callable, args, nullptr);  // scalars that are the same in each call
    }
    // In NumPy's own code each item is a call before the first turn.
    constexpr Py_ssize_t kMostItems = 32;
    if (name == "zip" && np.is_array(source) && in_numpys_code() && NumpyApi::ndim(source) > 0 &&
        NumpyApi::dim(source, 0) <= kMostItems) {
      const Ref lists = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(args)));
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); ++k) {
        Ref rows = rows_of(PyTuple_GET_ITEM(args, k));
        if (!rows) return tracing() ? nullptr : not_handled();
        PyTuple_SET_ITEM(lists.get(), k, rows.release());
      }
      return PyObject_Call(callable, lists.get(), nullptr);
    }
    if ((np.is_any_array(source) || steps) && name != "iter") return numpy_break(name + " over an array");
  }
  return not_handled();
}

PyObject* NumpyTracing::numpy_dispatcher(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs) {
  const std::string name = name_of(callable);
  const std::string module = text_of(attr_or_null(callable, "__module__").get());
  if (known.is(kArrayFacts)) {
    reads().watch_lists({args, kwargs});
    ++bypass_;
    PyObject* result = PyObject_Call(callable, args, kwargs);
    --bypass_;
    return result;
  }
  bool sized = known.is(kArraySized);
  if (known.is(kArraySize)) {
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); ++i) sized = sized || numpy_inside(PyTuple_GET_ITEM(args, i));
    sized = sized || (kwargs != nullptr && numpy_inside(kwargs));
  }
  // So many bins as the program says.
  const bool bins = name == "histogram" || name == "histogram_bin_edges";
  if (sized && bins && !kwargs && PyTuple_GET_SIZE(args) <= 2) {
    sized = PyTuple_GET_SIZE(args) == 2 && !PyLong_CheckExact(PyTuple_GET_ITEM(args, 1));
  }
  if (module == "numpy" && name == "where" && PyTuple_GET_SIZE(args) < 3) sized = true;
  const Ref body = attr_or_null(callable, "_implementation");
  const bool has_body = body && PyFunction_Check(body.get());
  // Of constants one call makes a constant.
  const bool varies = module != "numpy" || varies_inside(args) || (kwargs != nullptr && varies_inside(kwargs));
  const bool enters = has_body && known.is(kArrayBody) && varies && !owner_.backend &&
                      !owner_.whole_numpy.contains(callable) && tracing();
  if (known.is(kArrayFunction) && !enters) {
    // Those of numpy.linalg and numpy.fft with their module.
    const bool own = module == "numpy";
    const bool mutates = own && (known.is(kArrayWrites) || arguments_have_out(kwargs));
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs),
                         own ? name : module.substr(6) + "." + name, mutates, sized && inside_any(args, kwargs)});
  }
  if (has_body) return enter_body(enters ? callable : nullptr, body.get(), args, kwargs);
  return numpy_break("call of " + module + "." + name);
}

PyObject* NumpyTracing::numpy_builtin(PyObject* callable, const KnownCall& known, const std::string& name,
                                      PyObject* args, PyObject* kwargs) {
  if (known.is(kArrayBuiltin)) {
    const bool sized = known.is(kArraySize) && inside_any(args, kwargs);
    if (name == "_unique_hash") {
      // Which element types it knows.
      const Bypass bypass(bypass_);
      Ref made = Ref::steal(PyObject_Call(callable, args, kwargs));
      if (!made || made.get() == Py_NotImplemented) return made.release();
    }
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), name, false, sized});
  }
  reads().watch_lists({args, kwargs});
  if (known.is(kArraySetup)) return PyObject_Call(callable, args, kwargs);
  return numpy_break("call of numpy." + name);
}

PyObject* NumpyTracing::numpy_method(PyObject* callable, const KnownCall& known, PyObject* self,
                                     const std::string& name, PyObject* args, PyObject* kwargs) {
  const NumpyApi& np = *api_.numpy;
  if (self != nullptr && np.is_ufunc(self)) {
    const std::string full = name_of(self) + "." + name;
    if (name == "resolve_dtypes") return PyObject_Call(callable, args, kwargs);
    const bool mutates = name == "at" || arguments_have_out(kwargs);
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), full, mutates});
  }
  if (known.is(kArrayPlain)) {
    return not_handled();
  }
  if (name == "__array_wrap__" && self != nullptr && np.is_array(self) && PyTuple_GET_SIZE(args) == 1 && !kwargs &&
      np.is_array(PyTuple_GET_ITEM(args, 0))) {
    return Py_NewRef(PyTuple_GET_ITEM(args, 0));  // between arrays that are no subclass's
  }
  // A bound method becomes the function with self first.
  Ref function = Ref::borrow(callable), all = Ref::borrow(args);
  PyObject* owner = self;
  if (self != nullptr) {
    function = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(self)), name.c_str());
    const Ref head = Ref::steal(PyTuple_Pack(1, self));
    all = Ref::steal(PySequence_Concat(head.get(), args));
  } else {
    owner = PyTuple_GET_ITEM(args, 0);
  }
  if (name == "__getitem__" && PyTuple_GET_SIZE(all.get()) == 2)
    return numpy_get_item(owner, PyTuple_GET_ITEM(all.get(), 1));
  // The value of a constant is one.
  if (function && known.is(kArrayReads) && constant(trace_->tape.find(owner))) {
    const Bypass bypass(bypass_);
    return PyObject_Call(function.get(), all.get(), kwargs);
  }
  if (name == "item" && PyTuple_GET_SIZE(all.get()) == 1 && is_mixed()) {
    Ref number = number_of(owner);
    if (number || PyErr_Occurred() != nullptr) return number.release();
  }
  if (!function || !known.is(kArrayMethod)) return numpy_break("method " + name + " of an array");
  const bool sized = known.is(kArraySized) || (known.is(kArrayShape) && [&] {
                       for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(all.get()); ++i) {
                         if (varies_inside(PyTuple_GET_ITEM(all.get(), i))) return true;
                       }
                       return false;
                     }());
  const bool mutates = (known.is(kMethodWrites) && np.is_any_array(owner)) || arguments_have_out(kwargs);
  const char* ufunc = name == "__setitem__" ? "setitem" : ufunc_of_method(name);
  return numpy_record(
      {std::move(function), std::move(all), Ref::borrow(kwargs), ufunc != nullptr ? ufunc : name, mutates, sized});
}

}  // namespace tatara::capture
