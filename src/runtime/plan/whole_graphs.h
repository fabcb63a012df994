// All steps of a plan as one CUDA graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/copy_list.h"
#include "runtime/plan/graph_recorder.h"

namespace tatara {

/// One CUDA graph: the plan's steps under one set of sizes and addresses.
struct RecordedRun {
  std::unique_ptr<cuda::Graph> graph;
  HostTensor arena;
  std::vector<void*> fixed;        // per GraphOperands::fixed: the address it was recorded with
  std::vector<HostTensor> staged;  // per GraphOperands::fixed: memory of the graph's own in its place, or null
  std::vector<KernelNode> nodes;   // kernels whose operands come with the call
  std::vector<void*> at;           // per GraphOperands::moving: the address or the number that the nodes have
  /// Results that leave the plan, as in RunContext.
  struct Result {
    size_t buffer;
    HostTensor owned, original;
  };
  std::vector<Result> results;
  int64_t used = 0;  // the call that used it last
};

/// The graphs of one set of sizes. Kernels of our own are given new addresses before a launch. What an operator of the host
/// launches is not known, so what it uses must lie where it was recorded (GraphOperands::fixed): another graph is recorded when
/// it does not, which copies what has moved.
class WholeGraphs {
 public:
  /// Keeps references.
  WholeGraphs(GraphRecorder& recorder, const GraphOperands& operands, std::span<const int64_t> symbols);
  size_t count() const { return runs_.size(); }
  /// Of a call step by step, before the first graph: what moves in these calls is copied from the first graph on.
  void watch(const RunIo& io);
  /// Launches a graph, which it records where none fits. False: too many were recorded. `call`: which one of these sizes it is.
  bool run(int64_t call, RunContext& context, RunIo& io, void* stream);

 private:
  RecordedRun* find(const RunIo& io);
  void set_apart(const std::vector<uint8_t>& moved);
  RecordedRun* record(RunContext& context, const RunIo& io);
  void record_steps(RecordedRun& run, RunContext& context);
  void set_operands(RecordedRun& run, RunContext& context) const;
  void launch(RecordedRun& run, RunContext& context, RunIo& io, void* stream) const;
  void place_results(const RecordedRun& run, RunContext& context) const;
  void copy_results(const RecordedRun& run, RunContext& context, cuda::CopyList& copies) const;

  GraphRecorder& recorder_;
  const GraphOperands& operands_;
  int64_t recordings_ = 0;
  std::vector<size_t> bytes_;   // per GraphOperands::fixed
  std::vector<void*> seen_;     // where it was in the latest call that was watched
  std::vector<uint8_t> apart_;  // it moves: copied to or from memory of the graph's own
  std::vector<std::unique_ptr<RecordedRun>> runs_;
};

}  // namespace tatara
