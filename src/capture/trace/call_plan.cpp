// What a call does, as far as a trace is concerned: by what is known of the callable (known_calls.def), then by what kind of
// object it is.
#include <cstring>
#include <string_view>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

using Kind = CallPlan::Kind;

bool is_context_variable(const PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return name == "ContextVar" || name == "_contextvars.ContextVar";
}

bool of_datetime(const PyTypeObject* type) {
  while (type != nullptr && std::strncmp(type->tp_name, "datetime.", 9) != 0) type = type->tp_base;
  return type != nullptr;
}

/// C types whose methods never change anything.
bool is_immutable_type(PyTypeObject* type) {
  if (known_type(type).is(kImmutable) || is_dict_view(type->tp_name)) return true;
  return PyType_IsSubtype(type, &PyTuple_Type) != 0 || PyType_IsSubtype(type, &PyType_Type) != 0 ||
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

bool is_torch_name(std::string_view module) { return module.substr(0, 5) == "torch"; }

/// The engine of gradients, and nodes with a backward of the user's: they need real tensors.
bool needs_autograd(const KnownCall& known, const TorchApi& api) {
  return known.is(kNeedsEngine) || (known.is(kAppliesFunction) && api.grad_enabled());
}

CallPlan breaks(std::string what) { return {Kind::kBreak, nullptr, std::move(what)}; }

std::string full_name(const std::string& module, const std::string& name) {
  return module.empty() ? name : module + "." + name;
}

}  // namespace

bool is_container_type(PyTypeObject* type) {
  return PyType_IsSubtype(type, &PyList_Type) != 0 || PyType_IsSubtype(type, &PyDict_Type) != 0 ||
         PyType_IsSubtype(type, &PySet_Type) != 0 || is_deque_type(type);
}

CallPlan CallTracing::plan_call(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs) {
  if (PyFunction_Check(callable)) return {Kind::kEnter, nullptr, {}};
  if (PyMethod_Check(callable)) {
    PyObject* function = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(function)) return {Kind::kEnter, nullptr, {}};
    std::vector<PyObject*> with_self{PyMethod_GET_SELF(callable)};
    with_self.insert(with_self.end(), args, args + nargs);
    return plan_call(function, known, with_self.data(), nargs + 1);
  }
  if (PyType_Check(callable)) return plan_class(reinterpret_cast<PyTypeObject*>(callable));
  if (PyCFunction_Check(callable)) return plan_function(callable, known, args, nargs);
  if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type ||
      Py_TYPE(callable) == &PyClassMethodDescr_Type) {
    const auto* d = reinterpret_cast<PyDescrObject*>(callable);
    return plan_method(callable, known, d->d_type, nargs > 0 ? args[0] : nullptr, text_of(d->d_name));
  }
  if (std::strcmp(Py_TYPE(callable)->tp_name, "method-wrapper") != 0) return plan_object(callable);
  const Ref self = attr_or_null(callable, "__self__"), defined = attr_or_null(callable, "__objclass__");
  PyTypeObject* owner = self ? Py_TYPE(self.get()) : nullptr;  // the wrapper keeps it alive
  if (defined && PyType_Check(defined.get())) owner = reinterpret_cast<PyTypeObject*>(defined.get());
  const std::string name = name_of(callable);
  if (owner == nullptr) return breaks(name);
  return plan_method(callable, known, owner, self.get(), name);
}

CallPlan CallTracing::plan_class(PyTypeObject* type) const {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
    const std::string_view name = type->tp_name;
    if (name.substr(0, 4) == "_io." || name == "numpy.ndarray") return breaks(std::string(name));
  }
  const bool tensor = api_.present() && PyType_IsSubtype(type, api_.base_type) != 0;
  if (type == api_.parameter_type) return {Kind::kPure, nullptr, {}};  // see TorchTracing::make_parameter
  if (type == api_.tensor_type || tensor) {
    return breaks(std::string("constructor ") + type->tp_name);
  }
  return {Kind::kPure, nullptr, {}};
}

/// The function that torch.jit.script was given (not torch.jit.trace, which keeps one path through it); borrowed, or null.
static PyObject* scripted_source(PyObject* callable) {
  if (text_of(attr_or_null(callable, "__qualname__").get()) != "torch.jit.ScriptFunction") return nullptr;
  PyObject* const source = attr_or_null(callable, kScriptedSource).get();
  return source != nullptr && PyFunction_Check(source) ? source : nullptr;
}

/// An object that is called.
CallPlan CallTracing::plan_object(PyObject* callable) {
  const std::string_view type = Py_TYPE(callable)->tp_name;
  if (known_type(Py_TYPE(callable)).is(kPlainCall)) return {Kind::kPure, nullptr, {}};
  if (PyWeakref_CheckRef(callable) && Py_TYPE(callable)->tp_call == _PyWeakref_RefType.tp_call) {
    CallPlan plan;
    plan.weak = callable;
    return plan;
  }
  if (type.find("ScriptFunction") != std::string_view::npos || type.find("ScriptMethod") != std::string_view::npos) {
    CallPlan plan = breaks("a TorchScript function");
    plan.source = scripted_source(callable);
    if (plan.source != nullptr) plan.kind = Kind::kEnter;
    return plan;
  }
  PyObject* dunder = _PyType_Lookup(Py_TYPE(callable), PyUnicode_InternFromString("__call__"));
  if (dunder != nullptr && PyFunction_Check(dunder)) return {Kind::kEnter, nullptr, {}};
  return breaks("an object of type " + std::string(type));
}

/// has_torch_function: whether some argument has one of its own.
CallPlan CallTracing::plan_has_torch_function(PyObject* const* args, Py_ssize_t nargs) const {
  bool any = false;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    any = any || api_.handles_calls(Py_TYPE(args[i]));
    const bool items = PyTuple_Check(args[i]) || PyList_Check(args[i]);
    for (Py_ssize_t k = 0; items && k < PySequence_Fast_GET_SIZE(args[i]); ++k) {
      any = any || api_.handles_calls(Py_TYPE(PySequence_Fast_GET_ITEM(args[i], k)));
    }
  }
  // With classes left out torch would still say yes, since a mode of ours is on.
  const bool asked = any && Ref::steal(PyObject_CallNoArgs(api_.modes.overrides_enabled.get())).get() == Py_True;
  if (modes().gives_device()) return {Kind::kTrue, nullptr, {}};
  return {asked ? Kind::kPure : Kind::kFalse, nullptr, {}};
}

/// A function in C, or a method that is bound to its object.
CallPlan CallTracing::plan_function(PyObject* callable, const KnownCall& known, PyObject* const* args,
                                    Py_ssize_t nargs) {
  if (known.handler == CallHandler::kHasTorchFunction) return plan_has_torch_function(args, nargs);
  const auto* f = reinterpret_cast<PyCFunctionObject*>(callable);
  const std::string name = f->m_ml->ml_name;
  std::string module = text_of(f->m_module);
  if (f->m_self == nullptr || PyModule_Check(f->m_self)) {
    if (module.empty() && f->m_self != nullptr) {
      const char* text = PyModule_GetName(f->m_self);
      if (text == nullptr) forget_error();
      module = text != nullptr ? text : "";
    }
  } else if (PyType_Check(f->m_self)) {
    // Tensors that no torch function makes: the trace would not know where they come from.
    if (known.is(kMakesTensor) || needs_autograd(known, api_)) return breaks(name);
    if (is_torch_name(reinterpret_cast<PyTypeObject*>(f->m_self)->tp_name)) module = "torch";
    if (known.is(kReadsClock) && of_datetime(reinterpret_cast<PyTypeObject*>(f->m_self))) return breaks(name);
    if (module.empty()) return {Kind::kPure, nullptr, name, nullptr};  // __new__, fromkeys, ...
  } else if (!PyCapsule_CheckExact(f->m_self) && module.empty()) {
    return plan_method(callable, known, Py_TYPE(f->m_self), f->m_self, name);
  }
  return plan_in_module(known, module, name, args, nargs);
}

CallPlan CallTracing::plan_in_module(const KnownCall& known, const std::string& module, const std::string& name,
                                     PyObject* const* args, Py_ssize_t nargs) {
  switch (known.handler) {
    case CallHandler::kPure: return {Kind::kPure, nullptr, name};
    case CallHandler::kWatched: return {Kind::kPure, nullptr, name, nullptr, true};
    case CallHandler::kAttribute: return {Kind::kAttribute, nullptr, name};
    case CallHandler::kSetAttribute: return {Kind::kMutator, nargs > 0 ? args[0] : nullptr, name, nullptr};
    case CallHandler::kThrownSwitch: return {Kind::kSwitch, nullptr, name};
    // Of the program's modes there are those alone that were entered in the trace, or give a device.
    case CallHandler::kNoModes:
      return {modes().gives_device() || modes().has_programs() ? Kind::kTrue : Kind::kFalse, nullptr, name};
    case CallHandler::kAskModes: return modes().has_programs() ? breaks(name) : CallPlan{Kind::kModes, nullptr, name};
    case CallHandler::kPushesMode:
      if (nargs != 1 || !modes().takes(args[0])) {
        const std::string& why = owner_.modes_apart;
        return breaks(full_name(module, name) + (why.empty() ? "" : ", a mode under which graphs break: " + why));
      }
      return {Kind::kPushMode, nullptr, name};
    case CallHandler::kPopsMode:
      return modes().pops_programs() ? CallPlan{Kind::kPopMode, nullptr, name} : breaks(full_name(module, name));
    case CallHandler::kCallsApart:
      return nargs > 0 && PyUnicode_Check(args[0]) != 0 ? CallPlan{Kind::kBreak, nullptr, text_of(args[0])}
                                                        : breaks(name);
    case CallHandler::kApartInMemory:
    case CallHandler::kGroupTensors: return {Kind::kTorch, nullptr, name};
    case CallHandler::kBreak: return breaks(module == "builtins" ? name : full_name(module, name));
    case CallHandler::kChangesFirst:
      if (nargs > 0 && changes_unseen(args[0])) {
        std::string method = known.method != nullptr ? known.method : name;
        return {Kind::kMutator, args[0], std::move(method), Py_TYPE(args[0]), false, nullptr, nullptr, true};
      }
      return {Kind::kPure, nullptr, name};
    case CallHandler::kHandled:
      return knows_handled() ? CallPlan{Kind::kPure, nullptr, name}
                             : breaks("sys." + name + ", where a caller handles an exception");
    case CallHandler::kEvalFrame:
      // The compiler of torch itself, which is off, is switched off around a function.
      return nargs == 1 && args[0] == Py_None ? CallPlan{Kind::kPure, nullptr, name} : breaks(full_name(module, name));
    case CallHandler::kTorch:
    case CallHandler::kSwitchesTorch:
    case CallHandler::kHasTorchFunction:
    case CallHandler::kNone: break;
  }
  if (!is_torch_name(module)) return breaks(full_name(module, name));
  if (known.handler == CallHandler::kSwitchesTorch && writes().may_set(name, args, nargs))
    return {Kind::kSwitch, nullptr, name};
  if (known.handler == CallHandler::kSwitchesTorch || needs_autograd(known, api_))
    return breaks(full_name(module, name));
  return {Kind::kTorch, nullptr, name};
}

/// Whether a change of an object by a function in C goes past the virtual machine.
bool CallTracing::changes_unseen(PyObject* object) const {
  if (api_.is_tensor(object)) return false;
  PyTypeObject* type = Py_TYPE(object);
  const bool python =
      (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_container_type(type);  // the VM sees its methods
  return !is_immutable_type(type) && !is_atom(object, api_) && !python;
}

/// `target`: what it is a method of; null: not known.
CallPlan CallTracing::plan_method(PyObject* callable, const KnownCall& known, PyTypeObject* owner, PyObject* target,
                                  const std::string& name) {
  CallPlan plan;
  plan.name = name;
  if (target != nullptr && api_.present() && api_.is_torch_tensor(target) && known.is(kUnseen)) return breaks(name);
  if (name == "__getattribute__") {
    return {Kind::kAttribute, Py_TYPE(callable) == &PyWrapperDescr_Type ? nullptr : target, name};
  }
  if (api_.present() && PyType_IsSubtype(owner, api_.base_type) != 0) return {Kind::kTorch, nullptr, name};
  if (std::strcmp(owner->tp_name, "torch._C.Generator") == 0) return breaks("Generator." + name);
  if (is_torch_name(owner->tp_name) && !is_immutable_type(owner)) {
    if (known.handler == CallHandler::kSwitchesTorch || needs_autograd(known, api_)) return breaks(name);
    return {Kind::kTorch, nullptr, name};
  }
  if (name == "__call__" && target != nullptr && PyWeakref_CheckRef(target)) {
    plan.weak = target;
    return plan;
  }
  if (is_context_variable(owner)) {
    plan.variable = target;
    plan.watched = name == "get";
    return plan;
  }
  if (owner == &PyType_Type && (name == "__setattr__" || name == "__delattr__")) {
    if (Py_TYPE(callable) == &PyWrapperDescr_Type) return {Kind::kMutator, target, name, nullptr};
    if (target == nullptr || !born(target)) return breaks("type." + name);
  }
  const bool container = is_container_type(owner);
  const bool immutable = !container && is_immutable_type(owner);
  if (known.is(kMutates) && target != nullptr && !PyType_Check(target)) {
    if (name == "__init__" && owner == &PyBaseObject_Type) return {Kind::kPure, nullptr, name};
    if (!immutable || owner == &PyBaseObject_Type) return {Kind::kMutator, target, name, owner};
  }
  if (container || immutable) return {Kind::kPure, target, name, nullptr, known.is(kReadsState)};
  // Iterators' own methods, hashes and comparisons of any type.
  if (name.size() > 4 && name.substr(0, 2) == "__" && name != "__next__") return {Kind::kPure, target, name};
  return breaks(std::string(owner->tp_name) + "." + name);
}

bool CallTracing::knows_handled() {
  const Ref handled = Ref::steal(PyErr_GetHandledException());
  if (handled.get() != trace_->start.exception.get()) return true;
  if (!handled) trace_->object_guards.nothing_handled();
  return !handled;
}

bool CallTracing::hides_change(PyObject* o) const {
  if (is_partial(o)) {
    const Ref function = attr_or_null(o, "func");
    return function && hides_change(function.get());
  }
  const bool function = PyCFunction_Check(o) != 0;
  if (!function && Py_TYPE(o) != &PyMethodDescr_Type && Py_TYPE(o) != &PyWrapperDescr_Type) return false;
  const KnownCall known = known_call(o);
  if (!function) {
    PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(o)->d_type;
    if (api_.present() && owner == api_.base_type) return known.is(kUnseen);
    return is_container_type(owner) && known.is(kMutates);
  }
  PyObject* self = bound_to(o);
  if (self == nullptr) return known.handler == CallHandler::kChangesFirst;
  if (api_.is_torch_tensor(self)) return known.is(kUnseen);
  return is_container_type(Py_TYPE(self)) && known.is(kMutates) && !born(self);
}

}  // namespace tatara::capture
