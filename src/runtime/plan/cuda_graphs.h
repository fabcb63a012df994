// A plan on a GPU as CUDA graphs: one launch instead of one for each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/graph_recorder.h"
#include "runtime/plan/partial_graphs.h"
#include "runtime/plan/whole_graphs.h"

namespace tatara {

/// The graphs under one set of sizes.
struct GraphSizes {
  GraphSizes(GraphRecorder& recorder, const GraphOperands& operands, std::span<const int64_t> values)
      : symbols(values.begin(), values.end()), whole(recorder, operands, values), parts(recorder) {}
  size_t graphs() const { return whole.count() + parts.count(); }

  std::vector<int64_t> symbols;
  int64_t calls = 0;
  std::string reason;  // why launches go one by one; empty: they need not
  WholeGraphs whole;
  PartialGraphs parts;  // of lean runs
};

/// The CUDA graphs of an executable: whether a call is one, and for which sizes. All of them share what they are recorded with,
/// so only one is on its way at a time: a call that finds another stream's still running launches its steps one by one.
class CudaGraphs {
 public:
  /// Keeps references. `limit`: for how many sets of sizes.
  CudaGraphs(const PlanPrograms& programs, const StepRunner& steps, HostOps& host, int64_t limit);
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  /// Whether the run went as a CUDA graph.
  bool run(RunContext& context, RunIo& io, void* stream);
  /// How the steps are launched, and why.
  std::string describe();

 private:
  std::string objection(const Plan& plan) const;
  GraphSizes* sizes_for(std::span<const int64_t> symbols);
  /// How many sets of sizes have a graph.
  int64_t recorded_sizes() const;

  const StepRunner& steps_;
  std::mutex mutex_;  // tried, never waited for: its holder may want the GIL, and a forked child has no GPU
  int64_t limit_;
  std::string reason_;     // why no graph is recorded, whatever the sizes; empty: they are
  bool in_parts_ = false;  // some steps run between graphs
  GraphOperands operands_;
  GraphRecorder recorder_;
  std::vector<std::unique_ptr<GraphSizes>> sizes_;
};

}  // namespace tatara
