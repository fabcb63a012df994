// Matrix products in kernels of our own: operands in the blocks that such a kernel reads (loops::Product), and the product of these.
// Passes for GPUs make them; no program has them.
#include "loops/product_layout.h"
#include "ops/core/family_util.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

constexpr int64_t kRun = loops::ProductLayout::kRun;
constexpr double kMostBFloat16 = 3.3895313892515355e38;

/// [batch..., rows, k] to [batch..., tiles, blocks, groups of rows, runs of k, 8 rows, 8 elements of k]; what goes past an end is zero.
std::vector<TensorType> part_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  const size_t rank = self.sizes.size();
  if (rank < 2 || self.dtype != DType::kFloat32) throw InvalidArgument("product_part of no float32 matrix");
  const int64_t tile = m.integer(2), step = loops::Product::kStep;
  std::vector<Expr> sizes(self.sizes.begin(), self.sizes.end() - 2);
  sizes.push_back(ctx.ceildiv(self.sizes[rank - 2], ctx.constant(tile)));
  sizes.push_back(ctx.ceildiv(self.sizes[rank - 1], ctx.constant(step)));
  for (const int64_t n : {tile / kRun, step / kRun, kRun, kRun}) sizes.push_back(ctx.constant(n));
  return {contiguous_type(ctx, DType::kBFloat16, self.device, sizes)};
}

/// Part 0, 1 or 2 of float32 numbers: each the bfloat16 nearest to what the parts before leave. Their sum is exact, unless the last
/// one is below the smallest number. An infinity or NaN is its own first part, and the others are zero.
ScalarId part_of(LoopBuilder& b, ScalarId x, int64_t part) {
  const auto f = [&](double value) { return b.constant(value, DType::kFloat32); };
  const auto nearest = [&](ScalarId y) { return b.cast(b.cast(y, DType::kBFloat16), DType::kFloat32); };
  // What rounds to an infinity, and is none, stays finite.
  const ScalarId inside = b.apply2(Op::kMin, b.apply2(Op::kMax, x, f(-kMostBFloat16)), f(kMostBFloat16));
  ScalarId sum = nearest(b.select(b.apply1(Op::kIsInf, x), x, inside));
  if (part == 0) return sum;
  // A difference that is no number is that of an infinity or a NaN with itself.
  const ScalarId difference = b.apply2(Op::kSub, x, sum);
  ScalarId rest = b.select(b.apply1(Op::kIsNan, difference), f(0), difference);
  sum = nearest(rest);
  return part == 1 ? sum : nearest(b.apply2(Op::kSub, rest, sum));
}

void lower_part(LowerContext& c) {
  const Args args(c);
  const int64_t part = args.integer(1), tile = args.integer(2), step = loops::Product::kStep;
  c.pointwise(0, [&c, part, tile, step](LoopBuilder& b, std::span<const Expr> at) {
    ExprContext& ctx = c.ctx();
    const TensorType& self = c.operand(0);
    const size_t batch = self.sizes.size() - 2;
    std::vector<Expr> where(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(batch));
    const auto place = [&](Expr block, int64_t length, Expr group, Expr own) {
      return block * ctx.constant(length) + group * ctx.constant(kRun) + own;
    };
    const Expr row = place(at[batch], tile, at[batch + 2], at[batch + 4]);
    const Expr k = place(at[batch + 1], step, at[batch + 3], at[batch + 5]);
    ScalarId mask = loops::kNoScalar;
    const auto bound = [&](Expr e, Expr size, int64_t length) {
      if (!multiple_of(size, length)) mask = logical_and(b, mask, in_range(b, e, ctx.constant(0), size));
    };
    bound(row, self.sizes[batch], tile);
    bound(k, self.sizes[batch + 1], step);
    where.push_back(row);
    where.push_back(k);
    return part_of(b, load_if(b, 0, where, mask, b.constant(0, DType::kFloat32)), part);
  });
}

std::vector<TensorType> product_meta(MetaContext& m) {
  const std::vector<Expr> sizes = m.ints(2);
  const std::vector<const TensorType*> left = m.tensor_list(0);
  const DType dtype = left.size() == 1 ? left[0]->dtype : DType::kFloat32;
  return {contiguous_type(m.ctx(), dtype, left.at(0)->device, sizes)};
}

}  // namespace

void register_matrix_product(OpRegistry& r) {
  r.add(make_op({"product_part", OpKind::kIndexing, "(Tensor self, int part, int tile) -> Tensor", ""}, part_meta,
                nullptr, lower_part));
  // left (rows) and right (columns), each in as many parts, those of half types in one: matrices [..., rows or columns, k]. The sizes are
  // the result's; then come rows and columns of a tile.
  r.add(make_op({"matrix_product", OpKind::kIndexing,
                 "(Tensor[] left, Tensor[] right, SymInt[] size, int rows, int columns) -> Tensor", ""},
                product_meta, nullptr, [](LowerContext& c) { c.product(); }));
}

}  // namespace tatara
