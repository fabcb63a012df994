#include "codegen/emit_gpu.h"

#include "codegen/cuda/gpu_emitter.h"
#include "support/error.h"

namespace tatara {

std::string emit_gpu(const loops::Kernel& kernel, const GpuTarget& target, std::string_view symbol) {
  loops::verify_kernel(kernel);
  if (kernel.gpu.threads <= 0) throw InternalError("a kernel for CPUs: " + kernel.name);
  return codegen::emit_gpu_module(kernel, target.adds_vectors(), symbol);
}

}  // namespace tatara
