#include "capture/host/natures.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/host/known_calls.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {
namespace {

using Names = std::unordered_set<std::string_view>;

/// Types in C whose objects never change.
const Names& value_types() {
  static const Names names = {"builtin_function_or_method", "method_descriptor", "classmethod_descriptor",
                              "wrapper_descriptor", "getset_descriptor", "member_descriptor", "code", "re.Pattern",
                              "re.Match", "Struct", "_struct.Struct", "decimal.Decimal", "zoneinfo.ZoneInfo",
                              "ContextVar", "_contextvars.ContextVar", "Token", "PyCapsule", "ellipsis",
                              "NotImplementedType", "EncodingMap", "type_params", "typing.TypeVar", "typing.ParamSpec",
                              "typing.TypeVarTuple", "typing.TypeAliasType", "_abc._abc_data", "sys.flags",
                              "numpy.ufunc", "numpy._ArrayFunctionDispatcher", "tatara._core.CompiledFunction",
                              // Their state is what the operating system's is: asked by methods, which are calls.
                              "_thread.lock", "_thread.RLock", "torch._C.Generator"};
  return names;
}

/// Types in C that hold other objects, always the same.
const Names& holder_types() {
  static const Names names = {"mappingproxy",
                              "slice",
                              "property",
                              "staticmethod",
                              "classmethod",
                              "super",
                              "method",
                              "method-wrapper",
                              "instancemethod",
                              "functools.partial",
                              "functools.KeyWrapper",
                              "types.GenericAlias",
                              "types.UnionType",
                              "operator.itemgetter",
                              "operator.attrgetter",
                              "operator.methodcaller",
                              "weakref",
                              "weakref.ReferenceType",
                              "typing.ParamSpecArgs",
                              "typing.ParamSpecKwargs"};
  return names;
}

/// Beside Python's own: datetime objects, and those of the host and of NumPy that are no tensors.
bool is_value_name(std::string_view name) {
  return name.starts_with("datetime.") || name.starts_with("torch.") || name.starts_with("numpy.") ||
         value_types().contains(name);
}

/// What a cache with a limit keeps a result in (_functools.c).
struct CacheLink {
  PyObject_HEAD void *before, *after;
  Py_hash_t hash;
  PyObject *key, *result;
};

bool is_link_type(const PyTypeObject* type) {
  return std::strcmp(type->tp_name, "functools._lru_list_elem") == 0 && type->tp_basicsize == sizeof(CacheLink);
}

bool is_generator(PyObject* o) { return PyGen_Check(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o); }

bool is_container(PyObject* o) {
  return PyList_Check(o) || PyDict_Check(o) || PySet_Check(o) || PyCell_Check(o) || is_deque(o);
}

}  // namespace

bool is_python_made(const PyTypeObject* type) {
  static const destructor dealloc = [] {
    const Ref made = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Made"));
    return reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc;
  }();
  return type->tp_dealloc == dealloc;
}

const PyTypeObject* base_in_c(const PyTypeObject* type) {
  // From Python 3.12 on it is written in C; it holds nothing.
  const auto is_generic = [](const PyTypeObject* t) { return std::strcmp(t->tp_name, "typing.Generic") == 0; };
  while (type->tp_base != nullptr && (is_python_made(type) || is_generic(type))) type = type->tp_base;
  return type;
}

bool is_defaultdict(PyObject* object) {
  return PyDict_Check(object) && std::strcmp(base_in_c(Py_TYPE(object))->tp_name, "collections.defaultdict") == 0;
}

bool is_context(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name == "Context" || name == "_contextvars.Context";
}

bool is_torch_guard(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__enter__");
  PyObject* const enter = _PyType_Lookup(type, name);
  if (enter == nullptr || PyFunction_Check(enter)) return false;
  const Ref module = attr_or_null(reinterpret_cast<PyObject*>(type), "__module__");
  const std::string where = text_of(module.get());
  return (where == "torch" || where.rfind("torch._C", 0) == 0) && !known_type(type).is(kPlainGuard);
}

bool is_cached_function(PyObject* object) {
  return std::strcmp(Py_TYPE(object)->tp_name, "functools._lru_cache_wrapper") == 0;
}

PyObject* cache_of(PyObject* function) {
  // It is visited before the function and the mark of keyword arguments, and these before the type of the links.
  constexpr size_t kBefore = 3;
  const std::vector<PyObject*> parts = referents(function);
  for (size_t i = parts.size(); i-- > kBefore;) {
    if (!PyType_Check(parts[i]) || !is_link_type(reinterpret_cast<PyTypeObject*>(parts[i]))) continue;
    if (PyDict_CheckExact(parts[i - kBefore])) return parts[i - kBefore];
  }
  return nullptr;
}

bool is_cached(PyObject* held, PyObject* result) {
  return held == result || (is_link_type(Py_TYPE(held)) && reinterpret_cast<CacheLink*>(held)->result == result);
}

bool is_enum_member(PyObject* object) {
  // The metaclass tells enums apart without importing the module.
  return std::strcmp(Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(object)))->tp_name, "EnumType") == 0;
}

Nature nature_of(PyObject* o, const TorchApi& api) {
  if (is_enum_member(o)) return Nature::kObject;
  if (is_atom(o, api)) return Nature::kValue;
  if (api.is_tensor(o)) return Nature::kTensor;
  if (PyModule_Check(o) || PyType_Check(o) || PyFunction_Check(o) || api.is_module(o) || is_cached_function(o)) {
    return Nature::kNamed;
  }
  if (is_container(o)) return Nature::kContainer;
  if (PyTuple_Check(o) || PyFrozenSet_Check(o) || PyExceptionInstance_Check(o) || PyMethod_Check(o)) {
    return Nature::kHolder;
  }
  if (bound_to(o) != nullptr) return Nature::kHolder;
  if (is_generator(o) || is_c_iterator(o)) return Nature::kIterator;
  const PyTypeObject* base = base_in_c(Py_TYPE(o));
  const std::string_view name = base->tp_name;
  if (holder_types().contains(name) || is_dict_view(name)) return Nature::kHolder;
  if (name == "types.SimpleNamespace") return Nature::kContainer;
  const bool plain = base == &PyBaseObject_Type || is_value_name(name) || base == &PyLong_Type ||
                     base == &PyFloat_Type || base == &PyUnicode_Type || base == &PyBytes_Type ||
                     base == &PyComplex_Type;
  if (plain) return base == Py_TYPE(o) && base != &PyBaseObject_Type ? Nature::kValue : Nature::kObject;
  return Nature::kState;
}

std::vector<PyObject*> referents(PyObject* object) {
  std::vector<PyObject*> result;
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_traverse == nullptr || PyObject_IS_GC(object) == 0) return result;
  const auto add = [](PyObject* each, void* all) {
    static_cast<std::vector<PyObject*>*>(all)->push_back(each);
    return 0;
  };
  type->tp_traverse(object, add, &result);
  std::erase(result, reinterpret_cast<PyObject*>(type));
  return result;
}

bool is_dict_view(std::string_view type) {
  static const Names names = {"dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items"};
  return names.contains(type);
}

PyObject* viewed_mapping(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  if (name != "mappingproxy" && !is_dict_view(name)) return nullptr;
  const std::vector<PyObject*> held = referents(object);
  return held.empty() ? nullptr : held.front();
}

bool is_known_by_identity(PyObject* object) {
  return Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
         Py_TYPE(object)->tp_hash == PyBaseObject_Type.tp_hash;
}

bool is_unchanging(PyObject* o, const TorchApi& api, int depth) {
  constexpr int kMaxDepth = 20;
  if (depth > kMaxDepth) return false;
  if (is_enum_member(o)) return false;
  const auto all = [&](PyObject* items) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
      if (!is_unchanging(PyTuple_GET_ITEM(items, i), api, depth + 1)) return false;
    }
    return true;
  };
  if (PyTuple_Check(o)) return !is_python_made(Py_TYPE(o)) && all(o);
  if (PyFrozenSet_CheckExact(o)) {
    const Ref items = Ref::steal(PySequence_Tuple(o));
    if (!items) forget_error();
    return items && all(items.get());
  }
  if (PySlice_Check(o)) {
    const auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_unchanging(s->start, api, depth + 1) && is_unchanging(s->stop, api, depth + 1) &&
           is_unchanging(s->step, api, depth + 1);
  }
  return !PyExceptionInstance_Check(o) && nature_of(o, api) == Nature::kValue;
}

}  // namespace tatara::capture
