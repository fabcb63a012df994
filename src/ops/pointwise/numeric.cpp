// Numerical composites: integrals over samples, distances, products of vectors, membership, writes by index.
#include <algorithm>

#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- trapezoid -------------------------------------------------------------------------------------------------------

struct Halves {
  ValueId left;
  ValueId right;
};

Halves halves(GraphBuilder& b, ValueId x, int64_t dim) {
  ExprContext& ctx = b.ctx();
  const Expr size = b.type(x).sizes.at(static_cast<size_t>(dim));
  const Expr one = ctx.constant(1);
  return {b.slice(x, dim, ctx.constant(0), ctx.sub(size, one), one), b.slice(x, dim, one, size, one)};
}

void refuse_bool(const Args& args, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (args.type(i).dtype == DType::kBool) throw InvalidArgument("received a bool input for `x` or `y`");
  }
}

/// x as it takes part: along `dim` when it is a vector, else with leading dimensions of one.
ValueId abscissa(GraphBuilder& b, const Args& args, int64_t dim) {
  ExprContext& ctx = b.ctx();
  const TensorType& y = args.type(0);
  const TensorType& x = args.type(1);
  std::vector<Expr> sizes(y.sizes.size(), ctx.constant(1));
  if (x.dim() == 1) {
    if (!same_size(ctx, x.sizes[0], y.sizes[static_cast<size_t>(dim)])) {
      throw InvalidArgument("There must be one `x` value for each sample point");
    }
    sizes[static_cast<size_t>(dim)] = x.sizes[0];
    return b.reshape(args.tensor(1), sizes);
  }
  if (x.dim() >= y.dim()) return args.tensor(1);
  std::copy(x.sizes.begin(), x.sizes.end(), sizes.end() - x.dim());
  return b.reshape(args.tensor(1), sizes);
}

/// `x`: the second argument is a tensor of places; else a number, the distance between samples.
DecomposeFn trapezoid(bool x) {
  return [x](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const ValueId y = args.tensor(0);
    if (args.rank(0) == 0) throw Unsupported("trapezoid of a tensor without dimensions");
    const int64_t dim = args.dim(2, args.rank(0));
    if (is_zero(b.ctx(), args.type(0).sizes[static_cast<size_t>(dim)])) throw Unsupported("trapezoid of no samples");
    refuse_bool(args, x ? 2 : 1);
    if (x) {
      const ValueId places = abscissa(b, args, dim);
      const Halves at = halves(b, places, b.type(places).dim() - (args.rank(0) - dim));
      const Halves value = halves(b, y, dim);
      const ValueId area =
          b.binary("mul", b.binary("add", value.left, value.right), b.binary("sub", at.right, at.left));
      return {b.binary("div", b.reduce("sum", area, {dim}, false), Scalar(2.0))};
    }
    const auto end = [&](int64_t i) { return b.op("select", {TensorArg{y}, int_arg(dim), int_arg(i)}); };
    const ValueId ends = b.binary("mul", b.binary("add", end(0), end(-1)), Scalar(0.5));
    return {b.binary("mul", b.binary("sub", b.reduce("sum", y, {dim}, false), ends), Scalar(args.number(1)))};
  };
}

DecomposeFn cumulative_trapezoid(bool x) {
  return [x](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    if (args.rank(0) == 0) throw Unsupported("cumulative_trapezoid of a tensor without dimensions");
    const int64_t dim = args.dim(2, args.rank(0));
    refuse_bool(args, x ? 2 : 1);
    const Halves value = halves(b, args.tensor(0), dim);
    const ValueId sum = b.binary("add", value.left, value.right);
    if (x) {
      const ValueId places = abscissa(b, args, dim);
      const Halves at = halves(b, places, b.type(places).dim() - (args.rank(0) - dim));
      const ValueId area = b.binary("mul", sum, b.binary("sub", at.right, at.left));
      return {b.binary("div", b.op("cumsum", {TensorArg{area}, int_arg(dim)}), Scalar(2.0))};
    }
    return {b.op("cumsum", {TensorArg{b.binary("mul", sum, Scalar(args.number(1) / 2.0))}, int_arg(dim)})};
  };
}

// ---- distances -------------------------------------------------------------------------------------------------------

ValueId norm_of(GraphBuilder& b, ValueId x, double p, const std::vector<int64_t>& dims, bool keepdim) {
  const Arg over = dims.empty() ? Arg(NoneArg{}) : ints_arg(b.ctx(), dims);
  return b.op("linalg_vector_norm", {TensorArg{x}, Scalar(p), over, bool_arg(keepdim)});
}

Values decompose_dist(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {norm_of(b, b.binary("sub", args.tensor(0), args.tensor(1)), args.number(2), {}, false)};
}

Values decompose_cdist(GraphBuilder& b, std::span<const Arg> arguments) {
  // (x1, x2, p, compute_mode)
  const Args args(b, arguments);
  if (args.rank(0) < 2 || args.rank(1) < 2) throw InvalidArgument("cdist only supports at least 2D tensors");
  const auto& left = args.type(0).sizes;
  const auto& right = args.type(1).sizes;
  const Expr rows = left[left.size() - 2], columns = right[right.size() - 2];
  const double p = args.number(2);
  if (!rows.is_const() || !columns.is_const()) throw Unsupported("cdist of symbolic sizes");
  const int64_t mode = args.none(3) ? 0 : args.integer(3);
  // Where eager goes by a matrix product, which pays off.
  constexpr int64_t kProductRows = 25;
  const bool large = rows.const_value() > kProductRows || columns.const_value() > kProductRows;
  if (p == 2 && (mode == 1 || (mode == 0 && large))) throw Unsupported("cdist by a matrix product runs by the host");
  for (const Expr size : {rows, columns, left.back()}) {
    if (is_zero(b.ctx(), size)) throw Unsupported("cdist of an empty tensor");
  }
  const ValueId x = b.unsqueeze(args.tensor(0), -2);
  const ValueId y = b.unsqueeze(args.tensor(1), -3);
  const ValueId distance = norm_of(b, b.binary("sub", x, y), p, {-1}, false);
  // A count has no gradient; that of cdist is zeros in eager.
  return {p == 0 ? tied(b, distance, {args.tensor(0), args.tensor(1)}) : distance};
}

Values decompose_renorm(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, p, dim, maxnorm)
  const Args args(b, arguments);
  const int64_t dim = args.dim(2, args.rank(0));
  const double p = args.number(1);
  const double limit = args.number(3);
  if (args.rank(0) < 2) throw InvalidArgument("renorm: input needs at least 2 dimensions");
  if (p <= 0 || limit < 0) throw InvalidArgument("renorm: non-positive norm degree or negative maxnorm");
  const DType dtype = args.type(0).dtype;
  if (!is_floating(dtype)) throw Unsupported("renorm of this dtype");
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < args.rank(0); ++d) {
    if (d != dim) dims.push_back(d);
  }
  const ValueId norm = norm_of(b, b.cast(args.tensor(0), compute_dtype(dtype)), p, dims, true);
  constexpr double kEps = 1e-7;
  const ValueId limits = b.constant(limit, b.type(norm).dtype, b.type(norm).device);
  const ValueId factor =
      b.where(b.binary("gt", norm, Scalar(limit)), b.binary("div", limits, b.binary("add", norm, Scalar(kEps))),
              b.constant(1, b.type(norm).dtype, b.type(norm).device));
  const ValueId product = b.binary("mul", args.tensor(0), b.cast(factor, dtype));
  return {contiguous_copy(b, product)};
}

// ---- products of vectors -----------------------------------------------------------------------------------------------

Values cross_along(GraphBuilder& b, ValueId x, ValueId y, int64_t dim) {
  const MetaContext m(b.graph(), OpRegistry::global().get("linalg_cross"), {}, b.default_dtype());
  const std::vector<Expr> xs = b.type(x).sizes, ys = b.type(y).sizes;
  if (xs.size() != ys.size()) throw InvalidArgument("linalg.cross: inputs must have the same number of dimensions.");
  const std::vector<const std::vector<Expr>*> shapes{&xs, &ys};
  const std::vector<Expr> sizes = m.broadcast(shapes);
  const auto d = static_cast<size_t>(wrap_dim(dim, static_cast<int64_t>(sizes.size())));
  if (xs.empty() || !xs[d].is_const(3) || !ys[d].is_const(3)) {
    throw InvalidArgument("linalg.cross: inputs dimension must have length 3");
  }
  const DType dtype = promote_types(b.type(x).dtype, b.type(y).dtype);
  const auto part = [&](ValueId of, int64_t i) {
    return b.op("select",
                {TensorArg{b.expand(b.cast(of, dtype), sizes)}, int_arg(static_cast<int64_t>(d)), int_arg(i)});
  };
  TensorList parts;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.values.push_back(
        b.binary("sub", b.binary("mul", part(x, j), part(y, k)), b.binary("mul", part(x, k), part(y, j))));
  }
  return {b.op("stack", {parts, int_arg(static_cast<int64_t>(d))})};
}

Values decompose_linalg_cross(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return cross_along(b, args.tensor(0), args.tensor(1), args.integer(2));
}

Values decompose_cross(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!args.none(2)) return cross_along(b, args.tensor(0), args.tensor(1), args.integer(2));
  for (int64_t d = 0; d < args.rank(0); ++d) {
    if (args.type(0).sizes[static_cast<size_t>(d)].is_const(3))
      return cross_along(b, args.tensor(0), args.tensor(1), d);
  }
  throw InvalidArgument("no dimension of size 3 in input");
}

Values decompose_vecdot(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.rank(0) == 1 && args.rank(1) == 1) throw Unsupported("a dot product runs by the host");
  if (is_complex(args.type(0).dtype) || is_complex(args.type(1).dtype)) throw Unsupported("vecdot of complex numbers");
  if (!is_floating(args.type(0).dtype) || !is_floating(args.type(1).dtype)) throw Unsupported("vecdot of integers");
  const ValueId product_of = b.binary("mul", args.tensor(0), args.tensor(1));
  return {b.reduce("sum", product_of, {args.dim(2, b.type(product_of).dim())}, false)};
}

Values decompose_linalg_vander(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType self = args.type(0);
  if (self.dim() == 0) throw Unsupported("vander of a tensor without dimensions");
  const Expr columns = args.none(1) ? self.sizes.back() : args.expr(1);
  if (!columns.is_const() || columns.const_value() <= 1) throw Unsupported("vander of so few columns");
  if (self.dtype == DType::kBool) throw Unsupported("vander of bool");
  std::vector<Expr> sizes = self.sizes;
  sizes.push_back(b.ctx().constant(columns.const_value() - 1));
  const ValueId repeated = b.op("expand", {TensorArg{b.unsqueeze(args.tensor(0), -1)}, SymInts{sizes}});
  const ValueId powers = b.op("cumprod", {TensorArg{repeated}, int_arg(-1)});
  sizes.back() = b.ctx().constant(1);
  const Scalar one =
      is_floating(b.type(powers).dtype) || is_complex(b.type(powers).dtype) ? Scalar(1.0) : Scalar(int64_t{1});
  const ValueId first = b.op("full", {SymInts{sizes}, one, b.type(powers).dtype, NoneArg{}, self.device});
  return {b.op("cat", {TensorList{{first, powers}}, int_arg(-1)})};
}

Values decompose_addr(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, vec1, vec2, beta, alpha)
  const Args args(b, arguments);
  if (args.rank(1) != 1 || args.rank(2) != 1) throw InvalidArgument("addr: Expected 1-D argument vec1 and vec2");
  const DType dtype = promote_types(args.type(0).dtype, promote_types(args.type(1).dtype, args.type(2).dtype));
  if (dtype == DType::kBool || is_complex(dtype)) throw Unsupported("addr of this dtype");
  for (const size_t i : {size_t{3}, size_t{4}}) {
    if (!args.is_tensor(i) && std::holds_alternative<bool>(args.scalar(i))) {
      throw InvalidArgument("Boolean beta and alpha only supported for Boolean results.");
    }
  }
  const auto number = [&](size_t i) { return args.quantity(i); };
  const auto factor = [&](size_t i) { return is_floating(dtype) ? number(i).arg() : Arg(Scalar(args.integer(i))); };
  const std::vector<Expr> sizes{args.type(1).sizes[0], args.type(2).sizes[0]};
  const ValueId self = b.op("expand", {TensorArg{b.cast(args.tensor(0), dtype)}, SymInts{sizes}});
  const ValueId column = b.op("mul", {TensorArg{b.unsqueeze(b.cast(args.tensor(1), dtype), 1)}, factor(4)});
  const ValueId outer = b.binary("mul", column, b.unsqueeze(b.cast(args.tensor(2), dtype), 0));
  if (number(3).is(0)) return {tied(b, outer, {args.tensor(0)})};  // of which eager has a gradient of zeros
  return {b.binary("add", b.op("mul", {TensorArg{self}, factor(3)}), outer)};
}

Values decompose_ldexp(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const TensorType self = args.type(0);
  if (is_integral(self.dtype) || self.dtype == DType::kBool) {
    return {b.binary("mul", args.tensor(0), b.op("rpow", {arguments[1], Scalar(2.0)}))};
  }
  // Eager's base is a tensor of the first operand's dtype.
  const ValueId power = b.binary("pow", b.constant(2.0, self.dtype, self.device), args.tensor(1));
  return {b.binary("mul", args.tensor(0), power)};
}

// ---- membership ------------------------------------------------------------------------------------------------------

// Comparing with each is what eager does too for few test elements; beyond it sorts, and so does the host call.
constexpr int64_t kFewElements = 64;

Values decompose_isin(GraphBuilder& b, std::span<const Arg> arguments) {
  // (elements, test_elements, assume_unique, invert)
  const Args args(b, arguments);
  const ValueId tests = args.tensor(1);
  const Expr count = product(b.ctx(), b.type(tests).sizes);
  if (!count.is_const() || count.const_value() > kFewElements || count.const_value() == 0) {
    throw Unsupported("isin with so many test elements");
  }
  const ValueId flat = b.op("reshape", {TensorArg{tests}, SymInts{{count}}});
  const ValueId equal = b.binary("eq", b.unsqueeze(args.tensor(0), -1), flat);
  const ValueId found = b.reduce("any", equal, {-1}, false);
  return {args.flag(3) ? b.unary("logical_not", found) : found};
}

Values decompose_isin_scalar(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId found = b.op(args.flag(3) ? "ne" : "eq", {arguments[0], arguments[1]});
  const std::vector<Expr> contiguous = contiguous_strides(b.ctx(), b.type(found).sizes);
  if (b.type(found).strides == contiguous) return {found};
  return {b.op("relayout", {TensorArg{found}, SymInts{contiguous}})};
}

/// Places among few boundaries by bisection, step by step as eager does it: boundaries that are not sorted give what they give
/// there. `boundaries` has one dimension, or those of `self` with another last size. (self, boundaries, out_int32, right)
Values bisect(GraphBuilder& b, ValueId self, ValueId boundaries, bool narrow, bool right) {
  const Expr count = b.type(boundaries).sizes.back();
  if (!count.is_const() || count.const_value() > kFewElements || count.const_value() == 0) {
    throw Unsupported("a search among so many boundaries");
  }
  const std::vector<Expr> sizes = b.type(self).sizes;
  const bool shared = b.type(boundaries).sizes.size() == 1;
  const auto at = [&](ValueId places) {
    if (!shared) return b.op("gather", {TensorArg{boundaries}, int_arg(-1), TensorArg{places}, Scalar(false)});
    const ValueId flat = b.reshape(places, {product(b.ctx(), sizes)});
    return b.reshape(b.op("gather", {TensorArg{boundaries}, int_arg(0), TensorArg{flat}, Scalar(false)}), sizes);
  };
  const Device device = b.type(self).device;
  ValueId start = b.expand(b.constant(0, DType::kInt64, device), sizes);
  ValueId end = b.expand(b.constant(static_cast<double>(count.const_value()), DType::kInt64, device), sizes);
  for (int64_t left = count.const_value(); left > 0; left /= 2) {
    const ValueId half = b.op("bitwise_right_shift", {TensorArg{b.binary("sub", end, start)}, Scalar(int64_t{1})});
    const ValueId middle = b.binary("add", start, half);
    // Where the search is over, the middle may be behind the last boundary.
    const ValueId present = b.op("clamp", {TensorArg{middle}, NoneArg{}, Scalar(count.const_value() - 1)});
    // Not (boundary >= value): where value is NaN, every boundary counts, as in eager.
    const ValueId stays = b.binary(right ? "gt" : "ge", at(present), self);
    const ValueId open = b.binary("lt", start, end);
    const ValueId next = b.binary("add", middle, Scalar(int64_t{1}));
    end = b.where(b.binary("logical_and", open, stays), middle, end);
    start = b.where(b.binary("logical_and", open, b.unary("logical_not", stays)), next, start);
  }
  return {narrow ? b.cast(start, DType::kInt32) : start};
}

Values decompose_bucketize(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.rank(1) != 1) throw InvalidArgument("bucketize(): boundaries tensor must be 1 dimension");
  if (args.type(0).dtype != args.type(1).dtype) throw Unsupported("bucketize of two dtypes");
  return bisect(b, args.tensor(0), args.tensor(1), args.flag(2), args.flag(3));
}

Values decompose_searchsorted(GraphBuilder& b, std::span<const Arg> arguments) {
  // (sorted_sequence, self, out_int32, right, side, sorter)
  const Args args(b, arguments);
  if (!args.none(5)) throw Unsupported("searchsorted with a sorter");
  if (args.type(0).dtype != args.type(1).dtype || args.rank(0) == 0) throw Unsupported("searchsorted of two dtypes");
  const bool right = args.flag(3) || (!args.none(4) && args.str(4) == "right");
  if (args.flag(3) && !args.none(4) && args.str(4) == "left") throw InvalidArgument("side and right are opposites");
  if (args.rank(0) > 1) {
    if (args.rank(0) != args.rank(1)) throw InvalidArgument("searchsorted(): boundaries of another rank than values");
    const std::vector<Expr>&one = args.type(0).sizes, &two = args.type(1).sizes;
    for (size_t d = 0; d + 1 < one.size(); ++d) {
      if (!same_size(b.ctx(), one[d], two[d])) throw InvalidArgument("searchsorted(): other leading dimensions");
    }
  }
  return bisect(b, args.tensor(1), args.tensor(0), args.flag(2), right);
}

// ---- writes by index -------------------------------------------------------------------------------------------------

Values decompose_index_reduce(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, dim, index, source, reduce, include_self)
  const Args args(b, arguments);
  if (args.rank(0) == 0 || args.rank(2) != 1) throw Unsupported("index_reduce of a tensor without dimensions");
  if (args.rank(3) != args.rank(0)) throw InvalidArgument("index_reduce: source has another rank than self");
  if (args.type(3).dtype != args.type(0).dtype) throw InvalidArgument("index_reduce: self and source of two dtypes");
  const int64_t dim = args.dim(1, args.rank(0));
  std::vector<Expr> column(args.type(0).sizes.size(), b.ctx().constant(1));
  column[static_cast<size_t>(dim)] = args.type(2).sizes[0];
  const ValueId index = b.cast(b.reshape(args.tensor(2), column), DType::kInt64);
  const ValueId places = b.op("expand", {TensorArg{index}, SymInts{args.type(3).sizes}});
  return {b.op("scatter_reduce",
               {arguments[0], int_arg(dim), TensorArg{places}, arguments[3], arguments[4], arguments[5]})};
}

Values decompose_masked_scatter(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.type(1).dtype != DType::kBool) throw InvalidArgument("masked_scatter_ only supports boolean masks");
  if (args.type(0).dtype != args.type(2).dtype) throw InvalidArgument("masked_scatter: self and source of two dtypes");
  if (is_zero(b.ctx(), product(b.ctx(), args.type(2).sizes))) throw Unsupported("masked_scatter of an empty source");
  const MetaContext m(b.graph(), OpRegistry::global().get("masked_scatter"), arguments, b.default_dtype());
  const std::vector<const std::vector<Expr>*> shapes{&args.type(0).sizes, &args.type(1).sizes};
  const std::vector<Expr> sizes = m.broadcast(shapes);
  const std::vector<Expr> all{product(b.ctx(), sizes)};
  const ValueId mask = b.reshape(b.expand(args.tensor(1), sizes), all);
  const ValueId rank =
      b.binary("sub", b.op("cumsum", {TensorArg{b.cast(mask, DType::kInt64)}, int_arg(0)}), Scalar(int64_t{1}));
  // Before the first written place the rank is -1: any element will do.
  const ValueId place = b.where(mask, rank, b.constant(0, DType::kInt64, args.type(0).device));
  const std::vector<Expr> flat{product(b.ctx(), args.type(2).sizes)};
  const ValueId taken =
      b.op("index_select", {TensorArg{b.reshape(args.tensor(2), flat)}, int_arg(0), TensorArg{place}});
  const ValueId self = b.reshape(b.expand(args.tensor(0), sizes), all);
  return {b.reshape(b.where(mask, taken, self), sizes)};
}

Values decompose_put(GraphBuilder& b, std::span<const Arg> arguments) {
  // (self, index, source, accumulate)
  const Args args(b, arguments);
  if (args.type(0).dtype != args.type(2).dtype) throw InvalidArgument("put_(): self and source of two dtypes");
  if (!is_contiguous(b.ctx(), args.type(0))) throw Unsupported("put to a tensor that is not contiguous");
  const auto flat = [&](size_t i) { return b.reshape(args.tensor(i), {product(b.ctx(), args.type(i).sizes)}); };
  const ValueId written =
      b.op("index_put", {TensorArg{flat(0)}, TensorList{{flat(1)}}, TensorArg{flat(2)}, arguments[3]});
  return {b.reshape(written, args.type(0).sizes)};
}

// ---- complex numbers ---------------------------------------------------------------------------------------------------

void refuse_complex_operand(const Args& args) {
  if (is_complex(args.type(0).dtype)) throw InvalidArgument("not implemented for complex numbers");
}

std::vector<TensorType> polar_meta(MetaContext& m) {
  const DType dtype = m.tensor(0).dtype;
  if (is_complex(dtype)) throw InvalidArgument("not implemented for complex numbers");
  if (dtype != m.tensor(1).dtype) throw InvalidArgument("polar of two dtypes");
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) throw Unsupported("polar of this dtype");
  const size_t both[] = {0, 1};
  return {pointwise_type(m, both, complex_dtype(dtype))};
}

Values decompose_polar(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId re = b.binary("mul", args.tensor(0), b.unary("cos", args.tensor(1)));
  const ValueId im = b.binary("mul", args.tensor(0), b.unary("sin", args.tensor(1)));
  return {b.binary("from_parts", re, im)};
}

Values decompose_complex(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  refuse_complex_operand(args);
  const DType dtype = args.type(0).dtype;
  if (dtype != args.type(1).dtype) throw InvalidArgument("complex of two dtypes");
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) throw Unsupported("complex of this dtype");
  const MetaContext m(b.graph(), OpRegistry::global().get("complex"), arguments, b.default_dtype());
  const std::vector<const std::vector<Expr>*> shapes{&args.type(0).sizes, &args.type(1).sizes};
  const std::vector<Expr> sizes = m.broadcast(shapes);
  return {b.binary("from_parts", b.expand(args.tensor(0), sizes), b.expand(args.tensor(1), sizes))};
}

}  // namespace

void register_numeric(OpRegistry& r) {
  const auto add = [&](const char* name, const char* schema, const char* names, DecomposeFn fn,
                       const char* inplace = "") {
    r.add(make_op({name, OpKind::kComposite, schema, names, inplace}, nullptr, std::move(fn)));
  };
  const char* x = "(Tensor y, Tensor x, *, int dim=-1) -> Tensor";
  const char* dx = "(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor";
  for (const char* name : {"trapezoid", "trapz"}) {
    const std::string python = std::string("torch.") + name;
    add((std::string(name) + ".x").c_str(), x, python.c_str(), trapezoid(true));
    add((std::string(name) + ".dx").c_str(), dx, python.c_str(), trapezoid(false));
  }
  add("cumulative_trapezoid.x", x, "torch.cumulative_trapezoid", cumulative_trapezoid(true));
  add("cumulative_trapezoid.dx", dx, "torch.cumulative_trapezoid", cumulative_trapezoid(false));
  add("dist", "(Tensor self, Tensor other, Scalar p=2) -> Tensor", "torch.dist torch.Tensor.dist", decompose_dist);
  add("cdist", "(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor",
      "torch._C._VariableFunctions.cdist", decompose_cdist);
  add("renorm", "(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", "torch.renorm torch.Tensor.renorm",
      decompose_renorm, "torch.Tensor.renorm_");
  add("linalg_cross", "(Tensor self, Tensor other, *, int dim=-1) -> Tensor", "torch.linalg.cross",
      decompose_linalg_cross);
  add("cross", "(Tensor self, Tensor other, int? dim=None) -> Tensor", "torch.cross torch.Tensor.cross",
      decompose_cross);
  add("linalg_vecdot", "(Tensor x, Tensor y, *, int dim=-1) -> Tensor", "torch.linalg.vecdot", decompose_vecdot);
  add("linalg_vander", "(Tensor x, *, SymInt? N=None) -> Tensor", "torch.linalg.vander", decompose_linalg_vander);
  add("addr", "(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
      "torch.addr torch.Tensor.addr", decompose_addr, "torch.Tensor.addr_");
  add("ldexp", "(Tensor self, Tensor other) -> Tensor", "torch.ldexp torch.Tensor.ldexp", decompose_ldexp,
      "torch.Tensor.ldexp_");
  add("isin.Tensor_Tensor",
      "(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", "torch.isin",
      decompose_isin);
  add("isin.Tensor_Scalar",
      "(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor", "torch.isin",
      decompose_isin_scalar);
  add("bucketize.Tensor", "(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
      "torch.bucketize", decompose_bucketize);
  add("searchsorted.Tensor",
      "(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? "
      "sorter=None) -> Tensor",
      "torch.searchsorted", decompose_searchsorted);
  add("index_reduce",
      "(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
      "torch.index_reduce torch.Tensor.index_reduce", decompose_index_reduce, "torch.Tensor.index_reduce_");
  add("masked_scatter", "(Tensor self, Tensor mask, Tensor source) -> Tensor",
      "torch.masked_scatter torch.Tensor.masked_scatter", decompose_masked_scatter, "torch.Tensor.masked_scatter_");
  add("put", "(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
      "torch.put torch.Tensor.put", decompose_put, "torch.Tensor.put_");
  r.add(make_op({"polar", OpKind::kComposite, "(Tensor abs, Tensor angle) -> Tensor", "torch.polar"}, polar_meta,
                decompose_polar));
  add("complex", "(Tensor real, Tensor imag) -> Tensor", "torch.complex", decompose_complex);
  r.take_value("addr", "beta", {.apart = 0.0});
  r.take_value("addr", "alpha");
}

}  // namespace tatara
