#pragma once

#include <cstdint>

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

}  // namespace tatara::capture
