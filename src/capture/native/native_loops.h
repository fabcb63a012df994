// The loops of one compiled function that run as native code: made at their first run, found by their place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/native/code_flow.h"
#include "capture/native/loop_program.h"
#include "support/options.h"

namespace tatara::capture::native {

/// Of this process, for tatara.stats().
struct NativeLoopCounts {
  uint64_t made = 0, runs = 0, taken_back = 0;
};
NativeLoopCounts& native_loop_counts();

class NativeLoops {
 public:
  /// Whether the loop before which the frame stands can run as native code: FOR_ITER, or the head of a loop by a condition. Makes the
  /// code if need be. In a trace, numbers of the frame may be placeholders.
  /// `call` numbers the runs of frames.
  bool prepare(const Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call);
  enum class Outcome : uint8_t {
    kNone,       ///< nothing has happened: the loop is the interpreter's
    kDone,       ///< the frame stands behind the loop, or where it leaves it
    kTakenBack,  ///< the same, and what it does has to be seen: an error or a warning comes
    kStopped,    ///< the frame stands before a later turn of the loop, with a Python error set
  };
  Outcome run(Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call);
  int traverse(const Visitor& visit) const;
  /// Whether the code has a loop that was not given up.
  bool may_hold(PyCodeObject* code);
  bool has_while(PyCodeObject* code);
  /// Whether a loop by a condition begins where the frame stands.
  bool is_while(const Frame& f);
  /// Of functions that are called: their loops run as native code.
  void note_called(PyCodeObject* code) { called_.insert(reinterpret_cast<PyObject*>(code)); }
  bool was_called(PyCodeObject* code) const { return called_.contains(reinterpret_cast<PyObject*>(code)); }
  /// How many turns the loop has left before which the frame stands; 0: it is not known, or the loop may be left early.
  int64_t turns_left(const Frame& f, const NumpyApi& np);
  /// How many loops were given up.
  int given_up() const { return given_up_; }

 private:
  /// What is known of the loop at one place.
  struct Place {
    Ref code;
    std::vector<std::shared_ptr<LoopProgram>> programs;
    int failures = 0;        // reasons why there is no program, or why runs were taken back
    int short_runs = 0;      // with too few turns; of a loop by a condition: turns of this call
    uint64_t last_call = 0;  // that came to it
  };
  void fail(Place& place, int times);
  std::shared_ptr<LoopProgram> find(const Frame& f, const NumpyApi& np, const LoopRange& range, Place& place) const;
  /// Whether the loop may be worth native code.
  bool is_worth(const Frame& f, const LoopRange& range, Place& place, bool again);
  const CodeFlow& flow_of(PyCodeObject* code);
  /// Adds a program to the place.
  bool make(const Frame& f, const NumpyApi& np, const LoopRange& range, Place& place, const OptionOverrides& options,
            bool again);
  static std::shared_ptr<LoopProgram> read(const Frame& f, const NumpyApi& np, const LoopRange& range,
                                           const LoopProgram* before, const OptionOverrides& options);

  std::map<std::pair<PyObject*, int>, Place> places_;
  std::set<PyObject*> called_;  // held by their places
  int given_up_ = 0;
  std::map<PyCodeObject*, std::pair<Ref, CodeFlow>> flows_;
};

}  // namespace tatara::capture::native
