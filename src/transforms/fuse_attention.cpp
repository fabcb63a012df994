// Two products with a softmax between them as one kernel, on GPUs with tensor cores that multiply half types (loops::Attention).
#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "loops/attention_layout.h"
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "ops/pointwise/block_mask.h"
#include "ops/reduce/softmax_source.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kFewestQueries = 32, kFewestKeys = 64;  // below, the host's products are as fast

/// What was found: softmax(scores computed from first) x values = second.
struct FoundAttention {
  const Node* first;  // the product of queries and keys
  const Node* softmax;
  const Node* second;
  const Node* last;   // its result, or a copy of that for which heads come behind rows, as all that programs do with it
  bool zero = false;  // a row whose scores are all -infinity gives zeros
};

const TensorArg* operand_of(const Node& node, size_t place) { return std::get_if<TensorArg>(&node.args[place]); }

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

class AttentionFinder {
 public:
  explicit AttentionFinder(const Graph& graph) : g_(graph), uses_(graph.use_counts()), users_(graph.num_values(), -1) {
    for (size_t i = 0; i < graph.num_nodes(); ++i) {
      for_each_operand(graph.node(static_cast<NodeId>(i)),
                       [&](ValueId v) { users_[static_cast<size_t>(v)] = static_cast<NodeId>(i); });
    }
  }

  std::optional<FoundAttention> find(const Node& second) const {
    if (!is_batched(second) || second.again) return std::nullopt;
    const TensorType& out = g_.type(second.outputs[0]);
    if (out.device.kind != DeviceKind::kCuda || !is_half(out.dtype)) return std::nullopt;
    const Node* softmax = g_.producer(operand_of(second, 0)->value);
    ValueId given = operand_of(second, 0)->value;
    while (softmax != nullptr && once(given) && (keeps_elements(*softmax) || is_cast(*softmax))) {
      given = operand_of(*softmax, 0)->value;
      softmax = g_.producer(given);
    }
    const std::optional<LastSoftmax> kind = softmax == nullptr ? std::nullopt : last_softmax(g_, *softmax);
    if (!kind || !once(given)) return std::nullopt;
    const ValueId scores = operand_of(*softmax, 0)->value;
    const TensorType& type = g_.type(scores);
    if (!once(scores) || !known(type) || type.dim() < 3 || type.dim() > 4) return std::nullopt;
    FoundAttention found{nullptr, softmax, &second, &second, kind->zero};
    if (!follow(scores, type.sizes, found.first) || found.first == nullptr) return std::nullopt;
    if (!fits(found, type)) return std::nullopt;
    if (type.dim() == 4) found.last = last_copy(second, type.sizes);
    return found;
  }

 private:
  /// The copy of the product's result, and of nothing else of it, in which rows lie outside of heads; else the product.
  const Node* last_copy(const Node& second, const std::vector<Expr>& scores) const {
    ExprContext& ctx = g_.ctx();
    std::vector<Expr> sizes = scores;
    sizes[3] = g_.type(second.outputs[0]).sizes.back();
    const Expr row = ctx.mul(sizes[1], sizes[3]);
    const std::vector<Expr> outside{sizes[0], sizes[2], sizes[1], sizes[3]}, joined{sizes[0], sizes[2], row};
    const std::vector<Expr> strides{ctx.mul(row, sizes[2]), sizes[3], row, ctx.constant(1)};
    ValueId v = second.outputs[0];
    while (once(v) && users_[static_cast<size_t>(v)] >= 0) {
      const Node& user = g_.node(users_[static_cast<size_t>(v)]);
      const TensorType &from = g_.type(v), &to = g_.type(user.outputs[0]);
      if (const std::optional<ValueId> source = copied(user)) {
        const bool plain = *source == v && to.dtype == from.dtype && to.device == from.device;
        const bool exchanged = from.sizes == outside && (to.sizes == outside || to.sizes == joined) &&
                               to.strides == contiguous_strides(ctx, to.sizes);
        const bool seen = from.sizes == sizes && to.sizes == sizes && to.strides == strides;
        return plain && (exchanged || seen) ? &user : &second;
      }
      const bool split = v == second.outputs[0] && keeps_elements(user) && to.sizes == sizes;
      const bool turned = from.sizes == sizes && exchanges(g_, user, -2);
      if (!split && !turned) break;
      v = user.outputs[0];
    }
    return &second;
  }

  bool once(ValueId v) const { return uses_[static_cast<size_t>(v)] == 1; }
  static bool known(const TensorType& type) {
    return std::all_of(type.sizes.begin(), type.sizes.end(), [](Expr e) { return e.is_const(); });
  }

  static bool is_batched(const Node& node) {
    const std::optional<ProductArgs> args = product_args(node);
    return args && args->batched && !args->added && !args->vector && operand_of(node, 0) != nullptr &&
           operand_of(node, 1) != nullptr;
  }

  /// Whether `v` is computed element by element from what it finds, a product, and from what does not need it. All else of the
  /// product's size is read there alone.
  bool follow(ValueId v, const std::vector<Expr>& sizes, const Node*& product) const {
    std::vector<ValueId> open{v};
    std::vector<bool> seen(g_.num_values(), false);
    std::vector<ValueId> inside;
    while (!open.empty()) {
      const ValueId now = open.back();
      open.pop_back();
      if (seen[static_cast<size_t>(now)]) continue;
      seen[static_cast<size_t>(now)] = true;
      const Node* node = g_.producer(now);
      if (node == nullptr || node->again) continue;
      if (is_batched(*node) && g_.type(now).numel(g_.ctx()) == whole(sizes) && ends_in(now, sizes)) {
        if (product != nullptr && product != node) return false;
        product = node;
        inside.push_back(now);
        continue;
      }
      const bool element = node->op->kind == OpKind::kPointwise && node->outputs.size() == 1;
      const bool view = keeps_elements(*node) && ends_in(now, sizes);
      if ((element && g_.type(now).sizes == sizes) || (view && g_.type(now).numel(g_.ctx()) == whole(sizes))) {
        inside.push_back(now);
        for_each_operand(*node, [&](ValueId operand) { open.push_back(operand); });
      }
    }
    return product != nullptr && stays_inside(v, product, inside);
  }

  Expr whole(const std::vector<Expr>& sizes) const {
    Expr all = g_.ctx().constant(1);
    for (const Expr size : sizes) all = g_.ctx().mul(all, size);
    return all;
  }
  bool ends_in(ValueId v, const std::vector<Expr>& sizes) const {
    const std::vector<Expr>& own = g_.type(v).sizes;
    return own.size() >= 2 && own.back() == sizes.back() && own[own.size() - 2] == sizes[sizes.size() - 2];
  }

  /// Whether what depends on the product is read by nothing but what `v` is computed from, and has its sizes or, right behind the product,
  /// the product's.
  bool stays_inside(ValueId v, const Node* product, const std::vector<ValueId>& inside) const {
    std::vector<int> reads(g_.num_values(), 0);
    std::vector<bool> depends(g_.num_values(), false);
    std::vector<ValueId> order = inside;
    std::sort(order.begin(), order.end());
    for (const ValueId each : order) {
      const Node& node = *g_.producer(each);
      bool own = &node == product;
      if (!own) {
        for_each_operand(node, [&](ValueId operand) {
          own = own || depends[static_cast<size_t>(operand)];
          ++reads[static_cast<size_t>(operand)];
        });
      }
      depends[static_cast<size_t>(each)] = own;
    }
    ++reads[static_cast<size_t>(v)];
    const std::vector<Expr>& sizes = g_.type(v).sizes;
    for (const ValueId each : order) {
      if (!depends[static_cast<size_t>(each)]) continue;
      if (reads[static_cast<size_t>(each)] != uses_[static_cast<size_t>(each)]) return false;
      const Node& node = *g_.producer(each);
      const bool at_product =
          &node == product || (keeps_elements(node) && g_.producer(operand_of(node, 0)->value) == product);
      if (!at_product && g_.type(each).sizes != sizes) return false;
      if (node.op->kind == OpKind::kPointwise && g_.type(each).dtype != DType::kFloat32 &&
          !is_half(g_.type(each).dtype))
        return false;
    }
    return depends[static_cast<size_t>(v)];
  }

  /// Behind a cast that changes nothing: half types have all their values in float32.
  ValueId before_cast(ValueId v) const {
    for (;;) {
      const Node* node = g_.producer(v);
      if (node == nullptr) return v;
      if (is_half(g_.type(v).dtype) || !(moves_elements(*node) || is_cast(*node))) return v;
      v = operand_of(*node, 0)->value;
    }
  }

  bool fits(const FoundAttention& found, const TensorType& scores) const {
    const TensorType& value = g_.type(operand_of(*found.second, 1)->value);
    const TensorType& query = g_.type(operand_of(*found.first, 0)->value);
    const TensorType& key = g_.type(operand_of(*found.first, 1)->value);
    if (!known(value) || !known(query) || !known(key) || !(g_.type(found.first->outputs[0]).device == value.device))
      return false;
    const DType dtype = g_.type(found.second->outputs[0]).dtype;
    for (const size_t place : {size_t{0}, size_t{1}}) {
      if (g_.type(before_cast(operand_of(*found.first, place)->value)).dtype != dtype) return false;
    }
    const auto width = [](Expr e) {
      const int64_t n = e.const_value();
      return n % loops::Product::Matrices::kAligned == 0 && n >= 16 && n <= loops::AttentionLayout::kWidest;
    };
    const size_t rank = scores.sizes.size();
    return width(query.sizes[2]) && width(value.sizes[2]) && scores.sizes[rank - 2].const_value() >= kFewestQueries &&
           scores.sizes[rank - 1].const_value() >= kFewestKeys;
  }

  const Graph& g_;
  std::vector<int> uses_;
  std::vector<NodeId> users_;
};

/// Makes the nodes of the kernel.
class AttentionMaker {
 public:
  AttentionMaker(GraphCopy& copy, GraphBuilder& b, DType dtype) : copy_(copy), g_(copy.from()), b_(b), dtype_(dtype) {}

  /// In place of the product of queries and keys.
  ValueId scores(const FoundAttention& found) {
    const std::vector<Expr> outer = outer_sizes(found);
    const TensorType& type = g_.type(found.first->outputs[0]);
    const ValueId query = matrices(copy_[operand_of(*found.first, 0)->value], outer, false);
    const ValueId key = matrices(copy_[operand_of(*found.first, 1)->value], outer, true);
    ValueId scores = b_.op("attention_scores", {TensorArg{query}, TensorArg{key}});
    scores = b_.cast(scores, type.dtype);
    return b_.reshape(scores, type.sizes);
  }

  /// In place of the second product, or of the copy of its result.
  ValueId values(const FoundAttention& found) {
    const std::vector<Expr> outer = outer_sizes(found);
    const TensorType& type = g_.type(operand_of(*found.softmax, 0)->value);
    std::vector<Expr> sizes = outer;
    sizes.insert(sizes.end(), type.sizes.end() - 2, type.sizes.end());
    const ValueId scores = b_.reshape(b_.cast(copy_[operand_of(*found.softmax, 0)->value], DType::kFloat32), sizes);
    const ValueId value = matrices(copy_[operand_of(*found.second, 1)->value], outer, false);
    const bool outside = found.last != found.second;
    const int64_t width = g_.type(operand_of(*found.first, 0)->value).sizes.back().const_value();
    const auto layout = loops::AttentionLayout::of_width(width, b_.type(value).sizes.back().const_value());
    const std::optional<ValueId> needed = needed_blocks(b_, scores, layout.rows, layout.keys);
    const ValueId result = b_.op(
        "attention_values", {TensorArg{scores}, TensorArg{value}, needed ? Arg(TensorArg{*needed}) : Arg(NoneArg{}),
                             Scalar(found.zero), Scalar(outside)});
    const std::vector<Expr>& out = g_.type(found.last->outputs[0]).sizes;
    if (!outside || out == b_.type(result).sizes) return b_.reshape(result, out);
    return b_.reshape(b_.permute(result, {0, 2, 1, 3}), out);
  }

 private:
  /// Batch and heads.
  std::vector<Expr> outer_sizes(const FoundAttention& found) const {
    const std::vector<Expr>& sizes = g_.type(operand_of(*found.softmax, 0)->value).sizes;
    if (sizes.size() == 3) return {b_.ctx().constant(1), sizes[0]};
    return {sizes[0], sizes[1]};
  }

  /// [batch * heads, rows, width], or with rows last, as [batch, heads, rows, width] of the half type, before copies that make three dims
  /// of four, or repeat heads, of which there may then be fewer.
  ValueId matrices(ValueId v, const std::vector<Expr>& outer, bool turned) {
    std::vector<Expr> sizes = outer;
    const std::vector<Expr>& given = b_.type(v).sizes;
    sizes.insert(sizes.end(), given.begin() + 1, given.end());
    ValueId found = kNoValue, at = v;
    bool exchanged = false;  // what comes after `at` exchanges the last two dims
    for (;;) {
      const ValueId now = fewer_heads(at, sizes, exchanged);
      if (now != kNoValue) found = exchanged == turned ? now : b_.permute(now, {0, 1, 3, 2});
      const Node* node = b_.graph().producer(at);
      if (node == nullptr) break;
      const bool turns = exchanges(b_.graph(), *node, -1), cast = is_cast(*node);
      if (!turns && !cast && !keeps_elements(*node)) break;
      const ValueId from = operand_of(*node, 0)->value;
      if (cast && b_.type(from).dtype != dtype_) break;
      at = from;
      exchanged = exchanged != turns;
    }
    if (found != kNoValue) return found;
    v = b_.reshape(b_.cast(v, dtype_), sizes);
    return turned ? b_.permute(v, {0, 1, 3, 2}) : v;
  }

  /// `v` itself, where it has the sizes (with the last two exchanged where `turned`), or what its heads are repeated from.
  ValueId fewer_heads(ValueId v, std::vector<Expr> sizes, bool turned) {
    if (turned) std::swap(sizes[2], sizes[3]);
    const TensorType type = b_.type(v);
    if (type.dtype != dtype_) return kNoValue;
    if (type.sizes == sizes) return v;
    // [batch, heads, repeated, rows, width], expanded along the third.
    if (type.dim() != 5 || !type.strides[2].is_const(0)) return kNoValue;
    const bool fits = type.sizes[0] == sizes[0] && b_.ctx().mul(type.sizes[1], type.sizes[2]) == sizes[1] &&
                      type.sizes[3] == sizes[2] && type.sizes[4] == sizes[3];
    if (!fits) return kNoValue;
    return b_.op("select", {TensorArg{v}, Scalar(int64_t{2}), Scalar(int64_t{0})});
  }

  GraphCopy& copy_;
  const Graph& g_;
  GraphBuilder& b_;
  const DType dtype_;  // of the operands
};

}  // namespace

Graph fuse_attention(const Graph& graph, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("fuse_attention", graph, options, [](const Graph& g) {
    const AttentionFinder finder(g);
    std::vector<std::optional<FoundAttention>> at(g.num_nodes());  // by the number of either product
    bool any = false;
    std::vector<bool> taken(g.num_values(), false);
    for (const Node& node : g.nodes()) {
      std::optional<FoundAttention> found = finder.find(node);
      if (!found || taken[static_cast<size_t>(found->first->outputs[0])]) continue;
      taken[static_cast<size_t>(found->first->outputs[0])] = any = true;
      at[static_cast<size_t>(g.value(found->first->outputs[0]).producer)] = found;
      at[static_cast<size_t>(g.value(found->last->outputs[0]).producer)] = found;
    }
    if (!any) return g;
    GraphCopy copy(g);
    GraphBuilder b(copy.to());
    for (size_t i = 0; i < g.num_nodes(); ++i) {
      const Node& node = g.node(static_cast<NodeId>(i));
      if (!at[i]) {
        copy.copy(node);
        continue;
      }
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      AttentionMaker maker(copy, b, g.type(at[i]->second->outputs[0]).dtype);
      const bool first = at[i]->first == &node;
      const ValueId made = first ? maker.scores(*at[i]) : maker.values(*at[i]);
      const TensorType& type = g.type(node.outputs[0]);
      copy.set(node.outputs[0], first ? made : with_type(copy, made, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
