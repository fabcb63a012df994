// What the tracer and its features share: the call that is traced, and what its present trace has gathered.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/entries/constant_tensors.h"
#include "capture/entries/entry_cache.h"
#include "capture/graph/graph_from_tape.h"
#include "capture/tape/transaction.h"
#include "capture/trace/young_objects.h"
#include "capture/vm/vm.h"

namespace tatara::capture {

class CallTracing;
class CheckpointTracing;
class FunctionTracing;
class GradientTracing;
class HistoryTracing;
class IteratorTracing;
class LifetimeTracing;
class LoopTracing;
class ModeStack;
class NumberTracing;
class NumpyTracing;
class OriginTracing;
class ReadTracing;
class TorchTracing;
class ValueTracing;
class TraceEnds;
class TransformTracing;
class TurnTracing;
class WriteTracing;
struct CompiledFunction;
struct TraceOwner;
struct TracerParts;

/// Inference mode that the program enters in a trace before anything is recorded. All of the tape then runs in it; a call behind its
/// end breaks the graph (function_modes.cpp).
struct InferenceRegion {
  Ref guard;  // torch's, which is on; null: none was entered
  bool inside = false;
  size_t nodes = 0;  // of the tape, where it ended
  /// Entered once more while it is on, which changes nothing: torch's guards, innermost last.
  std::vector<Ref> inner;
  bool left() const { return guard && !inside; }
};

/// What one trace has gathered. The code of a generator that is closed as garbage would be part of it.
struct Trace : YoungObjects {
  explicit Trace(TorchApi& api) : inference(api, symbols) { tape.set_symbols(&symbols); }
  TraceSymbols symbols;
  std::string pending_break;  // why the trace is to end before the present instruction; empty: it is not
  Tape tape;
  LiveInference inference;
  GrowingGraph graph;  // as far as a pass of gradients has asked for it
  ConstantTensors constants;
  std::vector<std::shared_ptr<ConstantGuard>> size_checks;
  ValueGuard guard;
  ObjectGuards object_guards;
  GlobalState state;
  std::vector<PyObject*> objects;
  std::unordered_map<PyObject*, int> object_index;
  std::unordered_map<PyObject*, size_t> born;  // what it has made, and when, as a count
  size_t births = 0;
  /// A generator made in the trace ends when the program drops it.
  struct Closable {
    Ref reference;  // weak
    size_t when = 0;
  };
  std::unordered_map<PyObject*, Closable> closable;
  std::vector<Effect> effects;
  std::vector<Ref> alive;
  /// Of the root frame, where the trace begins.
  struct Start {
    int offset = 0;
    bool of_call = false;  // its roots are the call's arguments, not the frame's variables
    PyObject* code = nullptr;
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
    std::vector<Ref> locals, stack;
    Ref exception;  // that was being handled
    InferenceRegion inference_mode;
    /// Guards of torch's under which a graph is what it is without them, innermost last (CallTracing::switch_dispatch).
    std::vector<Ref> quiet_guards;
    bool in_guards() const { return inference_mode.inside || !inference_mode.inner.empty() || !quiet_guards.empty(); }
  };
  Start start;

  double run_seconds = 0;  // of the tape's own run, which is the program's work

  Transaction transaction{Transaction::kMostInTrace};

  /// The root frame as it was before its present instruction.
  struct Snapshot {
    std::vector<Ref> locals, stack;
    int offset = 0, furthest = 0;
    Ref handled;  // the exception that is being handled there
    size_t nodes = 0;
    size_t facts = 0, checks = 0, effects = 0, born = 0;
    bool grad = false, inference = false;  // that mode, or a quiet guard, was entered in the trace and is on
    size_t levels = 0;
  };
  Snapshot snap;
  std::vector<size_t> instructions;  // nodes of the tape that came first in an instruction of the root, in order

  bool mutated = false;          // something made in the trace changed since then
  bool asked_compiling = false;  // the program was told that it is being compiled
  bool iterators_vary = false;   // entries of this point differ in where iterators are, and are enough

  bool in_inference() const { return state.inference || start.inference_mode.inside; }
  bool knows_inference() const { return state.inference || start.inference_mode.guard; }
  int index_of(PyObject* object) const {
    const auto found = object_index.find(object);
    return found == object_index.end() ? -1 : found->second;
  }
};

/// How far code in C looks into an object: what its items are; what they hold as well; that, and whether it is equal to
/// something.
enum class Reading : uint8_t { kItems, kAll, kEqual };

/// What the tracer does with a call.
/// Where a function of torch.jit.script keeps what it was made of.
inline constexpr const char* kScriptedSource = "_torchdynamo_inline";

struct CallPlan {
  enum class Kind : uint8_t {
    kEnter,      ///< Python code: the VM runs it
    kTorch,      ///< reaches the torch function mode
    kFalse,      ///< has_torch_function of plain tensors
    kTrue,       ///< the same where a mode of the program is on
    kModes,      ///< asks for torch-function modes
    kPushMode,   ///< puts one on the stack
    kPopMode,    ///< takes one off
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
  PyObject* source = nullptr;    // kEnter: the function in Python that is called in place of the callable
};

/// The features of one tracer.
struct TraceFeatures {
  TracerParts* parts = nullptr;
  NumpyTracing* numpy = nullptr;
  CheckpointTracing* checkpoints = nullptr;
  FunctionTracing* functions = nullptr;
  TransformTracing* transforms = nullptr;
  TurnTracing* turns = nullptr;
  NumberTracing* numbers = nullptr;
  GradientTracing* gradients = nullptr;
  HistoryTracing* histories = nullptr;
  IteratorTracing* iterators = nullptr;
  OriginTracing* origins = nullptr;
  ReadTracing* reads = nullptr;
  WriteTracing* writes = nullptr;
  LifetimeTracing* lifetimes = nullptr;
  LoopTracing* loops = nullptr;
  TorchTracing* torch = nullptr;
  ValueTracing* values = nullptr;
  CallTracing* calls = nullptr;
  ModeStack* modes = nullptr;
  TraceEnds* ends = nullptr;
};

/// Where a frame runs for real on an idle stretch (EntryCache::idle_from).
struct IdleWay {
  const Frame* frame = nullptr;
  IdleStretch stretch;
  bool ends = false;  // with the present instruction
  /// Whether the frame is still on it, before its next instruction.
  bool goes_on(const Frame& f) {
    const int at = f.offset();
    if (&f != frame || ends || at < stretch.from || at > stretch.to) return false;
    ends = std::find(stretch.ends.begin(), stretch.ends.end(), at) != stretch.ends.end();
    return true;
  }
};

/// One call of a compiled function, as far as more than one feature deals with it.
class TraceContext {
 public:
  enum class State : uint8_t {
    kOff,  // before the compiled function's frame, and after it
    kTracing,
    kBroken,     // a break happened in the present instruction of some frame, which goes on for real
    kUnwinding,  // the trace is given up: frames end, past their handlers, up to its root, which lands
    kResuming,   // an entry restored the frame; the next instruction is to run for real
    kConcrete,   // the program runs for real: frames marked as roots and new ones look for entries
  };
  /// While code is traced ahead of its time: what happens there may not be seen, and a graph break ends it.
  struct Ahead {
    size_t born = 0;  // what was made before it began
    std::string problem;
  };

  TraceContext(TraceOwner& of, TorchApi& host) : owner(of), api(host) {}
  TraceContext(const TraceContext&) = delete;
  TraceContext& operator=(const TraceContext&) = delete;

  bool tracing() const { return state == State::kTracing && bypass == 0; }
  /// Ends the trace here: the program goes on for real. False with a Python error set.
  bool graph_break(const std::string& reason, bool stay_eager = false);
  /// Where the program stands, and why that matters.
  BreakInfo here(std::string reason) const;
  UserLocation user_location() const;
  /// Whether graphs may begin in the frame, between two instructions of it.
  bool may_be_root(const Frame& f) const;
  /// The calls of modules' methods that are under way break the graph: later traces end before them.
  void note_broken_calls();
  /// Whether the graph is to break where the frame is entered, which can have graphs of its own at once.
  bool breaks_inside(const Frame& f) const;
  /// Whether the frame is a generator's that the root makes, while the generators of that code are to be made outside of graphs.
  bool makes_apart(const Frame& f) const;
  /// The tape's slot of a tensor, which becomes an input where it is a new one; -1: it has no meta form.
  int slot_for(PyObject* tensor);
  /// When the trace made it, as a count; nothing: it did not.
  std::optional<size_t> born_at(PyObject* object) const;
  void mark_born(PyObject* object);

  TraceOwner& owner;
  TorchApi& api;
  TraceFeatures features;
  State state = State::kOff;
  int bypass = 0;                // while it is not 0, what Python runs is no part of the trace
  std::unique_ptr<Trace> trace;  // null: none is open
  std::vector<Frame*> frames;    // of the program, the innermost last
  Frame* root = nullptr;         // whose instructions the trace records
  bool stopped = false;          // no more traces in this call
  bool call_again = false;       // the trace of the call, which was taken back, is made once more
  IdleWay idle;                  // no trace begins on it
  bool dry_run = false;          // see Tracer::dry_run()
  std::string found;             // then: why the call is no function that compiles as one graph
  bool switches_grad = false;    // and: some of it runs in another grad mode than the call
  Ahead* ahead = nullptr;
  std::vector<const CompiledFunction*> whole;  // with fullgraph, whose originals are traced, the innermost last
};

/// What a feature of the tracer works with. Features call each other's functions; nobody else sees their state.
class TraceFeature {
 public:
  explicit TraceFeature(TraceContext& context)
      : context_(context), owner_(context.owner), api_(context.api), bypass_(context.bypass), trace_(context.trace) {}
  TraceFeature(const TraceFeature&) = delete;
  TraceFeature& operator=(const TraceFeature&) = delete;

 protected:
  using State = TraceContext::State;
  ~TraceFeature() = default;

  bool tracing() const { return context_.tracing(); }
  bool graph_break(const std::string& reason, bool stay_eager = false) {
    return context_.graph_break(reason, stay_eager);
  }
  BreakInfo here(std::string reason) const { return context_.here(std::move(reason)); }
  UserLocation user_location() const { return context_.user_location(); }
  int slot_for(PyObject* tensor) { return context_.slot_for(tensor); }
  std::optional<size_t> born_at(PyObject* object) const { return context_.born_at(object); }
  bool born(PyObject* object) const { return born_at(object).has_value(); }
  void mark_born(PyObject* object) { context_.mark_born(object); }

  NumpyTracing& numpy() const { return *context_.features.numpy; }
  CheckpointTracing& checkpoints() const { return *context_.features.checkpoints; }
  FunctionTracing& functions() const { return *context_.features.functions; }
  TransformTracing& transforms() const { return *context_.features.transforms; }
  TurnTracing& turns() const { return *context_.features.turns; }
  NumberTracing& numbers() const { return *context_.features.numbers; }
  GradientTracing& gradients() const { return *context_.features.gradients; }
  HistoryTracing& histories() const { return *context_.features.histories; }
  IteratorTracing& iterators() const { return *context_.features.iterators; }
  OriginTracing& origins() const { return *context_.features.origins; }
  ReadTracing& reads() const { return *context_.features.reads; }
  WriteTracing& writes() const { return *context_.features.writes; }
  LifetimeTracing& lifetimes() const { return *context_.features.lifetimes; }
  LoopTracing& loops() const { return *context_.features.loops; }
  TorchTracing& torch() const { return *context_.features.torch; }
  ValueTracing& values() const { return *context_.features.values; }
  CallTracing& calls() const { return *context_.features.calls; }
  ModeStack& modes() const { return *context_.features.modes; }
  TraceEnds& ends() const { return *context_.features.ends; }

  TraceContext& context_;
  TraceOwner& owner_;
  TorchApi& api_;
  int& bypass_;
  const std::unique_ptr<Trace>& trace_;
};

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

}  // namespace tatara::capture
