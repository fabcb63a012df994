// Bodies of instructions: operators, unpacking, exceptions, asynchronous protocols, pending work.
#include <opcode.h>

#include "capture/vm/vm_internal.h"
// After the interpreter's own headers.
#include "capture/python/gil.h"
#include "capture/vm/interrupts.h"

namespace tatara::capture::vm {

// Thread state -------------------------------------------------------------------------------------------------------

bool tracing_active(PyThreadState* tstate, PyCodeObject* code) {
#if VM_PY311
  (void)code;
  return tstate->cframe->use_tracing != 0;
#else
  const auto any = [](const auto& tools) {
    unsigned all = 0;
    for (auto tool : tools.tools) all |= tool;
    return all != 0;
  };
  if (any(tstate->interp->monitors)) return true;
  return code->_co_monitoring != nullptr && any(code->_co_monitoring->local_monitors);
#endif
}

#if VM_PY313
int handle_pending(PyThreadState* tstate) { return _Py_HandlePending(tstate); }
#else
namespace {

#if VM_PY312
/// The collector runs from the eval breaker and is hidden: let CPython's evaluator look at the breaker itself.
int run_scheduled_collection(PyThreadState* tstate) {
  PyObject* none = Py_None;
  PyObject* result = borrow_instruction(tstate->cframe->current_frame, NOP, 0, &none, 1, 1);
  Py_XDECREF(result);
  return result == nullptr ? -1 : 0;
}
#endif

}  // namespace

int handle_pending(PyThreadState* tstate) {
  auto& ceval = tstate->interp->ceval;
  // Signals (in the main thread) and queued C callbacks.
#if VM_PY311
  if (Py_MakePendingCalls() != 0) return -1;
#else
  if (_PyEval_MakePendingCalls(tstate) != 0) return -1;
  if (__atomic_load_n(&ceval.gc_scheduled._value, __ATOMIC_RELAXED) != 0 && run_scheduled_collection(tstate) != 0)
    return -1;
#endif
  if (__atomic_load_n(&ceval.gil_drop_request._value, __ATOMIC_RELAXED) != 0) {
    const GilRelease unlocked;
  }
  return raise_sent(tstate);
}
#endif

// Exceptions ---------------------------------------------------------------------------------------------------------

PyObject* take_exception(PyThreadState*) {
#if VM_PY311
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  // PyException_SetTraceback would leave None where others look for a traceback.
  Py_XSETREF(reinterpret_cast<PyBaseExceptionObject*>(value)->traceback, traceback);
  Py_XDECREF(type);
  return value;
#else
  return PyErr_GetRaisedException();
#endif
}

void restore_exception(PyObject* exception) {
#if VM_PY311
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), exception,
                PyException_GetTraceback(exception));
#else
  PyErr_SetRaisedException(exception);
#endif
}

void add_traceback(PyThreadState* tstate, _PyInterpreterFrame* raw) {
  if (PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_SystemError, "error return without exception set");
  }
  if (_PyFrame_IsIncomplete(raw)) return;
  PyFrameObject* frame = PyThreadState_GetFrame(tstate);
  if (frame == nullptr) return;
  PyTraceBack_Here(frame);
  Py_DECREF(frame);
}

void trace_exception(PyThreadState* tstate, [[maybe_unused]] _PyInterpreterFrame* raw) {
#if VM_PY313
  _PyEval_MonitorRaise(tstate, raw, raw->instr_ptr);
#else
  if (tstate->c_tracefunc == nullptr || tstate->tracing != 0) return;
  PyFrameObject* frame = PyThreadState_GetFrame(tstate);
  PyObject* error = take_exception(tstate);
  PyObject* traceback = PyException_GetTraceback(error);
  PyObject* argument =
      PyTuple_Pack(3, reinterpret_cast<PyObject*>(Py_TYPE(error)), error, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  PyThreadState_EnterTracing(tstate);
  const int status = argument == nullptr || frame == nullptr
                         ? 0
                         : tstate->c_tracefunc(tstate->c_traceobj, frame, PyTrace_EXCEPTION, argument);
  PyThreadState_LeaveTracing(tstate);
  Py_XDECREF(argument);
  Py_XDECREF(frame);
  if (status == 0) {
    restore_exception(error);
  } else {
    Py_DECREF(error);  // the trace function's own error takes its place
  }
#endif
}

namespace {

/// Reads one number of the exception table: 6 bits a byte, big end first, bit 0x40 says that more follows.
int read_varint(const unsigned char*& at) {
  int value = *at & 63;
  while ((*at++ & 64) != 0) value = (value << 6) | (*at & 63);
  return value;
}

}  // namespace

bool find_handler(PyCodeObject* code, int index, Handler* handler) {
  const auto* at = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const auto* const end = at + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (at < end) {
    const int start = read_varint(at);
    if (start > index) return false;  // entries are sorted and do not overlap
    const int size = read_varint(at);
    const int target = read_varint(at);
    const int depth_lasti = read_varint(at);
    if (index < start + size) {
      *handler = Handler{target, depth_lasti >> 1, (depth_lasti & 1) != 0};
      return true;
    }
  }
  return false;
}

namespace {

/// An exception instance from a class or instance; nullptr with an error. `message` is for things that are neither.
PyObject* exception_instance(PyObject* exception, const char* message) {
  if (PyExceptionClass_Check(exception)) {
    PyObject* value = PyObject_CallNoArgs(exception);
    if (value != nullptr && !PyExceptionInstance_Check(value)) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", exception,
                   Py_TYPE(value));
      Py_CLEAR(value);
    }
    return value;
  }
  if (PyExceptionInstance_Check(exception)) return Py_NewRef(exception);
  PyErr_SetString(PyExc_TypeError, message);
  return nullptr;
}

}  // namespace

bool raise_varargs(PyThreadState* tstate, PyObject* exception, PyObject* cause) {
  if (exception == nullptr) {
    _PyErr_StackItem* info = tstate->exc_info;
    while ((info->exc_value == nullptr || info->exc_value == Py_None) && info->previous_item != nullptr) {
      info = info->previous_item;
    }
    if (info->exc_value == nullptr || info->exc_value == Py_None) {
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return false;
    }
    restore_exception(Py_NewRef(info->exc_value));
    return true;
  }
  PyObject* value = exception_instance(exception, "exceptions must derive from BaseException");
  if (value == nullptr) return false;
  if (cause != nullptr) {
    PyObject* fixed = nullptr;
    if (cause != Py_None) {
      fixed = exception_instance(cause, "exception causes must derive from BaseException");
      if (fixed == nullptr) {
        Py_DECREF(value);
        return false;
      }
    }
    PyException_SetCause(value, fixed);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_DECREF(value);
  return false;
}

int check_except_type(PyObject* type, bool star) {
  const char* const not_exception = "catching classes that do not inherit from BaseException is not allowed";
  const char* const is_group = "catching ExceptionGroup with except* is not allowed. Use except instead.";
  const Py_ssize_t count = PyTuple_Check(type) ? PyTuple_GET_SIZE(type) : 1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* item = PyTuple_Check(type) ? PyTuple_GET_ITEM(type, i) : type;
    if (!PyExceptionClass_Check(item)) {
      PyErr_SetString(PyExc_TypeError, not_exception);
      return -1;
    }
  }
  if (!star) return 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* item = PyTuple_Check(type) ? PyTuple_GET_ITEM(type, i) : type;
    const int group = PyObject_IsSubclass(item, PyExc_BaseExceptionGroup);
    if (group < 0) return -1;
    if (group != 0) {
      PyErr_SetString(PyExc_TypeError, is_group);
      return -1;
    }
  }
  return 0;
}

int except_star_match(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
#if VM_PY313
  return _PyEval_ExceptionGroupMatch(exception, type, match, rest) < 0 || *match == nullptr ? -1 : 0;
#else
  if (exception == Py_None) {
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(Py_None);
    return 0;
  }
  const bool is_group = PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
  if (PyErr_GivenExceptionMatches(exception, type) != 0) {
    if (is_group) {
      *match = Py_NewRef(exception);
    } else {
      // A plain exception is wrapped in a group of one.
      *match = PyObject_CallFunction(PyExc_BaseExceptionGroup, "s(O)", "", exception);
      if (*match == nullptr) return -1;
    }
    *rest = Py_NewRef(Py_None);
    return 0;
  }
  if (!is_group) {
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(exception);
    return 0;
  }
  PyObject* pair = PyObject_CallMethod(exception, "split", "(O)", type);
  if (pair == nullptr) return -1;
  if (!PyTuple_CheckExact(pair)) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a tuple, not %.200s", Py_TYPE(exception)->tp_name,
                 Py_TYPE(pair)->tp_name);
    Py_DECREF(pair);
    return -1;
  }
  if (PyTuple_GET_SIZE(pair) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got tuple of size %zd",
                 Py_TYPE(exception)->tp_name, PyTuple_GET_SIZE(pair));
    Py_DECREF(pair);
    return -1;
  }
  *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
  *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
  Py_DECREF(pair);
  return 0;
#endif
}

PyObject* stop_iteration_error(PyCodeObject* code, PyObject* exception) {
  const char* message = nullptr;
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration) != 0) {
    message = (code->co_flags & CO_ASYNC_GENERATOR) != 0 ? "async generator raised StopIteration"
              : (code->co_flags & CO_COROUTINE) != 0     ? "coroutine raised StopIteration"
                                                         : "generator raised StopIteration";
  } else if ((code->co_flags & CO_ASYNC_GENERATOR) != 0 &&
             PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration) != 0) {
    message = "async generator raised StopAsyncIteration";
  }
  if (message == nullptr) return Py_NewRef(exception);
  PyObject* error = PyObject_CallFunction(PyExc_RuntimeError, "s", message);
  if (error == nullptr) return nullptr;
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, Py_NewRef(exception));
  return error;
}

// Operators ----------------------------------------------------------------------------------------------------------

namespace {

PyObject* power(PyObject* left, PyObject* right) { return PyNumber_Power(left, right, Py_None); }
PyObject* inplace_power(PyObject* left, PyObject* right) { return PyNumber_InPlacePower(left, right, Py_None); }

constexpr binaryfunc kBinaryOperators[] = {
    PyNumber_Add,
    PyNumber_And,
    PyNumber_FloorDivide,
    PyNumber_Lshift,
    PyNumber_MatrixMultiply,
    PyNumber_Multiply,
    PyNumber_Remainder,
    PyNumber_Or,
    power,
    PyNumber_Rshift,
    PyNumber_Subtract,
    PyNumber_TrueDivide,
    PyNumber_Xor,
    PyNumber_InPlaceAdd,
    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide,
    PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply,
    PyNumber_InPlaceRemainder,
    PyNumber_InPlaceOr,
    inplace_power,
    PyNumber_InPlaceRshift,
    PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceXor,
};
static_assert(NB_ADD == 0 && NB_POWER == 8 && NB_INPLACE_ADD == 13 && NB_INPLACE_XOR == 25);

}  // namespace

PyObject* binary_op(int op, PyObject* left, PyObject* right) { return kBinaryOperators[op](left, right); }

PyObject* convert_value(PyObject* value, int conversion) {
  switch (conversion) {
    case 1: return PyObject_Str(value);
    case 2: return PyObject_Repr(value);
    case 3: return PyObject_ASCII(value);
    default: return Py_NewRef(value);
  }
}

PyObject* format_value(PyObject* value, int conversion, PyObject* spec) {
  PyObject* converted = convert_value(value, conversion);
  if (converted == nullptr || (PyUnicode_CheckExact(converted) && spec == nullptr)) return converted;
  PyObject* result = PyObject_Format(converted, spec);
  Py_DECREF(converted);
  return result;
}

// Unpacking and merging ----------------------------------------------------------------------------------------------

namespace {

void drop_all(PyObject** out, int count) {
  for (int i = 0; i < count; i++) Py_CLEAR(out[i]);
}

int too_few(int expected, bool at_least, Py_ssize_t got) {
  PyErr_Format(PyExc_ValueError,
               at_least ? "not enough values to unpack (expected at least %d, got %zd)"
                        : "not enough values to unpack (expected %d, got %zd)",
               expected, got);
  return -1;
}

/// The starred part: everything left in the iterator as a list, whose tail becomes the `after` last values.
int unpack_rest(PyObject* iterator, int before, int after, PyObject** out) {
  PyObject* list = PySequence_List(iterator);
  if (list == nullptr) return -1;
  const Py_ssize_t length = PyList_GET_SIZE(list);
  if (length < after) {
    Py_DECREF(list);
    return too_few(before + after, true, before + length);
  }
  out[before] = list;
  for (int i = 0; i < after; i++) {
    out[before + 1 + i] = Py_NewRef(PyList_GET_ITEM(list, length - after + i));
  }
  if (after > 0 && PyList_SetSlice(list, length - after, length, nullptr) != 0) {
    drop_all(out + before, 1 + after);
    return -1;
  }
  return 0;
}

}  // namespace

int unpack_iterable(PyObject* iterable, int before, int after, PyObject** out) {
  if (after < 0 && PyTuple_CheckExact(iterable) && PyTuple_GET_SIZE(iterable) == before) {
    for (int i = 0; i < before; i++) out[i] = Py_NewRef(PyTuple_GET_ITEM(iterable, i));
    return 0;
  }
  PyObject* iterator = PyObject_GetIter(iterable);
  if (iterator == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(iterable)->tp_iter == nullptr &&
        !PySequence_Check(iterable)) {
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(iterable)->tp_name);
    }
    return -1;
  }
  int got = 0;
  int status = 0;
  for (; got < before; got++) {
    out[got] = PyIter_Next(iterator);
    if (out[got] == nullptr) {
      if (PyErr_Occurred() == nullptr) too_few(after < 0 ? before : before + after, after >= 0, got);
      status = -1;
      break;
    }
  }
  if (status == 0 && after >= 0) {
    status = unpack_rest(iterator, before, after, out);
  } else if (status == 0) {
    PyObject* extra = PyIter_Next(iterator);
    if (extra != nullptr) {
      Py_DECREF(extra);
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
    }
    if (PyErr_Occurred() != nullptr) status = -1;
  }
  if (status != 0) drop_all(out, got);
  Py_DECREF(iterator);
  return status;
}

int list_extend(PyObject* list, PyObject* iterable) {
  PyObject* none = _PyList_Extend(reinterpret_cast<PyListObject*>(list), iterable);
  if (none == nullptr) {
    if (Py_TYPE(iterable)->tp_iter == nullptr && !PySequence_Check(iterable) && caught(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(iterable)->tp_name);
    }
    return -1;
  }
  Py_DECREF(none);
  return 0;
}

int dict_update(PyObject* dict, PyObject* mapping) {
  if (PyDict_Update(dict, mapping) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping)->tp_name);
  }
  return -1;
}

namespace {

/// Turns the error of merging `**mapping` into the message of a call.
void format_keywords_error(PyObject* callable, PyObject* mapping) {
  if (caught(PyExc_AttributeError)) {
    PyObject* text = _PyObject_FunctionStr(callable);
    if (text == nullptr) return;
    PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", text,
                 Py_TYPE(mapping)->tp_name);
    Py_DECREF(text);
  } else if (PyErr_ExceptionMatches(PyExc_KeyError)) {
    PyObject* error = take_exception(nullptr);
    PyObject* arguments = reinterpret_cast<PyBaseExceptionObject*>(error)->args;
    if (arguments == nullptr || !PyTuple_Check(arguments) || PyTuple_GET_SIZE(arguments) != 1) {
      restore_exception(error);
      return;
    }
    PyObject* key = PyTuple_GET_ITEM(arguments, 0);
    PyObject* text = _PyObject_FunctionStr(callable);
    if (text != nullptr) {
      PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text, key);
      Py_DECREF(text);
    }
    Py_DECREF(error);
  }
}

}  // namespace

int dict_merge(PyObject* dict, PyObject* mapping, PyObject* callable) {
  if (_PyDict_MergeEx(dict, mapping, 2) == 0) return 0;
  format_keywords_error(callable, mapping);
  return -1;
}

PyObject* call_ex(PyObject* callable, PyObject* args, PyObject* kwargs) {
  PyObject* positional = nullptr;
  if (PyTuple_CheckExact(args)) {
    positional = Py_NewRef(args);
  } else {
    if (Py_TYPE(args)->tp_iter == nullptr && !PySequence_Check(args)) {
      PyObject* text = _PyObject_FunctionStr(callable);
      if (text != nullptr) {
        PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text,
                     Py_TYPE(args)->tp_name);
        Py_DECREF(text);
      }
      return nullptr;
    }
    positional = PySequence_Tuple(args);
    if (positional == nullptr) return nullptr;
  }
  PyObject* keywords = Py_XNewRef(kwargs);
  if (kwargs != nullptr && !PyDict_CheckExact(kwargs)) {
    Py_DECREF(keywords);
    keywords = PyDict_New();
    if (keywords == nullptr || dict_merge(keywords, kwargs, callable) != 0) {
      Py_XDECREF(keywords);
      Py_DECREF(positional);
      return nullptr;
    }
  }
  PyObject* result = PyObject_Call(callable, positional, keywords);
  Py_DECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

}  // namespace tatara::capture::vm

namespace tatara::capture {

long vm_filters_version() { return PyInterpreterState_Get()->warnings.filters_version; }

void vm_drop_finalizer(PyObject* object) {
  if (PyObject_IS_GC(object) && Py_TYPE(object)->tp_finalize != nullptr) _PyGC_SET_FINALIZED(object);
}

}  // namespace tatara::capture
