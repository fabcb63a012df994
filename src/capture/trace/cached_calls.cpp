// Calls with a life of their own: functions with a cache (functools.lru_cache), the standard library's logging, context
// variables.
#include <algorithm>
#include <functional>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/tape/node_operators.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {

/// Whether a cached function that has recorded calls, on tensors of its own alone, gives plain data: it asked what a type is
/// good for, say. Later calls find the data in the cache, and nothing needs what was recorded.
bool CallTracing::leaves_no_tensor(PyObject* result, size_t first_node, size_t first_slot) const {
  const std::function<bool(PyObject*)> plain = [&](PyObject* o) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_CheckExact(o) && PyDict_Next(o, &at, &key, &value) != 0) {
      if (!PyUnicode_CheckExact(key) || !plain(value)) return false;
    }
    for (Py_ssize_t i = 0; PyTuple_CheckExact(o) && i < PyTuple_GET_SIZE(o); ++i) {
      if (!plain(PyTuple_GET_ITEM(o, i))) return false;
    }
    return PyDict_CheckExact(o) || PyTuple_CheckExact(o) || (is_atom(o, api_) && !is_symbolic_number(o));
  };
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  const auto apart = [first_slot](const TapeNode& node) {
    bool own = makes_without_draws(node) || !varies(node);  // no random number is drawn
    const auto look = [&](int slot) { own = own && slot >= static_cast<int>(first_slot); };
    for_each_slot(node.args.get(), look);
    if (node.kwargs) for_each_slot(node.kwargs.get(), look);
    return own && is_operator_call(node);
  };
  return plain(result) && nodes.size() > first_node &&
         std::all_of(nodes.begin() + static_cast<std::ptrdiff_t>(first_node), nodes.end(), apart);
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
  const size_t nodes = trace_->tape.nodes().size(), slots = trace_->tape.slots().size();
  if (*running == 0) own_.said_once = false;
  ++*running;
  Ref result = Ref::steal(PyObject_Vectorcall(callable, args.data(), nargsf, kwnames));
  --*running;
  const bool same_trace = tracing() && running == own_.cached_calls;
  if (result && same_trace && *running == 0 && trace_->tape.nodes().size() != nodes &&
      !leaves_no_tensor(result.get(), nodes, slots)) {
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
    trace_->object_guards.cached(cache, place.get(), held.get(), result);
    origins().outlives(result);
    return;
  }
}

bool CallTracing::says_once(std::span<PyObject* const> args) {
  if (*own_.cached_calls == 0 || context_.ahead != nullptr || context_.dry_run) return false;
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

bool CallTracing::logs(const Frame& f, KnownCode known) {
  const PyCodeObject* code = f.code();
  const bool asks = known == KnownCode::kAsksLevel;
  if (!asks && known != KnownCode::kLogs) return false;
  if (!asks) {
    std::vector<PyObject*> args;
    for (int i = 1; i < code->co_argcount; ++i) args.push_back(f.local(i));
    return says_once(args);
  }
  // A logger notes per level what it found out. It does now, so that the trace reads what later calls read.
  if (f.local(0) != nullptr && !born(f.local(0)) && f.local(1) != nullptr && is_atom(f.local(1), api_) &&
      f.function() != nullptr) {
    const Bypass bypass(bypass_);
    const Ref answer = Ref::steal(PyObject_CallFunctionObjArgs(f.function(), f.local(0), f.local(1), nullptr));
    if (!answer) forget_error();  // the traced call is about to raise it
  }
  return false;
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

}  // namespace tatara::capture
