// What an Executable is made of (runtime/executable*.cpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/arena.h"
#include "runtime/base/history.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/cuda_graph.h"
#include "runtime/cuda/recording_place.h"
#include "runtime/plan/executable.h"
#include "support/error.h"
#include "support/fork.h"

namespace tatara {

struct Layout {
  std::vector<ExprProgram> sizes;
  std::vector<ExprProgram> strides;
  ExprProgram offset;
};

/// A tensor operand of a host call: its layout under the present sizes, and the host's tensor over it while the memory
/// stays where it was.
struct TensorOperand {
  TensorView view;     // data is refreshed each run
  int64_t offset = 0;  // bytes
  BufferId buffer = -1;
  HostTensor tensor;
  void* tensor_data = nullptr;
};

struct LaunchState {
  std::vector<void*> pointers;
  std::vector<int64_t> offsets;  // bytes
  std::vector<int64_t> sizes;
  int64_t iterations = 1;
  int64_t grain = 1;
  int64_t blocks = 0;  // on a GPU
  std::vector<int64_t> item_blocks;

  cuda::LaunchArguments arguments(const KernelLaunch& launch) const {
    return {blocks, launch.gpu_threads, pointers, sizes, iterations, launch.list_items, item_blocks};
  }
};

struct HostState {
  std::vector<HostValue> values;
  std::vector<TensorOperand> tensors;
};

/// Everything of a run that depends on sizes only, plus scratch memory. Reused while sizes stay the same.
struct RunContext {
  bool resolved = false;
  std::vector<int64_t> symbols;
  Arena arena;
  int64_t arena_bytes = 0;
  std::vector<std::pair<size_t, int64_t>> arena_offsets;  // of buffers in the arena, for each run may have another one
  HostTensor gpu_arena;
  void* stream = nullptr;
  RunIo* late_outputs = nullptr;      // of the run, where output buffers are made when they are needed
  std::vector<void*> data;            // per buffer
  std::vector<HostTensor> owned;      // per buffer: results of host calls
  std::vector<HostTensor> original;   // per buffer: as the host laid such a result out, when the plan does otherwise
  std::vector<uint8_t> needless;      // per step: the memory that the kernel would clear is zero; empty: none is
  std::vector<LaunchState> launches;  // per step
  std::vector<HostState> hosts;       // per step
  size_t begun = 0;                   // how many steps the run has begun
  bool is_needless(size_t step) const { return !needless.empty() && needless[step] != 0; }
};

/// A kernel of ours in a recorded graph, and the operands that it has there.
struct KernelNode {
  void* node;
  size_t step;
  std::vector<void*> pointers;
};

/// One CUDA graph: the plan's steps under one set of sizes and addresses.
struct RecordedRun {
  ~RecordedRun() = default;
  std::unique_ptr<cuda::Graph> graph;
  HostTensor arena;
  std::vector<void*> fixed;        // per GraphRuns::fixed: the address it was recorded with
  std::vector<HostTensor> staged;  // per GraphRuns::fixed: memory of the graph's own in its place, or null
  std::vector<KernelNode> nodes;   // kernels whose operands come with the call
  std::vector<void*> at;           // per GraphRuns::moving: the address or the number that the nodes have
  /// Results that leave the plan, as in RunContext.
  struct Result {
    size_t buffer;
    HostTensor owned, original;
  };
  std::vector<Result> results;
  int64_t used = 0;  // the call that used it last
};

/// A stretch of steps that is a CUDA graph of its own (executable_sections.cpp). All that it touches is the call's.
struct Section {
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
  std::vector<std::unique_ptr<Recorded>> graphs;
  int64_t recordings = 0;
};

/// The graphs under one set of sizes.
struct GraphSizes {
  std::vector<int64_t> symbols;
  int64_t calls = 0, recordings = 0;
  std::vector<size_t> bytes;   // per GraphRuns::fixed
  std::vector<int> moves;      // how often it was elsewhere
  std::vector<uint8_t> apart;  // it moves: copied to or from memory of the graph's own
  std::vector<std::unique_ptr<RecordedRun>> runs;
  std::string reason;  // why launches go one by one; empty: they need not
  // Of lean runs: inputs whose memory goes when the plan is done with them; steps that are no part of a graph, for the host lays
  // their result out otherwise than the plan, or they use what lies elsewhere in each call.
  std::vector<uint8_t> let_go, alone;
  bool cut_again = false;
  int cuts = 0;
  std::vector<Section> sections;

  size_t graphs() const;
  /// Whether another graph may be recorded where so many were. Calls pay for it.
  bool may_record(int64_t made) const;
};

constexpr size_t kRunsKept = 4;  // graphs for different addresses under the same sizes
constexpr size_t kFewSteps = 4;  // below, launches cost no more than a graph's
constexpr int64_t kPlainCalls =
    2;  // with the same sizes, before one is recorded: libraries choose their kernels in these

/// The CUDA graphs of an executable (executable_graphs.cpp).
///
/// Kernels of our own are given new addresses before a launch. What an operator of the host launches is not known, so what it
/// uses must lie where it was recorded (`fixed`): another graph is recorded when it does not, and what keeps moving is copied.
/// All graphs of an executable share the recording stream, the pool and the workspaces of the host's libraries, so only one
/// of them is on its way at a time: a call that finds another stream's still running launches its steps one by one.
struct GraphRuns {
  ~GraphRuns();
  std::mutex mutex;  // tried, never waited for: its holder may want the GIL, and a forked child has no GPU
  int device = 0;
  int64_t limit = 0;
  std::string reason;  // why no graph is recorded, whatever the sizes; empty: they are
  struct Fixed {
    BufferId buffer;
    bool output;
    size_t index;    // of the input, or of the output buffer
    bool copies_do;  // a copy may stand in its place
  };
  std::vector<Fixed> fixed;
  std::vector<uint8_t> varying;  // per buffer: comes with the call, and only our kernels use it
  std::vector<size_t> moving;    // the buffers of `varying`
  std::vector<uint8_t> patched;  // per step: a launch with such an operand
  std::unique_ptr<RecordingPlace> place;
  std::unique_ptr<MemoryPool> pool;   // of what the host's operators allocate
  std::unique_ptr<cuda::Event> last;  // the end of the latest launch
  void* last_stream = nullptr;
  std::vector<std::unique_ptr<GraphSizes>> sizes;
  /// How many of them have a graph.
  int64_t recorded_sizes() const;
  /// Makes room for another graph among those for different addresses.
  template <typename Graph>
  void keep_latest(std::vector<std::unique_ptr<Graph>>& recorded) const {
    while (recorded.size() >= kRunsKept) {
      last->wait();  // for its memory
      recorded.erase(std::min_element(recorded.begin(), recorded.end(),
                                      [](const auto& a, const auto& b) { return a->used < b->used; }));
    }
  }
};

struct Executable::Impl {
  Plan plan;
  std::vector<KernelCode> code;
  HostOps* host = nullptr;
  int64_t cuda_graphs = 0;  // for how many sets of sizes
  int64_t number = 0;

  std::vector<OutputBuffer> output_buffers;
  std::vector<Layout> buffer_layouts;  // per buffer; offset: kArena bytes
  std::vector<Layout> output_layouts;  // per output
  ExprProgram arena_bytes;
  struct StepPrograms {
    // launches
    std::vector<ExprProgram> sizes;
    std::vector<ExprProgram> buffer_offsets;
    ExprProgram iterations;
    ExprProgram work;
    ExprProgram blocks;
    std::vector<ExprProgram> item_blocks;
    // host calls
    std::vector<Layout> tensors;
    std::vector<std::vector<ExprProgram>> ints;  // per argument: SymInts or a symbolic Scalar
    const HostOp* op = nullptr;
  };
  std::vector<StepPrograms> steps;
  // How each size symbol is found: (input, dimension, is a stride).
  struct Binding {
    int input = -1;
    int dim = -1;
    bool stride = false;
  };
  std::vector<Binding> bindings;
  std::vector<Layout> input_layouts;

  std::vector<std::pair<size_t, size_t>> from_inputs;  // (buffer, input)
  std::vector<std::pair<size_t, size_t>> clearing;     // (step, output buffer): kernels that clear one
  bool has_host_calls = false;
  bool draws_numbers = false, fails = false;
  bool fails_late = false;                      // a step after the first write to an input may fail (on the CPU)
  int gpu = -1;                                 // number of the device that all kernels run on; -1: the CPU
  std::vector<std::vector<size_t>> last_reads;  // per step: inputs that nothing needs after it
  std::vector<std::vector<size_t>> first_uses;  // per step: output buffers that nothing needs before it
  std::vector<std::vector<BufferId>> releases;  // per step: results of the host's operators that nothing needs after it
  std::unique_ptr<GraphRuns> graphs;            // on a GPU
  mutable std::once_flag constants_once;
  mutable HostTensor gpu_constants;

  // Contexts that no run is using: one without a lock, the rest behind it.
  mutable std::atomic<RunContext*> spare{nullptr};
  mutable ForkSafeMutex pool_mutex;
  mutable std::vector<std::unique_ptr<RunContext>> pool;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { delete spare.load(); }

  ExprProgram program(Expr e, int64_t otherwise = 0) const {
    return ExprProgram(e.valid() ? e : plan.ctx->constant(otherwise), plan.size_symbols);
  }
  std::vector<ExprProgram> programs(const std::vector<Expr>& list) const {
    std::vector<ExprProgram> result;
    result.reserve(list.size());
    for (const Expr e : list) result.push_back(program(e));
    return result;
  }

  void prepare();
  void prepare_step(const PlanStep& step);
  void find_device();
  void prepare_gpu(RunContext& context, void* stream) const;
  void place_arena(RunContext& context, std::byte* base) const;
  void place_constants(RunContext& context, void* stream) const;
  void launch_gpu(const KernelLaunch& launch, LaunchState& state, RunContext& context, void* stream) const;
  void check_faults() const;
  void find_releases();
  void make_outputs(const std::vector<size_t>& outputs, RunContext& context) const;
  void make_all_outputs(RunContext& context) const;
  void release(size_t step, RunContext& context) const;
  // CUDA graphs.
  void find_graphs();
  std::string graph_objection() const;
  /// Whether the run went as a CUDA graph.
  bool run_graph(RunContext& context, RunIo& io, void* stream) const;
  GraphSizes* graph_sizes(std::span<const int64_t> symbols) const;
  void* fixed_address(const GraphRuns::Fixed& fixed, const RunIo& io) const;
  RecordedRun* find_recorded(GraphSizes& sizes, const RunIo& io) const;
  RecordedRun* record(GraphSizes& sizes, RunContext& context, const RunIo& io) const;
  void prepare_recording() const;
  void record_steps(RecordedRun& run, RunContext& context) const;
  void move_kernels(cuda::Graph& graph, std::vector<KernelNode>& nodes, const std::vector<uint8_t>& varying,
                    RunContext& context) const;
  void run_in_sections(GraphSizes& sizes, RunContext& context, RunIo& io, void* stream) const;
  void watch_steps(GraphSizes& sizes, RunContext& context, RunIo& io) const;
  std::vector<Section> cut_in_sections(const GraphSizes& sizes, const RunContext& context, bool late) const;
  void read_section(Section& section, const RunContext& context) const;
  bool launch_section(Section& section, GraphSizes& sizes, RunContext& context, RunIo& io, void* stream) const;
  void set_apart(const Section& section, const std::vector<void*>& now, GraphSizes& sizes) const;
  void record_section(Section& section, RunContext& context) const;
  void record_section_steps(const Section& section, Section::Recorded& made, RunContext& context) const;
  void launch_recorded(GraphSizes& sizes, RecordedRun& run, RunContext& context, RunIo& io, void* stream) const;
  void set_operands(RecordedRun& run, RunContext& context) const;
  void place_results(const RecordedRun& run, RunContext& context) const;
  void copy_results(const RecordedRun& run, RunContext& context, void* stream) const;
  std::string launches() const;
  void* operand_of(size_t buffer, void* place) const;
  void set_pointers(const KernelLaunch& launch, LaunchState& state, const RunContext& context) const;
  std::string fault_message(int kernel, const KernelFault& fault) const;
  void run_all(RunContext& context, RunIo& io) const;
  void find_bindings();
  void resolve(RunContext& context, std::span<const int64_t> symbols) const;
  void resolve_host(const HostCall& call, const StepPrograms& step, HostState& state,
                    std::span<const int64_t> symbols) const;
  void launch(const KernelLaunch& launch, LaunchState& state, RunContext& context) const;
  bool whole_output(size_t i, size_t buffer, const RunContext& context) const;
  void call_host(const HostCall& call, const StepPrograms& step, HostState& state, RunContext& context) const;
  std::unique_ptr<RunContext> take_context(std::span<const int64_t> symbols) const;
  void give_back(std::unique_ptr<RunContext> context) const;
  void run_step(size_t i, RunContext& context) const;
  void do_step(size_t i, RunContext& context) const;
  void find_clearing();
  void leave_out_clearing(RunContext& context, RunIo& io) const;
  void find_failures();
  void run_recorded(RunContext& context) const;
  HistoryEvent describe_step(size_t i, const RunContext& context) const;
};

/// Names of the host's operators that draw random numbers: their generator moves with each call.
const std::set<std::string>& random_operators();

inline int64_t value_of(const ExprProgram& program, std::span<const int64_t> symbols) {
  return program.evaluate(symbols);
}

/// Bytes from the first element to the end of the last.
inline size_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return static_cast<size_t>((last + 1) * dtype_size(dtype));
}

inline void values_of(const std::vector<ExprProgram>& programs, std::span<const int64_t> symbols,
                      std::vector<int64_t>& out) {
  out.resize(programs.size());
  for (size_t i = 0; i < programs.size(); ++i) out[i] = programs[i].evaluate(symbols);
}

}  // namespace tatara
