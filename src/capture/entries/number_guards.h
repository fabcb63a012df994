// What a trace read outside of its arguments and is something else in each call: numbers, which are symbols, and tensors or
// containers of them, guarded by their structure as arguments are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/entries/class_watch.h"
#include "capture/entries/object_reads.h"
#include "capture/entries/value_guard.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// What a slot (`__slots__`) of an object holds: borrowed, null where it is empty.
PyObject* slot_value(PyObject* owner, PyObject* name);

class NumberGuards {
 public:
  /// `symbol`: its number; a float has the next one too.
  void add(ReadPlace place, PyObject* value, size_t symbol, IntRange range, ReadNotes& notes);
  /// A tuple in which such numbers are (`varying`, one for each item); the others are guarded.
  void add_tuple(ReadPlace place, PyObject* tuple, std::vector<bool> varying, ReadNotes& notes);
  /// What is neither of these: `guard` was built behind the objects found so far.
  void add_value(ReadPlace place, ValueGuard guard, ReadNotes& notes);
  /// In the order of reading: what is found goes to `objects`, the values of symbols to `symbols`. Those of others stay unbound.
  bool check(TorchApi& api, std::vector<PyObject*>& objects, std::vector<int64_t>& symbols, std::string* why) const;
  /// See ValueGuard::layout().
  const SymbolicLayout* layout(int object) const;
  /// Adds the places of all of them.
  void compare(TorchApi& api, VaryingPlaces& varying) const;
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
    size_t symbol = 0;
    std::shared_ptr<const ValueGuard> value;  // of add_value()
    PyObject* now() const;
    bool same_rest(PyObject* now) const;
    bool bind(PyObject* now, std::vector<int64_t>& symbols) const;
    ReadPlace place() const { return {holder.get(), key.get(), index, item}; }
    int traverse(const Visitor& visit) const {
      const int result = visit(holder, key, type, tuple);
      return result != 0 || value == nullptr ? result : value->traverse(visit);
    }
  };
  Watch& add_watch(ReadPlace place, ReadNotes& notes);

  std::vector<Watch> watches_;
};

}  // namespace tatara::capture
