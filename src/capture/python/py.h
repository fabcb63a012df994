// Owned references and small helpers over the CPython API.
#pragma once

#include <Python.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "capture/python/py_errors.h"

namespace tatara::capture {

/// An owned reference to a Python object; may be null.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref borrow(PyObject* object) { return steal(Py_XNewRef(object)); }
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// What tp_traverse is given: hands references that we own to the cycle collector.
class Visitor {
 public:
  Visitor(visitproc visit, void* arg) : visit_(visit), arg_(arg) {}
  /// Each takes all of its references; stops at the first result that is not 0, which is then the answer.
  template <typename... Refs>
  int operator()(const Refs&... refs) const {
    int result = 0;
    ((result != 0 || (result = one(refs)) != 0), ...);
    return result;
  }

 private:
  int one(const Ref& ref) const { return ref ? visit_(ref.get(), arg_) : 0; }
  template <typename A, typename B>
  int one(const std::pair<A, B>& pair) const {
    return (*this)(pair.first, pair.second);
  }
  template <typename T>
  int one(const std::vector<T>& many) const {
    for (const T& each : many) {
      if (const int result = one(each); result != 0) return result;
    }
    return 0;
  }
  template <typename T>
    requires requires(const T& t, const Visitor& v) { t.traverse(v); }
  int one(const T& object) const {
    return object.traverse(*this);
  }
  visitproc visit_;
  void* arg_;
};

/// Of null, which an attribute before it may have been, there is none either.
inline Ref attr(PyObject* object, const char* name) {
  if (object != nullptr) return Ref::steal(PyObject_GetAttrString(object, name));
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_AttributeError, name);
  return {};
}

/// The attribute, or null without an error.
inline Ref attr_or_null(PyObject* object, const char* name) {
  Ref result = attr(object, name);
  if (!result) forget_error();
  return result;
}
/// Whether the attribute is there and is True; no error.
inline bool attribute_is_true(PyObject* object, const char* name) {
  return attr_or_null(object, name).get() == Py_True;
}

/// What a weak reference refers to, borrowed; None when that is dead.
inline PyObject* weak_object(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(reference, &object) != 1) return Py_None;
  Py_DECREF(object);
  return object;
#else
  return PyWeakref_GetObject(reference);
#endif
}

/// From the object's own dict; borrowed, null without one.
inline PyObject* own_attribute(PyObject* object, PyObject* name) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  PyObject* value = dict != nullptr && *dict != nullptr ? PyDict_GetItemWithError(*dict, name) : nullptr;
  forget_error();
  return value;
}

/// UTF-8 text of a str; "" for anything else.
inline std::string text_of(PyObject* object) {
  if (object == nullptr || !PyUnicode_Check(object)) return {};
  const char* text = PyUnicode_AsUTF8(object);
  if (text == nullptr) {
    forget_error();
    return {};
  }
  return text;
}

inline std::string name_of(PyObject* object, const char* attribute = "__name__") {
  return text_of(attr_or_null(object, attribute).get());
}

inline Ref int_tuple(const std::vector<int64_t>& values) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; tuple && i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  }
  return tuple;
}

inline bool is_deque_type(const PyTypeObject* type) { return std::strcmp(type->tp_name, "collections.deque") == 0; }
inline bool is_deque(PyObject* object) { return is_deque_type(Py_TYPE(object)); }

/// "module.qualname" of a type, for messages.
inline std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

/// Takes the Python error as text, as forget_error() does.
inline std::string take_error_text() {
  const Ref error = Ref::steal(take_error());
  if (!error) return error_postponed() ? "interrupted" : "";
  const Ref text = Ref::steal(PyObject_Str(error.get()));
  if (!text) forget_error();
  return type_name(error.get()) + ": " + text_of(text.get());
}

/// Keeps a Python error aside while other Python code runs.
class ErrorAside {
 public:
  ErrorAside() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorAside() {
    forget_error();
    PyErr_Restore(type_, value_, traceback_);
  }
  ErrorAside(const ErrorAside&) = delete;
  ErrorAside& operator=(const ErrorAside&) = delete;

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

}  // namespace tatara::capture
