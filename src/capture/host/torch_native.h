// What the host's Python layer does in C++, called without Python: reading its thread state, making tensor objects.
// These are exported symbols of libtorch that are no part of its C interface, so each is optional: without them the same
// things are done through Python.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "capture/host/kept_outputs.h"
#include "capture/host/tensor_history.h"
#include "capture/host/tensor_words.h"
#include "capture/python/py.h"
#include "ir/dtype.h"
#include "runtime/host/torch_abi.h"

namespace tatara::capture {

/// The state of the present thread that decides what torch's operations mean. Equal states behave equally; unequal ones may.
struct TorchThreadState {
  uint64_t included = 0, excluded = 0;  // dispatch keys: autocast, inference mode, tracing and functional modes
  int64_t modes = 0;                    // torch-function modes on the stack
  int32_t overrides = 0;                // which __torch_function__s are called: all, modes' alone, none
  bool grad = false, inference = false, deterministic = false;
  int8_t default_dtype = 0;
  bool operator==(const TorchThreadState&) const = default;
};

/// Sets the Python error for a message of the host's: torch.OutOfMemoryError where it tells of that.
void set_host_error(std::string_view message);

/// How many tensors' layouts torch was asked for, where their own words did not tell; tatara.stats() has it.
inline uint64_t& tensors_asked() {
  static uint64_t count = 0;
  return count;
}

class TorchNative {
 public:
  /// The one of this process. Torch must be loaded.
  static const TorchNative& get();

  bool reads_state() const { return reads_state_; }
  /// Only when reads_state().
  TorchThreadState state() const;
  bool grad_enabled() const { return grad_enabled_(); }
  /// False for tensors of which the exchange would only raise, which costs a millisecond: placeholders, sparse ones.
  bool may_have_memory(PyObject* tensor) const;
  /// Whether the torch tensor's memory holds its values: no conjugate or negative bit, no zeros without memory.
  bool holds_values(PyObject* tensor) const;

  /// What `tensor` (a plain one of torch's) has where, as TorchApi::view, in a fraction of the exchange's time. False for
  /// what it does not know: then the exchange may.
  bool read(PyObject* tensor, TensorRef& out) const;
  const TensorHistory& history() const { return history_; }
  /// What plain tensors hold where, for those who compare it.
  const TensorWords& words() const { return words_; }
  /// Counts a write to a torch tensor, as eager does: a backward pass that needs its old contents raises. False with a Python
  /// error set.
  bool count_write(PyObject* tensor) const;
  /// Ask for the memory that read() will look at, in two steps: the second looks at what the first asks for.
  static void fetch(PyObject* tensor);
  static void fetch_storage(PyObject* tensor);

  /// A new, uninitialised CPU tensor and its memory of `bytes`, if possible from `kept`. Null with a Python error set. Zeros are asked
  /// for by `zero`, which tells whether the memory is zero: not where it is kept, whose pages are there.
  Ref empty(std::span<const int64_t> sizes, std::span<const int64_t> strides, int32_t scalar_type, size_t bytes,
            KeptOutputs& kept, void** data, uint8_t* zero = nullptr) const;
  /// A new, uninitialised tensor on a GPU. Null with a Python error set.
  Ref empty_on_gpu(std::span<const int64_t> sizes, std::span<const int64_t> strides, int32_t scalar_type,
                   int32_t device, void** data) const;
  /// A Python object for the tensor behind `handle`, which is consumed.
  Ref wrap(torch_abi::TensorHandle handle) const;

 private:
  TorchNative();
  void load_bits(PyObject* torch);
  bool ask(PyObject* tensor, TensorRef& out) const;
  /// Null with a Python error set.
  torch_abi::TensorHandle new_tensor(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                     int32_t scalar_type, int32_t device_type, int32_t device, void** data) const;
  torch_abi::TensorHandle with_memory(torch_abi::TensorHandle handle, void** data) const;
  const torch_abi::Api* abi_ = nullptr;
  bool reads_state_ = false;
  bool (*grad_enabled_)() = nullptr;
  bool (*inference_enabled_)() = nullptr;
  int8_t (*default_dtype_)() = nullptr;
  int64_t (*mode_count_)() = nullptr;
  int32_t (*overrides_)() = nullptr;
  void* (*context_)() = nullptr;
  bool (*deterministic_)(const void*) = nullptr;
  void* library_ = nullptr;
  // Of a tensor's lazy operations. They take a const Tensor&: the word after a Python tensor's head.
  using Bit = bool (*)(const void*);
  Bit is_conj_ = nullptr, is_neg_ = nullptr, is_zero_ = nullptr;
  bool (*has_storage_)(const void*) = nullptr;  // takes a TensorImpl
  const char* nested_table_ = nullptr;          // of the virtual functions of old nested tensors
  Ref is_conj_method_, is_neg_method_;
  void (*bump_version_)(const void*) = nullptr;  // takes a const Tensor&
  Ref increment_version_;                        // torch._C._increment_version, for where there is none
  TensorHistory history_;
  TensorWords words_;
  PyObject* (*wrap_)(void*) = nullptr;
  Ref steal_;  // torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr
};

}  // namespace tatara::capture
