#include "capture/entry_cache.h"

#include <algorithm>

namespace tatara::capture {

Entry* EntryCache::find(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api,
                        std::vector<PyObject*>& objects, std::string* failed) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    // Held: a check may run Python code, and with it another thread that changes the list.
    const std::shared_ptr<Entry> entry = entries_[i];
    if (entry->code != code || entry->offset != offset) continue;
    // The reason is wanted from the most recently used one only.
    std::string* why = failed != nullptr && failed->empty() ? failed : nullptr;
    if (!entry->guard.check(roots, count, api, objects, why) || !entry->watches.check(why) ||
        !entry->state.check(api, why)) {
      continue;
    }
    ++entry->hits;
    const auto at = std::find(entries_.begin(), entries_.end(), entry);
    if (at == entries_.end()) return nullptr;  // reset meanwhile
    std::rotate(entries_.begin(), at, at + 1);
    return entry.get();
  }
  return nullptr;
}

Entry* EntryCache::add(std::unique_ptr<Entry> entry) {
  entries_.insert(entries_.begin(), std::shared_ptr<Entry>(std::move(entry)));
  return entries_.front().get();
}

size_t EntryCache::count(PyObject* code, int offset) const {
  size_t n = 0;
  for (const auto& entry : entries_) n += entry->code == code && entry->offset == offset ? 1 : 0;
  return n;
}

std::shared_ptr<Entry> EntryCache::share(const Entry* entry) const {
  for (const auto& each : entries_) {
    if (each.get() == entry) return each;
  }
  return nullptr;
}

}  // namespace tatara::capture
