// The loops of a kernel: which dims are merged, which one is the vector loop, what runs in parallel.
#pragma once

#include <vector>

#include "schedule/nest_builder.h"

namespace tatara::sched {

struct LoopSpec {
  Expr var;
  Expr extent;
  loops::LoopKind kind = loops::LoopKind::kSerial;
};

struct NestPlan {
  std::vector<LoopSpec> outer;  // over dims that are not reduced
  std::vector<LoopSpec> inner;  // over the reduced ones, inside of outer
  ExprMap substitution;         // dims -> loop variables
};

/// Each dim a serial loop: for finding out what is accessed.
NestPlan plain_nest(const Group& group);
NestPlan plan_nest(State& s, const Group& group, const std::vector<Access>& accesses,
                   const std::vector<Expr>& index_uses, bool vectorise_reduced = true);
/// Product of the parallel loops' extents.
Expr parallel_iterations(State& s, const NestPlan& plan);

}  // namespace tatara::sched
