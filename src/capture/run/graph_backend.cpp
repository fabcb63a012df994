// Runners of captured graphs: the tape as it stands, or a user's backend.
#include "capture/run/graph_object.h"
#include "capture/run/runner.h"
#include "capture/tape/transaction.h"
#include "compiler/compiler.h"

namespace tatara::capture {
namespace {

class EagerRunner final : public GraphRunner {
 public:
  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    return tape.run(env, api) ? Outcome::kDone : Outcome::kFailed;
  }
};

/// A user's callable: takes the graph's inputs, returns its outputs.
class CallableRunner final : public GraphRunner {
 public:
  CallableRunner(Ref callable, std::vector<int> inputs) : callable_(std::move(callable)), inputs_(std::move(inputs)) {}
  int traverse(const Visitor& visit) const override { return visit(callable_); }
  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi&) override {
    // Nobody knows what somebody else's code does, but for that of our own graphs.
    Transaction* const transaction = Transaction::current();
    if (transaction != nullptr && !is_graph_object(callable_.get())) transaction->lose("a backend's own code has run");
    return call(tape, env) ? Outcome::kDone : Outcome::kFailed;
  }

 private:
  bool call(const Tape& tape, std::vector<Ref>& env) const {
    const Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(inputs_.size())));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i), Py_NewRef(env[static_cast<size_t>(inputs_[i])].get()));
    }
    const Ref result = Ref::steal(PyObject_Call(callable_.get(), args.get(), nullptr));
    if (!result) return false;
    const Ref items =
        Ref::steal(PySequence_Fast(result.get(), "a backend's callable must return a sequence of tensors"));
    if (!items) return false;
    const std::vector<int> wanted = computed_outputs(tape);
    if (PySequence_Fast_GET_SIZE(items.get()) != static_cast<Py_ssize_t>(wanted.size())) {
      PyErr_Format(PyExc_ValueError, "the backend's callable returned %zd tensors, the graph has %zu outputs",
                   PySequence_Fast_GET_SIZE(items.get()), wanted.size());
      return false;
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      env[static_cast<size_t>(wanted[i])] =
          Ref::borrow(PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)));
    }
    return true;
  }

  Ref callable_;
  std::vector<int> inputs_;
};

}  // namespace

bool attach_runner(Entry& entry, TraceOwner& owner, TorchApi& api, const EndingTrace& trace) {
  const bool empty = entry.tape->nodes().empty();
  if (owner.backend && !empty) {
    entry.report.graph_text = entry.tape->str();
    const std::vector<int> inputs = input_slots(*entry.tape);
    const Ref graph = make_graph_object(entry.tape, entry.effects.describe());
    const Ref examples = Ref::steal(PyList_New(0));
    for (const int slot : inputs) {
      const Ref meta = entry.tape->slots()[static_cast<size_t>(slot)].meta;
      Ref object = entry.tape->slots()[static_cast<size_t>(slot)].object;
      // Arrays have no meta form: the trace's own.
      if (!object && !meta) object = trace.tape.slots()[static_cast<size_t>(slot)].object;
      if (!graph || PyList_Append(examples.get(), object ? object.get() : meta.get()) != 0) return false;
    }
    Ref callable = Ref::steal(PyObject_CallFunctionObjArgs(owner.backend.get(), graph.get(), examples.get(), nullptr));
    if (!callable) return false;
    entry.runner = std::make_unique<CallableRunner>(std::move(callable), inputs);
    return true;
  }
  if (!owner.eager_backend && !empty) {
    CompileOptions options = CompileOptions::resolve(owner.options);
    options.explain = explaining() != Explaining::kOff;
    if (is_numpy_tape(*entry.tape)) return attach_numpy(entry, options, api);
    if (is_mixed_tape(*entry.tape)) {
      attach_mixed(entry, options, api, trace);
      return true;
    }
    if (attach_compiled(entry, options, api, trace.growing)) return true;
    if (PyErr_Occurred() != nullptr) return false;
    if (attach_split(entry, options, api, trace)) return true;
    const bool later = !trace.ran && entry.report.refused_call >= 0 && can_split(*entry.tape);
    if (owner.fullgraph && !later) {
      BreakInfo why = place_of(reinterpret_cast<PyCodeObject*>(entry.code), entry.offset);
      why.reason = "the graph does not compile: " + entry.report.fallback_reason;
      raise_unsupported(why);
      return false;
    }
  }
  if (entry.report.graph_text.empty()) entry.report.graph_text = entry.tape->str();
  entry.runner = make_eager_runner();
  return true;
}

std::unique_ptr<GraphRunner> make_eager_runner() { return std::make_unique<EagerRunner>(); }

}  // namespace tatara::capture
