// Torch calls while a trace is open: inferred on meta tensors, recorded on the tape.
#include <algorithm>
#include <cstring>
#include <functional>

#include "capture/trace/call_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/value_tracing.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {

int TraceContext::slot_for(PyObject* tensor) {
  Trace& t = *trace;
  if (const int slot = t.tape.find(tensor); slot >= 0) return slot;
  const Ref two = api.is_foreign(tensor) ? foreign_stand_ins(api, tensor) : Ref();
  Ref meta = two ? Ref::borrow(PyTuple_GET_ITEM(two.get(), 0)) : api.meta_like(tensor);
  if (!meta) {
    forget_error();
    return -1;
  }
  Ref device = attr(tensor, "device");
  const int index = t.index_of(tensor);
  Ref other = two ? Ref::borrow(PyTuple_GET_ITEM(two.get(), 1)) : Ref();
  const int slot = t.tape.add_input(tensor, std::move(meta), std::move(device), index, false, std::move(other));
  if (two) return slot;
  const SymbolicLayout* layout = index >= 0 ? t.guard.layout(index) : nullptr;
  if (layout == nullptr && index >= 0) layout = t.object_guards.layout(index);
  if (layout != nullptr) {
    t.tape.set_layout(slot, layout->sizes, layout->strides);
  }
  return slot;
}

/// What detach() gives, as a leaf. Null without an error: the trace has ended, or is to end.
Ref TorchTracing::made_leaf(PyObject* data, bool requires_grad) {
  static PyObject* const detach = attr(reinterpret_cast<PyObject*>(api_.base_type), "detach").release();
  static PyObject* const require = attr(reinterpret_cast<PyObject*>(api_.base_type), "requires_grad_").release();
  Trace& t = *trace_;
  const Ref self = Ref::steal(PyTuple_Pack(1, data));
  Ref made = Ref::steal(torch_function(detach, self.get(), nullptr));
  if (!made || !tracing()) return {};
  const bool mutated = t.mutated;
  const Ref operands = Ref::steal(PyTuple_Pack(1, made.get()));
  if (requires_grad && !gradients().make_leaf(require, operands.get(), nullptr)) {
    graph_break("a new leaf of a graph");
    return {};
  }
  t.mutated = mutated;  // nobody has the tensor yet
  return made;
}

bool TorchTracing::can_make_leaf(PyObject* data, PyObject* flag) const {
  return PyBool_Check(flag) && api_.is_torch_tensor(data) && api_.is_plain_tensor(data) && !trace_->in_inference() &&
         transforms().open_levels().empty();
}

PyObject* TorchTracing::make_parameter(const TracedCall& call) {
  constexpr Py_ssize_t kWithFlag = 3;  // (class, data, requires_grad)
  auto* const type = reinterpret_cast<PyObject*>(api_.parameter_type);
  PyObject* const flag = call.nargs() == kWithFlag ? call.args[2] : Py_False;
  if (call.keywords() > 0 || call.nargs() < 2 || call.nargs() > kWithFlag || call.args[0] != type ||
      !can_make_leaf(call.args[1], flag)) {
    return not_handled();
  }
  Ref made = made_leaf(call.args[1], flag == Py_True);
  if (!made) return PyErr_Occurred() != nullptr ? nullptr : not_handled();
  const Bypass bypass(bypass_);
  trace_->tape.set_parameter(trace_->tape.find(made.get()));
  return PyObject_SetAttrString(made.get(), "__class__", type) == 0 ? made.release() : nullptr;
}

bool TorchTracing::is_legacy_variable(PyObject* callable) {
  if (!PyType_Check(callable)) return false;
  const PyTypeObject* const base = reinterpret_cast<PyTypeObject*>(callable)->tp_base;
  return base != nullptr && std::strcmp(base->tp_name, "torch._C._LegacyVariableBase") == 0;
}

PyObject* TorchTracing::make_variable(const TracedCall& call) {
  PyObject* flag = call.nargs() == 2 ? call.args[1] : Py_False;
  const bool named = call.keywords() == 1 && call.nargs() == 1;
  if (named && text_of(PyTuple_GET_ITEM(call.kwnames, 0)) == "requires_grad") flag = call.args[1];
  const bool plain = call.nargs() > 0 && call.nargs() < 3 && (call.keywords() == 0 || (named && flag == call.args[1]));
  if (!plain || !can_make_leaf(call.args[0], flag)) {
    return graph_break("call of torch.autograd.Variable") ? not_handled() : nullptr;
  }
  Ref made = made_leaf(call.args[0], flag == Py_True);
  return made || PyErr_Occurred() != nullptr ? made.release() : not_handled();
}

/// What a call that needs values gives, where the trace can go on. Null, maybe without an error: it ends.
PyObject* TorchTracing::answer_values(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  PyObject* answer = answer_constant(func, args, kwargs);
  if (answer != nullptr || PyErr_Occurred() != nullptr) return answer;
  if (fn.name == "item" && PyTuple_GET_SIZE(args) == 1) answer = numbers().item_number(func, PyTuple_GET_ITEM(args, 0));
  if (answer != nullptr || PyErr_Occurred() != nullptr) return answer;
  return values().numbers_in(fn, func, args, kwargs).release();
}

/// A call that the graph is to break at, unless something is known of it.
PyObject* TorchTracing::answer_break(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  if (PyObject* done = numpy().array_of_tensor(fn, func, args, kwargs); done != not_handled()) return done;
  if (fn.name == "_version" && PyTuple_GET_SIZE(args) == 1) {
    if (const long version = histories().version_of(PyTuple_GET_ITEM(args, 0)); version >= 0)
      return PyLong_FromLong(version);
  }
  if (fn.reads_values) {
    PyObject* const answer = answer_values(fn, func, args, kwargs);
    if (answer != nullptr || PyErr_Occurred() != nullptr) return answer;
  }
  if (fn.name == "requires_grad_" && transforms().make_variable(args, kwargs))
    return Py_NewRef(PyTuple_GET_ITEM(args, 0));
  if (fn.name == "requires_grad_" && transforms().open_levels().empty() &&
      (gradients().changes_nothing(args, kwargs) || gradients().switch_leaf(args, kwargs) ||
       (tracing() && gradients().make_leaf(func, args, kwargs)))) {
    return Py_NewRef(PyTuple_GET_ITEM(args, 0));
  }
  if (!tracing()) return PyObject_Call(func, args, kwargs);
  if (fn.name == "retain_grad" && gradients().retain_gradient(args, kwargs)) Py_RETURN_NONE;
  if (fn.name == "type") {
    PyObject* const converted = convert_type(args, kwargs);
    if (converted != nullptr || PyErr_Occurred() != nullptr) return converted;
  }
  if (fn.name == "asarray") {
    PyObject* const made = as_array(args, kwargs);
    if (made != nullptr || PyErr_Occurred() != nullptr) return made;
    if (!tracing()) return PyObject_Call(func, args, kwargs);
  }
  if (!graph_break("call of " + fn.name)) return nullptr;
  return PyObject_Call(func, args, kwargs);
}

PyObject* TorchTracing::torch_function(PyObject* func, PyObject* args, PyObject* kwargs) {
  if (!tracing()) return PyObject_Call(func, args, kwargs);
  if (!trace_->pending_break.empty()) {
    return graph_break(std::exchange(trace_->pending_break, {})) ? PyObject_Call(func, args, kwargs) : nullptr;
  }
  if (PyObject* answer = modes().ask_programs(func, args, kwargs); answer != not_handled()) return answer;
  const Ref on_device = modes().with_default_device(func, kwargs);
  if (on_device) kwargs = on_device.get();
  reads().watch_lists({args, kwargs});
  const TorchFunction& fn = api_.classify(func);
  if ((context_.dry_run && histories().differs_in_levels(fn, args)) || histories().depends_on_base(fn, args)) {
    if (!graph_break("read of " + fn.name)) return nullptr;
    return PyObject_Call(func, args, kwargs);
  }
  turns().calls_torch(fn);
  switch (fn.kind) {
    case TorchKind::kPassthrough: return PyObject_Call(func, args, kwargs);
    case TorchKind::kBreak: return answer_break(fn, func, args, kwargs);
    case TorchKind::kPython: {
      // torch names a method of Tensor's base by Tensor's own, so `super().method()` comes as the function that calls it.
      if (!python_functions_.empty() && python_functions_.back() == func) {
        const Ref inner = attr_or_null(reinterpret_cast<PyObject*>(api_.tensor_type->tp_base), fn.name.c_str());
        if (inner && inner.get() != func) return torch_function(inner.get(), args, kwargs);
      }
      // The mode is off while it handles a call: on again for the function's own body.
      PyObject* result = nullptr;
      const size_t before = modes().count();
      if (modes().push_mode()) {
        python_functions_.push_back(func);
        result = PyObject_Call(func, args, kwargs);
        python_functions_.pop_back();
        modes().drop_modes(before);  // where a graph break has not done it
      }
      return result;
    }
    case TorchKind::kDevice: return answer_device(fn, func, args, kwargs);
    case TorchKind::kGrad: {
      PyObject* tensor = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
      const int slot = tensor != nullptr ? trace_->tape.find(tensor) : -1;
      const bool placeholder = trace_->tape.makes(slot);
      if (fn.name == "grad" && tensor != nullptr && !placeholder && api_.is_plain_tensor(tensor)) {
        if (PyObject* known = gradients().gradient_of(tensor)) return Py_NewRef(known);
        return PyErr_Occurred() != nullptr ? nullptr : PyObject_Call(func, args, kwargs);
      }
      const bool leaf = placeholder && gradients().is_made_leaf(slot);
      if (placeholder && fn.name == "grad" && gradients().is_retained(tensor)) {
        return Py_NewRef(gradients().gradient_of(tensor));
      }
      if (leaf && fn.name == "grad") return Py_NewRef(gradients().gradient_of(tensor));
      if (placeholder && (leaf || fn.name != "grad_fn" || histories().needs_grad(slot) == NeedsGrad::kNo))
        Py_RETURN_NONE;
      if (!placeholder) {
        const Bypass bypass(bypass_);
        const Ref value = Ref::steal(PyObject_Call(func, args, kwargs));
        if (!value) return nullptr;
        // Nothing guards the rest: hooks stay when a tensor no longer requires grad.
        if (fn.name == "grad_fn" && value.get() == Py_None && histories().lacks_history(tensor)) Py_RETURN_NONE;
      }
      if (!graph_break("read of " + fn.name)) return nullptr;
      return PyObject_Call(func, args, kwargs);
    }
    case TorchKind::kToCpu:
    case TorchKind::kMetadata:
    case TorchKind::kRecord: break;
  }
  if (fn.kind == TorchKind::kMetadata && (fn.name == "requires_grad" || fn.name == "is_leaf")) {
    return histories().answer_needs_grad(fn, func, args, kwargs);
  }
  if (fn.name == "is_inference") Py_RETURN_FALSE;  // see depends_on_base
  if (kwargs != nullptr && fn.kind == TorchKind::kRecord && PyDict_GetItemString(kwargs, "requires_grad") == Py_True) {
    return gradients().record_leaf(fn, func, args, kwargs);
  }
  if (func == reinterpret_cast<PyObject*>(api_.device_type)) return PyObject_Call(func, args, kwargs);
  if (fn.kind == TorchKind::kRecord && histories().writes_to_leaf(fn, args, kwargs)) {
    if (!graph_break("an in-place write to a leaf that requires grad: " + fn.name)) return nullptr;
    return PyObject_Call(func, args, kwargs);
  }
  if (fn.name.rfind("_foreach_", 0) == 0) {
    if (PyObject* done = each_tensor(fn.name.substr(9), args, kwargs); done != not_handled()) return done;
  }
  return gradients().program_object(record(fn, func, args, kwargs));
}

/// `Tensor.type` that gives another dtype, as `Tensor.to`. Null, maybe without an error: it is another call.
PyObject* TorchTracing::convert_type(PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) == 0) return nullptr;
  PyObject* const self = PyTuple_GET_ITEM(args, 0);
  const int slot = trace_->tape.find(self);
  const Ref device = slot >= 0 ? trace_->tape.slots()[static_cast<size_t>(slot)].device : attr(self, "device");
  Ref dtype;
  {
    const Bypass bypass(bypass_);
    dtype = call_package<PackageFunction::kConvertedType>(args, kwargs != nullptr ? kwargs : Py_None,
                                                          device ? device.get() : api_.cpu_device.get());
  }
  if (!dtype || dtype.get() == Py_None) return nullptr;
  const Ref arguments = Ref::steal(PyTuple_Pack(2, self, dtype.get()));
  return arguments ? torch_function(api_.functions.to.get(), arguments.get(), nullptr) : nullptr;
}

/// A bool that is an attribute of the tensor, asked for as the program would. -1 with a Python error set.
int TorchTracing::ask_flag(PyObject* tensor, const char* name) {
  const Ref getter = attr(attr(reinterpret_cast<PyObject*>(api_.base_type), name).get(), "__get__");
  const Ref self = Ref::steal(PyTuple_Pack(1, tensor));
  const Ref answer = getter && self ? Ref::steal(torch_function(getter.get(), self.get(), nullptr)) : Ref();
  return answer ? static_cast<int>(answer.get() == Py_True) : -1;
}

/// torch.asarray of a tensor or of Python's own numbers, by calls that the tape knows. Null, maybe without an error: it is
/// another one, or the trace has ended.
PyObject* TorchTracing::as_array(PyObject* args, PyObject* kwargs) {
  static PyObject* const tensor = attr(api_.torch.get(), "tensor").release();
  if (PyTuple_GET_SIZE(args) != 1) return nullptr;
  PyObject* const given = PyTuple_GET_ITEM(args, 0);
  const Ref options = Ref::steal(PyDict_New());
  PyObject *name = nullptr, *value = nullptr, *copy = nullptr;
  bool without_history = false;
  Py_ssize_t at = 0;
  while (kwargs != nullptr && PyDict_Next(kwargs, &at, &name, &value) != 0) {
    const std::string text = text_of(name);
    if (text == "copy" && (PyBool_Check(value) || value == Py_None)) {
      copy = value == Py_None ? nullptr : value;
    } else if (text == "dtype" || text == "device") {
      if (value != Py_None && PyDict_SetItem(options.get(), name, value) != 0) return nullptr;
    } else if (text == "requires_grad" && value == Py_False) {
      without_history = true;
    } else {
      return nullptr;
    }
  }
  if (api_.is_torch_tensor(given)) return array_of_tensor(given, options.get(), copy, without_history);
  const std::function<bool(PyObject*)> plain = [&](PyObject* o) {
    if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) {
      return PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyComplex_CheckExact(o);
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
      if (!plain(PySequence_Fast_GET_ITEM(o, i))) return false;
    }
    return true;
  };
  if (copy == Py_False || !(is_symbolic_number(given) || plain(given))) return nullptr;
  return torch_function(tensor, args, options.get());
}

/// Whether torch.asarray keeps the history of a tensor, which it does since torch 2.13. It is asked where the program does, since
/// it may warn of that.
bool TorchTracing::arrays_keep_history() {
  const Bypass bypass(bypass_);
  const Ref leaf = Ref::steal(PyObject_CallMethod(api_.torch.get(), "zeros", "i", 0));
  if (!leaf || PyObject_SetAttrString(leaf.get(), "requires_grad", Py_True) != 0) return false;
  const Ref made = Ref::steal(PyObject_CallMethod(api_.torch.get(), "asarray", "O", leaf.get()));
  return made && attribute_is_true(made.get(), "requires_grad");
}

/// The same of a tensor.
PyObject* TorchTracing::array_of_tensor(PyObject* tensor, PyObject* options, PyObject* copy, bool without_history) {
  static PyObject* const clone = attr(reinterpret_cast<PyObject*>(api_.base_type), "clone").release();
  static PyObject* const detach = attr(reinterpret_cast<PyObject*>(api_.base_type), "detach").release();
  if (!api_.is_plain_tensor(tensor) || !transforms().open_levels().empty()) return nullptr;
  const int slot = context_.slot_for(tensor);
  if (slot < 0) return nullptr;
  const TapeSlot& info = trace_->tape.slots()[static_cast<size_t>(slot)];
  PyObject* const dtype = PyDict_GetItemString(options, "dtype");
  PyObject* const device = PyDict_GetItemString(options, "device");
  const bool other_type = dtype != nullptr && dtype != attr(info.meta.get(), "dtype").get();
  const bool other_place = device != nullptr && PyObject_RichCompareBool(device, info.device.get(), Py_EQ) != 1;
  forget_error();
  const bool copies = copy == Py_True || other_type || other_place;
  if (copies && copy == Py_False) return nullptr;  // an error, if the device is another one
  const int requires_grad = ask_flag(tensor, "requires_grad");
  if (requires_grad < 0 || !tracing()) return nullptr;
  const bool detaches = requires_grad == 1 && (without_history || !arrays_keep_history());
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (requires_grad == 1 && !detaches && other_type && !attribute_is_true(dtype, "is_floating_point") &&
      !attribute_is_true(dtype, "is_complex")) {
    return nullptr;  // an error: its result would require grad
  }
  if (detaches && !copies) {
    // Of a leaf it is the tensor itself, which no longer requires grad.
    if (const int leaf = ask_flag(tensor, "is_leaf"); leaf != 0 || !tracing()) return nullptr;
  }
  const Ref self = Ref::steal(PyTuple_Pack(1, tensor));
  Ref made = Ref::borrow(tensor);
  if (other_type || other_place) {
    if (copy == Py_True && PyDict_SetItemString(options, "copy", Py_True) != 0) return nullptr;
    made = Ref::steal(torch_function(api_.functions.to.get(), self.get(), options));
  } else if (copies) {
    made = Ref::steal(torch_function(clone, self.get(), nullptr));
  }
  if (!detaches || !made || (copies && !api_.grad_enabled())) return made.release();
  const Ref with_history = Ref::steal(PyTuple_Pack(1, made.get()));
  return torch_function(detach, with_history.get(), nullptr);
}

PyObject* TorchTracing::answer_constant(PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  const AutocastOff off(api_);
  bool known = true;
  const auto to_slot = [&](PyObject* o) -> Ref {
    if (is_symbolic_int(o)) return make_size_ref(symbolic_expr(o), t.symbols);
    if (!api_.is_tensor(o)) return plain_number(o);
    const int slot = t.tape.find(o);
    known = known && t.tape.makes(slot);
    return known ? make_slot_ref(slot) : Ref::borrow(o);
  };
  const Ref slots = map_structure(args, to_slot);
  const Ref options = kwargs != nullptr ? map_structure(kwargs, to_slot) : Ref();
  if (!known || !slots) return nullptr;
  const Ref values = t.constants.evaluate(t.tape, slots.get());
  const Ref keywords = options ? t.constants.evaluate(t.tape, options.get()) : Ref();
  if (!values || (options && !keywords)) return nullptr;
  const bool symbolic = t.constants.symbolic(slots.get()) || (options && t.constants.symbolic(options.get()));
  if (symbolic && t.symbols.has_made()) return nullptr;  // no guard speaks of what data decide
  PyObject* answer = PyObject_Call(func, values.get(), keywords.get());
  if (answer != nullptr && symbolic) {
    t.size_checks.push_back(t.constants.guard(t.tape, func, slots, options, answer));
  }
  return answer;
}

PyObject* TorchTracing::answer_device(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  PyObject* tensor = PyTuple_GET_ITEM(args, 0);
  const int slot = trace_->tape.find(tensor);
  const Bypass bypass(bypass_);
  if (!trace_->tape.makes(slot)) return PyObject_Call(func, args, kwargs);
  PyObject* device = trace_->tape.slots()[static_cast<size_t>(slot)].device.get();
  if (fn.name == "device") return Py_NewRef(device);
  const Ref kind = attr(device, "type");
  return PyBool_FromLong(text_of(kind.get()) == fn.name.substr(3));
}

/// Autocast does not look at what vmap has made a batch of, but at what the batching rule of the operator calls.
bool TorchTracing::reads_batch(PyObject* args, PyObject* kwargs) const {
  bool found = false;
  const auto look = [&](PyObject* o) -> Ref {
    const int slot = found || !api_.is_plain_tensor(o) ? -1 : trace_->tape.find(o);
    for (const int level : transforms().open_levels())
      found = found || (slot >= 0 && transforms().is_batched(slot, level));
    return Ref::borrow(o);
  };
  if (transforms().open_levels().empty()) return false;
  map_structure(args, look);
  if (kwargs != nullptr) map_structure(kwargs, look);
  return found;
}

/// What autocast does to all operands of an operator made of others: the host is asked.
CastPolicy TorchTracing::policy_inside(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  bool many = true;
  std::vector<Expr> varying;
  ExprContext& ctx = trace_->symbols.ctx();
  const auto look = [&](PyObject* o) -> Ref {
    const int slot = api_.is_plain_tensor(o) ? trace_->tape.find(o) : -1;
    if (slot < 0) return plain_number(o);
    for (const Expr e : trace_->tape.layout(slot).symbolic_sizes) {  // what it calls is decided by which sizes are 1
      if (e.is_const()) continue;
      varying.push_back(e);
      many = ctx.guard(ctx.lt(ctx.constant(1), e)) && many;
    }
    return Ref::borrow(o);
  };
  const Bypass bypass(bypass_);
  const Ref all = map_structure(args, look), named = kwargs != nullptr ? map_structure(kwargs, look) : Ref();
  trace_->symbols.note_guards();
  const Ref name = Ref::steal(PyUnicode_FromString(fn.name.c_str()));
  const Ref word = many && all ? call_package<PackageFunction::kAutocastInside>(name.get(), func, all.get(),
                                                                                named ? named.get() : Py_None)
                               : Ref();
  forget_error();
  const std::string text = text_of(word.get());
  const bool here = text == "same of these sizes";
  for (size_t i = 0; here && i < varying.size(); ++i) static_cast<void>(ctx.specialize(varying[i]));
  if (here) trace_->symbols.note_guards();
  return text == "lower"          ? CastPolicy::kLower
         : text == "float32"      ? CastPolicy::kFloat32
         : text == "same" || here ? CastPolicy::kNone
                                  : CastPolicy::kUnknown;
}

TorchTracing::Cast TorchTracing::cast_operands(const TorchFunction& fn, PyObject* func, PyObject* args,
                                               PyObject* kwargs, Ref& cast_args, Ref& cast_kwargs) {
  const AutocastState state = AutocastState::read(api_);
  if (!state.any) return Cast::kSame;
  if (kwargs != nullptr && PyDict_GetItemString(kwargs, "out") != nullptr) return Cast::kSame;
  // The floating tensors that autocast looks at: those on the device of the first tensor; float64 stays as it is.
  std::string device;
  bool eligible = false, wide = false, foreign = false;
  const auto dtype_name = [&](PyObject* o) -> std::string {
    if (!api_.is_plain_tensor(o)) return {};
    const Bypass bypass(bypass_);
    const int slot = trace_->tape.find(o);
    foreign = foreign || (slot >= 0 ? trace_->tape.slots()[static_cast<size_t>(slot)].foreign : api_.is_foreign(o));
    const Ref where = slot >= 0 ? trace_->tape.slots()[static_cast<size_t>(slot)].device : attr(o, "device");
    const std::string type = text_of(attr(where.get(), "type").get());
    if (device.empty()) device = type;
    const std::string name = text_of(Ref::steal(PyObject_Str(attr(o, "dtype").get())).get());
    const bool casts = name == "torch.float32" || name == "torch.float16" || name == "torch.bfloat16";
    return type == device && casts ? name : std::string();
  };
  const auto look = [&](PyObject* o) -> Ref {
    const std::string name = dtype_name(o);
    eligible = eligible || !name.empty();
    wide = wide || name == "torch.float32";
    return Ref::borrow(o);
  };
  map_structure(args, look);
  if (kwargs != nullptr) map_structure(kwargs, look);
  const auto place = std::find(AutocastState::kDevices.begin(), AutocastState::kDevices.end(), device);
  if (!eligible || place == AutocastState::kDevices.end()) return Cast::kSame;
  const auto& on = state.devices[static_cast<size_t>(place - AutocastState::kDevices.begin())];
  if (!on.on) return Cast::kSame;
  if (foreign) return Cast::kUnknown;  // calls on sparse tensors are made of others, which cast
  CastPolicy policy = [&] {
    const Bypass bypass(bypass_);  // Python code of the package reads its table
    return cast_policy(fn.name, device);
  }();
  if (policy == CastPolicy::kNone) return Cast::kSame;
  if (reads_batch(args, kwargs)) return Cast::kUnknown;
  if (policy == CastPolicy::kUnknown && device == "cpu") policy = policy_inside(fn, func, args, kwargs);
  if (policy == CastPolicy::kNone) return Cast::kSame;
  if (policy == CastPolicy::kUnknown) return Cast::kUnknown;
  const bool lower = policy == CastPolicy::kLower || (policy == CastPolicy::kPromote && !wide);
  const Ref target = lower ? on.dtype : attr(api_.torch.get(), "float32");
  const std::string target_name = text_of(Ref::steal(PyObject_Str(target.get())).get());
  const TorchFunction& to = api_.classify(api_.functions.to.get());
  bool failed = false;
  const auto cast = [&](PyObject* o) -> Ref {
    const std::string name = dtype_name(o);
    if (name.empty() || name == target_name || failed) return Ref::borrow(o);
    const Ref operands = Ref::steal(PyTuple_Pack(2, o, target.get()));
    Ref made = Ref::steal(record(to, api_.functions.to.get(), operands.get(), nullptr));
    failed = !made;
    return made ? made : Ref::borrow(o);
  };
  cast_args = map_structure(args, cast);
  if (kwargs != nullptr) cast_kwargs = map_structure(kwargs, cast);
  return failed || !cast_args ? Cast::kFailed : Cast::kCast;
}

void ModeStack::drop_modes(size_t left) {
  if (modes_.size() <= left) return;
  const ErrorAside aside;
  while (modes_.size() > left && modes_.back() == handlers_) {
    // Modes that the program entered in the instruction that broke the graph lie above ours, and stay.
    std::vector<Ref> above;
    Ref top = Ref::steal(PyObject_CallNoArgs(api_.modes.pop.get()));
    while (top && top.get() != mode_object()) {
      above.push_back(std::move(top));
      top = Ref::steal(PyObject_CallNoArgs(api_.modes.pop.get()));
    }
    if (!top) forget_error();  // the program has taken it off
    for (auto mode = above.rbegin(); mode != above.rend(); ++mode) {
      if (!Ref::steal(PyObject_CallOneArg(api_.modes.push.get(), mode->get()))) forget_error();
    }
    modes_.pop_back();
  }
}

PyObject* TorchTracing::ask_mode(const TracedCall& call) {
  const bool plain = call.nargs() >= 2 && PyFunction_Check(call.args[0]) && modes().gives_device();
  if (!plain || api_.classify(call.args[0]).kind != TorchKind::kPython) return not_handled();
  // The function, those of its arguments that may have classes with handlers, then its arguments.
  const Ref operands = Ref::steal(PySequence_Tuple(call.args[1]));
  for (Py_ssize_t i = 0; operands && i < PyTuple_GET_SIZE(operands.get()); ++i) {
    if (api_.handles_calls(Py_TYPE(PyTuple_GET_ITEM(operands.get(), i)))) return not_handled();
  }
  const auto [positional, named] = call.packed();
  const Ref args = positional && operands ? Ref::steal(PyTuple_GetSlice(positional.get(), 2, call.nargs())) : Ref();
  const Ref top = args ? Ref::steal(PyObject_CallNoArgs(api_.modes.pop.get())) : Ref();
  if (!top) return nullptr;
  for (PyObject* made : {args.get(), named.get()}) mark_born(made);
  modes().handler_begins();
  PyObject* result = torch_function(call.args[0], args.get(), call.keywords() > 0 ? named.get() : nullptr);
  modes().handler_ends();
  const ErrorAside aside;
  if (!Ref::steal(PyObject_CallOneArg(api_.modes.push.get(), top.get()))) forget_error();
  return result;
}

/// Whether torch asks the operands' classes for the call.
bool Tracer::asks_classes(PyObject* types) const {
  bool any = false;
  for (Py_ssize_t i = 0; tracing() && PyTuple_Check(types) && i < PyTuple_GET_SIZE(types); ++i) {
    any = any || api_.handles_calls(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types, i)));
  }
  return any && Ref::steal(PyObject_CallNoArgs(api_.modes.overrides_enabled.get())).get() == Py_True;
}

bool Tracer::leave_to_others(PyObject* types) {
  for (Py_ssize_t i = 0; tracing() && i < PyTuple_GET_SIZE(types); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types, i));
    if (!api_.handles_calls(type)) continue;
    if (!graph_break(str_cat("an argument with a __torch_function__ of its own (", type->tp_name, ")"))) return false;
  }
  return true;
}

PyObject* Tracer::handle_torch_function(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  modes().handler_begins();
  PyObject* result = not_handled();
  if (asks_classes(types)) {
    result = modes().ask_operands(types, func, args, kwargs);
    if (result == not_handled() && !leave_to_others(types)) result = nullptr;
  }
  if (result == not_handled()) result = torch().torch_function(func, args, kwargs);
  modes().handler_ends();
  return result;
}

}  // namespace tatara::capture
