// retain_grad() of results of the trace: a pass of the engine on the tape gives their gradients as it gives those of leaves.
#include <algorithm>

#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"

namespace tatara::capture {

bool GradientTracing::is_retained(PyObject* tensor) const {
  return std::any_of(own_.retained.begin(), own_.retained.end(),
                     [tensor](const Retained& each) { return each.tensor.get() == tensor; });
}

bool GradientTracing::retain_gradient(PyObject* args, PyObject* kwargs) {
  PyObject* const tensor = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (tensor == nullptr || (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0) || !api_.is_plain_tensor(tensor))
    return false;
  const Bypass bypass(bypass_);
  const int slot = trace_->tape.find(tensor);
  const bool alone = context_.ahead == nullptr && !context_.dry_run && transforms().open_levels().empty();
  if (!alone || !trace_->tape.makes(slot) || histories().needs_grad(slot) != NeedsGrad::kYes) return false;
  if (is_made_leaf(slot) || is_retained(tensor)) return true;  // nothing to do
  if (is_hooked(slot)) return false;
  UserLocation place = user_location();
  if (owner_.refused.reason("retain_grad", place.file, place.line) != nullptr) return false;
  own_.retained.push_back({Ref::borrow(tensor), std::move(place)});
  return true;
}

void GradientTracing::add_retained(EngineCall& call) const {
  call.leaves = call.variables.size();
  for (const Retained& each : own_.retained) {
    const int slot = trace_->tape.find(each.tensor.get());
    if (slot < 0 || histories().needs_grad(slot) != NeedsGrad::kYes) continue;  // detached meanwhile
    call.variables.push_back(slot);
    call.tensors.push_back(each.tensor.get());
    call.hooks.emplace_back();
  }
}

/// As the engine does it: a sum is a new tensor.
bool GradientTracing::add_to_retained(PyObject* tensor, PyObject* present, PyObject* gradient) {
  Ref sum = Ref::borrow(gradient);
  if (present != nullptr) {
    static PyObject* const add = attr(api_.torch.get(), "add").release();
    const Ref operands = Ref::steal(PyTuple_Pack(2, present, gradient));
    sum = without_gradients([&] { return Ref::steal(torch().torch_function(add, operands.get(), nullptr)); });
    if (!sum) return false;
  }
  trace_->alive.push_back(sum);
  own_.gradients[tensor] = std::move(sum);
  return true;
}

const UserLocation* GradientTracing::leaves_retained(const std::vector<int>& slots) const {
  for (const Retained& each : own_.retained) {
    const int slot = trace_->tape.find(each.tensor.get());
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) return &each.place;
  }
  return nullptr;
}

bool GradientTracing::perform_retained() {
  for (const Retained& each : own_.retained) {
    PyObject* const tensor = each.tensor.get();
    if (!attribute_is_true(tensor, "requires_grad") || attribute_is_true(tensor, "is_leaf")) continue;
    if (!Ref::steal(PyObject_CallMethod(tensor, "retain_grad", nullptr))) return false;
    const auto found = own_.gradients.find(tensor);
    const bool has = found != own_.gradients.end() && found->second.get() != Py_None;
    if (has && PyObject_SetAttrString(tensor, "grad", found->second.get()) != 0) return false;
  }
  return true;
}

bool TraceEnds::leave_retained(const std::vector<int>& slots) {
  const UserLocation* const place = gradients().leaves_retained(slots);
  if (place == nullptr) return false;
  const UserLocation at = *place;
  ++bypass_;
  const bool back = take_back();
  --bypass_;
  if (!back) return false;
  owner_.refused.add("retain_grad", at.file, at.line, "a tensor that keeps its gradient and outlives the graph");
  retrace_ = true;
  unwind();
  return true;
}

}  // namespace tatara::capture
