#include "codegen/cpu/cpu_memory.h"

#include <algorithm>

namespace tatara::codegen {

Reg CpuMemory::load_parts(int buffer, Expr where, const std::string& mask) {
  loaded_.insert(buffer);
  return Memory::load_parts(buffer, where, mask);
}

std::string CpuMemory::load_masked(const Run& run, const std::string& mask, const std::string& /*flags*/) {
  const std::string name = "@llvm.masked.load." + mangled(run.lanes, run.element) + ".p0";
  ir_.declare("declare " + run.type() + " " + name + "(ptr, " + run.bits() + ", " + run.type() + ")");
  return ir_.call(
      name, run.type(),
      "ptr " + run.align + " " + run.at + ", " + run.bits() + " " + mask + ", " + run.type() + " zeroinitializer");
}

int CpuMemory::step_worth_reading(Expr where, DType dtype) const {
  if (is_complex(dtype) || dtype_size(dtype) < 4 || target_.isa == VectorIsa::kNeon || ir_.lanes() < 4) return 0;
  if (scope_.stride_of(where) != Stride::kStrided) return 0;
  const Expr step = where.coefficient_of(scope_.vector_var());
  if (!step.is_const() || step.const_value() < 2 || step.const_value() > 4) return 0;
  return static_cast<int>(step.const_value());
}

std::string CpuMemory::vector_align(DType dtype, Expr /*where*/) const {
  return "align " + std::to_string(dtype_size(real_dtype(dtype)));
}

/// Asks for the lines that a run of stores reaches soon: a store waits for its line to be read from memory first, and the
/// processor looks less far ahead for stores than for loads.
void CpuMemory::after_store(int buffer, int bytes, const Run& run) {
  constexpr int64_t kLeastBytes = 1 << 20;  // a smaller buffer is in the cache as it is
  constexpr int kAhead = 4096;
  constexpr int kLine = 64;
  const Expr count = scope_.buffer(buffer).numel;
  const bool large = !count.is_const() || count.const_value() * bytes >= kLeastBytes;
  if (!streams_ || !large || loaded_.contains(buffer)) return;
  ir_.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  for (int offset = 0; offset < std::max(bytes * run.lanes, kLine); offset += kLine) {
    const std::string at = ir_.assign("getelementptr i8, ptr " + run.at + ", i64 " + std::to_string(kAhead + offset));
    ir_.line("call void @llvm.prefetch.p0(ptr " + at + ", i32 1, i32 3, i32 1)");
  }
}

}  // namespace tatara::codegen
