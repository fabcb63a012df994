// The engine of gradients (tracer_gradients.cpp) and hooks on gradients (tracer_hooks.cpp) while a trace is open.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct FunctionCall;

/// What the engine is asked for: tensors by their slots.
struct EngineCall {
  std::vector<int> roots, cotangents, variables;
  std::vector<PyObject*> tensors;  // of the variables
  std::vector<Ref> hooks;          // of the variables: gradient_hooks()
  size_t leaves = SIZE_MAX;        // variables from here on are results that keep their gradients
  bool keep = false, accumulate = false, unused = false, create = false;

  /// Without hooks and histories.
  GradientPass pass() const {
    GradientPass made;
    made.keeps_history = keep;
    made.accumulates = accumulate;
    made.creates_graph = create;
    return made;
  }
};

class GradientTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// Of what is called run_backward, the method of torch's engine.
  static bool is_engine_call(PyObject* callable);
  PyObject* run_backward(PyObject* args, PyObject* kwargs);
  /// A placeholder for a gradient by a tensor. -1, and no object, with a Python error set.
  int add_gradient(const TapeSlot& variable, const std::vector<int64_t>& strides, Ref& made);
  PyObject* register_hook(const Frame& f, PyObject* const* args, Py_ssize_t nargs);
  bool leaves_hooked(const std::vector<int>& slots) const;
  /// retain_grad(); false where the trace cannot do it.
  bool retain_gradient(PyObject* args, PyObject* kwargs);
  bool is_retained(PyObject* tensor) const;
  bool retains() const { return !own_.retained.empty(); }
  /// Where that was called, for one of these slots; null: for none.
  const UserLocation* leaves_retained(const std::vector<int>& slots) const;
  /// Once the tape has run: what is alive keeps its gradient. False with a Python error set.
  bool perform_retained();
  /// Whether requires_grad_() leaves the tensor as it is.
  bool changes_nothing(PyObject* args, PyObject* kwargs);
  /// requires_grad_() of a tensor without a history; false where the trace cannot do it.
  bool make_leaf(PyObject* func, PyObject* args, PyObject* kwargs);
  bool is_made_leaf(int slot) const;
  // stopped_leaves.cpp
  /// requires_grad_(False) of a leaf from before the trace, and what takes that back. False: it is something else, or the trace
  /// cannot do it, or has ended.
  bool switch_leaf(PyObject* args, PyObject* kwargs);
  /// Whether such a leaf does not require grad at present.
  bool is_stopped(int slot) const { return own_.stopped.contains(slot); }
  std::string why_not_into(const std::vector<int>& leaves) const;
  /// The slot that calls get for the tensor in this one.
  int operand_slot(int slot) const;
  bool writes_to_stopped(int slot, const std::string& name, PyObject* kwargs) const;
  /// The result, or the leaf that it stands for. Takes over the reference.
  PyObject* program_object(PyObject* result) const;
  bool is_hooked(int slot) const;
  /// A factory with requires_grad=True.
  PyObject* record_leaf(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* gradient_of(PyObject* tensor);
  int write_gradient(PyObject* tensor, PyObject* value);
  std::vector<int> slots_cleared_first() const;
  void perform_later_effects();

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  std::string read_engine_call(PyObject* args, PyObject* kwargs, EngineCall& call);
  std::string uses_freed(const std::vector<int>& roots) const;
  Ref record_gradients(TapeNode node, const EngineCall& call,
                       const std::vector<std::optional<GradientLayout>>& layouts);
  void add_retained(EngineCall& call) const;
  bool add_to_retained(PyObject* tensor, PyObject* present, PyObject* gradient);
  Ref without_gradients(const std::function<Ref()>& work);
  std::vector<int64_t> gradient_place(const EngineCall& call, size_t variable, const GradientLayout& layout) const;
  int gradient_placeholder(const EngineCall& call, size_t variable, const GradientLayout& layout, Ref& made);
  /// Adds a gradient to `.grad` (null: there is none yet), as the engine does it.
  bool accumulate(PyObject* tensor, PyObject* present, PyObject* gradient);
  bool read_hook_call(PyObject* tensor, FunctionCall& call);
  std::string hooks_problem(const EngineCall& call, const std::vector<std::optional<GradientLayout>>& layouts);
  std::vector<size_t> order_of_hooks(const EngineCall& call) const;
  Ref call_hooks(PyObject* hooks, PyObject* gradient, PyObject* variable);
  bool call_hooks_after(PyObject* hooks, PyObject* variable);
  bool add_in_place(PyObject* sum, PyObject* gradient);
  void set_gradient(PyObject* tensor, PyObject* value);
  void note_flag(PyObject* tensor, PyObject* flag);

  /// A result that keeps its gradient, since a call there.
  struct Retained {
    Ref tensor;
    UserLocation place;
  };

  /// Of one trace.
  struct Own {
    std::vector<Retained> retained;
    std::unordered_map<PyObject*, Ref> gradients;  // `.grad` of older tensors that was read or written
    // Tensors whose `.grad` was set to None first of all, and what it was.
    std::vector<std::pair<PyObject*, Ref>> cleared;
    std::unordered_map<int, Ref> stopped;  // slots of leaves that do not require grad at present, and what calls get
    std::unordered_map<PyObject*, Ref> placeholders;  // all of these, and the leaves that they stand for
  };
  Own own_;
};

/// Whether it is known what strides a gradient by a tensor, which has these in this call, has where its sizes vary.
bool knows_layout(const TapeSlot& variable, const std::vector<int64_t>& strides);

}  // namespace tatara::capture
