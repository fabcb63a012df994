// Attention in kernels of our own: the products of queries and keys, what makes scores of them, the softmax and the product with values.
#include "loops/attention_layout.h"
#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::Attention;
using loops::AttentionLayout;
using loops::LoopKind;

namespace {

using Kind = LoweredNode::Kind;

/// The node of the scores that an attention's first operand is computed from.
const LoweredNode& scores_of(State& s, const LoweredNode& attention) {
  ValueId v = attention.operands[0];
  for (;;) {
    const LoweredNode* node = s.producer(v);
    TATARA_CHECK(node != nullptr, "an attention without scores");
    if (node->kind == Kind::kScores) return *node;
    const auto* const inside = std::find_if(node->operands.begin(), node->operands.end(), [&](ValueId operand) {
      return s.values[static_cast<size_t>(operand)].inside;
    });
    TATARA_CHECK(inside != node->operands.end(), "an attention without scores");
    v = *inside;
  }
}

/// The matrices as they lie in memory; `first`: which matrix of the last two dims. nullopt: the copy engine does not take them.
std::optional<Attention::Side> attention_side(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  const std::optional<ViewOf> view = affine_view(s, v);
  if (!view || type.dim() != 4 || s.graph.type(view->base).dtype != type.dtype) return std::nullopt;
  const auto known = [](Expr e) { return e.is_const() ? e.const_value() : -1; };
  const auto aligned = [](int64_t n) { return n >= 0 && n % loops::Product::Matrices::kAligned == 0; };
  const auto length = [](int64_t n) { return n > 0 && n <= loops::TensorMap::kLongest; };
  Attention::Side side;
  side.rows = known(type.sizes[2]);
  side.width = known(type.sizes[3]);
  side.row_stride = known(view->strides[2]);
  side.offset = known(view->offset);
  bool taken = known(view->strides[3]) == 1 && length(side.rows) && length(side.width) && aligned(side.width) &&
               side.row_stride > 0 && aligned(side.row_stride) && aligned(side.offset);
  for (size_t d = 0; d < 2; ++d) {
    if (type.sizes[d].is_const(1) || known(view->strides[d]) == 0) continue;
    side.batches[d] = known(type.sizes[d]);
    side.batch_strides[d] = known(view->strides[d]);
    taken = taken && length(side.batches[d]) && aligned(side.batch_strides[d]);
  }
  return taken ? std::optional(side) : std::nullopt;
}

class AttentionEmitter {
 public:
  AttentionEmitter(State& s, int unit)
      : s_(s),
        unit_(unit),
        node_(*s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)]),
        scores_(scores_of(s, node_)),
        group_(s.units[static_cast<size_t>(unit)].group),
        value_(node_.node().outputs[0]),
        nest_(s, kernel_) {}

  void run() {
    const std::vector<Expr>& sizes = node_.result().sizes;
    const std::vector<Expr> at = *index_map(s_, *group_.space, sizes, true);
    Attention attention;
    attention.queries = side(scores_.operands[0], at);
    attention.keys = side(scores_.operands[1], at);
    attention.values = side(node_.operands[1], at);
    const AttentionLayout layout = AttentionLayout::of_width(attention.queries.width, attention.values.width);
    attention.extent = layout.rows;
    attention.block = layout.keys;
    attention.zero = std::get<bool>(std::get<Scalar>(node_.node().args[3]));
    attention.row = at[2];
    attention.rows = sizes[2];
    NestPlan plan;
    for (size_t d = 0; d < 2; ++d) {
      if (!sizes[d].is_const(1)) plan.outer.push_back({at[d], sizes[d], LoopKind::kParallel, at[d], Expr()});
    }
    const Expr extent = ctx().constant(attention.extent);
    const Expr tiles = s_.simplify(ctx().ceildiv(sizes[2], extent));
    const Expr tile = s_.pooled_symbol(tiles, kTileSymbol);
    plan.outer.push_back({tile, tiles, LoopKind::kParallel, tile, Expr()});
    // Later rows have more to do where masks are causal: they come first.
    const Expr place = s_.simplify(tiles - ctx().constant(1) - tile);
    attention.first = s_.simplify(place * extent);
    if (node_.operands.size() > 2) add_table(attention, {at[0], at[1], place});
    for (const LoopSpec& loop : plan.outer) nest_.open_loop(loop.var, loop.extent, loop.kind);
    nest_.location = &node_.node().location;
    nest_.fused(scores_);
    nest_.fused(node_);
    s_.note(s_.name_of(value_),
            str_cat("attention in one kernel, in tiles of ", attention.extent, " rows and ", attention.block, " keys"));
    nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
      return read(v, indices, mask);
    };
    const Expr keys = scores_.result().sizes[3];
    const Expr key = s_.pooled_symbol(keys, kKeySymbol);
    nest_.open_attention(attention, key, keys);
    product_ = attention.product;
    place_ = {at[0], at[1], at[2], key};
    attention.score = nest_.eval(node_.operands[0], place_);
    nest_.begin_results(attention, at[3], sizes[3]);
    result_ = attention.result;
    store_members(s_, nest_, group_);
    nest_.close_attention(std::move(attention));
    for (size_t i = 0; i < plan.outer.size(); ++i) nest_.close_loop({});
    Expr work = ctx().constant(2) * keys * (scores_.operand(0).sizes[3] + sizes[3]);
    for (size_t d = 0; d < 3; ++d) work = work * sizes[d];
    finish_kernel(s_, nest_, std::move(kernel_), plan, s_.simplify(work));
  }

 private:
  static constexpr size_t kTileSymbol = 900, kKeySymbol = 901, kBlockSymbol = 902;  // of the pool: no dim's

  ExprContext& ctx() { return s_.ctx; }

  Attention::Side side(ValueId v, const std::vector<Expr>& at) {
    std::optional<Attention::Side> side = attention_side(s_, v);
    if (!side) throw Unsupported("an operand of an attention lies otherwise than it did: " + s_.name_of(v));
    const ValueInfo& base = s_.values[static_cast<size_t>(base_of(s_, v))];
    TATARA_CHECK(base.storage.has_value(), s_.name_of(v), " has no memory");
    side->buffer = nest_.buffer_arg(base.storage->buffer, false);
    const std::vector<Expr>& sizes = node_.result().sizes;
    for (size_t d = 0; d < 2; ++d) {
      const Expr count = s_.graph.type(v).sizes[d];
      // Several heads of queries may have the keys of one.
      const Expr own = count == sizes[d] ? at[d] : s_.simplify(ctx().floordiv(at[d], ctx().floordiv(sizes[d], count)));
      side->number[d] = side->batches[d] == 1 ? ctx().constant(0) : own;
    }
    return *side;
  }

  /// Which blocks are needed, for the tile of rows at `place`: batch, head and number.
  void add_table(Attention& attention, std::vector<Expr> place) {
    const ValueId v = node_.operands[2];
    const ValueInfo& info = s_.values[static_cast<size_t>(base_of(s_, v))];
    TATARA_CHECK(info.storage.has_value(), s_.name_of(v), " has no memory");
    const std::vector<Expr>& sizes = s_.graph.type(v).sizes;
    attention.table = nest_.buffer_arg(info.storage->buffer, false);
    attention.table_block = s_.pooled_symbol(ctx().constant(attention.keys.rows / attention.block), kBlockSymbol);
    place.push_back(attention.table_block);
    Expr index = info.storage->offset.valid() ? info.storage->offset : ctx().constant(0);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!sizes[d].is_const(1)) index = index + place[d] * (*info.storage->strides)[d];
    }
    attention.table_index = s_.simplify(index);
  }

  std::optional<ScalarId> read(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
    if (v == value_) return result_;
    if (v == scores_.node().outputs[0]) {
      for (size_t d = 0; d < indices.size(); ++d) {
        if (!(s_.simplify(indices[d]) == s_.simplify(place_[d]))) throw Unsupported("scores of another place");
      }
      return product_;
    }
    return load_from_others(s_, nest_, unit_, v, indices, mask);
  }

  State& s_;
  const int unit_;
  const LoweredNode& node_;
  const LoweredNode& scores_;
  const Group& group_;
  const ValueId value_;
  loops::Kernel kernel_;
  NestBuilder nest_;
  std::vector<Expr> place_;  // of a score
  ScalarId product_ = loops::kNoScalar, result_ = loops::kNoScalar;
};

}  // namespace

void realise_matrices(State& s, const LoweredNode& node, const std::function<void(ValueId)>& realise,
                      const std::function<void(ValueId)>& copy) {
  for (size_t i = node.kind == Kind::kAttention ? 1 : 0; i < node.operands.size(); ++i) {
    const ValueId v = node.operands[i];
    realise(v);
    if (i == 2 || !attention_side(s, v)) copy(v);
  }
}

FlatSet<ValueId> operator_reads(State& s, const LoweredNode& node) {
  FlatSet<ValueId> reads;
  if (node.kind != Kind::kAttention) {
    for (const ValueId v : node.operands) reads.insert(base_of(s, v));
    return reads;
  }
  const LoweredNode& scores = scores_of(s, node);
  for (const ValueId v : {scores.operands[0], scores.operands[1], node.operands[1]}) reads.insert(base_of(s, v));
  if (node.operands.size() > 2) reads.insert(base_of(s, node.operands[2]));
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  nest.access = [&](ValueId v, const std::vector<Expr>&, ScalarId) -> std::optional<ScalarId> {
    const bool product = v == scores.node().outputs[0];
    if (!product && !s.values[static_cast<size_t>(v)].root) return std::nullopt;
    if (!product) reads.insert(v);
    return nest.new_scalar(compute_dtype(s.graph.type(v).dtype));
  };
  std::vector<Expr> indices;
  for (const Expr size : scores.result().sizes) indices.push_back(s.pooled_symbol(size, indices.size()));
  nest.eval(node.operands[0], indices);
  return reads;
}

void emit_attention(State& s, int unit) { AttentionEmitter(s, unit).run(); }

}  // namespace tatara::sched
