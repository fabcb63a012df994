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

/// Whether an output is there for check_written() alone.
bool is_check(const GraphOutput& output) {
  return output.alias.sharing == OutputAlias::Sharing::kMustNot || output.alias.sharing == OutputAlias::Sharing::kGiven;
}

/// In eager a tangent of a view is a view, of another tangent or of an input, which a fresh output cannot be.
void refuse_shared_tangents(const Graph& graph) {
  std::vector<ValueId> bases;
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.kind != OutputAlias::Kind::kFresh || output.value == kNoValue) continue;
    if (is_check(output)) continue;
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

/// What a value is, or is a view of. `views`: the nodes in between, the last one first.
ValueId below(const Graph& graph, ValueId value, std::vector<ValueId>& views) {
  for (const Node* node = graph.producer(value); node != nullptr && node->op->kind == OpKind::kView;
       node = graph.producer(value)) {
    views.push_back(value);
    value = std::get<TensorArg>(node->args[0]).value;
  }
  return value;
}

/// Where a gradient that was written to shares memory with anything, a write to one would have to be one to both.
void check_written(Graph& graph) {
  using Sharing = OutputAlias::Sharing;
  std::vector<ValueId> bases;
  std::vector<ValueId> views;
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.sharing == Sharing::kGiven) bases.push_back(below(graph, output.value, views));
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.sharing != Sharing::kMustNot) continue;
    const ValueId base = below(graph, output.value, views);
    if (graph.producer(base) == nullptr || std::find(bases.begin(), bases.end(), base) != bases.end()) {
      throw Unsupported("a write to memory that a gradient shares");
    }
    bases.push_back(base);
  }
  std::erase_if(graph.outputs(), is_check);
}

/// Makes outputs that come from gradients what eager's are.
void share_outputs(Graph& graph) {
  std::vector<GraphOutput>& outputs = graph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (std::exchange(outputs[i].alias.sharing, OutputAlias::Sharing::kNone) == OutputAlias::Sharing::kNone) continue;
    const auto sees_it = [i](const GraphOutput& other) {
      return other.alias.kind == OutputAlias::Kind::kOutput && other.alias.index == static_cast<int>(i);
    };
    std::vector<ValueId> views;
    const ValueId base = below(graph, outputs[i].value, views);
    const auto input = std::find(graph.inputs().begin(), graph.inputs().end(), base);
    if (input == graph.inputs().end() || std::any_of(outputs.begin(), outputs.end(), sees_it)) continue;
    Expr offset = graph.ctx().constant(0);
    for (const ValueId view : views) {
      const Expr step = ops::view_offset(graph, view);
      if (!step.valid()) throw Unsupported("a gradient that sees its cotangent with another element type");
      offset = graph.ctx().add(offset, step);
    }
    outputs[i].alias = {OutputAlias::Kind::kInput, static_cast<int>(input - graph.inputs().begin()), offset};
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
    check_written(result);
    share_outputs(result);
    unshare_outputs(result);
    return result;
  });
}

}  // namespace tatara
