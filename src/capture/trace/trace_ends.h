// How a trace ends (tracer_ends.cpp, tracer_interrupts.cpp, tracer_first_run.cpp): a graph break, a return, an error, a
// signal, or being taken back; and the entry that it leaves.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "capture/entries/reconstruction.h"
#include "capture/trace/trace_context.h"
#include "capture/vm/interrupts.h"

namespace tatara::capture {

class TraceEnds final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// Runs the handlers of signals, between traces: -1 with a Python error set. Where they raise nothing, later traces of this
  /// function wait longer for their own.
  int deliver();
  /// False: what ended meanwhile has broken the trace.
  bool snapshot(Frame& f);
  /// Ends the trace here: the program goes on for real. False with a Python error set.
  bool graph_break(const std::string& reason, bool stay_eager = false);
  /// Makes every placeholder real. False with a Python error set.
  bool run_tape();
  /// The same while the trace goes on: the program is to read values. False: a call fails, or is not to run yet.
  bool run_so_far();
  /// False with a Python error set.
  bool finish_return(Frame& f, PyObject* result);
  /// The end of a call that is only looked at.
  void finish_look(PyObject* result);
  /// An operator has failed, with a Python error set, where eager would have done less than the trace. All that the trace did
  /// is taken back, so that the program can run again from its start. False: not possible.
  bool take_back();
  /// The program goes wrong after it was told that it is being compiled: if all can be taken back, the trace is made once more
  /// without telling so. True: the frames up to the root end, with a Python error set.
  bool retry_untold();
  /// If all can be taken back, the trace is made once more. True: the frames up to the root end, with a Python error set.
  bool retry();
  /// Whether the instruction of the root has written to what is older than it.
  bool has_changed() const;
  /// The same where the program cannot run again: what was written before the operator stays.
  void undo_later_writes();
  /// After take_back(): the frames up to the root end, past their handlers. False with a Python error set.
  bool unwind();
  /// The root frame is where the trace began, and goes on for real; or it ends, with the error of refuse().
  FrameAction land(Frame& f);
  /// An exception leaves the root.
  FrameAction leave_root();
  /// The program has taken a branch by a number.
  void note_decision() { decided_ = {trace_->symbols.ctx().guards().size(), trace_->size_checks.size(), false}; }
  /// An exception is to leave the root: the graph breaks. False with a Python error set.
  bool leave_in_eager();
  /// Exceptions that are raised where `f` stands have left the root before: the program is to raise them in eager.
  bool leaves_again(const Frame& f) const;
  /// A graph breaks that a compiled function with fullgraph has begun, within the one that is traced. True: the trace is made once
  /// more without it, and the frames up to the root end, with a Python error set.
  bool leave_apart();
  bool leave_modes(const std::string& reason);
  /// The same where the graph would end with the inference mode on that the trace has entered, or holds what came behind its end.
  bool leave_inference(bool returns);
  /// The same where the root frame holds a generator that the trace has made: no later call could make it as it stands.
  bool leave_generators();
  /// The same where keys that vary are in older dicts: the trace is made again with their values.
  bool leave_keys();
  /// The same where a result that keeps its gradient is among what is left to the program, without such calls.
  bool leave_retained(const std::vector<int>& slots);
  void begin_transaction();
  void end_trace();
  /// Ends the trace where it stands: all that was recorded happens, and nothing is kept. False with a Python error set.
  bool cut_trace();
  /// What a signal ends early: then false.
  bool cancellable(const std::function<void()>& work) const;

  /// Signals wait for the end of the trace.
  void hold_signals() { waiting_.emplace(); }
  /// A signal has ended what was done ahead of its time, and waits to be dealt with.
  bool was_cut() const { return cut_; }

 private:
  ReconstructionWorld reconstruction_world();
  /// What is being handled where the entry ends, where that is not what was at its begin: false where it cannot be made.
  bool want_handled(Entry& entry, ReconstructionBuilder& builder, PyObject* handled) const;
  /// The trace is complete: numbers are themselves again.
  void settle_symbols();
  bool run_return(Frame& f, std::unique_ptr<Entry> entry);
  bool can_take_back() const;
  /// The same, also where not all is taken back: then the root raises the Python error that is set now. False.
  bool refuse();
  /// After take_back(), because results were other than inferred: the next trace knows better, or later calls run in eager.
  /// False: fullgraph, see refuse().
  bool note_mismatch(std::unique_ptr<Entry> entry, bool prepared);
  /// After take_back(): later calls that fit the entry run in eager. False: see refuse().
  bool leave_to_eager(std::unique_ptr<Entry> entry, bool prepared);
  /// `error` leaves the root. Null: none does.
  void note_leaving(PyObject* error);
  void note_first_node();
  void take_sources();
  void guard_histories();
  /// Compiles what the trace has found. `ran`: its tape has run. False with a Python error set.
  bool prepare_entry(Entry& entry, bool ran);
  void split_late(Entry& entry);
  /// Whether the compiler refused one call that no trace has broken at so far: the next one will.
  bool learn_refusal(const Entry& entry);
  void refuse_ahead(Entry& entry);
  /// Whether the first call may have its results from the plans of `entry`: nothing but the tape has happened in it.
  bool may_run_compiled(const Entry& entry) const;
  /// Somebody outside of the trace holds a placeholder that is no result.
  bool placeholders_seen(const Entry& entry) const;
  /// References that the trace alone holds: those of what it keeps alive, and of what only such objects refer to. What has a
  /// finalizer counts as the program's, which sees its contents once more.
  HeldObjects held_by_trace() const;
  /// After run_tape(): what eager refuses to differentiate, since the tape has written what was saved for that.
  void note_spoiled(const Entry& entry) const;
  /// In place of run_tape(), once the entry is prepared.
  bool run_compiled(Frame& f, Entry& entry);
  /// A signal waits, and what was done since `start` takes long and can be taken back.
  bool may_stop(std::chrono::steady_clock::time_point start) const;

  /// Facts and checks of numbers until the last decision by one; whether what follows leaves the root.
  struct Decided {
    size_t facts = 0, checks = 0;
    bool leaving = false;
  };
  Decided decided_;       // of the present trace
  Ref refusal_;           // see refuse()
  Ref first_node_;        // of gradients, the number of the first one of the tape's run; null: no tape has run
  bool retrace_ = false;  // the trace that was taken back is made once more
  bool cut_ = false;      // a signal ended what was done ahead of its time, or a compilation: no entry is made
  std::optional<SignalsWait> waiting_;  // while a trace is open
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace tatara::capture
