// The torch of this process as capture sees it: types, functions by identity, tensor metadata without Python.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/host/tensor_ref.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// What the tracer does with a torch function.
enum class TorchKind : uint8_t {
  kRecord,       ///< an operation on tensors: goes to the tape
  kMetadata,     ///< answered from the placeholder: sizes, dtype, ...
  kDevice,       ///< device, is_cuda, is_cpu, is_meta: the placeholder lies
  kGrad,         ///< .grad, .grad_fn, hooks: None on a placeholder, real on others
  kPassthrough,  ///< no tensor is read: state queries and switches
  kToCpu,
  kPython,  ///< a Python function: traced through
  kBreak,   ///< needs the values: item(), numpy(), ...
};

struct TorchFunction {
  TorchKind kind = TorchKind::kRecord;
  std::string name;  ///< of the dispatcher's operators without their overload's; "library::name" of others than torch's
  bool dispatcher = false;    ///< an operator of the dispatcher (torch.ops), not a function of Python's
  bool factory = false;       ///< takes device=
  bool reads_values = false;  ///< kBreak: only because it gives Python data made from the operands' values
  bool of_sizes = false;      ///< kMetadata: depends on sizes or strides
  bool of_layout = false;     ///< kMetadata: depends on strides
  PyObject* key = nullptr;
};

/// dtype, device, sizes, strides of a real tensor, read through the DLPack exchange API.
struct TensorMeta {
  uint8_t code = 0;
  uint8_t bits = 0;
  int32_t device_type = 0;
  int32_t device_id = 0;
  bool conjugate = false;  ///< a lazily conjugated view: all else is of the numbers beneath it
  void* data = nullptr;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool operator==(const TensorMeta& o) const {
    return conjugate == o.conjugate && code == o.code && bits == o.bits && device_type == o.device_type &&
           device_id == o.device_id && sizes == o.sizes && strides == o.strides;
  }
};

class NumpyApi;

/// torch.ops.aten.add.Tensor, torch.ops.aten.add and their kin.
bool is_dispatcher_operator(PyObject* func);

class NeededFromTorch;

/// Modes that see what Python calls of torch's. Each of these structs finds its own; what torch lacks is noted in TorchApi::lacks.
struct TorchModes {
  Ref push, pop, count, overrides_enabled;
  Ref at;              // the mode at a place of the stack, the outermost first
  Ref dispatch_count;  // of torch-dispatch modes
  void load(NeededFromTorch& need, PyObject* core);
};

/// What tells, and changes, the state in which operators run.
struct TorchState {
  Ref is_grad_enabled, set_grad_enabled, is_inference, inference_mode, get_default_dtype, deterministic;
  Ref tracing_state, interpreter_stack, saved_tensor_hooks, forward_ad_globals, current_level_key, key_is_excluded;
  /// False with a Python error set where a module cannot be imported.
  bool load(NeededFromTorch& need, PyObject* torch, PyObject* core);
};

struct TorchAutocast {
  Ref is_any, get, set, get_dtype, set_dtype;  // the latter four for one device
  void load(NeededFromTorch& need, PyObject* torch, PyObject* core);
};

/// Functions that are called as they are.
struct TorchFunctions {
  Ref to, view_as, swap_impl, empty_strided, conj;
  void load(NeededFromTorch& need, PyObject* torch, PyObject* core);
};

/// Where code lies: what is a library's is told by that.
struct TorchFiles {
  std::string torch_folder, library_folder, own_folder;  // of torch's, Python's and our modules in Python
  /// False with a Python error set.
  bool load(PyObject* torch);
  bool is_torch(const PyCodeObject* code) const {
    return text_of(code->co_filename).compare(0, torch_folder.size(), torch_folder) == 0;
  }
};

struct TorchApi {
  NumpyApi* numpy = nullptr;  ///< null while NumPy is not imported
  Ref torch, core;
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* base_type = nullptr;
  PyTypeObject* parameter_type = nullptr;
  PyTypeObject* module_type = nullptr;
  PyTypeObject* device_type = nullptr;
  Ref meta_device, cpu_device, empty_tuple, device_key;
  TorchModes modes;
  TorchState state;
  TorchAutocast autocast;
  TorchFunctions functions;
  TorchFiles files;

  /// What Tatara needs and this torch does not have, in words; empty: nothing. Then everything runs in eager.
  std::string lacks;
  /// False while torch is not imported: then only NumPy's arrays are tensors.
  bool present() const { return exchange_ != nullptr; }
  /// A torch tensor or a NumPy array whose type is no subclass.
  bool is_plain_tensor(PyObject* object) const { return is_plain_torch(object) || is_plain_numpy(object); }
  bool is_plain_torch(PyObject* object) const {
    return Py_TYPE(object) == tensor_type || Py_TYPE(object) == parameter_type || is_plain_class(Py_TYPE(object));
  }
  /// A class of tensors that changes nothing in what torch's calls do: as Parameter, of which most are made.
  bool is_plain_class(PyTypeObject* type) const;
  /// The class has a __torch_function__ of its own.
  bool handles_calls(PyTypeObject* type) const;
  bool is_torch_tensor(PyObject* object) const {
    return base_type != nullptr && PyObject_TypeCheck(object, base_type) != 0;
  }
  bool is_tensor(PyObject* object) const { return is_torch_tensor(object) || is_numpy(object); }
  bool is_module(PyObject* object) const {
    return module_type != nullptr && PyObject_TypeCheck(object, module_type) != 0;
  }
  /// Arrays (of subclasses too) and NumPy's scalars.
  bool is_numpy(PyObject* object) const;
  bool is_plain_numpy(PyObject* object) const;
  bool grad_enabled() const;
  /// Switches gradients for this thread. A Python error that is set stays.
  void set_grad(bool on) const;
  /// What kind of tensor it is that is_plain_tensor() or read_meta() refuses.
  std::string why_not(PyObject* tensor) const;
  /// False (no error set) for tensors that the exchange API refuses, and those whose memory is not their values (the
  /// conjugate and negative bits).
  bool read_meta(PyObject* tensor, TensorMeta& out) const;
  /// A plain tensor of torch's that kernels of ours cannot read, and torch's can: a sparse or quantised one.
  bool is_foreign(PyObject* tensor) const;
  /// What types of results of calls on a foreign tensor may depend on, but for its elements: its layout, dtype, device, sizes, ...
  std::vector<Ref> foreign_facts(PyObject* tensor) const;
  /// Of a lazily conjugated view: the numbers beneath it, as a view of the same memory. Null (no error set) of any other object.
  Ref beneath(PyObject* tensor) const;
  /// Same metadata as `expected`? No allocation.
  bool matches(PyObject* tensor, const TensorMeta& expected, void** data = nullptr) const;
  /// A tensor's memory and layout, borrowed while nothing resizes it. False without an error.
  bool view(PyObject* tensor, TensorRef& out) const;
  /// The attributes of these names; no error. Not for what stands for a tensor in a trace.
  bool requires_grad(PyObject* tensor) const;
  bool is_leaf(PyObject* tensor) const;
  /// Whether it is known that there is none; else its attributes are to be asked.
  bool lacks_gradient(PyObject* tensor) const;
  bool lacks_hooks(PyObject* tensor) const;
  /// A meta tensor with the sizes, strides and dtype of a tensor.
  Ref meta_like(PyObject* tensor) const;
  /// A tensor without memory. Null with a Python error set.
  Ref empty_meta(PyObject* sizes, PyObject* strides, PyObject* dtype) const;
  const TorchFunction& classify(PyObject* func);

  /// The one of this process. Loads when torch is found to be imported; see present().
  static TorchApi* get();

 private:
  void* exchange_ = nullptr;
  std::unordered_map<PyObject*, TorchFunction> functions_;
  bool load();
  bool load_types(NeededFromTorch& need);
  bool load_functions(NeededFromTorch& need);
  bool exchange(PyObject* tensor, void* out) const;
  TorchFunction make(PyObject* func, PyObject* key);
};

/// The random generators of the GPUs, by their numbers. None before CUDA is initialised, nor in a forked child of a process that
/// did so: there they cannot be read, and nothing draws from them.
std::vector<Ref> gpu_generators(const TorchApi& api);
/// [(generator, state), ...] of the generators of all devices. Null with a Python error set.
Ref generator_states(const TorchApi& api);
/// False where one of them refuses its state. An error that is on its way stays.
bool set_generator_states(PyObject* states);

/// Code of Python's standard library and of torch, but for torch's modules and functions of networks: a graph of its own is
/// of no use there.
bool is_library_code(const PyCodeObject* code, const TorchApi& api);

/// Puts gradients on or off, and back.
class GradientsSet {
 public:
  GradientsSet(const TorchApi& api, bool on) : api_(api), before_(api.grad_enabled()), on_(on) {
    if (before_ != on_) api_.set_grad(on_);
  }
  ~GradientsSet() {
    if (before_ != on_) api_.set_grad(before_);
  }
  GradientsSet(const GradientsSet&) = delete;
  GradientsSet& operator=(const GradientsSet&) = delete;

 private:
  const TorchApi& api_;
  bool before_, on_;
};

/// How many owners the host counts of a tensor, one of them its Python object; 0: it does not say.
inline long use_count(PyObject* tensor) {
  const Ref count = Ref::steal(PyObject_CallMethod(tensor, "_use_count", nullptr));
  if (!count) forget_error();
  return count ? PyLong_AsLong(count.get()) : 0;
}

}  // namespace tatara::capture
