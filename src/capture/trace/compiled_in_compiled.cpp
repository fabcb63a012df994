// Compiled functions that are called in a trace: they are traced as their originals are.
#include "capture/entries/compiled_object.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

/// The compiled function that a call calls, or null.
CompiledFunction* inner_of(PyObject* callable) {
  CompiledFunction* c = as_compiled(PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable);
  return c != nullptr && PyFunction_Check(c->function) ? c : nullptr;
}

/// Whether the program asked for something else of `inner` than of the function that is traced.
bool differs(const TraceOwner& inner, const TraceOwner& outer) {
  const bool backend = inner.backend || inner.eager_backend;
  const bool same_backend = inner.backend.get() == outer.backend.get() && inner.eager_backend == outer.eager_backend;
  return (backend && !same_backend) || (!inner.options.empty() && inner.options != outer.options) ||
         (inner.dynamic != DynamicMode::kAuto && inner.dynamic != outer.dynamic);
}

}  // namespace

/// Why a compiled function runs as one within the program that is traced; empty: it does not.
std::string CallTracing::stays_apart(const CompiledFunction& inner) const {
  if (differs(*inner.owner, owner_)) return "call of a compiled function with a backend or options of its own";
  return owner_.apart.contains(&inner) ? "call of a compiled function with fullgraph=True, which is no whole graph"
                                       : "";
}

/// It holds the same function as long as it lives.
void CallTracing::find_original(CompiledFunction& inner) {
  if (born(reinterpret_cast<PyObject*>(&inner))) return;
  origins().find(inner.function);
  origins().find(inner.self);
}

bool CallTracing::call_inner(TracedCall& call, std::vector<PyObject*>& operands) {
  CompiledFunction* const inner = inner_of(call.callable);
  if (inner == nullptr) return true;
  if (const std::string why = stays_apart(*inner); !why.empty()) return graph_break(why);
  find_original(*inner);
  if (inner->self != nullptr) operands.push_back(inner->self);
  if (PyMethod_Check(call.callable)) {
    origins().find_parts(call.callable);
    operands.push_back(PyMethod_GET_SELF(call.callable));
  }
  const size_t nargs = operands.size() + static_cast<size_t>(call.nargs());
  operands.insert(operands.end(), call.operands().begin(), call.operands().end());
  call = {inner->function, known_call(inner->function), operands.data(), nargs, call.kwnames};
  return true;
}

Tracer::Inner Tracer::enter_compiled(CompiledFunction& inner) {
  if (!tracing()) return Inner::kOriginal;
  if (const std::string why = calls().stays_apart(inner); !why.empty()) {
    return graph_break(why) ? Inner::kCompiled : Inner::kFailed;
  }
  calls().find_original(inner);
  return Inner::kOriginal;
}

void Tracer::run_whole(const CompiledFunction& inner, bool begins) {
  if (begins) {
    context_.whole.push_back(&inner);
  } else {
    context_.whole.pop_back();
  }
}

/// The graph is to break where the program enters its modes.
bool TraceEnds::leave_modes(const std::string& reason) {
  ++bypass_;
  const bool back = take_back();
  --bypass_;
  if (!back) return false;
  owner_.modes_apart = reason;
  retrace_ = true;
  unwind();
  return true;
}

bool TraceEnds::leave_apart() {
  const CompiledFunction* const whole = context_.whole.back();
  if (!retry()) return false;
  owner_.apart.insert(whole);
  return true;
}

}  // namespace tatara::capture
