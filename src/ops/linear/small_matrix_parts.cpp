// Linear algebra of small matrices (n x n, n a known number up to kMostSmallMatrix) as operators with loops. A call of LAPACK takes 30 to
// 1,700 ns for each matrix of a batch, of cuSOLVER milliseconds for all. The host's call stays where a call of ours would not do.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "ops/linear/matrix_loops.h"
#include "ops/rules/batching_rule.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

enum class Errors : uint8_t { kNone, kRaised };

bool has_elements(ExprContext& ctx, const TensorType& type) {
  return std::none_of(type.sizes.begin(), type.sizes.end(),
                      [&](Expr size) { return size.is_const(0) || ctx.range(size).hi == 0; });
}

/// Whether loops take these matrices. On a GPU kernels tell of an error after the fact, where eager raises it at once.
bool is_small(ExprContext& ctx, const TensorType& type, Errors errors) {
  const DType dtype = type.dtype;
  const bool numbers = dtype == DType::kFloat32 || dtype == DType::kFloat64 || is_complex(dtype);
  if (type.dim() < 2 || !numbers || dtype_size(dtype) < 4) return false;
  const Expr n = type.sizes.back();
  if (!n.is_const() || !(type.sizes[type.sizes.size() - 2] == n)) return false;
  // Of one complex number the host takes other ways with infinities.
  if (n.const_value() < (is_complex(dtype) ? 2 : 1) || n.const_value() > kMostSmallMatrix) return false;
  if (!has_elements(ctx, type)) return false;
  return type.device.kind == DeviceKind::kCpu || (type.device.kind == DeviceKind::kCuda && errors == Errors::kNone);
}

/// The same where pivots are looked for. For complex128 the library computes them in a wider type than kernels have.
bool is_factored(ExprContext& ctx, const TensorType& type, Errors errors) {
  return type.dtype != DType::kComplex128 && is_small(ctx, type, errors);
}

/// The same where pivots are results: the library of GPUs finds others of complex numbers.
bool gives_pivots(ExprContext& ctx, const TensorType& type, Errors errors) {
  return is_factored(ctx, type, errors) && !(is_complex(type.dtype) && type.device.kind == DeviceKind::kCuda);
}

ValueId turned(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < b.type(x).dim(); ++d) dims.push_back(d);
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return b.permute(x, dims);
}

/// One of A's matrices for each of B's, and the other way round.
void expand_both(GraphBuilder& b, ValueId& some, ValueId& others) {
  const TensorType one = b.type(some), other = b.type(others);
  const std::vector<Expr> first(one.sizes.begin(), one.sizes.end() - 2);
  const std::vector<Expr> second(other.sizes.begin(), other.sizes.end() - 2);
  const std::vector<Expr>* shapes[] = {&first, &second};
  const MetaContext m(b.graph(), OpRegistry::global().get("linalg_solve"), {}, b.default_dtype());
  const std::vector<Expr> batch = m.broadcast(shapes);
  const auto expanded = [&](ValueId x, const TensorType& type) {
    std::vector<Expr> sizes = batch;
    sizes.insert(sizes.end(), type.sizes.end() - 2, type.sizes.end());
    return b.expand(x, sizes);
  };
  some = expanded(some, one);
  others = expanded(others, other);
}

// ---- Parts ------------------------------------------------------------------------------------------------------------

/// (A)
Values inverse_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_factored(b.ctx(), args.type(0), Errors::kRaised)) return {};
  return {b.op("small_inverse", {arguments[0], bool_arg(true)})};
}

/// (A, check_errors)
Values inverse_ex_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const bool checked = args.flag(1);
  if (!is_factored(b.ctx(), args.type(0), checked ? Errors::kRaised : Errors::kNone)) return {};
  return {b.op("small_inverse", {arguments[0], bool_arg(checked)}),
          b.op("small_singular_at", {arguments[0], bool_arg(checked)})};
}

bool are_vectors(ExprContext& ctx, const TensorType& a, const TensorType& right) {
  if (right.dim() == 1) return true;
  return right.dim() == a.dim() - 1 && same_sizes(ctx, right.sizes, {a.sizes.begin(), a.sizes.end() - 1});
}

/// (A, B, left)
ValueId solve_by_loops(GraphBuilder& b, std::span<const Arg> arguments, bool checked) {
  const Args args(b, arguments);
  const TensorType a = args.type(0), right = args.type(1);
  const bool left = args.flag(2);
  if (!is_factored(b.ctx(), a, checked ? Errors::kRaised : Errors::kNone) || !has_elements(b.ctx(), right))
    return kNoValue;
  const bool vectors = are_vectors(b.ctx(), a, right);
  if (vectors && !left) return kNoValue;
  ValueId matrix = args.tensor(0), rows = args.tensor(1);
  if (vectors) {
    rows = b.unsqueeze(rows, right.dim() - 1);
  } else if (left) {
    rows = turned(b, rows);
  }
  expand_both(b, matrix, rows);
  const ValueId solved = b.op("small_solve", {TensorArg{matrix}, TensorArg{rows}, bool_arg(left), bool_arg(checked)});
  if (vectors) return b.squeeze(solved, b.type(solved).dim() - 2);
  return left ? turned(b, solved) : solved;
}

Values solve_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const ValueId solved = solve_by_loops(b, arguments, true);
  return solved == kNoValue ? Values() : Values{solved};
}

/// (A, B, left, check_errors)
Values solve_ex_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const bool checked = Args(b, arguments).flag(3);
  const ValueId solved = solve_by_loops(b, arguments, checked);
  if (solved == kNoValue) return {};
  return {solved, b.op("small_singular_at", {arguments[0], bool_arg(checked)})};
}

/// (A, B, upper, left, unitriangular)
Values solve_triangular_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_small(b.ctx(), args.type(0), Errors::kNone) || !has_elements(b.ctx(), args.type(1))) return {};
  const bool left = args.flag(3), upper = args.flag(2) == left;
  ValueId matrix = left ? args.tensor(0) : turned(b, args.tensor(0));
  ValueId rows = left ? turned(b, args.tensor(1)) : args.tensor(1);
  expand_both(b, matrix, rows);
  const ValueId solved =
      b.op("small_solve_triangular", {TensorArg{matrix}, TensorArg{rows}, bool_arg(upper), arguments[4]});
  return {left ? turned(b, solved) : solved};
}

/// (A, upper)
Values cholesky_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_small(b.ctx(), args.type(0), Errors::kRaised)) return {};
  return {b.op("small_cholesky", {arguments[0], arguments[1], bool_arg(true)})};
}

/// (A, upper, check_errors)
Values cholesky_ex_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_small(b.ctx(), args.type(0), args.flag(2) ? Errors::kRaised : Errors::kNone)) return {};
  return {b.op("small_cholesky", {arguments[0], arguments[1], arguments[2]}),
          b.op("small_not_positive_at", {arguments[0], arguments[1], arguments[2]})};
}

/// (B, L, upper)
Values cholesky_solve_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_small(b.ctx(), args.type(1), Errors::kNone) || !has_elements(b.ctx(), args.type(0))) return {};
  ValueId rows = turned(b, args.tensor(0)), factor = args.tensor(1);
  expand_both(b, rows, factor);
  return {turned(b, b.op("small_cholesky_solve", {TensorArg{rows}, TensorArg{factor}, arguments[2]}))};
}

/// (L, upper). Of complex diagonals LAPACK takes another part for each size.
Values cholesky_inverse_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const TensorType type = Args(b, arguments).type(0);
  if (!is_small(b.ctx(), type, Errors::kRaised) || is_complex(type.dtype)) return {};
  return {b.op("small_cholesky_inverse", {arguments[0], arguments[1]})};
}

/// What eager factors for a determinant: the transpose, where LAPACK sees that without a copy. Of infinite elements it is another number.
ValueId for_determinant(GraphBuilder& b, ValueId a) {
  const TensorType& type = b.type(a);
  return !is_complex(type.dtype) && is_contiguous(b.ctx(), type) ? turned(b, a) : a;
}

Values det_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_factored(b.ctx(), args.type(0), Errors::kNone)) return {};
  return {b.op("small_det", {TensorArg{for_determinant(b, args.tensor(0))}})};
}

Values slogdet_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_factored(b.ctx(), args.type(0), Errors::kNone)) return {};
  return b.op_multi("small_slogdet", {TensorArg{for_determinant(b, args.tensor(0))}});
}

/// NaN where the determinant is negative.
Values logdet_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!is_factored(b.ctx(), args.type(0), Errors::kNone) || is_complex(args.type(0).dtype)) return {};
  const Values both = b.op_multi("small_slogdet", {TensorArg{for_determinant(b, args.tensor(0))}});
  const ValueId negative = b.binary("lt", both[0], Scalar(int64_t{0}));
  return {b.op("where", {TensorArg{negative}, Scalar(std::numeric_limits<double>::quiet_NaN()), TensorArg{both[1]}})};
}

/// (A, pivot)
Values lu_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!gives_pivots(b.ctx(), args.type(0), Errors::kRaised) || !args.flag(1)) return {};
  return b.op_multi("small_lu", {arguments[0], bool_arg(true)});
}

/// (A, pivot, check_errors)
Values lu_ex_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const bool checked = args.flag(2);
  if (!gives_pivots(b.ctx(), args.type(0), checked ? Errors::kRaised : Errors::kNone) || !args.flag(1)) return {};
  Values results = b.op_multi("small_lu", {arguments[0], bool_arg(checked)});
  results.push_back(b.op("small_singular_at", {arguments[0], bool_arg(checked)}));
  return results;
}

/// (A, n): products in eager's order, which fuse.
Values power_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const int64_t n = args.integer(1);
  const bool inverted = n < 0;
  if (n > -2 && n < 2) return {};
  if (inverted ? !is_factored(b.ctx(), args.type(0), Errors::kRaised)
               : !is_small(b.ctx(), args.type(0), Errors::kNone)) {
    return {};
  }
  ValueId square = inverted ? b.op("linalg_inv", {arguments[0]}) : args.tensor(0);
  if (n == 3 || n == -3) return {b.binary("matmul", b.binary("matmul", square, square), square)};
  ValueId result = kNoValue;
  for (int64_t rest = std::abs(n); rest > 0; rest /= 2) {
    if (rest != std::abs(n)) square = b.binary("matmul", square, square);
    if (rest % 2 == 1) result = result == kNoValue ? square : b.binary("matmul", result, square);
  }
  return {result};
}

// ---- Types ------------------------------------------------------------------------------------------------------------

const TensorType& square_matrices(MetaContext& m) {
  const TensorType& type = m.tensor(0);
  // Of half types only those without elements.
  const bool numbers = is_complex(type.dtype) ||
                       (is_floating(type.dtype) && (dtype_size(type.dtype) >= 4 || !has_elements(m.ctx(), type)));
  const size_t last = type.sizes.size() - 1;
  if (type.dim() < 2 || !numbers || !same_size(m.ctx(), type.sizes[last], type.sizes[last - 1])) {
    throw InvalidArgument("A must be batches of square matrices");
  }
  return type;
}

TensorType of_each(MetaContext& m, DType dtype) {
  const TensorType& type = m.tensor(0);
  return contiguous_type(m.ctx(), dtype, type.device, {type.sizes.begin(), type.sizes.end() - 2});
}

std::vector<TensorType> determinant_type(MetaContext& m) { return {of_each(m, square_matrices(m).dtype)}; }

std::vector<TensorType> sign_and_logarithm(MetaContext& m) {
  const DType dtype = square_matrices(m).dtype;
  return {of_each(m, dtype), of_each(m, real_dtype(dtype))};
}

// ---- Derivatives ------------------------------------------------------------------------------------------------------

ValueId element(GraphBuilder& b, ValueId x, int64_t row, int64_t column) {
  const ValueId rows = b.op("select", {TensorArg{x}, int_arg(-2), int_arg(row)});
  return b.op("select", {TensorArg{rows}, int_arg(-1), int_arg(column)});
}

ValueId stacked(GraphBuilder& b, std::vector<ValueId> parts, int64_t dim) {
  return b.op("stack", {TensorList{std::move(parts)}, int_arg(dim)});
}

/// What the determinant of up to 3 x 3 changes by with each element.
ValueId cofactors(GraphBuilder& b, ValueId a) {
  const int64_t n = b.type(a).sizes.back().const_value();
  if (n == 2) {
    const auto negative = [&](ValueId x) { return b.unary("neg", x); };
    const ValueId first = stacked(b, {element(b, a, 1, 1), negative(element(b, a, 1, 0))}, -1);
    const ValueId second = stacked(b, {negative(element(b, a, 0, 1)), element(b, a, 0, 0)}, -1);
    return stacked(b, {first, second}, -2);
  }
  const auto next_rows = [&](int64_t by) {
    return b.op("roll", {TensorArg{a}, ints_arg(b.ctx(), {-by}), ints_arg(b.ctx(), {-2})});
  };
  return b.op("linalg_cross", {TensorArg{next_rows(1)}, TensorArg{next_rows(2)}, int_arg(-1)});
}

ValueId for_matrices(GraphBuilder& b, ValueId x) {
  return b.unsqueeze(b.unsqueeze(x, b.type(x).dim()), b.type(x).dim() + 1);
}

bool has_own_rule(const VjpContext& v) {
  const TensorType& type = v.args().type(0);
  return is_factored(v.ctx(), type, Errors::kNone) && is_floating(type.dtype);
}

/// (A). In eager the gradient is a product with the determinant: 0 where that is.
void determinant_of_small(VjpContext& v, const VjpFn& by_host) {
  constexpr int64_t kMostByCofactors = 3;
  const TensorType& type = v.args().type(0);
  if (!has_own_rule(v) || type.sizes.back().is_const(1) || type.sizes.back().const_value() > kMostByCofactors) {
    return by_host(v);
  }
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const ValueId a = v.args().tensor(0), zero = b.binary("eq", v.out(), Scalar(0.0));
  const ValueId gradient = for_matrices(b, b.op("where", {TensorArg{zero}, Scalar(0.0), TensorArg{v.grad()}}));
  v.give(0, b.binary("mul", cofactors(b, a), gradient));
}

ValueId logarithm_gradient(GraphBuilder& b, ValueId a, ValueId gradient) {
  const ValueId inverse = b.op_multi("linalg_inv_ex", {TensorArg{a}, bool_arg(false)})[0];
  return b.binary("mul", for_matrices(b, gradient), turned(b, inverse));
}

/// (A): the sign is constant.
void slogdet_of_small(VjpContext& v, const VjpFn& by_host) {
  if (!has_own_rule(v)) return by_host(v);
  if (v.has_grad(1)) v.give(0, logarithm_gradient(v.builder(), v.args().tensor(0), v.grad(1)));
}

/// (A)
void logdet_of_small(VjpContext& v, const VjpFn& by_host) {
  if (!has_own_rule(v)) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const ValueId sign = b.op_multi("linalg_slogdet", {TensorArg{v.args().tensor(0)}})[0];
  const ValueId negative = b.binary("lt", sign, Scalar(int64_t{0}));
  const ValueId gradient = b.op("where", {TensorArg{negative}, Scalar(0.0), TensorArg{v.grad()}});
  v.give(0, logarithm_gradient(b, v.args().tensor(0), gradient));
}

/// More matrices: those of each example.
bool batch_small(BatchContext& c) { return is_small(c.ctx(), c.args().type(0), Errors::kNone) && batch_as_is(c); }

}  // namespace

void register_small_matrix_parts(OpRegistry& r) {
  for (const char* name : {"inverse", "linalg_inv"}) r.amend(name).decompose = inverse_parts;
  r.amend("linalg_inv_ex").decompose = inverse_ex_parts;
  r.amend("linalg_solve").decompose = solve_parts;
  r.amend("linalg_solve_ex").decompose = solve_ex_parts;
  r.amend("linalg_lu_factor").decompose = lu_parts;
  r.amend("linalg_lu_factor_ex").decompose = lu_ex_parts;
  r.amend("linalg_solve_triangular").decompose = solve_triangular_parts;
  for (const char* name : {"cholesky", "linalg_cholesky"}) r.amend(name).decompose = cholesky_parts;
  r.amend("linalg_cholesky_ex").decompose = cholesky_ex_parts;
  r.amend("cholesky_solve").decompose = cholesky_solve_parts;
  for (const char* name : {"matrix_power", "linalg_matrix_power"}) r.amend(name).decompose = power_parts;
  r.amend("cholesky_inverse").decompose = cholesky_inverse_parts;
  for (const char* name : {"det", "linalg_det", "logdet"}) r.amend(name).meta = determinant_type;
  for (const char* name : {"det", "linalg_det"}) r.amend(name).decompose = det_parts;
  r.amend("logdet").decompose = logdet_parts;
  for (const char* name : {"slogdet", "linalg_slogdet"}) {
    r.amend(name).meta = sign_and_logarithm;
    r.amend(name).decompose = slogdet_parts;
  }
  const auto derive = [&r](const char* name, void (*rule)(VjpContext&, const VjpFn&)) {
    OpDef& def = r.amend(name);
    def.vjp = [rule, by_host = def.vjp](VjpContext& v) { rule(v, by_host); };
    def.batch = batch_small;
  };
  for (const char* name : {"det", "linalg_det"}) derive(name, determinant_of_small);
  for (const char* name : {"slogdet", "linalg_slogdet"}) derive(name, slogdet_of_small);
  derive("logdet", logdet_of_small);
}

}  // namespace tatara
