// Rules for operators of linear algebra: gradients from what the operator gave, so that it runs once, and batches of vmap as what they
// are to these operators, more matrices. The formulas are those of Giles, "An extended collection of matrix derivative results for
// forward and reverse mode algorithmic differentiation" (2008), and for Cholesky's factor of Murray, arXiv:1602.07527.
#include <algorithm>
#include <utility>

#include "ops/rules/batching_rule.h"
#include "ops/rules/derivative.h"
#include "ops/rules/host_transform.h"

namespace tatara {
namespace {

using namespace ops;

/// Matrices as the last two dimensions, of real numbers.
bool is_real(const VjpContext& v, size_t arg) {
  const TensorType& type = v.args().type(arg);
  return type.dim() >= 2 && is_floating(type.dtype) && !is_empty(v, v.args().tensor(arg));
}

ValueId swapped(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < b.type(x).dim(); ++d) dims.push_back(d);
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return b.permute(x, dims);
}

ValueId triangle(GraphBuilder& b, ValueId x, bool upper, int64_t diagonal = 0) {
  return b.op(upper ? "triu" : "tril", {TensorArg{x}, Scalar(diagonal)});
}

ValueId solve_triangular(GraphBuilder& b, ValueId matrix, ValueId right, bool upper, bool left) {
  return b.op("linalg_solve_triangular",
              {TensorArg{matrix}, TensorArg{right}, Scalar(upper), Scalar(left), Scalar(false)});
}

// ---- Types ------------------------------------------------------------------------------------------------------------

/// Columns of a matrix lie beside each other, as in LAPACK.
TensorType by_columns(ExprContext& ctx, const TensorType& like, std::vector<Expr> sizes) {
  TensorType type = contiguous_type(ctx, like.dtype, like.device, std::move(sizes));
  const size_t last = type.sizes.size() - 1;
  const Expr rows = type.sizes[last - 1];
  type.strides[last - 1] = ctx.constant(1);
  type.strides[last] = rows.is_const() && rows.const_value() < 1 ? ctx.constant(1) : rows;
  return type;
}

const TensorType& square(MetaContext& m) {
  const TensorType& type = m.tensor(0);
  if (type.dim() < 2 || (!is_floating(type.dtype) && !is_complex(type.dtype)))
    throw InvalidArgument("The input tensor must have at least 2 dimensions, of floating point or complex numbers.");
  const size_t last = type.sizes.size() - 1;
  if (!same_size(m.ctx(), type.sizes[last], type.sizes[last - 1]))
    throw InvalidArgument("A must be batches of square matrices");
  return type;
}

/// Sizes of `rows` by `columns` matrices, one for each of `a` and `b` together.
std::vector<Expr> for_both(MetaContext& m, const std::vector<Expr>& a, const std::vector<Expr>& b, Expr rows,
                           Expr columns) {
  const std::vector<Expr> some(a.begin(), a.end() - 2), others(b.begin(), b.end() - 2);
  const std::vector<Expr>* shapes[] = {&some, &others};
  std::vector<Expr> sizes = m.broadcast(shapes);
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

std::vector<TensorType> matrix_meta(MetaContext& m) {
  const TensorType& type = square(m);
  return {by_columns(m.ctx(), type, type.sizes)};
}

/// (A, upper): a matrix without elements comes back as it is, square or not.
std::vector<TensorType> cholesky_meta(MetaContext& m) {
  const TensorType& type = m.tensor(0);
  const bool empty = std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr size) { return size.is_const(0); });
  if (!empty) return matrix_meta(m);
  return {contiguous_type(m.ctx(), type.dtype, type.device, type.sizes)};
}

/// (A, n): also of integers, where nothing is inverted.
std::vector<TensorType> power_meta(MetaContext& m) {
  const int64_t n = m.integer(1);
  if (n < 0) square(m);
  const TensorType& type = m.tensor(0);
  const size_t rank = type.sizes.size();
  if (rank < 2 || !same_size(m.ctx(), type.sizes[rank - 1], type.sizes[rank - 2])) {
    throw InvalidArgument("A must be batches of square matrices");
  }
  if (n == -1) return {by_columns(m.ctx(), type, type.sizes)};
  return {contiguous_type(m.ctx(), type.dtype, type.device, type.sizes)};
}

/// The same with a number for each matrix: which pivot is zero.
std::vector<TensorType> matrix_and_info_meta(MetaContext& m) {
  const TensorType& type = square(m);
  const std::vector<Expr> batch(type.sizes.begin(), type.sizes.end() - 2);
  return {by_columns(m.ctx(), type, type.sizes), contiguous_type(m.ctx(), DType::kInt32, type.device, batch)};
}

std::vector<TensorType> solve_triangular_meta(MetaContext& m) {
  const TensorType &matrix = square(m), &right = m.tensor(1);
  if (right.dim() < 2 || right.dtype != matrix.dtype) throw InvalidArgument("B must be matrices of A's type");
  const auto* left = std::get_if<Scalar>(&m.arg(3));
  const bool from_left = left == nullptr || std::get<bool>(*left);
  const Expr shared = right.sizes[right.sizes.size() - (from_left ? 2 : 1)];
  if (!same_size(m.ctx(), shared, matrix.sizes.back())) throw InvalidArgument("incompatible shapes of A and B");
  const std::vector<Expr>& sizes = right.sizes;
  return {by_columns(m.ctx(), right, for_both(m, matrix.sizes, sizes, sizes[sizes.size() - 2], sizes.back()))};
}

/// Whether B is a vector for each matrix of A, not a matrix.
bool solves_vectors(ExprContext& ctx, const TensorType& a, const TensorType& b) {
  if (b.dim() == 1) return true;
  return b.dim() == a.dim() - 1 && same_sizes(ctx, b.sizes, std::vector<Expr>(a.sizes.begin(), a.sizes.end() - 1));
}

/// (A, B, left)
std::vector<TensorType> solve_meta(MetaContext& m) {
  const TensorType &a = square(m), &right = m.tensor(1);
  if (right.dim() < 1 || right.dtype != a.dtype) throw InvalidArgument("B must have a dimension, and A's type");
  const auto* flag = std::get_if<Scalar>(&m.arg(2));
  const bool left = flag == nullptr || std::get<bool>(*flag), vectors = solves_vectors(m.ctx(), a, right);
  std::vector<Expr> sizes = right.sizes;
  if (vectors) sizes.push_back(m.ctx().constant(1));
  if (!same_size(m.ctx(), sizes[sizes.size() - (left ? 2 : 1)], a.sizes.back()))
    throw InvalidArgument("incompatible shapes of A and B");
  sizes = for_both(m, a.sizes, sizes, sizes[sizes.size() - 2], sizes.back());
  if (vectors) sizes.pop_back();
  if (left && sizes.size() >= 2) return {by_columns(m.ctx(), right, std::move(sizes))};
  return {contiguous_type(m.ctx(), right.dtype, right.device, std::move(sizes))};
}

/// The same with a number for each matrix of A: which pivot is zero.
std::vector<TensorType> solve_and_info_meta(MetaContext& m) {
  std::vector<TensorType> types = solve_meta(m);
  const TensorType& a = m.tensor(0);
  const std::vector<Expr> batch(a.sizes.begin(), a.sizes.end() - 2);
  types.push_back(contiguous_type(m.ctx(), DType::kInt32, a.device, batch));
  return types;
}

/// (A, pivot): the factors, the rows that were exchanged and, of those with `info`, which pivot is zero.
std::vector<TensorType> lu_meta(MetaContext& m, bool with_info) {
  const TensorType& type = m.tensor(0);
  const bool numbers = is_floating(type.dtype) || is_complex(type.dtype);
  if (type.dim() < 2 || !numbers || !m.boolean(1)) throw InvalidArgument("an LU factorization of such an operand");
  const std::vector<Expr> batch(type.sizes.begin(), type.sizes.end() - 2);
  std::vector<Expr> pivots = batch;
  pivots.push_back(m.ctx().min(type.sizes.back(), type.sizes[type.sizes.size() - 2]));
  std::vector<TensorType> types{by_columns(m.ctx(), type, type.sizes),
                                contiguous_type(m.ctx(), DType::kInt32, type.device, std::move(pivots))};
  if (with_info) types.push_back(contiguous_type(m.ctx(), DType::kInt32, type.device, batch));
  return types;
}

/// (B, L, upper), of whose matrices A = L L^T is made.
std::vector<TensorType> cholesky_solve_meta(MetaContext& m) {
  const TensorType &right = m.tensor(0), &factor = m.tensor(1);
  if (right.dim() < 2 || factor.dim() < 2 || right.dtype != factor.dtype)
    throw InvalidArgument("B and the factor must be matrices of one type");
  const size_t last = factor.sizes.size() - 1;
  if (!same_size(m.ctx(), factor.sizes[last], factor.sizes[last - 1]) ||
      !same_size(m.ctx(), factor.sizes[last], right.sizes[right.sizes.size() - 2])) {
    throw InvalidArgument("incompatible shapes of B and the factor");
  }
  const std::vector<Expr>& sizes = right.sizes;
  return {by_columns(m.ctx(), right, for_both(m, factor.sizes, sizes, sizes[sizes.size() - 2], sizes.back()))};
}

// ---- Derivatives ------------------------------------------------------------------------------------------------------

/// (A): Y = A^-1 has dY = -Y dA Y.
void inverse_rule(VjpContext& v, const VjpFn& by_host) {
  if (!is_real(v, 0)) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const ValueId adjoint = swapped(b, v.out());
  v.give(0, b.unary("neg", b.binary("matmul", adjoint, b.binary("matmul", v.grad(), adjoint))));
}

/// (A, upper): of A = L L^T the gradient is L^-T S L^-1 / 2, where S is symmetric with the lower triangle of L^T gL.
void cholesky_rule(VjpContext& v, const VjpFn& by_host) {
  if (!is_real(v, 0)) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const bool upper = v.args().flag(1);
  const ValueId factor = upper ? swapped(b, v.out()) : v.out();
  const ValueId gradient = upper ? swapped(b, v.grad()) : v.grad();
  const ValueId below = triangle(b, b.binary("matmul", swapped(b, factor), gradient), false);
  const ValueId both = b.binary("add", below, swapped(b, triangle(b, below, false, -1)));
  const ValueId half = b.binary("mul", both, Scalar(0.5));
  v.give(0, solve_triangular(b, factor, solve_triangular(b, swapped(b, factor), half, true, true), false, false));
}

/// (A, B, upper, left, unitriangular): X = A^-1 B has dX = A^-1 (dB - dA X).
void solve_triangular_rule(VjpContext& v, const VjpFn& by_host) {
  const bool unit = v.args().flag(4);
  if (unit || !is_real(v, 0) || !is_real(v, 1)) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const bool upper = v.args().flag(2), left = v.args().flag(3);
  const ValueId by_right = solve_triangular(b, swapped(b, v.args().tensor(0)), v.grad(), !upper, left);
  if (v.needs(0)) {
    const ValueId product =
        left ? b.binary("matmul", by_right, swapped(b, v.out())) : b.binary("matmul", swapped(b, v.out()), by_right);
    v.give(0, triangle(b, b.unary("neg", product), upper));
  }
  if (v.needs(1)) v.give(1, by_right);
}

/// (A, B, left): X = A^-1 B, or B A^-1.
void solve_rule(VjpContext& v, const VjpFn& by_host) {
  const TensorType &a = v.args().type(0), &right = v.args().type(1);
  if (!is_real(v, 0) || right.dim() < 1 || is_empty(v, v.args().tensor(1))) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const bool left = v.args().flag(2), vectors = solves_vectors(v.ctx(), a, right);
  const auto as_matrix = [&](ValueId x) { return vectors ? b.unsqueeze(x, b.type(x).dim()) : x; };
  const ValueId by_right =
      b.op("linalg_solve", {TensorArg{swapped(b, v.args().tensor(0))}, TensorArg{as_matrix(v.grad())}, Scalar(left)});
  if (v.needs(0)) {
    const ValueId solution = swapped(b, as_matrix(v.out()));
    v.give(0, b.unary("neg", left ? b.binary("matmul", by_right, solution) : b.binary("matmul", solution, by_right)));
  }
  if (!v.needs(1)) return;
  v.give(1, vectors ? b.op("squeeze.dim", {TensorArg{by_right}, Scalar(int64_t{-1})}) : by_right);
}

/// (B, L, upper): X = (L L^T)^-1 B has gB = (L L^T)^-1 gX and gL = -(gB X^T + X gB^T) L.
void cholesky_solve_rule(VjpContext& v, const VjpFn& by_host) {
  if (!is_real(v, 0) || !is_real(v, 1)) return by_host(v);
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const ValueId factor = v.args().tensor(1);
  const bool upper = v.args().flag(2);
  const ValueId right = b.op("cholesky_solve", {TensorArg{v.grad()}, TensorArg{factor}, Scalar(upper)});
  if (v.needs(0)) v.give(0, right);
  if (!v.needs(1)) return;
  const ValueId product = b.binary("matmul", right, swapped(b, v.out()));
  const ValueId both = b.binary("add", product, swapped(b, product));
  v.give(1, b.unary("neg", upper ? b.binary("matmul", factor, both) : b.binary("matmul", both, factor)));
}

// ---- Batches ----------------------------------------------------------------------------------------------------------

/// Each operand has all its matrices for each example; of two, both of one rank, so that those of an example meet.
bool batch_matrices(BatchContext& c) {
  int64_t rank = -1;
  for (size_t i = 0; i < c.args().size(); ++i) {
    if (!c.args().is_tensor(i)) continue;
    const TensorType& type = c.args().type(i);
    if (type.dim() < 2 || !is_floating(type.dtype) || (rank >= 0 && type.dim() != rank)) return false;
    for (const Expr size : type.sizes) {
      if (is_zero(c.ctx(), size)) return false;
    }
    rank = type.dim();
  }
  return batch_as_is(c);
}

}  // namespace

void register_matrix_rules(OpRegistry& r) {
  for (const char* name : {"inverse", "linalg_inv", "linalg_cholesky"}) r.amend(name).meta = matrix_meta;
  r.amend("cholesky").meta = cholesky_meta;
  for (const char* name : {"matrix_power", "linalg_matrix_power"}) r.amend(name).meta = power_meta;
  for (const char* name : {"linalg_inv_ex", "linalg_cholesky_ex"}) r.amend(name).meta = matrix_and_info_meta;
  r.amend("linalg_solve_triangular").meta = solve_triangular_meta;
  r.amend("linalg_solve").meta = solve_meta;
  r.amend("linalg_solve_ex").meta = solve_and_info_meta;
  r.amend("linalg_lu_factor").meta = [](MetaContext& m) { return lu_meta(m, false); };
  r.amend("linalg_lu_factor_ex").meta = [](MetaContext& m) { return lu_meta(m, true); };
  r.amend("cholesky_inverse").meta = matrix_meta;
  r.amend("cholesky_solve").meta = cholesky_solve_meta;
  // Complex numbers and the like are left to the host's derivative.
  const auto derive = [&r](const char* name, void (*rule)(VjpContext&, const VjpFn&)) {
    OpDef& def = r.amend(name);
    def.vjp = [rule, by_host = def.vjp](VjpContext& v) { rule(v, by_host); };
  };
  for (const char* name : {"inverse", "linalg_inv", "linalg_inv_ex"}) derive(name, inverse_rule);
  for (const char* name : {"cholesky", "linalg_cholesky", "linalg_cholesky_ex"}) derive(name, cholesky_rule);
  derive("linalg_solve_triangular", solve_triangular_rule);
  derive("linalg_solve", solve_rule);
  derive("cholesky_solve", cholesky_solve_rule);
  // Forward mode of the others stays the host's, which takes the operand to be symmetric.
  for (const char* name : {"inverse", "linalg_inv", "linalg_inv_ex", "linalg_solve", "linalg_solve_triangular"})
    r.amend(name).traits.by_host = false;
  for (const char* name : {"inverse", "linalg_inv", "linalg_inv_ex", "linalg_cholesky", "linalg_cholesky_ex",
                           "linalg_solve", "linalg_solve_triangular", "cholesky_solve"}) {
    r.amend(name).batch = batch_matrices;
  }
}

}  // namespace tatara
