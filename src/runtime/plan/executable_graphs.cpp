// A plan on a GPU as CUDA graphs: one launch instead of one for each step. See GraphRuns in executable_internal.h.
#include <algorithm>
#include <map>
#include <set>

#include "ops/core/op_def.h"
#include "runtime/plan/executable_internal.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/str_cat.h"

namespace tatara {

namespace {

constexpr int kMoves = 2;                          // of an operand, until it is copied
constexpr size_t kCopiedBytes = size_t{32} << 20;  // at most, in all copies of a call
constexpr int64_t kLeanBytes = int64_t{8} << 20;   // of scratch memory, that a graph of a lean run may keep
constexpr size_t kSizesKnown = 64;

}  // namespace

const std::set<std::string>& random_operators() {
  return made_once([] {
    std::set<std::string> found;
    for (const OpDef* op : OpRegistry::global().all()) {
      if (!op->nondeterministic && op->kind != OpKind::kRandom) continue;
      const std::string base = op->host_name.empty() ? op->name.substr(0, op->name.find('.')) : op->host_name;
      found.insert(base.find("::") == std::string::npos ? "aten::" + base : base);
    }
    return found;
  });
}

int64_t GraphRuns::recorded_sizes() const {
  return std::count_if(sizes.begin(), sizes.end(), [](const auto& s) { return s->graphs() > 0; });
}

size_t GraphSizes::graphs() const {
  size_t count = runs.size();
  for (const Section& section : sections) count += section.graphs.size();
  return count;
}

bool GraphSizes::may_record(int64_t made) const {
  constexpr int64_t kFree = 12;
  constexpr int64_t kCallsForOne = 100;
  return made < kFree + calls / kCallsForOne;
}

GraphRuns::~GraphRuns() {
  if (last != nullptr) last->wait();  // for its memory
  sizes.clear();
  last = nullptr;
  pool = nullptr;
  if (place == nullptr) return;
  give_back_place(std::move(place));
}

// ---- What can be a graph ---------------------------------------------------------------------------------------------

std::string Executable::Impl::graph_objection() const {
  if (cuda_graphs <= 0) return "the option cuda_graphs is 0";
  if (plan.steps.size() < kFewSteps) return str_cat("fewer than ", kFewSteps, " steps");
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr) continue;
    if (random_operators().contains(call->op)) return call->op + " draws random numbers";
    const bool attention = call->op.starts_with("tatara::fused_attention");  // puts the host's operators together
    if (!call->op.starts_with("aten::") && !attention) return call->op + " is no operator of the host's own";
    for (const BufferRef& ref : call->tensors) {
      if (plan.buffers[static_cast<size_t>(ref.buffer)].device.kind != DeviceKind::kCuda) {
        return call->op + " reads a tensor of the CPU";
      }
    }
  }
  return cuda::graphs_missing();
}

void Executable::Impl::find_graphs() {
  graphs = std::make_unique<GraphRuns>();
  GraphRuns& g = *graphs;
  g.device = gpu;
  g.limit = cuda_graphs;
  g.reason = graph_objection();
  if (!g.reason.empty()) return;
  std::vector<bool> of_host(plan.buffers.size());
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr) continue;
    for (const BufferRef& ref : call->tensors) of_host[static_cast<size_t>(ref.buffer)] = true;
  }
  g.varying.assign(plan.buffers.size(), 0);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    const bool output = buffer.home == BufferHome::kOutput;
    if (!output && buffer.home != BufferHome::kInput) continue;
    if (!of_host[b]) {
      g.varying[b] = 1;
      g.moving.push_back(b);
      continue;
    }
    const bool written = !output && std::any_of(plan.input_writes.begin(), plan.input_writes.end(),
                                                [&](const InputWrite& w) { return w.input_index == buffer.index; });
    g.fixed.push_back({static_cast<BufferId>(b), output, static_cast<size_t>(buffer.index), !written});
  }
  g.patched.assign(plan.steps.size(), 0);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i]);
    if (launch == nullptr) continue;
    g.patched[i] = std::any_of(launch->buffers.begin(), launch->buffers.end(),
                               [&](BufferId id) { return g.varying[static_cast<size_t>(id)] != 0; })
                       ? 1
                       : 0;
  }
}

std::string Executable::Impl::launches() const {
  if (graphs == nullptr) return {};
  const std::unique_lock lock(graphs->mutex, std::try_to_lock);
  if (!lock) return "a CUDA graph is being recorded";
  if (!graphs->reason.empty()) return "one by one: " + graphs->reason;
  size_t recorded = 0, parts = 0;
  std::string text;
  for (const std::unique_ptr<GraphSizes>& sizes : graphs->sizes) {
    if (!sizes->reason.empty()) text = "; one by one: " + sizes->reason;
    recorded += sizes->graphs();
    parts = std::max(parts, sizes->sections.size());
  }
  if (static_cast<int64_t>(graphs->sizes.size()) > graphs->limit && graphs->recorded_sizes() >= graphs->limit) {
    text += "; one by one for further sizes";
  }
  if (recorded == 0 && !text.empty()) return text.substr(2);
  if (recorded == 0) return "as a CUDA graph after some calls with the same sizes";
  if (parts > 1) return str_cat("as CUDA graphs of up to ", parts, " stretches (", recorded, " recorded)", text);
  return str_cat("as a CUDA graph (", recorded, " recorded)", text);
}

// ---- Choosing ----------------------------------------------------------------------------------------------------------

GraphSizes* Executable::Impl::graph_sizes(std::span<const int64_t> symbols) const {
  GraphRuns& g = *graphs;
  for (const std::unique_ptr<GraphSizes>& known : g.sizes) {
    const bool same = std::equal(symbols.begin(), symbols.end(), known->symbols.begin(), known->symbols.end());
    if (same && (known->graphs() > 0 || g.recorded_sizes() < g.limit)) return known.get();
    if (same) return nullptr;
  }
  if (g.sizes.size() >= kSizesKnown) return nullptr;
  g.sizes.push_back(std::make_unique<GraphSizes>());
  GraphSizes& made = *g.sizes.back();
  made.symbols.assign(symbols.begin(), symbols.end());
  made.moves.assign(g.fixed.size(), 0);
  made.apart.assign(g.fixed.size(), 0);
  for (const GraphRuns::Fixed& fixed : g.fixed) {
    const Layout& layout = buffer_layouts[static_cast<size_t>(fixed.buffer)];
    std::vector<int64_t> lengths, strides;
    values_of(layout.sizes, symbols, lengths);
    values_of(layout.strides, symbols, strides);
    made.bytes.push_back(span_of(lengths, strides, plan.buffers[static_cast<size_t>(fixed.buffer)].dtype));
  }
  return &made;
}

void* Executable::Impl::fixed_address(const GraphRuns::Fixed& fixed, const RunIo& io) const {
  return fixed.output ? io.output_buffers[fixed.index] : io.inputs[fixed.index];
}

/// A graph for where the operands are now. Without one, notes what moved.
RecordedRun* Executable::Impl::find_recorded(GraphSizes& sizes, const RunIo& io) const {
  const GraphRuns& g = *graphs;
  const auto differs = [&](const RecordedRun& run, size_t i) {
    return run.staged[i] == nullptr && run.fixed[i] != fixed_address(g.fixed[i], io);
  };
  const RecordedRun* latest = nullptr;
  for (const std::unique_ptr<RecordedRun>& run : sizes.runs) {
    bool good = true;
    for (size_t i = 0; good && i < g.fixed.size(); ++i) good = !differs(*run, i);
    if (good) return run.get();
    if (latest == nullptr || run->used > latest->used) latest = run.get();
  }
  if (latest == nullptr) return nullptr;
  size_t copied = 0;
  for (size_t i = 0; i < g.fixed.size(); ++i) copied += sizes.apart[i] != 0 ? sizes.bytes[i] : 0;
  for (size_t i = 0; i < g.fixed.size(); ++i) {
    if (!differs(*latest, i) || ++sizes.moves[i] < kMoves || !g.fixed[i].copies_do || sizes.apart[i] != 0) continue;
    if (copied + sizes.bytes[i] > kCopiedBytes) continue;
    copied += sizes.bytes[i];
    sizes.apart[i] = 1;
  }
  return nullptr;
}

bool Executable::Impl::run_graph(RunContext& context, RunIo& io, void* stream) const {
  GraphRuns& g = *graphs;
  if (!g.reason.empty() || history_on()) return false;
  const std::unique_lock lock(g.mutex, std::try_to_lock);
  if (!lock || cuda::recording(stream)) return false;
  GraphSizes* sizes = graph_sizes(context.symbols);
  if (sizes == nullptr || !sizes->reason.empty()) return false;
  if (g.last != nullptr && g.last_stream != stream && !g.last->passed()) return false;
  ++sizes->calls;
  if (io.lean && context.arena_bytes > kLeanBytes) {
    run_in_sections(*sizes, context, io, stream);
    return true;
  }
  if (sizes->calls <= kPlainCalls) return false;
  make_all_outputs(context);
  try {
    RecordedRun* run = find_recorded(*sizes, io);
    if (run == nullptr) {
      if (!sizes->may_record(sizes->recordings)) return false;
      place_constants(context, stream);
      run = record(*sizes, context, io);
      io.recorded = true;
    }
    set_operands(*run, context);
    launch_recorded(*sizes, *run, context, io, stream);
    run->used = sizes->calls;
    g.last->record(stream);
    g.last_stream = stream;
    return true;
  } catch (const Error& error) {
    if (io.as_graph) throw;  // it is on its way
    sizes->reason = error.what();
    TATARA_LOG(kRuntime, "no CUDA graph: ", error.what());
  }
  std::fill(context.owned.begin(), context.owned.end(), nullptr);
  std::fill(context.original.begin(), context.original.end(), nullptr);
  return false;
}

// ---- Recording -------------------------------------------------------------------------------------------------------

RecordedRun* Executable::Impl::record(GraphSizes& sizes, RunContext& context, const RunIo& io) const {
  GraphRuns& g = *graphs;
  ++sizes.recordings;
  prepare_recording();
  g.keep_latest(sizes.runs);
  auto run = std::make_unique<RecordedRun>();
  const Device device{DeviceKind::kCuda, static_cast<int16_t>(gpu)};
  if (context.arena_bytes > 0) {
    run->arena = host->allocate(context.arena_bytes, device);
    place_arena(context, static_cast<std::byte*>(host->view(run->arena).data));
  }
  for (size_t i = 0; i < g.fixed.size(); ++i) {
    run->fixed.push_back(fixed_address(g.fixed[i], io));
    run->staged.push_back(sizes.apart[i] != 0 ? host->allocate(static_cast<int64_t>(sizes.bytes[i]), device) : nullptr);
    void*& address = context.data[static_cast<size_t>(g.fixed[i].buffer)];
    address = run->staged[i] != nullptr ? host->view(run->staged[i]).data : run->fixed[i];
  }
  record_steps(*run, context);
  TATARA_LOG(kRuntime, "a CUDA graph of ", run->graph->size(), " nodes for ", plan.steps.size(), " steps",
             run->graph->is_body() ? ", launched as a body" : "");
  sizes.runs.push_back(std::move(run));
  return sizes.runs.back().get();
}

/// Everything to record with, while nothing launched before uses it.
void Executable::Impl::prepare_recording() const {
  GraphRuns& g = *graphs;
  if (g.last == nullptr) g.last = std::make_unique<cuda::Event>();
  if (g.place == nullptr) g.place = take_place(*host, gpu);
  if (g.pool == nullptr) g.pool = host->make_pool(gpu);
  g.last->wait();
  if (has_host_calls) make_workspaces(*host, *g.place);
}

void Executable::Impl::record_steps(RecordedRun& run, RunContext& context) const {
  GraphRuns& g = *graphs;
  {
    const PoolScope scope(*g.pool);
    const std::shared_ptr<void> guard = host->on_stream(g.place->stream, gpu);
    cuda::Recording recording(g.place->stream);
    context.stream = g.place->stream;
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      run_step(i, context);
      if (g.patched[i] == 0 || context.launches[i].iterations <= 0 || context.launches[i].blocks <= 0) continue;
      run.nodes.push_back({recording.last_node(), i, context.launches[i].pointers});
    }
    run.graph = recording.finish();
    for (KernelNode& node : run.nodes) node.node = run.graph->launched_node(node.node);
  }
  // What leaves the plan is copied from where the graph computes it.
  for (size_t b = 0; b < context.owned.size(); ++b) {
    if (context.owned[b] == nullptr && context.original[b] == nullptr) continue;
    run.results.push_back({b, std::move(context.owned[b]), std::move(context.original[b])});
  }
  context.owned.assign(plan.buffers.size(), nullptr);
  context.original.assign(plan.buffers.size(), nullptr);
}

// ---- Launching -------------------------------------------------------------------------------------------------------

void Executable::Impl::set_operands(RecordedRun& run, RunContext& context) const {
  const GraphRuns& g = *graphs;
  bool unmoved = run.at.size() == g.moving.size();
  run.at.resize(g.moving.size(), nullptr);
  for (size_t i = 0; i < g.moving.size(); ++i) {
    void* const now = operand_of(g.moving[i], context.data[g.moving[i]]);
    unmoved = unmoved && run.at[i] == now;
    run.at[i] = now;
  }
  if (!unmoved) move_kernels(*run.graph, run.nodes, g.varying, context);
}

/// Gives kernels the present addresses of the buffers marked in `varying`.
void Executable::Impl::move_kernels(cuda::Graph& graph, std::vector<KernelNode>& nodes,
                                    const std::vector<uint8_t>& varying, RunContext& context) const {
  for (KernelNode& node : nodes) {
    const auto& launch = std::get<KernelLaunch>(plan.steps[node.step]);
    LaunchState& state = context.launches[node.step];
    set_pointers(launch, state, context);
    bool same = true;
    for (size_t b = 0; b < state.pointers.size(); ++b) {
      if (varying[static_cast<size_t>(launch.buffers[b])] == 0) state.pointers[b] = node.pointers[b];
      same = same && state.pointers[b] == node.pointers[b];
    }
    if (same) continue;
    graph.set_kernel(node.node, *code[static_cast<size_t>(launch.kernel)].gpu, gpu, state.arguments(launch));
    node.pointers = state.pointers;
  }
}

void Executable::Impl::launch_recorded(GraphSizes& sizes, RecordedRun& run, RunContext& context, RunIo& io,
                                       void* stream) const {
  const GraphRuns& g = *graphs;
  for (size_t i = 0; i < g.fixed.size(); ++i) {
    if (run.staged[i] == nullptr || g.fixed[i].output) continue;
    cuda::copy(host->view(run.staged[i]).data, io.inputs[g.fixed[i].index], sizes.bytes[i], stream);
  }
  place_results(run, context);
  run.graph->launch(stream);
  io.as_graph = true;
  for (size_t i = 0; i < g.fixed.size(); ++i) {
    if (run.staged[i] == nullptr || !g.fixed[i].output) continue;
    cuda::copy(io.output_buffers[g.fixed[i].index], host->view(run.staged[i]).data, sizes.bytes[i], stream);
  }
  copy_results(run, context, stream);
}

/// Results of the host's operators that leave the plan lie in the graph's memory: the caller gets copies.
void Executable::Impl::place_results(const RecordedRun& run, RunContext& context) const {
  const auto memory_for = [&](const HostTensor& tensor) {
    return tensor == nullptr ? nullptr : host->empty_like(host->view(tensor));
  };
  for (const RecordedRun::Result& result : run.results) {
    context.owned[result.buffer] = memory_for(result.owned);
    context.original[result.buffer] = memory_for(result.original);
  }
}

void Executable::Impl::copy_results(const RecordedRun& run, RunContext& context, void* stream) const {
  const auto copied = [&](const HostTensor& tensor, const HostTensor& to) {
    if (tensor == nullptr) return;
    const TensorView from = host->view(tensor);
    cuda::copy(host->view(to).data, from.data, span_of(from.sizes, from.strides, from.dtype), stream);
  };
  for (const RecordedRun::Result& result : run.results) {
    copied(result.owned, context.owned[result.buffer]);
    copied(result.original, context.original[result.buffer]);
  }
}

}  // namespace tatara
