// The tracer: watches the VM execute a compiled function, records tensor operations on a tape, and turns what it saw into
// cache entries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/entries/owner.h"
#include "capture/trace/trace_context.h"
#include "capture/vm/vm.h"

namespace tatara::capture {

struct CompiledFunction;
struct TracedCall;
struct TracerParts;

/// One call of a compiled function that did not end in a plain guard hit: its life, from frames and entries to the end of each
/// trace. What operations mean in a trace is the features' to say (trace_context.h, *_tracing.h).
class Tracer final : public VmObserver, private TraceFeature {
 public:
  Tracer(TraceOwner& owner, TorchApi& api, PyObject* code);
  ~Tracer() override;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// The tracer of this thread that is at work, or null.
  static Tracer* current() { return present(); }
  /// Calls functions of arrays alone, past the trace that is open (NumpyAlone). Null with a Python error set.
  static PyObject* call_alone(PyObject* callable, PyObject* const* args, size_t nargs);
  /// Calls as if no trace were open. A graph breaks there for the reason that comes first.
  static PyObject* call_apart(PyObject* const* args, size_t nargs);
  bool at_work() const {
    return context_.state == State::kTracing || context_.state == State::kUnwinding || bypass_ > 0;
  }

  /// Calls `function`; its frame starts with `hit` (an entry that ends in a break) or with a new trace.
  PyObject* run(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                std::vector<PyObject*> roots, Entry* hit, std::vector<PyObject*> objects);

  /// What a call of a compiled function is, while this tracer is at work (compiled_in_compiled.cpp).
  enum class Inner : uint8_t { kOriginal, kCompiled, kFailed };
  Inner enter_compiled(CompiledFunction& inner);
  /// The original of one with fullgraph begins or ends.
  void run_whole(const CompiledFunction& inner, bool begins);

  /// A torch call, by torch itself for the mode, with the types of the arguments.
  PyObject* handle_torch_function(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs);
  /// Where one of the types of a torch call's arguments handles such calls itself, that happens once, outside of graphs. False
  /// with a Python error set.
  bool leave_to_others(PyObject* types);
  bool asks_classes(PyObject* types) const;

  /// run() shall only find out what the call does: nothing of it happens, and its result holds placeholders.
  void dry_run() { context_.dry_run = true; }
  /// After that: why the call is no function of its tensor arguments that compiles as one graph; empty: it is.
  const std::string& found_problem() const { return context_.found; }
  /// Some of it runs in another grad mode than the call.
  bool switches_grad() const { return context_.switches_grad; }
  /// A signal has ended the look, and waits to be dealt with.
  bool was_cut() const;
  /// Runs the handlers of signals, between traces: -1 with a Python error set. Where they raise nothing, later traces of this
  /// function wait longer for their own.
  int deliver();

  FrameAction on_frame_enter(Frame&) override;
  void on_frame_exit(Frame&, FrameExit, PyObject*) override;
  int on_interrupt(Frame&) override;
  FrameAction before_instruction(Frame&, int, int) override;
  FrameAction on_exception(Frame&, bool) override;
  PyObject* read_name(Frame&, PyObject*, PyObject*, PyObject*) override;
  PyObject* read_cell(Frame&, int, PyObject*, PyObject*) override;
  PyObject* read_attr(Frame&, PyObject*, PyObject*, bool) override;
  PyObject* read_subscr(Frame&, PyObject*, PyObject*) override;
  PyObject* get_iter(Frame&, PyObject*) override;
  PyObject* for_iter(Frame&, PyObject*) override;
  int unpack(Frame&, PyObject*, int, int, PyObject**) override;
  PyObject* contains(Frame&, PyObject*, PyObject*, bool) override;
  PyObject* compare(Frame&, int, PyObject*, PyObject*) override;
  PyObject* is_op(Frame&, PyObject*, PyObject*, bool) override;
  int truth(Frame&, PyObject*) override;
  int raising(Frame&, PyObject*) override;
  PyObject* call(Frame&, PyObject*, PyObject* const*, size_t, PyObject*) override;
  PyObject* call_ex(Frame&, PyObject*, PyObject*, PyObject*) override;
  PyObject* binary_op(Frame&, int, PyObject*, PyObject*) override;
  PyObject* unary_op(Frame&, UnaryOp, PyObject*) override;
  PyObject* format_value(Frame&, PyObject*, int, PyObject*) override;
  PyObject* convert_value(Frame&, PyObject*, int) override;
  int send(Frame&, PyObject*, PyObject*, PyObject**) override;
  int list_append(Frame&, PyObject*, PyObject*) override;
  int set_add(Frame&, PyObject*, PyObject*) override;
  int obtained(Frame&, Obtained, PyObject*, PyObject*, PyObject*) override;
  PyObject* import_from(Frame&, PyObject*, PyObject*) override;
  PyObject* match_keys(Frame&, PyObject*, PyObject*) override;
  PyObject* match_class(Frame&, PyObject*, PyObject*, Py_ssize_t, PyObject*) override;
  PyObject* get_len(Frame&, PyObject*) override;
  PyObject* read_super_attr(Frame&, PyObject*, PyObject*, PyObject*, PyObject*, bool) override;
  int map_add(Frame&, PyObject*, PyObject*, PyObject*) override;
  void on_build(Frame&, BuildKind, PyObject*) override;
  int write_attr(Frame&, PyObject*, PyObject*, PyObject*) override;
  int write_subscr(Frame&, PyObject*, PyObject*, PyObject*) override;
  int write_name(Frame&, NameScope, PyObject*, PyObject*) override;
  int write_cell(Frame&, int, PyObject*, PyObject*) override;
  int list_extend(Frame&, PyObject*, PyObject*) override;
  int set_update(Frame&, PyObject*, PyObject*) override;
  int dict_update(Frame&, PyObject*, PyObject*) override;
  int dict_merge(Frame&, PyObject*, PyObject*, PyObject*) override;

 private:
  Tracer(std::unique_ptr<TracerParts> parts, PyObject* code);
  struct Aside;

  static Tracer*& present();  // of this thread

  /// Begins the trace of a call of the compiled function, whose frame has just begun.
  bool begin_call(Frame& f);
  /// `places`: where in the frame's locals and stack each root stands, or -1.
  /// From `cells_from` on the roots are cells of the frame's function.
  bool try_begin(Frame& f, std::vector<PyObject*> roots, const std::vector<int>& places, size_t cells_from = SIZE_MAX);
  FrameAction at_boundary(Frame& f, int opcode);
  /// Looks for an entry at the frame's present point, or starts a trace there; `made`: one or the other.
  FrameAction start_here(Frame& f, bool& made);
  FrameAction enter_other_compiler(Frame& f);
  bool holds_tensors(Frame& f) const;
  FrameAction apply(Frame& f, Entry& entry, const std::vector<PyObject*>& objects);
  /// False with a Python error set, or without one: the program is to run instead.
  bool run_entry(Entry& entry, const std::vector<PyObject*>& objects, std::vector<Ref>& made);

  void mark_starred(Frame& f);
  PyObject* call_known(Frame& f, TracedCall call);
  PyObject* look_up_attribute(Frame& f, const TracedCall& call, const CallPlan& plan);
  PyObject* call_source(Frame& f, const TracedCall& call, PyObject* source);

  const std::unique_ptr<TracerParts> parts_;
  PyObject* code_;
  bool entered_ = false;
  Entry* hit_ = nullptr;
  std::vector<PyObject*> hit_objects_;
  std::vector<PyObject*> roots_;
  std::vector<Frame*> opaque_;           // run for real, with all they call
  std::vector<Frame*> other_compilers_;  // likewise, but compiled functions that they call are compiled
  Tracer* previous_ = nullptr;
};

}  // namespace tatara::capture
