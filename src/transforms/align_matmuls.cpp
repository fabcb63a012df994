// Matrix products on GPUs with a result or an operand whose rows have an odd length, which the host's fast kernels do not take.
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kAligned = 8;          // elements of 2 bytes in the 16 that the fast kernels load and store at once
constexpr int64_t kLeastWork = 1 << 30;  // multiplications, below which two more kernels cost more than they give

/// Place of the left operand; the right one follows. -1: no such product.
int left_operand(const Node& node) { return node.op->name == "mm" ? 0 : node.op->name == "addmm" ? 1 : -1; }

bool worth_it(const Graph& g, const Node& node) {
  const TensorType& out = g.type(node.outputs[0]);
  const auto* left = std::get_if<TensorArg>(&node.args[static_cast<size_t>(left_operand(node))]);
  if (left == nullptr || out.device.kind != DeviceKind::kCuda || dtype_size(out.dtype) != 2) return false;
  double work = 1;
  for (const Expr size : {out.sizes[0], out.sizes[1], g.type(left->value).sizes[1]}) {
    work *= static_cast<double>(g.ctx().evaluate_hint(size).value_or(1));
  }
  return work >= kLeastWork;
}

/// The operand with rows that begin on 16 bytes, in memory of its own; itself where they do.
ValueId aligned_rows(GraphBuilder& b, const Graph& graph, ValueId operand) {
  // Of a transposed operand the original is laid out anew, which other products may share.
  const NodeId made = graph.value(operand).producer;
  if (made >= 0 && graph.node(made).op->name == "permute") {
    const Node node = graph.node(made);
    const ValueId base = std::get<TensorArg>(node.args[0]).value;
    const ValueId aligned = aligned_rows(b, graph, base);
    if (aligned == base) return operand;
    std::vector<Arg> args = node.args;
    args[0] = TensorArg{aligned};
    return b.call(*node.op, std::move(args)).at(0);
  }
  const TensorType type = b.type(operand);
  if (type.dim() != 2 || !type.sizes[0].is_const() || !type.sizes[1].is_const()) return operand;
  for (const size_t row : {size_t{0}, size_t{1}}) {
    const Expr stride = type.strides[row];
    if (!type.strides[1 - row].is_const(1) || !stride.is_const()) continue;
    const int64_t columns = type.sizes[1 - row].const_value();
    if (stride.const_value() % kAligned == 0 || columns < 8 * kAligned) return operand;
    std::vector<Expr> strides = type.strides;
    strides[row] = b.ctx().constant((columns + kAligned - 1) / kAligned * kAligned);
    return b.op("relayout", {TensorArg{operand}, SymInts{strides}});
  }
  return operand;
}

/// The length of the inner dimension where it is odd and long, else 0.
int64_t odd_inner(const GraphBuilder& b, ValueId left) {
  const Expr inner = b.type(left).sizes[1];
  if (!inner.is_const()) return 0;
  const int64_t length = inner.const_value();
  return length % kAligned == 0 || length < 64 * kAligned ? 0 : length;
}

/// Columns of the result that a product of their own gets; 0 leaves the node as it is.
int64_t aligned_columns(const Graph& g, const Node& node) {
  const bool added = node.op->name == "addmm";
  const TensorType& out = g.type(node.outputs[0]);
  if (added && g.type(std::get<TensorArg>(node.args[0]).value).dim() != 1) return 0;
  const auto& left = std::get<TensorArg>(node.args[added ? 1 : 0]);
  if (!out.sizes[1].is_const() || !g.type(left.value).sizes[1].is_const()) return 0;
  const int64_t columns = out.sizes[1].const_value();
  return columns % kAligned == 0 || columns < 8 * kAligned ? 0 : columns / kAligned * kAligned;
}

/// A product over an inner dimension of an odd length: of the aligned part, and of the rest.
ValueId split_inner(GraphBuilder& b, const Node& node, const std::vector<Arg>& args, int64_t inner) {
  const auto left = static_cast<size_t>(left_operand(node));
  ExprContext& ctx = b.ctx();
  const Expr at = ctx.constant(inner / kAligned * kAligned), end = ctx.constant(inner), one = ctx.constant(1);
  const auto part = [&](const OpDef& op, std::vector<Arg> own, size_t first, Expr from, Expr to) {
    own[first] = TensorArg{b.slice(std::get<TensorArg>(args[left]).value, 1, from, to, one)};
    own[first + 1] = TensorArg{b.slice(std::get<TensorArg>(args[left + 1]).value, 0, from, to, one)};
    return b.call(op, std::move(own))[0];
  };
  const ValueId most = part(*node.op, args, left, ctx.constant(0), at);
  const ValueId rest = part(OpRegistry::global().get("mm"), std::vector<Arg>(2), 0, at, end);
  if (left == 1) {
    return b.binary("add", most, b.op("mul", {TensorArg{rest}, args[4]}));
  }
  return b.binary("add", most, rest);
}

ValueId split_product(GraphBuilder& b, const GraphCopy& copy, const Node& node, const std::vector<Arg>& args,
                      int64_t columns) {
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

Graph align_matmuls(const Graph& graph, const PassOptions& options) {
  return run_pass("align_matmuls", graph, options, [](const Graph& g) {
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      if (left_operand(node) < 0 || !worth_it(g, node)) {
        copy.copy(node);
        continue;
      }
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      std::vector<Arg> args = copy.args(node);
      const auto left = static_cast<size_t>(left_operand(node));
      for (const size_t i : {left, left + 1}) {
        args[i] = TensorArg{aligned_rows(b, copy.to(), std::get<TensorArg>(args[i]).value)};
      }
      const int64_t columns = aligned_columns(g, node), inner = odd_inner(b, std::get<TensorArg>(args[left]).value);
      const ValueId made = columns != 0 ? split_product(b, copy, node, args, columns)
                           : inner != 0 ? split_inner(b, node, args, inner)
                                        : b.call(*node.op, args)[0];
      copy.set(node.outputs[0], with_type(copy, made, g.type(node.outputs[0]), first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
