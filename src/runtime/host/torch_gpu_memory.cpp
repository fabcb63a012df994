// Memory of GPUs from torch's allocator.
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "runtime/host/torch_abi.h"
#include "support/made_once.h"

namespace tatara::torch_abi {

namespace {

/// at::detail::empty_strided_cuda, past torch's dispatcher. Its mangled name holds the types of its arguments; these have the
/// same layout.
struct MadeTensor {  // at::Tensor: not trivial, so that it is returned in memory
  MadeTensor(const MadeTensor&) = delete;
  MadeTensor& operator=(const MadeTensor&) = delete;
  ~MadeTensor() {}  // NOLINT(modernize-use-equals-default): that would be trivial
  void* impl;
};
struct IntList {  // c10::ArrayRef<int64_t>
  const int64_t* data;
  size_t size;
};
struct DeviceNumber {  // c10::Device
  int8_t type, index;
};
using EmptyStridedCuda = MadeTensor (*)(IntList, IntList, int8_t, std::optional<DeviceNumber>);

EmptyStridedCuda empty_strided_cuda() {
  return made_once([] {
    void* library = open_library("libtorch_cuda.so");
    constexpr const char* kName =
        "_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE";
    return library == nullptr ? nullptr : reinterpret_cast<EmptyStridedCuda>(dlsym(library, kName));
  });
}

}  // namespace

std::string last_error(const Api& api) {
  const char* text = api.torch_exception_get_what_without_backtrace != nullptr
                         ? api.torch_exception_get_what_without_backtrace()
                         : nullptr;
  return text != nullptr ? text : "";
}

TensorHandle empty_on_gpu(const Api& api, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                          int32_t scalar_type, int32_t device, std::string& why_not) {
  const int32_t cuda = made_once([&] { return api.aoti_torch_device_type_cuda(); });
  if (const EmptyStridedCuda make = empty_strided_cuda(); make != nullptr) {
    const DeviceNumber place{static_cast<int8_t>(cuda), static_cast<int8_t>(device)};
    try {
      return reinterpret_cast<TensorHandle>(new MadeTensor(make(
          {sizes.data(), sizes.size()}, {strides.data(), strides.size()}, static_cast<int8_t>(scalar_type), place)));
    } catch (const std::exception& error) {
      why_not = error.what();
      why_not.resize(std::min(why_not.size(), why_not.find("\nException raised from")));
      return nullptr;
    }
  }
  TensorHandle handle = nullptr;
  if (api.aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), scalar_type, cuda,
                                   device, &handle) == 0) {
    return handle;
  }
  why_not = last_error(api);
  // Torch before 2.12 says no more than that it failed.
  if (why_not.empty()) why_not = "the host has no memory of the GPU to give (out of memory)";
  return nullptr;
}

}  // namespace tatara::torch_abi
