// The state of one trace, shared by the tracer's source files.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "capture/constant_tensors.h"
#include "capture/graph_from_tape.h"
#include "capture/tracer.h"
#include "capture/transaction.h"

namespace tatara::capture {

/// A switch of the host's that a trace throws as the program does (switches.cpp).
bool is_thrown_switch(std::string_view name);

/// While it lives, what Python runs is no part of the trace.
class Bypass {
 public:
  explicit Bypass(int& count) : count_(count) { ++count_; }
  ~Bypass() { --count_; }
  Bypass(const Bypass&) = delete;
  Bypass& operator=(const Bypass&) = delete;

 private:
  int& count_;
};

/// A level of torch.func's transforms or of forward-mode derivatives.
struct Tracer::Level {
  enum class Kind : uint8_t { kNone, kGrad, kJvp, kVmap, kDual } kind = Kind::kNone;
  int number = 0;                          // as torch counts them
  bool outer_grad = true;                  // gradients were on where it was entered
  bool random = false;                     // vmap: random operators are allowed
  Expr size;                               // vmap
  std::vector<std::pair<int, int>> duals;  // slots of dual tensors and of their tangents
};

struct Tracer::Trace {
  explicit Trace(TorchApi& api) : inference(api, symbols) { tape.set_symbols(&symbols); }
  TraceSymbols symbols;
  Tape tape;
  LiveInference inference;
  ConstantTensors constants;
  std::vector<std::shared_ptr<ConstantGuard>> size_checks;
  ValueGuard guard;
  Watches watches;
  GlobalState state;
  std::vector<PyObject*> objects;
  std::unordered_map<PyObject*, int> object_index;
  std::unordered_set<PyObject*> by_identity;           // guarded objects that are the same in each call
  size_t guarded = 0;                                  // how many of `objects` the guard on the roots gives
  std::set<PyObject*> pinned;                          // of these: whose identity decided something
  std::set<std::pair<PyObject*, PyObject*>> compared;  // different objects whose identities were compared
  std::set<PyObject*> in_cells;                // held by a callee's cells, and guarded as the objects that they are
  std::unordered_map<PyObject*, size_t> born;  // and when, as a count
  size_t births = 0;
  /// A generator made in the trace ends when the program drops it.
  struct Closable {
    Ref reference;  // weak
    size_t when = 0;
  };
  std::unordered_map<PyObject*, Closable> closable;
  std::unordered_set<const Frame*> closing;  // frames of generators that got a GeneratorExit
  bool no_resume = false;                    // the next break is for good: the frame cannot go on from its snapshot
  std::vector<Effect> effects;
  std::unordered_map<PyObject*, PyObject*> instance_dicts;  // of guarded objects; empty: not looked for
  std::set<NumberPlace> varying;                            // numbers read from outside that had other values before
  std::map<NumberPlace, Ref> numbers;
  std::unordered_set<int> of_tensors;  // slots of numbers that tensors decide
  std::unordered_set<int> needed;      // slots of numbers that the tape computes and whose values are guarded
  struct Placed {
    Ref holder, key, number, value;
  };
  std::vector<Placed> placed;  // placeholders in lists and dicts of the caller, which get the values back
  std::vector<Ref> alive;
  std::unordered_map<PyObject*, Ref> gradients;  // `.grad` of older tensors that was read or written
  std::vector<std::pair<PyObject*, Ref>>
      cleared;  // tensors whose `.grad` was set to None first of all, and what it was
  int start_offset = 0;
  PyObject* root_code = nullptr;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  double run_seconds = 0;  // of the tape's own run, which is the program's work

  std::vector<Ref> start_locals, start_stack;  // of the root frame
  Ref start_exception;                         // that was being handled
  Ref hooks_at_start;         // why hooks on saved tensors were refused, once a switch of theirs is thrown
  bool hooks_thrown = false;  // such switches are among the effects
  Transaction transaction{Transaction::kMostInTrace};

  // The root frame as it was before its present instruction.
  std::vector<Ref> snap_locals, snap_stack;
  int snap_offset = 0;
  Ref snap_handled;  // the exception that is being handled there
  size_t snap_nodes = 0;
  size_t snap_facts = 0, snap_checks = 0, snap_effects = 0, snap_born = 0;
  bool snap_grad = false;
  size_t snap_levels = 0;

  std::vector<Level> levels{Level()};  // all that there were; a slot's `level` is a place here
  std::vector<int> open_levels;
  int duals = 0;  // levels of forward_ad that are open
  /// What the host has said of a node's results, where its operands need gradients as noted (Tracer::ask_histories).
  struct History {
    Ref args;  // of the node: another one may get its number
    std::vector<NeedsGrad> operands, results;
  };
  std::map<size_t, History> histories;
  std::unordered_set<int> silent_views;  ///< slots, see Tracer::note_silent_views
  bool variables_allowed = false;        // requires_grad_() makes a variable of the level's
  /// Regions of checkpoints that are open.
  struct OpenRegion {
    size_t node = 0;  // of its beginning
    size_t effects = 0;
    std::vector<int64_t> versions;  // of the memory behind each slot
  };
  std::vector<OpenRegion> regions;
  std::unordered_map<int, int> wraps;  // slots of wrapped tensors: what they wrap
  int level() const { return open_levels.empty() ? 0 : open_levels.back(); }
  std::unordered_map<PyObject*, int> open_context_vars;  // set and not reset: a later run would lack them
  bool mutated = false;                                  // something made in the trace changed since then
  /// Calls of functools.lru_cache's wrappers that are running: what Python code below writes, it writes once.
  std::shared_ptr<int> cached_calls = std::make_shared<int>(0);
  bool hidden_readers = false;  // iterators of C code that read the numbers that go through them
  bool said_once = false;       // and such a call has said something

  int index_of(PyObject* object) const {
    const auto found = object_index.find(object);
    return found == object_index.end() ? -1 : found->second;
  }
};

/// One call of `hang`: results that get a history, and what decides it.
struct Tracer::FunctionCall {
  PyObject* cls = nullptr;
  PyObject* context = nullptr;
  PyObject* args = nullptr;
  std::vector<PyObject*> results;
  std::vector<int> outputs;   // slots of those that get a history
  std::vector<bool> follows;  // per result: it is one of these
  std::vector<int> places;    // arguments that require grad
  bool materialize = true;
};

/// What the engine is asked for: tensors by their slots.
struct Tracer::EngineCall {
  std::vector<int> roots, cotangents, variables;
  std::vector<PyObject*> tensors;  // of the variables
  std::vector<Ref> hooks;          // of the variables: gradient_hooks()
  bool keep = false, accumulate = false, unused = false, create = false;
};

/// A call of Python code that is traced ahead of its time (Tracer::trace_ahead).
struct Tracer::AheadRun {
  size_t slots = 0;  // that there were before
  Ref returned;
  std::vector<TapeNode> nodes;  // what it recorded, which is off the tape again
  std::string problem;          // empty: it came to its end, and nothing of it may be seen
};

/// Whether it is known what strides a gradient by a tensor, which has these in this call, has where its sizes vary.
bool knows_layout(const TapeSlot& variable, const std::vector<int64_t>& strides);
/// Whether tensors have the same dtype and sizes.
bool same_type(const TapeSlot& a, const TapeSlot& b);

/// A call of the host's on meta tensors, which tells what its results are. Null with a Python error set.
Ref call_meta(PyObject* func, PyObject* args, PyObject* kwargs);

/// What the tracer does with a call.
struct Tracer::CallPlan {
  enum class Kind : uint8_t {
    kEnter,      ///< Python code: the VM runs it
    kTorch,      ///< reaches the torch function mode
    kFalse,      ///< has_torch_function of plain tensors
    kModes,      ///< asks for torch-function modes
    kPure,       ///< C code without side effects: runs here
    kAttribute,  ///< getattr, hasattr: a read of args[0]
    kMutator,    ///< changes `target`
    kSwitch,     ///< changes the thread's state, and is repeated as an effect
    kBreak,
  };
  Kind kind = Kind::kPure;
  PyObject* target = nullptr;
  std::string name;
  PyTypeObject* type = nullptr;  // kMutator: whose method it is; null: setattr
  bool watched = false;          // kPure: reads a state of its own, so that guards call it again
  PyObject* weak = nullptr;      // kPure: the weak reference that is asked for its object
  PyObject* variable = nullptr;  // kPure: the context variable that is read or set
  bool function = false;         // kMutator: a function whose first argument is the target
};

/// The torch-function mode of tracers.
PyObject* mode_object();

}  // namespace tatara::capture
