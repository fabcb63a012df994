#include "transforms/attention_pattern.h"

#include <algorithm>
#include <variant>

#include "loops/attention_layout.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "ops/pointwise/block_mask.h"
#include "ops/reduce/softmax_source.h"

namespace tatara {
namespace {

constexpr int64_t kFewestQueries = 32, kFewestKeys = 64;  // below, the host's products are as fast

}  // namespace

const TensorArg* operand_at(const Node& node, size_t place) { return std::get_if<TensorArg>(&node.args[place]); }

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool has_known_sizes(const TensorType& type) {
  return std::all_of(type.sizes.begin(), type.sizes.end(), [](Expr e) { return e.is_const(); });
}

bool is_batched_product(const Node& node) {
  const std::optional<ProductArgs> args = product_args(node);
  return args && args->batched && !args->added && !args->vector && operand_at(node, 0) != nullptr &&
         operand_at(node, 1) != nullptr;
}

ElementWalk walk_to_products(const Graph& graph, ValueId from, bool again,
                             const std::function<bool(const Node& node, bool large)>& takes) {
  const std::vector<Expr>& sizes = graph.type(from).sizes;
  const Expr whole = graph.type(from).numel(graph.ctx());
  const auto ends_alike = [&](const std::vector<Expr>& own) {
    return own.size() >= 2 && own.back() == sizes.back() && own[own.size() - 2] == sizes[sizes.size() - 2];
  };
  ElementWalk walk;
  std::vector<ValueId> open{from};
  std::vector<bool> seen(graph.num_values(), false), depends(graph.num_values(), false);
  while (!open.empty()) {
    const ValueId now = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(now)]) continue;
    seen[static_cast<size_t>(now)] = true;
    const Node* node = graph.producer(now);
    if (node == nullptr || (node->again && !again)) continue;
    const TensorType& type = graph.type(now);
    const bool large = type.numel(graph.ctx()) == whole && ends_alike(type.sizes);
    if (is_batched_product(*node) && large) {
      walk.products.push_back(node);
      depends[static_cast<size_t>(now)] = true;
    } else if (takes(*node, large)) {
      for_each_operand(*node, [&](ValueId operand) { open.push_back(operand); });
    } else {
      continue;
    }
    walk.inside.push_back(now);
  }
  std::sort(walk.inside.begin(), walk.inside.end());
  for (const ValueId each : walk.inside) {
    bool own = depends[static_cast<size_t>(each)];
    if (!own) {
      for_each_operand(*graph.producer(each),
                       [&](ValueId operand) { own = own || depends[static_cast<size_t>(operand)]; });
    }
    depends[static_cast<size_t>(each)] = own;
    if (own) walk.dependent.push_back(each);
  }
  return walk;
}

bool fits_attention(Expr width) {
  if (!width.is_const()) return false;
  const int64_t n = width.const_value();
  return n % loops::Product::Matrices::kAligned == 0 && n >= 16 && n <= loops::AttentionLayout::kWidest;
}

ValueId before_cast(const Graph& graph, ValueId v) {
  for (;;) {
    const Node* node = graph.producer(v);
    if (node == nullptr) return v;
    if (is_half(graph.type(v).dtype) || !(moves_elements(*node) || is_cast(*node))) return v;
    v = operand_at(*node, 0)->value;
  }
}

AttentionFinder::AttentionFinder(const Graph& graph)
    : g_(graph), uses_(graph.use_counts()), users_(graph.num_values(), -1) {
  for (size_t i = 0; i < graph.num_nodes(); ++i) {
    for_each_operand(graph.node(static_cast<NodeId>(i)),
                     [&](ValueId v) { users_[static_cast<size_t>(v)] = static_cast<NodeId>(i); });
  }
}

/// What is known of it from the second product on backwards to the scores.
std::optional<FoundAttention> AttentionFinder::start(const Node& second) const {
  if (const std::optional<LastSoftmax> kind = softmax_product(second))
    return FoundAttention{nullptr, operand_at(second, 0)->value, &second, &second, kind->zero, true, {}};
  if (!is_batched_product(second)) return std::nullopt;
  ValueId given = operand_at(second, 0)->value;
  const Node* softmax = g_.producer(given);
  while (softmax != nullptr && once(given) && (keeps_elements(*softmax) || is_cast(*softmax))) {
    given = operand_at(*softmax, 0)->value;
    softmax = g_.producer(given);
  }
  const std::optional<LastSoftmax> kind = softmax == nullptr ? std::nullopt : last_softmax(g_, *softmax);
  if (!kind || !once(given)) return std::nullopt;
  return FoundAttention{nullptr, operand_at(*softmax, 0)->value, &second, &second, kind->zero, false, {}};
}

std::optional<FoundAttention> AttentionFinder::find(const Node& second) const {
  if (second.again) return std::nullopt;
  std::optional<FoundAttention> found = start(second);
  if (!found) return std::nullopt;
  const TensorType& out = g_.type(second.outputs[0]);
  if (out.device.kind != DeviceKind::kCuda || !is_half(out.dtype)) return std::nullopt;
  const TensorType& type = g_.type(found->scores);
  if (!once(found->scores) || !has_known_sizes(type) || type.dim() < 3 || type.dim() > 4) return std::nullopt;
  if (!follow(*found) || !fits(*found)) return std::nullopt;
  if (type.dim() == 4) found->last = last_copy(second, type.sizes);
  return found;
}

/// The copy of the product's result, and of nothing else of it, in which rows lie outside of heads; else the product.
const Node* AttentionFinder::last_copy(const Node& second, const std::vector<Expr>& scores) const {
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

/// Whether the scores are computed element by element from one product, and from what does not need it. All else of the product's size is
/// read there alone.
bool AttentionFinder::follow(FoundAttention& found) const {
  const std::vector<Expr>& sizes = g_.type(found.scores).sizes;
  ElementWalk walk = walk_to_products(g_, found.scores, false, [&](const Node& node, bool large) {
    const bool element = node.op->kind == OpKind::kPointwise && node.outputs.size() == 1;
    return (element && g_.type(node.outputs[0]).sizes == sizes) || (keeps_elements(node) && large);
  });
  if (walk.products.size() != 1) return false;
  found.first = walk.products[0];
  if (!stays_inside(found, walk)) return false;
  found.inside = std::move(walk.dependent);
  return true;
}

/// Whether what depends on the product is read by nothing but what scores are computed from, and has their sizes or, right behind the
/// product, the product's.
bool AttentionFinder::stays_inside(const FoundAttention& found, const ElementWalk& walk) const {
  std::vector<int> reads(g_.num_values(), 0);
  for (const ValueId each : walk.inside) {
    const Node& node = *g_.producer(each);
    if (&node != found.first) for_each_operand(node, [&](ValueId operand) { ++reads[static_cast<size_t>(operand)]; });
  }
  ++reads[static_cast<size_t>(found.scores)];
  const std::vector<Expr>& sizes = g_.type(found.scores).sizes;
  return std::all_of(walk.dependent.begin(), walk.dependent.end(), [&](ValueId each) {
    const Node& node = *g_.producer(each);
    const DType dtype = g_.type(each).dtype;
    const bool at_product =
        &node == found.first || (keeps_elements(node) && g_.producer(operand_at(node, 0)->value) == found.first);
    return reads[static_cast<size_t>(each)] == uses_[static_cast<size_t>(each)] &&
           (at_product || g_.type(each).sizes == sizes) &&
           (node.op->kind != OpKind::kPointwise || dtype == DType::kFloat32 || is_half(dtype));
  });
}

bool AttentionFinder::fits(const FoundAttention& found) const {
  const TensorType& scores = g_.type(found.scores);
  const TensorType& value = g_.type(operand_at(*found.second, 1)->value);
  const TensorType& query = g_.type(operand_at(*found.first, 0)->value);
  const TensorType& key = g_.type(operand_at(*found.first, 1)->value);
  if (!has_known_sizes(value) || !has_known_sizes(query) || !has_known_sizes(key)) return false;
  if (!(g_.type(found.first->outputs[0]).device == value.device)) return false;
  const DType dtype = g_.type(found.second->outputs[0]).dtype;
  for (const size_t place : {size_t{0}, size_t{1}}) {
    if (g_.type(before_cast(g_, operand_at(*found.first, place)->value)).dtype != dtype) return false;
  }
  const size_t rank = scores.sizes.size();
  return fits_attention(query.sizes[2]) && fits_attention(value.sizes[2]) &&
         scores.sizes[rank - 2].const_value() >= kFewestQueries && scores.sizes[rank - 1].const_value() >= kFewestKeys;
}

// ---- Nodes of a kernel -------------------------------------------------------------------------------------------------

AttentionMaker::AttentionMaker(GraphCopy& copy, GraphBuilder& b, const TensorType& scores, DType dtype)
    : copy_(copy), g_(copy.from()), b_(b), dtype_(dtype) {
  const std::vector<Expr>& sizes = scores.sizes;
  outer_ = sizes.size() == 3 ? std::vector<Expr>{b.ctx().constant(1), sizes[0]} : std::vector<Expr>{sizes[0], sizes[1]};
  last_.assign(sizes.end() - 2, sizes.end());
}

ValueId AttentionMaker::scores(const Node& product) {
  const TensorType& type = g_.type(product.outputs[0]);
  return b_.reshape(b_.cast(plain_scores(product), type.dtype), type.sizes);
}

ValueId AttentionMaker::plain_scores(const Node& product) {
  const ValueId query = matrices(copy_[operand_at(product, 0)->value], false);
  const ValueId key = matrices(copy_[operand_at(product, 1)->value], true);
  return b_.op("attention_scores", {TensorArg{query}, TensorArg{key}});
}

/// Of scores, in float32: [batch, heads, queries, keys].
ValueId AttentionMaker::four_dims(ValueId v) {
  std::vector<Expr> sizes = outer_;
  sizes.insert(sizes.end(), last_.begin(), last_.end());
  return b_.reshape(b_.cast(v, DType::kFloat32), sizes);
}

AttentionMaker::Values AttentionMaker::values(const FoundAttention& found) {
  const ValueId scores = four_dims(copy_[found.scores]);
  const ValueId value = matrices(copy_[operand_at(*found.second, 1)->value], false);
  const bool outside = found.last != found.second;
  const int64_t width = g_.type(operand_at(*found.first, 0)->value).sizes.back().const_value();
  const auto layout = loops::AttentionLayout::of_width(std::max(width, b_.type(value).sizes.back().const_value()));
  const std::optional<ValueId> needed = needed_blocks(b_, scores, layout.rows, layout.keys);
  const std::vector<ValueId> made =
      b_.op_multi(found.norms ? "attention_values_and_norms" : "attention_values",
                  {TensorArg{scores}, TensorArg{value}, needed ? Arg(TensorArg{*needed}) : Arg(NoneArg{}),
                   Scalar(found.zero), Scalar(outside)});
  const std::vector<Expr>& out = g_.type(found.last->outputs[0]).sizes;
  const bool exchanged = outside && out != b_.type(made[0]).sizes;
  Values result;
  result.last = b_.reshape(exchanged ? b_.permute(made[0], {0, 2, 1, 3}) : made[0], out);
  result.product = outside ? b_.reshape(made[0], g_.type(found.second->outputs[0]).sizes) : result.last;
  if (found.norms) result.norms = b_.reshape(made[1], g_.type(found.second->outputs[1]).sizes);
  return result;
}

std::vector<ValueId> AttentionMaker::sums(const std::vector<Sum>& wanted, ValueId scores, bool turned, int64_t widest,
                                          size_t products) {
  std::vector<ValueId> shares, values;
  for (const Sum& sum : wanted) {
    shares.push_back(four_dims(sum.shares));
    values.push_back(matrices(copy_[sum.value], sum.value_turned));
    widest = std::max(widest, b_.type(values.back()).sizes.back().const_value());
  }
  scores = four_dims(scores);
  const auto layout = loops::AttentionLayout::of_width(widest, products, wanted.size());
  const std::optional<ValueId> blocks = turned ? needed_blocks(b_, scores, layout.keys, layout.rows)
                                               : needed_blocks(b_, scores, layout.rows, layout.keys);
  const Arg needed = blocks ? Arg(TensorArg{*blocks}) : Arg(NoneArg{});
  std::vector<Arg> args{TensorArg{shares[0]}, TensorArg{values[0]}, TensorArg{scores}};
  if (wanted.size() == 1) {
    args.insert(args.end(), {needed, Scalar(turned), Arg(wanted[0].dtype)});
    return {b_.op("attention_sums", std::move(args))};
  }
  args.insert(args.end(), {TensorArg{shares[1]}, TensorArg{values[1]}, needed, Scalar(turned), Arg(wanted[0].dtype),
                           Arg(wanted[1].dtype)});
  return b_.op_multi("attention_two_sums", std::move(args));
}

/// [batch * heads, rows, width], or with rows last, as [batch, heads, rows, width] of the half type, before copies that make three dims
/// of four, or repeat heads, of which there may then be fewer.
ValueId AttentionMaker::matrices(ValueId v, bool turned) {
  std::vector<Expr> sizes = outer_;
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
    const ValueId from = operand_at(*node, 0)->value;
    if (cast && b_.type(from).dtype != dtype_) break;
    at = from;
    exchanged = exchanged != turns;
  }
  if (found != kNoValue) return with_rows_along(found);
  v = b_.reshape(b_.cast(v, dtype_), sizes);
  return with_rows_along(turned ? b_.permute(v, {0, 1, 3, 2}) : v);
}

/// Itself, or where its rows do not lie along memory a copy whose rows do.
ValueId AttentionMaker::with_rows_along(ValueId v) {
  const TensorType type = b_.type(v);
  if (type.strides[3].is_const(1)) return v;
  return b_.op("relayout", {TensorArg{v}, SymInts{contiguous_strides(b_.ctx(), type.sizes)}});
}

/// `v` itself, where it has the sizes (with the last two exchanged where `turned`), or what its heads are repeated from.
ValueId AttentionMaker::fewer_heads(ValueId v, std::vector<Expr> sizes, bool turned) {
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

}  // namespace tatara
