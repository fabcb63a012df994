// Linear algebra of one small matrix as scalars of a kernel: no loops and no branches, so that each lane of a vector has a matrix of its
// own. The methods are LAPACK's: partial pivoting (the first of the largest), divisions by the pivots, Cholesky's factor by columns.
#pragma once

#include <span>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara::ops {

/// Up to so many rows and columns.
inline constexpr int64_t kMostSmallMatrix = 6;

/// A square matrix of scalars, by rows.
struct ScalarMatrix {
  size_t n = 0;
  std::vector<ScalarId> elements;
  ScalarId& operator()(size_t i, size_t j) { return elements[i * n + j]; }
  ScalarId operator()(size_t i, size_t j) const { return elements[i * n + j]; }
};

/// L (with a diagonal of ones) below the diagonal and U above it, of the matrix with its rows exchanged.
struct ScalarFactors {
  ScalarMatrix lu;
  /// Step k exchanged rows k and r, r > k: swaps[k][r - k - 1].
  std::vector<std::vector<ScalarId>> swaps;
  /// The magnitudes of the pivots: 0 where the matrix is singular.
  std::vector<ScalarId> pivots;
};

class MatrixLoops {
 public:
  MatrixLoops(LoopBuilder& b, DType dtype, size_t n) : b_(b), c_{b, dtype}, n_(n) {}

  size_t size() const { return n_; }
  const Calc& calc() const { return c_; }
  /// The matrix of an operand whose last two dimensions it is.
  ScalarMatrix load(int operand, std::span<const Expr> before) const;
  /// Row `before` of an operand whose last dimension has n elements.
  std::vector<ScalarId> load_row(int operand, std::span<const Expr> before) const;
  ScalarMatrix transposed(const ScalarMatrix& a, bool conjugated) const;

  ScalarFactors factor(ScalarMatrix a) const;
  /// Which row each step exchanged with its own, counted from one.
  std::vector<ScalarId> pivot_rows(const ScalarFactors& f) const;
  /// Of the rows' exchanges: 1 or -1.
  ScalarId parity(const ScalarFactors& f) const;
  /// The number of the first pivot that is zero, counted from one; 0: none is.
  ScalarId singular_at(const ScalarFactors& f) const;
  std::vector<ScalarId> solve(const ScalarFactors& f, std::vector<ScalarId> right) const;
  /// x where x A is the row `left`.
  std::vector<ScalarId> solve_row(const ScalarFactors& f, std::vector<ScalarId> left) const;
  ScalarMatrix inverse(const ScalarFactors& f) const;

  /// The lower factor of a matrix, of which the lower triangle is read, and the number of the first minor that is not positive
  /// (0: all are): from there on elements stay what they were.
  ScalarMatrix cholesky(const ScalarMatrix& a, ScalarId* failed_at) const;
  /// The inverse of L L^H, by that of L as LAPACK computes it.
  ScalarMatrix cholesky_inverse(const ScalarMatrix& l) const;
  /// Of a triangle of `a` (`unit`: with a diagonal of ones).
  std::vector<ScalarId> solve_triangular(const ScalarMatrix& a, std::vector<ScalarId> right, bool upper,
                                         bool unit) const;

  /// |re| + |im| of complex numbers, as LAPACK compares them.
  ScalarId magnitude(ScalarId x) const;

 private:
  ScalarId zero() const { return c_.c(0); }
  /// a - x * y
  ScalarId minus_product(ScalarId a, ScalarId x, ScalarId y) const;
  ScalarId conjugate(ScalarId x) const;
  /// With each operation rounded as the library does, so that the same matrices are singular.
  ScalarId rounded_product(ScalarId x, ScalarId y) const;
  /// Of complex numbers computed in float64.
  ScalarId inverse_of(ScalarId x) const;
  /// Real, of the matrix's precision.
  Calc real() const { return {b_, real_dtype(c_.t)}; }
  /// Row k and the one that step k exchanged with it.
  void exchange(const ScalarFactors& f, size_t k, std::span<ScalarId* const> rows) const;

  LoopBuilder& b_;
  Calc c_;
  size_t n_;
};

}  // namespace tatara::ops
