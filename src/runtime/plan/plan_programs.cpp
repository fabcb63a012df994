#include "runtime/plan/plan_programs.h"

#include <algorithm>
#include <complex>

#include "support/error.h"

namespace tatara {
namespace {

// Scalar operations below which another thread costs more than it gives (about 10 us of work).
constexpr int64_t kWorkPerChunk = 32768;

}  // namespace

PlanPrograms::PlanPrograms(Plan the_plan, HostOps* host, std::vector<std::shared_ptr<const LoopPlan>> the_loops)
    : plan(std::move(the_plan)), loops(std::move(the_loops)) {
  for (const PlanBuffer& buffer : plan.buffers) {
    buffer_layouts.push_back({programs(buffer.sizes), programs(buffer.strides), program(buffer.offset)});
    if (buffer.device.kind == DeviceKind::kCuda) gpu = std::max<int>(buffer.device.index, 0);
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
  size_t next_loop = 0;
  for (const PlanStep& step : plan.steps) {
    prepare_step(step, host);
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr || !is_loop_call(*call)) continue;
    if (next_loop >= loops.size()) throw Unsupported("a plan whose loops are not compiled");
    steps.back().loop = loops[next_loop++];
  }
  for (const PlanStep& step : plan.steps) {
    const auto* launch = std::get_if<KernelLaunch>(&step);
    if (launch == nullptr || !launch->clears) continue;
    output_buffers[static_cast<size_t>(plan.buffers[static_cast<size_t>(launch->buffers.at(0))].index)].cleared = true;
  }
}

ExprProgram PlanPrograms::program(Expr e, int64_t otherwise) const {
  return ExprProgram(e.valid() ? e : plan.ctx->constant(otherwise), plan.size_symbols);
}

std::vector<ExprProgram> PlanPrograms::programs(const std::vector<Expr>& list) const {
  std::vector<ExprProgram> result;
  result.reserve(list.size());
  for (const Expr e : list) result.push_back(program(e));
  return result;
}

void PlanPrograms::find_bindings() {
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

void PlanPrograms::prepare_step(const PlanStep& step, HostOps* host) {
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
    const bool own = is_loop_call(call) || is_table_call(call) || awaits_condition(call);
    prepared.op = own ? nullptr : host->find(call.op, call.overload);
    prepared.users = is_users_operator(call.op);
    prepared.keeps = calls_users_code(call.op);
    if (prepared.op == nullptr && !own) throw Unsupported("the host has no operator " + call.op + "." + call.overload);
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

void PlanPrograms::resolve_launch(const KernelLaunch& launch, const StepPrograms& step, LaunchState& state,
                                  std::span<const int64_t> symbols) const {
  values_of(step.sizes, symbols, state.sizes);
  state.pointers.resize(launch.buffers.size());
  state.offsets.assign(launch.buffers.size(), 0);
  for (size_t b = 0; b < step.buffer_offsets.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(launch.buffers[b])];
    state.offsets[b] = value_of(step.buffer_offsets[b], symbols) * dtype_size(buffer.dtype);
  }
  state.iterations = value_of(step.iterations, symbols);
  const int64_t work = std::max<int64_t>(value_of(step.work, symbols), 1);
  const int64_t chunks = std::max<int64_t>(1, work / kWorkPerChunk);
  state.grain = std::max<int64_t>(1, (state.iterations + chunks - 1) / chunks);
  state.blocks = value_of(step.blocks, symbols);
  values_of(step.item_blocks, symbols, state.item_blocks);
}

void PlanPrograms::resolve_host(const HostCall& call, const StepPrograms& step, HostState& state,
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
    } else if (std::holds_alternative<HostCall::NumberSlot>(arg)) {
      value.kind = Kind::kDouble;  // read with each call
    } else if (std::holds_alternative<HostCall::TensorListSlot>(arg)) {
      value.kind = Kind::kTensorList;
    }
  }
}

void PlanPrograms::resolve(RunContext& context, std::span<const int64_t> symbols) const {
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
      resolve_launch(*launch, steps[i], context.launches[i], symbols);
    } else {
      resolve_host(std::get<HostCall>(plan.steps[i]), steps[i], context.hosts[i], symbols);
    }
  }
  if (gpu < 0 && !context.arena.is_shared()) context.place_arena(context.arena.enter());
  context.resolved = true;
}

bool PlanPrograms::bind_symbols(std::span<const InputRef> inputs, std::vector<int64_t>& symbol_values) const {
  if (inputs.size() != plan.inputs.size()) return false;
  symbol_values.resize(bindings.size());
  for (size_t s = 0; s < bindings.size(); ++s) {
    const SymbolBinding& binding = bindings[s];
    const InputRef& input = inputs[static_cast<size_t>(binding.input)];
    if (binding.dim >= input.rank) return false;
    symbol_values[s] = (binding.stride ? input.strides : input.sizes)[binding.dim];
  }
  return true;
}

void PlanPrograms::edge_layouts(std::span<const int64_t> symbols, EdgeLayouts& out) const {
  const auto evaluate = [&](const Layout& layout) {
    TensorLayout result;
    values_of(layout.sizes, symbols, result.sizes);
    values_of(layout.strides, symbols, result.strides);
    return result;
  };
  out = {};
  for (const Layout& layout : input_layouts) out.inputs.push_back(evaluate(layout));
  for (const OutputBuffer& buffer : output_buffers) {
    out.output_buffers.push_back(evaluate(buffer_layouts[static_cast<size_t>(buffer.buffer)]));
  }
  for (const Layout& layout : output_layouts) {
    out.outputs.push_back(evaluate(layout));
    out.outputs.back().offset = value_of(layout.offset, symbols);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (std::holds_alternative<KernelLaunch>(plan.steps[i])) out.work += value_of(steps[i].work, symbols);
  }
}

size_t PlanPrograms::buffer_bytes(size_t buffer, std::span<const int64_t> symbols) const {
  std::vector<int64_t> lengths, strides;
  values_of(buffer_layouts[buffer].sizes, symbols, lengths);
  values_of(buffer_layouts[buffer].strides, symbols, strides);
  return span_of(lengths, strides, plan.buffers[buffer].dtype);
}

bool PlanPrograms::whole_output(size_t i, size_t buffer, std::span<const int64_t> symbols) const {
  std::vector<int64_t> sizes, strides, own_sizes, own_strides;
  values_of(output_layouts[i].sizes, symbols, sizes);
  values_of(output_layouts[i].strides, symbols, strides);
  values_of(buffer_layouts[buffer].sizes, symbols, own_sizes);
  values_of(buffer_layouts[buffer].strides, symbols, own_strides);
  if (value_of(output_layouts[i].offset, symbols) != 0 || sizes != own_sizes) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && strides[d] != own_strides[d]) return false;
  }
  return true;
}

std::string PlanPrograms::fault_message(size_t kernel, const KernelFault& fault) const {
  const std::vector<std::string>& sites = plan.kernels[kernel].fault_sites;
  std::string message = "index " + std::to_string(fault.value) + " is out of bounds for dimension with size " +
                        std::to_string(fault.size);
  const auto site = static_cast<size_t>(fault.site);
  if (site < sites.size() && !sites[site].empty()) message += " (" + sites[site] + ")";
  return message;
}

}  // namespace tatara
