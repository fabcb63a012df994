// The evaluator's entry, its dispatch loop and the ways out of a frame.
//
// Leaving: 3.11 and 3.13 let us end a frame ourselves. Where the code for it is hidden (3.12, and making or
// suspending a generator everywhere) the frame is put back at the leaving instruction and CPython's evaluator
// executes that one.
#include "capture/vm/vm_internal.h"  // first: it decides how Python.h declares things

#include <pthread.h>

#include "capture/vm/interrupts.h"
#include "capture/vm/opcodes.h"

namespace tatara::capture {

using namespace vm;

namespace {

/// Lowest stack address at which we still enter a frame: Python's C recursion counters are made for CPython's own
/// frames, so the VM guards the real stack.
const char* find_stack_limit() {
  constexpr std::size_t kReserve = 384 * 1024;
  pthread_attr_t attributes;
  void* base = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
  }
  const std::size_t reserve = size / 4 < kReserve ? size / 4 : kReserve;
  // Never nullptr, which says that it has not been asked for yet.
  return static_cast<const char*>(base) + (reserve != 0 ? reserve : 1);
}

enum class RaiseKind {
  kError,   ///< add this frame to the traceback, then look for a handler
  kUnwind,  ///< a re-raise: the traceback stays as it is
};

/// Runs the frame in CPython's evaluator from instruction `next`, for good or for one leaving instruction.
PyObject* leave_through_default(Frame& f, int next, int throwflag) {
  unlink_frame(f.tstate, f.raw);
  recursion_remaining(f.tstate)++;
  _PyFrame_SetStackPointer(f.raw, f.sp);
  if (throwflag == 0) set_frame_next(f.raw, next);
  return eval_default(f.tstate, f.raw, throwflag);
}

#if !VM_PY312
/// Takes a frame whose stack is empty off the thread.
void take_off(Frame& f) {
  _PyFrame_SetStackPointer(f.raw, f.sp);
  recursion_remaining(f.tstate)++;
  unlink_frame(f.tstate, f.raw);
#if VM_PY313
  _PyEval_FrameClearAndPop(f.tstate, f.raw);
#endif
}
#endif

void notify_exit(Frame& f, FrameExit how, PyObject* result) {
  if (f.observer != nullptr) f.observer->on_frame_exit(f, how, result);
}

/// Ends the frame with `result` (a reference we own); the value stack is empty. `forced`: not by the program's own
/// return instruction.
PyObject* leave_by_return(Frame& f, PyObject* result, [[maybe_unused]] bool forced) {
#if VM_PY312
  // The hidden clean-up runs behind any RETURN_VALUE; find one to stand on.
  PyCodeObject* code = frame_code(f.raw);
  const std::uint16_t* words = plain_code(code);
  const int count = static_cast<int>(Py_SIZE(code));
  if (!forced && (words[f.current] & 255) == RETURN_VALUE) {
    *f.sp++ = result;
    return leave_through_default(f, f.current, 0);
  }
  if (!forced && (words[f.current] & 255) == RETURN_CONST) {
    Py_DECREF(result);
    return leave_through_default(f, f.start, 0);
  }
  for (int i = 0; i < count; i += 1 + kCacheSizes[words[i] & 255]) {
    const int opcode = words[i] & 255;
    if (opcode == RETURN_VALUE) {
      *f.sp++ = result;
      return leave_through_default(f, i, 0);
    }
  }
  // Only RETURN_CONST in this code: run it for its clean-up and return our value instead of the constant.
  for (int i = 0; i < count; i += 1 + kCacheSizes[words[i] & 255]) {
    if ((words[i] & 255) == RETURN_CONST) {
      PyObject* constant = leave_through_default(f, i, 0);
      Py_XDECREF(constant);
      return result;
    }
  }
  Py_FatalError("tatara: code object without a return instruction");
#else
  take_off(f);
  return result;
#endif
}

PyObject* leave_with_result(Frame& f, PyObject* result, bool forced) {
  notify_exit(f, FrameExit::kReturn, result);
  return leave_by_return(f, result, forced);
}

void drop_stack(Frame& f) {
  PyObject** const base = f.stack();
  while (f.sp > base) {
    PyObject* value = *--f.sp;
    Py_XDECREF(value);
  }
}

/// Ends the frame with the raised exception, which no handler of this frame takes.
PyObject* leave_with_error(Frame& f) {
  notify_exit(f, FrameExit::kError, nullptr);
#if VM_PY312
  return leave_through_default(f, 0, 1);
#else
  drop_stack(f);
  take_off(f);
  return nullptr;
#endif
}

/// Ends the frame with the raised exception, whatever handlers it has.
PyObject* leave_past_handlers(Frame& f) {
#if VM_PY312
  // CPython's evaluator would look for a handler: the frame returns, and then the error is set again.
  PyObject* const error = take_exception(f.tstate);
  restore_exception(Py_NewRef(error));
  notify_exit(f, FrameExit::kError, nullptr);
  Py_XDECREF(take_exception(f.tstate));
  drop_stack(f);
  Py_XDECREF(leave_by_return(f, Py_NewRef(Py_None), true));
  restore_exception(error);
  return nullptr;
#else
  return leave_with_error(f);
#endif
}

/// Unwinds to `handler`: drops the stack above it and pushes what the handler expects.
bool enter_handler(Frame& f, const Handler& handler) {
  PyObject** const top = f.stack() + handler.depth;
  while (f.sp > top) {
    PyObject* value = *--f.sp;
    Py_XDECREF(value);
  }
  if (handler.lasti) {
    PyObject* lasti = PyLong_FromLong(frame_index(f.raw));
    if (lasti == nullptr) return false;
    *f.sp++ = lasti;
  }
  *f.sp++ = take_exception(f.tstate);
  return true;
}

PyObject* obtained(Frame& f, PyObject** sp, Obtained how, PyObject* owner, PyObject* key, PyObject* value) {
  if (value == nullptr || f.observer == nullptr) return value;
  f.sp = sp;
  if (f.observer->obtained(f, how, owner, key, value) == 0) return value;
  Py_DECREF(value);
  return nullptr;
}

/// How a frame is left.
enum class Leaving : std::uint8_t {
  kStays,         ///< it is not: it goes on at its `start`
  kReturn,        ///< by its own return instruction
  kForcedReturn,  ///< with what the observer has put into its `result`
  kGenerator,     ///< it makes a generator, whose frame takes its place
  kSuspend,       ///< a generator gives a value
  kError,
  kPastHandlers,  ///< with the raised exception, whatever handlers it has
  kRaiseThere,    ///< CPython's evaluator runs the instruction that raises
  kHandBack,      ///< CPython's evaluator runs the rest
};

PyObject* leave_by_generator(Frame& f) {
  VmObserver* observer = f.observer;
  PyObject* generator = leave_through_default(f, f.start, 0);
  if (generator != nullptr) f.raw = vm::generator_frame(generator);  // the one that it was made of is no more
  if (observer != nullptr) {
    if (generator != nullptr) observer->on_build(f, BuildKind::kGenerator, generator);
    observer->on_frame_exit(f, generator != nullptr ? FrameExit::kReturn : FrameExit::kError, generator);
  }
  return generator;
}

/// The one way out of run(). `result` is for kReturn.
PyObject* leave_frame(Frame& f, Leaving how, PyObject* result) {
  switch (how) {
    case Leaving::kReturn: return leave_with_result(f, result, false);
    case Leaving::kForcedReturn: {
      PyObject* const forced = f.result;
      f.result = nullptr;
      drop_stack(f);
      return leave_with_result(f, forced, true);
    }
    case Leaving::kGenerator: return leave_by_generator(f);
    case Leaving::kSuspend: notify_exit(f, FrameExit::kYield, f.sp[-1]); return leave_through_default(f, f.start, 0);
    case Leaving::kError: return leave_with_error(f);
    case Leaving::kPastHandlers: return leave_past_handlers(f);
    case Leaving::kRaiseThere: notify_exit(f, FrameExit::kError, nullptr); return leave_through_default(f, f.start, 0);
    case Leaving::kStays:
    case Leaving::kHandBack: break;
  }
  return vm_hand_back(f);
}

/// A raised exception: finds its handler, which the frame then stands at. The observer may put it elsewhere.
Leaving handle_exception(Frame& f, RaiseKind kind, std::uint64_t tracing_seen) {
  PyCodeObject* const co = frame_code(f.raw);
  for (;;) {
    Handler handler;
    const bool handled = find_handler(co, f.current, &handler);
    if (f.observer != nullptr) {
      const FrameAction action = f.observer->on_exception(f, handled);
      if (action == FrameAction::kReload) return Leaving::kStays;
      if (action == FrameAction::kAbandon) return Leaving::kPastHandlers;
    }
    if (!handled) {
#if !VM_PY312
      if (kind == RaiseKind::kError) add_traceback(f.tstate, f.raw);
#endif
      return Leaving::kError;
    }
    if (kind == RaiseKind::kError) add_traceback(f.tstate, f.raw);
    const bool traced = tracing_version(f.tstate, co) != tracing_seen && tracing_active(f.tstate, co);
    if (traced && kind == RaiseKind::kError) trace_exception(f.tstate, f.raw);
    if (enter_handler(f, handler)) {
      f.start = handler.target;
      return traced ? Leaving::kHandBack : Leaving::kStays;
    }
    kind = RaiseKind::kError;
  }
}

#if VM_PY312
/// An exception that CPython's evaluator is to raise, for which there is no handler here.
Leaving raise_there(Frame& f) {
  const FrameAction action = f.observer != nullptr ? f.observer->on_exception(f, false) : FrameAction::kRun;
  if (action == FrameAction::kReload) return Leaving::kStays;
  return action == FrameAction::kAbandon ? Leaving::kPastHandlers : Leaving::kRaiseThere;
}
#endif

#include "capture/vm/vm_macros.inc"

/// Executes the frame until it leaves. One function because the registers (sp, next) must stay in machine registers
/// and every instruction needs them; the bodies are grouped by theme in the .inc files.
PyObject* run(Frame& f, VmContext& context, int throwflag) {
  PyThreadState* const tstate = f.tstate;
  _PyInterpreterFrame* const raw = f.raw;
  PyCodeObject* const co = frame_code(raw);
  const std::uint16_t* const code = plain_code(co);
  PyObject** const locals = raw->localsplus;
  PyObject* const names = co->co_names;
  PyObject* const consts = co->co_consts;
  _Py_CODEUNIT* const code_start = _PyCode_CODE(co);
  _Py_CODEUNIT*& instruction_pointer = frame_instruction(raw);
  const std::uint64_t tracing_seen = tracing_version(tstate, co);
  std::uint64_t count = 0;
  PyObject** sp = f.sp;
  PyObject* kwnames = nullptr;  // from KW_NAMES, for the CALL that follows
  PyObject* retval = nullptr;
  int next = f.start;
  int opcode = 0, oparg = 0;
  RaiseKind raise_kind = RaiseKind::kError;
  Leaving leaving = Leaving::kHandBack;

  // The exception was raised at the instruction where the frame is suspended.
  if (throwflag != 0) f.start = f.current = frame_next(raw) - 1;
  if (throwflag != 0) goto error;

  for (;;) {
    if (kwnames == nullptr) f.start = next;
    opcode = code[next] & 255;
    oparg = code[next] >> 8;
    while (opcode == EXTENDED_ARG) {
      const int word = code[++next];
      opcode = word & 255;
      oparg = (oparg << 8) | (word >> 8);
    }
    f.current = next;
    instruction_pointer = code_start + next;
    count++;
    if (f.root && kwnames == nullptr && f.observer != nullptr) {
      f.sp = sp;
      const FrameAction action = f.observer->before_instruction(f, opcode, oparg);
      sp = f.sp;
      if (action != FrameAction::kRun) {
        if (action == FrameAction::kReload) goto reload;
        if (action == FrameAction::kReturn) leaving = Leaving::kForcedReturn;
        if (action == FrameAction::kReturn || action == FrameAction::kHandBack) goto leave;
        goto error;
      }
    }
    next += 1 + kCacheSizes[static_cast<std::size_t>(opcode)];
    switch (opcode) {
#include "capture/vm/vm_ops_async.inc"
#include "capture/vm/vm_ops_build.inc"
#include "capture/vm/vm_ops_calls.inc"
#include "capture/vm/vm_ops_control.inc"
#include "capture/vm/vm_ops_names.inc"
#include "capture/vm/vm_ops_stack.inc"
#include "capture/vm/vm_ops_values.inc"
      default: goto leave;  // nothing the compiler makes: CPython's evaluator raises the error for it
    }
    continue;

  check_breaker:  // after calls, backward jumps and RESUME
    if (f.observer != nullptr && interrupted(tstate)) [[unlikely]] {
      f.sp = sp;
      if (f.observer->on_interrupt(f) != 0) goto error;
    }
    if (breaker_set(tstate) && handle_pending(tstate) != 0) goto error;
    if (tracing_version(tstate, co) == tracing_seen || !tracing_active(tstate, co)) continue;
    f.start = next;
    goto leave;

  unwind:
    raise_kind = RaiseKind::kUnwind;
  error:
    kwnames = nullptr;
    f.sp = sp;
    leaving = handle_exception(f, raise_kind, tracing_seen);
    raise_kind = RaiseKind::kError;
#if VM_PY312
  moved:
#endif
    if (leaving != Leaving::kStays) goto left;
    leaving = Leaving::kHandBack;
  reload:
    sp = f.sp;
    next = f.start;
  }

#if VM_PY312
raise_there:
  f.sp = sp;
  leaving = raise_there(f);
  goto moved;
#endif

leave:
  f.sp = sp;
left:
  context.instructions += count;
  return leave_frame(f, leaving, retval);
}

}  // namespace

namespace {
bool run_unobserved = true;
int install_count = 0;
_PyFrameEvalFunction previous_evaluator = nullptr;

/// vm_context() without the cost of thread-local storage while one thread keeps running. The GIL guards the cache.
VmContext& context_of(const PyThreadState* tstate) {
  static const PyThreadState* cached_state = nullptr;
  static std::uint64_t cached_id = 0;
  static VmContext* cached = nullptr;
  if (tstate != cached_state || tstate->id != cached_id) [[unlikely]] {
    cached = &vm_context();
    cached_state = tstate;
    cached_id = tstate->id;
  }
  return *cached;
}
}  // namespace

VmContext& vm_context() {
  thread_local VmContext context;
  return context;
}

/// Another compiler's frames (a thread that runs torch.compile while this one traces) stay that compiler's. Where its
/// evaluator was put in place after ours as well, it hands the same frame back to us.
static PyObject* eval_unobserved(PyThreadState* tstate, _PyInterpreterFrame* raw, int throwflag, VmContext& context) {
  if (previous_evaluator == nullptr || context.delegated == raw) return eval_default(tstate, raw, throwflag);
  const _PyInterpreterFrame* const before = context.delegated;
  context.delegated = raw;
  PyObject* result = previous_evaluator(tstate, raw, throwflag);
  context.delegated = before;
  return result;
}

PyObject* vm_hand_back(Frame& frame) {
  notify_exit(frame, FrameExit::kHandBack, nullptr);
  return leave_through_default(frame, frame.start, PyErr_Occurred() != nullptr ? 1 : 0);
}

PyObject* vm_eval_frame(PyThreadState* tstate, _PyInterpreterFrame* raw, int throwflag) {
  PyCodeObject* const code = frame_code(raw);
  VmContext& context = context_of(tstate);
  if (context.observer == nullptr && !run_unobserved) return eval_unobserved(tstate, raw, throwflag, context);
  // At the recursion limit CPython's evaluator raises the error itself.
  if (recursion_remaining(tstate) <= 0 || tracing_active(tstate, code) || is_borrowed_code(code) ||
      plain_code(code) == nullptr) {
    return eval_default(tstate, raw, throwflag);
  }
  if (context.stack_limit == nullptr) [[unlikely]]
    context.stack_limit = find_stack_limit();
  const char* const here = static_cast<const char*>(__builtin_frame_address(0));
  if (here < context.stack_limit) [[unlikely]] {
    if (throwflag == 0) PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    return eval_default(tstate, raw, 1);
  }
  recursion_remaining(tstate)--;
  context.frames++;

  Frame frame;
  frame.tstate = tstate;
  frame.raw = raw;
  frame.observer = context.observer;
  frame.throwing = throwflag != 0;
  frame.start = frame_next(raw);
  frame.current = frame.start;
  frame.resumed = frame.start != 0;
  frame.sp = raw->localsplus + raw->stacktop;
  raw->stacktop = -1;
  FrameLink link;
  link_frame(tstate, raw, &link);
  if (frame.observer != nullptr) {
    switch (frame.observer->on_frame_enter(frame)) {
      case FrameAction::kRun:
      case FrameAction::kReload: break;
      case FrameAction::kHandBack:
        frame.observer = nullptr;
        return leave_through_default(frame, frame.start, throwflag);
      case FrameAction::kReturn: {
        PyObject* const result = frame.result;
        frame.result = nullptr;
        while (frame.sp > frame.stack()) {
          PyObject* value = *--frame.sp;
          Py_XDECREF(value);
        }
        return leave_with_result(frame, result, true);
      }
      case FrameAction::kRaise:
      case FrameAction::kAbandon: throwflag = 1; break;
    }
  }
  return run(frame, context, throwflag);
}

namespace {

/// On top of whatever is in place.
void put_in_place() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction present = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (present == vm_eval_frame) return;
  previous_evaluator = present == _PyEval_EvalFrameDefault ? nullptr : present;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, vm_eval_frame);
}

}  // namespace

void vm_install() {
  if (install_count++ == 0) put_in_place();
}

void vm_uninstall() {
  if (install_count == 0 || --install_count > 0) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Else another compiler's evaluator was put on top of ours meanwhile, or in its place.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == vm_eval_frame) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter,
                                         previous_evaluator != nullptr ? previous_evaluator : _PyEval_EvalFrameDefault);
  }
  previous_evaluator = nullptr;
}

bool vm_sees_frames() {
  if (_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == vm_eval_frame) return true;
  put_in_place();
  return false;
}

bool vm_installed() { return install_count > 0; }

void vm_run_unobserved(bool run) { run_unobserved = run; }

}  // namespace tatara::capture
