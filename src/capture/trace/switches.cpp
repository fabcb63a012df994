// Switches of the host that a trace throws as the program does: those of autocast, whether hooks on saved tensors are
// refused (torch.func does, while a transform runs), and that filters of warnings are others now. Later calls throw them too, before what follows the graph.
#include <string_view>

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

}  // namespace

PyObject* WriteTracing::throw_switch(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, Py_ssize_t keywords) {
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
  trace_->state.autocast.apply(api_);
}

}  // namespace tatara::capture
