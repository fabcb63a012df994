// Convolutions on channels-last operands, where the host's kernels are faster: the values between them change their
// strides, outputs and whatever depends on strides get the old ones back.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/family_util.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

using ops::Layout;

/// Elements as far as known: symbols count as they were when they were seen first.
double elements(ExprContext& ctx, const TensorType& type) {
  double n = 1;
  for (const Expr size : type.sizes) n *= static_cast<double>(ctx.evaluate_hint(size).value_or(1));
  return n;
}

/// oneDNN (3.12, AVX2) writes beyond its memory for the gradient of a weight of 1x1 with strides, where channels-last images have
/// fewer channels than a vector has elements (docs/decisions/040).
bool writes_beyond(const Node& node, const ImageArgs& images, const TensorType& weight) {
  if (!images.gradient_strides) return false;
  constexpr int64_t kVector = 16;  // elements of the widest one
  // A size that is not known yet may be any.
  const auto may_be_below = [](Expr size, int64_t bound) { return !size.is_const() || size.const_value() < bound; };
  const std::vector<Expr>& strides = std::get<SymInts>(node.args[*images.gradient_strides]).values;
  return may_be_below(weight.sizes[2], 2) && may_be_below(weight.sizes[3], 2) &&
         may_be_below(weight.sizes[1], kVector) && std::any_of(strides.begin(), strides.end(), [](Expr stride) {
           return !stride.is_const() || stride.const_value() > 1;
         });
}

bool is_transposed(const Node& node, const ImageArgs& images) {
  if (!images.transposed) return images.always_transposed;
  const auto* scalar = std::get_if<Scalar>(&node.args[*images.transposed]);
  const bool* flag = scalar != nullptr ? std::get_if<bool>(scalar) : nullptr;
  return flag == nullptr || *flag;
}

/// oneDNN. The host reorders the weights on each call, and from channels-last operands it does so slower; so the input must
/// have more elements than the weights (measured on AVX-512: docs/performance.md).
bool gains_on_cpu(ExprContext& ctx, const Node& node, const ImageArgs& images, const TensorType& x,
                  const TensorType& w) {
  if (x.dim() != 4 || x.dtype != DType::kFloat32 || is_transposed(node, images)) return false;
  if (writes_beyond(node, images, w)) return false;
  constexpr double kInputToWeights = 1.25;
  return elements(ctx, x) >= kInputToWeights * elements(ctx, w);
}

/// cuDNN. Its fast kernels have channels last, and others' images are copied before and after them (docs/decisions/073). Few
/// images are not worth a kernel of ours that copies them.
bool gains_on_gpu(ExprContext& ctx, const Node& node, const ImageArgs& images, const TensorType& x, const TensorType& w,
                  bool with_gradients) {
  if (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat16 && x.dtype != DType::kBFloat16) return false;
  if (!is_in_one_group(node, images)) return false;
  constexpr double kLeast = 1 << 20;
  if (elements(ctx, x) < kLeast) return false;
  if (x.dim() == 4) return true;
  // Gradients of three dimensions take 4 times as long; so do large windows in float32 by a quarter.
  double window = 1;
  for (size_t d = 2; d < w.sizes.size(); ++d) window *= static_cast<double>(ctx.evaluate_hint(w.sizes[d]).value_or(1));
  constexpr double kLargeWindow = 100;
  return !with_gradients && (x.dtype != DType::kFloat32 || window < kLargeWindow);
}

/// What a graph's convolutions on GPUs may be.
struct OnGpu {
  bool any = false;
  bool with_gradients = false;
};

/// Those in groups stay as they are: where they are many, there would be copies before and behind each.
OnGpu on_gpu(const Graph& g, const PassOptions& options) {
  int plain = 0, grouped = 0;
  OnGpu result;
  for (const Node& node : g.nodes()) {
    const std::optional<ImageArgs>& images = node.op->traits.images;
    if (!images) continue;
    ++(is_in_one_group(node, *images) ? plain : grouped);
    result.with_gradients = result.with_gradients || images->gradient_strides.has_value();
  }
  // The copies between the plans of a training stage would take what the convolutions gain.
  result.any = !options.of_stage && 2 * grouped <= plain;
  return result;
}

/// Whether the convolution gains.
bool gains(const Graph& g, const Node& node, const OnGpu& gpu) {
  const std::optional<ImageArgs>& images = node.op->traits.images;
  if (!images) return false;
  const auto* input = std::get_if<TensorArg>(&node.args[images->last]);
  const auto* weight = std::get_if<TensorArg>(&node.args[images->last + 1]);
  if (input == nullptr || weight == nullptr) return false;
  const TensorType& x = g.type(input->value);
  const TensorType& w = g.type(weight->value);
  if ((x.dim() != 4 && x.dim() != 5) || w.dim() != x.dim()) return false;
  switch (x.device.kind) {
    case DeviceKind::kCpu: return gains_on_cpu(g.ctx(), node, *images, x, w);
    case DeviceKind::kCuda: return gpu.any && gains_on_gpu(g.ctx(), node, *images, x, w, gpu.with_gradients);
    case DeviceKind::kMeta: return false;
  }
  return false;
}

/// Operators that give the same elements whatever the strides of their operands.
bool ignores_strides(const OpDef& op) {
  switch (op.kind) {
    case OpKind::kPointwise:
    case OpKind::kReduction:
    case OpKind::kScan:
    case OpKind::kComposite:
    case OpKind::kIndexing: return true;
    case OpKind::kView: return op.traits.stride_use != StrideUse::kMemory;
    case OpKind::kCreation:
    case OpKind::kRandom:
    case OpKind::kHost: return false;
  }
  return false;
}

class Relayout {
 public:
  Relayout(const Graph& graph, const OnGpu& gpu) : from_(graph), gpu_(gpu), copy_(graph), builder_(copy_.to()) {}

  Graph run() {
    for (const Node& node : from_.nodes()) {
      builder_.set_location(node.location);
      bool moved = false;
      for_each_operand(node, [&](ValueId v) { moved = moved || has_moved(v); });
      const bool wanted = gains(from_, node, gpu_);
      if (!moved && !wanted) {
        copy_.copy(node);
      } else if (mixes_orders(node) || !infer_again(node, wanted)) {
        copy_back(node);
      }
    }
    // A view of another output must stay one.
    for (const GraphOutput& output : from_.outputs()) {
      if (output.value == kNoValue || output.alias.kind != OutputAlias::Kind::kOutput) continue;
      if (has_moved(output.value) || has_moved(from_.outputs()[static_cast<size_t>(output.alias.index)].value)) {
        throw Unsupported("outputs that share memory");
      }
    }
    for (const GraphOutput& output : from_.outputs()) {
      if (output.value != kNoValue) copy_.set(output.value, original(output.value));
    }
    for (const InputWrite& write : from_.input_writes()) copy_.set(write.value, original(write.value));
    return copy_.finish();
  }

 private:
  Graph& to() { return copy_.to(); }
  bool has_moved(ValueId v) { return to().type(copy_[v]).strides != from_.type(v).strides; }

  /// The value with the strides that it had.
  ValueId original(ValueId v) {
    if (!has_moved(v)) return copy_[v];
    const auto known = restored_.find(v);
    if (known != restored_.end()) return known->second;
    if (!ops::is_dense(from_.ctx(), from_.type(v))) throw Unsupported("strides with gaps");
    const ValueId back = builder_.op("relayout", {TensorArg{copy_[v]}, SymInts{from_.type(v).strides}});
    restored_[v] = back;
    return back;
  }

  ValueId channels_last(ValueId now) {
    const TensorType type = to().type(now);
    if (ops::suggested_layout(to().ctx(), type) == Layout::kChannelsLast) return now;
    const auto known = last_.find(now);
    if (known != last_.end()) return known->second;
    const ValueId moved = builder_.op(
        "relayout", {TensorArg{now}, SymInts{ops::layout_strides(to().ctx(), type.sizes, Layout::kChannelsLast)}});
    last_[now] = moved;
    return moved;
  }

  /// On a GPU, elements of images in both orders: a kernel would read one of them by single elements.
  bool mixes_orders(const Node& node) {
    if (node.outputs.empty() || node.op->kind != OpKind::kPointwise) return false;
    const TensorType& type = from_.type(node.outputs[0]);
    if (type.device.kind != DeviceKind::kCuda) return false;
    bool stayed = false;
    for_each_operand(node, [&](ValueId v) {
      const TensorType& operand = from_.type(v);
      const bool is_whole =
          operand.sizes == type.sizes && ops::is_dense(from_.ctx(), operand);  // none that is expanded
      stayed = stayed || (is_whole && !has_moved(v) && !last_.contains(copy_[v]));
    });
    return stayed;
  }

  /// The node on operands as they are now. False (and nothing added) when that does not give the same.
  bool infer_again(const Node& node, bool convolution) {
    if (!convolution && !ignores_strides(*node.op)) return false;
    std::vector<Arg> args = copy_.args(node);
    if (convolution) {
      const ImageArgs images = *node.op->traits.images;
      for (size_t i = images.first; i <= images.last; ++i) {
        args[i] = TensorArg{channels_last(std::get<TensorArg>(args[i]).value)};
      }
    } else if (node.op->kind == OpKind::kPointwise) {
      // A convolution has had a copy made.
      args = with_operands(std::move(args), [this](ValueId v) {
        const auto known = last_.find(v);
        return known != last_.end() ? known->second : v;
      });
    }
    const size_t before = to().num_nodes();
    std::vector<ValueId> results;
    try {
      results = builder_.call(*node.op, std::move(args));
    } catch (const Error&) {
      results.clear();
    }
    bool same = results.size() == node.outputs.size();
    for (size_t i = 0; same && i < results.size(); ++i) {
      const TensorType& now = to().type(results[i]);
      const TensorType& then = from_.type(node.outputs[i]);
      same = now.dtype == then.dtype && now.sizes == then.sizes && now.is_wrapped_number == then.is_wrapped_number;
    }
    if (!same) {
      to().truncate_nodes(before);
      return false;
    }
    for (size_t i = 0; i < results.size(); ++i) copy_.set(node.outputs[i], results[i]);
    return true;
  }

  void copy_back(const Node& node) {
    std::vector<Arg> args = with_operands(node.args, [this](ValueId v) { return original(v); });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(from_.type(v));
    const NodeId id = to().add_node(node.op, std::move(args), std::move(types), node.location);
    for (size_t i = 0; i < node.outputs.size(); ++i) copy_.set(node.outputs[i], to().node(id).outputs[i]);
  }

  const Graph& from_;
  OnGpu gpu_;
  GraphCopy copy_;
  GraphBuilder builder_;
  std::unordered_map<ValueId, ValueId> restored_;  // old value -> new value with its old strides
  std::unordered_map<ValueId, ValueId> last_;      // new value -> itself, channels last
};

}  // namespace

Graph channels_last(const Graph& graph, const PassOptions& options) {
  return run_pass("channels_last", graph, options, [&options](const Graph& g) {
    const OnGpu gpu = on_gpu(g, options);
    bool any = false;
    for (const Node& node : g.nodes()) any = any || gains(g, node, gpu);
    if (!any) return g;
    try {
      return Relayout(g, gpu).run();
    } catch (const Unsupported&) {
      return g;  // outputs that share memory, or strides that cannot be restored
    }
  });
}

}  // namespace tatara
