// What becomes of a trace when a signal, or an exception from another thread, comes.
//
// The handler of a signal is no part of the program: what it does happens once, and its exception is raised where the signal
// came. So the trace ends there without an entry. What was recorded happens first: a handler may look at any variable. Where that
// would take long, the trace is taken back, if it can be: to eager, the signal has come when the trace began.
#include "capture/trace/call_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/vm/interrupts.h"
#include "support/cancel.h"

namespace tatara::capture {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kInterrupted = "a signal came while it was traced";

// How long calls of the host that were recorded go on after a signal.
constexpr std::chrono::milliseconds kShort{20};

std::chrono::duration<double> age(Clock::time_point start) { return Clock::now() - start; }

}  // namespace

int Tracer::on_interrupt(Frame&) {
  if (bypass_ > 0) return 0;  // our own work goes on
  if (!tracing()) return handlers_wait() ? 0 : deliver_interrupts();
  if (only_signals_wait() && age(trace_->start.time) < owner_.patience) return 0;
  if (!ends().cut_trace()) return -1;
  return ends().deliver();
}

bool TraceEnds::cut_trace() {
  if (context_.ahead != nullptr || context_.dry_run) {
    // Nothing of this may happen, not even a handler: whoever asked for it deals with the signal.
    cut_ = true;
    std::string& problem = context_.ahead != nullptr ? context_.ahead->problem : context_.found;
    if (problem.empty()) problem = kInterrupted;
    PyErr_SetString(PyExc_RuntimeError, kInterrupted);
    return false;
  }
  context_.state = State::kBroken;
  context_.stopped = true;
  modes().set_mode(false);
  bool ok = false;
  {
    const Bypass bypass(bypass_);
    ok = run_tape();
    if (!ok && take_back()) return unwind();
    if (!ok) undo_later_writes();
  }
  waiting_.reset();
  for (Frame* frame : context_.frames) {
    if (frame != context_.root) frame->root = modes().count() > 0;
  }
  return ok;
}

int TraceEnds::deliver() {
  const std::chrono::duration<double> before = age(trace_ != nullptr ? trace_->start.time : begun_);
  if (deliver_interrupts() != 0) return -1;
  // Nothing was raised. A timer would go off again in the next trace, and in the one after that.
  owner_.patience = std::max({2 * owner_.patience, 2 * before, std::chrono::duration<double>(0.05)});
  return 0;
}

bool TraceEnds::cancellable(const std::function<void()>& work) const {
  const CancelScope::Wanted wanted = [until = Clock::now() + owner_.patience, signs = InterruptSigns()] {
    return signs.any() && Clock::now() >= until;
  };
  const CancelScope scope(&wanted);
  try {
    work();
    return true;
  } catch (const Cancelled&) {
    return false;
  }
}

bool TraceEnds::can_take_back() const {
  const Trace& t = *trace_;
  // The function whose result the cache would keep is not done, and would say it again.
  // A guard of torch's that was entered for real (DisableTorchFunctionSubclass) would stay.
  const bool guarded = api_.present() && TorchNative::get().reads_state() &&
                       TorchNative::get().state().overrides != t.state.native.overrides;
  return !guarded && t.transaction.can_undo() && !calls().has_said_once();
}

bool TraceEnds::take_back() {
  Trace& t = *trace_;
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  if (!can_take_back()) return false;
  const ErrorAside aside;
  numbers().take_back_symbols();
  if (!t.transaction.undo()) return false;
  lifetimes().drop_finalizers();
  return true;
}

bool TraceEnds::may_stop(Clock::time_point start) const {
  const Trace& t = *trace_;
  return interrupted() && age(start) >= kShort && age(t.start.time) >= owner_.patience && can_take_back();
}

}  // namespace tatara::capture
