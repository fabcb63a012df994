// Matrix products on GPUs whose result has rows of an odd length, which the host's fast kernels do not take.
#include "ops/builder.h"
#include "ops/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kAligned = 8;          // elements of 2 bytes in the 16 that the fast kernels load and store at once
constexpr int64_t kLeastWork = 1 << 30;  // multiplications, below which two more kernels cost more than they give

/// Columns of the result that a product of their own gets; 0 leaves the node as it is.
int64_t aligned_columns(const Graph& g, const Node& node) {
  const bool added = node.op->name == "addmm";
  if (!added && node.op->name != "mm") return 0;
  const TensorType& out = g.type(node.outputs[0]);
  const auto* left = std::get_if<TensorArg>(&node.args[added ? 1 : 0]);
  if (left == nullptr || out.device.kind != DeviceKind::kCuda || dtype_size(out.dtype) != 2) return 0;
  if (added && g.type(std::get<TensorArg>(node.args[0]).value).dim() != 1) return 0;
  const Expr inner = g.type(left->value).sizes[1];
  if (!out.sizes[1].is_const() || !inner.is_const()) return 0;
  const int64_t columns = out.sizes[1].const_value();
  const double rows = static_cast<double>(g.ctx().evaluate_hint(out.sizes[0]).value_or(1));
  const double work = rows * static_cast<double>(columns) * static_cast<double>(inner.const_value());
  if (columns % kAligned == 0 || columns < 8 * kAligned || work < kLeastWork) return 0;
  return columns / kAligned * kAligned;
}

ValueId split_product(GraphCopy& copy, const Node& node, int64_t columns) {
  GraphBuilder b(copy.to());
  b.set_location(node.location);
  const std::vector<Arg> args = copy.args(node);
  const size_t weight = node.op->name == "addmm" ? 2 : 1;
  ExprContext& ctx = b.ctx();
  const Expr at = ctx.constant(columns);
  const Expr end = copy.from().type(node.outputs[0]).sizes[1];
  const auto part = [&](Expr from, Expr to) {
    std::vector<Arg> own = args;
    own[weight] = TensorArg{b.slice(std::get<TensorArg>(args[weight]).value, 1, from, to, ctx.constant(1))};
    if (weight == 2) own[0] = TensorArg{b.slice(std::get<TensorArg>(args[0]).value, 0, from, to, ctx.constant(1))};
    return b.call(*node.op, std::move(own))[0];
  };
  const ValueId first = part(ctx.constant(0), at);
  return b.op("cat", {TensorList{{first, part(at, end)}}, Scalar(int64_t{1})});
}

}  // namespace

Graph align_products(const Graph& graph) {
  return run_pass("align_products", graph, [](const Graph& g) {
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const int64_t columns = aligned_columns(g, node);
      if (columns == 0) {
        copy.copy(node);
        continue;
      }
      const size_t first_new = copy.to().num_nodes();
      const ValueId joined = split_product(copy, node, columns);
      copy.set(node.outputs[0], with_type(copy, joined, g.type(node.outputs[0]), first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
