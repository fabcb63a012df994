// Biases of convolutions on GPUs as sums of their own: the host adds them in a kernel of its own behind cuDNN's, and ours fuse with
// what follows.
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

/// The place of the bias among the arguments; nothing: there is none, or the host's kernel adds it.
std::optional<size_t> bias_of(const Graph& g, const Node& node) {
  const std::optional<ImageArgs>& images = node.op->traits.images;
  if (!images || images->first != images->last) return std::nullopt;
  const auto* input = std::get_if<TensorArg>(&node.args[images->last]);
  if (input == nullptr || g.type(input->value).device.kind != DeviceKind::kCuda) return std::nullopt;
  // Those of groups have kernels of ATen's that take a bias.
  if (!is_in_one_group(node, *images) || is_complex(g.type(input->value).dtype)) return std::nullopt;
  const size_t place = images->last + 2;
  const auto* bias = std::get_if<TensorArg>(&node.args[place]);
  if (bias == nullptr || bias->value == kNoValue) return std::nullopt;
  return place;
}

}  // namespace

Graph split_biases(const Graph& graph, const PassOptions& options) {
  return run_pass("split_biases", graph, options, [](const Graph& g) {
    GraphCopy copy(g);
    GraphBuilder b(copy.to());
    for (const Node& node : g.nodes()) {
      const std::optional<size_t> place = bias_of(g, node);
      if (!place) {
        copy.copy(node);
        continue;
      }
      b.set_location(node.location);
      std::vector<Arg> args = copy.args(node);
      const ValueId bias = std::get<TensorArg>(std::exchange(args[*place], NoneArg{})).value;
      const size_t first_new = copy.to().num_nodes();
      const ValueId images = b.call(*node.op, std::move(args)).at(0);
      const TensorType& type = g.type(node.outputs[0]);
      const TensorType& filters = g.type(std::get<TensorArg>(node.args[*place - 1]).value);
      std::vector<Expr> sizes{g.ctx().constant(-1)};
      sizes.resize(filters.sizes.size() - 1, g.ctx().constant(1));
      const ValueId channels = b.op("view", {TensorArg{bias}, SymInts{std::move(sizes)}});
      copy.set(node.outputs[0], with_type(copy, b.binary("add", images, channels), type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
