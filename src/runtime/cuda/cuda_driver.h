// NVIDIA's driver library: what the files runtime/cuda*.cpp share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/cuda.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/str_cat.h"

namespace tatara::cuda {

// Types and numbers of NVIDIA's driver interface (documented in the CUDA Driver API manual), declared here so that its headers
// are not needed. All handles are pointers; a result of 0 is success.
using Result = int;
using Handle = void*;

#define TATARA_DRIVER_FUNCTIONS(F)                                                                                \
  F(cuInit, "cuInit", Result(unsigned))                                                                           \
  F(cuDeviceGetCount, "cuDeviceGetCount", Result(int*))                                                           \
  F(cuDeviceGet, "cuDeviceGet", Result(int*, int))                                                                \
  F(cuDeviceGetAttribute, "cuDeviceGetAttribute", Result(int*, int, int))                                         \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", Result(Handle*, int))                                   \
  F(cuCtxGetCurrent, "cuCtxGetCurrent", Result(Handle*))                                                          \
  F(cuCtxPushCurrent, "cuCtxPushCurrent_v2", Result(Handle))                                                      \
  F(cuCtxPopCurrent, "cuCtxPopCurrent_v2", Result(Handle*))                                                       \
  F(cuModuleLoadData, "cuModuleLoadData", Result(Handle*, const void*))                                           \
  F(cuModuleGetFunction, "cuModuleGetFunction", Result(Handle*, Handle, const char*))                             \
  F(cuFuncSetAttribute, "cuFuncSetAttribute", Result(Handle, int, int))                                           \
  F(cuModuleUnload, "cuModuleUnload", Result(Handle))                                                             \
  F(cuLaunchKernel, "cuLaunchKernel",                                                                             \
    Result(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**)) \
  F(cuMemHostAlloc, "cuMemHostAlloc", Result(void**, size_t, unsigned))                                           \
  F(cuMemFreeHost, "cuMemFreeHost", Result(void*))                                                                \
  F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", Result(void*, uint64_t, size_t, Handle))                           \
  F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", Result(uint64_t, const void*, size_t, Handle))                     \
  F(cuStreamSynchronize, "cuStreamSynchronize", Result(Handle))                                                   \
  F(cuGetErrorString, "cuGetErrorString", Result(Result, const char**))

template <typename Signature>
using Pointer = Signature*;

struct Device {
  int number = 0;
  Handle context = nullptr;
  DeviceInfo info;
};

struct Driver {
#define TATARA_DECLARE(name, symbol, ...) Pointer<__VA_ARGS__> name = nullptr;
  TATARA_DRIVER_FUNCTIONS(TATARA_DECLARE)
#undef TATARA_DECLARE
  Handle library = nullptr;
  std::string why_not;
  int devices = 0;
  ForkSafeMutex mutex;
  std::vector<std::optional<Device>> opened;
};

/// Found when it is first asked for; `why_not` tells what is missing.
Driver& driver();
std::string error_text(Result code);

template <typename Failure = Error>
void check(Result code, std::string_view what) {
  if (code != 0) throw Failure(str_cat(what, ": ", error_text(code)));
}

}  // namespace tatara::cuda
