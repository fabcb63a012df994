// Operators that the host runs. Operands are views of memory, given by strides; results go where the plan wants them when
// the operator has an out= form.
#include "schedule/internal.h"
#include "support/error.h"

namespace tatara::sched {

namespace {

int add_tensor(State& s, HostCall& call, ValueId v) {
  const auto view = affine_view(s, v);
  const ValueId base = view ? view->base : v;
  const ValueInfo& info = s.values[static_cast<size_t>(base)];
  TATARA_CHECK(info.storage.has_value(), "operand ", s.name_of(v), " of ", call.op, " has no memory");
  const PlanBuffer& memory = s.out.plan.buffers[static_cast<size_t>(info.storage->buffer)];
  if (s.options.gpu && memory.home != BufferHome::kInput && s.graph.type(base).device.kind == DeviceKind::kCpu) {
    throw Unsupported(str_cat(call.op, " of a number that a GPU computes"));
  }
  BufferRef ref;
  ref.buffer = info.storage->buffer;
  ref.sizes = s.graph.type(v).sizes;
  ref.strides = view ? view->strides : *info.storage->strides;
  ref.offset = view ? view->offset : info.storage->offset;
  ref.dtype = s.graph.type(v).dtype;
  call.tensors.push_back(std::move(ref));
  return static_cast<int>(call.tensors.size()) - 1;
}

}  // namespace

void emit_host_call(State& s, int unit) {
  const Node& node = s.graph.node(s.units[static_cast<size_t>(unit)].node);
  HostCall call;
  const std::string base =
      node.op->host_name.empty() ? node.op->name.substr(0, node.op->name.find('.')) : node.op->host_name;
  call.op = base.find("::") == std::string::npos ? "aten::" + base : base;
  call.overload = node.op->host_overload;
  call.location = node.location;
  call.node = s.units[static_cast<size_t>(unit)].node;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const Arg& arg = node.args[i];
    const bool number = i < node.op->schema.args.size() && node.op->schema.args[i].takes_value;
    if (const auto* tensor = std::get_if<TensorArg>(&arg); tensor != nullptr && number && tensor->value != kNoValue) {
      const int index = add_tensor(s, call, tensor->value);
      const BufferRef& ref = call.tensors.back();
      const Device device = s.out.plan.buffers[static_cast<size_t>(ref.buffer)].device;
      if (ref.dtype != DType::kFloat64 || device.kind != DeviceKind::kCpu) {
        throw Unsupported(str_cat(call.op, " with a number that a GPU computes"));
      }
      call.args.emplace_back(HostCall::NumberSlot{index});
    } else if (tensor != nullptr) {
      const int index = tensor->value == kNoValue ? -1 : add_tensor(s, call, tensor->value);
      call.args.emplace_back(HostCall::TensorSlot{index});
    } else if (const auto* list = std::get_if<TensorList>(&arg)) {
      HostCall::TensorListSlot slots;
      for (const ValueId v : list->values) slots.indices.push_back(v == kNoValue ? -1 : add_tensor(s, call, v));
      call.args.emplace_back(std::move(slots));
    } else {
      std::visit(
          [&](const auto& value) {
            using T = std::decay_t<decltype(value)>;
            if constexpr (!std::is_same_v<T, TensorArg> && !std::is_same_v<T, TensorList>)
              call.args.emplace_back(value);
          },
          arg);
    }
  }
  const bool out = call.overload == "out";
  // The host may leave out results that it was not asked for (convolution_backward).
  const bool several = node.outputs.size() > 1;
  for (const ValueId v : node.outputs) {
    const ValueInfo& info = s.values[static_cast<size_t>(v)];
    if (out) {
      call.tensors.push_back({info.storage->buffer, s.graph.type(v).sizes, *info.storage->strides, info.storage->offset,
                              s.graph.type(v).dtype});
      call.args.emplace_back(HostCall::OutSlot{static_cast<int>(call.tensors.size()) - 1});
    } else {
      const bool used = !several || s.uses[static_cast<size_t>(v)] > 0;
      call.results.push_back(used ? info.storage->buffer : BufferId{-1});
    }
  }
  s.out.plan.steps.emplace_back(std::move(call));
}

}  // namespace tatara::sched
