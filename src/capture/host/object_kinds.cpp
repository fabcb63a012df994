#include "capture/host/object_kinds.h"

#include <structmember.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/host/natures.h"
#include "capture/host/numpy_api.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// Asking the object for its repr runs no code of the program.
bool has_plain_repr(PyObject* object, int depth = 3) {
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 || depth == 0) return false;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (!has_plain_repr(PySequence_Fast_GET_ITEM(object, i), depth - 1)) return false;
    }
    return true;
  }
  const TorchApi* api = TorchApi::get();
  return !PyDict_Check(object) && !PyAnySet_Check(object) && !is_deque(object) && !PyMethod_Check(object) &&
         (api == nullptr || !api->is_tensor(object));
}

/// Cuts " at 0x7f…" out of what repr() gives: texts are the same in every run.
std::string without_addresses(std::string_view text) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(" at 0x", at);
    out.append(text.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) return out;
    at = found + 6;
    while (at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
  }
}

}  // namespace

std::string short_repr(PyObject* object) {
  if (object == nullptr) return "unbound";
  if (PyType_Check(object)) return str_cat("<class '", reinterpret_cast<PyTypeObject*>(object)->tp_name, "'>");
  if (is_enum_member(object)) {
    static PyObject* const name = PyUnicode_InternFromString("_name_");
    return str_cat(type_name(object), ".", text_of(own_attribute(object, name)));
  }
  if (!has_plain_repr(object)) return str_cat("an object of type ", type_name(object));
  const Ref text = Ref::steal(PyObject_Repr(object));
  if (!text) {
    forget_error();
    return type_name(object);
  }
  const std::string result = without_addresses(text_of(text.get()));
  return result.size() > 60 ? str_cat(result.substr(0, 57), "...") : result;
}

bool is_atom(PyObject* o, const TorchApi& api) {
  if (o == Py_None || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyUnicode_CheckExact(o) ||
      PyBytes_CheckExact(o) || PyComplex_CheckExact(o) || o == Py_Ellipsis || o == Py_NotImplemented) {
    return true;
  }
  const char* name = Py_TYPE(o)->tp_name;
  if (Py_TYPE(o) == api.device_type || PyRange_Check(o) || is_enum_member(o)) return true;
  if (api.numpy != nullptr && (api.numpy->is_scalar(o) || api.numpy->is_dtype(o))) return true;
  return std::strcmp(name, "torch.dtype") == 0 || std::strcmp(name, "torch.layout") == 0 ||
         std::strcmp(name, "torch.memory_format") == 0;
}

bool is_random_generator(PyObject* o) { return std::strcmp(Py_TYPE(o)->tp_name, "torch._C.Generator") == 0; }

bool is_not_a_number(PyObject* o) {
  if (PyFloat_CheckExact(o)) return std::isnan(PyFloat_AS_DOUBLE(o));
  if (!PyComplex_CheckExact(o)) return false;
  const Py_complex value = PyComplex_AsCComplex(o);
  return std::isnan(value.real) || std::isnan(value.imag);
}

bool is_plain_function(PyObject* object) {
  if (!PyFunction_Check(object)) return false;
  PyObject* const attributes = reinterpret_cast<PyFunctionObject*>(object)->func_dict;
  return attributes == nullptr || PyDict_GET_SIZE(attributes) == 0;
}

bool is_of_code(PyObject* object, PyObject* code, PyObject* globals) {
  return is_plain_function(object) && PyFunction_GET_CODE(object) == code && PyFunction_GET_GLOBALS(object) == globals;
}

std::array<PyObject*, 3> parts_of_function(PyObject* function) {
  return {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function), PyFunction_GET_CLOSURE(function)};
}

bool is_pinned_kind(PyObject* o, const TorchApi& api) {
  if (PyModule_Check(o) || PyType_Check(o) || PyFunction_Check(o) || PyCFunction_Check(o) || PyCode_Check(o) ||
      api.is_module(o)) {
    return true;
  }
  const char* name = Py_TYPE(o)->tp_name;
  return std::strcmp(name, "method_descriptor") == 0 || std::strcmp(name, "wrapper_descriptor") == 0 ||
         std::strcmp(name, "getset_descriptor") == 0 || std::strcmp(name, "member_descriptor") == 0 ||
         std::strcmp(name, "numpy.ufunc") == 0 || std::strcmp(name, "numpy._ArrayFunctionDispatcher") == 0 ||
         std::strcmp(name, "property") == 0 || std::strcmp(name, "mappingproxy") == 0 ||
         std::strcmp(name, "functools._lru_cache_wrapper") == 0;
}

bool is_bound_in_c(PyObject* callable) {
  return PyCFunction_Check(callable) || std::strcmp(Py_TYPE(callable)->tp_name, "method-wrapper") == 0;
}

PyObject* bound_to(PyObject* object) {
  if (!PyCFunction_Check(object)) return nullptr;
  PyObject* self = PyCFunction_GET_SELF(object);
  return self == nullptr || PyModule_Check(self) || PyType_Check(self) ? nullptr : self;
}

bool is_torch_size(const PyTypeObject* type) { return std::strcmp(type->tp_name, "torch.Size") == 0; }

bool is_partial(PyObject* object) { return std::strcmp(Py_TYPE(object)->tp_name, "functools.partial") == 0; }

std::vector<Ref> ordered_keys(PyObject* dict) {
  std::vector<Ref> keys;
  if (PyObject_TypeCheck(dict, &PyODict_Type) == 0 || PyDict_GET_SIZE(dict) < 2) return keys;
  const Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
  while (iterator) {
    Ref key = Ref::steal(PyIter_Next(iterator.get()));
    if (!key) break;
    keys.push_back(std::move(key));
  }
  forget_error();
  return keys;
}

bool is_ordered_by(PyObject* dict, const std::vector<Ref>& keys) {
  if (keys.empty()) return true;
  const std::vector<Ref> now = ordered_keys(dict);
  return now.size() == keys.size() && std::equal(now.begin(), now.end(), keys.begin(), [](const Ref& a, const Ref& b) {
           return same_value(a.get(), b.get());
         });
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof(x)) == 0;
  }
  if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyBytes_CheckExact(a) || PyRange_Check(a) ||
      PyComplex_CheckExact(a) || std::strncmp(Py_TYPE(a)->tp_name, "torch.d", 7) == 0) {
    const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) forget_error();
    return equal == 1;
  }
  if (const NumpyApi* numpy = NumpyApi::get(); numpy != nullptr && (numpy->is_scalar(a) || numpy->is_dtype(a))) {
    return numpy->same_bytes(a, b);
  }
  return false;
}

bool is_namespace(PyObject* object) { return std::strcmp(Py_TYPE(object)->tp_name, "types.SimpleNamespace") == 0; }

bool is_plain_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_namespace(object)) return true;
  if (PyType_Check(object) || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  // A base other than object in C (or slots) holds state that __dict__ does not show.
  for (PyTypeObject* base = type; base != nullptr; base = base->tp_base) {
    if (base == &PyBaseObject_Type) break;
    if ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
    if (base->tp_members != nullptr && Py_SIZE(base) > 0) return false;
  }
  // Not through a look-up, which may run the program's code.
  const Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) forget_error();
  return dict && PyDict_CheckExact(dict.get());
}

std::vector<InstanceSlot> instance_slots(PyObject* object) {
  constexpr auto kWord = static_cast<Py_ssize_t>(sizeof(PyObject*));
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_dictoffset != 0 || PyType_Check(object) || is_enum_member(object)) return {};
  std::vector<InstanceSlot> slots;
  for (; type != &PyBaseObject_Type; type = type->tp_base) {
    if (type == nullptr || !is_python_class(type) || type->tp_itemsize != 0) return {};
    const Py_ssize_t count = type->tp_members != nullptr ? Py_SIZE(type) : 0;
    // Weak references may have a place beside the slots; what else is there belongs to a class in C.
    const bool weak = type->tp_weaklistoffset != type->tp_base->tp_weaklistoffset;
    const Py_ssize_t rest = type->tp_basicsize - type->tp_base->tp_basicsize - count * kWord;
    if (rest != 0 && !(weak && rest == kWord)) return {};
    for (Py_ssize_t i = count; i-- > 0;) {
      const PyMemberDef& member = type->tp_members[i];
      if (member.type != T_OBJECT_EX) return {};
      slots.push_back({member.name, member.offset});
    }
  }
  std::reverse(slots.begin(), slots.end());
  return slots;
}

bool is_python_class(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0;
}

bool is_numpy_generator(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name == "numpy.random.mtrand.RandomState" || name == "numpy.random._generator.Generator";
}

bool is_python_random_class(PyObject* type) {
  if (!PyType_Check(type) || std::string_view(reinterpret_cast<PyTypeObject*>(type)->tp_name) != "Random") return false;
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "random");
  return module != nullptr && PyDict_GetItemString(PyModule_GetDict(module), "Random") == type;
}

bool is_c_iterator(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("__next__");
  if (Py_TYPE(object)->tp_iternext == nullptr) return false;
  PyObject* method = _PyType_Lookup(Py_TYPE(object), name);
  return method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type;
}

bool is_builtin_iterator(PyObject* o) {
  static const std::unordered_set<std::string_view> names = {"list_iterator",
                                                             "tuple_iterator",
                                                             "range_iterator",
                                                             "longrange_iterator",
                                                             "enumerate",
                                                             "zip",
                                                             "reversed",
                                                             "str_iterator",
                                                             "str_ascii_iterator",
                                                             "list_reverseiterator",
                                                             "dict_keyiterator",
                                                             "dict_valueiterator",
                                                             "dict_itemiterator",
                                                             "odict_iterator",
                                                             "set_iterator",
                                                             "bytes_iterator",
                                                             "itertools.count",
                                                             "iterator",
                                                             "map",
                                                             "filter"};
  return is_c_iterator(o) && !is_python_class(Py_TYPE(o)) && names.contains(Py_TYPE(o)->tp_name);
}

}  // namespace tatara::capture
