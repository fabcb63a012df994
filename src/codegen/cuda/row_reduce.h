// Values carried by a row that several threads share: each thread has its own part, and all of them get the whole.
#pragma once

#include <string>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"

namespace tatara::codegen {

/// Which carried values of a loop are the same in all lanes of a vector, since they come from nothing that differs (such as
/// the number of elements so far).
std::vector<bool> same_in_lanes(const loops::For& loop, const Scope& scope);

class RowReduction {
 public:
  RowReduction(GpuContext& gpu, KernelEmitter& emitter, const loops::For& loop)
      : ir_(gpu.context.ir), gpu_(gpu), emitter_(emitter), loop_(loop) {}
  void run(std::vector<Reg>& carried);

 private:
  void merge(std::vector<Reg>& a, const std::vector<Reg>& b, const std::string& swapped);
  void combine_warp(std::vector<Reg>& carried, int threads, const std::string& lane);

  IrWriter& ir_;
  GpuContext& gpu_;
  KernelEmitter& emitter_;
  const loops::For& loop_;
};

}  // namespace tatara::codegen
