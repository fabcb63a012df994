// Sampling of images at computed places: grid_sample, sliding windows as columns, the largest of adaptive windows, and the
// inverse of max pooling.
#include <limits>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- grid_sampler ----------------------------------------------------------------------------------------------------

// torch's numbers of the modes.
constexpr int64_t kBilinear = 0;
constexpr int64_t kNearest = 1;
constexpr int64_t kZeros = 0;
constexpr int64_t kReflection = 2;

MetaFn grid_meta(size_t spatial) {
  return [spatial](MetaContext& m) -> std::vector<TensorType> {
    ExprContext& ctx = m.ctx();
    const TensorType& input = m.tensor(0);
    const TensorType& grid = m.tensor(1);
    if (input.sizes.size() != grid.sizes.size() || !is_floating(input.dtype) || input.dtype != grid.dtype) {
      throw InvalidArgument("grid_sampler(): expected input and grid of the same rank and dtype");
    }
    if (input.sizes.size() != spatial + 2) throw Unsupported("grid_sampler of another rank");
    if (!same_size(ctx, input.sizes[0], grid.sizes[0]) ||
        !same_size(ctx, grid.sizes.back(), ctx.constant(static_cast<int64_t>(spatial)))) {
      throw InvalidArgument("grid_sampler(): expected a grid with one coordinate per dimension");
    }
    if (m.integer(2) != kBilinear && m.integer(2) != kNearest) throw Unsupported("bicubic grid_sampler");
    if (m.integer(3) < kZeros || m.integer(3) > kReflection) throw Unsupported("grid_sampler with an unknown padding");
    for (size_t d = 0; d < spatial; ++d) {
      if (is_zero(ctx, input.sizes[d + 2]))
        throw InvalidArgument("grid_sampler(): expected input to have no empty dimension");
    }
    std::vector<Expr> sizes{input.sizes[0], input.sizes[1]};
    sizes.insert(sizes.end(), grid.sizes.begin() + 1, grid.sizes.end() - 1);
    TensorType type = contiguous_type(ctx, input.dtype, input.device, std::move(sizes));
    if (spatial == 2) type.strides = layout_strides(ctx, type.sizes, suggested_layout(ctx, input));
    return {type};
  };
}

struct Grid {
  int64_t mode;
  int64_t padding;
  bool align;
};

/// x reflected into [low/2, high/2].
ScalarId reflect(const Calc& c, ScalarId x, ScalarId twice_low, ScalarId twice_high) {
  const ScalarId least = c.div(twice_low, c.c(2));
  const ScalarId span = c.div(c.sub(twice_high, twice_low), c.c(2));
  const ScalarId far = c.un(ScalarOp::kAbs, c.sub(x, least));
  const ScalarId extra = c.bin(ScalarOp::kFmod, far, span);
  const ScalarId flips = c.un(ScalarOp::kFloor, c.div(far, span));
  const ScalarId odd = c.cmp(ScalarOp::kNe, c.bin(ScalarOp::kFmod, flips, c.c(2)), c.c(0));
  const ScalarId inside = c.select(odd, c.add(c.sub(span, extra), least), c.add(extra, least));
  return c.select(c.cmp(ScalarOp::kEq, twice_low, twice_high), c.c(0), inside);
}

/// A coordinate in [-1, 1] as a place among `size` elements, padded.
ScalarId place(LoopBuilder& b, const Calc& c, ScalarId x, Expr size, const Grid& grid) {
  const ScalarId n = b.index_value(size, c.t);
  const ScalarId last = c.sub(n, c.c(1));
  const ScalarId shifted = c.add(x, c.c(1));
  ScalarId at = grid.align ? c.mul(c.div(shifted, c.c(2)), last) : c.div(c.sub(c.mul(shifted, n), c.c(1)), c.c(2));
  if (grid.padding == kZeros) return at;
  if (grid.padding == kReflection) {
    at = grid.align ? reflect(c, at, c.c(0), c.mul(c.c(2), last))
                    : reflect(c, at, c.c(-1), c.sub(c.mul(c.c(2), n), c.c(1)));
  }
  return c.min(last, c.max(at, c.c(0)));
}

struct Tap {
  Expr index;
  ScalarId inside;
};

/// A whole number as an index, and whether it is one of `size`.
Tap tap_at(LoopBuilder& b, const Calc& c, ScalarId x, Expr size) {
  const ScalarId n = b.index_value(size, c.t);
  // Far places and NaN must not reach the conversion to an integer.
  const ScalarId near = c.select(c.cmp(ScalarOp::kGe, x, c.c(-1)), c.min(x, n), c.c(-1));
  const Calc i{b, DType::kInt64};
  const ScalarId whole = b.cast(near, DType::kInt64);
  const ScalarId count = b.index_value(size, DType::kInt64);
  const ScalarId inside = logical_and(b, i.cmp(ScalarOp::kGe, whole, i.c(0)), i.cmp(ScalarOp::kLt, whole, count));
  const ScalarId safe = i.max(i.min(whole, i.sub(count, i.c(1))), i.c(0));
  return {b.indirect(safe, size, false, false), inside};
}

LowerFn lower_grid(size_t spatial) {
  return [spatial](LowerContext& ctx) {
    const TensorType input = ctx.operand(0);
    const Args args(ctx);
    const Grid grid{args.integer(2), args.integer(3), args.flag(4)};
    const DType dtype = compute_dtype(input.dtype);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
      const Calc c{b, dtype};
      std::vector<std::vector<Tap>> taps(spatial);
      std::vector<ScalarId> weight(spatial);
      for (size_t d = 0; d < spatial; ++d) {
        // The grid's last dimension counts from the innermost dimension of the image.
        std::vector<Expr> at{out[0]};
        at.insert(at.end(), out.begin() + 2, out.end());
        at.push_back(b.ctx().constant(static_cast<int64_t>(spatial - 1 - d)));
        const Expr size = input.sizes[d + 2];
        const ScalarId x = place(b, c, b.load(1, at), size, grid);
        if (grid.mode == kNearest) {
          taps[d] = {tap_at(b, c, c.un(ScalarOp::kRound, x), size)};
        } else {
          const ScalarId base = c.un(ScalarOp::kFloor, x);
          weight[d] = c.sub(x, base);
          taps[d] = {tap_at(b, c, base, size), tap_at(b, c, c.add(base, c.c(1)), size)};
        }
      }
      ScalarId sum = loops::kNoScalar;
      const size_t corners = grid.mode == kNearest ? 1 : size_t{1} << spatial;
      for (size_t corner = 0; corner < corners; ++corner) {
        std::vector<Expr> at{out[0], out[1]};
        ScalarId factor = loops::kNoScalar, inside = loops::kNoScalar;
        for (size_t d = 0; d < spatial; ++d) {
          const size_t second = (corner >> d) & 1U;
          at.push_back(taps[d][second].index);
          inside = logical_and(b, inside, taps[d][second].inside);
          if (grid.mode == kNearest) continue;
          const ScalarId part = second != 0 ? weight[d] : c.sub(c.c(1), weight[d]);
          factor = factor == loops::kNoScalar ? part : c.mul(factor, part);
        }
        const ScalarId value = b.load_masked(0, at, inside, c.c(0));
        if (grid.mode == kNearest) return value;
        const ScalarId term = c.select(inside, c.mul(factor, value), c.c(0));
        sum = sum == loops::kNoScalar ? term : c.add(sum, term);
      }
      return sum;
    });
  };
}

Choice grid_sampler(MetaContext& m) {
  const char* name = m.tensor(0).dim() == 5 ? "grid_sampler_3d" : "grid_sampler_2d";
  return {name, {m.arg(0), m.arg(1), m.arg(2), m.arg(3), m.arg(4)}};
}

// ---- im2col ----------------------------------------------------------------------------------------------------------

struct Windows {
  std::vector<int64_t> kernel, dilation, padding, stride;
  std::vector<Expr> count;  // windows per dimension
};

Windows windows_of(const Args& args, ExprContext& ctx, const TensorType& self) {
  Windows w{args.integers(1), args.integers(2), args.integers(3), args.integers(4), {}};
  if (self.dim() != 3 && self.dim() != 4) throw InvalidArgument("im2col: expected a tensor of 3 or 4 dimensions");
  for (std::vector<int64_t>* list : {&w.kernel, &w.dilation, &w.padding, &w.stride}) {
    if (list->size() == 1) list->push_back(list->front());
  }
  for (size_t d = 0; d < 2; ++d) {
    if (w.kernel[d] <= 0 || w.dilation[d] <= 0 || w.padding[d] < 0 || w.stride[d] <= 0) {
      throw InvalidArgument("im2col: kernel, dilation and stride must be positive");
    }
    const Expr size = self.sizes[self.sizes.size() - 2 + d];
    const int64_t reach = w.dilation[d] * (w.kernel[d] - 1) + 1;
    const Expr room = ctx.sub(ctx.add(size, ctx.constant(2 * w.padding[d])), ctx.constant(reach));
    if (!ctx.guard(ctx.le(ctx.constant(0), room))) throw InvalidArgument("im2col: the windows do not fit");
    w.count.push_back(ctx.simplify(ctx.add(ctx.floordiv(room, ctx.constant(w.stride[d])), ctx.constant(1))));
  }
  return w;
}

std::vector<TensorType> im2col_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& self = m.tensor(0);
  const Windows w = windows_of(Args(m), ctx, self);
  std::vector<Expr> sizes;
  if (self.dim() == 4) sizes.push_back(self.sizes[0]);
  sizes.push_back(ctx.mul(self.sizes[self.sizes.size() - 3], ctx.constant(w.kernel[0] * w.kernel[1])));
  sizes.push_back(ctx.mul(w.count[0], w.count[1]));
  return {contiguous_type(ctx, self.dtype, self.device, std::move(sizes))};
}

void lower_im2col(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  const Windows w = windows_of(Args(ctx), ctx.ctx(), self);
  const DType dtype = compute_dtype(self.dtype);
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    const Expr k = out[out.size() - 2], window = out.back();
    const int64_t area = w.kernel[0] * w.kernel[1];
    std::vector<Expr> at(out.begin(), out.end() - 2);
    at.push_back(ec.simplify(ec.floordiv(k, ec.constant(area))));
    const Expr tap[] = {ec.simplify(ec.mod(ec.floordiv(k, ec.constant(w.kernel[1])), ec.constant(w.kernel[0]))),
                        ec.simplify(ec.mod(k, ec.constant(w.kernel[1])))};
    const Expr start[] = {ec.simplify(ec.floordiv(window, w.count[1])), ec.simplify(ec.mod(window, w.count[1]))};
    ScalarId mask = loops::kNoScalar;
    for (size_t d = 0; d < 2; ++d) {
      const Expr from = ec.mul(start[d], ec.constant(w.stride[d]));
      const Expr place_at = ec.sub(ec.add(from, ec.mul(tap[d], ec.constant(w.dilation[d]))), ec.constant(w.padding[d]));
      at.push_back(ec.simplify(place_at));
      mask = logical_and(b, mask, in_range(b, at.back(), ec.constant(0), self.sizes[self.sizes.size() - 2 + d]));
    }
    return load_if(b, 0, at, mask, Calc{b, dtype}.c(0));
  });
}

// ---- adaptive_max_pool -----------------------------------------------------------------------------------------------

constexpr int64_t kMaxTaps = 64;

/// Longest window of `in` elements split into `out`.
int64_t longest(int64_t in, int64_t out) {
  int64_t most = 0;
  for (int64_t i = 0; i < out; ++i) most = std::max(most, ((i + 1) * in + out - 1) / out - i * in / out);
  return most;
}

struct Adaptive {
  size_t lead = 0;
  std::vector<int64_t> in, out, most;
  int64_t taps = 1;
};

Adaptive adaptive_of(ExprContext& ctx, const Args& args, const TensorType& self, size_t spatial) {
  if (self.sizes.size() != spatial + 1 && self.sizes.size() != spatial + 2) {
    throw InvalidArgument("adaptive pooling: input of the wrong rank");
  }
  Adaptive a;
  a.lead = self.sizes.size() - spatial;
  a.out = args.integers(1);
  if (a.out.size() == 1) a.out.assign(spatial, a.out[0]);
  if (a.out.size() != spatial) throw InvalidArgument("adaptive pooling: output_size has the wrong length");
  for (size_t d = 0; d < spatial; ++d) {
    a.in.push_back(concrete(ctx, {self.sizes[a.lead + d]})[0]);
    if (a.in[d] <= 0 || a.out[d] <= 0) throw Unsupported("adaptive pooling of an empty dimension");
    a.most.push_back(longest(a.in[d], a.out[d]));
    a.taps *= a.most[d];
  }
  if (a.taps > kMaxTaps) throw Unsupported("adaptive pooling with such large windows");
  return a;
}

MetaFn adaptive_max_meta(size_t spatial) {
  return [spatial](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    if (!is_floating(self.dtype)) throw Unsupported("adaptive_max_pool of this dtype");
    const Adaptive a = adaptive_of(m.ctx(), Args(m), self, spatial);
    std::vector<Expr> sizes(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(a.lead));
    for (const int64_t n : a.out) sizes.push_back(m.ctx().constant(n));
    TensorType values = contiguous_type(m.ctx(), self.dtype, self.device, std::move(sizes));
    if (spatial == 2) values.strides = layout_strides(m.ctx(), values.sizes, suggested_layout(m.ctx(), self));
    TensorType indices = values;
    indices.dtype = DType::kInt64;
    return {values, indices};
  };
}

/// The largest of a window (NaN wins, the first of equals) and its place in the plane.
struct Largest {
  ScalarId value;
  ScalarId place;
};

Largest largest_of(LoopBuilder& b, const Adaptive& a, const TensorType& self, std::span<const Expr> out) {
  ExprContext& ec = b.ctx();
  const Calc c{b, compute_dtype(self.dtype)};
  std::vector<Expr> start, end;
  for (size_t d = 0; d < a.in.size(); ++d) {
    const Expr i = out[a.lead + d];
    start.push_back(ec.simplify(ec.floordiv(ec.mul(i, ec.constant(a.in[d])), ec.constant(a.out[d]))));
    end.push_back(ec.simplify(ec.ceildiv(ec.mul(i + 1, ec.constant(a.in[d])), ec.constant(a.out[d]))));
  }
  const ScalarId low = c.c(-std::numeric_limits<double>::infinity());
  Largest best{low, loops::kNoScalar};
  for (int64_t tap = 0; tap < a.taps; ++tap) {
    std::vector<Expr> at(out.begin(), out.end());
    ScalarId mask = loops::kNoScalar;
    Expr linear = ec.constant(0);
    std::vector<int64_t> step(a.in.size());
    int64_t rest = tap;
    for (size_t d = a.in.size(); d-- > 0;) {
      step[d] = rest % a.most[d];
      rest /= a.most[d];
    }
    for (size_t d = 0; d < a.in.size(); ++d) {
      at[a.lead + d] = start[d] + step[d];
      linear = ec.add(ec.mul(linear, ec.constant(a.in[d])), at[a.lead + d]);
      mask = logical_and(b, mask, in_range(b, at[a.lead + d], ec.constant(0), end[d]));
    }
    const ScalarId x = load_if(b, 0, at, mask, low);
    const ScalarId here = b.index_value(ec.simplify(linear), DType::kInt64);
    if (tap == 0) {
      best = {x, here};
      continue;
    }
    const ScalarId wins = logical_or(b, c.cmp(ScalarOp::kGt, x, best.value), c.un(ScalarOp::kIsNan, x));
    best = {c.select(wins, x, best.value), c.select(wins, here, best.place)};
  }
  return best;
}

LowerFn lower_adaptive_max(size_t spatial) {
  return [spatial](LowerContext& ctx) {
    const TensorType self = ctx.operand(0);
    const Adaptive a = adaptive_of(ctx.ctx(), Args(ctx), self, spatial);
    ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) { return largest_of(b, a, self, out).value; });
    ctx.pointwise(1, [=](LoopBuilder& b, std::span<const Expr> out) { return largest_of(b, a, self, out).place; });
  };
}

// ---- max_unpool ------------------------------------------------------------------------------------------------------

DecomposeFn max_unpool(size_t spatial) {
  return [spatial](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const TensorType self = args.type(0);
    if (args.type(1).dtype != DType::kInt64) throw InvalidArgument("elements in indices should be type int64");
    if (self.sizes.size() != spatial + 1 && self.sizes.size() != spatial + 2) {
      throw InvalidArgument("max_unpool: input of the wrong rank");
    }
    if (!same_sizes(b.ctx(), self.sizes, args.type(1).sizes)) {
      throw InvalidArgument("max_unpool: expected shape of indices to be that of the input");
    }
    if (suggested_layout(b.ctx(), self) != Layout::kContiguous) throw Unsupported("max_unpool of channels last");
    const size_t lead = self.sizes.size() - spatial;
    std::vector<Expr> sizes(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(lead));
    const Expr planes = product(b.ctx(), sizes);
    const Expr cells = product(b.ctx(), std::span(self.sizes).subspan(lead));
    const std::vector<Expr> wanted = args.exprs(2);
    if (wanted.size() != spatial) throw InvalidArgument("max_unpool: output_size has the wrong length");
    sizes.insert(sizes.end(), wanted.begin(), wanted.end());
    const Expr room = product(b.ctx(), wanted);
    const Scalar zero = is_floating(self.dtype) ? Scalar(0.0) : Scalar(int64_t{0});
    const ValueId empty = b.op("full", {SymInts{{planes, room}}, zero, self.dtype, NoneArg{}, self.device});
    const ValueId values = b.reshape(args.tensor(0), {planes, cells});
    const ValueId places = b.reshape(args.tensor(1), {planes, cells});
    const ValueId filled = b.op("scatter.src", {TensorArg{empty}, int_arg(1), TensorArg{places}, TensorArg{values}});
    return {b.reshape(filled, sizes)};
  };
}

}  // namespace

void register_sampling(OpRegistry& r) {
  const char* grid =
      "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor";
  r.add(make_op({"grid_sampler_2d", OpKind::kIndexing, grid, "torch.grid_sampler_2d"}, grid_meta(2), nullptr,
                lower_grid(2)));
  r.add(make_op({"grid_sampler_3d", OpKind::kIndexing, grid, "torch.grid_sampler_3d"}, grid_meta(3), nullptr,
                lower_grid(3)));
  OpDef either = make_op({"grid_sampler", OpKind::kComposite, grid, "torch.grid_sampler"}, nullptr);
  either.choose = grid_sampler;
  r.add(std::move(either));
  r.add(make_op({"im2col", OpKind::kIndexing,
                 "(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
                 "torch._C._nn.im2col"},
                im2col_meta, nullptr, lower_im2col));
  constexpr const char* kPools[] = {"torch.adaptive_max_pool1d", "torch._C._nn.adaptive_max_pool2d",
                                    "torch._C._nn.adaptive_max_pool3d"};
  for (size_t spatial = 1; spatial <= 3; ++spatial) {
    const std::string name = str_cat("adaptive_max_pool", spatial, "d");
    const std::string schema = str_cat("(Tensor self, int[", spatial, "] output_size) -> (Tensor, Tensor)");
    r.add(make_op({name.c_str(), OpKind::kIndexing, schema.c_str(), kPools[spatial - 1]}, adaptive_max_meta(spatial),
                  nullptr, lower_adaptive_max(spatial)));
  }
  r.add(make_op({"max_unpool2d", OpKind::kComposite, "(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
                 "torch._C._nn.max_unpool2d"},
                nullptr, max_unpool(2)));
  r.add(make_op({"max_unpool3d", OpKind::kComposite,
                 "(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
                 "torch._C._nn.max_unpool3d"},
                nullptr, max_unpool(3)));
}

}  // namespace tatara
