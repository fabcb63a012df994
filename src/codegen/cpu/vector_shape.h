// How a vector loop is run on a CPU: chosen from what its body does.
#pragma once

#include "codegen/cpu/target.h"
#include "loops/kernel.h"

namespace tatara::codegen {

struct VectorShape {
  int lanes = 1;
  bool masks = false;  // the iterations after the last whole vector run under a mask, else one by one
  bool heavy = false;  // a body too long for two copies
  bool light = false;  // a body that waits for memory
};

/// Lanes are those of a register, or of several registers where the body is light: this hides the latency of carried values
/// behind each other and reads longer runs of memory where an inner loop goes from row to row. LLVM splits the vectors into
/// registers.
VectorShape vector_shape(const loops::Kernel& kernel, const loops::For& loop, const CpuTarget& target);

}  // namespace tatara::codegen
