// The node of a torch call on the tape, and results of the types that the registry infers.
#include "capture/host/inference_mode.h"
#include "capture/host/known_calls.h"
#include "capture/tape/node_operators.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

std::vector<int64_t> hints_of(const std::vector<Expr>& values) {
  std::vector<int64_t> result;
  for (const Expr e : values) result.push_back(e.context().evaluate_hint(e).value());
  return result;
}

/// Whether the result is a sequence also when it holds one tensor. Some give one result for each tensor of a list.
bool gives_sequence(const std::string& name, PyObject* args) {
  const KnownTorch known = known_torch(name);
  PyObject* const first = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None;
  return known.is(kGivesTuple) || (known.is(kGivesOneForEach) && (PyList_Check(first) || PyTuple_Check(first)));
}

bool fits_int64(PyObject* number) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0;
}

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
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    if (PyObject* arg = PyTuple_GET_ITEM(node.args.get(), i); is_random_generator(arg)) return arg;
  }
  PyObject* named = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "generator") : nullptr;
  return named != nullptr && is_random_generator(named) ? named : nullptr;
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
  const auto find_generator = [&](int slot) {
    if (t.tape.slots()[static_cast<size_t>(slot)].generator) node.generator_slot = slot;
  };
  for_each_slot(node.args.get(), find_generator);
  for_each_slot(node.kwargs.get(), find_generator);
  forget_error();
  node.location = user_location();
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

namespace {

/// The device that was inferred, where that is a GPU and `operands` are elsewhere: the first of them does not tell it (a copy to a
/// GPU, a number of the CPU beside a tensor of a GPU).
Ref device_on_gpu(TorchApi& api, const Device& inferred, const Ref& operands) {
  if (inferred.kind != DeviceKind::kCuda || text_of(attr(operands.get(), "type").get()) == "cuda") return operands;
  return Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(api.device_type), "s", inferred.str().c_str()));
}

}  // namespace

void TorchTracing::begin() {
  // Functions of tensors' classes may be replaced. A class of its own: any name but that of plain data counts.
  static PyObject* const any = PyUnicode_InternFromString("__torch_function__");
  trace_->object_guards.type(reinterpret_cast<PyObject*>(api_.parameter_type), any);
  take_conjugates();
}

/// Lazily conjugated views among the arguments: what lies beneath is the input, and the view is the first thing that is made of it.
void TorchTracing::take_conjugates() {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  for (size_t i = 0; i < t.objects.size(); ++i) {
    PyObject* const view = t.objects[i];
    const Ref plain = t.tape.find(view) < 0 ? api_.beneath(view) : Ref();
    if (!plain) continue;
    const Ref device = attr(view, "device");
    Ref meta = api_.meta_like(plain.get());
    Ref twin;
    {
      const InferenceMode mode(api_);
      if (meta) twin = Ref::steal(PyObject_CallOneArg(api_.functions.conj.get(), meta.get()));
    }
    forget_error();
    if (!twin) continue;
    const int index = static_cast<int>(i);
    const int base = t.tape.add_input(plain.get(), std::move(meta), device, index, true);
    const int slot = t.tape.add_placeholder(view, device, std::move(twin));
    if (const SymbolicLayout* layout = t.guard.layout(index); layout != nullptr) {
      for (const int each : {base, slot}) t.tape.set_layout(each, layout->sizes, layout->strides);
    }
    TapeNode node;
    node.func = api_.functions.conj;
    node.name = "conj";
    node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(base).get()));
    node.outputs = {slot};
    transforms().note_modes(node);
    node.location = user_location();
    t.tape.add_node(std::move(node));
  }
}

bool TorchTracing::of_generator(const std::string& name) {
  const OpDef* const op = OpRegistry::global().find(name);
  return op != nullptr && op->of_generator();
}

PyObject* TorchTracing::generator_state(const TracedCall& call) {
  if (!api_.present() || !PyFunction_Check(call.callable) || call.keywords() > 0) return not_handled();
  const Ref name = attr(call.callable, "__name__");
  const TorchFunction fn{TorchKind::kRecord, text_of(name.get())};
  if (!of_generator(fn.name)) return not_handled();
  const std::vector<ArgSpec>& wanted = OpRegistry::global().find(fn.name)->schema.args;
  if (static_cast<size_t>(call.nargs()) != wanted.size()) return not_handled();
  const bool seeds = !wanted.empty() && wanted[0].type == ArgType::kInt;
  for (PyObject* const given : call.operands()) {
    const bool fits = seeds ? is_symbolic_int(given) || (PyLong_CheckExact(given) && fits_int64(given))
                            : api_.is_torch_tensor(given) && api_.is_plain_tensor(given);
    if (!fits) return not_handled();
  }
  const auto [positional, named] = call.packed();
  PyObject* const result = record(fn, call.callable, positional.get(), nullptr);
  if (!seeds || result != Py_None) return result;
  Py_DECREF(result);
  const Bypass bypass(bypass_);
  return attr(api_.torch.get(), "default_generator").release();
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
  const bool reshapes = !view_in_place(node).empty();
  if (reshapes && !transforms().open_levels().empty()) return Inferred::kUnknown;
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
  for (const NumberWithin& each : t.inference.bounds()) {
    if (!numbers().keep_within(each.slot, each.within)) return Inferred::kUnknown;
  }
  PyObject* given = kwargs ? PyDict_GetItem(kwargs.get(), api_.device_key.get()) : nullptr;
  Ref where = device ? device : api_.cpu_device;
  if (given != nullptr && PyUnicode_Check(given)) {
    where = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(api_.device_type), given));
  }
  bool fresh = false;
  std::vector<Ref> tensors;
  const bool nothing = of_generator(fn.name) && PyTuple_GET_SIZE(args.get()) > 0;  // a state that is set
  for (const InferredTensor& each : inferred) {
    if (nothing) {
      node.outputs.push_back(-1);
      continue;
    }
    if (reshapes && (each.slot < 0 || !reshape(each, node))) return Inferred::kUnknown;
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
    const int slot = t.tape.add_placeholder(placeholder.get(), device_on_gpu(api_, each.device, where));
    t.tape.set_layout(slot, each.sizes, each.strides);
    t.inference.bind(slot, each.ref);
    node.outputs.push_back(slot);
    tensors.push_back(std::move(placeholder));
  }
  const bool sequence = gives_sequence(fn.name, args.get());
  const bool into = kwargs && PyDict_GetItemString(kwargs.get(), "out") != nullptr;
  if (nothing || fn.name == "__setitem__" || (into && sequence)) {  // a list of tensors is filled, and not given back
    result = Ref::borrow(Py_None);
  } else if (tensors.size() == 1 && !sequence) {
    result = tensors[0];
  } else {
    result = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
    for (size_t i = 0; i < tensors.size(); ++i) {
      PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), Py_NewRef(tensors[i].get()));
    }
    // Python's functions have names for their results; the dispatcher's operators give tuples, and lists where they give any
    // number of tensors.
    const Ref types = attr(api_.torch.get(), "return_types");
    const std::string type_name = into ? fn.name + "_out" : fn.name;
    const Ref named = fn.dispatcher ? Ref() : attr_or_null(types.get(), type_name.c_str());
    if (named) result = Ref::steal(PyObject_CallOneArg(named.get(), result.get()));
    if (fn.dispatcher && sequence) result = Ref::steal(PySequence_List(result.get()));
    node.sequence = true;
  }
  finish_node(node, fresh, true);
  return result ? Inferred::kDone : Inferred::kUnknown;
}

}  // namespace tatara::capture
