#include "capture/entries/identities.h"

#include "capture/host/object_kinds.h"
#include "support/str_cat.h"

namespace tatara::capture {

bool Identities::hold(const std::vector<PyObject*>& objects, std::string* why) const {
  const auto other = [&](const Pair& pair) {
    return pair.other >= 0 ? objects[static_cast<size_t>(pair.other)] : pair.value.get();
  };
  for (const Pair& pair : same) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now == other(pair)) continue;
    if (why != nullptr)
      *why = str_cat("another object (", type_name(now), ") in the place of one that is elsewhere, too");
    return false;
  }
  for (const Pair& pair : apart) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now != other(pair)) continue;
    if (why != nullptr) *why = str_cat("two objects (", type_name(now), ") have become one");
    return false;
  }
  return true;
}

}  // namespace tatara::capture
