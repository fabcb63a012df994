#include "runtime/plan/step_runner.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/base/thread_pool.h"
#include "runtime/plan/aligned_inputs.h"
#include "runtime/plan/loop_plan.h"
#include "support/error.h"

namespace tatara {
namespace {

struct LaunchTask {
  KernelFn fn;
  void* const* buffers;
  const int64_t* sizes;
  std::atomic<bool> faulted{false};
  KernelFault fault{};
};

void run_chunk(void* data, int64_t begin, int64_t end) {
  auto& task = *static_cast<LaunchTask*>(data);
  KernelFault fault{};
  if (task.fn(task.buffers, task.sizes, nullptr, begin, end, &fault) != 0 && !task.faulted.exchange(true)) {
    task.fault = fault;
  }
}

/// A copy of `tensor` with the strides that the plan's kernels expect, and all its values in memory.
HostTensor relaid(HostOps& host, const HostTensor& tensor, const std::vector<int64_t>& sizes,
                  const std::vector<int64_t>& strides) {
  const HostOp* make = host.find("aten::new_empty_strided", "");
  const HostOp* copy = host.find("aten::copy_", "");
  if (make == nullptr || copy == nullptr) throw Unsupported("the host has no operators to copy a tensor");
  const auto tensor_value = [](const HostTensor& t) {
    HostValue value;
    value.kind = HostValue::Kind::kTensor;
    value.tensor = t;
    return value;
  };
  const auto list_value = [](const std::vector<int64_t>& list) {
    HostValue value;
    value.kind = HostValue::Kind::kIntList;
    value.integers = list;
    return value;
  };
  HostValue flag;
  flag.kind = HostValue::Kind::kBool;
  const HostValue none;
  const std::vector<HostValue> layout{
      tensor_value(tensor), list_value(sizes), list_value(strides), none, none, none, none};
  const HostTensor result = make->call(layout).at(0);
  copy->call(std::vector<HostValue>{tensor_value(result), tensor_value(tensor), flag});
  return result;
}

}  // namespace

StepRunner::StepRunner(const PlanPrograms& programs, std::vector<KernelCode> code, HostOps* host)
    : programs_(programs), code_(std::move(code)), host_(host), lifetimes_(programs.plan) {
  if (programs_.gpu < 0) return;
  if (host_ == nullptr) throw Unsupported("a plan for a GPU needs the host's allocator");
  const cuda::Session session(programs_.gpu);
  for (const KernelCode& kernel : code_) {
    if (kernel.gpu != nullptr) kernel.gpu->load(programs_.gpu);
  }
}

// ---- Steps -----------------------------------------------------------------------------------------------------------

void StepRunner::run_all(RunContext& context, RunIo& io) const {
  for (size_t i = 0; i < programs_.plan.steps.size(); ++i) {
    if (programs_.gpu < 0) context.begun = i + 1;
    run(i, context);
    if (!io.done_with) continue;
    for (const size_t input : lifetimes_.last_reads[i]) io.done_with(input);
  }
}

void StepRunner::run(size_t step, RunContext& context) const {
  if (context.late_outputs != nullptr) make_outputs(lifetimes_.first_uses[step], context);
  execute(step, context);
  release(step, context);
}

void StepRunner::execute(size_t step, RunContext& context) const {
  if (context.is_needless(step)) return;
  if (const auto* kernel = std::get_if<KernelLaunch>(&programs_.plan.steps[step])) {
    launch(*kernel, context.launches[step], context);
  } else {
    call_host(std::get<HostCall>(programs_.plan.steps[step]), programs_.steps[step], context.hosts[step], context);
  }
}

void StepRunner::launch(const KernelLaunch& launch, LaunchState& state, RunContext& context) const {
  if (state.iterations <= 0) return;
  if (programs_.gpu >= 0) {
    set_pointers(launch, state, context);
    kernel_of(launch).launch(programs_.gpu, context.stream, state.arguments(launch));
    return;
  }
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    state.pointers[i] =
        static_cast<std::byte*>(context.data[static_cast<size_t>(launch.buffers[i])]) + state.offsets[i];
  }
  LaunchTask task{code_[static_cast<size_t>(launch.kernel)].fn, state.pointers.data(), state.sizes.data()};
  if (state.grain >= state.iterations) {
    run_chunk(&task, 0, state.iterations);
  } else {
    parallel_for(0, state.iterations, state.grain, run_chunk, &task);
  }
  if (task.faulted.load()) throw IndexFault(programs_.fault_message(static_cast<size_t>(launch.kernel), task.fault));
}

namespace {

/// Of a contiguous tensor; -1: it is none.
int64_t contiguous_bytes(const TensorView& view) {
  int64_t items = 1;
  for (size_t d = view.sizes.size(); d-- > 0;) {
    if (view.sizes[d] != 1 && view.strides[d] != items) return -1;
    items *= view.sizes[d];
  }
  return items * dtype_size(view.dtype);
}

}  // namespace

/// Tensors of a list that lie side by side become parts of one tensor. So cuDNN finds the weights of a recurrent layer where it wants
/// them, and need not copy them in each call.
void StepRunner::wrap_together(const HostCall::TensorListSlot& list, HostState& state,
                               const RunContext& context) const {
  constexpr int64_t kMostBesides = 4;  // the gaps may be a quarter of the tensors
  if (list.indices.size() < 2) return;
  std::byte *first = nullptr, *last = nullptr;
  int64_t bytes = 0;
  bool known = true;
  const auto data_of = [&](const TensorOperand& operand) {
    return static_cast<std::byte*>(context.data[static_cast<size_t>(operand.buffer)]) + operand.offset;
  };
  for (const int index : list.indices) {
    if (index < 0) return;
    const TensorOperand& operand = state.tensors[static_cast<size_t>(index)];
    const TensorOperand& other = state.tensors[static_cast<size_t>(list.indices[0])];
    if (operand.view.dtype != other.view.dtype || !(operand.view.device == other.view.device)) return;
    std::byte* const data = data_of(operand);
    const int64_t own = contiguous_bytes(operand.view);
    if (own < 0) return;
    known = known && operand.tensor != nullptr && operand.tensor_data == data;
    first = first == nullptr ? data : std::min(first, data);
    last = std::max(last, data + own);
    bytes += own;
  }
  const int64_t item = dtype_size(state.tensors[static_cast<size_t>(list.indices[0])].view.dtype);
  if (known || last - first > bytes + bytes / kMostBesides || (last - first) % item != 0) return;
  TensorView all = state.tensors[static_cast<size_t>(list.indices[0])].view;
  all.data = first;
  all.sizes = {(last - first) / item};
  all.strides = {1};
  const HostTensor whole = host_->wrap(all);
  for (const int index : list.indices) {
    TensorOperand& operand = state.tensors[static_cast<size_t>(index)];
    operand.view.data = operand.tensor_data = data_of(operand);
    operand.tensor = host_->wrap_part(whole, operand.view, (data_of(operand) - first) / item);
  }
}

/// What a user's operator is given it may keep: tensors of the program themselves, and copies of what the plan writes over.
HostTensor StepRunner::lasting(const TensorOperand& operand, const RunContext& context) const {
  const auto buffer = static_cast<size_t>(operand.buffer);
  const PlanBuffer& info = programs_.plan.buffers[buffer];
  HostTensor whole;
  if (info.home == BufferHome::kHost) whole = context.owned[buffer];
  if (info.home == BufferHome::kInput && context.io->tensor_of_input) {
    whole = context.io->tensor_of_input(static_cast<size_t>(info.index));
  }
  if (whole != nullptr) {
    const TensorView view = host_->view(whole);
    const auto* begin = static_cast<const std::byte*>(view.data);
    const auto* own = static_cast<const std::byte*>(operand.view.data);
    const auto span = static_cast<std::ptrdiff_t>(span_of(view.sizes, view.strides, view.dtype));
    const bool same = view.data == operand.view.data && view.sizes == operand.view.sizes &&
                      view.strides == operand.view.strides && view.dtype == operand.view.dtype;
    if (same && !view.lazy) return whole;
    if (!view.lazy && view.dtype == operand.view.dtype && own >= begin && own < begin + span) {
      return host_->wrap_part(whole, operand.view, (own - begin) / dtype_size(view.dtype));
    }
  }
  return relaid(*host_, host_->wrap(operand.view), operand.view.sizes, operand.view.strides);
}

void StepRunner::fill_tensors(const HostCall& call, bool keeps, HostState& state, const RunContext& context) const {
  for (const HostCall::HostArg& arg : call.args) {
    const auto* list = programs_.gpu < 0 ? nullptr : std::get_if<HostCall::TensorListSlot>(&arg);
    if (list != nullptr) wrap_together(*list, state, context);
  }
  for (TensorOperand& operand : state.tensors) {
    void* data = static_cast<std::byte*>(context.data[static_cast<size_t>(operand.buffer)]) + operand.offset;
    if (keeps) {
      operand.view.data = data;
      operand.tensor = lasting(operand, context);
      operand.tensor_data = nullptr;
    } else if (operand.tensor == nullptr || operand.tensor_data != data) {
      operand.view.data = data;
      operand.tensor = host_->wrap(operand.view);
      operand.tensor_data = data;
    }
  }
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (const auto* slot = std::get_if<HostCall::TensorSlot>(&call.args[i])) {
      if (slot->index >= 0) state.values[i].tensor = state.tensors[static_cast<size_t>(slot->index)].tensor;
    } else if (const auto* out = std::get_if<HostCall::OutSlot>(&call.args[i])) {
      state.values[i].tensor = state.tensors[static_cast<size_t>(out->index)].tensor;
    } else if (const auto* number = std::get_if<HostCall::NumberSlot>(&call.args[i])) {
      std::memcpy(&state.values[i].number, state.tensors[static_cast<size_t>(number->index)].view.data, sizeof(double));
    } else if (const auto* list = std::get_if<HostCall::TensorListSlot>(&call.args[i])) {
      state.values[i].tensors.clear();
      for (const int index : list->indices) {
        state.values[i].tensors.push_back(index < 0 ? nullptr : state.tensors[static_cast<size_t>(index)].tensor);
      }
    }
  }
}

/// A user's operator may give what its schema denies: memory of an operand, which is somebody else's soon.
void StepRunner::check_own_memory(const HostCall& call, const HostState& state, const TensorView& result) const {
  const auto* begin = static_cast<const std::byte*>(result.data);
  const auto bytes_of = [](const TensorView& view) {
    return static_cast<std::ptrdiff_t>(span_of(view.sizes, view.strides, view.dtype));
  };
  for (const TensorOperand& operand : state.tensors) {
    const auto* other = static_cast<const std::byte*>(host_->view(operand.tensor).data);
    if (begin < other + bytes_of(operand.view) && other < begin + bytes_of(result)) {
      throw BrokenSchema(call.op, "memory of an operand");
    }
  }
}

namespace {

std::span<std::byte> memory_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data), static_cast<size_t>(span_of(view.sizes, view.strides, view.dtype))};
}

}  // namespace

/// A user's operator may write to what its schema says it only reads. Looked at once, in memory that this process can read; what it
/// wrote is taken back.
std::vector<HostTensor> StepRunner::call_once_watched(const HostCall& call, const StepPrograms& step,
                                                      HostState& state) const {
  std::vector<std::vector<std::byte>> before;
  for (const TensorOperand& operand : state.tensors) {
    const std::span<std::byte> memory = memory_of(host_->view(operand.tensor));
    before.emplace_back(memory.begin(), memory.end());
  }
  std::vector<HostTensor> results = step.op->call(state.values);
  bool written = false;
  for (size_t i = 0; i < before.size(); ++i) {
    const std::span<std::byte> memory = memory_of(host_->view(state.tensors[i].tensor));
    if (memory.size() != before[i].size() || std::equal(memory.begin(), memory.end(), before[i].begin())) continue;
    std::copy(before[i].begin(), before[i].end(), memory.begin());
    written = true;
  }
  if (written) throw BrokenSchema(call.op, "with its operands written to");
  return results;
}

/// Waits for the stream. A condition that falls otherwise than in the trace ends the run before it has written to anything.
void StepRunner::await_condition(const HostState& state, RunContext& context) const {
  const TensorOperand& fault = state.tensors.at(0);
  const auto* at = static_cast<const std::byte*>(context.data[static_cast<size_t>(fault.buffer)]) + fault.offset;
  bool otherwise = false;
  cuda::download(&otherwise, at, sizeof(otherwise), context.stream);
  if (!otherwise) return;
  drop_faults();      // of what the program would not have come to
  context.begun = 0;  // all that writes waits for this
  throw Unsupported("a condition falls otherwise than in the trace");
}

void StepRunner::call_host(const HostCall& call, const StepPrograms& step, HostState& state,
                           RunContext& context) const {
  if (step.loop != nullptr) {
    run_loop(*step.loop, call, state, context, *host_);
    return;
  }
  if (awaits_condition(call)) {
    await_condition(state, context);
    return;
  }
  if (step.op == nullptr) {
    run_table(call, state, context);
    return;
  }
  fill_tensors(call, step.keeps, state, context);
  const bool watched = step.users && programs_.gpu < 0 && !std::exchange(state.looked, true);
  std::vector<HostTensor> results = watched ? call_once_watched(call, step, state) : step.op->call(state.values);
  if (results.size() < call.results.size()) throw InternalError("host operator " + call.op + " returned too little");
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (call.results[i] < 0) continue;
    if (step.users) check_own_memory(call, state, host_->view(results[i]));
    keep_result(call, step.users, static_cast<size_t>(call.results[i]), std::move(results[i]), context);
  }
  if (!step.keeps) return;
  for (TensorOperand& operand : state.tensors) operand.tensor = nullptr;
  for (HostValue& value : state.values) {
    value.tensor = nullptr;
    value.tensors.clear();
  }
}

void StepRunner::keep_result(const HostCall& call, bool users, size_t buffer, HostTensor result,
                             RunContext& context) const {
  const TensorView view = host_->view(result);
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  values_of(programs_.buffer_layouts[buffer].sizes, context.symbols, sizes);
  values_of(programs_.buffer_layouts[buffer].strides, context.symbols, strides);
  bool same = !view.lazy && view.sizes == sizes && view.dtype == programs_.plan.buffers[buffer].dtype;
  for (size_t d = 0; same && d < sizes.size(); ++d) same = sizes[d] <= 1 || view.strides[d] == strides[d];
  if (users && !same) throw BrokenSchema(call.op, "another type or layout than its kernel for tensors without data");
  // Kernels on a GPU read whole vectors.
  if (programs_.gpu >= 0) same = same && aligned_for_gpu(view.data);
  if (!same) {
    if (view.sizes != sizes || view.dtype != programs_.plan.buffers[buffer].dtype) {
      if (calls_users_code(call.op)) {
        throw BrokenSchema(std::string(without_transforms(call.op)),
                           "another type than its kernel for tensors without data");
      }
      throw InternalError("host operator " + call.op + " returned another type than was inferred");
    }
    context.original[buffer] = result;
    result = relaid(*host_, result, sizes, strides);
  }
  context.owned[buffer] = std::move(result);
  context.data[buffer] = host_->view(context.owned[buffer]).data;
}

// ---- Memory ----------------------------------------------------------------------------------------------------------

void StepRunner::release(size_t step, RunContext& context) const {
  for (const BufferId id : lifetimes_.releases[step]) {
    context.owned[static_cast<size_t>(id)] = nullptr;
    context.original[static_cast<size_t>(id)] = nullptr;
  }
}

void StepRunner::make_outputs(const std::vector<size_t>& outputs, RunContext& context) const {
  for (const size_t output : outputs) {
    void*& place = context.data[static_cast<size_t>(programs_.output_buffers[output].buffer)];
    if (place == nullptr) place = context.late_outputs->make_output(output);
  }
}

void StepRunner::make_all_outputs(RunContext& context) const {
  if (context.late_outputs == nullptr) return;
  for (size_t output = 0; output < programs_.output_buffers.size(); ++output) make_outputs({output}, context);
  context.late_outputs = nullptr;
}

void GpuConstants::place(const PlanPrograms& programs, HostOps& host, RunContext& context, void* stream) const {
  const Plan& plan = programs.plan;
  std::call_once(once_, [&] {
    std::vector<uint8_t> bytes;
    for (const PlanBuffer& buffer : plan.buffers) {
      if (buffer.home != BufferHome::kConstant) continue;
      bytes.insert(bytes.end(), buffer.constant.begin(), buffer.constant.end());
      bytes.resize((bytes.size() + 63) / 64 * 64);
    }
    if (bytes.empty()) return;
    memory_ = host.allocate(static_cast<int64_t>(bytes.size()), programs.device());
    cuda::upload(host.view(memory_).data, bytes.data(), bytes.size(), stream);
  });
  if (memory_ == nullptr) return;
  auto* at = static_cast<std::byte*>(host.view(memory_).data);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].home != BufferHome::kConstant) continue;
    context.data[i] = at;
    at += (plan.buffers[i].constant.size() + 63) / 64 * 64;
  }
}

void StepRunner::prepare_gpu(RunContext& context, void* stream) const {
  if (context.arena_bytes > 0) {
    context.gpu_arena = host_->allocate(context.arena_bytes, programs_.device());
    context.place_arena(static_cast<std::byte*>(host_->view(context.gpu_arena).data));
  }
  place_constants(context, stream);
  context.stream = stream;
}

// ---- Launches on a GPU -----------------------------------------------------------------------------------------------

void* StepRunner::operand_of(size_t buffer, void* place) const {
  static_assert(sizeof(void*) == sizeof(uint64_t));
  const PlanBuffer& info = programs_.plan.buffers[buffer];
  if (info.home != BufferHome::kInput || info.device.kind != DeviceKind::kCpu || place == nullptr) return place;
  void* word = nullptr;
  std::memcpy(&word, place, static_cast<size_t>(dtype_size(info.dtype)));
  return word;
}

void StepRunner::set_pointers(const KernelLaunch& launch, LaunchState& state, const RunContext& context) const {
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    const auto id = static_cast<size_t>(launch.buffers[i]);
    state.pointers[i] = operand_of(id, static_cast<std::byte*>(context.data[id]) + state.offsets[i]);
  }
}

void StepRunner::check_faults() const {
  for (size_t k = 0; k < code_.size(); ++k) {
    KernelFault fault{};
    if (code_[k].gpu == nullptr || programs_.plan.kernels[k].fault_sites.empty() || !code_[k].gpu->take_fault(fault))
      continue;
    throw LateIndexFault(programs_.fault_message(k, fault));
  }
}

void StepRunner::drop_faults() const {
  KernelFault fault{};
  for (const KernelCode& code : code_) {
    if (code.gpu != nullptr) static_cast<void>(code.gpu->take_fault(fault));
  }
}

}  // namespace tatara
