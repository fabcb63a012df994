// Plans as the disk cache has them, for tests of what becomes of changed ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/kernel_store.h"
#include "compiler/plan_store.h"
#include "loops/kernel.h"
#include "programs.h"

namespace tatara {

/// A program, its plan and its kernels.
struct StoredCase {
  std::string name;
  std::shared_ptr<Program> program;
  Schedule schedule;
  KernelTarget target;

  const Graph& graph() const { return program->graph; }
  std::string bytes() const { return encode_stored_plan(schedule.plan, "lowered", schedule.notes); }
  std::vector<const loops::Kernel*> kernels() const {
    std::vector<const loops::Kernel*> list;
    for (const auto& kernel : schedule.kernels) list.push_back(kernel.get());
    return list;
  }
};

inline KernelTarget plain_target() {
  KernelTarget target{};
  target.cpu.triple = "x86_64-unknown-linux-gnu";
  target.cpu.cpu = "x86-64";
  return target;
}

inline StoredCase stored_case(std::string name, std::shared_ptr<Program> program, const std::vector<ValueId>& outputs) {
  StoredCase made{std::move(name), program, program->schedule(outputs, 1), plain_target()};
  for (size_t i = 0; i < made.schedule.kernels.size(); ++i) {
    KernelRequest request = make_kernel_request(*made.schedule.kernels[i], made.target);
    PlanKernel& kernel = made.schedule.plan.kernels[i];
    kernel.cache_key = request.key;
    kernel.symbol = request.symbol;
    kernel.loop_text = request.loop_text;
  }
  return made;
}

/// One of each kind of step, buffer, output and argument that a plan for the CPU may have.
std::vector<StoredCase> stored_cases();

}  // namespace tatara
