#include "capture/python/dict_changes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tatara::capture {

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000

/// Who wants to know of which dict. One watcher of the eight that an interpreter has.
struct DictWatchers {
  std::unordered_map<PyObject*, std::vector<std::pair<DictChanges*, size_t>>> listeners;
  int id = -1;

  static DictWatchers& get() {
    static auto* watchers = new DictWatchers;  // the interpreter may report changes until its end
    return *watchers;
  }

  static int changed(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
    DictWatchers& watchers = get();
    const auto found = watchers.listeners.find(dict);
    if (found == watchers.listeners.end()) return 0;
    for (const auto& [changes, index] : found->second) {
      if (changes->is_dirty_[index]) continue;
      changes->is_dirty_[index] = true;
      changes->dirty_.push_back(index);
    }
    return 0;
  }

  bool add(DictChanges* changes, PyObject* dict, size_t index) {
    if (id < 0) id = PyDict_AddWatcher(changed);
    if (id < 0 || PyDict_Watch(id, dict) != 0) {
      forget_error();  // all eight are taken
      return false;
    }
    listeners[dict].emplace_back(changes, index);
    return true;
  }

  void remove(DictChanges* changes, PyObject* dict) {
    const auto found = listeners.find(dict);
    if (found == listeners.end()) return;
    std::erase_if(found->second, [changes](const auto& listener) { return listener.first == changes; });
    if (!found->second.empty()) return;
    listeners.erase(found);
    if (PyDict_Unwatch(id, dict) != 0) forget_error();
  }
};

DictChanges::DictChanges(std::vector<Item> items) : items_(std::move(items)), is_dirty_(items_.size(), true) {
  for (size_t i = items_.size(); i-- > 0;) dirty_.push_back(i);
  watched_ = true;
  for (size_t i = 0; i < items_.size() && watched_; ++i) watched_ = DictWatchers::get().add(this, items_[i].dict, i);
}

DictChanges::~DictChanges() {
  for (const Item& item : items_) DictWatchers::get().remove(this, item.dict);
}

bool DictChanges::quiet() { return false; }

void DictChanges::seen() {}

#else

#if PY_VERSION_HEX < 0x030C0000
namespace {

/// How often dicts of the process were changed or made, except for our own probe: version tags come from one counter.
uint64_t changes_of_dicts() {
  static PyObject* const probe = PyDict_New();
  static PyObject* const key = PyUnicode_InternFromString("probe");
  static uint64_t own = 0;
  if (PyDict_SetItem(probe, key, own % 2 == 0 ? Py_True : Py_False) != 0) forget_error();
  ++own;
  return dict_version(probe) - own;
}

}  // namespace
#endif

DictChanges::DictChanges(std::vector<Item> items) : items_(std::move(items)) {}

DictChanges::~DictChanges() = default;

bool DictChanges::quiet() {
#if PY_VERSION_HEX < 0x030C0000
  asked_at_ = changes_of_dicts();
  return asked_at_ == quiet_at_;
#else
  return false;  // 3.13 reports no stores to the values that an instance and its dict share: each dict is looked at
#endif
}

void DictChanges::seen() { quiet_at_ = asked_at_; }

#endif

}  // namespace tatara::capture
