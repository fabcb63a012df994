#include "runtime/plan/executable.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/thread_pool.h"
#include "runtime/plan/executable_internal.h"

namespace tatara {
namespace {

// Scalar operations below which another thread costs more than it gives (about 10 us of work).
constexpr int64_t kWorkPerChunk = 32768;
constexpr uintptr_t kGpuAlignment = 16;
constexpr size_t kContextsKept = 16;  // for different sizes, on a GPU

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

}  // namespace

void Executable::Impl::find_bindings() {
  bindings.resize(plan.size_symbols.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const TensorType& type = plan.inputs[i].type;
    input_layouts.push_back({programs(type.sizes), programs(type.strides), {}});
    const auto bind = [&](const std::vector<Expr>& list, bool stride) {
      for (size_t d = 0; d < list.size(); ++d) {
        for (size_t s = 0; s < plan.size_symbols.size(); ++s) {
          if (list[d] == plan.size_symbols[s] && bindings[s].input < 0) {
            bindings[s] = {static_cast<int>(i), static_cast<int>(d), stride};
          }
        }
      }
    };
    bind(type.sizes, false);
    bind(type.strides, true);
  }
  for (size_t s = 0; s < bindings.size(); ++s) {
    if (bindings[s].input < 0) {
      throw Unsupported("size " + plan.size_symbols[s].str() + " is not a size or stride of an input");
    }
  }
}

void Executable::Impl::prepare_step(const PlanStep& step) {
  StepPrograms prepared;
  if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
    prepared.sizes = programs(launch->sizes);
    prepared.buffer_offsets = programs(launch->buffer_offsets);
    prepared.iterations = program(launch->parallel_iterations, 1);
    prepared.work = program(launch->work, 1);
    prepared.blocks = program(launch->gpu_blocks);
    prepared.item_blocks = programs(launch->item_blocks);
  } else {
    const auto& call = std::get<HostCall>(step);
    has_host_calls = true;
    if (host == nullptr) throw Unsupported("operator " + call.op + " needs the host's kernels, which are not there");
    prepared.op = host->find(call.op, call.overload);
    if (prepared.op == nullptr) throw Unsupported("the host has no operator " + call.op + "." + call.overload);
    for (const BufferRef& ref : call.tensors) {
      prepared.tensors.push_back({programs(ref.sizes), programs(ref.strides), program(ref.offset)});
    }
    for (const HostCall::HostArg& arg : call.args) {
      std::vector<ExprProgram> ints;
      if (const auto* list = std::get_if<SymInts>(&arg)) {
        ints = programs(list->values);
      } else if (const auto* scalar = std::get_if<Scalar>(&arg)) {
        if (const auto* expr = std::get_if<Expr>(scalar)) ints = programs({*expr});
      }
      prepared.ints.push_back(std::move(ints));
    }
  }
  steps.push_back(std::move(prepared));
}

void Executable::Impl::prepare() {
  for (const PlanBuffer& buffer : plan.buffers) {
    buffer_layouts.push_back({programs(buffer.sizes), programs(buffer.strides), program(buffer.offset)});
  }
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& buffer = plan.buffers[i];
    if (buffer.home == BufferHome::kInput) from_inputs.emplace_back(i, static_cast<size_t>(buffer.index));
    if (buffer.home != BufferHome::kOutput) continue;
    const auto slot = static_cast<size_t>(buffer.index);
    if (output_buffers.size() <= slot) output_buffers.resize(slot + 1);
    output_buffers[slot] = {static_cast<BufferId>(i), buffer.dtype, buffer.device, false};
  }
  for (const PlanOutput& output : plan.outputs) {
    output_layouts.push_back({programs(output.ref.sizes), programs(output.ref.strides), program(output.ref.offset)});
  }
  arena_bytes = program(plan.arena_bytes);
  find_bindings();
  for (const PlanStep& step : plan.steps) prepare_step(step);
  find_device();
  find_clearing();
  find_failures();
}

void Executable::Impl::find_clearing() {
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i]);
    if (launch == nullptr || !launch->clears) continue;
    const auto slot = static_cast<size_t>(plan.buffers[static_cast<size_t>(launch->buffers.at(0))].index);
    clearing.emplace_back(i, slot);
    output_buffers[slot].cleared = true;
  }
}

void Executable::Impl::leave_out_clearing(RunContext& context, RunIo& io) const {
  context.needless.clear();
  for (const auto& [step, buffer] : clearing) {
    if (buffer >= io.zero.size() || io.zero[buffer] == 0) continue;
    context.needless.resize(plan.steps.size());
    context.needless[step] = 1;
    ++io.left_out;
  }
}

namespace {

/// Of operators that draw random numbers: whether they do so whatever their operands hold.
bool always_draws(const HostCall& call) {
  static constexpr std::string_view kAlways[] = {"aten::rand",         "aten::randn",         "aten::randint",
                                                 "aten::randperm",     "aten::rand_like",     "aten::randn_like",
                                                 "aten::randint_like", "aten::native_dropout"};
  return std::find(std::begin(kAlways), std::end(kAlways), call.op) != std::end(kAlways) ||
         call.op.rfind("tatara::", 0) == 0;
}

}  // namespace

void Executable::Impl::find_failures() {
  const auto draws = [](const PlanStep& step) {
    const auto* call = std::get_if<HostCall>(&step);
    return call != nullptr && random_operators().contains(call->op);
  };
  const auto may_fail = [&](const PlanStep& step) {
    const auto* launch = std::get_if<KernelLaunch>(&step);
    if (launch == nullptr) return !draws(step) || !always_draws(std::get<HostCall>(step));
    return !plan.kernels[static_cast<size_t>(launch->kernel)].fault_sites.empty();
  };
  draws_numbers = std::any_of(plan.steps.begin(), plan.steps.end(), draws);
  fails = std::any_of(plan.steps.begin(), plan.steps.end(), may_fail);
  if (plan.first_write < 0) return;
  fails_late = gpu < 0 && std::any_of(plan.steps.begin() + plan.first_write, plan.steps.end(), may_fail);
}

void Executable::Impl::resolve_host(const HostCall& call, const StepPrograms& step, HostState& state,
                                    std::span<const int64_t> symbols) const {
  state.tensors.assign(call.tensors.size(), {});
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    TensorOperand& operand = state.tensors[i];
    const BufferRef& ref = call.tensors[i];
    values_of(step.tensors[i].sizes, symbols, operand.view.sizes);
    values_of(step.tensors[i].strides, symbols, operand.view.strides);
    operand.view.dtype = ref.dtype;
    operand.view.device = plan.buffers[static_cast<size_t>(ref.buffer)].device;
    operand.offset = value_of(step.tensors[i].offset, symbols) * dtype_size(ref.dtype);
    operand.buffer = ref.buffer;
  }
  state.values.assign(call.args.size(), {});
  for (size_t i = 0; i < call.args.size(); ++i) {
    HostValue& value = state.values[i];
    const HostCall::HostArg& arg = call.args[i];
    using Kind = HostValue::Kind;
    if (const auto* scalar = std::get_if<Scalar>(&arg)) {
      if (const auto* b = std::get_if<bool>(scalar)) {
        value.kind = Kind::kBool;
        value.integer = *b ? 1 : 0;
      } else if (const auto* n = std::get_if<int64_t>(scalar)) {
        value.kind = Kind::kInt;
        value.integer = *n;
      } else if (const auto* d = std::get_if<double>(scalar)) {
        value.kind = Kind::kDouble;
        value.number = *d;
      } else if (const auto* c = std::get_if<std::complex<double>>(scalar)) {
        value.kind = Kind::kComplex;
        value.number = c->real();
        value.imag = c->imag();
      } else {
        value.kind = Kind::kInt;
        value.integer = value_of(step.ints[i].front(), symbols);
      }
    } else if (std::holds_alternative<SymInts>(arg)) {
      value.kind = Kind::kIntList;
      values_of(step.ints[i], symbols, value.integers);
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      value.kind = Kind::kDType;
      value.dtype = *dtype;
    } else if (const auto* device = std::get_if<Device>(&arg)) {
      value.kind = Kind::kDevice;
      value.device = *device;
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      value.kind = Kind::kString;
      value.text = *text;
    } else if (const auto* bools = std::get_if<std::vector<bool>>(&arg)) {
      value.kind = Kind::kBoolList;
      for (const bool b : *bools) value.integers.push_back(b ? 1 : 0);
    } else if (const auto* doubles = std::get_if<std::vector<double>>(&arg)) {
      value.kind = Kind::kDoubleList;
      value.numbers = *doubles;
    } else if (const auto* slot = std::get_if<HostCall::TensorSlot>(&arg)) {
      value.kind = slot->index < 0 ? Kind::kNone : Kind::kTensor;
    } else if (std::holds_alternative<HostCall::OutSlot>(arg)) {
      value.kind = Kind::kTensor;
    } else if (std::holds_alternative<HostCall::TensorListSlot>(arg)) {
      value.kind = Kind::kTensorList;
    }
  }
}

void Executable::Impl::resolve(RunContext& context, std::span<const int64_t> symbols) const {
  context.symbols.assign(symbols.begin(), symbols.end());
  context.arena_bytes = std::max<int64_t>(value_of(arena_bytes, symbols), 0);
  if (gpu < 0) context.arena.resize(static_cast<size_t>(context.arena_bytes));
  context.arena_offsets.clear();
  context.data.assign(plan.buffers.size(), nullptr);
  context.owned.assign(plan.buffers.size(), nullptr);
  context.original.assign(plan.buffers.size(), nullptr);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& buffer = plan.buffers[i];
    if (buffer.home == BufferHome::kArena) {
      context.arena_offsets.emplace_back(i, value_of(buffer_layouts[i].offset, symbols));
    }
    if (buffer.home == BufferHome::kConstant) context.data[i] = const_cast<uint8_t*>(buffer.constant.data());
  }
  context.launches.assign(plan.steps.size(), {});
  context.hosts.assign(plan.steps.size(), {});
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i])) {
      LaunchState& state = context.launches[i];
      values_of(steps[i].sizes, symbols, state.sizes);
      state.pointers.resize(launch->buffers.size());
      state.offsets.assign(launch->buffers.size(), 0);
      for (size_t b = 0; b < steps[i].buffer_offsets.size(); ++b) {
        const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(launch->buffers[b])];
        state.offsets[b] = value_of(steps[i].buffer_offsets[b], symbols) * dtype_size(buffer.dtype);
      }
      state.iterations = value_of(steps[i].iterations, symbols);
      const int64_t work = std::max<int64_t>(value_of(steps[i].work, symbols), 1);
      const int64_t chunks = std::max<int64_t>(1, work / kWorkPerChunk);
      state.grain = std::max<int64_t>(1, (state.iterations + chunks - 1) / chunks);
      state.blocks = value_of(steps[i].blocks, symbols);
      values_of(steps[i].item_blocks, symbols, state.item_blocks);
    } else {
      resolve_host(std::get<HostCall>(plan.steps[i]), steps[i], context.hosts[i], symbols);
    }
  }
  if (gpu < 0 && !context.arena.is_shared()) place_arena(context, context.arena.enter());
  context.resolved = true;
}

std::unique_ptr<RunContext> Executable::Impl::take_context(std::span<const int64_t> symbols) const {
  const auto suits = [&](const RunContext& c) {
    return c.resolved && std::equal(symbols.begin(), symbols.end(), c.symbols.begin(), c.symbols.end());
  };
  std::unique_ptr<RunContext> context(spare.exchange(nullptr, std::memory_order_acq_rel));
  if (context == nullptr || (gpu >= 0 && !suits(*context))) {
    const std::lock_guard lock(pool_mutex);
    // On a GPU contexts are small, and a few for different sizes cost less than to resolve them again.
    if (context != nullptr) pool.push_back(std::move(context));
    auto found = std::find_if(pool.begin(), pool.end(), [&](const auto& c) { return suits(*c); });
    if (found == pool.end() && (gpu < 0 || pool.size() >= kContextsKept)) found = pool.begin();
    if (found != pool.end()) {
      context = std::move(*found);
      pool.erase(found);
    }
  }
  if (context == nullptr) context = std::make_unique<RunContext>();
  if (!suits(*context)) resolve(*context, symbols);
  return context;
}

void Executable::Impl::give_back(std::unique_ptr<RunContext> context) const {
  RunContext* expected = nullptr;
  if (spare.compare_exchange_strong(expected, context.get(), std::memory_order_acq_rel)) {
    static_cast<void>(context.release());
    return;
  }
  const std::lock_guard lock(pool_mutex);
  pool.push_back(std::move(context));
}

void Executable::Impl::launch(const KernelLaunch& launch, LaunchState& state, RunContext& context) const {
  if (state.iterations <= 0) return;
  if (gpu >= 0) {
    launch_gpu(launch, state, context, context.stream);
    return;
  }
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    state.pointers[i] =
        static_cast<std::byte*>(context.data[static_cast<size_t>(launch.buffers[i])]) + state.offsets[i];
  }
  LaunchTask task{code[static_cast<size_t>(launch.kernel)].fn, state.pointers.data(), state.sizes.data()};
  if (state.grain >= state.iterations) {
    run_chunk(&task, 0, state.iterations);
  } else {
    parallel_for(0, state.iterations, state.grain, run_chunk, &task);
  }
  if (task.faulted.load()) throw IndexFault(fault_message(launch.kernel, task.fault));
}

std::string Executable::Impl::fault_message(int kernel, const KernelFault& fault) const {
  const std::vector<std::string>& sites = plan.kernels[static_cast<size_t>(kernel)].fault_sites;
  std::string message = "index " + std::to_string(fault.value) + " is out of bounds for dimension with size " +
                        std::to_string(fault.size);
  const auto site = static_cast<size_t>(fault.site);
  if (site < sites.size() && !sites[site].empty()) message += " (" + sites[site] + ")";
  return message;
}

void Executable::Impl::run_all(RunContext& context, RunIo& io) const {
  std::optional<cuda::Session> session;
  if (gpu >= 0) {
    context.begun = plan.steps.size();  // a fault shows late
    check_faults();
    session.emplace(gpu);
    if (run_graph(context, io, session->stream())) return;
    prepare_gpu(context, session->stream());
  }
  if (history_on()) {
    run_recorded(context);
  } else {
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      if (gpu < 0) context.begun = i + 1;
      run_step(i, context);
      if (!io.done_with) continue;
      for (const size_t input : last_reads[i]) io.done_with(input);
    }
  }
  make_all_outputs(context);  // some may belong to no step
  context.gpu_arena = nullptr;
}

namespace {

/// A copy of `tensor` with the strides that the plan's kernels expect.
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

/// Output `i` is the whole buffer as the plan lays it out, no view of it.
bool Executable::Impl::whole_output(size_t i, size_t buffer, const RunContext& context) const {
  std::vector<int64_t> sizes, strides, own_sizes, own_strides;
  values_of(output_layouts[i].sizes, context.symbols, sizes);
  values_of(output_layouts[i].strides, context.symbols, strides);
  values_of(buffer_layouts[buffer].sizes, context.symbols, own_sizes);
  values_of(buffer_layouts[buffer].strides, context.symbols, own_strides);
  return value_of(output_layouts[i].offset, context.symbols) == 0 && sizes == own_sizes && strides == own_strides;
}

void Executable::Impl::call_host(const HostCall& call, const StepPrograms& step, HostState& state,
                                 RunContext& context) const {
  for (TensorOperand& operand : state.tensors) {
    void* data = static_cast<std::byte*>(context.data[static_cast<size_t>(operand.buffer)]) + operand.offset;
    if (operand.tensor == nullptr || operand.tensor_data != data) {
      operand.view.data = data;
      operand.tensor = host->wrap(operand.view);
      operand.tensor_data = data;
    }
  }
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (const auto* slot = std::get_if<HostCall::TensorSlot>(&call.args[i])) {
      if (slot->index >= 0) state.values[i].tensor = state.tensors[static_cast<size_t>(slot->index)].tensor;
    } else if (const auto* out = std::get_if<HostCall::OutSlot>(&call.args[i])) {
      state.values[i].tensor = state.tensors[static_cast<size_t>(out->index)].tensor;
    } else if (const auto* list = std::get_if<HostCall::TensorListSlot>(&call.args[i])) {
      state.values[i].tensors.clear();
      for (const int index : list->indices) {
        state.values[i].tensors.push_back(index < 0 ? nullptr : state.tensors[static_cast<size_t>(index)].tensor);
      }
    }
  }
  std::vector<HostTensor> results = step.op->call(state.values);
  if (results.size() < call.results.size()) throw InternalError("host operator " + call.op + " returned too little");
  for (size_t i = 0; i < call.results.size(); ++i) {
    const BufferId id = call.results[i];
    if (id < 0) continue;
    const auto index = static_cast<size_t>(id);
    const TensorView view = host->view(results[i]);
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    values_of(buffer_layouts[index].sizes, context.symbols, sizes);
    values_of(buffer_layouts[index].strides, context.symbols, strides);
    bool same = view.sizes == sizes && view.dtype == plan.buffers[index].dtype;
    for (size_t d = 0; same && d < sizes.size(); ++d) same = sizes[d] <= 1 || view.strides[d] == strides[d];
    // Kernels on a GPU read whole vectors.
    if (gpu >= 0) same = same && reinterpret_cast<uintptr_t>(view.data) % kGpuAlignment == 0;
    if (!same) {
      if (view.sizes != sizes || view.dtype != plan.buffers[index].dtype) {
        throw InternalError("host operator " + call.op + " returned another type than was inferred");
      }
      context.original[index] = results[i];
      results[i] = relaid(*host, results[i], sizes, strides);
    }
    context.owned[index] = std::move(results[i]);
    context.data[index] = host->view(context.owned[index]).data;
  }
}

void Executable::Impl::run_step(size_t i, RunContext& context) const {
  if (context.late_outputs != nullptr) make_outputs(first_uses[i], context);
  do_step(i, context);
  release(i, context);
}

void Executable::Impl::do_step(size_t i, RunContext& context) const {
  if (context.is_needless(i)) return;
  if (const auto* step = std::get_if<KernelLaunch>(&plan.steps[i])) {
    launch(*step, context.launches[i], context);
  } else {
    call_host(std::get<HostCall>(plan.steps[i]), steps[i], context.hosts[i], context);
  }
}

HistoryEvent Executable::Impl::describe_step(size_t i, const RunContext& context) const {
  HistoryEvent event;
  event.graph = number;
  event.step = static_cast<int>(i);
  event.thread = history_thread();
  const auto* step = std::get_if<KernelLaunch>(&plan.steps[i]);
  if (step == nullptr) {
    event.kind = HistoryEvent::Kind::kHostCall;
    event.name = std::get<HostCall>(plan.steps[i]).op;
    event.operators = {event.name};
    return event;
  }
  const PlanKernel& kernel = plan.kernels[static_cast<size_t>(step->kernel)];
  event.kernel = step->kernel;
  event.name = kernel.name;
  event.operators = kernel.fused_ops;
  event.sizes = context.launches[i].sizes;
  event.iterations = context.launches[i].iterations;
  event.items = static_cast<int64_t>(step->item_blocks.size());
  event.grain = context.launches[i].grain;
  event.bytes = kernel.bytes_read + kernel.bytes_written;
  if (plan.size_symbols.empty()) return event;
  // The plan's figure is for the sizes it was made with.
  event.bytes = 0;
  for (const BufferId buffer : step->buffers) {
    int64_t bytes = dtype_size(plan.buffers[static_cast<size_t>(buffer)].dtype);
    for (const ExprProgram& size : buffer_layouts[static_cast<size_t>(buffer)].sizes) {
      bytes *= value_of(size, context.symbols);
    }
    event.bytes += bytes;
  }
  return event;
}

void Executable::Impl::run_recorded(RunContext& context) const {
  static std::atomic<int64_t> next_run{0};
  const int64_t run = next_run++;
  std::vector<HistoryEvent> events;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const HistoryClock::time_point start = HistoryClock::now();
    if (gpu < 0) context.begun = i + 1;
    run_step(i, context);
    const HistoryClock::time_point end = HistoryClock::now();
    if (context.is_needless(i)) continue;
    HistoryEvent event = describe_step(i, context);
    event.run = run;
    event.start = history_seconds(start);
    event.seconds = std::chrono::duration<double>(end - start).count();
    events.push_back(std::move(event));
  }
  record_history(std::move(events));
}

Executable::Executable(Plan plan, std::vector<KernelCode> code, HostOps* host, int64_t cuda_graphs)
    : impl_(std::make_unique<Impl>()) {
  impl_->plan = std::move(plan);
  impl_->code = std::move(code);
  impl_->host = host;
  impl_->cuda_graphs = cuda_graphs;
  static std::atomic<int64_t> next_id{0};
  impl_->number = next_id++;
  impl_->prepare();
}

int64_t scratch_bytes() { return Arena::total(); }

void release_scratch() { Arena::release_idle(); }

Executable::~Executable() = default;

const Plan& Executable::plan() const { return impl_->plan; }
int64_t Executable::id() const { return impl_->number; }
std::string Executable::launches() const { return impl_->launches(); }
bool Executable::draws() const { return impl_->draws_numbers; }
bool Executable::may_fail() const { return impl_->fails; }

void Executable::written_inputs(std::span<const int64_t> symbol_values, size_t most_bytes, WrittenInputs& out) const {
  const Plan& plan = impl_->plan;
  out = {};
  if (!impl_->fails_late) return;
  size_t total = 0;
  std::vector<int64_t> sizes, strides;
  for (const InputWrite& write : plan.input_writes) {
    const auto input = static_cast<size_t>(write.input_index);
    values_of(impl_->input_layouts[input].sizes, symbol_values, sizes);
    values_of(impl_->input_layouts[input].strides, symbol_values, strides);
    const DType dtype = plan.inputs[input].type.dtype;
    const auto elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    const size_t bytes = static_cast<size_t>(elements * dtype_size(dtype));
    // What lies between the elements of others may change meanwhile.
    const bool dense = std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride >= 0; }) &&
                       span_of(sizes, strides, dtype) == bytes;
    total += bytes;
    if (!dense || total > most_bytes) {
      out = {};
      return;
    }
    out.inputs.emplace_back(input, bytes);
  }
  out.all = true;
}
const std::vector<OutputBuffer>& Executable::output_buffers() const { return impl_->output_buffers; }

bool TensorLayout::fits(const InputRef& input) const {
  if (static_cast<size_t>(input.rank) != sizes.size() || input.strides == nullptr) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != input.sizes[d]) return false;
    if (strides[d] != input.strides[d] && sizes[d] > 1) return false;
  }
  return true;
}

bool Executable::bind_symbols(std::span<const InputRef> inputs, std::vector<int64_t>& symbol_values) const {
  if (inputs.size() != impl_->plan.inputs.size()) return false;
  symbol_values.resize(impl_->bindings.size());
  for (size_t s = 0; s < impl_->bindings.size(); ++s) {
    const Impl::Binding& binding = impl_->bindings[s];
    const InputRef& input = inputs[static_cast<size_t>(binding.input)];
    if (binding.dim >= input.rank) return false;
    symbol_values[s] = (binding.stride ? input.strides : input.sizes)[binding.dim];
  }
  return true;
}

void Executable::edge_layouts(std::span<const int64_t> symbol_values, EdgeLayouts& out) const {
  const auto evaluate = [&](const Layout& layout) {
    TensorLayout result;
    values_of(layout.sizes, symbol_values, result.sizes);
    values_of(layout.strides, symbol_values, result.strides);
    return result;
  };
  out = {};
  for (const Layout& layout : impl_->input_layouts) out.inputs.push_back(evaluate(layout));
  for (const OutputBuffer& buffer : impl_->output_buffers) {
    out.output_buffers.push_back(evaluate(impl_->buffer_layouts[static_cast<size_t>(buffer.buffer)]));
  }
  for (const Layout& layout : impl_->output_layouts) {
    out.outputs.push_back(evaluate(layout));
    out.outputs.back().offset = value_of(layout.offset, symbol_values);
  }
  for (size_t i = 0; i < impl_->steps.size(); ++i) {
    if (std::holds_alternative<KernelLaunch>(impl_->plan.steps[i]))
      out.work += value_of(impl_->steps[i].work, symbol_values);
  }
}

void Executable::run(RunIo& io, std::span<const int64_t> symbol_values) const {
  const Impl& impl = *impl_;
  io.wrote = false;
  std::unique_ptr<RunContext> context = impl.take_context(symbol_values);
  for (const auto& [buffer, input] : impl.from_inputs) context->data[buffer] = io.inputs[input];
  for (size_t i = 0; i < impl.output_buffers.size(); ++i) {
    context->data[static_cast<size_t>(impl.output_buffers[i].buffer)] = io.output_buffers[i];
  }
  context->late_outputs = io.make_output ? &io : nullptr;
  impl.leave_out_clearing(*context, io);
  const bool shared = impl.gpu < 0 && context->arena.is_shared();
  if (shared) impl.place_arena(*context, context->arena.enter());
  context->begun = 0;
  try {
    impl.run_all(*context, io);
  } catch (...) {
    io.wrote = impl.plan.first_write >= 0 && context->begun > static_cast<size_t>(impl.plan.first_write);
    throw;
  }
  io.wrote = impl.plan.first_write >= 0;
  if (shared) context->arena.leave();
  if (impl.has_host_calls) {
    io.host_outputs.assign(impl.plan.outputs.size(), nullptr);
    io.host_layout.assign(impl.plan.outputs.size(), false);
    for (size_t i = 0; i < impl.plan.outputs.size(); ++i) {
      const auto buffer = static_cast<size_t>(impl.plan.outputs[i].ref.buffer);
      if (impl.plan.outputs[i].ref.buffer >= 0 && impl.plan.buffers[buffer].home == BufferHome::kHost) {
        const HostTensor& original = context->original[buffer];
        io.host_layout[i] = original != nullptr && impl.whole_output(i, buffer, *context);
        io.host_outputs[i] = io.host_layout[i] ? original : context->owned[buffer];
      }
    }
    std::fill(context->owned.begin(), context->owned.end(), nullptr);
    std::fill(context->original.begin(), context->original.end(), nullptr);
  }
  impl.give_back(std::move(context));
}

}  // namespace tatara
