// The tracer: watches the VM execute a compiled function, records tensor operations on a tape, and turns what it saw into
// cache entries.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/graph_from_tape.h"
#include "capture/interrupts.h"
#include "capture/owner.h"
#include "capture/package.h"
#include "capture/vm.h"
#include "support/options.h"

namespace tatara::capture {

/// The calls that torch.func's transforms are made of.
enum class TransformCall : uint8_t {
  kNone,
  kEnterGrad,
  kEnterJvp,
  kEnterVmap,
  kEnterDual,
  kExit,
  kExitDual,
  kWrap,
  kUnwrap,
  kAllowVariables,
  kGradients,
  kBatchIn,
  kBatchOut,
  kIsBatched,
  kMakeDual,
  kUnpackDual,
  kForwardSwitch,
  kLoadRules,
  kOldVmap,  // the level of torch._vmap_internals begins or ends
  kCheckpoint,
  kRegion,
  kReentrant,
  kRegionMark,
  kUnwrapDead,
  kHang,
  kLinearize,
  kRecord,
  kReplay,
  kStop,
  kAsks,  // for what is not so while the trace is open
};
TransformCall transform_call_of(PyObject* callable);

/// One call of a compiled function that did not end in a plain guard hit.
class Tracer final : public VmObserver {
 public:
  Tracer(TraceOwner& owner, TorchApi& api, PyObject* code);
  ~Tracer() override;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// The tracer of this thread that is at work, or null.
  static Tracer* current();
  bool at_work() const { return state_ == State::kTracing || state_ == State::kUnwinding || bypass_ > 0; }

  /// Calls `function`; its frame starts with `hit` (an entry that ends in a break) or with a new trace.
  PyObject* run(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                std::vector<PyObject*> roots, Entry* hit, std::vector<PyObject*> objects);

  PyObject* torch_function(PyObject* func, PyObject* args, PyObject* kwargs);
  /// The same, called by torch for the mode, with the types of the arguments.
  PyObject* handle_torch_function(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs);
  /// Where one of the types of a torch call's arguments handles such calls itself, that happens once, outside of graphs. False
  /// with a Python error set.
  bool leave_to_others(PyObject* types);

  /// run() shall only find out what the call does: nothing of it happens, and its result holds placeholders.
  void only_look() { looking_ = true; }
  /// After that: why the call is no function of its tensor arguments that compiles as one graph; empty: it is.
  const std::string& found_problem() const { return found_; }
  /// Some of it runs in another grad mode than the call.
  bool switches_grad() const { return switches_grad_; }
  /// A signal has ended the look, and waits to be dealt with.
  bool was_cut() const { return cut_; }
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
  int raise_handled(Frame&) override;
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
  enum class State : uint8_t {
    kOff,  // before the compiled function's frame, and after it
    kTracing,
    kBroken,     // a break happened in the present instruction of some frame, which goes on for real
    kUnwinding,  // the trace is given up: frames end, past their handlers, up to its root, which lands
    kResuming,   // an entry restored the frame; the next instruction is to run for real
    kConcrete,   // the program runs for real: frames marked as roots and new ones look for entries
  };
  struct Trace;
  struct CallPlan;

  bool tracing() const { return state_ == State::kTracing && bypass_ == 0; }
  /// `places`: where in the frame's locals and stack each root stands, or -1.
  /// From `cells_from` on the roots are cells of the frame's function.
  bool try_begin(Frame& f, std::vector<PyObject*> roots, const std::vector<int>& places, size_t cells_from = SIZE_MAX);
  FrameAction at_boundary(Frame& f);
  /// Looks for an entry at the frame's present point, or starts a trace there; `made`: one or the other.
  FrameAction start_here(Frame& f, bool& made);
  FrameAction enter_other_compiler(Frame& f);
  bool may_be_root(Frame& f) const;
  bool holds_tensors(Frame& f) const;
  FrameAction apply(Frame& f, Entry& entry, const std::vector<PyObject*>& objects);
  /// False with a Python error set, or without one: the program is to run instead.
  bool run_entry(Entry& entry, const std::vector<PyObject*>& objects, std::vector<Ref>& made);
  RecipeWorld recipe_world();
  /// What is being handled where the entry ends, where that is not what was at its begin: false where it cannot be made.
  bool want_handled(Entry& entry, RecipeBuilder& builder, PyObject* handled) const;
  /// False: what ended meanwhile has broken the trace.
  bool snapshot(Frame& f);
  // The end of objects (tracer_lifetimes.cpp).
  /// As graph_break(), but the frame does not go on with another graph.
  bool break_for_good(const std::string& reason);
  /// After a break: the trace holds nothing any more from here on, not only from the next instruction of its frame.
  bool leave_trace();
  /// Breaks where the program notices that `old`, which is about to be dropped, ends. False with a Python error set.
  bool break_if_noticed(PyObject* old);
  /// What a call would make whose end the program notices; empty: nothing.
  std::string starts_life(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const;
  bool made_here(PyObject* tensor) const;
  /// Among a frame's locals and stack is an object that nobody else holds, and whose end the program notices.
  bool holds_noticed(const std::vector<PyObject*>& roots) const;
  /// Why a generator that the trace made has to be closed when the function returns; empty: none.
  std::string waiting_generator() const;
  /// A generator that fails when it is closed says so on sys.stderr, where code in C drops it.
  void break_if_closing_fails(const Frame& f, FrameExit how, PyObject* result);
  /// Generators that only the last snapshot holds are closed, as part of the trace. False: that has broken it.
  bool let_generators_end(const Frame& f);
  /// Ends the trace here: the program goes on for real. False with a Python error set.
  bool graph_break(const std::string& reason, bool stay_eager = false);
  /// The trace is complete: numbers are themselves again.
  void settle_symbols();
  /// Makes every placeholder real. False with a Python error set.
  bool run_tape();
  /// False with a Python error set.
  bool finish_return(Frame& f, PyObject* result);
  bool run_return(Frame& f, std::unique_ptr<Entry> entry);
  /// The end of a call that is only looked at.
  void finish_look(PyObject* result);
  /// An operator has failed, with a Python error set, where eager would have done less than the trace. All that the trace did
  /// is taken back, so that the program can run again from its start. False: not possible.
  bool take_back();
  bool can_take_back() const;
  /// The same where the program cannot run again: what was written before the operator stays.
  void undo_later_writes();
  /// After take_back(): the frames up to the root end, past their handlers. False with a Python error set.
  bool unwind();
  /// The same, also where not all is taken back: then the root raises the Python error that is set now. False.
  bool refuse();
  /// The root frame is where the trace began, and goes on for real; or it ends, with the error of refuse().
  FrameAction land(Frame& f);
  /// An exception leaves the root.
  FrameAction leave_root();
  /// After take_back(), because results were other than inferred: later calls run in eager. False: fullgraph, see refuse().
  bool note_mismatch(std::unique_ptr<Entry> entry, bool prepared);
  /// A switch of the host's: thrown, and noted as an effect.
  PyObject* throw_switch(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t keywords);
  /// Gives the switches that the trace has thrown the state that they had before it.
  void undo_switches();
  void drop_finalizers();
  void drop_undone_switches();
  void begin_transaction();
  void end_trace();
  void take_sources();
  /// Compiles what the trace has found. False with a Python error set.
  bool prepare_entry(Entry& entry);
  /// Whether the first call may have its results from the plans of `entry`: nothing but the tape has happened in it.
  bool may_run_compiled(const Entry& entry) const;
  /// Somebody outside of the trace holds a placeholder that is no result.
  bool placeholders_seen(const Entry& entry) const;
  /// In place of run_tape(), once the entry is prepared.
  bool run_compiled(Frame& f, Entry& entry);
  void set_mode(bool on);
  bool push_mode();
  /// Takes our modes off torch's stack that nobody needs, as far as torch itself has not set them aside.
  void drop_modes(size_t left = 0);

  // Signals (tracer_interrupts.cpp).
  /// Ends the trace where it stands: all that was recorded happens, and nothing is kept. False with a Python error set.
  bool cut_trace();
  /// What a signal ends early: then false.
  bool cancellable(const std::function<void()>& work) const;
  /// A signal waits, and what was done since `start` takes long and can be taken back.
  bool may_stop(std::chrono::steady_clock::time_point start) const;
  BreakInfo here(std::string reason) const;
  void user_location(std::string& file, std::string& function, int& line) const;

  // Objects.
  /// When the trace made it, as a count; nothing: it did not.
  std::optional<size_t> born_at(PyObject* object) const;
  bool born(PyObject* object) const { return born_at(object).has_value(); }
  void mark_born(PyObject* object);
  void mark_starred(Frame& f);
  void note_result(PyObject* object);
  void watch_container(PyObject* object, bool ordered = true);
  // Where objects come from (tracer_origins.cpp).
  Origin origin(PyObject* object);
  bool contents_guarded(PyObject* object) const;
  bool is_same_in_each_call(PyObject* object) const;
  void find(PyObject* object);
  void find_parts(PyObject* holder);
  void find_surroundings(const Frame& f, bool root);
  /// The object decides something by its identity (a key, a search).
  void pin(PyObject* object);
  std::set<PyObject*> changed_objects(const std::vector<PyObject*>& guarded);
  void note_identities(Identities& identities);
  void adopt(PyObject* made);
  void adopt_parts(PyObject* container);
  void outlives(PyObject* object);
  bool find_weak(PyObject* reference);
  bool find_by_name(PyObject* object);
  bool is_of_the_call(PyObject* object) const;
  void watch_class_of(PyObject* object);
  /// How far code in C looks into an object: what its items are; what they hold as well; that, and whether it is equal to
  /// something.
  enum class Reading : uint8_t { kItems, kAll, kEqual };
  static Reading how_read(PyObject* callable, std::string_view name);
  /// What it may read becomes a guard. Where it cannot, the graph breaks. False with a Python error set.
  bool watch_contents(PyObject* object, Reading reading);
  struct Settling;
  void settle(PyObject* object, Settling& work);
  void watch_exception(PyObject* error);
  bool watch_function(Frame& f);
  bool found_by_class(Frame& f, PyObject* function);
  /// Guards what is found; with `number` a placeholder may stand for it, which is returned as a new reference.
  PyObject* watch_lookup(PyObject* owner, PyObject* name, bool number = false);
  PyObject* watch_found(PyObject* owner, PyObject* name, bool number);
  PyObject* watch_class(PyTypeObject* type, PyObject* name, bool number);
  PyObject* watch_module(PyObject* module, PyObject* name, bool number);
  PyObject* watch_in_dict(PyObject* owner, PyObject* name, bool number, PyObject* made);
  void watch_older_classes(PyTypeObject* type, PyObject* name);
  void find_in_class(PyObject* value);
  void watch_super(PyObject* super, PyObject* name);
  void watch_value(PyObject* owner, PyObject* name);
  void watch_own_dict(PyObject* owner);
  void watch_tensor_attribute(PyObject* tensor, PyObject* name);
  void watch_all(PyObject* owner);
  bool looking_up_ = false;  // what a look-up's own hooks look up is no read of the program's
  void watch_getter(PyObject* getter, PyObject* owner);
  PyObject* call_attribute(PyObject* target, PyObject* const* args, Py_ssize_t nargs);
  /// Iterators from before the trace would not be moved on by a later run. False with a Python error set.
  bool is_raw_memory(PyObject* object) const;
  bool break_if_begun(PyObject* container);
  bool outside_iterator(PyObject* object) const;
  bool break_if_moved(PyObject* iterator);
  bool break_if_state(PyObject* owner, PyObject* name);
  bool break_if_moved(PyObject* callable, PyObject* const* args, Py_ssize_t count);
  /// Something made in the trace changes.
  /// False with a Python error set: what is traced ahead changes nothing.
  bool touch(PyObject* object);
  /// The __dict__ of an object made in the trace was made with it.
  void adopt_dict(PyObject* owner);
  /// The guarded object whose __dict__ this is, or null.
  PyObject* instance_of(PyObject* dict);
  /// A later run finds this older object again.
  bool reachable(PyObject* object);

  // Writes (tracer_writes.cpp): done here and noted as effects, or a break and left to the VM (kNotHandled, not_handled()).
  int write_break(const std::string& reason);
  int write_attribute(PyObject* owner, PyObject* name, PyObject* value);
  int write_item(PyObject* container, PyObject* key, PyObject* value);
  using Perform = std::function<PyObject*()>;
  /// The method `name` of the C type `type` on `target`.
  PyObject* mutate(PyTypeObject* type, PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                   bool keywords, const Perform& perform);
  PyObject* mutate_list(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                        const Perform& perform);
  PyObject* mutate_dict(PyTypeObject* type, PyObject* target, const std::string& name,
                        std::span<PyObject* const> operands, bool keywords, const Perform& perform);
  PyObject* mutate_other(PyObject* target, const std::string& name, std::span<PyObject* const> operands,
                         const Perform& perform);
  /// The write depends on what the object holds: its contents become a guard, and the result the effect.
  PyObject* rewrite(PyObject* target, const Perform& perform);
  void pin_operands(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  void pin_keys(PyObject* table);
  bool watch_searched(PyObject* container, PyObject* table);
  bool watch_operands(PyObject* callable, const CallPlan& plan, PyObject* const* args, Py_ssize_t nargs,
                      Py_ssize_t keywords);
  /// dict.get() and the like: watches the key.
  bool reads_one_key(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  PyObject* call_mutator(Frame& f, PyObject* callable, const CallPlan& plan, std::span<PyObject* const> args,
                         bool keywords, const Perform& perform);
  /// An item of a defaultdict, which it may make.
  PyObject* default_item(PyObject* dict, PyObject* key);
  PyObject* inplace_operator(int op, PyObject* left, PyObject* right);
  void note_effect(Effect effect);
  void note_call(PyTypeObject* type, PyObject* target, const char* method, std::initializer_list<PyObject*> operands);

  // Gradients (tracer_gradients.cpp).
  struct EngineCall;
  struct FunctionCall;
  bool is_engine_call(PyObject* callable) const;
  PyObject* run_backward(PyObject* args, PyObject* kwargs);
  std::string read_engine_call(PyObject* args, PyObject* kwargs, EngineCall& call);
  std::string uses_freed(const std::vector<int>& roots) const;
  Ref record_gradients(TapeNode node, const EngineCall& call,
                       const std::vector<std::optional<GradientLayout>>& layouts);
  std::vector<int64_t> gradient_place(PyObject* variable, const GradientLayout& layout, bool accumulate) const;
  /// A placeholder for a gradient by a tensor. -1, and no object, with a Python error set.
  int add_gradient(const TapeSlot& variable, const std::vector<int64_t>& strides, Ref& made);
  int gradient_placeholder(PyObject* variable, const GradientLayout& layout, bool accumulate, Ref& made);
  /// Adds a gradient to `.grad` (null: there is none yet), as the engine does it.
  bool accumulate(PyObject* tensor, PyObject* present, PyObject* gradient);
  // Hooks (tracer_hooks.cpp).
  PyObject* register_hook(const Frame& f, PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  bool leaves_hooked(const std::vector<int>& slots) const;
  bool read_hook_call(PyObject* tensor, FunctionCall& call);
  std::string hooks_problem(const EngineCall& call, const std::vector<std::optional<GradientLayout>>& layouts);
  std::vector<size_t> order_of_hooks(const EngineCall& call) const;
  Ref call_hooks(PyObject* hooks, PyObject* gradient, PyObject* variable);
  bool call_hooks_after(PyObject* hooks, PyObject* variable);
  bool add_in_place(PyObject* sum, PyObject* gradient);
  // Floats that the tape computes (tracer_numbers.cpp).
  /// `function`: null for that of Python's `operator`.
  bool from_numbers(int slot) const;  // a number that no tensor decides
  Ref derive_number(const char* name, PyObject* a, PyObject* b, PyObject* function = nullptr);
  void need_number(int slot);
  /// A call of Python's own with numbers that vary: types as functions, `round`, the module math. Null without an error set:
  /// it is none of these.
  Ref number_call(PyObject* callable, PyObject* args);
  /// `item in container` and `container[key]` by numbers that vary, where the container holds plain data: what comes of it is
  /// guarded, or computed by the tape. Null without an error set: by value. `absent`: what a missing key gives; null: by value.
  Ref number_in(PyObject* container, PyObject* item);
  Ref number_item(PyObject* container, PyObject* key, PyObject* absent = nullptr);
  Ref dict_get(PyObject* callable, PyObject* args);
  Ref ask_table(PyObject* table, const char* method, PyObject* key, bool decides);
  /// tensor.item() of a counter, as a float of the tape; null without an error set where that is not known.
  PyObject* item_number(PyObject* func, PyObject* tensor);
  Ref value_of(int slot);
  Ref record_number(TapeNode node, PyObject* value);
  int record_number_node(TapeNode node, PyObject* value);
  /// An operand of such arithmetic: its value now, and how it stands on the tape. False for what is no number.
  bool number_operand(PyObject* operand, Ref& value, Ref& on_tape, bool& of_tensor);

  /// Whether requires_grad_() leaves the tensor as it is.
  bool changes_nothing(PyObject* args, PyObject* kwargs);
  /// requires_grad_() of a tensor without a history; false where the trace cannot do it.
  bool make_leaf(PyObject* func, PyObject* args, PyObject* kwargs);
  bool is_made_leaf(int slot) const;
  /// A factory with requires_grad=True.
  PyObject* record_leaf(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// An operator on lists of tensors (torch._foreach_*), one by one.
  PyObject* each_tensor(const std::string& name, PyObject* args, PyObject* kwargs);
  PyObject* group_tensors(PyObject* const* args, Py_ssize_t nargs);
  PyObject* gradient_of(PyObject* tensor);
  void set_gradient(PyObject* tensor, PyObject* value);
  int write_gradient(PyObject* tensor, PyObject* value);
  std::vector<int> slots_cleared_first() const;
  void perform_later_effects();

  // torch.func's transforms (tracer_transforms.cpp).
  PyObject* transform_call(TransformCall kind, PyObject* callable, PyObject* const* raw, Py_ssize_t nargs,
                           PyObject* kwnames);
  PyObject* transform_break(const std::string& reason);
  int transform_operand(PyObject* tensor, std::string& problem);
  int placeholder_like(int slot, int level);
  void record_step(FuncStep step, const char* name, Ref func, Ref args, std::vector<int> outputs,
                   std::vector<bool> histories = {});
  /// Which gradients are on, and the level.
  void note_modes(TapeNode& node) const { note_modes(node, api_.grad_enabled()); }
  void note_modes(TapeNode& node, bool mode) const;
  struct Level;
  void keep_switch(PyObject* callable, const char* reader);
  PyObject* enter_level(Ref callable, Level level, Ref args, const char* name);
  PyObject* exit_level(Ref callable, Ref args);
  int open_level(int number) const;
  PyObject* wrap_tensor(PyObject* callable, PyObject* tensor, int number);
  PyObject* unwrap_tensor(PyObject* callable, PyObject* tensor, int number);
  bool make_variable(PyObject* args, PyObject* kwargs);
  PyObject* level_gradients(PyObject* outputs, PyObject* inputs, PyObject* given, bool keep, bool create);
  /// Why eager refuses this call inside the levels at work, or does another thing than the graph; empty: it does not.
  std::string level_problem(const std::string& name, PyObject* args, PyObject* kwargs) const;
  PyObject* enter_dual(PyObject* callable);
  PyObject* exit_dual(PyObject* callable);
  PyObject* make_dual(PyObject* callable, PyObject* tensor, PyObject* tangent, int level);
  PyObject* unpack_dual(PyObject* callable, PyObject* tensor, int level);
  PyObject* batch_in(PyObject* callable, PyObject* tensor, int dim, int number);
  PyObject* batch_out(PyObject* callable, PyObject* tensor, int number, PyObject* size, int dim);
  /// Whether the tensor differs from example to example of a level of vmap.
  bool is_batched(int slot, int level) const;
  /// The tensor whose examples along `dim` the slot stands for; -1 when it is anything else.
  int whole_batch(int slot, int dim) const;
  /// The tangent that the slot, a dual tensor, was made with and still has; -1 when it is anything else.
  int tangent_of(int dual);
  /// Whether tensors of one shape lie in their memory in the same way: else the host copies a tangent into its primal's form.
  bool same_form(int one, int other);
  bool is_made_from(int slot, int source) const;
  std::string level_write_problem(const std::string& name, PyObject* args, PyObject* kwargs) const;

  // torch.func.linearize (tracer_linearize.cpp).
  PyObject* linearize(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* record_calls(PyObject* function, PyObject* tensors);
  PyObject* replay_calls(PyObject* recorded, PyObject* values, PyObject* arguments);
  std::string recording_problem(const std::vector<TapeNode>& nodes, size_t slots, const std::vector<int>& arguments,
                                std::vector<int>& reads) const;

  // Checkpoints (tracer_checkpoint.cpp).
  PyObject* enter_checkpoint(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* enter_reentrant(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* call_for_checkpoint(PackageFunction function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* make_region(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* mark_region(PyObject* state, PyObject* step);
  bool reads_history(size_t first, PyObject* arguments) const;
  std::string region_problem() const;

  // Functions with a backward of the user's (tracer_functions.cpp).
  struct AheadRun;
  AheadRun trace_ahead(const std::function<Ref()>& call);
  static bool is_function_apply(PyObject* callable);
  PyObject* apply_function(PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  PyObject* hang_function(PyObject* callable, PyObject* const* args);
  std::string read_function_call(PyObject* outputs, FunctionCall& call);
  Ref make_cotangents(const FunctionCall& call, CustomBackward& made);
  std::string trace_backward(const FunctionCall& call, CustomBackward& made,
                             const std::function<Ref(PyObject*)>& backward);
  void record_custom(PyObject* func, const FunctionCall& call, PyObject* returned, std::string name,
                     std::shared_ptr<const CustomBackward> made);
  bool takes_backwards() const;
  std::string read_function_gradients(PyObject* returned, const FunctionCall& call, CustomBackward& made);
  std::string foreign_write(const TapeNode& node, size_t slots, const std::vector<int>& given) const;
  std::string function_nodes_problem(const FunctionCall& call, const CustomBackward& made, size_t slots) const;

  // NumPy (numpy_tracer.cpp, numpy_calls.cpp): the call runs for real, then goes onto the tape.
  struct NumpyCall {
    Ref func, args, kwargs;  // args: a tuple; kwargs: a dict or null
    std::string name;        // of the ufunc or function: "add", "sum", "getitem"
    bool mutates = false;
  };
  /// While it lives, C code that reads what Python code gives it is running.
  struct Reader {
    Reader(Tracer& tracer, PyObject* callable);
    ~Reader() { tracer_.reader_depth_ = before_; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    Tracer& tracer_;
    size_t before_;
  };
  /// Runs the program's own function with a cache (functools.lru_cache), or breaks the graph before it.
  PyObject* call_cached(PyObject* callable, std::span<PyObject* const> args, size_t nargsf, PyObject* kwnames);
  void watch_cached(PyObject* callable, std::span<PyObject* const> args, PyObject* kwnames, PyObject* result);
  bool break_if_cached(PyObject* target);
  /// Whether `o`, given to code in C, is a function in C that changes a container which existed before, or a partial of one.
  bool hides_change(PyObject* o) const;
  /// Whether what is said with these arguments (a message) is said once, since a function with a cache is running: it is
  /// said for real then, and is no part of the trace.
  bool says_once(std::span<PyObject* const> args);
  /// Code of the standard library's logging, before it runs. True: it is to run for real.
  bool logs(const Frame& f);
  enum class Cast : uint8_t { kSame, kCast, kUnknown, kFailed };
  /// The operands with the casts that autocast makes, on the tape. kFailed: a Python error is set.
  bool reads_batch(PyObject* args, PyObject* kwargs) const;
  Cast cast_operands(const TorchFunction& fn, PyObject* args, PyObject* kwargs, Ref& cast_args, Ref& cast_kwargs);
  bool numpy_value(PyObject* object) const;
  bool numpy_inside(PyObject* object) const;
  PyObject* numpy_vectorcall(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* numpy_call(PyObject* callable, PyObject* args, PyObject* kwargs);
  PyObject* numpy_dispatcher(PyObject* callable, PyObject* args, PyObject* kwargs);
  PyObject* numpy_builtin(PyObject* callable, const std::string& name, PyObject* args, PyObject* kwargs);
  PyObject* numpy_method(PyObject* callable, PyObject* self, const std::string& name, PyObject* args, PyObject* kwargs);
  PyObject* numpy_foreign(PyObject* callable, const std::string& name, PyObject* args, PyObject* kwargs);
  /// Breaks the graph, then lets the VM go on: not_handled(), or null with an error.
  PyObject* numpy_break(const std::string& reason);
  PyObject* numpy_operator(const char* op, const char* name, std::initializer_list<PyObject*> operands,
                           bool mutates = false);
  PyObject* numpy_record(NumpyCall call);
  /// A value becomes text: not_handled(), once what it shows is watched.
  PyObject* show(PyObject* value);
  PyObject* numpy_binary(int op, PyObject* left, PyObject* right);
  PyObject* numpy_compare(int op, PyObject* left, PyObject* right);
  PyObject* numpy_get_item(PyObject* container, PyObject* key);
  int numpy_set_item(PyObject* container, PyObject* key, PyObject* value);
  PyObject* numpy_iterate(PyObject* iterator);
  int numpy_unpack(PyObject* sequence, int before, int after, PyObject** out);
  PyObject* numpy_attribute(PyObject* owner, PyObject* name);
  int numpy_slot(PyObject* value);
  Ref numpy_to_tape(PyObject* value, bool& uses, std::string& problem);
  void numpy_take(PyObject* result, TapeNode& node, std::string& problem);

  PyObject* record(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  bool record_result(PyObject* func, const TorchFunction& fn, Ref args, Ref kwargs, Ref device, Ref& result);
  enum class Inferred : uint8_t { kDone, kUnknown, kWrong };
  Inferred record_inferred(PyObject* func, const TorchFunction& fn, const Ref& args, const Ref& kwargs,
                           const Ref& device, Ref& result);
  /// `fresh`: some result is a new tensor; `known`: the registry has the operator, so one that is not in place writes nothing.
  void finish_node(TapeNode& node, bool fresh, bool known);
  /// What a call that needs values gives when these are the same in every call; null with no error set otherwise.
  PyObject* answer_constant(PyObject* func, PyObject* args, PyObject* kwargs);
  // Symbolic integers in calls (symbolic_calls.cpp).
  void settle_for_arrays(PyObject* left, PyObject* right);
  /// The placeholder for a guarded number, whose symbol (of a float: the first) is `symbol`.
  Ref number_on_tape(int object, Expr symbol);
  /// A float whose value varies may be an operand of this call as it is.
  bool same_real_type(PyObject* tensors);
  bool takes_number(const std::string& function, PyObject* args, PyObject* kwargs);
  /// The placeholder for a number read from a dict, list or cell; null where its value is to be guarded.
  PyObject* watched_number(NumberPlace place, PyObject* value);
  /// A tuple with such numbers among its items, in the place of one from outside.
  PyObject* watched_tuple(NumberPlace place, PyObject* tuple);
  Ref small_number(Expr symbol, PyObject* value);
  void place_symbols(Frame& f, const std::vector<int>& places);
  void take_back_symbols();
  std::vector<int> argument_places(const Frame& f, const std::vector<PyObject*>& roots) const;
  // Numbers that meet code in C (number_boundary.cpp).
  /// Numbers that code in C may find from `object` on become plain ones, guarded by value.
  void settle_reachable(PyObject* object);
  /// The same for what a call of `callable` gives to code in C; false where that keeps them as they are.
  bool settle_arguments(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t keywords);
  /// Whether an operator with a number that varies and `other` needs no value.
  bool meets_numbers(PyObject* other) const;
  bool holds_numbers(PyObject* container) const;
  void settle_operands(PyObject* left, PyObject* right);
  PyObject* is_number(PyObject* left, PyObject* right, bool invert);
  PyObject* identity_of_numbers(PyObject* callable, std::string_view name, PyObject* const* args, Py_ssize_t nargs);
  void settle_floats(std::span<PyObject* const> objects);
  /// What a function in Python gives to code in C that called it.
  void settle_result(const Frame& f, PyObject* result);
  bool symbolic_arguments(PyObject* callable, PyObject* const* args, Py_ssize_t count);
  PyObject* symbolic_call(PyObject* callable, PyObject* args, PyObject* kwargs);
  PyObject* symbolic_length(PyObject* tensor);
  PyObject* symbolic_operator(PyObject* tensor, const char* method, PyObject* other);
  PyObject* symbolic_binary(int op, PyObject* left, PyObject* right);
  PyObject* symbolic_compare(int op, PyObject* left, PyObject* right);
  PyObject* symbolic_slice(PyObject* size, PyObject* key);
  PyObject* symbolic_metadata(const TorchFunction& fn, int slot, PyObject* args, PyObject* kwargs);
  bool specialize_slot(int slot);
  bool specialize_operands(PyObject* args, PyObject* kwargs);
  PyObject* symbolic_size(const std::vector<Expr>& sizes);
  enum class NeedsGrad : uint8_t { kNo, kYes, kUnknown };
  /// Whether the tensor will require grad once it is real.
  NeedsGrad needs_grad(int slot) const;
  std::vector<NeedsGrad> needs_grads() const;  // of all slots
  Ref ask_host(const TapeNode& node, const std::vector<NeedsGrad>& needs) const;
  std::vector<NeedsGrad> ask_histories(size_t n, const std::vector<NeedsGrad>& needs) const;
  bool needs_outer_history();
  long version_of(PyObject* tensor) const;
  PyObject* answer_needs_grad(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// Whether it asks a tensor that may be a view for its base, for its place in there or whether it is one of inference mode.
  bool depends_on_base(const TorchFunction& fn, PyObject* args) const;
  bool made_as_view(int slot) const;
  void note_silent_views(const TapeNode& node);
  bool takes_silent_view(PyObject* args, PyObject* kwargs) const;
  /// Whether the host refuses the call at once, since it would write to a leaf that requires grad, or to a view of one.
  bool writes_to_leaf(const TorchFunction& fn, PyObject* args, PyObject* kwargs);
  bool refused_as_leaf(PyObject* tensor) const;
  /// Whether the answer depends on the levels of transforms around a call that is only looked at.
  bool differs_in_levels(const TorchFunction& fn, PyObject* args) const;
  PyObject* answer_device(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  int slot_for(PyObject* tensor);
  bool note_context(PyObject* variable, const std::string& method, PyObject* given, PyObject* result);
  PyObject* update_scaler(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* stand_in(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  CallPlan plan_call(PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  /// Why the graph breaks before a call that enters a guard of torch's (function_modes.cpp); empty: it is none.
  std::string enters_guard(const Frame& f, PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const;
  /// A question about torch-function modes, asked while ours is off the stack.
  PyObject* ask_modes(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
  /// Whether the exception that is being handled here is the same in each call: false where it is one of a caller's.
  bool knows_handled();

  TraceOwner& owner_;
  TorchApi& api_;
  PyObject* code_;
  State state_ = State::kOff;
  mutable int bypass_ = 0;                   // also while a question is asked that changes nothing here
  std::vector<PyObject*> python_functions_;  // of torch, whose bodies run at present
  bool mode_on_ = false;
  /// Our modes on torch's stack: for each, how many handlers were running when it came there. While a handler runs, torch
  /// has set the innermost mode aside, and puts it back itself.
  std::vector<int> modes_;
  int handlers_ = 0;
  bool collected_ = false;  // the garbage collector was on when the mode was switched on
  bool entered_ = false;
  bool stopped_ = false;                          // no more traces in this call
  bool looking_ = false, switches_grad_ = false;  // see only_look()
  Ref refusal_;                                   // see refuse()
  bool cut_ = false;  // a signal ended what was done ahead of its time, or a compilation: no entry is made
  std::optional<SignalsWait> waiting_;  // while a trace is open
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::string found_;
  /// While code is traced ahead of its time: what happens there may not be seen, and a graph break ends it.
  struct Ahead {
    size_t born = 0;  // what was made before it began
    std::string problem;
  };
  Ahead* ahead_ = nullptr;
  Frame* root_ = nullptr;  // whose instructions the trace records
  Entry* hit_ = nullptr;
  std::vector<PyObject*> hit_objects_;
  std::vector<PyObject*> roots_;
  std::unique_ptr<Trace> trace_;
  std::vector<Frame*> frames_;
  size_t reader_depth_ = 0;              // frames_.size() when C code that reads values was entered; 0: none
  std::vector<Frame*> opaque_;           // run for real, with all they call
  std::vector<Frame*> other_compilers_;  // likewise, but compiled functions that they call are compiled
  Tracer* previous_ = nullptr;
};

}  // namespace tatara::capture
