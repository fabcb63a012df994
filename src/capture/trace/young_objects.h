#pragma once

#include "capture/python/py.h"

namespace tatara::capture {

/// No cycles of objects are collected meanwhile.
class CollectionPause {
 public:
  CollectionPause() : was_enabled_(PyGC_Disable() != 0) {}
  ~CollectionPause() {
    if (was_enabled_) PyGC_Enable();
  }
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;

 private:
  bool was_enabled_;
};

/// Tells containers that were made since a point from older ones, whoever holds them. CPython puts new ones at the end of its list
/// of young containers, in which a mark stands. Where cycles are collected all the same, nothing is known any more.
class YoungObjects : private CollectionPause {
 public:
  YoungObjects();
  /// Whether `container` was made since. False: it was not, or that is not known.
  bool made_since(PyObject* container) const;

 private:
  Ref mark_;
  long collections_;
};

}  // namespace tatara::capture
