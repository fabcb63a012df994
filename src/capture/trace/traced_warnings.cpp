// warnings.warn while a trace is open.
#include <algorithm>
#include <iterator>

#include "capture/entries/said_warnings.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

/// The arguments of warnings.warn; borrowed, null where they are not given.
struct WarnArguments {
  PyObject* message = nullptr;
  PyObject* category = nullptr;
  long level = 1;  // 0: not a plain call
};

WarnArguments read_arguments(const TracedCall& call) {
  WarnArguments result;
  PyObject* given[4] = {};  // message, category, stacklevel, source
  static constexpr const char* kNames[] = {"message", "category", "stacklevel", "source"};
  bool plain = call.nargs() <= 4;
  for (Py_ssize_t i = 0; plain && i < call.nargs(); ++i) given[i] = call.args[i];
  for (Py_ssize_t k = 0; plain && k < call.keywords(); ++k) {
    const std::string name = text_of(PyTuple_GET_ITEM(call.kwnames, k));
    PyObject** place = nullptr;
    for (size_t i = 0; i < 4; ++i) place = name == kNames[i] ? &given[i] : place;
    plain = place != nullptr && *place == nullptr;
    if (plain) *place = call.args[call.nargs() + k];
  }
  result.message = given[0];
  result.category = given[1];
  plain = plain && given[0] != nullptr && (given[3] == nullptr || given[3] == Py_None) &&
          (given[2] == nullptr || PyLong_CheckExact(given[2]));
  if (plain && given[2] != nullptr) result.level = std::max(PyLong_AsLong(given[2]), 1L);
  if (!plain || PyErr_Occurred() != nullptr) result.level = 0;
  forget_error();
  return result;
}

/// A class of warnings that are made and written as Python's own are.
bool is_plain_category(PyObject* category) {
  const auto* const base = reinterpret_cast<PyTypeObject*>(PyExc_Warning);
  if (!PyType_CheckExact(category)) return false;
  auto* const type = reinterpret_cast<PyTypeObject*>(category);
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_Warning)) != 0 &&
         type->tp_init == base->tp_init && type->tp_new == base->tp_new && type->tp_str == base->tp_str;
}

/// What Python looks at for a warning of a place. Borrowed; null where it is not there.
struct WarningState {
  PyObject *globals, *registry, *module, *filters;

  explicit WarningState(PyObject* place_globals)
      : globals(place_globals),
        registry(PyDict_GetItemString(globals, "__warningregistry__")),
        module(PyDict_GetItemString(PyImport_GetModuleDict(), "warnings")),
        filters(module != nullptr ? PyDict_GetItemString(PyModule_GetDict(module), "filters") : nullptr) {}
  /// Whether the effect changes any of it.
  bool is_changed(const Effect& effect) const {
    PyObject* const target = effect.target.get();
    if (target == nullptr) return false;
    if (target == globals) {
      PyObject* const name = effect.operands.empty() ? nullptr : effect.operands[0].get();
      if (name == nullptr || !PyUnicode_CheckExact(name)) return true;
      const std::string text = text_of(name);
      return text == "__warningregistry__" || text == "__name__";
    }
    return target == registry || target == module || target == PyModule_GetDict(module) || target == filters;
  }
};

}  // namespace

/// The warning of a call in frame `f`. False: it is none that capture knows enough of.
bool CallTracing::read_warning(const Frame& f, const TracedCall& call, SaidWarning& warning) const {
  const WarnArguments given = read_arguments(call);
  if (given.level == 0) return false;
  PyObject* text = given.message;
  PyObject* category = given.category == nullptr || given.category == Py_None ? PyExc_UserWarning : given.category;
  if (PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(text)); is_plain_category(type)) {
    PyObject* const args = reinterpret_cast<PyBaseExceptionObject*>(text)->args;
    if (!born(text) || PyTuple_GET_SIZE(args) != 1) return false;
    category = type;
    text = PyTuple_GET_ITEM(args, 0);
  }
  if (!PyUnicode_CheckExact(text) || !is_plain_category(category)) return false;
  // The place that the warning names must be the same in each call: at or above the trace's root.
  const std::vector<Frame*>& frames = context_.frames;
  const auto root = std::find(frames.begin(), frames.end(), context_.root);
  if (frames.empty() || frames.back() != &f || root == frames.end() || given.level > frames.end() - root) return false;
  Ref at = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (long level = 1; at && level < given.level; ++level) {
    at = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(at.get()))));
  }
  if (!at) return false;
  auto* const frame = reinterpret_cast<PyFrameObject*>(at.get());
  const Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  if (code.get() != reinterpret_cast<PyObject*>((*(frames.end() - given.level))->code())) return false;
  warning.globals = Ref::steal(PyFrame_GetGlobals(frame));
  warning.text = Ref::borrow(text);
  warning.category = Ref::borrow(category);
  warning.line = PyFrame_GetLineNumber(frame);
  return PyDict_CheckExact(warning.globals.get());
}

/// A warning that is shown once in a process is shown here, and is no part of the graph. Guards ask whether it has been.
PyObject* CallTracing::call_warn(const Frame& f, const TracedCall& call) {
  SaidWarning warning;
  if (!read_warning(f, call, warning)) return not_handled();
  const WarningState state(warning.globals.get());
  const Ref key = warning.key();
  if (!key || state.filters == nullptr || born(state.globals) || born(state.filters) || born(warning.category.get()) ||
      std::any_of(trace_->effects.begin(), trace_->effects.end(),
                  [&state](const Effect& effect) { return state.is_changed(effect); })) {
    forget_error();
    return not_handled();
  }
  Ref result;
  {
    const Bypass bypass(bypass_);
    const WarningAction action = warning_action(warning);
    const Ref ignored = action == WarningAction::kIgnore ? warning_filters() : Ref::borrow(Py_None);
    PyObject* const args[] = {state.globals, key.get(), ignored.get()};
    const auto guard = [&](PyObject* answer) { trace_->object_guards.call(is_said(), args, std::size(args), answer); };
    const Ref said = Ref::steal(PyObject_Vectorcall(is_said(), args, std::size(args), nullptr));
    if (said.get() == Py_True) {
      guard(Py_True);
      return Py_NewRef(Py_None);
    }
    if (action != WarningAction::kOnce || context_.ahead != nullptr || context_.dry_run || !shows_plainly()) {
      guard(Py_False);  // the next call may find it said
      return not_handled();
    }
    result = Ref::steal(call.perform());
    guard(Py_True);
  }
  if (!result) {
    const ErrorAside aside;
    if (!graph_break("a warning that cannot be shown")) postpone_error();
  }
  return result.release();
}

}  // namespace tatara::capture
