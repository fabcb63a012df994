// A trace that only finds out what a call does (Tracer::dry_run).
#include "capture/trace/call_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/write_tracing.h"
#include "ops/core/op_def.h"

namespace tatara::capture {
namespace {

/// Calls fn for the tensors in tuples, lists and dicts.
template <typename Fn>
void tensors_in(PyObject* object, const Fn& fn) {
  if (object == nullptr) return;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      tensors_in(PySequence_Fast_GET_ITEM(object, i), fn);
  } else if (PyDict_Check(object)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value) != 0) tensors_in(value, fn);
  } else if (TorchApi::get()->is_torch_tensor(object)) {
    fn(object);
  }
}

}  // namespace

void TraceEnds::finish_look(PyObject* result) {
  Trace& t = *trace_;
  const ErrorAside aside;
  context_.state = State::kConcrete;
  modes().set_mode(false);
  const Bypass bypass(bypass_);
  writes().drop_undone_switches();
  if (!t.effects.empty() && context_.found.empty()) context_.found = "it writes to objects from before the call";
  if (calls().sets_context() && context_.found.empty()) context_.found = "it sets a context variable";
  if (context_.found.empty() && t.snap.grad != t.state.grad) context_.found = "it switches gradients";
  for (const TapeSlot& slot : t.tape.slots()) {
    if (context_.found.empty() && slot.input && slot.guard_index < 0 && slot.requires_grad && t.state.grad) {
      context_.found = "it reads a tensor that requires grad and is no argument";
    }
  }
  for (const TapeNode& node : t.tape.nodes()) {
    if (context_.found.empty() && engine_pass(node) != nullptr) context_.found = "it calls the engine of gradients";
    context_.switches_grad = context_.switches_grad || node.grad != t.snap.grad;
  }
  try {
    if (context_.found.empty()) {
      numbers().take_back_symbols();
      const std::shared_ptr<Tape> tape = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
      std::vector<int> outputs;
      tensors_in(result, [&](PyObject* tensor) { outputs.push_back(t.tape.find(tensor)); });
      std::erase(outputs, -1);
      tape->set_outputs(std::move(outputs));
      const TapeGraph made = build_graph(*tape, api_);
      if (!made.graph.input_writes().empty() || !made.late_nodes.empty())
        context_.found = "it writes to a tensor from before the call";
      for (const GraphOutput& output : made.graph.outputs()) {
        if (output.alias.kind != OutputAlias::Kind::kFresh)
          context_.found = "a result shares memory with another tensor";
      }
      for (const Node& node : made.graph.nodes()) {
        if (node.op->draws()) context_.found = "it draws random numbers";
      }
    }
  } catch (const std::exception& error) {
    context_.found = error.what();
  }
  t.transaction.undo();
  // A generator that is closed would leave a level (`with` in torch.func) that only the trace has entered.
  lifetimes().drop_finalizers();
  forget_error();
  end_trace();
}

}  // namespace tatara::capture
