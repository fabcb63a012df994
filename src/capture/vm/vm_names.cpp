// Bodies of instructions: names, imports, asynchronous protocols, and instructions borrowed from CPython's evaluator.
#include "capture/vm/vm_internal.h"

#include <opcode.h>

#include <map>
#include <string>
#include <utility>

namespace tatara::capture::vm {

// Names --------------------------------------------------------------------------------------------------------------

void set_name_error(PyObject* type, const char* format, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return;
  PyErr_Format(type, format, text);
  if (type != PyExc_NameError) return;
  // NameError.name serves the "did you mean" suggestions.
  PyObject* error = take_exception(nullptr);
  if (PyErr_GivenExceptionMatches(error, PyExc_NameError) != 0 &&
      reinterpret_cast<PyNameErrorObject*>(error)->name == nullptr) {
    if (PyObject_SetAttrString(error, "name", name) != 0) forget_error();
  }
  restore_exception(error);
}

void set_unbound_error(PyCodeObject* code, int index) {
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, index);
  if (index < code->co_nlocalsplus - code->co_nfreevars) {
    set_name_error(PyExc_UnboundLocalError, "cannot access local variable '%s' where it is not associated with a value",
                   name);
  } else {
    set_name_error(PyExc_NameError,
                   "cannot access free variable '%s' where it is not associated with a value in enclosing scope", name);
  }
}

void set_no_locals(const char* format, PyObject* name) { PyErr_Format(PyExc_SystemError, format, name); }

int lookup_mapping(PyObject* mapping, PyObject* name, PyObject** value) {
  if (PyDict_CheckExact(mapping)) {
    PyObject* found = PyDict_GetItemWithError(mapping, name);
    if (found == nullptr) return PyErr_Occurred() != nullptr ? -1 : 0;
    *value = Py_NewRef(found);
    return 1;
  }
  *value = PyObject_GetItem(mapping, name);
  if (*value != nullptr) return 1;
  return caught(PyExc_KeyError) ? 0 : -1;
}

PyObject* borrowed_name = nullptr;

// Imports ------------------------------------------------------------------------------------------------------------

PyObject* import_name(_PyInterpreterFrame* raw, PyObject* name, PyObject* fromlist, PyObject* level) {
  PyObject* key = PyUnicode_InternFromString("__import__");
  if (key == nullptr) return nullptr;
  PyObject* function = nullptr;
  const int found = lookup_mapping(raw->f_builtins, key, &function);
  Py_DECREF(key);
  if (found <= 0) {
    if (found == 0) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* locals = raw->f_locals != nullptr ? raw->f_locals : Py_None;
  PyObject* arguments[] = {name, raw->f_globals, locals, fromlist, level};
  PyObject* result = PyObject_Vectorcall(function, arguments, 5, nullptr);
  Py_DECREF(function);
  return result;
}

namespace {

constexpr const char* kBorrowedName = "<tatara: borrowed instruction>";

/// A code object with the given instructions; `source` gives its arguments, `consts` and `names` may be nullptr.
PyCodeObject* make_code(const char* source, int start, const std::string& code, PyObject* consts, PyObject* names) {
  if (borrowed_name == nullptr) borrowed_name = PyUnicode_InternFromString(kBorrowedName);
  PyObject* module = borrowed_name == nullptr ? nullptr : Py_CompileString(source, kBorrowedName, start);
  if (module == nullptr) return nullptr;
  PyObject* body =
      start == Py_eval_input ? PyTuple_GET_ITEM(reinterpret_cast<PyCodeObject*>(module)->co_consts, 0) : module;
  PyObject* changes = Py_BuildValue("{s:N,s:i,s:O}", "co_code",
                                    PyBytes_FromStringAndSize(code.data(), static_cast<Py_ssize_t>(code.size())),
                                    "co_stacksize", 8, "co_name", borrowed_name);
  PyObject* result = nullptr;
  if (changes != nullptr && (consts == nullptr || PyDict_SetItemString(changes, "co_consts", consts) == 0) &&
      (names == nullptr || PyDict_SetItemString(changes, "co_names", names) == 0)) {
    PyObject* replace = PyObject_GetAttrString(body, "replace");
    PyObject* empty = PyTuple_New(0);
    if (replace != nullptr && empty != nullptr) result = PyObject_Call(replace, empty, changes);
    Py_XDECREF(replace);
    Py_XDECREF(empty);
  }
  Py_XDECREF(changes);
  Py_DECREF(module);
  return reinterpret_cast<PyCodeObject*>(result);
}

void emit(std::string& code, int opcode, int oparg) {
  if (oparg > 255) emit(code, EXTENDED_ARG, oparg >> 8);
  code.push_back(static_cast<char>(opcode));
  code.push_back(static_cast<char>(oparg & 255));
}

/// The code that loads its arguments, executes the instruction and returns the top of `results` values.
PyCodeObject* borrowed_code(int opcode, int oparg, int count, int results, PyObject* names) {
  static const char* const kSources[] = {"lambda: 0", "lambda a: 0", "lambda a, b: 0", "lambda a, b, c: 0"};
  std::string code;
  emit(code, RESUME, 0);
  for (int i = 0; i < count; i++) emit(code, LOAD_FAST, i);
  emit(code, opcode, oparg);
  if (results > 1) emit(code, SWAP, results);
  for (int i = 1; i < results; i++) emit(code, POP_TOP, 0);
  emit(code, RETURN_VALUE, 0);
  return make_code(kSources[count], Py_eval_input, code, nullptr, names);
}

PyObject* run_borrowed(PyCodeObject* code, PyObject* globals, PyObject* const* operands, int count) {
  PyObject* function = PyFunction_New(reinterpret_cast<PyObject*>(code), globals);
  if (function == nullptr) return nullptr;
  PyObject* result = PyObject_Vectorcall(function, operands, static_cast<std::size_t>(count), nullptr);
  Py_DECREF(function);
  if (result == nullptr) {
    // The helper's own frame is nobody's business: drop it from the traceback.
    PyObject* error = take_exception(nullptr);
    PyObject* traceback = PyException_GetTraceback(error);
    if (traceback != nullptr && PyTraceBack_Check(traceback)) {
      PyObject* rest = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(traceback)->tb_next);
      // PyException_SetTraceback would leave None where others look for a traceback.
      Py_XSETREF(reinterpret_cast<PyBaseExceptionObject*>(error)->traceback, Py_XNewRef(rest));
    }
    Py_XDECREF(traceback);
    restore_exception(error);
  }
  return result;
}

}  // namespace

PyObject* borrow_instruction(_PyInterpreterFrame* frame, int opcode, int oparg, PyObject* const* operands, int count,
                             int results) {
  static auto* cache = new std::map<std::pair<int, int>, PyCodeObject*>();
  PyCodeObject*& code = (*cache)[{opcode, oparg}];
  if (code == nullptr) {
    PyCodeObject* made = borrowed_code(opcode, oparg, count, results, nullptr);
    if (made == nullptr) return nullptr;
    code = made;
  }
  return run_borrowed(code, frame->f_globals, operands, count);
}

PyObject* import_from(_PyInterpreterFrame* raw, PyObject* module, PyObject* name) {
  PyObject* value = PyObject_GetAttr(module, name);
  if (value != nullptr || !caught(PyExc_AttributeError)) return value;
  // Submodules in sys.modules and the many messages of ImportError: CPython's own instruction knows them.
  PyObject* names = PyTuple_Pack(1, name);
  PyCodeObject* code = names == nullptr ? nullptr : borrowed_code(IMPORT_FROM, 0, 1, 2, names);
  PyObject* result = code == nullptr ? nullptr : run_borrowed(code, raw->f_globals, &module, 1);
  Py_XDECREF(code);
  Py_XDECREF(names);
  return result;
}

#if !VM_PY313
int import_star(_PyInterpreterFrame* raw, PyObject* module) {
  if (raw->f_locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
    return -1;
  }
  std::string text;
  emit(text, RESUME, 0);
  emit(text, LOAD_CONST, 0);
#if VM_PY311
  emit(text, IMPORT_STAR, 0);
#else
  emit(text, CALL_INTRINSIC_1, INTRINSIC_IMPORT_STAR);
  emit(text, POP_TOP, 0);
#endif
  emit(text, LOAD_CONST, 1);
  emit(text, RETURN_VALUE, 0);
  PyObject* consts = PyTuple_Pack(2, module, Py_None);
  PyCodeObject* code = consts == nullptr ? nullptr : make_code("0", Py_file_input, text, consts, nullptr);
  PyObject* result =
      code == nullptr ? nullptr : PyEval_EvalCode(reinterpret_cast<PyObject*>(code), raw->f_globals, raw->f_locals);
  Py_XDECREF(code);
  Py_XDECREF(consts);
  Py_XDECREF(result);
  return result == nullptr ? -1 : 0;
}

PyObject* print_expr(PyObject* value) {
  PyObject* hook = PySys_GetObject("displayhook");
  if (hook == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    return nullptr;
  }
  Py_INCREF(hook);
  PyObject* result = PyObject_CallOneArg(hook, value);
  Py_DECREF(hook);
  return result;
}
#endif

// Patterns and intrinsics --------------------------------------------------------------------------------------------

#if VM_PY313
PyObject* match_keys(_PyInterpreterFrame*, PyObject* subject, PyObject* keys) {
  return _PyEval_MatchKeys(PyThreadState_Get(), subject, keys);
}

PyObject* match_class(_PyInterpreterFrame*, PyObject* subject, PyObject* type, int positional, PyObject* names) {
  PyObject* result = _PyEval_MatchClass(PyThreadState_Get(), subject, type, positional, names);
  if (result == nullptr && PyErr_Occurred() == nullptr) result = Py_NewRef(Py_None);
  return result;
}

PyObject* intrinsic_1(PyThreadState* tstate, _PyInterpreterFrame*, int which, PyObject* value) {
  return _PyIntrinsics_UnaryFunctions[which].func(tstate, value);
}

PyObject* intrinsic_2(PyThreadState* tstate, _PyInterpreterFrame*, int which, PyObject* first, PyObject* second) {
  return _PyIntrinsics_BinaryFunctions[which].func(tstate, first, second);
}
#else
PyObject* match_keys(_PyInterpreterFrame* raw, PyObject* subject, PyObject* keys) {
  PyObject* operands[] = {subject, keys};
  return borrow_instruction(raw, MATCH_KEYS, 0, operands, 2, 3);
}

PyObject* match_class(_PyInterpreterFrame* raw, PyObject* subject, PyObject* type, int positional, PyObject* names) {
  PyObject* operands[] = {subject, type, names};
  return borrow_instruction(raw, MATCH_CLASS, positional, operands, 3, 1);
}
#endif

#if VM_PY312
PyObject* intrinsic_1(PyThreadState*, _PyInterpreterFrame* raw, int which, PyObject* value) {
  switch (which) {
    case INTRINSIC_PRINT: return print_expr(value);
    case INTRINSIC_IMPORT_STAR: return import_star(raw, value) < 0 ? nullptr : Py_NewRef(Py_None);
    case INTRINSIC_STOPITERATION_ERROR: return stop_iteration_error(frame_code(raw), value);
    case INTRINSIC_LIST_TO_TUPLE: return PyList_AsTuple(value);
    default: return borrow_instruction(raw, CALL_INTRINSIC_1, which, &value, 1, 1);
  }
}

PyObject* intrinsic_2(PyThreadState*, _PyInterpreterFrame* raw, int which, PyObject* first, PyObject* second) {
  PyObject* operands[] = {first, second};
  return borrow_instruction(raw, CALL_INTRINSIC_2, which, operands, 2, 1);
}
#endif

// Special methods and asynchronous protocols -------------------------------------------------------------------------

PyObject* lookup_special(PyObject* self, const char* name, const char* missing) {
  PyObject* key = PyUnicode_InternFromString(name);
  if (key == nullptr) return nullptr;
  PyObject* found = _PyObject_LookupSpecial(self, key);
  Py_DECREF(key);
  if (found == nullptr && PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_TypeError, missing, Py_TYPE(self)->tp_name);
  }
  return found;
}

namespace {

bool is_awaitable_generator(PyObject* object) {
  if (PyCoro_CheckExact(object)) return true;
  if (!PyGen_CheckExact(object)) return false;
  PyObject* code = PyObject_GetAttrString(object, "gi_code");
  const bool result = code != nullptr && (reinterpret_cast<PyCodeObject*>(code)->co_flags & CO_ITERABLE_COROUTINE) != 0;
  Py_XDECREF(code);
  return result;
}

}  // namespace

PyObject* yield_from_iter(PyCodeObject* code, PyObject* iterable) {
  if (PyCoro_CheckExact(iterable)) {
    if ((code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) == 0) {
      PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
      return nullptr;
    }
    return Py_NewRef(iterable);
  }
  if (PyGen_CheckExact(iterable)) return Py_NewRef(iterable);
  return PyObject_GetIter(iterable);
}

PyObject* awaitable_iter(PyObject* object) {
  if (is_awaitable_generator(object)) return Py_NewRef(object);
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_await == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", type->tp_name);
    return nullptr;
  }
  PyObject* iterator = type->tp_as_async->am_await(object);
  if (iterator == nullptr) return nullptr;
  if (is_awaitable_generator(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    Py_CLEAR(iterator);
  } else if (!PyIter_Check(iterator)) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'", Py_TYPE(iterator)->tp_name);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* get_awaitable(PyObject* object, int where) {
  PyObject* iterator = awaitable_iter(object);
  if (iterator == nullptr) {
    PyTypeObject* type = Py_TYPE(object);
    if (type->tp_as_async == nullptr || type->tp_as_async->am_await == nullptr) {
      if (where == 1) {
        PyErr_Format(PyExc_TypeError,
                     "'async with' received an object from __aenter__ that does not implement __await__: %.100s",
                     type->tp_name);
      } else if (where == 2) {
        PyErr_Format(PyExc_TypeError,
                     "'async with' received an object from __aexit__ that does not implement __await__: %.100s",
                     type->tp_name);
      }
    }
    return nullptr;
  }
  if (PyCoro_CheckExact(iterator)) {
    PyObject* awaited = PyObject_GetAttrString(iterator, "cr_await");
    const bool busy = awaited != nullptr && awaited != Py_None;
    Py_XDECREF(awaited);
    if (busy) {
      Py_DECREF(iterator);
      PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
      return nullptr;
    }
  }
  return iterator;
}

PyObject* get_aiter(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_aiter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s", type->tp_name);
    return nullptr;
  }
  PyObject* iterator = type->tp_as_async->am_aiter(object);
  if (iterator == nullptr) return nullptr;
  if (Py_TYPE(iterator)->tp_as_async == nullptr || Py_TYPE(iterator)->tp_as_async->am_anext == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 Py_TYPE(iterator)->tp_name);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* get_anext(PyObject* aiter) {
  PyTypeObject* type = Py_TYPE(aiter);
  if (PyAsyncGen_CheckExact(aiter)) return type->tp_as_async->am_anext(aiter);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_anext == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s", type->tp_name);
    return nullptr;
  }
  PyObject* step = type->tp_as_async->am_anext(aiter);
  if (step == nullptr) return nullptr;
  PyObject* awaitable = awaitable_iter(step);
  if (awaitable == nullptr) {
    _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                           Py_TYPE(step)->tp_name);
  }
  Py_DECREF(step);
  return awaitable;
}

}  // namespace tatara::capture::vm
