// Scans, scatters and copies into inputs: kernels of one operator with its inputs' expressions inlined.
#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

NestBuilder::AccessFn loads_of_roots(State& s, NestBuilder& nest, ValueId current = kNoValue) {
  return [&s, &nest, current](ValueId v, const std::vector<Expr>& indices, ScalarId mask) -> std::optional<ScalarId> {
    const ValueInfo& info = s.values[static_cast<size_t>(v)];
    if (!info.root || v == current) return std::nullopt;
    TATARA_CHECK(info.storage.has_value(), s.name_of(v), " has no memory");
    return nest.load(v, *info.storage, indices, mask, loops::kNoScalar);
  };
}

/// A group over `sizes`, dimension by dimension (those of size 1 too), with flags for what runs inside.
Space space_of(State& s, const std::vector<Expr>& sizes, const std::vector<bool>& inside) {
  Space g;
  g.dims = sizes;
  g.reduced = inside;
  g.has_reduction = std::find(inside.begin(), inside.end(), true) != inside.end();
  for (size_t d = 0; d < sizes.size(); ++d) g.symbols.push_back(s.pooled_symbol(sizes[d], d));
  return g;
}

Expr emitted_elements(State& s, const std::vector<Expr>& sizes) {
  Expr product = s.ctx.constant(1);
  for (const Expr e : sizes) product = product * e;
  return product;
}

/// Builds the nest over plain dims, and then as planned and rearranged.
template <typename Arrange, typename Body>
void run_twice(State& s, const Space& space, bool lanes_inside, Arrange&& arrange, Body&& body) {
  loops::Kernel scratch;
  NestBuilder dry(s, scratch);
  const NestPlan plain = plain_nest(space);
  body(dry, plain);
  NestPlan plan = plan_nest(s, space, dry.accesses, dry.index_uses, lanes_inside);
  arrange(plan);
  loops::Kernel kernel;
  NestBuilder nest(s, kernel);
  nest.substitution = plan.substitution;
  body(nest, plan);
  finish_kernel(s, nest, std::move(kernel), plan, emitted_elements(s, space.dims));
}

constexpr auto as_planned = [](const NestPlan&) {};

/// The vector loop belongs inside of loops that must run in order.
void serial_loops_first(NestPlan& plan) {
  if (plan.outer.empty() || plan.outer.back().kind != LoopKind::kVector) return;
  plan.inner.push_back(plan.outer.back());
  plan.outer.pop_back();
}

}  // namespace

void emit_scan(State& s, int unit) {
  const LoweredNode& node = *s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)];
  const ReductionDef& def = node.reduction_def();
  const std::vector<Expr>& sizes = node.operand(0).sizes;
  const auto dim = static_cast<size_t>(def.dims[0]);
  std::vector<bool> inside(sizes.size(), false);
  inside[dim] = true;
  const Space space = space_of(s, sizes, inside);
  // Lanes may run along the scan where the combine function is an operator.
  const bool simple = !def.merge && !is_custom(def) && def.combine.size() == 1;
  run_twice(s, space, simple, as_planned, [&](NestBuilder& nest, const NestPlan& plan) {
    nest.access = loads_of_roots(s, nest);
    for (const LoopSpec& loop : plan.outer) nest.open_loop(loop.var, loop.extent, loop.kind);
    NodeBuilder builder(nest, node, loops::kNoScalar);
    const std::vector<ScalarId> init = def.init(builder);
    std::vector<loops::Carried> carried;
    for (size_t i = 0; i < init.size(); ++i) {
      carried.push_back({.dtype = def.dtypes[i], .init = init[i], .arg = -1, .next = -1, .result = -1});
    }
    std::vector<Expr> index = space.symbols;
    if (node.reverse) index[dim] = s.simplify(sizes[dim] - 1 - index[dim]);
    for (const LoopSpec& loop : plan.inner) {
      const bool lanes = loop.kind == LoopKind::kVector;
      for (size_t i = 0; i < carried.size(); ++i) carried[i].combine = lanes ? def.combine[i] : loops::Combine::kNone;
      nest.open_loop(loop.var, loop.extent, lanes ? loop.kind : LoopKind::kSerial, carried, lanes);
    }
    nest.location = &node.node().location;
    std::vector<ScalarId> parts = def.element(builder, index);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = nest.cast(parts[i], def.dtypes[i]);
    const std::vector<ScalarId> next = combine(nest, node, nest.carried_args(), parts);
    const std::vector<ScalarId> outs = def.finish ? def.finish(builder, next, index) : next;
    nest.fused(node);
    for (size_t i = 0; i < node.node().outputs.size(); ++i) {
      const ValueId v = node.node().outputs[i];
      const ValueInfo& info = s.values[static_cast<size_t>(v)];
      if (info.needed && info.storage) nest.store(v, *info.storage, index, outs[i]);
    }
    for (size_t i = 0; i < plan.inner.size(); ++i) nest.close_loop(next);
    for (size_t i = 0; i < plan.outer.size(); ++i) nest.close_loop({});
  });
}

namespace {

/// result = base, over the result's space.
void emit_base_copy(State& s, const LoweredNode& node, ValueId result) {
  const std::vector<Expr>& sizes = node.result().sizes;
  const Space space = space_of(s, sizes, std::vector<bool>(sizes.size(), false));
  run_twice(s, space, false, as_planned, [&](NestBuilder& nest, const NestPlan& plan) {
    nest.access = loads_of_roots(s, nest);
    open_outer(s, nest, plan);
    NodeBuilder builder(nest, node, loops::kNoScalar);
    const ScalarId x = builder.load(node.scatter_def().base_operand, space.symbols);
    nest.store(result, *s.values[static_cast<size_t>(result)].storage, space.symbols, x);
    for (size_t i = 0; i < plan.outer.size(); ++i) nest.close_loop({});
  });
}

/// Dims of the domain that a component of the destination is: iterations differing there never meet.
std::vector<bool> meeting_dims(State& s, const LoweredNode& node, const Space& space) {
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  nest.access = loads_of_roots(s, nest);
  NodeBuilder builder(nest, node, loops::kNoScalar);
  const std::vector<Expr> destination = node.scatter_def().destination(builder, space.symbols);
  std::vector<bool> meeting(space.symbols.size(), true);
  for (const Expr e : destination) {
    const Expr simple = s.simplify(e);
    size_t depends = 0, last = 0;
    for (size_t d = 0; d < space.symbols.size(); ++d) {
      if (!space.symbols[d].is_symbol() || !simple.contains(space.symbols[d])) continue;
      ++depends;
      last = d;
    }
    if (depends != 1) continue;
    const Expr step = simple.coefficient_of(space.symbols[last]);  // start + step * index
    if (step.valid() && step.is_const() && !step.is_const(0)) meeting[last] = false;
  }
  return meeting;
}

constexpr int64_t kLeastColumns = 64;  // that a thread gets of rows that meet

/// Rows that meet go in order, but their columns are apart: where there is no other parallel loop, each thread takes some of
/// the columns of all rows.
void share_columns(State& s, NestPlan& plan) {
  if (s.options.gpu || s.options.num_threads <= 1 || !plan.outer.empty() || plan.inner.size() < 2) return;
  const LoopSpec whole = plan.inner.back();
  if (whole.kind != LoopKind::kVector || !whole.dim.valid()) return;
  const int64_t columns = s.hint(whole.extent, 0);
  const int64_t count = std::min<int64_t>(columns / kLeastColumns, s.options.num_threads);
  if (count < 2) return;
  ExprContext& ctx = s.ctx;
  const Expr size = ctx.constant((columns + count * 16 - 1) / (count * 16) * 16);
  const Expr blocks = s.simplify(ctx.ceildiv(whole.extent, size));
  const bool even = whole.extent.is_const() && columns % size.const_value() == 0;
  const Expr block = s.pooled_symbol(blocks, 200);
  const Expr extent = even ? size : ctx.min(size, whole.extent - block * size);
  const Expr lane = s.pooled_symbol(extent, 201);
  plan.outer.push_back({block, blocks, LoopKind::kParallel, Expr(), Expr()});
  plan.inner.back() = {lane, extent, LoopKind::kVector, Expr(), size};
  plan.substitution[whole.dim] = block * size + lane;
}

/// What the element becomes. No two lanes or threads meet at one element, so reading, combining and writing will do.
ScalarId updated(State& s, NestBuilder& nest, ValueId result, const Storage& storage, const std::vector<Expr>& to,
                 ScalarId x, loops::StoreMode mode) {
  if (mode == loops::StoreMode::kSet) return x;
  // Read and written: keeps the load where it stands.
  nest.buffer_arg(storage.buffer, false);
  nest.buffer_arg(storage.buffer, true);
  const ScalarId old = nest.load(result, storage, to, loops::kNoScalar, loops::kNoScalar);
  const DType dtype = nest.dtype(old);
  const ScalarId value = nest.cast(nest.round(x, s.graph.type(result).dtype), dtype);
  switch (mode) {
    case loops::StoreMode::kAdd:
      return nest.emit(make_scalar(dtype == DType::kBool ? ScalarOp::kOr : ScalarOp::kAdd, dtype, {old, value}));
    case loops::StoreMode::kMul:
      return nest.emit(make_scalar(dtype == DType::kBool ? ScalarOp::kAnd : ScalarOp::kMul, dtype, {old, value}));
    case loops::StoreMode::kMin: return nest.emit(make_scalar(ScalarOp::kMin, dtype, {old, value}));
    case loops::StoreMode::kMax: return nest.emit(make_scalar(ScalarOp::kMax, dtype, {old, value}));
    case loops::StoreMode::kSet: break;
  }
  TATARA_UNREACHABLE("store mode ", static_cast<int>(mode));
}

/// How rows that meet are kept apart.
enum class Meeting : uint8_t {
  kInOrder,  // the loops over them run in order
  kAtomic,   // the memory does it
  kFree,     // not at all: any of them may be the last
};

/// On a GPU, as in eager there: the order of sums and of writes to one place is not defined.
Meeting meeting_of(State& s, const ScatterDef& def, DType dtype) {
  if (!s.options.gpu) return Meeting::kInOrder;
  if (def.mode == loops::StoreMode::kSet) return Meeting::kFree;
  const bool parts = is_complex(dtype) && def.mode != loops::StoreMode::kAdd;  // both at once
  return parts ? Meeting::kInOrder : Meeting::kAtomic;
}

/// Whether all that the block stores are constants whose bits are zero.
bool stores_zeros(const loops::Block& block) {
  return std::all_of(block.stmts.begin(), block.stmts.end(), [](const loops::Stmt& stmt) {
    if (const auto* loop = std::get_if<loops::For>(&stmt)) return loop->carried.empty() && stores_zeros(*loop->body);
    if (const auto* store = std::get_if<loops::Store>(&stmt)) return store->mode == loops::StoreMode::kSet;
    const auto* let = std::get_if<loops::Let>(&stmt);
    if (let == nullptr) return false;
    const loops::Scalar& x = let->scalar;
    if (x.op == loops::ScalarOp::kCast) return true;  // of such a constant
    if (x.op != loops::ScalarOp::kConst) return false;
    const bool negative = std::signbit(x.const_re) || std::signbit(x.const_im);
    return x.const_int == 0 && x.const_re == 0 && x.const_im == 0 && !negative;
  });
}

/// Marks the launch that made the scatter's base where that is zeros, in an output's memory, of which the scatter leaves most.
void mark_clearing(State& s, const LoweredNode& node, BufferId target) {
  Plan& plan = s.out.plan;
  if (s.options.gpu || plan.buffers[static_cast<size_t>(target)].home != BufferHome::kOutput) return;
  const int64_t written = s.hint(emitted_elements(s, node.scatter_def().domain), -1);
  if (written < 0 || written > s.hint(emitted_elements(s, node.result().sizes), 0) / 2) return;
  KernelLaunch* only = nullptr;
  for (const size_t step : s.steps_with(target)) {
    auto* launch = std::get_if<KernelLaunch>(&plan.steps[step]);
    if (launch == nullptr || only != nullptr || launch->buffers.size() != 1) return;
    only = launch;
  }
  if (only == nullptr) return;
  only->clears = stores_zeros(s.out.kernels[static_cast<size_t>(only->kernel)]->body);
}

}  // namespace

void emit_scatter(State& s, int unit) {
  const LoweredNode& node = *s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)];
  const ValueId result = node.node().outputs[0];
  const ScatterDef& def = node.scatter_def();
  const ValueId base = node.operands[static_cast<size_t>(def.base_operand)];
  const Storage& target = *s.values[static_cast<size_t>(result)].storage;
  const auto& source = s.values[static_cast<size_t>(base)].storage;
  // Computed into the very tensor that it starts from: nothing to copy.
  if (!source || source->buffer != target.buffer) emit_base_copy(s, node, result);
  mark_clearing(s, node, target.buffer);
  const Meeting meeting = meeting_of(s, def, s.graph.type(result).dtype);
  const bool ordered = meeting == Meeting::kInOrder;
  Space space = space_of(s, def.domain, std::vector<bool>(def.domain.size(), ordered));
  if (ordered) space.reduced = meeting_dims(s, node, space);
  space.has_reduction = ordered;
  const auto arrange = [&](NestPlan& plan) {
    if (!ordered) return;
    serial_loops_first(plan);
    share_columns(s, plan);
  };
  run_twice(s, space, false, arrange, [&](NestBuilder& nest, const NestPlan& plan) {
    nest.access = loads_of_roots(s, nest);
    for (const LoopSpec& loop : plan.outer) nest.open_loop(loop.var, loop.extent, loop.kind);
    for (const LoopSpec& loop : plan.inner) nest.open_loop(loop.var, loop.extent, loop.kind);
    NodeBuilder builder(nest, node, loops::kNoScalar);
    nest.location = &node.node().location;
    const std::vector<Expr> to = def.destination(builder, space.symbols);
    const ScalarId x = def.value(builder, space.symbols);
    nest.fused(node);
    const Storage& storage = *s.values[static_cast<size_t>(result)].storage;
    if (meeting == Meeting::kAtomic) {
      nest.store(result, storage, to, nest.round(x, s.graph.type(result).dtype), def.mode, loops::kNoScalar, true);
    } else {
      nest.store(result, storage, to, updated(s, nest, result, storage, to, x, def.mode));
    }
    for (size_t i = 0; i < plan.inner.size() + plan.outer.size(); ++i) nest.close_loop({});
  });
}

void emit_copy(State& s, int unit) {
  const Unit& copy = s.units[static_cast<size_t>(unit)];
  const ValueId target = s.graph.inputs()[static_cast<size_t>(copy.input)];
  const std::vector<Expr>& sizes = s.graph.type(target).sizes;
  const Space space = space_of(s, sizes, std::vector<bool>(sizes.size(), false));
  run_twice(s, space, false, as_planned, [&](NestBuilder& nest, const NestPlan& plan) {
    nest.access = loads_of_roots(s, nest);
    open_outer(s, nest, plan);
    const ScalarId x = nest.eval(copy.value, space.symbols);
    nest.store(target, *s.values[static_cast<size_t>(target)].storage, space.symbols, x);
    for (size_t i = 0; i < plan.outer.size(); ++i) nest.close_loop({});
  });
}

}  // namespace tatara::sched
