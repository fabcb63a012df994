#include <algorithm>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {

ValueId with_type(GraphCopy& copy, ValueId v, const TensorType& type, size_t first_new) {
  Graph& g = copy.to();
  const TensorType& now = g.type(v);
  if (now.strides == type.strides && now.dtype == type.dtype && now.is_wrapped_number == type.is_wrapped_number)
    return v;
  const Node* producer = g.producer(v);
  const bool own = producer != nullptr && static_cast<size_t>(g.value(v).producer) >= first_new &&
                   producer->op->kind != OpKind::kView && producer->op->kind != OpKind::kHost &&
                   now.dtype == type.dtype;
  if (own) {
    g.set_type(v, type);
    return v;
  }
  if (now.dtype != type.dtype) return v;
  const OpDef* cast = OpRegistry::global().find("cast");
  if (cast == nullptr) return v;
  const NodeId id = g.add_node(cast, {TensorArg{v}, type.dtype}, {type}, {});
  return g.node(id).outputs[0];
}

namespace {

constexpr int kMaxDecompositions = 32;

/// The results of the node's decomposition in the new graph; empty when it stays as it is.
std::vector<ValueId> parts_of(GraphCopy& copy, const Node& node) {
  if (!node.op->decompose) return {};
  GraphBuilder builder(copy.to());
  builder.set_location(node.location);
  builder.set_no_grad(node.no_grad);
  const size_t before = copy.to().num_nodes();
  const std::vector<Arg> args = copy.args(node);
  try {
    std::vector<ValueId> results = node.op->decompose(builder, args);
    if (results.size() < node.outputs.size()) results.clear();
    for (size_t n = before; n < copy.to().num_nodes(); ++n) copy.to().node(static_cast<NodeId>(n)).again = node.again;
    return results;
  } catch (const Unsupported&) {
    // An operator with loops or a host kernel of its own does without.
    if (!node.op->lower && node.op->kind == OpKind::kComposite) throw;
    copy.to().truncate_nodes(before);
    return {};
  }
}

bool one_round(const Graph& graph, Graph& result) {
  bool changed = false;
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes()) {
    const size_t first_new = copy.to().num_nodes();
    const std::vector<ValueId> parts = parts_of(copy, node);
    if (parts.empty()) {
      copy.copy(node);
      continue;
    }
    changed = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      copy.set(node.outputs[i], with_type(copy, parts[i], graph.type(node.outputs[i]), first_new));
    }
  }
  result = copy.finish();
  return changed;
}

/// Fresh outputs own their memory: a decomposition may have handed back its operand, or one value twice.
Graph own_outputs(const Graph& graph) {
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes()) copy.copy(node);
  Graph result = copy.finish();
  std::vector<ValueId> taken;
  for (GraphOutput& output : result.outputs()) {
    if (output.value == kNoValue || output.alias.kind != OutputAlias::Kind::kFresh) continue;
    ValueId base = output.value;
    for (const Node* node = result.producer(base); node != nullptr && node->op->kind == OpKind::kView;) {
      ValueId operand = kNoValue;
      for_each_operand(*node, [&](ValueId v) { operand = operand == kNoValue ? v : operand; });
      if (operand == kNoValue) break;
      base = operand;
      node = result.producer(base);
    }
    const bool shared = result.producer(base) == nullptr || std::find(taken.begin(), taken.end(), base) != taken.end();
    if (shared) {
      GraphBuilder builder(result);
      const std::vector<Expr> strides = result.type(output.value).strides;
      output.value = builder.op("relayout", {TensorArg{output.value}, SymInts{strides}});
      base = output.value;
    }
    taken.push_back(base);
  }
  return result;
}

}  // namespace

Graph decompose(const Graph& graph, const PassOptions& options) {
  return run_pass("decompose", graph, options, [](const Graph& g) {
    Graph result = g;
    for (int round = 0; round < kMaxDecompositions; ++round) {
      Graph next(g.ctx_ptr());
      const bool changed = one_round(result, next);
      result = std::move(next);
      if (!changed) return own_outputs(result);
    }
    throw InternalError("decompositions do not end");
  });
}

}  // namespace tatara
