// Levels of forward-mode derivatives while a trace is open: dual tensors are made and taken apart.
#include <algorithm>
#include <string_view>

#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// Operators of one tensor whose tangent is the operand's, the very object.
bool hands_tangents_on(std::string_view name) { return known_torch(name).is(kHandsTangents); }

}  // namespace

PyObject* TransformTracing::enter_dual(PyObject* callable) {
  if (own_.duals > 0 ||
      (!own_.open_levels.empty() && own_.levels[static_cast<size_t>(innermost())].kind != Level::Kind::kJvp)) {
    return transform_break("a level of forward-mode derivatives inside of another");
  }
  record_step({FuncStep::kEnter}, "enter_dual", host_call(callable), api_.empty_tuple, {});
  ++own_.duals;
  return PyLong_FromLong(0);
}

PyObject* TransformTracing::exit_dual(PyObject* callable) {
  if (own_.duals == 0) return transform_break("a level ends that the trace has not entered");
  record_step({FuncStep::kExit}, "exit_dual", host_call(callable), api_.empty_tuple, {});
  trace_->tape.set_last_keyword("level", 0);
  --own_.duals;
  Py_RETURN_NONE;
}

PyObject* TransformTracing::make_dual(PyObject* callable, PyObject* tensor, PyObject* tangent, int number) {
  Trace& t = *trace_;
  std::string problem;
  const bool inside =
      innermost() == 0 ? own_.duals > 0 : own_.levels[static_cast<size_t>(innermost())].kind == Level::Kind::kJvp;
  if (!inside || number != 0) problem = "a dual tensor of a level that is not the innermost one";
  const int slot = problem.empty() ? transform_operand(tensor, problem) : -1;
  const int direction = problem.empty() ? transform_operand(tangent, problem) : -1;
  if (problem.empty()) {
    const Bypass bypass(bypass_);
    const TapeSlot a = t.tape.slots()[static_cast<size_t>(slot)], b = t.tape.slots()[static_cast<size_t>(direction)];
    if (a.dtype.get() != b.dtype.get() || PyObject_RichCompareBool(a.sizes.get(), b.sizes.get(), Py_EQ) != 1) {
      problem = "a tangent of another type than its primal";
    }
    for (const TapeNode& node : t.tape.nodes()) {
      // Part of a dual tensor, or what was computed from one.
      if (step_of(node) == FuncStep::kMakeDual && node.level == innermost() && innermost() == 0 &&
          (is_made_from(slot, node.outputs[0]) || is_made_from(direction, node.outputs[0]))) {
        problem = "a dual tensor made of another one";
      }
    }
  }
  if (!problem.empty()) return transform_break(problem);
  const int made = placeholder_like(slot, innermost());
  if (made < 0) return nullptr;
  const Ref a = make_slot_ref(slot), b = make_slot_ref(direction);
  record_step({FuncStep::kMakeDual}, "make_dual", host_call(callable), Ref::steal(PyTuple_Pack(2, a.get(), b.get())),
              {made});
  trace_->tape.set_last_keyword("level", 0);
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

int TransformTracing::tangent_of(int dual) {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  for (size_t n = nodes.size(); n-- > 0;) {
    const TapeNode& node = nodes[n];
    if (std::find(node.outputs.begin(), node.outputs.end(), dual) == node.outputs.end()) continue;
    std::vector<int> operands;
    for_each_slot(node.args.get(), [&](int operand) { operands.push_back(operand); });
    const bool itself = std::find(operands.begin(), operands.end(), dual) != operands.end();
    if (itself && !node.name.ends_with('_') && !node.name.starts_with("__i"))
      continue;  // positive(), contiguous(), ...
    if (step_of(node) == FuncStep::kMakeDual) return same_form(operands[0], operands[1]) ? operands[1] : -1;
    if (step_of(node) != FuncStep::kNone || !hands_tangents_on(node.name) || operands.size() != 1) return -1;
    const int tangent = tangent_of(operands[0]);
    return tangent >= 0 && same_form(dual, tangent) ? tangent : -1;
  }
  return -1;
}

bool TransformTracing::same_form(int one, int other) {
  const Bypass bypass(bypass_);
  const TapeSlot &a = trace_->tape.slots()[static_cast<size_t>(one)],
                 &b = trace_->tape.slots()[static_cast<size_t>(other)];
  // Steps along dimensions of size one are free.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a.sizes.get()); ++i) {
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(a.sizes.get(), i)) == 1) continue;
    PyObject *step = PyTuple_GET_ITEM(a.strides.get(), i), *step_of_other = PyTuple_GET_ITEM(b.strides.get(), i);
    if (PyObject_RichCompareBool(step, step_of_other, Py_EQ) != 1) return false;
  }
  const auto place = [](const TapeSlot& slot) {
    const Ref offset = Ref::steal(PyObject_CallMethod(slot.object.get(), "storage_offset", nullptr));
    const Ref storage = Ref::steal(PyObject_CallMethod(slot.object.get(), "untyped_storage", nullptr));
    const Ref size = storage ? Ref::steal(PyObject_CallMethod(storage.get(), "nbytes", nullptr)) : Ref();
    return offset && size ? Ref::steal(PyTuple_Pack(2, offset.get(), size.get())) : Ref();
  };
  const Ref first = place(a), second = place(b);
  const bool same = first && second && PyObject_RichCompareBool(first.get(), second.get(), Py_EQ) == 1;
  forget_error();
  return same;
}

/// (primal, tangent or None).
PyObject* TransformTracing::unpack_dual(PyObject* callable, PyObject* tensor, int number) {
  Trace& t = *trace_;
  std::string problem;
  const bool inside =
      innermost() == 0 ? own_.duals > 0 : own_.levels[static_cast<size_t>(innermost())].kind == Level::Kind::kJvp;
  if (!inside || number != 0) problem = "a dual tensor of a level that is not the innermost one";
  const int slot = problem.empty() ? transform_operand(tensor, problem) : -1;
  std::vector<std::optional<GradientLayout>> layouts;
  TapeNode node;
  const Ref ref = make_slot_ref(slot);
  if (problem.empty()) {
    const Bypass bypass(bypass_);
    node.kind = TransformStep{FuncStep::kUnpackDual};
    node.name = "unpack_dual";
    node.level = innermost();
    node.args = Ref::steal(PyTuple_Pack(1, ref.get()));
    try {
      const std::shared_ptr<Tape> before = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
      layouts = t.graph.gradient_layouts(before, api_, node);
    } catch (const Error& error) {
      problem = error.message();
    }
    forget_error();
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
    if (problem.empty() && layouts[0] && !knows_layout(info, layouts[0]->strides)) {
      problem = "a tangent whose layout depends on sizes that vary";
    }
  }
  if (!problem.empty()) return transform_break(problem);
  const int primal = placeholder_like(slot, innermost());
  std::vector<int> outputs{primal};
  Ref tangent = Ref::borrow(Py_None);
  if (const int moving = tangent_of(slot); moving >= 0) {
    // Nothing was done that changes it: eager gives back the very tangent.
    tangent = t.tape.slots()[static_cast<size_t>(moving)].object;
    layouts[0].reset();
  }
  if (layouts[0]) {
    const Bypass bypass(bypass_);
    const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
    outputs.push_back(gradients().add_gradient(info, layouts[0]->strides, tangent));
    if (!tangent) return nullptr;
    t.tape.set_level(outputs[1], innermost());
  }
  const bool history = layouts[0] && layouts[0]->history;
  record_step({.step = FuncStep::kUnpackDual, .histories = {false, history}}, "unpack_dual",
              layouts[0] ? package_function(PackageFunction::kUnpackDual) : host_call(callable), std::move(node.args),
              std::move(outputs));
  trace_->tape.set_last_keyword("level", 0);
  return PyTuple_Pack(2, t.tape.slots()[static_cast<size_t>(primal)].object.get(), tangent.get());
}

}  // namespace tatara::capture
