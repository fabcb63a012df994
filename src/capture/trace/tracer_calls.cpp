// The tracer's view of calls: which C code may run while a trace is open.
#include <cstring>
#include <string_view>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/host/package.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/value_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {

int Tracer::raising(Frame& f, PyObject* exception) {
  if (tracing() && ends().leaves_again(f)) return ends().leave_in_eager() ? kNotHandled : -1;
  if (!tracing() || exception != nullptr) return kNotHandled;
  return calls().knows_handled() || graph_break("raise of what a caller handles") ? kNotHandled : -1;
}

/// GradScaler.update(), which ends with a new dict for its optimizers: the old one, emptied, takes its place, so that the
/// next call finds the object that it found before.
PyObject* TorchTracing::update_scaler(const TracedCall& call) {
  PyObject* self = PyMethod_Check(call.callable) ? PyMethod_GET_SELF(call.callable)
                   : call.nargs() > 0            ? call.args[0]
                                                 : nullptr;
  if (self == nullptr) return not_handled();
  Ref states, ours;
  {
    const Bypass bypass(bypass_);
    states = attr_or_null(self, "_per_optimizer_states");
    ours = package_function(PackageFunction::kKeepStates);
  }
  Ref result = Ref::steal(call.perform());
  if (!result || !states) return result.release();
  const Ref kept = Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), self, states.get(), nullptr));
  return kept ? result.release() : nullptr;
}

/// GradScaler's step of an optimizer where no gradient is infinite: by our function, which asks for flags in place of numbers.
PyObject* TorchTracing::scaled_step(const TracedCall& call) {
  const Py_ssize_t self = PyMethod_Check(call.callable) ? 0 : 1;
  if (call.nargs() < self + 2) return not_handled();
  Ref ours;
  {
    const Bypass bypass(bypass_);
    ours = package_function(PackageFunction::kStepIfFinite);
  }
  const auto count = static_cast<size_t>(call.nargs() - self);
  return PyObject_Vectorcall(ours.get(), call.args + self, count, call.kwnames);
}

/// Our function in place of an object of the host's that is called.
PyObject* TorchTracing::stand_in_of_object(const TracedCall& call) {
  if (call.known.stand_in != PackageFunction::kCondOperator) return not_handled();
  Ref ours;
  {
    const Bypass bypass(bypass_);
    ours = package_function(call.known.stand_in);
  }
  std::vector<PyObject*> all{call.callable};
  all.insert(all.end(), call.args, call.args + call.nargs() + call.keywords());
  return PyObject_Vectorcall(ours.get(), all.data(), static_cast<size_t>(call.nargs() + 1), call.kwnames);
}

/// torch.einsum of one operand is a view, where it sums nothing: one of several is an operator.
static bool is_einsum_of_one(const TracedCall& call) {
  PyObject* const operands = call.nargs() > 1 ? call.args[1] : nullptr;
  return operands != nullptr && (PyTuple_Check(operands) || PyList_Check(operands)) &&
         PySequence_Fast_GET_SIZE(operands) == 1 && PyUnicode_Check(call.args[0]);
}

/// Our function in place of the host's; of a method, with the tensor as the first argument.
PyObject* TorchTracing::other_words(const Frame& f, const TracedCall& call) {
  const std::string name = name_of(call.callable);
  const bool einsum = name == package_entry(PackageFunction::kEinsum).name;
  if (einsum && !is_einsum_of_one(call)) return not_handled();
  if (!einsum && transforms().open() > 0) return not_handled();  // who is part of a batch torch's own calls say
  if (text_of(f.code()->co_filename).ends_with(package_file(package_entry(PackageFunction::kEinsum).module)))
    return not_handled();
  std::vector<PyObject*> all;
  if (!einsum && PyCFunction_Check(call.callable)) all.push_back(PyCFunction_GET_SELF(call.callable));
  all.insert(all.end(), call.args, call.args + call.nargs() + call.keywords());
  const size_t count = all.size() - static_cast<size_t>(call.keywords());
  if (!einsum && (count == 0 || all[0] == nullptr || !api_.is_torch_tensor(all[0]))) return not_handled();
  Ref ours;
  {
    const Bypass bypass(bypass_);
    ours =
        package_function(einsum                                                       ? PackageFunction::kEinsum
                         : name == package_entry(PackageFunction::kFillDiagonal).name ? PackageFunction::kFillDiagonal
                                                                                      : PackageFunction::kNewTensor);
  }
  return ours ? PyObject_Vectorcall(ours.get(), all.data(), count, call.kwnames) : nullptr;
}

/// Our function in place of the host's, but where ours calls the host's itself. With gradients on the host's optimizers say what they say.
PyObject* TorchTracing::stand_in(const Frame& f, const TracedCall& call) {
  const PackageFunction function = call.known.stand_in;
  const bool python = PyFunction_Check(call.callable);
  if (!python && !PyCFunction_Check(call.callable)) return stand_in_of_object(call);
  if (python) {
    const std::string file = text_of(f.code()->co_filename);
    if (file.ends_with(package_file(package_entry(function).module))) return not_handled();
  }
  const bool scaler = function == PackageFunction::kAmpUnscale || function == PackageFunction::kAmpUpdateScale;
  if (!python && !scaler && api_.grad_enabled()) return not_handled();
  Ref ours;
  {
    const Bypass bypass(bypass_);
    ours = package_function(function);
  }
  return ours ? PyObject_Vectorcall(ours.get(), call.args, call.nargsf, call.kwnames) : nullptr;
}

/// The arguments as a tuple and a dict.
std::pair<Ref, Ref> TracedCall::packed() const {
  Ref positional = Ref::steal(PyTuple_New(nargs())), named = Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; i < nargs(); ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; i < keywords(); ++i) {
    PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs() + i]);
  }
  return {std::move(positional), std::move(named)};
}

/// Calls that the trace answers before anything else is asked about them; not_handled(): it is none, or goes its usual way.
PyObject* CallTracing::call_special(const Frame& f, const TracedCall& call) {
  switch (call.known.special) {
    case SpecialCall::kNone: return not_handled();
    case SpecialCall::kEngine: {
      if (!GradientTracing::is_engine_call(call.callable)) return not_handled();
      const auto [positional, named] = call.packed();
      return gradients().run_backward(positional.get(), named.get());
    }
    case SpecialCall::kRegisterHook:
      if (call.keywords() > 0 || !PyFunction_Check(call.callable)) return not_handled();
      return gradients().register_hook(f, call.args, call.nargs());
    case SpecialCall::kFunctionApply:
      if (call.keywords() > 0 || !FunctionTracing::is_function_apply(call.callable)) return not_handled();
      return functions().apply_function(call.callable, call.args, call.nargs());
    case SpecialCall::kLevelFunction: return functions().call_forward(call);
    case SpecialCall::kTransform: {
      const TransformCall kind = transform_call_of(call.callable, call.known.transform);
      return transforms().transform_call(kind, call.callable, call.args, call.nargs(), call.kwnames);
    }
    case SpecialCall::kUpdateScaler: return torch().update_scaler(call);
    case SpecialCall::kScaledStep: return torch().scaled_step(call);
    case SpecialCall::kStandIn: return torch().stand_in(f, call);
    case SpecialCall::kGeneratorState: return torch().generator_state(call);
    case SpecialCall::kOfGenerator: {
      const auto [positional, named] = call.packed();
      return numpy().torch_generator_call(call.callable, positional.get(), call.keywords() > 0 ? named.get() : nullptr);
    }
    case SpecialCall::kOfRandom: return numpy().python_draw(call);
    case SpecialCall::kOtherWords: return torch().other_words(f, call);
    case SpecialCall::kAsksMode: return torch().ask_mode(call);
    case SpecialCall::kMakeSubclass: return torch().make_parameter(call);
    case SpecialCall::kIsCompiling: {
      // Libraries then take the way that can be traced. Torch's own code keeps eager's, whose results are to come out.
      const bool own = api_.files.is_torch(f.code());
      if (own || owner_.tells_eager || call.nargs() + call.keywords() > 0) return not_handled();
      trace_->asked_compiling = true;
      return Py_NewRef(Py_True);
    }
  }
  return not_handled();
}

/// float(tensor) or int(tensor): what a tensor's method returns would have to be a plain number.
bool CallTracing::converts_tensor(const TracedCall& call, const PyTypeObject& type) const {
  return call.callable == reinterpret_cast<const PyObject*>(&type) && call.nargs() == 1 && call.keywords() == 0 &&
         api_.is_torch_tensor(call.args[0]) && api_.is_plain_tensor(call.args[0]);
}

PyObject* CallTracing::call_float(const TracedCall& call) {
  if (!converts_tensor(call, PyFloat_Type)) return not_handled();
  static PyObject* const method = attr(reinterpret_cast<PyObject*>(api_.base_type), "__float__").release();
  PyObject* counter = numbers().item_number(method, call.args[0]);
  return counter != nullptr || PyErr_Occurred() != nullptr ? counter : not_handled();
}

PyObject* CallTracing::call_int(const TracedCall& call) {
  if (!converts_tensor(call, PyLong_Type) || !trace_->tape.makes(trace_->tape.find(call.args[0]))) return not_handled();
  static PyObject* const item = attr(reinterpret_cast<PyObject*>(api_.base_type), "item").release();
  const Ref operands = Ref::steal(PyTuple_Pack(1, call.args[0]));
  Ref number = values().numbers_in(api_.classify(item), item, operands.get(), nullptr);
  return number || PyErr_Occurred() != nullptr ? number.release() : not_handled();
}

/// What symbolic numbers, arrays and objects whose end is noticed make of a call, whatever the callable is.
PyObject* CallTracing::call_by_operands(const TracedCall& call) {
  if (!PyFunction_Check(call.callable) &&
      numbers().symbolic_arguments(call.callable, call.args, call.nargs() + call.keywords())) {
    const auto [positional, named] = call.packed();
    PyObject* kwargs = call.keywords() > 0 ? named.get() : nullptr;
    PyObject* result = numbers().symbolic_call(call.callable, call.known, positional.get(), kwargs);
    if (result != not_handled()) return result;
  }
  PyObject* done = numpy().numpy_vectorcall(call.callable, call.known, call.args, call.nargs(), call.kwnames);
  if (done != not_handled() || !tracing()) return done;
  if (const std::string life = lifetimes().starts_life(call.callable, call.args, call.nargs()); !life.empty()) {
    return lifetimes().break_for_good(life) ? not_handled() : nullptr;
  }
  PyObject* switched = switch_inference(call);
  if (switched == not_handled()) switched = switch_dispatch(call);
  if (switched == not_handled()) switched = switch_device(call);
  if (switched != not_handled()) {
    turns().changes("a switch of torch's");
    return switched;
  }
  const std::string guard = enters_guard(call.callable, call.args, call.nargs());
  return guard.empty() || graph_break(guard) ? not_handled() : nullptr;
}

PyObject* Tracer::call(Frame& f, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!tracing()) return not_handled();
  return call_known(f, {callable, known_call(callable), args, nargsf, kwnames});
}

PyObject* Tracer::call_known(Frame& f, TracedCall call) {
  using Kind = CallPlan::Kind;
  count_call();
  std::vector<PyObject*> operands;
  if (!calls().call_inner(call, operands)) return nullptr;
  if (!tracing()) return not_handled();
  const Py_ssize_t nargs = call.nargs(), keywords = call.keywords();
  const SpecialCall special = call.known.special;
  if (special != SpecialCall::kNone && special != SpecialCall::kIsCompiling && special != SpecialCall::kOtherWords) {
    turns().changes("a call of its own kind");
  }
  if (PyObject* done = calls().call_float(call); done != not_handled()) return done;
  if (PyObject* done = calls().call_int(call); done != not_handled()) return done;
  if (PyObject* done = calls().call_special(f, call); done != not_handled() || !tracing()) return done;
  if (torch().is_tensor_type(call.callable)) {
    if (PyObject* made = torch().make_by_type(call); made != not_handled() || !tracing()) return made;
  }
  if (PyObject* done = calls().call_by_operands(call); done != not_handled() || !tracing()) return done;
  if (TorchTracing::is_legacy_variable(call.callable)) return torch().make_variable(call);
  const CallPlan plan = calls().plan_call(call.callable, call.known, call.args, nargs);
  turns().calls(call, plan);
  if (PyObject* done = numbers().identity_of_numbers(call.callable, plan.name, call.args, nargs); done != not_handled())
    return done;
  if (plan.kind == Kind::kPure || plan.kind == Kind::kMutator || (plan.kind == Kind::kBreak && calls().in_cached())) {
    numbers().settle_arguments(call.callable, call.known, call.args, nargs, keywords);
    numbers().settle_free_keys(call.callable, plan.name, {call.args, static_cast<size_t>(nargs + keywords)});
    if (!tracing()) return not_handled();
  }
  if (plan.name == "next" && plan.kind == Kind::kPure && bound_to(call.callable) == nullptr && nargs > 0 && nargs < 3 &&
      keywords == 0 && reads().outside_iterator(call.args[0]) && !reads().is_raw_memory(call.args[0])) {
    return iterators().call_next(call);
  }
  if (plan.kind != Kind::kEnter && plan.kind != Kind::kAttribute && plan.kind != Kind::kBreak &&
      call.reads_contents()) {
    if (!reads().break_if_moved(plan.target) || !reads().break_if_moved(call.callable, call.args, nargs + keywords))
      return nullptr;
    if (!tracing()) return not_handled();
  }
  reads().pin_operands(plan, call.callable, call.args, nargs);
  switch (plan.kind) {
    case Kind::kEnter:
      if (plan.source != nullptr) return call_source(f, call, plan.source);
      if (PyMethod_Check(call.callable)) origins().find_parts(call.callable);
      reads().watch_class_of(call.callable);
      return not_handled();
    case Kind::kTorch:
      if (call.known.handler == CallHandler::kApartInMemory && nargs == 1)
        return PyBool_FromLong(transforms().are_apart(call.args[0]));
      return call.known.handler == CallHandler::kGroupTensors ? torch().group_tensors(call.args, nargs) : not_handled();
    case Kind::kFalse: return Py_NewRef(Py_False);
    case Kind::kTrue: return Py_NewRef(Py_True);
    case Kind::kModes: return modes().ask_modes(call.callable, call.args, call.nargsf, call.kwnames);
    case Kind::kPushMode: modes().push_programs(call.args[0]); Py_RETURN_NONE;
    case Kind::kPopMode: return modes().pop_programs().release();
    case Kind::kAttribute: return look_up_attribute(f, call, plan);
    case Kind::kMutator:
      return writes().call_mutator(f, call.callable, plan, {call.args, static_cast<size_t>(nargs)}, keywords > 0,
                                   [call] { return call.perform(); });
    case Kind::kSwitch: return writes().throw_switch(call.callable, call.args, nargs, keywords);
    case Kind::kBreak: {
      if ((plan.name == "print" || plan.name == "_warnings.warn") && PyCFunction_Check(call.callable) &&
          calls().says_once(call.operands())) {
        const Bypass bypass(bypass_);
        return call.perform();
      }
      if (plan.name == "_warnings.warn") {
        PyObject* const done = calls().call_warn(f, call);
        if (done != not_handled() || !tracing()) return done;
      }
      const bool told = call.known.handler == CallHandler::kCallsApart;
      return graph_break((told ? "" : "call of ") + plan.name) ? not_handled() : nullptr;
    }
    case Kind::kPure: return calls().call_in_c(call, plan);
  }
  return not_handled();
}

/// The function in Python that stands behind a callable.
PyObject* Tracer::call_source(Frame& f, const TracedCall& call, PyObject* source) {
  static PyObject* const name = PyUnicode_InternFromString(kScriptedSource);
  if (obtained(f, Obtained::kAttribute, call.callable, name, source) != 0) return nullptr;
  return tracing() ? PyObject_Vectorcall(source, call.args, call.nargsf, call.kwnames) : not_handled();
}

/// getattr and the like.
PyObject* Tracer::look_up_attribute(Frame& f, const TracedCall& call, const CallPlan& plan) {
  const Py_ssize_t nargs = call.nargs();
  PyObject* found = reads().call_attribute(call.callable, plan.target, call.args, nargs);
  if (found != not_handled() || !tracing() || call.keywords() > 0) return found;
  found = call.perform();
  PyObject* const* operands = plan.target != nullptr ? call.args - 1 : call.args;  // the owner, then the name
  PyObject* owner = plan.target != nullptr ? plan.target : nargs > 0 ? call.args[0] : nullptr;
  if (found == nullptr || owner == nullptr || operands + 1 >= call.args + nargs || PyBool_Check(found)) return found;
  if (obtained(f, Obtained::kAttribute, owner, operands[1], found) == 0) return found;
  Py_DECREF(found);
  return nullptr;
}

/// Of an abstract base class, whether an object or a class belongs to it. The interpreter keeps the answers, so that the code
/// in Python behind them (`__subclasshook__`, other abstract classes) runs once in a process and is no part of the program.
PyObject* CallTracing::ask_registry(const TracedCall& call) {
  if (call.nargs() != 2 || call.keywords() != 0) return call.perform();  // an error in the program
  const Bypass bypass(bypass_);
  Ref result = Ref::steal(call.perform());
  if (!result) return nullptr;
  PyObject *const abstract = call.args[0], *const asked = call.args[1];
  std::vector<Ref> types;
  if (std::strcmp(reinterpret_cast<PyCFunctionObject*>(call.callable)->m_ml->ml_name, "_abc_subclasscheck") == 0) {
    types.push_back(Ref::borrow(asked));
  } else {
    types.push_back(Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(asked))));
    Ref shown = attr_or_null(asked, "__class__");  // objects may show another
    if (shown && shown.get() != types[0].get() && PyType_Check(shown.get())) types.push_back(std::move(shown));
  }
  for (const Ref& type : types) {
    if (born(abstract) || born(type.get())) continue;
    const int answer = PyObject_IsSubclass(type.get(), abstract);
    if (answer < 0) return nullptr;
    trace_->object_guards.subclass(type.get(), abstract, answer != 0 ? Py_True : Py_False);
  }
  return result.release();
}

/// Code in C that has no effect besides its result: it runs here, and what it may read becomes a guard.
PyObject* CallTracing::call_in_c(const TracedCall& call, const CallPlan& plan) {
  PyObject* const callable = call.callable;
  const Py_ssize_t nargs = call.nargs(), keywords = call.keywords();
  if (call.reads_contents()) {
    // Code in C is about to call, or to keep, what changes something, and nobody would see it.
    bool hidden = is_partial(callable) && hides_change(callable);
    for (Py_ssize_t i = 0; i < nargs + keywords && !hidden; ++i) hidden = hides_change(call.args[i]);
    if (hidden) {
      return graph_break("a method in C that changes what existed before, called by code in C") ? not_handled()
                                                                                                : nullptr;
    }
  }
  if (PyObject* const number = reads().number_at_key(call, plan)) return number;
  const bool keyed = reads().reads_one_key(call, plan);
  if (!keyed && !reads().watch_operands(call, plan)) return nullptr;
  if (!tracing()) return not_handled();
  if ((plan.name == "vars" || plan.name == "dir") && nargs == 1) reads().watch_all(call.args[0]);
  if (plan.name.empty() && nargs == 1) reads().watch_getter(callable, call.args[0]);
  if (PyCFunction_Check(callable) &&
      std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "__build_class__") == 0) {
    PyObject* made = call.perform();
    if (made != nullptr && tracing() && PyType_Check(made)) mark_born(made);
    return made;
  }
  // super() and locals() look at the running frame, which is the program's own also here.
  const NumpyTracing::Reader reader(numpy(), callable, call.known);
  PyObject* result = call.known.is(kAsksRegistry) ? ask_registry(call)
                     : is_cached_function(callable) && !born(callable)
                         ? call_cached(callable, call.operands(), call.nargsf, call.kwnames)
                         : call.perform();
  if (result == nullptr || result == not_handled() || !tracing()) return result;
  origins().pin_keys(result);
  if (plan.variable != nullptr &&
      note_context(plan.variable, plan.name, nargs > 0 ? call.args[nargs - 1] : nullptr, result))
    return result;
  if (plan.weak != nullptr && !born(plan.weak)) {
    trace_->object_guards.weak(plan.weak, result);
    trace_->alive.push_back(Ref::borrow(result));
  } else if (plan.watched && keywords == 0 && !born(result) &&
             !writes().has_set(callable, call.args, static_cast<size_t>(nargs))) {
    trace_->object_guards.call(callable, call.args, static_cast<size_t>(nargs), result);
  } else {
    origins().note_result(result);
    if (callable == reinterpret_cast<PyObject*>(&PyType_Type) && nargs == 3) mark_born(result);
  }
  return result;
}

/// As a vectorcall of what the sequence and the mapping hold.
PyObject* Tracer::call_ex(Frame& f, PyObject* callable, PyObject* args, PyObject* kwargs) {
  if (!tracing()) return not_handled();
  if (numpy().numpy_value(args)) return numpy().numpy_break("an array is unpacked");
  if (!reads().break_if_moved(args)) return nullptr;
  if (!tracing()) return not_handled();
  const bool iterable = Py_TYPE(args)->tp_iter != nullptr || PySequence_Check(args) != 0;
  if (!iterable || (kwargs != nullptr && !PyDict_CheckExact(kwargs))) return not_handled();  // an error in the program
  const KnownCall known = known_call(callable);
  if (Py_TYPE(args)->tp_iternext != nullptr) {
    // Break before it is moved on where the call breaks in any case: the entry then resumes here.
    const CallPlan plan = calls().plan_call(callable, known, nullptr, 0);
    if (plan.kind == CallPlan::Kind::kBreak) return graph_break("call of " + plan.name) ? not_handled() : nullptr;
    trace_->mutated = true;
  }
  if (!reads().watch_contents(args, Reading::kItems) ||
      (tracing() && kwargs != nullptr && !reads().watch_contents(kwargs, Reading::kItems)))
    return nullptr;
  if (!tracing()) return not_handled();
  const Ref items = Ref::steal(PySequence_Tuple(args));
  if (!items) return nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(items.get());
  const Py_ssize_t keywords = kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0;
  std::vector<PyObject*> all;
  for (Py_ssize_t i = 0; i < count; ++i) all.push_back(PyTuple_GET_ITEM(items.get(), i));
  const Ref names = Ref::steal(keywords > 0 ? PyTuple_New(keywords) : nullptr);
  const Ref values = Ref::steal(keywords > 0 ? PyDict_Values(kwargs) : nullptr);  // held
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  bool named = true;
  for (Py_ssize_t i = 0; keywords > 0 && PyDict_Next(kwargs, &at, &key, &value) != 0; ++i) {
    named = named && PyUnicode_Check(key);
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    all.push_back(value);
  }
  PyObject* result =
      named ? call_known(f, {callable, known, all.data(), static_cast<size_t>(count), names.get()}) : not_handled();
  // What the program handed over is read already.
  return result != not_handled() ? result : PyObject_Call(callable, items.get(), kwargs);
}

}  // namespace tatara::capture
