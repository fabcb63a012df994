// Finished plans in the disk cache: a second process needs neither rewriting nor scheduling.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernel_store.h"
#include "ir/graph.h"
#include "schedule/schedule.h"

namespace tatara {

/// What the cache keeps of a compilation. Kernels are kept on their own, by PlanKernel::cache_key.
struct StoredPlan {
  Plan plan;
  std::string lowered_text;
  std::vector<ScheduleNote> notes;
};

/// The key of a compilation: graph with source lines, target, options, this build of Tatara. "" when its plan cannot be
/// kept: it depends on symbols, whose ranges and guards the text of a graph does not tell.
std::string plan_key(const Graph& graph, const ScheduleOptions& options, const KernelTarget& target);

/// Whether the plan of the graph is one that may be kept.
bool has_constant_sizes(const Graph& graph, const Plan& plan);
/// The plan kept under `key`, when there is one and it passes verify_stored_plan. Never throws: damage is a miss, and the entry goes.
std::optional<StoredPlan> find_plan(const std::string& key, const Graph& graph, const KernelTarget& target);
/// Throws an Error where the plan cannot be run for this graph (schedule/plan_check.h), or names code that was not made of its loops.
void verify_stored_plan(const Plan& plan, const Graph& graph, const KernelTarget& target);
/// Inverse of what keep_plan() writes. Throws CompilationError.
StoredPlan decode_stored_plan(std::string_view bytes);
std::string encode_stored_plan(const Plan& plan, const std::string& lowered_text,
                               const std::vector<ScheduleNote>& notes);
void keep_plan(const std::string& key, const Plan& plan, const std::string& lowered_text,
               const std::vector<ScheduleNote>& notes);

}  // namespace tatara
