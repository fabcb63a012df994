// The option `dump`: the text of every stage of a compilation as files.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/plan.h"

namespace tatara {

/// Names of files with their texts.
using DumpFiles = std::vector<std::pair<std::string, std::string>>;

/// Writes the files to <directory>/<process>-<kind><number>. Throws InvalidArgument when they cannot be written.
void dump_texts(const std::string& directory, std::string_view kind, const DumpFiles& files);

struct StageTexts {
  std::string graph, lowered, schedule;
  /// The graph as it goes into each pass and out of the last one, as tools/tatara-opt reads it: "" and the text, then each
  /// pass with its text.
  DumpFiles passes;
};

/// The same for a compilation: {graph,lowered,schedule}.txt, pass-<n>-<name>.graph and kernel-<n>.{loops,ll}.
void dump_compilation(const std::string& directory, const StageTexts& texts, const std::vector<PlanKernel>& kernels);

}  // namespace tatara
