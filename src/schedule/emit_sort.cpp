// Sorting rows on a GPU: a kernel of one operator between tensors in memory.
#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

/// Types whose order is that of their bits, or of their bits but for a sign.
bool sorted_here(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return true;
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: break;
  }
  return false;
}

int64_t count_of(const LoweredNode& node) {
  const SortDef& def = node.sort_def();
  const Expr extent = node.operand(0).sizes[static_cast<size_t>(def.dim)];
  return def.count < 0 ? extent.const_value() : def.count;
}

/// Where a value's elements along the dims lie: a row of it, over the other dims' variables.
loops::Sort::Row row_of(State& s, NestBuilder& nest, ValueId v, const std::vector<Expr>& index, size_t dim,
                        bool written) {
  const auto view = affine_view(s, v);
  const ValueId base = view ? view->base : v;
  const ValueInfo& info = s.values[static_cast<size_t>(base)];
  TATARA_CHECK(info.storage.has_value(), s.name_of(v), " has no memory");
  Storage storage = *info.storage;
  if (view) {
    storage.strides = &view->strides;
    storage.offset = view->offset;
  }
  std::vector<Expr> first = index;
  first[dim] = s.ctx.constant(0);
  loops::Sort::Row row;
  row.buffer = nest.buffer_arg(storage.buffer, written);
  row.index = nest.finalize(nest.address_of(storage, first));
  row.stride = s.simplify((*storage.strides)[dim]);
  return row;
}

}  // namespace

bool sorts_rows(State& s, const LoweredNode& node) {
  if (!s.options.gpu) return false;
  const TensorType& type = node.operand(0);
  const auto dim = static_cast<size_t>(node.sort_def().dim);
  if (type.device.kind != DeviceKind::kCuda || !sorted_here(type.dtype) || !type.sizes[dim].is_const()) return false;
  loops::Sort rows;
  rows.extent = type.sizes[dim].const_value();
  if (rows.extent <= 0 || rows.extent > INT32_MAX) return false;
  // Which of equal elements the host's selection takes, and in what order, is its own affair; among whole numbers many are equal.
  if (node.sort_def().count >= 0 && !is_floating(type.dtype)) return false;
  rows.count = count_of(node);
  if (rows.count <= 0 || rows.count > rows.extent) return false;
  if (!rows.selects() && rows.extent > loops::Sort::kMostExtent) return false;
  // Neighbouring threads read neighbours.
  if (!type.strides[dim].is_const(1) && rows.extent > 1) return false;
  return true;
}

void emit_sort(State& s, int unit) {
  const LoweredNode& node = *s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)];
  const SortDef& def = node.sort_def();
  const std::vector<Expr>& sizes = node.operand(0).sizes;
  const auto dim = static_cast<size_t>(def.dim);
  loops::Kernel kernel;
  NestBuilder nest(s, kernel);
  NestPlan plan;
  std::vector<Expr> index(sizes.size(), s.ctx.constant(0));
  Expr elements = s.ctx.constant(1);
  for (size_t d = 0; d < sizes.size(); ++d) {
    elements = elements * sizes[d];
    if (d == dim || sizes[d].is_const(1)) continue;
    index[d] = s.pooled_symbol(sizes[d], d);
    plan.outer.push_back({index[d], sizes[d], LoopKind::kParallel, index[d], Expr()});
  }
  for (const LoopSpec& loop : plan.outer) nest.open_loop(loop.var, loop.extent, loop.kind);
  nest.location = &node.node().location;
  loops::Sort rows;
  rows.extent = sizes[dim].const_value();
  rows.count = count_of(node);
  rows.descending = def.descending;
  rows.from = row_of(s, nest, node.operands[0], index, dim, false);
  const auto result = [&](int output) {
    if (output < 0) return loops::Sort::Row();
    const ValueId v = node.node().outputs[static_cast<size_t>(output)];
    return s.values[static_cast<size_t>(v)].storage ? row_of(s, nest, v, index, dim, true) : loops::Sort::Row();
  };
  rows.values = result(def.values);
  rows.places = result(def.places);
  nest.fused(node);
  nest.sort(std::move(rows));
  for (size_t i = 0; i < plan.outer.size(); ++i) nest.close_loop({});
  finish_kernel(s, nest, std::move(kernel), plan, s.simplify(elements));
}

}  // namespace tatara::sched
