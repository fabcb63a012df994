// The structure of what comes with a call: arguments, or the variables of a frame.
#pragma once

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
#include "capture/entries/tensor_dims.h"
#include "capture/host/object_kinds.h"
#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// Which sizes become symbols.
enum class DynamicMode : uint8_t {
  kAuto,    // those that had another value before
  kAlways,  // all that are not 0 or 1
  kNever,
};

/// What may vary of the values that a trace begins with.
struct DynamicDims : VaryingItems {
  DynamicMode mode = DynamicMode::kAuto;
  VaryingPlaces watched;         // read from elsewhere
  std::vector<int> places;       // per root: where the frame holds it, so that a symbol can stand there; -1: nowhere
  bool share_ints = false;       // an int that equals a size is that size
  size_t cells_from = SIZE_MAX;  // roots that are cells of a callee, whose objects are guarded by identity
};

/// A structural guard over a list of root objects (call arguments, or a frame's locals and stack). Checking flattens what
/// is not a constant into `objects`, in an order that is the same for every match: these indices are the sources.
class ValueGuard {
 public:
  /// Describes `roots` (entries may be null). Fills `objects` as check() will.
  void build(PyObject* const* roots, size_t count, TorchApi& api, const DynamicDims& dynamic, TraceSymbols& symbols,
             std::vector<PyObject*>& objects);
  /// Fills `objects`, and `symbols` with the values of the guard's symbols.
  bool check(PyObject* const* roots, size_t count, TorchApi& api, std::vector<PyObject*>& objects,
             std::vector<int64_t>& symbols, std::string* why) const;
  /// Adds the dimensions whose sizes differ between what was guarded and `roots`, as far as the structure is the same.
  void compare(PyObject* const* roots, size_t count, TorchApi& api, VaryingItems& dynamic) const;
  /// The guard of one more value, found behind `objects`, to which it adds. Its tensors must require grad, and be leaves, as they are.
  void build_behind(PyObject* value, TorchApi& api, const DynamicDims& dynamic, TraceSymbols& symbols,
                    std::vector<PyObject*>& objects);
  /// Adds to `objects` and `symbols`, which hold what was found before.
  bool check_behind(PyObject* value, TorchApi& api, std::vector<PyObject*>& objects, std::vector<int64_t>& symbols,
                    std::string* why) const;
  /// Layout of the guarded tensor at `object`; null for other objects, and where all of it is constant.
  const SymbolicLayout* layout(int object) const;
  /// Roots that are symbolic numbers: the root, its symbol (a float has the next one too), the guarded object.
  struct SymbolicRoot {
    size_t root;
    Expr symbol;
    int object;
  };
  const std::vector<SymbolicRoot>& symbolic_roots() const { return symbolic_roots_; }
  /// The same inside the roots: items of lists and dicts, attributes of plain instances (by their __dict__) and of those
  /// with slots. Holds arguments
  /// of the call, so it is for the trace only.
  struct SymbolicItem {
    Ref holder, key;
    Expr symbol;
    int object;
  };
  std::vector<SymbolicItem> take_symbolic_items() { return std::exchange(symbolic_items_, {}); }
  /// A tuple that is the holder of such numbers, or of such a tuple, and its own place: a root, or an item as above. Neither: the
  /// program finds it where no other tuple can stand. Those inside come before what holds them.
  struct SymbolicTuple {
    Ref tuple;
    size_t root = SIZE_MAX;
    Ref holder, key;
  };
  std::vector<SymbolicTuple> take_symbolic_tuples() { return std::exchange(symbolic_tuples_, {}); }
  /// Whether each torch module among the roots is the one of these roots.
  bool same_modules(PyObject* const* roots, size_t count) const;
  /// The roots alone, as the first part of check().
  bool check_roots(PyObject* const* roots, size_t count, TorchApi& api) const;
  /// From now on the state of the iterator is part of the guard, too: where it is, and what is in what it goes over. `object`:
  /// its index among the objects; -1: it is the same in each call. The state must be that of the trace's begin. Adds to
  /// `objects`. Gives the iterators whose states are watched now; none: one of them has a state that cannot be read.
  std::vector<PyObject*> watch_iterator(PyObject* iterator, int object, TorchApi& api, TraceSymbols& symbols,
                                        std::vector<PyObject*>& objects);
  bool watches_iterators() const { return !states_.empty(); }
  /// Indices of objects that the guard finds once more.
  std::vector<int> found_again() const;
  /// What a trace that ends knows of the objects of its guard.
  struct UnreadQuestions {
    std::function<bool(PyObject*)> read;       // whether it has looked into this list or dict
    std::function<bool(int, PyObject*)> used;  // whether anything speaks of this object, with its index
    std::function<bool(int, PyObject*)> idle;  // whether another object of the type could be in its place
  };
  /// From now on lists and dicts that the trace has not looked into go by their types. `objects` and `sources`: of the trace.
  /// Tells for each object whether it is in one of these; check() has a null in its place (unread_items.cpp).
  std::vector<bool> forget_unread(const std::vector<PyObject*>& objects, const std::vector<SymbolSource>& sources,
                                  const UnreadQuestions& questions);
  /// What tensor among the roots cannot be read; empty: all can.
  std::string unsupported_tensor;
  /// Among the objects: those that cells from DynamicDims::cells_from on hold.
  std::vector<size_t> in_cells;
  /// Among the objects: those that are the same in each call. What they hold is not looked at.
  std::vector<size_t> by_identity;
  /// Among the objects: generators of random numbers, another one in each call.
  std::vector<size_t> generators;
  /// Tensors must require grad as they did: the trace ran with gradients on, or looked.
  bool check_grad = false;
  /// Those that require grad must be leaves as they were: the program has asked.
  bool check_leaf = false;
  /// The roots are those of a call (arguments, keywords, defaults), not of a frame.
  bool of_call = false;
  /// One line for each, with the names that the code object has for the roots (guards_print.cpp).
  std::vector<std::string> describe(PyObject* code, int offset) const;
  /// The same of a guard of build_behind().
  std::vector<std::string> describe(const std::string& name) const;
  int traverse(const Visitor& visit) const { return visit(items_, states_); }
  /// Indices into objects of the guarded tensors.
  const std::vector<int>& tensors() const { return tensor_indices_; }

 private:
  enum class Kind : uint8_t {
    kNull,
    kConst,
    kInt,
    kFloat,
    kIdentity,
    kNotANumber,
    kPassive,
    kTensor,
    kForeign,
    kTuple,
    kList,
    kDict,
    kInstance,
    kSame,
    kEmptySet,
    kCell,
    kMethod,
    kFunction,
    kGenerator
  };
  struct Item {
    Kind kind = Kind::kNull;
    size_t key = 0;          // among VaryingItems
    int count = 0;           // children that follow
    int same = -1;           // kSame: index into objects; kTensor: index into metas_; kInt, kFloat: symbol
    bool has_dict = false;   // kDict, kTuple: children of __dict__ follow as one more kInstance item
    bool has_maker = false;  // kDict: a defaultdict makes its items with a function, the first child
    bool unread = false;     // kList, kDict: forget_unread(); the items and objects behind it are nobody's
    size_t unread_items = 0, unread_objects = 0;
    Ref type;
    Ref value;  // kConst, kNotANumber; kGenerator: its device; kDict: what else a defaultdict makes its items with
    HeldObject object;                // kIdentity
    std::vector<Ref> keys;            // kDict, kInstance; kFunction: code, globals; kForeign: TorchApi::foreign_facts()
    std::vector<Ref> order;           // kDict: ordered_keys()
    std::vector<InstanceSlot> slots;  // kInstance: where it has them, and no __dict__
    int traverse(const Visitor& visit) const { return visit(type, value, object, keys, order); }
  };
  /// The state of an iterator: its parts are the next items that are in no other one.
  struct State {
    int object = -1;      // the iterator's index
    HeldObject iterator;  // without an object
    size_t parts = 0;
    int64_t position = 0;
    int traverse(const Visitor& visit) const { return visit(iterator); }
  };
  struct Builder;
  struct Unread;
  struct Checker;
  struct Comparer;
  struct Printer;
  std::vector<Item> items_;
  std::vector<TensorMeta> metas_;
  std::vector<TensorDims> dims_;  // parallel to metas_
  std::vector<bool> needs_grad_;  // likewise
  std::vector<bool> leaves_;      // likewise
  std::vector<SymbolicRoot> symbolic_roots_;
  std::vector<SymbolicItem> symbolic_items_;
  std::vector<SymbolicTuple> symbolic_tuples_;
  std::vector<IntRange> ranges_;  // of the symbols
  std::vector<int> tensor_indices_;
  size_t root_count_ = 0;
  size_t first_object_ = 0;                         // build_behind()
  std::vector<std::pair<size_t, size_t>> modules_;  // torch modules among the roots: root, item
  std::vector<State> states_;                       // their items follow those of the roots
};

}  // namespace tatara::capture
