#include "codegen/emit_cpu.h"

#include "codegen/cpu/cpu_emitter.h"

namespace tatara {

std::string emit_cpu(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol) {
  loops::verify_kernel(kernel);
  return codegen::emit_cpu_module(kernel, target, symbol);
}

CpuTarget host_cpu_target() {
  CpuTarget target;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    target.isa = VectorIsa::kAvx512;
  } else if (__builtin_cpu_supports("avx2") != 0) {
    target.isa = VectorIsa::kAvx2;
  } else {
    target.isa = VectorIsa::kScalar;
  }
  target.has_fma = __builtin_cpu_supports("fma") != 0;
#elif defined(__aarch64__)
  target.isa = VectorIsa::kNeon;
#else
  target.isa = VectorIsa::kScalar;
  target.has_fma = false;
#endif
  // Empty triple, cpu and features: the provider takes this traits's.
  return target;
}

}  // namespace tatara
