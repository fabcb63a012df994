#include "runtime/plan/aligned_inputs.h"

#include <algorithm>

#include "runtime/cuda/copy_list.h"

namespace tatara {

AlignedInputs::AlignedInputs(const PlanPrograms& programs, HostOps& host, RunContext& context, RunIo& io, void* stream)
    : programs_(programs), host_(host), io_(io), stream_(stream), given_(io.inputs) {
  cuda::CopyList copies;
  for (const auto& [buffer, input] : programs.from_inputs) {
    if (aligned_for_gpu(given_[input]) || programs.plan.buffers[buffer].device.kind != DeviceKind::kCuda) continue;
    const size_t bytes = programs.buffer_bytes(buffer, context.symbols);
    if (bytes == 0) continue;
    copies_.push_back({input, bytes, host.allocate(static_cast<int64_t>(bytes), programs.device())});
    if (inputs_.empty()) inputs_.assign(given_.begin(), given_.end());
    inputs_[input] = context.data[buffer] = host.view(copies_.back().memory).data;
    copies.add(inputs_[input], given_[input], bytes);
  }
  if (copies_.empty()) return;
  io_.inputs = inputs_;
  copies.run(programs.gpu, stream);
}

void AlignedInputs::copy_back() {
  if (copies_.empty()) return;
  cuda::CopyList copies;
  for (const Copy& copy : copies_) {
    const std::vector<InputWrite>& writes = programs_.plan.input_writes;
    const bool written = std::any_of(writes.begin(), writes.end(), [&](const InputWrite& write) {
      return static_cast<size_t>(write.input_index) == copy.input;
    });
    if (written) copies.add(given_[copy.input], host_.view(copy.memory).data, copy.bytes);
  }
  copies.run(programs_.gpu, stream_);
}

}  // namespace tatara
