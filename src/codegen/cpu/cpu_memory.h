// Memory as a CPU sees it: masked loads and stores are instructions, and stores ask for their lines ahead of time.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "codegen/core/memory.h"
#include "codegen/cpu/target.h"

namespace tatara::codegen {

class CpuMemory final : public Memory {
 public:
  CpuMemory(EmitContext& context, Scalars& scalars, const CpuTarget& target)
      : Memory(context, scalars), target_(target) {}

  /// Whether the present vector loop does little but read and write.
  void set_streaming(bool streams) { streams_ = streams; }
  std::string load_flags(int /*buffer*/) const override { return ""; }

 protected:
  Reg load_parts(int buffer, Expr where, const std::string& mask) override;
  void store_scattered(int buffer, Expr where, const Reg& value, const std::string& mask) override;
  std::string load_masked(const Run& run, const std::string& mask, const std::string& flags) override;
  void after_store(int buffer, int bytes, const Run& run) override;
  int step_worth_reading(Expr where, DType dtype) const override;
  std::string vector_align(DType dtype, Expr where) const override;
  std::string atomic_ordering() const override { return " monotonic"; }

 private:
  /// Elements of a table that fits into registers (the levels of a quantised weight): a permutation instead of a gather.
  std::optional<Reg> from_table(int buffer, Expr where, const std::string& mask);

  /// The element at `where`, which is one place, in the lanes of the mask.
  Reg load_of_some(int buffer, Expr where, const std::string& mask);
  /// What load_parts gives; nothing is read where no lane counts.
  Reg load_if_any(int buffer, Expr where, const std::string& mask);
  std::string any_of(const std::string& mask);
  std::optional<int64_t> step_of_lanes(int buffer, Expr where) const;
  std::vector<std::string> lane_places(int buffer, Expr where, int64_t step);
  Reg load_lanes(int buffer, Expr where, int64_t step);
  bool is_far(int buffer, Expr where) const;

  const CpuTarget& target_;
  bool streams_ = false;
  int lanes_apart_ = 0;             // loaded or stored one by one so far
  std::string wanted_;              // whether a lane of the present load counts; empty: it does not matter
  std::unordered_set<int> loaded_;  // buffers that vectors were read from so far
};

}  // namespace tatara::codegen
