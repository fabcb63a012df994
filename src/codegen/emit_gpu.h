// Loop IR to LLVM IR text for NVIDIA GPUs.
#pragma once

#include <string>
#include <string_view>

#include "loops/kernel.h"

namespace tatara {

struct GpuTarget {
  int capability = 90;        // 80, 86, 90, 100, ...
  std::string cpu = "sm_90";  // LLVM's name of the processor: "sm_90a" where features of that one chip are used
  /// Whether one instruction adds several float32 to memory: from 9.0 on, and in the PTX of these features.
  bool adds_vectors() const { return capability >= 90 && (capability > 90 || features == "+ptx81"); }
  /// Whether it has the tensor cores that loops::Product is for.
  bool has_product_kernels() const { return cpu == "sm_90a"; }
  std::string features;  // LLVM feature string: a PTX version ("+ptx83"); "" for the least that the processor needs
};

inline constexpr std::string_view kGpuTriple = "nvptx64-nvidia-cuda";

/// The module text of one kernel whose `gpu` is set: a kernel `symbol` with the parameters
///   one pointer per buffer, one i64 per size, i64 iterations of the parallel space, pointer to a GpuFault;
/// of a kernel for lists: a table of these (loops/list_table.h), pointer to a GpuFault.
std::string emit_gpu(const loops::Kernel& kernel, const GpuTarget& target, std::string_view symbol);

}  // namespace tatara
