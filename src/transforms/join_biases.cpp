// Biases of linear layers on GPUs as part of the host's product: a kernel for them alone costs a launch, and a pass over the memory.
#include <optional>
#include <variant>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

struct BiasedProduct {
  const Node* product;
  ValueId bias;
};

class Biases {
 public:
  explicit Biases(const Graph& graph) : graph_(graph), uses_(graph.use_counts()), fuses_(graph.num_values(), false) {
    const std::vector<Node>& nodes = graph.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const bool view = node->op->kind == OpKind::kView;
      const bool follows = view ? fuses_[static_cast<size_t>(node->outputs[0])] : node->op->kind != OpKind::kHost;
      if (!follows) continue;
      for_each_operand(*node, [this](ValueId v) { fuses_[static_cast<size_t>(v)] = true; });
    }
  }

  /// The product of matrices to which the node does nothing but add a row, where no kernel is to do more with the sum.
  std::optional<BiasedProduct> find(const Node& node) const {
    if (node.again || !is_plain_sum(node) || fuses_[static_cast<size_t>(node.outputs[0])]) return std::nullopt;
    const TensorType& type = graph_.type(node.outputs[0]);
    if (type.device.kind != DeviceKind::kCuda || !(is_floating(type.dtype) || is_complex(type.dtype)))
      return std::nullopt;
    for (const size_t place : {size_t{0}, size_t{1}}) {
      const auto *sum = std::get_if<TensorArg>(&node.args[place]), *row = std::get_if<TensorArg>(&node.args[1 - place]);
      if (sum == nullptr || row == nullptr || !(graph_.type(sum->value) == type)) continue;
      const Node* product = product_of(sum->value);
      const TensorType& bias = graph_.type(row->value);
      if (product == nullptr || bias.dim() != 1 || bias.dtype != type.dtype || !(bias.device == type.device)) continue;
      if (bias.sizes[0] == type.sizes.back() && bias.sizes[0] == graph_.type(product->outputs[0]).sizes.back())
        return BiasedProduct{product, row->value};
    }
    return std::nullopt;
  }

 private:
  /// Of two matrices, which the value is, its rows perhaps split, and that nothing else reads.
  const Node* product_of(ValueId v) const {
    const Node* node = graph_.producer(v);
    while (node != nullptr && uses_[static_cast<size_t>(v)] == 1 && keeps_order(*node)) {
      v = std::get<TensorArg>(node->args[0]).value;
      node = graph_.producer(v);
    }
    if (node == nullptr || uses_[static_cast<size_t>(v)] != 1) return nullptr;
    const std::optional<ProductArgs> args = product_args(*node);
    return args && !args->added && !args->batched && !args->vector ? node : nullptr;
  }

  /// Whether it is a view of all elements in the order of its operand's.
  bool keeps_order(const Node& node) const {
    if (node.op->kind != OpKind::kView) return false;
    ExprContext& ctx = graph_.ctx();
    const auto whole = [&ctx](const TensorType& type) { return type.strides == contiguous_strides(ctx, type.sizes); };
    const TensorType &from = graph_.type(std::get<TensorArg>(node.args[0]).value), &to = graph_.type(node.outputs[0]);
    return whole(from) && whole(to) && from.numel(ctx) == to.numel(ctx);
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> fuses_;  // values that kernels of ours read
};

}  // namespace

Graph join_biases(const Graph& graph, const PassOptions& options) {
  return run_pass("join_biases", graph, options, [](const Graph& g) {
    GraphCopy copy(g);
    GraphBuilder b(copy.to());
    const Biases biases(g);
    for (const Node& node : g.nodes()) {
      const std::optional<BiasedProduct> found = biases.find(node);
      if (!found) {
        copy.copy(node);
        continue;
      }
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      std::vector<Arg> args = copy.args(*found->product);
      args.insert(args.begin(), TensorArg{copy[found->bias]});
      const TensorType& type = g.type(node.outputs[0]);
      const ValueId sum = b.reshape(b.op("addmm", std::move(args)), type.sizes);
      copy.set(node.outputs[0], with_type(copy, sum, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
