// A plan whose sizes are programs over the values of its size symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/executable.h"
#include "runtime/plan/loop_plan.h"
#include "runtime/plan/run_context.h"

namespace tatara {

struct Layout {
  std::vector<ExprProgram> sizes;
  std::vector<ExprProgram> strides;
  ExprProgram offset;
};

/// Of one step: what depends on sizes.
struct StepPrograms {
  // launches
  std::vector<ExprProgram> sizes;
  std::vector<ExprProgram> buffer_offsets;
  ExprProgram iterations;
  ExprProgram work;
  ExprProgram blocks;
  std::vector<ExprProgram> item_blocks;
  // host calls
  std::vector<Layout> tensors;
  std::vector<std::vector<ExprProgram>> ints;  // per argument: SymInts or a symbolic Scalar
  const HostOp* op = nullptr;
  bool users = false;                    // it is an operator of the user or a library: what its schema says is not sure
  bool keeps = false;                    // it calls code of the user's, which may keep its operands
  std::shared_ptr<const LoopPlan> loop;  // it is a loop
};

/// How a size symbol is found.
struct SymbolBinding {
  int input = -1;
  int dim = -1;
  bool stride = false;
};

/// Never changes once it is made.
struct PlanPrograms {
  /// Throws Unsupported where a symbol is no size or stride of an input, or the host lacks an operator.
  PlanPrograms(Plan the_plan, HostOps* host, std::vector<std::shared_ptr<const LoopPlan>> the_loops = {});
  PlanPrograms(const PlanPrograms&) = delete;
  PlanPrograms& operator=(const PlanPrograms&) = delete;

  Plan plan;
  std::vector<OutputBuffer> output_buffers;
  std::vector<Layout> buffer_layouts;  // per buffer; offset: kArena bytes
  std::vector<Layout> output_layouts;  // per output
  std::vector<Layout> input_layouts;   // per input
  ExprProgram arena_bytes;
  std::vector<StepPrograms> steps;
  std::vector<std::shared_ptr<const LoopPlan>> loops;  // of the steps that are loops, in their order
  std::vector<SymbolBinding> bindings;                 // per size symbol
  std::vector<std::pair<size_t, size_t>> from_inputs;  // (buffer, input)
  bool has_host_calls = false;
  int gpu = -1;  // number of the device that all kernels run on; -1: the CPU

  Device device() const { return {DeviceKind::kCuda, static_cast<int16_t>(gpu)}; }
  /// Fills in all of a context that depends on sizes.
  void resolve(RunContext& context, std::span<const int64_t> symbols) const;
  bool bind_symbols(std::span<const InputRef> inputs, std::vector<int64_t>& symbol_values) const;
  void edge_layouts(std::span<const int64_t> symbols, EdgeLayouts& out) const;
  /// From the first element to the end of the last.
  size_t buffer_bytes(size_t buffer, std::span<const int64_t> symbols) const;
  /// Output `i` is the whole buffer as the plan lays it out, no view of it.
  bool whole_output(size_t i, size_t buffer, std::span<const int64_t> symbols) const;
  /// "index 7 is out of bounds ...", with the user's line.
  std::string fault_message(size_t kernel, const KernelFault& fault) const;

 private:
  ExprProgram program(Expr e, int64_t otherwise = 0) const;
  std::vector<ExprProgram> programs(const std::vector<Expr>& list) const;
  void find_bindings();
  void prepare_step(const PlanStep& step, HostOps* host);
  void resolve_launch(const KernelLaunch& launch, const StepPrograms& step, LaunchState& state,
                      std::span<const int64_t> symbols) const;
  void resolve_host(const HostCall& call, const StepPrograms& step, HostState& state,
                    std::span<const int64_t> symbols) const;
};

inline int64_t value_of(const ExprProgram& program, std::span<const int64_t> symbols) {
  return program.evaluate(symbols);
}

inline void values_of(const std::vector<ExprProgram>& programs, std::span<const int64_t> symbols,
                      std::vector<int64_t>& out) {
  out.resize(programs.size());
  for (size_t i = 0; i < programs.size(); ++i) out[i] = programs[i].evaluate(symbols);
}

/// Bytes from the first element to the end of the last.
inline size_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return static_cast<size_t>((last + 1) * dtype_size(dtype));
}

}  // namespace tatara
