#include "capture/compiled_function.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <unordered_set>

#include "capture/entries/capture_log.h"
#include "capture/entries/compiled_object.h"
#include "capture/entries/stats.h"
#include "capture/host/numpy_alone.h"
#include "capture/host/package.h"
#include "capture/host/torch_native.h"
#include "capture/native/native_loops.h"
#include "capture/python/call_scratch.h"
#include "capture/run/graph_object.h"
#include "capture/tape/tape_counts.h"
#include "capture/trace/tracer.h"
#include "capture/vm/interrupts.h"
#include "runtime/base/cache.h"
#include "runtime/host/gemm.h"
#include "runtime/plan/executable.h"
#include "support/options.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

std::unordered_set<CompiledFunction*>& all_functions() {
  static std::unordered_set<CompiledFunction*> all;
  return all;
}

CompiledFunction* cast(PyObject* object) { return reinterpret_cast<CompiledFunction*>(object); }

PyObject* call_original(CompiledFunction* c, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return PyObject_Vectorcall(c->function, args, nargsf, kwnames);
}

/// Runs an entry that ends in a return value. Null with a Python error set, or without one: the program is to run instead.
PyObject* run_entry(Entry& entry, CallScratch::Lease& call, TorchApi& api) {
  entry.tape->fill_inputs(call->objects, call->env);
  std::vector<Ref> held;
  entry.reconstruction.hold(call->objects, held);
  if (!entry.reconstruction.read_symbols(call->objects, call->symbols)) return nullptr;
  if (const Entry::Ran ran = entry.run(call->env, api); ran != Entry::Ran::kDone) {
    if (ran == Entry::Ran::kAgain) call->env.clear();
    return nullptr;
  }
  const int slot = entry.reconstruction.single_tensor();
  Ref result;
  if (slot >= 0) {
    result = std::move(call->env[static_cast<size_t>(slot)]);
  } else {
    if (!entry.reconstruction.build(call->env, call->objects, call->symbols, call->made)) return nullptr;
    if (!entry.effects.replay(call->made)) return nullptr;
    result = std::move(call->made[0]);
  }
  if (entry.at_end.grad) {
    const Ref done =
        Ref::steal(PyObject_CallOneArg(api.state.set_grad_enabled.get(), *entry.at_end.grad ? Py_True : Py_False));
    if (!done) return nullptr;
  }
  return result.release();
}

/// What the guards of a call look at: the arguments, then what else decides how they are bound.
void collect_roots(const CompiledFunction* c, PyObject* const* args, size_t total, PyObject* kwnames,
                   std::vector<PyObject*>& roots) {
  auto* function = reinterpret_cast<PyFunctionObject*>(c->function);
  roots.assign(args, args + total);
  roots.push_back(kwnames);
  roots.push_back(function->func_defaults);
  roots.push_back(function->func_kwdefaults);
}

/// A call with tensors of a transform that was entered outside of compiled code; not_handled(): it is to run in eager.
PyObject* call_around(CompiledFunction* c, PyObject* const* args, size_t total, PyObject* kwnames) {
  const auto named = static_cast<size_t>(kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  const Ref positional = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(total - named)));
  const Ref keywords = Ref::steal(PyDict_New());
  for (size_t i = 0; i < total - named; ++i) {
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  }
  for (size_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i));
    if (PyDict_SetItem(keywords.get(), name, args[total - named + i]) != 0) return nullptr;
  }
  return call_package<PackageFunction::kAroundCall>(reinterpret_cast<PyObject*>(c), positional.get(), keywords.get())
      .release();
}

/// Says, when the outermost trace is over, what the disk cache has to say. A filter that makes errors of warnings does not make the
/// program fail: its result does not depend on the cache.
class CacheWarnings {
 public:
  CacheWarnings() = default;
  CacheWarnings(const CacheWarnings&) = delete;
  CacheWarnings& operator=(const CacheWarnings&) = delete;
  ~CacheWarnings() {
    if (Tracer::current() != nullptr) return;
    const SignalsWait wait;
    for (const std::string& text : take_cache_warnings()) {
      const ErrorAside aside;
      if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) PyErr_WriteUnraisable(nullptr);
    }
  }
};

/// A call while torch is in a state in which nothing is traced (transforms, modes, other compilers at work); not_handled():
/// it is in none.
PyObject* call_in_eager(CompiledFunction* c, PyObject* const* args, size_t nargsf, PyObject* kwnames, TorchApi& api,
                        std::optional<SignalsWait>& wait) {
  TraceOwner& owner = *c->owner;
  const GlobalState state = GlobalState::read(api);
  std::string waits = state.waits_for(true);
  const bool plain =
      !owner.backend && !owner.eager_backend && owner.options.empty() && owner.dynamic == DynamicMode::kAuto;
  if (waits.empty() && plain && (state.transformed || state.dual)) {
    wait.reset();
    const Py_ssize_t named = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
    const Ref result =
        Ref::steal(call_around(c, args, static_cast<size_t>(PyVectorcall_NARGS(nargsf) + named), kwnames));
    if (!result) return nullptr;
    return result.get() != Py_NotImplemented ? Py_NewRef(result.get()) : call_original(c, args, nargsf, kwnames);
  }
  if (waits.empty()) waits = state.waits_for(false);
  if (waits.empty()) return not_handled();
  owner.note_unfit(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(c->function)), 0, waits);
  if (PyErr_Occurred() != nullptr) return nullptr;
  ++stats().fallbacks;
  wait.reset();
  return call_original(c, args, nargsf, kwnames);
}

/// A call where torch lacks what capture needs.
PyObject* call_without(CompiledFunction* c, const TorchApi& api, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  c->owner->note_unfit(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(c->function)), 0, api.lacks);
  if (PyErr_Occurred() != nullptr) return nullptr;  // fullgraph
  return call_original(c, args, nargsf, kwnames);
}

/// What a call has found in the cache of entries.
struct Found {
  enum class Next : uint8_t {
    kDone,      // `result` is the call's (null with a Python error set)
    kOriginal,  // the program itself runs
    kMissed,
    kTrace,
  } next = Next::kMissed;
  PyObject* result = nullptr;
  std::shared_ptr<Entry> entry = nullptr;
};

/// Looks for an entry, and runs it if it ends in a return. `failed` says which guard did not hold.
Found find_and_run(TraceOwner& owner, PyObject* code, CallScratch::Lease& call, TorchApi& api, std::string* failed) {
  using Next = Found::Next;
  std::shared_ptr<Entry> entry =
      owner.cache.find(code, 0, call->roots.data(), call->roots.size(), api, call->objects, failed);
  if (entry == nullptr) return {owner.leaves_alone(code, call->roots) ? Next::kOriginal : Next::kMissed};
  ++stats().guard_hits;
  if (entry->end == Entry::End::kEager && !entry->callees) return {Next::kOriginal};
  if (entry->end != Entry::End::kReturn) return {Next::kTrace, nullptr, std::move(entry)};
  PyObject* result = or_postponed(run_entry(*entry, call, api));
  // An operator fails: the program does what is before it, and has its own error.
  return {result != nullptr || PyErr_Occurred() != nullptr ? Next::kDone : Next::kOriginal, result};
}

/// A call within a trace, which goes through the original. A graph that is to be whole is that there, too.
PyObject* call_within(Tracer& tracer, CompiledFunction* c, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!c->owner->fullgraph) return call_original(c, args, nargsf, kwnames);
  tracer.run_whole(*c, true);
  PyObject* result = call_original(c, args, nargsf, kwnames);
  tracer.run_whole(*c, false);
  return result;
}

/// The state of one call: looks for an entry, else traces.
PyObject* call_compiled(CompiledFunction* c, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Tracer* current = Tracer::current();
  if ((disabled_here() && !numpy_alone()) || !PyFunction_Check(c->function))
    return call_original(c, args, nargsf, kwnames);
  if (current != nullptr && current->at_work()) {
    const Tracer::Inner inner = current->enter_compiled(*c);
    if (inner == Tracer::Inner::kFailed) return nullptr;
    if (inner == Tracer::Inner::kOriginal) return call_within(*current, c, args, nargsf, kwnames);
  }
  PyObject* code = PyFunction_GET_CODE(c->function);
  constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  TorchApi* api = TorchApi::get();
  if (!api->lacks.empty()) return call_without(c, *api, args, nargsf, kwnames);
  if (!api->present() && api->numpy == nullptr) return call_original(c, args, nargsf, kwnames);
  if ((reinterpret_cast<PyCodeObject*>(code)->co_flags & kGenerators) != 0) {
    c->owner->note_generator(*reinterpret_cast<PyCodeObject*>(code));
    return call_original(c, args, nargsf, kwnames);
  }
  TraceOwner& owner = *c->owner;
  if (owner.cache.gave_up(code, 0) && !owner.cache.callees_pay(code)) return call_original(c, args, nargsf, kwnames);
  const auto nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  const size_t total = nargs + (kwnames != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  CallScratch::Lease call;
  std::optional<SignalsWait> wait(std::in_place);  // until the program's own code runs
  collect_roots(c, args, total, kwnames, call->roots);
  std::string failed;
  const Found found = find_and_run(owner, code, call, *api, &failed);
  if (found.next == Found::Next::kDone) return found.result;
  int allowed = 1;
  if (found.next == Found::Next::kMissed) {
    PyObject* result = call_in_eager(c, args, nargsf, kwnames, *api, wait);
    if (result != not_handled()) return result;
    const bool had_entries = owner.cache.count(code, 0) > 0 || owner.cache.gave_up(code, 0);
    if (had_entries) {
      allowed =
          owner.may_trace(reinterpret_cast<PyCodeObject*>(code), 0, call->roots.data(), call->roots.size(), failed);
      if (allowed < 0) return nullptr;
    }
    if (had_entries && allowed > 0) {
      ++stats().recompiles;
      owner.recompiles.push_back(failed);
      TATARA_LOG(kGuards, "recompiles ", place_text(reinterpret_cast<PyCodeObject*>(code), 0), ": ", failed);
    }
  }
  wait.reset();
  if (found.next == Found::Next::kOriginal) return call_original(c, args, nargsf, kwnames);
  const CacheWarnings warnings;  // after the trace
  Tracer tracer(owner, *api, code);
  Entry* const entry = allowed == 0 ? callees_alone() : found.entry.get();
  return tracer.run(c->function, args, nargsf, kwnames, call->roots, entry, call->objects);
}

PyObject* compiled_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  CompiledFunction* c = cast(object);
  const Ref alive = Ref::borrow(object);
  if (c->self == nullptr) return call_compiled(c, args, nargsf, kwnames);
  const auto nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  const size_t total = nargs + (kwnames != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  constexpr size_t kFew = 8;
  std::array<PyObject*, kFew> few;
  std::vector<PyObject*> many;
  PyObject** with_self = few.data();
  if (total + 1 > kFew) {
    many.resize(total + 1);
    with_self = many.data();
  }
  with_self[0] = c->self;
  std::copy(args, args + total, with_self + 1);
  return call_compiled(c, with_self, nargs + 1, kwnames);
}

/// From a dict of option names that the Python side has checked. False with a Python error set.
bool read_options(PyObject* dict, OptionOverrides& overrides) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Check(dict) && PyDict_Next(dict, &at, &key, &value) != 0) {
    const OptionInfo* info = find_option(text_of(key));
    if (info == nullptr) {
      PyErr_Format(PyExc_ValueError, "unknown option %R", key);
      return false;
    }
    if (std::holds_alternative<bool>(info->fallback)) {
      overrides.emplace_back(info->option, PyObject_IsTrue(value) == 1);
    } else if (std::holds_alternative<int64_t>(info->fallback)) {
      overrides.emplace_back(info->option, static_cast<int64_t>(PyLong_AsLongLong(value)));
    } else {
      overrides.emplace_back(info->option, text_of(value));
    }
  }
  return PyErr_Occurred() == nullptr;
}

/// Pickles and copies are of the original: tatara/_api.py knows how.
PyObject* compiled_reduce(PyObject* object, PyObject*) {
  return call_package<PackageFunction::kApiReduce>(object).release();
}

PyObject* compiled_copy(PyObject* object, PyObject*) {
  return call_package<PackageFunction::kApiCopy>(object).release();
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "backend", "fullgraph", "self", "dynamic", "options", nullptr};
  PyObject *function = nullptr, *backend = Py_None, *self = Py_None, *dynamic = Py_None, *options = Py_None;
  int fullgraph = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "O|OpOOO", const_cast<char**>(names), &function, &backend, &fullgraph,
                                  &self, &dynamic, &options) == 0) {
    return nullptr;
  }
  OptionOverrides overrides;
  if (options != Py_None && !read_options(options, overrides)) return nullptr;
  auto* c = reinterpret_cast<CompiledFunction*>(type->tp_alloc(type, 0));
  if (c == nullptr) return nullptr;
  c->vectorcall = compiled_vectorcall;
  c->function = Py_NewRef(function);
  c->self = self == Py_None ? nullptr : Py_NewRef(self);
  c->owner = new TraceOwner;
  c->owner->fullgraph = fullgraph != 0;
  if (dynamic != Py_None) {
    c->owner->dynamic = PyObject_IsTrue(dynamic) == 1 ? DynamicMode::kAlways : DynamicMode::kNever;
  }
  c->owner->options = std::move(overrides);
  if (PyUnicode_Check(backend)) {
    c->owner->eager_backend = text_of(backend) == "eager";
  } else if (backend != Py_None) {
    c->owner->backend = Ref::borrow(backend);
  }
  all_functions().insert(c);
  return reinterpret_cast<PyObject*>(c);
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(cast(object)->function);
  Py_VISIT(cast(object)->self);
  Py_VISIT(cast(object)->dict);
  Py_VISIT(Py_TYPE(object));
  const TraceOwner* owner = cast(object)->owner;
  const Visitor visitor(visit, arg);
  const int result = owner != nullptr ? visitor(owner->cache, owner->backend) : 0;
  return result != 0 || owner == nullptr || owner->loops == nullptr ? result : owner->loops->traverse(visitor);
}

int compiled_clear(PyObject* object) {
  Py_CLEAR(cast(object)->self);
  Py_CLEAR(cast(object)->dict);
  // What was captured holds modules, cells and functions, which may hold the compiled function.
  if (TraceOwner* owner = cast(object)->owner; owner != nullptr) {
    owner->cache.clear();
    owner->loops = nullptr;
  }
  return 0;
}

void compiled_dealloc(PyObject* object) {
  CompiledFunction* c = cast(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (c->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  all_functions().erase(c);
  delete c->owner;
  Py_CLEAR(c->function);
  Py_CLEAR(c->self);
  Py_CLEAR(c->dict);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* compiled_get(PyObject* object, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

PyObject* compiled_original(PyObject* object, void*) {
  const CompiledFunction* c = cast(object);
  return c->self == nullptr ? Py_NewRef(c->function) : PyMethod_New(c->function, c->self);
}

PyObject* compiled_repr(PyObject* object) {
  return PyUnicode_FromFormat("<tatara compiled %R>", cast(object)->function);
}

PyObject* text(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}

void put(PyObject* dict, const char* key, PyObject* value) {
  if (value == nullptr) {
    forget_error();
    return;
  }
  PyDict_SetItemString(dict, key, value);
  Py_DECREF(value);
}

PyObject* break_object(const BreakInfo& info) {
  return Py_BuildValue("{s:N,s:N,s:i,s:N}", "reason", text(info.reason), "file", text(info.file), "line", info.line,
                       "function", text(info.function));
}

/// Everything that explain() shows, as plain data; entries in the order of their creation.
PyObject* compiled_report(PyObject* object, PyObject*) {
  const SignalsWait wait;
  const TraceOwner& owner = *cast(object)->owner;
  PyObject* entries = PyList_New(0);
  for (auto it = owner.cache.all().rbegin(); it != owner.cache.all().rend(); ++it) {
    const Entry& entry = **it;
    PyObject* d = PyDict_New();
    put(d, "offset", PyLong_FromLong(entry.offset));
    put(d, "end",
        text(entry.end == Entry::End::kReturn  ? "return"
             : entry.end == Entry::End::kBreak ? "break"
                                               : "eager"));
    put(d, "graph", text(entry.report.graph_text));
    put(d, "lowered", text(entry.report.lowered_text));
    put(d, "tape", text(entry.tape ? entry.tape->str() : std::string()));
    put(d, "nodes", PyLong_FromSize_t(entry.tape ? entry.tape->nodes().size() : 0));
    put(d, "fallback", text(entry.report.fallback_reason));
    put(d, "problem", text(entry.runner ? entry.runner->problem() : std::string()));
    put(d, "launches", text(entry.runner ? entry.runner->launches() : std::string()));
    put(d, "hits", PyLong_FromUnsignedLongLong(entry.hits));
    put(d, "capture_seconds", PyFloat_FromDouble(entry.report.capture_seconds));
    put(d, "compile_seconds", PyFloat_FromDouble(entry.report.compile_seconds));
    put(d, "why", break_object(entry.why));
    if (entry.report.details) put(d, "details", Py_NewRef(entry.report.details.get()));
    if (entry.tape) put(d, "graph_object", make_graph_object(entry.tape).release());
    PyObject* guards = PyList_New(0);
    for (const std::string& line : entry.guard_lines()) {
      const Ref item = Ref::steal(text(line));
      if (!item || PyList_Append(guards, item.get()) != 0) forget_error();
    }
    put(d, "guards", guards);
    std::string effects;
    for (const std::string& line : entry.effects.describe()) effects += line + "\n";
    put(d, "effects", text(effects));
    PyList_Append(entries, d);
    Py_DECREF(d);
  }
  PyObject* breaks = PyList_New(0);
  for (const BreakInfo& info : owner.breaks) {
    const Ref item = Ref::steal(break_object(info));
    PyList_Append(breaks, item.get());
  }
  PyObject* recompiles = PyList_New(0);
  for (const std::string& line : owner.recompiles) {
    const Ref item = Ref::steal(text(line));
    PyList_Append(recompiles, item.get());
  }
  return Py_BuildValue("{s:N,s:N,s:N}", "entries", entries, "breaks", breaks, "recompiles", recompiles);
}

/// Seconds that the guards take for these arguments, of `calls` rounds, and without the tensors from outside the arguments
/// (parameters), whose layouts are looked at each time: for benchmarks.
PyObject* compiled_guard_seconds(PyObject* object, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  using Clock = std::chrono::steady_clock;
  const SignalsWait wait;
  CompiledFunction* c = cast(object);
  const long calls = nargs > 0 ? PyLong_AsLong(args[0]) : -1;
  if (calls < 1 || !PyFunction_Check(c->function)) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "wanted: a number of rounds, then arguments");
    return nullptr;
  }
  std::vector<PyObject*> given;
  if (c->self != nullptr) given.push_back(c->self);
  const Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  given.insert(given.end(), args + 1, args + nargs + keywords);
  PyObject* code = PyFunction_GET_CODE(c->function);
  TorchApi* api = TorchApi::get();
  CallScratch::Lease call;
  std::vector<int64_t> symbols;
  const std::shared_ptr<Entry> entry = c->owner->cache.latest();
  const auto start = Clock::now();
  bool held = entry != nullptr;
  for (long i = 0; i < calls && held; ++i) {
    collect_roots(c, given.data(), given.size(), kwnames, call->roots);
    GuardedCall guarded{call->roots.data(), call->roots.size(), *api, call->objects, symbols, nullptr};
    held = entry->holds(guarded, false);
  }
  const auto middle = Clock::now();
  for (long i = 0; i < calls && held; ++i) {
    collect_roots(c, given.data(), given.size(), kwnames, call->roots);
    held = c->owner->cache.find(code, 0, call->roots.data(), call->roots.size(), *api, call->objects, nullptr) == entry;
  }
  if (!held) {
    PyErr_SetString(PyExc_ValueError, "the latest entry is not for these arguments");
    return nullptr;
  }
  const std::chrono::duration<double> beside = middle - start, all = Clock::now() - middle;
  return Py_BuildValue("(dd)", all.count() / static_cast<double>(calls), beside.count() / static_cast<double>(calls));
}

/// What a call with these tensors does, without doing it: (why it is no function of them that compiles as one graph, or None;
/// its result, with placeholders; whether it switches gradients on or off inside).
PyObject* compiled_look(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  CompiledFunction* c = cast(object);
  if (!PyFunction_Check(c->function)) return Py_BuildValue("(sOO)", "it is no Python function", Py_None, Py_False);
  const SignalsWait wait;
  for (;;) {
    std::vector<PyObject*> roots;
    collect_roots(c, args, static_cast<size_t>(nargs), nullptr, roots);
    Tracer tracer(*c->owner, *TorchApi::get(), PyFunction_GET_CODE(c->function));
    tracer.dry_run();
    const Ref result =
        Ref::steal(tracer.run(c->function, args, static_cast<size_t>(nargs), nullptr, std::move(roots), nullptr, {}));
    std::string problem = tracer.found_problem();
    if (!result && problem.empty()) problem = "it raises " + take_error_text();
    forget_error();
    if (tracer.was_cut() || error_postponed()) {
      if (tracer.deliver() != 0) return nullptr;
      continue;  // nothing has happened: it can look again
    }
    if (!problem.empty()) return Py_BuildValue("(NOO)", text(problem), Py_None, Py_False);
    return PyTuple_Pack(3, Py_None, result.get(), tracer.switches_grad() ? Py_True : Py_False);
  }
}

/// Adds a reason why something runs in eager to the report.
PyObject* compiled_note(PyObject* object, PyObject* reason) {
  const SignalsWait wait;
  CompiledFunction* c = cast(object);
  if (PyFunction_Check(c->function)) {
    c->owner->note_unfit(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(c->function)), 0, text_of(reason));
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

void reset_owner(TraceOwner& owner) {
  owner.cache.clear();
  owner.breaks.clear();
  owner.recompiles.clear();
  owner.full.clear();
  owner.unfit.clear();
  owner.loops = nullptr;
}

PyObject* compiled_reset(PyObject* object, PyObject*) {
  reset_owner(*cast(object)->owner);
  Py_RETURN_NONE;
}

}  // namespace

PyObject* compiled_function_type() {
  static PyMethodDef methods[] = {
      {"_report", compiled_report, METH_NOARGS, "What was captured, as plain data."},
      {"_guard_seconds", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compiled_guard_seconds)),
       METH_FASTCALL | METH_KEYWORDS, "Seconds that the guards of a call take."},
      {"_reset", compiled_reset, METH_NOARGS, "Forgets every entry."},
      {"_look", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compiled_look)), METH_FASTCALL,
       "What a call would do, without doing it: a problem or None, and a result of placeholders."},
      {"_note", compiled_note, METH_O, "Adds a reason why something runs in eager to the report."},
      {"__reduce_ex__", compiled_reduce, METH_O, "Pickles the original."},
      {"__copy__", compiled_copy, METH_NOARGS, "As a copy of the original."},
      {"__deepcopy__", compiled_copy, METH_O, "As a copy of the original."},
      {nullptr, nullptr, 0, nullptr}};
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weakrefs), READONLY, nullptr},
      {"_tatara_function", T_OBJECT_EX, offsetof(CompiledFunction, function), READONLY, nullptr},
      {"_tatara_self", T_OBJECT, offsetof(CompiledFunction, self), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                 {"__original_fn", compiled_original, nullptr, "For other compilers.", nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(compiled_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(compiled_get)},
                                {Py_tp_repr, reinterpret_cast<void*>(compiled_repr)},
                                {Py_tp_methods, methods},
                                {Py_tp_members, members},
                                {Py_tp_getset, getset},
                                {0, nullptr}};
  static PyType_Spec spec = {kCompiledFunctionName, sizeof(CompiledFunction), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};
  PyObject* type = PyType_FromSpec(&spec);
  // By this mark, which torch's own wrappers bear, torch.compile and torch.export go into the original instead.
  if (type != nullptr && PyObject_SetAttrString(type, "__script_if_tracing_wrapper", Py_True) != 0) Py_CLEAR(type);
  return type;
}

PyObject* stats_dict() {
  const Stats& s = stats();
  const auto n = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  const native::NativeLoopCounts& loops = native::native_loop_counts();
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "graphs",
                       n(s.graphs), "breaks", n(s.breaks), "recompiles", n(s.recompiles), "kernels_compiled",
                       n(s.kernels_compiled), "kernels_launched", n(s.kernels_launched), "host_calls", n(s.host_calls),
                       "cache_hits", n(s.cache_hits), "guard_hits", n(s.guard_hits), "fallbacks", n(s.fallbacks),
                       "cuda_graphs_recorded", n(s.cuda_graphs_recorded), "cuda_graphs_launched",
                       n(s.cuda_graphs_launched), "scratch_bytes", n(static_cast<uint64_t>(scratch_bytes())),
                       "native_products", n(native_products().load()), "calls_recorded", n(tape_counts().recorded),
                       "calls_converted", n(tape_counts().converted), "tensors_asked", n(tensors_asked()),
                       "native_loops", n(loops.made), "native_loop_runs", n(loops.runs), "native_loops_taken_back",
                       n(loops.taken_back), "turns_copied", n(s.turns_copied));
}

bool is_tracing() { return Tracer::current() != nullptr && Tracer::current()->at_work(); }

void reset_all() {
  // Dropping entries may end the life of other compiled functions.
  std::vector<Ref> all;
  for (CompiledFunction* c : all_functions()) all.push_back(Ref::borrow(reinterpret_cast<PyObject*>(c)));
  for (const Ref& c : all) reset_owner(*cast(c.get())->owner);
  stats() = Stats{};
  tape_counts() = TapeCounts{};
  native_products() = 0;
  tensors_asked() = 0;
  native::native_loop_counts() = {};
}

}  // namespace tatara::capture
