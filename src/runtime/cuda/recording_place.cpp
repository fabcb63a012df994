#include "runtime/cuda/recording_place.h"

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_graph.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/log.h"
#include "support/made_once.h"

namespace tatara {
namespace {

struct PlacePool {
  ForkSafeMutex mutex;
  std::vector<std::unique_ptr<RecordingPlace>> free;
};

PlacePool& places() { return made_once<PlacePool>(); }

HostValue value_of_tensor(HostTensor tensor) {
  HostValue value;
  value.kind = HostValue::Kind::kTensor;
  value.tensor = std::move(tensor);
  return value;
}

}  // namespace

std::unique_ptr<RecordingPlace> take_place(HostOps& host, int device) {
  {
    PlacePool& pool = places();
    const std::lock_guard lock(pool.mutex);
    for (auto it = pool.free.begin(); it != pool.free.end(); ++it) {
      if ((*it)->device != device) continue;
      std::unique_ptr<RecordingPlace> place = std::move(*it);
      pool.free.erase(it);
      return place;
    }
  }
  auto place = std::make_unique<RecordingPlace>();
  place->device = device;
  place->stream = cuda::new_stream();
  place->workspaces = host.make_pool(device);
  return place;
}

void give_back_place(std::unique_ptr<RecordingPlace> place) {
  PlacePool& all = places();
  const std::lock_guard lock(all.mutex);
  all.free.push_back(std::move(place));
}

PoolScope::~PoolScope() {
  try {
    pool_.end();
  } catch (const Error& error) {
    TATARA_LOG(kRuntime, "a memory pool stays open: ", error.what());
  }
}

void make_workspaces(HostOps& host, RecordingPlace& place) {
  const HostOp* mm = host.find("aten::mm", "out");
  const HostOp* addmm = host.find("aten::addmm", "out");
  if (mm == nullptr || addmm == nullptr) throw Unsupported("the host has no matrix products");
  const PoolScope scope(*place.workspaces);
  const std::shared_ptr<void> guard = host.on_stream(place.stream, place.device);
  TensorView square;
  square.dtype = DType::kFloat16;
  square.device = {DeviceKind::kCuda, static_cast<int16_t>(place.device)};
  square.sizes = {32, 32};
  square.strides = {32, 1};
  TensorView row = square;
  row.sizes = {32};
  row.strides = {1};
  const HostValue a = value_of_tensor(host.empty_like(square));
  const HostValue b = value_of_tensor(host.empty_like(square));
  const HostValue out = value_of_tensor(host.empty_like(square));
  HostValue one;
  one.kind = HostValue::Kind::kInt;
  one.integer = 1;
  mm->call(std::vector<HostValue>{a, b, out});
  addmm->call(std::vector<HostValue>{value_of_tensor(host.empty_like(row)), a, b, one, one, out});
}

}  // namespace tatara
