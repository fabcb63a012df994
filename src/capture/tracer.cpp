// The tracer's life: from a missed guard, through frames and instructions, to cache entries.
#include "capture/tracer.h"

#include <opcode.h>

#include <cstring>
#include <numeric>

#include "capture/compiled_function.h"
#include "capture/other_compilers.h"
#include "capture/report_details.h"
#include "capture/lifetimes.h"
#include "capture/tracer_internal.h"
#include "support/made_once.h"
#include "support/options.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

thread_local Tracer* g_current = nullptr;
PyObject* g_unsupported = nullptr;

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

Stats& stats() {
  static Stats all;
  return all;
}

void set_unsupported_type(PyObject* type) { g_unsupported = Py_NewRef(type); }

void raise_unsupported(const BreakInfo& why) {
  std::string text = why.reason;
  if (!why.file.empty()) text += str_cat(" (", why.file, ":", why.line, " in ", why.function, ")");
  PyErr_SetString(g_unsupported != nullptr ? g_unsupported : PyExc_RuntimeError, text.c_str());
}

BreakInfo place_of(PyCodeObject* code, int offset) {
  BreakInfo place;
  place.file = text_of(code->co_filename);
  place.function = text_of(code->co_name);
  place.line = offset == 0 ? code->co_firstlineno : PyCode_Addr2Line(code, offset * 2);
  return place;
}

int TraceOwner::may_trace(PyCodeObject* code, int offset, const std::string& failed) {
  auto* key = reinterpret_cast<PyObject*>(code);
  const size_t count = cache.count(key, offset);
  if (count == 0) return 1;
  const OptionScope scope(options.empty() ? OptionScope::current() : &options);
  const int64_t limit = option_int(Option::kRecompileLimit);
  if (static_cast<int64_t>(count) < limit) return 1;
  BreakInfo why = place_of(code, offset);
  why.reason = str_cat("compiled ", count, " times already (recompile_limit); the rest runs in eager");
  if (!failed.empty()) why.reason += str_cat("; last failed: ", failed);
  if (fullgraph) {
    raise_unsupported(why);
    return -1;
  }
  if (!full.emplace(key, offset).second) return 0;
  ++stats().breaks;
  breaks.push_back(why);
  const std::string text = "tatara: " + why.reason;
  return PyErr_WarnExplicit(PyExc_RuntimeWarning, text.c_str(), why.file.c_str(), why.line, nullptr, nullptr) < 0 ? -1
                                                                                                                  : 0;
}

void TraceOwner::note_unfit(PyCodeObject* code, int offset, const std::string& reason) {
  const bool known = !unfit.emplace(reinterpret_cast<PyObject*>(code), offset, reason).second;
  if (known && !fullgraph) return;
  BreakInfo why = place_of(code, offset);
  why.reason = reason;
  if (fullgraph) raise_unsupported(why);
  if (known) return;
  ++stats().breaks;
  breaks.push_back(std::move(why));
}

Tracer* Tracer::current() { return g_current; }

Tracer::Tracer(TraceOwner& owner, TorchApi& api, PyObject* code) : owner_(owner), api_(api), code_(code) {
  previous_ = g_current;
  g_current = this;
}

Tracer::~Tracer() { g_current = previous_; }

void Tracer::set_mode(bool on) {
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

bool Tracer::push_mode() {
  const Ref done = Ref::steal(PyObject_CallOneArg(api_.push_mode.get(), mode_object()));
  if (done) modes_.push_back(handlers_);
  return static_cast<bool>(done);
}

PyObject* Tracer::run(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                      std::vector<PyObject*> roots, Entry* hit, std::vector<PyObject*> objects) {
  if (!looking_ && interrupted() && deliver_interrupts() != 0) return nullptr;
  roots_ = std::move(roots);
  hit_ = hit;
  hit_objects_ = std::move(objects);
  VmContext& context = vm_context();
  VmObserver* const before = context.observer;
  context.observer = this;
  vm_install();
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  set_mode(false);
  vm_uninstall();
  context.observer = before;
  delivered();
  return or_postponed(result);
}

// ---- Frames ----------------------------------------------------------------------------------------------------------

namespace {

/// Frames whose work is no part of the program: imports (their effects are the same whenever they happen), finalizers, the
/// notes that torch.compile, once used, takes of every module made (GenerationTracker.tag), and annotations by name, which
/// are compiled when somebody first asks for them (ForwardRef; torch's profiler does in an optimizer's first step).
bool is_opaque(const PyCodeObject* code) {
  static PyObject* const del = PyUnicode_InternFromString("__del__");
  if (code->co_name == del) return true;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) forget_error();
  if (file == nullptr) return false;
  if (std::strncmp(file, "<frozen importlib.", 18) == 0) return true;
  if (PyUnicode_CompareWithASCIIString(code->co_qualname, "ForwardRef.__init__") == 0) {
    return std::string_view(file).ends_with("/typing.py");
  }
  return std::string_view(file).ends_with("/torch/_dynamo/mutation_guard.py") &&
         PyUnicode_CompareWithASCIIString(code->co_name, "tag") == 0;
}

/// LBFGS: it takes a branch by each of its sums, and one last bit of one weight is another path after a few steps. A graph
/// would be broken at every turn, and would round elsewhere than eager does.
bool decides_by_last_bits(const PyCodeObject* code) {
  if (PyUnicode_CompareWithASCIIString(code->co_name, "step") != 0) return false;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) forget_error();
  return file != nullptr && std::string_view(file).ends_with("/torch/optim/lbfgs.py");
}

}  // namespace

FrameAction Tracer::on_frame_enter(Frame& f) {
  if (state_ == State::kUnwinding) {
    unwind();
    return FrameAction::kRaise;
  }
  const SignalsWait wait;
  if (bypass_ > 0 || !other_compilers_.empty()) {
    f.observer = nullptr;
    return FrameAction::kHandBack;
  }
  if (!tracing()) drop_modes();
  if (entered_ && is_other_compiler(f.code(), api_)) return enter_other_compiler(f);
  if (tracing() && entered_ && (is_opaque(f.code()) || logs(f))) {
    ++bypass_;
    opaque_.push_back(&f);
    return FrameAction::kRun;
  }
  if (!entered_ && reinterpret_cast<PyObject*>(f.code()) == code_ && !f.resumed && !f.throwing) {
    entered_ = true;
    f.root = true;
    frames_.push_back(&f);
    if (hit_ != nullptr) return apply(f, *hit_, hit_objects_);
    const std::vector<int> places = argument_places(f, roots_);
    if (!try_begin(f, std::move(roots_), places)) {
      ++stats().fallbacks;
      f.root = false;
      f.observer = nullptr;
      frames_.pop_back();
      return PyErr_Occurred() != nullptr ? FrameAction::kRaise : FrameAction::kHandBack;
    }
    mark_starred(f);
    return FrameAction::kRun;
  }
  if (tracing() && entered_ && decides_by_last_bits(f.code()) &&
      !graph_break("LBFGS, which decides by the last bits of its sums", true)) {
    return FrameAction::kRaise;
  }
  if (tracing()) {
    frames_.push_back(&f);
    if (f.throwing && PyErr_ExceptionMatches(PyExc_GeneratorExit) != 0) trace_->closing.insert(&f);
    mark_starred(f);
    return watch_function(f) ? FrameAction::kRun : FrameAction::kRaise;
  }
  // The program runs for real between two graphs: the functions that it calls there may have graphs of their own.
  if (state_ == State::kConcrete && !stopped_ && !disabled_here() && !f.resumed && !f.throwing && may_be_root(f) &&
      holds_tensors(f)) {
    frames_.push_back(&f);
    f.root = true;
    bool made = false;
    const FrameAction action = start_here(f, made);
    if (made || action != FrameAction::kRun) return action;
    f.root = false;
    frames_.pop_back();
  }
  f.observer = nullptr;
  return FrameAction::kHandBack;
}

/// The graph breaks where another compiler begins, and all that is called from there runs as if we were not there.
FrameAction Tracer::enter_other_compiler(Frame& f) {
  if (tracing()) {
    const std::string file = text_of(f.code()->co_filename);
    const std::string place = file.substr(std::min(file.size(), api_.torch_folder.size()));
    const std::string why =
        str_cat("another compiler, which works by itself: ", text_of(f.code()->co_name), " (torch/", place, ")");
    if (!graph_break(why)) return FrameAction::kRaise;
  }
  other_compilers_.push_back(&f);
  return FrameAction::kRun;
}

bool Tracer::may_be_root(Frame& f) const { return !f.is_generator() && !is_library_code(f.code(), api_); }

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

void Tracer::mark_starred(Frame& f) {
  // CPython made the *args tuple and the **kwargs dict of this very call.
  const PyCodeObject* code = f.code();
  if (f.resumed || f.throwing) return;
  // type.__call__ has just made the object whose __init__ starts: nobody but the call holds it.
  if (code->co_argcount > 0 && PyUnicode_CompareWithASCIIString(code->co_name, "__init__") == 0) {
    PyObject* self = f.local(0);
    if (self != nullptr && Py_REFCNT(self) <= 4 && origin(self) == Origin::kUnknown) mark_born(self);
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
  if (!frames_.empty() && frames_.back() == &f) frames_.pop_back();
  if (tracing()) break_if_closing_fails(f, how, result);
  if (tracing() && result != nullptr) settle_result(f, result);
  if (tracing() && reader_depth_ != 0 && frames_.size() == reader_depth_ && numpy_inside(result)) {
    if (!graph_break("C code reads an array that " + text_of(f.code()->co_name) + " gave it")) postpone_error();
  }
  if (&f == root_) {
    if (state_ == State::kTracing) {
      // The frame is handed back: what was recorded happens now.
      state_ = State::kConcrete;
      set_mode(false);
      const Bypass bypass(bypass_);
      if (looking_) {
        const ErrorAside aside;
        finish_look(nullptr);
      } else if (!run_tape()) {
        if (take_back()) {
          land(f);
        } else {
          undo_later_writes();
        }
      }
    }
    root_ = nullptr;
    end_trace();
  }
  if (frames_.empty()) state_ = State::kOff;
}

FrameAction Tracer::before_instruction(Frame& f, int opcode, int oparg) {
  if (bypass_ > 0) return FrameAction::kRun;
  if (f.ends_trace) {
    // Nobody else may hold what the program lets go of from here on.
    f.ends_trace = f.root = false;
    if (state_ == State::kBroken) end_trace();
    return FrameAction::kRun;
  }
  switch (state_) {
    case State::kOff: set_mode(false); return FrameAction::kRun;
    case State::kTracing:
      if (!vm_sees_frames()) {
        if (!graph_break("another compiler took the interpreter's frames (in another thread)"))
          return FrameAction::kRaise;
        return before_instruction(f, opcode, oparg);
      }
      if (!snapshot(f)) return FrameAction::kRun;
      if (is_return(opcode)) {
        PyObject* result = opcode == RETURN_VALUE ? f.peek(1) : PyTuple_GET_ITEM(f.code()->co_consts, oparg);
        return finish_return(f, result) ? FrameAction::kRun : FrameAction::kRaise;
      }
      return FrameAction::kRun;
    case State::kResuming: state_ = State::kConcrete; return FrameAction::kRun;
    case State::kUnwinding: unwind(); return FrameAction::kRaise;  // code in C has kept the error to itself
    case State::kBroken:
    case State::kConcrete:
      if (state_ == State::kBroken) end_trace();  // it holds nothing any more
      set_mode(false);
      if (may_be_root(f)) return at_boundary(f);
      f.root = false;
      return FrameAction::kRun;
  }
  return FrameAction::kRun;
}

FrameAction Tracer::at_boundary(Frame& f) {
  if (stopped_) {
    state_ = State::kConcrete;
    f.root = false;
    return FrameAction::kRun;
  }
  if (disabled_here()) {
    state_ = State::kConcrete;
    return FrameAction::kRun;
  }
  for (int i = 0; i < f.stack_depth(); ++i) {
    PyObject* value = f.stack()[i];
    if (value != nullptr && PyExceptionInstance_Check(value)) {
      // Inside a handler the interpreter's exception state is part of the frame: go on for real until it is left.
      state_ = State::kConcrete;
      return FrameAction::kRun;
    }
  }
  bool made = false;
  const FrameAction action = start_here(f, made);
  if (action == FrameAction::kRun && !made) f.root = false;
  return action;
}

FrameAction Tracer::start_here(Frame& f, bool& made) {
  const SignalsWait wait;
  state_ = State::kConcrete;
  std::vector<PyObject*> roots;
  roots.assign(f.locals(), f.locals() + f.local_count());
  roots.insert(roots.end(), f.stack(), f.stack() + f.stack_depth());
  if (holds_noticed(roots)) return FrameAction::kRun;
  const size_t in_frame = roots.size();
  // Another function of the same code has cells of its own, which are not in the frame before its first instruction.
  PyObject* function = f.offset() == 0 ? f.function() : nullptr;
  PyObject* cells = function != nullptr && PyFunction_Check(function) ? PyFunction_GET_CLOSURE(function) : nullptr;
  for (Py_ssize_t i = 0; cells != nullptr && i < PyTuple_GET_SIZE(cells); ++i) {
    roots.push_back(PyTuple_GET_ITEM(cells, i));
  }
  PyObject* code = reinterpret_cast<PyObject*>(f.code());
  std::vector<PyObject*> objects;
  if (const std::shared_ptr<Entry> entry =
          owner_.cache.find(code, f.offset(), roots.data(), roots.size(), api_, objects, nullptr)) {
    ++stats().guard_hits;
    made = entry->end != Entry::End::kEager;
    return apply(f, *entry, objects);
  }
  std::vector<int> places(roots.size());
  std::iota(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(in_frame), 0);
  std::fill(places.begin() + static_cast<std::ptrdiff_t>(in_frame), places.end(), -1);
  const int allowed = owner_.may_trace(f.code(), f.offset(), {});
  if (allowed < 0) return FrameAction::kRaise;
  if (allowed > 0 && try_begin(f, std::move(roots), places, in_frame)) {
    made = true;
    snapshot(f);
  }
  return PyErr_Occurred() != nullptr ? FrameAction::kRaise : FrameAction::kRun;
}

bool Tracer::run_entry(Entry& entry, const std::vector<PyObject*>& objects, std::vector<Ref>& made) {
  ++bypass_;
  const bool mode_was_on = mode_on_;
  set_mode(false);
  const std::shared_ptr<Entry> alive = owner_.cache.share(&entry);
  std::vector<Ref> env;
  entry.tape->fill_inputs(objects, env);
  std::vector<Ref> held;
  entry.recipe.hold(objects, held);
  bool ok = entry.run(env, api_) == Entry::Ran::kDone;
  ok = ok && entry.recipe.build(env, objects, made) && entry.effects.replay(made);
  made.resize(made.size() - std::min(made.size(), entry.effects.objects()));
  if (ok && entry.set_grad) {
    const Ref done =
        Ref::steal(PyObject_CallOneArg(api_.set_grad_enabled.get(), entry.grad_at_end ? Py_True : Py_False));
    ok = static_cast<bool>(done);
  }
  set_mode(mode_was_on);
  --bypass_;
  return ok;
}

FrameAction Tracer::apply(Frame& f, Entry& entry, const std::vector<PyObject*>& objects) {
  const SignalsWait wait;
  state_ = State::kConcrete;
  if (entry.end == Entry::End::kEager) {
    f.root = false;
    return FrameAction::kRun;
  }
  const std::shared_ptr<Entry> alive = owner_.cache.share(&entry);
  std::vector<Ref> made;
  if (!run_entry(entry, objects, made)) {
    if (PyErr_Occurred() != nullptr) return FrameAction::kRaise;
    // An operator fails: the program goes on from here for real, to its own error.
    stopped_ = true;
    f.root = false;
    return FrameAction::kRun;
  }
  if (entry.handles) {
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
  state_ = State::kResuming;
  return FrameAction::kReload;
}

// ---- Traces ----------------------------------------------------------------------------------------------------------

bool Tracer::try_begin(Frame& f, std::vector<PyObject*> roots, const std::vector<int>& places, size_t cells_from) {
  vm_sees_frames();  // from here on
  const SignalsWait wait;
  ++bypass_;
  auto trace = std::make_unique<Trace>(api_);
  trace->state = GlobalState::read(api_);
  std::string unfit = trace->state.waits_for(looking_);
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
    if (!dims.places.empty()) trace->varying = dims.watched;
    trace->guard.build(roots.data(), roots.size(), api_, dims, trace->symbols, trace->objects);
    for (size_t i = 0; i < trace->objects.size(); ++i) {
      trace->alive.push_back(Ref::borrow(trace->objects[i]));
      const std::vector<size_t>& alone = trace->guard.in_cells;
      if (std::find(alone.begin(), alone.end(), i) != alone.end()) {
        trace->in_cells.insert(trace->objects[i]);
        trace->watches.found(trace->objects[i]);
      } else if (!PyLong_CheckExact(trace->objects[i]) && !PyFloat_CheckExact(trace->objects[i]))
        trace->object_index[trace->objects[i]] = static_cast<int>(i);
    }
    trace->guarded = trace->objects.size();
    for (const size_t i : trace->guard.by_identity) trace->by_identity.insert(trace->objects[i]);
    if (!trace->guard.unsupported_tensor.empty()) {
      unfit = "an input is " + trace->guard.unsupported_tensor + ": it runs in eager";
    }
    trace->guard.check_grad = trace->state.grad;
  }
  forget_error();
  --bypass_;
  if (!unfit.empty() && looking_) {
    found_ = unfit;
    PyErr_SetString(PyExc_RuntimeError, unfit.c_str());
    return false;
  }
  if (!unfit.empty()) {
    owner_.note_unfit(f.code(), f.offset(), unfit);
    return false;
  }
  root_ = &f;
  trace->symbols.set_derive([this](const char* name, PyObject* a, PyObject* b) { return derive_number(name, a, b); },
                            [this](int slot) { need_number(slot); });
  trace->symbols.set_place([this] {
    const BreakInfo place = here({});
    return place.file.empty() ? std::string() : str_cat(place.file, ":", place.line);
  });
  trace->start_offset = f.offset();
  trace->root_code = reinterpret_cast<PyObject*>(f.code());
  trace_ = std::move(trace);
  begin_transaction();
  if (api_.present()) {
    // Functions of tensors' classes may be replaced. A class of its own: any name but that of plain data counts.
    static PyObject* const any = PyUnicode_InternFromString("__torch_function__");
    trace_->watches.type(reinterpret_cast<PyObject*>(api_.parameter_type), any);
  }
  for (int i = 0; i < f.local_count(); ++i) trace_->start_locals.push_back(Ref::borrow(f.local(i)));
  for (int i = 0; i < f.stack_depth(); ++i) trace_->start_stack.push_back(Ref::borrow(f.stack()[i]));
  find_surroundings(f, true);
  place_symbols(f, places);
  state_ = State::kTracing;
  waiting_.emplace();
  set_mode(true);
  return true;
}

bool Tracer::snapshot(Frame& f) {
  if (!let_generators_end(f)) return false;
  Trace& t = *trace_;
  t.snap_locals.resize(static_cast<size_t>(f.local_count()));
  for (int i = 0; i < f.local_count(); ++i) {
    if (t.snap_locals[static_cast<size_t>(i)].get() != f.local(i)) {
      t.snap_locals[static_cast<size_t>(i)] = Ref::borrow(f.local(i));
    }
  }
  t.snap_stack.resize(static_cast<size_t>(f.stack_depth()));
  for (int i = 0; i < f.stack_depth(); ++i) {
    if (t.snap_stack[static_cast<size_t>(i)].get() != f.stack()[i]) {
      t.snap_stack[static_cast<size_t>(i)] = Ref::borrow(f.stack()[i]);
    }
  }
  t.snap_offset = f.offset();
  t.snap_nodes = t.tape.nodes().size();
  t.snap_facts = t.symbols.ctx().guards().size();
  t.snap_checks = t.size_checks.size();
  t.snap_handled = Ref::steal(PyErr_GetHandledException());
  drop_undone_switches();
  t.snap_effects = t.effects.size();
  t.snap_born = t.births;
  ++bypass_;
  t.snap_grad = api_.grad_enabled();
  t.snap_levels = t.open_levels.size() + static_cast<size_t>(t.duals);
  --bypass_;
  t.mutated = false;
  return true;
}

void Tracer::user_location(std::string& file, std::string& function, int& line) const {
  for (auto it = frames_.rbegin(); it != frames_.rend(); ++it) {
    PyCodeObject* code = (*it)->code();
    std::string name = text_of(code->co_filename);
    const std::string_view path = name;
    const bool ours = path.ends_with("/tatara/_functions.py") || path.ends_with("/tatara/_transforms.py") ||
                      path.ends_with("/tatara/_optimizers.py");
    if ((ours || name.find("/torch/") != std::string::npos) && it + 1 != frames_.rend()) continue;
    file = std::move(name);
    function = text_of(code->co_name);
    line = (*it)->line();
    return;
  }
}

BreakInfo Tracer::here(std::string reason) const {
  BreakInfo info;
  info.reason = std::move(reason);
  user_location(info.file, info.function, info.line);
  return info;
}

RecipeWorld Tracer::recipe_world() {
  Trace& t = *trace_;
  return {[&t](PyObject* o) { return t.tape.find(o); },   [&t](PyObject* o) { return t.index_of(o); },
          [this](PyObject* o) { return origin(o); },      [this](PyObject* o) { adopt(o); },
          [this](PyObject* o) { return instance_of(o); }, t.symbols};
}

bool Tracer::want_handled(Entry& entry, RecipeBuilder& builder, PyObject* handled) const {
  entry.handles = handled != trace_->start_exception.get();
  return !entry.handles || builder.want(handled != nullptr ? handled : Py_None);
}

bool Tracer::graph_break(const std::string& reason, bool stay_eager) {
  Trace& t = *trace_;
  if (ahead_ != nullptr) {
    // Nothing of what is traced ahead happens.
    if (ahead_->problem.empty()) ahead_->problem = reason;
    PyErr_SetString(PyExc_RuntimeError, reason.c_str());
    return false;
  }
  if (looking_) {
    if (found_.empty()) found_ = reason;
    PyErr_SetString(PyExc_RuntimeError, reason.c_str());
    return false;
  }
  state_ = State::kBroken;
  // What goes on for real meets no mode of ours: other compilers would. Where this runs inside of the mode's handler, torch
  // puts the mode back behind it, and the next instruction or frame takes it off.
  set_mode(false);
  ++bypass_;
  const BreakInfo why = here(reason);
  auto entry = std::make_unique<Entry>();
  entry->why = why;
  bool changed = t.mutated;
  for (size_t n = t.snap_nodes; n < t.tape.nodes().size(); ++n) changed = changed || t.tape.nodes()[n].mutates;
  take_sources();
  const RecipeWorld world = recipe_world();
  RecipeBuilder builder(entry->recipe, world, api_);
  bool can_resume = !changed && !stay_eager && !t.no_resume && t.open_context_vars.empty() && t.snap_levels == 0;
  if (const std::string keeps = keeps_noticed(*entry, t.watches); !keeps.empty()) {
    can_resume = false;
    entry->why.reason += "; " + keeps;
  }
  if (changed) entry->why.reason += "; state changed inside the instruction before it";
  for (const Ref& local : t.snap_locals) can_resume = can_resume && builder.want(local.get());
  for (const Ref& value : t.snap_stack) can_resume = can_resume && builder.want(value.get());
  can_resume = can_resume && want_handled(*entry, builder, t.snap_handled.get());
  can_resume = can_resume && entry->effects.build(t.effects, t.snap_effects, builder);
  if (!builder.why().empty()) entry->why.reason += "; the frame holds " + builder.why();
  can_resume = can_resume && !leaves_hooked(entry->recipe.slots());
  entry->end = can_resume ? Entry::End::kBreak : Entry::End::kEager;
  entry->callees = !stay_eager;
  entry->break_offset = t.snap_offset;
  entry->local_count = static_cast<int>(t.snap_locals.size());
  entry->set_grad = t.snap_grad != t.state.grad;
  entry->grad_at_end = t.snap_grad;
  if (can_resume) {
    entry->tape = t.tape.detach(t.snap_nodes, t.snap_facts);
    entry->tape->set_outputs(entry->recipe.slots());
  }
  ++stats().breaks;
  owner_.breaks.push_back(why);
  --bypass_;
  if (owner_.fullgraph && !stay_eager) {
    if (t.transaction.can_undo() || run_tape()) raise_unsupported(why);
    return refuse();
  }
  root_->ends_trace = !can_resume;
  ++bypass_;
  bool ok = run_tape();
  if (!ok && take_back()) {
    --bypass_;
    return (t.tape.mismatch().empty() || note_mismatch(std::move(entry), false)) && unwind();
  }
  if (!ok) undo_later_writes();
  if (ok && entry->tape && entry->tape->has_transforms()) entry->tape->take_layouts(t.tape);
  cut_ = cut_ || error_postponed();
  const bool prepared = ok && !cut_ && prepare_entry(*entry);
  --bypass_;
  if (ok && !prepared && !cut_) refuse();
  if (state_ == State::kUnwinding) return false;
  if (prepared) owner_.cache.add(std::move(entry));
  stopped_ = stopped_ || stay_eager || !prepared;
  ok = prepared || (ok && cut_);
  waiting_.reset();
  cut_ = false;
  if (ok && interrupted()) ok = deliver() == 0;  // not later: what follows may wait for long
  // Each frame may go on with a graph of its own once the present instruction is done.
  for (Frame* frame : frames_) {
    if (frame != root_) frame->root = may_be_root(*frame) || !modes_.empty();
  }
  return ok;
}

void Tracer::settle_symbols() {
  take_back_symbols();
  trace_->symbols.settle();
}

bool Tracer::run_tape() {
  const auto start = std::chrono::steady_clock::now();
  settle_symbols();
  const AutocastOff off(api_);
  const Transaction::Scope scope(trace_->transaction);
  const bool ok = trace_->tape.materialise(api_, [this, start] { return may_stop(start); });
  if (ok) perform_later_effects();
  trace_->run_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ok;
}

// ---- Giving up -------------------------------------------------------------------------------------------------------

void Tracer::begin_transaction() {
  Trace& t = *trace_;
  t.start_exception = Ref::steal(PyErr_GetHandledException());
  t.transaction.on_undo([this] {
    undo_switches();
    if (api_.present()) api_.set_grad(trace_->state.grad);
    return true;
  });
  t.transaction.on_undo([this] { return trace_->watches.undo_writes(); });
}

bool Tracer::unwind() {
  state_ = State::kUnwinding;
  forget_error();
  for (Frame* frame : frames_) frame->root = true;
  PyErr_SetNone(unwinding_error());
  return false;
}

bool Tracer::refuse() {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  take_back();
  refusal_ = Ref::steal(take_raised());
  return unwind();
}

FrameAction Tracer::land(Frame& f) {
  Trace& t = *trace_;
  forget_error();
  set_mode(false);
  // Code in C that was on the way (autograd.Function.apply) has put back what it found, after the transaction's end.
  if (api_.present()) api_.set_grad(t.state.grad);
  const Ref handled = Ref::steal(PyErr_GetHandledException());
  if (handled.get() != t.start_exception.get()) PyErr_SetHandledException(t.start_exception.get());
  state_ = State::kConcrete;
  f.root = false;
  stopped_ = true;
  if (refusal_) {
    end_trace();
    set_raised(refusal_.release());
    return FrameAction::kAbandon;
  }
  for (int i = 0; i < f.local_count(); ++i) f.set_local(i, t.start_locals[static_cast<size_t>(i)].get());
  std::vector<PyObject*> stack;
  for (const Ref& value : t.start_stack) stack.push_back(value.get());
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(t.start_offset, static_cast<int>(stack.size()));
  end_trace();
  return FrameAction::kReload;
}

FrameAction Tracer::on_exception(Frame& f, bool handled) {
  if (handled) delivered();
  if (state_ == State::kUnwinding) {
    if (&f == root_) return land(f);
    unwind();
    return FrameAction::kAbandon;
  }
  // Nothing of what is only looked at happens: nor do handlers. Those of what is traced ahead leave its context managers.
  if (looking_ && !found_.empty()) return FrameAction::kAbandon;
  return &f == root_ && !handled && state_ == State::kTracing && !looking_ ? leave_root() : FrameAction::kRun;
}

/// What was recorded happens now.
FrameAction Tracer::leave_root() {
  Ref leaving = Ref::steal(PyErr_Occurred() != nullptr ? take_raised() : nullptr);
  state_ = State::kConcrete;
  set_mode(false);
  ++bypass_;
  const bool ok = run_tape();
  const bool again = !ok && take_back();
  if (!ok && !again) undo_later_writes();
  --bypass_;
  if (again) return land(*root_);
  if (!ok) return FrameAction::kAbandon;  // it would have failed before
  if (leaving) set_raised(leaving.release());
  return FrameAction::kRun;
}

bool Tracer::note_mismatch(std::unique_ptr<Entry> entry, bool prepared) {
  const Tape& tape = trace_->tape;
  const TapeNode& node = tape.nodes()[tape.nodes_done()];
  entry->end = Entry::End::kEager;
  entry->callees = true;
  entry->why = {tape.mismatch(), node.file, node.function, node.line};
  entry->tape = nullptr;
  entry->runner = nullptr;
  owner_.breaks.push_back(entry->why);
  ++stats().breaks;
  if (owner_.fullgraph) {
    raise_unsupported(entry->why);
    return refuse();
  }
  const Bypass bypass(bypass_);
  if (!prepared && !prepare_entry(*entry)) return refuse();
  owner_.cache.add(std::move(entry));
  return true;
}

void Tracer::undo_later_writes() {
  Trace& t = *trace_;
  const ErrorAside aside;
  perform_later_effects();
  const bool later = std::any_of(t.effects.begin(), t.effects.end(),
                                 [&t](const Effect& e) { return !e.later && e.nodes > t.tape.nodes_done(); });
  if (!later || !t.watches.undo_writes()) return;
  undo_switches();
  for (const Effect& effect : t.effects) {
    if (!effect.later && effect.nodes <= t.tape.nodes_done() && !perform(effect)) forget_error();
  }
}

bool Tracer::finish_return(Frame& f, PyObject* result) {
  Trace& t = *trace_;
  if (looking_) {
    finish_look(result);
    return true;
  }
  state_ = State::kConcrete;
  set_mode(false);
  ++bypass_;
  auto entry = std::make_unique<Entry>();
  take_sources();
  const RecipeWorld world = recipe_world();
  RecipeBuilder builder(entry->recipe, world, api_);
  std::string closes = waiting_generator();
  if (closes.empty()) closes = keeps_noticed(*entry, t.watches);
  if (closes.empty() && t.open_context_vars.empty() && t.open_levels.empty() && t.duals == 0 && builder.want(result) &&
      want_handled(*entry, builder, Ref::steal(PyErr_GetHandledException()).get()) &&
      entry->effects.build(t.effects, t.effects.size(), builder)) {
    entry->end = Entry::End::kReturn;
    entry->cleared_first = slots_cleared_first();
    entry->tape = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
    entry->tape->set_outputs(entry->recipe.slots());
    entry->set_grad = t.snap_grad != t.state.grad;
    entry->grad_at_end = t.snap_grad;
  } else {
    entry->end = Entry::End::kEager;
    entry->callees = true;
    entry->why = here(closes.empty() ? "the result or a write holds " + builder.why() : closes);
    owner_.breaks.push_back(entry->why);
    ++stats().breaks;
  }
  --bypass_;
  if (owner_.fullgraph && entry->end == Entry::End::kEager) {
    raise_unsupported(entry->why);
    return refuse();
  }
  if (!run_return(f, std::move(entry))) return false;
  stopped_ = stopped_ || cut_;
  // The trace's references may be the last ones: finalizers run in the program's own context.
  end_trace();
  // The results are there, and the frame is about to return them.
  return !std::exchange(cut_, false) || deliver() == 0;
}

bool Tracer::run_return(Frame& f, std::unique_ptr<Entry> entry) {
  Trace& t = *trace_;
  const bool compiled_first = may_run_compiled(*entry);
  ++bypass_;
  if (compiled_first) settle_symbols();
  bool prepared = !compiled_first || prepare_entry(*entry) || cut_;
  const bool ran = prepared && (compiled_first && !cut_ ? run_compiled(f, *entry) : run_tape());
  cut_ = cut_ || error_postponed();
  if (ran && !compiled_first && !cut_) {
    if (entry->tape && entry->tape->has_transforms()) entry->tape->take_layouts(t.tape);
    prepared = prepare_entry(*entry) || cut_;
  }
  --bypass_;
  if (!prepared) {
    refuse();
    if (state_ != State::kUnwinding) end_trace();
    return false;
  }
  if (ran) {
    if (!cut_) owner_.cache.add(std::move(entry));
    return true;
  }
  const Bypass bypass(bypass_);
  if (take_back()) return (t.tape.mismatch().empty() || note_mismatch(std::move(entry), compiled_first)) && unwind();
  undo_later_writes();
  end_trace();
  return false;
}

/// Tensors of places that the trace wrote to become inputs that come with each call.
void Tracer::take_sources() {
  Trace& t = *trace_;
  const auto wanted = [&t](PyObject* tensor) {
    const int slot = t.tape.find(tensor);
    return t.index_of(tensor) < 0 && !t.tape.makes(slot);
  };
  for (PyObject* tensor : t.watches.take_sources(api_, wanted)) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(tensor);
    t.alive.push_back(Ref::borrow(tensor));
    t.object_index[tensor] = index;
    if (const int slot = t.tape.find(tensor); slot >= 0) t.tape.set_guard_index(slot, index);
  }
  // What weak references found comes with each call too, so that nothing here keeps it alive.
  for (PyObject* object : t.watches.weakly_held()) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(object);
    if (!t.object_index.emplace(object, index).second) continue;
    if (const int slot = t.tape.find(object); slot >= 0) t.tape.set_guard_index(slot, index);
  }
  for (PyObject* tensor : t.watches.take_gradients()) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(tensor);
    if (!t.object_index.emplace(tensor, index).second) continue;
    if (const int slot = t.tape.find(tensor); slot >= 0) t.tape.set_guard_index(slot, index);
  }
}

bool Tracer::prepare_entry(Entry& entry) {
  Trace& t = *trace_;
  entry.code = t.root_code;
  entry.held_code = Ref::borrow(t.root_code);
  entry.offset = t.start_offset;
  entry.state = t.state;
  // Transforms refuse hooks, and checkpoints keep their operands whether anything requires grad or not.
  const auto keeps = [](const TapeNode& node) { return node.region != RegionMark::kNone; };
  entry.state.saves_tensors =
      entry.tape && (is_training_tape(*entry.tape) || entry.tape->has_transforms() ||
                     std::any_of(entry.tape->nodes().begin(), entry.tape->nodes().end(), keeps));
  entry.guard = std::move(t.guard);
  note_identities(entry.identities);
  if (!entry.keeps_nothing) {
    entry.watches = std::move(t.watches);
    entry.watches.leave_writes(t.watches);
  }
  entry.size_checks = std::move(t.size_checks);
  if (entry.end == Entry::End::kBreak) entry.size_checks.resize(std::min(t.snap_checks, entry.size_checks.size()));
  // An entry that ends in eager looks at nothing computed from sizes, but what was decided on the way led there.
  t.symbols.note_guards();
  const std::vector<Expr>& facts = entry.tape ? entry.tape->facts() : t.symbols.ctx().guards();
  for (size_t i = 0; i < facts.size(); ++i) {
    entry.facts.push_back({t.symbols.program(facts[i]), t.symbols.guard_text(i)});
  }
  entry.capture_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - t.start).count() - t.run_seconds;
  if (entry.end != Entry::End::kEager) {
    bool attached = false;
    if (!cancellable([&] { attached = attach_runner(entry, owner_, api_); })) cut_ = true;
    if (!attached) return false;
    if (!entry.tape->nodes().empty()) ++stats().graphs;
    const char* what = entry.tape->has_regions()            ? "checkpoints"
                       : entry.tape->has_custom_backwards() ? "an autograd.Function"
                       : entry.tape->has_hooks()            ? "hooks on gradients"
                                                            : nullptr;
    if (!entry.fallback_reason.empty() && what != nullptr) {
      // The tape would keep what checkpoints let go of, lacks the user's backward, and does not look whether hooks changed.
      entry.end = Entry::End::kEager;
      entry.callees = true;
      entry.why = place_of(reinterpret_cast<PyCodeObject*>(entry.code), entry.offset);
      entry.why.reason = str_cat("a graph with ", what, " does not compile: ", entry.fallback_reason);
      owner_.breaks.push_back(entry.why);
      ++stats().breaks;
    }
    if (explaining() == Explaining::kMeasure) measure_entry(entry, t.objects, api_);
  }
  return true;
}

void Tracer::end_trace() {
  set_mode(false);
  if (trace_ != nullptr) take_back_symbols();
  trace_.reset();
  waiting_.reset();
}

}  // namespace tatara::capture
