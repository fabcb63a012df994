// What a kernel for a GPU is written with, beside what all kernels are: its scalars, memory and threads.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/core/memory.h"
#include "codegen/core/scalar_ranges.h"
#include "codegen/core/scalars.h"
#include "codegen/cuda/threads.h"

namespace tatara::codegen {

/// The vector loop that is being written.
struct GpuLoopState {
  bool inside = false;
  std::string guard;             // whether this thread's part of a scan lies within the row (i1); "" for yes
  std::vector<bool> same_lanes;  // carried values that are the same in all lanes: one register; empty: none
};

/// float32 as eager computes it on a GPU.
class GpuScalars final : public Scalars {
 public:
  GpuScalars(EmitContext& context, const GpuLoopState& loop) : Scalars(context), loop_(loop) {}

 protected:
  Reg divide(const Operation& o) override;
  Reg extremum(const Operation& o) override;
  Reg inverse_root(const Operation& o) override;

 private:
  const GpuLoopState& loop_;
};

/// Vectors are accesses of up to 16 bytes. What the kernel only reads comes through the read-only cache.
class GpuMemory final : public Memory {
 public:
  using Memory::Memory;

  Reg passed_value(int buffer) override;
  std::string load_flags(int buffer) const override;
  /// Notes the whole vectors that a pass of the loop reads in any case: other loads of the pass that overlap them take their
  /// elements from there.
  void note_aligned_loads(const loops::For& loop);
  void forget_aligned_loads();

 protected:
  Reg load_parts(int buffer, Expr where, const std::string& mask) override;
  std::string load_masked(const Run& run, const std::string& mask, const std::string& flags) override;
  int step_worth_reading(Expr /*where*/, DType /*dtype*/) const override { return 0; }
  std::string vector_align(DType dtype, Expr where) const override;
  std::string atomic_ordering() const override { return " syncscope(\"device\") monotonic"; }

 private:
  using Place = std::pair<int, const ExprNode*>;  // buffer and index

  std::string* aligned_vector(int buffer, Expr first);
  std::optional<Reg> from_aligned_vectors(int buffer, Expr where);
  std::string single_element(int buffer, Expr where);

  std::map<Place, std::string> vectors_;   // noted ones, by their first element; "" until it is loaded
  std::map<Place, std::string> elements_;  // loaded beside them
};

struct GpuContext {
  explicit GpuContext(EmitContext& e) : context(e), scalars(e, loop), memory(e, scalars), threads(e) {
    e.ranges = scalar_ranges(e.kernel);
  }
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  void enter_loop(const loops::For& of, int lanes);
  void leave_loop();

  EmitContext& context;
  GpuLoopState loop;
  GpuScalars scalars;
  GpuMemory memory;
  Threads threads;
};

}  // namespace tatara::codegen
