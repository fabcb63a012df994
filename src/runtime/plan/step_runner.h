// Running the steps of a plan, one by one.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "runtime/plan/buffer_lifetimes.h"
#include "runtime/plan/plan_programs.h"
#include "runtime/plan/run_context.h"

namespace tatara {

/// Constants of a plan in the memory of its GPU: put there by the first run.
class GpuConstants {
 public:
  void place(const PlanPrograms& programs, HostOps& host, RunContext& context, void* stream) const;

 private:
  mutable std::once_flag once_;
  mutable HostTensor memory_;
};

/// Launches kernels and calls operators of the host, and makes and releases the memory for that. Several runs at once, each
/// with its context.
class StepRunner {
 public:
  /// Keeps a reference to `programs`. Throws Unsupported where a plan for a GPU has no allocator.
  StepRunner(const PlanPrograms& programs, std::vector<KernelCode> code, HostOps* host);

  const BufferLifetimes& lifetimes() const { return lifetimes_; }
  /// All steps. Tells `io` what is needed no more.
  void run_all(RunContext& context, RunIo& io) const;
  /// With the outputs that it needs first, and without what it needs last.
  void run(size_t step, RunContext& context) const;
  /// The step by itself.
  void execute(size_t step, RunContext& context) const;
  void release(size_t step, RunContext& context) const;
  void make_outputs(const std::vector<size_t>& outputs, RunContext& context) const;
  /// From here on nothing is made late.
  void make_all_outputs(RunContext& context) const;

  // On a GPU.

  /// Memory of this run in the order of its stream: the host's allocator gives it to nobody else before the run is over there.
  void prepare_gpu(RunContext& context, void* stream) const;
  void place_constants(RunContext& context, void* stream) const {
    constants_.place(programs_, *host_, context, stream);
  }
  /// What a kernel gets for a buffer of which the memory starts at `place`: a number of the host travels in the place of its
  /// address.
  void* operand_of(size_t buffer, void* place) const;
  /// Where the operands of a launch are.
  void set_pointers(const KernelLaunch& launch, LaunchState& state, const RunContext& context) const;
  cuda::Kernel& kernel_of(const KernelLaunch& launch) const { return *code_[static_cast<size_t>(launch.kernel)].gpu; }
  /// Throws for bounds checks that failed in earlier runs: a run does not wait for its kernels.
  void check_faults() const;
  /// Forgets what kernels have reported.
  void drop_faults() const;

 private:
  void launch(const KernelLaunch& launch, LaunchState& state, RunContext& context) const;
  void wrap_together(const HostCall::TensorListSlot& list, HostState& state, const RunContext& context) const;
  void fill_tensors(const HostCall& call, bool keeps, HostState& state, const RunContext& context) const;
  std::vector<HostTensor> call_once_watched(const HostCall& call, const StepPrograms& step, HostState& state) const;
  void call_host(const HostCall& call, const StepPrograms& step, HostState& state, RunContext& context) const;
  void await_condition(const HostState& state, RunContext& context) const;
  HostTensor lasting(const TensorOperand& operand, const RunContext& context) const;
  void check_own_memory(const HostCall& call, const HostState& state, const TensorView& result) const;
  void keep_result(const HostCall& call, bool users, size_t buffer, HostTensor result, RunContext& context) const;

  const PlanPrograms& programs_;
  std::vector<KernelCode> code_;
  HostOps* host_;
  BufferLifetimes lifetimes_;
  GpuConstants constants_;
};

}  // namespace tatara
