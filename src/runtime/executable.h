// A plan with its code, ready to run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codegen/abi.h"
#include "runtime/host.h"
#include "schedule/plan.h"

namespace tatara {

/// Code of one kernel and whatever keeps its memory alive.
struct KernelCode {
  KernelFn fn = nullptr;
  std::shared_ptr<void> owner;
};

/// Called once per run to get memory for the outputs that the plan writes, in order of PlanOutput.
struct RunIo {
  std::span<const TensorView> inputs;
  std::span<TensorView> outputs;  // data filled in by the caller before run() for fresh outputs
  /// Graph outputs whose memory comes from a host call's result: set by run(); the caller wraps them.
  std::vector<HostTensor> host_outputs;
};

/// Immutable, runs from several threads at once (each run takes an arena from a small pool).
class Executable {
 public:
  Executable(Plan plan, std::vector<KernelCode> code, HostOps* host);
  ~Executable();

  const Plan& plan() const;

  /// Sizes of run-time symbols from the inputs. False when an input contradicts the plan's types (a guard should have
  /// caught that).
  bool bind_symbols(std::span<const TensorView> inputs, std::vector<int64_t>& symbol_values) const;
  /// Sizes and strides of output i under the symbol values.
  void output_layout(size_t i, std::span<const int64_t> symbol_values, std::vector<int64_t>& sizes,
                     std::vector<int64_t>& strides) const;
  /// Runs all steps. Needs no GIL. Throws tatara::Error (an index fault names value, size and user line).
  void run(RunIo& io, std::span<const int64_t> symbol_values) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tatara
