// Scans along one dimension. Float32 sums on the CPU accumulate in float64, as eager's do.
#include <limits>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using loops::Combine;

DType scan_dtype(const MetaContext& m) {
  const DType self = m.tensor(0).dtype;
  if (const auto dtype = m.dtype(2)) return *dtype;
  return is_integral(self) || self == DType::kBool ? DType::kInt64 : self;
}

std::vector<TensorType> sum_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  m.dim(1, self.dim());
  return {contiguous_type(m.ctx(), scan_dtype(m), self.device, self.sizes)};
}

std::vector<TensorType> extreme_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (is_complex(self.dtype)) throw InvalidArgument(str_cat(m.op().name, " does not take complex numbers"));
  m.dim(1, self.dim());
  return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes),
          contiguous_type(m.ctx(), DType::kInt64, self.device, self.sizes)};
}

std::vector<TensorType> logcumsumexp_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (is_complex(self.dtype)) throw Unsupported("logcumsumexp of complex numbers runs in eager");
  if (!is_floating(self.dtype)) throw InvalidArgument("logcumsumexp needs floating-point input");
  m.dim(1, self.dim());
  return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
}

ScalarId scan_number(LoopBuilder& b, double value, DType dtype) {
  if (is_complex(dtype)) return b.constant_complex(value, 0, dtype);
  if (is_floating(dtype)) return b.constant(value, dtype);
  return b.constant_int(static_cast<int64_t>(value), dtype);
}

void lower_sum(LowerContext& ctx, Combine combine, double identity) {
  DType acc = compute_dtype(ctx.result().dtype);
  if (acc == DType::kBool) acc = DType::kUInt8;
  if (acc == DType::kFloat32 && ctx.result().device.kind == DeviceKind::kCpu) acc = DType::kFloat64;
  const auto element = [acc](LoopBuilder& b, std::span<const Expr> indices) { return b.cast(b.load(0, indices), acc); };
  if (ctx.operand(0).dim() == 0) {
    ctx.pointwise(0, element);
    return;
  }
  const Args args(ctx);
  ReductionDef def;
  def.dims = {args.dim(1, args.rank(0))};
  def.dtypes = {acc};
  def.combine = {combine};
  def.init = [=](LoopBuilder& b) { return std::vector{scan_number(b, identity, acc)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) { return std::vector{element(b, indices)}; };
  ctx.scan(std::move(def));
}

/// Running maximum with its position: equal values take the later position, NaN stays.
void lower_running_extreme(LowerContext& ctx, bool largest) {
  const DType in = ctx.operand(0).dtype;
  const DType acc = in == DType::kBool ? DType::kUInt8 : compute_dtype(in);
  if (ctx.operand(0).dim() == 0) {
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> indices) { return b.load(0, indices); });
    ctx.pointwise(1, [=](LoopBuilder& b, std::span<const Expr>) { return b.constant_int(0, DType::kInt64); });
    return;
  }
  const Args args(ctx);
  const int64_t dim = args.dim(1, args.rank(0));
  ReductionDef def;
  def.dims = {dim};
  def.dtypes = {acc, DType::kInt64};
  def.combine = {Combine::kCustom, Combine::kCustom};
  def.init = [=](LoopBuilder& b) {
    // The position says "nothing yet", so the value does not matter.
    return std::vector{scan_number(b, 0, acc), b.constant_int(-1, DType::kInt64)};
  };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.cast(b.load(0, indices), acc),
                       b.index_value(indices[static_cast<size_t>(dim)], DType::kInt64)};
  };
  def.merge = [=](LoopBuilder& b, std::span<const ScalarId> x, std::span<const ScalarId> y) {
    const Calc value{b, acc};
    const Calc index{b, DType::kInt64};
    const Calc flag{b, DType::kBool};
    ScalarId wins = value.cmp(largest ? ScalarOp::kGe : ScalarOp::kLe, y[0], x[0]);
    if (is_floating(acc)) {
      wins = logical_and(b, wins, flag.un(ScalarOp::kNot, flag.un(ScalarOp::kIsNan, x[0])));
      wins = logical_or(b, wins, flag.un(ScalarOp::kIsNan, y[0]));
    }
    wins = logical_or(b, wins, index.cmp(ScalarOp::kLt, x[1], index.c(0)));
    wins = logical_and(b, wins, index.cmp(ScalarOp::kGe, y[1], index.c(0)));
    return std::vector{value.select(wins, y[0], x[0]), index.select(wins, y[1], x[1])};
  };
  ctx.scan(std::move(def));
}

void lower_logcumsumexp(LowerContext& ctx) {
  const DType acc = compute_dtype(ctx.result().dtype);
  if (ctx.operand(0).dim() == 0) {
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> indices) { return b.load(0, indices); });
    return;
  }
  const Args args(ctx);
  ReductionDef def;
  def.dims = {args.dim(1, args.rank(0))};
  def.dtypes = {acc};
  def.combine = {Combine::kCustom};
  def.init = [=](LoopBuilder& b) { return std::vector{b.constant(-std::numeric_limits<double>::infinity(), acc)}; };
  def.element = [=](LoopBuilder& b, std::span<const Expr> indices) {
    return std::vector{b.cast(b.load(0, indices), acc)};
  };
  def.merge = [=](LoopBuilder& b, std::span<const ScalarId> x, std::span<const ScalarId> y) {
    const Calc c{b, acc};
    const Calc flag{b, DType::kBool};
    const ScalarId low = c.min(x[0], y[0]);
    const ScalarId high = c.max(x[0], y[0]);
    const ScalarId sum = c.add(c.un(ScalarOp::kLog1p, c.exp(c.sub(low, high))), high);
    // inf - inf would be NaN where both are the same infinity.
    const ScalarId same = logical_and(b, c.cmp(ScalarOp::kEq, low, high), flag.un(ScalarOp::kIsInf, low));
    return std::vector{c.select(same, x[0], sum)};
  };
  ctx.scan(std::move(def));
}

}  // namespace

void register_scan(OpRegistry& r) {
  const char* schema = "(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor";
  r.add(make_op({"cumsum", OpKind::kScan, schema, "torch.cumsum torch.Tensor.cumsum", "torch.Tensor.cumsum_"}, sum_meta,
                nullptr, [](LowerContext& c) { lower_sum(c, Combine::kAdd, 0); }));
  r.add(make_op({"cumprod", OpKind::kScan, schema, "torch.cumprod torch.Tensor.cumprod", "torch.Tensor.cumprod_"},
                sum_meta, nullptr, [](LowerContext& c) { lower_sum(c, Combine::kMul, 1); }));
  const char* pair = "(Tensor self, int dim) -> (Tensor values, Tensor indices)";
  r.add(make_op({"cummax", OpKind::kScan, pair, "torch.cummax torch.Tensor.cummax"}, extreme_meta, nullptr,
                [](LowerContext& c) { lower_running_extreme(c, true); }));
  r.add(make_op({"cummin", OpKind::kScan, pair, "torch.cummin torch.Tensor.cummin"}, extreme_meta, nullptr,
                [](LowerContext& c) { lower_running_extreme(c, false); }));
  r.add(make_op({"logcumsumexp", OpKind::kScan, "(Tensor self, int dim) -> Tensor",
                 "torch.logcumsumexp torch.Tensor.logcumsumexp"},
                logcumsumexp_meta, nullptr, lower_logcumsumexp));
}

}  // namespace tatara
