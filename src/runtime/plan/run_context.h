// What one run of a plan works on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/arena.h"
#include "runtime/cuda/cuda.h"
#include "runtime/plan/executable.h"
#include "support/fork.h"

namespace tatara {

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
    return {blocks,     launch.gpu_threads, launch.gpu_shared, pointers,   sizes,
            iterations, launch.list_items,  item_blocks,       launch.maps};
  }
};

struct HostState {
  std::vector<HostValue> values;
  std::vector<TensorOperand> tensors;
  bool looked = false;             // whether a user's operator writes to its operands, which its schema denies
  std::vector<std::byte> scratch;  // of a loop: carried values of two turns
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
  const RunIo* io = nullptr;          // of the run
  std::vector<void*> data;            // per buffer
  std::vector<HostTensor> owned;      // per buffer: results of host calls
  std::vector<HostTensor> original;   // per buffer: as the host laid such a result out, when the plan does otherwise
  std::vector<uint8_t> needless;      // per step: the memory that the kernel would clear is zero; empty: none is
  std::vector<LaunchState> launches;  // per step
  std::vector<HostState> hosts;       // per step
  size_t begun = 0;                   // how many steps the run has begun

  bool is_needless(size_t step) const { return !needless.empty() && needless[step] != 0; }
  bool suits(std::span<const int64_t> values) const;
  void place_arena(std::byte* base);
  void drop_results();
};

/// Contexts that no run is using: one without a lock, the rest behind it.
class ContextPool {
 public:
  /// `kept`: contexts for other sizes, before one of them is resolved again. 0: the one at hand always is.
  explicit ContextPool(size_t kept) : kept_(kept) {}
  ~ContextPool() { delete spare_.load(); }
  ContextPool(const ContextPool&) = delete;
  ContextPool& operator=(const ContextPool&) = delete;

  /// One for these sizes where there is one; else any, or a new one.
  std::unique_ptr<RunContext> take(std::span<const int64_t> symbols);
  void give_back(std::unique_ptr<RunContext> context);

 private:
  size_t kept_;
  std::atomic<RunContext*> spare_{nullptr};
  ForkSafeMutex mutex_;
  std::vector<std::unique_ptr<RunContext>> rest_;
};

}  // namespace tatara
