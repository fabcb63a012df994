// Cutting a joint graph in two. The network of the cut: a vertex N for each node of the forward graph (on the sink's side: it
// is computed again in the backward graph) and a vertex A for each value (on the sink's side: the backward graph has it).
//   source -> N  the cost of computing the node twice      N -> A  the cost of saving its result
//   A -> N       infinite: to compute a node, its operands are needed
//   A -> sink    infinite, where a gradient's node reads the value
#include <algorithm>
#include <numeric>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/rules/derivative.h"
#include "support/error.h"
#include "transforms/autodiff.h"
#include "transforms/max_flow.h"
#include "transforms/pass.h"
#include "transforms/recompute.h"

namespace tatara {
namespace {

int64_t elements_of(const Graph& graph, ValueId v) {
  ExprContext& ctx = graph.ctx();
  return std::max<int64_t>(1, ctx.evaluate_hint(graph.type(v).numel(ctx)).value_or(1024));
}

int64_t bytes(const Graph& graph, ValueId v) { return elements_of(graph, v) * dtype_size(graph.type(v).dtype); }

bool never_twice(const Node& node) { return node.op->draws() || node.op->kind == OpKind::kHost; }

/// What computing the node again costs, in bytes of memory traffic that take as long.
int64_t work(const Graph& graph, const Node& node) {
  if (never_twice(node)) return FlowNetwork::kInfinite;
  int64_t out = 0, in = 0;
  for (const ValueId v : node.outputs) out += elements_of(graph, v);
  for_each_operand(node, [&](ValueId v) { in += bytes(graph, v); });
  switch (node.op->kind) {
    case OpKind::kView:
    case OpKind::kCreation: return 0;
    case OpKind::kPointwise:
      return std::max<int64_t>(1, out / 4);  // mostly hidden behind the memory that is read anyway
    case OpKind::kIndexing: return out * 4;
    case OpKind::kReduction:
    case OpKind::kScan: return in + out;
    case OpKind::kComposite:
      // without products they pass over their operands a few times
      return node.op->traits.holds_products ? FlowNetwork::kInfinite : 2 * in + out;
    case OpKind::kRandom:
    case OpKind::kHost: break;
  }
  return FlowNetwork::kInfinite;
}

/// Nodes beyond the forward graph that some gradient needs.
std::vector<bool> live_gradient_nodes(const JointGraph& joint, std::vector<bool>& live_values) {
  const Graph& g = joint.graph;
  live_values.assign(g.num_values(), false);
  std::vector<bool> live(g.num_nodes(), false);
  for (size_t i = joint.forward_outputs; i < g.outputs().size(); ++i) {
    live_values[static_cast<size_t>(g.outputs()[i].value)] = true;
  }
  for (size_t n = g.num_nodes(); n-- > joint.forward_nodes;) {
    const Node& node = g.node(static_cast<NodeId>(n));
    for (const ValueId v : node.outputs) live[n] = live[n] || live_values[static_cast<size_t>(v)];
    if (live[n]) for_each_operand(node, [&](ValueId v) { live_values[static_cast<size_t>(v)] = true; });
  }
  return live;
}

/// Ties speak of what eager records; where gradients are only computed they would keep values alive.
bool has_ties(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) { return is_tie(*n.op); });
}

JointGraph without_ties(JointGraph joint) {
  Graph& g = joint.graph;
  std::vector<ValueId> now(g.num_values());
  std::iota(now.begin(), now.end(), 0);
  const auto present = [&](ValueId v) { return now[static_cast<size_t>(v)]; };
  for (size_t n = 0; n < g.num_nodes(); ++n) {
    Node& node = g.node(static_cast<NodeId>(n));
    node.args = with_operands(std::move(node.args), present);
    if (!is_tie(*node.op)) continue;
    now[static_cast<size_t>(node.outputs[0])] = std::get<TensorArg>(node.args[0]).value;
    node.op = &OpRegistry::global().get("alias");
    node.args.resize(1);
  }
  for (size_t i = joint.forward_outputs; i < g.outputs().size(); ++i) {
    ValueId& v = g.outputs()[i].value;
    v = v == kNoValue ? v : present(v);
  }
  return joint;
}

}  // namespace

namespace {

/// Whether the input may be saved as a copy only. One whose elements share memory cannot be written in place.
bool saved_as_copy(const JointGraph& joint, ValueId v, const SavedAsIs& as_is) {
  const Graph& g = joint.graph;
  if (is_written(g, v)) return true;
  const auto input = static_cast<size_t>(g.value(v).input_index);
  if (as_is.inputs.empty() || as_is.inputs[input]) return false;
  const std::vector<Expr>& strides = g.type(v).strides;
  return std::none_of(strides.begin(), strides.end(), [](Expr e) { return e.is_const() && e.const_value() == 0; });
}

/// Per value: whether it is an output that may be saved as it is.
std::vector<bool> returned_as_is(const JointGraph& joint, const SavedAsIs& as_is) {
  std::vector<bool> returned(joint.forward_values, false);
  for (size_t i = 0; i < as_is.outputs.size(); ++i) {
    const GraphOutput& output = joint.graph.outputs()[i];
    const bool fresh = output.value != kNoValue && output.alias.kind == OutputAlias::Kind::kFresh;
    if (fresh && as_is.outputs[i]) returned[static_cast<size_t>(output.value)] = true;
  }
  return returned;
}

}  // namespace

std::vector<ValueId> random_values(const JointGraph& joint) {
  const Graph& g = joint.graph;
  std::vector<bool> wanted;
  live_gradient_nodes(joint, wanted);
  std::vector<ValueId> result;
  for (size_t n = joint.forward_nodes; n-- > 0;) {
    const Node& node = g.node(static_cast<NodeId>(n));
    bool any = false;
    for (const ValueId v : node.outputs) any = any || wanted[static_cast<size_t>(v)];
    if (!any) continue;
    if (keeps_state(node)) {
      result.push_back(node.outputs[1]);
    } else if (node.op->draws()) {
      for (const ValueId v : node.outputs) {
        if (wanted[static_cast<size_t>(v)]) result.push_back(v);
      }
    } else {
      for_each_operand(node, [&](ValueId v) { wanted[static_cast<size_t>(v)] = true; });
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<ValueId> choose_saved(const JointGraph& joint, const SavedAsIs& as_is) {
  if (has_ties(joint.graph)) return choose_saved(without_ties(joint), as_is);
  const Graph& g = joint.graph;
  const std::vector<bool> returned = returned_as_is(joint, as_is);
  std::vector<bool> wanted;
  live_gradient_nodes(joint, wanted);
  FlowNetwork net;
  const int source = net.add_vertex(), sink = net.add_vertex();
  std::vector<int> available(joint.forward_values), saving(joint.forward_values, -1);
  for (size_t v = 0; v < joint.forward_values; ++v) {
    available[v] = net.add_vertex();
    if (wanted[v]) net.add_edge(available[v], sink, FlowNetwork::kInfinite);
  }
  std::vector<int> node_vertex(joint.forward_nodes);
  for (size_t i = 0; i < joint.forward_inputs; ++i) {
    const ValueId v = g.inputs()[i];
    // A reference to the input; a copy where the input is written afterwards, or may be.
    net.add_edge(source, available[static_cast<size_t>(v)], saved_as_copy(joint, v, as_is) ? 2 * bytes(g, v) : 1);
  }
  for (size_t n = 0; n < joint.forward_nodes; ++n) {
    const Node& node = g.node(static_cast<NodeId>(n));
    node_vertex[n] = net.add_vertex();
    const int64_t cost = work(g, node);
    net.add_edge(source, node_vertex[n], cost);
    for (const ValueId v : node.outputs) {
      // A view keeps all of its base alive: its base is what may be saved.
      const bool view = node.op->kind == OpKind::kView;
      const int64_t times = returned[static_cast<size_t>(v)] ? 1 : 2;  // what is returned is written anyway
      net.add_edge(node_vertex[n], available[static_cast<size_t>(v)],
                   view ? FlowNetwork::kInfinite : times * bytes(g, v));
    }
    if (cost >= FlowNetwork::kInfinite) continue;
    for_each_operand(node, [&](ValueId v) {
      net.add_edge(available[static_cast<size_t>(v)], node_vertex[n], FlowNetwork::kInfinite);
    });
  }
  for (const ValueId v : random_values(joint)) {
    net.add_edge(available[static_cast<size_t>(v)], sink, FlowNetwork::kInfinite);
  }
  if (net.maximise(source, sink) >= FlowNetwork::kInfinite) throw InternalError("a joint graph cannot be cut");
  const std::vector<bool> forward = net.source_side(source);
  std::vector<ValueId> saved;
  for (size_t v = 0; v < joint.forward_values; ++v) {
    if (forward[static_cast<size_t>(available[v])]) continue;
    const NodeId producer = g.value(static_cast<ValueId>(v)).producer;
    const bool given = producer < 0 || forward[static_cast<size_t>(node_vertex[static_cast<size_t>(producer)])];
    if (given) saved.push_back(static_cast<ValueId>(v));
  }
  return saved;
}

ForwardGraph forward_graph(const JointGraph& joint, const std::vector<ValueId>& saved, const SavedAsIs& as_is) {
  const Graph& g = joint.graph;
  Graph result(g.ctx_ptr());
  std::vector<ValueId> map(g.num_values(), kNoValue);
  for (size_t i = 0; i < joint.forward_inputs; ++i) {
    const ValueId v = g.inputs()[i];
    map[static_cast<size_t>(v)] = result.add_input(g.type(v), g.name(v));
  }
  for (size_t n = 0; n < joint.forward_nodes; ++n) {
    const Node& node = g.node(static_cast<NodeId>(n));
    std::vector<Arg> args = with_operands(node.args, [&](ValueId v) { return map[static_cast<size_t>(v)]; });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(g.type(v));
    const NodeId id = result.add_node(node.op, std::move(args), std::move(types), node.location);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      map[static_cast<size_t>(node.outputs[i])] = result.node(id).outputs[i];
    }
  }
  for (size_t i = 0; i < joint.forward_outputs; ++i) {
    const GraphOutput& output = g.outputs()[i];
    result.add_output(output.value == kNoValue ? kNoValue : map[static_cast<size_t>(output.value)], output.alias);
  }
  for (const InputWrite& write : g.input_writes()) {
    result.add_input_write(write.input_index, map[static_cast<size_t>(write.value)], write.times);
  }
  using Saved = ForwardGraph::Saved;
  std::vector<Saved> places;
  GraphBuilder builder(result);
  for (const ValueId v : saved) {
    const Value& value = g.value(v);
    if (value.producer < 0 && !saved_as_copy(joint, v, as_is)) {
      places.push_back({Saved::From::kInput, value.input_index});
      continue;
    }
    int output = -1;
    bool escapes = false;
    for (size_t i = 0; i < joint.forward_outputs && output < 0; ++i) {
      const GraphOutput& known = g.outputs()[i];
      if (known.value != v || known.alias.kind != OutputAlias::Kind::kFresh) continue;
      escapes = !as_is.outputs.empty() && !as_is.outputs[i];
      if (!escapes) output = static_cast<int>(i);
    }
    if (output < 0) {
      output = static_cast<int>(result.outputs().size());
      ValueId now = map[static_cast<size_t>(v)];
      if (value.producer < 0 || escapes) now = builder.op("relayout", {TensorArg{now}, SymInts{g.type(v).strides}});
      result.add_output(now);
    }
    places.push_back({Saved::From::kOutput, output});
  }
  return {std::move(result), std::move(places)};
}

namespace {

/// Copies what the gradients need into a graph whose first values stand for known values of the joint graph.
class Extraction {
 public:
  explicit Extraction(const JointGraph& joint)
      : joint_(joint), result_(joint.graph.ctx_ptr()), map_(joint.graph.num_values(), kNoValue) {}

  ValueId add_input(ValueId v) {
    const TensorType& type = joint_.graph.type(v);
    return map_[static_cast<size_t>(v)] = result_.add_input(type, joint_.graph.name(v));
  }
  bool known(ValueId v) const { return map_[static_cast<size_t>(v)] != kNoValue; }
  ValueId operator[](ValueId v) const { return map_[static_cast<size_t>(v)]; }

  /// The nodes between the known values and the gradients, in order. `missing` is called for each input that is not known.
  template <typename Fn>
  void copy_nodes(Fn&& missing) {
    const Graph& g = joint_.graph;
    std::vector<bool> wanted(g.num_values(), false);
    const auto want = [&](ValueId v) {
      if (!known(v)) wanted[static_cast<size_t>(v)] = true;
    };
    for (size_t i = joint_.forward_outputs; i < g.outputs().size(); ++i) want(g.outputs()[i].value);
    std::vector<bool> keep(g.num_nodes(), false);
    for (size_t n = g.num_nodes(); n-- > 0;) {
      const Node& node = g.node(static_cast<NodeId>(n));
      for (const ValueId v : node.outputs) keep[n] = keep[n] || wanted[static_cast<size_t>(v)];
      if (keep[n]) for_each_operand(node, want);
    }
    for (const ValueId v : g.inputs()) {
      if (wanted[static_cast<size_t>(v)]) missing(v);
    }
    for (size_t n = 0; n < g.num_nodes(); ++n) {
      if (keep[n]) copy_node(g.node(static_cast<NodeId>(n)), n < joint_.forward_nodes);
    }
  }

  Graph finish() { return std::move(result_); }
  Graph& graph() { return result_; }

 private:
  void copy_node(const Node& node, bool again) {
    if (again && keeps_state(node) && known(node.outputs[1])) {
      const ValueId mask = draw_again(result_, joint_.graph, node, (*this)[node.outputs[1]]);
      if (!known(node.outputs[0])) map_[static_cast<size_t>(node.outputs[0])] = mask;
      return;
    }
    if (again && node.op->draws()) {
      throw Unsupported(str_cat("a gradient would draw the random numbers of ", node.op->name, " again"));
    }
    std::vector<Arg> args = with_operands(node.args, [this](ValueId v) { return (*this)[v]; });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(joint_.graph.type(v));
    const NodeId id = result_.add_node(node.op, std::move(args), std::move(types), node.location);
    result_.node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      // What is known already keeps its first meaning.
      if (!known(node.outputs[i])) map_[static_cast<size_t>(node.outputs[i])] = result_.node(id).outputs[i];
    }
  }

  const JointGraph& joint_;
  Graph result_;
  std::vector<ValueId> map_;
};

}  // namespace

BackwardGraph backward_graph(const JointGraph& joint, const std::vector<ValueId>& saved) {
  if (has_ties(joint.graph)) return backward_graph(without_ties(joint), saved);
  const Graph& g = joint.graph;
  Extraction extraction(joint);
  std::vector<int> inputs;
  for (size_t i = 0; i < saved.size(); ++i) {
    extraction.add_input(saved[i]);
    inputs.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < joint.cotangents.size(); ++i) {
    extraction.add_input(g.inputs()[joint.forward_inputs + i]);
    inputs.push_back(-1 - static_cast<int>(i));
  }
  extraction.copy_nodes([](ValueId) { throw Unsupported("the saved values do not suffice for this gradient"); });
  std::vector<int> outputs;
  for (size_t i = joint.forward_outputs; i < g.outputs().size(); ++i) {
    const ValueId v = g.outputs()[i].value;
    const Value& value = g.value(v);
    if (value.producer < 0 && value.input_index >= static_cast<int>(joint.forward_inputs)) {
      outputs.push_back(-1 - (value.input_index - static_cast<int>(joint.forward_inputs)));
      continue;
    }
    outputs.push_back(static_cast<int>(extraction.graph().outputs().size()));
    extraction.graph().add_output(extraction[v]);
  }
  return {extraction.finish(), std::move(inputs), std::move(outputs)};
}

Graph backward_of_inputs(const JointGraph& joint, const std::vector<ValueId>& given) {
  const Graph& g = joint.graph;
  Extraction extraction(joint);
  for (size_t i = 0; i < joint.forward_inputs; ++i) extraction.add_input(g.inputs()[i]);
  for (const ValueId v : given) extraction.add_input(v);
  for (size_t i = 0; i < joint.cotangents.size(); ++i) extraction.add_input(g.inputs()[joint.forward_inputs + i]);
  extraction.copy_nodes([](ValueId) { throw InternalError("an input of a gradient is not known"); });
  for (size_t i = joint.forward_outputs; i < g.outputs().size(); ++i) {
    extraction.graph().add_output(extraction[g.outputs()[i].value]);
  }
  return extraction.finish();
}

}  // namespace tatara
