// Objects outside of a trace's arguments that the trace read or wrote, and what they were when it began.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/entries/class_watch.h"
#include "capture/entries/held_object.h"
#include "capture/host/torch_api.h"
#include "capture/python/dict_changes.h"
#include "capture/python/py.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// Outside objects that the trace read, each with what it saw. What the trace wrote itself is no part of it: a read after
/// a write tells nothing of the state before, which is what a later call is compared with.
class Watches {
 public:
  // Reads.
  void dict_key(PyObject* dict, PyObject* key);
  void dict_all(PyObject* dict);
  /// The trace read `name` of a class; null: what it did depends on the class in other ways.
  void type(PyObject* type, PyObject* name);
  void list(PyObject* list);
  void list_size(PyObject* list);
  /// `index` counts from the start. The length is watched too.
  void list_item(PyObject* list, Py_ssize_t index);
  /// With `ordered`, the order of its items matters, too.
  void set(PyObject* set, bool ordered);
  void deque(PyObject* deque);
  void cell(PyObject* cell);
  void attribute(PyObject* owner, PyObject* name, PyObject* value);
  /// The class of an object, and with `attributes` the dict of these, are the ones that it has now.
  void instance(PyObject* object, bool attributes);
  /// Defaults and code of a function that the trace entered.
  void function(PyObject* function);
  /// A call of C code that changes nothing and whose result depends on more than its arguments: made again by check().
  void call(PyObject* callable, PyObject* const* args, size_t count, PyObject* result);
  /// No exception is being handled where the code is called.
  void nothing_handled() { nothing_handled_ = true; }
  /// A function with a cache gave `result`, which `cache` has under `key`, in `held`: itself, or a link that others may use later.
  void cached(PyObject* cache, PyObject* key, PyObject* held, PyObject* result);
  /// A weak reference was asked for its object, and gave `object` (None: dead), which stays alive as long as the trace.
  void weak(PyObject* reference, PyObject* object);
  /// A Python attribute of a tensor that comes with each call, as object `index`.
  void tensor_attribute(int index, PyObject* tensor, PyObject* name);
  /// `.grad` of a tensor (a guarded object, or -1) held `value`, null: None. Later calls find other gradients of its layout:
  /// check() adds them to its objects, after those of weakly_held(), in the order of take_gradients().
  void gradient(int index, PyObject* tensor, PyObject* value, TensorMeta meta);
  std::vector<PyObject*> take_gradients();
  /// Gradients go by which tensor is which: those that were several must be several.
  void passes() { passes_ = true; }
  /// A tensor that is no argument must stay without a history.
  void leaf(PyObject* tensor) {
    know(tensor);
    const auto same = [tensor](const Ref& leaf) { return leaf.get() == tensor; };
    if (std::none_of(leaves_.begin(), leaves_.end(), same)) leaves_.push_back(Ref::borrow(tensor));
  }
  /// A number whose value may differ: check_numbers() tells it.
  void number(NumberPlace place, PyObject* value, IntRange range);
  /// A tuple in which such numbers are (`varying`, one for each item); the others are guarded.
  void number_tuple(NumberPlace place, PyObject* tuple, std::vector<bool> varying);
  /// What is at this place is what was there when the trace began.
  bool is_original(NumberPlace place) const;

  // Writes.
  /// Before the first change of a dict, list, set, deque or cell, and each later one: remembers what it was.
  void before_write(PyObject* object);
  /// Before a write to a slot of an object (`__slots__`).
  void before_slot(PyObject* object, PyObject* name);
  /// The trace gave `key` (of a dict or list, or the name of a slot of `object`) its value.
  void written(PyObject* object, PyObject* key);
  /// The trace gave all of the object's contents.
  void written_all(PyObject* object);
  bool is_written(PyObject* object, PyObject* key) const;
  /// What the trace wrote to is as it was before. False where something stays changed.
  bool undo_writes();
  /// Once the trace is over: gives the copies of what was written to `other`, to be dropped with it.
  void leave_writes(Watches& other);
  /// Tensors that were read from places which the trace wrote to: later calls find other tensors there. Those that
  /// `wanted` accepts and no other place holds are from now on compared by type and layout, and check() adds what it finds
  /// to its objects, in the order of the result.
  std::vector<PyObject*> take_sources(TorchApi& api, const std::function<bool(PyObject*)>& wanted);

  /// The objects that weak references gave, and those that are held weakly since take_sources(). check() adds them to its
  /// objects, after those of take_sources().
  std::vector<PyObject*> weakly_held() const;
  /// References to the latter: when one of them ends, the entry must let go of everything that belongs to it.
  const std::vector<Ref>& ending() const { return ending_; }
  /// A container that is held, and holds something whose end the program notices; null: none.
  PyObject* holds_noticed();

  /// True when everything is as it was. Refreshes version tags, so that the next check is one compare a dict.
  bool check(TorchApi& api, std::vector<PyObject*>& objects, std::string* why);
  /// To be called before check(): the numbers that are symbols, in the order of their reading. Their objects go to
  /// `objects`, the values to `symbols`.
  bool check_numbers(std::vector<PyObject*>& objects, std::vector<int64_t>& symbols, std::string* why) const;
  /// Adds the numbers that are not what they were, and those that are symbols.
  void compare(std::set<NumberPlace>& varying) const;
  size_t size() const;
  /// Every object that was read from, or found in, something that existed before the trace.
  const std::unordered_set<PyObject*>& seen_objects() const { return known_; }
  /// `object` was found in something known (an item of a tuple).
  void found(PyObject* object) { known_.insert(object); }
  /// Found as the gradient of a tensor, which is another object in the next call. It may have ended.
  bool is_gradient(PyObject* object) const { return gradient_values_.contains(object); }
  std::vector<std::string> describe() const;  // guards_print.cpp
  int traverse(const Visitor& visit) const;

 private:
  struct Read {
    /// What was found; None for what ended since.
    PyObject* found() const { return weak ? weak_object(value.get()) : value.get(); }
    bool is_same(PyObject* now) const;
    Ref key, value;     // value: null when absent
    bool weak = false;  // `value` is a weak reference
    int source = -1;
    bool rewritten = false;  // a number that the trace gives another value, so that the next call finds another one
    int traverse(const Visitor& visit) const { return visit(key, value); }
  };
  struct DictWatch {
    Ref dict;
    uint64_t version = 0;
    std::vector<Read> reads;
    bool all = false;
    bool sourced = false;
    std::vector<Read> items;
    std::vector<Ref> order;  // ordered_keys()
    int traverse(const Visitor& visit) const { return visit(dict, reads, items, order); }
  };
  struct ListWatch {
    Ref list;
    Py_ssize_t size = 0;
    std::vector<std::pair<Py_ssize_t, Read>> items;
    std::unordered_set<Py_ssize_t> seen;
    int traverse(const Visitor& visit) const {
      int result = visit(list);
      for (size_t i = 0; i < items.size() && result == 0; ++i) result = visit(items[i].second);
      return result;
    }
  };
  struct SetWatch {
    Ref set, before;  // a list
    bool ordered = true;
    int traverse(const Visitor& visit) const { return visit(set, before); }
  };
  struct DequeWatch {
    Ref deque, before;  // a list
    int traverse(const Visitor& visit) const { return visit(deque, before); }
  };
  struct CellWatch {
    Ref cell;
    Read read;
    int traverse(const Visitor& visit) const { return visit(cell, read); }
  };
  struct AttrWatch {
    Ref owner;  // or the weak reference that gave it
    Read read;
    bool weak = false;
    PyObject* object() const { return weak ? weak_object(owner.get()) : owner.get(); }
    int traverse(const Visitor& visit) const { return visit(owner, read); }
  };
  struct InstanceWatch {
    Ref object, type, dict;      // the object, or a weak reference to it
    PyObject** place = nullptr;  // of the dict; null: there is none yet
    bool weak = false;
    PyObject* found() const { return weak ? weak_object(object.get()) : object.get(); }
    int traverse(const Visitor& visit) const { return visit(object, type, dict); }
  };
  struct FunctionWatch {
    Ref function, code;
    Ref defaults;                   // null where one of them may end: the tuple would keep it
    std::vector<HeldObject> items;  // then
    Ref keyword_defaults;
    bool holds() const;
    int traverse(const Visitor& visit) const { return visit(function, code, defaults, items, keyword_defaults); }
  };
  struct CallWatch {
    Ref callable;
    std::vector<Ref> args;
    Ref result;
    std::vector<bool> weak{};  // per argument
    int traverse(const Visitor& visit) const { return visit(callable, args, result); }
  };
  struct CachedWatch {
    Ref cache, key, held, result;
    bool holds() const;
    int traverse(const Visitor& visit) const { return visit(cache, key, held, result); }
  };
  /// A weak reference has one object for life: dead or alive is all that may change.
  struct WeakWatch {
    Ref reference;
    bool alive = false;
    int traverse(const Visitor& visit) const { return visit(reference); }
  };
  struct NumberWatch {
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
  struct TensorAttrWatch {
    int object = 0;
    Read read;
    int traverse(const Visitor& visit) const { return visit(read); }
  };
  struct GradientWatch {
    int object = -1;
    Ref tensor;  // null: the guarded object
    Ref value;   // while the trace is open
    bool none = false;
    TensorMeta meta;
    int traverse(const Visitor& visit) const { return visit(tensor, value); }
  };
  /// An object that the trace changed.
  struct Written {
    Ref object;
    Ref before;  // a copy: dict, list, set; the value of a cell; a tuple for each name of a slot: its value, if it had one
    Ref keys;  // a set
    bool all = false;
    int traverse(const Visitor& visit) const { return visit(object, before, keys); }
  };
  struct Source {
    Ref type;
    TensorMeta meta;
    bool grad = false, leaf = false;
    int traverse(const Visitor& visit) const { return visit(type); }
  };
  struct Check;
  const Written* writes_to(PyObject* object) const;
  DictWatch& dict_watch(PyObject* dict);
  ListWatch& list_watch(PyObject* list);
  void know(PyObject* object) {
    if (object != nullptr) known_.insert(object);
  }
  /// Instances end when the program drops them (is_held_weakly).
  void hold_weakly();
  template <typename Fn>
  void for_each_read(Fn&& fn);
  std::vector<DictWatch> dicts_;
  std::vector<size_t> sourced_dicts_;
  std::vector<size_t> ordered_dicts_;     // whose order is watched
  std::unique_ptr<DictChanges> changes_;  // of dicts_, since the first check; goes before they do
  std::vector<ClassWatch> types_;
  std::unordered_map<PyObject*, size_t> type_index_;
  std::vector<ListWatch> lists_;
  std::vector<SetWatch> sets_;
  std::vector<DequeWatch> deques_;
  std::vector<CellWatch> cells_;
  std::vector<AttrWatch> attrs_;
  std::vector<TensorAttrWatch> tensor_attrs_;
  std::vector<GradientWatch> gradients_;
  std::vector<Ref> leaves_;
  bool passes_ = false;
  std::vector<InstanceWatch> instances_;
  std::vector<FunctionWatch> functions_;
  std::vector<CallWatch> calls_;
  bool nothing_handled_ = false;
  std::vector<CachedWatch> cached_;
  std::vector<WeakWatch> weaks_;
  std::vector<Ref> ending_;  // weak references
  std::vector<NumberWatch> numbers_;
  std::vector<Source> sources_;
  std::unordered_map<PyObject*, size_t> dict_index_, list_index_;
  std::unordered_set<PyObject*> seen_;  // sets, deques, cells, functions with a watch
  std::unordered_map<PyObject*, size_t> instance_index_;
  std::unordered_set<PyObject*> known_;            // alive, but for gradients: some watch or the trace holds them
  std::unordered_set<PyObject*> gradient_values_;  // identities alone
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> keys_seen_;
  std::unordered_map<PyObject*, PyObject*> weakly_;  // objects, and the weak references that gave them
  std::unordered_map<PyObject*, Written> written_;
};

}  // namespace tatara::capture
