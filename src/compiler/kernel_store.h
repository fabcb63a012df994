// From a loop kernel to callable code: memory, disk cache, or LLVM.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/emit_cpu.h"
#include "codegen/emit_gpu.h"
#include "loops/kernel.h"
#include "runtime/plan/executable.h"

namespace tatara {

/// How LLVM is to compile for the CPU: options opt_level, cpu and cpu_features.
struct CodeOptions {
  int opt_level = 1;
  std::string cpu = {}, cpu_features = {};
};

/// What kernels are compiled for: the CPU, or a GPU beside it.
struct KernelTarget {
  CpuTarget cpu;
  std::optional<GpuTarget> gpu = {};
  CodeOptions code = {};
};
/// The text of a kernel for its target.
std::string emit_kernel(const loops::Kernel& kernel, const KernelTarget& target, std::string_view symbol);

/// What identifies the code of a kernel. Kernels equal up to names have equal keys.
struct KernelRequest {
  std::string key;
  std::string symbol;
  std::string loop_text;
};

/// What all keys of kernels for this target share: emitter, LLVM, processor.
std::string target_key(const KernelTarget& target);
KernelRequest make_kernel_request(const loops::Kernel& kernel, const KernelTarget& target);
/// The same from the kernel's text (print_kernel) and its name.
KernelRequest request_of_text(std::string loop_text, std::string_view name, const KernelTarget& target);

enum class KernelOrigin : uint8_t { kMemory, kDisk, kCompiled };

/// Code of the kernel, from the first of: this process's table, the disk cache, LLVM (then it is stored). Thread-safe.
/// `llvm_text`, when not null, gets the IR text if it had to be made. Throws CompilationError.
KernelCode obtain_kernel(const KernelRequest& request, const loops::Kernel& kernel, const KernelTarget& target,
                         bool use_disk, KernelOrigin& origin, std::string* llvm_text);

/// The same for a kernel whose loops are not at hand: null code when neither table nor disk has it.
KernelCode find_kernel(const std::string& key, const std::string& symbol, bool on_gpu, bool use_disk,
                       KernelOrigin& origin);

/// Forgets this process's table (tatara.reset()); code in use stays alive.
void clear_kernel_store();

}  // namespace tatara
