// Torch calls while a trace is open: inferred on meta tensors, recorded on the tape.
#include <algorithm>

#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// Results are inferred in inference mode: views then keep no reference to their base, so that placeholders can be swapped.
class InferenceMode {
 public:
  explicit InferenceMode(TorchApi& api)
      : guard_(Ref::steal(PyObject_CallOneArg(api.state.inference_mode.get(), Py_True))) {
    if (guard_) Ref::steal(PyObject_CallMethod(guard_.get(), "__enter__", nullptr));
  }
  ~InferenceMode() {
    const ErrorAside aside;
    if (guard_) Ref::steal(PyObject_CallMethod(guard_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    forget_error();
  }
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  Ref guard_;
};

/// Results that the host's kernels give only if asked to, as None otherwise, while its meta kernels always give a tensor.
struct AskedFor {
  const char* function;
  const char* argument;  // a bool
  Py_ssize_t place;      // of the argument
  Py_ssize_t result;
};
constexpr AskedFor kAskedFor[] = {{"_native_multi_head_attention", "need_weights", 10, 1}};

void leave_out_unasked(const std::string& name, PyObject* args, PyObject* kwargs, Ref& result) {
  for (const AskedFor& each : kAskedFor) {
    if (name != each.function || !result || !PyTuple_CheckExact(result.get())) continue;
    PyObject* asked = kwargs != nullptr ? PyDict_GetItemString(kwargs, each.argument) : nullptr;
    if (asked == nullptr && PyTuple_GET_SIZE(args) > each.place) asked = PyTuple_GET_ITEM(args, each.place);
    if (asked != Py_False) continue;
    Ref changed = Ref::steal(PySequence_List(result.get()));
    PyList_SetItem(changed.get(), each.result, Py_NewRef(Py_None));
    result = Ref::steal(PyList_AsTuple(changed.get()));
  }
}

/// Not a sparse tensor, of which a meta kernel may give one, too.
bool is_strided(const TorchApi& api, PyObject* tensor) {
  const Ref& strided = made_once([&] { return attr(api.torch.get(), "strided"); });
  return attr_or_null(tensor, "layout").get() == strided.get();
}

/// Whether a call of the dispatcher's operator names another device than the CPU as text.
bool names_device(PyObject* func, PyObject* args) {
  if (!is_dispatcher_operator(func)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    const std::string text = text_of(PyTuple_GET_ITEM(args, i));
    if (text.rfind("meta", 0) == 0 || text.rfind("cuda", 0) == 0) return true;
  }
  return false;
}

bool on_meta(PyObject* device) { return text_of(attr_or_null(device, "type").get()) == "meta"; }

/// Whether a call for device `wanted` leaves a tensor where it is. One without an index is any of its type.
bool stays_on(PyObject* device, PyObject* wanted) {
  if (device == wanted) return true;
  const auto part = [](PyObject* o, const char* name) { return attr_or_null(o, name); };
  const Ref type = part(device, "type"), index = part(device, "index"), other = part(wanted, "index");
  return text_of(type.get()) == text_of(part(wanted, "type").get()) &&
         (index.get() == Py_None || other.get() == Py_None ||
          PyObject_RichCompareBool(index.get(), other.get(), Py_EQ) == 1);
}

/// A torch.Size as a plain tuple.
Ref sizes_on_tape(PyObject* size, const TraceSymbols& symbols) {
  const Ref items = Ref::steal(PySequence_Tuple(size));
  return map_structure(items.get(), [&symbols](PyObject* o) {
    return is_symbolic_int(o) ? make_size_ref(symbolic_expr(o), symbols) : plain_number(o);
  });
}

std::vector<int64_t> hints_of(const std::vector<Expr>& values) {
  std::vector<int64_t> result;
  for (const Expr e : values) result.push_back(e.context().evaluate_hint(e).value());
  return result;
}

/// Operators whose result is a tuple also when it holds one tensor.
bool returns_tuple(const std::string& name) {
  static const std::unordered_set<std::string> names = {"split",
                                                        "chunk",
                                                        "unbind",
                                                        "tensor_split",
                                                        "split_with_sizes",
                                                        "meshgrid",
                                                        "broadcast_tensors",
                                                        "hsplit",
                                                        "vsplit",
                                                        "dsplit",
                                                        "unsafe_split",
                                                        "unsafe_chunk",
                                                        "unbind_copy",
                                                        "split_copy",
                                                        "split_with_sizes_copy"};
  return names.contains(name);
}

/// Whether an operator of the dispatcher's gives one result for each tensor of a list.
bool gives_one_for_each(const std::string& name, PyObject* args) {
  const bool at_least = name == "atleast_1d" || name == "atleast_2d" || name == "atleast_3d";
  PyObject* const first = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None;
  return at_least && (PyList_Check(first) || PyTuple_Check(first));
}

}  // namespace

int TraceContext::slot_for(PyObject* tensor) {
  Trace& t = *trace;
  if (const int slot = t.tape.find(tensor); slot >= 0) return slot;
  Ref meta = api.meta_like(tensor);
  if (!meta) {
    forget_error();
    return -1;
  }
  Ref device = attr(tensor, "device");
  const int index = t.index_of(tensor);
  const int slot = t.tape.add_input(tensor, std::move(meta), std::move(device), index);
  if (const auto* layout = index >= 0 ? t.guard.layout(index) : nullptr) {
    t.tape.set_layout(slot, layout->sizes, layout->strides);
  }
  return slot;
}

PyObject* TorchTracing::torch_function(PyObject* func, PyObject* args, PyObject* kwargs) {
  if (!tracing()) return PyObject_Call(func, args, kwargs);
  const TorchFunction& fn = api_.classify(func);
  if ((context_.looking && histories().differs_in_levels(fn, args)) || histories().depends_on_base(fn, args)) {
    if (!graph_break("read of " + fn.name)) return nullptr;
    return PyObject_Call(func, args, kwargs);
  }
  switch (fn.kind) {
    case TorchKind::kPassthrough: return PyObject_Call(func, args, kwargs);
    case TorchKind::kBreak:
      if (fn.name == "_version" && PyTuple_GET_SIZE(args) == 1) {
        if (const long version = histories().version_of(PyTuple_GET_ITEM(args, 0)); version >= 0)
          return PyLong_FromLong(version);
      }
      if (fn.reads_values) {
        PyObject* answer = answer_constant(func, args, kwargs);
        if (answer != nullptr || PyErr_Occurred() != nullptr) return answer;
        if (fn.name == "item" && PyTuple_GET_SIZE(args) == 1)
          answer = numbers().item_number(func, PyTuple_GET_ITEM(args, 0));
        if (answer != nullptr || PyErr_Occurred() != nullptr) return answer;
      }
      if (fn.name == "requires_grad_" && transforms().make_variable(args, kwargs))
        return Py_NewRef(PyTuple_GET_ITEM(args, 0));
      if (fn.name == "requires_grad_" && transforms().open_levels().empty() &&
          (gradients().changes_nothing(args, kwargs) || gradients().make_leaf(func, args, kwargs))) {
        return Py_NewRef(PyTuple_GET_ITEM(args, 0));
      }
      if (!graph_break("call of " + fn.name)) return nullptr;
      return PyObject_Call(func, args, kwargs);
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
      if (leaf && fn.name == "grad") return Py_NewRef(gradients().gradient_of(tensor));
      if (placeholder && (leaf || fn.name != "grad_fn" || histories().needs_grad(slot) == NeedsGrad::kNo))
        Py_RETURN_NONE;
      if (!placeholder) {
        const Bypass bypass(bypass_);
        const Ref value = Ref::steal(PyObject_Call(func, args, kwargs));
        if (!value) return nullptr;
        // Nothing guards the rest: hooks stay when a tensor no longer requires grad.
        if (fn.name == "grad_fn" && value.get() == Py_None && !attribute_is_true(tensor, "requires_grad")) {
          trace_->guard.check_grad = true;
          Py_RETURN_NONE;
        }
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
  return record(fn, func, args, kwargs);
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
  PyObject* answer = PyObject_Call(func, values.get(), keywords.get());
  if (answer != nullptr && (t.constants.symbolic(slots.get()) || (options && t.constants.symbolic(options.get())))) {
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

TorchTracing::Cast TorchTracing::cast_operands(const TorchFunction& fn, PyObject* args, PyObject* kwargs,
                                               Ref& cast_args, Ref& cast_kwargs) {
  const AutocastState state = AutocastState::read(api_);
  if (!state.any) return Cast::kSame;
  if (kwargs != nullptr && PyDict_GetItemString(kwargs, "out") != nullptr) return Cast::kSame;
  // The floating tensors that autocast looks at: those on the device of the first tensor; float64 stays as it is.
  std::string device;
  bool eligible = false, wide = false;
  const auto dtype_name = [&](PyObject* o) -> std::string {
    if (!api_.is_plain_tensor(o)) return {};
    const Bypass bypass(bypass_);
    const int slot = trace_->tape.find(o);
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
  const CastPolicy policy = [&] {
    const Bypass bypass(bypass_);  // Python code of the package reads its table
    return cast_policy(fn.name, device);
  }();
  if (policy == CastPolicy::kNone) return Cast::kSame;
  if (reads_batch(args, kwargs)) return Cast::kUnknown;
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

namespace {

/// Kernels of the dispatcher resize results that they are given (always keywords) or not, whatever their meta form does.
bool takes_empty_result(PyObject* kwargs, const Tape& tape) {
  bool found = false;
  for_each_slot(kwargs, [&](int slot) {
    PyObject* meta = tape.slots()[static_cast<size_t>(slot)].meta.get();
    const Ref count = Ref::steal(PyObject_CallMethod(meta, "numel", nullptr));
    found = found || !count || PyLong_AsLong(count.get()) == 0;
  });
  forget_error();
  return found;
}

}  // namespace

PyObject* TorchTracing::record(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  std::string problem;
  Ref device;
  size_t tensors = 0;
  Ref meta_args, meta_kwargs, tape_args, tape_kwargs, cast_args, cast_kwargs;
  const auto give_up = [&](const std::string& reason, bool eager) -> PyObject* {
    forget_error();
    if (!graph_break(reason, eager)) return nullptr;
    return PyObject_Call(func, args, kwargs);
  };
  if (fn.kind == TorchKind::kRecord) {
    switch (cast_operands(fn, args, kwargs, cast_args, cast_kwargs)) {
      case Cast::kSame: break;
      case Cast::kCast:
        args = cast_args.get();
        kwargs = cast_kwargs.get();
        break;
      case Cast::kUnknown: return give_up("under autocast the host decides what " + fn.name + " casts", false);
      case Cast::kFailed: return nullptr;
    }
    if (!tracing()) return PyObject_Call(func, args, kwargs);
  }
  {
    const Bypass bypass(bypass_);
    const auto to_tape = [&](PyObject* o) -> Ref {
      if (!api_.is_tensor(o)) {
        if (is_symbolic_int(o)) return make_size_ref(symbolic_expr(o), t.symbols);
        if (const int slot = float_slot(o); slot >= 0) {
          return numbers().takes_number(fn.name, args, kwargs) ? make_slot_ref(slot) : plain_number(o);
        }
        if (is_derived_int(o)) return plain_number(o);
        if (PyTuple_Check(o) && holds_symbolic_number(o)) return sizes_on_tape(o, t.symbols);
        if (Py_TYPE(o) == api_.device_type && !device) device = Ref::borrow(o);
        if (api_.is_numpy(o)) problem = "a NumPy array in a torch call";
        return Ref::borrow(o);
      }
      ++tensors;
      if (!api_.is_plain_tensor(o)) {
        problem = "a tensor subclass (" + type_name(o) + ")";
        return Ref::borrow(o);
      }
      const bool known = t.tape.find(o) >= 0;
      if (!known) {
        TensorMeta meta;
        if (!api_.read_meta(o, meta)) {
          problem = api_.why_not(o);
          return Ref::borrow(o);
        }
      }
      const int slot = slot_for(o);
      if (slot < 0) {
        problem = "a tensor without meta form";
        return Ref::borrow(o);
      }
      const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
      if (tensors > 1 && device && device.get() != info.device.get() &&
          on_meta(device.get()) != on_meta(info.device.get())) {
        problem = "tensors on the meta device beside others";
      }
      if (!device || (tensors == 1)) device = info.device;
      return make_slot_ref(slot);
    };
    tape_args = map_structure(args, to_tape);
    if (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0) tape_kwargs = map_structure(kwargs, to_tape);
  }
  if (!tracing()) return PyObject_Call(func, args, kwargs);  // an operand was asked for its value
  if (problem.empty() && names_device(func, args)) problem = "a device given as text";
  if (problem.empty() && fn.kind == TorchKind::kRecord) problem = transforms().level_problem(fn.name, args, kwargs);
  if (!t.tape.nodes().empty() && t.tape.nodes().back().done) problem = "a torch call after NumPy calls";
  if (!problem.empty()) return give_up(problem + " (" + fn.name + ")", false);
  if (fn.kind == TorchKind::kToCpu && tensors == 1 && device) {
    const Ref kind = attr(device.get(), "type");
    if (text_of(kind.get()) == "cpu") return Py_NewRef(PyTuple_GET_ITEM(args, 0));
    return give_up("copy to the CPU", false);
  }
  if (fn.kind == TorchKind::kRecord && t.state.inference && api_.grad_enabled()) {
    return give_up("gradients are switched on in inference mode, where nothing is recorded", false);
  }
  if (fn.kind == TorchKind::kRecord && fn.name != "detach" && fn.name != "data" &&
      histories().takes_silent_view(tape_args.get(), tape_kwargs.get())) {
    return give_up("with gradients on, " + fn.name + " takes a view that was made without them", false);
  }
  if (fn.kind == TorchKind::kMetadata && tensors == 0) return PyObject_Call(func, args, kwargs);
  if (fn.kind == TorchKind::kMetadata && fn.of_layout) {
    for_each_slot(tape_args.get(), [&t](int slot) { t.tape.set_layout_read(slot); });
  }
  if (fn.kind == TorchKind::kMetadata && !t.symbols.empty() && fn.of_sizes) {
    const int slot = PyTuple_GET_SIZE(tape_args.get()) > 0 ? slot_of(PyTuple_GET_ITEM(tape_args.get(), 0)) : -1;
    PyObject* answer = numbers().symbolic_metadata(fn, slot, tape_args.get(), tape_kwargs.get());
    if (answer != not_handled()) return answer;
  }
  Ref device_argument;
  Ref result;
  if (fn.kind == TorchKind::kRecord) {
    switch (record_inferred(func, fn, tape_args, tape_kwargs, device, result)) {
      case Inferred::kDone: return result.release();
      case Inferred::kWrong: return give_up(fn.name + " is an error for these arguments", false);
      case Inferred::kUnknown: break;
    }
    const auto takes_empty = [&] {
      const Bypass bypass(bypass_);
      return takes_empty_result(tape_kwargs.get(), t.tape);
    };
    if (fn.dispatcher && tape_kwargs && takes_empty()) {
      return give_up("whether " + fn.name + " gives an empty result its size is the host's to say", false);
    }
    // The host infers from the sizes of this call.
    if (fn.name.rfind("_fused_", 0) != 0) numbers().specialize_operands(tape_args.get(), tape_kwargs.get());
  }
  {
    const Bypass bypass(bypass_);
    const auto to_meta = [&](PyObject* o) -> Ref {
      if (const int slot = slot_of(o); slot >= 0) return t.tape.slots()[static_cast<size_t>(slot)].meta;
      if (is_size_ref(o)) return size_ref_value(o, t.symbols.hints());
      if (Py_TYPE(o) == api_.device_type) {
        device_argument = Ref::borrow(o);
        return api_.meta_device;
      }
      return Ref::borrow(o);
    };
    meta_args = map_structure(tape_args.get(), to_meta);
    if (tape_kwargs) meta_kwargs = map_structure(tape_kwargs.get(), to_meta);
    // Devices given as text, and factories that take the default device.
    PyObject* given = meta_kwargs ? PyDict_GetItem(meta_kwargs.get(), api_.device_key.get()) : nullptr;
    const bool text_device = given != nullptr && PyUnicode_Check(given) != 0;
    if (text_device || (fn.factory && tensors == 0 && (given == nullptr || given == Py_None))) {
      if (text_device) {
        device_argument =
            Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(api_.device_type), given, nullptr));
      }
      if (!meta_kwargs) meta_kwargs = Ref::steal(PyDict_New());
      PyDict_SetItem(meta_kwargs.get(), api_.device_key.get(), api_.meta_device.get());
    }
    if (fn.name == "to" && PyTuple_GET_SIZE(meta_args.get()) > 1 &&
        PyUnicode_Check(PyTuple_GET_ITEM(meta_args.get(), 1))) {
      device_argument = Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(api_.device_type),
                                                                PyTuple_GET_ITEM(meta_args.get(), 1), nullptr));
      Ref changed = Ref::steal(PySequence_List(meta_args.get()));
      PyList_SetItem(changed.get(), 1, Py_NewRef(api_.meta_device.get()));
      meta_args = Ref::steal(PyList_AsTuple(changed.get()));
    }
    forget_error();
    const InferenceMode mode(api_);
    result = call_meta(func, meta_args.get(), meta_kwargs.get());
    leave_out_unasked(fn.name, meta_args.get(), meta_kwargs.get(), result);
  }
  if (!result) {
    const std::string text = take_error_text();
    return give_up("no meta form of " + fn.name + " for these arguments: " + text.substr(0, 120), false);
  }
  if (device_argument) device = device_argument;
  if (!device) device = api_.cpu_device;
  if (!record_result(func, fn, std::move(tape_args), std::move(tape_kwargs), std::move(device), result)) {
    return give_up(fn.name + " gives no tensor", false);
  }
  return result.release();
}

bool TorchTracing::record_result(PyObject* func, const TorchFunction& fn, Ref args, Ref kwargs, Ref device,
                                 Ref& result) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  if (fn.kind == TorchKind::kMetadata) return !api_.is_tensor(result.get());
  TapeNode node;
  bool bad = false;
  bool fresh = false;
  const auto take = [&](PyObject* o) -> Ref {
    if (!api_.is_tensor(o)) {
      node.outputs.push_back(-1);
      if (o != Py_None) bad = true;
      return Ref::borrow(o);
    }
    if (!is_strided(api_, o)) {
      bad = true;
      return Ref::borrow(o);
    }
    if (const int known = t.tape.find_meta(o); known >= 0) {
      const TapeSlot& operand = t.tape.slots()[static_cast<size_t>(known)];
      bad = bad || !stays_on(operand.device.get(), device.get());  // a copy to another device
      node.outputs.push_back(known);
      return operand.object;
    }
    fresh = true;
    Ref placeholder = Ref::borrow(o);
    const Ref is_meta = attr(o, "is_meta");
    if (is_meta.get() != Py_True) {
      placeholder = api_.meta_like(o);
      if (!placeholder) {
        bad = true;
        return Ref::borrow(o);
      }
    }
    node.outputs.push_back(t.tape.add_placeholder(placeholder.get(), device));
    return placeholder;
  };
  if (PyTuple_Check(result.get()) && !PyTuple_CheckExact(result.get())) {
    // torch.return_types: immutable, so its own tensors become the placeholders.
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.get()); ++i) {
      const Ref placeholder = take(PyTuple_GET_ITEM(result.get(), i));
      if (placeholder.get() != PyTuple_GET_ITEM(result.get(), i)) bad = true;
    }
    node.sequence = true;
  } else if (PyTuple_Check(result.get()) || PyList_Check(result.get())) {
    result = map_structure(result.get(), take);
    node.sequence = true;
  } else {
    result = take(result.get());
  }
  forget_error();
  if (bad || !result) return false;
  node.func = Ref::borrow(func);
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  node.name = fn.name;
  finish_node(node, fresh, false);
  return true;
}

namespace {

/// Whether it is a norm that keeps running statistics, and is asked to update them.
bool updates_statistics(const TapeNode& node) {
  if (node.name.find("batch_norm") == std::string::npos && node.name.find("instance_norm") == std::string::npos) {
    return false;
  }
  constexpr Py_ssize_t kPlace = 5;  // of the flag, in all forms
  PyObject* own = PyTuple_GET_SIZE(node.args.get()) > kPlace ? PyTuple_GET_ITEM(node.args.get(), kPlace) : nullptr;
  for (const char* keyword : {"training", "use_input_stats"}) {
    if (own == nullptr && node.kwargs) own = PyDict_GetItemString(node.kwargs.get(), keyword);
  }
  return own != Py_False;
}

/// The generator that the call is given; null: none.
PyObject* generator_of(const TapeNode& node) {
  const auto is_generator = [](PyObject* o) { return std::strcmp(Py_TYPE(o)->tp_name, "torch._C.Generator") == 0; };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    if (PyObject* arg = PyTuple_GET_ITEM(node.args.get(), i); is_generator(arg)) return arg;
  }
  PyObject* named = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "generator") : nullptr;
  return named != nullptr && is_generator(named) ? named : nullptr;
}

}  // namespace

void TorchTracing::finish_node(TapeNode& node, bool fresh, bool known) {
  Trace& t = *trace_;
  const std::string& name = node.name;
  const bool in_place = name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_';
  const bool dunder = name == "__setitem__" || name.rfind("__i", 0) == 0;  // __iadd__ and its kin; also __invert__
  node.mutates = in_place || (dunder && !fresh) || (!fresh && !known) ||
                 (node.kwargs && PyDict_GetItemString(node.kwargs.get(), "out") != nullptr);
  node.statistics = updates_statistics(node);
  node.generator = generator_of(node);
  forget_error();
  user_location(node.file, node.function, node.line);
  transforms().note_modes(node);
  if (node.level != 0) {
    std::unordered_set<int> operands;
    const auto note = [&operands](int slot) { operands.insert(slot); };
    for_each_slot(node.args.get(), note);
    for_each_slot(node.kwargs.get(), note);
    for (const int slot : node.outputs) {
      if (slot >= 0 && !operands.contains(slot)) t.tape.set_level(slot, node.level);
    }
  }
  histories().note_silent_views(node);
  t.tape.add_node(std::move(node));
  t.symbols.note_guards();
}

TorchTracing::Inferred TorchTracing::record_inferred(PyObject* func, const TorchFunction& fn, const Ref& args,
                                                     const Ref& kwargs, const Ref& device, Ref& result) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = Ref::borrow(func);
  node.args = args;
  node.kwargs = kwargs;
  node.name = fn.name;
  std::vector<InferredTensor> inferred;
  try {
    inferred = t.inference.infer(t.tape, node);
  } catch (const InvalidArgument&) {
    return Inferred::kWrong;
  } catch (const Error&) {
    return Inferred::kUnknown;
  } catch (const std::out_of_range&) {
    return Inferred::kUnknown;  // a dimension that is not there: eager says so
  }
  PyObject* given = kwargs ? PyDict_GetItem(kwargs.get(), api_.device_key.get()) : nullptr;
  Ref where = device ? device : api_.cpu_device;
  if (given != nullptr && PyUnicode_Check(given)) {
    where = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(api_.device_type), given));
  }
  bool fresh = false;
  std::vector<Ref> tensors;
  for (const InferredTensor& each : inferred) {
    if (each.slot >= 0) {
      node.outputs.push_back(each.slot);
      tensors.push_back(t.tape.slots()[static_cast<size_t>(each.slot)].object);
      continue;
    }
    fresh = true;
    const Ref sizes = int_tuple(hints_of(each.sizes)), strides = int_tuple(hints_of(each.strides));
    const Ref dtype = attr(api_.torch.get(), torch_abi::dtype_attribute(each.dtype));
    Ref placeholder = api_.empty_meta(sizes.get(), strides.get(), dtype.get());
    if (!placeholder) {
      forget_error();
      return Inferred::kUnknown;
    }
    const int slot = t.tape.add_placeholder(placeholder.get(), where);
    t.tape.set_layout(slot, each.sizes, each.strides);
    t.inference.bind(slot, each.ref);
    node.outputs.push_back(slot);
    tensors.push_back(std::move(placeholder));
  }
  if (fn.name == "__setitem__") {
    result = Ref::borrow(Py_None);
  } else if (tensors.size() == 1 && !returns_tuple(fn.name) && !gives_one_for_each(fn.name, args.get())) {
    result = tensors[0];
  } else {
    result = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
    for (size_t i = 0; i < tensors.size(); ++i) {
      PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), Py_NewRef(tensors[i].get()));
    }
    // Python's functions have names for their results; the dispatcher's operators give tuples, and lists where they give any
    // number of tensors.
    const Ref types = attr(api_.torch.get(), "return_types");
    const Ref named = fn.dispatcher ? Ref() : attr_or_null(types.get(), fn.name.c_str());
    if (named) result = Ref::steal(PyObject_CallOneArg(named.get(), result.get()));
    if (fn.dispatcher && (returns_tuple(fn.name) || gives_one_for_each(fn.name, args.get())))
      result = Ref::steal(PySequence_List(result.get()));
    node.sequence = true;
  }
  finish_node(node, fresh, true);
  return result ? Inferred::kDone : Inferred::kUnknown;
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

bool Tracer::leave_to_others(PyObject* types) {
  for (Py_ssize_t i = 0; tracing() && PyTuple_Check(types) && i < PyTuple_GET_SIZE(types); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types, i));
    if (!api_.handles_calls(type)) continue;
    if (!graph_break(str_cat("an argument with a __torch_function__ of its own (", type->tp_name, ")"))) return false;
  }
  return true;
}

PyObject* Tracer::handle_torch_function(PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  modes().handler_begins();
  PyObject* result = leave_to_others(types) ? torch().torch_function(func, args, kwargs) : nullptr;
  modes().handler_ends();
  return result;
}

}  // namespace tatara::capture
