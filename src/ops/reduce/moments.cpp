// Variances and standard deviations, with their means.
#include <algorithm>
#include <limits>

#include "ops/reduce/reduce_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using loops::Combine;
using Values = std::vector<ValueId>;

/// Variance and mean by Welford's update (Welford 1962; the merge of partial results is Chan, Golub, LeVeque 1979).
void lower_welford(LowerContext& ctx) {
  const Args args(ctx);
  const DType acc = compute_dtype(ctx.operand(0).dtype);
  const double correction = args.number(3);
  ReductionDef def;
  def.dims = arg_dims(args, 1, ctx.operand(0).dim());
  def.dtypes = {acc, acc, acc};  // mean, sum of squared deviations, count
  def.combine = {Combine::kCustom, Combine::kCustom, Combine::kCustom};
  def.init = [=](LoopBuilder& b) {
    const ScalarId zero = b.constant(0, acc);
    return std::vector{zero, zero, zero};
  };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.cast(b.load(0, indices), acc), b.constant(0, acc), b.constant(1, acc)};
  };
  def.merge = [=](LoopBuilder& b, std::span<const ScalarId> x, std::span<const ScalarId> y) {
    const Calc c{b, acc};
    const ScalarId count = c.add(x[2], y[2]);
    const ScalarId empty = c.cmp(ScalarOp::kEq, count, c.c(0));
    const ScalarId weight = c.select(empty, c.c(0), c.div(y[2], count));
    const ScalarId delta = c.sub(y[0], x[0]);
    const ScalarId mean = c.add(x[0], c.mul(delta, weight));
    const ScalarId m2 = c.add(c.add(x[1], y[1]), c.mul(c.mul(delta, delta), c.mul(x[2], weight)));
    return std::vector{mean, m2, count};
  };
  def.finish = [=](LoopBuilder& b, std::span<const ScalarId> a, std::span<const Expr>) {
    const Calc c{b, acc};
    const ScalarId divisor = c.max(c.sub(a[2], c.c(correction)), c.c(0));
    const ScalarId nan = b.constant(std::numeric_limits<double>::quiet_NaN(), acc);
    const ScalarId mean = c.select(c.cmp(ScalarOp::kEq, a[2], c.c(0)), nan, a[0]);
    return std::vector{c.div(a[1], divisor), mean};
  };
  ctx.reduction(std::move(def));
}

/// Variance and mean in the compute dtype; the variance of a complex tensor is real.
Values var_mean_of(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims, Scalar correction, bool keepdim) {
  const DType dtype = b.type(x).dtype;
  const ValueId wide = b.cast(x, compute_dtype(dtype));
  if (!is_complex(dtype)) {
    return b.op_multi("_welford", {TensorArg{wide}, ints_arg(b.ctx(), dims), bool_arg(keepdim), correction});
  }
  const ValueId mean = mean_of(b, wide, dims, true);
  const ValueId deviation = b.unary("abs", b.binary("sub", wide, mean));
  const ValueId sum = b.reduce("sum", b.binary("mul", deviation, deviation), dims, keepdim);
  const Expr count = reduced_count(b, b.type(x), dims);
  if (!count.is_const()) throw Unsupported("variance of a complex tensor of symbolic size");
  double by = 0;
  if (const auto* d = std::get_if<double>(&correction)) by = *d;
  if (const auto* n = std::get_if<int64_t>(&correction)) by = static_cast<double>(*n);
  const double divisor = std::max(static_cast<double>(count.const_value()) - by, 0.0);
  const ValueId var = b.binary("div", sum, Scalar(divisor));
  return {var, keepdim ? mean : b.reduce("sum", mean, dims, false)};
}

Scalar correction_of(const Args& args, size_t i) { return args.none(i) ? Scalar(int64_t{1}) : args.scalar(i); }

enum class Moments : uint8_t { kVar, kStd, kVarMean, kStdMean };

Values moments(GraphBuilder& b, Moments kind, ValueId x, const std::vector<int64_t>& dims, Scalar correction,
               bool keepdim) {
  const DType dtype = b.type(x).dtype;
  const Values both = var_mean_of(b, x, dims, correction, keepdim);
  const bool root = kind == Moments::kStd || kind == Moments::kStdMean;
  const ValueId first = b.cast(root ? b.unary("sqrt", both[0]) : both[0], real_dtype(dtype));
  if (kind == Moments::kVar || kind == Moments::kStd) return {first};
  return {first, b.cast(both[1], dtype)};
}

/// Positions of the arguments in the three schemas of var and its kin.
struct MomentArgs {
  int dim;
  int correction;
  int keepdim;
  bool is_flag;  // "unbiased" in place of a correction
};
constexpr MomentArgs kByCorrection{1, 2, 3, false};
constexpr MomentArgs kByDim{1, 2, 3, true};
constexpr MomentArgs kWhole{-1, 1, -1, true};

MetaFn moments_meta(Moments kind, MomentArgs at) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    require_float(m, self.dtype);
    const auto dims = at.dim < 0 ? wrap_dims({}, self.dim()) : arg_dims(m, static_cast<size_t>(at.dim), self.dim());
    const bool keepdim = at.keepdim >= 0 && m.boolean(static_cast<size_t>(at.keepdim));
    const auto sizes = reduced_sizes(m.ctx(), self.sizes, dims, keepdim);
    std::vector<TensorType> types{contiguous_type(m.ctx(), real_dtype(self.dtype), self.device, sizes)};
    if (kind == Moments::kVarMean || kind == Moments::kStdMean) {
      types.push_back(contiguous_type(m.ctx(), self.dtype, self.device, sizes));
    }
    return types;
  };
}

DecomposeFn moments_decompose(Moments kind, MomentArgs at) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const auto dims = at.dim < 0 ? wrap_dims({}, args.rank(0)) : args.dims(static_cast<size_t>(at.dim), args.rank(0));
    const auto c = static_cast<size_t>(at.correction);
    const Scalar correction = at.is_flag ? Scalar(int64_t{args.flag(c) ? 1 : 0}) : correction_of(args, c);
    const bool keepdim = at.keepdim >= 0 && args.flag(static_cast<size_t>(at.keepdim));
    return moments(b, kind, args.tensor(0), dims, correction, keepdim);
  };
}

}  // namespace

void register_moments(OpRegistry& r) {
  struct Family {
    const char* name;
    Moments kind;
    const char* names;
    const char* result;
  };
  const Family families[] = {
      {"var", Moments::kVar, "torch.var torch.Tensor.var", "Tensor"},
      {"std", Moments::kStd, "torch.std torch.Tensor.std", "Tensor"},
      {"var_mean", Moments::kVarMean, "torch.var_mean", "(Tensor, Tensor)"},
      {"std_mean", Moments::kStdMean, "torch.std_mean", "(Tensor, Tensor)"},
  };
  for (const Family& f : families) {
    const auto add = [&](const char* suffix, const char* arguments, MomentArgs at) {
      OpDef def;
      def.name = str_cat(f.name, suffix);
      def.kind = OpKind::kComposite;
      def.schema_text = str_cat(arguments, " -> ", f.result);
      def.names = f.names;
      def.meta = moments_meta(f.kind, at);
      def.decompose = moments_decompose(f.kind, at);
      r.add(std::move(def));
    };
    // In the order eager tries them: a bool in second place means "unbiased".
    add(".dim", "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)", kByDim);
    add(".correction", "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
        kByCorrection);
    add("", "(Tensor self, bool unbiased=True)", kWhole);
  }
  r.add(make_op(
      {"_welford", OpKind::kReduction,
       "(Tensor self, int[1]? dim, bool keepdim, Scalar correction) -> (Tensor var, Tensor mean)", ""},
      [](MetaContext& m) {
        auto types = reduce_meta(Result::kSame, true, false)(m);
        types.push_back(types[0]);
        return types;
      },
      nullptr, lower_welford));
}

}  // namespace tatara
