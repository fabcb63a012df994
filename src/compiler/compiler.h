// The pipeline from graph to executable, as one readable list of passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/kernel_store.h"
#include "ir/graph.h"
#include "runtime/plan/executable.h"
#include "schedule/schedule.h"
#include "support/pass_options.h"

namespace tatara {

/// All that decides how a graph is compiled and run, resolved once: what is compiled later for the same function (other
/// backward plans) gets a copy.
struct CompileOptions {
  PassOptions passes = {};
  ScheduleOptions schedule{.num_threads = 0};  // threads: 0 for as many as kernels run on; `passes` are those above
  CodeOptions code = {};
  int64_t vector_width = 0;  // bits; 0: the widest
  bool use_cache = true;
  bool keep_text = true;  // loop and LLVM text for explain()
  bool explain = false;   // LLVM text also of kernels that came from a cache; the lowered graph
  std::string dump = {};  // a directory for the texts of all stages; empty: none
  int64_t cuda_graphs = 8;
  HostOps* host = nullptr;  // whose operators the plan calls; null: torch's
  // Of runners.
  bool fallback = true;
  int64_t keep_outputs_mb = 1024;

  /// The options of the process, `own` before them.
  static CompileOptions resolve(const OptionOverrides& own = {});
};

/// The CPU as a target, with vectors of at most so many bits; 0: the widest.
CpuTarget chosen_target(int64_t bits);

struct StageTime {
  std::string stage;
  double seconds = 0;
};

struct CompileResult {
  std::shared_ptr<Executable> executable;
  std::string loop_texts;                // of the bodies of loops
  std::string lowered_text;              // after decomposition and rewriting
  std::shared_ptr<const Graph> lowered;  // with CompileOptions::explain
  std::vector<ScheduleNote> notes;
  std::vector<StageTime> times;
  int kernels_compiled = 0;
  int cache_hits = 0;
};

/// What passes over the graph are told of the processor that it is for.
PassOptions passes_of(const Graph& graph, const CompileOptions& options);

/// Thread-safe. Throws tatara::Error.
CompileResult compile_graph(const Graph& graph, const CompileOptions& options);

}  // namespace tatara
