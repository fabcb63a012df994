// Loop IR to LLVM IR text for CPUs.
#pragma once

#include <string>
#include <string_view>

#include "loops/kernel.h"

namespace tatara {

/// kPtx: one thread of a GPU (codegen/emit_gpu.h), whose vectors are its accesses of 16 bytes.
enum class VectorIsa : uint8_t { kScalar, kAvx2, kAvx512, kNeon, kPtx };

struct CpuTarget {
  VectorIsa isa = VectorIsa::kAvx512;
  std::string cpu;       // LLVM -mcpu name, e.g. "sapphirerapids"
  std::string features;  // LLVM feature string
  std::string triple;
  int vector_bytes() const;
  bool has_fma = true;
};

/// The module text of one kernel: a single exported function `symbol` of type KernelFn (codegen/abi.h).
std::string emit_cpu(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol);

/// The target of this machine.
CpuTarget host_cpu_target();

}  // namespace tatara
