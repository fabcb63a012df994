// Access to CPython's interpreter frames and thread state, one set of inline functions for 3.11, 3.12 and 3.13.
// Only the VM's own sources include this.
#pragma once

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
// C's <stdatomic.h> is not C++20: let CPython's headers fall back to the compiler's builtins (same layout).
#undef HAVE_STD_ATOMIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
extern "C" {
#include "internal/pycore_ceval.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_function.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_object.h"
#include "internal/pycore_pyerrors.h"
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_dict.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_intrinsics.h"
#include "internal/pycore_list.h"
#include "internal/pycore_setobject.h"
#include "internal/pycore_typeobject.h"
#include "internal/pycore_unicodeobject.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "internal/pycore_intrinsics.h"
#endif
}
#pragma GCC diagnostic pop

#include <cstdint>

#include "capture/python/py_errors.h"
#include "capture/vm/vm.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "the bytecode VM knows CPython 3.11, 3.12 and 3.13"
#endif
#define VM_PY311 (PY_VERSION_HEX < 0x030C0000)
#define VM_PY312 (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000)
#define VM_PY313 (PY_VERSION_HEX >= 0x030D0000)

namespace tatara::capture::vm {

inline PyCodeObject* frame_code(const _PyInterpreterFrame* raw) {
#if VM_PY313
  return reinterpret_cast<PyCodeObject*>(raw->f_executable);
#else
  return raw->f_code;
#endif
}

/// Of a generator, coroutine or async generator that has not ended.
inline _PyInterpreterFrame* generator_frame(PyObject* generator) {
  return reinterpret_cast<_PyInterpreterFrame*>(reinterpret_cast<PyGenObject*>(generator)->gi_iframe);
}
inline PyFunctionObject* frame_function(const _PyInterpreterFrame* raw) {
#if VM_PY311
  return raw->f_func;
#else
  return reinterpret_cast<PyFunctionObject*>(raw->f_funcobj);
#endif
}

/// The instruction that the frame shows as its own (f_lasti).
inline _Py_CODEUNIT*& frame_instruction(_PyInterpreterFrame* raw) {
#if VM_PY313
  return raw->instr_ptr;
#else
  return raw->prev_instr;
#endif
}
inline int frame_index(_PyInterpreterFrame* raw) {
  return static_cast<int>(frame_instruction(raw) - _PyCode_CODE(frame_code(raw)));
}
inline void set_frame_index(_PyInterpreterFrame* raw, int index) {
  frame_instruction(raw) = _PyCode_CODE(frame_code(raw)) + index;
}

/// The instruction at which CPython's evaluator would start: 3.13 keeps the next one, the others the one before.
inline constexpr int kNextBias = VM_PY313 ? 0 : 1;
inline int frame_next(_PyInterpreterFrame* raw) { return frame_index(raw) + kNextBias; }
inline void set_frame_next(_PyInterpreterFrame* raw, int index) { set_frame_index(raw, index - kNextBias); }

inline PyObject** frame_stack_base(_PyInterpreterFrame* raw) {
  return raw->localsplus + frame_code(raw)->co_nlocalsplus;
}

/// co_code without specialised or instrumented instructions, cached by the code object itself; nullptr on error.
inline const std::uint16_t* plain_code(PyCodeObject* code) {
#if VM_PY311
  PyObject* bytes = code->_co_code;
#else
  PyObject* bytes = code->_co_cached != nullptr ? code->_co_cached->_co_code : nullptr;
#endif
  if (bytes == nullptr) {
    bytes = PyCode_GetCode(code);
    if (bytes == nullptr) return nullptr;
    Py_DECREF(bytes);  // the code object's cache keeps it
  }
  return reinterpret_cast<const std::uint16_t*>(PyBytes_AS_STRING(bytes));
}

// The chain of running frames -------------------------------------------------------------------------------------

#if VM_PY313
struct FrameLink {};
inline void link_frame(PyThreadState* tstate, _PyInterpreterFrame* raw, FrameLink*) {
  raw->previous = tstate->current_frame;
  tstate->current_frame = raw;
}
inline void unlink_frame(PyThreadState* tstate, _PyInterpreterFrame* raw) { tstate->current_frame = raw->previous; }
#else
struct FrameLink {
  _PyCFrame cframe;
};
inline void link_frame(PyThreadState* tstate, _PyInterpreterFrame* raw, FrameLink* link) {
  _PyCFrame* previous = tstate->cframe;
#if VM_PY311
  link->cframe.use_tracing = previous->use_tracing;
  raw->is_entry = true;
#endif
  link->cframe.previous = previous;
  link->cframe.current_frame = raw;
  raw->previous = previous->current_frame;
  tstate->cframe = &link->cframe;
}
inline void unlink_frame(PyThreadState* tstate, _PyInterpreterFrame*) {
  _PyCFrame* own = tstate->cframe;
  tstate->cframe = own->previous;
#if VM_PY311
  tstate->cframe->use_tracing = own->use_tracing;
#endif
}
#endif

// Recursion limit: Python frames only; the C stack is guarded by address (see vm_eval.cpp). ------------------------

inline int& recursion_remaining(PyThreadState* tstate) {
#if VM_PY311
  return tstate->recursion_remaining;
#else
  return tstate->py_recursion_remaining;
#endif
}

/// Calls CPython's evaluator without letting it count our C frame.
inline PyObject* eval_default(PyThreadState* tstate, _PyInterpreterFrame* raw, int throwflag) {
#if VM_PY311
  return _PyEval_EvalFrameDefault(tstate, raw, throwflag);
#else
  tstate->c_recursion_remaining++;
  PyObject* result = _PyEval_EvalFrameDefault(tstate, raw, throwflag);
  tstate->c_recursion_remaining--;
  return result;
#endif
}

// Eval breaker and tracing -----------------------------------------------------------------------------------------

inline bool breaker_set(PyThreadState* tstate) {
#if VM_PY313
  return (_Py_atomic_load_uintptr_relaxed(&tstate->eval_breaker) & _PY_EVAL_EVENTS_MASK) != 0;
#else
  return __atomic_load_n(&tstate->interp->ceval.eval_breaker._value, __ATOMIC_RELAXED) != 0;
#endif
}

/// Tracing, profiling or monitoring wants to see this code: it is for CPython's evaluator.
bool tracing_active(PyThreadState* tstate, PyCodeObject* code);

/// Changes whenever tracing_active may have changed.
inline std::uint64_t tracing_version(PyThreadState* tstate, PyCodeObject* code) {
#if VM_PY311
  (void)code;
  return tstate->cframe->use_tracing;
#elif VM_PY312
  return tstate->interp->monitoring_version * 31 + code->_co_instrumentation_version;
#else
  return (tstate->eval_breaker >> _PY_EVAL_EVENTS_BITS) * 31 + code->_co_instrumentation_version;
#endif
}

// Exceptions -------------------------------------------------------------------------------------------------------

/// The raised exception as a normalised instance with its traceback; clears the error indicator. New reference.
PyObject* take_exception(PyThreadState* tstate);
/// Raises `exception` (an instance; steals it) again with the traceback it has.
void restore_exception(PyObject* exception);
/// Adds the running frame to the traceback of the raised exception.
void add_traceback(PyThreadState* tstate, _PyInterpreterFrame* raw);

/// Tells the trace function that was switched on meanwhile about the raised exception.
void trace_exception(PyThreadState* tstate, _PyInterpreterFrame* raw);

struct Handler {
  int target;  ///< instruction index
  int depth;   ///< stack depth to unwind to
  bool lasti;  ///< push the raising instruction's index
};
/// Looks `index` up in the exception table.
bool find_handler(PyCodeObject* code, int index, Handler* handler);

// Operations with bodies too long for the switch (vm_helpers.cpp, vm_names.cpp). Each returns a new reference or
// nullptr / 0 or -1, as CPython's own do. ---------------------------------------------------------------------------

int handle_pending(PyThreadState* tstate);
PyObject* binary_op(int op, PyObject* left, PyObject* right);
int unpack_iterable(PyObject* iterable, int before, int after, PyObject** out);
int list_extend(PyObject* list, PyObject* iterable);
int dict_update(PyObject* dict, PyObject* mapping);
int dict_merge(PyObject* dict, PyObject* mapping, PyObject* callable);
PyObject* call_ex(PyObject* callable, PyObject* args, PyObject* kwargs);
PyObject* format_value(PyObject* value, int conversion, PyObject* spec);
PyObject* convert_value(PyObject* value, int conversion);
bool raise_varargs(PyThreadState* tstate, PyObject* exception, PyObject* cause);  ///< true: it was a bare re-raise
int check_except_type(PyObject* type, bool star);
int except_star_match(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest);
PyObject* lookup_special(PyObject* self, const char* name, const char* missing);
PyObject* yield_from_iter(PyCodeObject* code, PyObject* iterable);
PyObject* awaitable_iter(PyObject* object);
PyObject* get_awaitable(PyObject* object, int where);
PyObject* get_aiter(PyObject* object);
PyObject* get_anext(PyObject* aiter);
PyObject* stop_iteration_error(PyCodeObject* code, PyObject* exception);
PyObject* match_keys(_PyInterpreterFrame* raw, PyObject* subject, PyObject* keys);
PyObject* match_class(_PyInterpreterFrame* raw, PyObject* subject, PyObject* type, int positional, PyObject* names);

void set_name_error(PyObject* type, const char* format, PyObject* name);
void set_unbound_error(PyCodeObject* code, int index);
void set_no_locals(const char* format, PyObject* name);
/// A name in `mapping` (an exact dict or any mapping): 1 found (new reference), 0 missing, -1 error.
int lookup_mapping(PyObject* mapping, PyObject* name, PyObject** value);
PyObject* import_name(_PyInterpreterFrame* raw, PyObject* name, PyObject* fromlist, PyObject* level);
PyObject* import_from(_PyInterpreterFrame* raw, PyObject* module, PyObject* name);
int import_star(_PyInterpreterFrame* raw, PyObject* module);
PyObject* print_expr(PyObject* value);

/// Executes one instruction of CPython's own on given operands: for instructions whose work is hidden in the
/// interpreter. Runs a small code object in the default evaluator; `frame` gives the globals.
PyObject* borrow_instruction(_PyInterpreterFrame* frame, int opcode, int oparg, PyObject* const* operands, int count,
                             int results);
/// True for the code objects that borrow_instruction makes.
extern PyObject* borrowed_name;  // interned; nullptr until the first one
inline bool is_borrowed_code(const PyCodeObject* code) { return code->co_name == borrowed_name; }

#if !VM_PY311
PyObject* intrinsic_1(PyThreadState* tstate, _PyInterpreterFrame* raw, int which, PyObject* value);
PyObject* intrinsic_2(PyThreadState* tstate, _PyInterpreterFrame* raw, int which, PyObject* first, PyObject* second);
#endif

}  // namespace tatara::capture::vm
