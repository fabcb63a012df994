// The tracer of a thread, and calls past it.
#include <utility>

#include "capture/host/numpy_alone.h"
#include "capture/trace/tracer.h"

namespace tatara::capture {

Tracer*& Tracer::present() {
  static thread_local Tracer* tracer = nullptr;
  return tracer;
}

/// While one lives, no trace of the thread is open.
struct Tracer::Aside {
  Tracer* tracer = std::exchange(present(), nullptr);
  VmObserver* observer = std::exchange(vm_context().observer, nullptr);
  Aside() = default;
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  ~Aside() {
    present() = tracer;
    vm_context().observer = observer;
  }
};

PyObject* Tracer::call_alone(PyObject* callable, PyObject* const* args, size_t nargs) {
  const Aside aside;
  const NumpyAlone alone;
  return PyObject_Vectorcall(callable, args, nargs, nullptr);
}

PyObject* Tracer::call_apart(PyObject* const* args, size_t nargs) {
  const Aside aside;
  return PyObject_Vectorcall(args[1], args + 2, nargs - 2, nullptr);
}

}  // namespace tatara::capture
