#include "capture/host/iterator_state.h"

#include "capture/host/natures.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// Longer containers are not compared item by item at each call.
constexpr Py_ssize_t kMostItems = 1024;

PyTypeObject* ascii_iterator_type() {
  return reinterpret_cast<PyTypeObject*>(made_once([] {
    const Ref text = Ref::steal(PyUnicode_FromString("a"));
    const Ref iterator = Ref::steal(PyObject_GetIter(text.get()));
    return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(iterator.get())));
  }));
}

bool is_range_iterator(const PyTypeObject* type) { return type == &PyRangeIter_Type || type == &PyLongRangeIter_Type; }

/// They go over a sequence, and set a position themselves (`__setstate__`).
bool is_sequence_iterator(const PyTypeObject* type) {
  return type == &PyListIter_Type || type == &PyListRevIter_Type || type == &PyTupleIter_Type ||
         type == &PyUnicodeIter_Type || type == &PyBytesIter_Type || type == &PyReversed_Type ||
         type == ascii_iterator_type();
}

/// A sequence whose items code in C alone gives out.
bool is_plain_sequence_of(const PyTypeObject* type, PyObject* sequence) {
  if (type == &PyListIter_Type || type == &PyListRevIter_Type) {
    return PyList_CheckExact(sequence) && PyList_GET_SIZE(sequence) <= kMostItems;
  }
  if (PyTuple_Check(sequence)) {
    const bool own = PyTuple_CheckExact(sequence) || type == &PyTupleIter_Type;
    return own && PyTuple_GET_SIZE(sequence) <= kMostItems;
  }
  return PyUnicode_CheckExact(sequence) || PyBytes_CheckExact(sequence) || PyRange_Check(sequence);
}

Ref reduce(PyObject* iterator) {
  static PyObject* const name = PyUnicode_InternFromString("__reduce__");
  Ref reduced = Ref::steal(PyObject_CallMethodNoArgs(iterator, name));
  const bool plain = reduced && PyTuple_CheckExact(reduced.get()) && PyTuple_GET_SIZE(reduced.get()) >= 2 &&
                     PyTuple_CheckExact(PyTuple_GET_ITEM(reduced.get(), 1));
  return plain ? reduced : Ref();
}

/// The third part of what __reduce__ gives; null: none, or None.
PyObject* reduced_state(const Ref& reduced) {
  PyObject* state = PyTuple_GET_SIZE(reduced.get()) > 2 ? PyTuple_GET_ITEM(reduced.get(), 2) : Py_None;
  return state != Py_None ? state : nullptr;
}

PyObject* first_argument(const Ref& reduced) {
  PyObject* args = PyTuple_GET_ITEM(reduced.get(), 1);
  return PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
}

bool set_position(IteratorState& state, PyObject* number) {
  int overflow = 0;
  state.position = number != nullptr && PyLong_Check(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
  return overflow == 0;
}

bool read_sequence(PyObject* iterator, IteratorState& state) {
  const Ref reduced = reduce(iterator);
  if (!reduced) return false;
  PyObject* index = reduced_state(reduced);
  if (index == nullptr) return true;  // at its end
  PyObject* sequence = first_argument(reduced);
  if (sequence == nullptr || !is_plain_sequence_of(Py_TYPE(iterator), sequence)) return false;
  state.parts.push_back(Ref::borrow(sequence));
  return set_position(state, index);
}

bool read_range(PyObject* iterator, IteratorState& state) {
  const Ref reduced = reduce(iterator);
  PyObject* range = reduced ? first_argument(reduced) : nullptr;
  if (range == nullptr || !PyRange_Check(range)) return false;
  state.parts.push_back(Ref::borrow(range));
  return set_position(state, reduced_state(reduced));
}

/// The container of all that an iterator of this type gives: borrowed items of a new list.
Ref all_of(PyObject* dict, const PyTypeObject* type) {
  if (type == &PyDictIterKey_Type) return Ref::steal(PyDict_Keys(dict));
  return Ref::steal(type == &PyDictIterValue_Type ? PyDict_Values(dict) : PyDict_Items(dict));
}

bool same_items(PyObject* a, PyObject* b, bool pairs) {
  if (!pairs) return a == b;
  return PyTuple_GET_ITEM(a, 0) == PyTuple_GET_ITEM(b, 0) && PyTuple_GET_ITEM(a, 1) == PyTuple_GET_ITEM(b, 1);
}

/// What is left of it must be what is last in the dict: then a new one, moved on as far, goes the same way.
bool read_dict(PyObject* iterator, IteratorState& state) {
  PyObject* dict = nullptr;
  for (PyObject* part : referents(iterator)) dict = dict == nullptr && PyDict_Check(part) ? part : dict;
  if (dict == nullptr) return true;  // at its end
  if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) > kMostItems) return false;
  const Ref reduced = reduce(iterator);
  PyObject* left = reduced ? first_argument(reduced) : nullptr;
  const Ref all = all_of(dict, Py_TYPE(iterator));
  if (left == nullptr || !PyList_CheckExact(left) || !all) return false;
  const Py_ssize_t count = PyList_GET_SIZE(left), first = PyList_GET_SIZE(all.get()) - count;
  if (first < 0) return false;
  const bool pairs = Py_TYPE(iterator) == &PyDictIterItem_Type;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!same_items(PyList_GET_ITEM(left, i), PyList_GET_ITEM(all.get(), first + i), pairs)) return false;
  }
  state.parts.push_back(Ref::borrow(dict));
  state.position = count;
  return true;
}

bool read_enumerate(PyObject* iterator, IteratorState& state) {
  const Ref reduced = reduce(iterator);
  if (!reduced || PyTuple_GET_SIZE(PyTuple_GET_ITEM(reduced.get(), 1)) != 2) return false;
  state.parts.push_back(Ref::borrow(first_argument(reduced)));
  return set_position(state, PyTuple_GET_ITEM(PyTuple_GET_ITEM(reduced.get(), 1), 1));
}

bool read_zip(PyObject* iterator, IteratorState& state) {
  const Ref reduced = reduce(iterator);
  if (!reduced) return false;
  PyObject* parts = PyTuple_GET_ITEM(reduced.get(), 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); ++i) {
    state.parts.push_back(Ref::borrow(PyTuple_GET_ITEM(parts, i)));
  }
  state.position = reduced_state(reduced) != nullptr ? 1 : 0;
  return true;
}

bool read_any(PyObject* iterator, IteratorState& state) {
  const PyTypeObject* type = Py_TYPE(iterator);
  if (is_sequence_iterator(type)) return read_sequence(iterator, state);
  if (is_range_iterator(type)) return read_range(iterator, state);
  if (is_dict_iterator(iterator)) return read_dict(iterator, state);
  if (type == &PyEnum_Type) return read_enumerate(iterator, state);
  return type == &PyZip_Type && read_zip(iterator, state);
}

/// A new iterator over the dict with `left` steps before it.
Ref dict_iterator(PyObject* dict, PyTypeObject* type, Py_ssize_t left) {
  static PyObject* const values = attr(reinterpret_cast<PyObject*>(&PyDict_Type), "values").release();
  static PyObject* const items = attr(reinterpret_cast<PyObject*>(&PyDict_Type), "items").release();
  Ref made;
  if (type == &PyDictIterKey_Type) {
    made = Ref::steal(PyDict_Type.tp_iter(dict));
  } else {
    const Ref view = Ref::steal(PyObject_CallOneArg(type == &PyDictIterValue_Type ? values : items, dict));
    if (view) made = Ref::steal(PyObject_GetIter(view.get()));
  }
  for (Py_ssize_t done = PyDict_GET_SIZE(dict) - left; made && done > 0; --done) {
    const Ref each = Ref::steal(PyIter_Next(made.get()));
    if (!each) return {};
  }
  return made;
}

PyObject* make_dict_iterator(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count == 3 && PyDict_Check(args[0]) && PyType_Check(args[1]) && PyLong_Check(args[2])) {
    Ref made = dict_iterator(args[0], reinterpret_cast<PyTypeObject*>(args[1]), PyLong_AsSsize_t(args[2]));
    if (made || PyErr_Occurred() != nullptr) return made.release();
  }
  PyErr_SetString(PyExc_TypeError, "a dict, a type of iterators and a number of steps");
  return nullptr;
}

/// One that has no step left, of a type that goes over sequences.
Ref ended(const PyTypeObject* type) {
  Ref empty;
  if (type == &PyListIter_Type || type == &PyListRevIter_Type) {
    empty = Ref::steal(PyList_New(0));
  } else if (type == &PyBytesIter_Type) {
    empty = Ref::steal(PyBytes_FromStringAndSize(nullptr, 0));
  } else if (type == &PyUnicodeIter_Type || type == ascii_iterator_type()) {
    empty = Ref::steal(PyUnicode_New(0, 0));
  } else {
    empty = Ref::steal(PyTuple_New(0));
  }
  return empty ? Ref::steal(PyObject_GetIter(empty.get())) : Ref();
}

}  // namespace

bool is_dict_iterator(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type;
}

bool makes_tuples(PyObject* iterator) {
  const PyTypeObject* type = Py_TYPE(iterator);
  return type == &PyEnum_Type || type == &PyZip_Type || type == &PyDictIterItem_Type;
}

PyObject* dict_iterator_maker() {
  return made_once([] {
    static PyMethodDef method = {"dict_iterator",
                                 reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(make_dict_iterator)),
                                 METH_FASTCALL, "An iterator over a dict, moved on."};
    return PyCFunction_New(&method, nullptr);
  });
}

bool read_state(PyObject* iterator, IteratorState& state) {
  state = {};
  const ErrorAside aside;
  if (read_any(iterator, state)) return true;
  forget_error();
  return false;
}

Ref iterator_like(PyObject* iterator, const std::unordered_map<PyObject*, Ref>& made) {
  IteratorState state;
  if (!read_state(iterator, state)) return {};
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyEnum_Type || type == &PyZip_Type) {
    const Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(state.parts.size())));
    for (size_t i = 0; args && i < state.parts.size(); ++i) {
      const auto own = made.find(state.parts[i].get());
      if (own == made.end()) return {};
      PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(own->second.get()));
    }
    const Ref keywords = type == &PyEnum_Type  ? Ref::steal(Py_BuildValue("{s:L}", "start", state.position))
                         : state.position != 0 ? Ref::steal(Py_BuildValue("{s:O}", "strict", Py_True))
                                               : Ref();
    return Ref::steal(PyObject_Call(reinterpret_cast<PyObject*>(type), args.get(), keywords.get()));
  }
  if (state.parts.empty()) return ended(type);
  PyObject* over = state.parts.front().get();
  if (is_dict_iterator(iterator)) return dict_iterator(over, type, state.position);
  const bool backwards = type == &PyListRevIter_Type || type == &PyReversed_Type;
  // A class of tuples may have an `__iter__` of its own.
  Ref result = Ref::steal(backwards ? PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyReversed_Type), over)
                          : type == &PyTupleIter_Type ? PyTuple_Type.tp_iter(over)
                                                      : PyObject_GetIter(over));
  if (!result || (is_range_iterator(type) && state.position == 0)) return result;
  const Ref done = Ref::steal(PyObject_CallMethod(result.get(), "__setstate__", "L", state.position));
  return done ? result : Ref();
}

}  // namespace tatara::capture
