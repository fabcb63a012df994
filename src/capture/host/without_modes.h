// What is asked of torch for our own purposes, once a process.
#pragma once

#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// While it lives, the program's own modes and function transforms see nothing of what torch is asked.
class WithoutModes {
 public:
  explicit WithoutModes(PyObject* torch) {
    const Ref core = attr_or_null(torch, "_C");
    enter(core.get(), "_DisableTorchDispatch");
    enter(core.get(), "DisableTorchFunction");
    enter(core.get(), "_DisableFuncTorch");
  }
  ~WithoutModes() {
    for (; !guards_.empty(); guards_.pop_back()) {
      const Ref left =
          Ref::steal(PyObject_CallMethod(guards_.back().get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
      if (!left) forget_error();
    }
  }
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  void enter(PyObject* core, const char* name) {
    const Ref type = core != nullptr ? attr_or_null(core, name) : Ref();
    Ref guard = Ref::steal(type ? PyObject_CallNoArgs(type.get()) : nullptr);
    if (guard && Ref::steal(PyObject_CallMethod(guard.get(), "__enter__", nullptr))) {
      guards_.push_back(std::move(guard));
    }
    forget_error();
  }

  std::vector<Ref> guards_;
};

}  // namespace tatara::capture
