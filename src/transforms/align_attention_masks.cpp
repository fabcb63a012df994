// Attention on GPUs with a mask or bias whose rows are not contiguous: the host's fused kernels refuse such a one. And with a mask that is
// true everywhere: libraries that are traced make one where eager Python leaves it out, and the fastest kernel takes none.
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/linear/idle_mask.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool has_idle_mask(const Graph& g, const Node& node) {
  return node.op->traits.mask_arg && g.type(node.outputs[0]).device.kind == DeviceKind::kCuda &&
         mask_says_nothing(g, node.args[*node.op->traits.mask_arg]);
}

/// The mask to lay out anew; kNoValue leaves the node as it is.
ValueId scattered_mask(const Graph& g, const Node& node) {
  if (!node.op->traits.mask_arg) return kNoValue;
  const auto* mask = std::get_if<TensorArg>(&node.args[*node.op->traits.mask_arg]);
  if (mask == nullptr || mask->value == kNoValue) return kNoValue;
  const TensorType& type = g.type(mask->value);
  if (type.device.kind != DeviceKind::kCuda || type.dim() < 2) return kNoValue;
  return type.strides.back().is_const(1) || type.sizes.back().is_const(1) ? kNoValue : mask->value;
}

}  // namespace

Graph align_attention_masks(const Graph& graph, const PassOptions& options) {
  return run_pass("align_attention_masks", graph, options, [](const Graph& g) {
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const bool idle = has_idle_mask(g, node);
      if (!idle && scattered_mask(g, node) == kNoValue) {
        copy.copy(node);
        continue;
      }
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      std::vector<Arg> args = copy.args(node);
      Arg& mask_arg = args[*node.op->traits.mask_arg];
      if (idle) {
        mask_arg = NoneArg{};
        copy.set(node.outputs[0], b.call(*node.op, std::move(args))[0]);
        continue;
      }
      const ValueId mask = std::get<TensorArg>(mask_arg).value;
      const SymInts strides{contiguous_strides(b.ctx(), b.type(mask).sizes)};
      mask_arg = TensorArg{b.op("relayout", {TensorArg{mask}, strides})};
      copy.set(node.outputs[0], b.call(*node.op, std::move(args))[0]);
    }
    return copy.finish();
  });
}

}  // namespace tatara
