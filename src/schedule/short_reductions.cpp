// Reductions of a few elements: sums over the three coordinates of a point, or over two halves. On a GPU, as loops of their own they would
// go through memory; written out they are expressions of their elements. On a CPU that is so for elements that are parts joined along
// the reduced dim, of which a loop would compute all and choose one.
#include <algorithm>

#include "schedule/emit.h"
#include "support/options.h"

namespace tatara::sched {

namespace {

constexpr int64_t kShort = 8;    // elements
constexpr int kMostLooked = 24;  // nodes behind the operand

/// Elements that are reduced to one; 0 where that is not known.
int64_t reduced_elements(const LoweredNode& node) {
  int64_t count = 1;
  for (const int64_t d : node.reduction_def().dims) {
    const Expr extent = node.operand(0).sizes[static_cast<size_t>(d)];
    if (!extent.is_const() || extent.const_value() <= 0 || extent.const_value() > kShort) return 0;
    count *= extent.const_value();
  }
  return count;
}

/// Indices of the operand from those of the result: those of the reduced dims are left open.
std::vector<Expr> operand_indices(const LoweredNode& node, std::span<const Expr> out) {
  const ReductionDef& def = node.reduction_def();
  const size_t rank = node.operand(0).sizes.size();
  const bool keepdim = out.size() == rank;
  std::vector<Expr> result;
  size_t next = 0;
  for (size_t d = 0; d < rank; ++d) {
    const bool is_reduced = std::find(def.dims.begin(), def.dims.end(), static_cast<int64_t>(d)) != def.dims.end();
    result.push_back(is_reduced ? node.ctx().constant(0) : out[keepdim ? d : next++]);
  }
  return result;
}

std::vector<ScalarId> total(const LoweredNode& node, LoopBuilder& b, std::span<const Expr> out) {
  const ReductionDef& def = node.reduction_def();
  std::vector<Expr> index = operand_indices(node, out);
  std::vector<ScalarId> acc = def.init(b);
  const int64_t count = reduced_elements(node);
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n;
    for (size_t i = def.dims.size(); i-- > 0;) {
      const auto d = static_cast<size_t>(def.dims[i]);
      const int64_t extent = node.operand(0).sizes[d].const_value();
      index[d] = node.ctx().constant(rest % extent);
      rest /= extent;
    }
    std::vector<ScalarId> parts = def.element(b, index);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = b.cast(parts[i], def.dtypes[i]);
    if (def.merge) {
      acc = def.merge(b, acc, parts);
      continue;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      acc[i] = b.apply(combine_op(def.combine[i]), def.dtypes[i], std::vector<ScalarId>{acc[i], parts[i]});
    }
  }
  return def.finish ? def.finish(b, acc, out) : acc;
}

/// Whether a list of tensors is joined among what computes the value, or a matrix is taken apart.
bool has_joined_parts(const Graph& g, ValueId v, int& looked) {
  const Node* node = g.producer(v);
  if (node == nullptr || ++looked > kMostLooked) return false;
  if (node->op->per_matrix) return true;
  if (node->op->kind != OpKind::kPointwise && node->op->kind != OpKind::kView) return false;
  const bool list = !node->args.empty() && std::holds_alternative<TensorList>(node->args[0]);
  if (list && node->op->kind == OpKind::kPointwise) return true;
  bool found = false;
  for_each_operand(*node, [&](ValueId operand) { found = found || has_joined_parts(g, operand, looked); });
  return found;
}

/// On a CPU: along the last dim, of several rows.
bool chooses_on_cpu(State& s, const LoweredNode& node) {
  if (s.options.gpu || is_custom(node.reduction_def())) return false;
  const ReductionDef& def = node.reduction_def();
  const auto last = static_cast<int64_t>(node.operand(0).sizes.size()) - 1;
  int looked = 0;
  return last > 0 && def.dims == std::vector<int64_t>{last} && has_joined_parts(s.graph, node.operands[0], looked);
}

}  // namespace

void write_out_short(State& s, LoweredNode& node) {
  if (node.kind != LoweredNode::Kind::kReduction || s.options.passes.skips("short_reductions")) return;
  const bool on_gpu = s.options.gpu && node.operand(0).device.kind == DeviceKind::kCuda;
  if (!on_gpu && !chooses_on_cpu(s, node)) return;
  const int64_t count = reduced_elements(node);
  if (count <= 0 || count > kShort) return;
  if (is_custom(node.reduction_def()) && !node.reduction_def().merge) return;
  node.written_out = true;
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    node.pointwise(static_cast<int>(i),
                   [&node, i](LoopBuilder& b, std::span<const Expr> out) { return total(node, b, out)[i]; });
  }
}

}  // namespace tatara::sched
