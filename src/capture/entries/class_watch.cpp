#include "capture/entries/class_watch.h"

#include <algorithm>

#include "capture/entries/guards.h"
#include "capture/entries/lifetimes.h"
#include "capture/host/torch_api.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// The tag of a class. It gets one at a look-up; one that can get no more (they run out) has 0.
unsigned version_tag(PyTypeObject* type) {
  static PyObject* const any = PyUnicode_InternFromString("__doc__");
  if (type->tp_version_tag == 0) _PyType_Lookup(type, any);
  return type->tp_version_tag;
}

bool is_special(PyObject* name) {
  const std::string text = text_of(name);
  return text.empty() || text.starts_with("__");
}

/// A copy of the class's dict. All entries watch the class of tensors, which is large: one copy serves them.
Ref contents_of(PyTypeObject* type) {
  static unsigned tag = 0;
  static PyObject* copy = nullptr;
  const TorchApi* api = TorchApi::get();
  if (api == nullptr || type != api->tensor_type) return Ref::steal(PyDict_Copy(class_dict(type)));
  const unsigned now = version_tag(type);
  if (copy == nullptr || now != tag || now == 0) {
    Py_XSETREF(copy, PyDict_Copy(class_dict(type)));
    tag = now;
  }
  return Ref::borrow(copy);
}

/// What may end when the program drops it becomes a weak reference in `contents`. The names.
Ref hold_weakly(PyObject* contents) {
  std::vector<std::pair<PyObject*, Ref>> ends;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (contents != nullptr && PyDict_Next(contents, &at, &key, &value) != 0) {
    if (Ref reference = weak_where_noticed(value)) ends.emplace_back(key, std::move(reference));
  }
  Ref names = Ref::steal(ends.empty() ? nullptr : PySet_New(nullptr));
  for (const auto& [name, reference] : ends) {
    if (!names || PySet_Add(names.get(), name) != 0 || PyDict_SetItem(contents, name, reference.get()) != 0)
      forget_error();
  }
  return names;
}

}  // namespace

PyObject* ClassWatch::Base::value_before(PyObject* name, PyObject* held) const {
  if (held == nullptr || !weakly || PySet_Contains(weakly.get(), name) != 1) return held;
  PyObject* object = weak_object(held);
  return object == Py_None ? nullptr : object;  // it has ended
}

bool is_plain_data(PyObject* value) {
  return value == nullptr || value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyComplex_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value);
}

PyObject* class_dict(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 ? type->tp_dict : nullptr;
}

PyObject* defining_dict(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; type->tp_mro != nullptr && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* dict = class_dict(base);
    if (dict != nullptr && PyDict_GetItemWithError(dict, name) != nullptr) return dict;
    forget_error();
  }
  return nullptr;
}

ClassWatch::ClassWatch(PyTypeObject* type)
    : type_(Ref::borrow(reinterpret_cast<PyObject*>(type))),
      mro_(Ref::borrow(type->tp_mro)),
      names_(Ref::steal(PySet_New(nullptr))),
      tag_(version_tag(type)) {
  for (Py_ssize_t i = 0; mro_ && i < PyTuple_GET_SIZE(mro_.get()); ++i) {
    PyObject* base = PyTuple_GET_ITEM(mro_.get(), i);
    PyObject* dict = class_dict(reinterpret_cast<PyTypeObject*>(base));
    if (dict == nullptr) continue;
    Ref before = contents_of(reinterpret_cast<PyTypeObject*>(base));
    Ref weakly = hold_weakly(before.get());
    bases_.push_back({Ref::borrow(base), std::move(before), std::move(weakly)});
  }
  forget_error();
}

void ClassWatch::read(PyObject* name) {
  if (name == nullptr || PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) {
    all_ = true;
  } else if (PySet_Add(names_.get(), name) != 0) {
    forget_error();
  }
}

bool ClassWatch::matters(const Base& base, PyObject* name, PyObject* before, PyObject* now) const {
  if (same_value(before, now)) return false;
  if (all_ || !is_plain_data(before) || !is_plain_data(now) || is_special(name)) return true;
  const int known = PySet_Contains(names_.get(), name);
  if (known < 0) forget_error();
  return known != 0 && !is_hidden(base, name);
}

bool ClassWatch::is_hidden(const Base& base, PyObject* name) const {
  const auto has = [name](const Base& each) { return PyDict_Contains(each.before.get(), name) == 1; };
  return std::any_of(bases_.data(), &base, has);
}

bool ClassWatch::same(const Base& base, std::string* why) const {
  PyObject* dict = class_dict(reinterpret_cast<PyTypeObject*>(base.type.get()));
  const auto fail = [&](PyObject* name, PyObject* before, PyObject* now) {
    if (why != nullptr) {
      *why = str_cat("attribute ", text_of(name), " of class ", short_repr(base.type.get()), ": ", short_repr(before),
                     " became ", short_repr(now));
    }
    return false;
  };
  if (dict == nullptr || !base.before) return fail(nullptr, nullptr, nullptr);
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(base.before.get(), &at, &key, &value) != 0) {
    PyObject* now = PyDict_GetItemWithError(dict, key);
    if (now == nullptr) forget_error();
    PyObject* was = base.value_before(key, value);
    if (matters(base, key, was, now)) return fail(key, was, now);
  }
  at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    PyObject* before = PyDict_GetItemWithError(base.before.get(), key);
    if (before == nullptr) forget_error();
    if (before == nullptr && matters(base, key, nullptr, value)) return fail(key, nullptr, value);
  }
  return true;
}

bool ClassWatch::check(std::string* why) {
  auto* type = reinterpret_cast<PyTypeObject*>(type_.get());
  if (tag_ != 0 && type->tp_version_tag == tag_) return true;
  if (type->tp_mro != mro_.get()) {
    if (why != nullptr) *why = "the bases of class " + short_repr(type_.get()) + " changed";
    return false;
  }
  for (const Base& base : bases_) {
    if (!same(base, why)) return false;
  }
  tag_ = version_tag(type);
  return true;
}

void ClassWatch::other_numbers(VaryingPlaces& places) const {
  PyObject *key = nullptr, *value = nullptr;
  for (const Base& base : bases_) {
    PyObject* dict = class_dict(reinterpret_cast<PyTypeObject*>(base.type.get()));
    Py_ssize_t at = 0;
    while (dict != nullptr && base.before && PyDict_Next(base.before.get(), &at, &key, &value) != 0) {
      PyObject* now = PyDict_GetItemWithError(dict, key);
      if (now == nullptr) forget_error();
      const int known = PySet_Contains(names_.get(), key);
      if (known < 0) forget_error();
      if (known == 1 && other_number(value, now)) places[{dict, key}];
    }
  }
}

void ClassGuards::read(PyObject* type, PyObject* name) {
  auto* object = reinterpret_cast<PyTypeObject*>(type);
  if (class_dict(object) == nullptr) return;
  const auto [found, inserted] = index_.emplace(type, watches_.size());
  if (inserted) watches_.emplace_back(object);
  watches_[found->second].read(name);
}

bool ClassGuards::check(std::string* why) {
  for (ClassWatch& watch : watches_) {
    if (!watch.check(why)) return false;
  }
  return true;
}

void ClassGuards::other_numbers(VaryingPlaces& places) const {
  for (const ClassWatch& watch : watches_) watch.other_numbers(places);
}

}  // namespace tatara::capture
