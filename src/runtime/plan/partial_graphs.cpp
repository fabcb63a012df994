#include "runtime/plan/partial_graphs.h"

#include <algorithm>
#include <utility>

#include "runtime/base/memory_cuts.h"
#include "runtime/plan/plan_effects.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara {

namespace {

constexpr int64_t kSlack = int64_t{4} << 20;  // bytes that a run may hold more than step by step
constexpr int kCuts = 4;                      // of one plan for one set of sizes

/// The end of a run, for those that come from other streams; also when the run ends by an error.
class EndOfRun {
 public:
  EndOfRun(GraphRecorder& recorder, const RunIo& io, void* stream) : recorder_(recorder), io_(io), stream_(stream) {}
  ~EndOfRun() {
    if (!io_.as_graph) return;
    try {
      recorder_.mark(stream_);
    } catch (const Error& error) {
      TATARA_LOG(kRuntime, "the end of a run is not marked: ", error.what());
    }
  }
  EndOfRun(const EndOfRun&) = delete;
  EndOfRun& operator=(const EndOfRun&) = delete;

 private:
  GraphRecorder& recorder_;
  const RunIo& io_;
  void* stream_;
};

/// What a stretch of steps uses.
struct Uses {
  std::vector<uint8_t> used, of_host;  // per buffer
  std::vector<size_t> results;         // of the host's operators

  explicit Uses(size_t buffers) : used(buffers, 0), of_host(buffers, 0) {}
  void add(BufferId id, bool host_call) {
    if (id < 0) return;
    used[static_cast<size_t>(id)] = 1;
    if (host_call) of_host[static_cast<size_t>(id)] = 1;
  }
  void add(const PlanStep& step) {
    if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
      for (const BufferId id : launch->buffers) add(id, false);
      return;
    }
    const auto& call = std::get<HostCall>(step);
    for (const BufferRef& ref : call.tensors) add(ref.buffer, true);
    for (const BufferId id : call.results) {
      add(id, true);
      if (id >= 0) results.push_back(static_cast<size_t>(id));
    }
  }
};

}  // namespace

bool runs_between_graphs(const HostCall& call) {
  return awaits_condition(call) || random_operators().contains(call.op);
}

size_t PartialGraphs::count() const {
  size_t count = 0;
  for (const PartialGraph& part : parts_) count += part.recorded.size();
  return count;
}

void PartialGraphs::run(int64_t call, RunContext& context, RunIo& io, void* stream) {
  const StepRunner& steps = recorder_.steps();
  const EndOfRun end(recorder_, io, stream);
  steps.prepare_gpu(context, stream);
  if (call <= kPlainCalls || alone_.empty()) {
    run_and_watch(context, io);
  } else {
    if (parts_.empty() || cut_again_) cut(context, context.late_outputs != nullptr);
    for (PartialGraph& part : parts_) {
      if (context.late_outputs != nullptr) steps.make_outputs(part.outputs, context);
      const bool launched = launch(part, call, context, io, stream);
      for (size_t i = part.begin; i < part.end; ++i) {
        if (launched) {
          steps.release(i, context);
        } else {
          steps.run(i, context);
        }
        if (!io.done_with) continue;
        for (const size_t input : steps.lifetimes().last_reads[i]) io.done_with(input);
      }
    }
  }
  steps.make_all_outputs(context);  // some may belong to no step
  context.gpu_arena = nullptr;
}

/// A run step by step that notes what cuts depend on.
void PartialGraphs::run_and_watch(RunContext& context, RunIo& io) {
  const Plan& plan = recorder_.programs().plan;
  const StepRunner& steps = recorder_.steps();
  let_go_.assign(plan.inputs.size(), 0);
  alone_.resize(plan.steps.size(), 0);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (context.late_outputs != nullptr) steps.make_outputs(steps.lifetimes().first_uses[i], context);
    steps.execute(i, context);
    if (const auto* call = std::get_if<HostCall>(&plan.steps[i])) {
      for (const BufferId id : call->results) {
        if (id >= 0 && context.original[static_cast<size_t>(id)] != nullptr) alone_[i] = 1;
      }
    }
    steps.release(i, context);
    if (!io.done_with) continue;
    for (const size_t input : steps.lifetimes().last_reads[i]) let_go_[input] = io.done_with(input) ? 1 : 0;
  }
}

// ---- Cutting -----------------------------------------------------------------------------------------------------------

/// `late`: outputs are made when they are needed.
void PartialGraphs::cut(const RunContext& context, bool late) {
  const PlanPrograms& programs = recorder_.programs();
  const Plan& plan = programs.plan;
  const BufferLifetimes& lifetimes = recorder_.steps().lifetimes();
  recorder_.wait();  // for graphs that go
  std::vector<int64_t> bytes;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    bytes.push_back(static_cast<int64_t>(programs.buffer_bytes(b, context.symbols)));
  }
  std::vector<int64_t> input_bytes(plan.inputs.size(), 0);
  for (const auto& [buffer, input] : programs.from_inputs) input_bytes[input] = bytes[buffer];
  std::vector<StepMemory> memory(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const size_t output : lifetimes.first_uses[i]) {
      if (late) memory[i].made += bytes[static_cast<size_t>(programs.output_buffers[output].buffer)];
    }
    for (const size_t input : lifetimes.last_reads[i]) memory[i].freed += let_go_[input] != 0 ? input_bytes[input] : 0;
    memory[i].alone = alone_[i] != 0;
    const auto* call = std::get_if<HostCall>(&plan.steps[i]);
    if (call == nullptr) continue;
    memory[i].alone = memory[i].alone || runs_between_graphs(*call);
    for (const BufferId id : call->results) {
      const bool here = id < 0 || plan.buffers[static_cast<size_t>(id)].device.kind == DeviceKind::kCuda;
      memory[i].alone = memory[i].alone || !here;
    }
  }
  std::vector<PartialGraph> parts;
  for (const size_t end : cut_by_memory(memory, kSlack)) {
    PartialGraph part;
    part.begin = parts.empty() ? 0 : parts.back().end;
    part.end = end;
    if (end - part.begin < kFewSteps) part.reason = str_cat("fewer than ", kFewSteps, " steps");
    read(part, context);
    parts.push_back(std::move(part));
  }
  TATARA_LOG(kRuntime, plan.steps.size(), " steps as CUDA graphs of ", parts.size(), " stretches");
  parts_ = std::move(parts);
  cut_again_ = false;
  ++cuts_;
}

void PartialGraphs::read(PartialGraph& part, const RunContext& context) const {
  const Plan& plan = recorder_.programs().plan;
  const BufferLifetimes& lifetimes = recorder_.steps().lifetimes();
  Uses uses(plan.buffers.size());
  for (size_t i = part.begin; i < part.end; ++i) {
    part.outputs.insert(part.outputs.end(), lifetimes.first_uses[i].begin(), lifetimes.first_uses[i].end());
    uses.add(plan.steps[i]);
  }
  find_outer(part, uses.results, context);
  for (size_t b = 0; b < uses.used.size(); ++b) {
    if (uses.used[b] != 0 && part.outer[b] != 0) part.uses.push_back({b, uses.of_host[b] != 0});
  }
}

/// Which results of the host's operators stay within the stretch, and which leave it.
void PartialGraphs::find_outer(PartialGraph& part, const std::vector<size_t>& results,
                               const RunContext& context) const {
  const PlanPrograms& programs = recorder_.programs();
  part.outer.assign(programs.plan.buffers.size(), 1);
  for (const size_t buffer : results) part.outer[buffer] = 2;
  for (size_t i = part.begin; i < part.end; ++i) {
    for (const BufferId id : recorder_.steps().lifetimes().releases[i]) {
      uint8_t& outer = part.outer[static_cast<size_t>(id)];
      if (outer == 2) outer = 0;
    }
  }
  for (const size_t buffer : results) {
    if (part.outer[buffer] != 2) continue;
    part.outer[buffer] = 1;
    TensorView like;
    like.dtype = programs.plan.buffers[buffer].dtype;
    like.device = programs.device();
    values_of(programs.buffer_layouts[buffer].sizes, context.symbols, like.sizes);
    values_of(programs.buffer_layouts[buffer].strides, context.symbols, like.strides);
    part.leaving.push_back({buffer, std::move(like)});
  }
}

// ---- Launching ---------------------------------------------------------------------------------------------------------

namespace {

/// A graph that can run with the operands where they are `now`; best, one that has them there.
PartialGraph::Recorded* find_recorded(const PartialGraph& part, const std::vector<void*>& now) {
  PartialGraph::Recorded* found = nullptr;
  for (const std::unique_ptr<PartialGraph::Recorded>& recorded : part.recorded) {
    bool fits = true, same = true;
    for (size_t i = 0; fits && i < now.size(); ++i) {
      same = same && recorded->at[i] == now[i];
      fits = !part.uses[i].of_host || recorded->at[i] == now[i];
    }
    if (fits && (same || found == nullptr)) found = recorded.get();
    if (fits && same) break;
  }
  return found;
}

}  // namespace

/// False: its steps are to be launched one by one.
bool PartialGraphs::launch(PartialGraph& part, int64_t call, RunContext& context, RunIo& io, void* stream) {
  HostOps& host = recorder_.host();
  if (!part.reason.empty()) return false;
  for (const PartialGraph::Leaving& leaving : part.leaving) {
    context.owned[leaving.buffer] = host.empty_like(leaving.like);
    context.data[leaving.buffer] = host.view(context.owned[leaving.buffer]).data;
  }
  std::vector<void*> now;
  now.reserve(part.uses.size());
  for (const PartialGraph::Use& use : part.uses) {
    now.push_back(recorder_.steps().operand_of(use.buffer, context.data[use.buffer]));
  }
  PartialGraph::Recorded* found = find_recorded(part, now);
  if (found == nullptr && part.recorded.size() == kRunsKept) set_apart(part, now);
  if (found == nullptr && !cut_again_ && may_record(part.recordings, call)) {
    try {
      if (io.as_graph) recorder_.mark(stream);
      record(part, context);
      found = part.recorded.back().get();
      found->at = now;
      io.recorded = true;
    } catch (const Error& error) {
      part.reason = error.what();
      TATARA_LOG(kRuntime, "no CUDA graph of steps ", part.begin, " to ", part.end, ": ", error.what());
    }
    context.stream = stream;
  }
  if (found == nullptr) {
    for (const PartialGraph::Leaving& leaving : part.leaving) context.owned[leaving.buffer] = nullptr;
    return false;
  }
  if (found->at != now) {
    recorder_.move_kernels(*found->graph, found->nodes, part.outer, context);
    found->at = now;
  }
  found->graph->launch(stream);
  found->used = call;
  io.as_graph = true;
  return true;
}

/// Where a few of the host's operators use what was never here before, they are left out of graphs from the next call on.
void PartialGraphs::set_apart(const PartialGraph& part, const std::vector<void*>& now) {
  const Plan& plan = recorder_.programs().plan;
  std::vector<uint8_t> moved(plan.buffers.size(), 0);
  for (size_t i = 0; i < now.size(); ++i) {
    const bool known = !part.uses[i].of_host || std::any_of(part.recorded.begin(), part.recorded.end(),
                                                            [&](const std::unique_ptr<PartialGraph::Recorded>& r) {
                                                              return r->at[i] == now[i];
                                                            });
    if (!known) moved[part.uses[i].buffer] = 1;
  }
  const auto has_moved = [&](BufferId id) { return id >= 0 && moved[static_cast<size_t>(id)] != 0; };
  std::vector<size_t> steps_moved;
  for (size_t i = part.begin; i < part.end; ++i) {
    const auto* call = std::get_if<HostCall>(&plan.steps[i]);
    if (call == nullptr) continue;
    const bool any = std::any_of(call->tensors.begin(), call->tensors.end(),
                                 [&](const BufferRef& ref) { return has_moved(ref.buffer); }) ||
                     std::any_of(call->results.begin(), call->results.end(), has_moved);
    if (any) steps_moved.push_back(i);
  }
  constexpr size_t kPart = 4;  // at most one in so many steps
  if (steps_moved.empty() || steps_moved.size() * kPart > part.end - part.begin || cuts_ >= kCuts) return;
  for (const size_t i : steps_moved) alone_[i] = 1;
  cut_again_ = true;
}

void PartialGraphs::record(PartialGraph& part, RunContext& context) {
  ++part.recordings;
  recorder_.prepare();
  recorder_.keep_latest(part.recorded);
  auto made = std::make_unique<PartialGraph::Recorded>();
  std::vector<HostTensor> owned = context.owned, original = context.original;
  try {
    made->graph = recorder_.record(context, made->nodes, [&](cuda::Recording& recording) {
      for (size_t i = part.begin; i < part.end; ++i) record_step(i, part, *made, recording, context);
    });
  } catch (const Error&) {
    context.owned = std::move(owned);
    context.original = std::move(original);
    throw;
  }
  part.recorded.push_back(std::move(made));
}

void PartialGraphs::record_step(size_t step, const PartialGraph& part, PartialGraph::Recorded& made,
                                cuda::Recording& recording, RunContext& context) const {
  const auto* call = std::get_if<HostCall>(&recorder_.programs().plan.steps[step]);
  std::vector<std::pair<const PartialGraph::Leaving*, HostTensor>> leave;
  for (const PartialGraph::Leaving& leaving : part.leaving) {
    if (call == nullptr || std::find(call->results.begin(), call->results.end(), leaving.buffer) == call->results.end())
      continue;
    leave.emplace_back(&leaving, context.owned[leaving.buffer]);
  }
  recorder_.steps().execute(step, context);
  const LaunchState& state = context.launches[step];
  if (call == nullptr && state.iterations > 0 && state.blocks > 0) {
    made.nodes.push_back({recording.last_node(), step, state.pointers});
  }
  for (auto& [leaving, to] : leave) {
    const size_t buffer = leaving->buffer;
    if (context.original[buffer] != nullptr) throw Unsupported("a result that is laid out now one way, now another");
    void* const target = recorder_.host().view(to).data;
    cuda::copy(target, context.data[buffer], span_of(leaving->like.sizes, leaving->like.strides, leaving->like.dtype),
               context.stream);
    context.owned[buffer] = std::move(to);
    context.data[buffer] = target;
  }
  for (const BufferId id : recorder_.steps().lifetimes().releases[step]) {
    const auto buffer = static_cast<size_t>(id);
    if (part.outer[buffer] != 0) continue;  // of an earlier stretch: goes once this one is launched
    context.owned[buffer] = nullptr;
    context.original[buffer] = nullptr;
  }
}

}  // namespace tatara
