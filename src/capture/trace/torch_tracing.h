// Torch calls while a trace is open (torch_mode.cpp): inferred on meta tensors, recorded on the tape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/host/autocast.h"
#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct ProbedLayout;
struct TracedCall;

class TorchTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// Whether the body of a function of torch's in Python runs, which a mode is asked about.
  bool in_python_function() const { return !python_functions_.empty(); }

  /// A trace has begun.
  void begin();
  PyObject* torch_function(PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* group_tensors(PyObject* const* args, Py_ssize_t nargs);
  PyObject* record(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// What a call that needs values gives when these are the same in every call; null with no error set otherwise.
  PyObject* answer_constant(PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* update_scaler(const TracedCall& call);
  PyObject* stand_in(const Frame& f, const TracedCall& call);
  PyObject* stand_in_of_object(const TracedCall& call);
  PyObject* other_words(const Frame& f, const TracedCall& call);
  PyObject* scaled_step(const TracedCall& call);
  /// Tensor._make_subclass of a parameter: what detach() gives, as a leaf and of that class. not_handled(): of anything else.
  /// A function in Python under a default device, which torch would take off meanwhile: asked by ours alone.
  PyObject* ask_mode(const TracedCall& call);
  PyObject* make_parameter(const TracedCall& call);
  /// torch.get_rng_state and torch.set_rng_state, in Python, as one call of the tape each.
  PyObject* generator_state(const TracedCall& call);
  /// torch.autograd.Variable of a tensor: what detach() gives, as a leaf.
  static bool is_legacy_variable(PyObject* callable);
  PyObject* make_variable(const TracedCall& call);
  /// torch.Tensor, torch.FloatTensor and the like (legacy_constructors.cpp).
  bool is_tensor_type(PyObject* callable) const;
  /// A call of one. not_handled(): it goes its usual way.
  PyObject* make_by_type(const TracedCall& call);

 private:
  enum class Cast : uint8_t { kSame, kCast, kUnknown, kFailed };
  enum class Inferred : uint8_t { kDone, kUnknown, kWrong };

  struct Recording;
  Ref to_tape(Recording& call, PyObject* o);
  void operands_to_tape(Recording& call);
  bool record_varying(Recording& call, Ref& result);
  std::string why_unrecorded(const Recording& call);
  bool is_of_a_found_tensor(const Recording& call) const;
  bool gives_copy_here(const std::string& name) const;
  PyObject* record_copy(PyObject* args, PyObject* kwargs);
  PyObject* record_new_of_size(PyObject* args, PyObject* kwargs);
  std::string why_not_with_gradients(const Recording& call);
  Ref options_of_type(PyObject* callable) const;
  Ref made_leaf(PyObject* data, bool requires_grad);
  bool can_make_leaf(PyObject* data, PyObject* flag) const;
  Ref infer_by_host(Recording& call);
  /// Calls that are tried out on other numbers (tried_calls.cpp).
  bool is_told_wrong(const std::string& name) const;
  bool may_try(const Recording& call) const;
  Ref try_out(PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* record_under_autocast(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// Sparse tensors (foreign_calls.cpp).
  PyObject* record_foreign(Recording& call);
  Ref infer_foreign(const Recording& call, bool other);
  std::string infer_foreign_twice(const Recording& call, Ref& result, Ref& other);
  std::string why_not_foreign(const Recording& call) const;
  PyObject* take_foreign(Recording& call, PyObject* result, PyObject* other);
  std::vector<ProbedLayout> layouts_by_host(Recording& call, PyObject* result);
  PyObject* answer_metadata(const Recording& call);
  /// An operator on lists of tensors (torch._foreach_*), one by one.
  PyObject* each_tensor(const std::string& name, PyObject* args, PyObject* kwargs);
  bool reads_batch(PyObject* args, PyObject* kwargs) const;
  /// The operands with the casts that autocast makes, on the tape. kFailed: a Python error is set.
  Cast cast_operands(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs, Ref& cast_args,
                     Ref& cast_kwargs);
  CastPolicy policy_inside(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  bool record_result(PyObject* func, const TorchFunction& fn, Ref args, Ref kwargs, Ref device, Ref& result);
  bool reshape(const InferredTensor& as, TapeNode& node);
  Inferred record_inferred(PyObject* func, const TorchFunction& fn, const Ref& args, const Ref& kwargs,
                           const Ref& device, Ref& result);
  /// `fresh`: some result is a new tensor; `known`: the registry has the operator, so one that is not in place writes nothing.
  void finish_node(TapeNode& node, bool fresh, bool known);
  PyObject* answer_values(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* answer_break(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  PyObject* convert_type(PyObject* args, PyObject* kwargs);
  PyObject* as_array(PyObject* args, PyObject* kwargs);
  PyObject* array_of_tensor(PyObject* tensor, PyObject* options, PyObject* copy, bool without_history);
  bool arrays_keep_history();
  int ask_flag(PyObject* tensor, const char* name);
  /// Whether it is a call of generator_state(), which means the same in all levels of transforms.
  static bool of_generator(const std::string& name);
  void take_conjugates();
  PyObject* answer_device(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);

  std::vector<PyObject*> python_functions_;  // of torch, whose bodies run at present
};

}  // namespace tatara::capture
