#pragma once

#include <cstdint>
#include <optional>

namespace tatara::capture {

// Kinds of devices by their numbers in dlpack.h.
constexpr int32_t kDlpackCpu = 1;
constexpr int32_t kDlpackCuda = 2;

/// dtype, device, sizes, strides and memory of a real tensor, borrowed from it.
struct TensorRef {
  void* data = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t rank = 0;
  int32_t device_type = 0;
  int32_t device_id = 0;
  uint8_t code = 0;
  uint8_t bits = 0;
};

struct MemoryExtent {
  const char *begin, *end;
};

/// What memory its elements of so many bytes lie in; nothing: it has none. (TensorRef, or what has its fields.)
template <typename Tensor>
std::optional<MemoryExtent> extent_of(const Tensor& tensor, int64_t bytes) {
  int64_t below = 0, above = 1;  // elements
  for (int32_t d = 0; d < tensor.rank; ++d) {
    if (tensor.sizes[d] == 0) return std::nullopt;
    const int64_t reach = (tensor.sizes[d] - 1) * tensor.strides[d];
    (reach < 0 ? below : above) += reach;
  }
  if (tensor.data == nullptr) return std::nullopt;
  const auto* start = static_cast<const char*>(tensor.data);
  return MemoryExtent{start + below * bytes, start + above * bytes};
}

}  // namespace tatara::capture
