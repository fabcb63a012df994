// What a compiled function has learned: entries keyed by code object and instruction offset.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/entries/effects.h"
#include "capture/entries/guard_program.h"
#include "capture/entries/reconstruction.h"
#include "capture/host/errors.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

/// Runs one captured graph: the tape itself, a compiled plan, or a user's backend.
class GraphRunner {
 public:
  virtual ~GraphRunner() = default;
  enum class Outcome : uint8_t {
    kDone,
    kTape,     ///< the graph does not do for these inputs (problem() says why): the tape may; a Python error may be set
    kRefused,  ///< the same, without an error, before anything has happened
    kFailed,   ///< with a Python error set
  };
  /// `env` has the inputs filled in; fills the tape's outputs. What it changes, the present transaction knows.
  virtual Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) = 0;
  /// A guard on the tensors that were reached from outside the arguments: same type, sizes and strides as they had.
  virtual bool pinned_unchanged(TorchApi&) { return true; }
  /// A guard on the objects that come with a call.
  virtual bool given_unchanged(const std::vector<PyObject*>&) { return true; }
  /// A line for each thing that pinned_unchanged(), and given_unchanged(), looks at.
  virtual std::vector<std::string> describe_pinned() const { return {}; }
  virtual std::vector<std::string> describe_given() const { return {}; }
  /// Why the last run went back to the tape; empty when none did.
  virtual std::string problem() const { return {}; }
  /// Plans on a GPU: how their steps are launched, and why.
  virtual std::string launches() const { return {}; }
  /// Compiled plans: slots of the inputs that a run writes to (negative: a constant of the graph).
  virtual std::vector<int> written_slots() const { return {}; }
  virtual bool compiled() const { return false; }
  /// Whether a run compares what the host gives with what the trace was told, so that the first call may have its results
  /// from here.
  virtual bool checks_results() const { return compiled(); }
  /// Hands the references that the runner owns to the cycle collector.
  virtual int traverse(const Visitor&) const { return 0; }
};

/// What reports tell of an entry.
struct EntryReport {
  std::string graph_text, lowered_text, fallback_reason;
  int refused_call = -1;         // the node of the tape that the compiler does not take
  bool several_devices = false;  // since the tape works on several devices
  Ref details;                   // dict made by the compiler back end, or null
  double capture_seconds = 0, compile_seconds = 0;
};

/// One way through the program from a point: a graph, then a return value or the state of the frame at the next point.
struct Entry {
  enum class End : uint8_t { kReturn, kBreak, kEager };
  End end = End::kReturn;
  PyObject* code = nullptr;  // of the root frame
  Ref held_code;             // the same: another function's could come to lie in its place
  int offset = 0;
  GuardProgram guards;
  std::vector<Ref> anchors;  // weak references to what object guards hold weakly, which call let_go()
  std::shared_ptr<Tape> tape;
  std::unique_ptr<GraphRunner> runner;
  Reconstruction
      reconstruction;  // kReturn: one object; kBreak: locals, then stack; then what is handled, and what the effects need
  EffectReplay effects;
  std::vector<int> cleared_first;  // slots of tensors whose `.grad` is None before anything else happens
  int break_offset = 0;
  struct Way {
    int furthest = 0;     // the last instruction of the root, by offset
    bool slight = false;  // calls of NumPy, which take less than another trace
  };
  Way way;
  int local_count = 0;
  struct AtEnd {
    bool handles = false;      // another exception, or None, is being handled than at the begin
    std::optional<bool> grad;  // grad mode, where it differs
  };
  AtEnd at_end;
  bool in_inference = false;  // it enters that mode itself, before the graph
  bool callees = false;       // kEager: functions called from here may have entries of their own
  /// Not kept: the compiler refused one of its calls, and the next trace breaks there.
  bool to_split = false;
  bool keeps_nothing = false;  // kEager: for what it would have to watch, the program notices how long that lives
  BreakInfo why;               // kBreak, kEager
  VaryingPlaces ended_places;  // of objects that it watched until they ended
  uint64_t hits = 0;
  EntryReport report;
  /// Whether it is for this call. Without `with_runner`, all guards but those on parameters and hooks.
  bool holds(GuardedCall& call, bool with_runner = true);
  std::vector<std::string> guard_lines() const { return guards.lines({tape.get(), runner.get(), code, offset}); }
  enum class Ran : uint8_t {
    kDone,
    kAgain,  ///< an operator failed, or operands are never as compiled for; nothing has happened, and the program itself is to run
    kFailed,  ///< with a Python error set
  };
  /// Runs the graph, or the tape in its place: casts are part of both, so autocast is off meanwhile.
  Ran run(std::vector<Ref>& env, TorchApi& api) const;
  bool clear_gradients(const std::vector<Ref>& env) const;
  /// An object that it watches has ended: it will hold no more, and keeps nothing that belonged to the object.
  void let_go(bool in_use);
  bool ended() const { return ended_; }
  int traverse(const Visitor& visit) const;

 private:
  Ran run_once(std::vector<Ref>& env, TorchApi& api) const;

  bool holds_inference(const std::vector<Ref>& env, const TorchApi& api) const;

  mutable bool ended_ = false;
  static constexpr int kMostRefusals = 3;
  struct Refused {
    int runs = 0;            // one after the other whose operands were not as compiled for
    bool inference = false;  // some run has failed with tensors of inference mode among its inputs
  };
  mutable Refused refused_;
};

/// The end of what gets no entry: its frame runs in eager, and functions that it calls may have entries of their own.
Entry* callees_alone();

/// Instructions of a frame that are not worth an entry: those in [from, to], up to one of the ends.
struct IdleStretch {
  int from = 0, to = -1;
  std::vector<int> ends;  // calls that break the graph
};

/// All entries of one compiled function. Guarded by the GIL.
class EntryCache {
 public:
  /// The entry at (code, offset) whose guards hold; fills `objects`. Moves it to the front. `failed` tells why the most
  /// recent one did not match.
  std::shared_ptr<Entry> find(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api,
                              std::vector<PyObject*>& objects, std::string* failed);
  Entry* add(std::unique_ptr<Entry> entry);
  /// The one used or made last; null without any.
  std::shared_ptr<Entry> latest() const { return entries_.empty() ? nullptr : entries_.front(); }
  /// How many were made there, and have not been cleared: those too whose objects have ended.
  size_t count(PyObject* code, int offset) const;
  /// The same, without those for other torch modules than the ones among the roots.
  size_t count_for(PyObject* code, int offset, PyObject* const* roots, size_t count) const;
  /// What the entries at (code, offset) and the present roots say about sizes that vary.
  void dynamic_dims(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api,
                    DynamicDims& dims) const;
  /// Whether there were kMostPlaces entries at the point that differ, for roots like these, in the state of iterators alone.
  /// From then on such iterators break the graph there, so that one entry does for all of their places.
  bool iterators_vary(PyObject* code, int offset, PyObject* const* roots, size_t count, TorchApi& api);
  /// The way from the point, where the entries there do nothing but reach a call that breaks the graph, or do little and were never
  /// used, as another one would: such ways depend on numbers, texts or arrays that are others in each call.
  std::optional<IdleStretch> idle_from(PyObject* code, int offset) const;
  /// A call at the point for which no entry may be made any more. After many of them, none of the entries there having been used
  /// ever, they go.
  void note_refused(PyObject* code, int offset);
  /// Whether they have gone.
  bool gave_up(PyObject* code, int offset) const { return !given_up_.empty() && given_up_.contains({code, offset}); }
  /// Whether functions that it calls have entries with more than a few calls of torch.
  bool callees_pay(PyObject* code) const;
  const std::vector<std::shared_ptr<Entry>>& all() const { return entries_; }
  /// So many modules of one class may have entries of their own at a point.
  static constexpr size_t kMostModules = 16;
  void clear() {
    // Dropping an entry may run Python code that comes back here.
    const std::vector<std::shared_ptr<Entry>> dropped = std::move(entries_);
    entries_.clear();
    ended_.clear();
    varying_.clear();
    refused_.clear();
    given_up_.clear();
  }
  int traverse(const Visitor& visit) const;
  /// Keeps an entry alive while it runs.
  std::shared_ptr<Entry> share(const Entry* entry) const;

 private:
  static constexpr size_t kMostPlaces = 2;
  static constexpr size_t kMostIdle = 3;
  static constexpr size_t kMostRefused = 32;
  static constexpr size_t kFewCalls = 4;

  /// Which of the modules in whose place another one is now go by structure: those that the program has let go of, and all once
  /// there were many. Others stay what they are, and so do the modules in them that both of the two have.
  void decide_modules(VaryingItems& items) const;
  /// Nothing but entries holds it any longer.
  bool held_alone(PyObject* module) const;
  /// Takes out those whose objects have ended. To be destroyed by the caller: that may run Python code that comes back here.
  std::vector<std::shared_ptr<Entry>> drop_ended();

  std::vector<std::shared_ptr<Entry>> entries_;  // most recently used first
  struct Ended {
    size_t count = 0;
    VaryingPlaces places;  // what objects they watched; maybe gone by now, so only to be compared
  };
  std::map<std::pair<PyObject*, int>, Ended> ended_;
  std::set<std::pair<PyObject*, int>> varying_;          // see iterators_vary()
  std::map<std::pair<PyObject*, int>, size_t> refused_;  // see note_refused()
  std::map<std::pair<PyObject*, int>, Ref> given_up_;    // with the code, so that no other comes to lie there
};

}  // namespace tatara::capture
