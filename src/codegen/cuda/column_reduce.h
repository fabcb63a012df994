// Values carried by serial loops that several threads of a block share: all threads of a column get the whole.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/cuda/gpu_context.h"

namespace tatara::codegen {

class ColumnReduction {
 public:
  /// What two parts make together, in all lanes.
  using Merge = std::function<std::vector<Reg>(const std::vector<Reg>& left, const std::vector<Reg>& right)>;

  ColumnReduction(GpuContext& gpu, const loops::For& loop, Merge merge);
  void run(std::vector<Reg>& carried);

 private:
  void put(const std::vector<Reg>& values);
  std::vector<Reg> get(const std::string& thread);

  IrWriter& ir_;
  GpuContext& gpu_;
  const loops::For& loop_;
  Merge merge_;
  int threads_;
};

}  // namespace tatara::codegen
