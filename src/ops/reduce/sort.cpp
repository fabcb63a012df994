// Sorting and selection with eager's layouts: host kernels, and on GPUs kernels of our own for rows.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

TensorType like(MetaContext& m, const TensorType& self, DType dtype) {
  TensorType type = self;
  type.dtype = dtype;
  type.is_wrapped_number = false;
  const TensorType* operands[] = {&self};
  type.strides = m.iterator_strides(self.sizes, operands);
  return type;
}

void require_ordered(const MetaContext& m) {
  if (is_complex(m.tensor(0).dtype)) throw InvalidArgument(str_cat(m.op().name, "(): complex numbers have no order"));
}

/// sort and argsort: the dimension is argument `dim_arg`; `values` and `indices` say which results there are.
MetaFn sort_meta(size_t dim_arg, bool values, bool indices) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    require_ordered(m);
    const TensorType& self = m.tensor(0);
    m.dim(dim_arg, self.dim());
    std::vector<TensorType> types;
    if (values) types.push_back(like(m, self, self.dtype));
    if (indices) types.push_back(like(m, self, DType::kInt64));
    return types;
  };
}

std::vector<TensorType> topk_meta(MetaContext& m) {
  require_ordered(m);
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  const auto dim = static_cast<size_t>(m.dim(2, self.dim()));
  std::vector<Expr> sizes = self.sizes;
  const Expr k = ctx.constant(m.integer(1));
  if (k.const_value() < 0 || !ctx.guard(ctx.le(k, sizes.empty() ? ctx.constant(1) : sizes[dim]))) {
    throw InvalidArgument("selected index k out of range");
  }
  if (sizes.empty() && k.const_value() == 0) throw Unsupported("topk of no value of a tensor without dimensions");
  if (!sizes.empty()) sizes[dim] = k;
  return {contiguous_type(ctx, self.dtype, self.device, sizes),
          contiguous_type(ctx, DType::kInt64, self.device, sizes)};
}

/// One (value, index) pair along a dimension: kthvalue, median, mode.
MetaFn selection_meta(size_t dim_arg, size_t keepdim_arg) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    require_ordered(m);
    const TensorType& self = m.tensor(0);
    const int64_t dim = m.dim(dim_arg, self.dim());
    std::vector<int64_t> dims;
    if (self.dim() > 0) dims.push_back(dim);
    for (int64_t d : dims) {
      if (is_zero(m.ctx(), self.sizes[static_cast<size_t>(d)])) {
        throw InvalidArgument(str_cat(m.op().name, "(): Expected reduction dim to have non-zero size."));
      }
    }
    const auto sizes = reduced_sizes(m.ctx(), self.sizes, dims, m.boolean(keepdim_arg));
    return {contiguous_type(m.ctx(), self.dtype, self.device, sizes),
            contiguous_type(m.ctx(), DType::kInt64, self.device, sizes)};
  };
}

std::vector<TensorType> scalar_meta(MetaContext& m) {
  require_ordered(m);
  return {contiguous_type(m.ctx(), m.tensor(0).dtype, m.tensor(0).device, {})};
}

/// Rows by kernels of our own, where the target has such.
LowerFn lower_sort(size_t dim_arg, size_t descending_arg, bool values) {
  return [=](LowerContext& ctx) {
    if (ctx.operand(0).dim() == 0) return;
    const Args args(ctx);
    SortDef def;
    def.dim = args.dim(dim_arg, args.rank(0));
    def.descending = args.flag(descending_arg);
    def.values = values ? 0 : -1;
    def.places = values ? 1 : 0;
    ctx.sort(def);
  };
}

void lower_topk(LowerContext& ctx) {
  if (ctx.operand(0).dim() == 0 || ctx.operand(0).dtype == DType::kBool) return;
  const Args args(ctx);
  SortDef def;
  def.dim = args.dim(2, args.rank(0));
  def.count = args.integer(1);
  def.descending = args.flag(3);
  ctx.sort(def);
}

OpDef host(const OpRow& row, const char* overload, MetaFn meta, LowerFn lower = nullptr) {
  OpDef def = make_op(row, std::move(meta), nullptr, std::move(lower));
  def.host_overload = overload;
  return def;
}

}  // namespace

void register_sort(OpRegistry& r) {
  const auto kind = OpKind::kHost;
  r.add(host({"sort", kind, "(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
              "torch.sort torch.Tensor.sort"},
             "", sort_meta(1, true, true), lower_sort(1, 2, true)));
  r.add(host({"sort.stable", kind,
              "(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
              "torch.sort torch.Tensor.sort"},
             "stable", sort_meta(2, true, true), lower_sort(2, 3, true)));
  r.add(host({"argsort", kind, "(Tensor self, int dim=-1, bool descending=False) -> Tensor",
              "torch.argsort torch.Tensor.argsort"},
             "", sort_meta(1, false, true), lower_sort(1, 2, false)));
  r.add(host({"argsort.stable", kind, "(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
              "torch.argsort torch.Tensor.argsort"},
             "stable", sort_meta(2, false, true), lower_sort(2, 3, false)));
  r.add(host(
      {"topk", kind,
       "(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
       "torch.topk torch.Tensor.topk"},
      "", topk_meta, lower_topk));
  r.add(host(
      {"kthvalue", kind, "(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
       "torch.kthvalue torch.Tensor.kthvalue"},
      "", selection_meta(2, 3)));
  const char* pair = "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)";
  r.add(host({"median", kind, "(Tensor self) -> Tensor", "torch.median torch.Tensor.median"}, "", scalar_meta));
  r.add(host({"median.dim", kind, pair, "torch.median torch.Tensor.median"}, "dim", selection_meta(1, 2)));
  r.add(
      host({"nanmedian", kind, "(Tensor self) -> Tensor", "torch.nanmedian torch.Tensor.nanmedian"}, "", scalar_meta));
  r.add(host({"nanmedian.dim", kind, pair, "torch.nanmedian torch.Tensor.nanmedian"}, "dim", selection_meta(1, 2)));
  r.add(host({"mode", kind, "(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
              "torch.mode torch.Tensor.mode"},
             "", selection_meta(1, 2)));
}

}  // namespace tatara
