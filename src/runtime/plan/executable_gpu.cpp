// Runs of plans on a GPU.
#include <algorithm>
#include <cstring>

#include "runtime/plan/executable_internal.h"

namespace tatara {

/// All kernels of a plan run on one device.
void Executable::Impl::find_device() {
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.device.kind == DeviceKind::kCuda) gpu = std::max<int>(buffer.device.index, 0);
  }
  find_releases();
  if (gpu < 0) return;
  if (host == nullptr) throw Unsupported("a plan for a GPU needs the host's allocator");
  const cuda::Session session(gpu);
  for (const KernelCode& kernel : code) {
    if (kernel.gpu != nullptr) kernel.gpu->load(gpu);
  }
  find_graphs();
}

/// Memory of this run in the order of its stream: the host's allocator gives it to nobody else before the run is over there.
void Executable::Impl::prepare_gpu(RunContext& context, void* stream) const {
  if (context.arena_bytes > 0) {
    context.gpu_arena = host->allocate(context.arena_bytes, {DeviceKind::kCuda, static_cast<int16_t>(gpu)});
    place_arena(context, static_cast<std::byte*>(host->view(context.gpu_arena).data));
  }
  place_constants(context, stream);
  context.stream = stream;
}

void Executable::Impl::place_arena(RunContext& context, std::byte* base) const {
  for (const auto& [buffer, offset] : context.arena_offsets) context.data[buffer] = base + offset;
}

void Executable::Impl::place_constants(RunContext& context, void* stream) const {
  std::call_once(constants_once, [&] {
    std::vector<uint8_t> bytes;
    for (const PlanBuffer& buffer : plan.buffers) {
      if (buffer.home != BufferHome::kConstant) continue;
      bytes.insert(bytes.end(), buffer.constant.begin(), buffer.constant.end());
      bytes.resize((bytes.size() + 63) / 64 * 64);
    }
    if (bytes.empty()) return;
    gpu_constants = host->allocate(static_cast<int64_t>(bytes.size()), {DeviceKind::kCuda, static_cast<int16_t>(gpu)});
    cuda::upload(host->view(gpu_constants).data, bytes.data(), bytes.size(), stream);
  });
  if (gpu_constants == nullptr) return;
  auto* at = static_cast<std::byte*>(host->view(gpu_constants).data);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].home != BufferHome::kConstant) continue;
    context.data[i] = at;
    at += (plan.buffers[i].constant.size() + 63) / 64 * 64;
  }
}

/// What a kernel gets for a buffer of which the memory starts at `place`: a number of the host travels in the place of its address.
void* Executable::Impl::operand_of(size_t buffer, void* place) const {
  static_assert(sizeof(void*) == sizeof(uint64_t));
  const PlanBuffer& info = plan.buffers[buffer];
  if (info.home != BufferHome::kInput || info.device.kind != DeviceKind::kCpu || place == nullptr) return place;
  void* word = nullptr;
  std::memcpy(&word, place, static_cast<size_t>(dtype_size(info.dtype)));
  return word;
}

/// Where the operands of a launch are.
void Executable::Impl::set_pointers(const KernelLaunch& launch, LaunchState& state, const RunContext& context) const {
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    const auto id = static_cast<size_t>(launch.buffers[i]);
    state.pointers[i] = operand_of(id, static_cast<std::byte*>(context.data[id]) + state.offsets[i]);
  }
}

void Executable::Impl::launch_gpu(const KernelLaunch& launch, LaunchState& state, RunContext& context,
                                  void* stream) const {
  set_pointers(launch, state, context);
  code[static_cast<size_t>(launch.kernel)].gpu->launch(gpu, stream, state.arguments(launch));
}

/// Bounds checks that failed in earlier runs: a run does not wait for its kernels.
void Executable::Impl::check_faults() const {
  for (size_t k = 0; k < code.size(); ++k) {
    KernelFault fault{};
    if (code[k].gpu == nullptr || plan.kernels[k].fault_sites.empty() || !code[k].gpu->take_fault(fault)) continue;
    throw LateIndexFault(fault_message(static_cast<int>(k), fault));
  }
}

/// When each input and each result of the host's operators is needed for the last time: from then on its memory may be the
/// host's again. And when each output is needed first.
void Executable::Impl::find_releases() {
  constexpr size_t kNever = SIZE_MAX;
  std::vector<size_t> last(plan.buffers.size(), kNever);
  std::vector<bool> met(plan.buffers.size(), false);
  first_uses.assign(plan.steps.size(), {});
  const auto use = [&](BufferId id, size_t step) {
    if (id < 0) return;
    const BufferHome home = plan.buffers[static_cast<size_t>(id)].home;
    if (home == BufferHome::kOutput && !met[static_cast<size_t>(id)]) {
      met[static_cast<size_t>(id)] = true;
      first_uses[step].push_back(static_cast<size_t>(plan.buffers[static_cast<size_t>(id)].index));
    }
    if (home == BufferHome::kHost || home == BufferHome::kInput) last[static_cast<size_t>(id)] = step;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i])) {
      for (const BufferId id : launch->buffers) use(id, i);
    } else {
      const auto& call = std::get<HostCall>(plan.steps[i]);
      for (const BufferRef& ref : call.tensors) use(ref.buffer, i);
      for (const BufferId id : call.results) use(id, i);
    }
  }
  for (const PlanOutput& output : plan.outputs) {
    if (output.ref.buffer >= 0) last[static_cast<size_t>(output.ref.buffer)] = kNever;
  }
  releases.assign(plan.steps.size(), {});
  last_reads.assign(plan.steps.size(), {});
  for (size_t b = 0; b < last.size(); ++b) {
    if (last[b] == kNever) continue;
    const PlanBuffer& buffer = plan.buffers[b];
    if (buffer.home == BufferHome::kHost) releases[last[b]].push_back(static_cast<BufferId>(b));
    if (buffer.home == BufferHome::kInput) last_reads[last[b]].push_back(static_cast<size_t>(buffer.index));
  }
}

void Executable::Impl::make_outputs(const std::vector<size_t>& outputs, RunContext& context) const {
  for (const size_t output : outputs) {
    void*& place = context.data[static_cast<size_t>(output_buffers[output].buffer)];
    if (place == nullptr) place = context.late_outputs->make_output(output);
  }
}

/// From here on nothing is made late.
void Executable::Impl::make_all_outputs(RunContext& context) const {
  if (context.late_outputs == nullptr) return;
  for (size_t output = 0; output < output_buffers.size(); ++output) make_outputs({output}, context);
  context.late_outputs = nullptr;
}

void Executable::Impl::release(size_t step, RunContext& context) const {
  for (const BufferId id : releases[step]) {
    context.owned[static_cast<size_t>(id)] = nullptr;
    context.original[static_cast<size_t>(id)] = nullptr;
  }
}

}  // namespace tatara
