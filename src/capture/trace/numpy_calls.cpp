// Which calls with arrays are recorded, which are entered, and which break the graph.
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/host/numpy_api.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

using Names = std::unordered_set<std::string_view>;

/// NumPy functions whose results' types and sizes do not depend on values: one node each. Those that no kernel knows run by
/// NumPy at their place in the graph.
const Names& recorded_functions() {
  static const Names names = {
      // reductions and scans
      "sum", "prod", "mean", "std", "var", "max", "min", "amax", "amin", "argmax", "argmin", "all", "any", "cumsum",
      "cumprod", "ptp", "count_nonzero", "median", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanstd",
      "nanvar", "trace",
      // shapes
      "reshape", "ravel", "transpose", "permute_dims", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims",
      "broadcast_to", "atleast_1d", "atleast_2d", "atleast_3d", "flip", "fliplr", "flipud", "roll", "rot90", "tile",
      "diagonal", "diag", "diagflat", "tril", "triu", "matrix_transpose",
      // joining and splitting
      "concatenate", "concat", "stack", "vstack", "hstack", "dstack", "column_stack", "split", "array_split", "hsplit",
      "vsplit", "dsplit", "unstack",
      // like an array
      "zeros_like", "ones_like", "empty_like", "full_like", "copy", "astype",
      // elementwise
      "where", "clip", "round", "around", "real", "imag", "angle", "nan_to_num", "isclose", "fix", "sinc", "diff",
      "interp", "copyto", "putmask", "place", "put", "fill_diagonal",
      // products
      "dot", "vdot", "inner", "outer", "tensordot", "einsum", "cross", "kron", "convolve", "correlate",
      // order and selection
      "sort", "argsort", "partition", "argpartition", "take", "take_along_axis", "put_along_axis", "choose",
      "searchsorted", "digitize", "percentile", "quantile", "cov", "corrcoef", "average", "gradient", "trapezoid",
      "pad", "meshgrid", "linspace", "vander", "polyval"};
  return names;
}

/// Facts about arrays that do not depend on their elements.
const Names& metadata_functions() {
  static const Names names = {"shape",     "ndim",        "size",        "iscomplexobj",
                              "isrealobj", "result_type", "common_type", "can_cast"};
  return names;
}

/// Functions in C that are no dispatchers.
const Names& recorded_builtins() {
  static const Names names = {"array",
                              "asarray",
                              "asanyarray",
                              "ascontiguousarray",
                              "asfortranarray",
                              "zeros",
                              "empty",
                              "arange",
                              "fromiter",
                              "c_einsum",
                              "ones",
                              "full",
                              "eye",
                              "identity",
                              "tri",
                              "normalize_axis_index",
                              "_reconstruct"};
  return names;
}

/// Methods of arrays and scalars.
const Names& recorded_methods() {
  static const Names names = {
      "sum",           "prod",       "mean",         "std",           "var",          "max",
      "min",           "argmax",     "argmin",       "all",           "any",          "cumsum",
      "cumprod",       "ptp",        "trace",        "reshape",       "ravel",        "flatten",
      "transpose",     "swapaxes",   "squeeze",      "diagonal",      "astype",       "copy",
      "view",          "clip",       "round",        "conj",          "conjugate",    "dot",
      "take",          "sort",       "argsort",      "partition",     "argpartition", "searchsorted",
      "fill",          "choose",     "byteswap",     "__copy__",      "__deepcopy__", "__neg__",
      "__pos__",       "__abs__",    "__invert__",   "__add__",       "__radd__",     "__sub__",
      "__rsub__",      "__mul__",    "__rmul__",     "__truediv__",   "__rtruediv__", "__floordiv__",
      "__rfloordiv__", "__mod__",    "__rmod__",     "__pow__",       "__rpow__",     "__matmul__",
      "__rmatmul__",   "__and__",    "__rand__",     "__or__",        "__ror__",      "__xor__",
      "__rxor__",      "__lshift__", "__rlshift__",  "__rshift__",    "__rrshift__",  "__eq__",
      "__ne__",        "__lt__",     "__le__",       "__gt__",        "__ge__",       "__iadd__",
      "__isub__",      "__imul__",   "__itruediv__", "__ifloordiv__", "__imod__",     "__ipow__",
      "__iand__",      "__ior__",    "__ixor__",     "__setitem__",   "put"};
  return names;
}

bool method_mutates(std::string_view name) {
  static const Names names = {"sort", "partition", "fill", "put", "__setitem__"};
  return names.contains(name) || (name.substr(0, 3) == "__i" && name != "__invert__");
}

bool function_mutates(std::string_view name) {
  static const Names names = {"copyto", "putmask", "place", "put", "fill_diagonal", "put_along_axis"};
  return names.contains(name);
}

/// Name of the ufunc that a special method is.
const char* ufunc_of_method(std::string_view name) {
  static const std::unordered_map<std::string_view, const char*> names = {{"__neg__", "negative"},
                                                                          {"__pos__", "positive"},
                                                                          {"__abs__", "absolute"},
                                                                          {"__invert__", "invert"},
                                                                          {"__add__", "add"},
                                                                          {"__sub__", "subtract"},
                                                                          {"__mul__", "multiply"},
                                                                          {"__truediv__", "divide"},
                                                                          {"__floordiv__", "floor_divide"},
                                                                          {"__mod__", "remainder"},
                                                                          {"__pow__", "power"},
                                                                          {"__matmul__", "matmul"},
                                                                          {"__and__", "bitwise_and"},
                                                                          {"__or__", "bitwise_or"},
                                                                          {"__xor__", "bitwise_xor"},
                                                                          {"__lshift__", "left_shift"},
                                                                          {"__rshift__", "right_shift"},
                                                                          {"__eq__", "equal"},
                                                                          {"__ne__", "not_equal"},
                                                                          {"__lt__", "less"},
                                                                          {"__le__", "less_equal"},
                                                                          {"__gt__", "greater"},
                                                                          {"__ge__", "greater_equal"},
                                                                          {"__setitem__", "setitem"},
                                                                          {"conj", "conjugate"}};
  const auto found = names.find(name);
  return found == names.end() ? nullptr : found->second;
}

/// C code of the interpreter that hands arrays on, or asks for their type only.
bool hands_on(PyObject* callable, std::string_view name) {
  static const Names functions = {"isinstance",
                                  "issubclass",
                                  "len",
                                  "id",
                                  "callable",
                                  "getattr",
                                  "hasattr",
                                  "setattr",
                                  "iter",
                                  "next",
                                  "vars",
                                  "locals",
                                  "globals",
                                  "dir",
                                  "__new__",
                                  "__init__",
                                  "append",
                                  "extend",
                                  "insert",
                                  "pop",
                                  "clear",
                                  "reverse",
                                  "copy",
                                  "get",
                                  "items",
                                  "keys",
                                  "values",
                                  "setdefault",
                                  "update",
                                  "popitem",
                                  "appendleft",
                                  "popleft",
                                  "extendleft",
                                  "rotate",
                                  "__setattr__",
                                  "__getattribute__",
                                  "__build_class__",
                                  "move_to_end",
                                  "__init_subclass__",
                                  "__set__",
                                  "__get__",
                                  "__getitem__",
                                  "__iter__",
                                  "__next__",
                                  "__len__",
                                  "__class_getitem__",
                                  "_replace"};
  if (PyType_Check(callable)) {
    const auto* type = reinterpret_cast<PyTypeObject*>(callable);
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return true;  // Python code, or stores what it gets
    static const Names types = {"list",
                                "tuple",
                                "dict",
                                "zip",
                                "enumerate",
                                "reversed",
                                "slice",
                                "type",
                                "super",
                                "object",
                                "property",
                                "functools.partial",
                                "collections.deque",
                                "itertools.chain",
                                "itertools.islice",
                                "itertools.cycle",
                                "itertools.repeat",
                                "itertools.product",
                                "types.SimpleNamespace",
                                "collections.OrderedDict",
                                "staticmethod",
                                "classmethod",
                                "map",
                                "itertools.starmap",
                                "itertools.zip_longest",
                                "itertools.tee",
                                "cell",
                                "collections.defaultdict"};
    return types.contains(type->tp_name);
  }
  return functions.contains(name);
}

/// Those that iterate over an argument.
bool iterates(std::string_view type) {
  static const Names types = {"list",
                              "tuple",
                              "zip",
                              "enumerate",
                              "reversed",
                              "map",
                              "dict",
                              "collections.deque",
                              "itertools.chain",
                              "itertools.islice",
                              "itertools.cycle",
                              "itertools.product",
                              "itertools.starmap",
                              "itertools.zip_longest",
                              "iter",
                              "extend",
                              "update",
                              "extendleft"};
  return types.contains(type);
}

/// Methods whose first argument is looked up or counted, so that its value is read.
bool reads_key(std::string_view name) {
  static const Names names = {"get", "pop", "setdefault", "insert", "rotate", "move_to_end", "__getitem__"};
  return names.contains(name);
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

bool arguments_have_out(PyObject* kwargs) {
  if (kwargs == nullptr) return false;
  PyObject* out = PyDict_GetItemString(kwargs, "out");
  return out != nullptr && out != Py_None;
}

}  // namespace

NumpyTracing::Reader::Reader(NumpyTracing& numpy, PyObject* callable) : numpy_(numpy), before_(numpy.reader_depth_) {
  numpy.reader_depth_ = hands_on(callable, c_name(callable)) ? 0 : numpy.context_.frames.size();
}

PyObject* NumpyTracing::numpy_vectorcall(PyObject* callable, PyObject* const* args, Py_ssize_t nargs,
                                         PyObject* kwnames) {
  if (api_.numpy == nullptr) return not_handled();
  if (PyFunction_Check(callable) && !api_.numpy->is_whole_function(callable)) return not_handled();
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
  return numpy_call(callable, tuple.get(), kwargs.get());
}

PyObject* NumpyTracing::numpy_call(PyObject* callable, PyObject* args, PyObject* kwargs) {
  const NumpyApi& np = *api_.numpy;
  if (PyFunction_Check(callable)) return numpy_builtin(callable, name_of(callable), args, kwargs);
  if (np.is_ufunc(callable)) {
    const bool mutates =
        arguments_have_out(kwargs) || PyTuple_GET_SIZE(args) > PyLong_AsLong(attr(callable, "nin").get());
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), name_of(callable), mutates});
  }
  if (np.is_dispatcher(callable)) return numpy_dispatcher(callable, args, kwargs);
  const bool inside = numpy_inside(args) || (kwargs != nullptr && numpy_inside(kwargs));
  if (np.is_scalar_type(callable)) {
    if (!inside) return not_handled();
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), "cast", false});
  }
  std::string name = c_name(callable);
  if (PyCFunction_Check(callable)) {
    PyObject* self = reinterpret_cast<PyCFunctionObject*>(callable)->m_self;
    if (self != nullptr && !PyModule_Check(self) && (np.is_ufunc(self) || numpy_value(self))) {
      return numpy_method(callable, self, name, args, kwargs);
    }
    const std::string module = text_of(reinterpret_cast<PyCFunctionObject*>(callable)->m_module);
    if (module.substr(0, 5) == "numpy") return numpy_builtin(callable, name, args, kwargs);
    if (inside && module == "builtins" && (name == "abs" || name == "divmod" || name == "pow")) {
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
    if (self != nullptr && numpy_value(self)) return numpy_method(callable, nullptr, name, args, kwargs);
  }
  PyObject* bound = bound_to(callable);
  const bool self_inside = bound != nullptr && numpy_inside(bound);
  const bool partial = is_partial(callable) && numpy_inside(callable);
  if (!inside && !self_inside && !partial) return not_handled();
  return numpy_foreign(callable, name, args, kwargs);
}

PyObject* NumpyTracing::numpy_foreign(PyObject* callable, const std::string& name, PyObject* args, PyObject* kwargs) {
  const NumpyApi& np = *api_.numpy;
  if (std::strcmp(Py_TYPE(callable)->tp_name, "tatara._core.CompiledFunction") == 0) return not_handled();
  PyObject* dunder = _PyType_Lookup(Py_TYPE(callable), PyUnicode_InternFromString("__call__"));
  if (dunder != nullptr && PyFunction_Check(dunder)) return not_handled();  // entered
  if (!hands_on(callable, name)) return numpy_break("call of " + name + " with arrays");
  // The first argument after self.
  const Py_ssize_t first = is_descriptor(callable) ? 1 : 0;
  if (reads_key(name) && PyTuple_GET_SIZE(args) > first && numpy_inside(PyTuple_GET_ITEM(args, first))) {
    return numpy_break("a NumPy value as key or position");
  }
  if (name == "map" || name == "itertools.starmap") {
    PyObject* function = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None;
    if (!PyFunction_Check(function) && !PyMethod_Check(function)) return numpy_break("map of C code over arrays");
  }
  if (name == "len" || !iterates(name)) return not_handled();
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(args); ++i) {
    if (np.is_any_array(PyTuple_GET_ITEM(args, i)) && name != "iter") return numpy_break(name + " over an array");
  }
  (void)kwargs;
  return not_handled();
}

PyObject* NumpyTracing::numpy_dispatcher(PyObject* callable, PyObject* args, PyObject* kwargs) {
  const std::string name = name_of(callable);
  const std::string module = text_of(attr_or_null(callable, "__module__").get());
  const bool numerical = module == "numpy.linalg" || module == "numpy.fft";
  if (numerical && name != "lstsq" && name != "matrix_rank") {
    return numpy_record(
        {Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), module.substr(6) + "." + name, false});
  }
  if (module == "numpy") {
    if (metadata_functions().contains(name)) {
      ++bypass_;
      PyObject* result = PyObject_Call(callable, args, kwargs);
      --bypass_;
      return result;
    }
    const bool condition_only = name == "where" && PyTuple_GET_SIZE(args) < 3;
    if (recorded_functions().contains(name) && !condition_only) {
      const bool mutates = function_mutates(name) || arguments_have_out(kwargs);
      return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), name, mutates});
    }
  }
  const Ref body = attr_or_null(callable, "_implementation");
  if (body && PyFunction_Check(body.get()))
    return PyObject_Call(body.get(), args, kwargs);  // its frame comes to the VM
  return numpy_break("call of " + module + "." + name);
}

PyObject* NumpyTracing::numpy_builtin(PyObject* callable, const std::string& name, PyObject* args, PyObject* kwargs) {
  if (recorded_builtins().contains(name)) {
    const bool shaped = name == "ones" || name == "full" || name == "eye" || name == "identity" || name == "tri" ||
                        name == "zeros" || name == "empty" || name == "arange" || name == "fromiter";
    if (shaped && (numpy_inside(args) || (kwargs != nullptr && numpy_inside(kwargs)))) {
      return numpy_break("a NumPy value decides the size of an array (" + name + ")");
    }
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), name, false});
  }
  if (name == "_make_extobj" || name == "_get_extobj_dict" || name == "dtype") {
    return PyObject_Call(callable, args, kwargs);
  }
  return numpy_break("call of numpy." + name);
}

PyObject* NumpyTracing::numpy_method(PyObject* callable, PyObject* self, const std::string& name, PyObject* args,
                                     PyObject* kwargs) {
  const NumpyApi& np = *api_.numpy;
  if (self != nullptr && np.is_ufunc(self)) {
    const std::string full = name_of(self) + "." + name;
    if (name == "resolve_dtypes") return PyObject_Call(callable, args, kwargs);
    const bool mutates = name == "at" || arguments_have_out(kwargs);
    return numpy_record({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), full, mutates});
  }
  if (name == "__len__" || name == "__sizeof__" || name == "__class__" || name == "__iter__" ||
      name == "__array_namespace__") {
    return not_handled();
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
  if (!function || !recorded_methods().contains(name)) return numpy_break("method " + name + " of an array");
  const bool shape_from_values = (name == "reshape" || name == "view" || name == "transpose") && [&] {
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(all.get()); ++i) {
      if (numpy_inside(PyTuple_GET_ITEM(all.get(), i))) return true;
    }
    return false;
  }();
  if (shape_from_values) return numpy_break("a NumPy value decides the shape of an array");
  const bool mutates = (method_mutates(name) && np.is_any_array(owner)) || arguments_have_out(kwargs);
  const char* ufunc = ufunc_of_method(name);
  return numpy_record(
      {std::move(function), std::move(all), Ref::borrow(kwargs), ufunc != nullptr ? ufunc : name, mutates});
}

}  // namespace tatara::capture
