// Pooling: windows of constant size are unrolled into masked loads.
#include <algorithm>
#include <limits>

#include "ops/core/family_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

/// Larger windows run in eager: the unrolled kernel would grow without bound.
constexpr int64_t kMaxTaps = 128;

/// A list argument as `n` numbers: one number serves all.
std::vector<int64_t> spread(const std::vector<int64_t>& list, size_t n) {
  if (list.size() == n) return list;
  if (list.size() != 1) throw InvalidArgument("pooling: a list argument has the wrong length");
  return std::vector<int64_t>(n, list[0]);
}

struct Window {
  std::vector<int64_t> kernel;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool ceil = false;

  int64_t taps() const {
    int64_t n = 1;
    for (int64_t k : kernel) n *= k;
    return n;
  }
};

/// Reads kernel_size, stride, padding (arguments 1 to 3) and, where given, dilation and ceil_mode.
Window read_window(const Args& args, size_t spatial, int dilation_arg, int ceil_arg) {
  Window w;
  w.kernel = spread(args.integers(1), spatial);
  w.stride = args.none(2) || args.integers(2).empty() ? w.kernel : spread(args.integers(2), spatial);
  w.padding = spread(args.integers(3), spatial);
  w.dilation = dilation_arg < 0 ? std::vector<int64_t>(spatial, 1)
                                : spread(args.integers(static_cast<size_t>(dilation_arg)), spatial);
  w.ceil = args.flag(static_cast<size_t>(ceil_arg));
  for (size_t d = 0; d < spatial; ++d) {
    if (w.kernel[d] <= 0 || w.stride[d] <= 0 || w.dilation[d] <= 0) {
      throw InvalidArgument("pooling: kernel size, stride and dilation must be greater than zero");
    }
    if (w.padding[d] < 0 || w.padding[d] > ((w.kernel[d] - 1) * w.dilation[d] + 1) / 2) {
      throw InvalidArgument("pad should be at most half of effective kernel size");
    }
  }
  return w;
}

Expr pooled_size(ExprContext& ctx, Expr in, const Window& w, size_t d) {
  const int64_t stride = w.stride[d];
  const Expr room = in + (2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1 + (w.ceil ? stride - 1 : 0));
  Expr out = ctx.floordiv(room, ctx.constant(stride)) + 1;
  // The last window must start inside the input or its left padding.
  if (w.ceil && !ctx.guard(ctx.lt((out - 1) * stride, in + w.padding[d]))) out = out - 1;
  if (out.is_const() && out.const_value() < 1) throw InvalidArgument("pooling: output size is too small");
  return out;
}

/// Sizes of the result of pooling the last `spatial` dimensions; an unbatched input is allowed.
std::vector<Expr> pooled_sizes(ExprContext& ctx, const TensorType& self, size_t spatial, const Window& w) {
  const size_t rank = self.sizes.size();
  if (rank != spatial + 1 && rank != spatial + 2) throw InvalidArgument("pooling: input of the wrong rank");
  std::vector<Expr> sizes = self.sizes;
  for (size_t d = 0; d < spatial; ++d) {
    Expr& size = sizes[rank - spatial + d];
    if (is_zero(ctx, size)) throw Unsupported("pooling of an empty tensor runs in eager");
    size = pooled_size(ctx, size, w, d);
  }
  return sizes;
}

/// One-dimensional pooling runs over a dimension of one in eager: its layout rule sees four dimensions.
Layout pool_layout(ExprContext& ctx, const TensorType& self, size_t spatial) {
  if (spatial != 1) return self.sizes.size() == spatial + 2 ? suggested_layout(ctx, self) : Layout::kContiguous;
  return Layout::kContiguous;
}

/// Result type of 1-D pooling through [N, C, 1, L].
TensorType through_2d(ExprContext& ctx, const TensorType& self, std::vector<Expr> sizes, DType dtype) {
  TensorType type = contiguous_type(ctx, dtype, self.device, sizes);
  if (self.dim() != 3) return type;
  TensorType wide = self;
  wide.sizes.insert(wide.sizes.begin() + 2, ctx.constant(1));
  wide.strides.insert(wide.strides.begin() + 2, ctx.mul(self.sizes[2], self.strides[2]));
  sizes.insert(sizes.begin() + 2, ctx.constant(1));
  std::vector<Expr> strides = layout_strides(ctx, sizes, suggested_layout(ctx, wide));
  strides.erase(strides.begin() + 2);
  type.strides = strides;
  return type;
}

/// Calls fn(tap, positions along each spatial dimension, mask) for every tap of the window at `out`.
template <typename Fn>
void for_each_tap(LoopBuilder& b, std::span<const Expr> out, const TensorType& self, const Window& w, Fn&& fn) {
  ExprContext& ctx = b.ctx();
  const size_t spatial = w.kernel.size();
  const size_t lead = out.size() - spatial;
  for (int64_t tap = 0; tap < w.taps(); ++tap) {
    std::vector<Expr> at(out.begin(), out.end());
    ScalarId mask = loops::kNoScalar;
    int64_t rest = tap;
    for (size_t d = spatial; d-- > 0;) {
      const int64_t k = rest % w.kernel[d];
      rest /= w.kernel[d];
      Expr& position = at[lead + d];
      position = position * w.stride[d] + (k * w.dilation[d] - w.padding[d]);
      // Without padding and ceiling every tap is inside.
      if (w.padding[d] != 0 || w.ceil) {
        mask = logical_and(b, mask, in_range(b, position, ctx.constant(0), self.sizes[lead + d]));
      }
    }
    fn(tap, at, mask);
  }
}

// ---- Maximum ---------------------------------------------------------------------------------------------------------

void check_taps(const Window& w) {
  if (w.taps() > kMaxTaps) throw Unsupported("a pooling window of more than 128 elements runs in eager");
}

MetaFn max_meta(size_t spatial, bool indices) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    ExprContext& ctx = m.ctx();
    const TensorType& self = m.tensor(0);
    if (is_complex(self.dtype) || self.dtype == DType::kBool)
      throw InvalidArgument("max_pool: not implemented for this dtype");
    const Window w = read_window(Args(m), spatial, 4, 5);
    check_taps(w);
    std::vector<Expr> sizes = pooled_sizes(ctx, self, spatial, w);
    TensorType type = contiguous_type(ctx, self.dtype, self.device, sizes);
    if (spatial == 1 && indices) {
      type = through_2d(ctx, self, sizes, self.dtype);
    } else {
      type.strides = layout_strides(ctx, sizes, pool_layout(ctx, self, spatial));
    }
    if (!indices) return {type};
    TensorType positions = type;
    positions.dtype = DType::kInt64;
    return {type, positions};
  };
}

ScalarId lowest(LoopBuilder& b, DType dtype) {
  if (is_floating(dtype)) return b.constant(-std::numeric_limits<double>::infinity(), dtype);
  if (!is_signed(dtype)) return b.constant_int(0, dtype);
  const int bits = 8 * dtype_size(dtype);
  return b.constant_int(bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1)), dtype);
}

/// The largest value of the window and its flat position in the plane (the first one; a NaN beats all).
std::pair<ScalarId, ScalarId> window_max(LoopBuilder& b, std::span<const Expr> out, const TensorType& self,
                                         const Window& w, bool with_index) {
  const DType dtype = compute_dtype(self.dtype);
  const Calc calc{b, dtype};
  const Calc flag{b, DType::kBool};
  const size_t lead = out.size() - w.kernel.size();
  ScalarId best = loops::kNoScalar;
  ScalarId best_index = loops::kNoScalar;
  for_each_tap(b, out, self, w, [&](int64_t, const std::vector<Expr>& at, ScalarId mask) {
    const ScalarId x = load_if(b, 0, at, mask, mask == loops::kNoScalar ? loops::kNoScalar : lowest(b, dtype));
    if (!with_index) {
      best = best == loops::kNoScalar ? x : calc.max(best, x);
      return;
    }
    ExprContext& ctx = b.ctx();
    Expr flat = ctx.constant(0);
    for (size_t d = lead; d < at.size(); ++d) flat = ctx.add(ctx.mul(flat, self.sizes[d]), at[d]);
    const ScalarId index = b.index_value(flat, DType::kInt64);
    if (best == loops::kNoScalar) {
      best = x;
      // Eager starts at the first tap inside the input, which counts when all are minus infinity.
      Expr first = ctx.constant(0);
      for (size_t d = lead; d < at.size(); ++d) {
        const Expr inside = ctx.max(at[d], ctx.mod(at[d], ctx.constant(w.dilation[d - lead])));
        first = ctx.add(ctx.mul(first, self.sizes[d]), w.padding[d - lead] == 0 ? at[d] : inside);
      }
      best_index = b.index_value(first, DType::kInt64);
      return;
    }
    ScalarId wins = calc.cmp(ScalarOp::kGt, x, best);
    if (is_floating(dtype)) wins = logical_or(b, wins, flag.un(ScalarOp::kIsNan, x));
    best = calc.select(wins, x, best);
    best_index = calc.select(wins, index, best_index);
  });
  return {best, best_index};
}

LowerFn lower_max(size_t spatial, bool indices) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Window w = read_window(Args(ctx), spatial, 4, 5);
    ctx.pointwise(0,
                  [=](LoopBuilder& b, std::span<const Expr> out) { return window_max(b, out, self, w, false).first; });
    if (!indices) return;
    ctx.pointwise(1,
                  [=](LoopBuilder& b, std::span<const Expr> out) { return window_max(b, out, self, w, true).second; });
  };
}

/// The gradient of the maximum, from its positions: each element looks at the windows that it lies in, so that nothing is
/// scattered. (grad, indices, size, kernel_size, stride, padding, dilation), each list of one number a spatial dimension.
struct GradientWindow {
  explicit GradientWindow(const Args& args)
      : kernel(args.integers(3)), stride(args.integers(4)), padding(args.integers(5)), dilation(args.integers(6)) {}
  explicit GradientWindow(const Window& w)
      : kernel(w.kernel), stride(w.stride), padding(w.padding), dilation(w.dilation) {}

  /// Windows that an element can lie in.
  int64_t reach(size_t d) const { return (kernel[d] - 1) * dilation[d] / stride[d] + 1; }
  int64_t taps() const {
    int64_t n = 1;
    for (size_t d = 0; d < kernel.size(); ++d) n *= reach(d);
    return n;
  }

  std::vector<int64_t> kernel;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
};

std::vector<TensorType> max_gradient_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& grad = m.tensor(0);
  TensorType type = contiguous_type(ctx, grad.dtype, grad.device, m.ints(2));
  const size_t spatial = GradientWindow(Args(m)).kernel.size();
  type.strides = layout_strides(ctx, type.sizes, pool_layout(ctx, m.tensor(1), spatial));
  return {type};
}

void lower_max_gradient(LowerContext& ctx) {
  const GradientWindow w(Args{ctx});
  const TensorType grad = ctx.operand(0);
  const TensorType self = ctx.result();
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    const Calc calc{b, compute_dtype(self.dtype)};
    const Calc position{b, DType::kInt64};
    const size_t spatial = w.kernel.size();
    const size_t lead = out.size() - spatial;
    Expr flat = ec.constant(0);
    for (size_t d = lead; d < out.size(); ++d) flat = ec.add(ec.mul(flat, self.sizes[d]), out[d]);
    const ScalarId own = b.index_value(flat, DType::kInt64);
    ScalarId sum = loops::kNoScalar;
    // Windows in rising order, as eager adds them.
    for (int64_t tap = w.taps(); tap-- > 0;) {
      std::vector<Expr> at(out.begin(), out.end());
      ScalarId mask = loops::kNoScalar;
      int64_t rest = tap;
      for (size_t d = spatial; d-- > 0;) {
        const int64_t back = rest % w.reach(d);
        rest /= w.reach(d);
        Expr& window = at[lead + d];
        window = ec.floordiv(window + w.padding[d], ec.constant(w.stride[d])) - back;
        mask = logical_and(b, mask, in_range(b, window, ec.constant(0), grad.sizes[lead + d]));
      }
      const bool always = mask == loops::kNoScalar;
      const ScalarId winner = load_if(b, 1, at, mask, always ? mask : b.constant_int(-1, DType::kInt64));
      const ScalarId g = load_if(b, 0, at, mask, always ? mask : calc.c(0));
      const ScalarId part = calc.select(position.cmp(ScalarOp::kEq, winner, own), g, calc.c(0));
      sum = sum == loops::kNoScalar ? part : calc.add(sum, part);
    }
    return sum;
  });
}

VjpFn max_rule(size_t spatial) {
  return [=](VjpContext& v) {
    GraphBuilder& b = v.builder();
    const Args& args = v.args();
    const GradientWindow w(read_window(args, spatial, 4, 5));
    if (w.taps() > kMaxTaps) return host_derivative(v);
    const bool has_indices = v.node().outputs.size() == 2;
    ValueId indices = has_indices ? v.out(1) : kNoValue;
    if (!has_indices) {
      indices = b.op_multi(str_cat("max_pool", spatial, "d_with_indices"), std::vector<Arg>(v.node().args))[1];
    }
    std::vector<Arg> all{TensorArg{v.grad()}, TensorArg{indices}, SymInts{args.type(0).sizes}};
    for (const auto& list : {w.kernel, w.stride, w.padding, w.dilation}) all.push_back(ints_arg(v.ctx(), list));
    // In eager it is made from the input too, and requires grad by it.
    v.give(0, tied(b, b.op("_max_pool_gradient", std::move(all)), {args.tensor(0)}));
  };
}

/// Linear: the gradient of the cotangent is read where the maximum was.
void max_gradient_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  if (!v.needs(0)) return;
  const size_t spatial = GradientWindow(v.args()).kernel.size();
  const ValueId indices = v.args().tensor(1);
  const auto rows = [&](ValueId x) {
    std::vector<Expr> sizes = b.type(x).sizes;
    Expr plane = b.ctx().constant(1);
    for (size_t d = 0; d < spatial; ++d) {
      plane = plane * sizes.back();
      sizes.pop_back();
    }
    sizes.push_back(plane);
    return b.reshape(x, sizes);
  };
  const ValueId flat = rows(indices);
  const int64_t last = b.type(flat).dim() - 1;
  const ValueId taken = b.op("gather", {TensorArg{rows(v.grad())}, int_arg(last), TensorArg{flat}, Scalar(false)});
  v.give(0, b.reshape(taken, b.type(indices).sizes));
}

// ---- Average ---------------------------------------------------------------------------------------------------------

// (self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
MetaFn avg_meta(size_t spatial) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    ExprContext& ctx = m.ctx();
    const TensorType& self = m.tensor(0);
    if (!is_floating(self.dtype)) throw Unsupported("avg_pool of integers runs in eager");
    const Window w = read_window(Args(m), spatial, -1, 4);
    check_taps(w);
    std::vector<Expr> sizes = pooled_sizes(ctx, self, spatial, w);
    if (spatial == 1) return {through_2d(ctx, self, sizes, self.dtype)};
    TensorType type = contiguous_type(ctx, self.dtype, self.device, sizes);
    if (spatial == 2) type.strides = layout_strides(ctx, sizes, pool_layout(ctx, self, spatial));
    return {type};
  };
}

/// Number of elements that the mean divides by, as a scalar.
ScalarId divisor(LoopBuilder& b, std::span<const Expr> out, const TensorType& self, const Window& w, bool include_pad,
                 DType dtype) {
  ExprContext& ctx = b.ctx();
  const size_t lead = out.size() - w.kernel.size();
  Expr count = ctx.constant(1);
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    if ((w.padding[d] == 0 || include_pad) && !w.ceil) {
      count = ctx.mul(count, ctx.constant(w.kernel[d]));
      continue;
    }
    const Expr size = self.sizes[lead + d];
    const Expr start = out[lead + d] * w.stride[d] - w.padding[d];
    const Expr end = ctx.min(start + w.kernel[d], size + w.padding[d]);
    const Expr extent =
        include_pad ? ctx.sub(end, start) : ctx.sub(ctx.min(end, size), ctx.max(start, ctx.constant(0)));
    count = ctx.mul(count, extent);
  }
  return count.is_const() ? b.constant(static_cast<double>(count.const_value()), dtype) : b.index_value(count, dtype);
}

LowerFn lower_avg(size_t spatial) {
  return [=](LowerContext& ctx) {
    const Args args(ctx);
    const TensorType self = ctx.operand(0);
    const Window w = read_window(args, spatial, -1, 4);
    const bool include_pad = args.flag(5);
    const std::optional<double> fixed = args.none(6) ? std::nullopt : std::optional<double>(args.number(6));
    if (fixed && *fixed == 0) throw InvalidArgument("divisor must be not zero");
    const DType dtype = compute_dtype(self.dtype);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      const Calc calc{b, dtype};
      ScalarId sum = loops::kNoScalar;
      for_each_tap(b, out, self, w, [&](int64_t, const std::vector<Expr>& at, ScalarId mask) {
        const ScalarId x = load_if(b, 0, at, mask, calc.c(0));
        sum = sum == loops::kNoScalar ? x : calc.add(sum, x);
      });
      return calc.div(sum, fixed ? calc.c(*fixed) : divisor(b, out, self, w, include_pad, dtype));
    });
  };
}

// ---- Adaptive average --------------------------------------------------------------------------------------------------

std::vector<Expr> adaptive_sizes(const MetaContext& m, const TensorType& self, size_t spatial) {
  const size_t rank = self.sizes.size();
  if (rank != spatial + 1 && rank != spatial + 2) throw InvalidArgument("adaptive pooling: input of the wrong rank");
  std::vector<Expr> sizes = self.sizes;
  std::vector<Expr> wanted = m.ints(1);
  if (wanted.size() == 1) wanted.assign(spatial, wanted[0]);
  if (wanted.size() != spatial) throw InvalidArgument("adaptive pooling: output_size has the wrong length");
  for (size_t d = 0; d < spatial; ++d) {
    if (is_zero(m.ctx(), sizes[rank - spatial + d])) throw Unsupported("pooling of an empty tensor runs in eager");
    sizes[rank - spatial + d] = wanted[d];
  }
  return sizes;
}

/// Elements of the longest window from `in` to `out` places; 0 when not known.
int64_t longest(Expr in, Expr out) {
  if (!in.is_const() || !out.is_const() || out.const_value() <= 0) return 0;
  const int64_t n = in.const_value();
  const int64_t k = out.const_value();
  int64_t most = 0;
  for (int64_t i = 0; i < k; ++i) most = std::max(most, ((i + 1) * n + k - 1) / k - i * n / k);
  return most;
}

bool uniform(ExprContext& ctx, const TensorType& self, const std::vector<Expr>& sizes, size_t spatial) {
  for (size_t d = sizes.size() - spatial; d < sizes.size(); ++d) {
    if (!sizes[d].is_const() || sizes[d].const_value() <= 0) return false;
    if (sizes[d].is_const(1)) continue;
    if (!is_zero(ctx, ctx.mod(self.sizes[d], sizes[d]))) return false;
  }
  return true;
}

MetaFn adaptive_meta(size_t spatial) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    ExprContext& ctx = m.ctx();
    const TensorType& self = m.tensor(0);
    if (!is_floating(self.dtype)) throw InvalidArgument("adaptive_avg_pool: not implemented for this dtype");
    std::vector<Expr> sizes = adaptive_sizes(m, self, spatial);
    if (!uniform(ctx, self, sizes, spatial)) {
      int64_t taps = 1;
      for (size_t d = sizes.size() - spatial; d < sizes.size(); ++d) taps *= longest(self.sizes[d], sizes[d]);
      if (taps == 0 || taps > kMaxTaps) throw Unsupported("adaptive pooling with such windows runs in eager");
    }
    if (spatial == 1) return {through_2d(ctx, self, sizes, self.dtype)};
    TensorType type = contiguous_type(ctx, self.dtype, self.device, sizes);
    bool ones = true;
    for (size_t d = sizes.size() - spatial; d < sizes.size(); ++d) ones = ones && sizes[d].is_const(1);
    const Layout layout = pool_layout(ctx, self, spatial);
    if (spatial == 2 || ones) type.strides = layout_strides(ctx, sizes, layout);
    return {type};
  };
}

/// Windows of equal length are a mean over split dimensions.
Values decompose_adaptive(GraphBuilder& b, std::span<const Arg> arguments, size_t spatial) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  const TensorType self = args.type(0);
  std::vector<Expr> wanted = args.exprs(1);
  if (wanted.size() == 1) wanted.assign(spatial, wanted[0]);
  std::vector<Expr> sizes = self.sizes;
  const size_t lead = sizes.size() - spatial;
  for (size_t d = 0; d < spatial; ++d) sizes[lead + d] = wanted[d];
  if (!uniform(ctx, self, sizes, spatial)) return {};
  std::vector<Expr> split(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(lead));
  std::vector<int64_t> dims;
  for (size_t d = lead; d < sizes.size(); ++d) {
    split.push_back(sizes[d]);
    dims.push_back(static_cast<int64_t>(split.size()));
    split.push_back(ctx.floordiv(self.sizes[d], sizes[d]));
  }
  return {b.reduce("mean", b.reshape(args.tensor(0), split), dims, false)};
}

LowerFn lower_adaptive(size_t spatial) {
  return [=](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const std::vector<Expr> sizes = ctx.result().sizes;
    const DType dtype = compute_dtype(self.dtype);
    const size_t lead = sizes.size() - spatial;
    std::vector<int64_t> most;
    int64_t taps = 1;
    for (size_t d = lead; d < sizes.size(); ++d) {
      most.push_back(longest(self.sizes[d], sizes[d]));
      taps *= most.back();
    }
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      ExprContext& ec = b.ctx();
      const Calc calc{b, dtype};
      std::vector<Expr> start(spatial);
      std::vector<Expr> end(spatial);
      Expr count = ec.constant(1);
      for (size_t d = 0; d < spatial; ++d) {
        const Expr in = self.sizes[lead + d];
        start[d] = ec.floordiv(ec.mul(out[lead + d], in), sizes[lead + d]);
        end[d] = ec.ceildiv(ec.mul(out[lead + d] + 1, in), sizes[lead + d]);
        count = ec.mul(count, ec.sub(end[d], start[d]));
      }
      ScalarId sum = loops::kNoScalar;
      for (int64_t tap = 0; tap < taps; ++tap) {
        std::vector<Expr> at(out.begin(), out.end());
        ScalarId mask = loops::kNoScalar;
        int64_t rest = tap;
        for (size_t d = spatial; d-- > 0;) {
          at[lead + d] = start[d] + rest % most[d];
          rest /= most[d];
          mask = logical_and(b, mask, in_range(b, at[lead + d], ec.constant(0), end[d]));
        }
        const ScalarId x = load_if(b, 0, at, mask, calc.c(0));
        sum = sum == loops::kNoScalar ? x : calc.add(sum, x);
      }
      return calc.div(sum, b.index_value(count, dtype));
    });
  };
}

constexpr const char* kMaxArgs[] = {
    "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False)",
    "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False)",
    "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False)",
};
constexpr const char* kAvgSchemas[] = {
    "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True) -> Tensor",
    "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True, int? divisor_override=None) -> Tensor",
};
constexpr const char* kMaxPython[] = {"torch.max_pool1d", "torch.max_pool2d", "torch.max_pool3d"};
constexpr const char* kMaxIndexPython[] = {"torch.max_pool1d_with_indices", "torch._C._nn.max_pool2d_with_indices",
                                           "torch._C._nn.max_pool3d_with_indices"};
constexpr const char* kAvgPython[] = {"torch.avg_pool1d", "torch._C._nn.avg_pool2d", "torch._C._nn.avg_pool3d"};
constexpr const char* kAdaptivePython[] = {"torch.adaptive_avg_pool1d", "torch._C._nn.adaptive_avg_pool2d",
                                           "torch._C._nn.adaptive_avg_pool3d"};

}  // namespace

void register_pool(OpRegistry& r) {
  const auto kind = OpKind::kIndexing;
  OpDef gradient = make_op({"_max_pool_gradient", kind,
                            "(Tensor grad, Tensor indices, SymInt[] size, int[] kernel_size, int[] stride, int[] "
                            "padding, int[] dilation) -> Tensor",
                            ""},
                           max_gradient_meta, nullptr, lower_max_gradient);
  gradient.vjp = max_gradient_rule;
  r.add(std::move(gradient));
  for (size_t spatial = 1; spatial <= 3; ++spatial) {
    const size_t i = spatial - 1;
    const auto add = [&](std::string name, OpKind op_kind, std::string schema, const char* python, MetaFn meta,
                         DecomposeFn decompose, LowerFn lower) {
      r.add(make_op({name.c_str(), op_kind, schema.c_str(), python}, std::move(meta), std::move(decompose),
                    std::move(lower)));
    };
    add(str_cat("max_pool", spatial, "d"), kind, str_cat(kMaxArgs[i], " -> Tensor"), kMaxPython[i],
        max_meta(spatial, false), nullptr, lower_max(spatial, false));
    add(str_cat("max_pool", spatial, "d_with_indices"), kind, str_cat(kMaxArgs[i], " -> (Tensor, Tensor)"),
        kMaxIndexPython[i], max_meta(spatial, true), nullptr, lower_max(spatial, true));
    add(str_cat("avg_pool", spatial, "d"), kind, kAvgSchemas[i], kAvgPython[i], avg_meta(spatial), nullptr,
        lower_avg(spatial));
    add(
        str_cat("adaptive_avg_pool", spatial, "d"), kind,
        str_cat("(Tensor self, SymInt[", spatial, "] output_size) -> Tensor"), kAdaptivePython[i],
        adaptive_meta(spatial),
        [spatial](GraphBuilder& b, std::span<const Arg> args) { return decompose_adaptive(b, args, spatial); },
        lower_adaptive(spatial));
    if (spatial == 1) continue;  // the host lays its gradient out otherwise
    for (const char* results : {"d", "d_with_indices"})
      r.amend(str_cat("max_pool", spatial, results)).vjp = max_rule(spatial);
  }
}

}  // namespace tatara
