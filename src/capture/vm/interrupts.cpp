#include "capture/vm/vm_internal.h"  // first: it decides how Python.h declares things

#include "capture/vm/interrupts.h"

#include <opcode.h>

#include <utility>

namespace tatara::capture {

/// What a thread knows of itself.
struct Waiting {
  int depth = 0;             // SignalsWait that live
  unsigned long hidden = 0;  // the main thread's name, while this is the main thread and handlers wait
};

namespace {

thread_local Waiting t_waiting;
thread_local PyObject* t_postponed = nullptr;
// What deliver_interrupts() has raised, while it is on its way to the program: a name to compare with, no reference.
thread_local PyObject* t_delivered = nullptr;

/// CPython has no way to ask for handlers to wait. Blocking signals in a thread (pthread_sigmask) takes two system calls
/// each time, and another thread would take the signal, whose handler runs in the main thread all the same. But CPython
/// runs handlers in the thread whose name is _PyRuntime.main_thread, and nowhere else. Without a name there they wait,
/// with all else as before: signals are noted, and no thread but the main one has use for that name.
void hide(Waiting& waiting) {
  const unsigned long self = PyThread_get_thread_ident();
  if (_PyRuntime.main_thread != self) return;
  waiting.hidden = self;
  _PyRuntime.main_thread = 0;
}

bool signals_wait() {
#if VM_PY311
  return __atomic_load_n(&_PyRuntime.ceval.signals_pending._value, __ATOMIC_RELAXED) != 0;
#elif VM_PY312
  return __atomic_load_n(&_PyRuntime.signals.is_tripped._value, __ATOMIC_RELAXED) != 0;
#else
  return __atomic_load_n(&_PyRuntime.signals.is_tripped, __ATOMIC_RELAXED) != 0;
#endif
}

/// The evaluator has looked meanwhile, found that it may not run handlers, and looks no more.
void look_again([[maybe_unused]] PyThreadState* state) {
#if VM_PY313
  _Py_set_eval_breaker_bit(state, _PY_SIGNALS_PENDING_BIT);
#else
#if VM_PY312
  __atomic_store_n(&_PyRuntime.ceval.signals_pending._value, 1, __ATOMIC_RELAXED);
#endif
  __atomic_store_n(&state->interp->ceval.eval_breaker._value, 1, __ATOMIC_RELAXED);
#endif
}

void show(Waiting& waiting) {
  if (waiting.hidden == 0) return;
  _PyRuntime.main_thread = std::exchange(waiting.hidden, 0UL);
  if (signals_wait()) look_again(PyThreadState_Get());
}

/// Instructions at whose end CPython's evaluator looks whether there is anything to do.
bool looks_for_interrupts(int opcode) {
  switch (opcode) {
    case RESUME:
    case JUMP_BACKWARD:
    case CALL:
    case CALL_FUNCTION_EX:
#if VM_PY311
    case PRECALL:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE:
#elif VM_PY313
    case CALL_KW:
#endif
      return true;
    default: return false;
  }
}

/// Whether the exception was raised between two instructions by the evaluator itself, as PyThreadState_SetAsyncExc asks it to:
/// it was made of a class of the program's alone, in code that stands where the evaluator looks for such.
bool sent_by_a_thread(PyObject* error) {
  if (PyErr_GivenExceptionMatches(error, PyExc_Exception) == 0) return true;
  const PyTypeObject* type = Py_TYPE(error);
  const bool own = (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 || type == (PyTypeObject*)PyExc_TimeoutError;
  PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(error)->args;
  if (!own || args == nullptr || PyTuple_GET_SIZE(args) != 0) return false;
  auto* trace = reinterpret_cast<PyTracebackObject*>(reinterpret_cast<PyBaseExceptionObject*>(error)->traceback);
  if (trace == nullptr) return true;
  while (trace->tb_next != nullptr) trace = trace->tb_next;
  PyCodeObject* code = PyFrame_GetCode(trace->tb_frame);
  const std::uint16_t* words = vm::plain_code(code);
  const int opcode = words != nullptr && trace->tb_lasti >= 0 ? words[trace->tb_lasti / 2] & 255 : -1;
  Py_DECREF(code);
  return looks_for_interrupts(opcode);
}

void keep(PyObject* error) {
  if (t_postponed == nullptr && PyErr_GivenExceptionMatches(error, unwinding_error()) == 0) {
    t_postponed = error;
  } else {
    Py_DECREF(error);
  }
}

}  // namespace

SignalsWait::SignalsWait() : waiting_(t_waiting) {
  if (waiting_.depth++ == 0) hide(waiting_);
}

SignalsWait::~SignalsWait() {
  if (--waiting_.depth == 0) show(waiting_);
}

SignalsRun::SignalsRun() : depth_(std::exchange(t_waiting.depth, 0)) {
  if (depth_ > 0) show(t_waiting);
}

SignalsRun::~SignalsRun() {
  t_waiting.depth = depth_;
  if (depth_ > 0) hide(t_waiting);
}

bool handlers_wait() { return t_waiting.depth > 0; }

bool handles_signals() { return t_waiting.hidden != 0 || _PyRuntime.main_thread == PyThread_get_thread_ident(); }

bool interrupted(PyThreadState* state) {
  if (t_postponed != nullptr || state->async_exc != nullptr) return true;
  return signals_wait() && handles_signals();
}

bool only_signals_wait() { return t_postponed == nullptr && PyThreadState_Get()->async_exc == nullptr; }

InterruptSigns::InterruptSigns() : state_(PyThreadState_Get()), main_(handles_signals()) {}

bool InterruptSigns::any() const {
  return (main_ && signals_wait()) || __atomic_load_n(&state_->async_exc, __ATOMIC_RELAXED) != nullptr;
}

int raise_sent(PyThreadState* state) {
#if VM_PY313
  _Py_unset_eval_breaker_bit(state, _PY_ASYNC_EXCEPTION_BIT);
  auto* sent = static_cast<PyObject*>(_Py_atomic_exchange_ptr(&state->async_exc, nullptr));
#else
  // Leaves eval_breaker to be recomputed by the next request; until then the evaluator finds nothing to do.
  if (state->async_exc != nullptr) state->interp->ceval.pending.async_exc = 0;
  PyObject* sent = std::exchange(state->async_exc, nullptr);
#endif
  if (sent == nullptr) return 0;
  PyErr_SetNone(sent);
  Py_DECREF(sent);
  return -1;
}

int deliver_interrupts() {
  if (raise_postponed()) return -1;
  const SignalsRun run;
  if (Py_MakePendingCalls() == 0 && raise_sent(PyThreadState_Get()) == 0) return 0;
  t_delivered = take_raised();
  set_raised(t_delivered);
  return -1;
}

void delivered() { t_delivered = nullptr; }

PyObject* unwinding_error() {
  static PyObject* const type = PyErr_NewException("tatara._core.Unwinding", PyExc_BaseException, nullptr);
  return type;
}

PyObject* take_raised() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

void set_raised(PyObject* error) { PyErr_Restore(Py_NewRef(Py_TYPE(error)), error, PyException_GetTraceback(error)); }

void forget_error(PyObject* expected) {
  PyObject* const kind = PyErr_Occurred();
  if (kind == nullptr) return;
  // One of Python's own, as most are, need not be looked at.
  const bool usual = t_delivered == nullptr &&
                     (reinterpret_cast<PyTypeObject*>(kind)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 &&
                     kind != PyExc_TimeoutError && PyErr_GivenExceptionMatches(kind, PyExc_MemoryError) == 0;
  if (usual && PyErr_GivenExceptionMatches(kind, expected) != 0 &&
      PyErr_GivenExceptionMatches(kind, PyExc_Exception) != 0) {
    PyErr_Clear();
    return;
  }
  Py_XDECREF(take_error(expected));
}

PyObject* take_error(PyObject* expected) {
  if (PyErr_Occurred() == nullptr) return nullptr;
  PyObject* error = take_raised();
  if (PyErr_GivenExceptionMatches(error, expected) != 0 && PyErr_GivenExceptionMatches(error, PyExc_MemoryError) == 0 &&
      error != t_delivered && !sent_by_a_thread(error)) {
    return error;
  }
  keep(error);
  return nullptr;
}

bool caught(PyObject* kind) {
  if (PyErr_ExceptionMatches(kind) == 0) return false;
  PyErr_Clear();
  return true;
}

void postpone_error() {
  if (PyErr_Occurred() != nullptr) keep(take_raised());
}

bool error_postponed() { return t_postponed != nullptr; }

bool raise_postponed() {
  if (t_postponed == nullptr) return false;
  set_raised(std::exchange(t_postponed, nullptr));
  return true;
}

PyObject* or_postponed(PyObject* result) {
  if (t_postponed == nullptr) return result;
  Py_XDECREF(result);
  PyObject* other = PyErr_Occurred() != nullptr ? take_raised() : nullptr;
  if (other != nullptr) PyException_SetContext(t_postponed, other);
  raise_postponed();
  return nullptr;
}

}  // namespace tatara::capture
