#include "capture/entries/global_state.h"

#include <string_view>

#include "capture/host/numpy_alone.h"
#include "capture/host/numpy_api.h"
#include "capture/python/dict_changes.h"

namespace tatara::capture {
namespace {

bool dual_level_open(const TorchApi& api) {
  PyObject* const globals = api.state.forward_ad_globals.get();
  if (globals == nullptr) return false;
  static uint64_t closed = 0;  // the dict's version when no level was open; guarded by the GIL
  const uint64_t version = dict_version(globals);
  if (version != 0 && version == closed) return false;
  PyObject* level = PyDict_GetItem(globals, api.state.current_level_key.get());
  if (level == nullptr || PyLong_Check(level) == 0 || PyLong_AsLong(level) < 0) {
    closed = version;
    return false;
  }
  // Where tangents are switched off nobody sees them.
  const Ref on = Ref::steal(PyObject_CallMethod(api.core.get(), "_is_fwd_grad_enabled", nullptr));
  if (!on) forget_error();
  return on.get() != Py_False;
}

/// What a function without arguments gives, if that is something.
bool answers(const Ref& function, PyObject* argument = nullptr) {
  if (!function) return false;
  const Ref answer = Ref::steal(PyObject_CallFunctionObjArgs(function.get(), argument, nullptr));
  if (!answer) forget_error();
  return answer && answer.get() != Py_None;
}

bool leaves_out_autograd(const TorchApi& api) {
  const Ref answer = Ref::steal(PyObject_CallFunction(api.state.key_is_excluded.get(), "s", "AutogradFunctionality"));
  if (!answer) forget_error();
  return answer.get() == Py_True;
}

long dispatch_modes_on(const TorchApi& api) {
  const Ref count = api.modes.dispatch_count ? Ref::steal(PyObject_CallNoArgs(api.modes.dispatch_count.get())) : Ref();
  const long result = count ? PyLong_AsLong(count.get()) : 0;
  if (!count) forget_error();
  return result;
}

/// Torch-function modes of the program.
struct FunctionModes {
  long others = 0;
  Ref device;  // of the innermost one that gives functions which make tensors a device
};

FunctionModes function_modes(const TorchApi& api) {
  FunctionModes result;
  const Ref count = Ref::steal(PyObject_CallNoArgs(api.modes.count.get()));
  const long on = count ? PyLong_AsLong(count.get()) : 0;
  for (long i = 0; i < on; ++i) {
    const Ref place = Ref::steal(PyLong_FromLong(i));
    const Ref mode = place ? Ref::steal(PyObject_CallOneArg(api.modes.at.get(), place.get())) : Ref();
    Ref device = mode && is_device_mode(mode.get()) ? attr_or_null(mode.get(), "device") : Ref();
    if (device) {
      result.device = std::move(device);
    } else {
      ++result.others;
    }
  }
  forget_error();
  return result;
}

bool same_device(const Ref& a, const Ref& b) {
  if (a.get() == b.get()) return true;
  const int same = a && b ? PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) : 0;
  if (same < 0) forget_error();
  return same == 1;
}

}  // namespace

bool in_a_dispatch_mode(const TorchApi& api) { return dispatch_modes_on(api) != 0; }
bool in_a_level(const TorchApi& api) { return answers(api.state.interpreter_stack) || dual_level_open(api); }

bool is_device_mode(PyObject* mode) {
  // torch makes them by a class of Python's, which it imports when the first is made.
  if (std::string_view(Py_TYPE(mode)->tp_name) != "DeviceContext") return false;
  const Ref module = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(mode)), "__module__");
  if (!module) forget_error();
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "torch.utils._device") == 0;
}

GlobalState GlobalState::read(TorchApi& api) {
  GlobalState result;
  if (numpy_alone()) {
    // Nobody asks for it, but a trace must not seem to have switched it.
    result.grad = api.present() && api.grad_enabled();
    return result;
  }
  if (api.numpy != nullptr) result.errstate = api.numpy->errstate();
  if (!api.present()) return result;
  const auto flag = [](const Ref& fn) {
    const Ref answer = Ref::steal(PyObject_CallNoArgs(fn.get()));
    if (!answer) forget_error();
    return answer.get() == Py_True;
  };
  result.grad = flag(api.state.is_grad_enabled);
  result.inference = flag(api.state.is_inference);
  result.autocast = AutocastState::read(api);
  result.transformed = answers(api.state.interpreter_stack);
  result.dual = dual_level_open(api);
  result.recorded = answers(api.state.tracing_state);
  result.saved_hooks = answers(api.state.saved_tensor_hooks, Py_True);
  result.deterministic = flag(api.state.deterministic);
  result.overrides = flag(api.modes.overrides_enabled);
  result.no_autograd = !result.inference && leaves_out_autograd(api);
  result.default_dtype = Ref::steal(PyObject_CallNoArgs(api.state.get_default_dtype.get()));
  FunctionModes modes = function_modes(api);
  result.modes = modes.others;
  result.default_device = std::move(modes.device);
  result.dispatch_modes = dispatch_modes_on(api);
  forget_error();
  if (TorchNative::get().reads_state()) result.native = TorchNative::get().state();
  return result;
}

std::string GlobalState::waits_for(bool dry_run) const {
  if (recorded) return "torch.jit.trace is at work: it records the operators of eager";
  if (saved_hooks && grad) {
    return "hooks on saved tensors are on (a checkpoint, or tensors kept elsewhere): eager calls them";
  }
  if (dual && !dry_run) return "a level of forward-mode derivatives is open: its tensors run in eager";
  if (transformed && !dry_run) return "a transform of torch.func is at work: its tensors run in eager";
  if (dispatch_modes != 0) return "a torch-dispatch mode is on: it sees the operators of eager";
  if (no_autograd) return "torch's dispatcher leaves its autograd out: operators have no history";
  if (inference && grad) return "gradients are on in inference mode, where nothing is recorded";
  if (!overrides) return "__torch_function__ is switched off: capture sees torch's calls by one of its own";
  if (modes != 0) return "a torch function mode is on: compiled code waits until it is off";
  return {};
}

bool GlobalState::check(TorchApi& api, std::string* why) const {
  const auto torch_is_same = [this, &api] {
    if (!api.present() || numpy_alone()) return true;
    const TorchNative& torch = TorchNative::get();
    // The thread's dispatch keys tell whether autocast is on, not to which dtype.
    return torch.reads_state() && torch.state() == native && (!autocast.any || AutocastState::read(api) == autocast) &&
           dual_level_open(api) == dual &&
           (native.modes == 0 || same_device(function_modes(api).device, default_device)) &&
           (!saves_tensors || answers(api.state.saved_tensor_hooks, Py_True) == saved_hooks);
  };
  // A trace before NumPy's import has not called it.
  const bool numpy_is_same = !errstate || api.numpy->errstate().get() == errstate.get();
  if (numpy_is_same && torch_is_same()) return true;
  // Other dispatch keys need not mean another behaviour: ask for what counts.
  const GlobalState now = read(api);
  const auto fail = [why](const char* what) {
    if (why != nullptr) *why = what;
    return false;
  };
  if (now.grad != grad) return fail("grad mode changed");
  if (now.inference != inference) return fail("inference mode changed");
  if (now.dispatch_modes != dispatch_modes) return fail("torch-dispatch modes changed");
  if (now.recorded != recorded) return fail("torch.jit.trace began or ended");
  if (now.transformed != transformed) return fail("a transform of torch.func began or ended");
  if (now.dual != dual) return fail("a level of forward-mode derivatives began or ended");
  if (saves_tensors && now.saved_hooks != saved_hooks) return fail("hooks on saved tensors changed");
  if (now.autocast != autocast) return fail("autocast changed");
  if (now.no_autograd != no_autograd) return fail("the dispatcher's autograd was left out or taken in");
  if (now.overrides != overrides) return fail("__torch_function__ was switched on or off");
  if (now.modes != modes) return fail("torch-function modes changed");
  if (!same_device(now.default_device, default_device)) return fail("the default device changed");
  if (now.deterministic != deterministic) return fail("deterministic algorithms changed");
  if (now.default_dtype.get() != default_dtype.get()) return fail("the default dtype changed");
  if (errstate && !api.numpy->same_errstate(now.errstate.get(), errstate.get())) {
    return fail("np.errstate changed");
  }
  return true;
}

}  // namespace tatara::capture
