// The interpreter's lock, taken and let go by C++.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace tatara::capture {

/// Calls something that takes the GIL. While the interpreter ends, CPython (before 3.14) ends a thread that asks for it by
/// unwinding the thread's stack, which a destructor or a `catch (...)` on the way turns into the end of the process by
/// SIGABRT. Here such a thread sleeps until the process is gone, as CPython has it from 3.14 on.
template <typename Fn>
auto taking_gil(Fn&& take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// While it lives, other threads of Python run.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    taking_gil([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// The GIL for a thread that may have it or not.
class GilEnsure {
 public:
  GilEnsure() : state_(taking_gil([] { return PyGILState_Ensure(); })) {}
  ~GilEnsure() { PyGILState_Release(state_); }
  GilEnsure(const GilEnsure&) = delete;
  GilEnsure& operator=(const GilEnsure&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace tatara::capture
