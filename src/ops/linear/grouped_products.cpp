// Products of groups of rows with a matrix each, as mixtures of experts have: torch's `_grouped_mm`, the form of it that the library
// transformers brings (its own where others than bfloat16 are compiled), and what a kernel of ours needs to know of the groups. `offs` has the end of
// each group, in order.
#include "ops/core/family_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

ValueId last_dims_exchanged(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < b.type(x).dim(); ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return b.permute(x, order);
}

/// Columns of a matrix lie beside each other, and rows do not.
bool has_columns(const TensorType& type) {
  const size_t last = type.strides.size() - 1;
  return type.strides[last - 1].is_const(1) && !type.strides[last].is_const(1);
}

/// Two matrices make one for each group, of what is between their ends in the inner dimension; else the groups are parts of the dimension
/// that a matrix has and a batch of matrices lacks. Rows begin on 16 bytes.
std::vector<TensorType> grouped_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType &self = m.tensor(0), &mat2 = m.tensor(1);
  const size_t left = self.sizes.size(), right = mat2.sizes.size();
  const bool has_groups = !m.is_none(2);
  if ((left != 2 && left != 3) || (right != 2 && right != 3)) {
    throw InvalidArgument("_grouped_mm: expected operands of two or three dimensions");
  }
  if (has_groups == (left == 3 && right == 3)) throw InvalidArgument("_grouped_mm: offs with other operands");
  if (self.dtype != mat2.dtype || (has_groups && m.tensor(2).dtype != DType::kInt32)) {
    throw InvalidArgument("_grouped_mm: operands of such types");
  }
  if (!same_size(ctx, self.sizes[left - 1], mat2.sizes[right - 2])) {
    throw InvalidArgument("_grouped_mm: shapes cannot be multiplied");
  }
  std::vector<Expr> sizes = {self.sizes[left - 2], mat2.sizes[right - 1]};
  if (left == right) sizes.insert(sizes.begin(), left == 3 ? self.sizes[0] : m.tensor(2).sizes[0]);
  TensorType type = contiguous_type(ctx, self.dtype, self.device, sizes);
  const Expr run = ctx.constant(16 / dtype_size(self.dtype));
  const Expr row = ctx.ceildiv(sizes.back(), run) * run;
  type.strides[sizes.size() - 2] = row;
  if (sizes.size() == 3) type.strides[0] = row * sizes[1];
  return {type};
}

/// Of self @ mat2 by groups: each gradient is such a product again, and has the layout of its operand.
void grouped_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Args args = v.args();
  const ValueId g = gradient(v).id, self = args.tensor(0), mat2 = args.tensor(1);
  if (!args.none(3)) throw Unsupported("eager has no derivative of _grouped_mm with a bias");
  const auto product = [&](ValueId x, ValueId y) {
    return b.op("_grouped_mm", {TensorArg{x}, TensorArg{y}, args[2], NoneArg{}, NoneArg{}});
  };
  const auto turned = [&](ValueId x) { return last_dims_exchanged(b, x); };
  if (v.needs(0)) v.give(0, has_columns(args.type(0)) ? turned(product(mat2, turned(g))) : product(g, turned(mat2)));
  if (v.needs(1)) v.give(1, has_columns(args.type(1)) ? turned(product(turned(g), self)) : product(turned(self), g));
}

std::vector<TensorType> library_meta(MetaContext& m) {
  const TensorType &input = m.tensor(0), &weight = m.tensor(1);
  if (input.dim() != 2 || weight.dim() != 3 || m.tensor(2).dim() != 1) {
    throw InvalidArgument("grouped_mm_fallback: expected rows, a matrix for each group and the groups' ends");
  }
  return {contiguous_type(m.ctx(), input.dtype, input.device, {input.sizes[0], weight.sizes[2]})};
}

/// Both gradients are new tensors like the operands.
std::vector<TensorType> library_backward_meta(MetaContext& m) {
  std::vector<TensorType> types;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const TensorType& like = m.tensor(i);
    TensorType type = contiguous_type(m.ctx(), like.dtype, like.device, like.sizes);
    if (std::vector<Expr> strides = dense_strides(m.ctx(), like); !strides.empty()) type.strides = std::move(strides);
    types.push_back(std::move(type));
  }
  return types;
}

void library_rule(VjpContext& v) {
  const Args args = v.args();
  const std::vector<ValueId> both =
      v.builder().op_multi("grouped_gradients", {args[0], args[1], args[2], TensorArg{gradient(v).id}});
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (v.needs(i)) v.give(i, both[i]);
  }
}

// ---- What kernels of ours know of groups -----------------------------------------------------------------------------------

/// Where group `g` ends. Behind the last one comes what belongs to none, up to `total`. Ends that are out of order, which eager takes as
/// they are, stay within the operand.
ScalarId end_of(LoopBuilder& b, int operand, Expr g, Expr groups, Expr total) {
  const Calc i{b, DType::kInt64};
  const ScalarId all = b.index_value(total, DType::kInt64);
  const ScalarId mask = in_range(b, g, b.ctx().constant(0), groups);
  const Expr at[] = {g};
  const ScalarId end = b.cast(load_if(b, operand, at, mask, all), DType::kInt64);
  return i.min(i.max(end, i.c(0)), all);
}

ScalarId begin_of(LoopBuilder& b, int operand, Expr g, Expr groups, Expr total) {
  const Calc i{b, DType::kInt64};
  const ScalarId is_first = i.cmp(Op::kEq, b.index_value(g, DType::kInt64), i.c(0));
  const Expr before = b.ctx().max(g - b.ctx().constant(1), b.ctx().constant(0));
  return b.select(is_first, i.c(0), end_of(b, operand, before, groups, total));
}

std::vector<TensorType> whole_numbers(const MetaContext& m, Expr count, size_t outputs = 1) {
  return std::vector(outputs, contiguous_type(m.ctx(), DType::kInt64, m.tensor(0).device, {count}));
}

/// (offs, total, rows): how many tiles of so many rows each group has, and what comes behind the last one.
std::vector<TensorType> counts_meta(MetaContext& m) {
  return whole_numbers(m, m.tensor(0).sizes[0] + m.ctx().constant(1));
}

void lower_counts(LowerContext& c) {
  const Args args(c);
  const Expr total = args.expr(1), groups = c.operand(0).sizes[0];
  const auto rows = static_cast<double>(args.integer(2));
  c.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> at) {
    const Calc i{b, DType::kInt64};
    const ScalarId length = i.sub(end_of(b, 0, at[0], groups, total), begin_of(b, 0, at[0], groups, total));
    return i.bin(Op::kFloorDiv, i.add(i.max(length, i.c(0)), i.c(rows - 1)), i.c(rows));
  });
}

/// (ends): number of a tile, [tiles, groups], where each row has the number of tiles up to each group's end. Gives the tile's group.
std::vector<TensorType> group_meta(MetaContext& m) { return whole_numbers(m, m.tensor(0).sizes[0]); }

void lower_group(LowerContext& c) {
  ReductionDef def;
  def.dims = {1};
  def.dtypes = {DType::kInt64};
  def.combine = {loops::Combine::kAdd};
  def.init = [](LoopBuilder& b) { return std::vector{b.constant_int(0, DType::kInt64)}; };
  def.element = [](LoopBuilder& b, std::span<const Expr> at) {
    const Calc i{b, DType::kInt64};
    return std::vector{b.cast(i.cmp(Op::kLe, b.load(0, at), b.index_value(at[0], DType::kInt64)), DType::kInt64)};
  };
  c.reduction(std::move(def));
}

/// (group, ends, offs, total, rows, inner): of each tile its first row, where its group ends, the group, and how much of the inner
/// dimension is multiplied: nothing behind the last group. A tile behind all of them is empty.
std::vector<TensorType> tiles_meta(MetaContext& m) { return whole_numbers(m, m.tensor(0).sizes[0], 4); }

void lower_tiles(LowerContext& c) {
  const Args args(c);
  const Expr total = args.expr(3), groups = c.operand(2).sizes[0];
  const double rows = static_cast<double>(args.integer(4)), inner = static_cast<double>(args.integer(5));
  const auto element = [=](LoopBuilder& b, std::span<const Expr> at, int output) {
    const Calc i{b, DType::kInt64};
    const ScalarId group = b.load(0, at);
    const ScalarId count = b.index_value(groups, DType::kInt64);
    const ScalarId has_matrix = i.cmp(Op::kLt, group, count);
    if (output == 2) return b.select(has_matrix, group, i.c(0));
    if (output == 3) return b.select(has_matrix, i.c(inner), i.c(0));
    const ScalarId exists = i.cmp(Op::kLe, group, count);
    const Expr g = b.indirect(i.min(group, count), groups + b.ctx().constant(1), false, false);
    if (output == 1) return b.select(exists, end_of(b, 2, g, groups, total), i.c(0));
    const Expr before[] = {b.ctx().max(g - b.ctx().constant(1), b.ctx().constant(0))};
    const ScalarId is_first = i.cmp(Op::kEq, group, i.c(0));
    const ScalarId tile = i.sub(b.index_value(at[0], DType::kInt64), b.select(is_first, i.c(0), b.load(1, before)));
    return b.select(exists, i.add(begin_of(b, 2, g, groups, total), i.mul(tile, i.c(rows))), i.c(0));
  };
  for (int output = 0; output < 4; ++output) {
    c.pointwise(output, [=](LoopBuilder& b, std::span<const Expr> at) { return element(b, at, output); });
  }
}

/// [rows or groups and rows, columns], as the sizes say.
std::vector<TensorType> own_meta(MetaContext& m) {
  const TensorType& left = *m.tensor_list(0).at(0);
  return {contiguous_type(m.ctx(), left.dtype, left.device, m.ints(3))};
}

}  // namespace

void register_grouped_products(OpRegistry& r) {
  const auto kind = OpKind::kHost;
  OpDef product = make_op({"_grouped_mm", kind,
                           "(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? "
                           "out_dtype=None) -> Tensor",
                           "torch._grouped_mm"},
                          grouped_meta);
  product.has_out = false;
  product.vjp = grouped_rule;
  r.add(std::move(product));
  OpDef library = make_op({"grouped_mm_fallback", kind, "(Tensor input, Tensor weight, Tensor offs) -> Tensor",
                           "torch.transformers::grouped_mm_fallback"},
                          library_meta);
  library.host_name = "transformers::grouped_mm_fallback";
  library.has_out = false;
  library.vjp = library_rule;
  r.add(std::move(library));
  // Not every version of the library has an operator for it.
  OpDef backward = make_op({"grouped_gradients", kind,
                            "(Tensor input, Tensor weight, Tensor offs, Tensor grad_output) -> (Tensor, Tensor)", ""},
                           library_backward_meta);
  backward.host_name = "tatara::grouped_gradients";
  backward.has_out = false;
  backward.vjp = [](VjpContext& v) {
    const std::string error = "derivative for transformers::grouped_mm_fallback_backward is not implemented";
    for (const size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
      if (v.needs(i)) v.give(i, v.builder().op("missing_derivative", {TensorArg{v.args().tensor(i)}, error}));
    }
  };
  r.add(std::move(backward));

  r.add(make_op({"group_tile_counts", OpKind::kIndexing, "(Tensor offs, SymInt total, int rows) -> Tensor", ""},
                counts_meta, nullptr, lower_counts));
  r.add(
      make_op({"group_of_tile", OpKind::kReduction, "(Tensor ends) -> Tensor", ""}, group_meta, nullptr, lower_group));
  r.add(make_op({"group_tiles", OpKind::kIndexing,
                 "(Tensor group, Tensor ends, Tensor offs, SymInt total, int rows, int inner) -> (Tensor, Tensor, "
                 "Tensor, Tensor)",
                 ""},
                tiles_meta, nullptr, lower_tiles));
  // As matrix_product; `groups`: what group_tiles gives.
  r.add(
      make_op({"rows_product", OpKind::kIndexing,
               "(Tensor[] left, Tensor[] right, Tensor[] groups, SymInt[] size, int rows, int columns) -> Tensor", ""},
              own_meta, nullptr, [](LowerContext& c) { c.product(ProductKind::kRows); }));
  // Matrices of the batch are sums over the parts of k that belong to each group; `groups`: offs.
  r.add(
      make_op({"inner_product", OpKind::kIndexing,
               "(Tensor[] left, Tensor[] right, Tensor[] groups, SymInt[] size, int rows, int columns) -> Tensor", ""},
              own_meta, nullptr, [](LowerContext& c) { c.product(ProductKind::kInner); }));
}

}  // namespace tatara
