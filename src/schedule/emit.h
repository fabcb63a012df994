// Parts shared by the emitters of groups, scans and scatters.
#pragma once

#include "schedule/loop_order.h"
#include "schedule/nest_builder.h"

namespace tatara::sched {

/// The operator of a combination that has one.
ScalarOp combine_op(loops::Combine combine);
/// Whether values combine by a function of their own.
bool is_custom(const ReductionDef& def);
std::vector<ScalarId> combine(NestBuilder& nest, const LoweredNode& node, std::span<const ScalarId> a,
                              std::span<const ScalarId> b);
std::unique_ptr<loops::CombineFn> combine_fn(NestBuilder& nest, const LoweredNode& node);
/// Opens the loops over dims that are not reduced, with the tiles they need.
void open_outer(State& s, NestBuilder& nest, const NestPlan& plan);
/// Where the memory of an operand that is loaded by tiles begins, whatever views there are of it.
const Storage& memory_of(State& s, ValueId v);
/// Adds what the nest's values are loaded from, in a trial; but for values that are `given`.
void note_reads(NestBuilder& trial, FlatSet<ValueId>& reads, std::function<bool(ValueId)> given = {});
/// In kernels whose elements come in tiles: an element of what another unit has stored; nothing for what is computed in place.
std::optional<ScalarId> load_from_others(State& s, NestBuilder& nest, int unit, ValueId v,
                                         const std::vector<Expr>& indices, ScalarId mask);
/// Likewise: computes all members' values, then stores them, for one of them may go into an input that another one reads.
void store_members(State& s, NestBuilder& nest, const Group& group);
/// Adds the finished kernel and its launch to the plan. `elements`: size of the iteration space.
void finish_kernel(State& s, NestBuilder& nest, loops::Kernel kernel, const NestPlan& plan, Expr elements);

}  // namespace tatara::sched
