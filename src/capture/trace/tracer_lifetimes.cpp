// Objects of a trace whose end the program notices: when they were made, and where a graph must break for them.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "capture/entries/lifetimes.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {

std::optional<size_t> TraceContext::born_at(PyObject* object) const {
  if (trace == nullptr) return {};
  if (PyGen_CheckExact(object)) {
    const auto generator = trace->closable.find(object);
    if (generator == trace->closable.end() || weak_object(generator->second.reference.get()) != object) return {};
    return generator->second.when;
  }
  const auto made = trace->born.find(object);
  return made == trace->born.end() ? std::nullopt : std::optional(made->second);
}

void TraceContext::mark_born(PyObject* object) {
  if (born_at(object)) return;
  Trace& t = *trace;
  if (PyGen_CheckExact(object)) {
    Ref reference = Ref::steal(PyWeakref_NewRef(object, nullptr));
    if (reference) return void(t.closable[object] = {std::move(reference), t.births++});
    forget_error();
    return;
  }
  t.born.emplace(object, t.births++);
  t.alive.push_back(Ref::borrow(object));
}

/// Nothing of what the trace has made has happened: nor do the ends of its objects.
void LifetimeTracing::drop_finalizers() {
  Trace& t = *trace_;
  for (const auto& [object, when] : t.born) vm_drop_finalizer(object);
  for (const auto& [object, made] : t.closable) {
    if (weak_object(made.reference.get()) == object) vm_drop_finalizer(object);
  }
}

bool LifetimeTracing::break_for_good(const std::string& reason) {
  own_.no_resume = true;
  return graph_break(reason) && leave_trace();
}

bool LifetimeTracing::leave_trace() {
  context_.state = State::kConcrete;
  ends().end_trace();
  return true;
}

bool LifetimeTracing::break_if_noticed(PyObject* old) {
  if (!tracing() || old == nullptr || !end_is_noticed_below(old)) return true;
  return graph_break("the end of what it replaces or removes runs code of the program (" + type_name(old) + ")") &&
         leave_trace();
}

namespace {

/// Makes an iterator that keeps a generator, which ends with it.
bool iterates_over(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  PyObject* maker = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : callable;  // chain.from_iterable
  if (maker == nullptr || !PyType_Check(maker)) return false;
  const auto* type = reinterpret_cast<PyTypeObject*>(maker);
  return type->tp_iternext != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 &&
         std::any_of(args, args + nargs, may_run_code_when_closed);
}

}  // namespace

std::string LifetimeTracing::starts_life(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const {
  PyTypeObject* type = PyType_Check(callable) ? reinterpret_cast<PyTypeObject*>(callable) : nullptr;
  if (type != nullptr && has_finalizer(type)) return std::string("an object with a __del__ (") + type->tp_name + ")";
  if (iterates_over(callable, args, nargs))
    return "an iterator of C code over a generator that has code to run when it is closed";
  if (PyCFunction_Check(callable)) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    const bool makes = std::strcmp(function->m_ml->ml_name, "__new__") == 0 && nargs > 0 && PyType_Check(args[0]);
    if (makes) {
      type = reinterpret_cast<PyTypeObject*>(args[0]);
      if (has_finalizer(type)) return std::string("an object with a __del__ (") + type->tp_name + ")";
      ++args;
      --nargs;
    } else if (std::strcmp(function->m_ml->ml_name, "proxy") != 0 || text_of(function->m_module) != "_weakref") {
      return {};
    }
  }
  const bool proxy = type == nullptr && PyCFunction_Check(callable);
  if (!proxy && (type == nullptr || PyType_IsSubtype(type, &_PyWeakref_RefType) == 0)) return {};
  if (nargs > 1 && args[1] != Py_None) return "a weak reference with a callback";
  // Dicts: what removes hooks of modules refers to them.
  const bool own = nargs > 0 && !PyDict_Check(args[0]) && (born(args[0]) || made_here(args[0]));
  return own ? "a weak reference to an object that the graph makes (" + type_name(args[0]) + ")" : std::string();
}

bool LifetimeTracing::made_here(PyObject* tensor) const {
  return api_.is_tensor(tensor) && trace_->tape.makes(trace_->tape.find(tensor));
}

bool LifetimeTracing::holds_noticed(const std::vector<PyObject*>& roots) const {
  for (PyObject* root : roots) {
    if (root == nullptr || !end_is_noticed(root)) continue;
    if (Py_REFCNT(root) <= std::count(roots.begin(), roots.end(), root)) return true;
  }
  return false;
}

std::string LifetimeTracing::waiting_generator() const {
  for (const auto& [object, made] : trace_->closable) {
    if (weak_object(made.reference.get()) != object || !runs_code_when_closed(object)) continue;
    const Ref name = attr_or_null(object, "__qualname__");
    return "a generator is closed when the function returns (" + text_of(name.get()) + ")";
  }
  return {};
}

void LifetimeTracing::break_if_closing_fails(const Frame& f, FrameExit how, PyObject* result) {
  if (own_.closing.erase(&f) == 0 || how == FrameExit::kReturn) return;
  PyObject* leaving = PyErr_Occurred();
  // Python 3.12's own evaluator is about to raise the error that lies on the frame's stack (hand_back_error in vm_eval.cpp).
  if (leaving == nullptr && f.stack_depth() > 0) leaving = f.stack()[f.stack_depth() - 1];
  if (result == nullptr && leaving != nullptr &&
      (PyErr_GivenExceptionMatches(leaving, PyExc_GeneratorExit) != 0 ||
       PyErr_GivenExceptionMatches(leaving, PyExc_StopIteration) != 0)) {
    return;
  }
  const ErrorAside aside;
  if (!break_for_good("a generator that fails when it is closed")) forget_error();
}

bool LifetimeTracing::let_generators_end(const Frame& f) {
  Trace& t = *trace_;
  std::vector<Ref> ending;
  const auto take = [&ending](Ref& held, PyObject* now) {
    if (held && held.get() != now && PyGen_CheckExact(held.get())) ending.push_back(std::move(held));
  };
  for (size_t i = 0; i < t.snap.locals.size(); ++i) {
    take(t.snap.locals[i], static_cast<int>(i) < f.local_count() ? f.local(static_cast<int>(i)) : nullptr);
  }
  for (size_t i = 0; i < t.snap.stack.size(); ++i) {
    take(t.snap.stack[i], static_cast<int>(i) < f.stack_depth() ? f.stack()[i] : nullptr);
  }
  if (ending.empty()) return true;
  // The snapshot lacks them now: the frame cannot go on from it.
  const bool before = std::exchange(own_.no_resume, true);
  ending.clear();
  if (!tracing() || trace_.get() != &t) return false;
  own_.no_resume = before;
  return true;
}

}  // namespace tatara::capture
