#include "schedule/emit.h"

#include <algorithm>
#include <utility>

#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara::sched {

using loops::Combine;
using loops::LoopKind;

ScalarOp combine_op(Combine combine) {
  switch (combine) {
    case Combine::kAdd: return ScalarOp::kAdd;
    case Combine::kMul: return ScalarOp::kMul;
    case Combine::kMin: return ScalarOp::kMin;
    case Combine::kMax: return ScalarOp::kMax;
    case Combine::kAnd: return ScalarOp::kAnd;
    case Combine::kOr: return ScalarOp::kOr;
    case Combine::kXor: return ScalarOp::kXor;
    case Combine::kNone:
    case Combine::kCustom: break;
  }
  TATARA_UNREACHABLE("combine ", static_cast<int>(combine));
}

bool is_custom(const ReductionDef& def) {
  return std::any_of(def.combine.begin(), def.combine.end(),
                     [](Combine c) { return c == Combine::kCustom || c == Combine::kNone; });
}

std::vector<ScalarId> combine(NestBuilder& nest, const LoweredNode& node, std::span<const ScalarId> a,
                              std::span<const ScalarId> b) {
  const ReductionDef& def = node.reduction_def();
  NodeBuilder builder(nest, node, loops::kNoScalar);
  if (def.merge) return def.merge(builder, a, b);
  std::vector<ScalarId> result;
  for (size_t i = 0; i < def.combine.size(); ++i) {
    result.push_back(nest.emit(make_scalar(combine_op(def.combine[i]), def.dtypes[i], {a[i], b[i]})));
  }
  return result;
}

std::unique_ptr<loops::CombineFn> combine_fn(NestBuilder& nest, const LoweredNode& node) {
  auto fn = std::make_unique<loops::CombineFn>();
  nest.open_isolated();
  for (const DType dtype : node.reduction_def().dtypes) fn->left.push_back(nest.new_scalar(dtype));
  for (const DType dtype : node.reduction_def().dtypes) fn->right.push_back(nest.new_scalar(dtype));
  fn->result = combine(nest, node, fn->left, fn->right);
  fn->body = std::make_unique<loops::Block>(nest.close_isolated());
  return fn;
}

namespace {

/// What lies across the vector loop comes through tiles in local memory.
void load_tiles(State& s, NestBuilder& nest, const NestPlan::Tile& tile) {
  ExprContext& ctx = s.ctx;
  const ExprMap corner{{tile.row, ctx.constant(0)}, {tile.lane, ctx.constant(0)}};
  for (const Access& access : tile.accesses) {
    const int64_t length = s.options.gpu ? gpu_tile_pitch(tile.most_lanes, access.dtype) : tile.most_lanes;
    const BufferId local = nest.add_local(access.dtype, tile.most_rows * length);
    loops::Transpose copy;
    copy.from = nest.buffer_arg(access.buffer, false);
    copy.from_index = s.simplify(ctx.substitute(nest.finalize(access.address), corner));
    copy.from_stride = access.address.coefficient_of(tile.lane_dim);
    copy.to = nest.buffer_arg(local, true);
    copy.to_index = ctx.constant(0);
    copy.to_stride = ctx.constant(length);
    copy.rows = tile.lanes;
    copy.columns = tile.rows;
    nest.transpose(copy);
    nest.redirect(access.buffer, access.address, local, tile.row * ctx.constant(length) + tile.lane);
  }
}

}  // namespace

void open_outer(State& s, NestBuilder& nest, const NestPlan& plan) {
  for (const LoopSpec& loop : plan.outer) {
    if (plan.tile && loop.var == plan.tile->row) load_tiles(s, nest, *plan.tile);
    nest.open_loop(loop.var, loop.extent, loop.kind);
  }
}

namespace {

/// The kernel for a launch, or one that is equal to it.
const DetachedKernel& detached_kernel(State& s, loops::Kernel kernel, const NestPlan& plan, Expr parallel_iterations) {
  const auto [found, is_new] = s.kernels.try_emplace(kernel_key(kernel, parallel_iterations));
  DetachedKernel& result = found->second;
  if (!is_new) return result;
  result.kernel = std::make_shared<loops::Kernel>(detach_kernel(s, std::move(kernel), result.sizes));
  if (!s.options.gpu) return result;
  loops::GpuMapping& mapping = result.kernel->gpu;
  mapping = gpu_mapping(*result.kernel, *s.options.gpu, s.hint(parallel_iterations, 64));
  Expr lanes;
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind == LoopKind::kVector) lanes = loop.extent;
  }
  result.gpu_blocks = gpu_blocks(s, mapping, parallel_iterations, lanes);
  return result;
}

}  // namespace

void finish_kernel(State& s, NestBuilder& nest, loops::Kernel kernel, const NestPlan& plan, Expr elements) {
  kernel.body = nest.take_body();
  PlanKernel info;
  for (const std::string& op : nest.fused_ops) {
    if (info.name.size() > 60) break;
    const OpDef* def = OpRegistry::global().find(op);
    if (def != nullptr && def->traits.unnamed && nest.fused_ops.size() > 1) continue;
    std::string word = op;
    std::replace(word.begin(), word.end(), '.', '_');
    info.name += (info.name.empty() ? "" : "_") + word;
  }
  if (info.name.empty()) info.name = "copy";
  kernel.name = info.name;
  info.fused_ops = nest.fused_ops;
  info.nodes = nest.fused_nodes;
  info.fault_sites = nest.fault_sites;
  KernelLaunch launch;
  launch.kernel = static_cast<int>(s.out.kernels.size());
  for (const BufferId b : nest.buffer_ids) {
    if (b >= 0) launch.buffers.push_back(b);
  }
  lift_offsets(s, kernel, launch);
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const loops::BufferArg& arg = kernel.buffers[b];
    if (arg.kind == loops::ArgKind::kScratch) continue;
    const int64_t bytes = s.hint(arg.numel, 0) * dtype_size(arg.dtype);
    if (arg.kind != loops::ArgKind::kOutput) info.bytes_read += bytes;
    if (arg.kind != loops::ArgKind::kInput) info.bytes_written += bytes;
  }
  launch.parallel_iterations = parallel_iterations(s, plan);
  launch.work = s.simplify(elements * s.ctx.constant(std::max(1, nest.work.operations)));
  const DetachedKernel& detached = detached_kernel(s, std::move(kernel), plan, launch.parallel_iterations);
  launch.sizes = detached.sizes;
  launch.gpu_threads = detached.kernel->gpu.threads;
  launch.gpu_shared = detached.kernel->gpu.shared;
  launch.gpu_blocks = detached.gpu_blocks;
  launch.maps = loops::tensor_maps(*detached.kernel);
  s.out.kernels.push_back(detached.kernel);
  s.out.plan.kernels.push_back(std::move(info));
  s.out.plan.steps.emplace_back(std::move(launch));
}

}  // namespace tatara::sched

namespace tatara {

namespace {

template <typename Fn>
bool any_operator(const PlanKernel& kernel, Fn&& fits) {
  return std::any_of(kernel.fused_ops.begin(), kernel.fused_ops.end(), [&](const std::string& op) {
    const OpDef* def = OpRegistry::global().find(op);
    return def != nullptr && fits(*def);
  });
}

}  // namespace

bool PlanKernel::decides() const {
  return any_operator(*this, [](const OpDef& op) { return op.decides; });
}

bool awaits_condition(const HostCall& call) { return call.op == kDecideCall; }
bool awaits_condition(const PlanStep& step) {
  const auto* call = std::get_if<HostCall>(&step);
  return call != nullptr && awaits_condition(*call);
}

bool Plan::decides() const {
  return std::any_of(kernels.begin(), kernels.end(), [](const PlanKernel& kernel) { return kernel.decides(); }) ||
         std::any_of(steps.begin(), steps.end(), [](const PlanStep& step) { return awaits_condition(step); });
}

bool PlanKernel::fails_as_host() const {
  return any_operator(*this, [](const OpDef& op) { return op.per_matrix; });
}

}  // namespace tatara
