// Joining and repeating tensors, and permutations of elements that copy in eager (flip, roll, tril, ...).
#include <algorithm>

#include "ops/core/family_util.h"
#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

/// With more operands than this the selection per element costs more than the host's copies.
constexpr size_t kMaxInlineOperands = 8;
constexpr size_t kMaxShortStack = 16;
constexpr int64_t kLeastShortStack = 16;  // elements of each

/// Eager skips operands of shape [0] whatever the others' rank.
bool is_legacy_empty(const TensorType& t) { return t.dim() == 1 && t.sizes[0].is_const(0); }

std::vector<TensorType> cat_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const auto tensors = m.tensor_list(0);
  if (tensors.empty()) throw InvalidArgument("torch.cat(): expected a non-empty list of Tensors");
  const TensorType* model = tensors[0];
  for (const TensorType* t : tensors) {
    if (!is_legacy_empty(*t)) {
      model = t;
      break;
    }
  }
  if (model->dim() == 0) throw InvalidArgument("zero-dimensional tensor (at position 0) cannot be concatenated");
  const int64_t dim = m.dim(1, model->dim());
  DType dtype = tensors[0]->dtype;
  Expr total = ctx.constant(0);
  Layout layout = suggested_layout(ctx, *tensors[0]);
  for (const TensorType* t : tensors) {
    dtype = promote_types(dtype, t->dtype);
    if (suggested_layout(ctx, *t) != layout) layout = Layout::kContiguous;
    if (is_legacy_empty(*t)) continue;
    if (t->dim() != model->dim()) throw InvalidArgument("Tensors must have same number of dimensions");
    for (int64_t d = 0; d < t->dim(); ++d) {
      const auto i = static_cast<size_t>(d);
      if (d != dim && !same_size(ctx, t->sizes[i], model->sizes[i])) {
        throw InvalidArgument("Sizes of tensors must match except in the dimension of concatenation");
      }
    }
    total = ctx.add(total, t->sizes[static_cast<size_t>(dim)]);
  }
  TensorType type = contiguous_type(ctx, dtype, model->device, model->sizes);
  type.sizes[static_cast<size_t>(dim)] = total;
  type.strides = layout_strides(ctx, type.sizes, layout);
  return {type};
}

/// Elements along the last dim, which a kernel on a CPU computes side by side (schedule/narrow_dims.cpp).
bool is_short_stack(GraphBuilder& b, const Values& tensors, const Args& args) {
  const TensorType& first = b.type(tensors[0]);
  if (tensors.size() > kMaxShortStack || first.device.kind == DeviceKind::kCuda || first.dim() < 2) return false;
  if (wrap_dim(args.integer(1), first.dim()) != first.dim() - 1) return false;
  const bool single = std::all_of(tensors.begin(), tensors.end(), [&b](ValueId v) {
    return !b.type(v).sizes.empty() && b.type(v).sizes.back().is_const(1);
  });
  return single && b.ctx().evaluate_hint(first.numel(b.ctx())).value_or(0) >= kLeastShortStack;
}

Values decompose_cat(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Values tensors = args.tensors(0);
  if (tensors.size() <= kMaxInlineOperands || is_short_stack(b, tensors, args)) return {};
  return {b.op("cat_host", {arguments[0], arguments[1]})};
}

void lower_cat(LowerContext& ctx) {
  std::vector<TensorType> types;
  for (int i = 0; i < ctx.num_operands(); ++i) types.push_back(ctx.operand(i));
  const DType dtype = compute_dtype(ctx.result().dtype);
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, ctx.result().dim()));
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    const Calc calc{b, dtype};
    ScalarId result = loops::kNoScalar;
    Expr start = ec.constant(0);
    for (size_t i = 0; i < types.size(); ++i) {
      if (is_legacy_empty(types[i]) || types[i].sizes[dim].is_const(0)) continue;
      std::vector<Expr> at(out.begin(), out.end());
      at[dim] = ec.sub(out[dim], start);
      const Expr end = ec.add(start, types[i].sizes[dim]);
      const bool before = ec.decide(ec.lt(out[dim], start)) == std::optional<bool>(true);
      const bool behind = ec.decide(ec.le(end, out[dim])) == std::optional<bool>(true);
      if (before || behind) {
        start = end;
        continue;
      }
      const ScalarId mask = in_range(b, out[dim], start, end);
      const DType own = compute_dtype(types[i].dtype);
      const ScalarId zero = is_complex(own) ? b.constant_complex(0, 0, own) : Calc{b, own}.c(0);
      const ScalarId value = b.cast(load_if(b, static_cast<int>(i), at, mask, zero), dtype);
      result = result == loops::kNoScalar || mask == loops::kNoScalar ? value : calc.select(mask, value, result);
      start = end;
    }
    if (result == loops::kNoScalar) {
      result = is_complex(dtype) ? b.constant_complex(0, 0, dtype) : calc.c(0);
    }
    return result;
  });
}

Values decompose_stack(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Values tensors = args.tensors(0);
  if (tensors.empty()) throw InvalidArgument("stack expects a non-empty TensorList");
  const TensorType first = b.type(tensors[0]);
  for (ValueId v : tensors) {
    if (!same_sizes(b.ctx(), first.sizes, b.type(v).sizes))
      throw InvalidArgument("stack expects each tensor to be equal size");
  }
  const int64_t dim = wrap_dim(args.integer(1), first.dim() + 1);
  TensorList list;
  if (dim < first.dim()) {
    // As eager: concatenate, then split the dimension.
    list.values = tensors;
    const ValueId joined = b.op("cat", {list, int_arg(dim)});
    std::vector<Expr> sizes = first.sizes;
    sizes.insert(sizes.begin() + dim, b.ctx().constant(static_cast<int64_t>(tensors.size())));
    return {b.reshape(joined, sizes)};
  }
  for (ValueId v : tensors) list.values.push_back(b.unsqueeze(v, dim));
  return {b.op("cat", {list, int_arg(dim)})};
}

/// hstack, vstack, dstack, column_stack: bring each to a rank, then concatenate.
enum class Stack : uint8_t { kHorizontal, kVertical, kDepth, kColumn };

ValueId for_stack(GraphBuilder& b, ValueId v, Stack kind) {
  const int64_t rank = b.type(v).dim();
  const Expr one = b.ctx().constant(1);
  switch (kind) {
    case Stack::kHorizontal: return rank == 0 ? b.reshape(v, {one}) : v;
    case Stack::kVertical:
      if (rank == 0) return b.reshape(v, {one, one});
      return rank == 1 ? b.unsqueeze(v, 0) : v;
    case Stack::kDepth:
      if (rank == 0) return b.reshape(v, {one, one, one});
      if (rank == 1) return b.unsqueeze(b.unsqueeze(v, 0), 2);
      return rank == 2 ? b.unsqueeze(v, 2) : v;
    case Stack::kColumn:
      if (rank > 1) return v;
      return b.reshape(v, {b.type(v).numel(b.ctx()), one});
  }
  TATARA_UNREACHABLE("Stack");
}

DecomposeFn stack_kind(Stack kind) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    TensorList list;
    for (ValueId v : args.tensors(0)) list.values.push_back(for_stack(b, v, kind));
    if (list.values.empty()) throw InvalidArgument("expected a non-empty TensorList");
    int64_t dim = kind == Stack::kDepth ? 2 : kind == Stack::kVertical ? 0 : 1;
    if (kind == Stack::kHorizontal && b.type(list.values[0]).dim() == 1) dim = 0;
    return {b.op("cat", {list, int_arg(dim)})};
  };
}

// ---- repeat ----------------------------------------------------------------------------------------------------------

std::vector<Expr> repeated_sizes(ExprContext& ctx, const TensorType& self, const std::vector<Expr>& repeats) {
  if (repeats.size() < self.sizes.size()) {
    throw InvalidArgument("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  }
  std::vector<Expr> sizes = repeats;
  const size_t skip = repeats.size() - self.sizes.size();
  for (size_t d = 0; d < self.sizes.size(); ++d) sizes[skip + d] = ctx.mul(repeats[skip + d], self.sizes[d]);
  return sizes;
}

void lower_repeat(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  const std::vector<Expr> repeats = Args(ctx).exprs(1);
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    std::vector<Expr> at(self.sizes.size());
    const size_t skip = out.size() - at.size();
    for (size_t d = 0; d < at.size(); ++d) {
      const bool same = repeats[skip + d].is_const(1) || self.sizes[d].is_const(0);
      at[d] = same ? out[skip + d] : ec.simplify(ec.mod(out[skip + d], self.sizes[d]));
    }
    return b.load(0, at);
  });
}

Values decompose_tile(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  std::vector<Expr> repeats = args.exprs(1);
  while (static_cast<int64_t>(repeats.size()) < args.rank(0)) repeats.insert(repeats.begin(), b.ctx().constant(1));
  return {b.op("repeat", {arguments[0], exprs_arg(std::move(repeats))})};
}

Values decompose_repeat_interleave(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  ValueId x = args.tensor(0);
  const Expr repeats = args.expr(1);
  int64_t dim = 0;
  if (args.none(2)) {
    x = b.reshape(x, {b.type(x).numel(ctx)});
  } else {
    dim = args.dim(2, args.rank(0));
    if (args.rank(0) == 0) x = b.unsqueeze(x, 0);
  }
  std::vector<Expr> sizes = b.type(x).sizes;
  std::vector<Expr> spread = sizes;
  spread.insert(spread.begin() + dim + 1, repeats);
  sizes[static_cast<size_t>(dim)] = ctx.mul(sizes[static_cast<size_t>(dim)], repeats);
  const ValueId wide = b.expand(b.unsqueeze(x, dim + 1), spread);
  return {b.op("clone", {TensorArg{b.reshape(wide, sizes)}})};
}

// ---- flip, roll, tril ------------------------------------------------------------------------------------------------

std::vector<TensorType> flip_meta(MetaContext& m) {
  TensorType type = m.tensor(0);
  std::vector<int64_t> dims = concrete(m.ctx(), m.ints(1));
  if (!dims.empty()) wrap_dims(dims, type.dim());
  type.strides = preserved_strides(m, type);
  return {type};
}

void lower_flip(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  std::vector<int64_t> dims = Args(ctx).integers(1);
  if (!dims.empty()) dims = wrap_dims(dims, self.dim());
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    std::vector<Expr> at(out.begin(), out.end());
    for (int64_t d : dims) {
      const auto i = static_cast<size_t>(d);
      at[i] = b.ctx().sub(b.ctx().sub(self.sizes[i], b.ctx().constant(1)), out[i]);
    }
    return b.load(0, at);
  });
}

DecomposeFn flip_dims(std::vector<int64_t> dims) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    return {b.op("flip", {arguments[0], ints_arg(b.ctx(), dims)})};
  };
}

Values decompose_rot90(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const int64_t rank = args.rank(0);
  std::vector<int64_t> dims = args.integers(2);
  if (dims.size() != 2 || rank < 2) throw InvalidArgument("expected total rotation dims == 2");
  for (int64_t& d : dims) d = wrap_dim(d, rank);
  if (dims[0] == dims[1]) throw InvalidArgument("expected rotation dims to be different");
  const int64_t turns = ((args.integer(1) % 4) + 4) % 4;
  if (turns == 0) return {contiguous_copy(b, copy_both_ways(b, args.tensor(0)))};
  if (turns == 2) return {b.op("flip", {arguments[0], ints_arg(b.ctx(), dims)})};
  std::vector<int64_t> order(static_cast<size_t>(rank));
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
  std::swap(order[static_cast<size_t>(dims[0])], order[static_cast<size_t>(dims[1])]);
  const ValueId flipped = b.op("flip", {arguments[0], ints_arg(b.ctx(), {turns == 1 ? dims[1] : dims[0]})});
  return {b.permute(flipped, order)};
}

Values decompose_roll(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  ValueId x = args.tensor(0);
  const std::vector<int64_t> shifts = args.integers(1);
  std::vector<int64_t> dims = args.integers(2);
  const TensorType self = b.type(x);
  if (shifts.empty()) throw InvalidArgument("`shifts` required");
  const bool flat = dims.empty();
  if (flat) {
    if (shifts.size() != 1) throw InvalidArgument("shifts and dimensions must align");
    x = b.reshape(x, {self.numel(ctx)});
    dims = {0};
  }
  if (dims.size() != shifts.size()) throw InvalidArgument("shifts and dimensions must align");
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = wrap_real_dim(dims[i], b.type(x).dim());
    const Expr size = b.type(x).sizes[static_cast<size_t>(dim)];
    if (size.is_const() && size.const_value() == 0) return {b.op("clone", {arguments[0]})};
    // Of a size that varies the shift may be any: the place of the cut is an expression, and no side of it need have elements.
    const Expr start =
        size.is_const() ? ctx.constant((((size.const_value() - shifts[i]) % size.const_value()) + size.const_value()) %
                                       size.const_value())
                        : ctx.mod(ctx.sub(ctx.constant(0), ctx.constant(shifts[i])), size);
    const Expr one = ctx.constant(1);
    TensorList parts;
    parts.values = {b.slice(x, dim, start, size, one)};
    if (!start.is_const() || start.const_value() != 0)
      parts.values.push_back(b.slice(x, dim, ctx.constant(0), start, one));
    x = b.op("cat", {parts, int_arg(dim)});
  }
  return {flat ? b.reshape(x, self.sizes) : x};
}

std::vector<TensorType> triangle_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (self.dim() < 2) throw InvalidArgument(str_cat(m.op().name, ": input tensor must have at least 2 dimensions"));
  return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
}

LowerFn triangle(bool lower) {
  return [=](LowerContext& ctx) {
    const Expr diagonal = Args(ctx).expr(1);
    const DType dtype = compute_dtype(ctx.result().dtype);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      const Expr row = out[out.size() - 2];
      const Expr column = out.back();
      const Calc index{b, DType::kInt64};
      const ScalarId limit = b.index_value(b.ctx().add(row, diagonal), DType::kInt64);
      const ScalarId at = b.index_value(column, DType::kInt64);
      const ScalarId keep = index.cmp(lower ? ScalarOp::kLe : ScalarOp::kGe, at, limit);
      const ScalarId zero = is_complex(dtype) ? b.constant_complex(0, 0, dtype) : Calc{b, dtype}.c(0);
      return Calc{b, dtype}.select(keep, b.load(0, out), zero);
    });
  };
}

// ---- meshgrid --------------------------------------------------------------------------------------------------------

Values decompose_diff(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, n, dim, prepend, append)
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  ValueId x = args.tensor(0);
  const int64_t dim = args.real_dim(2, args.rank(0));
  if (!args.none(3) || !args.none(4)) {
    TensorList parts;
    if (!args.none(3)) parts.values.push_back(args.tensor(3));
    parts.values.push_back(x);
    if (!args.none(4)) parts.values.push_back(args.tensor(4));
    x = b.op("cat", {parts, int_arg(dim)});
  }
  const int64_t n = args.integer(1);
  if (n < 0) throw InvalidArgument("order must be non-negative");
  if (n == 0) return {b.op("clone", {arguments[0]})};
  for (int64_t i = 0; i < n; ++i) {
    const Expr size = b.type(x).sizes[static_cast<size_t>(dim)];
    if (size.is_const(0) || size.is_const(1)) throw Unsupported("diff of a dimension that is used up runs in eager");
    const Expr one = ctx.constant(1);
    const ValueId after = b.slice(x, dim, one, size, one);
    const ValueId before = b.slice(x, dim, ctx.constant(0), ctx.sub(size, one), one);
    x = b.binary(b.type(x).dtype == DType::kBool ? "logical_xor" : "sub", after, before);
  }
  return {x};
}

}  // namespace

void register_cat(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  r.add(make_op({"cat", OpKind::kPointwise, "(Tensor[] tensors, int dim=0) -> Tensor",
                 "torch.cat torch.concat torch.concatenate"},
                cat_meta, decompose_cat, lower_cat));
  OpDef host = make_op({"cat_host", OpKind::kHost, "(Tensor[] tensors, int dim=0) -> Tensor", ""}, cat_meta);
  host.host_name = "aten::cat";
  host.host_overload = "out";
  r.add(std::move(host));
  r.add(make_op({"stack", composite, "(Tensor[] tensors, int dim=0) -> Tensor", "torch.stack"}, nullptr,
                decompose_stack));
  const char* list = "(Tensor[] tensors) -> Tensor";
  r.add(make_op({"hstack", composite, list, "torch.hstack"}, nullptr, stack_kind(Stack::kHorizontal)));
  r.add(make_op({"vstack", composite, list, "torch.vstack torch.row_stack"}, nullptr, stack_kind(Stack::kVertical)));
  r.add(make_op({"dstack", composite, list, "torch.dstack"}, nullptr, stack_kind(Stack::kDepth)));
  r.add(make_op({"column_stack", composite, list, "torch.column_stack"}, nullptr, stack_kind(Stack::kColumn)));
  r.add(make_op(
      {"repeat", OpKind::kIndexing, "(Tensor self, SymInt[1] repeats) -> Tensor", "torch.Tensor.repeat"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const TensorType& self = m.tensor(0);
        return {contiguous_type(m.ctx(), self.dtype, self.device, repeated_sizes(m.ctx(), self, m.ints(1)))};
      },
      nullptr, lower_repeat));
  r.add(make_op({"tile", composite, "(Tensor self, SymInt[1] dims) -> Tensor", "torch.tile torch.Tensor.tile"}, nullptr,
                decompose_tile));
  r.add(make_op({"repeat_interleave.self_int", composite,
                 "(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
                 "torch.repeat_interleave torch.Tensor.repeat_interleave"},
                nullptr, decompose_repeat_interleave));
  r.add(make_op({"flip", OpKind::kIndexing, "(Tensor self, int[1] dims) -> Tensor", "torch.flip torch.Tensor.flip"},
                flip_meta, nullptr, lower_flip));
  r.add(make_op({"fliplr", composite, "(Tensor self) -> Tensor", "torch.fliplr torch.Tensor.fliplr"}, nullptr,
                flip_dims({1})));
  r.add(make_op({"flipud", composite, "(Tensor self) -> Tensor", "torch.flipud torch.Tensor.flipud"}, nullptr,
                flip_dims({0})));
  r.add(make_op(
      {"rot90", composite, "(Tensor self, int k=1, int[2] dims=[0,1]) -> Tensor", "torch.rot90 torch.Tensor.rot90"},
      nullptr, decompose_rot90));
  r.add(make_op(
      {"roll", composite, "(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", "torch.roll torch.Tensor.roll"},
      nullptr, decompose_roll));
  const char* triangle_schema = "(Tensor self, SymInt diagonal=0) -> Tensor";
  r.add(make_op({"tril", OpKind::kPointwise, triangle_schema, "torch.tril torch.Tensor.tril", "torch.Tensor.tril_"},
                triangle_meta, nullptr, triangle(true)));
  r.add(make_op({"triu", OpKind::kPointwise, triangle_schema, "torch.triu torch.Tensor.triu", "torch.Tensor.triu_"},
                triangle_meta, nullptr, triangle(false)));
  r.add(make_op(
      {"diff", composite, "(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
       "torch.diff torch.Tensor.diff"},
      nullptr, decompose_diff));
}

}  // namespace tatara
