// Loop IR to LLVM IR text for CPUs.
#pragma once

#include <string>
#include <string_view>

#include "codegen/cpu/target.h"
#include "loops/kernel.h"

namespace tatara {

/// The module text of one kernel: a single exported function `symbol` of type KernelFn (codegen/abi.h).
std::string emit_cpu(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol);

/// The target of this traits.
CpuTarget host_cpu_target();

}  // namespace tatara
