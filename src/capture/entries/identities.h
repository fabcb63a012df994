// Which objects of a call are the same ones.
#pragma once

#include <string>
#include <vector>

#include "capture/entries/held_object.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// What a trace has taken for granted of the identities of objects that come with each call.
struct Identities {
  struct Pair {
    int object = 0, other = -1;  // places among the objects; -1: `value`
    HeldObject value;
    int traverse(const Visitor& visit) const { return visit(value); }
  };
  std::vector<Pair> same;   // this very object: it was found elsewhere, too, or its identity was asked for
  std::vector<Pair> apart;  // two objects, of which one was changed or which were compared
  bool hold(const std::vector<PyObject*>& objects, std::string* why) const;
  std::vector<std::string> describe() const;  // guards_print.cpp
  int traverse(const Visitor& visit) const { return visit(same, apart); }
};

}  // namespace tatara::capture
