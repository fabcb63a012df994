// The first call of a training graph: what was traced is run by the plans that were made of it, not by the host call by call,
// whose saved values would be memory that no later call wants.
#include <algorithm>
#include <unordered_set>

#include "capture/host/natures.h"
#include "capture/host/package.h"
#include "capture/run/runner.h"
#include "capture/tape/transaction.h"
#include "capture/tape/used_history.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "support/log.h"

namespace tatara::capture {
namespace {

/// How many references the host's own side of a tensor holds of its Python object.
Py_ssize_t held_by_host(PyObject* tensor) { return use_count(tensor) > 1 ? 1 : 0; }

/// The trace has done them already, and none is a switch under which the plans would run.
bool all_done(const std::vector<Effect>& effects) {
  return std::none_of(effects.begin(), effects.end(),
                      [](const Effect& e) { return e.later || e.kind == Effect::Kind::kSwitch; });
}

/// Whether gradients keep nothing of the memory that the tape writes to, so that no write spoils what they keep: then nobody has to look
/// what the host's own run keeps. False: that is not known.
bool spoils_nothing(const Tape& tape) {
  constexpr size_t kMostAsked = 64;
  std::vector<bool> written(tape.slots().size(), false);  // slots with such memory
  for (const TapeNode& node : tape.nodes()) {
    if (!node.mutates) continue;
    for (PyObject* argument : written_arguments(node))
      for_each_slot(argument, [&](int slot) { written[static_cast<size_t>(memory_owner(tape, slot))] = true; });
  }
  UsedHistory history(tape, std::vector<bool>(tape.slots().size(), true));
  std::unordered_set<int> known;  // TapeNode::alike of calls that keep nothing
  size_t asked = 0;
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    const TapeNode& node = tape.nodes()[n];
    bool touches = false;
    const auto look = [&](int slot) { touches = touches || (slot >= 0 && written[static_cast<size_t>(slot)]); };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    for (const int slot : node.outputs) look(slot);
    if (!touches) continue;
    if (may_be_view(tape, node)) {
      for (const int slot : node.outputs) {
        if (slot >= 0) written[static_cast<size_t>(slot)] = true;
      }
    }
    if (!node.grad || known.contains(node.alike)) continue;
    if (++asked > kMostAsked || history.saves(n)) {
      TATARA_LOG(kCapture, "the first call runs in eager: gradients may keep what is written, of ", node.name);
      return false;
    }
    if (node.alike >= 0) known.insert(node.alike);
  }
  return true;
}

}  // namespace

bool TraceEnds::may_run_compiled(const Entry& entry) const {
  const Trace& t = *trace_;
  const Tape& tape = t.tape;
  if (owner_.backend || owner_.eager_backend || entry.end != Entry::End::kReturn || entry.at_end.grad ||
      !entry.cleared_first.empty() || !all_done(t.effects) || explaining() != Explaining::kOff ||
      !(is_training_tape(*entry.tape) || t.tape.seen().copies) || follows_histories(tape) || tape.has_transforms() ||
      tape.has_regions() || tape.has_custom_backwards() || tape.has_hooks() || t.symbols.has_made()) {
    return false;
  }
  // Turns of loops that were not traced are not run one by one, either.
  const bool training = is_training_tape(*entry.tape);
  const bool by_trace = !training || t.tape.seen().copies;
  bool any_writes = false;
  const auto writes = [&](const TapeNode& node) {
    if (!node.mutates || !by_trace) return node.mutates;
    any_writes = true;
    bool older = node.has_generator();
    for (PyObject* written : written_arguments(node))
      for_each_slot(written, [&](int slot) { older = older || !tape.makes(memory_owner(tape, slot)); });
    return older;
  };
  // What the program has been told of a result's strides is compared with what the host's kernel gives.
  return std::none_of(tape.slots().begin(), tape.slots().end(),
                      [](const TapeSlot& slot) { return slot.number || (slot.layout_read && !slot.input); }) &&
         std::none_of(
             tape.nodes().begin(), tape.nodes().end(),
             [&](const TapeNode& node) { return writes(node) || node.statistics || is_numpy_operation(node); }) &&
         (!training || !any_writes || spoils_nothing(tape));
}

bool TraceEnds::placeholders_seen(const Entry& entry) const {
  const std::vector<int>& outputs = entry.tape->outputs();
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    const TapeSlot& slot = slots[i];
    if (slot.input || slot.number || !slot.object) continue;
    if (std::find(outputs.begin(), outputs.end(), static_cast<int>(i)) != outputs.end()) continue;
    const Py_ssize_t own = 1 + (slot.meta.get() == slot.object.get() ? 1 : 0);
    if (Py_REFCNT(slot.object.get()) > own + held_by_host(slot.object.get())) return true;
  }
  return false;
}

HeldObjects TraceEnds::held_by_trace() const {
  HeldObjects held;
  std::vector<PyObject*> dropped;  // by the program
  const auto hold = [&](PyObject* object) {
    if (object == nullptr || Py_REFCNT(object) != ++held[object]) return;
    if (Py_TYPE(object)->tp_finalize == nullptr && !api_.is_tensor(object)) dropped.push_back(object);
  };
  for (const Ref& object : trace_->alive) hold(object.get());
  while (!dropped.empty()) {
    PyObject* object = dropped.back();
    dropped.pop_back();
    for (PyObject* part : referents(object)) hold(part);
  }
  return held;
}

void TraceEnds::note_spoiled(const Entry& entry) const {
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  const Ref results = Ref::steal(PyList_New(0));
  std::vector<int> places;
  for (const int slot : entry.tape->outputs()) {
    PyObject* tensor = slots[static_cast<size_t>(slot)].object.get();
    if (tensor == nullptr || attr_or_null(tensor, "requires_grad").get() != Py_True) continue;
    if (PyList_Append(results.get(), tensor) == 0) places.push_back(slot);
  }
  if (!places.empty()) {
    const Ref errors = call_package<PackageFunction::kSpoiled>(results.get(), first_node_.get());
    for (size_t i = 0; errors && i < places.size(); ++i) {
      PyObject* error = PyList_GetItem(errors.get(), static_cast<Py_ssize_t>(i));
      if (error != nullptr && error != Py_None) entry.tape->set_spoiled(places[i], Ref::borrow(error));
    }
  }
  forget_error();
}

bool TraceEnds::run_compiled(Frame& f, Entry& entry) {
  Trace& t = *trace_;
  std::vector<Ref> held, env;
  for (PyObject* object : t.objects) held.push_back(Ref::borrow(object));
  if (!entry.runner->checks_results()) return run_tape();
  // The frame is about to return. What it and the trace hold nobody sees any more; a placeholder that somebody else holds
  // (a cache, an iterator's state) is to have its value, which the tape gives to all of them.
  t.snap.locals.clear();
  t.snap.stack.clear();
  t.born.clear();
  t.alive.clear();
  for (int i = 0; i < f.local_count() && !f.is_held(); ++i) f.set_local(i, nullptr);
  if (placeholders_seen(entry)) return run_tape();
  entry.tape->fill_inputs(t.objects, env);
  const Transaction::Scope scope(t.transaction);
  return entry.run(env, api_) == Entry::Ran::kDone && t.tape.take_results(entry.tape->outputs(), env, api_);
}

}  // namespace tatara::capture
