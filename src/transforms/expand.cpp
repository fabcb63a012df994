#include "transforms/expand.h"

#include <algorithm>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/view_util.h"
#include "support/error.h"
#include "transforms/batching.h"
#include "transforms/forward.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool closes(const Node& node) { return is_gradients(node) || is_tangents(node) || is_batch_out(node); }

size_t first_closing(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  return static_cast<size_t>(std::find_if(nodes.begin(), nodes.end(), closes) - nodes.begin());
}

/// In eager a tangent of a view is a view, of another tangent or of an input, which a fresh output cannot be.
void refuse_shared_tangents(const Graph& graph) {
  std::vector<ValueId> bases;
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.kind != OutputAlias::Kind::kFresh || output.value == kNoValue) continue;
    if (output.alias.sharing == OutputAlias::Sharing::kMustNot) continue;
    ValueId base = output.value;
    for (const Node* node = graph.producer(base); node != nullptr; node = graph.producer(base)) {
      if (node->op->kind != OpKind::kView && !node->op->traits.copies_to_strides) break;
      base = std::get<TensorArg>(node->args[0]).value;
    }
    const bool shared = graph.producer(base) == nullptr || std::find(bases.begin(), bases.end(), base) != bases.end();
    if (shared) throw Unsupported("a tangent that is a view");
    bases.push_back(base);
  }
}

/// The input that a value is, or is a view of; else -1. `views`: the nodes in between, the last one first.
int input_below(const Graph& graph, ValueId value, std::vector<ValueId>& views) {
  for (const Node* node = graph.producer(value); node != nullptr; node = graph.producer(value)) {
    if (node->op->kind != OpKind::kView) return -1;
    views.push_back(value);
    value = std::get<TensorArg>(node->args[0]).value;
  }
  const auto found = std::find(graph.inputs().begin(), graph.inputs().end(), value);
  return found == graph.inputs().end() ? -1 : static_cast<int>(found - graph.inputs().begin());
}

/// Makes outputs that come from gradients what eager's are.
void share_outputs(Graph& graph) {
  using Sharing = OutputAlias::Sharing;
  std::vector<GraphOutput>& outputs = graph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Sharing sharing = std::exchange(outputs[i].alias.sharing, Sharing::kNone);
    std::vector<ValueId> views;
    const int input = sharing != Sharing::kNone ? input_below(graph, outputs[i].value, views) : -1;
    if (sharing == Sharing::kMustNot) {
      if (input >= 0) throw Unsupported("a write to memory that a gradient shares with its cotangent");
      outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(i--));
      continue;
    }
    const auto sees_it = [i](const GraphOutput& other) {
      return other.alias.kind == OutputAlias::Kind::kOutput && other.alias.index == static_cast<int>(i);
    };
    if (input < 0 || std::any_of(outputs.begin(), outputs.end(), sees_it)) continue;
    Expr offset = graph.ctx().constant(0);
    for (const ValueId view : views) {
      const Expr step = ops::view_offset(graph, view);
      if (!step.valid()) throw Unsupported("a gradient that sees its cotangent with another element type");
      offset = graph.ctx().add(offset, step);
    }
    outputs[i].alias = {OutputAlias::Kind::kInput, input, offset};
  }
}

/// Fresh outputs own their memory: none may be an input's value or another output's.
void unshare_outputs(Graph& graph) {
  GraphBuilder builder(graph);
  std::vector<ValueId> taken;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput output = graph.outputs()[i];
    if (output.alias.kind != OutputAlias::Kind::kFresh || output.value == kNoValue) continue;
    ValueId value = output.value;
    if (graph.value(value).producer < 0 || std::find(taken.begin(), taken.end(), value) != taken.end()) {
      value = builder.op("relayout", {TensorArg{value}, SymInts{graph.type(value).strides}});
      graph.outputs()[i].value = value;
    }
    taken.push_back(value);
  }
}

}  // namespace

Graph expand_transforms(const Graph& graph, const PassOptions& options,
                        std::vector<std::optional<GradientFound>>* found) {
  if (first_closing(graph) == graph.num_nodes()) return graph;
  return run_pass("expand_transforms", graph, options, [&](const Graph& g) {
    Graph result = numbered(g);
    bool tangents = false, derivatives = false;
    for (size_t at = first_closing(result); at < result.num_nodes(); at = first_closing(result)) {
      const Node& node = result.node(static_cast<NodeId>(at));
      std::vector<std::optional<GradientFound>> here;
      derivatives = derivatives || !is_batch_out(node);
      if (is_gradients(node)) {
        result = expand_gradients_at(result, at, here, options);
      } else if (is_tangents(node)) {
        result = expand_tangents_at(result, at, here, options);
        tangents = true;
      } else {
        result = expand_batches_at(result, at, !derivatives, options);
      }
      result = numbered(result);
      if (found != nullptr) *found = std::move(here);
    }
    if (tangents && found == nullptr) refuse_shared_tangents(result);
    share_outputs(result);
    unshare_outputs(result);
    return result;
  });
}

}  // namespace tatara
