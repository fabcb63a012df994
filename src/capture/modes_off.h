// No mode of the program's sees torch's calls for a while.
#pragma once

#include <vector>

#include "capture/py.h"

namespace tatara::capture {

/// What the package asks torch for is no call of the program's: the modes that the program has on by now do not see it.
class ModesOff {
 public:
  explicit ModesOff(PyObject* core) {
    for (const char* name : {"DisableTorchFunction", "_DisableTorchDispatch"}) {
      Ref guard = Ref::steal(PyObject_CallMethod(core, name, nullptr));
      if (guard && Ref::steal(PyObject_CallMethod(guard.get(), "__enter__", nullptr))) {
        guards_.push_back(std::move(guard));
      } else {
        forget_error();
      }
    }
  }
  ~ModesOff() {
    const ErrorAside aside;
    for (auto guard = guards_.rbegin(); guard != guards_.rend(); ++guard) {
      if (!Ref::steal(PyObject_CallMethod(guard->get(), "__exit__", "OOO", Py_None, Py_None, Py_None))) forget_error();
    }
  }
  ModesOff(const ModesOff&) = delete;
  ModesOff& operator=(const ModesOff&) = delete;

 private:
  std::vector<Ref> guards_;
};

}  // namespace tatara::capture
