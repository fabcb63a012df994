// Switches of the host that a trace throws as the program does: those of autocast, whether hooks on saved tensors are
// refused (torch.func does, while a transform runs), and that filters of warnings are others now. Later calls throw them too, before what follows the graph.
#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>

#include "capture/host/known_calls.h"
#include "capture/host/natures.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

constexpr std::string_view kRefuseHooks = "_saved_tensors_hooks_disable", kAllowHooks = "_saved_tensors_hooks_enable";

bool is_hooks_switch(std::string_view name) { return name == kRefuseHooks || name == kAllowHooks; }

/// Borrowed; null while it is not imported.
PyObject* warnings_module() { return PyDict_GetItemString(PyImport_GetModuleDict(), "warnings"); }

Ref torch_autograd() { return Ref::steal(PyImport_ImportModule("torch._C._autograd")); }

/// Why hooks on saved tensors are refused; None where they are not.
Ref hooks_refused() {
  const Ref module = torch_autograd();
  if (!module) return {};
  return Ref::steal(PyObject_CallMethod(module.get(), "_saved_tensors_hooks_get_disabled_error_message", nullptr));
}

bool refuse_hooks(PyObject* why) {
  const Ref module = torch_autograd();
  if (!module) return false;
  return static_cast<bool>(Ref::steal(why == Py_None
                                          ? PyObject_CallMethod(module.get(), kAllowHooks.data(), nullptr)
                                          : PyObject_CallMethod(module.get(), kRefuseHooks.data(), "O", why)));
}

/// What reads the setting that this function sets; null: it is no such function, or is not known to give what was set.
PyObject* getter_of(const std::string& setter) {
  static std::unordered_map<std::string, PyObject*> known;
  if (const auto found = known.find(setter); found != known.end()) return found->second;
  std::string name = setter;
  for (const std::string_view word : {"set_", "setter"}) {
    if (const size_t at = name.find(word); at != std::string::npos) name[at] = 'g';
  }
  const ErrorAside aside;
  const Ref module = Ref::steal(PyImport_ImportModule("torch._C"));
  Ref getter = module && name != setter ? attr_or_null(module.get(), name.c_str()) : Ref();
  forget_error();
  if (getter && known_call(getter.get()).handler != CallHandler::kWatched) getter = Ref();
  return known[setter] = getter.release();
}

/// What it is now. The last argument of a setter is the value; those before it say which setting.
Ref read_setting(PyObject* getter, std::span<const Ref> which) {
  std::vector<PyObject*> args;
  for (const Ref& each : which) args.push_back(each.get());
  const ErrorAside aside;
  Ref now = Ref::steal(PyObject_Vectorcall(getter, args.data(), args.size(), nullptr));
  forget_error();
  return now;
}

/// Whether it matters to GPUs alone, and none is in use.
bool matters_to_nothing(const std::string& setter, PyObject* const* args, Py_ssize_t nargs) {
  const bool of_gpus = setter.find("_cudnn_") != std::string::npos || setter.find("_cublas_") != std::string::npos ||
                       (nargs > 1 && PyUnicode_Check(args[0]) != 0 && text_of(args[0]) == "cuda");
  if (!of_gpus) return false;
  const ErrorAside aside;
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.cuda");
  const Ref used = module != nullptr ? attr_or_null(module, "_initialized") : Ref();
  forget_error();
  return used.get() == Py_False;
}

}  // namespace

/// Settings that graphs may set: to what they are, or where nothing in the graph asks for them.
bool WriteTracing::may_set(const std::string& setter, PyObject* const* args, Py_ssize_t nargs) const {
  PyObject* const getter = nargs > 0 ? getter_of(setter) : nullptr;
  if (getter == nullptr) return false;
  const auto plain = [](PyObject* o) { return PyUnicode_CheckExact(o) || PyBool_Check(o) || PyLong_CheckExact(o); };
  if (!std::all_of(args, args + nargs, plain)) return false;
  std::vector<Ref> which;
  for (Py_ssize_t i = 0; i + 1 < nargs; ++i) which.push_back(Ref::borrow(args[i]));
  const Ref now = read_setting(getter, which);
  return now && (same_value(now.get(), args[nargs - 1]) || matters_to_nothing(setter, args, nargs));
}

const WriteTracing::Setting* WriteTracing::setting_of(PyObject* getter, PyObject* const* args, size_t count) const {
  for (const Setting& setting : own_.settings) {
    bool same = setting.getter == getter && setting.which.size() == count;
    for (size_t i = 0; same && i < count; ++i) same = same_value(setting.which[i].get(), args[i]);
    if (same) return &setting;
  }
  return nullptr;
}

/// The value before the trace is guarded.
PyObject* WriteTracing::throw_setting(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  PyObject* const getter = getter_of(name_of(callable));
  const auto count = static_cast<size_t>(nargs - 1);
  Setting made{callable, getter, {}, {}};
  for (size_t i = 0; i < count; ++i) made.which.push_back(Ref::borrow(args[i]));
  const Ref now = read_setting(getter, made.which);
  if (!now) return not_handled();
  const Setting* const before = setting_of(getter, args, count);
  if (before == nullptr) trace_->object_guards.call(getter, args, count, now.get());
  if (same_value(now.get(), args[count])) Py_RETURN_NONE;
  PyObject* const done = PyObject_Vectorcall(callable, args, static_cast<size_t>(nargs), nullptr);
  if (done == nullptr) return nullptr;
  if (before == nullptr) {
    made.start = now;
    own_.settings.push_back(std::move(made));
  }
  Effect effect{Effect::Kind::kSwitch, Ref::borrow(callable), {}, {}};
  for (Py_ssize_t i = 0; i < nargs; ++i) effect.operands.push_back(Ref::borrow(args[i]));
  note_effect(std::move(effect));
  return done;
}

/// What is as before the trace need not be set by later calls.
void WriteTracing::drop_settings() {
  for (const Setting& setting : own_.settings) {
    const Ref now = read_setting(setting.getter, setting.which);
    if (!now || !same_value(now.get(), setting.start.get())) continue;
    std::erase_if(trace_->effects, [&](const Effect& effect) {
      bool same = effect.kind == Effect::Kind::kSwitch && effect.target.get() == setting.setter &&
                  effect.operands.size() == setting.which.size() + 1;
      for (size_t i = 0; same && i < setting.which.size(); ++i)
        same = same_value(effect.operands[i].get(), setting.which[i].get());
      return same;
    });
  }
}

PyObject* WriteTracing::throw_switch(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t keywords) {
  if (known_call(callable).handler == CallHandler::kSwitchesTorch) {
    if (keywords > 0) return graph_break("call of torch._C." + name_of(callable)) ? not_handled() : nullptr;
    if (!break_before_write(callable)) return nullptr;
    return tracing() ? throw_setting(callable, args, nargs) : not_handled();
  }
  const bool hooks = is_hooks_switch(name_of(callable));
  if (!hooks && !break_before_write(callable)) return nullptr;
  if (!tracing() || keywords > 0) return not_handled();
  Trace& t = *trace_;
  if (hooks && !own_.hooks_at_start) {
    own_.hooks_at_start = hooks_refused();
    if (!own_.hooks_at_start) return nullptr;
    t.transaction.on_undo([start = own_.hooks_at_start] { return refuse_hooks(start.get()); });
  }
  PyObject* done = PyObject_Vectorcall(callable, args, static_cast<size_t>(nargs), nullptr);
  if (done == nullptr) return nullptr;
  own_.hooks_thrown = own_.hooks_thrown || hooks;
  Effect effect{Effect::Kind::kSwitch, Ref::borrow(callable), {}, {}};
  for (Py_ssize_t i = 0; i < nargs; ++i) effect.operands.push_back(Ref::borrow(args[i]));
  note_effect(std::move(effect));
  return done;
}

/// No step of a graph asks about hooks: where they are as at the start again, later calls need not throw their switches.
void WriteTracing::drop_undone_switches() {
  Trace& t = *trace_;
  drop_settings();
  if (!own_.hooks_thrown) return;
  const ErrorAside aside;
  const Ref now = hooks_refused();
  if (!now || PyObject_RichCompareBool(now.get(), own_.hooks_at_start.get(), Py_EQ) != 1) return forget_error();
  std::erase_if(t.effects, [](const Effect& effect) {
    return effect.kind == Effect::Kind::kSwitch && is_hooks_switch(name_of(effect.target.get()));
  });
  own_.hooks_thrown = false;
}

/// Whether an attribute of the module `warnings` that is written decides where warnings go. Filters are noted.
bool WriteTracing::diverts_warnings(PyObject* owner, PyObject* name, PyObject* value) {
  if (!PyModule_Check(owner) || owner != warnings_module()) return false;
  PyObject* const before = PyDict_GetItemWithError(PyModule_GetDict(owner), name);
  const std::string text = text_of(name);
  if (text == "filters" && !own_.filters_at_start && before != nullptr) own_.filters_at_start = Ref::borrow(before);
  return before != value &&
         (text.find("showwarn") != std::string::npos || text.find("formatwarn") != std::string::npos);
}

bool WriteTracing::has_changed_filters() const {
  if (!own_.filters_at_start) return false;
  PyObject* const module = warnings_module();
  return module == nullptr || PyDict_GetItemString(PyModule_GetDict(module), "filters") != own_.filters_at_start.get();
}

void WriteTracing::undo_switches() {
  for (const Effect& effect : trace_->effects) {
    if (effect.kind != Effect::Kind::kSwitch) continue;
    const std::string name = name_of(effect.target.get());
    const char* opposite = name == "autocast_increment_nesting"   ? "autocast_decrement_nesting"
                           : name == "autocast_decrement_nesting" ? "autocast_increment_nesting"
                                                                  : nullptr;
    if (opposite != nullptr && !Ref::steal(PyObject_CallMethod(api_.torch.get(), opposite, nullptr))) forget_error();
    if (is_hooks_switch(name) && !refuse_hooks(own_.hooks_at_start.get())) forget_error();
  }
  for (const Setting& setting : own_.settings) {
    std::vector<PyObject*> args;
    for (const Ref& each : setting.which) args.push_back(each.get());
    args.push_back(setting.start.get());
    if (!Ref::steal(PyObject_Vectorcall(setting.setter, args.data(), args.size(), nullptr))) forget_error();
  }
  own_.settings.clear();
  trace_->state.autocast.apply(api_);
}

}  // namespace tatara::capture
