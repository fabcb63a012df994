// What a kernel for a CPU is compiled for.
#pragma once

#include <cstdint>
#include <string>

namespace tatara {

enum class VectorIsa : uint8_t { kScalar, kAvx2, kAvx512, kNeon };

struct CpuTarget {
  VectorIsa isa = VectorIsa::kAvx512;
  std::string cpu;       // LLVM -mcpu name, e.g. "sapphirerapids"
  std::string features;  // LLVM feature string
  std::string triple;
  bool has_fma = true;
  /// Of a vector register.
  int vector_bytes() const;
};

}  // namespace tatara
