// What data decide while a trace is open (tracer_values.cpp): sizes of results, and numbers that are read from tensors. They become
// symbols whose values are there when the call has run; the trace goes on with those of the present call.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

/// Strides of a fresh tensor by those it has now: rows one after the other, or columns.
std::vector<Expr> strides_like(ExprContext& ctx, const std::vector<Expr>& sizes, const TensorMeta& now);
/// Of generator_states().
bool same_states(const TorchApi& api, PyObject* a, PyObject* b);

class ValueTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// A call of torch's whose result has sizes that data decide, or that is made of such a call. Null without an error set: it is
  /// none, or the values of this call are not to be had.
  Ref decided_call(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// A call that has no kernel for tensors without data: its results have the types that it gives now, and sizes that are known
  /// once it has run. Null without an error set, as above.
  Ref record_unsized(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// The call with numbers in place of tensors without dimensions, which it reads. Null without an error set, as above.
  Ref with_numbers(PyObject* func, PyObject* args, PyObject* kwargs);
  /// The whole numbers in a tensor (`item`, `tolist`), or whether it holds (`bool`). Null without an error set, as above.
  Ref numbers_in(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// An int that the node gives, another one in each call, as a number that data decide. Nothing: it may not be one.
  std::optional<Expr> made_number(TapeNode& node, PyObject* value);
  /// Whether values may be asked for in this trace, which it is to go on with.
  bool may_ask() const;
  /// The float in a tensor, in this call. Up to 64 MB that the program has written to are copied for that. Null without an error
  /// set, as above.
  Ref number_now(PyObject* func, PyObject* tensor);
  /// A tensor as a condition that holds as `value` says.
  Ref flag(PyObject* tensor, PyObject* value);
  void take_run();
  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  bool advance(const std::vector<int>& slots);
  bool may_run(const TapeNode& node) const;
  std::set<int> inputs_written(const std::vector<size_t>& calls) const;
  bool copy_inputs(const std::set<int>& inputs);
  bool copies_are_apart() const;
  std::optional<std::vector<size_t>> calls_for(const std::vector<int>& slots) const;
  bool run_calls(const std::vector<size_t>& calls);
  void drop_unseen();
  Ref present(PyObject* operand);
  Ref call_now(PyObject* func, PyObject* args, PyObject* kwargs);
  Ref on_tape(PyObject* operands);
  void add_done(TapeNode node, const std::vector<PyObject*>& results);
  /// A tensor without memory that is laid out as `result` is, whose sizes and strides are `meta`.
  Ref placeholder_like(PyObject* result, const TensorMeta& meta) const;
  Ref record_sized(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  std::vector<PyObject*> own_results(PyObject* now, const std::vector<PyObject*>& operands);
  void mark_lists(PyObject* list);
  Ref record_flag(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* value);
  Ref indices_of(PyObject* mask);
  bool same_size(PyObject* a, Py_ssize_t dim, PyObject* b, Py_ssize_t other);
  Ref without_masks(PyObject* self, PyObject* key);
  Ref masked(const TorchFunction& fn, PyObject* func, PyObject* args);

  /// Of one trace: its calls, run for their values beside it.
  struct Own {
    std::vector<bool> done;     // by node
    std::vector<Ref> env;       // by slot
    std::map<int, Ref> copies;  // of inputs that these calls write to
    size_t copied_bytes = 0;
    size_t most_copied = Transaction::kMostInCall;
    Ref random;                   // the generators' states behind these nodes; null: none has run
    bool with_gradients = false;  // some lead through a backward pass
    bool refused = false;         // a call may not run twice, or has failed
  };
  Own own_;
};

}  // namespace tatara::capture
