// Tells cheaply which of many dicts may have changed since they were last looked at.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// A set of dicts that an entry's guards depend on. A check costs nothing per dict where none changed: on Python
/// 3.12 dict watchers (PyDict_Watch) report the changed ones; on 3.11 one compare says that no dict of the process changed, and
/// else, or where there are few, each version tag (PEP 509) is compared, in one packed array. Python 3.13 has neither, and all are looked at. Guarded by the GIL.
class DictChanges {
 public:
  struct Item {
    PyObject* dict;    // borrowed: the owner holds it
    uint64_t version;  // dict_version() when it was looked at; 0: never
  };
  explicit DictChanges(std::vector<Item> items);
  DictChanges(const DictChanges&) = delete;
  DictChanges& operator=(const DictChanges&) = delete;
  ~DictChanges();

  size_t size() const { return items_.size(); }
  /// Calls `same(i)` for each dict that may have changed; those it accepts count as looked at. False at the first that it
  /// refuses.
  template <typename Same>
  bool check(Same&& same);

 private:
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
  friend struct DictWatchers;
#endif
  static constexpr size_t kFew = 8;  // whose tags are compared sooner than the process is asked
  bool quiet();
  void seen();
  static bool as_seen(const Item& item);
  std::vector<Item> items_;
  uint64_t quiet_at_ = 0;  // process-wide changes after which all were as guarded; 0: never
  uint64_t asked_at_ = 0;
  std::vector<size_t> dirty_;  // with watchers: indices, each once
  std::vector<bool> is_dirty_;
  bool watched_ = false;
};

/// The version tag of a dict (PEP 509); 0 where Python keeps none. Here, for a check compares hundreds.
inline uint64_t dict_version([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  return 0;
#endif
}

inline bool DictChanges::as_seen([[maybe_unused]] const Item& item) {
#if PY_VERSION_HEX < 0x030D0000
  return dict_version(item.dict) == item.version;  // a tag is never 0
#else
  return false;
#endif
}

template <typename Same>
bool DictChanges::check(Same&& same) {
  if (watched_) {
    while (!dirty_.empty()) {
      const size_t i = dirty_.back();
      if (!same(i)) return false;
      // Looking may not have run the program's code, which could have changed it again: atoms alone are compared.
      dirty_.pop_back();
      is_dirty_[i] = false;
    }
    return true;
  }
  const bool many = items_.size() > kFew;
  if (many && quiet()) return true;
  // The tags that fit, in a row: there may be thousands, and the compares of several overlap.
  Item* const end = items_.data() + items_.size();
  for (Item* item = items_.data(); (item = std::find_if_not(item, end, as_seen)) != end; ++item) {
    const uint64_t version = dict_version(item->dict);
    if (!same(static_cast<size_t>(item - items_.data()))) return false;
    item->version = version;
  }
  if (many) seen();
  return true;
}

}  // namespace tatara::capture
