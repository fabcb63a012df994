// Resampling: nearest, (bi-, tri-)linear and cubic interpolation.
#include <algorithm>
#include <array>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Arguments of the two overloads: "vec" has (input, output_size?, [align_corners], scale_factors?), the other
/// (self, output_size, [align_corners], one scale per dimension).
struct Sampling {
  std::vector<Expr> sizes;                   // spatial output sizes
  std::vector<std::optional<double>> scale;  // given factors
  bool align_corners = false;
};

std::vector<double> float_list(const Arg& arg) {
  if (const auto* list = std::get_if<std::vector<double>>(&arg)) return *list;
  if (const auto* ints = std::get_if<SymInts>(&arg)) {
    std::vector<double> result;
    for (Expr e : ints->values) result.push_back(static_cast<double>(e.const_value()));
    return result;
  }
  if (const auto* scalar = std::get_if<Scalar>(&arg)) {
    if (const auto* d = std::get_if<double>(scalar)) return {*d};
    if (const auto* n = std::get_if<int64_t>(scalar)) return {static_cast<double>(*n)};
  }
  return {};
}

Sampling read_sampling(const Args& args, const TensorType& self, size_t spatial, bool linear, bool vec) {
  if (self.sizes.size() != spatial + 2) throw InvalidArgument("interpolate: input of the wrong rank");
  Sampling s;
  s.scale.resize(spatial);
  if (linear) s.align_corners = args.flag(2);
  const size_t scales = linear ? 3 : 2;
  if (!args.none(1)) {
    s.sizes = args.exprs(1);
    if (s.sizes.size() == 1) s.sizes.assign(spatial, s.sizes[0]);
  }
  if (vec && !args.none(scales)) {
    const std::vector<double> factors = float_list(args[scales]);
    if (factors.size() != spatial) throw InvalidArgument("interpolate: scale_factors has the wrong length");
    for (size_t d = 0; d < spatial; ++d) {
      s.scale[d] = factors[d];
      const Expr in = self.sizes[d + 2];
      if (!in.is_const()) throw Unsupported("interpolation by a factor of a symbolic size");
      s.sizes.push_back(
          in.context().constant(static_cast<int64_t>(static_cast<double>(in.const_value()) * factors[d])));
    }
  }
  if (!vec) {
    for (size_t d = 0; d < spatial; ++d) {
      if (!args.none(scales + d)) s.scale[d] = args.number(scales + d);
    }
  }
  if (s.sizes.size() != spatial)
    throw InvalidArgument("interpolate: Must specify exactly one of output_size and scale_factors");
  for (size_t d = 0; d < spatial; ++d) {
    for (Expr size : {s.sizes[d], self.sizes[d + 2]}) {
      if (size.is_const() && size.const_value() <= 0)
        throw InvalidArgument("Input and output sizes should be greater than 0");
    }
  }
  return s;
}

MetaFn sample_meta(size_t spatial, bool linear, bool vec) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    if (!is_floating(self.dtype)) throw Unsupported("interpolation of integers runs in eager");
    const Sampling s = read_sampling(Args(m), self, spatial, linear, vec);
    TensorType type = contiguous_type(m.ctx(), self.dtype, self.device, {self.sizes[0], self.sizes[1]});
    type.sizes.insert(type.sizes.end(), s.sizes.begin(), s.sizes.end());
    type.strides = layout_strides(m.ctx(), type.sizes, suggested_layout(m.ctx(), self));
    return {type};
  };
}

/// in / out as a scalar, or the reciprocal of the given factor.
ScalarId ratio(LoopBuilder& b, const Calc& c, Expr in, Expr out, std::optional<double> factor, bool align_corners) {
  if (align_corners) {
    if (out.is_const(1)) return c.c(0);
    return c.div(b.index_value(in - 1, c.t), b.index_value(out - 1, c.t));
  }
  if (factor && *factor > 0) return c.c(1.0 / *factor);
  return c.div(b.index_value(in, c.t), b.index_value(out, c.t));
}

/// min(x, limit) as an index in [0, limit].
Expr as_index(LoopBuilder& b, ScalarId x, Expr size) {
  const Calc c{b, DType::kInt64};
  const ScalarId last = b.index_value(size - 1, DType::kInt64);
  return b.indirect(c.min(b.cast(x, DType::kInt64), last), size, false, false);
}

LowerFn lower_nearest(size_t spatial, bool vec, bool exact) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Sampling s = read_sampling(Args(ctx), self, spatial, false, vec);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      ExprContext& ec = b.ctx();
      std::vector<Expr> at(out.begin(), out.end());
      for (size_t d = 0; d < spatial; ++d) {
        const Expr in = self.sizes[d + 2];
        const bool plain =
            !exact && in.is_const() && s.sizes[d].is_const() && s.sizes[d].const_value() % in.const_value() == 0;
        const int64_t times = plain ? s.sizes[d].const_value() / in.const_value() : 0;
        if (plain && (!s.scale[d] || *s.scale[d] == static_cast<double>(times))) {
          at[d + 2] = ec.floordiv(out[d + 2], ec.constant(times));
          continue;
        }
        const Calc c{b, DType::kFloat32};
        const ScalarId scale = ratio(b, c, in, s.sizes[d], s.scale[d], false);
        ScalarId i = b.index_value(out[d + 2], DType::kFloat32);
        if (exact) i = c.add(i, c.c(0.5));
        const ScalarId x = c.un(ScalarOp::kFloor, c.mul(i, scale));
        at[d + 2] = as_index(b, x, in);
      }
      return b.load(0, at);
    });
  };
}

LowerFn lower_linear(size_t spatial, bool vec) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Sampling s = read_sampling(Args(ctx), self, spatial, true, vec);
    const DType dtype = compute_dtype(self.dtype);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      const Calc c{b, dtype};
      // Per dimension: the two neighbours and the weight of the second.
      std::vector<Expr> low(spatial);
      std::vector<Expr> high(spatial);
      std::vector<ScalarId> weight(spatial);
      for (size_t d = 0; d < spatial; ++d) {
        const Expr in = self.sizes[d + 2];
        const ScalarId scale = ratio(b, c, in, s.sizes[d], s.scale[d], s.align_corners);
        const ScalarId i = b.index_value(out[d + 2], dtype);
        ScalarId x = c.mul(scale, i);
        if (!s.align_corners) x = c.max(c.sub(c.mul(scale, c.add(i, c.c(0.5))), c.c(0.5)), c.c(0));
        const ScalarId base = c.un(ScalarOp::kFloor, x);
        low[d] = as_index(b, base, in);
        high[d] = as_index(b, c.add(base, c.c(1)), in);
        weight[d] = c.sub(x, base);
      }
      ScalarId sum = loops::kNoScalar;
      for (size_t corner = 0; corner < (size_t{1} << spatial); ++corner) {
        std::vector<Expr> at(out.begin(), out.end());
        ScalarId factor = loops::kNoScalar;
        for (size_t d = 0; d < spatial; ++d) {
          const bool second = ((corner >> d) & 1U) != 0;
          at[d + 2] = second ? high[d] : low[d];
          const ScalarId part = second ? weight[d] : c.sub(c.c(1), weight[d]);
          factor = factor == loops::kNoScalar ? part : c.mul(factor, part);
        }
        const ScalarId term = c.mul(factor, b.load(0, at));
        sum = sum == loops::kNoScalar ? term : c.add(sum, term);
      }
      return sum;
    });
  };
}

/// Weights of the four neighbours for a place between the inner two: cubic convolution with a = -0.75.
std::array<ScalarId, 4> cubic_weights(const Calc& c, ScalarId t) {
  constexpr double kA = -0.75;
  const auto inner = [&](ScalarId x) {
    return c.add(c.mul(c.mul(c.sub(c.mul(c.c(kA + 2), x), c.c(kA + 3)), x), x), c.c(1));
  };
  const auto outer = [&](ScalarId x) {
    return c.sub(c.mul(c.add(c.mul(c.sub(c.mul(c.c(kA), x), c.c(5 * kA)), x), c.c(8 * kA)), x), c.c(4 * kA));
  };
  const ScalarId rest = c.sub(c.c(1), t);
  return {outer(c.add(t, c.c(1))), inner(t), inner(rest), outer(c.add(rest, c.c(1)))};
}

LowerFn lower_cubic(bool vec) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Sampling s = read_sampling(Args(ctx), self, 2, true, vec);
    const DType dtype = compute_dtype(self.dtype);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      const Calc c{b, dtype};
      std::array<std::array<Expr, 4>, 2> taps;
      std::array<std::array<ScalarId, 4>, 2> weights;
      for (size_t d = 0; d < 2; ++d) {
        const Expr in = self.sizes[d + 2];
        const ScalarId scale = ratio(b, c, in, s.sizes[d], s.scale[d], s.align_corners);
        const ScalarId i = b.index_value(out[d + 2], dtype);
        const ScalarId x = s.align_corners ? c.mul(scale, i) : c.sub(c.mul(scale, c.add(i, c.c(0.5))), c.c(0.5));
        const ScalarId base = c.un(ScalarOp::kFloor, x);
        weights[d] = cubic_weights(c, c.sub(x, base));
        for (size_t k = 0; k < 4; ++k) {
          const ScalarId at = c.add(base, c.c(static_cast<double>(k) - 1));
          taps[d][k] = as_index(b, c.max(at, c.c(0)), in);
        }
      }
      ScalarId sum = loops::kNoScalar;
      for (size_t row = 0; row < 4; ++row) {
        ScalarId line = loops::kNoScalar;
        for (size_t column = 0; column < 4; ++column) {
          const Expr at[] = {out[0], out[1], taps[0][row], taps[1][column]};
          const ScalarId term = c.mul(b.load(0, at), weights[1][column]);
          line = line == loops::kNoScalar ? term : c.add(line, term);
        }
        const ScalarId term = c.mul(line, weights[0][row]);
        sum = sum == loops::kNoScalar ? term : c.add(sum, term);
      }
      return sum;
    });
  };
}

}  // namespace

void register_upsample(OpRegistry& r) {
  struct Row {
    size_t spatial;
    bool linear;
    const char* name;
    const char* python;
    const char* scales;
    bool exact = false;
    bool cubic = false;
  };
  static constexpr Row kRows[] = {
      {1, false, "upsample_nearest1d", "torch._C._nn.upsample_nearest1d", "float? scales=None"},
      {2, false, "upsample_nearest2d", "torch._C._nn.upsample_nearest2d", "float? scales_h=None, float? scales_w=None"},
      {3, false, "upsample_nearest3d", "torch._C._nn.upsample_nearest3d",
       "float? scales_d=None, float? scales_h=None, float? scales_w=None"},
      {1, false, "_upsample_nearest_exact1d", "torch._C._nn._upsample_nearest_exact1d", "float? scales=None", true},
      {2, false, "_upsample_nearest_exact2d", "torch._C._nn._upsample_nearest_exact2d",
       "float? scales_h=None, float? scales_w=None", true},
      {3, false, "_upsample_nearest_exact3d", "torch._C._nn._upsample_nearest_exact3d",
       "float? scales_d=None, float? scales_h=None, float? scales_w=None", true},
      {2, true, "upsample_bicubic2d", "torch._C._nn.upsample_bicubic2d", "float? scales_h=None, float? scales_w=None",
       false, true},
      {1, true, "upsample_linear1d", "torch._C._nn.upsample_linear1d", "float? scales=None"},
      {2, true, "upsample_bilinear2d", "torch._C._nn.upsample_bilinear2d",
       "float? scales_h=None, float? scales_w=None"},
      {3, true, "upsample_trilinear3d", "torch._C._nn.upsample_trilinear3d",
       "float? scales_d=None, float? scales_h=None, float? scales_w=None"},
  };
  for (const Row& row : kRows) {
    const auto add = [&](bool vec) {
      OpDef def;
      def.name = str_cat(row.name, vec ? ".vec" : "");
      def.kind = OpKind::kIndexing;
      const char* align = row.linear ? "bool align_corners, " : "";
      def.schema_text =
          vec ? str_cat("(Tensor input, SymInt[]? output_size, ", align, "float[]? scale_factors) -> Tensor")
              : str_cat("(Tensor self, SymInt[", row.spatial, "] output_size, ", align, row.scales, ") -> Tensor");
      def.names = row.python;
      def.meta = sample_meta(row.spatial, row.linear, vec);
      def.lower = row.cubic    ? lower_cubic(vec)
                  : row.linear ? lower_linear(row.spatial, vec)
                               : lower_nearest(row.spatial, vec, row.exact);
      r.add(std::move(def));
    };
    add(true);
    add(false);
  }
}

}  // namespace tatara
