#include "ops/op_def.h"
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
  const std::string& op = node.op->name;
  const bool repeats =
      op == "cast" || op == "expand" || op == "reshape" || op == "view" || op == "alias" || op == "detach";
  return repeats ? tensor->value : kNoValue;
}

}  // namespace

Graph canonicalize(const Graph& graph) {
  return run_pass("canonicalize", graph, [](const Graph& g) {
    const std::vector<bool> escapes = escaping_values(g);
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const ValueId operand = same_as_operand(g, node);
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
