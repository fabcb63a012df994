// Finding what Tatara needs of the torch of this process.
#include <string_view>

#include "capture/host/package.h"
#include "capture/host/torch_api.h"
#include "capture/host/torch_native.h"
#include "capture/host/without_modes.h"

namespace tatara::capture {

/// Reads attributes, and notes which are not there.
class NeededFromTorch {
 public:
  explicit NeededFromTorch(std::string& lacks) : lacks_(lacks) {}
  /// Null where the attribute, or the object itself, is not there.
  Ref operator()(PyObject* object, const char* place, const char* name) {
    Ref found = object != nullptr ? attr_or_null(object, name) : Ref();
    if (!found) lacks_ += (lacks_.empty() ? "this torch lacks " : ", ") + std::string(place) + "." + name;
    return found;
  }

 private:
  std::string& lacks_;
};

bool TorchApi::load() {
  torch = Ref::steal(PyImport_ImportModule("torch"));
  if (!torch) return false;
  const WithoutModes quiet(torch.get());
  NeededFromTorch need(lacks);
  if (!load_types(need) || !load_functions(need)) return false;
  PyObject* device = reinterpret_cast<PyObject*>(device_type);
  meta_device = Ref::steal(PyObject_CallFunction(device, "s", "meta"));
  cpu_device = Ref::steal(PyObject_CallFunction(device, "s", "cpu"));
  empty_tuple = Ref::steal(PyTuple_New(0));
  device_key = Ref::steal(PyUnicode_InternFromString("device"));
  if (!files.load(torch.get())) return false;
  const Ref capsule = need(reinterpret_cast<PyObject*>(tensor_type), "torch.Tensor", "__dlpack_c_exchange_api__");
  if (!capsule) return false;
  exchange_ = PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api");
  TorchNative::get();  // makes a tensor
  return exchange_ != nullptr && PyErr_Occurred() == nullptr;
}

bool TorchApi::load_types(NeededFromTorch& need) {
  core = need(torch.get(), "torch", "_C");
  const Ref nn = need(torch.get(), "torch", "nn");
  const auto type = [&](PyObject* owner, const char* place, const char* name) {
    return reinterpret_cast<PyTypeObject*>(need(owner, place, name).release());
  };
  tensor_type = type(torch.get(), "torch", "Tensor");
  base_type = type(core.get(), "torch._C", "TensorBase");
  parameter_type = type(nn.get(), "torch.nn", "Parameter");
  module_type = type(nn.get(), "torch.nn", "Module");
  device_type = type(torch.get(), "torch", "device");
  return lacks.empty();
}

/// Functions of torch's that are called without looking whether they are there.
bool TorchApi::load_functions(NeededFromTorch& need) {
  modes.load(need, core.get());
  autocast.load(need, torch.get(), core.get());
  functions.load(need, torch.get(), core.get());
  for (const char* name : {"_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic"})
    need(core.get(), "torch._C", name);
  return state.load(need, torch.get(), core.get()) && lacks.empty();
}

void TorchModes::load(NeededFromTorch& need, PyObject* core) {
  const auto of_core = [&](const char* name) { return need(core, "torch._C", name); };
  push = of_core("_push_on_torch_function_stack");
  pop = of_core("_pop_torch_function_stack");
  count = of_core("_len_torch_function_stack");
  at = of_core("_get_function_stack_at");
  overrides_enabled = of_core("_is_torch_function_enabled");
  dispatch_count = of_core("_len_torch_dispatch_stack");
}

bool TorchState::load(NeededFromTorch& need, PyObject* torch, PyObject* core) {
  const auto of_core = [&](const char* name) { return need(core, "torch._C", name); };
  const auto of_torch = [&](const char* name) { return need(torch, "torch", name); };
  const Ref functorch = of_core("_functorch"), autograd = of_core("_autograd");
  is_grad_enabled = of_torch("is_grad_enabled");
  set_grad_enabled = of_core("_set_grad_enabled");
  is_inference = of_torch("is_inference_mode_enabled");
  inference_mode = of_core("_InferenceMode");
  get_default_dtype = of_torch("get_default_dtype");
  deterministic = of_torch("are_deterministic_algorithms_enabled");
  key_is_excluded = of_core("_dispatch_tls_is_dispatch_key_excluded");
  // Without these nobody could tell where a program's transforms and hooks begin.
  tracing_state = of_core("_get_tracing_state");
  interpreter_stack = need(functorch.get(), "torch._C._functorch", "peek_interpreter_stack");
  need(functorch.get(), "torch._C._functorch", "get_inplace_requires_grad_allowed");
  saved_tensor_hooks = need(autograd.get(), "torch._C._autograd", "_top_saved_tensors_default_hooks");
  of_core("_is_fwd_grad_enabled");
  const Ref forward_ad = Ref::steal(PyImport_ImportModule("torch.autograd.forward_ad"));
  if (forward_ad) forward_ad_globals = Ref::borrow(PyModule_GetDict(forward_ad.get()));
  current_level_key = Ref::steal(PyUnicode_InternFromString("_current_level"));
  return forward_ad_globals && current_level_key;
}

void TorchAutocast::load(NeededFromTorch& need, PyObject* torch, PyObject* core) {
  is_any = need(core, "torch._C", "_is_any_autocast_enabled");
  get = need(torch, "torch", "is_autocast_enabled");
  set = need(torch, "torch", "set_autocast_enabled");
  get_dtype = need(torch, "torch", "get_autocast_dtype");
  set_dtype = need(torch, "torch", "set_autocast_dtype");
  // What autocast does to an operator is known from these (_autocast.py).
  need(core, "torch._C", "_dispatch_get_all_op_names");
  need(core, "torch._C", "_dispatch_has_kernel_for_dispatch_key");
}

void TorchFunctions::load(NeededFromTorch& need, PyObject* torch, PyObject* core) {
  const Ref tensor = need(torch, "torch", "Tensor");
  const Ref base = need(core, "torch._C", "TensorBase");
  to = need(base.get(), "torch.Tensor", "to");
  view_as = need(tensor.get(), "torch.Tensor", "view_as");
  swap_impl = need(core, "torch._C", "_swap_tensor_impl");
  empty_strided = need(torch, "torch", "empty_strided");
  conj = need(torch, "torch", "conj");
}

bool TorchFiles::load(PyObject* torch) {
  const auto folder_of = [](PyObject* source) {
    const std::string file = text_of(attr(source, "__file__").get());
    return file.substr(0, file.rfind('/') + 1);
  };
  torch_folder = folder_of(torch);
  const Ref os = Ref::steal(PyImport_ImportModule("os"));
  if (!os) return false;
  library_folder = folder_of(os.get());
  const Ref tatara = Ref::steal(PyImport_ImportModule("tatara"));
  if (!tatara) return false;
  own_folder = folder_of(tatara.get());
  return true;
}

}  // namespace tatara::capture
