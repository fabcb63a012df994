// What the tracer does with a call, by its callable (call_plan.cpp, tracer_calls.cpp, cached_calls.cpp,
// function_modes.cpp). What is known of a callable is looked up once (host/known_calls.h), and goes with the call from there.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "capture/host/known_calls.h"
#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct CompiledFunction;
struct SaidWarning;

/// A call that the virtual machine is about to make.
struct TracedCall {
  PyObject* callable;
  KnownCall known;
  PyObject* const* args;
  size_t nargsf;
  PyObject* kwnames;

  Py_ssize_t nargs() const { return PyVectorcall_NARGS(nargsf); }
  Py_ssize_t keywords() const { return kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0; }
  std::span<PyObject* const> operands() const { return {args, static_cast<size_t>(nargs() + keywords())}; }
  std::pair<Ref, Ref> packed() const;
  PyObject* perform() const { return PyObject_Vectorcall(callable, args, nargsf, kwnames); }
  /// Not of what is asked only for its type or identity.
  bool reads_contents() const { return callable != reinterpret_cast<PyObject*>(&PyType_Type) && !known.is(kAsksType); }
};

/// A list, dict, set or deque, or a class of such.
bool is_container_type(PyTypeObject* type);

class CallTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// Runs the program's own function with a cache (functools.lru_cache), or breaks the graph before it.
  PyObject* call_cached(PyObject* callable, std::span<PyObject* const> args, size_t nargsf, PyObject* kwnames);
  /// Whether `o`, given to code in C, is a function in C that changes a container which existed before, or a partial of one.
  bool hides_change(PyObject* o) const;
  /// Whether what is said with these arguments (a message) is said once, since a function with a cache is running: it is
  /// said for real then, and is no part of the trace.
  bool says_once(std::span<PyObject* const> args);
  /// Code of the standard library's logging, before it runs. True: it is to run for real.
  bool logs(const Frame& f, KnownCode known);
  bool note_context(PyObject* variable, const std::string& method, PyObject* given, PyObject* result);
  CallPlan plan_call(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs);
  std::string stays_apart(const CompiledFunction& inner) const;
  void find_original(CompiledFunction& inner);
  /// Makes of a call of a compiled function one of its original; `operands` are its arguments then. Whether the graph is broken, tells
  /// tracing(). False with a Python error set.
  bool call_inner(TracedCall& call, std::vector<PyObject*>& operands);
  bool converts_tensor(const TracedCall& call, const PyTypeObject& type) const;
  PyObject* call_int(const TracedCall& call);
  PyObject* call_float(const TracedCall& call);
  PyObject* call_special(const Frame& f, const TracedCall& call);
  PyObject* call_by_operands(const TracedCall& call);
  PyObject* call_warn(const Frame& f, const TracedCall& call);
  PyObject* call_in_c(const TracedCall& call, const CallPlan& plan);
  /// Entry and end of inference mode, where the trace takes part in them: the result of the call. not_handled(): it does not.
  PyObject* switch_inference(const TracedCall& call);
  /// `with torch.device(...)`, whose device what makes tensors in it is told.
  PyObject* switch_device(const TracedCall& call);
  PyObject* enter_inference_again(const TracedCall& call);
  /// Guards that switch the dispatcher's modes or torch.func's levels off. Operators of the default generator mean the same under them,
  /// and so do all others where no level is open.
  PyObject* switch_dispatch(const TracedCall& call);
  /// Why the graph breaks before a call that enters a guard of torch's (function_modes.cpp); empty: it is none.
  std::string enters_guard(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const;
  /// Whether the exception that is being handled here is the same in each call: false where it is one of a caller's.
  bool knows_handled();

  /// A body of functools.lru_cache's is running: what it writes, it writes once.
  bool in_cached() const { return *own_.cached_calls > 0; }
  /// And it has said something, which a second run would say again.
  bool has_said_once() const { return in_cached() && own_.said_once; }
  /// Context variables are set that a later run would lack.
  bool sets_context() const { return !own_.open_context_vars.empty(); }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  bool read_warning(const Frame& f, const TracedCall& call, SaidWarning& warning) const;
  PyObject* ask_registry(const TracedCall& call);
  CallPlan plan_class(PyTypeObject* type) const;
  static CallPlan plan_object(PyObject* callable);
  CallPlan plan_has_torch_function(PyObject* const* args, Py_ssize_t nargs) const;
  CallPlan plan_function(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs);
  CallPlan plan_in_module(const KnownCall& known, const std::string& module, const std::string& name,
                          PyObject* const* args, Py_ssize_t nargs);
  CallPlan plan_method(PyObject* callable, const KnownCall& known, PyTypeObject* owner, PyObject* target,
                       const std::string& name);
  bool changes_unseen(PyObject* object) const;
  bool leaves_no_tensor(PyObject* result, size_t first_node, size_t first_slot) const;
  void watch_cached(PyObject* callable, std::span<PyObject* const> args, PyObject* kwnames, PyObject* result);

  /// Of one trace.
  struct Own {
    std::unordered_map<PyObject*, int> open_context_vars;  // set and not reset
    /// Calls of functools.lru_cache's wrappers that are running.
    std::shared_ptr<int> cached_calls = std::make_shared<int>(0);
    bool said_once = false;  // such a call has said something
  };
  Own own_;
};

}  // namespace tatara::capture
