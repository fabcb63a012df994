// What code in C reads of its operands, which becomes guards.
#include <cstring>
#include <string_view>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {

/// How code in C looks at its operands.
static Reading how_read(const TracedCall& call) {
  if (call.known.is(kCompares)) return Reading::kEqual;
  const bool items = call.known.is(kItemsOnly) ||
                     (PyType_Check(call.callable) && is_python_made(reinterpret_cast<PyTypeObject*>(call.callable)));
  return items ? Reading::kItems : Reading::kAll;
}

/// The operands whose identity alone may decide what comes back: that of `id`, and what is a key of a dict or set.
void ReadTracing::pin_operands(const CallPlan& plan, PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  const bool table = plan.target != nullptr && (PyDict_Check(plan.target) || PyAnySet_Check(plan.target));
  if (plan.name == "is_" || plan.name == "is_not") {
    for (Py_ssize_t i = 0; i < nargs; ++i) origins().pin(args[i]);
  }
  if (!table && plan.name != "id") return;
  const Py_ssize_t at = !table || is_bound_in_c(callable) ? 0 : 1;
  if (at < nargs) origins().pin(args[at]);
}

/// A call of code in C: what it may read becomes a guard. False with a Python error set; the graph may be broken.
bool ReadTracing::watch_operands(const TracedCall& call, const CallPlan& plan) {
  PyObject* const callable = call.callable;
  PyObject* const* const args = call.args;
  const Py_ssize_t nargs = call.nargs(), keywords = call.keywords();
  if (PyType_Check(callable)) watch_class_of(callable);
  if (PyType_Check(callable) && is_python_made(reinterpret_cast<PyTypeObject*>(callable)) && !born(callable)) {
    static PyObject* const maker = PyUnicode_InternFromString("__new__");
    trace_->object_guards.type(callable, maker);
  }
  if (!call.reads_contents()) {
    for (Py_ssize_t i = 0; i < nargs; ++i) watch_class_of(args[i]);
    if (callable == reinterpret_cast<PyObject*>(&PyType_Type) && nargs == 1) {
      origins().find(reinterpret_cast<PyObject*>(Py_TYPE(args[0])));
    }
    return true;
  }
  if (call.known.is(kSizeOnly) && plan.target == nullptr && nargs == 1 && keywords == 0) return watch_size(args[0]);
  const Reading reading = how_read(call);
  if (plan.target != nullptr && !watch_contents(plan.target, reading)) return false;
  // What a watched function tells is compared, not what it is made of.
  const bool watched = call.known.handler == CallHandler::kWatched && plan.target == nullptr;
  const bool plain = watched || PyType_Check(callable) || is_cached_function(callable);
  if (tracing() && !plain && !watch_contents(callable, Reading::kAll)) return false;
  for (Py_ssize_t i = 0; i < nargs + keywords && tracing(); ++i) {
    if (!watch_contents(args[i], reading)) return false;
    if (PyType_Check(callable) && tracing() && !watch_contents(args[i], Reading::kItems)) return false;
  }
  return true;
}

bool ReadTracing::reads_one_key(const TracedCall& call, const CallPlan& plan) {
  if (plan.target == nullptr || !PyDict_Check(plan.target)) return false;
  if (is_ordered_dict(plan.target) || is_defaultdict(plan.target)) return false;
  if (!call.known.is(kReadsOneKey)) return false;
  const Py_ssize_t at = is_bound_in_c(call.callable) ? 0 : 1;
  if (call.nargs() <= at || !is_atom(call.args[at], api_)) return false;
  if (!born(plan.target) && !origins().contents_watched(plan.target)) numbers().watch_key(plan.target, call.args[at]);
  return true;
}

PyObject* ReadTracing::number_at_key(const TracedCall& call, const CallPlan& plan) {
  PyObject* const dict = plan.target;
  if (dict == nullptr || !PyDict_Check(dict) || plan.name != "get" || call.keywords() > 0) return nullptr;
  const Py_ssize_t at = is_bound_in_c(call.callable) ? 0 : 1;
  PyObject* const key = call.nargs() > at ? call.args[at] : nullptr;
  if (key == nullptr || !PyUnicode_CheckExact(key) || born(dict) || origins().contents_watched(dict)) return nullptr;
  PyObject* const value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr) forget_error();
  return numbers().watched({dict, key}, value);
}

/// getattr and the like: of `target`, or of the first argument. For a number that varies getattr gives a placeholder.
PyObject* ReadTracing::call_attribute(PyObject* callable, PyObject* target, PyObject* const* args, Py_ssize_t nargs) {
  static PyObject* const getter = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
  if (target == nullptr && nargs > 0) {
    target = *args++;
    --nargs;
  }
  if (target == nullptr || nargs < 1 || !PyUnicode_Check(args[0])) return not_handled();
  if (!break_if_state(target, args[0])) return nullptr;
  if (!tracing()) return not_handled();
  PyObject* const number = watch_lookup(target, args[0], callable == getter);
  return number != nullptr ? number : not_handled();
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

}  // namespace tatara::capture
