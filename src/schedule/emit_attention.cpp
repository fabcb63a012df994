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

/// What an attention's node says. `hidden`: the operand that is -infinity where nothing is needed. `turned`: its rows are keys.
struct AttentionForm {
  Attention::Form form;
  int hidden = 0;
  int table = -1;  // operand
  bool turned = false;
  struct Sum {
    int shares, values;  // operands
  };
  std::vector<Sum> sums = {{0, 1}};
};

AttentionForm form_of(const LoweredNode& node) {
  const std::vector<Arg>& args = node.node().args;
  const auto flag = [&](size_t at) { return std::get<bool>(std::get<Scalar>(args[at])); };
  if (std::holds_alternative<Scalar>(args[3])) {  // attention_values
    return {flag(3) ? Attention::Form::kSoftmaxOrZero : Attention::Form::kSoftmax, 0, node.operand_number(2)};
  }
  if (node.node().outputs.size() == 1) return {Attention::Form::kSum, 2, node.operand_number(3), flag(4)};
  return {Attention::Form::kSum, 2, node.operand_number(5), flag(6), {{0, 1}, {3, 4}}};
}

/// The nodes of the products that shares are computed from.
std::vector<const LoweredNode*> scores_of(State& s, const LoweredNode& attention) {
  std::vector<const LoweredNode*> found;
  std::vector<ValueId> open = read_inside(attention);
  FlatSet<ValueId> seen;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (!s.values[static_cast<size_t>(v)].inside || seen.contains(v)) continue;
    seen.insert(v);
    const LoweredNode* node = s.producer(v);
    if (node->kind == Kind::kScores) {
      found.push_back(node);
    } else {
      open.insert(open.end(), node->operands.begin(), node->operands.end());
    }
  }
  TATARA_CHECK(!found.empty(), "an attention without scores");
  std::sort(found.begin(), found.end(), [](const LoweredNode* a, const LoweredNode* b) { return a->id < b->id; });
  return found;
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
        form_(form_of(node_)),
        scores_(scores_of(s, node_)),
        group_(s.units[static_cast<size_t>(unit)].group),
        value_(node_.node().outputs[0]),
        nest_(s, kernel_) {}

  void run() {
    const std::vector<Expr>& sizes = node_.result().sizes;
    const std::vector<Expr> at = *index_map(s_, *group_.space, sizes, true);
    Attention attention;
    attention.form = form_.form;
    for (const LoweredNode* scores : scores_) {
      Attention::Score& score = attention.scores.emplace_back();
      score.queries = side(scores->operands[form_.turned ? 1 : 0], at);
      score.keys = side(scores->operands[form_.turned ? 0 : 1], at);
    }
    for (const AttentionForm::Sum& sum : form_.sums)
      attention.sums.emplace_back().values = side(operand(sum.values), at);
    int64_t widest = 0;
    Attention::each_side(attention, [&](const Attention::Side& each) { widest = std::max(widest, each.width); });
    const AttentionLayout layout = AttentionLayout::of_width(widest, attention.scores.size(), attention.sums.size());
    attention.extent = layout.rows;
    attention.block = layout.keys;
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
    // Where masks are causal later queries have more to do, and earlier keys: they come first.
    const Expr place = form_.turned ? tile : s_.simplify(tiles - ctx().constant(1) - tile);
    attention.first = s_.simplify(place * extent);
    if (form_.table >= 0) add_table(attention, {at[0], at[1], place});
    for (const LoopSpec& loop : plan.outer) nest_.open_loop(loop.var, loop.extent, loop.kind);
    nest_.location = &node_.node().location;
    for (const LoweredNode* scores : scores_) nest_.fused(*scores);
    nest_.fused(node_);
    s_.note(s_.name_of(value_),
            str_cat("attention in one kernel, in tiles of ", attention.extent, " rows and ", attention.block, " keys"));
    nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
      return read(v, indices, mask);
    };
    const Expr keys = scores_[0]->result().sizes[form_.turned ? 2 : 3];
    const Expr key = s_.pooled_symbol(keys, kKeySymbol);
    nest_.open_attention(attention, key, keys);
    for (const Attention::Score& score : attention.scores) products_.push_back(score.product);
    place_ = {at[0], at[1], form_.turned ? key : at[2], form_.turned ? at[2] : key};
    for (size_t i = 0; i < form_.sums.size(); ++i)
      attention.sums[i].share = nest_.eval(operand(form_.sums[i].shares), place_);
    attention.hidden = nest_.eval(operand(form_.hidden), place_);
    nest_.end_scores(attention);
    nest_.begin_results(attention, attention.sums[0], at[3], sizes[3]);
    result_ = attention.sums[0].result;
    store_members(s_, nest_, group_);
    nest_.end_results(attention, attention.sums[0]);
    if (node_.node().outputs.size() > 1) attention.is_sum() ? add_sum(attention, at) : add_norms(attention, at);
    nest_.close_attention(std::move(attention));
    for (size_t i = 0; i < plan.outer.size(); ++i) nest_.close_loop({});
    Expr work = ctx().constant(2) * keys * sizes[3];
    for (const LoweredNode* scores : scores_) work = work + ctx().constant(2) * keys * scores->operand(0).sizes[3];
    for (size_t d = 0; d < 3; ++d) work = work * sizes[d];
    finish_kernel(s_, nest_, std::move(kernel_), plan, s_.simplify(work));
  }

 private:
  static constexpr size_t kTileSymbol = 900, kKeySymbol = 901, kBlockSymbol = 902, kElementSymbol = 903;  // no dim's

  ExprContext& ctx() { return s_.ctx; }

  Attention::Side side(ValueId v, const std::vector<Expr>& at) {
    std::optional<Attention::Side> side = attention_side(s_, v);
    if (!side) throw Unsupported("an operand of an attention lies otherwise than it did: " + s_.name_of(v));
    side->buffer = nest_.buffer_arg(memory_of(s_, v).buffer, false);
    const std::vector<Expr>& sizes = node_.result().sizes;
    for (size_t d = 0; d < 2; ++d) {
      const Expr count = s_.graph.type(v).sizes[d];
      // Several heads of queries may have the keys of one.
      const Expr own = count == sizes[d] ? at[d] : s_.simplify(ctx().floordiv(at[d], ctx().floordiv(sizes[d], count)));
      side->number[d] = side->batches[d] == 1 ? ctx().constant(0) : own;
    }
    return *side;
  }

  ValueId operand(int number) const { return node_.operands[static_cast<size_t>(number)]; }

  /// What becomes of the second sum: it is stored.
  void add_sum(Attention& attention, const std::vector<Expr>& at) {
    const ValueId v = node_.node().outputs[1];
    const ValueInfo& info = s_.values[static_cast<size_t>(v)];
    TATARA_CHECK(info.storage.has_value(), s_.name_of(v), " has no memory");
    const Expr width = s_.graph.type(v).sizes[3], element = s_.pooled_symbol(width, kElementSymbol);
    nest_.begin_results(attention, attention.sums[1], element, width);
    const std::vector<Expr> place{at[0], at[1], at[2], element};
    nest_.store(v, *info.storage, place, attention.sums[1].result);
    nest_.end_results(attention, attention.sums[1]);
  }

  /// Where the second result lies: [batch, heads, rows, 1].
  void add_norms(Attention& attention, const std::vector<Expr>& at) {
    const ValueInfo& info = s_.values[static_cast<size_t>(node_.node().outputs[1])];
    if (!info.storage) return;
    attention.norms = nest_.buffer_arg(info.storage->buffer, true);
    attention.norm_index = address(node_.node().outputs[1], *info.storage, {at[0], at[1], at[2], ctx().constant(0)});
  }

  /// Which blocks are needed, for the tile of rows at `place`: batch, head and number.
  void add_table(Attention& attention, std::vector<Expr> place) {
    const ValueId v = operand(form_.table);
    const Storage& memory = memory_of(s_, v);
    attention.table = nest_.buffer_arg(memory.buffer, false);
    attention.table_block = s_.pooled_symbol(ctx().constant(attention.keys() / attention.block), kBlockSymbol);
    place.insert(place.begin() + (form_.turned ? 2 : 3), attention.table_block);
    attention.table_index = address(v, memory, place);
  }

  /// Of an element, which dims of size 1 do not tell from others.
  Expr address(ValueId v, const Storage& storage, const std::vector<Expr>& place) {
    const std::vector<Expr>& sizes = s_.graph.type(v).sizes;
    Expr index = storage.offset.valid() ? storage.offset : ctx().constant(0);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!sizes[d].is_const(1)) index = index + place[d] * (*storage.strides)[d];
    }
    return s_.simplify(index);
  }

  std::optional<ScalarId> read(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
    if (v == value_) return result_;
    for (size_t i = 0; i < scores_.size(); ++i) {
      if (v != scores_[i]->node().outputs[0]) continue;
      for (size_t d = 0; d < indices.size(); ++d) {
        if (!(s_.simplify(indices[d]) == s_.simplify(place_[d]))) throw Unsupported("scores of another place");
      }
      return products_[i];
    }
    return load_from_others(s_, nest_, unit_, v, indices, mask);
  }

  State& s_;
  const int unit_;
  const LoweredNode& node_;
  const AttentionForm form_;
  const std::vector<const LoweredNode*> scores_;
  const Group& group_;
  const ValueId value_;
  loops::Kernel kernel_;
  NestBuilder nest_;
  std::vector<Expr> place_;  // of a score
  std::vector<ScalarId> products_;
  ScalarId result_ = loops::kNoScalar;
};

}  // namespace

void realise_matrices(State& s, const LoweredNode& node, const std::function<void(ValueId)>& realise,
                      const std::function<void(ValueId)>& copy) {
  const bool scores = node.kind == Kind::kScores;
  const auto matrix = [&](ValueId v) {
    realise(v);
    if (!attention_side(s, v)) copy(v);
  };
  if (scores) {
    matrix(node.operands[0]);
    matrix(node.operands[1]);
    return;
  }
  const AttentionForm form = form_of(node);
  for (const AttentionForm::Sum& sum : form.sums) matrix(node.operands[static_cast<size_t>(sum.values)]);
  if (form.table < 0) return;
  realise(node.operands[static_cast<size_t>(form.table)]);
  copy(node.operands[static_cast<size_t>(form.table)]);
}

std::vector<ValueId> read_inside(const LoweredNode& node) {
  const AttentionForm form = form_of(node);
  std::vector<ValueId> read;
  for (const AttentionForm::Sum& sum : form.sums) read.push_back(node.operands[static_cast<size_t>(sum.shares)]);
  if (form.hidden > 0) read.push_back(node.operands[static_cast<size_t>(form.hidden)]);
  return read;
}

FlatSet<ValueId> operator_reads(State& s, const LoweredNode& node) {
  if (node.kind == Kind::kWeighed) return weighed_reads(s, node);
  FlatSet<ValueId> reads;
  if (node.kind != Kind::kAttention) {
    for (const ValueId v : node.operands) reads.insert(base_of(s, v));
    return reads;
  }
  const std::vector<const LoweredNode*> scores = scores_of(s, node);
  const AttentionForm form = form_of(node);
  for (const LoweredNode* each : scores) {
    for (const ValueId v : each->operands) reads.insert(base_of(s, v));
  }
  for (const AttentionForm::Sum& sum : form.sums)
    reads.insert(base_of(s, node.operands[static_cast<size_t>(sum.values)]));
  if (form.table >= 0) reads.insert(base_of(s, node.operands[static_cast<size_t>(form.table)]));
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  note_reads(nest, reads, [&](ValueId v) {
    return std::any_of(scores.begin(), scores.end(),
                       [v](const LoweredNode* each) { return v == each->node().outputs[0]; });
  });
  std::vector<Expr> indices;
  for (const Expr size : scores[0]->result().sizes) indices.push_back(s.pooled_symbol(size, indices.size()));
  for (const ValueId v : read_inside(node)) nest.eval(v, indices);
  return reads;
}

void emit_attention(State& s, int unit) { AttentionEmitter(s, unit).run(); }

}  // namespace tatara::sched
