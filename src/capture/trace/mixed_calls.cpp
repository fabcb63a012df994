// Calls between arrays and tensors. NumPy's calls run for real, so torch's calls that were recorded before run as well, and the
// trace goes on: the program's tensors are real then, and what stands for them while results are inferred are tensors of the trace.
#include <algorithm>
#include <string_view>

#include "capture/host/inference_mode.h"
#include "capture/host/known_calls.h"
#include "capture/host/numpy_alone.h"
#include "capture/host/numpy_api.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {

namespace {

bool is_cython_function(PyObject* o) {
  return std::string_view(Py_TYPE(o)->tp_name).ends_with("cython_function_or_method");
}

/// One of np.random's classes, torch.Generator, or random.Random: what draws random numbers, or gives the bits for that.
bool is_random_class(PyObject* o) {
  if (!PyType_Check(o)) return false;
  const std::string_view name = reinterpret_cast<PyTypeObject*>(o)->tp_name;
  return name.starts_with("numpy.random.") || name == "torch._C.Generator" || is_python_random_class(o);
}

bool is_torch_generator_class(PyObject* type) {
  return std::string_view(reinterpret_cast<PyTypeObject*>(type)->tp_name) == "torch._C.Generator";
}

bool is_random_object(PyObject* o) { return is_random_class(reinterpret_cast<PyObject*>(Py_TYPE(o))); }

}  // namespace

bool TraceEnds::run_so_far() {
  Trace& t = *trace_;
  const auto start = std::chrono::steady_clock::now();
  const Bypass bypass(bypass_);
  const AutocastOff off(api_);
  const InferenceMode mode(api_, t.start.inference_mode.left());
  const Transaction::Scope scope(t.transaction);
  note_first_node();
  const bool ok = t.tape.materialise(
      api_, [this, start] { return may_stop(start); }, held_by_trace(), [this] { return can_take_back(); }, true);
  if (ok) values().take_run();
  t.run_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  forget_error();
  return ok;
}

/// Whether arrays and tensors may meet on the tape: nothing on it waits for an end, and its calls may run as they stand.
bool NumpyTracing::may_mix() const {
  const Trace& t = *trace_;
  if (api_.numpy == nullptr || numpy_alone() || owner_.backend || context_.dry_run || context_.ahead != nullptr ||
      t.tape.has_transforms() || modes().has_programs() || !transforms().open_levels().empty() ||
      gradients().retains()) {
    return false;
  }
  return std::all_of(t.tape.nodes().begin(), t.tape.nodes().end(), [](const TapeNode& node) {
    return is_operator_call(node) || is_numpy_operation(node) || number_operation(node) != nullptr;
  });
}

bool NumpyTracing::keeps_apart() const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  return trace_->tape.seen().numpy && std::any_of(nodes.begin(), nodes.end(), is_of_numpy) && !may_mix();
}

/// Whether the trace is of more than NumPy's calls.
bool NumpyTracing::is_mixed() const {
  return !trace_->tape.nodes().empty() && !is_numpy_tape(trace_->tape) && may_mix();
}

/// Lets torch's calls that were recorded run, so that NumPy may read what they give. What is against it; empty: nothing.
std::string NumpyTracing::catch_up() {
  if (!waits(trace_->tape)) return {};
  if (!may_mix()) return "a NumPy call after torch calls";
  return ends().run_so_far() ? "" : "a call before it fails";
}

/// An array that calls on constants have made becomes a value of the tape: later calls get copies of what it is now.
int NumpyTracing::constant_slot(PyObject* array, TapeSlot slot) {
  Trace& t = *trace_;
  if (!api_.numpy->fresh_memory(array)) return -1;
  const Bypass bypass(bypass_);
  const Ref kept = Ref::steal(PyObject_CallMethod(array, "copy", "s", "K"));
  TapeNode node;
  node.func = kept ? attr_or_null(kept.get(), "copy") : Ref();
  node.args = Ref::steal(Py_BuildValue("(s)", "K"));
  forget_error();
  if (!node.func || !node.args) return -1;
  t.constants.drop_array(array);
  slot.input = false;
  slot.guard_index = -1;
  slot.constant = true;
  const int made = t.tape.add_value(std::move(slot));
  node.outputs = {made};
  node.name = kCopyOfConstants;
  node.kind = NumpyOperation{{}, true, false};
  node.location = user_location();
  t.tape.add_node(std::move(node));
  return made;
}

/// The slot of a tensor that is there; -1: it cannot be on the tape.
int NumpyTracing::tensor_slot(PyObject* tensor, bool result) {
  Trace& t = *trace_;
  if (const int known = t.tape.find(tensor); known >= 0) return known;
  TensorMeta meta;
  if (!api_.is_plain_tensor(tensor) || !api_.read_meta(tensor, meta)) {
    forget_error();
    return -1;
  }
  if (!result) return slot_for(tensor);
  Ref stands = api_.meta_like(tensor), device = attr_or_null(tensor, "device");
  if (!stands || !device) {
    forget_error();
    return -1;
  }
  return t.tape.add_placeholder(tensor, std::move(device), std::move(stands));
}

Ref NumpyTracing::cross_to_tape(PyObject* value, std::string& problem) {
  return map_structure(value, [&](PyObject* o) -> Ref {
    int slot = -2;
    if (is_random_object(o)) {
      slot = is_random_generator(o) ? generator_slot(*trace_, o) : trace_->tape.find(o);
      if (slot < 0) slot = -2;
    } else if (numpy_value(o)) {
      slot = api_.is_plain_numpy(o) ? numpy_slot(o) : -1;
    } else if (api_.is_torch_tensor(o)) {
      const Bypass bypass(bypass_);
      slot = tensor_slot(o, false);
    } else if (numpy_inside(o)) {
      slot = -1;
    }
    if (slot >= 0) return make_slot_ref(slot);
    if (slot == -1 && problem.empty())
      problem = "an array or tensor of unknown origin, or of a kind that graphs have not";
    return Ref::borrow(o);
  });
}

void NumpyTracing::cross_take(PyObject* result, TapeNode& node, std::string& problem) {
  if (PyTuple_Check(result) || PyList_CheckExact(result)) {
    node.sequence = true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); ++i) {
      cross_take(PySequence_Fast_GET_ITEM(result, i), node, problem);
    }
    return;
  }
  if (is_random_object(result)) {
    TapeSlot slot;
    slot.object = slot.meta = Ref::borrow(result);
    slot.generator = is_random_generator(result);
    node.outputs.push_back(trace_->tape.add_value(std::move(slot)));
    return;
  }
  if (!api_.is_torch_tensor(result)) return numpy_take(result, node, false, problem);
  const Bypass bypass(bypass_);
  if (trace_->tape.find(result) < 0 && api_.requires_grad(result)) {
    problem = "the result has a history";
    return;
  }
  const int slot = tensor_slot(result, true);
  if (slot < 0) problem = "the result is a tensor of a kind that graphs have not";
  node.outputs.push_back(slot);
}

/// A call that reads or sets the state of a torch.Generator. not_handled(): it is none.
PyObject* NumpyTracing::torch_generator_call(PyObject* callable, PyObject* args, PyObject* kwargs) {
  const bool bound = PyCFunction_Check(callable) != 0;
  const bool method = Py_TYPE(callable) == &PyMethodDescr_Type && PyTuple_GET_SIZE(args) > 0;
  PyObject* const source = bound ? PyCFunction_GET_SELF(callable) : method ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (source == nullptr || !is_random_generator(source) || !may_mix()) return not_handled();
  const std::string name = name_of(callable);
  Ref all = Ref::borrow(args), func = Ref::borrow(callable);
  if (bound) {
    const Bypass bypass(bypass_);
    func = attr(reinterpret_cast<PyObject*>(Py_TYPE(source)), name.c_str());
    const Ref head = Ref::steal(PyTuple_Pack(1, source));
    all = Ref::steal(PySequence_Concat(head.get(), args));
  }
  return cross({func, all, Ref::borrow(kwargs), kRandomCalls + name, false});
}

/// A draw of a number by Python's random.Random, or a call that seeds one. Methods that are made of such, and the functions of the
/// module `random`, are the program's code as any other. not_handled(): it is none.
PyObject* NumpyTracing::python_draw(const TracedCall& call) {
  PyObject* const callable = call.callable;
  PyObject* bound = PyCFunction_Check(callable) != 0 ? PyCFunction_GET_SELF(callable) : nullptr;
  if (PyMethod_Check(callable)) bound = PyMethod_GET_SELF(callable);
  PyObject* const source = bound != nullptr ? bound : call.nargs() > 0 ? call.args[0] : nullptr;
  if (source == nullptr || !is_python_random_class(reinterpret_cast<PyObject*>(Py_TYPE(source))) || !may_mix())
    return not_handled();
  const std::string name = name_of(callable);
  auto [all, named] = call.packed();
  Ref func = Ref::borrow(PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable);
  if (bound != nullptr) {
    const Bypass bypass(bypass_);
    if (!PyMethod_Check(callable)) func = attr(reinterpret_cast<PyObject*>(Py_TYPE(source)), name.c_str());
    const Ref head = Ref::steal(PyTuple_Pack(1, source));
    all = Ref::steal(PySequence_Concat(head.get(), all.get()));
  }
  return cross({func, all, call.keywords() > 0 ? named : Ref(), kRandomCalls + name, false});
}

/// A call that draws random numbers by NumPy, or makes or seeds what does. not_handled(): it is none.
PyObject* NumpyTracing::random_call(PyObject* callable, PyObject* args, PyObject* kwargs) {
  Ref func, all = Ref::borrow(args);
  if (PyMethod_Check(callable) && is_numpy_generator(PyMethod_GET_SELF(callable))) {
    func = Ref::borrow(PyMethod_GET_FUNCTION(callable));
    const Ref head = Ref::steal(PyTuple_Pack(1, PyMethod_GET_SELF(callable)));
    all = Ref::steal(PySequence_Concat(head.get(), args));
  } else if (is_cython_function(callable)) {
    func = Ref::borrow(callable);
  }
  if (is_random_class(callable) && may_mix()) {
    return cross({Ref::borrow(callable), all, Ref::borrow(kwargs), name_of(callable), false});
  }
  // As an object of the trace it would go on from call to call.
  if (is_random_class(callable) && is_torch_generator_class(callable)) {
    return graph_break("a torch.Generator is made where a graph cannot make one") ? not_handled() : nullptr;
  }
  if (!func || !is_cython_function(func.get()) || !may_mix()) return not_handled();
  const std::string name = name_of(func.get());
  const Py_ssize_t nargs = PyTuple_GET_SIZE(all.get());
  if (nargs == 0 || !is_numpy_generator(PyTuple_GET_ITEM(all.get(), 0))) {
    const Ref module = attr_or_null(api_.numpy->numpy.get(), "random");
    if (attr_or_null(module.get(), name.c_str()).get() != callable) return not_handled();
    if (name == "default_rng") return cross({func, all, Ref::borrow(kwargs), name, false});
    if (name != "seed") return not_handled();
    const Ref source = attr_or_null(attr_or_null(module.get(), "mtrand").get(), "_rand");
    const Ref method = source ? attr_or_null(source.get(), "seed") : Ref();
    return method && PyMethod_Check(method.get()) ? random_call(method.get(), args, kwargs) : not_handled();
  }
  const bool shuffles = name == "shuffle";
  if (shuffles && (nargs < 2 || !api_.numpy->is_array(PyTuple_GET_ITEM(all.get(), 1)))) return not_handled();
  return cross({func, all, Ref::borrow(kwargs), kRandomCalls + name, shuffles});
}

/// Whether a generator of random numbers is the same in each call, or one of the tape.
bool NumpyTracing::knows_source(PyObject* source) const {
  const Trace& t = *trace_;
  if (t.tape.find(source) >= 0 || t.index_of(source) >= 0 || t.object_guards.seen_objects().contains(source))
    return true;
  if (is_random_generator(source)) return attr_or_null(api_.torch.get(), "default_generator").get() == source;
  const bool python = is_python_random_class(reinterpret_cast<PyObject*>(Py_TYPE(source)));
  const Ref module = Ref::steal(PyImport_ImportModule(python ? "random" : "numpy.random.mtrand"));
  return attr_or_null(module.get(), python ? "_inst" : "_rand").get() == source;
}

/// Whether a tensor is among its operands or results.
bool NumpyTracing::has_tensor(const TapeNode& node) const {
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  bool found = false;
  const auto look = [&](int slot) { found = found || (slot >= 0 && slots[static_cast<size_t>(slot)].device); };
  for_each_slot(node.args.get(), look);
  if (node.kwargs) for_each_slot(node.kwargs.get(), look);
  for (const int slot : node.outputs) look(slot);
  return found;
}

/// Whether a tensor among the operands has a size that varies: arrays have one size in a graph. What comes before is compiled for all
/// sizes where the graph breaks there.
bool NumpyTracing::of_varying_size(const TapeNode& node) const {
  const Tape& tape = trace_->tape;
  bool found = false;
  const auto look = [&](int slot) {
    const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
    const auto varies = [](const Expr& e) { return !e.is_const(); };
    found = found || (!info.number && std::any_of(info.symbolic_sizes.begin(), info.symbolic_sizes.end(), varies));
  };
  for_each_slot(node.args.get(), look);
  if (node.kwargs) for_each_slot(node.kwargs.get(), look);
  return found;
}

/// Whether the program is one of tensors: its tape has calls of torch's, or is about to.
bool NumpyTracing::among_tensors() const {
  const Trace& t = *trace_;
  return (!t.tape.nodes().empty() && !is_numpy_tape(t.tape)) ||
         std::any_of(t.objects.begin(), t.objects.end(), [this](PyObject* o) { return api_.is_torch_tensor(o); });
}

/// A call with tensors among its operands or results, which runs as it stands in later calls as well.
PyObject* NumpyTracing::cross(NumpyCall call) {
  Trace& t = *trace_;
  const auto perform = [&call] { return PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get()); };
  numbers().settle_reachable(call.args.get());
  numbers().settle_reachable(call.kwargs.get());
  if (!tracing()) return perform();
  reads().watch_lists({call.args.get(), call.kwargs.get()});
  std::string problem = may_mix() ? "" : "a call between arrays and tensors";
  TapeNode node;
  if (problem.empty()) {
    node.args = cross_to_tape(call.args.get(), problem);
    if (call.kwargs) node.kwargs = cross_to_tape(call.kwargs.get(), problem);
    if (problem.empty() && of_varying_size(node)) problem = "an array whose size varies";
  }
  if (problem.empty()) problem = catch_up();
  const bool draws = call.name.starts_with(kRandomCalls);
  PyObject* const source = draws ? PyTuple_GET_ITEM(call.args.get(), 0) : nullptr;
  if (draws && problem.empty() && !knows_source(source)) problem = "a generator of unknown origin";
  if (!problem.empty()) {
    forget_error();
    return graph_break(problem + " (" + call.name + ")") ? perform() : nullptr;
  }
  if (draws) t.transaction.keep_numpy_generator(source);
  if (call.mutates) t.transaction.lose("NumPy has written to an array");
  Ref result;
  {
    const Bypass bypass(bypass_);
    result = Ref::steal(perform());
  }
  if (!result) {
    const ErrorAside aside;
    if (!graph_break(call.name + " raised an exception")) postpone_error();
    return nullptr;
  }
  if (call.mutates) vary_written(node);
  const bool of_torch = draws && is_random_generator(source), among = of_torch || (draws && among_tensors());
  const std::optional<Expr> made = among ? values().made_number(node, result.get()) : std::nullopt;
  if (draws && PyFloat_CheckExact(result.get()) && api_.present()) {
    node.func = std::move(call.func);
    node.name = std::move(call.name);
    const Ref number = numbers().record_number(std::move(node), result.get());
    return number ? Py_NewRef(number.get()) : result.release();
  }
  // A torch.Generator gives itself.
  const bool nothing = (result.get() == Py_None && (call.mutates || call.name == std::string(kRandomCalls) + "seed")) ||
                       (draws && result.get() == source);
  if (!nothing && !made) cross_take(result.get(), node, problem);
  if (!problem.empty()) {
    t.mutated = t.mutated || call.mutates;
    return graph_break(call.name + ": " + problem) ? result.release() : nullptr;
  }
  node.func = std::move(call.func);
  node.name = std::move(call.name);
  node.mutates = call.mutates;
  const Ref errstate = api_.numpy->errstate();
  node.kind = NumpyOperation{errstate.get() != t.state.errstate.get() ? errstate : Ref(), true,
                             made || has_tensor(node) || of_torch};
  node.location = user_location();
  t.tape.add_node(std::move(node));
  return made ? t.symbols.make(*made).release() : result.release();
}

bool NumpyTracing::holds_tensor(PyObject* args, PyObject* kwargs) const {
  bool found = false;
  const auto look = [&](PyObject* o) {
    found = found || api_.is_torch_tensor(o);
    return Ref::borrow(o);
  };
  if (!api_.present()) return false;
  map_structure(args, look);
  if (kwargs != nullptr) map_structure(kwargs, look);
  return found;
}

PyObject* NumpyTracing::array_of_tensor(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  if ((fn.name != "numpy" && fn.name != "__array__") || !may_mix()) return not_handled();
  return cross({Ref::borrow(func), Ref::borrow(args), Ref::borrow(kwargs), fn.name, false});
}

/// A call of torch's that arrays or scalars are given to. not_handled(): the graph is to break there.
PyObject* NumpyTracing::torch_call(PyObject* callable, const KnownCall& known, const std::string& name, PyObject* args,
                                   PyObject* kwargs) {
  if (!api_.present() || !may_mix()) return not_handled();
  const bool maker =
      known_torch(name).is(kTakesArray) && attr_or_null(api_.torch.get(), name.c_str()).get() == callable;
  if (maker || callable == reinterpret_cast<PyObject*>(api_.tensor_type)) {
    return cross({Ref::borrow(callable), Ref::borrow(args), Ref::borrow(kwargs), maker ? name : "Tensor", false});
  }
  const Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  std::vector<PyObject*> operands(static_cast<size_t>(nargs));
  for (Py_ssize_t i = 0; i < nargs; ++i) operands[static_cast<size_t>(i)] = PyTuple_GET_ITEM(args, i);
  if (calls().plan_call(callable, known, operands.data(), nargs).kind != CallPlan::Kind::kTorch) return not_handled();
  const Ref numbers = with_numbers(args), named = kwargs != nullptr ? with_numbers(kwargs) : Ref();
  if (!numbers || (kwargs != nullptr && !named)) return not_handled();
  PyObject* const done = this->numbers().symbolic_call(callable, known, numbers.get(), named.get());
  return done != not_handled() ? done : PyObject_Call(callable, numbers.get(), named.get());
}

/// Whether torch takes the scalar for a number of Python's, which it does whatever its type is.
bool NumpyTracing::is_real_scalar(PyObject* o) const {
  if (!numpy_value(o) || !api_.numpy->is_scalar(o)) return false;
  DType dtype = DType::kBool;
  std::vector<int64_t> sizes, strides;
  return api_.numpy->describe(o, dtype, sizes, strides) && (dtype == DType::kFloat64 || dtype == DType::kFloat32);
}

/// The scalar, or the one element of an array, as a number of Python's. Null without an error: it is none that varies.
Ref NumpyTracing::number_of(PyObject* value) {
  DType dtype = DType::kBool;
  std::vector<int64_t> sizes, strides;
  if (!api_.is_plain_numpy(value) || !api_.numpy->describe(value, dtype, sizes, strides) ||
      (dtype != DType::kFloat64 && dtype != DType::kFloat32) ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size != 1; })) {
    return {};
  }
  if (!catch_up().empty()) return {};
  const int slot = numpy_slot(value);
  static PyObject* const item = attr(api_.numpy->numpy.get(), "generic").release();
  const bool scalar = api_.numpy->is_scalar(value);
  TapeNode node;
  node.func = attr_or_null(scalar ? item : api_.numpy->array_type(), "item");
  node.name = "number.item";
  const Bypass bypass(bypass_);
  const Ref number = slot >= 0 ? Ref::steal(PyObject_CallMethod(value, "item", nullptr)) : Ref();
  if (!number || !node.func || !PyFloat_CheckExact(number.get())) {
    forget_error();
    return {};
  }
  node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(slot).get()));
  return numbers().record_number(std::move(node), number.get());
}

/// The operands with numbers in place of scalars. Null without an error: an array is among them.
Ref NumpyTracing::with_numbers(PyObject* operands) {
  bool other = false;
  Ref all = map_structure(operands, [&](PyObject* o) -> Ref {
    if (!numpy_value(o)) {
      other = other || (!api_.is_torch_tensor(o) && numpy_inside(o));
      return Ref::borrow(o);
    }
    Ref number = !other && is_real_scalar(o) ? number_of(o) : Ref();
    other = other || !number;
    return other ? Ref::borrow(o) : number;
  });
  return other ? Ref() : all;
}

/// An operator on a tensor and a scalar. not_handled(): it is another one.
PyObject* NumpyTracing::tensor_operator(int op, const std::string& name, PyObject* left, PyObject* right) {
  if (!api_.present() || !api_.is_torch_tensor(left) || !is_real_scalar(right) ||
      !known_torch("__" + name + "__").is(kTakesNumber) || !may_mix()) {
    return not_handled();
  }
  const Ref number = number_of(right);
  return number ? numbers().symbolic_binary(op, left, number.get()) : not_handled();
}

/// The key of an index of a tensor with tensors in place of arrays. Null: it has others than places and masks; or, with a Python
/// error set, or where the trace has ended.
Ref NumpyTracing::tensor_key(PyObject* container, PyObject* key) {
  if (!api_.present() || !api_.is_torch_tensor(container) || !may_mix()) return {};
  static PyObject* const maker = attr(api_.torch.get(), "tensor").release();
  bool other = false;
  const auto is_index = [this](PyObject* o) {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> sizes, strides;
    return api_.numpy->is_array(o) && api_.numpy->describe(o, dtype, sizes, strides) && !sizes.empty() &&
           (dtype == DType::kBool || dtype == DType::kInt64);
  };
  const auto look = [&](PyObject* o) {
    other = other || (numpy_value(o) ? !is_index(o) : !api_.is_torch_tensor(o) && numpy_inside(o));
    return Ref::borrow(o);
  };
  if (!PyTuple_CheckExact(key) && !numpy_value(key)) return {};
  for (Py_ssize_t i = 0; PyTuple_CheckExact(key) && i < PyTuple_GET_SIZE(key); ++i) look(PyTuple_GET_ITEM(key, i));
  if (!PyTuple_CheckExact(key)) look(key);
  if (other) return {};
  const auto convert = [&](PyObject* o) -> Ref {
    if (!numpy_value(o)) return Ref::borrow(o);
    return Ref::steal(cross({Ref::borrow(maker), Ref::steal(PyTuple_Pack(1, o)), {}, "tensor", false}));
  };
  if (!PyTuple_CheckExact(key)) return convert(key);
  Ref made = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(key)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
    Ref item = convert(PyTuple_GET_ITEM(key, i));
    if (!item) return {};
    PyTuple_SET_ITEM(made.get(), i, item.release());
  }
  return made;
}

/// torch.tensor(array) of such an array: a copy of a tensor that the entry keeps. not_handled(): it is something else, as what
/// shares the array's memory (torch.from_numpy).
PyObject* NumpyTracing::tensor_of_constant(PyObject* callable, PyObject* args, PyObject* kwargs) {
  if (!api_.present() || !PyCFunction_Check(callable) || PyTuple_GET_SIZE(args) != 1) return not_handled();
  PyObject* const array = PyTuple_GET_ITEM(args, 0);
  if (!trace_->constants.has_array(array)) return not_handled();
  const Ref module = Ref::steal(PyImport_ImportModule("torch"));
  if (attr_or_null(module.get(), "tensor").get() != callable) return not_handled();
  Ref made;
  {
    const Bypass bypass(bypass_);
    const Ref copy = Ref::steal(PyObject_CallMethod(array, "copy", nullptr));
    const Ref operands = copy ? Ref::steal(PyTuple_Pack(1, copy.get())) : Ref();
    made = operands ? Ref::steal(PyObject_Call(callable, operands.get(), kwargs)) : Ref();
  }
  if (!made) forget_error();
  if (!made || attr(made.get(), "requires_grad").get() != Py_False) return not_handled();
  trace_->alive.push_back(made);
  return PyObject_CallMethod(made.get(), "clone", nullptr);
}

}  // namespace tatara::capture
