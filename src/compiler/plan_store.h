// Finished plans in the disk cache: a second process needs neither rewriting nor scheduling.
#pragma once

#include <optional>
#include <string>
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

/// The plan kept under `key`, when there is one that fits the graph. Never throws: damage is a miss.
std::optional<StoredPlan> find_plan(const std::string& key, const Graph& graph);
void keep_plan(const std::string& key, const Plan& plan, const std::string& lowered_text,
               const std::vector<ScheduleNote>& notes);

}  // namespace tatara
