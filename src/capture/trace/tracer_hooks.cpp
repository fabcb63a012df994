// Hooks on gradients while a trace is open. Those on leaves are traced where a pass of the engine would call them, and the pass
// on the tape runs without them. A hook that is put on a result inside is traced ahead, as the backward of a function that
// does nothing.
#include <algorithm>

#include "capture/host/package.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

PyObject* first_of(const Ref& hooks) { return PyTuple_GET_ITEM(hooks.get(), 0); }

}  // namespace

/// tensor.register_hook(hook) of a result of the trace, where nobody keeps the handle: it could take the hook off again.
PyObject* GradientTracing::register_hook(const Frame& f, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2 || !f.drops_result()) return not_handled();
  const Ref operands = Ref::steal(PyTuple_Pack(1, args[0]));
  FunctionCall call;
  call.cls = args[1];
  call.context = Py_None;
  call.args = operands.get();
  auto made = std::make_shared<CustomBackward>();
  {
    const Bypass bypass(bypass_);
    if (!functions().takes_backwards() || !read_hook_call(args[0], call)) return not_handled();
  }
  const std::string problem = functions().trace_backward(call, *made, [&](PyObject* cotangents) -> Ref {
    PyObject* gradient = PyTuple_GET_ITEM(cotangents, 0);
    Ref result = Ref::steal(PyObject_CallOneArg(args[1], gradient));
    return result.get() == Py_None ? Ref::borrow(gradient) : result;
  });
  if (!problem.empty()) return graph_break("a hook on a tensor: " + problem) ? not_handled() : nullptr;
  const Bypass bypass(bypass_);
  const Ref ours = package_function(PackageFunction::kRegisterHook);
  functions().record_custom(ours.get(), call, args[0], "register_hook", {std::move(made), true});
  Py_RETURN_NONE;  // dropped
}

/// Whether a break now would leave a tensor to the program on which the graph has put a hook. Hooks that come later would be
/// called before it, not after it.
bool GradientTracing::leaves_hooked(const std::vector<int>& slots) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const TapeNode& node) {
    return is_hook(node) && std::find(slots.begin(), slots.end(), node.outputs.front()) != slots.end();
  });
}

/// Whether the graph has put a hook on it: its gradient is what the hook makes of it then.
bool GradientTracing::is_hooked(int slot) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [slot](const TapeNode& node) { return is_hook(node) && node.outputs.front() == slot; });
}

/// Whether the tensor is a result with a history that nothing has used yet.
bool GradientTracing::read_hook_call(PyObject* tensor, FunctionCall& call) {
  const Tape& tape = trace_->tape;
  const int slot = api_.is_plain_tensor(tensor) ? tape.find(tensor) : -1;
  if (slot < 0 || tape.slots()[static_cast<size_t>(slot)].input || is_made_leaf(slot) || is_retained(tensor))
    return false;
  if (histories().needs_grad(slot) != NeedsGrad::kYes) return false;
  for (const TapeNode& node : tape.nodes()) {
    bool used = false;
    const auto look = [&](int operand) { used = used || operand == slot; };
    // The results of a function are no use of them.
    for_each_slot(function_end(node) != nullptr ? function_operands(node).operands : node.args.get(), look);
    if (node.kwargs) for_each_slot(node.kwargs.get(), look);
    if (used) return false;
  }
  call.results = {tensor};
  call.outputs = {slot};
  call.follows = {true};
  call.places = {0};
  return true;
}

/// Why hooks cannot be part of the graph; empty: they can. Those that get a gradient are traced ahead for that.
std::string GradientTracing::hooks_problem(const EngineCall& call,
                                           const std::vector<std::optional<GradientLayout>>& layouts) {
  Trace& t = *trace_;
  if (call.create) return "a hook on a tensor, with create_graph=True";
  if (std::string stopped = why_not_into(call.variables); !stopped.empty()) return stopped;
  if (order_of_hooks(call).empty()) return "hooks on several operands of one operation, whose order is not known";
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!layouts[i] || !call.hooks[i] || PyTuple_GET_SIZE(first_of(call.hooks[i])) == 0) continue;
    int given = -1;
    const AheadRun run = functions().trace_ahead([&]() -> Ref {
      Ref gradient;
      {
        const Bypass bypass(bypass_);
        given = gradient_placeholder(call, i, *layouts[i], gradient);
      }
      return gradient ? call_hooks(first_of(call.hooks[i]), gradient.get(), Py_None) : Ref();
    });
    const Bypass bypass(bypass_);
    const auto problem = [](const std::string& what) { return "a hook on a tensor: " + what; };
    if (!run.problem.empty()) return problem(run.problem);
    const int made = api_.is_plain_tensor(run.returned.get()) ? slot_for(run.returned.get()) : -1;
    forget_error();
    if (made < 0) return problem("what it returns is no plain tensor");
    const TapeSlot a = t.tape.slots()[static_cast<size_t>(made)];
    const TapeSlot b = t.tape.slots()[static_cast<size_t>(t.tape.find(call.tensors[i]))];
    if (!same_type(a, b) || PyObject_RichCompareBool(a.device.get(), b.device.get(), Py_EQ) != 1) {
      return problem("a gradient of another type than its tensor");
    }
    for (const TapeNode& node : run.nodes) {
      if (const std::string write = functions().foreign_write(node, run.slots, {given}); !write.empty())
        return problem(write);
    }
  }
  return {};
}

/// The variables that have hooks, as the engine comes to them: by the first operation that used them, from the last one on.
/// It comes to the operands of one operation in their order, but to a bias before the weight that is transposed first. Empty
/// where one operation has more than two.
std::vector<size_t> GradientTracing::order_of_hooks(const EngineCall& call) const {
  struct Place {
    size_t node, operand, variable;
  };
  const Tape& tape = trace_->tape;
  std::vector<Place> places;
  for (size_t i = 0; i < call.hooks.size(); ++i) {
    if (!call.hooks[i]) continue;
    const int slot = tape.find(call.tensors[i]);
    Place place{tape.nodes().size(), 0, i};
    for (size_t n = 0; n < tape.nodes().size() && place.node == tape.nodes().size(); ++n) {
      const TapeNode& node = tape.nodes()[n];
      if (!node.grad || engine_pass(node) != nullptr) continue;
      size_t operand = 0;
      const auto look = [&](int each) {
        if (each == slot && place.node != n) place = {n, operand, i};
        ++operand;
      };
      for_each_slot(node.args.get(), look);
      if (node.kwargs) for_each_slot(node.kwargs.get(), look);
    }
    places.push_back(place);
  }
  std::sort(places.begin(), places.end(), [&tape](const Place& a, const Place& b) {
    if (a.node != b.node) return a.node > b.node;
    const bool turned = a.node < tape.nodes().size() && tape.nodes()[a.node].name == "linear";
    return turned ? a.operand > b.operand : a.operand < b.operand;
  });
  std::vector<size_t> order;
  for (size_t k = 0; k < places.size(); ++k) {
    if (k >= 2 && places[k].node < tape.nodes().size() && places[k].node == places[k - 2].node) return {};
    order.push_back(places[k].variable);
  }
  return order;
}

/// The gradient that hooks make of one. For a variable that it is added to, what a hook returned is a tensor of its own.
Ref GradientTracing::call_hooks(PyObject* hooks, PyObject* gradient, PyObject* variable) {
  if (PyTuple_GET_SIZE(hooks) == 0) return Ref::borrow(gradient);
  const Ref ours = package_function(PackageFunction::kHooked);
  return Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), hooks, gradient, variable, nullptr));
}

bool GradientTracing::call_hooks_after(PyObject* hooks, PyObject* variable) {
  if (PyTuple_GET_SIZE(hooks) == 0) return true;
  const Ref ours = package_function(PackageFunction::kAccumulated);
  return static_cast<bool>(Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), hooks, variable, nullptr)));
}

}  // namespace tatara::capture
