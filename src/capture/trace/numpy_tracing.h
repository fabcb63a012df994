// NumPy while a trace is open (numpy_tracer.cpp, numpy_calls.cpp): the call runs for real, then goes onto the tape.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct KnownCall;

/// So many calls of NumPy become a graph at most: a trace of more runs in eager.
inline constexpr size_t kMostArrayCalls = 4000;

/// The ufunc of numpy.linalg that leaves a decomposition in its operand.
inline constexpr std::string_view kWritesToOperand = "qr_r_raw";

class NumpyTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// While it lives, C code that reads what Python code gives it is running.
  struct Reader {
    Reader(NumpyTracing& numpy, PyObject* callable, const KnownCall& known);
    ~Reader() { numpy_.reader_depth_ = before_; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    NumpyTracing& numpy_;
    size_t before_;
  };

  bool numpy_value(PyObject* object) const;
  bool numpy_inside(PyObject* object) const;
  PyObject* numpy_vectorcall(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs,
                             PyObject* kwnames);
  /// Breaks the graph, then lets the VM go on: not_handled(), or null with an error.
  PyObject* numpy_break(const std::string& reason);
  PyObject* numpy_operator(const char* op, const char* name, std::initializer_list<PyObject*> operands,
                           bool mutates = false, bool sized = false);
  PyObject* numpy_binary(int op, PyObject* left, PyObject* right);
  PyObject* numpy_compare(int op, PyObject* left, PyObject* right);
  PyObject* numpy_get_item(PyObject* container, PyObject* key);
  int numpy_set_item(PyObject* container, PyObject* key, PyObject* value);
  PyObject* numpy_iterate(PyObject* iterator);
  int numpy_unpack(PyObject* sequence, int before, int after, PyObject** out);
  /// Whether the tape has NumPy's calls that torch's may not follow.
  bool keeps_apart() const;
  bool may_mix() const;
  /// A graph is about to break inside of the body of one of NumPy's functions: whether the trace is made once more, without it.
  bool leave_body(const std::string& reason);
  /// `Tensor.numpy` and its kin. not_handled(): of anything else, or where it breaks the graph.
  PyObject* array_of_tensor(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs);
  /// The value as a symbolic number; null without an error: it is none that varies, or no float.
  Ref number_of(PyObject* value);
  PyObject* numpy_attribute(PyObject* owner, PyObject* name);
  /// `result`, which the innermost frame is about to return or yield, is an array that C code reads.
  bool is_read(PyObject* result) const {
    return reader_depth_ != 0 && context_.frames.size() == reader_depth_ && numpy_inside(result);
  }
  PyObject* torch_generator_call(PyObject* callable, PyObject* args, PyObject* kwargs);
  PyObject* python_draw(const TracedCall& call);

 private:
  struct NumpyCall {
    Ref func, args, kwargs;  // args: a tuple; kwargs: a dict or null
    std::string name;        // of the ufunc or function: "add", "sum", "getitem"
    bool mutates = false;
    bool sized = false;  // data decide how large its results are
  };

  PyObject* numpy_call(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs);
  PyObject* numpy_dispatcher(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs);
  PyObject* numpy_builtin(PyObject* callable, const KnownCall& known, const std::string& name, PyObject* args,
                          PyObject* kwargs);
  PyObject* numpy_method(PyObject* callable, const KnownCall& known, PyObject* self, const std::string& name,
                         PyObject* args, PyObject* kwargs);
  bool inside_any(PyObject* args, PyObject* kwargs) const {
    return numpy_inside(args) || (kwargs != nullptr && numpy_inside(kwargs));
  }
  PyObject* numpy_foreign(PyObject* callable, const KnownCall& known, const std::string& name, PyObject* args);
  Ref numpy_constant(const NumpyCall& call);
  bool plain(PyObject* object) const;
  bool of_constants(const NumpyCall& call) const;
  bool note_constant(PyObject* result);
  PyObject* tensor_of_constant(PyObject* callable, PyObject* args, PyObject* kwargs);
  bool writes_outside(const NumpyCall& call) const;
  PyObject* run_behind(const std::string& reason, const NumpyCall& call);
  bool takes_many_scalars(const NumpyCall& call) const;
  bool constant(int slot) const;
  std::string place_of_decision(bool& own) const;
  bool may_decide(std::string& place) const;
  int young_target(const NumpyCall& call) const;
  PyObject* enter_body(PyObject* callable, PyObject* body, PyObject* args, PyObject* kwargs);
  bool in_numpys_code() const;
  Ref with_whole_slices(PyObject* key);
  bool varies_inside(PyObject* object) const;
  Ref rows_of(PyObject* source);
  bool constants_alone(const TapeNode& node) const;
  void vary_written(const TapeNode& node);
  PyObject* numpy_record(NumpyCall call);
  int numpy_slot(PyObject* value);
  Ref numpy_to_tape(PyObject* value, bool& uses, std::string& problem);
  void numpy_take(PyObject* result, TapeNode& node, bool constant, std::string& problem);

  // Between arrays and tensors (mixed_calls.cpp).
  bool is_mixed() const;
  bool among_tensors() const;
  std::string catch_up();
  int constant_slot(PyObject* array, TapeSlot slot);
  int tensor_slot(PyObject* tensor, bool result);
  Ref cross_to_tape(PyObject* value, std::string& problem);
  void cross_take(PyObject* result, TapeNode& node, std::string& problem);
  PyObject* cross(NumpyCall call);
  bool holds_tensor(PyObject* args, PyObject* kwargs) const;
  PyObject* torch_call(PyObject* callable, const KnownCall& known, const std::string& name, PyObject* args,
                       PyObject* kwargs);
  bool is_real_scalar(PyObject* object) const;
  Ref with_numbers(PyObject* operands);
  PyObject* tensor_operator(int op, const std::string& name, PyObject* left, PyObject* right);
  PyObject* random_call(PyObject* callable, PyObject* args, PyObject* kwargs);
  bool has_tensor(const TapeNode& node) const;
  bool of_varying_size(const TapeNode& node) const;
  bool knows_source(PyObject* source) const;
  Ref tensor_key(PyObject* container, PyObject* key);

  std::vector<PyObject*> bodies_;  // functions of NumPy's whose bodies are being traced, the innermost last
  size_t reader_depth_ = 0;        // how many frames there were when C code that reads values was entered; 0: none
};

}  // namespace tatara::capture
