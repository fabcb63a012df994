#include "capture/entries/container_guards.h"

#include <algorithm>

#include "capture/entries/dict_guards.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

// ---- Reads -----------------------------------------------------------------------------------------------------------

ContainerGuards::ListWatch& ContainerGuards::list_watch(PyObject* list, ReadNotes& notes) {
  const auto [found, inserted] = list_index_.emplace(list, lists_.size());
  if (inserted) {
    notes.know(list);
    const TraceWrites::Written* written = notes.writes().of(list);
    lists_.push_back({Ref::borrow(list), PyList_GET_SIZE(written != nullptr ? written->before.get() : list), {}, {}});
  }
  return lists_[found->second];
}

void ContainerGuards::list_size(PyObject* list, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(list);
  if (written == nullptr || !written->all) list_watch(list, notes);
}

void ContainerGuards::list_item(PyObject* list, Py_ssize_t index, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(list);
  if (written != nullptr && written->all) return;
  PyObject* before = written != nullptr ? written->before.get() : list;
  ListWatch& watch = list_watch(list, notes);
  if (index < 0 || index >= PyList_GET_SIZE(before) || !watch.seen.insert(index).second) return;
  if (written != nullptr && written->keys) {
    const Ref key = Ref::steal(PyLong_FromSsize_t(index));
    if (notes.writes().contains(list, key.get())) return;
  }
  PyObject* value = PyList_GET_ITEM(before, index);
  notes.know(value);
  watch.items.push_back({index, {{}, Ref::borrow(value)}});
}

void ContainerGuards::list(PyObject* list, ReadNotes& notes) {
  list_size(list, notes);
  if (const auto found = list_index_.find(list); found != list_index_.end()) {
    const Py_ssize_t size = lists_[found->second].size;
    for (Py_ssize_t i = 0; i < size; ++i) list_item(list, i, notes);
  }
}

void ContainerGuards::set(PyObject* set, bool ordered, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(set);
  if (written != nullptr && written->all) return;
  if (!notes.first(set)) {
    for (SetWatch& watch : sets_) {
      if (watch.set.get() == set) watch.ordered = watch.ordered || ordered;
    }
    return;
  }
  Ref copy = written != nullptr ? written->before : Ref::steal(PySequence_List(set));
  if (!copy) {
    forget_error();
    return;
  }
  notes.know(set);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy.get()); ++i) notes.know(PyList_GET_ITEM(copy.get(), i));
  sets_.push_back({Ref::borrow(set), std::move(copy), ordered});
}

void ContainerGuards::deque(PyObject* deque, std::vector<bool> elsewhere, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(deque);
  if ((written != nullptr && written->all) || !notes.first(deque)) return;
  const Ref copy = Ref::steal(PySequence_List(written != nullptr ? written->before.get() : deque));
  if (!copy) {
    forget_error();
    return;
  }
  notes.know(deque);
  const Py_ssize_t size = PyList_GET_SIZE(copy.get());
  elsewhere.resize(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!elsewhere[static_cast<size_t>(i)]) {
      notes.know(PyList_GET_ITEM(copy.get(), i));
    } else if (PyList_SetItem(copy.get(), i, Py_NewRef(Py_None)) != 0) {
      forget_error();
    }
  }
  deques_.push_back({Ref::borrow(deque), copy, std::move(elsewhere)});
}

void ContainerGuards::cell(PyObject* cell, ReadNotes& notes) {
  if (notes.writes().of(cell) != nullptr || !notes.first(cell)) return;
  notes.know(cell);
  notes.know(PyCell_GET(cell));
  cells_.push_back({Ref::borrow(cell), {{}, Ref::borrow(PyCell_GET(cell))}});
}

void ContainerGuards::for_each_container(const std::function<void(PyObject*)>& fn) const {
  for (const ListWatch& watch : lists_) fn(watch.list.get());
  for (const SetWatch& watch : sets_) fn(watch.set.get());
  for (const DequeWatch& watch : deques_) fn(watch.deque.get());
}

void ContainerGuards::note_rewritten(const TraceWrites& writes) {
  for (CellWatch& watch : cells_) {
    if (writes.of(watch.cell.get()) != nullptr) capture::note_rewritten(watch.read, PyCell_GET(watch.cell.get()));
  }
}

// ---- Checks ----------------------------------------------------------------------------------------------------------

/// The same items, for some readers in the same order, which a set does not promise and yet has.
bool ContainerGuards::same_items(const SetWatch& watch) {
  Py_ssize_t i = 0;
  bool same = PySet_GET_SIZE(watch.set.get()) == PyList_GET_SIZE(watch.before.get());
  if (same && watch.ordered) {
    // The iterator of sets themselves: a class's own __iter__ may run code of the program.
    const Ref items = Ref::steal(PySet_Type.tp_iter(watch.set.get()));
    Ref item = Ref::steal(items ? PyIter_Next(items.get()) : nullptr);
    for (; item && same; item = Ref::steal(PyIter_Next(items.get()))) {
      same = same_value(item.get(), PyList_GET_ITEM(watch.before.get(), i++));
    }
    if (PyErr_Occurred() != nullptr) forget_error();
    same = same && i == PyList_GET_SIZE(watch.before.get());
  }
  for (; same && !watch.ordered && i < PyList_GET_SIZE(watch.before.get()); ++i) {
    same = PySet_Contains(watch.set.get(), PyList_GET_ITEM(watch.before.get(), i)) == 1;
    if (!same) forget_error();
  }
  return same;
}

bool ContainerGuards::same_items(const DequeWatch& watch, ObjectCheck& check) {
  const Ref now = Ref::steal(PySequence_List(watch.deque.get()));
  if (!now) forget_error();
  bool same = now && PyList_GET_SIZE(now.get()) == PyList_GET_SIZE(watch.before.get());
  for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(now.get()); ++i) {
    same = watch.elsewhere[static_cast<size_t>(i)] ||
           same_value(PyList_GET_ITEM(now.get(), i), PyList_GET_ITEM(watch.before.get(), i));
  }
  return same || check.fail("items of a deque", nullptr, watch.before.get(), now.get());
}
bool ContainerGuards::check(ObjectCheck& check) const {
  for (const ListWatch& watch : lists_) {
    if (PyList_GET_SIZE(watch.list.get()) != watch.size) {
      return check.fail("length of a list", nullptr, nullptr, nullptr);
    }
    for (const auto& [index, read] : watch.items) {
      if (!check.same("list item", read, PyList_GET_ITEM(watch.list.get(), index))) return false;
    }
  }
  for (const SetWatch& watch : sets_) {
    if (!same_items(watch)) return check.fail("items of a set", nullptr, watch.before.get(), watch.set.get());
  }
  for (const DequeWatch& watch : deques_) {
    if (!same_items(watch, check)) return false;
  }
  for (const CellWatch& watch : cells_) {
    if (!check.same("closure variable", watch.read, PyCell_GET(watch.cell.get()))) return false;
  }
  return true;
}

void ContainerGuards::compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const {
  for (const ListWatch& watch : lists_) {
    for (const auto& [index, read] : watch.items) {
      PyObject* now = index < PyList_GET_SIZE(watch.list.get()) ? PyList_GET_ITEM(watch.list.get(), index) : nullptr;
      add_varying({watch.list.get(), nullptr, index}, read, now, api, sources, varying);
    }
  }
  for (const DequeWatch& watch : deques_) {
    const Ref now = Ref::steal(PySequence_List(watch.deque.get()));
    if (!now) forget_error();
    const Py_ssize_t size = now ? std::min(PyList_GET_SIZE(now.get()), PyList_GET_SIZE(watch.before.get())) : 0;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject *const before = PyList_GET_ITEM(watch.before.get(), i), *const item = PyList_GET_ITEM(now.get(), i);
      if (!other_number(before, item)) add_varying({watch.deque.get(), nullptr, i}, before, item, api, varying);
    }
  }
  for (const CellWatch& watch : cells_)
    add_varying({watch.cell.get()}, watch.read, PyCell_GET(watch.cell.get()), api, sources, varying);
}

void ContainerGuards::add_ended(VaryingPlaces& varying) const {
  for (const ListWatch& watch : lists_) {
    for (const auto& [index, read] : watch.items) {
      if (read.ended()) varying[{watch.list.get(), nullptr, index}];
    }
  }
  for (const CellWatch& watch : cells_) {
    if (watch.read.ended()) varying[{watch.cell.get()}];
  }
}

}  // namespace tatara::capture
