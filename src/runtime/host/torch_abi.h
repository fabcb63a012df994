// The C interface that libtorch exports (torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h of
// PyTorch 2.11 to 2.13), declared here so that torch is no build dependency. Every entry is found by dlsym.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <span>
#include <string>

#include "ir/dtype.h"

namespace tatara::torch_abi {

struct TensorOpaque;
using TensorHandle = TensorOpaque*;
using ErrorCode = int32_t;  // 0: success
using StableIValue = uint64_t;
struct ListOpaque;
using ListHandle = ListOpaque*;
struct StringOpaque;
using StringHandle = StringOpaque*;

// clang-format off
#define TATARA_TORCH_SHIMS(X)                                                                                          \
  X(aoti_torch_create_tensor_from_blob, ErrorCode, (void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, TensorHandle*)) \
  X(aoti_torch_empty_strided, ErrorCode, (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, TensorHandle*)) \
  X(aoti_torch_delete_tensor_object, ErrorCode, (TensorHandle))                                                        \
  X(aoti_torch_new_tensor_handle, ErrorCode, (TensorHandle, TensorHandle*))                                            \
  X(aoti_torch_get_data_ptr, ErrorCode, (TensorHandle, void**))                                                        \
  X(aoti_torch_get_dim, ErrorCode, (TensorHandle, int64_t*))                                                           \
  X(aoti_torch_get_sizes, ErrorCode, (TensorHandle, int64_t**))                                                        \
  X(aoti_torch_get_strides, ErrorCode, (TensorHandle, int64_t**))                                                      \
  X(aoti_torch_get_dtype, ErrorCode, (TensorHandle, int32_t*))                                                         \
  X(aoti_torch_get_device_type, ErrorCode, (TensorHandle, int32_t*))                                                   \
  X(aoti_torch_get_device_index, ErrorCode, (TensorHandle, int32_t*))                                                  \
  X(aoti_torch_device_type_cpu, int32_t, ())                                                                           \
  X(aoti_torch_device_type_cuda, int32_t, ())                                                                          \
  X(aoti_torch_abi_version, uint64_t, ())                                                                              \
  X(aoti_torch_grad_mode_is_enabled, bool, ())                                                                         \
  X(aoti_torch_grad_mode_set_enabled, void, (bool))                                                                    \
  X(torch_call_dispatcher, ErrorCode, (const char*, const char*, StableIValue*, uint64_t))                             \
  X(torch_new_list_reserve_size, ErrorCode, (size_t, ListHandle*))                                                     \
  X(torch_list_push_back, ErrorCode, (ListHandle, StableIValue))                                                       \
  X(torch_list_size, ErrorCode, (ListHandle, size_t*))                                                                 \
  X(torch_list_get_item, ErrorCode, (ListHandle, size_t, StableIValue*))                                               \
  X(torch_delete_list, ErrorCode, (ListHandle))                                                                        \
  X(torch_new_string_handle, ErrorCode, (const char*, size_t, StringHandle*))                                          \
  X(aoti_torch_cpu_mm_out, ErrorCode, (TensorHandle, TensorHandle, TensorHandle))                                      \
  X(aoti_torch_cpu_bmm_out, ErrorCode, (TensorHandle, TensorHandle, TensorHandle))                                     \
  X(aoti_torch_cpu_addmm_out, ErrorCode, (TensorHandle, TensorHandle, TensorHandle, TensorHandle, double, double))     \
  X(aoti_torch_cpu_baddbmm_out, ErrorCode, (TensorHandle, TensorHandle, TensorHandle, TensorHandle, double, double))
// clang-format on

struct Api {
#define TATARA_DECLARE_SHIM(name, result, args) result(*name) args = nullptr;
  TATARA_TORCH_SHIMS(TATARA_DECLARE_SHIM)
#undef TATARA_DECLARE_SHIM
  // Not in every torch: may be null.
  const char* (*torch_exception_get_what_without_backtrace)() = nullptr;
  ErrorCode (*torch_new_stable_ivalue)(StableIValue**) = nullptr;
  ErrorCode (*aoti_torch__reinterpret_tensor)(TensorHandle, int64_t, const int64_t*, const int64_t*, int64_t,
                                              TensorHandle*) = nullptr;
  ErrorCode (*aoti_torch_get_storage_size)(TensorHandle, int64_t*) = nullptr;
  // at::native::is_conj and is_neg of a const at::Tensor&, which is what a handle points to.
  bool (*is_conj)(TensorHandle) = nullptr;
  bool (*is_neg)(TensorHandle) = nullptr;
};

/// Whether the values are the conjugates, or the negatives, of what is in memory; false where this torch does not tell.
inline bool is_lazy(const Api& api, TensorHandle tensor) {
  return (api.is_conj != nullptr && api.is_conj(tensor)) || (api.is_neg != nullptr && api.is_neg(tensor));
}

/// The interface of the torch loaded in this process; null with the reason when there is none.
const Api* api(std::string* why_not = nullptr);

/// Torch's message for the call that just failed, where it tells it.
std::string last_error(const Api& api);

/// A new, uninitialised tensor on a GPU, past torch's dispatcher where torch has such an entry. Null with torch's reason.
TensorHandle empty_on_gpu(const Api& api, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                          int32_t scalar_type, int32_t device, std::string& why_not);

/// Handle (dlopen) of a library that torch has loaded, by its file name; null when there is none.
void* open_library(const char* file_name);
/// Sets `fn` to a function of the library; null: it has none of the name.
template <typename Fn>
void load_symbol(void* library, Fn& fn, const char* name) {
  fn = reinterpret_cast<Fn>(dlsym(library, name));
}

/// c10::ScalarType number of a dtype (torch/headeronly/core/ScalarType.h; the numbers are part of torch's file format).
int32_t scalar_type(DType dtype);
/// Inverse; InvalidArgument for types that Tatara does not know.
DType from_scalar_type(int32_t code);
/// Name of torch's dtype object: "float32".
const char* dtype_attribute(DType dtype);

}  // namespace tatara::torch_abi
