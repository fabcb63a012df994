#include "capture/entries/watches.h"

#include <algorithm>
#include <cstring>

#include "capture/entries/effects.h"
#include "capture/entries/guards.h"
#include "capture/entries/lifetimes.h"
#include "capture/host/natures.h"
#include "support/str_cat.h"

namespace tatara::capture {

const Watches::Written* Watches::writes_to(PyObject* object) const {
  const auto found = written_.find(object);
  return found == written_.end() ? nullptr : &found->second;
}

// ---- Reads -----------------------------------------------------------------------------------------------------------

Watches::DictWatch& Watches::dict_watch(PyObject* dict) {
  const auto [found, inserted] = dict_index_.emplace(dict, dicts_.size());
  if (inserted) {
    know(dict);
    dicts_.emplace_back();
    dicts_.back().dict = Ref::borrow(dict);
    // What is compared is the state before the trace's own writes, which the present version no longer stands for.
    dicts_.back().version = writes_to(dict) != nullptr ? 0 : dict_version(dict);
  }
  return dicts_[found->second];
}

void Watches::dict_key(PyObject* dict, PyObject* key) {
  if (!keys_seen_[dict].insert(key).second || is_written(dict, key)) return;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr) forget_error();
  know(value);
  dict_watch(dict).reads.push_back({Ref::borrow(key), Ref::borrow(value)});
}

void Watches::dict_all(PyObject* dict) {
  const Written* written = writes_to(dict);
  if (written != nullptr && written->all) return;
  DictWatch& watch = dict_watch(dict);
  if (watch.all) return;
  watch.all = true;
  if (written == nullptr) watch.order = ordered_keys(dict);
  if (!watch.order.empty()) ordered_dicts_.push_back(static_cast<size_t>(&watch - dicts_.data()));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(written != nullptr ? written->before.get() : dict, &at, &key, &value) != 0) {
    know(value);
    watch.items.push_back({Ref::borrow(key), Ref::borrow(value)});
  }
}

void Watches::type(PyObject* type, PyObject* name) {
  auto* object = reinterpret_cast<PyTypeObject*>(type);
  if (class_dict(object) == nullptr) return;
  const auto [found, inserted] = type_index_.emplace(type, types_.size());
  if (inserted) types_.emplace_back(object);
  types_[found->second].read(name);
}

Watches::ListWatch& Watches::list_watch(PyObject* list) {
  const auto [found, inserted] = list_index_.emplace(list, lists_.size());
  if (inserted) {
    know(list);
    const Written* written = writes_to(list);
    lists_.push_back({Ref::borrow(list), PyList_GET_SIZE(written != nullptr ? written->before.get() : list), {}, {}});
  }
  return lists_[found->second];
}

void Watches::list_size(PyObject* list) {
  const Written* written = writes_to(list);
  if (written == nullptr || !written->all) list_watch(list);
}

void Watches::list_item(PyObject* list, Py_ssize_t index) {
  const Written* written = writes_to(list);
  if (written != nullptr && written->all) return;
  PyObject* before = written != nullptr ? written->before.get() : list;
  ListWatch& watch = list_watch(list);
  if (index < 0 || index >= PyList_GET_SIZE(before) || !watch.seen.insert(index).second) return;
  if (written != nullptr && written->keys) {
    const Ref key = Ref::steal(PyLong_FromSsize_t(index));
    if (is_written(list, key.get())) return;
  }
  PyObject* value = PyList_GET_ITEM(before, index);
  know(value);
  watch.items.push_back({index, {{}, Ref::borrow(value)}});
}

void Watches::list(PyObject* list) {
  list_size(list);
  if (const auto found = list_index_.find(list); found != list_index_.end()) {
    const Py_ssize_t size = lists_[found->second].size;
    for (Py_ssize_t i = 0; i < size; ++i) list_item(list, i);
  }
}

void Watches::set(PyObject* set, bool ordered) {
  const Written* written = writes_to(set);
  if (written != nullptr && written->all) return;
  if (!seen_.insert(set).second) {
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
  know(set);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy.get()); ++i) know(PyList_GET_ITEM(copy.get(), i));
  sets_.push_back({Ref::borrow(set), std::move(copy), ordered});
}

void Watches::deque(PyObject* deque) {
  const Written* written = writes_to(deque);
  if ((written != nullptr && written->all) || !seen_.insert(deque).second) return;
  Ref copy = written != nullptr ? written->before : Ref::steal(PySequence_List(deque));
  if (!copy) {
    forget_error();
    return;
  }
  know(deque);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy.get()); ++i) know(PyList_GET_ITEM(copy.get(), i));
  deques_.push_back({Ref::borrow(deque), std::move(copy)});
}

void Watches::cell(PyObject* cell) {
  if (writes_to(cell) != nullptr || !seen_.insert(cell).second) return;
  know(cell);
  know(PyCell_GET(cell));
  cells_.push_back({Ref::borrow(cell), {{}, Ref::borrow(PyCell_GET(cell))}});
}

void Watches::attribute(PyObject* owner, PyObject* name, PyObject* value) {
  if (!keys_seen_[owner].insert(name).second || is_written(owner, name)) return;
  know(value);
  const auto found = weakly_.find(owner);
  const bool weak = found != weakly_.end();
  attrs_.push_back({Ref::borrow(weak ? found->second : owner), {Ref::borrow(name), Ref::borrow(value)}, weak});
}

void Watches::tensor_attribute(int index, PyObject* tensor, PyObject* name) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  if (dict != nullptr && *dict != nullptr && is_written(*dict, name)) return;
  if (!keys_seen_[tensor].insert(name).second) return;
  PyObject* value = own_attribute(tensor, name);
  know(value);
  tensor_attrs_.push_back({index, {Ref::borrow(name), Ref::borrow(value)}});
}

void Watches::gradient(int index, PyObject* tensor, PyObject* value, TensorMeta meta) {
  if (index < 0) know(tensor);
  know(value);
  if (value != nullptr) gradient_values_.insert(value);
  gradients_.push_back(
      {index, index < 0 ? Ref::borrow(tensor) : Ref(), Ref::borrow(value), value == nullptr, std::move(meta)});
}

std::vector<PyObject*> Watches::take_gradients() {
  std::vector<PyObject*> result;
  for (GradientWatch& watch : gradients_) {
    if (!watch.none) result.push_back(watch.value.get());
    watch.value = Ref();  // the trace holds it
  }
  return result;
}

void Watches::number(NumberPlace place, PyObject* value, IntRange range) {
  know(place.holder);
  numbers_.push_back({Ref::borrow(place.holder),
                      Ref::borrow(place.key),
                      place.index,
                      place.item,
                      Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value))),
                      range,
                      {},
                      {}});
}

void Watches::number_tuple(NumberPlace place, PyObject* tuple, std::vector<bool> varying) {
  know(place.holder);
  numbers_.push_back({Ref::borrow(place.holder),
                      Ref::borrow(place.key),
                      place.index,
                      -1,
                      Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(tuple))),
                      {},
                      Ref::borrow(tuple),
                      std::move(varying)});
}

bool Watches::is_original(NumberPlace place) const {
  if (writes_to(place.holder) == nullptr) return true;
  const Ref index = Ref::steal(place.index >= 0 ? PyLong_FromSsize_t(place.index) : nullptr);
  PyObject* key = index ? index.get() : place.key;
  return key != nullptr && !is_written(place.holder, key);
}

void Watches::leave_writes(Watches& other) {
  const auto note = [](Read& read, PyObject* now) {
    PyObject* before = read.value.get();
    if (before == nullptr || now == nullptr) return;
    read.rewritten = (PyFloat_CheckExact(before) && PyFloat_CheckExact(now)) || other_number(before, now);
  };
  for (DictWatch& watch : dicts_) {
    for (Read& read : watch.reads) {
      if (!is_written(watch.dict.get(), read.key.get())) continue;
      note(read, PyDict_GetItemWithError(watch.dict.get(), read.key.get()));
      forget_error();
    }
  }
  for (CellWatch& watch : cells_) {
    if (writes_to(watch.cell.get()) != nullptr) note(watch.read, PyCell_GET(watch.cell.get()));
  }
  written_.swap(other.written_);
}

void Watches::instance(PyObject* object, bool attributes) {
  if (weakly_.contains(object)) return;
  const auto [found, inserted] = instance_index_.emplace(object, instances_.size());
  if (inserted)
    instances_.push_back({Ref::borrow(object), Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object))), {}});
  InstanceWatch& watch = instances_[found->second];
  if (watch.place != nullptr || !attributes) return;
  watch.place = _PyObject_GetDictPtr(object);
  if (watch.place != nullptr && *watch.place == nullptr) watch.place = nullptr;
  if (watch.place != nullptr) watch.dict = Ref::borrow(*watch.place);
}

bool Watches::FunctionWatch::holds() const {
  PyObject* const f = function.get();
  PyObject* const now = PyFunction_GET_DEFAULTS(f);
  if (PyFunction_GET_CODE(f) != code.get() || PyFunction_GET_KW_DEFAULTS(f) != keyword_defaults.get()) return false;
  if (items.empty()) return now == defaults.get();
  if (now == nullptr || PyTuple_GET_SIZE(now) != static_cast<Py_ssize_t>(items.size())) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(PyTuple_GET_ITEM(now, static_cast<Py_ssize_t>(i)))) return false;
  }
  return true;
}

void Watches::function(PyObject* function) {
  if (!seen_.insert(function).second) return;
  FunctionWatch& watch = functions_.emplace_back();
  watch.function = Ref::borrow(function);
  watch.code = Ref::borrow(PyFunction_GET_CODE(function));
  watch.keyword_defaults = Ref::borrow(PyFunction_GET_KW_DEFAULTS(function));
  PyObject* const defaults = PyFunction_GET_DEFAULTS(function);
  const Py_ssize_t count = defaults != nullptr ? PyTuple_GET_SIZE(defaults) : 0;
  bool ends = false;
  for (Py_ssize_t i = 0; i < count; ++i) ends = ends || is_held_weakly(PyTuple_GET_ITEM(defaults, i));
  if (!ends) watch.defaults = Ref::borrow(defaults);
  for (Py_ssize_t i = 0; ends && i < count; ++i) watch.items.emplace_back(PyTuple_GET_ITEM(defaults, i));
  PyObject* keywords = PyFunction_GET_KW_DEFAULTS(function);
  if (keywords != nullptr && PyDict_Check(keywords)) dict_all(keywords);
}

void Watches::call(PyObject* callable, PyObject* const* args, size_t count, PyObject* result) {
  const auto known = [&](const CallWatch& watch) {
    bool same =
        watch.callable.get() == callable && watch.args.size() == count && same_value(watch.result.get(), result);
    for (size_t i = 0; same && i < count; ++i) same = watch.args[i].get() == args[i];
    return same;
  };
  if (std::any_of(calls_.begin(), calls_.end(), known)) return;
  know(result);
  CallWatch watch{Ref::borrow(callable), {}, Ref::borrow(result)};
  for (size_t i = 0; i < count; ++i) watch.args.push_back(Ref::borrow(args[i]));
  calls_.push_back(std::move(watch));
}

void Watches::cached(PyObject* cache, PyObject* key, PyObject* held, PyObject* result) {
  const auto known = [&](const CachedWatch& watch) { return watch.cache.get() == cache && watch.held.get() == held; };
  if (std::any_of(cached_.begin(), cached_.end(), known)) return;
  know(result);
  cached_.push_back({Ref::borrow(cache), Ref::borrow(key), Ref::borrow(held), Ref::borrow(result)});
}

void Watches::weak(PyObject* reference, PyObject* object) {
  if (!seen_.insert(reference).second) return;
  const bool alive = weak_object(reference) != Py_None;
  weaks_.push_back({Ref::borrow(reference), alive});
  if (!alive) return;
  know(object);
  weakly_.emplace(object, reference);
}

std::vector<PyObject*> Watches::weakly_held() const {
  std::vector<PyObject*> result;
  for (const WeakWatch& watch : weaks_) {
    if (watch.alive) result.push_back(weak_object(watch.reference.get()));
  }
  for (const Ref& reference : ending_) result.push_back(weak_object(reference.get()));
  return result;
}

PyObject* Watches::holds_noticed() {
  std::unordered_set<PyObject*> attributes;  // end with their objects
  for (const InstanceWatch& watch : instances_) attributes.insert(watch.dict.get());
  const TorchApi& api = *TorchApi::get();
  // Modules and tensors end with the model, which entries hold anyway.
  const auto noticed = [&](PyObject* item) {
    return item != nullptr && !api.is_module(item) && !api.is_tensor(item) && end_is_noticed_below(item, 1, false);
  };
  const auto keeps = [&](PyObject* container) {
    if (container == nullptr || attributes.contains(container)) return false;
    if (stops_a_callback(container)) return true;
    if (PyDict_Check(container)) {
      if (PyDict_GetItemString(container, "__builtins__") != nullptr) return false;  // of a module
      PyObject *key = nullptr, *value = nullptr;
      Py_ssize_t at = 0;
      while (PyDict_Next(container, &at, &key, &value) != 0) {
        if (noticed(key) || noticed(value)) return true;
      }
      return false;
    }
    if (!PyList_Check(container) && !PyTuple_Check(container) && !PyAnySet_Check(container) && !is_deque(container)) {
      return false;
    }
    const Ref items = Ref::steal(PySequence_List(container));
    if (!items) forget_error();
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      if (noticed(PyList_GET_ITEM(items.get(), i))) return true;
    }
    return false;
  };
  PyObject* found = nullptr;
  const auto look = [&](PyObject* container) {
    if (found == nullptr && keeps(container)) found = container;
  };
  for_each_read([&](const Read& read, bool) {
    if (!read.weak) look(read.value.get());
  });
  for (const WeakWatch& watch : weaks_) look(watch.reference.get());
  for (const ListWatch& watch : lists_) look(watch.list.get());
  for (const SetWatch& watch : sets_) look(watch.set.get());
  for (const DequeWatch& watch : deques_) look(watch.deque.get());
  return found;
}

// ---- Writes ----------------------------------------------------------------------------------------------------------

void Watches::before_write(PyObject* object) {
  const auto [found, inserted] = written_.emplace(object, Written());
  Written& state = found->second;
  if (!inserted) return;
  state.object = Ref::borrow(object);
  if (PyDict_Check(object)) {
    state.before = Ref::steal(PyDict_New());
    if (PyDict_Update(state.before.get(), object) != 0) forget_error();
  } else if (PyCell_Check(object)) {
    state.before = Ref::borrow(PyCell_GET(object));
  } else if (PyList_Check(object) || PySet_Check(object) || is_deque(object)) {
    state.before = Ref::steal(PySequence_List(object));
  }
}

void Watches::written(PyObject* object, PyObject* key) {
  before_write(object);
  Written& state = written_[object];
  if (!state.keys) state.keys = Ref::steal(PySet_New(nullptr));
  if (!state.keys || PySet_Add(state.keys.get(), key) != 0) forget_error();
}

void Watches::before_slot(PyObject* object, PyObject* name) {
  before_write(object);
  Written& state = written_[object];
  if (!state.before) state.before = Ref::steal(PyDict_New());
  if (PyDict_Contains(state.before.get(), name) != 0) return;
  const Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
  if (!value) forget_error();
  const Ref kept = Ref::steal(value ? PyTuple_Pack(1, value.get()) : PyTuple_New(0));
  if (PyDict_SetItem(state.before.get(), name, kept.get()) != 0) forget_error();
}

bool Watches::undo_writes() {
  bool all = true;
  for (const auto& [object, state] : written_) {
    if (restore_contents(object, state.before.get())) continue;
    forget_error();
    all = false;
  }
  return all;
}

void Watches::written_all(PyObject* object) {
  before_write(object);
  written_[object].all = true;
}

bool Watches::is_written(PyObject* object, PyObject* key) const {
  const Written* state = writes_to(object);
  if (state == nullptr) return false;
  if (state->all) return true;
  if (!state->keys) return false;
  const int found = PySet_Contains(state->keys.get(), key);
  if (found < 0) forget_error();
  return found == 1;
}

template <typename Fn>
void Watches::for_each_read(Fn&& fn) {
  for (DictWatch& watch : dicts_) {
    for (Read& read : watch.reads) fn(read, is_written(watch.dict.get(), read.key.get()));
    for (Read& read : watch.items) fn(read, is_written(watch.dict.get(), read.key.get()));
  }
  for (ListWatch& watch : lists_) {
    for (auto& [index, read] : watch.items) {
      const Ref key = Ref::steal(PyLong_FromSsize_t(index));
      fn(read, is_written(watch.list.get(), key.get()));
    }
  }
  for (CellWatch& watch : cells_) fn(watch.read, writes_to(watch.cell.get()) != nullptr);
  for (AttrWatch& watch : attrs_) fn(watch.read, is_written(watch.object(), watch.read.key.get()));
}

bool Watches::Read::is_same(PyObject* now) const {
  return weak ? now != Py_None && now == found() : same_value(now, value.get());
}

void Watches::hold_weakly() {
  std::unordered_map<PyObject*, Ref> references;
  const auto make_weak = [&](Ref& held) {
    if (!held) return false;
    Ref& reference = references[held.get()];
    if (!reference) {
      reference = weak_where_noticed(held.get());
      if (!reference) return false;
      ending_.push_back(reference);
    }
    held = reference;
    return true;
  };
  for_each_read([&](Read& read, bool) { read.weak = read.weak || make_weak(read.value); });
  for (AttrWatch& watch : attrs_) watch.weak = watch.weak || make_weak(watch.owner);
  for (InstanceWatch& watch : instances_) watch.weak = watch.weak || make_weak(watch.object);
  for (CallWatch& watch : calls_) {
    watch.weak.resize(watch.args.size());
    for (size_t i = 0; i < watch.args.size(); ++i) watch.weak[i] = watch.weak[i] || make_weak(watch.args[i]);
  }
}

std::vector<PyObject*> Watches::take_sources(TorchApi& api, const std::function<bool(PyObject*)>& wanted) {
  hold_weakly();
  std::vector<PyObject*> result;
  if (written_.empty()) return result;
  std::unordered_set<PyObject*> pinned;
  for_each_read([&](Read& read, bool changed) {
    if (!changed) pinned.insert(read.value.get());
  });
  std::unordered_map<PyObject*, int> numbers;
  for_each_read([&](Read& read, bool changed) {
    PyObject* value = read.value.get();
    if (!changed || value == nullptr || pinned.contains(value) || !api.is_tensor(value)) return;
    if (const auto found = numbers.find(value); found != numbers.end()) {
      read.source = found->second;
      read.value = Ref();
      return;
    }
    Source source;
    if (!api.is_plain_tensor(value) || !wanted(value) || !api.read_meta(value, source.meta)) return;
    source.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    source.grad = attribute_is_true(value, "requires_grad");
    source.leaf = attribute_is_true(value, "is_leaf");
    std::erase_if(leaves_, [value](const Ref& leaf) { return leaf.get() == value; });
    read.source = numbers[value] = static_cast<int>(sources_.size());
    sources_.push_back(std::move(source));
    result.push_back(value);
    read.value = Ref();  // held by the caller
  });
  for (DictWatch& watch : dicts_) {
    for (const auto* reads : {&watch.reads, &watch.items}) {
      for (const Read& read : *reads) watch.sourced = watch.sourced || read.source >= 0;
    }
    if (watch.sourced) sourced_dicts_.push_back(static_cast<size_t>(&watch - dicts_.data()));
  }
  return result;
}

// ---- Checks ----------------------------------------------------------------------------------------------------------

struct Watches::Check {
  Watches& watches;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  std::string* why;
  size_t base = objects.size();

  bool fail(const char* what, PyObject* name, PyObject* before, PyObject* now) const {
    if (why != nullptr)
      *why = str_cat(what, " ", short_repr(name), ": ", short_repr(before), " became ", short_repr(now));
    return false;
  }

  /// Whether arguments and captured tensors are each another tensor.
  bool all_distinct() const {
    std::vector<PyObject*> tensors;
    for (const Ref& leaf : watches.leaves_) tensors.push_back(leaf.get());
    for (size_t i = 0; i < base + watches.sources_.size(); ++i) {
      if (objects[i] != nullptr && api.is_torch_tensor(objects[i])) tensors.push_back(objects[i]);
    }
    std::sort(tensors.begin(), tensors.end());
    return std::adjacent_find(tensors.begin(), tensors.end()) == tensors.end();
  }

  /// What passes of gradients in the graph rest on.
  bool gradients() {
    if (watches.passes_ && !all_distinct()) {
      if (why != nullptr) *why = "two tensors are one now, which gradients tell";
      return false;
    }
    for (const Ref& tensor : watches.leaves_) {
      if (!attribute_is_true(tensor.get(), "is_leaf")) return fail("history of a tensor", nullptr, nullptr, nullptr);
    }
    for (const GradientWatch& watch : watches.gradients_) {
      PyObject* owner = watch.object >= 0 ? objects[static_cast<size_t>(watch.object)] : watch.tensor.get();
      // Reading it of another kind of tensor that comes with the call would be a warning.
      if (watch.object >= 0 && !attribute_is_true(owner, "is_leaf") &&
          attr_or_null(owner, "retains_grad").get() != Py_True) {
        return fail("gradient of a tensor that is no leaf", nullptr, nullptr, owner);
      }
      const Ref held = attr_or_null(owner, "grad");  // its owner holds it too
      PyObject* now = held.get();
      const bool none = now == nullptr || now == Py_None;
      const bool good = watch.none ? none
                                   : !none && api.is_plain_tensor(now) && api.matches(now, watch.meta) &&
                                         !attribute_is_true(now, "requires_grad");
      if (!good) return fail("gradient of a tensor", nullptr, nullptr, now);
      if (!watch.none) objects.push_back(now);
    }
    return true;
  }

  bool same(const char* what, const Read& read, PyObject* now) {
    if (read.source < 0) return read.is_same(now) || fail(what, read.key.get(), read.found(), now);
    const Source& source = watches.sources_[static_cast<size_t>(read.source)];
    PyObject*& found = objects[base + static_cast<size_t>(read.source)];
    if (found != nullptr) return found == now || fail(what, read.key.get(), found, now);
    if (now == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(now)) != source.type.get() ||
        !api.matches(now, source.meta) || attribute_is_true(now, "requires_grad") != source.grad ||
        (source.grad && attribute_is_true(now, "is_leaf") != source.leaf)) {
      return fail(what, read.key.get(), source.type.get(), now);
    }
    found = now;
    return true;
  }

  bool dict(const DictWatch& watch) {
    for (const Read& read : watch.reads) {
      PyObject* now = PyDict_GetItemWithError(watch.dict.get(), read.key.get());
      if (now == nullptr) forget_error();
      if (!same("name", read, now)) return false;
    }
    if (watch.all) {
      if (PyDict_GET_SIZE(watch.dict.get()) != static_cast<Py_ssize_t>(watch.items.size())) {
        return fail("keys of a dict", nullptr, nullptr, nullptr);
      }
      PyObject *key = nullptr, *value = nullptr;
      Py_ssize_t at = 0;
      for (const Read& item : watch.items) {
        if (PyDict_Next(watch.dict.get(), &at, &key, &value) == 0 || !same_value(item.key.get(), key) ||
            !same("dict item", item, value)) {
          return false;
        }
      }
    }
    return true;
  }

  bool list(ListWatch& watch) {
    if (PyList_GET_SIZE(watch.list.get()) != watch.size) return fail("length of a list", nullptr, nullptr, nullptr);
    for (const auto& [index, read] : watch.items) {
      if (!same("list item", read, PyList_GET_ITEM(watch.list.get(), index))) return false;
    }
    return true;
  }

  /// The same items, for some readers in the same order, which a set does not promise and yet has.
  bool set(const SetWatch& watch) const {
    Py_ssize_t i = 0;
    bool same_items = PySet_GET_SIZE(watch.set.get()) == PyList_GET_SIZE(watch.before.get());
    if (same_items && watch.ordered) {
      // The iterator of sets themselves: a class's own __iter__ may run code of the program.
      const Ref items = Ref::steal(PySet_Type.tp_iter(watch.set.get()));
      Ref item = Ref::steal(items ? PyIter_Next(items.get()) : nullptr);
      for (; item && same_items; item = Ref::steal(PyIter_Next(items.get()))) {
        same_items = same_value(item.get(), PyList_GET_ITEM(watch.before.get(), i++));
      }
      if (PyErr_Occurred() != nullptr) forget_error();
      same_items = same_items && i == PyList_GET_SIZE(watch.before.get());
    }
    for (; same_items && !watch.ordered && i < PyList_GET_SIZE(watch.before.get()); ++i) {
      same_items = PySet_Contains(watch.set.get(), PyList_GET_ITEM(watch.before.get(), i)) == 1;
      if (!same_items) forget_error();
    }
    return same_items || fail("items of a set", nullptr, watch.before.get(), watch.set.get());
  }

  bool deque(const DequeWatch& watch) const {
    const Ref now = Ref::steal(PySequence_List(watch.deque.get()));
    if (!now) forget_error();
    bool same_items = now && PyList_GET_SIZE(now.get()) == PyList_GET_SIZE(watch.before.get());
    for (Py_ssize_t i = 0; same_items && i < PyList_GET_SIZE(now.get()); ++i) {
      same_items = same_value(PyList_GET_ITEM(now.get(), i), PyList_GET_ITEM(watch.before.get(), i));
    }
    return same_items || fail("items of a deque", nullptr, watch.before.get(), now.get());
  }
};

bool Watches::check(TorchApi& api, std::vector<PyObject*>& objects, std::string* why) {
  Check check{*this, api, objects, why};
  objects.resize(check.base + sources_.size());
  for (const WeakWatch& watch : weaks_) {
    PyObject* now = weak_object(watch.reference.get());
    if ((now != Py_None) != watch.alive) return check.fail("object of", watch.reference.get(), nullptr, now);
    if (watch.alive) objects.push_back(now);
  }
  for (const Ref& reference : ending_) {
    PyObject* now = weak_object(reference.get());
    if (now == Py_None) return check.fail("object of", reference.get(), nullptr, now);
    objects.push_back(now);
  }
  for (const size_t i : sourced_dicts_) {
    if (!check.dict(dicts_[i])) return false;
  }
  if (changes_ == nullptr || changes_->size() != dicts_.size()) {
    std::vector<DictChanges::Item> items;
    for (const DictWatch& watch : dicts_) items.push_back({watch.dict.get(), watch.version});
    changes_ = std::make_unique<DictChanges>(std::move(items));
  }
  // Those with sources have been looked at.
  if (!changes_->check([&](size_t i) { return dicts_[i].sourced || check.dict(dicts_[i]); })) return false;
  for (const size_t i : ordered_dicts_) {
    if (!is_ordered_by(dicts_[i].dict.get(), dicts_[i].order))
      return check.fail("order of a dict", nullptr, nullptr, nullptr);
  }
  for (ClassWatch& watch : types_) {
    if (!watch.check(why)) return false;
  }
  for (ListWatch& watch : lists_) {
    if (!check.list(watch)) return false;
  }
  for (const SetWatch& watch : sets_) {
    if (!check.set(watch)) return false;
  }
  for (const DequeWatch& watch : deques_) {
    if (!check.deque(watch)) return false;
  }
  for (const CellWatch& watch : cells_) {
    if (!check.same("closure variable", watch.read, PyCell_GET(watch.cell.get()))) return false;
  }
  for (const AttrWatch& watch : attrs_) {
    const Ref now = Ref::steal(PyObject_GetAttr(watch.object(), watch.read.key.get()));
    if (!now) forget_error();
    if (!check.same("attribute", watch.read, now.get())) return false;
  }
  for (const TensorAttrWatch& watch : tensor_attrs_) {
    PyObject* now = own_attribute(objects[static_cast<size_t>(watch.object)], watch.read.key.get());
    if (!check.same("attribute of a tensor", watch.read, now)) return false;
  }
  for (const InstanceWatch& watch : instances_) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(watch.found())) != watch.type.get()) {
      return check.fail("class of", watch.found(), watch.type.get(),
                        reinterpret_cast<PyObject*>(Py_TYPE(watch.found())));
    }
    if (watch.place != nullptr && *watch.place != watch.dict.get()) {
      return check.fail("__dict__ of", watch.found(), watch.dict.get(), *watch.place);
    }
  }
  for (const FunctionWatch& watch : functions_) {
    if (!watch.holds()) return check.fail("code or defaults of function", watch.function.get(), nullptr, nullptr);
  }
  if (!check.gradients()) return false;
  for (const CachedWatch& watch : cached_) {
    if (!watch.holds()) return check.fail("cached result", watch.key.get(), watch.result.get(), nullptr);
  }
  if (nothing_handled_ && Ref::steal(PyErr_GetHandledException())) {
    if (why != nullptr) *why = "a caller handles an exception now";
    return false;
  }
  std::vector<PyObject*> args;
  for (const CallWatch& watch : calls_) {
    args.clear();
    for (size_t i = 0; i < watch.args.size(); ++i) {
      const bool weak = i < watch.weak.size() && watch.weak[i];
      args.push_back(weak ? weak_object(watch.args[i].get()) : watch.args[i].get());
    }
    const Ref now = Ref::steal(PyObject_Vectorcall(watch.callable.get(), args.data(), args.size(), nullptr));
    if (!now) forget_error();
    if (!same_value(now.get(), watch.result.get())) {
      return check.fail("result of", watch.callable.get(), watch.result.get(), now.get());
    }
  }
  return true;
}

/// Keys whose hash or comparison would run the program's code are looked for by identity.
bool Watches::CachedWatch::holds() const {
  PyObject *each = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  const bool plain = PyUnicode_CheckExact(key.get()) || PyLong_CheckExact(key.get());
  if (plain) {
    value = PyDict_GetItemWithError(cache.get(), key.get());
    if (value == nullptr) forget_error();
  }
  while (!plain && PyDict_Next(cache.get(), &at, &each, &value) != 0 && each != key.get()) value = nullptr;
  return value == held.get() && is_cached(value, result.get());
}

PyObject* Watches::NumberWatch::now() const {
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

bool Watches::NumberWatch::same_rest(PyObject* now) const {
  if (now == nullptr || !PyTuple_CheckExact(now) || PyTuple_GET_SIZE(now) != PyTuple_GET_SIZE(tuple.get()))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i) {
    if (varying[static_cast<size_t>(i)]) continue;
    if (!same_value(PyTuple_GET_ITEM(now, i), PyTuple_GET_ITEM(tuple.get(), i))) return false;
  }
  return true;
}

bool Watches::check_numbers(std::vector<PyObject*>& objects, std::vector<int64_t>& symbols, std::string* why) const {
  for (const NumberWatch& watch : numbers_) {
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

namespace {

/// The numbers that differ between what was at a place and what is there.
void add_varying(NumberPlace place, PyObject* before, PyObject* now, std::set<NumberPlace>& varying) {
  if (before == nullptr || now == nullptr || before == now) return;
  if (other_number(before, now)) varying.insert(place);
  if (!PyTuple_CheckExact(before) || !PyTuple_CheckExact(now) || PyTuple_GET_SIZE(before) != PyTuple_GET_SIZE(now))
    return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i) {
    place.item = i;
    if (other_number(PyTuple_GET_ITEM(before, i), PyTuple_GET_ITEM(now, i))) varying.insert(place);
  }
}

}  // namespace

void Watches::compare(std::set<NumberPlace>& varying) const {
  for (const NumberWatch& watch : numbers_) {
    if (!watch.tuple) varying.insert(watch.place());
    if (watch.tuple) add_varying(watch.place(), watch.tuple.get(), watch.now(), varying);
  }
  for (const DictWatch& watch : dicts_) {
    for (const Read& read : watch.reads) {
      PyObject* now = PyDict_GetItemWithError(watch.dict.get(), read.key.get());
      if (now == nullptr) forget_error();
      const NumberPlace place{watch.dict.get(), read.key.get()};
      if (read.rewritten) varying.insert(place);
      add_varying(place, read.value.get(), now, varying);
    }
  }
  for (const ListWatch& watch : lists_) {
    for (const auto& [index, read] : watch.items) {
      PyObject* now = index < PyList_GET_SIZE(watch.list.get()) ? PyList_GET_ITEM(watch.list.get(), index) : nullptr;
      add_varying({watch.list.get(), nullptr, index}, read.value.get(), now, varying);
    }
  }
  for (const ClassWatch& watch : types_) watch.other_numbers(varying);
  for (const CellWatch& watch : cells_) {
    const NumberPlace place{watch.cell.get()};
    if (watch.read.rewritten) varying.insert(place);
    add_varying(place, watch.read.value.get(), PyCell_GET(watch.cell.get()), varying);
  }
}

size_t Watches::size() const {
  return dicts_.size() + types_.size() + lists_.size() + sets_.size() + deques_.size() + cells_.size() + attrs_.size() +
         tensor_attrs_.size() + gradients_.size() + leaves_.size() + static_cast<size_t>(passes_) + instances_.size() +
         functions_.size() + calls_.size() + static_cast<size_t>(nothing_handled_) + cached_.size() + weaks_.size() +
         numbers_.size();
}

int Watches::traverse(const Visitor& visit) const {
  int result = visit(dicts_, types_, lists_, sets_, deques_, cells_, attrs_, instances_, functions_, calls_, cached_,
                     numbers_, tensor_attrs_, gradients_, leaves_, sources_);
  for (auto it = written_.begin(); it != written_.end() && result == 0; ++it) result = visit(it->second);
  return result;
}

}  // namespace tatara::capture
