// A plan with its code, ready to run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/abi.h"
#include "runtime/host/host.h"
#include "schedule/plan.h"
#include "support/error.h"

namespace tatara {

/// A run-time index outside its dimension; becomes IndexError in Python, as in eager.
class IndexFault : public Error {
 public:
  using Error::Error;
  std::string_view kind() const override { return "IndexError"; }
  [[noreturn]] void rethrow_at(UserLocation location) const override {
    throw IndexFault(message(), location_or(std::move(location)));
  }
};

/// The same of an earlier run: kernels on a GPU report after the fact.
class LateIndexFault : public IndexFault {
 public:
  using IndexFault::IndexFault;
};

namespace cuda {
class Kernel;
}

struct LoopPlan;  // loop_plan.h

/// Code of one kernel: a function and whatever keeps its memory alive, or a kernel of a GPU.
struct KernelCode {
  KernelFn fn = nullptr;
  std::shared_ptr<void> owner;
  std::shared_ptr<cuda::Kernel> gpu;
  explicit operator bool() const { return fn != nullptr || gpu != nullptr; }
  bool shared() const { return owner.use_count() + gpu.use_count() > 1; }
};

/// Memory and layout of an input; sizes and strides belong to the caller.
struct InputRef {
  void* data = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t rank = 0;
};

/// Sizes, strides and offset (elements) of a tensor in its buffer.
struct TensorLayout {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool operator==(const TensorLayout&) const = default;
  /// Same sizes, and same strides where they matter.
  bool fits(const InputRef& input) const;
};

/// All layouts of a plan's edges under one set of sizes.
struct EdgeLayouts {
  std::vector<TensorLayout> inputs, output_buffers, outputs;
  int64_t work = 0;  // estimated scalar operations of the kernels
};

/// What one run reads and writes. Inputs are in the order of the graph's inputs.
struct RunIo {
  /// One pointer per graph input, to its element (0, ..., 0).
  std::span<void* const> inputs;
  /// One base pointer per output buffer of the plan (see Executable::output_buffers): filled in by the caller.
  std::span<void* const> output_buffers;
  /// Set by run(): for each PlanOutput that lives in a host call's result, that tensor (null for the others).
  std::vector<HostTensor> host_outputs;
  /// Set by run(): the layout of that tensor is eager's own, other than the plan's: it is the result as it is.
  std::vector<bool> host_layout;
  /// Told when the plan needs an input no more, by its position: the caller may let go of its memory, and says whether it was
  /// the last to hold it. Not for all inputs.
  std::function<bool(size_t input)> done_with = nullptr;
  /// Gives the memory of an output buffer, which is then among output_buffers, right before the plan first needs it. Only on a
  /// GPU; null: all are there already.
  std::function<void*(size_t output_buffer)> make_output = nullptr;
  /// The host's own tensor of an input, for what a user's operator keeps; null: it is given a copy.
  std::function<HostTensor(size_t input)> tensor_of_input = nullptr;
  /// Memory matters: CUDA graphs hold little of it from call to call.
  bool lean = false;
  /// Per output buffer, if not empty: its memory is zero (see OutputBuffer::cleared).
  std::span<const uint8_t> zero = {};
  /// It is a turn of a loop: the history has the loop as one step.
  bool turn = false;
  /// Set by run(), also when it fails: it has begun to write to inputs.
  bool wrote = false;
  /// Set by run(): kernels left out, since memory was zero.
  int64_t left_out = 0;
  /// Set by run(): it went as a CUDA graph; one was recorded for it.
  bool as_graph = false, recorded = false;
};

/// Inputs that a run writes to.
struct WrittenInputs {
  std::vector<std::pair<size_t, size_t>> inputs;  // and their bytes
  bool all = false;                               // there are no others
  bool late = false;                              // the plan may stop behind its first write
};

/// Layout of memory that the caller allocates before a run.
struct OutputBuffer {
  BufferId buffer = -1;
  DType dtype = DType::kFloat32;
  Device device;
  /// A kernel sets it to zero, and most of it stays so: memory that is zero before that is touched saves time and pages.
  bool cleared = false;
};

/// Throws CompilationError where an operator of the host is not there, or takes other arguments than the plan gives it. For plans that
/// were read from a disk.
void verify_host_calls(const Plan& plan, HostOps* host);

/// Bytes of the arenas that the process keeps for runs on the CPU.
int64_t scratch_bytes();
/// Gives the system back what no run is using of it.
void release_scratch();

class Executable;

/// A plan for the CPU beside one for a GPU: its inputs are some of the other's.
struct HostPlan {
  std::shared_ptr<const Executable> executable;  // null: there is none
  std::vector<size_t> inputs;
};

/// Immutable; runs from several threads at once (each run takes a context with an arena from a small pool).
class Executable {
 public:
  /// `cuda_graphs`: for how many sets of sizes its steps become a CUDA graph.
  /// `loops`: of the steps that are loops, in their order.
  Executable(Plan plan, std::vector<KernelCode> code, HostOps* host, int64_t cuda_graphs = 8,
             std::vector<std::shared_ptr<const LoopPlan>> loops = {});
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const Plan& plan() const;
  /// Plans for the CPU that each run begins and ends with; the second does these writes to inputs. Before the first run.
  void set_host_plans(HostPlan ahead, HostPlan behind, std::vector<InputWrite> writes);
  /// Whether it looks at conditions that the program has asked for, or a plan before it does.
  bool decides() const;
  /// Of the plan, and of the one behind it.
  const std::vector<InputWrite>& input_writes() const;
  /// Number of this executable in this process, by which events of runtime/base/history.h name it.
  int64_t id() const;
  /// How the steps of a plan for a GPU are launched, and why; empty for a CPU's.
  std::string launches() const;
  /// The buffers with home kOutput, in order of their index.
  const std::vector<OutputBuffer>& output_buffers() const;
  /// Whether a run moves the host's generator on, and whether it may fail for other reasons.
  bool draws() const;
  /// Whether it calls an operator of the user or a library.
  bool calls_users() const;
  bool may_fail() const;
  /// What a run writes to, where it may fail after it has begun to: for the caller to keep. Nothing where that is more than
  /// `most_bytes`.
  void written_inputs(std::span<const int64_t> symbol_values, size_t most_bytes, WrittenInputs& out) const;

  /// Values of the size symbols from the inputs' sizes and strides. False when an input's rank contradicts the plan.
  bool bind_symbols(std::span<const InputRef> inputs, std::vector<int64_t>& symbol_values) const;
  void edge_layouts(std::span<const int64_t> symbol_values, EdgeLayouts& out) const;
  /// Runs all steps. Needs no GIL. Throws tatara::Error (an index fault names value, size and user line).
  void run(RunIo& io, std::span<const int64_t> symbol_values) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tatara
