// Activations: one scalar formula each, in the compute dtype, rounded once.
#include <cmath>

#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The numbers behind the operand, in the compute dtype. Each may vary from call to call.
using Params = std::vector<ScalarId>;
using Formula = ScalarId (*)(const Calc&, ScalarId x, const Params& p);

std::vector<TensorType> like_self(MetaContext& m, const TensorType& self) {
  TensorType type = self;
  const TensorType* operands[] = {&self};
  type.strides = m.iterator_strides(self.sizes, operands);
  type.is_wrapped_number = false;
  return {type};
}

/// How the result lies in memory: as eager's iterator has it, as torch.empty_like() would, or contiguous.
enum class ActivationLayout : uint8_t { kIterator, kPreserved, kContiguous };

MetaFn unary_meta(bool integers_too, ActivationLayout layout) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    if (is_complex(self.dtype)) throw Unsupported(m.op().name + " of complex numbers runs by the host");
    if (!is_floating(self.dtype) && !(integers_too && is_integral(self.dtype))) {
      throw InvalidArgument(str_cat("\"", m.op().name, "\" not implemented for '", dtype_name(self.dtype), "'"));
    }
    for (size_t i = 1; i < m.num_args(); ++i) {
      if (m.is_tensor(i) && m.tensor(i).dim() > 0) {
        throw Unsupported(str_cat(m.op().name, ": a number given as a tensor"));
      }
    }
    if (layout == ActivationLayout::kContiguous) {
      return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
    }
    std::vector<TensorType> like = like_self(m, self);
    if (layout == ActivationLayout::kPreserved) like[0].strides = preserved_strides(m, self);
    return like;
  };
}

bool holds_number(const Arg& arg) {
  return std::holds_alternative<Scalar>(arg) || std::holds_alternative<TensorArg>(arg);
}

LowerFn apply(Formula formula) {
  return [=](LowerContext& ctx) {
    const DType dtype = compute_dtype(ctx.result().dtype);
    ctx.pointwise(0, [=, &ctx](LoopBuilder& b, std::span<const Expr> indices) {
      const std::vector<Arg>& args = ctx.node().args;
      Params p;
      for (size_t i = 1; i < args.size(); ++i) {
        p.push_back(holds_number(args[i]) ? operand_at(ctx, b, i, dtype, {}) : loops::kNoScalar);
      }
      return formula(Calc{b, dtype}, b.load(0, indices), p);
    });
  };
}

// ---- Formulas --------------------------------------------------------------------------------------------------------

ScalarId clamp(const Calc& c, ScalarId x, ScalarId lo, ScalarId hi) { return c.min(c.max(x, lo), hi); }

ScalarId relu(const Calc& c, ScalarId x, const Params&) { return c.max(x, c.c(0)); }
ScalarId relu6(const Calc& c, ScalarId x, const Params&) { return clamp(c, x, c.c(0), c.c(6)); }
ScalarId hardtanh(const Calc& c, ScalarId x, const Params& p) { return clamp(c, x, p[0], p[1]); }

ScalarId hardsigmoid(const Calc& c, ScalarId x, const Params&) {
  return c.div(clamp(c, c.add(x, c.c(3)), c.c(0), c.c(6)), c.c(6));
}

ScalarId hardswish(const Calc& c, ScalarId x, const Params&) {
  return c.div(c.mul(x, clamp(c, c.add(x, c.c(3)), c.c(0), c.c(6))), c.c(6));
}

ScalarId silu(const Calc& c, ScalarId x, const Params&) { return c.div(x, c.add(c.c(1), c.exp(c.neg(x)))); }

/// x tanh(log(1 + e^x)): with n = e^x (e^x + 2) the tangent is n / (n + 2), which from 20 on is 1.
ScalarId mish(const Calc& c, ScalarId x, const Params&) {
  const ScalarId e = c.exp(x), n = c.mul(e, c.add(e, c.c(2)));
  const ScalarId smooth = c.mul(x, c.div(n, c.add(n, c.c(2))));
  return c.select(c.cmp(ScalarOp::kGt, x, c.c(20)), x, smooth);
}

ScalarId gelu_erf(const Calc& c, ScalarId x, const Params&) {
  const ScalarId cdf = c.add(c.c(1), c.un(ScalarOp::kErf, c.mul(x, c.c(std::sqrt(0.5)))));
  return c.mul(c.mul(x, c.c(0.5)), cdf);
}

ScalarId gelu_tanh(const Calc& c, ScalarId x, const Params&) {
  const double beta = std::sqrt(2.0 / 3.14159265358979323846);
  const ScalarId cube = c.mul(c.mul(x, x), x);
  const ScalarId inner = c.mul(c.c(beta), c.add(x, c.mul(c.c(0.044715), cube)));
  return c.mul(c.mul(c.c(0.5), x), c.add(c.c(1), c.un(ScalarOp::kTanh, inner)));
}

/// x <= 0 ? negative * expm1(x * input_scale) : x * positive.
ScalarId exponential_linear(const Calc& c, ScalarId x, ScalarId negative, ScalarId positive, ScalarId input_scale) {
  const ScalarId below = c.mul(c.un(ScalarOp::kExpm1, c.mul(x, input_scale)), negative);
  return c.select(c.cmp(ScalarOp::kLe, x, c.c(0)), below, c.mul(x, positive));
}

ScalarId elu(const Calc& c, ScalarId x, const Params& p) {
  return exponential_linear(c, x, c.mul(p[0], p[1]), p[1], p[2]);
}

ScalarId selu(const Calc& c, ScalarId x, const Params&) {
  // Constants of Klambauer et al. 2017.
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  return exponential_linear(c, x, c.c(kAlpha * kScale), c.c(kScale), c.c(1));
}

ScalarId celu(const Calc& c, ScalarId x, const Params& p) {
  return exponential_linear(c, x, p[0], c.c(1), c.div(c.c(1), p[0]));
}

ScalarId leaky_relu(const Calc& c, ScalarId x, const Params& p) {
  return c.select(c.cmp(ScalarOp::kGt, x, c.c(0)), x, c.mul(x, p[0]));
}

ScalarId rrelu(const Calc& c, ScalarId x, const Params& p) {
  return leaky_relu(c, x, {c.div(c.add(p[0], p[1]), c.c(2))});
}

ScalarId softplus(const Calc& c, ScalarId x, const Params& p) {
  const ScalarId scaled = c.mul(x, p[0]);
  const ScalarId soft = c.div(c.un(ScalarOp::kLog1p, c.exp(scaled)), p[0]);
  return c.select(c.cmp(ScalarOp::kGt, scaled, p[1]), x, soft);
}

ScalarId log_sigmoid(const Calc& c, ScalarId x, const Params&) {
  const ScalarId tail = c.un(ScalarOp::kLog1p, c.exp(c.neg(c.un(ScalarOp::kAbs, x))));
  return c.sub(c.min(x, c.c(0)), tail);
}

ScalarId softshrink(const Calc& c, ScalarId x, const Params& p) {
  // x * 0 keeps NaN.
  const ScalarId low = c.select(c.cmp(ScalarOp::kLt, x, c.neg(p[0])), c.add(x, p[0]), c.mul(x, c.c(0)));
  return c.select(c.cmp(ScalarOp::kGt, x, p[0]), c.sub(x, p[0]), low);
}

ScalarId hardshrink(const Calc& c, ScalarId x, const Params& p) {
  const ScalarId inside = logical_and(c.b, c.cmp(ScalarOp::kGe, x, c.neg(p[0])), c.cmp(ScalarOp::kLe, x, p[0]));
  return c.select(inside, c.c(0), x);
}

ScalarId threshold(const Calc& c, ScalarId x, const Params& p) {
  return c.select(c.cmp(ScalarOp::kLe, x, p[0]), p[1], x);
}

struct ActivationRow {
  const char* name;
  const char* schema;
  const char* names;
  const char* inplace;
  Formula formula;
  bool integers = false;
  ActivationLayout layout = ActivationLayout::kIterator;
};

constexpr ActivationRow kActivationRows[] = {
    {"relu", "(Tensor self) -> Tensor", "torch.relu torch.Tensor.relu", "torch.relu_ torch.Tensor.relu_", relu, true},
    {"relu6", "(Tensor self) -> Tensor", "torch._C._nn.relu6", "torch._C._nn.relu6_", relu6, true,
     ActivationLayout::kPreserved},
    {"hardtanh", "(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", "torch._C._nn.hardtanh",
     "torch._C._nn.hardtanh_", hardtanh, true, ActivationLayout::kPreserved},
    {"hardsigmoid", "(Tensor self) -> Tensor", "torch._C._nn.hardsigmoid", "torch._C._nn.hardsigmoid_", hardsigmoid},
    {"hardswish", "(Tensor self) -> Tensor", "torch._C._nn.hardswish", "torch._C._nn.hardswish_", hardswish},
    {"silu", "(Tensor self) -> Tensor", "torch._C._nn.silu", "torch._C._nn.silu_", silu},
    {"mish", "(Tensor self) -> Tensor", "torch._C._nn.mish", "torch._C._nn.mish_", mish},
    {"elu", "(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor", "torch._C._nn.elu",
     "torch._C._nn.elu_", elu},
    {"selu", "(Tensor self) -> Tensor", "torch.selu", "torch.selu_", selu},
    {"celu", "(Tensor self, Scalar alpha=1.0) -> Tensor", "torch.celu", "torch.celu_", celu},
    {"leaky_relu", "(Tensor self, Scalar negative_slope=0.01) -> Tensor", "torch._C._nn.leaky_relu",
     "torch._C._nn.leaky_relu_", leaky_relu},
    {"softplus", "(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", "torch._C._nn.softplus", "", softplus},
    {"log_sigmoid", "(Tensor self) -> Tensor", "torch._C._nn.log_sigmoid", "", log_sigmoid, false,
     ActivationLayout::kContiguous},
    {"softshrink", "(Tensor self, Scalar lambd=0.5) -> Tensor", "torch._C._nn.softshrink", "", softshrink},
    {"hardshrink", "(Tensor self, Scalar lambd=0.5) -> Tensor", "torch.hardshrink torch.Tensor.hardshrink", "",
     hardshrink},
    {"threshold", "(Tensor self, Scalar threshold, Scalar value) -> Tensor", "torch.threshold", "torch.threshold_",
     threshold, true},
};

// ---- Activations of more than one operand ----------------------------------------------------------------------------

using Values = std::vector<ValueId>;

Values decompose_glu(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType self = args.type(0);
  if (!is_floating(self.dtype) || self.dim() == 0) throw InvalidArgument("glu needs a floating-point tensor");
  const int64_t dim = args.dim(1, self.dim());
  ExprContext& ctx = b.ctx();
  const Expr size = self.sizes[static_cast<size_t>(dim)];
  if (!is_zero(ctx, ctx.mod(size, ctx.constant(2)))) {
    throw InvalidArgument(str_cat("Halving dimension must be even, but dimension ", dim, " is size ", size.str()));
  }
  const Expr half = ctx.floordiv(size, ctx.constant(2));
  const Expr one = ctx.constant(1);
  const DType wide = compute_dtype(self.dtype);
  const ValueId first = b.cast(b.slice(args.tensor(0), dim, ctx.constant(0), half, one), wide);
  const ValueId second = b.cast(b.slice(args.tensor(0), dim, half, size, one), wide);
  return {b.cast(b.binary("mul", first, b.unary("sigmoid", second)), self.dtype)};
}

std::vector<TensorType> prelu_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (!is_floating(self.dtype) || m.tensor(1).dtype != self.dtype) {
    throw InvalidArgument("prelu: type promoting not supported");
  }
  return like_self(m, self);
}

Values decompose_prelu(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType self = args.type(0);
  ValueId weight = args.tensor(1);
  ExprContext& ctx = b.ctx();
  if (self.dim() >= 2) {
    std::vector<Expr> sizes(self.sizes.size(), ctx.constant(1));
    sizes[1] = b.type(weight).numel(ctx);
    weight = b.reshape(weight, sizes);
  } else if (b.type(weight).dim() == 1) {
    weight = b.reshape(weight, std::vector<Expr>(self.sizes.size(), ctx.constant(1)));
  }
  const DType wide = compute_dtype(self.dtype);
  const ValueId x = with_tied_gradient(b, b.cast(args.tensor(0), wide), {args.tensor(0), weight});
  const ValueId positive = b.binary("gt", x, Scalar(int64_t{0}));
  // An infinite weight times nothing would be a gradient where it is not read.
  const ValueId negative = b.op("where", {TensorArg{positive}, Scalar(0.0), TensorArg{x}});
  return {b.cast(b.where(positive, x, b.binary("mul", b.cast(weight, wide), negative)), self.dtype)};
}

}  // namespace

void register_activation(OpRegistry& r) {
  for (const ActivationRow& row : kActivationRows) {
    r.add(make_op({row.name, OpKind::kPointwise, row.schema, row.names, row.inplace},
                  unary_meta(row.integers, row.layout), nullptr, apply(row.formula)));
  }
  r.add(make_op({"gelu", OpKind::kPointwise, "(Tensor self, *, str approximate='none') -> Tensor", "torch._C._nn.gelu",
                 "torch._C._nn.gelu_"},
                unary_meta(false, ActivationLayout::kIterator), nullptr, [](LowerContext& ctx) {
                  const std::string form = Args(ctx).str(1);
                  if (form != "none" && form != "tanh")
                    throw InvalidArgument("approximate argument must be either none or tanh.");
                  apply(form == "tanh" ? gelu_tanh : gelu_erf)(ctx);
                }));
  OpDef random = make_op(
      {"rrelu", OpKind::kPointwise,
       "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, "
       "Generator? generator=None) -> Tensor",
       "torch.rrelu", "torch.rrelu_"},
      [](MetaContext& m) {
        if (m.boolean(3)) throw Unsupported("rrelu in training draws random numbers");
        return unary_meta(false, ActivationLayout::kContiguous)(m);
      },
      nullptr, apply(rrelu));
  random.traits.varies = true;
  r.add(std::move(random));
  r.take_values({"hardtanh", "elu", "leaky_relu", "softplus", "hardshrink", "threshold"});
  r.take_value("celu", "alpha", {.low = 1e-30});  // divides
  r.take_value("softshrink", "lambd", {.low = 0});
  r.add(make_op({"glu", OpKind::kComposite, "(Tensor self, int dim=-1) -> Tensor", "torch._C._nn.glu"}, nullptr,
                decompose_glu));
  r.add(
      make_op({"prelu", OpKind::kComposite, "(Tensor self, Tensor weight) -> Tensor", "torch.prelu torch.Tensor.prelu"},
              prelu_meta, decompose_prelu));
}

}  // namespace tatara
