// The host (PyTorch, NumPy) as the runtime sees it: tensors in memory, allocation, eager operators, threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A strided tensor in memory. `data` points at element (0, ..., 0). Sizes and strides in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// An owned reference to a tensor of the host, not a Python object (for torch an AtenTensorHandle).
using HostTensor = std::shared_ptr<void>;

/// A run-time argument of a host operator.
struct HostValue;
struct HostValue {
  enum class Kind : uint8_t {
    kNone, kTensor, kOptionalTensor, kTensorList, kOptionalTensorList, kInt, kDouble, kBool, kComplex, kString, kIntList, kDoubleList, kBoolList,
    kDType, kDevice,
  } kind = Kind::kNone;
  TensorView tensor;
  std::vector<TensorView> tensors;
  std::vector<bool> present;  // kOptionalTensorList
  int64_t integer = 0;
  double number = 0, imag = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<double> numbers;
};

/// Eager operators without Python. Thread-safe.
class HostOps {
 public:
  virtual ~HostOps() = default;
  /// Argument types of a host operator, one per schema argument, as schema text ("Tensor", "Tensor?", "int[]", ...);
  /// empty when the host has no such operator.
  virtual std::vector<std::string> schema(std::string_view op, std::string_view overload) = 0;
  /// Calls an operator; tensors are borrowed for the call. Results must be released by dropping them.
  /// Throws tatara::Error carrying the host's message.
  virtual std::vector<HostTensor> call(std::string_view op, std::string_view overload,
                                       std::span<const HostValue> args) = 0;
  virtual TensorView view(const HostTensor& tensor) = 0;
};

/// The torch in this process: C shims exported by libtorch, found by dlsym (torch_call_dispatcher,
/// aoti_torch_create_tensor_from_blob, ...). Null when torch is not loaded or lacks them, with the reason.
HostOps* torch_host_ops(std::string* why_not = nullptr);

}  // namespace tatara
