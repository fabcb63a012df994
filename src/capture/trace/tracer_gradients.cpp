// Passes of the engine of gradients while a trace is open, and the gradients of leaves. `.grad` of an older tensor is a place
// whose contents the trace keeps itself: a real tensor cannot hold a placeholder. It is written once the trace has run.
#include <algorithm>
#include <cstring>

#include "capture/host/natures.h"
#include "capture/host/package.h"
#include "capture/run/runner.h"
#include "capture/tape/used_history.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/write_tracing.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

PyObject* grad_name() {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  return name;
}

}  // namespace

bool GradientTracing::is_engine_call(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  const auto* f = reinterpret_cast<PyCFunctionObject*>(callable);
  return f->m_self != nullptr && std::strstr(Py_TYPE(f->m_self)->tp_name, "_EngineBase") != nullptr;
}

/// `.grad` of a tensor from before the trace, as the trace has it; null after a graph break, or with an error.
PyObject* GradientTracing::gradient_of(PyObject* tensor) {
  Trace& t = *trace_;
  if (const auto found = own_.gradients.find(tensor); found != own_.gradients.end()) return found->second.get();
  const int known = t.tape.find(tensor);
  if (known >= 0 && !t.tape.slots()[static_cast<size_t>(known)].input) {
    return (own_.gradients[tensor] = Ref::borrow(Py_None)).get();
  }
  std::string problem;
  Ref value;
  {
    const Bypass bypass(bypass_);
    value = attr_or_null(tensor, "grad");
    if (slot_for(tensor) < 0) problem = "the gradient of a tensor that is not supported";
    if (value && value.get() != Py_None) {
      TensorMeta meta;
      const bool shared = std::any_of(own_.gradients.begin(), own_.gradients.end(),
                                      [&](const auto& other) { return other.second.get() == value.get(); });
      if (shared || t.tape.find(value.get()) >= 0 || t.index_of(value.get()) >= 0) {
        problem = "a gradient that is read from elsewhere too";
      } else if (!api_.is_plain_tensor(value.get()) || !api_.read_meta(value.get(), meta) ||
                 attribute_is_true(value.get(), "requires_grad")) {
        problem = "a gradient that has a history, or a kind of its own";
      } else {
        t.object_guards.gradient(t.index_of(tensor), tensor, value.get(), meta);
        t.alive.push_back(value);
      }
    } else {
      value = Ref::borrow(Py_None);
      t.object_guards.gradient(t.index_of(tensor), tensor, nullptr, {});
    }
  }
  if (!problem.empty()) {
    graph_break(problem);
    return nullptr;
  }
  return (own_.gradients[tensor] = value).get();
}

void GradientTracing::set_gradient(PyObject* tensor, PyObject* value) {
  Trace& t = *trace_;
  own_.gradients[tensor] = Ref::borrow(value);
  t.alive.push_back(Ref::borrow(value));
  Effect effect{Effect::Kind::kAttribute, Ref::borrow(tensor), Ref::borrow(grad_name()), {Ref::borrow(value)}};
  effect.later = true;
  writes().note_effect(std::move(effect));
}

int GradientTracing::write_gradient(PyObject* tensor, PyObject* value) {
  Trace& t = *trace_;
  const int slot = t.tape.find(tensor);
  const bool old = slot < 0 ? !born(tensor) : t.tape.slots()[static_cast<size_t>(slot)].input;
  if (value == nullptr || !old || !api_.is_plain_tensor(tensor) || context_.ahead != nullptr) {
    return writes().write_break("assignment to a tensor's .grad");
  }
  std::string problem;
  {
    const Bypass bypass(bypass_);
    if (slot_for(tensor) < 0) problem = "a tensor that is not supported";
    if (value != Py_None) {
      // Eager checks these, and says what is wrong.
      const int given = api_.is_plain_tensor(value) ? slot_for(value) : -1;
      const int own = t.tape.find(tensor);
      bool same = given >= 0 && own >= 0;
      if (same) {
        const TapeSlot &a = t.tape.slots()[static_cast<size_t>(given)], &b = t.tape.slots()[static_cast<size_t>(own)];
        same = PyObject_RichCompareBool(a.sizes.get(), b.sizes.get(), Py_EQ) == 1 && a.dtype.get() == b.dtype.get() &&
               PyObject_RichCompareBool(a.device.get(), b.device.get(), Py_EQ) == 1 &&
               histories().needs_grad(given) == NeedsGrad::kNo;
      }
      if (!same) problem = "a gradient of another kind than its tensor";
    }
    forget_error();
  }
  if (!problem.empty()) return writes().write_break("assignment to a tensor's .grad: " + problem);
  const auto known = own_.gradients.find(tensor);
  if (known != own_.gradients.end() && known->second.get() == value) return 0;
  const bool first =
      std::none_of(own_.cleared.begin(), own_.cleared.end(), [&](const auto& c) { return c.first == tensor; });
  if (value == Py_None && t.tape.nodes().empty() && known != own_.gradients.end() && first) {
    own_.cleared.emplace_back(tensor, known->second);
  }
  set_gradient(tensor, value);
  return 0;
}

/// Gradients that the program lets go of before it does anything else: later calls need not keep them until the graph has
/// run, unless it reads them.
std::vector<int> GradientTracing::slots_cleared_first() const {
  const Trace& t = *trace_;
  std::vector<int> slots;
  for (const auto& [tensor, gradient] : own_.cleared) {
    const int slot = t.tape.find(tensor);
    if (slot >= 0 && t.tape.slots()[static_cast<size_t>(slot)].input && t.tape.find(gradient.get()) < 0) {
      slots.push_back(slot);
    }
  }
  return slots;
}

void GradientTracing::perform_later_effects() {
  for (const Effect& effect : trace_->effects) {
    if (!effect.later || effect.nodes > trace_->tape.nodes_done()) continue;
    if (effect.name.get() == grad_name()) {
      trace_->transaction.keep_gradient(effect.target.get());
    } else {
      const Ref before = attr_or_null(effect.target.get(), "requires_grad");
      trace_->transaction.on_undo([tensor = effect.target, name = effect.name, before] {
        return before && PyObject_GenericSetAttr(tensor.get(), name.get(), before.get()) == 0;
      });
    }
    if (!perform(effect)) forget_error();
  }
}

/// Why the trace cannot do it; empty: it can.
std::string GradientTracing::read_engine_call(PyObject* args, PyObject* kwargs, EngineCall& call) {
  static const char* const names[] = {"tensors", "grad_tensors",      "keep_graph",      "create_graph",
                                      "inputs",  "allow_unreachable", "accumulate_grad", nullptr};
  Trace& t = *trace_;
  PyObject *tensors = nullptr, *cotangents = nullptr, *inputs = nullptr;
  int keep = 0, create = 0, unused = 0, accumulate = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "OOpp|Opp", const_cast<char**>(names), &tensors, &cotangents, &keep,
                                  &create, &inputs, &unused, &accumulate) == 0) {
    forget_error();
    return "its arguments are not known";
  }
  if (create != 0 && accumulate != 0) return "create_graph=True with results in .grad";
  if (!PyTuple_Check(tensors) || !PyTuple_Check(cotangents)) return "its arguments are not tuples";
  call.keep = keep != 0;
  call.unused = unused != 0;
  call.accumulate = accumulate != 0;
  call.create = create != 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); ++i) {
    PyObject* root = PyTuple_GET_ITEM(tensors, i);
    PyObject* cotangent = PyTuple_GET_ITEM(cotangents, i);
    const int slot = api_.is_plain_tensor(root) ? t.tape.find(root) : -1;
    if (!t.tape.makes(slot)) return "of a tensor from before the graph";
    if (histories().needs_grad(slot) != NeedsGrad::kYes) return "of a tensor that may have no history";
    if (!api_.is_plain_tensor(cotangent) || slot_for(cotangent) < 0) return "its gradients are no plain tensors";
    if (histories().needs_grad(t.tape.find(cotangent)) == NeedsGrad::kUnknown)
      return "a given gradient may have a history";
    call.roots.push_back(slot);
    call.cotangents.push_back(t.tape.find(cotangent));
  }
  if (histories().needs_outer_history()) return "a tensor from before the graph has a history";
  std::vector<PyObject*> variables;
  const bool given = inputs != nullptr && PyTuple_Check(inputs) && PyTuple_GET_SIZE(inputs) > 0;
  if ((given || !call.accumulate) && has_reentrant_regions(t.tape))
    return "by given inputs, beside a reentrant checkpoint";
  for (Py_ssize_t i = 0; given && i < PyTuple_GET_SIZE(inputs); ++i) variables.push_back(PyTuple_GET_ITEM(inputs, i));
  for (size_t i = 0; !given && i < t.tape.slots().size(); ++i) {
    const TapeSlot& slot = t.tape.slots()[i];
    if ((slot.input && slot.requires_grad) || is_made_leaf(static_cast<int>(i))) variables.push_back(slot.object.get());
  }
  for (PyObject* variable : variables) {
    const int slot = api_.is_plain_tensor(variable) ? t.tape.find(variable) : -1;
    if (slot < 0) return "by a tensor that is not in the graph";
    const bool input = t.tape.slots()[static_cast<size_t>(slot)].input, leaf = input || is_made_leaf(slot);
    if (input && !attribute_is_true(variable, "is_leaf")) return "by a tensor that has a history from before the graph";
    if (!leaf && call.accumulate) return "into a tensor that is no leaf";
    if (!leaf && histories().needs_grad(slot) != NeedsGrad::kYes) return "by a tensor that may have no history";
    if (is_hooked(slot)) return "by a tensor with a hook";
    call.variables.push_back(slot);
    call.tensors.push_back(variable);
    call.hooks.push_back(input ? gradient_hooks(variable) : Ref());
    if (const Ref& hooks = call.hooks.back(); hooks) {  // each entry compares them
      for (PyObject* list : referents(hooks.get())) {
        origins().find(list);
        for (PyObject* hook : referents(list)) origins().find(hook);
      }
    }
  }
  if (!own_.retained.empty() && (given || !call.accumulate || has_reentrant_regions(t.tape))) {
    return "beside a tensor that keeps its gradient";
  }
  add_retained(call);
  const std::string freed = uses_freed(call.roots);
  return freed.empty() ? freed : "through a graph that was used up before (" + freed + ")";
}

/// What an earlier pass has used up of what the roots were made of: the first operation, or nothing.
std::string GradientTracing::uses_freed(const std::vector<int>& roots) const {
  const Tape& tape = trace_->tape;
  const auto pass = [](const TapeNode& node) { return frees_history(node); };
  if (std::none_of(tape.nodes().begin(), tape.nodes().end(), pass)) return {};
  std::vector<bool> needs;
  for (const NeedsGrad answer : histories().needs_grads()) needs.push_back(answer != NeedsGrad::kNo);
  const int node = UsedHistory(tape, needs).first_used(roots);
  return node < 0 ? std::string() : tape.nodes()[static_cast<size_t>(node)].name;
}

namespace {

Ref slot_list(const std::vector<int>& slots) {
  Ref list = Ref::steal(PyList_New(0));
  for (const int slot : slots) {
    if (PyList_Append(list.get(), make_slot_ref(slot).get()) != 0) forget_error();
  }
  return list;
}

}  // namespace

PyObject* GradientTracing::run_backward(PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  EngineCall call;
  std::string problem;
  if (context_.ahead != nullptr) return graph_break("a backward pass inside of another") ? not_handled() : nullptr;
  TapeNode node;
  node.sequence = true;
  auto& pass = node.kind.emplace<GradientPass>();
  node.name = "backward";
  std::vector<std::optional<GradientLayout>> layouts;
  bool ended = false;
  {
    const Bypass bypass(bypass_);
    problem = read_engine_call(args, kwargs, call);
    if (problem.empty()) {
      const Ref anomaly = Ref::steal(PyObject_CallMethod(api_.torch.get(), "is_anomaly_enabled", nullptr));
      if (anomaly.get() == Py_True) problem = "anomaly detection is on";
      if (!anomaly) forget_error();
    }
    node.func = find_package_function(PackageFunction::kBackwardPass);
    if (!node.func) forget_error();
    node.grad = true;
    const auto fill = [&] {
      const Ref roots = slot_list(call.roots), cotangents = slot_list(call.cotangents),
                variables = slot_list(call.variables);
      set_pass_operands(node, roots.get(), cotangents.get(), variables.get());
    };
    fill();
    pass = call.pass();
    try {
      if (problem.empty()) {
        const std::shared_ptr<Tape> before = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
        ended = !ends().cancellable([&] { layouts = t.graph.gradient_layouts(before, api_, node); });
      }
    } catch (const Error& error) {
      problem = error.message();
    }
    // The engine knows nothing of tensors that no gradient reaches.
    std::vector<int> reached;
    for (size_t i = 0; problem.empty() && i < layouts.size(); ++i) {
      const TapeSlot& info = t.tape.slots()[static_cast<size_t>(call.variables[i])];
      if (layouts[i]) {
        reached.push_back(call.variables[i]);
        if (!knows_layout(info, gradient_place(call, i, *layouts[i]))) {
          problem = "a gradient whose layout depends on sizes that vary";
        }
      } else if (!call.accumulate && !call.unused) {
        problem = "a tensor appears not to have been used";
      }
    }
    if (problem.empty()) {
      call.variables = std::move(reached);
      fill();
    }
    for (size_t i = 0; i < call.hooks.size() && problem.empty(); ++i) {
      if (!call.hooks[i]) continue;
      if (!pass.hooks) {
        pass.hooks = Ref::steal(PyDict_New());
        node.func = find_package_function(PackageFunction::kBackwardPassWithoutHooks);
      }
      const Ref slot = Ref::steal(PyLong_FromLong(t.tape.find(call.tensors[i])));
      PyDict_SetItem(pass.hooks.get(), slot.get(), call.hooks[i].get());
    }
    forget_error();
  }
  if (ended) return ends().cut_trace() && ends().deliver() == 0 ? not_handled() : nullptr;
  if (problem.empty()) problem = pass.hooks ? hooks_problem(call, layouts) : why_not_into(call.variables);
  if (!problem.empty()) return graph_break("backward: " + problem) ? not_handled() : nullptr;
  // All that may break the graph comes before the node.
  std::vector<Ref> sums(layouts.size());
  for (size_t i = 0; call.accumulate && i < layouts.size(); ++i) {
    if (!layouts[i]) continue;
    PyObject* present = gradient_of(call.tensors[i]);
    if (present == nullptr) return PyErr_Occurred() != nullptr ? nullptr : not_handled();
    if (present != Py_None) sums[i] = Ref::borrow(present);
  }
  const std::vector<size_t> order = pass.hooks ? order_of_hooks(call) : std::vector<size_t>();
  const Ref results = record_gradients(std::move(node), call, layouts);
  if (!results) return nullptr;
  const auto result = [&](size_t i) { return PyTuple_GET_ITEM(results.get(), static_cast<Py_ssize_t>(i)); };
  for (size_t i = 0; call.accumulate && i < layouts.size(); ++i) {
    if (layouts[i] && !call.hooks[i] && !accumulate(call.tensors[i], sums[i].get(), result(i))) return nullptr;
  }
  // A hook may break the graph; the rest then happens for real.
  for (const size_t i : order) {
    if (!layouts[i]) continue;
    PyObject* variable = call.tensors[i];
    PyObject *before = PyTuple_GET_ITEM(call.hooks[i].get(), 0), *after = PyTuple_GET_ITEM(call.hooks[i].get(), 1);
    Ref gradient = call_hooks(before, result(i), call.accumulate ? variable : Py_None);
    if (!gradient) return nullptr;
    if (!call.accumulate) {
      PyTuple_SetItem(results.get(), static_cast<Py_ssize_t>(i), gradient.release());
    } else if (!accumulate(variable, sums[i].get(), gradient.get()) || !call_hooks_after(after, variable)) {
      return nullptr;
    }
  }
  if (!call.accumulate) return Ref(results).release();
  const Ref none = Ref::steal(PyTuple_New(0));
  return Ref(none).release();
}

bool GradientTracing::accumulate(PyObject* tensor, PyObject* present, PyObject* gradient) {
  if (is_retained(tensor)) return add_to_retained(tensor, present, gradient);
  if (present != nullptr) return add_in_place(present, gradient);
  if (!tracing()) return PyObject_SetAttr(tensor, grad_name(), gradient) == 0;
  set_gradient(tensor, gradient);
  return true;
}

int GradientTracing::gradient_placeholder(const EngineCall& call, size_t variable, const GradientLayout& layout,
                                          Ref& made) {
  const TapeSlot info = trace_->tape.slots()[static_cast<size_t>(trace_->tape.find(call.tensors[variable]))];
  return add_gradient(info, gradient_place(call, variable, layout), made);
}

/// Puts the pass onto the tape: a tuple of placeholders, with None where no gradient comes.
Ref GradientTracing::record_gradients(TapeNode node, const EngineCall& call,
                                      const std::vector<std::optional<GradientLayout>>& layouts) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  auto& pass = std::get<GradientPass>(node.kind);
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(layouts.size())));
  for (size_t i = 0; i < layouts.size(); ++i) {
    Ref made = Ref::borrow(Py_None);
    if (layouts[i]) {
      const int slot = gradient_placeholder(call, i, *layouts[i], made);
      if (slot < 0) return {};
      pass.histories.push_back(call.create && layouts[i]->history);
      node.outputs.push_back(slot);
    }
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), made.release());
  }
  node.location = user_location();
  t.tape.add_node(std::move(node));
  t.mutated = t.mutated || call.accumulate;
  return results;
}

/// torch._C._group_tensors_by_device_and_dtype(lists, with_indices), which would find placeholders on the meta device.
PyObject* TorchTracing::group_tensors(PyObject* const* args, Py_ssize_t nargs) {
  PyObject* lists = nargs > 0 ? args[0] : nullptr;
  if (lists == nullptr || !PyList_Check(lists) || PyList_GET_SIZE(lists) == 0) return not_handled();
  const bool indices = nargs > 1 && PyObject_IsTrue(args[1]) == 1;
  PyObject* first = PyList_GET_ITEM(lists, 0);
  const Bypass bypass(bypass_);
  Ref groups = Ref::steal(PyDict_New());
  bool good = PyList_Check(first) != 0;
  for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(first); ++i) {
    PyObject* tensor = PyList_GET_ITEM(first, i);
    const int slot = api_.is_plain_tensor(tensor) ? slot_for(tensor) : -1;
    good = slot >= 0;
    if (!good) break;
    const TapeSlot& info = trace_->tape.slots()[static_cast<size_t>(slot)];
    const Ref key = Ref::steal(PyTuple_Pack(2, info.device.get(), info.dtype.get()));
    PyObject* group = PyDict_GetItemWithError(groups.get(), key.get());
    if (group == nullptr) {
      const Ref parts = Ref::steal(PyList_New(PyList_GET_SIZE(lists))), numbers = Ref::steal(PyList_New(0));
      for (Py_ssize_t k = 0; k < PyList_GET_SIZE(lists); ++k) PyList_SET_ITEM(parts.get(), k, PyList_New(0));
      const Ref made = Ref::steal(PyTuple_Pack(2, parts.get(), numbers.get()));
      PyDict_SetItem(groups.get(), key.get(), made.get());
      mark_born(made.get());
      mark_born(parts.get());
      mark_born(numbers.get());
      for (Py_ssize_t k = 0; k < PyList_GET_SIZE(lists); ++k) mark_born(PyList_GET_ITEM(parts.get(), k));
      group = made.get();
    }
    for (Py_ssize_t k = 0; good && k < PyList_GET_SIZE(lists); ++k) {
      PyObject* list = PyList_GET_ITEM(lists, k);
      good = PyList_Check(list) && (PyList_GET_SIZE(list) == 0 || i < PyList_GET_SIZE(list));
      if (!good || PyList_GET_SIZE(list) == 0) continue;
      PyList_Append(PyList_GET_ITEM(PyTuple_GET_ITEM(group, 0), k), PyList_GET_ITEM(list, i));
    }
    if (indices) PyList_Append(PyTuple_GET_ITEM(group, 1), Ref::steal(PyLong_FromSsize_t(i)).get());
  }
  forget_error();
  if (!good) return not_handled();
  mark_born(groups.get());
  return groups.release();
}

bool GradientTracing::changes_nothing(PyObject* args, PyObject* kwargs) {
  PyObject* tensor = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  PyObject* wanted = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  if (wanted == nullptr && kwargs != nullptr) wanted = PyDict_GetItemString(kwargs, "requires_grad");
  if (wanted == nullptr) wanted = Py_True;
  if (tensor == nullptr || !api_.is_plain_tensor(tensor) || !PyBool_Check(wanted)) return false;
  const Bypass bypass(bypass_);
  const int slot = slot_for(tensor);
  bool same = false;
  if (slot >= 0) {
    const bool older = trace_->tape.slots()[static_cast<size_t>(slot)].input;
    const NeedsGrad now = older ? histories().older_needs_grad(tensor) : histories().needs_grad(slot);
    same = now == (wanted == Py_True ? NeedsGrad::kYes : NeedsGrad::kNo);
  }
  return same;
}

bool GradientTracing::is_made_leaf(int slot) const {
  if (!trace_->tape.seen().leaf_marks) return false;  // asked for each write
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [slot](const TapeNode& node) { return is_leaf_mark(node) && node.outputs[0] == slot; });
}

bool GradientTracing::make_leaf(PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  PyObject* tensor = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  PyObject* wanted = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : Py_True;
  if (tensor == nullptr || !api_.is_plain_tensor(tensor) || wanted != Py_True) return false;
  if (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0) return false;
  const Bypass bypass(bypass_);
  const int slot = slot_for(tensor);
  if (slot < 0 || !transforms().open_levels().empty() || is_numpy_tape(t.tape)) return false;
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const Ref real = attr(info.dtype.get(), "is_floating_point"), complex = attr(info.dtype.get(), "is_complex");
  if ((real.get() != Py_True && complex.get() != Py_True) || histories().needs_grad(slot) != NeedsGrad::kNo)
    return false;
  if (info.input) t.guard.check_grad = true;
  TapeNode node;
  node.func = Ref::borrow(func);
  node.name = "requires_grad_";
  node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(slot).get()));
  node.outputs = {slot};
  node.kind = LeafMark{};
  node.grad = api_.grad_enabled();
  node.location = user_location();
  t.tape.add_node(std::move(node));
  return true;
}

PyObject* GradientTracing::record_leaf(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  const Ref plain = Ref::steal(PyDict_Copy(kwargs));
  if (!plain || PyDict_DelItemString(plain.get(), "requires_grad") != 0) return nullptr;
  Ref made = Ref::steal(torch().record(fn, func, args, plain.get()));
  if (!made || !api_.is_tensor(made.get())) return made.release();
  static PyObject* const require = attr(reinterpret_cast<PyObject*>(api_.base_type), "requires_grad_").release();
  const Ref operands = Ref::steal(PyTuple_Pack(1, made.get()));
  return torch().torch_function(require, operands.get(), nullptr);
}

PyObject* TorchTracing::each_tensor(const std::string& name, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t operands = PyTuple_GET_SIZE(args);
  PyObject* first = operands > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  const bool of_number =
      operands == 2 && (PyFloat_CheckExact(first) || PyLong_CheckExact(first));  // a number to these powers
  if (of_number) first = PyTuple_GET_ITEM(args, 1);
  if (first == nullptr || !(PyList_Check(first) || PyTuple_Check(first))) return not_handled();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(first);
  for (Py_ssize_t k = 0; k < operands; ++k) {
    PyObject* list = PyTuple_GET_ITEM(args, k);
    if ((PyList_Check(list) || PyTuple_Check(list)) && PySequence_Fast_GET_SIZE(list) != count) return not_handled();
  }
  Ref function;
  if (name == "norm") {
    const Ref linalg = attr(api_.torch.get(), "linalg");
    function = attr_or_null(linalg.get(), "vector_norm");
  } else {
    function = attr_or_null(of_number ? api_.torch.get() : reinterpret_cast<PyObject*>(api_.base_type), name.c_str());
  }
  const bool in_place = name.back() == '_';
  // maximum_ and its kin are made of the operator that gives a new tensor.
  const bool copied = !function && in_place;
  if (copied) function = attr_or_null(api_.torch.get(), name.substr(0, name.size() - 1).c_str());
  static PyObject* const copy = attr(reinterpret_cast<PyObject*>(api_.base_type), "copy_").release();
  if (!function || count == 0) return not_handled();
  const bool scaled = name.rfind("addc", 0) == 0;  // their factor has a name
  const Ref results = Ref::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref list = Ref::steal(PyList_New(0)),
              named = Ref::steal(kwargs != nullptr ? PyDict_Copy(kwargs) : PyDict_New());
    for (Py_ssize_t k = 0; k < operands; ++k) {
      PyObject* operand = PyTuple_GET_ITEM(args, k);
      if (PyList_Check(operand) || PyTuple_Check(operand)) operand = PySequence_Fast_GET_ITEM(operand, i);
      const int failed =
          scaled && k == 3 ? PyDict_SetItemString(named.get(), "value", operand) : PyList_Append(list.get(), operand);
      if (failed != 0) return nullptr;
    }
    const Ref positional = Ref::steal(PyList_AsTuple(list.get()));
    Ref result = Ref::steal(tracing() ? torch_function(function.get(), positional.get(), named.get())
                                      : PyObject_Call(function.get(), positional.get(), named.get()));
    if (result && copied) {
      const Ref into = Ref::steal(PyTuple_Pack(2, PyTuple_GET_ITEM(positional.get(), 0), result.get()));
      result =
          Ref::steal(tracing() ? torch_function(copy, into.get(), nullptr) : PyObject_Call(copy, into.get(), nullptr));
    }
    if (!result) return nullptr;
    PyTuple_SET_ITEM(results.get(), i, result.release());
  }
  return in_place ? Py_NewRef(Py_None) : Ref(results).release();
}

Ref GradientTracing::without_gradients(const std::function<Ref()>& work) {
  const bool was_on = api_.grad_enabled();
  const auto set = [this](bool on) {
    const Bypass bypass(bypass_);
    api_.set_grad(on);
  };
  if (was_on) set(false);
  Ref done = work();
  if (was_on) set(true);
  return done;
}

/// sum.add_(gradient), as the engine does it.
bool GradientTracing::add_in_place(PyObject* sum, PyObject* gradient) {
  static PyObject* const add = attr(reinterpret_cast<PyObject*>(api_.base_type), "add_").release();
  const Ref operands = Ref::steal(PyTuple_Pack(2, sum, gradient));
  return static_cast<bool>(
      without_gradients([&] { return Ref::steal(torch().torch_function(add, operands.get(), nullptr)); }));
}

}  // namespace tatara::capture
