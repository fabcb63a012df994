#include "capture/entries/dict_guards.h"

#include "capture/entries/guards.h"
#include "capture/entries/value_guard.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

DictGuards::Watch& DictGuards::watch_of(PyObject* dict, ReadNotes& notes) {
  const auto [found, inserted] = index_.emplace(dict, watches_.size());
  if (inserted) {
    notes.know(dict);
    watches_.emplace_back();
    watches_.back().dict = Ref::borrow(dict);
    // What is compared is the state before the trace's own writes, which the present version no longer stands for.
    watches_.back().version = notes.writes().of(dict) != nullptr ? 0 : dict_version(dict);
  }
  return watches_[found->second];
}

void DictGuards::read_key(PyObject* dict, PyObject* key, ReadNotes& notes) {
  if (!notes.first(dict, key) || notes.writes().contains(dict, key)) return;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr) forget_error();
  notes.know(value);
  watch_of(dict, notes).reads.push_back({Ref::borrow(key), Ref::borrow(value)});
}

/// The keys of a dict that was made from an OrderedDict, as ordered_keys() of that.
static std::vector<Ref> keys_of(PyObject* dict) {
  std::vector<Ref> keys;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_GET_SIZE(dict) > 1 && PyDict_Next(dict, &at, &key, &value) != 0) keys.push_back(Ref::borrow(key));
  return keys;
}

void DictGuards::read_all(PyObject* dict, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(dict);
  if (written != nullptr && written->all) return;
  Watch& watch = watch_of(dict, notes);
  if (watch.all) return;
  watch.all = true;
  if (is_ordered_dict(dict)) watch.order = written == nullptr ? ordered_keys(dict) : keys_of(written->before.get());
  if (!watch.order.empty()) ordered_.push_back(static_cast<size_t>(&watch - watches_.data()));
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(written != nullptr ? written->before.get() : dict, &at, &key, &value) != 0) {
    notes.know(value);
    if (!is_ordered_dict(dict)) notes.know(key);  // a tuple, say: each check compares it by identity
    watch.items.push_back({Ref::borrow(key), Ref::borrow(value)});
  }
}

void DictGuards::read_size(PyObject* dict, ReadNotes& notes) {
  const TraceWrites::Written* written = notes.writes().of(dict);
  if (written != nullptr && written->all) return;
  PyObject* const before = written != nullptr ? written->before.get() : dict;
  watch_of(dict, notes).size = PyDict_GET_SIZE(before);
}

void note_rewritten(ObjectRead& read, PyObject* now) {
  PyObject* before = read.value.get();
  if (before == nullptr || now == nullptr) return;
  read.rewritten = (PyFloat_CheckExact(before) && PyFloat_CheckExact(now)) || other_number(before, now);
}

void DictGuards::note_rewritten(const TraceWrites& writes) {
  for (Watch& watch : watches_) {
    for (ObjectRead& read : watch.reads) {
      if (!writes.contains(watch.dict.get(), read.key.get())) continue;
      capture::note_rewritten(read, PyDict_GetItemWithError(watch.dict.get(), read.key.get()));
      forget_error();
    }
  }
}

void DictGuards::note_sourced() {
  for (Watch& watch : watches_) {
    for (const auto* reads : {&watch.reads, &watch.items}) {
      for (const ObjectRead& read : *reads) watch.sourced = watch.sourced || read.source >= 0;
    }
    if (watch.sourced) sourced_.push_back(static_cast<size_t>(&watch - watches_.data()));
  }
}

bool DictGuards::holds(const Watch& watch, ObjectCheck& check) {
  for (const ObjectRead& read : watch.reads) {
    PyObject* now = PyDict_GetItemWithError(watch.dict.get(), read.key.get());
    if (now == nullptr) forget_error();
    if (!check.same("name", read, now)) return false;
  }
  if (watch.size >= 0 && PyDict_GET_SIZE(watch.dict.get()) != watch.size)
    return check.fail("length of a dict", nullptr, nullptr, nullptr);
  if (watch.all) {
    if (PyDict_GET_SIZE(watch.dict.get()) != static_cast<Py_ssize_t>(watch.items.size())) {
      return check.fail("keys of a dict", nullptr, nullptr, nullptr);
    }
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    const bool ordered = is_ordered_dict(watch.dict.get());  // in an order that its dict does not know
    for (const ObjectRead& item : watch.items) {
      if (ordered) {
        value = PyDict_GetItemWithError(watch.dict.get(), item.key.get());
        if (value == nullptr) forget_error();
        if (!check.same("dict item", item, value)) return false;
        continue;
      }
      if (PyDict_Next(watch.dict.get(), &at, &key, &value) == 0 || !same_value(item.key.get(), key) ||
          !check.same("dict item", item, value)) {
        return false;
      }
    }
  }
  return true;
}

bool DictGuards::check(ObjectCheck& check) {
  for (const size_t i : sourced_) {
    if (!holds(watches_[i], check)) return false;
  }
  if (changes_ == nullptr || changes_->size() != watches_.size()) {
    std::vector<DictChanges::Item> items;
    for (const Watch& watch : watches_) items.push_back({watch.dict.get(), watch.version});
    changes_ = std::make_unique<DictChanges>(std::move(items));
  }
  // Those with sources have been looked at.
  if (!changes_->check([&](size_t i) { return watches_[i].sourced || holds(watches_[i], check); })) return false;
  for (const size_t i : ordered_) {
    if (!is_ordered_by(watches_[i].dict.get(), watches_[i].order))
      return check.fail("order of a dict", nullptr, nullptr, nullptr);
  }
  return true;
}

namespace {

/// What is guarded by its structure where it comes with a call.
bool has_structure(PyObject* o, TorchApi& api) {
  if (api.is_tensor(o)) return api.is_torch_tensor(o) && api.is_plain_tensor(o);
  return PyTuple_Check(o) || PyList_CheckExact(o) || PyDict_CheckExact(o) ||
         ((is_plain_instance(o) || is_slotted_instance(o)) && Py_TYPE(o)->tp_descr_get == nullptr);
}

}  // namespace

void add_varying(ReadPlace place, PyObject* before, PyObject* now, TorchApi& api, VaryingPlaces& varying) {
  if (before == nullptr || now == nullptr || before == now) return;
  if (other_number(before, now)) varying[place];
  if (PyTuple_CheckExact(before) && PyTuple_CheckExact(now) && PyTuple_GET_SIZE(before) == PyTuple_GET_SIZE(now)) {
    bool numbers = false, plain = true;
    ReadPlace inside = place;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i) {
      inside.item = i;
      plain = plain && is_atom(PyTuple_GET_ITEM(before, i), api);
      if (!other_number(PyTuple_GET_ITEM(before, i), PyTuple_GET_ITEM(now, i))) continue;
      varying[inside];
      numbers = true;
    }
    if (numbers && plain) return;
  }
  if (Py_TYPE(before) != Py_TYPE(now) || !has_structure(before, api) || !has_structure(now, api)) return;
  DynamicDims fixed;
  fixed.mode = DynamicMode::kNever;
  TraceSymbols symbols;
  std::vector<PyObject*> objects;
  ValueGuard guard;
  guard.build_behind(before, api, fixed, symbols, objects);
  if (guard.unsupported_tensor.empty()) guard.compare(&now, 1, api, varying[place]);
}

void add_varying(ReadPlace place, const ObjectRead& read, PyObject* now, TorchApi& api,
                 const std::vector<SourceTensor>& sources, VaryingPlaces& varying) {
  if (read.rewritten) varying[place];
  if (read.source < 0) return add_varying(place, read.found(), now, api, varying);
  // Another one in each call, whose sizes may be new.
  const TensorMeta& before = sources[static_cast<size_t>(read.source)].meta;
  TensorMeta meta;
  if (now == nullptr || !has_structure(now, api) || !api.is_tensor(now) || !api.read_meta(now, meta)) return;
  const std::optional<DimBits> bits = before == meta ? std::nullopt : TensorDims().differing(before, meta);
  if (bits) varying[place].tensors[0] |= *bits;
}

void DictGuards::compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const {
  for (const Watch& watch : watches_) {
    for (const ObjectRead& read : watch.reads) {
      PyObject* now = PyDict_GetItemWithError(watch.dict.get(), read.key.get());
      if (now == nullptr) forget_error();
      add_varying({watch.dict.get(), read.key.get()}, read, now, api, sources, varying);
    }
  }
}

void DictGuards::add_ended(VaryingPlaces& varying) const {
  for (const Watch& watch : watches_) {
    for (const ObjectRead& read : watch.reads) {
      if (read.ended()) varying[{watch.dict.get(), read.key.get()}];
    }
  }
}

}  // namespace tatara::capture
