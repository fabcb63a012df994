// Kernels for CPUs: parallel loops are one loop over the part of their space that the caller asks for, vector loops run on the
// lanes of registers.
#pragma once

#include <string>
#include <string_view>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cpu/cpu_memory.h"
#include "codegen/cpu/target.h"
#include "codegen/cpu/vector_shape.h"

namespace tatara::codegen {

/// The module text; see emit_cpu.
std::string emit_cpu_module(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol);

class CpuEmitter final : public KernelEmitter {
 public:
  CpuEmitter(EmitContext& context, Scalars& scalars, CpuMemory& memory, const CpuTarget& target)
      : KernelEmitter(context, scalars, memory), cpu_memory_(memory), target_(target) {}
  std::string run(std::string_view symbol);

 protected:
  void all_iterations(const std::function<void(const std::string&)>& body) override;
  std::pair<std::string, std::string> divide_position(const std::string& iteration, const std::string& extent) override;
  void vector_loop(const loops::For& loop) override;
  void transpose(const loops::Transpose& tile) override;
  void sort(const loops::Sort& sort) override;
  void product(const loops::Product& product) override;
  void attention(const loops::Attention& attention) override;
  void weighed_product(const loops::WeighedProduct& product) override;
  void leave_after_fault(const std::string& next) override;
  std::string safe_index(const std::string& bad, const std::string& index, bool vec) override;

 private:
  /// A vector loop while it is written.
  struct VectorLoop {
    const loops::For& loop;
    VectorShape shape;
    std::string extent;
    std::string whole = {};  // iterations in whole vectors
    int site = 0;            // of the first IndexValue of its body
    bool known() const { return loop.extent.is_const(); }
    int64_t count() const { return known() ? loop.extent.const_value() : 0; }
    bool even() const { return known() && count() % shape.lanes == 0; }
    /// A custom reduction starts from its neutral element in every lane, a scan from the total so far; simple reductions
    /// start from theirs, and the given start is combined at the end.
    bool starts_from_given() const { return loop.combine_fn != nullptr || loop.scan; }
  };
  void arguments();
  std::vector<Reg> lanes_at_start(const VectorLoop& v, const std::vector<Reg>& given);
  void passes(const VectorLoop& v, std::vector<Reg>& carried);
  void pass(const VectorLoop& v, const std::string& base, const std::string& mask, std::vector<Reg>& carried);
  void scan_pass(const VectorLoop& v, const std::string& base, const std::string& mask, std::vector<Reg>& carried);
  Reg scan_step(const loops::Carried& c, const loops::Let& let, const std::string& mask, const Reg& before);
  void masked_rest(const VectorLoop& v, std::vector<Reg>& carried);
  void rest_one_by_one(const VectorLoop& v);
  std::string mask_below(const std::string& left);

  CpuMemory& cpu_memory_;
  const CpuTarget& target_;
  bool reduces_ = false;  // a vector loop so far carried values
};

}  // namespace tatara::codegen
