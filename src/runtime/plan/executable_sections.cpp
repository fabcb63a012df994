// Passes of training as CUDA graphs that keep no memory: see run_in_sections.
#include <algorithm>

#include "runtime/base/memory_cuts.h"
#include "runtime/plan/executable_internal.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara {

namespace {

constexpr int64_t kSlack = int64_t{4} << 20;  // bytes that a run may hold more than step by step
constexpr int kCuts = 4;                      // of one plan for one set of sizes

/// The end of a run, for those that come from other streams; also when the run ends by an error.
class EndOfRun {
 public:
  EndOfRun(GraphRuns& graphs, const RunIo& io, void* stream) : graphs_(graphs), io_(io), stream_(stream) {}
  ~EndOfRun() {
    if (!io_.as_graph) return;
    graphs_.last_stream = stream_;
    try {
      graphs_.last->record(stream_);
    } catch (const Error& error) {
      TATARA_LOG(kRuntime, "the end of a run is not marked: ", error.what());
    }
  }
  EndOfRun(const EndOfRun&) = delete;
  EndOfRun& operator=(const EndOfRun&) = delete;

 private:
  GraphRuns& graphs_;
  const RunIo& io_;
  void* stream_;
};

}  // namespace

/// The steps as CUDA graphs of stretches of them. Memory is the call's own as in a run step by step: scratch from the host's
/// allocator, outputs made right before the stretch that first writes to them, inputs let go of after the stretch that reads
/// them last. So between calls graphs hold nothing of it, and the host has it for whatever else runs. A program that does the
/// same again gets the same addresses from the allocator, and the graphs recorded for these serve; at others, another graph is
/// recorded, or the stretch goes step by step.
void Executable::Impl::run_in_sections(GraphSizes& sizes, RunContext& context, RunIo& io, void* stream) const {
  const EndOfRun end(*graphs, io, stream);
  prepare_gpu(context, stream);
  if (sizes.calls <= kPlainCalls || sizes.alone.empty()) {
    watch_steps(sizes, context, io);
  } else {
    if (sizes.sections.empty() || sizes.cut_again) {
      if (graphs->last != nullptr) graphs->last->wait();  // for graphs that go
      sizes.sections = cut_in_sections(sizes, context, context.late_outputs != nullptr);
      sizes.cut_again = false;
      ++sizes.cuts;
    }
    for (Section& section : sizes.sections) {
      if (context.late_outputs != nullptr) make_outputs(section.outputs, context);
      const bool launched = launch_section(section, sizes, context, io, stream);
      for (size_t i = section.begin; i < section.end; ++i) {
        if (launched) {
          release(i, context);
        } else {
          run_step(i, context);
        }
        if (!io.done_with) continue;
        for (const size_t input : last_reads[i]) io.done_with(input);
      }
    }
  }
  make_all_outputs(context);  // some may belong to no step
  context.gpu_arena = nullptr;
}

/// A run step by step that notes what cuts depend on.
void Executable::Impl::watch_steps(GraphSizes& sizes, RunContext& context, RunIo& io) const {
  sizes.let_go.assign(plan.inputs.size(), 0);
  sizes.alone.resize(plan.steps.size(), 0);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (context.late_outputs != nullptr) make_outputs(first_uses[i], context);
    do_step(i, context);
    if (const auto* call = std::get_if<HostCall>(&plan.steps[i])) {
      for (const BufferId id : call->results) {
        if (id >= 0 && context.original[static_cast<size_t>(id)] != nullptr) sizes.alone[i] = 1;
      }
    }
    release(i, context);
    if (!io.done_with) continue;
    for (const size_t input : last_reads[i]) sizes.let_go[input] = io.done_with(input) ? 1 : 0;
  }
}

// ---- Cutting -----------------------------------------------------------------------------------------------------------

std::vector<Section> Executable::Impl::cut_in_sections(const GraphSizes& sizes, const RunContext& context,
                                                       bool late) const {
  std::vector<int64_t> bytes;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    std::vector<int64_t> lengths, strides;
    values_of(buffer_layouts[b].sizes, context.symbols, lengths);
    values_of(buffer_layouts[b].strides, context.symbols, strides);
    bytes.push_back(static_cast<int64_t>(span_of(lengths, strides, plan.buffers[b].dtype)));
  }
  std::vector<int64_t> input_bytes(plan.inputs.size(), 0);
  for (const auto& [buffer, input] : from_inputs) input_bytes[input] = bytes[buffer];
  std::vector<StepMemory> memory(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const size_t output : first_uses[i]) {
      if (late) memory[i].made += bytes[static_cast<size_t>(output_buffers[output].buffer)];
    }
    for (const size_t input : last_reads[i]) memory[i].freed += sizes.let_go[input] != 0 ? input_bytes[input] : 0;
    memory[i].alone = sizes.alone[i] != 0;
    const auto* call = std::get_if<HostCall>(&plan.steps[i]);
    if (call == nullptr) continue;
    for (const BufferId id : call->results) {
      const bool here = id < 0 || plan.buffers[static_cast<size_t>(id)].device.kind == DeviceKind::kCuda;
      memory[i].alone = memory[i].alone || !here;
    }
  }
  std::vector<Section> sections;
  for (const size_t end : cut_by_memory(memory, kSlack)) {
    Section section;
    section.begin = sections.empty() ? 0 : sections.back().end;
    section.end = end;
    if (end - section.begin < kFewSteps) section.reason = str_cat("fewer than ", kFewSteps, " steps");
    read_section(section, context);
    sections.push_back(std::move(section));
  }
  TATARA_LOG(kRuntime, plan.steps.size(), " steps as CUDA graphs of ", sections.size(), " stretches");
  return sections;
}

void Executable::Impl::read_section(Section& section, const RunContext& context) const {
  std::vector<uint8_t> used(plan.buffers.size(), 0), of_host(plan.buffers.size(), 0);
  std::vector<size_t> results;
  const auto use = [&](BufferId id, bool host_call) {
    if (id < 0) return;
    used[static_cast<size_t>(id)] = 1;
    if (host_call) of_host[static_cast<size_t>(id)] = 1;
  };
  section.outer.assign(plan.buffers.size(), 1);
  for (size_t i = section.begin; i < section.end; ++i) {
    section.outputs.insert(section.outputs.end(), first_uses[i].begin(), first_uses[i].end());
    if (const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i])) {
      for (const BufferId id : launch->buffers) use(id, false);
    } else {
      const auto& call = std::get<HostCall>(plan.steps[i]);
      for (const BufferRef& ref : call.tensors) use(ref.buffer, true);
      for (const BufferId id : call.results) {
        use(id, true);
        if (id >= 0) results.push_back(static_cast<size_t>(id));
      }
    }
  }
  for (const size_t buffer : results) section.outer[buffer] = 2;
  for (size_t i = section.begin; i < section.end; ++i) {
    for (const BufferId id : releases[i]) {
      uint8_t& outer = section.outer[static_cast<size_t>(id)];
      if (outer == 2) outer = 0;
    }
  }
  for (const size_t buffer : results) {
    if (section.outer[buffer] != 2) continue;
    section.outer[buffer] = 1;
    TensorView like;
    like.dtype = plan.buffers[buffer].dtype;
    like.device = {DeviceKind::kCuda, static_cast<int16_t>(gpu)};
    values_of(buffer_layouts[buffer].sizes, context.symbols, like.sizes);
    values_of(buffer_layouts[buffer].strides, context.symbols, like.strides);
    section.leaving.push_back({buffer, std::move(like)});
  }
  for (size_t b = 0; b < used.size(); ++b) {
    if (used[b] != 0 && section.outer[b] != 0) section.uses.push_back({b, of_host[b] != 0});
  }
}

// ---- Launching ---------------------------------------------------------------------------------------------------------

/// False: its steps are to be launched one by one.
bool Executable::Impl::launch_section(Section& section, GraphSizes& sizes, RunContext& context, RunIo& io,
                                      void* stream) const {
  if (!section.reason.empty()) return false;
  for (const Section::Leaving& leaving : section.leaving) {
    context.owned[leaving.buffer] = host->empty_like(leaving.like);
    context.data[leaving.buffer] = host->view(context.owned[leaving.buffer]).data;
  }
  std::vector<void*> now;
  now.reserve(section.uses.size());
  for (const Section::Use& use : section.uses) now.push_back(operand_of(use.buffer, context.data[use.buffer]));
  Section::Recorded* found = nullptr;
  for (const std::unique_ptr<Section::Recorded>& recorded : section.graphs) {
    bool fits = true, same = true;
    for (size_t i = 0; fits && i < now.size(); ++i) {
      same = same && recorded->at[i] == now[i];
      fits = !section.uses[i].of_host || recorded->at[i] == now[i];
    }
    if (fits && (same || found == nullptr)) found = recorded.get();
    if (fits && same) break;
  }
  if (found == nullptr && section.graphs.size() == kRunsKept) set_apart(section, now, sizes);
  if (found == nullptr && !sizes.cut_again && sizes.may_record(section.recordings)) {
    try {
      if (io.as_graph) graphs->last->record(stream);
      record_section(section, context);
      found = section.graphs.back().get();
      found->at = now;
      io.recorded = true;
    } catch (const Error& error) {
      section.reason = error.what();
      TATARA_LOG(kRuntime, "no CUDA graph of steps ", section.begin, " to ", section.end, ": ", error.what());
    }
    context.stream = stream;
  }
  if (found == nullptr) {
    for (const Section::Leaving& leaving : section.leaving) context.owned[leaving.buffer] = nullptr;
    return false;
  }
  if (found->at != now) {
    move_kernels(*found->graph, found->nodes, section.outer, context);
    found->at = now;
  }
  found->graph->launch(stream);
  found->used = sizes.calls;
  io.as_graph = true;
  return true;
}

/// Where a few of the host's operators use what was never here before, they are left out of graphs from the next call on.
void Executable::Impl::set_apart(const Section& section, const std::vector<void*>& now, GraphSizes& sizes) const {
  std::vector<uint8_t> moved(plan.buffers.size(), 0);
  for (size_t i = 0; i < now.size(); ++i) {
    const bool known = !section.uses[i].of_host ||
                       std::any_of(section.graphs.begin(), section.graphs.end(),
                                   [&](const std::unique_ptr<Section::Recorded>& r) { return r->at[i] == now[i]; });
    if (!known) moved[section.uses[i].buffer] = 1;
  }
  std::vector<size_t> steps_moved;
  for (size_t i = section.begin; i < section.end; ++i) {
    const auto* call = std::get_if<HostCall>(&plan.steps[i]);
    if (call == nullptr) continue;
    const bool any = std::any_of(call->tensors.begin(), call->tensors.end(),
                                 [&](const BufferRef& ref) {
                                   return ref.buffer >= 0 && moved[static_cast<size_t>(ref.buffer)] != 0;
                                 }) ||
                     std::any_of(call->results.begin(), call->results.end(),
                                 [&](BufferId id) { return id >= 0 && moved[static_cast<size_t>(id)] != 0; });
    if (any) steps_moved.push_back(i);
  }
  constexpr size_t kPart = 4;  // at most one in so many steps
  if (steps_moved.empty() || steps_moved.size() * kPart > section.end - section.begin || sizes.cuts >= kCuts) return;
  for (const size_t i : steps_moved) sizes.alone[i] = 1;
  sizes.cut_again = true;
}

void Executable::Impl::record_section(Section& section, RunContext& context) const {
  ++section.recordings;
  prepare_recording();
  graphs->keep_latest(section.graphs);
  auto made = std::make_unique<Section::Recorded>();
  std::vector<HostTensor> owned = context.owned, original = context.original;
  try {
    record_section_steps(section, *made, context);
  } catch (const Error&) {
    context.owned = std::move(owned);
    context.original = std::move(original);
    throw;
  }
  section.graphs.push_back(std::move(made));
}

void Executable::Impl::record_section_steps(const Section& section, Section::Recorded& made,
                                            RunContext& context) const {
  GraphRuns& g = *graphs;
  const PoolScope scope(*g.pool);
  const std::shared_ptr<void> guard = host->on_stream(g.place->stream, gpu);
  cuda::Recording recording(g.place->stream);
  context.stream = g.place->stream;
  for (size_t i = section.begin; i < section.end; ++i) {
    std::vector<std::pair<const Section::Leaving*, HostTensor>> leave;
    const auto* call = std::get_if<HostCall>(&plan.steps[i]);
    for (const Section::Leaving& leaving : section.leaving) {
      if (call == nullptr ||
          std::find(call->results.begin(), call->results.end(), leaving.buffer) == call->results.end())
        continue;
      leave.emplace_back(&leaving, context.owned[leaving.buffer]);
    }
    do_step(i, context);
    if (call == nullptr && context.launches[i].iterations > 0 && context.launches[i].blocks > 0) {
      made.nodes.push_back({recording.last_node(), i, context.launches[i].pointers});
    }
    for (auto& [leaving, to] : leave) {
      const size_t buffer = leaving->buffer;
      if (context.original[buffer] != nullptr) throw Unsupported("a result that is laid out now one way, now another");
      void* const target = host->view(to).data;
      cuda::copy(target, context.data[buffer], span_of(leaving->like.sizes, leaving->like.strides, leaving->like.dtype),
                 context.stream);
      context.owned[buffer] = std::move(to);
      context.data[buffer] = target;
    }
    for (const BufferId id : releases[i]) {
      const auto buffer = static_cast<size_t>(id);
      if (section.outer[buffer] != 0) continue;  // of an earlier stretch: goes once this one is launched
      context.owned[buffer] = nullptr;
      context.original[buffer] = nullptr;
    }
  }
  made.graph = recording.finish();
  for (KernelNode& node : made.nodes) node.node = made.graph->launched_node(node.node);
}

}  // namespace tatara
