// Matrix products in kernels of our own, with what is done with their elements.
#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;
using loops::Product;
using loops::TensorMap;

namespace {

// Scalar operators for each element. Of half types the multiplications take a sixth of the time, and no function hides behind them.
constexpr double kProductOps = 400, kHalfProductOps = 24;
constexpr int64_t kScaledColumns = 128;
constexpr int64_t kSideBySide = 8;  // rows of tiles that are done side by side, for what they share in the cache

class ProductEmitter {
 public:
  ProductEmitter(State& s, int unit)
      : s_(s),
        unit_(unit),
        node_(*s.nodes[static_cast<size_t>(s.units[static_cast<size_t>(unit)].node)]),
        group_(s.units[static_cast<size_t>(unit)].group),
        value_(node_.node().outputs[0]),
        nest_(s, kernel_) {}

  void run() {
    const std::vector<Expr>& sizes = node_.result().sizes;
    const size_t batch = sizes.size() - 2, parts = product_parts(node_);
    const std::vector<Expr> at = *index_map(s_, *group_.space, sizes, true);
    const Tiles left = tiles_of(0), right = tiles_of(parts);
    NestPlan plan;
    Expr first = ctx().constant(0);  // matrix of the batch
    const bool by_rows = node_.form == ProductKind::kRows, by_inner = node_.form == ProductKind::kInner;
    for (size_t d = 0; d < batch; ++d) {
      if (!sizes[d].is_const(1)) plan.outer.push_back({at[d], sizes[d], LoopKind::kParallel, at[d], Expr()});
      first = first * sizes[d] + at[d];
    }
    const Expr row_tiles = by_rows ? s_.graph.type(node_.operands[2]).sizes[0] : left.count;
    const Expr tiles = s_.simplify(row_tiles * right.count);
    const Expr tile = s_.pooled_symbol(tiles, kOwnSymbol);
    plan.outer.push_back({tile, tiles, LoopKind::kParallel, tile, Expr()});
    for (const LoopSpec& loop : plan.outer) nest_.open_loop(loop.var, loop.extent, loop.kind);
    nest_.location = &node_.node().location;
    nest_.fused(node_);
    const auto [row, column] = place_of(tile, row_tiles, right.count);
    Product product;
    product.blocks = left.blocks;
    product.row = at[batch];
    product.rows = sizes[batch];
    if (by_rows) {
      give_rows(product, row, column);
    } else {
      product.left = side(0, first, row);
      product.right = side(parts, first, column);
      if (by_inner) product.span = part_of_inner(first, sizes[0]);
    }
    if (node_.form == ProductKind::kScaled) give_scales(product);
    s_.note(s_.name_of(value_),
            str_cat(node_.form == ProductKind::kScaled ? "a product of 8-bit floats"
                    : parts == 1                       ? "a product of half types"
                                                       : "six products of bfloat16 parts, added as float32",
                    ", in tiles of ", product.left.extent, " x ", product.right.extent,
                    by_rows || by_inner ? ", by groups" : "", product.by_blocks ? ", summed by blocks" : ""));
    nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
      return read(v, indices, mask);
    };
    nest_.open_product(product, at[batch + 1], sizes[batch + 1]);
    element_ = product.value;
    store_members(s_, nest_, group_);
    nest_.close_product(std::move(product));
    for (size_t i = 0; i < plan.outer.size(); ++i) nest_.close_loop({});
    Expr work = ctx().constant(2 * (parts == 1 ? step() : Product::kStep)) * left.blocks;
    for (const Expr size : sizes) work = work * size;
    finish_kernel(s_, nest_, std::move(kernel_), plan, s_.simplify(work));
  }

 private:
  static constexpr size_t kOwnSymbol = 900;  // of the pool: no dim's

  ExprContext& ctx() { return s_.ctx; }

  // ---- Groups ----------------------------------------------------------------------------------------------------------

  /// Element `at` of a vector of whole numbers in memory, in [0, size).
  Expr whole_number(size_t operand, Expr at, Expr size) {
    const ValueId v = node_.operands[operand];
    const ScalarId x = nest_.load(v, memory_of(s_, v), {at}, loops::kNoScalar, loops::kNoScalar);
    return nest_.indirect(x, size, false, false, loops::kNoScalar);
  }

  /// The operands of a tile of rows: rows of its group, and the group's matrix.
  void give_rows(Product& product, Expr row_tile, Expr column_tile) {
    const TensorType &left = node_.operand(0), &right = node_.operand(1);
    const Expr one = ctx().constant(1);
    const Expr first = whole_number(2, row_tile, left.sizes[0]);
    product.rows = whole_number(3, row_tile, s_.simplify(left.sizes[0] + one));
    product.left = matrix_side(0, ctx().constant(0), ctx().constant(0));
    product.left.first = first;
    product.right = matrix_side(1, whole_number(4, row_tile, right.sizes[0]), column_tile);
    const Expr inner = whole_number(5, row_tile, s_.simplify(left.sizes[1] + one));
    product.span = Product::Span{ctx().constant(0), inner};
  }

  /// What a block's sum is multiplied with. Tiles have whole columns of scales.
  void give_scales(Product& product) {
    product.by_blocks = std::get<bool>(std::get<Scalar>(node_.node().args[4]));
    if (node_.operands.size() == 2) return;
    const auto view = [&](size_t i) {
      const std::optional<ViewOf> found = affine_view(s_, node_.operands[i]);
      if (!found) throw Unsupported("scales of a product lie otherwise than they did");
      return *found;
    };
    const auto known = [](Expr e) { return e.const_value(); };
    const auto constant = [&](Expr e) { return ctx().constant(known(e)); };
    const ViewOf left = view(2), right = view(3);
    const Expr column = s_.simplify(ctx().floordiv(product.right.first, ctx().constant(kScaledColumns)));
    Product::Scales& s = product.scales.emplace();
    s.left = nest_.buffer_arg(memory_of(s_, node_.operands[2]).buffer, false);
    s.right = nest_.buffer_arg(memory_of(s_, node_.operands[3]).buffer, false);
    s.left_row = known(left.strides[0]);
    s.left_block = known(left.strides[1]);
    s.right_block = known(right.strides[0]);
    s.left_index = s_.simplify(constant(left.offset) + product.left.first * constant(left.strides[0]));
    s.right_index = s_.simplify(constant(right.offset) + column * constant(right.strides[1]));
  }

  /// Between the end of the group before and that of this one.
  Product::Span part_of_inner(Expr group, Expr groups) {
    const ValueId v = node_.operands[2];
    const auto bounded = [&](ScalarId x) {
      const Expr inner = node_.operand(0).sizes.back();
      const ScalarId low = nest_.emit(make_scalar(ScalarOp::kMax, DType::kInt64, {x, zero_}));
      const ScalarId most = nest_.index_value(inner, DType::kInt64);
      const ScalarId both = nest_.emit(make_scalar(ScalarOp::kMin, DType::kInt64, {low, most}));
      return nest_.indirect(both, s_.simplify(inner + ctx().constant(1)), false, false, loops::kNoScalar);
    };
    const auto end_of = [&](Expr at) {
      return nest_.cast(nest_.load(v, memory_of(s_, v), {at}, loops::kNoScalar, loops::kNoScalar), DType::kInt64);
    };
    zero_ = nest_.constant_int(0, DType::kInt64);
    if (groups.is_const(1)) return {bounded(zero_), bounded(end_of(ctx().constant(0)))};
    const ScalarId number = nest_.index_value(group, DType::kInt64);
    const ScalarId is_first = nest_.emit(make_scalar(ScalarOp::kEq, DType::kBool, {number, zero_}));
    const Expr before = s_.simplify(ctx().max(group - ctx().constant(1), ctx().constant(0)));
    const ScalarId begin = nest_.emit(make_scalar(ScalarOp::kSelect, DType::kInt64, {is_first, zero_, end_of(before)}));
    return {bounded(begin), bounded(end_of(group))};
  }

  /// Row and column of a tile: some rows of tiles go through all columns, then the next ones.
  std::pair<Expr, Expr> place_of(Expr tile, Expr rows, Expr columns) {
    const Expr side_by_side = ctx().constant(kSideBySide);
    const Expr stripe = s_.simplify(side_by_side * columns);
    const Expr above = s_.simplify(ctx().floordiv(tile, stripe) * side_by_side);
    const Expr inside = s_.simplify(ctx().mod(tile, stripe));
    const bool even = rows.is_const() && rows.const_value() % kSideBySide == 0;
    const Expr height = even ? side_by_side : s_.simplify(ctx().min(rows - above, side_by_side));
    return {s_.simplify(above + ctx().mod(inside, height)), s_.simplify(ctx().floordiv(inside, height))};
  }

  /// Tiles of a matrix of an operand, and their blocks.
  struct Tiles {
    Expr count, blocks;
  };
  Tiles tiles_of(size_t from) {
    const std::vector<Expr>& sizes = node_.operand(static_cast<int>(from)).sizes;
    if (product_parts(node_) > 1) return {sizes[sizes.size() - 6], sizes[sizes.size() - 5]};
    const Expr tile = ctx().constant(extent_of(from));
    return {s_.simplify(ctx().ceildiv(sizes[sizes.size() - 2], tile)),
            s_.simplify(ctx().ceildiv(sizes.back(), ctx().constant(step())))};
  }
  /// Elements of k in a block of an operand that lies as it is in memory.
  int64_t step() const { return TensorMap::kBoxBytes / dtype_size(node_.operand(0).dtype); }
  int64_t extent_of(size_t from) const {
    const std::vector<Arg>& args = node_.node().args;
    return std::get<int64_t>(std::get<Scalar>(args[args.size() - (from == 0 ? 2 : 1)]));
  }

  /// Whether 32 columns never reach past an end, and those of the next matrix lie behind those of one.
  static bool can_interleave(const Product::Matrices& m) {
    return m.along() && m.rows % TensorMap::kInterleaved == 0 &&
           (m.batches == 1 || m.batch_stride == m.rows * m.row_stride);
  }

  /// The operand as it lies in memory: matrix `first`, tile `tile`.
  Product::Side matrix_side(size_t from, Expr first, Expr tile) {
    const ValueId v = node_.operands[from];
    const std::optional<Product::Matrices> matrices = product_matrices(s_, v);
    if (!matrices) throw Unsupported("an operand of a product lies otherwise than it did: " + s_.name_of(v));
    Product::Side side;
    side.extent = extent_of(from);
    side.first = s_.simplify(tile * ctx().constant(side.extent));
    side.matrices = *matrices;
    side.matrices->number = matrices->batches == 1 ? ctx().constant(0) : first;
    side.matrices->interleaved = from > 0 && can_interleave(*matrices) && side.extent % TensorMap::kInterleaved == 0;
    side.parts.push_back(nest_.buffer_arg(memory_of(s_, v).buffer, false));
    return side;
  }

  /// The operand whose parts begin at `from`: matrix `first`, tile `tile`.
  Product::Side side(size_t from, Expr first, Expr tile) {
    const size_t parts = product_parts(node_);
    if (parts == 1) return matrix_side(from, first, tile);
    const std::vector<Expr>& sizes = node_.operand(static_cast<int>(from)).sizes;
    const size_t batch = sizes.size() - 6;
    Product::Side side;
    side.extent = extent_of(from);
    const Expr block = ctx().constant(side.extent * Product::kStep);
    side.index = s_.simplify((first * sizes[batch] + tile) * sizes[batch + 1] * block);
    side.first = s_.simplify(tile * ctx().constant(side.extent));
    for (size_t i = from; i < from + parts; ++i) {
      const ValueInfo& info = s_.values[static_cast<size_t>(node_.operands[i])];
      TATARA_CHECK(info.storage.has_value() && (!info.storage->offset.valid() || info.storage->offset.is_const(0)),
                   s_.name_of(node_.operands[i]), " has no memory of its own");
      side.parts.push_back(nest_.buffer_arg(info.storage->buffer, false));
    }
    return side;
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
  ScalarId element_ = loops::kNoScalar, zero_ = loops::kNoScalar;
};

}  // namespace

size_t product_parts(const LoweredNode& node) { return std::get<TensorList>(node.node().args[0]).values.size(); }

std::optional<Product::Matrices> product_matrices(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  const std::optional<ViewOf> view = affine_view(s, v);
  const size_t batch = type.sizes.size() - 2;
  if (!view || batch > 1 || s.graph.type(view->base).dtype != type.dtype) return std::nullopt;
  const auto known = [](Expr e) { return e.is_const() ? e.const_value() : -1; };
  Product::Matrices m;
  m.bytes = dtype_size(type.dtype);
  m.rows = known(type.sizes[batch]);
  m.inner = known(type.sizes[batch + 1]);
  m.row_stride = known(view->strides[batch]);
  m.inner_stride = known(view->strides[batch + 1]);
  m.offset = known(view->offset);
  if (batch == 1 && !type.sizes[0].is_const(1)) {
    m.batches = known(type.sizes[0]);
    m.batch_stride = known(view->strides[0]);
    if (m.batch_stride == 0) m.batches = 1;  // the same one each time
  }
  const auto length = [](int64_t n) { return n > 0 && n <= TensorMap::kLongest; };
  const auto aligned = [&](int64_t n) { return n >= 0 && n % m.aligned() == 0; };
  const int64_t far = m.along() ? m.row_stride : m.inner_stride;
  const bool taken = (m.along() || (m.row_stride == 1 && m.bytes == 2)) && far > 0 && aligned(far) &&
                     aligned(m.batch_stride) && aligned(m.offset) && length(m.rows) && length(m.inner) &&
                     length(m.batches);
  return taken ? std::optional(m) : std::nullopt;
}

const Storage& memory_of(State& s, ValueId v) {
  const ValueInfo& base = s.values[static_cast<size_t>(base_of(s, v))];
  TATARA_CHECK(base.storage.has_value(), s.name_of(v), " has no memory");
  return *base.storage;
}

void note_reads(NestBuilder& trial, FlatSet<ValueId>& reads, std::function<bool(ValueId)> given) {
  trial.access = [&trial, &reads, given = std::move(given)](ValueId v, const std::vector<Expr>&,
                                                            ScalarId) -> std::optional<ScalarId> {
    State& s = trial.state();
    const bool is_given = given && given(v);
    if (!is_given && !s.values[static_cast<size_t>(v)].root) return std::nullopt;
    if (!is_given) reads.insert(v);
    return trial.new_scalar(compute_dtype(s.graph.type(v).dtype));
  };
}

std::optional<ScalarId> load_from_others(State& s, NestBuilder& nest, int unit, ValueId v,
                                         const std::vector<Expr>& indices, ScalarId mask) {
  const ValueInfo& info = s.values[static_cast<size_t>(v)];
  if (!info.root || info.unit == unit) return std::nullopt;
  TATARA_CHECK(info.storage.has_value(), s.name_of(v), " has no memory");
  return nest.load(v, *info.storage, indices, mask, loops::kNoScalar);
}

void store_members(State& s, NestBuilder& nest, const Group& group) {
  std::vector<ScalarId> values;
  const auto index = [&](const Member& m) { return *index_map(s, *group.space, *m.sizes, true); };
  for (const Member& m : group.members) values.push_back(nest.eval(m.value, index(m)));
  for (size_t i = 0; i < values.size(); ++i) {
    const Member& m = group.members[i];
    nest.store(m.value, *s.values[static_cast<size_t>(m.value)].storage, index(m), values[i]);
  }
}

bool product_takes(State& s, const Unit& unit, const Member& member, double ops) {
  const LoweredNode& node = *s.nodes[static_cast<size_t>(unit.node)];
  if (node.kind == LoweredNode::Kind::kWeighed) return ops <= kProductOps;
  // A kernel of its own for a function takes a tenth of what the few threads that multiply wait for it.
  if (s.values[static_cast<size_t>(member.value)].functions != 0) return false;
  const bool has_parts = node.kind == LoweredNode::Kind::kProduct && product_parts(node) > 1;
  return ops <= (has_parts ? kProductOps : kHalfProductOps);
}

void emit_product(State& s, int unit) {
  const Unit& u = s.units[static_cast<size_t>(unit)];
  if (u.group.members.empty() && s.graph.node(u.node).outputs.size() == 1) return;
  switch (s.nodes[static_cast<size_t>(u.node)]->kind) {
    case LoweredNode::Kind::kAttention: return emit_attention(s, unit);
    case LoweredNode::Kind::kWeighed: return emit_weighed(s, unit);
    default: break;
  }
  ProductEmitter(s, unit).run();
}

}  // namespace tatara::sched
