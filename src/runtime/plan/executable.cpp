#include "runtime/plan/executable.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/history.h"
#include "runtime/plan/aligned_inputs.h"
#include "runtime/plan/cuda_graphs.h"
#include "runtime/plan/plan_effects.h"
#include "runtime/plan/plan_programs.h"
#include "runtime/plan/run_context.h"
#include "runtime/plan/step_runner.h"

namespace tatara {
namespace {

constexpr size_t kContextsKept = 16;  // for different sizes, on a GPU: small, and cheaper than to resolve them again

int64_t next_id() {
  static std::atomic<int64_t> next{0};
  return next++;
}

}  // namespace

/// A run takes a context, runs the steps with it (as CUDA graphs or one by one), and gives it back.
struct Executable::Impl {
  Impl(Plan plan, std::vector<KernelCode> code, HostOps* host, int64_t cuda_graphs,
       std::vector<std::shared_ptr<const LoopPlan>> loops)
      : number(next_id()),
        programs(std::move(plan), host, std::move(loops)),
        effects(programs),
        steps(programs, std::move(code), host),
        graphs(programs.gpu >= 0 ? std::make_unique<CudaGraphs>(programs, steps, *host, cuda_graphs) : nullptr),
        contexts(programs.gpu >= 0 ? kContextsKept : 0),
        host_ops(host) {
    for (const PlanStep& step : programs.plan.steps) {
      const auto* call = std::get_if<HostCall>(&step);
      calls_users = calls_users || (call != nullptr && calls_users_code(call->op));
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() = default;

  int64_t number;
  PlanPrograms programs;
  PlanEffects effects;
  StepRunner steps;
  bool calls_users = false;
  std::unique_ptr<CudaGraphs> graphs;  // on a GPU
  mutable ContextPool contexts;
  HostOps* host_ops;
  HostPlan ahead, behind;
  std::vector<InputWrite> input_writes = programs.plan.input_writes;
  bool decides = programs.plan.decides();

  void run(RunIo& io, std::span<const int64_t> symbols) const;
  void run_steps(RunContext& context, RunIo& io) const;
  void run_on_gpu(RunContext& context, RunIo& io) const;
  void run_one_by_one(RunContext& context, RunIo& io) const;
  void run_with_history(RunContext& context) const;
  HistoryEvent describe_step(size_t i, const RunContext& context) const;
  void take_outputs(RunContext& context, RunIo& io) const;
};

void Executable::Impl::run_steps(RunContext& context, RunIo& io) const {
  if (programs.gpu >= 0) {
    run_on_gpu(context, io);
  } else {
    run_one_by_one(context, io);
  }
}

void Executable::Impl::run_on_gpu(RunContext& context, RunIo& io) const {
  context.begun = programs.plan.steps.size();  // a fault shows late
  steps.check_faults();
  const cuda::Session session(programs.gpu);
  AlignedInputs aligned(programs, *host_ops, context, io, session.stream());
  if (!graphs->run(context, io, session.stream())) {
    steps.prepare_gpu(context, session.stream());
    run_one_by_one(context, io);
  }
  aligned.copy_back();
}

void Executable::Impl::run_one_by_one(RunContext& context, RunIo& io) const {
  if (history_on() && !io.turn) {
    run_with_history(context);
  } else {
    steps.run_all(context, io);
  }
  steps.make_all_outputs(context);  // some may belong to no step
  context.gpu_arena = nullptr;
}

namespace {

/// Of all steps, each once.
std::vector<std::string> operators_of(const Plan& plan) {
  std::vector<std::string> found;
  const auto add = [&found](const std::string& op) {
    if (std::find(found.begin(), found.end(), op) == found.end()) found.push_back(op);
  };
  for (const PlanStep& step : plan.steps) {
    if (const auto* call = std::get_if<HostCall>(&step)) {
      add(call->op);
      continue;
    }
    const KernelLaunch& launch = std::get<KernelLaunch>(step);
    for (const std::string& op : plan.kernels[static_cast<size_t>(launch.kernel)].fused_ops) add(op);
  }
  return found;
}

}  // namespace

HistoryEvent Executable::Impl::describe_step(size_t i, const RunContext& context) const {
  HistoryEvent event;
  event.graph = number;
  event.step = static_cast<int>(i);
  event.thread = history_thread();
  const auto* step = std::get_if<KernelLaunch>(&programs.plan.steps[i]);
  if (const LoopPlan* const loop = programs.steps[i].loop.get(); loop != nullptr) {
    event.name = std::get<HostCall>(programs.plan.steps[i]).op;
    event.iterations = loop->turns;
    event.operators = operators_of(loop->body->plan());
    return event;
  }
  if (step == nullptr) {
    event.kind = HistoryEvent::Kind::kHostCall;
    event.name = std::get<HostCall>(programs.plan.steps[i]).op;
    event.operators = {event.name};
    return event;
  }
  const PlanKernel& kernel = programs.plan.kernels[static_cast<size_t>(step->kernel)];
  event.kernel = step->kernel;
  event.name = kernel.name;
  event.operators = kernel.fused_ops;
  event.sizes = context.launches[i].sizes;
  event.iterations = context.launches[i].iterations;
  event.items = static_cast<int64_t>(step->item_blocks.size());
  event.grain = context.launches[i].grain;
  event.bytes = kernel.bytes_read + kernel.bytes_written;
  if (programs.plan.size_symbols.empty()) return event;
  // The plan's figure is for the sizes it was made with.
  event.bytes = 0;
  for (const BufferId buffer : step->buffers) {
    int64_t bytes = dtype_size(programs.plan.buffers[static_cast<size_t>(buffer)].dtype);
    for (const ExprProgram& size : programs.buffer_layouts[static_cast<size_t>(buffer)].sizes) {
      bytes *= value_of(size, context.symbols);
    }
    event.bytes += bytes;
  }
  return event;
}

void Executable::Impl::run_with_history(RunContext& context) const {
  static std::atomic<int64_t> next_run{0};
  const int64_t run = next_run++;
  std::vector<HistoryEvent> events;
  for (size_t i = 0; i < programs.plan.steps.size(); ++i) {
    const HistoryClock::time_point start = HistoryClock::now();
    if (programs.gpu < 0) context.begun = i + 1;
    steps.run(i, context);
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

/// Outputs that lie in results of the host's operators.
void Executable::Impl::take_outputs(RunContext& context, RunIo& io) const {
  const Plan& plan = programs.plan;
  io.host_outputs.assign(plan.outputs.size(), nullptr);
  io.host_layout.assign(plan.outputs.size(), false);
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const auto buffer = static_cast<size_t>(plan.outputs[i].ref.buffer);
    if (plan.outputs[i].ref.buffer >= 0 && plan.buffers[buffer].home == BufferHome::kHost) {
      const HostTensor& original = context.original[buffer];
      io.host_layout[i] = original != nullptr && programs.whole_output(i, buffer, context.symbols);
      io.host_outputs[i] = io.host_layout[i] ? original : context.owned[buffer];
    }
  }
  context.drop_results();
}

namespace {

/// With the inputs of the plan beside it. What it gives nobody wants.
void run_host_plan(const HostPlan& plan, std::span<void* const> inputs) {
  if (plan.executable == nullptr) return;
  std::vector<void*> own;
  own.reserve(plan.inputs.size());
  for (const size_t input : plan.inputs) own.push_back(inputs[input]);
  std::vector<double> numbers(plan.executable->output_buffers().size());
  std::vector<void*> outputs;
  for (double& number : numbers) outputs.push_back(&number);
  RunIo io;
  io.inputs = own;
  io.output_buffers = outputs;
  plan.executable->run(io, {});
}

}  // namespace

void Executable::Impl::run(RunIo& io, std::span<const int64_t> symbols) const {
  const std::span<void* const> given = io.inputs;
  io.wrote = false;
  run_host_plan(ahead, given);
  std::unique_ptr<RunContext> context = contexts.take(symbols);
  if (!context->suits(symbols)) programs.resolve(*context, symbols);
  for (const auto& [buffer, input] : programs.from_inputs) context->data[buffer] = io.inputs[input];
  for (size_t i = 0; i < programs.output_buffers.size(); ++i) {
    context->data[static_cast<size_t>(programs.output_buffers[i].buffer)] = io.output_buffers[i];
  }
  context->late_outputs = io.make_output ? &io : nullptr;
  context->io = &io;
  effects.leave_out_clearing(*context, io);
  const bool shared = programs.gpu < 0 && context->arena.is_shared();
  if (shared) context->place_arena(context->arena.enter());
  context->begun = 0;
  const int64_t first_write = programs.plan.first_write;
  try {
    run_steps(*context, io);
  } catch (...) {
    io.wrote = first_write >= 0 && context->begun > static_cast<size_t>(first_write);
    throw;
  }
  io.wrote = first_write >= 0;
  if (shared) context->arena.leave();
  if (programs.has_host_calls) take_outputs(*context, io);
  contexts.give_back(std::move(context));
  run_host_plan(behind, given);
  io.wrote = !input_writes.empty();
}

Executable::Executable(Plan plan, std::vector<KernelCode> code, HostOps* host, int64_t cuda_graphs,
                       std::vector<std::shared_ptr<const LoopPlan>> loops)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(code), host, cuda_graphs, std::move(loops))) {}

Executable::~Executable() = default;

const Plan& Executable::plan() const { return impl_->programs.plan; }
void Executable::set_host_plans(HostPlan ahead, HostPlan behind, std::vector<InputWrite> writes) {
  impl_->decides = impl_->decides || ahead.executable != nullptr;
  impl_->ahead = std::move(ahead);
  impl_->behind = std::move(behind);
  impl_->input_writes.insert(impl_->input_writes.end(), writes.begin(), writes.end());
}
bool Executable::decides() const { return impl_->decides; }
const std::vector<InputWrite>& Executable::input_writes() const { return impl_->input_writes; }
int64_t Executable::id() const { return impl_->number; }
std::string Executable::launches() const {
  return impl_->graphs == nullptr ? std::string() : impl_->graphs->describe();
}
const std::vector<OutputBuffer>& Executable::output_buffers() const { return impl_->programs.output_buffers; }
bool Executable::draws() const { return impl_->effects.draws(); }

bool Executable::calls_users() const { return impl_->calls_users; }
bool Executable::may_fail() const { return impl_->effects.may_fail(); }

void Executable::written_inputs(std::span<const int64_t> symbol_values, size_t most_bytes, WrittenInputs& out) const {
  impl_->effects.written_inputs(symbol_values, most_bytes, out);
}

bool Executable::bind_symbols(std::span<const InputRef> inputs, std::vector<int64_t>& symbol_values) const {
  return impl_->programs.bind_symbols(inputs, symbol_values);
}

void Executable::edge_layouts(std::span<const int64_t> symbol_values, EdgeLayouts& out) const {
  impl_->programs.edge_layouts(symbol_values, out);
}

void Executable::run(RunIo& io, std::span<const int64_t> symbol_values) const { impl_->run(io, symbol_values); }

bool TensorLayout::fits(const InputRef& input) const {
  if (static_cast<size_t>(input.rank) != sizes.size() || input.strides == nullptr) return false;
  bool empty = false, same = true;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != input.sizes[d]) return false;
    empty = empty || sizes[d] == 0;
    same = same && (strides[d] == input.strides[d] || sizes[d] <= 1);
  }
  return same || empty;  // strides reach nothing then
}

int64_t scratch_bytes() { return Arena::total(); }

void release_scratch() { Arena::release_idle(); }

}  // namespace tatara
