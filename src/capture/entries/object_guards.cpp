#include "capture/entries/object_guards.h"

#include <unordered_map>

#include "capture/entries/lifetimes.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

void ObjectGuards::instance(PyObject* object, bool attributes) {
  if (weak_.reference_to(object) == nullptr) attributes_.instance(object, attributes);
}

void ObjectGuards::function(PyObject* function) {
  if (!attributes_.function(function, notes_)) return;
  PyObject* keywords = PyFunction_GET_KW_DEFAULTS(function);
  if (keywords != nullptr && PyDict_Check(keywords)) dict_all(keywords);
}

Ref ObjectGuards::items_before(PyObject* deque) const {
  const TraceWrites::Written* written = notes_.writes().of(deque);
  Ref items = written != nullptr ? written->before : Ref::steal(PySequence_List(deque));
  if (!items) forget_error();
  return items;
}

bool ObjectGuards::is_original(ReadPlace place) const {
  if (notes_.writes().of(place.holder) == nullptr) return true;
  const Ref index = Ref::steal(place.index >= 0 ? PyLong_FromSsize_t(place.index) : nullptr);
  PyObject* key = index ? index.get() : place.key;
  return key != nullptr && !is_written(place.holder, key);
}

void ObjectGuards::leave_writes(ObjectGuards& other) {
  dicts_.note_rewritten(notes_.writes());
  containers_.note_rewritten(notes_.writes());
  attributes_.note_rewritten(notes_.writes());
  std::swap(notes_.writes(), other.notes_.writes());
}

template <typename Fn>
void ObjectGuards::for_each_read(Fn&& fn) {
  dicts_.for_each_read(notes_.writes(), fn);
  containers_.for_each_read(notes_.writes(), fn);
  attributes_.for_each_read(notes_.writes(), fn);
}

PyObject* ObjectGuards::holds_noticed() {
  const std::unordered_set<PyObject*> attributes = attributes_.instance_dicts();  // end with their objects
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
  for_each_read([&](const ObjectRead& read, bool) {
    if (!read.weak) look(read.value.get());
  });
  weak_.for_each_asked(look);
  containers_.for_each_container(look);
  return found;
}

void ObjectGuards::hold_weakly() {
  WeakMaker maker(weak_.ending());
  for_each_read([&](ObjectRead& read, bool) { read.weak = read.weak || maker.make_weak(read.value); });
  attributes_.hold_weakly(maker);
  calls_.hold_weakly(maker);
}

std::vector<PyObject*> ObjectGuards::take_sources(TorchApi& api, const std::function<bool(PyObject*)>& wanted) {
  hold_weakly();
  std::vector<PyObject*> result;
  if (notes_.writes().empty()) return result;
  std::unordered_set<PyObject*> pinned;
  for_each_read([&](ObjectRead& read, bool changed) {
    if (!changed) pinned.insert(read.value.get());
  });
  std::unordered_map<PyObject*, int> numbers;
  for_each_read([&](ObjectRead& read, bool changed) {
    PyObject* value = read.value.get();
    if (!changed || value == nullptr || pinned.contains(value) || !api.is_tensor(value)) return;
    if (const auto found = numbers.find(value); found != numbers.end()) {
      read.source = found->second;
      read.value = Ref();
      return;
    }
    SourceTensor source;
    if (!api.is_plain_tensor(value) || !wanted(value) || !api.read_meta(value, source.meta)) return;
    source.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    source.grad = api.requires_grad(value);
    source.leaf = api.is_leaf(value);
    gradients_.drop(value);
    read.source = numbers[value] = static_cast<int>(sources_.size());
    sources_.push_back(std::move(source));
    result.push_back(value);
    read.value = Ref();  // held by the caller
  });
  dicts_.note_sourced();
  return result;
}

namespace {

/// Most entries have guards of a few kinds: the code of the others is not even fetched.
template <typename Guards>
bool hold(Guards& guards, ObjectCheck& check) {
  return guards.size() == 0 || guards.check(check);
}

}  // namespace

bool ObjectGuards::check(TorchApi& api, std::vector<PyObject*>& objects, std::string* why) {
  ObjectCheck check{sources_, api, objects, why, objects.size()};
  objects.resize(check.base + sources_.size());
  return (weak_.empty() || weak_.check(check)) && hold(dicts_, check) &&
         (classes_.size() == 0 || classes_.check(why)) && hold(containers_, check) && hold(attributes_, check) &&
         hold(gradients_, check) && hold(calls_, check);
}

void ObjectGuards::compare(TorchApi& api, VaryingPlaces& varying) const {
  numbers_.compare(api, varying);
  dicts_.compare(api, sources_, varying);
  containers_.compare(api, sources_, varying);
  attributes_.compare(api, sources_, varying);
  classes_.other_numbers(varying);
}

void ObjectGuards::add_ended(VaryingPlaces& varying) const {
  if (weak_.ending().empty()) return;
  dicts_.add_ended(varying);
  containers_.add_ended(varying);
}

size_t ObjectGuards::size() const {
  return dicts_.size() + classes_.size() + containers_.size() + attributes_.size() + gradients_.size() + calls_.size() +
         weak_.size() + numbers_.size();
}

int ObjectGuards::traverse(const Visitor& visit) const {
  return visit(dicts_, classes_, containers_, attributes_, gradients_, calls_, numbers_, sources_, notes_.writes());
}

}  // namespace tatara::capture
