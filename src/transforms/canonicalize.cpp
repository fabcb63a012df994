#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {

namespace {

/// The operand that the node only repeats, or kNoValue.
ValueId same_as_operand(const Graph& g, const Node& node) {
  if (node.outputs.size() != 1 || node.args.empty()) return kNoValue;
  const auto* tensor = std::get_if<TensorArg>(&node.args[0]);
  if (tensor == nullptr || tensor->value == kNoValue) return kNoValue;
  const TensorType& in = g.type(tensor->value);
  const TensorType& out = g.type(node.outputs[0]);
  if (in.dtype != out.dtype || !(in.sizes == out.sizes) || !(in.strides == out.strides)) return kNoValue;
  return node.op->traits.repeats_operand ? tensor->value : kNoValue;
}

bool is_zero_scalar(const Graph& g, ValueId v) {
  const Node* node = g.producer(v);
  while (node != nullptr && (node->op->name == "expand" || node->op->name == "cast")) {
    node = g.producer(std::get<TensorArg>(node->args[0]).value);
  }
  return node != nullptr && fills_zeros(*node);
}

/// The sum of rows with one value each, zeros beside it, is that value: what a log-softmax's gradient sums after a look-up.
ValueId sum_of_one_place(const Graph& g, const Node& node) {
  if (node.op->name != "sum") return kNoValue;
  const auto* tensor = std::get_if<TensorArg>(&node.args[0]);
  const Node* rows = tensor == nullptr ? nullptr : g.producer(tensor->value);
  if (rows == nullptr || rows->op->name != "add_one_place" ||
      !is_zero_scalar(g, std::get<TensorArg>(rows->args[0]).value)) {
    return kNoValue;
  }
  const ValueId value = std::get<TensorArg>(rows->args[3]).value;
  const TensorType &out = g.type(node.outputs[0]), &in = g.type(value);
  const auto rank = static_cast<int64_t>(g.type(tensor->value).sizes.size());
  const int64_t dim = std::get<int64_t>(std::get<Scalar>(rows->args[1]));
  const auto* dims = std::get_if<SymInts>(&node.args[1]);
  const bool same_dim =
      dims != nullptr && dims->values.size() == 1 &&
      (dims->values[0].is_const(dim) || dims->values[0].is_const(dim - rank) || dims->values[0].is_const(dim + rank));
  return same_dim && in.dtype == out.dtype && in.sizes == out.sizes && in.strides == out.strides ? value : kNoValue;
}

}  // namespace

Graph canonicalize(const Graph& graph, const PassOptions& options) {
  return run_pass("canonicalize", graph, options, [](const Graph& g) {
    const std::vector<bool> escapes = escaping_values(g);
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      ValueId operand = same_as_operand(g, node);
      if (operand == kNoValue) operand = sum_of_one_place(g, node);
      // What escapes keeps an identity of its own.
      if (operand != kNoValue && !escapes[static_cast<size_t>(node.outputs[0])]) {
        copy.set(node.outputs[0], copy[operand]);
      } else {
        copy.copy(node);
      }
    }
    return copy.finish();
  });
}

}  // namespace tatara
