// The option `dump`: the text of every stage of a compilation as files.
#pragma once

#include <string>
#include <vector>

#include "schedule/plan.h"

namespace tatara {

struct StageTexts {
  std::string graph, lowered, schedule;
};

/// Writes <directory>/<process>-<number>/{graph,lowered,schedule}.txt and kernel-<n>.{loops,ll}. Throws InvalidArgument when
/// the directory cannot be written.
void dump_compilation(const std::string& directory, const StageTexts& texts, const std::vector<PlanKernel>& kernels);

}  // namespace tatara
