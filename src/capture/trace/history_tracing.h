// Which tensors of an open trace have a history (tracer_histories.cpp), and what that lets the program do with them
// (tracer_leaf_writes.cpp).
#pragma once

#include <cstddef>
#include <map>
#include <unordered_set>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

/// Whether a tensor requires grad.
enum class NeedsGrad : uint8_t { kNo, kYes, kUnknown };

class HistoryTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// Whether the tensor will require grad once it is real.
  NeedsGrad needs_grad(int slot) const;
  std::vector<NeedsGrad> needs_grads() const;  // of all slots
  /// The same for a tensor from before the trace: whether it does now, behind what the trace has recorded. It becomes a guard.
  NeedsGrad older_needs_grad(PyObject* tensor);
  bool needs_outer_history();
  /// Of a tensor from before the trace that had none. It becomes a guard.
  bool lacks_history(PyObject* tensor);
  long version_of(PyObject* tensor) const;
  PyObject* answer_needs_grad(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// Whether it asks a tensor that may be a view for its base, for its place in there or whether it is one of inference mode.
  bool depends_on_base(const TorchFunction& fn, PyObject* args) const;
  void note_silent_views(const TapeNode& node);
  bool takes_silent_view(PyObject* args, PyObject* kwargs) const;
  /// Whether the host refuses the call at once, since it would write to a leaf that requires grad, or to a view of one.
  bool writes_to_leaf(const TorchFunction& fn, PyObject* args, PyObject* kwargs);
  /// Whether `tensor.data = data` leaves the tensor what it is: `data` is itself, or shows the same memory in the same layout.
  bool keeps_data(PyObject* tensor, PyObject* data) const;
  /// Whether the answer depends on the levels of transforms around a call that is only looked at.
  bool differs_in_levels(const TorchFunction& fn, PyObject* args) const;

  /// See note_silent_views().
  bool is_silent_view(int slot) const { return own_.silent_views.contains(slot); }
  /// The slot has a history from here on.
  void gets_history(int slot) {
    own_.silent_views.erase(slot);
    own_.given_histories.insert(slot);
  }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  /// What the host has said of a node's results, where its operands need gradients as noted (ask_histories).
  struct History {
    Ref args;  // of the node: another one may get its number
    std::vector<NeedsGrad> operands, results;
  };

  Ref ask_host(const TapeNode& node, const std::vector<NeedsGrad>& needs) const;
  std::vector<NeedsGrad> ask_histories(size_t n, const std::vector<NeedsGrad>& needs) const;
  bool made_as_view(int slot) const;
  bool writes_histories();
  bool refused_as_leaf(PyObject* tensor) const;

  /// Of one trace.
  struct Own {
    std::map<size_t, History> histories;
    std::unordered_set<int> silent_views;     // slots, see note_silent_views()
    std::unordered_set<int> given_histories;  // results of functions with a backward of the user's
    size_t looked = 0;                        // nodes that writes_histories() has seen
    bool written = false;                     // what it has found
  };
  mutable Own own_;  // answers are kept
};

}  // namespace tatara::capture
