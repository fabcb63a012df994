// Running totals of a row that several threads share: all of them make every pass together, and those past the end bring
// nothing and store nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"

namespace tatara::codegen {

class RowScan {
 public:
  RowScan(GpuContext& gpu, KernelEmitter& emitter, const loops::For& loop);
  void run();

 private:
  void pass(const std::string& inside, const std::string& first, std::vector<Reg>& carried);
  void step(const loops::Let& let, size_t i, std::vector<Reg>& carried);
  Reg total_in_warp(const loops::Carried& c, Reg through, const std::string& lane, int width);
  std::pair<Reg, Reg> totals_of_warps(const loops::Carried& c, const Reg& total, const Reg& nothing);

  IrWriter& ir_;
  Scope& scope_;
  Scalars& scalars_;
  Threads& threads_;
  GpuContext& gpu_;
  KernelEmitter& emitter_;
  const loops::For& loop_;
  const loops::GpuMapping& map_;
};

}  // namespace tatara::codegen
