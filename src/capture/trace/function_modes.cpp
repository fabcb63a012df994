// What the program does with torch-function modes, with the switches of __torch_function__ and with torch's other guards in a
// trace: these change what torch's calls mean, or whether capture sees them at all.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "capture/host/natures.h"
#include "capture/host/torch_api.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// What `callable`, a method called __enter__ or __exit__, enters or leaves; null: it is another function.
PyObject* entered_by(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  PyObject* self = nullptr;
  if (PyMethod_Check(callable)) {
    self = PyMethod_GET_SELF(callable);
    callable = PyMethod_GET_FUNCTION(callable);
  }
  const char* name = nullptr;
  if (PyCFunction_Check(callable)) {
    name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    if (self == nullptr) self = bound_to(callable);
  } else if (Py_TYPE(callable) == &PyMethodDescr_Type) {
    name = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_name;
  }
  if (name == nullptr || (std::string_view(name) != "__enter__" && std::string_view(name) != "__exit__"))
    return nullptr;
  return self != nullptr || nargs == 0 ? self : args[0];
}

bool leave_guard(PyObject* guard) {
  return static_cast<bool>(Ref::steal(PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None)));
}

}  // namespace

/// Inference mode where it is on already: its guard begins and ends, and nothing changes.
PyObject* CallTracing::enter_inference_again(const TracedCall& call) {
  const Bypass bypass(bypass_);
  PyObject* const guard = call.perform();
  if (guard == nullptr) return nullptr;
  mark_born(guard);
  trace_->start.inference_mode.inner.push_back(Ref::borrow(guard));
  trace_->transaction.on_undo([this, held = Ref::borrow(guard)] {
    const auto left = std::erase_if(trace_->start.inference_mode.inner,
                                    [&held](const Ref& each) { return each.get() == held.get(); });
    return left == 0 || leave_guard(held.get());
  });
  return guard;
}

PyObject* CallTracing::switch_inference(const TracedCall& call) {
  if (!api_.present()) return not_handled();
  Trace& t = *trace_;
  InferenceRegion& region = t.start.inference_mode;
  PyObject* const type = api_.state.inference_mode.get();
  if (call.callable != type && !region.inner.empty()) {
    PyObject* const inner = region.inner.back().get();
    if (entered_by(call.callable, call.args, call.nargs()) != inner) return not_handled();
    const Bypass bypass(bypass_);
    constexpr Py_ssize_t kOfExit = 3;  // what was raised, or three times None
    PyObject* const result = call.perform();
    if (call.nargs() >= kOfExit) region.inner.pop_back();
    return result;
  }
  if (call.callable != type) {
    PyObject* const guard = region.inside ? entered_by(call.callable, call.args, call.nargs()) : nullptr;
    if (guard == nullptr || guard != region.guard.get()) return not_handled();
    const Bypass bypass(bypass_);
    PyObject* const result = call.perform();
    if (GlobalState::read(api_).inference) return result;  // it was entered
    region.inside = false;
    region.nodes = t.tape.nodes().size();
    return result;
  }
  const bool plain = call.nargs() == 1 && call.keywords() == 0 && call.args[0] == Py_True;
  const bool again = t.in_inference() && !api_.grad_enabled() && transforms().open() == 0 && !modes().has_programs();
  if (plain && again && !owner_.inference_apart && !context_.dry_run && context_.ahead == nullptr)
    return enter_inference_again(call);
  if (!plain || region.guard || t.state.inference || !t.tape.nodes().empty() || owner_.inference_apart)
    return not_handled();
  if (context_.dry_run || context_.ahead != nullptr || transforms().open() > 0 || modes().has_programs()) {
    return not_handled();
  }
  const Bypass bypass(bypass_);
  PyObject* const guard = call.perform();
  if (guard == nullptr) return nullptr;
  mark_born(guard);
  region.guard = Ref::borrow(guard);
  region.inside = true;
  t.transaction.on_undo([this] {
    InferenceRegion& open = trace_->start.inference_mode;
    const bool done = !open.inside || leave_guard(open.guard.get());
    open = {};
    return done;
  });
  return guard;
}

PyObject* CallTracing::switch_dispatch(const TracedCall& call) {
  if (!api_.present()) return not_handled();
  std::vector<Ref>& open = trace_->start.quiet_guards;
  if (PyType_Check(call.callable)) {
    const std::string_view name = reinterpret_cast<PyTypeObject*>(call.callable)->tp_name;
    const bool quiet = name.ends_with("._DisableTorchDispatch") || name.ends_with("._DisableFuncTorch");
    if (!quiet || call.nargs() + call.keywords() > 0 || owner_.inference_apart || context_.dry_run ||
        context_.ahead != nullptr || modes().has_programs()) {
      return not_handled();
    }
    const Bypass bypass(bypass_);
    PyObject* const guard = call.perform();
    if (guard == nullptr) return nullptr;
    mark_born(guard);
    open.push_back(Ref::borrow(guard));
    trace_->transaction.on_undo([this, held = Ref::borrow(guard)] {
      const auto left =
          std::erase_if(trace_->start.quiet_guards, [&held](const Ref& each) { return each.get() == held.get(); });
      return left == 0 || leave_guard(held.get());
    });
    return guard;
  }
  if (open.empty()) return not_handled();
  PyObject* const guard = entered_by(call.callable, call.args, call.nargs());
  const auto found = std::find_if(open.begin(), open.end(), [guard](const Ref& each) { return each.get() == guard; });
  if (guard == nullptr || found == open.end()) return not_handled();
  const bool leaves = call.nargs() >= 3;  // what was raised, or three times None
  const Bypass bypass(bypass_);
  PyObject* const result = call.perform();
  if (leaves && result != nullptr) open.erase(found);
  return result;
}

PyObject* CallTracing::switch_device(const TracedCall& call) {
  PyObject* const device = api_.present() ? entered_by(call.callable, call.args, call.nargs()) : nullptr;
  if (device == nullptr || Py_TYPE(device) != api_.device_type || !modes().takes_devices()) return not_handled();
  if (call.nargs() < (bound_to(call.callable) == device ? 1 : 2)) {  // an exit is told of an exception
    modes().push_device(device);
    return Py_NewRef(device);
  }
  if (!modes().pop_device()) return not_handled();
  Py_RETURN_NONE;
}

bool TraceEnds::leave_inference(bool returns) {
  const InferenceRegion& region = trace_->start.inference_mode;
  const size_t nodes = returns ? trace_->tape.nodes().size() : trace_->snap.nodes;
  if (!trace_->snap.inference && (!region.left() || nodes <= region.nodes)) return false;
  if (!retry()) return false;
  owner_.inference_apart = true;
  return true;
}

std::string CallTracing::enters_guard(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const {
  if (!api_.present()) return {};
  PyTypeObject* type = nullptr;
  if (PyType_Check(callable)) {
    // pybind's guards begin where they are made; those with methods in C, where they are entered.
    type = reinterpret_cast<PyTypeObject*>(callable);
    static PyObject* const name = PyUnicode_InternFromString("__enter__");
    PyObject* const enter = _PyType_Lookup(type, name);
    if (enter == nullptr || Py_TYPE(enter) == &PyMethodDescr_Type) return {};
  } else if (PyObject* const guard = entered_by(callable, args, nargs)) {
    type = Py_TYPE(guard);
  }
  if (type == nullptr || !is_torch_guard(type)) return {};
  // Capture sees the calls inside of one that leaves functions of classes out.
  const std::string_view name = type->tp_name;
  if (name.ends_with("DisableTorchFunctionSubclass")) return {};
  return str_cat("entry or end of ", name, ", a state of torch's that changes what its calls do");
}

bool ModeStack::takes_devices() const { return owner_.modes_apart.empty() && context_.ahead == nullptr; }

bool ModeStack::gives_device() const {
  return (trace_->state.default_device || !devices_.empty()) && !torch().in_python_function();
}

bool ModeStack::pop_device() {
  if (devices_.empty()) return false;
  devices_.pop_back();
  return true;
}

bool ModeStack::takes(PyObject* mode) const {
  if (!owner_.modes_apart.empty() || context_.ahead != nullptr) return false;
  const Ref handler = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(mode)), "__torch_function__");
  if (!handler) forget_error();
  return handler && PyFunction_Check(handler.get()) &&
         api_.files.is_torch(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(handler.get())));
}

Ref ModeStack::pop_programs() {
  Ref mode = std::move(programs_.back());
  programs_.pop_back();
  return mode;
}

PyObject* ModeStack::ask_programs(PyObject* func, PyObject* args, PyObject* kwargs) {
  if (programs_.empty() || bypass_ > 0) return not_handled();
  Ref mode = pop_programs();  // while it handles a call it is off
  const Trace* const trace = trace_.get();
  const Ref handler = attr_or_null(mode.get(), "__torch_function__");
  const Ref named = Ref::steal(kwargs != nullptr ? PyDict_Copy(kwargs) : PyDict_New());
  for (PyObject* made : {args, named.get()}) mark_born(made);
  // A getter comes as a new `__get__` each time.
  if (std::strcmp(Py_TYPE(func)->tp_name, "method-wrapper") == 0) mark_born(func);
  PyObject* result = nullptr;
  const size_t before = count();
  ++asked_;
  if (handler && push_mode()) {
    result = PyObject_CallFunctionObjArgs(handler.get(), func, api_.empty_tuple.get(), args, named.get(), nullptr);
    drop_modes(before);
  }
  const bool same = tracing() && trace_.get() == trace;
  if (same) --asked_;
  if (same) {
    programs_.push_back(std::move(mode));
  } else if (context_.state != State::kUnwinding) {
    const ErrorAside aside;
    if (!push_real(mode.get())) forget_error();
  }
  return result;
}

Ref ModeStack::with_default_device(PyObject* func, PyObject* kwargs) {
  const Ref& device = devices_.empty() ? trace_->state.default_device : devices_.back();
  if (!gives_device() || bypass_ > 0) return {};
  const ErrorAside aside;
  const Bypass bypass(bypass_);
  if (!makers_) {
    const Ref module = Ref::steal(PyImport_ImportModule("torch.utils._device"));
    if (module) makers_ = Ref::steal(PyObject_CallMethod(module.get(), "_device_constructors", nullptr));
    if (!makers_) return {};
  }
  if (PySequence_Contains(makers_.get(), func) != 1) return {};
  PyObject* const given = kwargs != nullptr ? PyDict_GetItemString(kwargs, "device") : nullptr;
  if (given != nullptr && given != Py_None) return {};
  Ref named = Ref::steal(kwargs != nullptr ? PyDict_Copy(kwargs) : PyDict_New());
  if (!named || PyDict_SetItemString(named.get(), "device", device.get()) != 0) return {};
  mark_born(named.get());
  return named;
}

PyObject* ModeStack::ask_operands(PyObject* types, PyObject* func, PyObject* args, PyObject* kwargs) {
  std::vector<Ref> handlers;
  for (Py_ssize_t i = 0; PyTuple_Check(types) && i < PyTuple_GET_SIZE(types); ++i) {
    PyObject* const type = PyTuple_GET_ITEM(types, i);
    if (!api_.handles_calls(reinterpret_cast<PyTypeObject*>(type))) continue;
    Ref handler = attr_or_null(type, "__torch_function__");
    if (!handler) forget_error();
    PyObject* const code = handler && PyMethod_Check(handler.get()) ? PyMethod_GET_FUNCTION(handler.get()) : nullptr;
    if (code == nullptr || !PyFunction_Check(code) ||
        api_.files.is_torch(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(code)))) {
      return not_handled();
    }
    handlers.push_back(std::move(handler));
  }
  if (handlers.empty() || bypass_ > 0 || context_.ahead != nullptr) return not_handled();
  const Ref named = Ref::steal(kwargs != nullptr ? PyDict_Copy(kwargs) : PyDict_New());
  for (PyObject* made : {types, args, named.get()}) mark_born(made);
  if (std::strcmp(Py_TYPE(func)->tp_name, "method-wrapper") == 0) mark_born(func);
  for (const Ref& handler : handlers) {
    const size_t before = count();
    if (!push_mode()) return nullptr;
    PyObject* const result = PyObject_CallFunctionObjArgs(handler.get(), func, types, args, named.get(), nullptr);
    drop_modes(before);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  return not_handled();
}

bool ModeStack::push_real(PyObject* mode) const {
  return static_cast<bool>(Ref::steal(PyObject_CallOneArg(api_.modes.push.get(), mode)));
}

bool ModeStack::give_programs() {
  const ErrorAside aside;
  const bool any = has_programs();
  for (const Ref& device : devices_) {
    if (!Ref::steal(PyObject_CallMethod(device.get(), "__enter__", nullptr))) forget_error();
  }
  devices_.clear();
  for (const Ref& mode : programs_) {
    if (!push_real(mode.get())) forget_error();
  }
  programs_.clear();
  return any;
}

PyObject* ModeStack::ask_modes(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Ref top = Ref::steal(PyObject_CallNoArgs(api_.modes.pop.get()));
  if (!top) return nullptr;
  PyObject* answer = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  const ErrorAside aside;
  if (!Ref::steal(PyObject_CallOneArg(api_.modes.push.get(), top.get()))) forget_error();
  // Every call asks for its device, which is all that it has.
  if (answer != nullptr && is_device_mode(answer)) mark_born(answer);
  return answer;
}

}  // namespace tatara::capture
