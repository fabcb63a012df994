// Whether a plan that was read from the disk cache can be run.
#pragma once

#include <cstdint>
#include <span>

#include "ir/graph.h"
#include "loops/kernel.h"
#include "schedule/plan.h"

namespace tatara {

/// Throws CompilationError with the reason where a plan with constant sizes for this graph, made of these kernels (one for each of
/// the plan's), names what there is not, reaches beyond the memory of a buffer, uses a result before it is there, writes to
/// what it must not, or contradicts itself. Whether it computes the graph is not looked at.
void verify_plan(const Plan& plan, const Graph& graph, std::span<const loops::Kernel* const> kernels);

/// The first step that writes to an input; -1 where none may.
int32_t first_write_of(const Plan& plan, std::span<const loops::Kernel* const> kernels);

}  // namespace tatara
