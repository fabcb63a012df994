// Calls whose result types nobody tells but the host's kernel itself: those without a kernel for tensors without data inside of levels,
// those whose kernel for such tensors has told something else before, and those under autocast that cast inside. They are tried out
// on numbers of our own (_meta.py).
#include <algorithm>
#include <string_view>

#include "capture/host/autocast.h"
#include "capture/host/package.h"
#include "capture/trace/torch_recording.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"

namespace tatara::capture {

bool writes_to_operand(std::string_view name, PyObject* kwargs) {
  const bool in_place = name.ends_with('_') && !name.ends_with("__");
  const bool dunder = name == "__setitem__" || (name.starts_with("__i") && name != "__invert__");
  return in_place || dunder || (kwargs != nullptr && PyDict_GetItemString(kwargs, "out") != nullptr);
}

/// What a library's operator does beside its results nobody knows.
bool is_of_library(std::string_view name) { return name.find("::") != std::string_view::npos; }

/// Whether an earlier trace has found that the host's kernel for tensors without data tells something else.
bool TorchTracing::is_told_wrong(const std::string& name) const {
  if (owner_.learned.told_wrong.empty()) return false;
  const BreakInfo place = context_.here({});
  return owner_.learned.told_wrong.reason(name, place.file, place.line) != nullptr;
}

bool TorchTracing::may_try(const Recording& call) const {
  if (call.fn.kind != TorchKind::kRecord || call.tensors == 0 || !call.values.empty()) return false;
  if (writes_to_operand(call.fn.name, call.tape_kwargs.get()) || is_of_library(call.fn.name)) return false;
  bool on_cpu = true;
  const auto look = [&](int slot) {
    const Ref kind = attr(trace_->tape.slots()[static_cast<size_t>(slot)].device.get(), "type");
    on_cpu = on_cpu && text_of(kind.get()) == "cpu";
  };
  for_each_slot(call.tape_args.get(), look);
  for_each_slot(call.tape_kwargs.get(), look);
  return on_cpu;
}

/// What the call gives for numbers of our own, without data. Null with a Python error set.
Ref TorchTracing::try_out(PyObject* func, PyObject* args, PyObject* kwargs) {
  forget_error();
  const AutocastOff off(api_);
  return call_package<PackageFunction::kMetaTried>(func, args, kwargs != nullptr ? kwargs : Py_None);
}

/// A call under autocast of which nobody knows what it casts inside, as one that runs with autocast on. Null without an error: it cannot.
PyObject* TorchTracing::record_under_autocast(const TorchFunction& fn, PyObject* func, PyObject* args,
                                              PyObject* kwargs) {
  if (fn.dispatcher || !transforms().open_levels().empty() || writes_to_operand(fn.name, kwargs)) return nullptr;
  bool plain = true;
  const auto look = [&](PyObject* o) {
    if (!api_.is_tensor(o)) return Ref::borrow(o);
    const Bypass bypass(bypass_);
    const int slot = api_.is_plain_tensor(o) ? trace_->tape.find(o) : -1;
    const Ref device = slot >= 0 ? trace_->tape.slots()[static_cast<size_t>(slot)].device : attr(o, "device");
    const Ref kind = attr(device.get(), "type");
    plain = plain && api_.is_plain_tensor(o) && !api_.is_foreign(o) && text_of(kind.get()) == "cpu";
    return Ref::borrow(o);
  };
  map_structure(args, look);
  if (kwargs != nullptr) map_structure(kwargs, look);
  const AutocastState state = AutocastState::read(api_);
  const auto place = std::find(AutocastState::kDevices.begin(), AutocastState::kDevices.end(), "cpu");
  if (!plain || place == AutocastState::kDevices.end()) return nullptr;
  const auto& on = state.devices[static_cast<size_t>(place - AutocastState::kDevices.begin())];
  Ref under;
  {
    const Bypass bypass(bypass_);
    under = call_package<PackageFunction::kMetaUnderAutocast>(func, on.dtype.get());
  }
  if (!under) {
    forget_error();
    return nullptr;
  }
  const TorchFunction inside{TorchKind::kRecord, fn.name + " under autocast"};
  return record(inside, under.get(), args, kwargs);
}

}  // namespace tatara::capture
