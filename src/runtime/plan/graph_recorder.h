// Recording steps of a plan as CUDA graphs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cuda/cuda.h"
#include "runtime/cuda/cuda_graph.h"
#include "runtime/cuda/recording_place.h"
#include "runtime/plan/step_runner.h"

namespace tatara {

constexpr size_t kRunsKept = 4;  // graphs for different addresses under the same sizes
constexpr size_t kFewSteps = 4;  // below, launches cost no more than a graph's
constexpr int64_t kPlainCalls =
    2;  // with the same sizes, before one is recorded: libraries choose their kernels in these

/// A kernel of ours in a recorded graph, and the operands that it has there.
struct KernelNode {
  void* node;
  size_t step;
  std::vector<void*> pointers;
};

/// What a plan's buffers are to a graph of all its steps.
struct GraphOperands {
  GraphOperands() = default;
  explicit GraphOperands(const Plan& plan);
  struct Fixed {
    BufferId buffer;
    bool output;
    size_t index;    // of the input, or of the output buffer
    bool copies_do;  // a copy may stand in its place
    void* address(const RunIo& io) const { return output ? io.output_buffers[index] : io.inputs[index]; }
  };
  std::vector<Fixed> fixed;      // operators of the host use it: must lie where it was recorded
  std::vector<uint8_t> varying;  // per buffer: comes with the call, and only our kernels use it
  std::vector<size_t> moving;    // the buffers of `varying`
  std::vector<uint8_t> patched;  // per step: a launch with such an operand
};

/// Whether another graph may be recorded where `made` were. Calls pay for it.
bool may_record(int64_t made, int64_t calls);

/// What all graphs of an executable share: the recording stream, the pool and the workspaces of the host's libraries. So only
/// one of them is on its way at a time.
class GraphRecorder {
 public:
  GraphRecorder(const PlanPrograms& programs, const StepRunner& steps, HostOps& host)
      : programs_(programs), steps_(steps), host_(host) {}
  ~GraphRecorder();
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  const PlanPrograms& programs() const { return programs_; }
  const StepRunner& steps() const { return steps_; }
  HostOps& host() const { return host_; }

  /// Until the latest launch is over: for the memory of graphs that go.
  void wait() const;
  /// A graph that was launched on another stream still runs.
  bool busy_elsewhere(void* stream) const;
  /// What was launched on the stream until now is the latest.
  void mark(void* stream);

  /// Makes room for another graph among those for different addresses.
  template <typename Graph>
  void keep_latest(std::vector<std::unique_ptr<Graph>>& recorded) const {
    while (recorded.size() >= kRunsKept) {
      wait();
      recorded.erase(std::min_element(recorded.begin(), recorded.end(),
                                      [](const auto& a, const auto& b) { return a->used < b->used; }));
    }
  }
  /// Everything to record with, while nothing launched before uses it.
  void prepare();
  /// Records what `launch_steps(recording)` launches on the context's stream, which is then the recording one. Nodes that it
  /// adds to `nodes` are those of the graph afterwards.
  template <typename Steps>
  std::unique_ptr<cuda::Graph> record(RunContext& context, std::vector<KernelNode>& nodes, const Steps& launch_steps) {
    const PoolScope scope(*pool_);
    const std::shared_ptr<void> guard = host_.on_stream(place_->stream, programs_.gpu);
    cuda::Recording recording(place_->stream);
    context.stream = place_->stream;
    launch_steps(recording);
    std::unique_ptr<cuda::Graph> graph = recording.finish();
    for (KernelNode& node : nodes) node.node = graph->launched_node(node.node);
    return graph;
  }
  /// Gives kernels the present addresses of the buffers marked in `varying`.
  void move_kernels(cuda::Graph& graph, std::vector<KernelNode>& nodes, const std::vector<uint8_t>& varying,
                    RunContext& context) const;

 private:
  const PlanPrograms& programs_;
  const StepRunner& steps_;
  HostOps& host_;
  std::unique_ptr<RecordingPlace> place_;
  std::unique_ptr<MemoryPool> pool_;   // of what the host's operators allocate
  std::unique_ptr<cuda::Event> last_;  // the end of the latest launch
  void* last_stream_ = nullptr;
};

}  // namespace tatara
