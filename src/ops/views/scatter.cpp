// Inverses of views: the base tensor with the elements of a view replaced. A write through a view becomes one of these.
#include <algorithm>

#include "ops/core/view_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The base's own type: gaps that it leaves in memory stay, as in eager.
std::vector<TensorType> base_type(MetaContext& m) {
  TensorType type = m.tensor(0);
  type.is_wrapped_number = false;
  // One element seen many times has no place for each: the result gets one of its own.
  const bool expanded = std::any_of(type.strides.begin(), type.strides.end(), [](Expr e) { return e.is_const(0); });
  if (!is_dense(m.ctx(), type) && expanded) type.strides = contiguous_strides(m.ctx(), type.sizes);
  return {type};
}

/// The same, where operand 1 must be shaped like the view that `view` gives of the base.
MetaFn scatter_meta(const char* view) {
  return [view](MetaContext& m) {
    const OpDef& def = OpRegistry::global().get(view);
    std::vector<Arg> args{m.arg(0)};
    for (size_t i = 2; i < m.num_args(); ++i) args.push_back(m.arg(i));
    MetaContext viewed = m.with(def, args);
    const TensorType part = def.meta(viewed).front();
    if (!same_sizes(m.ctx(), part.sizes, m.tensor(1).sizes)) {
      throw InvalidArgument(str_cat("expected src to have a size equal to the ", view, " of self. src size = [",
                                    str_join(m.tensor(1).sizes), "], ", view, " size = [", str_join(part.sizes), "]"));
    }
    return base_type(m);
  };
}

/// Values of both operands reach the result in its own (computing) dtype.
DType element_dtype(const LowerContext& c) { return compute_dtype(c.result().dtype); }

/// base, or src at `where` under the mask. With no mask everything is replaced.
ScalarId choose(LoopBuilder& b, DType dtype, std::span<const Expr> at, ScalarId mask, std::span<const Expr> where) {
  if (mask == loops::kNoScalar) return b.cast(b.load(1, where), dtype);
  const ScalarId base = b.cast(b.load(0, at), dtype);
  const DType loaded = dtype;
  const ScalarId zero = is_complex(loaded)    ? b.constant_complex(0, 0, loaded)
                        : is_floating(loaded) ? b.constant(0, loaded)
                                              : b.constant_int(0, loaded);
  return b.select(mask, b.cast(b.load_masked(1, where, mask, zero), dtype), base);
}

void lower_slice_scatter(LowerContext& c) {
  const Args args(c);
  const auto dim = static_cast<size_t>(args.dim(2, c.operand(0).dim()));
  const SliceRange range = slice_range(c.ctx(), c.operand(0).sizes[dim], args[3], args[4], args[5]);
  c.pointwise(0, [&ctx = c.ctx(), dim, range, dtype = element_dtype(c)](LoopBuilder& b, std::span<const Expr> at) {
    const Expr from_start = ctx.sub(at[dim], range.start);
    const Expr last = ctx.add(ctx.mul(ctx.sub(range.length, ctx.constant(1)), range.step), ctx.constant(1));
    ScalarId mask = in_range(b, from_start, ctx.constant(0), last);
    std::vector<Expr> where(at.begin(), at.end());
    where[dim] = from_start;
    if (!range.step.is_const(1)) {
      const ScalarId rest = b.index_value(ctx.mod(from_start, range.step), DType::kInt64);
      mask = logical_and(b, mask, b.compare(ScalarOp::kEq, rest, b.constant_int(0, DType::kInt64)));
      where[dim] = ctx.floordiv(from_start, range.step);
    }
    return choose(b, dtype, at, mask, where);
  });
}

void lower_select_scatter(LowerContext& c) {
  const Args args(c);
  const int64_t dim = args.dim(2, c.operand(0).dim());
  const Expr index = wrap_index(c.ctx(), args.expr(3), c.operand(0).sizes[static_cast<size_t>(dim)], dim, true);
  c.pointwise(0, [dim, index, dtype = element_dtype(c)](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId mask = b.compare(ScalarOp::kEq, b.index_value(at[static_cast<size_t>(dim)], DType::kInt64),
                                    b.index_value(index, DType::kInt64));
    std::vector<Expr> where(at.begin(), at.end());
    where.erase(where.begin() + dim);
    return choose(b, dtype, at, mask, where);
  });
}

void lower_diagonal_scatter(LowerContext& c) {
  const Args args(c);
  const int64_t offset = args.integer(2);
  const int64_t rank = c.operand(0).dim();
  const auto d1 = static_cast<size_t>(args.dim(3, rank));
  const auto d2 = static_cast<size_t>(args.dim(4, rank));
  c.pointwise(0, [&ctx = c.ctx(), offset, d1, d2, dtype = element_dtype(c)](LoopBuilder& b, std::span<const Expr> at) {
    const Expr column = ctx.add(at[d1], ctx.constant(offset));
    const ScalarId mask =
        b.compare(ScalarOp::kEq, b.index_value(column, DType::kInt64), b.index_value(at[d2], DType::kInt64));
    std::vector<Expr> where;
    for (size_t i = 0; i < at.size(); ++i) {
      if (i != d1 && i != d2) where.push_back(at[i]);
    }
    where.push_back(offset >= 0 ? at[d1] : at[d2]);
    return choose(b, dtype, at, mask, where);
  });
}

/// By the view's own index map: each element of src goes where the view reads it. Elements of the view must be distinct.
LowerFn lower_by_map(IndexMap (*map_of)(const LowerContext&)) {
  return [map_of](LowerContext& c) {
    ScatterDef def;
    def.base_operand = 0;
    def.domain = c.operand(1).sizes;
    def.destination = [map = map_of(c)](LoopBuilder&, std::span<const Expr> at) { return map(at); };
    def.value = [dtype = element_dtype(c)](LoopBuilder& b, std::span<const Expr> at) {
      return b.cast(b.load(1, at), dtype);
    };
    c.scatter(std::move(def));
  };
}

IndexMap as_strided_map(const LowerContext& c) {
  const Args args(c);
  const std::vector<Expr> strides = args.exprs(3);
  const Expr offset = args.none(4) ? c.ctx().constant(0) : args.expr(4);
  return strided_map(c.ctx(), c.operand(0).sizes, strides, offset);
}

IndexMap part_map(const LowerContext& c) {
  const Args args(c);
  return [&ctx = c.ctx(), start = args.exprs(2), step = args.exprs(3), from = args.exprs(4)](std::span<const Expr> at) {
    std::vector<Expr> result;
    for (size_t d = 0; d < start.size(); ++d) {
      const int64_t dim = from[d].const_value();
      result.push_back(dim < 0 ? start[d] : ctx.add(start[d], ctx.mul(step[d], at[static_cast<size_t>(dim)])));
    }
    return result;
  };
}

IndexMap unfold_map(const LowerContext& c) {
  const Args args(c);
  const auto dim = static_cast<size_t>(args.dim(2, c.operand(0).dim()));
  return [&ctx = c.ctx(), dim, step = args.integer(4)](std::span<const Expr> at) {
    std::vector<Expr> result(at.begin(), at.end() - 1);
    if (!result.empty()) result[dim] = ctx.add(ctx.mul(at[dim], ctx.constant(step)), at.back());
    return result;
  };
}

}  // namespace

void register_view_scatter(OpRegistry& r) {
  r.add(make_op({"slice_scatter", OpKind::kPointwise,
                 "(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
                 "torch.slice_scatter torch.Tensor.slice_scatter"},
                scatter_meta("slice"), nullptr, lower_slice_scatter));
  r.add(make_op({"select_scatter", OpKind::kPointwise, "(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
                 "torch.select_scatter torch.Tensor.select_scatter"},
                scatter_meta("select"), nullptr, lower_select_scatter));
  r.add(make_op({"diagonal_scatter", OpKind::kPointwise,
                 "(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
                 "torch.diagonal_scatter torch.Tensor.diagonal_scatter"},
                scatter_meta("diagonal"), nullptr, lower_diagonal_scatter));
  r.add(make_op({"as_strided_scatter", OpKind::kIndexing,
                 "(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
                 "torch.as_strided_scatter torch.Tensor.as_strided_scatter"},
                scatter_meta("as_strided"), nullptr, lower_by_map(as_strided_map)));
  r.add(make_op({"unfold_scatter", OpKind::kIndexing,
                 "(Tensor self, Tensor src, int dimension, int size, int step) -> Tensor", ""},
                scatter_meta("unfold"), nullptr, lower_by_map(unfold_map)));
  // The part may be in the memory of the whole: its elements are start + step * index in each dimension, where the index is that of
  // the source's dimension `from` (-1: none).
  r.add(make_op(
      {"write_part", OpKind::kIndexing,
       "(Tensor self, Tensor src, SymInt[] start, SymInt[] step, SymInt[] from) -> Tensor", ""},
      [](MetaContext& m) -> std::vector<TensorType> { return {m.tensor(0)}; }, nullptr, lower_by_map(part_map)));
  // The same elements with other strides: a written base keeps its layout.
  r.add(make_op(
      {"relayout", OpKind::kPointwise, "(Tensor self, SymInt[] stride) -> Tensor", ""},
      [](MetaContext& m) -> std::vector<TensorType> {
        TensorType type = m.tensor(0);
        type.is_wrapped_number = false;
        type.strides = m.ints(1);
        return {type};
      },
      nullptr,
      [](LowerContext& c) { c.pointwise(0, [](LoopBuilder& b, std::span<const Expr> at) { return b.load(0, at); }); }));
  r.mark(&OpTraits::copies_to_strides, {"relayout"});
  // Complex numbers from parts, without the checks and the host name of torch.complex.
  r.add(make_op(
      {"from_parts", OpKind::kPointwise, "(Tensor self, Tensor imag) -> Tensor", ""},
      [](MetaContext& m) -> std::vector<TensorType> {
        TensorType type = m.tensor(0);
        type.dtype = complex_dtype(type.dtype);
        const TensorType* operands[] = {&m.tensor(0), &m.tensor(1)};
        type.strides = m.iterator_strides(type.sizes, operands);
        return {type};
      },
      nullptr,
      [](LowerContext& c) {
        c.pointwise(0, [](LoopBuilder& b, std::span<const Expr> at) {
          return b.apply2(ScalarOp::kComplex, b.load(0, at), b.load(1, at));
        });
      }));
}

}  // namespace tatara
