#include "runtime/plan/buffer_lifetimes.h"

#include <cstdint>
#include <variant>

namespace tatara {

BufferLifetimes::BufferLifetimes(const Plan& plan) {
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

}  // namespace tatara
