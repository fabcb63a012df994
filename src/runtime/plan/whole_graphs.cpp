#include "runtime/plan/whole_graphs.h"

#include <utility>

#include "support/error.h"
#include "support/log.h"

namespace tatara {
namespace {

constexpr size_t kCopiedBytes = size_t{32} << 20;  // at most, in all copies of a call

}  // namespace

WholeGraphs::WholeGraphs(GraphRecorder& recorder, const GraphOperands& operands, std::span<const int64_t> symbols)
    : recorder_(recorder), operands_(operands), apart_(operands.fixed.size(), 0) {
  for (const GraphOperands::Fixed& fixed : operands_.fixed) {
    bytes_.push_back(recorder_.programs().buffer_bytes(static_cast<size_t>(fixed.buffer), symbols));
  }
}

bool WholeGraphs::run(int64_t call, RunContext& context, RunIo& io, void* stream) {
  RecordedRun* run = find(io);
  if (run == nullptr) {
    if (!may_record(recordings_, call)) return false;
    recorder_.steps().place_constants(context, stream);
    run = record(context, io);
    io.recorded = true;
  }
  set_operands(*run, context);
  launch(*run, context, io, stream);
  run->used = call;
  recorder_.mark(stream);
  return true;
}

void WholeGraphs::watch(const RunIo& io) {
  const std::vector<GraphOperands::Fixed>& fixed = operands_.fixed;
  std::vector<uint8_t> moved(fixed.size(), 0);
  seen_.resize(fixed.size(), nullptr);
  for (size_t i = 0; i < fixed.size(); ++i) {
    void* const now = fixed[i].address(io);
    moved[i] = now != nullptr && seen_[i] != nullptr && now != seen_[i] ? 1 : 0;  // null: not made yet
    seen_[i] = now;
  }
  set_apart(moved);
}

/// Marks what moved, as far as copies of it are small enough.
void WholeGraphs::set_apart(const std::vector<uint8_t>& moved) {
  size_t copied = 0;
  for (size_t i = 0; i < moved.size(); ++i) copied += apart_[i] != 0 ? bytes_[i] : 0;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] == 0 || !operands_.fixed[i].copies_do || apart_[i] != 0) continue;
    if (copied + bytes_[i] > kCopiedBytes) continue;
    copied += bytes_[i];
    apart_[i] = 1;
  }
}

/// A graph for where the operands are now. Without one, notes what moved.
RecordedRun* WholeGraphs::find(const RunIo& io) {
  const std::vector<GraphOperands::Fixed>& fixed = operands_.fixed;
  const auto differs = [&](const RecordedRun& run, size_t i) {
    return run.staged[i] == nullptr && run.fixed[i] != fixed[i].address(io);
  };
  const RecordedRun* latest = nullptr;
  for (const std::unique_ptr<RecordedRun>& run : runs_) {
    bool good = true;
    for (size_t i = 0; good && i < fixed.size(); ++i) good = !differs(*run, i);
    if (good) return run.get();
    if (latest == nullptr || run->used > latest->used) latest = run.get();
  }
  if (latest == nullptr) return nullptr;
  std::vector<uint8_t> moved(fixed.size(), 0);
  for (size_t i = 0; i < fixed.size(); ++i) moved[i] = differs(*latest, i) ? 1 : 0;
  set_apart(moved);
  return nullptr;
}

// ---- Recording -------------------------------------------------------------------------------------------------------

RecordedRun* WholeGraphs::record(RunContext& context, const RunIo& io) {
  HostOps& host = recorder_.host();
  ++recordings_;
  recorder_.prepare();
  recorder_.keep_latest(runs_);
  auto run = std::make_unique<RecordedRun>();
  const Device device = recorder_.programs().device();
  if (context.arena_bytes > 0) {
    run->arena = host.allocate(context.arena_bytes, device);
    context.place_arena(static_cast<std::byte*>(host.view(run->arena).data));
  }
  for (size_t i = 0; i < operands_.fixed.size(); ++i) {
    run->fixed.push_back(operands_.fixed[i].address(io));
    run->staged.push_back(apart_[i] != 0 ? host.allocate(static_cast<int64_t>(bytes_[i]), device) : nullptr);
    void*& address = context.data[static_cast<size_t>(operands_.fixed[i].buffer)];
    address = run->staged[i] != nullptr ? host.view(run->staged[i]).data : run->fixed[i];
  }
  try {
    record_steps(*run, context);
  } catch (const Error&) {
    // The steps are launched one by one then, on the memory of the call.
    for (const GraphOperands::Fixed& fixed : operands_.fixed) {
      context.data[static_cast<size_t>(fixed.buffer)] = fixed.address(io);
    }
    throw;
  }
  TATARA_LOG(kRuntime, "a CUDA graph of ", run->graph->size(), " nodes for ", recorder_.programs().plan.steps.size(),
             " steps", run->graph->is_body() ? ", launched as a body" : "");
  runs_.push_back(std::move(run));
  return runs_.back().get();
}

void WholeGraphs::record_steps(RecordedRun& run, RunContext& context) {
  const size_t steps = recorder_.programs().plan.steps.size();
  run.graph = recorder_.record(context, run.nodes, [&](cuda::Recording& recording) {
    for (size_t i = 0; i < steps; ++i) {
      recorder_.steps().run(i, context);
      const LaunchState& state = context.launches[i];
      if (operands_.patched[i] == 0 || state.iterations <= 0 || state.blocks <= 0) continue;
      run.nodes.push_back({recording.last_node(), i, state.pointers});
    }
  });
  // What leaves the plan is copied from where the graph computes it.
  for (size_t b = 0; b < context.owned.size(); ++b) {
    if (context.owned[b] == nullptr && context.original[b] == nullptr) continue;
    run.results.push_back({b, std::move(context.owned[b]), std::move(context.original[b])});
  }
  context.drop_results();
}

// ---- Launching -------------------------------------------------------------------------------------------------------

void WholeGraphs::set_operands(RecordedRun& run, RunContext& context) const {
  const std::vector<size_t>& moving = operands_.moving;
  bool unmoved = run.at.size() == moving.size();
  run.at.resize(moving.size(), nullptr);
  for (size_t i = 0; i < moving.size(); ++i) {
    void* const now = recorder_.steps().operand_of(moving[i], context.data[moving[i]]);
    unmoved = unmoved && run.at[i] == now;
    run.at[i] = now;
  }
  if (!unmoved) recorder_.move_kernels(*run.graph, run.nodes, operands_.varying, context);
}

void WholeGraphs::launch(RecordedRun& run, RunContext& context, RunIo& io, void* stream) const {
  HostOps& host = recorder_.host();
  const std::vector<GraphOperands::Fixed>& fixed = operands_.fixed;
  cuda::CopyList copies;
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (run.staged[i] == nullptr || fixed[i].output) continue;
    copies.add(host.view(run.staged[i]).data, io.inputs[fixed[i].index], bytes_[i]);
  }
  copies.run(recorder_.programs().gpu, stream);
  place_results(run, context);
  run.graph->launch(stream);
  io.as_graph = true;
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (run.staged[i] == nullptr || !fixed[i].output) continue;
    copies.add(io.output_buffers[fixed[i].index], host.view(run.staged[i]).data, bytes_[i]);
  }
  copy_results(run, context, copies);
  copies.run(recorder_.programs().gpu, stream);
}

/// Results of the host's operators that leave the plan lie in the graph's memory: the caller gets copies.
void WholeGraphs::place_results(const RecordedRun& run, RunContext& context) const {
  HostOps& host = recorder_.host();
  const auto memory_for = [&](const HostTensor& tensor) {
    return tensor == nullptr ? nullptr : host.empty_like(host.view(tensor));
  };
  for (const RecordedRun::Result& result : run.results) {
    context.owned[result.buffer] = memory_for(result.owned);
    context.original[result.buffer] = memory_for(result.original);
  }
}

void WholeGraphs::copy_results(const RecordedRun& run, RunContext& context, cuda::CopyList& copies) const {
  HostOps& host = recorder_.host();
  const auto copied = [&](const HostTensor& tensor, const HostTensor& to) {
    if (tensor == nullptr) return;
    const TensorView from = host.view(tensor);
    copies.add(host.view(to).data, from.data, span_of(from.sizes, from.strides, from.dtype));
  };
  for (const RecordedRun::Result& result : run.results) {
    copied(result.owned, context.owned[result.buffer]);
    copied(result.original, context.original[result.buffer]);
  }
}

}  // namespace tatara
