// The end of objects while a trace is open (lifetimes.cpp).
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class LifetimeTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// As graph_break(), but the frame does not go on with another graph.
  bool break_for_good(const std::string& reason);
  /// Breaks where the program notices that `old`, which is about to be dropped, ends. False with a Python error set.
  bool break_if_noticed(PyObject* old);
  /// What a call would make whose end the program notices; empty: nothing.
  std::string starts_life(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) const;
  /// Among a frame's locals and stack is an object that nobody else holds, and whose end the program notices.
  bool holds_noticed(const std::vector<PyObject*>& roots) const;
  /// Why a generator that the trace made has to be closed when the function returns; empty: none.
  std::string waiting_generator() const;
  /// A generator that fails when it is closed says so on sys.stderr, where code in C drops it.
  void break_if_closing_fails(const Frame& f, FrameExit how, PyObject* result);
  /// Generators that only the last snapshot holds are closed, as part of the trace. False: that has broken it.
  bool let_generators_end(const Frame& f);
  void drop_finalizers();

  /// The frame, a generator's, gets a GeneratorExit.
  void closes(const Frame& f) { own_.closing.insert(&f); }
  /// The next break is for good: the frame cannot go on from its snapshot.
  bool ends_for_good() const { return own_.no_resume; }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  /// After a break: the trace holds nothing any more from here on, not only from the next instruction of its frame.
  bool leave_trace();
  bool made_here(PyObject* tensor) const;

  /// Of one trace.
  struct Own {
    std::unordered_set<const Frame*> closing;  // frames of generators that got a GeneratorExit
    bool no_resume = false;                    // see ends_for_good()
  };
  Own own_;
};

}  // namespace tatara::capture
