#include "runtime/plan/loop_plan.h"

#include <algorithm>
#include <cstring>

#include "support/cancel.h"

namespace tatara {
namespace {

/// Elements of any strides, one after the other.
std::byte* copy_contiguous(std::byte* to, const std::byte* from, const std::vector<int64_t>& sizes,
                           const std::vector<int64_t>& strides, int64_t item, size_t dim = 0) {
  if (dim == sizes.size()) {
    std::memcpy(to, from, static_cast<size_t>(item));
    return to + item;
  }
  for (int64_t i = 0; i < sizes[dim]; ++i) {
    to = copy_contiguous(to, from + i * strides[dim] * item, sizes, strides, item, dim + 1);
  }
  return to;
}

/// Where carried values and stacks lie, turn by turn.
class LoopMemory {
 public:
  LoopMemory(const LoopPlan& plan, const HostCall& call, HostState& state, const RunContext& context)
      : plan_(plan), state_(state) {
    for (TensorOperand& tensor : state.tensors) {
      data_.push_back(static_cast<std::byte*>(context.data[static_cast<size_t>(tensor.buffer)]) + tensor.offset);
    }
    operands_ = &std::get<HostCall::TensorListSlot>(call.args.at(0)).indices;
    first_result_ = state.tensors.size() - results();
    size_t bytes = 0;
    for (size_t k = 0; k < plan.history.size(); ++k) {
      blocks_.push_back(bytes);
      if (!plan.history[k]) bytes += 2 * block(k);
    }
    if (state.scratch.size() < bytes + kAlign) state.scratch.resize(bytes + kAlign);
    const auto place = reinterpret_cast<uintptr_t>(state.scratch.data());
    scratch_ = state.scratch.data() + (kAlign - place % kAlign) % kAlign;
    size_t next = first_result_ + plan.history.size();
    for (size_t k = 0; k < plan.history.size(); ++k) {
      histories_.push_back(plan.history[k] ? data_[next++] : nullptr);
      begin(k);
    }
    for (size_t k = plan.history.size(); k < plan.results.size(); ++k) stacks_.push_back(data_[next++]);
  }

  std::byte* operand(size_t i) const { return data_[static_cast<size_t>((*operands_)[i])]; }

  std::byte* carried(size_t k, int64_t turn) const {
    const auto bytes = plan_.results[k].bytes;
    if (plan_.history[k]) return histories_[k] + bytes * (plan_.reverse ? plan_.turns - turn : turn);
    if (turn == plan_.turns) return data_[first_result_ + k];
    return scratch_ + blocks_[k] + static_cast<size_t>(turn % 2) * block(k);
  }
  std::byte* result(size_t i, int64_t turn) const {
    const size_t carries = plan_.history.size();
    if (i < carries) return carried(i, turn + 1);
    return stacks_[i - carries] + plan_.results[i].bytes * (plan_.reverse ? plan_.turns - 1 - turn : turn);
  }
  void finish() const {
    for (size_t k = 0; k < plan_.history.size(); ++k) {
      if (!plan_.history[k]) continue;
      std::memcpy(data_[first_result_ + k], carried(k, plan_.turns), static_cast<size_t>(plan_.results[k].bytes));
    }
  }

 private:
  static constexpr size_t kAlign = 64;

  size_t block(size_t k) const { return (static_cast<size_t>(plan_.results[k].bytes) + kAlign - 1) / kAlign * kAlign; }
  size_t results() const {
    return plan_.results.size() + static_cast<size_t>(std::count(plan_.history.begin(), plan_.history.end(), true));
  }
  void begin(size_t k) const {
    const TensorView& view = state_.tensors[static_cast<size_t>((*operands_)[k])].view;
    copy_contiguous(carried(k, 0), operand(k), view.sizes, view.strides, plan_.results[k].item);
  }

  const LoopPlan& plan_;
  HostState& state_;
  std::vector<std::byte*> data_;  // per tensor of the call
  const std::vector<int>* operands_ = nullptr;
  size_t first_result_ = 0;
  std::vector<size_t> blocks_;
  std::byte* scratch_ = nullptr;
  std::vector<std::byte*> histories_, stacks_;
};

}  // namespace

bool is_loop_call(const HostCall& call) { return call.op == "tatara::loop" || call.op == "tatara::draws"; }

bool is_table_call(const HostCall& call) { return call.op == "tatara::table"; }

void run_table(const HostCall& call, const HostState& state, const RunContext& context) {
  const auto& numbers = std::get<std::vector<double>>(call.args.at(0));
  const TensorOperand& result = state.tensors.at(0);
  std::byte* to = static_cast<std::byte*>(context.data[static_cast<size_t>(result.buffer)]) + result.offset;
  if (result.view.dtype == DType::kFloat64) {
    std::memcpy(to, numbers.data(), numbers.size() * sizeof(double));
    return;
  }
  if (result.view.dtype != DType::kFloat32) throw InternalError("a table of another type");
  std::transform(numbers.begin(), numbers.end(), reinterpret_cast<float*>(to),
                 [](double number) { return static_cast<float>(number); });
}

void run_loop(const LoopPlan& plan, const HostCall& call, HostState& state, RunContext& context, HostOps& host) {
  const LoopMemory memory(plan, call, state, context);
  const size_t carries = plan.history.size(), scans = plan.scans.size();
  const size_t count = std::get<HostCall::TensorListSlot>(call.args.at(0)).indices.size();
  std::vector<void*> inputs(count), outputs(plan.body->output_buffers().size());
  for (size_t i = carries + scans; i < count; ++i) inputs[i] = memory.operand(i);
  RunIo io;
  io.inputs = inputs;
  io.output_buffers = outputs;
  io.turn = true;
  for (int64_t turn = 0; turn < plan.turns; ++turn) {
    for (size_t k = 0; k < carries; ++k) inputs[k] = memory.carried(k, turn);
    for (size_t s = 0; s < scans; ++s) {
      inputs[carries + s] = memory.operand(carries + s) + plan.scans[s].start + turn * plan.scans[s].step;
    }
    bool host_made = false;
    for (size_t i = 0; i < plan.results.size(); ++i) {
      const int64_t buffer = plan.results[i].buffer;
      host_made = host_made || buffer < 0;
      if (buffer >= 0) outputs[static_cast<size_t>(buffer)] = memory.result(i, turn);
    }
    plan.body->run(io, {});
    if (!host_made) continue;
    for (size_t i = 0; i < plan.results.size(); ++i) {
      if (plan.results[i].buffer >= 0) continue;
      const TensorView view = host.view(io.host_outputs.at(i));
      copy_contiguous(memory.result(i, turn), static_cast<const std::byte*>(view.data), view.sizes, view.strides,
                      plan.results[i].item);
    }
  }
  memory.finish();
}

}  // namespace tatara
