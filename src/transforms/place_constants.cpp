// Constants that a program on a GPU makes on the CPU (a table of positions, an index): made on the GPU instead, where they are used.
#include <algorithm>
#include <optional>
#include <vector>

#include "ops/core/op_def.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool on_cpu(const Graph& graph, ValueId v) { return graph.type(v).device.kind == DeviceKind::kCpu; }

/// The only GPU that the graph's values are on.
std::optional<Device> only_gpu(const Graph& graph) {
  std::optional<Device> gpu;
  for (size_t v = 0; v < graph.num_values(); ++v) {
    const Device& device = graph.type(static_cast<ValueId>(v)).device;
    if (device.kind == DeviceKind::kCpu) continue;
    if (device.kind != DeviceKind::kCuda || (gpu && !(*gpu == device))) return std::nullopt;
    gpu = device;
  }
  return gpu;
}

/// Whether operand 0 may be on the CPU and the result on a GPU.
bool copies_to_device(const OpDef& op) {
  const std::vector<ArgSpec>& args = op.schema.args;
  return op.kind == OpKind::kPointwise &&
         std::any_of(args.begin(), args.end(), [](const ArgSpec& arg) { return arg.type == ArgType::kDevice; });
}

/// Whether a GPU gives the node's results as the CPU does: kernels of ours on both, and no random numbers.
bool same_anywhere(const Node& node) {
  const OpDef& op = *node.op;
  return op.kind != OpKind::kHost && !op.draws() && !op.traits.varies && !op.traits.holds_products &&
         !copies_to_device(op) && node.rule == nullptr;
}

/// Whether eager lets operand `v` of a node that works on the GPU be on the CPU: copies, indices, and numbers of pointwise operators.
bool may_be_on_cpu(const Graph& graph, const Node& node, ValueId v) {
  if (copies_to_device(*node.op)) return true;
  if (node.op->kind == OpKind::kPointwise) return graph.type(v).dim() == 0;
  if (node.op->kind != OpKind::kIndexing) return false;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const bool indices = node.op->schema.args[i].type == ArgType::kOptionalTensorList;
    const auto* tensor = std::get_if<TensorArg>(&node.args[i]);
    if (!indices && tensor != nullptr && tensor->value == v) return false;
  }
  return true;
}

class Constants {
 public:
  Constants(Graph& graph, const std::vector<bool>& inputs) : graph_(graph), moves_(graph.num_values(), false) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = graph.inputs()[i];
      set(v, inputs[i] && on_cpu(graph, v) && graph.type(v).dim() > 0);  // kernels get numbers by value
    }
  }

  /// Values of the CPU that depend on constants alone and that only the GPU needs in the end.
  void find() {
    for (const Node& node : graph_.nodes()) {
      bool constant = same_anywhere(node) && !node.outputs.empty();
      for (const ValueId v : node.outputs) constant = constant && on_cpu(graph_, v);
      constant = constant && reads_constants(node);
      for (const ValueId v : node.outputs) set(v, constant);
    }
    for (const GraphOutput& output : graph_.outputs()) keep(output.value);
    for (const InputWrite& write : graph_.input_writes()) keep(write.value);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Node& node : graph_.nodes()) changed = narrow(node) || changed;
    }
  }

  /// Whether the GPU is given one of them.
  bool used_on_gpu() const {
    return std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [this](const Node& node) {
      bool used = false;
      for_each_operand(node, [&](ValueId v) { used = used || (moves(v) && !moves(node.outputs[0])); });
      return used;
    });
  }

  /// Gives the inputs that are to be on the GPU.
  std::vector<size_t> move_to(Device gpu) {
    std::vector<size_t> inputs;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId v = graph_.inputs()[i];
      if (!moves(v)) continue;
      inputs.push_back(i);
      place(v, gpu);
    }
    for (size_t n = 0; n < graph_.num_nodes(); ++n) {
      Node& node = graph_.node(static_cast<NodeId>(n));
      if (node.outputs.empty() || !moves(node.outputs[0])) continue;
      bool reads = false;
      for_each_operand(node, [&](ValueId) { reads = true; });
      for (size_t i = 0; i < node.args.size(); ++i) {
        if (node.op->schema.args[i].type != ArgType::kDevice) continue;
        if (!reads || std::holds_alternative<Device>(node.args[i])) node.args[i] = gpu;
      }
      for (const ValueId v : node.outputs) place(v, gpu);
    }
    return inputs;
  }

 private:
  bool moves(ValueId v) const { return moves_[static_cast<size_t>(v)]; }
  void set(ValueId v, bool moves) { moves_[static_cast<size_t>(v)] = moves; }
  void place(ValueId v, Device gpu) {
    TensorType type = graph_.type(v);
    type.device = gpu;
    graph_.set_type(v, type);
  }
  void keep(ValueId v) {
    if (v != kNoValue) set(v, false);
  }

  /// Whether nothing else is read, but for numbers that a kernel gets by value.
  bool reads_constants(const Node& node) const {
    bool constant = true;
    for_each_operand(node, [&](ValueId v) {
      const bool number = node.op->kind == OpKind::kPointwise && graph_.value(v).producer < 0 &&
                          graph_.type(v).dim() == 0 && on_cpu(graph_, v);
      constant = constant && (moves(v) || number);
    });
    return constant;
  }

  /// A node stays on the CPU as a whole, and then so does what it reads.
  bool narrow(const Node& node) {
    bool changed = false;
    const auto stay = [&](ValueId v) {
      changed = changed || moves(v);
      set(v, false);
    };
    const bool all = std::all_of(node.outputs.begin(), node.outputs.end(), [this](ValueId v) { return moves(v); });
    if (all && reads_constants(node) && !node.outputs.empty()) return false;
    const bool on_gpu =
        std::none_of(node.outputs.begin(), node.outputs.end(), [this](ValueId v) { return on_cpu(graph_, v); });
    for (const ValueId v : node.outputs) stay(v);
    for_each_operand(node, [&](ValueId v) {
      if (moves(v) && !(on_gpu && may_be_on_cpu(graph_, node, v))) stay(v);
    });
    return changed;
  }

  Graph& graph_;
  std::vector<bool> moves_;  // per value
};

}  // namespace

std::vector<size_t> place_constants(Graph& graph, const std::vector<bool>& constant_inputs) {
  const std::optional<Device> gpu = only_gpu(graph);
  if (!gpu) return {};
  Constants constants(graph, constant_inputs);
  constants.find();
  return constants.used_on_gpu() ? constants.move_to(*gpu) : std::vector<size_t>();
}

}  // namespace tatara
