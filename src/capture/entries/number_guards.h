// Numbers that a trace read outside of its arguments and whose values may differ from call to call: symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "capture/entries/class_watch.h"
#include "capture/entries/object_reads.h"
#include "symbolic/expr.h"

namespace tatara::capture {

class NumberGuards {
 public:
  void add(NumberPlace place, PyObject* value, IntRange range, ReadNotes& notes);
  /// A tuple in which such numbers are (`varying`, one for each item); the others are guarded.
  void add_tuple(NumberPlace place, PyObject* tuple, std::vector<bool> varying, ReadNotes& notes);
  /// The numbers in the order of their reading: their objects go to `objects`, the values to `symbols`.
  bool check(std::vector<PyObject*>& objects, std::vector<int64_t>& symbols, std::string* why) const;
  /// Adds the places of all of them.
  void compare(std::set<NumberPlace>& varying) const;
  void describe(std::vector<std::string>& lines) const;  // guards_print.cpp
  size_t size() const { return watches_.size(); }
  int traverse(const Visitor& visit) const { return visit(watches_); }

 private:
  struct Watch {
    Ref holder, key;
    Py_ssize_t index = -1, item = -1;
    Ref type;
    IntRange range;
    Ref tuple;  // a tuple with items that vary, as it was; not a number
    std::vector<bool> varying;
    PyObject* now() const;
    bool same_rest(PyObject* now) const;
    NumberPlace place() const { return {holder.get(), key.get(), index, item}; }
    int traverse(const Visitor& visit) const { return visit(holder, key, type, tuple); }
  };

  std::vector<Watch> watches_;
};

}  // namespace tatara::capture
