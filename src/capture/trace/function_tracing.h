// Functions with a backward of the user's (torch.autograd.Function) while a trace is open, and what is traced ahead of its time
// (tracer_functions.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct TracedCall;

/// One call of `attach_backward`: results that get a history, and what decides it.
struct FunctionCall {
  PyObject* cls = nullptr;
  PyObject* context = nullptr;
  PyObject* args = nullptr;
  std::vector<PyObject*> results;
  std::vector<int> outputs;   // slots of those that get a history
  std::vector<bool> follows;  // per result: it is one of these
  std::vector<int> places;    // arguments that require grad
  bool materialize = true;
};

/// A call of Python code that is traced ahead of its time (FunctionTracing::trace_ahead).
struct AheadRun {
  size_t slots = 0;  // that there were before
  Ref returned;
  std::vector<TapeNode> nodes;  // what it recorded, which is off the tape again
  std::string problem;          // empty: it came to its end, and nothing of it may be seen
};

/// A class or context of torch.autograd.Function.
bool is_of_functions(const PyTypeObject* type);

class FunctionTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  AheadRun trace_ahead(const std::function<Ref()>& call);
  static bool is_function_apply(PyObject* callable);
  PyObject* apply_function(PyObject* callable, PyObject* const* args, Py_ssize_t nargs);
  /// Of a function inside of levels of vmap alone, which lets torch make its batched form: its forward, where nothing is
  /// differentiated.
  PyObject* call_forward(const TracedCall& call);
  PyObject* attach_backward(PyObject* callable, PyObject* const* args);
  std::vector<TapeNode> without_numbers(std::vector<TapeNode> nodes);
  std::string trace_backward(const FunctionCall& call, CustomBackward& made,
                             const std::function<Ref(PyObject*)>& backward);
  void record_custom(PyObject* func, const FunctionCall& call, PyObject* returned, std::string name, FunctionEnd end);
  bool takes_backwards() const;
  std::string foreign_write(const TapeNode& node, size_t slots, const std::vector<int>& given) const;

 private:
  std::string read_function_call(PyObject* outputs, FunctionCall& call);
  Ref make_cotangents(const FunctionCall& call, CustomBackward& made);
  std::string read_function_gradients(PyObject* returned, const FunctionCall& call, CustomBackward& made);
  std::string function_nodes_problem(const FunctionCall& call, const CustomBackward& made, size_t slots) const;
};

/// Whether tensors have the same dtype and sizes.
bool same_type(const TapeSlot& a, const TapeSlot& b);

}  // namespace tatara::capture
