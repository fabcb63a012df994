// What autograd knows of a plain tensor of torch's, asked without Python. Each part is optional: where a release lacks it, the
// tensor's attributes tell.
#pragma once

#include <optional>

#include "capture/python/py.h"

namespace tatara::capture {

class TensorHistory {
 public:
  /// Finds torch's functions, and in examples where its objects have the rest. No error is left set.
  void find(PyObject* torch, void* library);

  /// No value: not known here.
  std::optional<bool> requires_grad(PyObject* tensor) const;
  std::optional<bool> is_leaf(PyObject* tensor) const;
  std::optional<bool> has_gradient(PyObject* tensor) const;
  /// Whether functions are called with gradients of the tensor, or were once.
  std::optional<bool> has_hooks(PyObject* tensor) const;

 private:
  bool (*requires_grad_)(const void*) = nullptr;       // takes a TensorImpl
  bool (*is_leaf_)(const void*) = nullptr;             // takes a const Tensor&
  const void* const* (*grad_)(const void*) = nullptr;  // takes a TensorImpl, gives a const Tensor&
  const void* undefined_ = nullptr;                    // the implementation of a tensor that is none
  bool hooks_known_ = false;
};

}  // namespace tatara::capture
