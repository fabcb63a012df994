// Exceptions that come from outside of the running code: handlers of signals (KeyboardInterrupt among them) and
// PyThreadState_SetAsyncExc.
//
// CPython runs a signal's handler between two instructions of whatever Python code the main thread is in, and its exception
// goes up from there. In the middle of our own work that would be a point which the program never passes: half of a guard
// looked at, some of a run's writes done, placeholders in its variables. So handlers wait while our own code is at work or a
// trace is open (SignalsWait), and run where the program's state is one that eager could have: in the program's own code
// (SignalsRun), or at a point of our choice (deliver_interrupts()). Long work asks interrupted() and ends early.
#pragma once

#include "capture/python/py_errors.h"

namespace tatara::capture {

/// While one lives, no handler of a signal runs in this thread. They nest.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  struct Waiting& waiting_;
};

/// Handlers run again, within any number of SignalsWait.
class SignalsRun {
 public:
  SignalsRun();
  ~SignalsRun();
  SignalsRun(const SignalsRun&) = delete;
  SignalsRun& operator=(const SignalsRun&) = delete;

 private:
  int depth_;
};

/// Whether a SignalsWait lives in this thread.
bool handlers_wait();
/// Whether this is the thread in which handlers run.
bool handles_signals();

/// Whether a signal, an exception from another thread, or a postponed error waits for this thread. It may be a false alarm.
bool interrupted(PyThreadState* state = PyThreadState_Get());

/// Whether nothing but signals waits: no exception is there already.
bool only_signals_wait();

/// The same as interrupted(), but for postponed errors, asked by other threads on behalf of the one that made it. Needs no GIL.
class InterruptSigns {
 public:
  InterruptSigns();
  bool any() const;

 private:
  PyThreadState* state_;
  bool main_;
};

/// Raises what another thread has sent to this one, if anything: then -1.
int raise_sent(PyThreadState* state);

/// Runs the handlers of signals that have come, and raises what waits: -1 with a Python error set. Only where the program's
/// state is real, with no Python error set.
int deliver_interrupts();
/// The program has what that raised.
void delivered();

}  // namespace tatara::capture
