#include "capture/entries/number_guards.h"

#include <algorithm>

#include "capture/entries/dict_guards.h"
#include "capture/host/object_kinds.h"
#include "capture/numbers/symbolic_int.h"
#include "support/str_cat.h"

namespace tatara::capture {

NumberGuards::Watch& NumberGuards::add_watch(ReadPlace place, ReadNotes& notes) {
  notes.know(place.holder);
  Watch& watch = watches_.emplace_back();
  watch.holder = Ref::borrow(place.holder);
  watch.key = Ref::borrow(place.key);
  watch.index = place.index;
  return watch;
}

void NumberGuards::add(ReadPlace place, PyObject* value, size_t symbol, IntRange range, ReadNotes& notes) {
  Watch& watch = add_watch(place, notes);
  watch.item = place.item;
  watch.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value)));
  watch.range = range;
  watch.symbol = symbol;
}

void NumberGuards::add_tuple(ReadPlace place, PyObject* tuple, std::vector<bool> varying, ReadNotes& notes) {
  Watch& watch = add_watch(place, notes);
  watch.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(tuple)));
  watch.tuple = Ref::borrow(tuple);
  watch.varying = std::move(varying);
}

void NumberGuards::add_value(ReadPlace place, ValueGuard guard, ReadNotes& notes) {
  add_watch(place, notes).value = std::make_shared<const ValueGuard>(std::move(guard));
}

PyObject* slot_value(PyObject* owner, PyObject* name) {
  const Ref value = Ref::steal(PyObject_GenericGetAttr(owner, name));
  if (!value) forget_error();
  return value.get();  // the slot holds it
}

PyObject* NumberGuards::Watch::now() const {
  PyObject* found = nullptr;
  if (key && !PyDict_Check(holder.get())) {
    found = slot_value(holder.get(), key.get());
  } else if (key) {
    found = PyDict_GetItemWithError(holder.get(), key.get());
    if (found == nullptr) forget_error();
  } else if (PyCell_Check(holder.get())) {
    found = PyCell_GET(holder.get());
  } else if (is_deque(holder.get())) {
    found = Ref::steal(PySequence_GetItem(holder.get(), index)).get();  // the deque holds it
    if (found == nullptr) forget_error();
  } else if (index < PyList_GET_SIZE(holder.get())) {
    found = PyList_GET_ITEM(holder.get(), index);
  }
  if (item < 0 || found == nullptr) return found;
  return PyTuple_CheckExact(found) && item < PyTuple_GET_SIZE(found) ? PyTuple_GET_ITEM(found, item) : nullptr;
}

bool NumberGuards::Watch::same_rest(PyObject* now) const {
  if (now == nullptr || !PyTuple_CheckExact(now) || PyTuple_GET_SIZE(now) != PyTuple_GET_SIZE(tuple.get()))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i) {
    if (varying[static_cast<size_t>(i)]) continue;
    if (!same_value(PyTuple_GET_ITEM(now, i), PyTuple_GET_ITEM(tuple.get(), i))) return false;
  }
  return true;
}

bool NumberGuards::Watch::bind(PyObject* now, std::vector<int64_t>& symbols) const {
  symbols.resize(std::max(symbols.size(), symbol), kUnbound);
  if (PyFloat_CheckExact(now)) {
    symbols.push_back(number_part(now, SymbolSource::kFloatHigh));
    symbols.push_back(number_part(now, SymbolSource::kFloatLow));
    return true;
  }
  int overflow = 0;
  symbols.push_back(PyLong_AsLongLongAndOverflow(now, &overflow));
  return overflow == 0 && symbols.back() >= range.lo && symbols.back() <= range.hi;
}

bool NumberGuards::check(TorchApi& api, std::vector<PyObject*>& objects, std::vector<int64_t>& symbols,
                         std::string* why) const {
  for (const Watch& watch : watches_) {
    PyObject* now = watch.now();
    if (watch.value != nullptr && now != nullptr) {
      if (watch.value->check_behind(now, api, objects, symbols, why)) continue;
      if (why != nullptr) *why = str_cat("at ", short_repr(watch.key.get()), ": ", *why);
      return false;
    }
    bool good = now != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(now)) == watch.type.get();
    if (good) good = watch.tuple ? watch.same_rest(now) : watch.bind(now, symbols);
    if (!good) {
      if (why != nullptr) *why = str_cat("number ", short_repr(watch.key.get()), " became ", short_repr(now));
      return false;
    }
    if (!watch.tuple) objects.push_back(now);
  }
  return true;
}

const SymbolicLayout* NumberGuards::layout(int object) const {
  for (const Watch& watch : watches_) {
    const SymbolicLayout* const layout = watch.value != nullptr ? watch.value->layout(object) : nullptr;
    if (layout != nullptr) return layout;
  }
  return nullptr;
}

void NumberGuards::compare(TorchApi& api, VaryingPlaces& varying) const {
  for (const Watch& watch : watches_) {
    PyObject* now = watch.now();
    if (watch.tuple) {
      add_varying(watch.place(), watch.tuple.get(), now, api, varying);
      continue;
    }
    VaryingItems& items = varying[watch.place()];
    if (watch.value != nullptr) watch.value->compare(&now, 1, api, items);
  }
}

}  // namespace tatara::capture
