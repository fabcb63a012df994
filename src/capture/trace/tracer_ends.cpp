// How a trace ends: a graph break, a return, an error, or being taken back; and the entry that it leaves.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "capture/entries/capture_log.h"
#include "capture/entries/lifetimes.h"
#include "capture/entries/stats.h"
#include "capture/graph/eager_cost.h"
#include "capture/graph/tape_arguments.h"
#include "capture/host/inference_mode.h"
#include "capture/run/runner.h"
#include "capture/tape/tape_counts.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/tracer_parts.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"
#include "compiler/compiler.h"
#include "support/options.h"
#include "support/str_cat.h"

namespace tatara::capture {

UserLocation TraceContext::user_location() const {
  for (auto it = frames.rbegin(); it != frames.rend(); ++it) {
    PyCodeObject* code = (*it)->code();
    std::string name = text_of(code->co_filename);
    // Torch's own code, and ours that stands in for it (tatara/torch/).
    if (name.find("/torch/") != std::string::npos && it + 1 != frames.rend()) continue;
    return {std::move(name), (*it)->line(), text_of(code->co_name)};
  }
  return {};
}

BreakInfo TraceContext::here(std::string reason) const {
  UserLocation location = user_location();
  return {std::move(reason), std::move(location.file), std::move(location.function), location.line};
}

ReconstructionWorld TraceEnds::reconstruction_world() {
  Trace& t = *trace_;
  // A constant that became a value of the tape in the instruction that breaks the graph is a constant still.
  const auto slot_of_object = [&t](PyObject* o) {
    const int slot = t.tape.find(o);
    const TapeNode* const maker = slot >= 0 ? t.tape.maker(slot) : nullptr;
    const bool cut =
        maker != nullptr && maker->name == kCopyOfConstants && maker >= t.tape.nodes().data() + t.snap.nodes;
    return cut ? -1 : slot;
  };
  return {slot_of_object,
          [this](PyObject* o) { return origins().source_of(o); },
          [this](PyObject* o) { return origins().origin(o); },
          [this](PyObject* o) { origins().adopt(o); },
          [this](PyObject* o) { return origins().instance_of(o); },
          t.symbols};
}

bool TraceEnds::want_handled(Entry& entry, ReconstructionBuilder& builder, PyObject* handled) const {
  entry.at_end.handles = handled != trace_->start.exception.get();
  return !entry.at_end.handles || builder.want(handled != nullptr ? handled : Py_None);
}

bool TraceContext::graph_break(const std::string& reason, bool stay_eager) {
  return features.ends->graph_break(reason, stay_eager);
}

bool TraceEnds::has_changed() const {
  const Trace& t = *trace_;
  bool changed = t.mutated;
  for (size_t n = t.snap.nodes; n < t.tape.nodes().size(); ++n)
    changed = changed || changes_older(t.tape, n, t.snap.nodes);
  return changed;
}

bool TraceEnds::graph_break(const std::string& reason, bool stay_eager) {
  Trace& t = *trace_;
  if (context_.ahead != nullptr) {
    // Nothing of what is traced ahead happens.
    if (context_.ahead->problem.empty()) context_.ahead->problem = reason;
    PyErr_SetString(PyExc_RuntimeError, reason.c_str());
    return false;
  }
  if (context_.dry_run) {
    if (context_.found.empty()) context_.found = reason;
    PyErr_SetString(PyExc_RuntimeError, reason.c_str());
    return false;
  }
  turns().end();
  if (!context_.whole.empty() && leave_apart()) return false;
  if (leave_keys() || (modes().has_programs() && leave_modes(reason))) return false;
  if (numpy().leave_body(reason) || leave_inference(false) || (!stay_eager && leave_generators())) return false;
  context_.state = State::kBroken;
  // What goes on for real meets no mode of ours: other compilers would. Where this runs inside of the mode's handler, torch
  // puts the mode back behind it, and the next instruction or frame takes it off.
  modes().set_mode(false);
  ++bypass_;
  const bool in_modes = modes().give_programs();
  auto entry = std::make_unique<Entry>();
  const BreakInfo why = entry->why = here(reason);
  const bool changed = has_changed();
  take_sources();
  const ReconstructionWorld world = reconstruction_world();
  ReconstructionBuilder builder(entry->reconstruction, world, api_);
  bool can_resume = !changed && !stay_eager && !in_modes && !lifetimes().ends_for_good() && !calls().sets_context() &&
                    t.snap.levels == 0 && !t.snap.inference;
  if (const std::string keeps = keeps_noticed(*entry, t.object_guards); !keeps.empty()) {
    can_resume = false;
    entry->why.reason += "; " + keeps;
  }
  if (changed) entry->why.reason += "; state changed inside the instruction before it";
  for (const Ref& local : t.snap.locals) can_resume = can_resume && builder.want(local.get());
  for (const Ref& value : t.snap.stack) can_resume = can_resume && builder.want(value.get());
  can_resume = can_resume && want_handled(*entry, builder, t.snap.handled.get());
  can_resume = can_resume && entry->effects.build(t.effects, t.snap.effects, builder);
  if (!builder.why().empty()) entry->why.reason += "; the frame holds " + builder.why();
  can_resume = can_resume && !gradients().leaves_hooked(entry->reconstruction.slots());
  if (gradients().leaves_retained(entry->reconstruction.slots()) != nullptr) {
    --bypass_;
    if (leave_retained(entry->reconstruction.slots())) return false;
    ++bypass_;
    can_resume = false;
  }
  entry->end = can_resume ? Entry::End::kBreak : Entry::End::kEager;
  entry->callees = !stay_eager;
  entry->break_offset = t.snap.offset;
  entry->local_count = static_cast<int>(t.snap.locals.size());
  if (t.snap.grad != t.state.grad) entry->at_end.grad = t.snap.grad;
  if (can_resume) {
    entry->tape = t.tape.detach(t.snap.nodes, t.snap.facts);
    entry->in_inference = static_cast<bool>(t.start.inference_mode.guard);
    entry->tape->set_outputs(entry->reconstruction.slots());
  }
  ++stats().breaks;
  owner_.breaks.push_back(why);
  log_break(entry->why);
  --bypass_;
  if ((owner_.fullgraph || !context_.whole.empty()) && !stay_eager) {
    if (t.transaction.can_undo() || run_tape()) raise_unsupported(why);
    return refuse();
  }
  context_.root->ends_trace = !can_resume;
  if (!stay_eager) context_.note_broken_calls();
  ++bypass_;
  // Its code would go on with gradients and with hooks on saved tensors, which eager has not.
  if (checkpoints().in_reentrant() && take_back()) {
    --bypass_;
    return leave_to_eager(std::move(entry), false) && unwind();
  }
  bool ok = run_tape();
  if (!ok && take_back()) {
    --bypass_;
    return (t.tape.mismatch().empty() || note_mismatch(std::move(entry), false)) && unwind();
  }
  if (!ok) undo_later_writes();
  const bool ran = ok;
  if (ok && entry->tape) entry->tape->take_layouts(t.tape);
  cut_ = cut_ || error_postponed();
  const bool prepared = ok && !cut_ && prepare_entry(*entry, true);
  --bypass_;
  if (ok && !prepared && !cut_) refuse();
  if (context_.state == State::kUnwinding) return false;
  if (ran) iterators().perform_steps(SIZE_MAX);
  if (prepared && !entry->to_split) owner_.cache.add(std::move(entry));
  context_.stopped = context_.stopped || stay_eager || !prepared;
  ok = prepared || (ok && cut_);
  waiting_.reset();
  cut_ = false;
  if (ok && interrupted()) ok = deliver() == 0;  // not later: what follows may wait for long
  // Each frame may go on with a graph of its own once the present instruction is done.
  for (Frame* frame : context_.frames) {
    if (frame != context_.root) frame->root = context_.may_be_root(*frame) || modes().count() > 0 || !api_.present();
  }
  return ok;
}

void TraceEnds::settle_symbols() {
  numbers().take_back_symbols();
  trace_->symbols.settle();
}

/// What gradients are counted from, before the first call of the tape runs.
void TraceEnds::note_first_node() {
  if (trace_->tape.nodes_done() > 0 && first_node_) return;
  const bool may_spoil = api_.present() && std::any_of(trace_->tape.nodes().begin(), trace_->tape.nodes().end(),
                                                       [](const TapeNode& node) { return node.mutates; });
  first_node_ = may_spoil ? call_package<PackageFunction::kNextNode>() : Ref();
  if (!first_node_) forget_error();
}

bool TraceEnds::run_tape() {
  const auto start = std::chrono::steady_clock::now();
  settle_symbols();
  const AutocastOff off(api_);
  const InferenceMode mode(api_, trace_->start.inference_mode.left());
  const Transaction::Scope scope(trace_->transaction);
  note_first_node();
  const bool ok = trace_->tape.materialise(
      api_, [this, start] { return may_stop(start); }, held_by_trace(), [this] { return can_take_back(); });
  if (ok) gradients().perform_later_effects();
  if (ok && !gradients().perform_retained()) return false;
  trace_->run_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ok;
}

// ---- Giving up -------------------------------------------------------------------------------------------------------

void TraceEnds::begin_transaction() {
  Trace& t = *trace_;
  t.start.exception = Ref::steal(PyErr_GetHandledException());
  t.transaction.on_undo([this] {
    writes().undo_switches();
    if (api_.present()) api_.set_grad(trace_->state.grad);
    return true;
  });
  t.transaction.on_undo([this] { return trace_->object_guards.undo_writes(); });
}

bool TraceEnds::unwind() {
  context_.state = State::kUnwinding;
  forget_error();
  for (Frame* frame : context_.frames) frame->root = true;
  PyErr_SetNone(unwinding_error());
  return false;
}

bool TraceEnds::retry_untold() {
  if (!trace_->asked_compiling || context_.dry_run || context_.ahead != nullptr || !retry()) return false;
  owner_.tells_eager = true;
  return true;
}

bool TraceEnds::retry() {
  ++bypass_;
  const bool back = take_back();
  --bypass_;
  if (!back) return false;
  retrace_ = true;
  unwind();
  return true;
}

bool TraceEnds::refuse() {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  take_back();
  refusal_ = Ref::steal(take_raised());
  return unwind();
}

FrameAction TraceEnds::land(Frame& f) {
  Trace& t = *trace_;
  forget_error();
  modes().set_mode(false);
  // Code in C that was on the way (autograd.Function.apply) has put back what it found, after the transaction's end.
  if (api_.present()) api_.set_grad(t.state.grad);
  const Ref handled = Ref::steal(PyErr_GetHandledException());
  if (handled.get() != t.start.exception.get()) PyErr_SetHandledException(t.start.exception.get());
  context_.state = State::kConcrete;
  // Where the compiler refused a call, the next trace breaks the graph there, and begins at once.
  const bool again = std::exchange(retrace_, false);
  context_.call_again = again && t.start.of_call;
  f.root = again;
  context_.stopped = !again;
  if (refusal_) {
    end_trace();
    set_raised(refusal_.release());
    return FrameAction::kAbandon;
  }
  for (int i = 0; i < f.local_count(); ++i) f.set_local(i, t.start.locals[static_cast<size_t>(i)].get());
  std::vector<PyObject*> stack;
  for (const Ref& value : t.start.stack) stack.push_back(value.get());
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(t.start.offset, static_cast<int>(stack.size()));
  end_trace();
  return FrameAction::kReload;
}

FrameAction Tracer::on_exception(Frame& f, bool handled) {
  if (handled) delivered();
  turns().raises(f);
  if (context_.state == State::kUnwinding) {
    if (&f == context_.root) return ends().land(f);
    ends().unwind();
    return FrameAction::kAbandon;
  }
  // Nothing of what is only looked at happens: nor do handlers. Those of what is traced ahead leave its context managers.
  if (context_.dry_run && !context_.found.empty()) return FrameAction::kAbandon;
  return &f == context_.root && !handled && context_.state == State::kTracing && !context_.dry_run ? ends().leave_root()
                                                                                                   : FrameAction::kRun;
}

/// What was recorded happens now.
FrameAction TraceEnds::leave_root() {
  Ref leaving = Ref::steal(PyErr_Occurred() != nullptr ? take_raised() : nullptr);
  context_.state = State::kConcrete;
  modes().set_mode(false);
  ++bypass_;
  if (leaving && !trace_->asked_compiling) owner_.tells_eager = false;  // it raises in any case
  if (leaving && trace_->asked_compiling && take_back()) {
    --bypass_;
    owner_.tells_eager = retrace_ = true;
    return land(*context_.root);
  }
  note_leaving(leaving.get());
  const bool ok = run_tape();
  const bool again = !ok && take_back();
  if (!ok && !again) undo_later_writes();
  --bypass_;
  if (again) return land(*context_.root);
  if (!ok) return FrameAction::kAbandon;  // it would have failed before
  iterators().perform_steps(SIZE_MAX);
  if (leaving) set_raised(leaving.release());
  return FrameAction::kRun;
}

bool TraceEnds::note_mismatch(std::unique_ptr<Entry> entry, bool prepared) {
  const Tape& tape = trace_->tape;
  const TapeNode& node = tape.nodes()[tape.nodes_done()];
  RefusedCalls& known = tape.copies() ? owner_.learned.copies : owner_.learned.told_wrong;
  const bool again = tape.copies() || !is_of_library(node.name);
  if (again && known.add(node.name, node.location.file, node.location.line, tape.mismatch())) {
    retrace_ = true;
    return true;
  }
  entry->why = {tape.mismatch(), node.location.file, node.location.function, node.location.line};
  owner_.breaks.push_back(entry->why);
  log_break(entry->why);
  ++stats().breaks;
  if (owner_.fullgraph) {
    raise_unsupported(entry->why);
    return refuse();
  }
  return leave_to_eager(std::move(entry), prepared);
}

bool TraceEnds::leave_to_eager(std::unique_ptr<Entry> entry, bool prepared) {
  entry->end = Entry::End::kEager;
  entry->callees = true;
  entry->tape = nullptr;
  entry->runner = nullptr;
  const Bypass bypass(bypass_);
  if (!prepared && !prepare_entry(*entry, false)) return refuse();
  owner_.cache.add(std::move(entry));
  return true;
}

void TraceEnds::undo_later_writes() {
  Trace& t = *trace_;
  const ErrorAside aside;
  gradients().perform_later_effects();
  iterators().perform_steps(t.tape.nodes_done());
  const bool later = std::any_of(t.effects.begin(), t.effects.end(), [&t](const Effect& e) {
    return !e.later && e.kind != Effect::Kind::kNext && e.nodes > t.tape.nodes_done();
  });
  if (!later || !t.object_guards.undo_writes()) return;
  writes().undo_switches();
  for (const Effect& effect : t.effects) {
    if (effect.later || effect.kind == Effect::Kind::kNext) continue;
    if (effect.nodes <= t.tape.nodes_done() && !perform(effect)) forget_error();
  }
}

bool TraceEnds::finish_return(Frame& f, PyObject* result) {
  Trace& t = *trace_;
  turns().end();
  if (context_.dry_run) {
    finish_look(result);
    return true;
  }
  const bool in_modes = modes().has_programs();
  if (in_modes && leave_modes("it stays on")) return false;
  if (leave_inference(true)) return false;
  context_.state = State::kConcrete;
  modes().set_mode(false);
  modes().give_programs();
  ++bypass_;
  auto entry = std::make_unique<Entry>();
  take_sources();
  const ReconstructionWorld world = reconstruction_world();
  ReconstructionBuilder builder(entry->reconstruction, world, api_);
  std::string closes = in_modes ? "a torch function mode stays on" : lifetimes().waiting_generator();
  if (closes.empty()) closes = keeps_noticed(*entry, t.object_guards);
  if (closes.empty() && !calls().sets_context() && transforms().open() == 0 && !t.snap.inference &&
      builder.want(result) && want_handled(*entry, builder, Ref::steal(PyErr_GetHandledException()).get()) &&
      entry->effects.build(t.effects, t.effects.size(), builder)) {
    entry->end = Entry::End::kReturn;
    entry->cleared_first = gradients().slots_cleared_first();
    entry->tape = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
    entry->in_inference = static_cast<bool>(t.start.inference_mode.guard);
    entry->tape->set_outputs(entry->reconstruction.slots());
    if (t.snap.grad != t.state.grad) entry->at_end.grad = t.snap.grad;
  } else {
    entry->end = Entry::End::kEager;
    entry->callees = true;
    entry->why = here(closes.empty() ? "the result or a write holds " + builder.why() : closes);
    owner_.breaks.push_back(entry->why);
    log_break(entry->why);
    ++stats().breaks;
  }
  --bypass_;
  if (leave_retained(entry->reconstruction.slots())) return false;
  if (owner_.fullgraph && entry->end == Entry::End::kEager) {
    raise_unsupported(entry->why);
    return refuse();
  }
  if (!run_return(f, std::move(entry))) return false;
  iterators().perform_steps(SIZE_MAX);
  context_.stopped = context_.stopped || cut_;
  // The trace's references may be the last ones: finalizers run in the program's own context.
  end_trace();
  // The results are there, and the frame is about to return them.
  return !std::exchange(cut_, false) || deliver() == 0;
}

namespace {

/// Whether NumPy itself does what is on the tape in less than a trace takes.
bool is_slight(const Tape& tape) {
  constexpr double kTrace = 1e-3;
  double seconds = 0;
  for (const TapeNode& node : tape.nodes()) seconds += seconds_in_eager(tape, node);
  return is_numpy_tape(tape) && seconds < kTrace;
}

}  // namespace

bool TraceEnds::run_return(Frame& f, std::unique_ptr<Entry> entry) {
  Trace& t = *trace_;
  const bool compiled_first = may_run_compiled(*entry);
  ++bypass_;
  if (compiled_first) settle_symbols();
  bool prepared = !compiled_first || prepare_entry(*entry, false) || cut_;
  if (explaining() != Explaining::kOff) refuse_ahead(*entry);
  if (prepared && entry->to_split && take_back()) {
    --bypass_;
    retrace_ = true;
    return unwind();
  }
  const bool ran = prepared && (compiled_first && !cut_ ? run_compiled(f, *entry) : run_tape());
  cut_ = cut_ || error_postponed();
  if (ran && !compiled_first && !cut_) {
    if (entry->tape) entry->tape->take_layouts(t.tape);
    prepared = prepare_entry(*entry, true) || cut_;
  }
  if (ran && compiled_first && !cut_ && !entry->runner->compiled() && entry->end != Entry::End::kEager) {
    split_late(*entry);
  }
  --bypass_;
  if (!prepared) {
    refuse();
    if (context_.state != State::kUnwinding) end_trace();
    return false;
  }
  if (ran) {
    if (!cut_ && !entry->to_split) owner_.cache.add(std::move(entry));
    return true;
  }
  const Bypass bypass(bypass_);
  if (take_back()) return (t.tape.mismatch().empty() || note_mismatch(std::move(entry), compiled_first)) && unwind();
  undo_later_writes();
  end_trace();
  return false;
}

/// Tensors of places that the trace wrote to become inputs that come with each call.
void TraceEnds::take_sources() {
  Trace& t = *trace_;
  const auto wanted = [&t](PyObject* tensor) {
    const int slot = t.tape.find(tensor);
    return t.index_of(tensor) < 0 && !t.tape.makes(slot);
  };
  for (PyObject* tensor : t.object_guards.take_sources(api_, wanted)) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(tensor);
    t.alive.push_back(Ref::borrow(tensor));
    t.object_index[tensor] = index;
    if (const int slot = t.tape.find(tensor); slot >= 0) t.tape.set_guard_index(slot, index);
  }
  // What weak references found comes with each call too, so that nothing here keeps it alive.
  for (PyObject* object : t.object_guards.weakly_held()) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(object);
    if (!t.object_index.emplace(object, index).second) continue;
    if (const int slot = t.tape.find(object); slot >= 0) t.tape.set_guard_index(slot, index);
  }
  for (PyObject* tensor : t.object_guards.take_gradients()) {
    const int index = static_cast<int>(t.objects.size());
    t.objects.push_back(tensor);
    if (!t.object_index.emplace(tensor, index).second) continue;
    if (const int slot = t.tape.find(tensor); slot >= 0) t.tape.set_guard_index(slot, index);
  }
  guard_histories();
}

/// Where gradients are on, what tensors require them tells what results do.
void TraceEnds::guard_histories() {
  Trace& t = *trace_;
  const std::vector<TapeNode>& nodes = t.tape.nodes();
  t.guard.check_grad =
      t.guard.check_grad || std::any_of(nodes.begin(), nodes.end(), [](const TapeNode& node) { return node.grad; });
  for (const TapeSlot& slot : t.tape.slots()) {
    if (!t.guard.check_grad || !slot.input || slot.number || slot.guard_index >= 0) continue;
    if (api_.is_torch_tensor(slot.object.get())) t.object_guards.requires_grad(slot.object.get(), slot.requires_grad);
  }
}

bool TraceEnds::prepare_entry(Entry& entry, bool ran) {
  Trace& t = *trace_;
  entry.code = t.start.code;
  entry.held_code = Ref::borrow(t.start.code);
  entry.offset = t.start.offset;
  entry.way = {t.snap.furthest, is_slight(t.tape)};
  entry.guards.state = t.state;
  // Transforms refuse hooks, and checkpoints keep their operands whether anything requires grad or not.
  entry.guards.state.saves_tensors =
      entry.tape && (is_training_tape(*entry.tape) || entry.tape->has_transforms() || entry.tape->has_regions());
  origins().forget_unread(entry.tape.get());
  entry.guards.arguments = std::move(t.guard);
  if (!entry.keeps_nothing) {
    origins().note_identities(entry.guards.identities);
    transforms().note_places(entry.guards.identities);
    entry.guards.objects = std::move(t.object_guards);
    entry.guards.objects.leave_writes(t.object_guards);
  }
  entry.guards.size_checks = std::move(t.size_checks);
  if (entry.end == Entry::End::kBreak)
    entry.guards.size_checks.resize(std::min(t.snap.checks, entry.guards.size_checks.size()));
  for (size_t i = 0; i < t.symbols.sources().size(); ++i) {
    if (t.symbols.sources()[i].slot >= 0) entry.guards.made_symbols.push_back(i);
  }
  // An entry that ends in eager looks at nothing computed from sizes, but what was decided on the way led there.
  t.symbols.note_guards();
  const std::vector<Expr>& facts = entry.tape ? entry.tape->facts() : t.symbols.ctx().guards();
  // What an exception says led nowhere: messages differ in each call.
  const size_t led_here = decided_.leaving ? std::min(decided_.facts, facts.size()) : facts.size();
  if (decided_.leaving) entry.guards.size_checks.resize(std::min(decided_.checks, entry.guards.size_checks.size()));
  for (size_t i = 0; i < led_here; ++i) {
    if (t.symbols.is_made(facts[i])) continue;  // the run looks at them
    entry.guards.facts.push_back({t.symbols.program(facts[i]), t.symbols.guard_text(i)});
  }
  entry.report.capture_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - t.start.time).count() - t.run_seconds;
  if (entry.end != Entry::End::kEager) {
    if (first_node_ && is_training_tape(*entry.tape)) note_spoiled(entry);
    bool attached = false;
    const EndingTrace ending{t.tape, t.graph, ran};
    // Compiling a pass backwards runs calls, which may draw.
    const Ref drawn = is_training_tape(*entry.tape) ? generator_states(api_) : Ref();
    if (!cancellable([&] { attached = attach_runner(entry, owner_, api_, ending); })) cut_ = true;
    if (drawn) set_generator_states(drawn.get());
    if (!attached) return false;
    if (!entry.tape->nodes().empty()) ++stats().graphs;
    tape_counts().recorded += entry.tape->nodes().size();
    const char* what = entry.tape->has_regions()            ? "checkpoints"
                       : entry.tape->has_custom_backwards() ? "an autograd.Function"
                       : entry.tape->has_hooks()            ? "hooks on gradients"
                                                            : nullptr;
    if (!entry.report.fallback_reason.empty() && what != nullptr) {
      // The tape would keep what checkpoints let go of, lacks the user's backward, and does not look whether hooks changed.
      entry.end = Entry::End::kEager;
      entry.callees = true;
      entry.why = place_of(reinterpret_cast<PyCodeObject*>(entry.code), entry.offset);
      entry.why.reason = str_cat("a graph with ", what, " does not compile: ", entry.report.fallback_reason);
      owner_.breaks.push_back(entry.why);
      log_break(entry.why);
      ++stats().breaks;
    }
    if (explaining() == Explaining::kMeasure) measure_entry(entry, t.objects, api_);
  }
  note_entry(entry);
  if (!entry.report.fallback_reason.empty() && entry.end != Entry::End::kEager && (ran || !can_split(*entry.tape))) {
    entry.to_split = learn_refusal(entry);
    if (entry.to_split) --stats().fallbacks;
  }
  return true;
}

void TraceEnds::end_trace() {
  modes().set_mode(false);
  modes().drop_programs();
  if (trace_ != nullptr) numbers().take_back_symbols();
  context_.trace.reset();
  context_.features.parts->reset();
  waiting_.reset();
  first_node_ = {};
  decided_ = {};
}

}  // namespace tatara::capture
