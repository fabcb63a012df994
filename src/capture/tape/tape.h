// The tape: the host calls of one trace, in order, with tensors replaced by slots. It is what the eager backend runs, what
// makes placeholders real at a graph break, and what graphs are built from.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/python/py.h"
#include "capture/tape/node_kinds.h"
#include "support/error.h"

namespace tatara::capture {

/// How a tensor lies in memory, as the host inferred it.
struct SlotLayout {
  Ref sizes, strides;
  std::vector<Expr> symbolic_sizes, symbolic_strides;  ///< empty where every size is constant
  Ref real_strides;                                    ///< of a result: as a run has found them, where they are others
  bool layout_read = false;                            ///< the program has asked how it lies in memory
};

/// The layout is that of a tensor as it comes, or as it was made (Tape::layout).
struct TapeSlot : SlotLayout {
  Ref object;  ///< the placeholder, or the real tensor of an input; dropped for placeholders when the trace ends
  Ref meta;    ///< stands for the tensor while results are inferred: the placeholder itself, or a twin of the input
  Ref device;
  Ref dtype;  ///< as the host inferred it
  bool input = false;
  int guard_index = -1;        ///< inputs reached from the arguments: index among the guarded objects; -1: pinned
  bool real = false;           ///< a result that is there already, while the trace goes on
  bool scalar = false;         ///< a NumPy scalar: no array also where it leaves the graph
  bool owns = false;           ///< a NumPy array with memory of its own
  bool fresh = false;          ///< the same, or a view of memory that nothing else refers to
  bool read_only = false;      ///< a NumPy array that may not be written to
  bool constant = false;       ///< a NumPy array that calls on constants alone have made and written to
  bool requires_grad = false;  ///< inputs: when they were seen
  bool number = false;       ///< a Python number among the inputs: an int is the value of the symbol symbolic_sizes[0]
  bool generator = false;    ///< of random numbers, among the inputs; `number` too: it is no tensor
  bool derived = false;      ///< a number that a node computes; `number` too
  bool whole = false;        ///< such a number is an int
  bool parameter = false;    ///< a result of class torch.nn.Parameter
  bool made_before = false;  ///< inputs of a part of a tape: a part before it, or torch between them, makes it
  bool conjugate =
      false;  ///< inputs: what lies beneath the object, a lazily conjugated view; results: the first run gave such a view
  bool foreign = false;  ///< a sparse or quantised tensor (TorchApi::is_foreign): torch makes all calls on it
  Ref other;             ///< the same, while the trace is open: it stands for it as `meta` does, and has other elements
  int level = 0;  ///< of torch.func's transforms, the innermost one that it was made in (1 is the first of the trace)
  std::vector<Expr> bits;  ///< of a float: the halves of its bits
  Ref spoiled;  ///< outputs: what eager says when gradients go through it, since something saved was written afterwards
  int traverse(const Visitor& visit) const {
    return visit(object, meta, device, dtype, sizes, strides, real_strides, other);
  }
};

struct TapeNode {
  NodeKind kind;
  Ref func;
  Ref args;    ///< tuple; tensors are SlotRefs
  Ref kwargs;  ///< dict or null
  std::vector<int> outputs;
  /// Tensors from before it whose shape it changes, each with how it lies behind it.
  std::vector<std::pair<int, std::shared_ptr<const SlotLayout>>> reshaped;
  bool sequence = false;
  std::string name;
  UserLocation location;
  bool mutates = false;           ///< an in-place operation, or one that may be
  bool foreign = false;           ///< a foreign tensor is among its operands or results
  bool statistics = false;        ///< it may write to running statistics: the host does not count such a write
  PyObject* generator = nullptr;  ///< among its arguments
  int generator_slot = -1;        ///< the same: another one in each call
  bool grad = false;              ///< recorded with gradients on, also around the transforms at work
  bool mode = false;              ///< recorded with gradients on, as the innermost level has it
  int level = 0;                  ///< the level that it is recorded in
  /// Calls of one function on operands of the same types, that differ in tensors and indices alone, have the same number; -1: not known.
  int alike = -1;
  bool has_generator() const { return generator != nullptr || generator_slot >= 0; }
  int traverse(const Visitor& visit) const {
    const int stop = visit(func, args, kwargs);
    return stop != 0 ? stop : traverse_kind(kind, visit);
  }
};

/// The backward of such a function as it was traced ahead: it runs in graphs alone.
struct CustomBackward {
  std::vector<int> operands;    ///< arguments that require grad
  std::vector<int> gradients;   ///< of each operand; -1: none
  std::vector<int> cotangents;  ///< of each output of the node
  std::vector<TapeNode> nodes;
};

class Tape;
/// Whether a foreign tensor is among the operands or results of the node, which torch runs then.
bool is_on_foreign(const Tape& tape, const TapeNode& node);

/// Whether the node puts a hook on a tensor that the tape makes.
inline bool is_hook(const TapeNode& node) {
  const FunctionEnd* end = function_end(node);
  return end != nullptr && end->is_hook;
}

/// References to Python objects, counted.
using HeldObjects = std::unordered_map<PyObject*, Py_ssize_t>;

class Tape {
 public:
  int find(PyObject* tensor) const {
    const auto found = by_object_.find(tensor);
    return found == by_object_.end() ? -1 : found->second;
  }
  /// Of a slot, or -1: whether a node of the tape makes the tensor there.
  bool makes(int slot) const { return slot >= 0 && !slots_[static_cast<size_t>(slot)].input; }
  /// The node that makes the tensor in a slot, and does not write to one that was there. Null: none.
  const TapeNode* maker(int slot) const {
    const auto found = makers_.find(slot);
    return found != makers_.end() && found->second < nodes_.size() ? &nodes_[found->second] : nullptr;
  }
  int find_meta(PyObject* tensor) const {
    const auto found = by_meta_.find(tensor);
    return found == by_meta_.end() ? -1 : found->second;
  }
  /// `other`: of a foreign tensor, for which it stands as `meta` does.
  int add_input(PyObject* tensor, Ref meta, Ref device, int guard_index, bool conjugate = false, Ref other = {});
  /// With `meta`: a tensor that a call has made for real, and what stands for it; with `other`, too: a foreign tensor.
  int add_placeholder(PyObject* tensor, Ref device, Ref meta = {}, Ref other = {});
  friend void set_alike(Tape& tape, size_t node);
  friend int add_copy(Tape& tape, int like, Ref placeholder);
  friend std::vector<int> settle_sizes(Tape& tape, size_t first, size_t first_slot, std::span<const int64_t> symbols);
  /// From now on the input comes with each call, as the guarded object `index`.
  void set_guard_index(int slot, int index) { slots_[static_cast<size_t>(slot)].guard_index = index; }
  /// A NumPy array or scalar; sizes, strides and dtype are in `slot`. Or a generator.
  int add_value(TapeSlot slot);
  /// A Python int among the guarded objects whose value is a symbol.
  void add_number(PyObject* value, int guard_index, Expr symbol);
  /// A Python float, which nodes may have among their arguments.
  int add_float(PyObject* value, int guard_index, std::pair<Expr, Expr> bits);
  /// A Python float that a node computes; `value` is that of the present call.
  int add_derived(PyObject* value);
  /// A Python int that a node gives, whose value is the symbol.
  int add_made_number(PyObject* value);
  void set_symbol(int slot, Expr symbol) { slots_[static_cast<size_t>(slot)].symbolic_sizes = {symbol}; }
  void set_layout(int slot, std::vector<Expr> sizes, std::vector<Expr> strides);
  /// Whether what stands for the slot lies so.
  bool fits_layout(int slot) const;
  /// How the tensor in the slot lies behind all nodes: calls in place may have changed that.
  const SlotLayout& layout(int slot) const {
    const auto found = reshaped_.find(slot);
    return found == reshaped_.end() ? slots_[static_cast<size_t>(slot)] : *found->second;
  }
  /// The same; null: none has.
  std::shared_ptr<const SlotLayout> reshaped(int slot) const {
    const auto found = reshaped_.find(slot);
    return found == reshaped_.end() ? nullptr : found->second;
  }
  /// How the tensor that stands for the slot lies now, with sizes of the present call.
  SlotLayout present_layout(int slot) const;
  /// The symbols of the trace, for whoever reads the tape while it is open.
  void set_symbols(const TraceSymbols* symbols) { open_symbols_ = symbols; }
  void add_node(TapeNode node);
  /// Of outputs with transforms behind them: how they lie in memory, as the run of `open` has shown. Inference sees one
  /// example of a batch only.
  void take_layouts(const Tape& open);
  void take_layout(int slot, const Tape& open);
  void set_spoiled(int slot, Ref error) { slots_[static_cast<size_t>(slot)].spoiled = std::move(error); }
  /// Takes the nodes from `first` on off the tape; their slots stay.
  std::vector<TapeNode> cut_nodes(size_t first);
  /// Gives the last node a keyword argument.
  void set_last_keyword(const char* name, long value);
  void set_varying(int slot) { slots_[static_cast<size_t>(slot)].constant = false; }
  void set_layout_read(int slot) { slots_[static_cast<size_t>(slot)].layout_read = true; }
  void set_parameter(int slot) { slots_[static_cast<size_t>(slot)].parameter = true; }
  /// Outputs whose class the run does not know get it. False with a Python error set.
  bool set_classes(std::vector<Ref>& env, const TorchApi& api) const;
  void set_level(int slot, int level) { slots_[static_cast<size_t>(slot)].level = level; }
  /// Whether the tape has a step of torch.func's transforms.
  bool has_transforms() const { return seen_.transforms; }
  /// What it holds, or has held in calls that were cut off.
  struct Seen {
    bool transforms = false;
    bool numpy = false;       // calls of NumPy's
    bool leaf_marks = false;  // tensors that are made leaves
    bool copies = false;      // results that no placeholder stands for
  };
  const Seen& seen() const { return seen_; }

  const std::vector<TapeSlot>& slots() const { return slots_; }
  const std::vector<TapeNode>& nodes() const { return nodes_; }
  /// Puts the inputs where they belong: guarded `objects` by their index, pinned tensors. `env` has one entry per slot.
  void fill_inputs(const std::vector<PyObject*>& objects, std::vector<Ref>& env) const;

  /// Runs every node and puts the results under the placeholders; what neither a later node nor the program refers to goes
  /// at once. `held`: references that are not the program's. False with a Python error set; `stop` is asked before each node,
  /// and true from it is one. `can_take_back`: whether a mismatch can be taken back, also asked.
  /// Nodes that an earlier call has run do not run again. `goes_on`: more will be recorded.
  bool materialise(TorchApi& api, const std::function<bool()>& stop, const HeldObjects& held,
                   const std::function<bool()>& can_take_back, bool goes_on = false);
  /// Puts results that were computed otherwise (`env`, by slot) under the placeholders of `outputs`. False with a Python error
  /// set.
  bool take_results(const std::vector<int>& outputs, const std::vector<Ref>& env, TorchApi& api) const;
  /// How many nodes materialise() has done.
  size_t nodes_done() const { return ran_.nodes; }
  /// What nodes of an open tape that have run have made of numbers, by slot.
  const std::unordered_map<int, Ref>& numbers_made() const { return ran_.numbers; }
  /// The first `count` nodes, for a run of their own; placeholders are no longer referred to. Of the trace's guards on
  /// symbols the first `facts` were made by these nodes and what is before.
  std::shared_ptr<Tape> detach(size_t count, size_t facts) const;
  /// Of a detached tape: the nodes [first, last) with the same slots, as a tape that can be compiled by itself. Tensors that nodes
  /// before it make come in, and require grad as `needs` says (by slot); those that are read after it go out. Null where a
  /// Python number that one side computes is read on the other.
  std::shared_ptr<Tape> part(size_t first, size_t last, const std::vector<bool>& needs) const;
  /// Values of the symbols in the present call, while the trace is open.
  std::span<const int64_t> open_hints() const {
    return open_symbols_ != nullptr ? std::span<const int64_t>(open_symbols_->hints()) : std::span<const int64_t>();
  }
  /// Symbols with their values when the tape was made, and what is known of them. Detached tapes only.
  const std::vector<Expr>& symbols() const { return symbols_; }
  const std::vector<int64_t>& hints() const { return hints_; }
  const std::vector<IntRange>& ranges() const { return ranges_; }
  const std::vector<Expr>& facts() const { return facts_; }
  /// Values of the symbols in a call. False with a Python error set.
  /// Those that nodes decide by data are 0 until run_nodes() has come past these.
  bool symbol_values(const std::vector<Ref>& env, TorchApi& api, std::vector<int64_t>& symbols) const;
  /// Detached tapes: symbols that nodes decide by data, as indices of symbols(), each with its node.
  struct MadeSymbol {
    size_t symbol;
    int slot;
    size_t node;
    bool condition = false;  // whether a tensor holds: a graph can look whether it does so again
  };
  const std::vector<MadeSymbol>& made_symbols() const { return made_.symbols; }
  /// Whether random numbers are drawn before the last of what data decide is there.
  bool draws_before_made() const { return made_.drawn; }
  friend bool falls_as_recorded(const Tape& tape, size_t node, const std::vector<Ref>& env);
  friend size_t run_early(Tape& tape, size_t& call);
  /// Decisions of the program by data, which all tapes of the function share; may be null.
  const std::shared_ptr<DataDecisions>& decisions() const { return made_.decisions; }
  /// Whether such a symbol is part of the expression, which is one of `ctx`.
  bool is_made(Expr e, ExprContext& ctx) const;
  /// Runs the tape. `env` holds one entry per slot, inputs filled in; entries that `keep` does not name are dropped after
  /// their last use. False with a Python error set.
  bool run(std::vector<Ref>& env, TorchApi& api) const;
  /// Nodes [first, last) of a tape without symbols, as run() does them. With `keep` nothing is dropped.
  /// Fills in what data decide of the values of symbols.
  bool run_nodes(std::vector<Ref>& env, size_t first, size_t last, std::span<int64_t> symbols = {},
                 bool keep = false) const;
  /// Forgets what no node from `last` on uses, after nodes [first, last) were run in another way.
  void drop_dead(std::vector<Ref>& env, size_t first, size_t last) const;
  /// Calls one node; `results` are its tensors in order. False with a Python error set.
  static bool call(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols,
                   std::vector<Ref>& results);
  /// The same, the result as it is. Null with a Python error set.
  static Ref call_object(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols);
  /// Slots that are wanted after run().
  void set_outputs(std::vector<int> outputs);
  const std::vector<int>& outputs() const { return outputs_; }
  /// The last node that uses each slot; -1 for outputs, and for slots without use.
  std::vector<int> last_uses() const;
  /// By node: the tensors, as slots, that it is the last to use.
  std::vector<std::vector<int>> tensors_by_last_use() const;
  /// Why it failed, if an operator's results were other than was inferred; else empty.
  const std::string& mismatch() const { return mismatch_; }
  /// The mismatch is no more than a copy where a call was to give its operand.
  bool copies() const { return copies_; }
  bool has_regions() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const TapeNode& n) { return region_mark(n) != nullptr; });
  }
  bool has_hooks() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const TapeNode& node) {
      const GradientPass* pass = gradient_pass(node);
      return pass != nullptr && pass->hooks;
    });
  }
  bool has_custom_backwards() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const TapeNode& n) { return function_end(n) != nullptr; });
  }
  /// Whether the graph puts a hook on a tensor of its own.
  bool has_hooked_results() const { return std::any_of(nodes_.begin(), nodes_.end(), is_hook); }
  /// Comparisons of floats that vary give what they gave when the tape was recorded.
  bool checks_hold(std::span<const int64_t> symbols, std::string* why) const;
  /// Whether an input requires grad, or a tensor is made a leaf: then each node runs in the grad mode that it was recorded in.
  bool needs_grad_modes() const { return needs_grad_modes_; }
  std::string str() const;
  int traverse(const Visitor& visit) const { return visit(slots_, nodes_); }

 private:
  void note_writes(const TapeNode& node, const std::vector<Ref>& env) const;
  bool takes_place(size_t n, size_t slot, PyObject* copy, const TorchApi& api) const;
  std::string differs(const TapeNode& node, size_t output, PyObject* value, const std::vector<Ref>& env, bool real,
                      const TorchApi& api) const;

  std::vector<TapeSlot> slots_;
  std::vector<TapeNode> nodes_;
  std::unordered_map<int, size_t> makers_;  // nodes by the slots that they fill
  bool reshapes_before(int slot, size_t nodes) const;
  void note_reshaped(const TapeNode& node) {
    for (const auto& [slot, layout] : node.reshaped) reshaped_[slot] = layout;
  }
  std::unordered_map<int, std::shared_ptr<const SlotLayout>>
      reshaped_;  // slots whose shape nodes change, the last of them
  std::vector<int> outputs_;
  bool needs_grad_modes_ = false;
  Seen seen_;
  /// Of an open tape, what has run.
  struct HasRun {
    size_t nodes = 0;
    std::unordered_map<int, Ref> numbers;  // by slot
  };
  HasRun ran_;
  std::string mismatch_;
  bool copies_ = false;
  /// What fill_inputs() does, side by side: slots are big. Detached tapes only; objects are the slots'.
  struct Fill {
    int slot, guard_index;
    PyObject* object;
    bool conjugate;
  };
  std::vector<Fill> fills_;
  std::vector<std::vector<int>> dead_after_;
  struct FloatPlace {
    int slot;
    ExprProgram high, low;  // the halves of its bits
  };
  void collect_checks();
  std::vector<FloatPlace> check_floats_;
  std::vector<size_t> check_nodes_;  // what comparisons are made of, and they
  const TraceSymbols* open_symbols_ = nullptr;
  std::shared_ptr<ExprContext> ctx_;
  std::vector<Expr> symbols_, facts_;
  std::vector<int64_t> hints_;
  std::vector<IntRange> ranges_;
  struct SymbolPlace {
    int slot = -1;  // with the symbol as size or stride: an input, or a result; -1: nothing on the tape uses it
    int dim = 0;
    bool stride = false;
  };
  bool read_symbol(size_t symbol, const std::vector<Ref>& env, TorchApi& api, int64_t& value) const;
  std::vector<SymbolPlace> places_;
  /// What the trace took as given of symbols that data decide, with the node behind which all of them are there.
  struct LateFact {
    size_t node = 0;
    ExprProgram program;
    std::string text;
    std::string place;  // of the program's decision; empty: it was inferred
  };
  /// What data decide.
  struct Made {
    std::vector<MadeSymbol> symbols;
    std::vector<LateFact> facts;
    std::shared_ptr<DataDecisions> decisions;
    size_t surprises = 0;  // that these had seen when the tape was made
    bool drawn = false;    // random numbers are, before the last symbol is there
  };
  Made made_;
  void collect_late_facts(const TraceSymbols& symbols);
  bool bind_made(size_t node, const std::vector<Ref>& env, std::span<int64_t> symbols) const;
  SymbolPlace place_of(Expr symbol) const;
  std::unordered_map<PyObject*, int> by_object_;
  std::unordered_map<PyObject*, int> by_meta_;
};

// Of an open tape, where turns of a loop are copied (tape_copies.cpp).
/// The node is the first of some that are alike.
void set_alike(Tape& tape, size_t node);
/// A result that lies as the one in slot `like`. Without a placeholder no program sees it.
int add_copy(Tape& tape, int like, Ref placeholder);
/// Sizes among the arguments of the nodes from `first` on become numbers, by the symbols' values. Gives the slots from `first_slot` on
/// that had such a size.
std::vector<int> settle_sizes(Tape& tape, size_t first, size_t first_slot, std::span<const int64_t> symbols);

/// Of a node whose result data decide: whether it fell as in the trace. False with a Python error set.
bool falls_as_recorded(const Tape& tape, size_t node, const std::vector<Ref>& env);

/// Whether a node that asks a tensor for a condition asks one on a device that graphs are compiled for.
bool asks_where_graphs_look(const Tape& tape, const TapeNode& node);
/// Whether the condition that the node of the tape asks for held in the trace; nothing: it asks for none, or a graph cannot look.
std::optional<bool> condition_of(const Tape& tape, const TapeNode& node);
/// Whether a run of this thread has ended since the last question because data decided otherwise than the trace took them to. No
/// memory that was there before the run has been written: a trace takes no decision behind such a write.
bool take_late_failure();

/// Whether the result has the operand's memory and, in eager, is no view of anything.
inline bool detaches(const TapeNode& node) { return node.name == "detach" || node.name == "data"; }
/// Whether writes to what such a call gives are counted with those to its operand.
inline bool is_counted(const TapeNode& node) { return node.name == "detach"; }

/// Slots of the outputs that are not inputs, without repetition: what a backend returns.
std::vector<int> computed_outputs(const Tape& tape);
std::vector<int> input_slots(const Tape& tape);
/// Whether its calls are NumPy's alone, which have run when they were recorded.
bool is_numpy_tape(const Tape& tape);
/// Whether it has checkpoints that are one node to the host's gradients (use_reentrant=True).
bool has_reentrant_regions(const Tape& tape);
/// Whether calls of torch's are recorded on an open tape that have not run.
bool waits(const Tape& tape);
/// NumPy's, also where it gives a number.
inline bool is_of_numpy(const TapeNode& node) { return is_numpy_operation(node) || draws_by_numpy(node); }
/// Whether some of its calls are NumPy's, and some are not or have tensors among their operands or results.
bool is_mixed_tape(const Tape& tape);

/// Marks the place of a tensor in recorded arguments.
Ref make_slot_ref(int slot);
/// The slot, or -1 for other objects.
int slot_of(PyObject* object);
/// Calls fn(slot) for each slot in recorded arguments.
template <typename Fn>
void for_each_slot(PyObject* object, Fn&& fn) {
  if (object == nullptr) return;
  if (const int slot = slot_of(object); slot >= 0) {
    fn(slot);
  } else if (PyTuple_Check(object) || PyList_Check(object)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < n; ++i) for_each_slot(PySequence_Fast_GET_ITEM(object, i), fn);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) for_each_slot(value, fn);
  } else if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    for_each_slot(slice->start, fn);
    for_each_slot(slice->stop, fn);
    for_each_slot(slice->step, fn);
  }
}

/// Rebuilds tuples, lists, dicts and slices, passing every other object through `fn` (PyObject* -> Ref, null: error).
template <typename Fn>
Ref map_structure(PyObject* object, Fn&& fn) {
  if (PyTuple_CheckExact(object)) {
    const Py_ssize_t n = PyTuple_GET_SIZE(object);
    Ref out = Ref::steal(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      Ref item = map_structure(PyTuple_GET_ITEM(object, i), fn);
      if (!item) return {};
      PyTuple_SET_ITEM(out.get(), i, item.release());
    }
    return out;
  }
  if (PyList_CheckExact(object)) {
    const Py_ssize_t n = PyList_GET_SIZE(object);
    Ref out = Ref::steal(PyList_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      Ref item = map_structure(PyList_GET_ITEM(object, i), fn);
      if (!item) return {};
      PyList_SET_ITEM(out.get(), i, item.release());
    }
    return out;
  }
  if (PyDict_CheckExact(object)) {
    Ref out = Ref::steal(PyDict_New());
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) {
      const Ref item = map_structure(value, fn);
      if (!item || PyDict_SetItem(out.get(), key, item.get()) != 0) return {};
    }
    return out;
  }
  if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    const Ref start = map_structure(slice->start, fn), stop = map_structure(slice->stop, fn),
              step = map_structure(slice->step, fn);
    if (!start || !stop || !step) return {};
    return Ref::steal(PySlice_New(start.get(), stop.get(), step.get()));
  }
  return fn(object);
}

/// The tensors of a call's result, and None among them, in order.
void flatten_result(PyObject* result, std::vector<PyObject*>& out);

}  // namespace tatara::capture
