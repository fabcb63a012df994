// Views that look at memory in another way: as_strided, complex numbers as pairs of reals, and some rarer spellings.
#include <algorithm>

#include "ops/core/view_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

TensorType view_type(const TensorType& self) {
  TensorType type = self;
  type.is_wrapped_number = false;
  return type;
}

// ---- as_strided ------------------------------------------------------------------------------------------------------

/// Over a contiguous operand only: a place in memory is then a logical index.
std::vector<TensorType> as_strided_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  if (!is_contiguous(ctx, self)) throw Unsupported("as_strided of a tensor that is not contiguous");
  TensorType type = view_type(self);
  type.sizes = m.ints(1);
  type.strides = m.ints(2);
  if (type.sizes.size() != type.strides.size()) throw InvalidArgument("mismatch in length of strides and shape");
  Expr last = m.is_none(3) ? ctx.constant(0) : Args(m).expr(3);
  bool empty = false;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    empty = empty || is_zero(ctx, type.sizes[i]);
    last = ctx.add(last, ctx.mul(ctx.sub(type.sizes[i], ctx.constant(1)), type.strides[i]));
  }
  if (!empty && !ctx.guard(ctx.lt(last, self.numel(ctx)))) {
    throw Unsupported("as_strided beyond the tensor it was called on");
  }
  return {type};
}

void lower_as_strided(LowerContext& c) {
  const Args args(c);
  const std::vector<Expr> strides = args.exprs(2);
  const Expr offset = args.none(3) ? c.ctx().constant(0) : args.expr(3);
  c.view(strided_map(c.ctx(), c.operand(0).sizes, strides, offset));
}

// ---- complex numbers as pairs ----------------------------------------------------------------------------------------

std::vector<TensorType> part_meta(MetaContext& m) {
  TensorType type = view_type(m.tensor(0));
  type.dtype = real_dtype(type.dtype);
  for (Expr& stride : type.strides) stride = m.ctx().mul(stride, m.ctx().constant(2));
  return {type};
}

LowerFn lower_part(ScalarOp op) {
  return [op](LowerContext& c) {
    c.pointwise(0, [op](LoopBuilder& b, std::span<const Expr> at) { return b.apply1(op, b.load(0, at)); });
  };
}

std::vector<TensorType> view_as_real_meta(MetaContext& m) {
  if (!is_complex(m.tensor(0).dtype)) throw InvalidArgument("view_as_real is only supported for complex tensors");
  TensorType type = part_meta(m).front();
  type.sizes.push_back(m.ctx().constant(2));
  type.strides.push_back(m.ctx().constant(1));
  return {type};
}

void lower_view_as_real(LowerContext& c) {
  c.pointwise(0, [](LoopBuilder& b, std::span<const Expr> at) {
    const ScalarId x = b.load(0, at.first(at.size() - 1));
    const ScalarId place = b.index_value(at.back(), DType::kInt64);
    const ScalarId first = b.compare(ScalarOp::kEq, place, b.constant_int(0, DType::kInt64));
    return b.select(first, b.apply1(ScalarOp::kReal, x), b.apply1(ScalarOp::kImag, x));
  });
}

std::vector<TensorType> view_as_complex_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  if (!is_floating(self.dtype) || self.dtype == DType::kBFloat16 || dtype_size(self.dtype) == 1) {
    throw InvalidArgument("view_as_complex is only supported for half, float and double tensors");
  }
  if (self.dim() == 0) throw InvalidArgument("Input tensor must have one or more dimensions");
  if (!same_size(ctx, self.sizes.back(), ctx.constant(2)))
    throw InvalidArgument("Tensor must have a last dimension of size 2");
  if (!is_one(ctx, self.strides.back())) throw InvalidArgument("Tensor must have a last dimension with stride 1");
  TensorType type = view_type(self);
  type.dtype = complex_dtype(self.dtype);
  type.sizes.pop_back();
  type.strides.pop_back();
  for (Expr& stride : type.strides) stride = ctx.simplify(ctx.floordiv(stride, ctx.constant(2)));
  return {type};
}

void lower_view_as_complex(LowerContext& c) {
  c.pointwise(0, [&ctx = c.ctx()](LoopBuilder& b, std::span<const Expr> at) {
    std::vector<Expr> where(at.begin(), at.end());
    where.push_back(ctx.constant(0));
    const ScalarId re = b.load(0, where);
    where.back() = ctx.constant(1);
    return b.apply2(ScalarOp::kComplex, re, b.load(0, where));
  });
}

// ---- spellings -------------------------------------------------------------------------------------------------------

Values tensor_split_sections(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const int64_t dim = args.real_dim(2, args.rank(0));
  const int64_t size = b.ctx().specialize(args.type(0).sizes.at(static_cast<size_t>(dim)));
  const int64_t n = args.integer(1);
  if (n <= 0) throw InvalidArgument(str_cat("number of sections must be larger than 0, got ", n));
  Values parts;
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t next = at + size / n + (i < size % n ? 1 : 0);
    parts.push_back(b.slice(args.tensor(0), dim, b.ctx().constant(at), b.ctx().constant(next), b.ctx().constant(1)));
    at = next;
  }
  return parts;
}

Values tensor_split_indices(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const int64_t dim = args.real_dim(2, args.rank(0));
  std::vector<int64_t> ends = args.integers(1);
  ends.push_back(b.ctx().specialize(args.type(0).sizes.at(static_cast<size_t>(dim))));
  Values parts;
  int64_t at = 0;
  for (const int64_t end : ends) {
    parts.push_back(b.slice(args.tensor(0), dim, b.ctx().constant(at), b.ctx().constant(end), b.ctx().constant(1)));
    at = end;
  }
  return parts;
}

Choice imaginary(MetaContext& m) {
  if (is_complex(m.tensor(0).dtype)) return {"imag_part", {m.arg(0)}};
  throw InvalidArgument("imag is not implemented for tensors with non-complex dtypes.");
}

Choice conjugate_transposed(MetaContext& m) {
  const int64_t rank = m.tensor(0).dim();
  if (is_complex(m.tensor(0).dtype)) throw Unsupported("a lazily conjugated view");
  if (m.op().name == "H" && rank != 2 && rank != 0) {
    throw InvalidArgument(str_cat("tensor.H is only supported on matrices (2-D tensors). Got ", rank, "-D tensor."));
  }
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
  if (rank == 0) throw Unsupported("the adjoint of a tensor without dimensions is that tensor");
  if (rank == 1)
    throw InvalidArgument("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.");
  if (rank >= 2) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return {"permute", {m.arg(0), ints_arg(m.ctx(), dims)}};
}

void add_view(OpRegistry& r, const char* name, const char* schema, const char* names, MetaFn meta, LowerFn lower) {
  OpDef def = make_op({name, OpKind::kView, schema, names}, std::move(meta), nullptr, std::move(lower));
  def.has_out = false;
  r.add(std::move(def));
}

void add_memory_choice(OpRegistry& r, const char* name, const char* schema, const char* names, ChooseFn choose) {
  OpDef def = make_op({name, OpKind::kComposite, schema, names}, nullptr);
  def.choose = std::move(choose);
  def.has_out = false;
  r.add(std::move(def));
}

}  // namespace

void register_views_memory(OpRegistry& r) {
  const char* plain = "(Tensor(a) self) -> Tensor(a)";
  add_view(r, "as_strided",
           "(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
           "torch.as_strided torch.Tensor.as_strided", as_strided_meta, lower_as_strided);
  add_view(r, "real_part", plain, "", part_meta, lower_part(ScalarOp::kReal));
  add_view(r, "imag_part", plain, "", part_meta, lower_part(ScalarOp::kImag));
  add_view(r, "view_as_real", plain, "torch.view_as_real", view_as_real_meta, lower_view_as_real);
  add_view(r, "view_as_complex", plain, "torch.view_as_complex", view_as_complex_meta, lower_view_as_complex);
  add_memory_choice(r, "imag", plain, "torch.imag torch.Tensor.imag.__get__", imaginary);
  add_memory_choice(r, "mH", plain, "torch.Tensor.mH.__get__ torch.adjoint torch.Tensor.adjoint", conjugate_transposed);
  add_memory_choice(r, "H", plain, "torch.Tensor.H.__get__", conjugate_transposed);
  add_memory_choice(r, "atleast_1d", plain, "torch.atleast_1d", [](MetaContext& m) -> Choice {
    if (m.tensor(0).dim() > 0) return {"alias_self", {}};
    return {"view", {m.arg(0), SymInts{{m.ctx().constant(1)}}}};
  });
  add_memory_choice(r, "swapaxes", "(Tensor(a) self, int axis0, int axis1) -> Tensor(a)",
                    "torch.swapaxes torch.Tensor.swapaxes",
                    [](MetaContext& m) -> Choice { return OpRegistry::global().get("transpose").choose(m); });
  OpDef sections =
      make_op({"tensor_split.sections", OpKind::kComposite, "(Tensor(a) self, int sections, int dim=0) -> Tensor(a)[]",
               "torch.tensor_split torch.Tensor.tensor_split"},
              nullptr, tensor_split_sections);
  OpDef indices =
      make_op({"tensor_split.indices", OpKind::kComposite, "(Tensor(a) self, int[] indices, int dim=0) -> Tensor(a)[]",
               "torch.tensor_split torch.Tensor.tensor_split"},
              nullptr, tensor_split_indices);
  r.add(std::move(sections));
  r.add(std::move(indices));
  r.amend("as_strided").traits.stride_use = StrideUse::kMemory;
  for (const char* name : {"view_as_real", "view_as_complex"}) r.amend(name).traits.stride_use = StrideUse::kOperand;
  r.mark(&OpTraits::may_view,
         {"imag", "H", "mH", "atleast_1d", "swapaxes", "tensor_split.sections", "tensor_split.indices"});
}

}  // namespace tatara
