// Iterators from before the trace that the program moves on in it (tracer_iterators.cpp).
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct TracedCall;

/// Such an iterator stays where it is while the trace is open: one that is made in its state takes the steps. Its state
/// becomes a guard, each step an effect, which is done when the tape has run.
class IteratorTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// The next item of an iterator from before the trace, as a new reference; null without an error: it has none.
  /// not_handled(): the graph breaks before it.
  PyObject* step(PyObject* iterator);
  /// next() of such an iterator.
  PyObject* call_next(const TracedCall& call);
  /// What iterators of the trace go over is about to change.
  bool break_if_iterated(PyObject* target);
  /// Its state is a guard.
  bool is_followed(PyObject* iterator) const { return own_.stand_ins.contains(iterator); }
  const std::unordered_map<PyObject*, Ref>& followed() const { return own_.stand_ins; }
  /// The steps that the program took before the tape's node `nodes` happen to the iterators themselves.
  void perform_steps(size_t nodes);

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  bool follow(PyObject* iterator);
  bool was_written(const std::unordered_set<PyObject*>& objects);
  void adopt_item(PyObject* iterator, PyObject* item);

  /// Of one trace.
  struct Own {
    std::unordered_map<PyObject*, Ref> stand_ins;  // of the iterators whose states are watched
    std::unordered_set<PyObject*> over;            // what they go over
    bool performed = false;
  };
  Own own_;
};

}  // namespace tatara::capture
