// Which tensors of an open trace have a history, and what else the host's meta kernels tell of a call.
#include <algorithm>
#include <functional>

#include "capture/graph/graph_from_tape.h"
#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// The host's own inference, without an import of torch's compiler.
struct MetaHelper {
  Ref call = find_package_function(PackageFunction::kMetaCall);
  MetaHelper() {
    if (!call) forget_error();
  }
};

/// Whether hooks of the program's would be called with what an operator keeps for its gradient.
bool keeps_for_hooks(const TorchApi& api) {
  const Ref hooks = Ref::steal(PyObject_CallOneArg(api.state.saved_tensor_hooks.get(), Py_True));
  forget_error();
  return hooks.get() != Py_None;
}

/// The slot whose memory a node writes to.
int written_root(const Tape& tape, const TapeNode& node) {
  const int target = PyTuple_GET_SIZE(node.args.get()) > 0 ? slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) : -1;
  return target >= 0 ? memory_owner(tape, target) : target;
}

/// Whether an operator has made the slot in memory of its own.
bool made_in_own_memory(const Tape& tape, int slot) {
  const TapeNode* made = tape.makes(slot) ? tape.maker(slot) : nullptr;
  return made != nullptr && is_operator_call(*made) && is_no_view(*made);
}

/// What writes in place do to histories, node by node: each gives its own to its operand and to that operand's base, and what
/// else was there and may lie in that memory may have it.
class WrittenHistories {
 public:
  WrittenHistories(const Tape& tape, std::vector<NeedsGrad>& needs) : tape_(tape), needs_(needs) {}

  void note(size_t n, NeedsGrad given) {
    const TapeNode& node = tape_.nodes()[n];
    const int target = slot_of(PyTuple_GET_ITEM(node.args.get(), 0)), root = written_root(tape_, node);
    const bool anywhere = tape_.makes(root) && !made_in_own_memory(tape_, root);
    for (size_t slot = 0; !any_ && slot < needs_.size(); ++slot) {
      if (!tape_.makes(static_cast<int>(slot))) doubt(slot);
    }
    any_ = true;
    // What was there at an earlier write is in doubt already.
    for (size_t k = anywhere ? all_ : shared_; k < n; ++k) {
      for (const int output : tape_.nodes()[k].outputs) {
        if (output >= 0 && (anywhere || !made_in_own_memory(tape_, output))) doubt(static_cast<size_t>(output));
      }
    }
    shared_ = n;
    if (anywhere) all_ = n;
    needs_[static_cast<size_t>(target)] = needs_[static_cast<size_t>(root)] = given;
  }

 private:
  void doubt(size_t slot) {
    if (needs_[slot] == NeedsGrad::kNo) needs_[slot] = NeedsGrad::kUnknown;
  }

  const Tape& tape_;
  std::vector<NeedsGrad>& needs_;
  size_t shared_ = 0, all_ = 0;  // nodes before these are done: results in memory that they may share, all results
  bool any_ = false;
};

}  // namespace

Ref call_meta(PyObject* func, PyObject* args, PyObject* kwargs) {
  PyObject* const helper = made_once<MetaHelper>().call.get();
  if (helper == nullptr) return Ref::steal(PyObject_Call(func, args, kwargs));
  return Ref::steal(PyObject_CallFunctionObjArgs(helper, func, args, kwargs != nullptr ? kwargs : Py_None, nullptr));
}

NeedsGrad HistoryTracing::needs_grad(int slot) const { return needs_grads()[static_cast<size_t>(slot)]; }

/// The results of the call on tensors without memory, which require grad as `needs` says (nothing: as none does); null without an
/// error: the host does not say.
Ref HistoryTracing::ask_host(const TapeNode& node, const std::vector<NeedsGrad>& needs) const {
  const Trace& t = *trace_;
  const auto to_meta = [&](PyObject* o) -> Ref {
    if (is_size_ref(o)) return size_ref_value(o, t.symbols.hints());
    if (Py_TYPE(o) == api_.device_type) return api_.meta_device;
    const int slot = slot_of(o);
    if (slot < 0) return Ref::borrow(o);
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
    if (info.number) return info.object;
    Ref twin = api_.meta_like(info.meta.get());
    if (!twin || needs.empty() || needs[static_cast<size_t>(slot)] != NeedsGrad::kYes) return twin;
    return Ref::steal(PyObject_CallMethod(twin.get(), "requires_grad_", nullptr));
  };
  if (keeps_for_hooks(api_)) return {};
  const Bypass bypass(bypass_);
  const AutocastOff off(api_);
  const GradientsSet gradients(api_, true);
  const Ref args = map_structure(node.args.get(), to_meta);
  const Ref kwargs = args && node.kwargs ? map_structure(node.kwargs.get(), to_meta) : Ref();
  Ref result = args && (kwargs || !node.kwargs) ? call_meta(node.func.get(), args.get(), kwargs.get()) : Ref();
  forget_error();
  return result;
}

/// What the host says of the results of a call whose operands need gradients or not; none where it cannot tell.
std::vector<NeedsGrad> HistoryTracing::ask_histories(size_t n, const std::vector<NeedsGrad>& needs) const {
  Trace& t = *trace_;
  const TapeNode& node = t.tape.nodes()[n];
  std::vector<NeedsGrad> operands;
  bool maybe = false;
  const auto look = [&](int slot) {
    operands.push_back(needs[static_cast<size_t>(slot)]);
    maybe = maybe || operands.back() == NeedsGrad::kUnknown;
  };
  for_each_slot(node.args.get(), look);
  for_each_slot(node.kwargs.get(), look);
  const auto known = own_.histories.find(n);
  if (known != own_.histories.end() && known->second.args.get() == node.args.get() &&
      known->second.operands == operands) {
    return known->second.results;
  }
  const Ref result = ask_host(node, needs);
  std::vector<NeedsGrad> answers;
  const std::function<void(PyObject*)> read = [&](PyObject* o) {
    if (PyTuple_Check(o) || PyList_Check(o)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) read(PySequence_Fast_GET_ITEM(o, i));
    } else {
      const bool needed = api_.is_tensor(o) && attribute_is_true(o, "requires_grad");
      answers.push_back(needed ? NeedsGrad::kYes : maybe ? NeedsGrad::kUnknown : NeedsGrad::kNo);
    }
  };
  if (result) read(result.get());
  forget_error();
  if (answers.size() != node.outputs.size()) answers.clear();
  own_.histories[n] = {node.args, operands, answers};
  return answers;
}

std::vector<NeedsGrad> HistoryTracing::needs_grads() const {
  const Tape& tape = trace_->tape;
  const std::vector<NeedsGrad> unknown(tape.slots().size(), NeedsGrad::kUnknown);
  std::vector<NeedsGrad> needs;
  for (const TapeSlot& each : tape.slots()) {
    needs.push_back(each.input && each.requires_grad ? NeedsGrad::kYes : NeedsGrad::kNo);
  }
  WrittenHistories writes(tape, needs);
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    const TapeNode& node = tape.nodes()[n];
    const GradientPass* pass = gradient_pass(node);
    for (size_t k = 0; pass != nullptr && k < node.outputs.size(); ++k) {
      needs[static_cast<size_t>(node.outputs[k])] = pass->histories[k] ? NeedsGrad::kYes : NeedsGrad::kNo;
    }
    if (is_leaf_mark(node)) needs[static_cast<size_t>(node.outputs[0])] = NeedsGrad::kYes;
    if (function_end(node) != nullptr) {
      for (const int output : node.outputs) needs[static_cast<size_t>(output)] = NeedsGrad::kYes;
      continue;
    }
    if (pass != nullptr || is_leaf_mark(node) || step_of(node) == FuncStep::kVariable) continue;
    bool any = false, maybe = false;
    const auto look = [&](int operand) {
      any = any || needs[static_cast<size_t>(operand)] == NeedsGrad::kYes;
      maybe = maybe || needs[static_cast<size_t>(operand)] == NeedsGrad::kUnknown;
    };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    if ((!any && !maybe) || (node.mutates && !node.grad)) continue;
    if (!node.grad && may_be_view(tape, node) && !detaches(node)) {
      // A view says that it requires grad where its base does, though nothing is recorded.
      for (const int output : node.outputs) needs[static_cast<size_t>(output)] = NeedsGrad::kUnknown;
      continue;
    }
    if (node.mutates) {
      if (PyTuple_GET_SIZE(node.args.get()) == 0) return unknown;
      const int target = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
      const bool out = node.kwargs && PyDict_GetItemString(node.kwargs.get(), "out") != nullptr;
      if (target < 0 || out) return unknown;
      writes.note(n, any ? NeedsGrad::kYes : NeedsGrad::kUnknown);
    }
    if (!node.grad || known_torch(node.name).is(kWithoutHistory)) continue;
    std::vector<int> operands;
    for_each_slot(node.args.get(), [&](int operand) { operands.push_back(operand); });
    std::vector<NeedsGrad> answers(node.outputs.size(), any ? NeedsGrad::kYes : NeedsGrad::kUnknown);
    if (any && step_of(node) == FuncStep::kNone && !node.mutates && !hands_on_history(node)) {
      answers = ask_histories(n, needs);
      answers.resize(node.outputs.size(), NeedsGrad::kUnknown);
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const int output = node.outputs[k];
      if (!node.mutates && std::find(operands.begin(), operands.end(), output) != operands.end()) continue;
      if (output < 0 || tape.slots()[static_cast<size_t>(output)].number) continue;
      const Ref dtype = tape.slots()[static_cast<size_t>(output)].dtype;
      const Ref floating = attr(dtype.get(), "is_floating_point"), complex = attr(dtype.get(), "is_complex");
      const bool number = floating.get() == Py_True || complex.get() == Py_True;
      needs[static_cast<size_t>(output)] = number ? answers[k] : NeedsGrad::kNo;
    }
  }
  return needs;
}

bool HistoryTracing::differs_in_levels(const TorchFunction& fn, PyObject* args) const {
  if (fn.kind != TorchKind::kGrad && !known_torch(fn.name).is(kDiffersInLevels)) return false;
  PyObject* tensor = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  // Tensors that are no arguments are of no level.
  return tensor != nullptr && api_.is_tensor(tensor) &&
         (trace_->tape.makes(trace_->tape.find(tensor)) || trace_->index_of(tensor) >= 0);
}

/// Whether the tape writes to a tensor that may be older, or share its memory, where that may give it a history.
bool HistoryTracing::writes_histories() {
  const Tape& tape = trace_->tape;
  if (own_.looked > tape.nodes().size()) own_.looked = 0;
  for (; own_.looked < tape.nodes().size() && !own_.written; ++own_.looked) {
    const TapeNode& node = tape.nodes()[own_.looked];
    if (!node.mutates || !node.grad) continue;
    own_.written = !made_in_own_memory(tape, written_root(tape, node));
  }
  return own_.written;
}

NeedsGrad HistoryTracing::older_needs_grad(PyObject* tensor) {
  Trace& t = *trace_;
  const int known = t.tape.find(tensor);
  if (gradients().is_stopped(known)) return NeedsGrad::kNo;
  if (known >= 0 && gradients().is_made_leaf(known)) return NeedsGrad::kYes;
  const Bypass bypass(bypass_);
  const bool needs = attribute_is_true(tensor, "requires_grad");
  t.guard.check_grad = true;
  if (t.index_of(tensor) < 0 && !t.object_guards.is_gradient(tensor)) t.object_guards.requires_grad(tensor, needs);
  if (needs) return NeedsGrad::kYes;
  if (!writes_histories()) return NeedsGrad::kNo;
  const int slot = slot_for(tensor);
  return slot >= 0 ? needs_grad(slot) : NeedsGrad::kUnknown;
}

bool HistoryTracing::lacks_history(PyObject* tensor) {
  const int slot = trace_->tape.find(tensor);
  if ((slot >= 0 && gradients().is_made_leaf(slot)) || older_needs_grad(tensor) == NeedsGrad::kNo) return true;
  const Bypass bypass(bypass_);
  if (!attribute_is_true(tensor, "requires_grad") || !attribute_is_true(tensor, "is_leaf")) return false;
  if (trace_->index_of(tensor) >= 0) {
    trace_->guard.check_leaf = true;
  } else {
    trace_->object_guards.leaf(tensor);
  }
  return true;
}

PyObject* HistoryTracing::answer_needs_grad(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  PyObject* tensor = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  const int slot = tensor != nullptr ? trace_->tape.find(tensor) : -1;
  if (gradients().is_stopped(slot)) return PyBool_FromLong(fn.name == "is_leaf" ? 1 : 0);
  if (slot >= 0 && transforms().open_levels().empty() && gradients().is_made_leaf(slot))
    Py_RETURN_TRUE;  // requires_grad, and is_leaf
  trace_->guard.check_grad = true;
  if (tensor != nullptr && api_.is_torch_tensor(tensor) && !trace_->tape.makes(slot)) {
    const NeedsGrad now = older_needs_grad(tensor);
    Ref answer;
    bool asks_kind = false;  // of those without gradients all are leaves
    bool changed = false;    // by the trace
    {
      const Bypass bypass(bypass_);
      answer = Ref::steal(PyObject_Call(func, args, kwargs));
      const bool needs = attribute_is_true(tensor, "requires_grad");
      asks_kind = fn.name == "is_leaf" && needs;
      changed = now != (needs ? NeedsGrad::kYes : NeedsGrad::kNo);
    }
    if (changed) {
      if (!graph_break("read of " + fn.name + " of a tensor that was written to")) return nullptr;
      return PyObject_Call(func, args, kwargs);
    }
    // The object guards on what is no argument do not tell leaves from others.
    if (asks_kind && trace_->index_of(tensor) < 0) {
      if (!graph_break("read of is_leaf")) return nullptr;
      return PyObject_Call(func, args, kwargs);
    }
    if (asks_kind) trace_->guard.check_leaf = true;
    return answer.release();
  }
  NeedsGrad answer = NeedsGrad::kUnknown;
  if (transforms().open_levels().empty() && trace_->tape.slots()[static_cast<size_t>(slot)].level == 0) {
    const Bypass bypass(bypass_);
    answer = needs_grad(slot);
  }
  switch (answer) {
    case NeedsGrad::kNo: return Py_NewRef(fn.name == "is_leaf" ? Py_True : Py_False);
    case NeedsGrad::kYes: return Py_NewRef(fn.name == "is_leaf" ? Py_False : Py_True);
    case NeedsGrad::kUnknown: break;
  }
  if (!graph_break("read of " + fn.name)) return nullptr;
  return PyObject_Call(func, args, kwargs);
}

/// Whether a tensor from before the graph has a history, which a pass would go on into. If not, none of them may get one.
bool HistoryTracing::needs_outer_history() {
  Trace& t = *trace_;
  t.object_guards.passes();
  for (const TapeSlot& slot : t.tape.slots()) {
    if (!slot.input || !slot.requires_grad) continue;
    PyObject* tensor = slot.object.get();
    if (!attribute_is_true(tensor, "is_leaf")) return true;
    if (t.index_of(tensor) >= 0) {
      t.guard.check_leaf = true;
    } else {
      t.object_guards.leaf(tensor);
    }
  }
  return false;
}

/// Of those that require grad: nothing of the view is recorded, and yet it says that it requires grad, as does what is computed
/// from it with gradients on.
void HistoryTracing::note_silent_views(const TapeNode& node) {
  Trace& t = *trace_;
  if (node.grad || node.level != 0 || PyTuple_GET_SIZE(node.args.get()) == 0 || !may_be_view(t.tape, node) ||
      detaches(node))
    return;
  const int operand = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
  if (operand < 0) return;
  const TapeSlot& slot = t.tape.slots()[static_cast<size_t>(operand)];
  const TapeNode* made = t.tape.makes(operand) ? t.tape.maker(operand) : nullptr;
  const bool needs = made == nullptr
                         ? slot.requires_grad
                         : own_.silent_views.contains(operand) ||
                               ((made->grad || is_leaf_mark(*made) || own_.given_histories.contains(operand)) &&
                                needs_grad(operand) != NeedsGrad::kNo);
  if (!needs) return;
  for (const int output : node.outputs) {
    if (output != operand) own_.silent_views.insert(output);
  }
}

bool HistoryTracing::takes_silent_view(PyObject* args, PyObject* kwargs) const {
  if (own_.silent_views.empty() || !transforms().open_levels().empty()) return false;
  bool found = false;
  const auto look = [&](int slot) { found = found || own_.silent_views.contains(slot); };
  for_each_slot(args, look);
  for_each_slot(kwargs, look);
  const Bypass bypass(bypass_);
  return found && api_.grad_enabled();
}

}  // namespace tatara::capture
