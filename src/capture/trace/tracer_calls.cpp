// The tracer's view of calls: which C code may run while a trace is open.
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/host/natures.h"
#include "capture/host/package.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

using Names = std::unordered_set<std::string_view>;

const Names& impure_builtins() {
  static const Names names = {"print", "input", "open", "exec", "eval", "compile", "__import__", "breakpoint"};
  return names;
}

/// Modules in C whose functions have no effect besides their result (or run Python code that the VM sees).
const Names& pure_modules() {
  static const Names names = {"builtins",   "math",      "cmath",        "_operator",    "operator",
                              "_functools", "functools", "itertools",    "_collections", "collections",
                              "_abc",       "_weakref",  "_struct",      "_bisect",      "_heapq",
                              "_sre",       "_stat",     "copyreg",      "_typing",      "typing",
                              "sys",        "_thread",   "_contextvars", "_string",      "unicodedata",
                              "_json",      "_ast",      "gc",           "_imp",         "_warnings_filters",
                              "numpy.dtype"};
  return names;
}

/// Functions of otherwise pure modules that change the interpreter.
bool switches_something(std::string_view module, std::string_view name) {
  if (module == "gc") return name != "isenabled" && name.substr(0, 4) != "get_" && name.substr(0, 3) != "is_";
  return (module == "sys" && name.substr(0, 3) == "set") || name.substr(0, 9) == "start_new" ||
         name == "interrupt_main";
}

const Names& mutator_names() {
  static const Names names = {"append",
                              "extend",
                              "insert",
                              "remove",
                              "pop",
                              "clear",
                              "sort",
                              "reverse",
                              "update",
                              "setdefault",
                              "popitem",
                              "add",
                              "discard",
                              "move_to_end",
                              "appendleft",
                              "popleft",
                              "extendleft",
                              "rotate",
                              "__setitem__",
                              "__delitem__",
                              "__iadd__",
                              "__ior__",
                              "__setattr__",
                              "__delattr__",
                              "__init__",
                              "intersection_update",
                              "difference_update",
                              "symmetric_difference_update",
                              "__isub__",
                              "__iand__",
                              "__ixor__",
                              "__imul__",
                              "__setstate__"};
  return names;
}

/// The method that a function in C calls on its first argument, or a name for what it does to it; empty: it changes nothing.
std::string changes_first(std::string_view module, std::string_view name) {
  static const Names in_place = {"iadd", "iand",    "ifloordiv", "ilshift",  "imatmul", "imod",    "imul",   "ior",
                                 "ipow", "irshift", "isub",      "itruediv", "ixor",    "setitem", "delitem"};
  if (module == "_operator") {
    if (in_place.contains(name)) return "__" + std::string(name) + "__";
    if (name == "iconcat") return "__iadd__";
  }
  const bool changes = module == "_heapq" || (module == "_bisect" && name.substr(0, 6) == "insort") ||
                       (module == "_collections" && name == "_count_elements");
  return changes ? std::string(name) : std::string();
}

bool is_context_variable(const PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return name == "ContextVar" || name == "_contextvars.ContextVar";
}

/// C code that reads a state which no watch sees and changes nothing.
bool reads_state(const PyTypeObject* owner, std::string_view module, std::string_view name) {
  if (owner != nullptr) return name == "locked";
  static const Names others = {"getsizeof", "getrefcount"};  // of their arguments
  if (module == "_thread") return name == "get_ident" || name == "get_native_id" || name == "_count";
  return module == "sys" && (name.substr(0, 3) == "get" || name.substr(0, 3) == "is_") && !others.contains(name);
}

/// C code that gives parts of a state which no watch sees, or changes it.
bool hides_state(std::string_view module, std::string_view name) {
  static const Names asked = {"isenabled", "get_threshold", "is_tracked", "is_finalized"};
  if (module == "gc") return !asked.contains(name);
  if (module == "_abc") return name == "_abc_register" || name.substr(0, 6) == "_reset";
  return name == "getweakrefs" || name == "getweakrefcount" || name == "_current_frames";
}

bool reads_clock(const PyTypeObject* type, std::string_view name) {
  static const Names names = {"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp"};
  while (type != nullptr && std::strncmp(type->tp_name, "datetime.", 9) != 0) type = type->tp_base;
  return type != nullptr && names.contains(name);
}

/// Not of what is asked only for its type or identity.
bool reads_contents(PyObject* callable, std::string_view name) {
  static const Names names = {"isinstance", "issubclass", "callable", "id", "__instancecheck__", "__subclasscheck__"};
  return callable != reinterpret_cast<PyObject*>(&PyType_Type) && !names.contains(name);
}

bool is_container_type(PyTypeObject* type) {
  return PyType_IsSubtype(type, &PyList_Type) != 0 || PyType_IsSubtype(type, &PyDict_Type) != 0 ||
         PyType_IsSubtype(type, &PySet_Type) != 0 || is_deque_type(type);
}

/// C types whose methods never change anything.
bool is_immutable_type(PyTypeObject* type) {
  static const Names names = {"str",
                              "int",
                              "float",
                              "bool",
                              "bytes",
                              "complex",
                              "tuple",
                              "frozenset",
                              "range",
                              "slice",
                              "type",
                              "object",
                              "mappingproxy",
                              "re.Pattern",
                              "re.Match",
                              "code",
                              "function",
                              "method",
                              "property",
                              "NoneType",
                              "super",
                              "module",
                              "builtin_function_or_method",
                              "ellipsis",
                              "method_descriptor",
                              "wrapper_descriptor",
                              "getset_descriptor",
                              "generator",
                              "coroutine",
                              "functools.partial",
                              "types.GenericAlias",
                              "types.UnionType",
                              "torch.dtype",
                              "torch.device",
                              "torch.Size",
                              "torch.finfo",
                              "torch.iinfo",
                              "weakref.ReferenceType",
                              "staticmethod",
                              "classmethod",
                              "cell",
                              "Context",
                              "BaseException",
                              "_thread.RLock",
                              "_thread.lock",
                              "weakref",
                              "_contextvars.Context",
                              "Token",
                              "type_params",
                              "member_descriptor"};
  if (names.contains(type->tp_name) || is_dict_view(type->tp_name)) return true;
  return PyType_IsSubtype(type, &PyTuple_Type) != 0 || PyType_IsSubtype(type, &PyType_Type) != 0 ||
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

bool is_torch_name(std::string_view module) { return module.substr(0, 5) == "torch"; }

bool impure_torch(std::string_view name) {
  if (name == "_set_grad_enabled" || name == "set_grad_enabled") return false;
  return name.substr(0, 4) == "set_" || name.substr(0, 5) == "_set_" ||
         name.find("autocast") != std::string_view::npos || name.find("seed") != std::string_view::npos ||
         name.find("set_state") != std::string_view::npos || name.substr(0, 6) == "_push_" ||
         name.substr(0, 5) == "_pop_" || name == "_swap_tensor_impl";
}

bool is_impure_torch_switch(std::string_view name) {
  return impure_torch(name) && name.substr(0, 3) != "is_" && name.substr(0, 3) != "get" &&
         name.substr(0, 4) != "_is_" && name.substr(0, 4) != "_get";
}

/// torch.func's levels, forward-mode derivatives and torch-dispatch modes: tensors mean something else from there on.
bool enters_transform(std::string_view module, std::string_view name) {
  static const Names others = {"_enter_dual_level", "_exit_dual_level", "_push_on_torch_dispatch_stack",
                               "_pop_torch_dispatch_stack"};
  if (others.contains(name)) return true;
  return module == "torch._C._functorch" && name.substr(0, 3) != "is_" && name.substr(0, 4) != "get_" &&
         name.substr(0, 6) != "maybe_" && name.substr(0, 5) != "peek_";
}

/// Methods of tensors in C that modes for torch functions do not see, or not in all their forms: a test asks the host which.
bool is_unseen_method(std::string_view name) {
  static const Names names = {"set_",
                              "as_subclass",
                              "_autocast_to_full_precision",
                              "_autocast_to_reduced_precision",
                              "_fix_weakref",
                              "_rev_view_func_unsafe",
                              "_use_count",
                              "_view_func",
                              "_view_func_unsafe",
                              "__getstate__",
                              "__reduce__",
                              "__sizeof__"};
  return names.contains(name);
}

/// The engine of gradients, and nodes with a backward of the user's: they need real tensors.
bool needs_autograd(std::string_view name, const TorchApi& api) {
  return name == "run_backward" || name == "queue_callback" || (name == "apply" && api.grad_enabled());
}

}  // namespace

CallPlan CallTracing::plan_call(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  using Kind = CallPlan::Kind;
  CallPlan plan;
  if (PyFunction_Check(callable)) return {Kind::kEnter, nullptr, {}};
  if (PyMethod_Check(callable)) {
    PyObject* function = PyMethod_GET_FUNCTION(callable);
    if (PyFunction_Check(function)) return {Kind::kEnter, nullptr, {}};
    std::vector<PyObject*> with_self{PyMethod_GET_SELF(callable)};
    with_self.insert(with_self.end(), args, args + nargs);
    return plan_call(function, with_self.data(), nargs + 1);
  }
  if (PyType_Check(callable)) {
    const auto* type = reinterpret_cast<PyTypeObject*>(callable);
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
      const std::string_view name = type->tp_name;
      if (name.substr(0, 4) == "_io." || name == "numpy.ndarray") return {Kind::kBreak, nullptr, std::string(name)};
    }
    if (type == api_.tensor_type || type == api_.parameter_type ||
        (api_.present() && PyType_IsSubtype(const_cast<PyTypeObject*>(type), api_.base_type) != 0)) {
      return {Kind::kBreak, nullptr, std::string("constructor ") + type->tp_name};
    }
    return {Kind::kPure, nullptr, {}};
  }
  PyTypeObject* owner_type = nullptr;  // of the method
  PyObject* target = nullptr;
  std::string name, module;
  if (PyCFunction_Check(callable)) {
    for (PyObject* each : api_.has_torch_function) {
      if (each != callable) continue;
      for (Py_ssize_t i = 0; i < nargs; ++i) {
        if (api_.handles_calls(Py_TYPE(args[i]))) return {Kind::kPure, nullptr, {}};
        const bool items = PyTuple_Check(args[i]) || PyList_Check(args[i]);
        for (Py_ssize_t k = 0; items && k < PySequence_Fast_GET_SIZE(args[i]); ++k) {
          if (api_.handles_calls(Py_TYPE(PySequence_Fast_GET_ITEM(args[i], k)))) return {Kind::kPure, nullptr, {}};
        }
      }
      return {Kind::kFalse, nullptr, {}};
    }
    const auto* f = reinterpret_cast<PyCFunctionObject*>(callable);
    name = f->m_ml->ml_name;
    module = text_of(f->m_module);
    if (f->m_self == nullptr || PyModule_Check(f->m_self)) {
      if (module.empty() && f->m_self != nullptr) {
        const char* text = PyModule_GetName(f->m_self);
        if (text == nullptr) forget_error();
        module = text != nullptr ? text : "";
      }
    } else if (PyType_Check(f->m_self)) {
      // Tensors that no torch function makes: the trace would not know where they come from.
      const bool hidden = name == "_make_subclass" || name == "_make_wrapper_subclass";
      if (hidden || needs_autograd(name, api_)) return {Kind::kBreak, nullptr, name};
      if (is_torch_name(reinterpret_cast<PyTypeObject*>(f->m_self)->tp_name)) module = "torch";
      if (reads_clock(reinterpret_cast<PyTypeObject*>(f->m_self), name)) return {Kind::kBreak, nullptr, name};
      if (module.empty()) return {Kind::kPure, nullptr, name, nullptr};  // __new__, fromkeys, ...
    } else if (!PyCapsule_CheckExact(f->m_self) && module.empty()) {
      owner_type = Py_TYPE(f->m_self);
      target = f->m_self;
    }
  } else if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type ||
             Py_TYPE(callable) == &PyClassMethodDescr_Type) {
    const auto* d = reinterpret_cast<PyDescrObject*>(callable);
    owner_type = d->d_type;
    name = text_of(d->d_name);
    if (nargs > 0) target = args[0];
  } else if (std::strcmp(Py_TYPE(callable)->tp_name, "method-wrapper") == 0) {
    const Ref self = attr_or_null(callable, "__self__");
    target = self.get();  // the wrapper keeps it alive
    const Ref defined = attr_or_null(callable, "__objclass__");
    if (target != nullptr) owner_type = Py_TYPE(target);
    if (defined && PyType_Check(defined.get())) owner_type = reinterpret_cast<PyTypeObject*>(defined.get());
    name = name_of(callable);
  } else {
    const std::string_view type = Py_TYPE(callable)->tp_name;
    if (type == "functools.partial" || type == "functools._lru_cache_wrapper" || type == "operator.itemgetter" ||
        type == "operator.attrgetter" || type == "operator.methodcaller" || type == "types.GenericAlias" ||
        type == "tatara._core.CompiledFunction") {
      return {Kind::kPure, nullptr, {}};
    }
    if (PyWeakref_CheckRef(callable) && Py_TYPE(callable)->tp_call == _PyWeakref_RefType.tp_call) {
      plan.weak = callable;
      return plan;
    }
    if (type.find("ScriptFunction") != std::string_view::npos || type.find("ScriptMethod") != std::string_view::npos) {
      return {Kind::kBreak, nullptr, "a TorchScript function"};
    }
    PyObject* dunder = _PyType_Lookup(Py_TYPE(callable), PyUnicode_InternFromString("__call__"));
    if (dunder != nullptr && PyFunction_Check(dunder)) return {Kind::kEnter, nullptr, {}};
    return {Kind::kBreak, nullptr, "an object of type " + std::string(type)};
  }
  plan.name = name;
  if (owner_type != nullptr) {
    if (target != nullptr && api_.present() && api_.is_torch_tensor(target) && is_unseen_method(name)) {
      return {Kind::kBreak, nullptr, name};
    }
    if (name == "__getattribute__") {
      return {Kind::kAttribute, Py_TYPE(callable) == &PyWrapperDescr_Type ? nullptr : target, name};
    }
    if (api_.present() && PyType_IsSubtype(owner_type, api_.base_type) != 0) return {Kind::kTorch, nullptr, name};
    if (std::strcmp(owner_type->tp_name, "torch._C.Generator") == 0)
      return {Kind::kBreak, nullptr, "Generator." + name};
    if (is_torch_name(owner_type->tp_name) && !is_immutable_type(owner_type)) {
      if (is_impure_torch_switch(name) || needs_autograd(name, api_)) return {Kind::kBreak, nullptr, name};
      return {Kind::kTorch, nullptr, name};
    }
    if (name == "__call__" && target != nullptr && PyWeakref_CheckRef(target)) {
      plan.weak = target;
      return plan;
    }
    if (is_context_variable(owner_type)) {
      plan.variable = target;
      plan.watched = name == "get";
      return plan;
    }
    if (owner_type == &PyType_Type && (name == "__setattr__" || name == "__delattr__")) {
      if (Py_TYPE(callable) == &PyWrapperDescr_Type) return {Kind::kMutator, target, name, nullptr};
      if (target == nullptr || !born(target)) return {Kind::kBreak, nullptr, "type." + name};
    }
    if (mutator_names().contains(name) && target != nullptr && !PyType_Check(target)) {
      if (name == "__init__" && owner_type == &PyBaseObject_Type) return {Kind::kPure, nullptr, name};
      const bool mutable_base =
          is_container_type(owner_type) || owner_type == &PyBaseObject_Type || !is_immutable_type(owner_type);
      if (mutable_base) return {Kind::kMutator, target, name, owner_type};
    }
    if (is_container_type(owner_type) || is_immutable_type(owner_type)) {
      return {Kind::kPure, target, name, nullptr, reads_state(owner_type, {}, name)};
    }
    // Iterators' own methods, hashes and comparisons of any type.
    if (name.size() > 4 && name.substr(0, 2) == "__" && name != "__next__") return {Kind::kPure, target, name};
    return {Kind::kBreak, nullptr, std::string(owner_type->tp_name) + "." + name};
  }
  if (is_torch_name(module)) {
    // Other processes wait for these: reducers, stores, collectives.
    if (module.rfind("torch._C._distributed", 0) == 0) return {Kind::kBreak, nullptr, module + "." + name};
    if (enters_transform(module, name)) return {Kind::kBreak, nullptr, module + "." + name};
    if (is_thrown_switch(name)) return {Kind::kSwitch, nullptr, name};
    // On the program's stack of modes there is none: a trace does not begin under one.
    if (name == "_is_torch_function_mode_enabled") return {Kind::kFalse, nullptr, name};
    if (name == "_len_torch_function_stack" || name == "_get_function_stack_at") return {Kind::kModes, nullptr, name};
    // The compiler of torch itself, which is off, is switched off around a function.
    if (name == "set_eval_frame" && nargs == 1 && args[0] == Py_None) return {Kind::kPure, nullptr, name};
    if (is_impure_torch_switch(name) || needs_autograd(name, api_)) return {Kind::kBreak, nullptr, module + "." + name};
    return {Kind::kTorch, nullptr, name};
  }
  if (module == "builtins") {
    if (impure_builtins().contains(name)) return {Kind::kBreak, nullptr, name};
    if (name == "getattr" || name == "hasattr") return {Kind::kAttribute, nullptr, name};
    if (name == "setattr" || name == "delattr") return {Kind::kMutator, nargs > 0 ? args[0] : nullptr, name, nullptr};
    if (name == "next") return {Kind::kPure, nullptr, name};
    return {Kind::kPure, nullptr, name};
  }
  if (name == "is_compiling" && module == "tatara._core") return {Kind::kPure, nullptr, name};
  if (std::string method = changes_first(module, name); !method.empty() && nargs > 0 && !api_.is_tensor(args[0])) {
    PyTypeObject* type = Py_TYPE(args[0]);
    const bool python =
        (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !is_container_type(type);  // the VM sees its methods
    if (!is_immutable_type(type) && !is_atom(args[0], api_) && !python) {
      return {Kind::kMutator, args[0], std::move(method), type, false, nullptr, nullptr, true};
    }
  }
  if (module == "sys" && (name == "exc_info" || name == "exception") && !knows_handled()) {
    return {Kind::kBreak, nullptr, "sys." + name + ", where a caller handles an exception"};
  }
  if (pure_modules().contains(module) && !switches_something(module, name) && !hides_state(module, name)) {
    return {Kind::kPure, nullptr, name, nullptr, reads_state(nullptr, module, name)};
  }
  return {Kind::kBreak, nullptr, module.empty() ? name : module + "." + name};
}

bool CallTracing::knows_handled() {
  const Ref handled = Ref::steal(PyErr_GetHandledException());
  if (handled.get() != trace_->start.exception.get()) return true;
  if (!handled) trace_->watches.nothing_handled();
  return !handled;
}

int Tracer::raise_handled(Frame&) {
  return !tracing() || calls().knows_handled() || graph_break("raise of what a caller handles") ? kNotHandled : -1;
}

namespace {

/// Code in C that looks at its operands' items, but not into these.
bool reads_items_only(PyObject* callable, std::string_view name) {
  static const Names names = {"len",         "iter",         "next",         "getattr",    "hasattr",
                              "keys",        "values",       "items",        "get",        "copy",
                              "append",      "add",          "extend",       "__len__",    "__iter__",
                              "__getitem__", "__contains__", "__reversed__", "appendleft", "setdefault",
                              "__init__",    "__new__",      "insert",       "update",     "__setitem__"};
  if (!PyType_Check(callable)) return names.contains(name);
  static const Names types = {"list",
                              "tuple",
                              "enumerate",
                              "reversed",
                              "zip",
                              "dict_keys",
                              "collections.deque",
                              "super",
                              "itertools.chain",
                              "itertools.islice",
                              "itertools.repeat",
                              "itertools.zip_longest",
                              "type",
                              "property",
                              "staticmethod",
                              "classmethod",
                              "method",
                              "functools.partial",
                              "mappingproxy",
                              "weakref",
                              "weakref.ReferenceType",
                              "cell",
                              "object",
                              "slice",
                              "types.SimpleNamespace"};
  const auto* type = reinterpret_cast<const PyTypeObject*>(callable);
  return types.contains(type->tp_name) || is_python_made(type);
}

/// Code in C that looks for its operands, or compares them.
bool compares(PyObject* callable, std::string_view name) {
  static const Names names = {"index", "count", "remove", "indexOf", "countOf", "contains",
                              "eq",    "ne",    "hash",   "is_",     "is_not"};
  static const Names types = {"set", "frozenset", "collections.Counter"};
  if (PyType_Check(callable)) return types.contains(reinterpret_cast<const PyTypeObject*>(callable)->tp_name);
  return names.contains(name) || name == "__eq__" || name == "__ne__" || name == "__hash__";
}

}  // namespace

Reading ReadTracing::how_read(PyObject* callable, std::string_view name) {
  if (compares(callable, name)) return Reading::kEqual;
  return reads_items_only(callable, name) ? Reading::kItems : Reading::kAll;
}

/// The operands whose identity alone may decide what comes back: that of `id`, and what is a key of a dict or set.
void ReadTracing::pin_operands(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  const bool table = plan.target != nullptr && (PyDict_Check(plan.target) || PyAnySet_Check(plan.target));
  if (plan.name == "is_" || plan.name == "is_not") {
    for (Py_ssize_t i = 0; i < nargs; ++i) origins().pin(args[i]);
  }
  if (!table && plan.name != "id") return;
  const Py_ssize_t at = !table || PyCFunction_Check(callable) ? 0 : 1;
  if (at < nargs) origins().pin(args[at]);
}

/// A call of code in C: what it may read becomes a guard. False with a Python error set; the graph may be broken.
bool ReadTracing::watch_operands(PyObject* callable, const CallPlan& plan, PyObject* const* args, Py_ssize_t nargs,
                                 Py_ssize_t keywords) {
  if (PyType_Check(callable)) watch_class_of(callable);
  if (PyType_Check(callable) && is_python_made(reinterpret_cast<PyTypeObject*>(callable)) && !born(callable)) {
    static PyObject* const maker = PyUnicode_InternFromString("__new__");
    trace_->watches.type(callable, maker);
  }
  if (!reads_contents(callable, plan.name)) {
    for (Py_ssize_t i = 0; i < nargs; ++i) watch_class_of(args[i]);
    if (callable == reinterpret_cast<PyObject*>(&PyType_Type) && nargs == 1) {
      origins().find(reinterpret_cast<PyObject*>(Py_TYPE(args[0])));
    }
    return true;
  }
  const Reading reading = how_read(callable, plan.name);
  if (plan.target != nullptr && !watch_contents(plan.target, reading)) return false;
  const bool plain = PyType_Check(callable) || is_cached_function(callable);
  if (tracing() && !plain && !watch_contents(callable, Reading::kAll)) return false;
  for (Py_ssize_t i = 0; i < nargs + keywords && tracing(); ++i) {
    if (!watch_contents(args[i], reading)) return false;
    if (PyType_Check(callable) && tracing() && !watch_contents(args[i], Reading::kItems)) return false;
  }
  return true;
}

bool ReadTracing::reads_one_key(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  if (plan.target == nullptr || !PyDict_CheckExact(plan.target)) return false;
  if (plan.name != "get" && plan.name != "__getitem__" && plan.name != "__contains__") return false;
  const Py_ssize_t at = PyCFunction_Check(callable) ? 0 : 1;
  if (nargs <= at || !is_atom(args[at], api_)) return false;
  if (!born(plan.target) && !origins().contents_guarded(plan.target)) trace_->watches.dict_key(plan.target, args[at]);
  return true;
}

/// GradScaler.update(), which ends with a new dict for its optimizers: the old one, emptied, takes its place, so that the
/// next call finds the object that it found before.
PyObject* TorchTracing::update_scaler(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* function = PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable;
  PyObject* self = PyMethod_Check(callable) ? PyMethod_GET_SELF(callable) : nargs > 0 ? args[0] : nullptr;
  if (self == nullptr || !PyFunction_Check(function)) return not_handled();
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (PyUnicode_CompareWithASCIIString(code->co_name, "update") != 0 ||
      !std::string_view(text_of(code->co_filename)).ends_with("/torch/amp/grad_scaler.py")) {
    return not_handled();
  }
  Ref states, ours;
  {
    const Bypass bypass(bypass_);
    states = attr_or_null(self, "_per_optimizer_states");
    ours = package_function(PackageFunction::kKeepStates);
  }
  Ref result = Ref::steal(PyObject_Vectorcall(callable, args, static_cast<size_t>(nargs), kwnames));
  if (!result || !states) return result.release();
  const Ref kept = Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), self, states.get(), nullptr));
  return kept ? result.release() : nullptr;
}

/// Our function in place of the host's. With gradients on the host's optimizers say what they say.
PyObject* TorchTracing::stand_in(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (!PyCFunction_Check(callable)) return not_handled();
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  // Operators on lists of tensors that the package has in parts.
  const std::optional<PackageFunction> parts = package_named(PackageModule::kOptimizers, name);
  if (!parts || !package_entry(*parts).stand_in) return not_handled();
  Ref ours;
  {
    const Bypass bypass(bypass_);
    const bool scaler = name.substr(0, 5) == "_amp_";
    if (scaler || !api_.grad_enabled()) ours = package_function(*parts);
  }
  return ours ? PyObject_Vectorcall(ours.get(), args, static_cast<size_t>(nargs), kwnames) : not_handled();
}

PyObject* Tracer::call(Frame& f, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!tracing()) return not_handled();
  using Kind = CallPlan::Kind;
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  if (callable == reinterpret_cast<PyObject*>(&PyFloat_Type) && nargs == 1 && keywords == 0 &&
      api_.is_torch_tensor(args[0]) && api_.is_plain_tensor(args[0])) {
    // float(): what a tensor's method returns would have to be a plain float.
    static PyObject* const method = attr(reinterpret_cast<PyObject*>(api_.base_type), "__float__").release();
    PyObject* counter = numbers().item_number(method, args[0]);
    if (counter != nullptr || PyErr_Occurred() != nullptr) return counter;
  }
  if (gradients().is_engine_call(callable)) {
    const Ref positional = Ref::steal(PyTuple_New(nargs)), named = Ref::steal(PyDict_New());
    for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; i < keywords; ++i) {
      PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]);
    }
    return gradients().run_backward(positional.get(), named.get());
  }
  if (keywords == 0) {
    if (PyObject* done = gradients().register_hook(f, callable, args, nargs); done != not_handled()) return done;
  }
  if (keywords == 0 && FunctionTracing::is_function_apply(callable)) {
    PyObject* done = functions().apply_function(callable, args, nargs);
    if (done != not_handled() || !tracing()) return done;
  }
  if (const TransformCall kind = transform_call_of(callable); kind != TransformCall::kNone) {
    PyObject* done = transforms().transform_call(kind, callable, args, nargs, kwnames);
    if (done != not_handled() || !tracing()) return done;
  }
  if (PyObject* done = torch().update_scaler(callable, args, nargs, kwnames); done != not_handled() || !tracing())
    return done;
  if (PyObject* done = torch().stand_in(callable, args, nargs, kwnames); done != not_handled() || !tracing())
    return done;
  if (!PyFunction_Check(callable) && numbers().symbolic_arguments(callable, args, nargs + keywords)) {
    const Ref positional = Ref::steal(PyTuple_New(nargs)), named = Ref::steal(keywords > 0 ? PyDict_New() : nullptr);
    for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; i < keywords; ++i) {
      PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]);
    }
    PyObject* result = numbers().symbolic_call(callable, positional.get(), named.get());
    if (result != not_handled()) return result;
  }
  if (PyObject* done = numpy().numpy_vectorcall(callable, args, nargs, kwnames); done != not_handled()) return done;
  if (!tracing()) return not_handled();
  if (const std::string life = lifetimes().starts_life(callable, args, nargs); !life.empty()) {
    return lifetimes().break_for_good(life) ? not_handled() : nullptr;
  }
  if (const std::string guard = calls().enters_guard(f, callable, args, nargs); !guard.empty()) {
    return graph_break(guard) ? not_handled() : nullptr;
  }
  const CallPlan plan = calls().plan_call(callable, args, nargs);
  if (PyObject* done = numbers().identity_of_numbers(callable, plan.name, args, nargs); done != not_handled())
    return done;
  if (plan.kind == Kind::kPure || plan.kind == Kind::kMutator || (plan.kind == Kind::kBreak && calls().in_cached())) {
    numbers().settle_arguments(callable, args, nargs, keywords);
    if (!tracing()) return not_handled();
  }
  if (plan.kind != Kind::kEnter && plan.kind != Kind::kAttribute && plan.kind != Kind::kBreak &&
      reads_contents(callable, plan.name)) {
    if (!reads().break_if_moved(plan.target) || !reads().break_if_moved(callable, args, nargs + keywords))
      return nullptr;
    if (!tracing()) return not_handled();
  }
  reads().pin_operands(plan, callable, args, nargs);
  switch (plan.kind) {
    case Kind::kEnter:
      if (PyMethod_Check(callable)) origins().find_parts(callable);
      reads().watch_class_of(callable);
      return not_handled();
    case Kind::kTorch:
      return plan.name == "_group_tensors_by_device_and_dtype" ? torch().group_tensors(args, nargs) : not_handled();
    case Kind::kFalse: return Py_NewRef(Py_False);
    case Kind::kModes: return modes().ask_modes(callable, args, nargsf, kwnames);
    case Kind::kAttribute: {
      PyObject* found = reads().call_attribute(plan.target, args, nargs);
      if (found != not_handled() || !tracing() || keywords > 0) return found;
      found = PyObject_Vectorcall(callable, args, nargsf, kwnames);
      PyObject* const* operands = plan.target != nullptr ? args - 1 : args;  // the owner, then the name
      PyObject* owner = plan.target != nullptr ? plan.target : nargs > 0 ? args[0] : nullptr;
      if (found == nullptr || owner == nullptr || operands + 1 >= args + nargs || PyBool_Check(found)) return found;
      if (obtained(f, Obtained::kAttribute, owner, operands[1], found) == 0) return found;
      Py_DECREF(found);
      return nullptr;
    }
    case Kind::kMutator: {
      const auto perform = [=] { return PyObject_Vectorcall(callable, args, nargsf, kwnames); };
      return writes().call_mutator(f, callable, plan, {args, static_cast<size_t>(nargs)}, keywords > 0, perform);
    }
    case Kind::kSwitch: return writes().throw_switch(callable, args, nargs, keywords);
    case Kind::kBreak: {
      if ((plan.name == "print" || plan.name == "_warnings.warn") && PyCFunction_Check(callable) &&
          calls().says_once({args, static_cast<size_t>(nargs + keywords)})) {
        const Bypass bypass(bypass_);
        return PyObject_Vectorcall(callable, args, nargsf, kwnames);
      }
      return graph_break("call of " + plan.name) ? not_handled() : nullptr;
    }
    case Kind::kPure: break;
  }
  if (reads_contents(callable, plan.name)) {
    // Code in C is about to call, or to keep, what changes something, and nobody would see it.
    bool hidden = is_partial(callable) && calls().hides_change(callable);
    for (Py_ssize_t i = 0; i < nargs + keywords && !hidden; ++i) hidden = calls().hides_change(args[i]);
    if (hidden) {
      return graph_break("a method in C that changes what existed before, called by code in C") ? not_handled()
                                                                                                : nullptr;
    }
  }
  const bool keyed = reads().reads_one_key(plan, callable, args, nargs);
  if (!keyed && !reads().watch_operands(callable, plan, args, nargs, keywords)) return nullptr;
  if (!tracing()) return not_handled();
  if ((plan.name == "vars" || plan.name == "dir") && nargs == 1) reads().watch_all(args[0]);
  if (plan.name.empty() && nargs == 1) reads().watch_getter(callable, args[0]);
  if (PyCFunction_Check(callable) &&
      std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "__build_class__") == 0) {
    PyObject* made = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    if (made != nullptr && tracing() && PyType_Check(made)) mark_born(made);
    return made;
  }
  // super() and locals() look at the running frame, which is the program's own also here.
  const NumpyTracing::Reader reader(numpy(), callable);
  PyObject* result = is_cached_function(callable) && !born(callable)
                         ? calls().call_cached(callable, {args, static_cast<size_t>(nargs + keywords)}, nargsf, kwnames)
                         : PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (result == nullptr || result == not_handled() || !tracing()) return result;
  origins().pin_keys(result);
  if (plan.variable != nullptr &&
      calls().note_context(plan.variable, plan.name, nargs > 0 ? args[nargs - 1] : nullptr, result))
    return result;
  if (plan.weak != nullptr && !born(plan.weak)) {
    trace_->watches.weak(plan.weak, result);
    trace_->alive.push_back(Ref::borrow(result));
  } else if (plan.watched && keywords == 0 && !born(result)) {
    trace_->watches.call(callable, args, static_cast<size_t>(nargs), result);
  } else {
    origins().note_result(result);
    if (callable == reinterpret_cast<PyObject*>(&PyType_Type) && nargs == 3) mark_born(result);
  }
  return result;
}

bool CallTracing::hides_change(PyObject* o) const {
  if (is_partial(o)) {
    const Ref function = attr_or_null(o, "func");
    return function && hides_change(function.get());
  }
  if (PyCFunction_Check(o)) {
    const auto* f = reinterpret_cast<PyCFunctionObject*>(o);
    PyObject* self = bound_to(o);
    if (self == nullptr) return !changes_first(text_of(f->m_module), f->m_ml->ml_name).empty();
    if (api_.is_torch_tensor(self)) return is_unseen_method(f->m_ml->ml_name);
    return is_container_type(Py_TYPE(self)) && mutator_names().contains(f->m_ml->ml_name) && !born(self);
  }
  if (Py_TYPE(o) != &PyMethodDescr_Type && Py_TYPE(o) != &PyWrapperDescr_Type) return false;
  const auto* d = reinterpret_cast<PyDescrObject*>(o);
  if (api_.present() && d->d_type == api_.base_type) return is_unseen_method(text_of(d->d_name));
  return is_container_type(d->d_type) && mutator_names().contains(text_of(d->d_name));
}

PyObject* CallTracing::call_cached(PyObject* callable, std::span<PyObject* const> args, size_t nargsf,
                                   PyObject* kwnames) {
  for (PyObject* each : args) {
    // The cache would keep a placeholder, or know the tensor of this one call.
    if (api_.is_tensor(each)) {
      return graph_break("a function with a cache (functools.lru_cache) gets a tensor") ? not_handled() : nullptr;
    }
  }
  for (PyObject* part : referents(callable)) {
    if (!PyDict_Check(part)) origins().find(part);  // what it wraps
  }
  const std::shared_ptr<int> running = own_.cached_calls;  // the trace may be closed below
  const size_t nodes = trace_->tape.nodes().size();
  if (*running == 0) own_.said_once = false;
  ++*running;
  Ref result = Ref::steal(PyObject_Vectorcall(callable, args.data(), nargsf, kwnames));
  --*running;
  const bool same_trace = tracing() && running == own_.cached_calls;
  if (result && same_trace && *running == 0 && trace_->tape.nodes().size() != nodes) {
    // Later calls get this very tensor.
    trace_->transaction.on_undo([cache = Ref::borrow(callable)] {
      return static_cast<bool>(Ref::steal(PyObject_CallMethod(cache.get(), "cache_clear", nullptr)));
    });
    if (!graph_break("a function with a cache (functools.lru_cache) made a tensor")) return nullptr;
  }
  if (result && same_trace && tracing()) watch_cached(callable, args, kwnames, result.get());
  if (!result && same_trace && *running == 0 && own_.said_once) {
    // Errors are not kept in the cache: the next call says it again.
    const ErrorAside aside;
    if (!graph_break("a function with a cache (functools.lru_cache) says something and raises")) postpone_error();
  }
  return result.release();
}

namespace {

/// Whether a cache has its result of a call with these arguments under `key` (as functools.lru_cache makes them).
bool is_key_of(PyObject* key, std::span<PyObject* const> args, PyObject* kwnames) {
  const auto same = [](PyObject* a, PyObject* b) {
    const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) forget_error();
    return equal == 1;
  };
  const auto names = static_cast<size_t>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  const size_t positional = args.size() - names;
  if (names == 0 && positional == 1 && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0])) &&
      same(key, args[0])) {
    return true;
  }
  if (!PyTuple_Check(key)) return false;
  const auto size = static_cast<size_t>(PyTuple_GET_SIZE(key));
  if (size < positional + (names > 0 ? 1 + 2 * names : 0)) return false;
  for (size_t i = 0; i < positional; ++i) {
    if (!same(PyTuple_GET_ITEM(key, static_cast<Py_ssize_t>(i)), args[i])) return false;
  }
  for (size_t i = 0; i < names; ++i) {  // behind a mark
    const auto at = static_cast<Py_ssize_t>(positional + 1 + 2 * i);
    if (!same(PyTuple_GET_ITEM(key, at), PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i))) ||
        !same(PyTuple_GET_ITEM(key, at + 1), args[positional + i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

/// Later calls find in the cache what this one has found there, or left there.
void CallTracing::watch_cached(PyObject* callable, std::span<PyObject* const> args, PyObject* kwnames,
                               PyObject* result) {
  PyObject* cache = cache_of(callable);
  const Bypass bypass(bypass_);  // keys may be compared by the program's code
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  std::vector<std::pair<Ref, Ref>> places;
  while (cache != nullptr && PyDict_Next(cache, &at, &key, &value) != 0) {
    if (is_cached(value, result)) places.emplace_back(Ref::borrow(key), Ref::borrow(value));
  }
  for (const auto& [place, held] : places) {
    if (!is_key_of(place.get(), args, kwnames)) continue;
    for (PyObject* each : args) origins().pin(each);
    trace_->watches.cached(cache, place.get(), held.get(), result);
    origins().outlives(result);
    return;
  }
}

bool CallTracing::says_once(std::span<PyObject* const> args) {
  if (*own_.cached_calls == 0 || context_.ahead != nullptr || context_.looking) return false;
  const std::function<bool(PyObject*)> plain = [&](PyObject* o) {
    if (is_atom(o, api_)) return true;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
        if (!plain(PySequence_Fast_GET_ITEM(o, i))) return false;
      }
      return true;
    }
    return !api_.is_tensor(o) && !is_symbolic_number(o) && !PyDict_Check(o) && !born(o);
  };
  for (PyObject* each : args) {
    if (each != nullptr && !plain(each)) return false;
  }
  own_.said_once = true;
  return true;
}

bool CallTracing::logs(const Frame& f) {
  const PyCodeObject* code = f.code();
  const bool asks = PyUnicode_CompareWithASCIIString(code->co_qualname, "Logger.isEnabledFor") == 0;
  if (!asks && PyUnicode_CompareWithASCIIString(code->co_qualname, "Logger._log") != 0) return false;
  if (!std::string_view(text_of(code->co_filename)).ends_with("/logging/__init__.py")) return false;
  if (!asks) {
    std::vector<PyObject*> args;
    for (int i = 1; i < code->co_argcount; ++i) args.push_back(f.local(i));
    return says_once(args);
  }
  // A logger notes per level what it found out. It does now, so that the trace reads what later calls read.
  if (f.local(0) != nullptr && !born(f.local(0)) && f.local(1) != nullptr && is_atom(f.local(1), api_) &&
      f.function() != nullptr) {
    const Bypass bypass(bypass_);
    const Ref known = Ref::steal(PyObject_CallFunctionObjArgs(f.function(), f.local(0), f.local(1), nullptr));
    if (!known) forget_error();  // the traced call is about to raise it
  }
  return false;
}

/// getattr and the like: of `target`, or of the first argument.
PyObject* ReadTracing::call_attribute(PyObject* target, PyObject* const* args, Py_ssize_t nargs) {
  if (target == nullptr && nargs > 0) {
    target = *args++;
    --nargs;
  }
  if (target == nullptr || nargs < 1 || !PyUnicode_Check(args[0])) return not_handled();
  if (!break_if_state(target, args[0])) return nullptr;
  if (tracing()) watch_lookup(target, args[0]);
  return not_handled();
}

/// operator.attrgetter and methodcaller look names up, itemgetter looks into a container.
void ReadTracing::watch_getter(PyObject* getter, PyObject* owner) {
  const char* type = Py_TYPE(getter)->tp_name;
  if (std::strcmp(type, "operator.itemgetter") == 0) return;
  const bool attributes = std::strcmp(type, "operator.attrgetter") == 0;
  if (!attributes && std::strcmp(type, "operator.methodcaller") != 0) return;
  const Ref reduced = Ref::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));  // (type, names)
  PyObject* names = reduced && PyTuple_GET_SIZE(reduced.get()) > 1 ? PyTuple_GET_ITEM(reduced.get(), 1) : nullptr;
  forget_error();
  for (Py_ssize_t i = 0; names != nullptr && PyTuple_Check(names) && i < PyTuple_GET_SIZE(names); ++i) {
    Ref at = Ref::borrow(owner);
    const Ref dot = Ref::steal(PyUnicode_FromString("."));
    const Ref path = Ref::steal(PyUnicode_Split(PyTuple_GET_ITEM(names, i), dot.get(), -1));
    for (Py_ssize_t k = 0; at && path && k < PyList_GET_SIZE(path.get()); ++k) {
      watch_lookup(at.get(), PyList_GET_ITEM(path.get(), k));
      at = Ref::steal(PyObject_GetAttr(at.get(), PyList_GET_ITEM(path.get(), k)));
    }
    forget_error();
    if (!attributes) return;
  }
}

/// A context variable is set or reset for real; undone by the program itself as long as the trace holds both. True also
/// for a read of one that the trace has set, which says nothing of the state before.
bool CallTracing::note_context(PyObject* variable, const std::string& method, PyObject* given, PyObject* result) {
  std::unordered_map<PyObject*, int>& open = own_.open_context_vars;
  if (method != "set" && method != "reset") return open.contains(variable);
  if (method == "set") {
    trace_->transaction.on_undo([held = Ref::borrow(variable), token = Ref::borrow(result)] {
      // A token that the program has used itself has no say any more.
      if (!Ref::steal(PyObject_CallMethod(held.get(), "reset", "O", token.get()))) forget_error();
      return true;
    });
    mark_born(result);
  } else if (!born(given)) {
    trace_->transaction.lose("a context variable has its value of before the trace back");
  }
  int& count = open[variable];
  count += method == "set" ? 1 : -1;
  if (count == 0) open.erase(variable);
  return true;
}

/// As a vectorcall of what the sequence and the mapping hold.
PyObject* Tracer::call_ex(Frame& f, PyObject* callable, PyObject* args, PyObject* kwargs) {
  if (!tracing()) return not_handled();
  if (numpy().numpy_value(args)) return numpy().numpy_break("an array is unpacked");
  if (!reads().break_if_moved(args)) return nullptr;
  if (!tracing()) return not_handled();
  const bool iterable = Py_TYPE(args)->tp_iter != nullptr || PySequence_Check(args) != 0;
  if (!iterable || (kwargs != nullptr && !PyDict_CheckExact(kwargs))) return not_handled();  // an error in the program
  if (Py_TYPE(args)->tp_iternext != nullptr) {
    // Break before it is moved on where the call breaks in any case: the entry then resumes here.
    const CallPlan plan = calls().plan_call(callable, nullptr, 0);
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
  PyObject* result = named ? call(f, callable, all.data(), static_cast<size_t>(count), names.get()) : not_handled();
  // What the program handed over is read already.
  return result != not_handled() ? result : PyObject_Call(callable, items.get(), kwargs);
}

}  // namespace tatara::capture
