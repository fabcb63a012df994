// Guards on weak references: those that a trace asked, and those by which its entry holds what may end.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/entries/object_reads.h"

namespace tatara::capture {

class WeakGuards {
 public:
  /// A weak reference was asked for its object, and gave `object` (None: dead), which stays alive as long as the trace.
  void add(PyObject* reference, PyObject* object, ReadNotes& notes);
  /// The reference that gave the object; null: none.
  PyObject* reference_to(PyObject* object) const;
  /// The objects of both kinds of references, in the order in which check() adds them.
  std::vector<PyObject*> objects() const;
  /// References by which guards hold what may end: for WeakMaker to add to.
  std::vector<Ref>& ending() { return ending_; }
  const std::vector<Ref>& ending() const { return ending_; }
  /// Calls fn(reference) for those that were asked.
  void for_each_asked(const std::function<void(PyObject*)>& fn) const;
  bool check(ObjectCheck& check) const;
  void describe(std::vector<std::string>& lines) const;  // guards_print.cpp
  size_t size() const { return watches_.size(); }
  bool empty() const { return watches_.empty() && ending_.empty(); }

 private:
  /// A weak reference has one object for life: dead or alive is all that may change.
  struct Watch {
    Ref reference;
    bool alive = false;
  };

  std::vector<Watch> watches_;
  std::vector<Ref> ending_;                              // weak references
  std::unordered_map<PyObject*, PyObject*> references_;  // objects, and the weak references that gave them
};

}  // namespace tatara::capture
