// Stretches of a plan's steps as CUDA graphs that keep no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/plan/graph_recorder.h"

namespace tatara {

/// Whether the call is part of no graph: it waits for a condition, or draws random numbers, for which the host's generator moves on.
bool runs_between_graphs(const HostCall& call);

/// A stretch of steps that is a CUDA graph of its own. All that it touches is the call's.
struct PartialGraph {
  size_t begin = 0, end = 0;
  std::string reason;           // why its steps are launched one by one; empty: they need not
  std::vector<size_t> outputs;  // that nothing needs before it
  struct Leaving {
    size_t buffer;
    TensorView like;
  };
  std::vector<Leaving> leaving;  // results of its host calls that others need: copied out of the graph's memory
  std::vector<uint8_t> outer;    // per buffer: no result that nothing else needs
  struct Use {
    size_t buffer;
    bool of_host;  // must lie where it was recorded
  };
  std::vector<Use> uses;  // of those buffers
  struct Recorded {
    std::unique_ptr<cuda::Graph> graph;
    std::vector<void*> at;  // per `uses`: the address or the number that the nodes have
    std::vector<KernelNode> nodes;
    int64_t used = 0;
  };
  std::vector<std::unique_ptr<Recorded>> recorded;
  int64_t recordings = 0;
};

/// The steps under one set of sizes as CUDA graphs of stretches of them. Memory is the call's own as in a run step by step:
/// scratch from the host's allocator, outputs made right before the stretch that first writes to them, inputs let go of after
/// the stretch that reads them last. So between calls graphs hold nothing of it, and the host has it for whatever else runs. A
/// program that does the same again gets the same addresses from the allocator, and the graphs recorded for these serve; at
/// others, another graph is recorded, or the stretch goes step by step.
class PartialGraphs {
 public:
  explicit PartialGraphs(GraphRecorder& recorder) : recorder_(recorder) {}
  size_t count() const;
  size_t stretches() const { return parts_.size(); }
  /// `call`: which one of these sizes it is.
  void run(int64_t call, RunContext& context, RunIo& io, void* stream);

 private:
  void run_and_watch(RunContext& context, RunIo& io);
  void cut(const RunContext& context, bool late);
  void read(PartialGraph& part, const RunContext& context) const;
  void find_outer(PartialGraph& part, const std::vector<size_t>& results, const RunContext& context) const;
  bool launch(PartialGraph& part, int64_t call, RunContext& context, RunIo& io, void* stream);
  void set_apart(const PartialGraph& part, const std::vector<void*>& now);
  void record(PartialGraph& part, RunContext& context);
  void record_step(size_t step, const PartialGraph& part, PartialGraph::Recorded& made, cuda::Recording& recording,
                   RunContext& context) const;

  GraphRecorder& recorder_;
  std::vector<uint8_t> let_go_;  // per input: its memory goes when the plan is done with it
  // Per step: no part of a graph, for the host lays its result out otherwise than the plan, or it uses what lies elsewhere in
  // each call.
  std::vector<uint8_t> alone_;
  bool cut_again_ = false;
  int cuts_ = 0;
  std::vector<PartialGraph> parts_;
};

}  // namespace tatara
