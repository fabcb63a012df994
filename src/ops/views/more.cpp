// Copies of views (torch.permute_copy and kin), diagonals as matrices, splits by axis, the angle.
#include <numbers>

#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;
using Values = std::vector<ValueId>;

/// Whether a view has all elements of what it is of, in the order of a contiguous tensor.
bool is_whole(ExprContext& ctx, const TensorType& view, const TensorType& base) {
  if (view.numel(ctx) != base.numel(ctx)) return false;
  const std::vector<Expr> strides = contiguous_strides(ctx, view.sizes);
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    const bool one = view.sizes[d].is_const() && view.sizes[d].const_value() == 1;
    if (!one && view.strides[d] != strides[d]) return false;
  }
  return true;
}

/// The view, then a contiguous copy of each result. In eager so are tangents, unless the view would lie as the copy does.
DecomposeFn copy_of(const char* view) {
  return [view](GraphBuilder& b, std::span<const Arg> args) {
    const TensorType base = b.type(std::get<TensorArg>(args[0]).value);
    Values copies;
    for (const ValueId part : b.op_multi(view, std::vector<Arg>(args.begin(), args.end()))) {
      const bool whole = is_whole(b.ctx(), b.type(part), base);
      copies.push_back(contiguous_copy(b, whole ? part : copy_both_ways(b, part)));
    }
    return copies;
  };
}

struct CopyRow {
  const char* name;
  const char* view;
  const char* schema;
};

constexpr CopyRow kCopies[] = {
    {"alias_copy", "alias", "(Tensor self) -> Tensor"},
    {"as_strided_copy", "as_strided",
     "(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor"},
    {"diagonal_copy", "diagonal", "(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor"},
    {"expand_copy", "expand", "(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor"},
    {"permute_copy", "permute", "(Tensor self, int[] dims) -> Tensor"},
    {"select_copy", "select", "(Tensor self, int dim, SymInt index) -> Tensor"},
    {"slice_copy", "slice", "(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor"},
    {"split_with_sizes_copy", "split.sizes", "(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]"},
    {"t_copy", "t", "(Tensor self) -> Tensor"},
    {"transpose_copy", "transpose", "(Tensor self, int dim0, int dim1) -> Tensor"},
    {"unbind_copy", "unbind", "(Tensor self, int dim=0) -> Tensor[]"},
    {"unsqueeze_copy", "unsqueeze", "(Tensor self, int dim) -> Tensor"},
    {"unfold_copy", "unfold", "(Tensor self, int dimension, SymInt size, SymInt step) -> Tensor"},
    {"view_copy", "view", "(Tensor self, SymInt[] size) -> Tensor"},
    {"narrow_copy", "narrow", "(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"},
};

// ---- diagonals -------------------------------------------------------------------------------------------------------

struct Plane {
  size_t row;
  size_t column;
};

Plane plane_of(const Args& args, int64_t rank) {
  const int64_t row = wrap_dim(args.integer(2), rank);
  const int64_t column = wrap_dim(args.integer(3), rank);
  if (row == column)
    throw InvalidArgument(str_cat("diagonal dimensions cannot be identical ", args.integer(2), ", ", args.integer(3)));
  return {static_cast<size_t>(row), static_cast<size_t>(column)};
}

std::vector<TensorType> diag_embed_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  if (self.dim() == 0) throw InvalidArgument("diag_embed needs a tensor with a dimension");
  const Plane plane = plane_of(Args(m), self.dim() + 1);
  const Expr side = ctx.add(self.sizes.back(), ctx.constant(std::abs(m.integer(1))));
  std::vector<Expr> sizes;
  size_t from = 0;
  for (size_t d = 0; d < self.sizes.size() + 1; ++d) {
    sizes.push_back(d == plane.row || d == plane.column ? side : self.sizes[from++]);
  }
  return {contiguous_type(ctx, self.dtype, self.device, std::move(sizes))};
}

void lower_diag_embed(LowerContext& c) {
  const Args args(c);
  const Plane plane = plane_of(args, c.operand(0).dim() + 1);
  const int64_t offset = args.integer(1);
  const DType t = compute_dtype(c.result().dtype);
  c.pointwise(0, [&c, &ctx = c.ctx(), plane, offset, t](LoopBuilder& b, std::span<const Expr> at) {
    const Expr place = offset >= 0 ? at[plane.row] : at[plane.column];
    const Expr column = ctx.add(at[plane.row], ctx.constant(offset));
    ScalarId mask =
        b.compare(Op::kEq, b.index_value(column, DType::kInt64), b.index_value(at[plane.column], DType::kInt64));
    mask = logical_and(b, in_range(b, place, ctx.constant(0), c.operand(0).sizes.back()), mask);
    std::vector<Expr> where;
    for (size_t d = 0; d < at.size(); ++d) {
      if (d != plane.row && d != plane.column) where.push_back(at[d]);
    }
    where.push_back(place);
    const ScalarId zero = number_as(b, Scalar(int64_t{0}), t);
    return b.load_masked(0, where, mask, zero);
  });
}

Values decompose_diag(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const int64_t rank = args.rank(0);
  if (rank == 1) return {b.op("diag_embed", {arguments[0], arguments[1], int_arg(0), int_arg(1)})};
  if (rank != 2) throw InvalidArgument(str_cat("diag(): Supports 1D or 2D tensors. Got ", rank, "D"));
  return {b.op("diagonal_copy", {arguments[0], arguments[1]})};
}

// ---- splits by axis --------------------------------------------------------------------------------------------------

/// torch.hsplit and kin: axis number `axis` (hsplit of a vector: 0).
DecomposeFn split_axis(const char* name, int64_t axis, int64_t least_rank) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) {
    const Args args(b, arguments);
    if (args.rank(0) < least_rank) {
      throw InvalidArgument(str_cat("torch.", name, " requires a tensor with at least ", least_rank, " dimension",
                                    least_rank > 1 ? "s" : "", ", but got a tensor with ", args.rank(0),
                                    " dimensions!"));
    }
    const int64_t dim = args.rank(0) == 1 ? 0 : axis;
    const bool sections = std::holds_alternative<Scalar>(arguments[1]);
    if (sections) {
      const int64_t size = b.ctx().specialize(args.type(0).sizes[static_cast<size_t>(dim)]);
      const int64_t n = args.integer(1);
      if (n <= 0 || size % n != 0) {
        throw InvalidArgument(str_cat("torch.", name, " attempted to split along dimension ", dim,
                                      ", but the size of the dimension ", size, " is not divisible by the split_size ",
                                      n, "!"));
      }
    }
    return b.op_multi(sections ? "tensor_split.sections" : "tensor_split.indices",
                      {arguments[0], arguments[1], int_arg(dim)});
  };
}

// ---- angle -----------------------------------------------------------------------------------------------------------

std::vector<TensorType> angle_meta(MetaContext& m) {
  const size_t self[] = {0};
  const DType dtype = m.tensor(0).dtype;
  if (is_complex(dtype)) throw Unsupported("angle of complex numbers runs in eager");
  return {pointwise_type(m, self, is_floating(dtype) ? dtype : m.default_dtype())};
}

void lower_angle(LowerContext& c) {
  const DType t = compute_dtype(c.result().dtype);
  c.pointwise(0, [&c, t](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId x = operand_at(c, b, 0, t, at);
    const ScalarId zero = b.constant(0, t);
    const ScalarId side = b.select(b.compare(Op::kLt, x, zero), b.constant(std::numbers::pi, t), zero);
    return b.select(b.apply1(Op::kIsNan, x), x, side);
  });
}

}  // namespace

void register_views_more(OpRegistry& r) {
  for (const CopyRow& row : kCopies) {
    const std::string names = std::string("torch.") + row.name;
    const bool hidden = std::string_view(row.name) == "narrow_copy";
    r.add(make_op({row.name, OpKind::kComposite, row.schema,
                   hidden ? "torch.narrow_copy torch.Tensor.narrow_copy" : names.c_str()},
                  nullptr, copy_of(row.view)));
    r.mark(&OpTraits::hands_tangent_on, {row.name});
  }
  r.add(make_op({"diag_embed", OpKind::kPointwise, "(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
                 "torch.diag_embed torch.Tensor.diag_embed"},
                diag_embed_meta, nullptr, lower_diag_embed));
  r.add(make_op({"diag", OpKind::kComposite, "(Tensor self, int diagonal=0) -> Tensor", "torch.diag torch.Tensor.diag"},
                nullptr, decompose_diag));
  r.add(make_op({"angle", OpKind::kPointwise, "(Tensor self) -> Tensor", "torch.angle torch.Tensor.angle"}, angle_meta,
                nullptr, lower_angle));
  const struct {
    const char* name;
    int64_t axis;
    int64_t least;
  } splits[] = {{"hsplit", 1, 1}, {"vsplit", 0, 2}, {"dsplit", 2, 3}};
  for (const auto& row : splits) {
    const std::string names = std::string("torch.") + row.name + " torch.Tensor." + row.name;
    const std::string by_number = std::string(row.name) + ".int";
    const std::string by_places = std::string(row.name) + ".array";
    r.add(
        make_op({by_number.c_str(), OpKind::kComposite, "(Tensor(a) self, int sections) -> Tensor(a)[]", names.c_str()},
                nullptr, split_axis(row.name, row.axis, row.least)));
    r.add(make_op(
        {by_places.c_str(), OpKind::kComposite, "(Tensor(a) self, int[] indices) -> Tensor(a)[]", names.c_str()},
        nullptr, split_axis(row.name, row.axis, row.least)));
    r.mark(&OpTraits::may_view, {by_number.c_str(), by_places.c_str()});
  }
}

}  // namespace tatara
