#include "capture/entries/said_warnings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "capture/python/py_errors.h"
#include "capture/vm/vm.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// The dict of the module `warnings`, borrowed; null while it is not imported.
PyObject* warnings_dict() {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "warnings");
  return module != nullptr && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

/// Borrowed; null where there is none.
PyObject* in_warnings(const char* name) {
  PyObject* const dict = warnings_dict();
  return dict != nullptr ? PyDict_GetItemString(dict, name) : nullptr;
}

/// Whether the place has a note of the warning, made under the filters of now.
bool is_noted(PyObject* globals, PyObject* key) {
  static PyObject* const registry_name = PyUnicode_InternFromString("__warningregistry__");
  static PyObject* const version_name = PyUnicode_InternFromString("version");
  PyObject* registry = PyDict_GetItemWithError(globals, registry_name);
  if (registry == nullptr || !PyDict_CheckExact(registry)) return false;
  PyObject* version = PyDict_GetItemWithError(registry, version_name);
  if (version == nullptr || !PyLong_CheckExact(version) || PyLong_AsLong(version) != vm_filters_version()) return false;
  return PyDict_GetItemWithError(registry, key) == Py_True;
}

/// Whether the filters are the very same ones, in the same order.
bool are_filters(PyObject* tuple) {
  PyObject* list = in_warnings("filters");
  if (list == nullptr || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != PyTuple_GET_SIZE(tuple)) return false;
  PyObject* const* items = reinterpret_cast<PyTupleObject*>(tuple)->ob_item;
  return std::equal(items, items + PyTuple_GET_SIZE(tuple), reinterpret_cast<PyListObject*>(list)->ob_item);
}

PyObject* ask_said(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 3 || !PyDict_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "globals, a key and filters are wanted");
    return nullptr;
  }
  const bool said = (PyTuple_Check(args[2]) && are_filters(args[2])) || is_noted(args[0], args[1]);
  if (PyErr_Occurred() != nullptr) forget_error();
  return PyBool_FromLong(said);
}

/// Whether a filter's pattern (None, a text or a regular expression) fits.
bool fits(PyObject* pattern, PyObject* text) {
  if (pattern == Py_None) return true;
  if (PyUnicode_CheckExact(pattern)) return PyUnicode_Compare(pattern, text) == 0;
  const Ref match = Ref::steal(PyObject_CallMethod(pattern, "match", "O", text));
  return match && match.get() != Py_None;
}

/// Whether the filter is of Python's own kinds, so that looking at it runs no code of the program.
bool is_plain_filter(PyObject* filter) {
  if (!PyTuple_CheckExact(filter) || PyTuple_GET_SIZE(filter) != 5) return false;
  const auto pattern = [filter](Py_ssize_t i) {
    PyObject* item = PyTuple_GET_ITEM(filter, i);
    return item == Py_None || PyUnicode_CheckExact(item) ||
           std::string_view(Py_TYPE(item)->tp_name).ends_with("re.Pattern");
  };
  return PyUnicode_CheckExact(PyTuple_GET_ITEM(filter, 0)) && pattern(1) && PyType_Check(PyTuple_GET_ITEM(filter, 2)) &&
         pattern(3) && PyLong_CheckExact(PyTuple_GET_ITEM(filter, 4));
}

WarningAction action_of(PyObject* name) {
  const std::string text = text_of(name);
  if (text == "ignore") return WarningAction::kIgnore;
  return text == "default" || text == "once" || text == "module" ? WarningAction::kOnce : WarningAction::kOther;
}

}  // namespace

Ref SaidWarning::key() const {
  const Ref number = Ref::steal(PyLong_FromLong(line));
  return number ? Ref::steal(PyTuple_Pack(3, text.get(), category.get(), number.get())) : Ref();
}

Ref warning_filters() {
  PyObject* list = in_warnings("filters");
  return list != nullptr && PyList_CheckExact(list) ? Ref::steal(PyList_AsTuple(list)) : Ref();
}

WarningAction warning_action(const SaidWarning& warning) {
  const ErrorAside aside;
  const Ref filters = warning_filters();
  PyObject* module = PyDict_GetItemString(warning.globals.get(), "__name__");
  if (!filters || module == nullptr || !PyUnicode_CheckExact(module)) return WarningAction::kOther;
  auto* const category = reinterpret_cast<PyTypeObject*>(warning.category.get());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(filters.get()); ++i) {
    PyObject* const filter = PyTuple_GET_ITEM(filters.get(), i);
    if (!is_plain_filter(filter)) return WarningAction::kOther;
    const auto item = [filter](Py_ssize_t at) { return PyTuple_GET_ITEM(filter, at); };
    const long line = PyLong_AsLong(item(4));
    const bool mine = PyType_IsSubtype(category, reinterpret_cast<PyTypeObject*>(item(2))) != 0 &&
                      (line == 0 || line == warning.line) && fits(item(1), warning.text.get()) && fits(item(3), module);
    if (PyErr_Occurred() != nullptr) {
      forget_error();
      return WarningAction::kOther;
    }
    if (mine) return action_of(item(0));
  }
  PyObject* const other = in_warnings("defaultaction");
  return other != nullptr ? action_of(other) : WarningAction::kOther;
}

bool shows_plainly() {
  const ErrorAside aside;
  PyObject* const shown = in_warnings("showwarning");
  if (shown == nullptr || shown != in_warnings("_showwarning_orig")) return false;
  if (in_warnings("formatwarning") != in_warnings("_formatwarning_orig")) return false;
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(warnings_dict(), &at, &name, &value) != 0) {
    const std::string text = text_of(name);
    if (!text.starts_with("_showwarnmsg") && !text.starts_with("_formatwarnmsg")) continue;
    // One of another module's may be in its place.
    if (!PyFunction_Check(value) || PyFunction_GET_GLOBALS(value) != warnings_dict()) return false;
  }
  PyObject* const out = PySys_GetObject("stderr");
  static PyObject* const write = PyUnicode_InternFromString("write");
  PyObject* const method = out != nullptr && out != Py_None ? _PyType_Lookup(Py_TYPE(out), write) : nullptr;
  return out == nullptr || out == Py_None || (method != nullptr && Py_TYPE(method) == &PyMethodDescr_Type);
}

PyObject* is_said() {
  return made_once([] {
    static PyMethodDef method = {"is_said", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(ask_said)),
                                 METH_FASTCALL, "Whether a warning has been shown, or is ignored."};
    return PyCFunction_New(&method, nullptr);
  });
}

}  // namespace tatara::capture
