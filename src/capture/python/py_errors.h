// What becomes of a Python error that our own questions to Python meet ("ask and go on"). The only place where an error is
// dropped: `make lint` refuses CPython's own ways anywhere else.
//
// Not every error that is set after a question is its answer: a KeyboardInterrupt, or an exception that another thread sent
// (PyThreadState_SetAsyncExc), belongs to the program and is kept until it can be raised there. Handlers of signals do not
// run in the middle of a question at all: interrupts.h.
#pragma once

#include <Python.h>

namespace tatara::capture {

/// Drops the Python error that is set, if any, when it may be the answer to a question: an Exception of class `expected`
/// (by default any) that is neither a MemoryError nor sent by another thread. Any other one is postponed.
[[gnu::cold]] void forget_error(PyObject* expected = PyExc_Exception);

/// The same, but gives the error itself (a new reference); null when there is none, or it was postponed.
PyObject* take_error(PyObject* expected = PyExc_Exception);

/// The Python error that is set, whatever it is, with its traceback (a new reference); null when there is none. For
/// set_raised(), which takes that reference over.
PyObject* take_raised();
void set_raised(PyObject* error);

/// Goes through frames whose work is given up and done again. No code of the program sees it, and forget_error() drops it.
PyObject* unwinding_error();

/// As `except kind:` does: true when the Python error that is set is one, which is dropped. For the program's own errors,
/// where CPython drops them.
bool caught(PyObject* kind);

/// Keeps the Python error that is set, if any, until raise_postponed(). Of several the first is kept, as the others' context
/// would be.
void postpone_error();
bool error_postponed();
/// Sets the error that was postponed in this thread, with no Python error set. False: there is none.
bool raise_postponed();
/// Gives back `result` (a new reference, or null with a Python error set), or null with the postponed error set in place.
PyObject* or_postponed(PyObject* result);

}  // namespace tatara::capture
