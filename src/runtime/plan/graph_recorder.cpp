#include "runtime/plan/graph_recorder.h"

namespace tatara {

bool may_record(int64_t made, int64_t calls) {
  constexpr int64_t kFree = 12;
  constexpr int64_t kCallsForOne = 100;
  return made < kFree + calls / kCallsForOne;
}

GraphOperands::GraphOperands(const Plan& plan) {
  std::vector<bool> of_host(plan.buffers.size());
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr) continue;
    for (const BufferRef& ref : call->tensors) of_host[static_cast<size_t>(ref.buffer)] = true;
  }
  varying.assign(plan.buffers.size(), 0);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    const bool output = buffer.home == BufferHome::kOutput;
    if (!output && buffer.home != BufferHome::kInput) continue;
    if (!of_host[b]) {
      varying[b] = 1;
      moving.push_back(b);
      continue;
    }
    const bool written = !output && std::any_of(plan.input_writes.begin(), plan.input_writes.end(),
                                                [&](const InputWrite& w) { return w.input_index == buffer.index; });
    fixed.push_back({static_cast<BufferId>(b), output, static_cast<size_t>(buffer.index), !written});
  }
  patched.assign(plan.steps.size(), 0);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i]);
    if (launch == nullptr) continue;
    patched[i] = std::any_of(launch->buffers.begin(), launch->buffers.end(),
                             [&](BufferId id) { return varying[static_cast<size_t>(id)] != 0; })
                     ? 1
                     : 0;
  }
}

GraphRecorder::~GraphRecorder() {
  last_ = nullptr;
  pool_ = nullptr;
  if (place_ != nullptr) give_back_place(std::move(place_));
}

void GraphRecorder::wait() const {
  if (last_ != nullptr) last_->wait();
}

bool GraphRecorder::busy_elsewhere(void* stream) const {
  return last_ != nullptr && last_stream_ != stream && !last_->passed();
}

void GraphRecorder::mark(void* stream) {
  last_stream_ = stream;
  last_->record(stream);
}

void GraphRecorder::prepare() {
  if (last_ == nullptr) last_ = std::make_unique<cuda::Event>();
  if (place_ == nullptr) place_ = take_place(host_, programs_.gpu);
  if (pool_ == nullptr) pool_ = host_.make_pool(programs_.gpu);
  last_->wait();
  if (programs_.has_host_calls) make_workspaces(host_, *place_);
}

void GraphRecorder::move_kernels(cuda::Graph& graph, std::vector<KernelNode>& nodes,
                                 const std::vector<uint8_t>& varying, RunContext& context) const {
  for (KernelNode& node : nodes) {
    const auto& launch = std::get<KernelLaunch>(programs_.plan.steps[node.step]);
    LaunchState& state = context.launches[node.step];
    steps_.set_pointers(launch, state, context);
    bool same = true;
    for (size_t b = 0; b < state.pointers.size(); ++b) {
      if (varying[static_cast<size_t>(launch.buffers[b])] == 0) state.pointers[b] = node.pointers[b];
      same = same && state.pointers[b] == node.pointers[b];
    }
    if (same) continue;
    graph.set_kernel(node.node, steps_.kernel_of(launch), programs_.gpu, state.arguments(launch));
    node.pointers = state.pointers;
  }
}

}  // namespace tatara
