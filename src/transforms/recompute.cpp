#include "transforms/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

using RegionRef = std::shared_ptr<const Region>;

int depth_of(const RegionRef& region) { return region ? region->depth : 0; }

/// The region around `region` at the depth; null at depth 0.
const Region* ancestor(const RegionRef& region, int depth) {
  const Region* at = region.get();
  while (at != nullptr && at->depth > depth) at = at->parent.get();
  return at;
}

/// Depth of the innermost region that both lie in.
int shared_depth(const RegionRef& a, const RegionRef& b) {
  int depth = std::min(depth_of(a), depth_of(b));
  while (depth > 0 && ancestor(a, depth) != ancestor(b, depth)) --depth;
  return depth;
}

/// Cannot be computed twice.
bool drawn(const Node& node) { return node.op->draws() && !keeps_state(node); }

/// A node of a region as it is computed for the gradients of the region at `depth`: once more than for those of the region
/// around that one. At depth 0 it is the node itself.
struct Instance {
  NodeId node;
  int depth;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

class Recomputation {
 public:
  Recomputation(const Graph& from, size_t first, size_t last)
      : from_(from), to_(from.ctx_ptr()), first_(first), last_(last), map_(from.num_values(), kNoValue) {
    for (const Node& node : from.nodes()) used_ = std::max(used_, node.again);
  }

  Graph run() {
    for (size_t n = 0; n < from_.num_nodes(); ++n) {
      const Node& node = from_.node(static_cast<NodeId>(n));
      if (!node.outputs.empty()) add_inputs(node.outputs[0]);
      if (n < first_ || n >= last_) {
        place(node, 0, node.region, 0);
        continue;
      }
      prepare(node);
      const NodeId made = place(node, depth_of(node.region), node.region, 0);
      to_.node(made).region = nullptr;
    }
    add_inputs(static_cast<ValueId>(from_.num_values()));
    for (const GraphOutput& output : from_.outputs()) {
      to_.add_output(output.value == kNoValue ? kNoValue : map_[static_cast<size_t>(output.value)], output.alias);
    }
    for (const InputWrite& write : from_.input_writes()) {
      to_.add_input_write(write.input_index, map_[static_cast<size_t>(write.value)], write.times);
    }
    return std::move(to_);
  }

 private:
  /// Inputs that were added before the value.
  void add_inputs(ValueId before) {
    for (; next_ < before; ++next_) {
      if (from_.producer(next_) == nullptr) {
        map_[static_cast<size_t>(next_)] = to_.add_input(from_.type(next_), from_.name(next_));
      }
    }
  }

  bool is_gradient(ValueId v) const { return from_.value(v).producer >= static_cast<NodeId>(first_); }

  /// Which computation of the operand someone in `region`, computed for the gradients at `depth`, reads.
  Instance operand_of(ValueId v, const RegionRef& region, int depth) const {
    const NodeId producer = from_.value(v).producer;
    if (producer < 0 || is_gradient(v) || drawn(from_.node(producer))) return {producer, 0};
    return {producer, std::min(depth, shared_depth(region, from_.node(producer).region))};
  }

  /// Computes again what the gradient reads, in the order of the program.
  void prepare(const Node& gradient) {
    std::vector<std::pair<const Node*, int>> readers{{&gradient, depth_of(gradient.region)}};
    std::set<Instance> wanted;
    while (!readers.empty()) {
      const auto [reader, depth] = readers.back();
      readers.pop_back();
      for_each_operand(*reader, [&](ValueId v) {
        const Instance instance = operand_of(v, reader->region, depth);
        if (instance.depth == 0 || copies_.contains({v, instance.depth}) || !wanted.insert(instance).second) return;
        readers.emplace_back(&from_.node(instance.node), instance.depth);
      });
    }
    for (const Instance& instance : wanted) {
      const Node& node = from_.node(instance.node);
      const auto [number, fresh] = numbers_.emplace(ancestor(node.region, instance.depth), numbers_.size() + 1);
      static_cast<void>(fresh);
      const NodeId made = place(node, instance.depth, node.region, instance.depth);
      Node& again = to_.node(made);
      again.take_marks(gradient);
      again.rule = node.rule;
      again.derived = true;
      again.region = nullptr;
      again.again = used_ + static_cast<int>(number->second);
    }
  }

  /// Adds the node with the operands that `region` sees at `depth`; the results are those of the instance at `as`.
  NodeId place(const Node& node, int depth, const RegionRef& region, int as) {
    const auto mapped = [&](ValueId v) {
      const Instance instance = operand_of(v, region, depth);
      return instance.depth == 0 ? map_[static_cast<size_t>(v)] : copies_.at({v, instance.depth});
    };
    if (as > 0 && keeps_state(node)) return draw(node, as);
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(from_.type(v));
    const NodeId made = to_.add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
    to_.node(made).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId now = to_.node(made).outputs[i];
      if (as == 0) {
        map_[static_cast<size_t>(node.outputs[i])] = now;
      } else {
        copies_[{node.outputs[i], as}] = now;
      }
    }
    return made;
  }

  /// The same numbers from the state that was kept.
  NodeId draw(const Node& node, int as) {
    const ValueId mask = draw_again(to_, from_, node, map_[static_cast<size_t>(node.outputs[1])]);
    copies_[{node.outputs[0], as}] = mask;
    return to_.value(mask).producer;
  }

  const Graph& from_;
  Graph to_;
  size_t first_, last_;
  int used_ = 0;  // the highest number of an earlier pass of gradients
  ValueId next_ = 0;
  std::vector<ValueId> map_;
  std::map<std::pair<ValueId, int>, ValueId> copies_;
  std::map<const Region*, size_t> numbers_;
};

}  // namespace

bool keeps_state(const Node& node) { return !node.op->traits.draws_again.empty(); }

ValueId draw_again(Graph& to, const Graph& from, const Node& node, ValueId state) {
  std::vector<Arg> args = node.args;
  args.insert(args.begin(), TensorArg{state});
  const OpDef& op = OpRegistry::global().get(node.op->traits.draws_again);
  return to.node(to.add_node(&op, std::move(args), {from.type(node.outputs[0])}, node.location)).outputs[0];
}

Graph with_generator_states(const Graph& graph, const PassOptions& options) {
  const auto draws = [](const Node& node) { return node.region != nullptr && !node.op->traits.with_state.empty(); };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), draws)) return graph;
  return run_pass("generator_states", graph, options, [&](const Graph& g) {
    GraphCopy copy(g);
    GraphBuilder builder(copy.to());
    for (const Node& node : g.nodes()) {
      if (!draws(node)) {
        copy.copy(node);
        continue;
      }
      builder.set_location(node.location);
      const std::vector<ValueId> made = builder.op_multi(node.op->traits.with_state, node.args);
      copy.to().node(copy.to().value(made[0]).producer).take_marks(node);
      copy.set(node.outputs[0], made[0]);
    }
    return copy.finish();
  });
}

bool has_regions(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) { return n.region != nullptr; });
}

Graph rematerialize(const Graph& graph, size_t first, size_t last, const PassOptions& options) {
  if (!has_regions(graph)) return graph;
  return run_pass("rematerialize", graph, options, [&](const Graph& g) { return Recomputation(g, first, last).run(); });
}

JointGraph rematerialize(JointGraph joint, const PassOptions& options) {
  joint.graph = rematerialize(joint.graph, joint.forward_nodes, joint.graph.num_nodes(), options);
  return joint;
}

}  // namespace tatara
