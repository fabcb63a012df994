// Hooks on leaves in passes of the engine while a trace is open: they are traced where the engine would call them. The pass on
// the tape runs without them.
#include <algorithm>

#include "capture/tracer_internal.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

PyObject* first_of(const Ref& hooks) { return PyTuple_GET_ITEM(hooks.get(), 0); }

}  // namespace

/// Why hooks cannot be part of the graph; empty: they can. Those that get a gradient are traced ahead for that.
std::string Tracer::hooks_problem(const EngineCall& call, const std::vector<std::optional<GradientLayout>>& layouts) {
  Trace& t = *trace_;
  if (call.create) return "a hook on a tensor, with create_graph=True";
  if (order_of_hooks(call).empty()) return "hooks on several operands of one operation, whose order is not known";
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!layouts[i] || !call.hooks[i] || PyTuple_GET_SIZE(first_of(call.hooks[i])) == 0) continue;
    int given = -1;
    const AheadRun run = trace_ahead([&]() -> Ref {
      Ref gradient;
      {
        const Bypass bypass(bypass_);
        given = gradient_placeholder(call.tensors[i], *layouts[i], call.accumulate, gradient);
      }
      return gradient ? call_hooks(first_of(call.hooks[i]), gradient.get(), Py_None) : Ref();
    });
    const Bypass bypass(bypass_);
    const auto problem = [](const std::string& what) { return "a hook on a tensor: " + what; };
    if (!run.problem.empty()) return problem(run.problem);
    const int made = api_.is_plain_tensor(run.returned.get()) ? slot_for(run.returned.get()) : -1;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (made < 0) return problem("what it returns is no plain tensor");
    const TapeSlot a = t.tape.slots()[static_cast<size_t>(made)];
    const TapeSlot b = t.tape.slots()[static_cast<size_t>(t.tape.find(call.tensors[i]))];
    if (!same_type(a, b) || PyObject_RichCompareBool(a.device.get(), b.device.get(), Py_EQ) != 1) {
      return problem("a gradient of another type than its tensor");
    }
    for (const TapeNode& node : run.nodes) {
      if (!node.mutates || PyTuple_GET_SIZE(node.args.get()) == 0) continue;
      const int target = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
      if (target == given || target < 0 || static_cast<size_t>(target) < run.slots ||
          t.tape.slots()[static_cast<size_t>(target)].input) {
        return problem(node.name + " on a tensor that it has not made");
      }
    }
  }
  return {};
}

/// The variables that have hooks, as the engine comes to them: by the first operation that used them, from the last one on.
/// It comes to the operands of one operation in their order, but to a bias before the weight that is transposed first. Empty
/// where one operation has more than two.
std::vector<size_t> Tracer::order_of_hooks(const EngineCall& call) const {
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
      if (!node.grad || node.backward) continue;
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
Ref Tracer::call_hooks(PyObject* hooks, PyObject* gradient, PyObject* variable) {
  if (PyTuple_GET_SIZE(hooks) == 0) return Ref::borrow(gradient);
  const Ref ours = package_function("tatara._training", "hooked");
  return Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), hooks, gradient, variable, nullptr));
}

bool Tracer::call_hooks_after(PyObject* hooks, PyObject* variable) {
  if (PyTuple_GET_SIZE(hooks) == 0) return true;
  const Ref ours = package_function("tatara._training", "accumulated");
  return static_cast<bool>(Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), hooks, variable, nullptr)));
}

}  // namespace tatara::capture
