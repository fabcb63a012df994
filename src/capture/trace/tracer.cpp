// The tracer's life: from a missed guard, through frames and instructions, to cache entries.
#include "capture/trace/tracer.h"

#include <opcode.h>

#include <numeric>

#include "capture/entries/capture_log.h"
#include "capture/entries/stats.h"
#include "capture/host/known_calls.h"
#include "capture/host/other_compilers.h"
#include "capture/run/runner.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/loop_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/tracer_parts.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"
#include "support/made_once.h"
#include "support/options.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

struct ModeObject {
  PyObject_HEAD
};

PyObject* mode_torch_function(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 3) {
    PyErr_SetString(PyExc_TypeError, "__torch_function__ takes func, types, args and kwargs");
    return nullptr;
  }
  PyObject* kwargs = nargs > 3 && args[3] != Py_None ? args[3] : nullptr;
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr) return PyObject_Call(args[0], args[2], kwargs);
  return tracer->handle_torch_function(args[0], args[1], args[2], kwargs);
}

bool is_return(int opcode) {
#ifdef RETURN_CONST
  if (opcode == RETURN_CONST) return true;
#endif
  return opcode == RETURN_VALUE;
}

}  // namespace

PyObject* mode_object() {
  return made_once([] {
    static PyMethodDef methods[] = {
        {"__torch_function__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mode_torch_function)),
         METH_FASTCALL, "Records torch calls while a compiled function is traced."},
        {nullptr, nullptr, 0, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.TorchMode", sizeof(ModeObject), 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject* type = PyType_FromSpec(&spec);
    return PyObject_CallNoArgs(type);
  });
}

Tracer::Tracer(TraceOwner& owner, TorchApi& api, PyObject* code)
    : Tracer(std::make_unique<TracerParts>(owner, api), code) {}

Tracer::Tracer(std::unique_ptr<TracerParts> parts, PyObject* code)
    : TraceFeature(parts->context), parts_(std::move(parts)), code_(code) {
  previous_ = present();
  present() = this;
}

Tracer::~Tracer() { present() = previous_; }

void ModeStack::set_mode(bool on) {
  if (!on) drop_modes();
  if (on == mode_on_) return;
  // No collection of cycles while a trace is open: finalizers of whatever else dies then are not part of this program.
  if (on) {
    collected_ = PyGC_Disable() != 0;
  } else if (collected_) {
    PyGC_Enable();
  }
  mode_on_ = on;
  const ErrorAside aside;
  if (on && api_.present() && !push_mode()) forget_error();
}

bool ModeStack::push_mode() {
  const Ref done = Ref::steal(PyObject_CallOneArg(api_.modes.push.get(), mode_object()));
  if (done) modes_.push_back(handlers_);
  return static_cast<bool>(done);
}

PyObject* Tracer::run(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                      std::vector<PyObject*> roots, Entry* hit, std::vector<PyObject*> objects) {
  if (!context_.dry_run && interrupted() && deliver_interrupts() != 0) return nullptr;
  roots_ = std::move(roots);
  hit_ = hit;
  hit_objects_ = std::move(objects);
  VmContext& context = vm_context();
  VmObserver* const before = context.observer;
  context.observer = this;
  vm_install();
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  modes().set_mode(false);
  vm_uninstall();
  context.observer = before;
  delivered();
  return or_postponed(result);
}

// ---- Frames ----------------------------------------------------------------------------------------------------------

namespace {

/// Frames whose work is no part of the program: imports (their effects are the same whenever they happen),
/// finalizers, what looks on (audit hooks, which the interpreter calls with tracing off, also where the tracer itself
/// reads or imports), and what the table says: notes of torch.compile on new modules, what the class of
/// torch.autograd.Function's classes adds to a new one (a number that no other class has), and annotations by name,
/// compiled when somebody first asks for them (ForwardRef; torch's profiler does in an optimizer's first step).
bool is_opaque(const Frame& f, KnownCode known) {
  static PyObject* const del = PyUnicode_InternFromString("__del__");
  const PyCodeObject* const code = f.code();
  if (code->co_name == del || known == KnownCode::kOpaque || f.tstate->tracing > 0) return true;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) forget_error();
  return file != nullptr && std::strncmp(file, "<frozen importlib.", 18) == 0;
}

}  // namespace

FrameAction Tracer::on_frame_enter(Frame& f) {
  if (context_.state == State::kUnwinding) {
    ends().unwind();
    return FrameAction::kRaise;
  }
  const SignalsWait wait;
  if (bypass_ > 0 || !other_compilers_.empty()) {
    f.observer = nullptr;
    return FrameAction::kHandBack;
  }
  if (!tracing()) modes().drop_modes();
  const KnownCode known = tracing() && entered_ ? known_code(f.code()).code : KnownCode::kNone;
  if (entered_ && is_other_compiler(f.code(), api_)) return enter_other_compiler(f);
  const bool opaque = known == KnownCode::kGivesDevice ? !modes().asks_programs() : is_opaque(f, known);
  if (tracing() && entered_ && (opaque || calls().logs(f, known))) {
    ++bypass_;
    opaque_.push_back(&f);
    return FrameAction::kRun;
  }
  if (!entered_ && reinterpret_cast<PyObject*>(f.code()) == code_ && !f.resumed && !f.throwing) {
    entered_ = true;
    f.root = true;
    context_.frames.push_back(&f);
    if (hit_ != nullptr) return apply(f, *hit_, hit_objects_);
    if (!begin_call(f)) {
      ++stats().fallbacks;
      f.root = false;
      f.observer = nullptr;
      context_.frames.pop_back();
      return PyErr_Occurred() != nullptr ? FrameAction::kRaise : FrameAction::kHandBack;
    }
    return FrameAction::kRun;
  }
  // A branch for each of its sums: a graph would break at every turn, and round elsewhere, which soon is another path.
  if (tracing() && entered_ && known == KnownCode::kLastBits &&
      !graph_break("LBFGS, which decides by the last bits of its sums", true)) {
    return FrameAction::kRaise;
  }
  if (context_.makes_apart(f) && !graph_break("a generator that is alive at a break")) return FrameAction::kRaise;
  if (tracing() && entered_ && (context_.breaks_inside(f) || loops().breaks_before(f))) {
    if (!graph_break("call of " + text_of(f.code()->co_name) + ", in which graphs break")) return FrameAction::kRaise;
    context_.frames.push_back(&f);
    f.root = true;
    return FrameAction::kRun;
  }
  if (tracing()) {
    context_.frames.push_back(&f);
    f.root = loops().watches(f);
    TATARA_LOG(kCapture, "  enter ", place_text(f.code(), 0));
    if (f.throwing && PyErr_ExceptionMatches(PyExc_GeneratorExit) != 0) lifetimes().closes(f);
    mark_starred(f);
    return reads().watch_function(f) ? FrameAction::kRun : FrameAction::kRaise;
  }
  // The program runs for real between two graphs: the functions that it calls there may have graphs of their own.
  if (context_.state == State::kConcrete && !context_.stopped && !disabled_here() && !f.resumed && !f.throwing &&
      ((context_.may_be_root(f) && holds_tensors(f)) || loops().may_run_in(f))) {
    context_.frames.push_back(&f);
    f.root = true;
    bool made = false;
    const FrameAction action = start_here(f, made);
    if (made || action != FrameAction::kRun) return action;
    f.root = false;
    context_.frames.pop_back();
  }
  f.observer = nullptr;
  return FrameAction::kHandBack;
}

/// The graph breaks where another compiler begins, and all that is called from there runs as if we were not there.
FrameAction Tracer::enter_other_compiler(Frame& f) {
  if (tracing()) {
    const std::string file = text_of(f.code()->co_filename);
    const std::string place = file.substr(std::min(file.size(), api_.files.torch_folder.size()));
    const std::string why =
        str_cat("another compiler, which works by itself: ", text_of(f.code()->co_name), " (torch/", place, ")");
    if (!graph_break(why)) return FrameAction::kRaise;
  }
  other_compilers_.push_back(&f);
  return FrameAction::kRun;
}

bool Tracer::holds_tensors(Frame& f) const {
  const auto relevant = [this](PyObject* o) { return o != nullptr && (api_.is_tensor(o) || api_.is_module(o)); };
  for (int i = 0; i < f.local_count(); ++i) {
    PyObject* local = f.local(i);
    if (local == nullptr) continue;
    if (relevant(local)) return true;
    if (PyTuple_Check(local) || PyList_Check(local)) {
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(local); ++k) {
        if (relevant(PySequence_Fast_GET_ITEM(local, k))) return true;
      }
    } else if (PyDict_Check(local)) {
      PyObject *key = nullptr, *value = nullptr;
      Py_ssize_t at = 0;
      while (PyDict_Next(local, &at, &key, &value) != 0) {
        if (relevant(value)) return true;
      }
    }
  }
  return false;
}

bool Tracer::was_cut() const { return ends().was_cut(); }

int Tracer::deliver() { return ends().deliver(); }

void Tracer::mark_starred(Frame& f) {
  // CPython made the *args tuple and the **kwargs dict of this very call.
  const PyCodeObject* code = f.code();
  if (f.resumed || f.throwing) return;
  // type.__call__ has just made the object whose __init__ starts: nobody but the call holds it.
  if (code->co_argcount > 0 && PyUnicode_CompareWithASCIIString(code->co_name, "__init__") == 0) {
    PyObject* self = f.local(0);
    if (self != nullptr && Py_REFCNT(self) <= 4 && origins().origin(self) == Origin::kUnknown) mark_born(self);
  }
  int index = code->co_argcount + code->co_kwonlyargcount;
  if ((code->co_flags & CO_VARARGS) != 0) {
    if (PyObject* args = f.local(index); args != nullptr && PyTuple_GET_SIZE(args) > 0) mark_born(args);
    ++index;
  }
  if ((code->co_flags & CO_VARKEYWORDS) != 0) {
    if (PyObject* kwargs = f.local(index); kwargs != nullptr) mark_born(kwargs);
  }
}

void Tracer::on_frame_exit(Frame& f, FrameExit how, PyObject* result) {
  const SignalsWait wait;
  if (!opaque_.empty() && opaque_.back() == &f) {
    opaque_.pop_back();
    --bypass_;
    return;
  }
  if (!other_compilers_.empty() && other_compilers_.back() == &f) {
    other_compilers_.pop_back();
    return;
  }
  if (context_.idle.frame == &f) context_.idle = {};
  if (!context_.frames.empty() && context_.frames.back() == &f) context_.frames.pop_back();
  loops().leaves(f);
  turns().leaves(f);
  if (tracing() && &f != context_.root) TATARA_LOG(kCapture, "  leave ", place_text(f.code(), 0));
  if (tracing()) lifetimes().break_if_closing_fails(f, how, result);
  if (tracing() && result != nullptr) numbers().settle_result(f, result);
  if (tracing() && numpy().is_read(result)) {
    if (!graph_break("C code reads an array that " + text_of(f.code()->co_name) + " gave it")) postpone_error();
  }
  if (&f == context_.root) {
    if (context_.state == State::kTracing) {
      // The frame is handed back: what was recorded happens now.
      context_.state = State::kConcrete;
      modes().set_mode(false);
      const Bypass bypass(bypass_);
      if (context_.dry_run) {
        const ErrorAside aside;
        ends().finish_look(nullptr);
      } else if (!ends().run_tape()) {
        if (ends().take_back()) {
          ends().land(f);
        } else {
          ends().undo_later_writes();
        }
      } else {
        iterators().perform_steps(SIZE_MAX);
      }
    }
    context_.root = nullptr;
    ends().end_trace();
  }
  if (context_.frames.empty()) context_.state = State::kOff;
}

FrameAction Tracer::before_instruction(Frame& f, int opcode, int oparg) {
  if (bypass_ > 0) return FrameAction::kRun;
  if (f.ends_trace) {
    // Nobody else may hold what the program lets go of from here on.
    f.ends_trace = f.root = false;
    if (context_.state == State::kBroken) ends().end_trace();
    return FrameAction::kRun;
  }
  if (const std::optional<FrameAction> done = loops().at_instruction(f, opcode)) return *done;
  switch (context_.state) {
    case State::kOff: modes().set_mode(false); return FrameAction::kRun;
    case State::kTracing:
      if (&f != context_.root) return FrameAction::kRun;  // a loop was looked for
      if (!vm_sees_frames()) {
        if (!graph_break("another compiler took the interpreter's frames (in another thread)"))
          return FrameAction::kRaise;
        return before_instruction(f, opcode, oparg);
      }
      if (!trace_->pending_break.empty()) {
        if (!graph_break(std::exchange(trace_->pending_break, {}))) return FrameAction::kRaise;
        return before_instruction(f, opcode, oparg);
      }
      if (!ends().snapshot(f)) return FrameAction::kRun;
      if (is_return(opcode)) {
        PyObject* result = opcode == RETURN_VALUE ? f.peek(1) : PyTuple_GET_ITEM(f.code()->co_consts, oparg);
        return ends().finish_return(f, result) ? FrameAction::kRun : FrameAction::kRaise;
      }
      return FrameAction::kRun;
    case State::kResuming: context_.state = State::kConcrete; return FrameAction::kRun;
    case State::kUnwinding: ends().unwind(); return FrameAction::kRaise;  // code in C has kept the error to itself
    case State::kBroken:
    case State::kConcrete:
      if (context_.state == State::kBroken) ends().end_trace();  // it holds nothing any more
      context_.state = State::kConcrete;
      modes().set_mode(false);
      if (context_.call_again || context_.may_be_root(f) || loops().begins(f)) return at_boundary(f, opcode);
      f.root = loops().may_run(f);
      return FrameAction::kRun;
  }
  return FrameAction::kRun;
}

FrameAction Tracer::at_boundary(Frame& f, int opcode) {
  // Inside a handler the interpreter's exception state is part of the frame: go on for real until it is left.
  const auto handled = [](PyObject* value) { return value != nullptr && PyExceptionInstance_Check(value); };
  if (!context_.idle.goes_on(f)) context_.idle = {};
  // Behind it, numbers of the tuple are values of the frame, which may be symbols.
  const bool unpacks = opcode == UNPACK_SEQUENCE && PyTuple_CheckExact(f.peek(1));
  const bool waits = unpacks || context_.idle.frame != nullptr || disabled_here() ||
                     std::any_of(f.stack(), f.stack() + f.stack_depth(), handled);
  if (context_.stopped || waits) {
    context_.state = State::kConcrete;
    f.root = f.root && !context_.stopped;
    return FrameAction::kRun;
  }
  bool made = false;
  const FrameAction action = start_here(f, made);
  if (action == FrameAction::kRun && !made) f.root = false;
  return action;
}

FrameAction Tracer::start_here(Frame& f, bool& made) {
  const SignalsWait wait;
  context_.state = State::kConcrete;
  if (std::exchange(context_.call_again, false)) {
    made = begin_call(f);
    if (made) ends().snapshot(f);
    return PyErr_Occurred() != nullptr ? FrameAction::kRaise : FrameAction::kRun;
  }
  std::vector<PyObject*> roots;
  roots.assign(f.locals(), f.locals() + f.local_count());
  roots.insert(roots.end(), f.stack(), f.stack() + f.stack_depth());
  if (lifetimes().holds_noticed(roots)) return FrameAction::kRun;
  const size_t in_frame = roots.size();
  // Another function of the same code has cells of its own, which are not in the frame before its first instruction.
  PyObject* function = f.offset() == 0 ? f.function() : nullptr;
  PyObject* cells = function != nullptr && PyFunction_Check(function) ? PyFunction_GET_CLOSURE(function) : nullptr;
  for (Py_ssize_t i = 0; cells != nullptr && i < PyTuple_GET_SIZE(cells); ++i) {
    roots.push_back(PyTuple_GET_ITEM(cells, i));
  }
  PyObject* code = reinterpret_cast<PyObject*>(f.code());
  std::vector<PyObject*> objects;
  std::string failed;
  std::string* const why = log_enabled(LogChannel::kGuards) ? &failed : nullptr;
  if (const std::shared_ptr<Entry> entry =
          owner_.cache.find(code, f.offset(), roots.data(), roots.size(), api_, objects, why)) {
    ++stats().guard_hits;
    made = entry->end != Entry::End::kEager;
    return apply(f, *entry, objects);
  }
  if (!failed.empty())
    log_line(LogChannel::kGuards, str_cat("recompiles ", place_text(f.code(), f.offset()), ": ", failed));
  if (std::optional<IdleStretch> way = f.offset() == 0 ? std::nullopt : owner_.cache.idle_from(code, f.offset())) {
    context_.idle = {&f, std::move(*way)};
    context_.idle.goes_on(f);
    made = true;
    return FrameAction::kRun;
  }
  std::vector<int> places(roots.size());
  std::iota(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(in_frame), 0);
  std::fill(places.begin() + static_cast<std::ptrdiff_t>(in_frame), places.end(), -1);
  const int allowed = owner_.may_trace(f.code(), f.offset(), roots.data(), roots.size(), {});
  if (allowed < 0) return FrameAction::kRaise;
  if (allowed > 0 && try_begin(f, std::move(roots), places, in_frame)) {
    made = true;
    ends().snapshot(f);
  }
  return PyErr_Occurred() != nullptr ? FrameAction::kRaise : FrameAction::kRun;
}

bool Tracer::run_entry(Entry& entry, const std::vector<PyObject*>& objects, std::vector<Ref>& made) {
  ++bypass_;
  const bool mode_was_on = modes().on();
  modes().set_mode(false);
  const std::shared_ptr<Entry> alive = owner_.cache.share(&entry);
  std::vector<Ref> env, held;
  std::vector<int64_t> symbols;
  entry.tape->fill_inputs(objects, env);
  entry.reconstruction.hold(objects, held);
  bool ok = entry.reconstruction.read_symbols(objects, symbols) && entry.run(env, api_) == Entry::Ran::kDone;
  ok = ok && entry.reconstruction.build(env, objects, std::move(symbols), made) && entry.effects.replay(made);
  made.resize(made.size() - std::min(made.size(), entry.effects.objects()));
  if (ok && entry.at_end.grad) {
    const Ref done =
        Ref::steal(PyObject_CallOneArg(api_.state.set_grad_enabled.get(), *entry.at_end.grad ? Py_True : Py_False));
    ok = static_cast<bool>(done);
  }
  modes().set_mode(mode_was_on);
  --bypass_;
  return ok;
}

FrameAction Tracer::apply(Frame& f, Entry& entry, const std::vector<PyObject*>& objects) {
  const SignalsWait wait;
  context_.state = State::kConcrete;
  if (entry.end == Entry::End::kEager) {
    f.root = false;
    if (&entry != callees_alone()) return FrameAction::kRun;
    f.observer = nullptr;
    context_.frames.pop_back();
    return FrameAction::kHandBack;
  }
  const std::shared_ptr<Entry> alive = owner_.cache.share(&entry);
  std::vector<Ref> made;
  if (!run_entry(entry, objects, made)) {
    if (PyErr_Occurred() != nullptr) return FrameAction::kRaise;
    // An operator fails: the program goes on from here for real, to its own error.
    context_.stopped = true;
    f.root = false;
    return FrameAction::kRun;
  }
  if (entry.at_end.handles) {
    PyErr_SetHandledException(made.back().get());
    made.pop_back();
  }
  if (entry.end == Entry::End::kReturn) {
    f.result = made[0].release();
    return FrameAction::kReturn;
  }
  for (int i = 0; i < entry.local_count; ++i) f.set_local(i, made[static_cast<size_t>(i)].get());
  std::vector<PyObject*> stack;
  for (size_t i = static_cast<size_t>(entry.local_count); i < made.size(); ++i) stack.push_back(made[i].get());
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(entry.break_offset, static_cast<int>(stack.size()));
  context_.state = State::kResuming;
  return FrameAction::kReload;
}

// ---- Traces ----------------------------------------------------------------------------------------------------------

bool Tracer::begin_call(Frame& f) {
  const std::vector<int> places = numbers().argument_places(f, roots_);
  if (!try_begin(f, roots_, places)) return false;
  mark_starred(f);
  return true;
}

bool Tracer::try_begin(Frame& f, std::vector<PyObject*> roots, const std::vector<int>& places, size_t cells_from) {
  if (!context_.dry_run && owner_.is_unfit(f.code(), f.offset(), roots)) return false;
  vm_sees_frames();  // from here on
  const SignalsWait wait;
  ++bypass_;
  parts_->reset();
  auto trace = std::make_unique<Trace>(api_);
  trace->state = GlobalState::read(api_);
  std::string unfit = trace->state.waits_for(context_.dry_run);
  if (unfit.empty()) {
    for (PyObject* root : roots) trace->alive.push_back(Ref::borrow(root));
    DynamicDims dims;
    dims.mode = owner_.dynamic;
    // NumPy's functions are called for real while they are traced.
    const bool arrays =
        std::any_of(roots.begin(), roots.end(), [this](PyObject* o) { return o != nullptr && api_.is_numpy(o); });
    if (api_.present() && !arrays) dims.places = places;
    dims.share_ints = f.offset() != 0;
    dims.cells_from = cells_from;
    owner_.cache.dynamic_dims(reinterpret_cast<PyObject*>(f.code()), f.offset(), roots.data(), roots.size(), api_,
                              dims);
    if (!dims.places.empty()) numbers().set_varying(dims.watched);
    trace->guard.build(roots.data(), roots.size(), api_, dims, trace->symbols, trace->objects);
    for (size_t i = 0; i < trace->objects.size(); ++i) {
      trace->alive.push_back(Ref::borrow(trace->objects[i]));
      const std::vector<size_t>& alone = trace->guard.in_cells;
      if (std::find(alone.begin(), alone.end(), i) != alone.end()) {
        origins().found_in_cell(trace->objects[i]);
        trace->object_guards.found(trace->objects[i]);
      } else if (!PyLong_CheckExact(trace->objects[i]) && !PyFloat_CheckExact(trace->objects[i]))
        trace->object_index[trace->objects[i]] = static_cast<int>(i);
    }
    origins().guards_objects(*trace);
    if (!trace->guard.unsupported_tensor.empty()) {
      unfit = "an input is " + trace->guard.unsupported_tensor + ": it runs in eager";
    }
    trace->guard.check_grad = trace->state.grad;
    trace->guard.of_call = cells_from == SIZE_MAX;
    trace->iterators_vary = owner_.cache.iterators_vary(reinterpret_cast<PyObject*>(f.code()), f.offset(), roots.data(),
                                                        roots.size(), api_);
  }
  forget_error();
  --bypass_;
  if (!unfit.empty() && context_.dry_run) {
    context_.found = unfit;
    PyErr_SetString(PyExc_RuntimeError, unfit.c_str());
    return false;
  }
  if (!unfit.empty()) {
    owner_.note_unfit(f.code(), f.offset(), unfit);
    owner_.note_unfit_classes(roots, api_);
    return false;
  }
  log_unknown_rows();
  TATARA_LOG(kCapture, "trace of ", place_text(f.code(), f.offset()));
  context_.root = &f;
  trace->symbols.set_derive(
      [this](const char* name, PyObject* a, PyObject* b) { return numbers().derive_number(name, a, b); },
      [this](int slot) { numbers().need_number(slot); });
  trace->symbols.set_decisions(owner_.fullgraph ? nullptr : owner_.decisions, [this] { numbers().need_decided(); });
  trace->symbols.set_place([this] {
    const BreakInfo place = here({});
    return place.file.empty() ? std::string() : str_cat(place.file, ":", place.line);
  });
  trace->start.offset = f.offset();
  trace->start.of_call = cells_from == SIZE_MAX;
  trace->start.code = reinterpret_cast<PyObject*>(f.code());
  context_.trace = std::move(trace);
  ends().begin_transaction();
  if (api_.present()) torch().begin();
  const std::vector<PyObject*> arguments = trace_->start.of_call ? roots_ : std::vector<PyObject*>();
  for (int i = 0; i < f.local_count(); ++i) trace_->start.locals.push_back(Ref::borrow(f.local(i)));
  for (int i = 0; i < f.stack_depth(); ++i) trace_->start.stack.push_back(Ref::borrow(f.stack()[i]));
  origins().find_surroundings(f, true);
  numbers().place_symbols(f, places, arguments);
  context_.state = State::kTracing;
  ends().hold_signals();
  modes().set_mode(true);
  return true;
}

bool TraceEnds::snapshot(Frame& f) {
  if (!lifetimes().let_generators_end(f)) return false;
  Trace& t = *trace_;
  const auto keep = [](Ref& kept, PyObject* now) {
    if (kept.get() != now) kept = Ref::borrow(now);
  };
  t.snap.locals.resize(static_cast<size_t>(f.local_count()));
  for (int i = 0; i < f.local_count(); ++i) keep(t.snap.locals[static_cast<size_t>(i)], f.local(i));
  t.snap.stack.resize(static_cast<size_t>(f.stack_depth()));
  for (int i = 0; i < f.stack_depth(); ++i) keep(t.snap.stack[static_cast<size_t>(i)], f.stack()[i]);
  t.snap.offset = f.offset();
  t.snap.furthest = std::max(t.snap.furthest, t.snap.offset);
  t.snap.nodes = t.tape.nodes().size();
  while (!t.instructions.empty() && t.instructions.back() >= t.snap.nodes) t.instructions.pop_back();
  t.instructions.push_back(t.snap.nodes);
  t.snap.facts = t.symbols.ctx().guards().size();
  t.snap.checks = t.size_checks.size();
  t.snap.handled = Ref::steal(PyErr_GetHandledException());
  writes().drop_undone_switches();
  t.snap.effects = t.effects.size();
  t.snap.born = t.births;
  ++bypass_;
  t.snap.grad = api_.grad_enabled();
  t.snap.levels = transforms().open();
  t.snap.inference = t.start.in_guards();
  --bypass_;
  t.mutated = false;
  return true;
}

}  // namespace tatara::capture
