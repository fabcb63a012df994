// Products with a computed weight, by tensor cores: each warp computes the weights that it multiplies, in registers.
#include <algorithm>

#include "loops/weighed_layout.h"
#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;
using loops::WeighedLayout;
using loops::WeighedProduct;

namespace {

constexpr int64_t kWarps = 8;        // of a block
constexpr int64_t kWordBytes = 16;   // that a thread reads at once
constexpr int64_t kMostAtOnce = 32;  // that it computes at once

class WeighedEmitter {
 public:
  WeighedEmitter(State& s, int unit)
      : s_(s),
        unit_(unit),
        node_(*s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)]),
        group_(s.units[static_cast<size_t>(unit)].group),
        value_(node_.node().outputs[0]),
        nest_(s, kernel_) {}

  void run() {
    const std::vector<Expr>& sizes = node_.result().sizes;
    const std::vector<Expr> at = *index_map(s_, *group_.space, sizes, true);
    const std::vector<Expr>& weight = node_.operand(1).sizes;
    const Expr words = weight.size() == 3 ? s_.simplify(weight[1] * weight[2]) : weight[1];
    WeighedProduct product;
    product.run = std::get<int64_t>(std::get<Scalar>(node_.node().args[2]));
    product.count = sizes[0];
    product.results = sizes[1];
    product.row = at[0].is_symbol() ? at[0] : s_.pooled_symbol(sizes[0], kRowSymbol);
    product.result = s_.pooled_symbol(sizes[1], kResultSymbol);
    find_matrix(product);
    choose_tile(product);
    const Expr tiles = s_.simplify(ctx().ceildiv(sizes[1], ctx().constant(product.extent)));
    const Expr blocks = s_.simplify(ctx().ceildiv(sizes[0], ctx().constant(product.rows)));
    const Expr tile = s_.pooled_symbol(tiles, kTileSymbol), block = s_.pooled_symbol(blocks, kBlockSymbol);
    product.first_result = s_.simplify(tile * ctx().constant(product.extent));
    product.first_row = s_.simplify(block * ctx().constant(product.rows));
    NestPlan plan;
    // Blocks of rows that have the same weights are neighbours: what one reads is near for the next.
    plan.outer.push_back({tile, tiles, LoopKind::kParallel, tile, Expr()});
    if (!blocks.is_const(1)) plan.outer.push_back({block, blocks, LoopKind::kParallel, block, Expr()});
    for (const LoopSpec& loop : plan.outer) nest_.open_loop(loop.var, loop.extent, loop.kind);
    nest_.location = &node_.node().location;
    nest_.fused(node_);
    s_.note(s_.name_of(value_), str_cat("a product with a computed weight: ", product.rows, " rows x ", product.extent,
                                        " results of a block, ", product.bands, " x ", product.slices, " warps"));
    nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
      return read(v, indices, mask);
    };
    const Expr word = s_.pooled_symbol(words, kWordSymbol);
    nest_.begin_weights(product, word, words);
    for (size_t i = 1; i < node_.operands.size(); ++i) {
      std::vector<Expr> place{product.result, word};
      if (weight.size() == 3) {
        place[1] = s_.simplify(ctx().floordiv(word, weight[2]));
        place.push_back(s_.simplify(ctx().mod(word, weight[2])));
      }
      product.weights.push_back(nest_.cast(nest_.eval(node_.operands[i], place), DType::kFloat32));
    }
    nest_.end_weights(product);
    product.words = words_of(product, word);
    product.steps = steps_of(product);
    nest_.begin_elements(product, at[1], sizes[1]);
    element_ = product.value;
    store_members(s_, nest_, group_);
    nest_.close_weighed(std::move(product));
    for (size_t i = 0; i < plan.outer.size(); ++i) nest_.close_loop({});
    Expr work = ctx().constant(2 * static_cast<int64_t>(node_.operands.size() - 1)) * words;
    for (const Expr size : sizes) work = work * size;
    finish_kernel(s_, nest_, std::move(kernel_), plan, s_.simplify(work));
  }

 private:
  static constexpr size_t kTileSymbol = 900, kBlockSymbol = 901, kWordSymbol = 902, kResultSymbol = 903,
                          kRowSymbol = 904;  // no dim's

  ExprContext& ctx() { return s_.ctx; }

  void find_matrix(WeighedProduct& product) {
    const ValueId v = node_.operands[0];
    const std::optional<ViewOf> view = rows_in_memory(s_, v);
    if (!view) throw Unsupported("an operand of a product lies otherwise than it did: " + s_.name_of(v));
    product.matrix = nest_.buffer_arg(memory_of(s_, v).buffer, false);
    product.row_stride = view->strides[0].const_value();
    product.offset = view->offset.const_value();
  }

  /// Rows of a tile are as many as there are, up to what registers hold. A warp has 32 results, or 16 where there would be few blocks
  /// (measured on an H200). Of more rows than a multiplication has, warps beside each other read the same ones, which are then near.
  void choose_tile(WeighedProduct& product) {
    const int64_t rows = std::max<int64_t>(ctx().evaluate_hint(product.count).value_or(1), 1);
    const int64_t step = WeighedLayout::kRowsOfStep, processors = s_.options.gpu->multiprocessors;
    product.rows = std::min(WeighedProduct::kMostRows, (rows + step - 1) / step * step);
    const int64_t results = ctx().evaluate_hint(product.results).value_or(1);
    const auto fill = [&](int64_t extent) { return results / extent >= processors; };
    const int64_t deep = product.rows > step || fill(4 * WeighedProduct::kBand) ? 2 : 1;
    product.bands = 1;
    product.slices = kWarps;
    const int64_t most = product.rows > 4 * step ? 4 : product.rows > step ? 2 : 1;
    while (product.bands < most && fill(2 * product.bands * deep * WeighedProduct::kBand)) {
      product.bands *= 2;
      product.slices /= 2;
    }
    product.extent = deep * WeighedProduct::kBand * product.bands;
    while (product.slices > 1 && WeighedLayout::of(product).shared_bytes() > WeighedLayout::kMostShared)
      product.slices /= 2;
  }

  /// How many neighbours a thread computes at once: what lies beside each other are at most 16 bytes.
  int64_t words_of(const WeighedProduct& product, Expr word) const {
    int64_t widest = 1;
    ExprMap next;
    next[word] = word + word.context().constant(1);
    for (const loops::Stmt& stmt : product.weigh->body->stmts) {
      const auto* load = std::get_if<loops::Load>(&stmt);
      if (load == nullptr || !load->index.contains(word)) continue;
      const Expr step = s_.ctx.simplify(s_.ctx.substitute(load->index, next) - load->index);
      const int64_t bytes = dtype_size(kernel_.buffers[static_cast<size_t>(load->buffer)].dtype);
      if (step.is_const(1)) widest = std::max(widest, bytes);
    }
    int64_t words = std::min(kWordBytes / widest, kMostAtOnce / product.parts());
    const int64_t all = product.weigh->extent.const_value();
    while (all % (words * WeighedProduct::kLanes) != 0 || (product.run > 1 && product.run % words != 0)) words /= 2;
    return words;
  }

  /// A warp loads two steps at once where it computes little in one, or has few beside it (measured likewise).
  int64_t steps_of(const WeighedProduct& product) const {
    const int64_t few = WeighedLayout::kRowsOfStep;
    const bool once = product.rows <= few ? product.extent > WeighedProduct::kBand
                                          : product.rows > 2 * few && product.rows <= 4 * few;
    int64_t steps = once && product.parts() == 1 ? 1 : 2;
    const int64_t all = product.weigh->extent.const_value() / (product.words * WeighedProduct::kLanes);
    if (all % (steps * product.slices) != 0) steps = 1;
    return steps;
  }

  std::optional<ScalarId> read(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
    if (v == value_) return element_;
    return load_from_others(s_, nest_, unit_, v, indices, mask);
  }

  State& s_;
  const int unit_;
  const LoweredNode& node_;
  const Group& group_;
  const ValueId value_;
  loops::Kernel kernel_;
  NestBuilder nest_;
  ScalarId element_ = loops::kNoScalar;
};

}  // namespace

std::optional<ViewOf> rows_in_memory(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  std::optional<ViewOf> view = affine_view(s, v);
  if (!view || type.dim() != 2 || s.graph.type(view->base).dtype != type.dtype) return std::nullopt;
  const auto aligned = [](Expr e) { return e.is_const() && e.const_value() % loops::Product::Matrices::kAligned == 0; };
  if (type.sizes[0].is_const(1)) view->strides[0] = s.ctx.constant(0);
  const bool taken = view->strides[1].is_const(1) && aligned(view->strides[0]) && aligned(view->offset);
  return taken ? view : std::nullopt;
}

FlatSet<ValueId> weighed_reads(State& s, const LoweredNode& node) {
  FlatSet<ValueId> reads;
  reads.insert(base_of(s, node.operands[0]));
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  note_reads(nest, reads);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    std::vector<Expr> indices;
    for (const Expr size : node.operand(static_cast<int>(i)).sizes) {
      indices.push_back(s.pooled_symbol(size, indices.size()));
    }
    nest.eval(node.operands[i], indices);
  }
  return reads;
}

void emit_weighed(State& s, int unit) { WeighedEmitter(s, unit).run(); }

}  // namespace tatara::sched
