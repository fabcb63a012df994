// Runs calls of an open trace for their values, beside it: once more, with the generators of random numbers put back and on copies of
// what is older than the trace.
#include <algorithm>
#include <optional>
#include <set>

#include "capture/entries/identities.h"
#include "capture/host/known_calls.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {

/// Whether a call may be made twice: no code of the program's runs, and what it writes to is the trace's own or can be copied.
bool ValueTracing::may_run(const TapeNode& node) const {
  const Tape& tape = trace_->tape;
  if (number_operation(node) != nullptr) return true;
  if (is_leaf_mark(node)) return !tape.slots()[static_cast<size_t>(node.outputs[0])].input;
  if (const GradientPass* pass = engine_pass(node)) return !pass->hooks && !tape.has_hooked_results();
  if (!is_operator_call(node) || !node.func || node.level != 0 || node.has_generator()) return false;
  return !is_dispatcher_operator(node.func.get()) || !known_name(node).empty();
}

/// The inputs that these calls write to, themselves or by views. The weights of a norm that want gradients are not among them.
std::set<int> ValueTracing::inputs_written(const std::vector<size_t>& calls) const {
  const Tape& tape = trace_->tape;
  std::set<int> inputs;
  for (const size_t n : calls) {
    const TapeNode& node = tape.nodes()[n];
    if (!node.mutates && !node.statistics) continue;
    for (PyObject* argument : written_arguments(node)) {
      for_each_slot(argument, [&](int slot) {
        const int owner = memory_owner(tape, slot);
        const TapeSlot& info = tape.slots()[static_cast<size_t>(owner)];
        const bool weight = node.statistics && info.object && api_.is_tensor(info.object.get()) &&
                            api_.requires_grad(info.object.get());
        if ((info.input || info.real) && !info.number && !weight) inputs.insert(owner);
      });
    }
  }
  return inputs;
}

/// Copies of inputs, which calls write to in their place: running statistics, say. False: too big, or other tensors may share their
/// memory.
bool ValueTracing::copy_inputs(const std::set<int>& inputs) {
  const Tape& tape = trace_->tape;
  const std::vector<TapeSlot>& slots = tape.slots();
  for (const int slot : inputs) {
    if (own_.copies.contains(slot)) continue;
    PyObject* const tensor = slots[static_cast<size_t>(slot)].object.get();
    const Ref device = attr_or_null(tensor, "device"), type = device ? attr_or_null(device.get(), "type") : Ref();
    const Ref bytes = attr_or_null(tensor, "nbytes");
    const bool weight = api_.requires_grad(tensor);
    if (!api_.is_plain_tensor(tensor) || !type || text_of(type.get()) != "cpu" || !bytes) return false;
    if (weight && !api_.is_leaf(tensor)) return false;
    own_.copied_bytes += PyLong_AsSize_t(bytes.get());
    if (own_.copied_bytes > own_.most_copied) return false;
    for (size_t i = 0; i < own_.env.size(); ++i) {  // views that are there already
      if (own_.env[i] && !slots[i].input && view_origin(tape, static_cast<int>(i)).base == slot) return false;
    }
    Ref copy = Ref::steal(PyObject_CallMethod(tensor, "clone", nullptr));
    if (copy && weight) copy = Ref::steal(PyObject_CallMethod(copy.get(), "requires_grad_", nullptr));
    if (!copy) return false;
    own_.copies.emplace(slot, std::move(copy));
  }
  return own_.copies.empty() || copies_are_apart();
}

/// Whether no other input has memory of one that is copied.
bool ValueTracing::copies_are_apart() const {
  const auto memory_of = [](PyObject* tensor) { return storage_address(tensor).value_or(0); };
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  std::set<int64_t> copied;
  for (const auto& [slot, copy] : own_.copies) copied.insert(memory_of(slots[static_cast<size_t>(slot)].object.get()));
  if (copied.size() != own_.copies.size() || copied.contains(0)) return false;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!(slots[i].input || slots[i].real) || slots[i].number || own_.copies.contains(static_cast<int>(i))) continue;
    PyObject* const tensor = slots[i].object.get();
    if (tensor != nullptr && api_.is_tensor(tensor) && copied.contains(memory_of(tensor))) return false;
  }
  return true;
}

/// Which of the calls that have not run are to: those that the slots come from, or all of them where order counts, since some
/// write or draw random numbers. Nothing: one of them may not run.
std::optional<std::vector<size_t>> ValueTracing::calls_for(const std::vector<int>& slots) const {
  const Tape& tape = trace_->tape;
  const std::vector<TapeNode>& nodes = tape.nodes();
  std::vector<bool> wanted(tape.slots().size());
  for (const int slot : slots) wanted[static_cast<size_t>(slot)] = true;
  bool all =
      std::any_of(nodes.begin(), nodes.end(), [](const TapeNode& node) { return node.mutates || node.statistics; });
  std::vector<size_t> needed, pending;
  for (size_t n = nodes.size(); n-- > 0;) {
    if (own_.done[n]) continue;
    pending.push_back(n);
    const TapeNode& node = nodes[n];
    const bool makes = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](int slot) { return slot >= 0 && wanted[static_cast<size_t>(slot)]; });
    if (!makes) continue;
    needed.push_back(n);
    all = all || varies(node);
    const auto want = [&wanted](int slot) { wanted[static_cast<size_t>(slot)] = true; };
    for_each_slot(node.args.get(), want);
    for_each_slot(node.kwargs.get(), want);
  }
  std::vector<size_t>& chosen = all ? pending : needed;
  if (!std::all_of(chosen.begin(), chosen.end(), [&](size_t n) { return may_run(nodes[n]); })) return std::nullopt;
  std::reverse(chosen.begin(), chosen.end());
  return std::move(chosen);
}

bool ValueTracing::run_calls(const std::vector<size_t>& calls) {
  const Tape& tape = trace_->tape;
  for (const size_t n : calls) {
    const TapeNode& node = tape.nodes()[n];
    std::vector<Ref> results;
    own_.done[n] = true;
    if (is_leaf_mark(node) && !own_.with_gradients) continue;
    api_.set_grad(own_.with_gradients && node.grad);
    if (!Tape::call(node, own_.env, trace_->symbols.hints(), results)) return false;
    for (size_t k = 0; k < node.outputs.size() && k < results.size(); ++k) {
      if (node.outputs[k] >= 0) own_.env[static_cast<size_t>(node.outputs[k])] = results[k];
    }
  }
  api_.set_grad(false);
  return true;
}

/// Results that the program lets go of, and no call that has not run reads, are wanted no more.
void ValueTracing::drop_unseen() {
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  std::vector<bool> read(slots.size());
  for (size_t n = 0; n < own_.done.size(); ++n) {
    const TapeNode& node = trace_->tape.nodes()[n];
    const auto reads = [&read](int slot) { read[static_cast<size_t>(slot)] = true; };
    if (own_.done[n]) continue;
    for_each_slot(node.args.get(), reads);
    for_each_slot(node.kwargs.get(), reads);
  }
  for (size_t i = 0; i < own_.env.size(); ++i) {
    const TapeSlot& slot = slots[i];
    if (slot.input || slot.number || !slot.object || read[i]) continue;
    const Py_ssize_t own = slot.meta.get() == slot.object.get() ? 2 : 1;
    if (Py_REFCNT(slot.object.get()) <= own) own_.env[i] = Ref();
  }
}

/// The tape has run so far.
void ValueTracing::take_run() {
  const Tape& tape = trace_->tape;
  own_.done.assign(tape.nodes().size(), true);
  own_.copies.clear();
  own_.copied_bytes = 0;
  own_.env.resize(tape.slots().size());
  own_.random = Ref();
  for (size_t i = 0; i < own_.env.size(); ++i) {
    const TapeSlot& slot = tape.slots()[i];
    if (slot.input || slot.real) own_.env[i] = slot.object;
  }
  for (const auto& [slot, number] : tape.numbers_made()) own_.env[static_cast<size_t>(slot)] = number;
}

/// Runs what these slots come from. False: it may not run twice, or fails.
bool ValueTracing::advance(const std::vector<int>& slots) {
  const Tape& tape = trace_->tape;
  if (own_.refused) return false;
  own_.done.resize(tape.nodes().size());
  own_.env.resize(tape.slots().size());
  for (size_t i = 0; i < own_.env.size(); ++i) {
    if (tape.slots()[i].input || tape.slots()[i].real) own_.env[i] = tape.slots()[i].object;
  }
  for (const auto& [slot, copy] : own_.copies) own_.env[static_cast<size_t>(slot)] = copy;
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    const TapeNode& node = tape.nodes()[n];
    if (own_.done[n] || (!is_numpy_operation(node) && !draws_by_numpy(node))) continue;
    own_.done[n] = true;  // when it was recorded
    for (const int slot : node.outputs) {
      const auto number = tape.numbers_made().find(slot);
      const bool made = number != tape.numbers_made().end();
      if (slot >= 0)
        own_.env[static_cast<size_t>(slot)] = made ? number->second : tape.slots()[static_cast<size_t>(slot)].object;
    }
  }
  const std::optional<std::vector<size_t>> calls = calls_for(slots);
  if (!calls) return false;
  if (calls->empty()) return true;
  const auto is_pass = [&tape](size_t n) { return engine_pass(tape.nodes()[n]) != nullptr; };
  if (!own_.with_gradients && std::any_of(calls->begin(), calls->end(), is_pass)) {
    // What it goes through has to run with gradients: all over again.
    if (tape.nodes_done() > 0 || is_mixed_tape(tape)) return false;
    const size_t most = own_.most_copied;
    own_ = {};
    own_.with_gradients = true;
    own_.most_copied = most;
    return advance(slots);
  }
  if (!copy_inputs(inputs_written(*calls))) {
    forget_error();
    own_.refused = true;
    own_.env.clear();
    return false;
  }
  for (const auto& [slot, copy] : own_.copies) own_.env[static_cast<size_t>(slot)] = copy;
  // Put back whatever is known of the calls: a library's may draw, too.
  const Ref before = generator_states(api_), start = own_.random ? own_.random : before;
  own_.refused = !before || (own_.random && !set_generator_states(own_.random.get())) || !run_calls(*calls);
  if (before) {
    own_.random = generator_states(api_);
    // A draw that nobody said: what came before it, or did not, is not known.
    const bool said = std::any_of(calls->begin(), calls->end(), [&tape](size_t n) { return varies(tape.nodes()[n]); });
    own_.refused = own_.refused || !own_.random || (!said && !same_states(api_, start.get(), own_.random.get()));
    own_.refused = !set_generator_states(before.get()) || own_.refused;
  }
  if (own_.refused) own_.env.clear();
  forget_error();
  drop_unseen();
  return !own_.refused;
}

}  // namespace tatara::capture
