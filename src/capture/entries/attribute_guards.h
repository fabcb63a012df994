// Guards on attributes of objects, on their classes, and on functions that a trace entered.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/entries/held_object.h"
#include "capture/entries/object_reads.h"
#include "capture/entries/read_place.h"

namespace tatara::capture {

class AttributeGuards {
 public:
  /// `owner` had `value`. `reference`: the weak reference that gave the owner, or null.
  void attribute(PyObject* owner, PyObject* reference, PyObject* name, PyObject* value, ReadNotes& notes);
  /// A Python attribute of a tensor that comes with each call, as object `index`.
  void tensor_attribute(int index, PyObject* tensor, PyObject* name, ReadNotes& notes);
  /// The class of an object, and with `attributes` the dict of these, are the ones that it has now.
  void instance(PyObject* object, bool attributes);
  /// Defaults and code of a function. False: it is known.
  bool function(PyObject* function, ReadNotes& notes);
  /// Calls fn(read, whether the trace wrote to it).
  template <typename Fn>
  void for_each_read(const TraceWrites& writes, Fn&& fn) {
    for (AttrWatch& watch : attrs_) fn(watch.read, writes.contains(watch.object(), watch.read.key.get()));
  }
  /// Notes numbers in slots that the trace has given other values.
  void note_rewritten(const TraceWrites& writes);
  /// Adds the slots that hold something else than they did.
  void compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const;
  void hold_weakly(WeakMaker& maker);
  /// Dicts that end with their objects.
  std::unordered_set<PyObject*> instance_dicts() const;
  bool check(ObjectCheck& check) const;
  void describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const;  // guards_print.cpp
  size_t size() const { return attrs_.size() + tensor_attrs_.size() + instances_.size() + functions_.size(); }
  int traverse(const Visitor& visit) const { return visit(attrs_, tensor_attrs_, instances_, functions_); }

 private:
  struct AttrWatch {
    Ref owner;  // or the weak reference that gave it
    ObjectRead read;
    bool weak = false;
    PyObject* object() const { return weak ? weak_object(owner.get()) : owner.get(); }
    int traverse(const Visitor& visit) const { return visit(owner, read); }
  };
  struct InstanceWatch {
    Ref object, type, dict;  // the object, or a weak reference to it
    int traverse(const Visitor& visit) const { return visit(object, type, dict); }
  };
  /// What a check reads of an InstanceWatch, close together: a module has hundreds of them.
  struct InstanceCheck {
    PyObject* object = nullptr;  // null: the watch holds it weakly
    PyTypeObject* type = nullptr;
    PyObject** place = nullptr;  // of the dict; null: there is none yet
    PyObject* dict = nullptr;
  };
  struct FunctionWatch {
    Ref function, code;
    Ref defaults;                   // null where one of them may end: the tuple would keep it
    std::vector<HeldObject> items;  // then
    Ref keyword_defaults;
    bool holds() const {
      PyObject* const f = function.get();
      PyObject* const now = PyFunction_GET_DEFAULTS(f);
      return PyFunction_GET_CODE(f) == code.get() && PyFunction_GET_KW_DEFAULTS(f) == keyword_defaults.get() &&
             (items.empty() ? now == defaults.get() : same_items(now));
    }
    bool same_items(PyObject* now) const;  // where items are held one by one
    int traverse(const Visitor& visit) const { return visit(function, code, defaults, items, keyword_defaults); }
  };
  struct TensorAttrWatch {
    int object = 0;
    ObjectRead read;
    int traverse(const Visitor& visit) const { return visit(read); }
  };

  PyObject* weak_instance(const InstanceCheck& instance) const;

  std::vector<AttrWatch> attrs_;
  std::vector<TensorAttrWatch> tensor_attrs_;
  std::vector<InstanceWatch> instances_;
  std::vector<InstanceCheck> instance_checks_;  // one for each of them
  std::unordered_map<PyObject*, size_t> instance_index_;
  std::vector<FunctionWatch> functions_;
};

}  // namespace tatara::capture
