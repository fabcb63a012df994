#include "schedule/schedule.h"

#include "schedule/internal.h"
#include "support/cancel.h"
#include "support/error.h"

namespace tatara {

namespace sched {
namespace {

void describe_inputs(State& s) {
  for (const ValueId v : s.graph.inputs()) {
    s.out.plan.inputs.push_back({s.graph.type(v), s.values[static_cast<size_t>(v)].needed});
  }
}

/// Strides that no element's place depends on are eager's, which a program can see.
void keep_unused_strides(std::vector<Expr>& strides, const TensorType& type) {
  bool empty = false;
  for (const Expr size : type.sizes) empty = empty || size.is_const(0);
  for (size_t d = 0; d < strides.size(); ++d) {
    if (empty || type.sizes[d].is_const(1)) strides[d] = type.strides[d];
  }
}

void describe_outputs(State& s) {
  Plan& plan = s.out.plan;
  for (const GraphOutput& output : s.graph.outputs()) {
    PlanOutput result;
    result.alias = output.alias;
    if (output.value == kNoValue) {
      plan.outputs.push_back(std::move(result));
      continue;
    }
    const TensorType& type = s.graph.type(output.value);
    result.ref.sizes = type.sizes;
    result.ref.strides = type.strides;
    result.ref.dtype = type.dtype;
    result.ref.offset = output.alias.storage_offset.valid() ? output.alias.storage_offset : s.ctx.constant(0);
    switch (output.alias.kind) {
      case OutputAlias::Kind::kFresh: {
        const auto view = affine_view(s, output.value);
        const ValueId base = view ? view->base : output.value;
        const ValueInfo& info = s.values[static_cast<size_t>(base)];
        TATARA_CHECK(info.storage.has_value(), "output ", s.name_of(output.value), " has no memory");
        result.ref.buffer = info.storage->buffer;
        result.ref.strides = view && base != output.value ? view->strides : *info.storage->strides;
        keep_unused_strides(result.ref.strides, type);
        result.ref.offset = view ? view->offset : s.ctx.constant(0);
        const int input = plan.buffers[static_cast<size_t>(result.ref.buffer)].home == BufferHome::kInput
                              ? plan.buffers[static_cast<size_t>(result.ref.buffer)].index
                              : -1;
        if (input >= 0) result.alias = {OutputAlias::Kind::kInput, input, result.ref.offset};
        break;
      }
      case OutputAlias::Kind::kInput:
        result.ref.buffer =
            s.values[static_cast<size_t>(s.graph.inputs()[static_cast<size_t>(output.alias.index)])].storage->buffer;
        break;
      case OutputAlias::Kind::kOutput: break;  // below: the base may be a later output
    }
    plan.outputs.push_back(std::move(result));
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (s.graph.outputs()[i].alias.kind != OutputAlias::Kind::kOutput) continue;
    BufferRef& ref = plan.outputs[i].ref;
    const BufferRef& base = plan.outputs.at(static_cast<size_t>(s.graph.outputs()[i].alias.index)).ref;
    ref.buffer = base.buffer;
    // Offsets count elements, which may be of two types.
    const int64_t size = dtype_size(base.dtype), own = dtype_size(ref.dtype);
    ref.offset = s.simplify(s.ctx.floordiv(base.offset * size, s.ctx.constant(own)) + ref.offset);
  }
}

}  // namespace
}  // namespace sched

Schedule schedule_graph(const Graph& graph, const ScheduleOptions& options) {
  using sched::Unit;
  sched::State s(graph, options);
  s.out.plan.ctx = graph.ctx_ptr();
  sched::lower_nodes(s);
  sched::describe_inputs(s);
  sched::create_buffers(s);
  sched::choose_roots(s);
  sched::form_units(s);
  sched::order_units(s);
  sched::plan_outputs(s);
  for (size_t place = 0; place < s.order.size(); ++place) {
    check_cancelled();
    const int unit = s.order[place];
    switch (s.units[static_cast<size_t>(unit)].kind) {
      case Unit::Kind::kGroup: sched::emit_group(s, unit); break;
      case Unit::Kind::kScan: sched::emit_scan(s, unit); break;
      case Unit::Kind::kScatter: sched::emit_scatter(s, unit); break;
      case Unit::Kind::kSort: sched::emit_sort(s, unit); break;
      case Unit::Kind::kProduct: sched::emit_product(s, unit); break;
      case Unit::Kind::kHost: sched::emit_host_call(s, unit); break;
      case Unit::Kind::kCopy: sched::emit_copy(s, unit); break;
    }
  }
  sched::form_lists(s);
  sched::plan_arena(s);
  sched::describe_outputs(s);
  s.out.plan.input_writes = graph.input_writes();
  sched::find_first_write(s);
  sched::check_decisions(s.out.plan);
  sched::collect_plan_symbols(s);
  return std::move(s.out);
}

}  // namespace tatara
