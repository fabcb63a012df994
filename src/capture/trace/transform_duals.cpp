// Levels of forward-mode derivatives while a trace is open: dual tensors are made and taken apart.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "capture/entries/identities.h"
#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/tape/view_origins.h"
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
  const TangentIs is = tangent_is(slot, direction);
  const bool whole = is == TangentIs::kGiven && fills_its_storage(direction);
  record_step({.step = FuncStep::kMakeDual, .tangent = is, .whole = whole}, "make_dual", host_call(callable),
              Ref::steal(PyTuple_Pack(2, a.get(), b.get())), {made});
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
    if (const TransformStep* step = transform_step(node); step != nullptr && step->step == FuncStep::kMakeDual)
      return step->tangent == TangentIs::kGiven ? operands[1] : -1;
    if (step_of(node) != FuncStep::kNone || !hands_tangents_on(node.name) || operands.size() != 1) return -1;
    const int tangent = tangent_of(operands[0]);
    // The result has new memory, and its tangent lies as it does.
    return tangent >= 0 && same_strides(dual, tangent) && fills_its_storage(tangent) ? tangent : -1;
  }
  return -1;
}

bool TransformTracing::same_strides(int one, int other) {
  const TapeSlot &a = trace_->tape.slots()[static_cast<size_t>(one)],
                 &b = trace_->tape.slots()[static_cast<size_t>(other)];
  ExprContext& ctx = trace_->symbols.ctx();
  const auto step = [&](const TapeSlot& slot, Py_ssize_t i) {
    if (!slot.symbolic_strides.empty()) return slot.symbolic_strides[static_cast<size_t>(i)];
    return ctx.constant(PyLong_AsLongLong(PyTuple_GET_ITEM(slot.strides.get(), i)));
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a.sizes.get()); ++i) {
    // Steps along dimensions of size one are free.
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(a.sizes.get(), i)) == 1) continue;
    if (!ctx.guard(ctx.eq(step(a, i), step(b, i)))) return false;
  }
  return true;
}

int TransformTracing::unwrapped(int slot) const {
  for (auto found = own_.wraps.find(slot); found != own_.wraps.end(); found = own_.wraps.find(slot))
    slot = found->second;
  return slot;
}

bool TransformTracing::fills_its_storage(int slot) {
  const Bypass bypass(bypass_);
  const int input = unwrapped(slot);
  const bool whole = fills_storage(trace_->tape.slots()[static_cast<size_t>(input)].object.get());
  own_.whole.emplace_back(input, whole);
  return whole;
}

TangentIs TransformTracing::tangent_is(int primal, int tangent) {
  const Bypass bypass(bypass_);
  if (!same_strides(primal, tangent)) return TangentIs::kCopied;
  const int one = unwrapped(primal), other = unwrapped(tangent);
  const TapeSlot &a = trace_->tape.slots()[static_cast<size_t>(one)],
                 &b = trace_->tape.slots()[static_cast<size_t>(other)];
  // Of what the trace computes nobody knows yet how it will lie.
  if (!a.input || !b.input || a.number || b.number) return TangentIs::kUnknown;
  const bool alike = one == other || lie_alike(a.object.get(), b.object.get());
  if (one != other) own_.places.push_back({one, other, alike});
  return alike ? TangentIs::kGiven : TangentIs::kCopied;
}

bool TransformTracing::are_apart(PyObject* list) {
  if (PyList_Check(list) == 0) return false;
  std::set<int> owners;
  std::vector<int> inputs;
  std::vector<PyObject*> tensors;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* const tensor = PyList_GET_ITEM(list, i);
    const int slot = api_.is_tensor(tensor) ? slot_for(tensor) : -1;
    if (slot < 0) return false;
    const int owner = memory_owner(trace_->tape, unwrapped(slot));
    if (!owners.insert(owner).second) return false;
    if (trace_->tape.makes(owner)) continue;
    inputs.push_back(owner);
    tensors.push_back(trace_->tape.slots()[static_cast<size_t>(owner)].object.get());
  }
  const Bypass bypass(bypass_);
  if (!apart_in_memory(tensors)) return false;
  own_.separate.push_back(std::move(inputs));
  return true;
}

void TransformTracing::note_places(Identities& identities) {
  for (const std::vector<int>& slots : own_.separate) {
    Identities::Group group;
    for (const int slot : slots) {
      const TapeSlot& input = trace_->tape.slots()[static_cast<size_t>(slot)];
      if (input.guard_index >= 0) {
        group.objects.push_back(input.guard_index);
      } else {
        group.values.emplace_back(input.object.get());
      }
    }
    if (slots.size() > 1) identities.separate.push_back(std::move(group));
  }
  for (const Own::Places& places : own_.places) {
    const TapeSlot* a = &trace_->tape.slots()[static_cast<size_t>(places.one)];
    const TapeSlot* b = &trace_->tape.slots()[static_cast<size_t>(places.other)];
    if (a->guard_index < 0) std::swap(a, b);
    if (a->guard_index < 0) continue;
    const HeldObject value = b->guard_index < 0 ? HeldObject(b->object.get()) : HeldObject();
    (places.alike ? identities.alike : identities.unlike).push_back({a->guard_index, b->guard_index, value});
  }
  for (const auto& [slot, whole] : own_.whole) {
    const int place = trace_->tape.slots()[static_cast<size_t>(slot)].guard_index;
    if (place >= 0) (whole ? identities.whole : identities.partial).push_back(place);
  }
}

/// Of a tangent that no graph gives: torch runs the whole level between two parts (TapeSplitter::find_units), and a run that finds
/// another tangent is taken back. Nothing where the level is inside of others, or gradients go through it.
std::optional<GradientLayout> TransformTracing::like_primal(int slot) const {
  const Tape& tape = trace_->tape;
  const auto needs_grad = [](const TapeSlot& each) { return each.input && each.requires_grad; };
  if (own_.open_levels.size() > 1 || owner_.fullgraph ||
      std::any_of(tape.slots().begin(), tape.slots().end(), needs_grad))
    return {};
  const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
  GradientLayout layout;
  for (const auto& [from, to] : {std::pair{&info.sizes, &layout.sizes}, {&info.strides, &layout.strides}}) {
    if (!*from || !PyTuple_Check(from->get())) return {};
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(from->get()); ++d) {
      to->push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(from->get(), d)));
    }
  }
  return layout;
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
  const int earlier = problem.empty() ? given_before(FuncStep::kUnpackDual, slot) : -1;
  if (earlier >= 0) layouts = {std::nullopt};
  if (earlier >= 0) node.args = Ref::steal(PyTuple_Pack(1, ref.get()));
  if (problem.empty() && earlier < 0) {
    const Bypass bypass(bypass_);
    node.kind = TransformStep{FuncStep::kUnpackDual};
    node.name = "unpack_dual";
    node.level = innermost();
    node.args = Ref::steal(PyTuple_Pack(1, ref.get()));
    try {
      const std::shared_ptr<Tape> before = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
      layouts = t.graph.gradient_layouts(before, api_, node);
    } catch (const Unsupported& error) {
      layouts = {like_primal(slot)};
      if (!layouts[0]) problem = error.message();
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
  if (const int moving = earlier >= 0 ? earlier : tangent_of(slot); moving >= 0) {
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
