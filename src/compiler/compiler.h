// The pipeline from graph to executable, as one readable list of passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/plan/executable.h"
#include "schedule/schedule.h"

namespace tatara {

struct CompileOptions {
  ScheduleOptions schedule{.num_threads = 0};  // threads: 0 for as many as kernels run on
  bool use_cache = true;
  bool keep_text = true;  // loop and LLVM text for explain()
  bool explain = false;   // LLVM text also of kernels that came from a cache; the lowered graph
};

struct StageTime {
  std::string stage;
  double seconds = 0;
};

struct CompileResult {
  std::shared_ptr<Executable> executable;
  std::string lowered_text;              // after decomposition and rewriting
  std::shared_ptr<const Graph> lowered;  // with CompileOptions::explain
  std::vector<ScheduleNote> notes;
  std::vector<StageTime> times;
  int kernels_compiled = 0;
  int cache_hits = 0;
};

/// Thread-safe. Throws tatara::Error.
CompileResult compile_graph(const Graph& graph, const CompileOptions& options);

}  // namespace tatara
