#pragma once

#include "capture/host/torch_api.h"

namespace tatara::capture {

/// Torch's inference mode while it lives, if `on`.
class InferenceMode {
 public:
  explicit InferenceMode(const TorchApi& api, bool on = true)
      : guard_(Ref::steal(on ? PyObject_CallOneArg(api.state.inference_mode.get(), Py_True) : nullptr)) {
    if (guard_) Ref::steal(PyObject_CallMethod(guard_.get(), "__enter__", nullptr));
  }
  ~InferenceMode() {
    const ErrorAside aside;
    if (guard_) Ref::steal(PyObject_CallMethod(guard_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    forget_error();
  }
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

 private:
  Ref guard_;
};

}  // namespace tatara::capture
