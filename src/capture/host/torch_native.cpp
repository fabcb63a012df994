#include "capture/host/torch_native.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "capture/host/torch_api.h"
#include "capture/host/without_modes.h"
#include "runtime/base/pages.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

constexpr const char* kDispatchKeys = "_ZN3c104impl26raw_local_dispatch_key_setE";

using torch_abi::load_symbol;

/// The two words of this thread's dispatch keys. A thread-local variable of libc10, so looked up once a thread.
const uint64_t* dispatch_keys(void* library) {
  thread_local const uint64_t* keys = nullptr;
  if (keys == nullptr) keys = static_cast<const uint64_t*>(dlsym(library, kDispatchKeys));
  return keys;
}

}  // namespace

const TorchNative& TorchNative::get() {
  return made_once([] { return TorchNative(); });
}

TorchNative::TorchNative() : abi_(torch_abi::api()) {
  library_ = torch_abi::open_library("libtorch_python.so");
  if (library_ != nullptr) {
    load_symbol(library_, grad_enabled_, "_ZN3c108GradMode10is_enabledEv");
    load_symbol(library_, inference_enabled_, "_ZN3c1013InferenceMode10is_enabledEv");
    load_symbol(library_, default_dtype_, "_ZN3c1031get_default_dtype_as_scalartypeEv");
    load_symbol(library_, mode_count_, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    load_symbol(library_, overrides_, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    load_symbol(library_, context_, "_ZN2at13globalContextEv");
    load_symbol(library_, deterministic_, "_ZNK2at7Context23deterministicAlgorithmsEv");
    reads_state_ = grad_enabled_ != nullptr && inference_enabled_ != nullptr && default_dtype_ != nullptr &&
                   mode_count_ != nullptr && overrides_ != nullptr && context_ != nullptr &&
                   deterministic_ != nullptr && dispatch_keys(library_) != nullptr;
    for (const char* name : {"_Z16THPVariable_WrapON2at10TensorBaseE", "_Z16THPVariable_WrapN2at10TensorBaseE",
                             "_Z16THPVariable_WrapRKN2at10TensorBaseE"}) {
      if (wrap_ == nullptr) load_symbol(library_, wrap_, name);
    }
  }
  const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  load_bits(torch.get());
  const Ref core = torch ? attr_or_null(torch.get(), "_C") : Ref();
  const Ref aoti = core ? attr_or_null(core.get(), "_aoti") : Ref();
  if (core) increment_version_ = attr_or_null(core.get(), "_increment_version");
  if (aoti) steal_ = attr_or_null(aoti.get(), "alloc_tensor_by_stealing_from_void_ptr");
  forget_error();
}

void TorchNative::load_bits(PyObject* torch) {
  const Ref type = torch != nullptr ? attr_or_null(torch, "Tensor") : Ref();
  if (!type) return;
  is_conj_method_ = attr_or_null(type.get(), "is_conj");
  is_neg_method_ = attr_or_null(type.get(), "is_neg");
  void* library = torch_abi::open_library("libtorch_cpu.so");
  if (library == nullptr) return;
  load_symbol(library, is_conj_, "_ZN2at6native7is_conjERKNS_6TensorE");
  load_symbol(library, is_neg_, "_ZN2at6native6is_negERKNS_6TensorE");
  load_symbol(library, is_zero_, "_ZN2at6native14_is_zerotensorERKNS_6TensorE");
  load_symbol(library, has_storage_, "_ZNK3c1010TensorImpl11has_storageEv");
  load_symbol(library, nested_table_, "_ZTVN2at6native16NestedTensorImplE");
  const WithoutModes quiet(torch);
  // The layout of Python's tensor object is no part of torch's interface: trusted where a tensor's own word is there.
  const Ref example = Ref::steal(PyObject_CallMethod(torch, "empty", "i", 1));
  const Ref address = example ? attr_or_null(example.get(), "_cdata") : Ref();
  const bool as_known = address && PyLong_AsVoidPtr(address.get()) == *impl_place(example.get());
  if (!as_known || is_neg_ == nullptr || is_zero_ == nullptr) is_conj_ = nullptr;
  if (as_known) load_symbol(library, bump_version_, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE");
  if (!as_known) return;
  history_.find(torch, library);
  words_.find(torch, [this](PyObject* tensor, TensorRef& out) { return ask(tensor, out); });
}

bool TorchNative::may_have_memory(PyObject* tensor) const {
  if (is_conj_ == nullptr || impl_of(tensor) == nullptr) return true;
  if (has_storage_ != nullptr && !has_storage_(impl_of(tensor))) return false;
  // A nested tensor has no sizes: the host tells so by exceptions with a trace of the stack, which take a millisecond each.
  constexpr size_t kFirstFunction = 2 * sizeof(void*);
  const auto* const table = *static_cast<const char* const*>(impl_of(tensor));
  if (nested_table_ != nullptr && table == nested_table_ + kFirstFunction) return false;
  constexpr int32_t kMeta = 14;  // c10::DeviceType
  const auto handle = reinterpret_cast<torch_abi::TensorHandle>(const_cast<void**>(impl_place(tensor)));
  int32_t type = 0, device = 0;
  if (abi_->aoti_torch_get_device_type(handle, &device) != 0 || device == kMeta) return false;
  constexpr int32_t kFirstQuantized = 12, kLastQuantized = 14;  // c10::ScalarType
  return abi_->aoti_torch_get_dtype(handle, &type) == 0 && (type < kFirstQuantized || type > kLastQuantized);
}

bool TorchNative::holds_values(PyObject* tensor) const {
  if (is_conj_ != nullptr) {
    const void* place = impl_place(tensor);
    return !is_conj_(place) && !is_neg_(place) && !is_zero_(place);
  }
  for (const Ref* method : {&is_conj_method_, &is_neg_method_}) {
    const Ref answer = *method ? Ref::steal(PyObject_CallOneArg(method->get(), tensor)) : Ref();
    if (!answer) forget_error();
    if (answer.get() != Py_False) return false;
  }
  return true;
}

bool TorchNative::count_write(PyObject* tensor) const {
  if (bump_version_ == nullptr) {
    const Ref one = Ref::steal(PyTuple_Pack(1, tensor));
    return static_cast<bool>(Ref::steal(PyObject_CallOneArg(increment_version_.get(), one.get())));
  }
  try {
    bump_version_(impl_place(tensor));
  } catch (const std::exception& error) {  // of an inference tensor
    const std::string_view text = error.what();
    set_host_error(text.substr(0, text.find('\n')));
    return false;
  }
  return true;
}

bool TorchNative::read(PyObject* tensor, TensorRef& out) const {
  const void* impl = impl_of(tensor);
  if (is_conj_ == nullptr || impl == nullptr) return false;
  if (words_.read(impl, out)) return true;
  ++tensors_asked();
  if (!ask(tensor, out)) return false;
  words_.trust(impl, out);
  return true;
}

/// What read() tells, by calls into torch.
bool TorchNative::ask(PyObject* tensor, TensorRef& out) const {
  // The word after the object's head is a torch::Tensor, which is what a handle points to.
  const auto handle = reinterpret_cast<torch_abi::TensorHandle>(const_cast<void**>(impl_place(tensor)));
  static const int32_t cpu = abi_->aoti_torch_device_type_cpu();
  static const int32_t cuda = abi_->aoti_torch_device_type_cuda();
  int32_t type = 0, device = 0, index = 0;
  int64_t rank = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  if (abi_->aoti_torch_get_device_type(handle, &device) != 0 || (device != cpu && device != cuda)) return false;
  if (abi_->aoti_torch_get_dtype(handle, &type) != 0) return false;
  const ExchangeType known = exchange_type(type);
  if (known.bits == 0) return false;
  if (device == cuda && abi_->aoti_torch_get_device_index(handle, &index) != 0) return false;
  // Those of torch.func's levels have none, and asked for their memory the host writes to the standard error output.
  if (has_storage_ != nullptr && !has_storage_(*impl_place(tensor))) return false;
  if (abi_->aoti_torch_get_dim(handle, &rank) != 0 || abi_->aoti_torch_get_sizes(handle, &sizes) != 0 ||
      abi_->aoti_torch_get_strides(handle, &strides) != 0 || abi_->aoti_torch_get_data_ptr(handle, &out.data) != 0) {
    return false;
  }
  out.sizes = sizes;
  out.strides = strides;
  out.rank = static_cast<int32_t>(rank);
  out.device_type = device == cuda ? kDlpackCuda : kDlpackCpu;
  out.device_id = index;
  out.code = known.code;
  out.bits = known.bits;
  return holds_values(tensor);
}

void TorchNative::fetch(PyObject* tensor) {
  constexpr int kLines = 3, kLine = 64;  // of a TensorImpl
  const auto* impl = static_cast<const char*>(*impl_place(tensor));
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(impl + line * kLine);
}

void TorchNative::fetch_storage(PyObject* tensor) {
  // Where a TensorImpl has its storage in the releases known; elsewhere a wrong address is asked for, which harms nothing.
  constexpr size_t kStorage = 16;
  const void* storage = nullptr;
  std::memcpy(&storage, static_cast<const char*>(*impl_place(tensor)) + kStorage, sizeof(storage));
  __builtin_prefetch(storage);
}

TorchThreadState TorchNative::state() const {
  TorchThreadState state;
  const uint64_t* keys = dispatch_keys(library_);
  state.included = keys[0];
  state.excluded = keys[1];
  state.modes = mode_count_();
  state.overrides = overrides_();
  state.grad = grad_enabled_();
  state.inference = inference_enabled_();
  state.deterministic = deterministic_(context_());
  state.default_dtype = default_dtype_();
  return state;
}

Ref TorchNative::wrap(torch_abi::TensorHandle handle) const {
  if (wrap_ != nullptr) {
    Ref object = Ref::steal(wrap_(handle));
    abi_->aoti_torch_delete_tensor_object(handle);
    return object;
  }
  const Ref capsule = Ref::steal(PyCapsule_New(handle, nullptr, nullptr));
  return capsule ? Ref::steal(PyObject_CallOneArg(steal_.get(), capsule.get())) : Ref();
}

void set_host_error(std::string_view message) {
  Ref kind;
  if (message.find("out of memory") != std::string_view::npos) {
    const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
    if (torch) kind = attr_or_null(torch.get(), "OutOfMemoryError");
    forget_error();
  }
  PyErr_SetString(kind ? kind.get() : PyExc_RuntimeError, std::string(message).c_str());
}

torch_abi::TensorHandle TorchNative::new_tensor(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                                int32_t scalar_type, int32_t device_type, int32_t device,
                                                void** data) const {
  torch_abi::TensorHandle handle = nullptr;
  if (abi_->aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), scalar_type,
                                     device_type, device, &handle) != 0) {
    const std::string what = torch_abi::last_error(*abi_);
    set_host_error(what.empty() ? "an output cannot be allocated" : what);
    return nullptr;
  }
  return with_memory(handle, data);
}

/// A new tensor with its address. Null, with a Python error: it wraps another one, since a level of torch.func is open.
torch_abi::TensorHandle TorchNative::with_memory(torch_abi::TensorHandle handle, void** data) const {
  const void* impl = *reinterpret_cast<void* const*>(handle);
  const bool has_storage = has_storage_ == nullptr || has_storage_(impl);
  if (has_storage && abi_->aoti_torch_get_data_ptr(handle, data) == 0) return handle;
  abi_->aoti_torch_delete_tensor_object(handle);
  set_host_error("a new tensor has no memory of its own");
  return nullptr;
}

Ref TorchNative::empty_on_gpu(std::span<const int64_t> sizes, std::span<const int64_t> strides, int32_t scalar_type,
                              int32_t device, void** data) const {
  std::string why_not;
  torch_abi::TensorHandle handle = torch_abi::empty_on_gpu(*abi_, sizes, strides, scalar_type, device, why_not);
  if (handle == nullptr) {
    set_host_error(why_not);
    return {};
  }
  handle = with_memory(handle, data);
  return handle != nullptr ? wrap(handle) : Ref();
}

Ref TorchNative::empty(std::span<const int64_t> sizes, std::span<const int64_t> strides, int32_t scalar_type,
                       size_t bytes, KeptOutputs& kept, void** data, uint8_t* zero) const {
  torch_abi::TensorHandle handle = nullptr;
  const bool wanted = kept.wants(bytes);
  if (wanted) handle = kept.take(sizes, strides, bytes, data);
  if (handle != nullptr) return wrap(handle);
  static const int32_t cpu = abi_->aoti_torch_device_type_cpu();
  handle = new_tensor(sizes, strides, scalar_type, cpu, 0, data);
  if (handle == nullptr) return {};
  bool huge = false;
  if (!wanted && zero != nullptr && clear_untouched(*data, bytes)) {
    *zero = 1;
  } else if (kept.wants_huge_pages()) {
    huge = true;
    advise_huge_pages(*data, bytes);
  }
  if (!wanted) return wrap(handle);
  torch_abi::TensorHandle second = nullptr;
  if (abi_->aoti_torch_new_tensor_handle(handle, &second) != 0) return wrap(handle);
  Ref object = wrap(handle);
  if (object) kept.keep(second, object.get(), bytes, huge);
  abi_->aoti_torch_delete_tensor_object(second);
  return object;
}

}  // namespace tatara::capture
