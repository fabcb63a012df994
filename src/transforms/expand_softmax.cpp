// A softmax is its operand, two numbers a row and a little arithmetic. Written out before a joint graph is cut, these two
// numbers may be what is saved, and not a tensor as large as the operand and often twice as wide (logits of float16 whose
// losses are computed in float32).
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "transforms/autodiff.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

/// A joint graph again, with the forward graph's values and nodes before all others.
class InParts {
 public:
  explicit InParts(const JointGraph& joint)
      : from_(joint.graph),
        nodes_(joint.forward_nodes),
        result_{Graph(from_.ctx_ptr()), 0, 0, joint.forward_inputs, joint.forward_outputs, joint.cotangents,
                joint.gradients},
        map_(from_.num_values(), kNoValue) {}

  JointGraph run() {
    const size_t inputs = result_.forward_inputs;
    for (size_t i = 0; i < inputs; ++i) add_input(i);
    for (size_t n = 0; n < nodes_; ++n) {
      const Node& node = from_.node(static_cast<NodeId>(n));
      if (!in_parts(node)) copy(node);
    }
    result_.forward_values = to().num_values();
    result_.forward_nodes = to().num_nodes();
    for (size_t i = inputs; i < from_.inputs().size(); ++i) add_input(i);
    for (size_t n = nodes_; n < from_.num_nodes(); ++n) copy(from_.node(static_cast<NodeId>(n)));
    for (const GraphOutput& output : from_.outputs()) to().add_output(mapped(output.value), output.alias);
    for (const InputWrite& write : from_.input_writes())
      to().add_input_write(write.input_index, mapped(write.value), write.times);
    return std::move(result_);
  }

 private:
  Graph& to() { return result_.graph; }
  ValueId mapped(ValueId v) const { return v == kNoValue ? v : map_[static_cast<size_t>(v)]; }
  void set(ValueId v, ValueId now) { map_[static_cast<size_t>(v)] = now; }
  std::vector<Arg> args_of(const Node& node) const {
    return with_operands(node.args, [&](ValueId v) { return mapped(v); });
  }

  void add_input(size_t i) {
    const ValueId v = from_.inputs()[i];
    set(v, to().add_input(from_.type(v), from_.name(v)));
  }

  void copy(const Node& node) {
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(from_.type(v));
    const NodeId id = to().add_node(node.op, args_of(node), std::move(types), node.location);
    to().node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], to().node(id).outputs[i]);
  }

  bool in_parts(const Node& node) {
    if (!node.op->traits.expand_softmax) return false;
    const size_t before = to().num_nodes();
    GraphBuilder builder(to());
    builder.set_location(node.location);
    std::vector<ValueId> results;
    try {
      results = node.op->decompose(builder, args_of(node));
    } catch (const Unsupported&) {
      to().truncate_nodes(before);
      return false;
    }
    const TensorType &now = to().type(results.at(0)), &was = from_.type(node.outputs[0]);
    const bool own = static_cast<size_t>(to().value(results[0]).producer) >= before;
    if (!own || now.dtype != was.dtype || now.sizes != was.sizes || now.strides != was.strides) {
      to().truncate_nodes(before);
      return false;
    }
    for (size_t n = before; n < to().num_nodes(); ++n) to().node(static_cast<NodeId>(n)).take_marks(node);
    set(node.outputs[0], results[0]);
    return true;
  }

  const Graph& from_;
  const size_t nodes_;  // of the forward graph
  JointGraph result_;
  std::vector<ValueId> map_;
};

}  // namespace

JointGraph in_parts(const JointGraph& joint, const PassOptions& options) {
  if (options.skips("expand_softmax")) return joint;
  JointGraph result{Graph(joint.graph.ctx_ptr()), 0, 0, 0, 0, {}, {}};
  result.graph = run_pass("expand_softmax", joint.graph, options, [&](const Graph&) {
    result = InParts(joint).run();
    return std::move(result.graph);
  });
  return result;
}

}  // namespace tatara
