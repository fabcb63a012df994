#include "capture/entries/number_guards.h"

#include "capture/entries/dict_guards.h"
#include "capture/host/object_kinds.h"
#include "capture/numbers/symbolic_int.h"
#include "support/str_cat.h"

namespace tatara::capture {

void NumberGuards::add(NumberPlace place, PyObject* value, IntRange range, ReadNotes& notes) {
  notes.know(place.holder);
  watches_.push_back({Ref::borrow(place.holder),
                      Ref::borrow(place.key),
                      place.index,
                      place.item,
                      Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value))),
                      range,
                      {},
                      {}});
}

void NumberGuards::add_tuple(NumberPlace place, PyObject* tuple, std::vector<bool> varying, ReadNotes& notes) {
  notes.know(place.holder);
  watches_.push_back({Ref::borrow(place.holder),
                      Ref::borrow(place.key),
                      place.index,
                      -1,
                      Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(tuple))),
                      {},
                      Ref::borrow(tuple),
                      std::move(varying)});
}

PyObject* NumberGuards::Watch::now() const {
  PyObject* found = nullptr;
  if (key) {
    found = PyDict_GetItemWithError(holder.get(), key.get());
    if (found == nullptr) forget_error();
  } else if (PyCell_Check(holder.get())) {
    found = PyCell_GET(holder.get());
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

bool NumberGuards::check(std::vector<PyObject*>& objects, std::vector<int64_t>& symbols, std::string* why) const {
  for (const Watch& watch : watches_) {
    PyObject* now = watch.now();
    bool good = now != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(now)) == watch.type.get();
    if (watch.tuple) {
      good = good && watch.same_rest(now);
    } else if (good && PyFloat_CheckExact(now)) {
      symbols.push_back(number_part(now, SymbolSource::kFloatHigh));
      symbols.push_back(number_part(now, SymbolSource::kFloatLow));
    } else if (good) {
      int overflow = 0;
      symbols.push_back(PyLong_AsLongLongAndOverflow(now, &overflow));
      good = overflow == 0 && symbols.back() >= watch.range.lo && symbols.back() <= watch.range.hi;
    }
    if (!good) {
      if (why != nullptr) *why = str_cat("number ", short_repr(watch.key.get()), " became ", short_repr(now));
      return false;
    }
    if (!watch.tuple) objects.push_back(now);
  }
  return true;
}

void NumberGuards::compare(std::set<NumberPlace>& varying) const {
  for (const Watch& watch : watches_) {
    if (!watch.tuple) varying.insert(watch.place());
    if (watch.tuple) add_varying(watch.place(), watch.tuple.get(), watch.now(), varying);
  }
}

}  // namespace tatara::capture
