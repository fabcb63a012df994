// A torch call goes onto the tape: its operands, what it gives, and the node.
#include <algorithm>

#include "capture/host/inference_mode.h"
#include "capture/host/known_calls.h"
#include "capture/host/numpy_api.h"
#include "capture/tape/node_operators.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/size_probes.h"
#include "capture/trace/torch_recording.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

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

/// Whether the result lies where the second operand does.
bool takes_device_of_other(const std::string& name) { return name == "to" || name == "type_as"; }

/// A placeholder for a copy of a tensor on another device.
Ref copy_elsewhere(const TorchApi& api, PyObject* meta) {
  return Ref::steal(PyObject_CallMethod(api.torch.get(), "empty_like", "O", meta));
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

bool is_symbolic_size(PyObject* o) { return PyTuple_Check(o) && !PyTuple_CheckExact(o) && holds_symbolic_number(o); }

/// A torch.Size as a plain tuple.
Ref sizes_on_tape(PyObject* size, TraceSymbols& symbols) {
  const Ref items = Ref::steal(PySequence_Tuple(size));
  return map_structure(items.get(), [&symbols](PyObject* o) {
    return is_symbolic_int(o) ? make_size_ref(symbolic_expr(o), symbols) : plain_number(o);
  });
}

/// Whether it makes a sparse or quantised tensor, or multiplies by weights that are in an object of the quantised library's: neither
/// has a kernel for tensors without data.
bool gives_foreign(const TorchFunction& fn) {
  const std::string_view name = fn.name;
  if (fn.dispatcher) return name.starts_with("quantized::");
  const bool of_parts = name.starts_with("sparse_") && name.ends_with("_tensor");
  return of_parts || name.starts_with("to_sparse") || name.starts_with("quantize_per_");
}

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

int generator_slot(Trace& trace, PyObject* generator) {
  if (const int made = trace.tape.find(generator); made >= 0) return made;
  const int index = trace.index_of(generator);
  const auto& others = trace.guard.generators;
  if (index < 0 || std::find(others.begin(), others.end(), static_cast<size_t>(index)) == others.end()) return -1;
  TapeSlot slot;
  slot.object = slot.meta = Ref::borrow(generator);
  slot.input = slot.number = slot.generator = true;
  slot.guard_index = index;
  return trace.tape.add_value(std::move(slot));
}

/// An operand as the tape has it.
Ref TorchTracing::to_tape(Recording& call, PyObject* o) {
  Trace& t = *trace_;
  // Torch takes a NumPy number for Python's. One that is the same in each call is a constant.
  if (api_.numpy != nullptr && api_.numpy->is_scalar(o) && t.tape.find(o) < 0 && t.index_of(o) < 0) {
    const Ref kind = attr(attr(o, "dtype").get(), "kind");
    const bool is_number = std::string_view("biufc").find(text_of(kind.get())) != std::string_view::npos;
    Ref number = is_number ? Ref::steal(PyObject_CallMethod(o, "item", nullptr)) : Ref();
    if (number &&
        (PyLong_Check(number.get()) || PyFloat_CheckExact(number.get()) || PyComplex_CheckExact(number.get()))) {
      return number;
    }
    forget_error();
  }
  if (!api_.is_tensor(o)) {
    if (is_symbolic_int(o)) return make_size_ref(symbolic_expr(o), t.symbols);
    if (const int slot = float_slot(o); slot >= 0) {
      if (numbers().keeps_number(call.fn.name, call.args, call.kwargs)) return make_slot_ref(slot);
      if (call.by_value) return plain_number(o);
      call.varying = true;
      return make_slot_ref(slot);
    }
    if (is_derived_int(o)) return plain_number(o);
    if (PyTuple_Check(o) && holds_symbolic_number(o)) return sizes_on_tape(o, t.symbols);
    if (is_random_generator(o)) {
      const int slot = generator_slot(t, o);
      return slot < 0 ? Ref::borrow(o) : make_slot_ref(slot);
    }
    if (Py_TYPE(o) == api_.device_type && !call.device) call.device = Ref::borrow(o);
    if (api_.is_numpy(o)) call.problem = "a NumPy array in a torch call";
    return Ref::borrow(o);
  }
  ++call.tensors;
  if (!api_.is_plain_tensor(o)) {
    call.problem = "a tensor subclass (" + type_name(o) + ")";
    return Ref::borrow(o);
  }
  const bool known = t.tape.find(o) >= 0;
  if (!known) {
    TensorMeta meta;
    if (!api_.read_meta(o, meta) && !api_.is_foreign(o)) {
      call.problem = api_.why_not(o);
      return Ref::borrow(o);
    }
  }
  const int own = slot_for(o);
  if (own < 0) {
    call.problem = "a tensor without meta form";
    return Ref::borrow(o);
  }
  if (gradients().writes_to_stopped(own, call.fn.name, call.kwargs)) {
    call.problem = "a write to a leaf that no longer requires grad";
  }
  const int slot = gradients().operand_slot(own);
  const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
  if (call.tensors > 1 && call.device && call.device.get() != info.device.get() &&
      on_meta(call.device.get()) != on_meta(info.device.get())) {
    call.problem = "tensors on the meta device beside others";
  }
  if (!call.device || (call.tensors == 1)) call.device = info.device;
  call.foreign = call.foreign || info.foreign;
  return make_slot_ref(slot);
}

/// A question about a tensor of a class of the user's, which is the same object in each call.
bool TorchTracing::is_of_a_found_tensor(const Recording& call) const {
  PyObject* const tensor = PyTuple_GET_SIZE(call.args) > 0 ? PyTuple_GET_ITEM(call.args, 0) : nullptr;
  if (tensor == nullptr || call.tensors != 1 || !api_.is_torch_tensor(tensor) || api_.is_plain_tensor(tensor) ||
      call.fn.name == "requires_grad" || call.fn.name == "is_leaf")
    return false;
  return trace_->index_of(tensor) >= 0 || trace_->object_guards.seen_objects().contains(tensor);
}

/// What is against recording a call whose operands are on the tape; empty: nothing.
std::string TorchTracing::why_unrecorded(const Recording& call) {
  const TorchFunction& fn = call.fn;
  std::string problem = call.problem;
  if (problem.empty() && fn.kind == TorchKind::kRecord && trace_->start.inference_mode.left()) {
    problem = "inference mode, in which the graph runs, has ended";
  }
  if (problem.empty() && names_device(call.func, call.args)) problem = "a device given as text";
  if (problem.empty() && fn.kind == TorchKind::kRecord) {
    problem = transforms().level_problem(fn.name, call.args, call.kwargs);
  }
  const bool quiet = !trace_->start.quiet_guards.empty() && !transforms().open_levels().empty();
  if (problem.empty() && fn.kind == TorchKind::kRecord && quiet && !of_generator(fn.name)) {
    problem = "a call where the levels of a transform are switched off";
  }
  if (problem.empty() && fn.kind == TorchKind::kRecord && numpy().keeps_apart()) {
    problem = "a torch call after NumPy calls";
  }
  if (problem.empty() && fn.kind == TorchKind::kRecord && !owner_.refused.empty()) {
    const BreakInfo place = context_.here({});
    if (const std::string* reason = owner_.refused.reason(fn.name, place.file, place.line)) return *reason;
  }
  return problem.empty() ? problem : problem + " (" + fn.name + ")";
}

/// The same, of an operation on tensors, with gradients.
std::string TorchTracing::why_not_with_gradients(const Recording& call) {
  if (trace_->in_inference() && api_.grad_enabled()) {
    return "gradients are switched on in inference mode, where nothing is recorded";
  }
  const std::string& name = call.fn.name;
  if (call.tape_kwargs) {
    const char* const factor = factor_argument(name, call.tape_args.get());
    PyObject* const by = factor != nullptr ? PyDict_GetItemString(call.tape_kwargs.get(), factor) : nullptr;
    const int slot = by != nullptr ? slot_of(by) : -1;
    const bool tensor = slot >= 0 && !trace_->tape.slots()[static_cast<size_t>(slot)].number;
    if (tensor && histories().needs_grad(slot) != NeedsGrad::kNo) return name + " by a tensor with a history";
  }
  if (name != "detach" && name != "data" &&
      histories().takes_silent_view(call.tape_args.get(), call.tape_kwargs.get())) {
    return "with gradients on, " + name + " takes a view that was made without them";
  }
  return {};
}

/// What the host gives for meta tensors in place of the operands. Null with a Python error set.
Ref TorchTracing::infer_by_host(Recording& call) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  Ref device_argument;
  const auto device_named = [this](PyObject* text) {
    return Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(api_.device_type), text, nullptr));
  };
  const auto to_meta = [&](PyObject* o) -> Ref {
    if (const int slot = slot_of(o); slot >= 0) {
      if (!call.values.empty()) return probe_operand(api_, t.symbols, t.tape, slot, call.values);
      return t.tape.slots()[static_cast<size_t>(slot)].meta;
    }
    if (is_size_ref(o)) return size_ref_value(o, call.values.empty() ? t.symbols.hints() : call.values);
    if (Py_TYPE(o) == api_.device_type) {
      device_argument = Ref::borrow(o);
      return api_.meta_device;
    }
    return Ref::borrow(o);
  };
  Ref args = map_structure(call.tape_args.get(), to_meta);
  Ref kwargs = call.tape_kwargs ? map_structure(call.tape_kwargs.get(), to_meta) : Ref();
  // Devices given as text, and factories that take the default device.
  PyObject* given = kwargs ? PyDict_GetItem(kwargs.get(), api_.device_key.get()) : nullptr;
  const bool text_device = given != nullptr && PyUnicode_Check(given) != 0;
  if (text_device || (call.fn.factory && call.tensors == 0 && (given == nullptr || given == Py_None))) {
    if (text_device) device_argument = device_named(given);
    if (!kwargs) kwargs = Ref::steal(PyDict_New());
    PyDict_SetItem(kwargs.get(), api_.device_key.get(), api_.meta_device.get());
  }
  if (call.fn.name == "to" && PyTuple_GET_SIZE(args.get()) > 1 && PyUnicode_Check(PyTuple_GET_ITEM(args.get(), 1))) {
    device_argument = device_named(PyTuple_GET_ITEM(args.get(), 1));
    Ref changed = Ref::steal(PySequence_List(args.get()));
    PyList_SetItem(changed.get(), 1, Py_NewRef(api_.meta_device.get()));
    args = Ref::steal(PyList_AsTuple(changed.get()));
  }
  forget_error();
  const InferenceMode mode(api_);  // views keep no reference to their base: so placeholders can be swapped
  if (call.fn.kind == TorchKind::kToCpu) {
    call.device = api_.cpu_device;
    return copy_elsewhere(api_, PyTuple_GET_ITEM(args.get(), 0));
  }
  PyObject* const second = PyTuple_GET_SIZE(args.get()) > 1 ? PyTuple_GET_ITEM(call.tape_args.get(), 1) : nullptr;
  if (const int other = second != nullptr ? slot_of(second) : -1; other >= 0 && takes_device_of_other(call.fn.name)) {
    call.device = t.tape.slots()[static_cast<size_t>(other)].device;
  }
  const bool told_wrong = is_told_wrong(call.fn.name), unsure = told_wrong || transforms().open() != 0;
  Ref result = told_wrong ? Ref() : call_meta(call.func, args.get(), kwargs.get());
  if (!result && unsure && may_try(call)) result = try_out(call.func, args.get(), kwargs.get());
  leave_out_unasked(call.fn.name, args.get(), kwargs.get(), result);
  if (device_argument) call.device = device_argument;
  if (!call.device) call.device = api_.cpu_device;
  return result;
}

/// How the results of a call with symbols among its sizes lie; empty: `result`, the host's answer for this call, holds for it alone.
std::vector<ProbedLayout> TorchTracing::layouts_by_host(Recording& call, PyObject* result) {
  Trace& t = *trace_;
  // A call in place gives its operand, which its meta kernel may change.
  const bool in_place = call.fn.name.ends_with('_') ||
                        (call.tape_kwargs && PyDict_GetItemString(call.tape_kwargs.get(), "out") != nullptr);
  if (t.symbols.empty() || t.tape.has_transforms() || in_place) return {};
  const Bypass bypass(bypass_);
  std::vector<Expr> dims = operand_dims(t.tape, call.tape_args.get(), call.tape_kwargs.get());
  const auto ask = [&](std::span<const int64_t> values) {
    call.values = values;
    Ref other = call.foreign ? infer_foreign(call, false) : infer_by_host(call);
    call.values = {};
    return other;
  };
  return probed_layouts(SizeProbes(t.symbols, std::move(dims)), t.tape, result, ask);
}

/// Sizes, strides and the like; not_handled(): the host says them.
PyObject* TorchTracing::answer_metadata(const Recording& call) {
  Trace& t = *trace_;
  PyObject* const args = call.tape_args.get();
  if (call.fn.of_layout) for_each_slot(args, [&t](int slot) { t.tape.set_layout_read(slot); });
  if (t.symbols.empty() || !call.fn.of_sizes) return not_handled();
  const int slot = PyTuple_GET_SIZE(args) > 0 ? slot_of(PyTuple_GET_ITEM(args, 0)) : -1;
  return numbers().symbolic_metadata(call.fn, slot, args, call.tape_kwargs.get());
}

/// Whether an earlier trace has found so.
bool TorchTracing::gives_copy_here(const std::string& name) const {
  if (owner_.learned.copies.empty() || !known_torch(name).is(kMayCopy)) return false;
  const BreakInfo place = context_.here({});
  return owner_.learned.copies.reason(name, place.file, place.line) != nullptr;
}

/// The copy that such a call gives.
PyObject* TorchTracing::record_copy(PyObject* args, PyObject* kwargs) {
  static PyObject* const key = PyUnicode_InternFromString("memory_format");
  const Ref clone = attr(attr(api_.torch.get(), "Tensor").get(), "clone");
  const Ref format = attr(api_.torch.get(), "contiguous_format");
  const Ref own = Ref::steal(kwargs != nullptr ? PyDict_Copy(kwargs) : PyDict_New());
  PyObject* const given = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : format.get();
  if (PyDict_Contains(own.get(), key) == 0) PyDict_SetItem(own.get(), key, given);
  const Ref self = Ref::steal(PyTuple_GetSlice(args, 0, 1));
  return record(api_.classify(clone.get()), clone.get(), self.get(), own.get());
}

/// `tensor.new(size)` as `tensor.new_empty(size)`: on the tape a size with symbols is a tuple, which `new` takes for numbers.
PyObject* TorchTracing::record_new_of_size(PyObject* args, PyObject* kwargs) {
  const Ref function = attr(attr(api_.torch.get(), "Tensor").get(), "new_empty");
  return record(api_.classify(function.get()), function.get(), args, kwargs);
}

void TorchTracing::operands_to_tape(Recording& call) {
  const Bypass bypass(bypass_);
  const auto each = [&](PyObject* o) { return to_tape(call, o); };
  call.tensors = 0;
  call.tape_args = map_structure(call.args, each);
  call.tape_kwargs = Ref();
  if (call.kwargs != nullptr && PyDict_GET_SIZE(call.kwargs) > 0) call.tape_kwargs = map_structure(call.kwargs, each);
}

/// Where the registry knows the call for any numbers, these stay what they are. False: they are plain ones on the tape now, guarded
/// by value.
bool TorchTracing::record_varying(Recording& call, Ref& result) {
  const bool possible =
      why_unrecorded(call).empty() && !gives_copy_here(call.fn.name) && why_not_with_gradients(call).empty();
  if (possible &&
      record_inferred(call.func, call.fn, call.tape_args, call.tape_kwargs, call.device, result) == Inferred::kDone) {
    return true;
  }
  forget_error();
  call.by_value = true;
  call.device = Ref();
  call.problem.clear();
  operands_to_tape(call);
  return false;
}

PyObject* TorchTracing::record(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  Recording call{.fn = fn, .func = func, .args = args, .kwargs = kwargs};
  call.by_value = fn.kind != TorchKind::kRecord || !transforms().open_levels().empty();
  if (fn.name == "new" && PyTuple_GET_SIZE(args) == 2 && is_symbolic_size(PyTuple_GET_ITEM(args, 1))) {
    return record_new_of_size(args, kwargs);
  }
  const auto give_up = [&call, this](const std::string& reason) -> PyObject* {
    forget_error();
    return graph_break(reason) ? PyObject_Call(call.func, call.args, call.kwargs) : nullptr;
  };
  if (fn.kind == TorchKind::kRecord) {
    switch (cast_operands(fn, func, args, kwargs, call.cast_args, call.cast_kwargs)) {
      case Cast::kSame: break;
      case Cast::kCast:
        call.args = call.cast_args.get();
        call.kwargs = call.cast_kwargs.get();
        break;
      case Cast::kUnknown:
        if (PyObject* made = record_under_autocast(fn, func, args, kwargs);
            made != nullptr || PyErr_Occurred() != nullptr)
          return made;
        return give_up("under autocast the host decides what " + fn.name + " casts");
      case Cast::kFailed: return nullptr;
    }
    if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);
  }
  operands_to_tape(call);
  if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);  // an operand was asked for its value
  if (fn.kind == TorchKind::kMetadata && is_of_a_found_tensor(call)) {
    Ref answer = Ref::steal(PyObject_Call(func, call.args, call.kwargs));
    if (answer && PyTuple_Check(answer.get())) mark_born(answer.get());
    return answer.release();
  }
  if (call.foreign || (fn.kind == TorchKind::kRecord && gives_foreign(fn))) return record_foreign(call);
  if (call.varying) {
    if (Ref result; record_varying(call, result)) return result.release();
    if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);
  }
  if (const std::string problem = why_unrecorded(call); !problem.empty()) return give_up(problem);
  if (gives_copy_here(fn.name)) return record_copy(args, kwargs);
  if (fn.kind == TorchKind::kToCpu && call.tensors == 1 && call.device) {
    const Ref kind = attr(call.device.get(), "type");
    if (text_of(kind.get()) == "cpu") return Py_NewRef(PyTuple_GET_ITEM(call.args, 0));
    if (call.tape_kwargs || PyTuple_GET_SIZE(call.args) != 1) return give_up("copy to the CPU");
  }
  if (fn.kind == TorchKind::kMetadata) {
    if (call.tensors == 0) return PyObject_Call(func, call.args, call.kwargs);
    if (PyObject* answer = answer_metadata(call); answer != not_handled()) return answer;
  }
  Ref result;
  std::vector<ProbedLayout> layouts;
  if (fn.kind == TorchKind::kRecord) {
    if (const std::string problem = why_not_with_gradients(call); !problem.empty()) return give_up(problem);
    switch (record_inferred(func, fn, call.tape_args, call.tape_kwargs, call.device, result)) {
      case Inferred::kDone: return result.release();
      case Inferred::kWrong:
        if (ends().retry_untold()) return nullptr;
        return give_up(fn.name + " is an error for these arguments");
      case Inferred::kUnknown: break;
    }
    const auto takes_empty = [&] {
      const Bypass bypass(bypass_);
      return takes_empty_result(call.tape_kwargs.get(), t.tape);
    };
    if (fn.dispatcher && call.tape_kwargs && takes_empty()) {
      return give_up("whether " + fn.name + " gives an empty result its size is the host's to say");
    }
    if (Ref decided = values().decided_call(fn, func, call.args, call.kwargs); decided || PyErr_Occurred() != nullptr) {
      return decided.release();
    }
    if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);
  }
  result = infer_by_host(call);
  const std::string text = result ? std::string() : take_error_text();
  if (fn.kind == TorchKind::kRecord) {
    if (!result) {
      if (Ref decided = values().with_numbers(func, call.args, call.kwargs); decided || PyErr_Occurred() != nullptr)
        return decided.release();
      if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);
      if (Ref unsized = values().record_unsized(fn, func, call.args, call.kwargs); unsized) return unsized.release();
      forget_error();
    }
    if (result) layouts = layouts_by_host(call, result.get());
    if (layouts.empty() && fn.name.rfind("_fused_", 0) != 0) {
      numbers().specialize_operands(call.tape_args.get(), call.tape_kwargs.get());
    }
    if (!tracing()) return PyObject_Call(func, call.args, call.kwargs);
  }
  if (!result) return give_up("no meta form of " + fn.name + " for these arguments: " + text.substr(0, 120));
  if (!record_result(func, fn, std::move(call.tape_args), std::move(call.tape_kwargs), std::move(call.device),
                     result)) {
    return give_up(fn.name + " gives no tensor");
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    const int slot = t.tape.nodes().back().outputs[i];
    if (slot >= 0) t.tape.set_layout(slot, std::move(layouts[i].sizes), std::move(layouts[i].strides));
  }
  return result.release();
}

/// What stands for the tensor gets the shape that it has behind the node.
bool TorchTracing::reshape(const InferredTensor& as, TapeNode& node) {
  const auto hints = [](const std::vector<Expr>& values) {
    std::vector<int64_t> result;
    for (const Expr e : values) result.push_back(e.context().evaluate_hint(e).value());
    return result;
  };
  SlotLayout layout;
  layout.sizes = int_tuple(hints(as.sizes));
  layout.strides = int_tuple(hints(as.strides));
  PyObject* const meta = trace_->tape.slots()[static_cast<size_t>(as.slot)].meta.get();
  const InferenceMode mode(api_);
  const Ref done = Ref::steal(PyObject_CallMethod(meta, "as_strided_", "OO", layout.sizes.get(), layout.strides.get()));
  if (!done) {
    forget_error();
    return false;
  }
  const auto varies = [](Expr e) { return !e.is_const(); };
  if (std::any_of(as.sizes.begin(), as.sizes.end(), varies) ||
      std::any_of(as.strides.begin(), as.strides.end(), varies)) {
    layout.symbolic_sizes = as.sizes;
    layout.symbolic_strides = as.strides;
  }
  node.reshaped.emplace_back(as.slot, std::make_shared<SlotLayout>(std::move(layout)));
  return true;
}

bool TorchTracing::record_result(PyObject* func, const TorchFunction& fn, Ref args, Ref kwargs, Ref device,
                                 Ref& result) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  if (fn.kind == TorchKind::kMetadata) {
    // A device among what it tells is the operand's.
    if (PyTuple_CheckExact(result.get())) {
      result = map_structure(result.get(), [&](PyObject* o) {
        return Py_TYPE(o) == api_.device_type && on_meta(o) ? device : Ref::borrow(o);
      });
    }
    if (PyTuple_Check(result.get())) mark_born(result.get());  // sizes and strides: each call has its own
    return !api_.is_tensor(result.get());
  }
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
    const int known = t.tape.find_meta(o);
    if (known >= 0 && stays_on(t.tape.slots()[static_cast<size_t>(known)].device.get(), device.get())) {
      node.outputs.push_back(known);
      if (!t.tape.fits_layout(known)) {
        node.reshaped.emplace_back(known, std::make_shared<SlotLayout>(t.tape.present_layout(known)));
      }
      return t.tape.slots()[static_cast<size_t>(known)].object;
    }
    fresh = true;
    Ref placeholder = known >= 0 ? copy_elsewhere(api_, o) : Ref::borrow(o);
    const Ref is_meta = placeholder ? attr(placeholder.get(), "is_meta") : Ref();
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
    // out= is what such a call gives, also where the host's kernel for tensors without data makes another one.
    PyObject* const out = kwargs ? PyDict_GetItemString(kwargs.get(), "out") : nullptr;
    const int into = out != nullptr ? slot_of(out) : -1;
    result = take(into >= 0 ? t.tape.slots()[static_cast<size_t>(into)].meta.get() : result.get());
  }
  forget_error();
  if (bad || !result) return false;
  node.func = Ref::borrow(func);
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  node.name = fn.name;
  for (const auto& [slot, layout] : node.reshaped) t.inference.forget(slot);
  finish_node(node, fresh, false);
  return true;
}

}  // namespace tatara::capture
