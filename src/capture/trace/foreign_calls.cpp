// Calls on sparse and quantised tensors, and those that make one. Torch runs them; a trace has to know what they give. There are no meta
// kernels for most of them, so they are made of stand-ins: real tensors of the same layouts, types and sizes. How many elements a sparse
// tensor has nobody knows ahead. So there are two stand-ins for each, with none and with some: what both give alike holds for others.
#include <algorithm>
#include <string_view>

#include "capture/host/autocast.h"
#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/size_probes.h"
#include "capture/trace/torch_recording.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {
namespace {

/// Whether a call that makes a sparse tensor of its parts is told its size: else that depends on where its elements are.
bool is_told_size(std::string_view name, PyObject* args, PyObject* kwargs) {
  constexpr Py_ssize_t kOfList = 2, kOfCompressed = 3;  // places of the size
  if (!name.starts_with("sparse_") || !name.ends_with("_tensor")) return true;
  const Py_ssize_t place = name == "sparse_coo_tensor" ? kOfList : kOfCompressed;
  PyObject* size = kwargs != nullptr ? PyDict_GetItemString(kwargs, "size") : nullptr;
  if (size == nullptr && PyTuple_GET_SIZE(args) > place) size = PyTuple_GET_ITEM(args, place);
  return size != nullptr && size != Py_None;
}

}  // namespace

Ref foreign_stand_ins(const TorchApi& api, PyObject* tensor) {
  const GradientsSet gradients(api, false);
  return call_package<PackageFunction::kForeignStandIns>(tensor);
}

/// What is against recording such a call; empty: nothing.
std::string TorchTracing::why_not_foreign(const Recording& call) const {
  const std::string& name = call.fn.name;
  if (call.tensors == 0) return "call of " + name;
  if (call.fn.kind != TorchKind::kRecord && call.fn.kind != TorchKind::kMetadata) return "call of " + name;
  if (!transforms().open_levels().empty()) return "a sparse or quantised tensor inside of a transform (" + name + ")";
  if (known_torch(name).is(kOfElements)) return "how many elements a sparse tensor has (" + name + ")";
  if (writes_to_operand(name, call.kwargs)) return "a write with a sparse or quantised tensor (" + name + ")";
  if (!is_told_size(name, call.args, call.kwargs)) return "the size of a sparse tensor is computed (" + name + ")";
  return {};
}

/// What the call gives for the stand-ins. Null with a Python error set.
Ref TorchTracing::infer_foreign(const Recording& call, bool other) {
  const Trace& t = *trace_;
  const Bypass bypass(bypass_);
  const AutocastOff off(api_);
  const GradientsSet gradients(api_, false);
  const auto stand_in = [&](PyObject* o) -> Ref {
    if (is_size_ref(o)) return size_ref_value(o, call.values.empty() ? t.symbols.hints() : call.values);
    const int slot = slot_of(o);
    if (slot < 0) return Ref::borrow(o);
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
    if (info.foreign) return other ? info.other : info.meta;
    return call.values.empty() ? info.meta : probe_operand(api_, t.symbols, t.tape, slot, call.values);
  };
  const Ref args = map_structure(call.tape_args.get(), stand_in);
  const Ref kwargs = args && call.tape_kwargs ? map_structure(call.tape_kwargs.get(), stand_in) : Ref();
  if (!args || (call.tape_kwargs && !kwargs)) return {};
  return call_package<PackageFunction::kForeignProbe>(call.func, args.get(), kwargs ? kwargs.get() : Py_None,
                                                      call.device ? call.device.get() : Py_None,
                                                      other ? Py_True : Py_False);
}

/// The same, for both. Gives what is against recording the call.
std::string TorchTracing::infer_foreign_twice(const Recording& call, Ref& result, Ref& other) {
  const Bypass bypass(bypass_);
  const Ref before = generator_states(api_);
  if (before) result = infer_foreign(call, false);
  if (result) other = infer_foreign(call, true);
  if (!other) return call.fn.name + " of such tensors: " + take_error_text().substr(0, 120);
  const Ref behind = generator_states(api_);
  if (!behind || !same_states(api_, before.get(), behind.get())) {
    set_generator_states(before.get());
    return "random numbers beside a sparse or quantised tensor (" + call.fn.name + ")";
  }
  const Ref agree = call_package<PackageFunction::kForeignAgree>(result.get(), other.get());
  return agree.get() == Py_True ? "" : call.fn.name + " depends on the elements of its operands";
}

PyObject* TorchTracing::record_foreign(Recording& call) {
  const auto give_up = [&call, this](const std::string& reason) -> PyObject* {
    forget_error();
    return graph_break(reason) ? PyObject_Call(call.func, call.args, call.kwargs) : nullptr;
  };
  if (const std::string problem = why_not_foreign(call); !problem.empty()) return give_up(problem);
  if (const std::string problem = why_not_with_gradients(call); !problem.empty()) return give_up(problem);
  call.foreign = true;
  if (std::exchange(call.varying, false)) {
    call.by_value = true;
    operands_to_tape(call);
    if (!tracing()) return PyObject_Call(call.func, call.args, call.kwargs);
  }
  Ref result, other;
  if (const std::string problem = infer_foreign_twice(call, result, other); !problem.empty()) return give_up(problem);
  const bool told = PyLong_Check(result.get()) || PyFloat_Check(result.get());
  if (told || (call.fn.kind == TorchKind::kMetadata && !api_.is_tensor(result.get()))) return Py_NewRef(result.get());
  if (call.fn.kind != TorchKind::kRecord) return give_up("call of " + call.fn.name);
  const std::vector<ProbedLayout> layouts = layouts_by_host(call, result.get());
  if (layouts.empty()) numbers().specialize_operands(call.tape_args.get(), call.tape_kwargs.get());
  if (!tracing()) return PyObject_Call(call.func, call.args, call.kwargs);
  PyObject* const made = take_foreign(call, result.get(), other.get());
  if (made == nullptr) return give_up(call.fn.name + " gives no tensor of its own");
  for (size_t i = 0; i < layouts.size(); ++i) {
    const int slot = trace_->tape.nodes().back().outputs[i];
    if (slot >= 0) trace_->tape.set_layout(slot, layouts[i].sizes, layouts[i].strides);
  }
  return made;
}

/// Puts the call onto the tape. Null, maybe with a Python error: it cannot be there.
PyObject* TorchTracing::take_foreign(Recording& call, PyObject* result, PyObject* other) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  TapeNode node;
  bool bad = false, fresh = false;
  size_t number = 0;
  std::vector<PyObject*> others;
  flatten_result(other, others);
  const auto take = [&](PyObject* o) -> Ref {
    PyObject* const second = number < others.size() ? others[number] : nullptr;
    ++number;
    if (!api_.is_tensor(o) || second == nullptr) {
      node.outputs.push_back(-1);
      bad = bad || o != Py_None;
      return Ref::borrow(o);
    }
    const int known = t.tape.find_meta(o);
    if (known >= 0) {  // its operand
      bad = bad || t.tape.slots()[static_cast<size_t>(known)].other.get() != second;
      node.outputs.push_back(known);
      return t.tape.slots()[static_cast<size_t>(known)].object;
    }
    const Ref device = attr(o, "device");
    bad = bad || PyObject_RichCompareBool(device.get(), call.device.get(), Py_EQ) != 1;
    const bool foreign = api_.is_foreign(o);
    const GradientsSet gradients(api_, false);
    Ref placeholder = foreign ? Ref::steal(PyObject_CallMethod(o, "clone", nullptr)) : api_.meta_like(o);
    if (!placeholder || bad) {
      bad = true;
      return Ref::borrow(o);
    }
    fresh = true;
    node.outputs.push_back(
        foreign ? t.tape.add_placeholder(placeholder.get(), call.device, Ref::borrow(o), Ref::borrow(second))
                : t.tape.add_placeholder(placeholder.get(), call.device));
    return placeholder;
  };
  node.sequence = !api_.is_tensor(result);
  Ref made = node.sequence ? map_structure(result, take) : take(result);
  forget_error();
  if (bad || !made) return nullptr;
  node.func = Ref::borrow(call.func);
  node.args = std::move(call.tape_args);
  node.kwargs = std::move(call.tape_kwargs);
  node.name = call.fn.name;
  node.foreign = true;
  finish_node(node, fresh, true);
  return made.release();
}

}  // namespace tatara::capture
