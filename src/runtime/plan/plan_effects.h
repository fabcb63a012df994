// What a run does besides giving results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/plan_programs.h"

namespace tatara {

/// Names of the host's operators that draw random numbers: their generator moves with each call.
const std::set<std::string>& random_operators();

/// Random numbers, failures, writes to inputs, and memory that is cleared.
class PlanEffects {
 public:
  /// Keeps a reference to `programs`.
  explicit PlanEffects(const PlanPrograms& programs);
  bool draws() const { return draws_; }
  bool may_fail() const { return fails_; }
  /// See Executable::written_inputs.
  void written_inputs(std::span<const int64_t> symbols, size_t most_bytes, WrittenInputs& out) const;
  /// Marks the kernels of this run that would clear what is zero already.
  void leave_out_clearing(RunContext& context, RunIo& io) const;

 private:
  void find_failures();

  const PlanPrograms& programs_;
  std::vector<std::pair<size_t, size_t>> clearing_;  // (step, output buffer): kernels that clear one
  bool draws_ = false, fails_ = false;
  bool fails_late_ = false;  // a step after the first write to an input may fail (on the CPU)
};

}  // namespace tatara
