// The bodies of loops that are steps of a plan.
#pragma once

#include <memory>
#include <vector>

#include "compiler/compiler.h"
#include "runtime/plan/loop_plan.h"

namespace tatara {

/// Compiles the body of each loop among the plan's steps, for the layouts that its operands have there. What is compiled counts in
/// `result`. Throws Unsupported where a step is no loop that can be run.
std::vector<std::shared_ptr<const LoopPlan>> compile_loops(const Plan& plan, const CompileOptions& options,
                                                           CompileResult& result);

}  // namespace tatara
