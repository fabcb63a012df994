// Objects outside of a trace's arguments that the trace read or wrote, and what they were when it began.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/entries/attribute_guards.h"
#include "capture/entries/call_guards.h"
#include "capture/entries/class_watch.h"
#include "capture/entries/container_guards.h"
#include "capture/entries/dict_guards.h"
#include "capture/entries/gradient_guards.h"
#include "capture/entries/number_guards.h"
#include "capture/entries/object_reads.h"
#include "capture/entries/weak_guards.h"

namespace tatara::capture {

/// Outside objects that the trace read, each with what it saw. What the trace wrote itself is no part of it: a read after
/// a write tells nothing of the state before, which is what a later call is compared with.
class ObjectGuards {
 public:
  // Reads.
  void dict_key(PyObject* dict, PyObject* key) { dicts_.read_key(dict, key, notes_); }
  void dict_all(PyObject* dict) { dicts_.read_all(dict, notes_); }
  void dict_size(PyObject* dict) { dicts_.read_size(dict, notes_); }
  /// The trace read `name` of a class; null: what it did depends on the class in other ways.
  void type(PyObject* type, PyObject* name) { classes_.read(type, name); }
  void list(PyObject* list) { containers_.list(list, notes_); }
  void list_size(PyObject* list) { containers_.list_size(list, notes_); }
  /// `index` counts from the start. The length is watched too.
  void list_item(PyObject* list, Py_ssize_t index) { containers_.list_item(list, index, notes_); }
  /// With `ordered`, the order of its items matters, too.
  void set(PyObject* set, bool ordered) { containers_.set(set, ordered, notes_); }
  /// `elsewhere`: of which of its items, as they were when the trace began, other guards speak.
  void deque(PyObject* deque, std::vector<bool> elsewhere) { containers_.deque(deque, std::move(elsewhere), notes_); }
  /// The items that a deque had when the trace began.
  Ref items_before(PyObject* deque) const;
  void cell(PyObject* cell) { containers_.cell(cell, notes_); }
  void attribute(PyObject* owner, PyObject* name, PyObject* value) {
    attributes_.attribute(owner, weak_.reference_to(owner), name, value, notes_);
  }
  /// The class of an object, and with `attributes` the dict of these, are the ones that it has now.
  void instance(PyObject* object, bool attributes);
  /// Defaults and code of a function that the trace entered.
  void function(PyObject* function);
  /// A call of C code that changes nothing and whose result depends on more than its arguments: made again by check().
  void call(PyObject* callable, PyObject* const* args, size_t count, PyObject* result) {
    calls_.call(callable, args, count, result, notes_);
  }
  /// Asked whether `type` is a subclass of `abstract`, the abstract base class gave `answer`, which may change when classes are
  /// registered.
  void subclass(PyObject* type, PyObject* abstract, PyObject* answer) { calls_.subclass(type, abstract, answer); }
  /// No exception is being handled where the code is called.
  void nothing_handled() { calls_.nothing_handled(); }
  /// A function with a cache gave `result`, which `cache` has under `key`, in `held`: itself, or a link that others may use later.
  void cached(PyObject* cache, PyObject* key, PyObject* held, PyObject* result) {
    calls_.cached(cache, key, held, result, notes_);
  }
  /// A weak reference was asked for its object, and gave `object` (None: dead), which stays alive as long as the trace.
  void weak(PyObject* reference, PyObject* object) { weak_.add(reference, object, notes_); }
  /// A Python attribute of a tensor that comes with each call, as object `index`.
  void tensor_attribute(int index, PyObject* tensor, PyObject* name) {
    attributes_.tensor_attribute(index, tensor, name, notes_);
  }
  /// `.grad` of a tensor (a guarded object, or -1) held `value`, null: None. Later calls find other gradients of its layout:
  /// check() adds them to its objects, after those of weakly_held(), in the order of take_gradients().
  void gradient(int index, PyObject* tensor, PyObject* value, TensorMeta meta) {
    gradients_.add(index, tensor, value, std::move(meta), notes_);
  }
  std::vector<PyObject*> take_gradients() { return gradients_.take(); }
  /// Gradients go by which tensor is which: those that were several must be several.
  void passes() { gradients_.passes(); }
  /// A tensor that is no argument must stay without a history.
  void leaf(PyObject* tensor) { gradients_.leaf(tensor, notes_); }
  /// Whether a tensor that is no argument requires grad must stay as it is.
  void requires_grad(PyObject* tensor, bool needs) { gradients_.requires_grad(tensor, needs, notes_); }
  /// A number whose value may differ: check_numbers() tells it.
  void number(ReadPlace place, PyObject* value, size_t symbol, IntRange range) {
    numbers_.add(place, value, symbol, range, notes_);
  }
  /// Any other object that is another one in each call.
  void value(ReadPlace place, ValueGuard guard) { numbers_.add_value(place, std::move(guard), notes_); }
  /// Layout of a tensor in such an object; null for others, and where all of it is constant.
  const SymbolicLayout* layout(int object) const { return numbers_.layout(object); }
  /// A tuple in which such numbers are (`varying`, one for each item); the others are guarded.
  void number_tuple(ReadPlace place, PyObject* tuple, std::vector<bool> varying) {
    numbers_.add_tuple(place, tuple, std::move(varying), notes_);
  }
  /// What is at this place is what was there when the trace began.
  bool is_original(ReadPlace place) const;

  // Writes.
  /// Before the first change of a dict, list, set, deque or cell, and each later one: remembers what it was.
  void before_write(PyObject* object) { notes_.writes().before_write(object); }
  /// Before a write to a slot of an object (`__slots__`).
  void before_slot(PyObject* object, PyObject* name) { notes_.writes().before_slot(object, name); }
  /// The trace gave `key` (of a dict or list, or the name of a slot of `object`) its value.
  void written(PyObject* object, PyObject* key) { notes_.writes().written(object, key); }
  /// The trace gave all of the object's contents.
  void written_all(PyObject* object) { notes_.writes().written_all(object); }
  bool is_written(PyObject* object, PyObject* key) const { return notes_.writes().contains(object, key); }
  /// What the trace wrote to is as it was before. False where something stays changed.
  bool undo_writes() { return notes_.writes().undo(); }
  /// Once the trace is over: gives the copies of what was written to `other`, to be dropped with it.
  void leave_writes(ObjectGuards& other);
  /// Tensors that were read from places which the trace wrote to: later calls find other tensors there. Those that
  /// `wanted` accepts and no other place holds are from now on compared by type and layout, and check() adds what it finds
  /// to its objects, in the order of the result.
  std::vector<PyObject*> take_sources(TorchApi& api, const std::function<bool(PyObject*)>& wanted);

  /// The objects that weak references gave, and those that are held weakly since take_sources(). check() adds them to its
  /// objects, after those of take_sources().
  std::vector<PyObject*> weakly_held() const { return weak_.objects(); }
  /// References to the latter: when one of them ends, the entry must let go of everything that belongs to it.
  const std::vector<Ref>& ending() const { return weak_.ending(); }
  /// A container that is held, and holds something whose end the program notices; null: none.
  PyObject* holds_noticed();

  /// True when everything is as it was. Refreshes version tags, so that the next check is one compare a dict.
  bool check(TorchApi& api, std::vector<PyObject*>& objects, std::string* why);
  /// To be called before check(): see NumberGuards.
  bool check_numbers(TorchApi& api, std::vector<PyObject*>& objects, std::vector<int64_t>& symbols,
                     std::string* why) const {
    return numbers_.check(api, objects, symbols, why);
  }
  /// Adds the places whose object the program has let go of.
  void add_ended(VaryingPlaces& varying) const;
  /// Adds the places that hold something else than they did.
  void compare(TorchApi& api, VaryingPlaces& varying) const;
  size_t size() const;
  /// Every object that was read from, or found in, something that existed before the trace.
  const std::unordered_set<PyObject*>& seen_objects() const { return notes_.known(); }
  /// `object` was found in something known (an item of a tuple).
  void found(PyObject* object) { notes_.know(object); }
  /// Found as the gradient of a tensor, which is another object in the next call. It may have ended.
  bool is_gradient(PyObject* object) const { return gradients_.is_gradient(object); }
  /// A line for each thing that check_numbers() looks at, and for each of check(), in its order (guards_print.cpp).
  std::vector<std::string> describe_numbers() const;
  std::vector<std::string> describe() const;
  int traverse(const Visitor& visit) const;

 private:
  /// Instances end when the program drops them (is_held_weakly).
  void hold_weakly();
  template <typename Fn>
  void for_each_read(Fn&& fn);

  ReadNotes notes_;
  NumberGuards numbers_;
  std::vector<SourceTensor> sources_;
  // In the order of their checks.
  WeakGuards weak_;
  DictGuards dicts_;
  ClassGuards classes_;
  ContainerGuards containers_;
  AttributeGuards attributes_;
  GradientGuards gradients_;
  CallGuards calls_;
};

}  // namespace tatara::capture
