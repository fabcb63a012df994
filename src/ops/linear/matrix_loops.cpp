#include "ops/linear/matrix_loops.h"

namespace tatara::ops {

using Op = ScalarOp;

namespace {
/// MKL divides the last column of up to so many by its pivot, and multiplies others by the pivot's inverse.
constexpr size_t kMostDivided = 4;
}  // namespace

ScalarMatrix MatrixLoops::load(int operand, std::span<const Expr> before) const {
  ScalarMatrix result{n_, {}};
  std::vector<Expr> at(before.begin(), before.end());
  at.resize(before.size() + 2);
  for (size_t i = 0; i < n_; ++i) {
    for (size_t j = 0; j < n_; ++j) {
      at[before.size()] = b_.ctx().constant(static_cast<int64_t>(i));
      at[before.size() + 1] = b_.ctx().constant(static_cast<int64_t>(j));
      result.elements.push_back(b_.load(operand, at));
    }
  }
  return result;
}

std::vector<ScalarId> MatrixLoops::load_row(int operand, std::span<const Expr> before) const {
  std::vector<ScalarId> result;
  std::vector<Expr> at(before.begin(), before.end());
  at.emplace_back();
  for (size_t i = 0; i < n_; ++i) {
    at.back() = b_.ctx().constant(static_cast<int64_t>(i));
    result.push_back(b_.load(operand, at));
  }
  return result;
}

ScalarMatrix MatrixLoops::transposed(const ScalarMatrix& a, bool conjugated) const {
  ScalarMatrix result = a;
  for (size_t i = 0; i < n_; ++i) {
    for (size_t j = 0; j < n_; ++j) result(i, j) = conjugated ? conjugate(a(j, i)) : a(j, i);
  }
  return result;
}

ScalarId MatrixLoops::conjugate(ScalarId x) const { return is_complex(c_.t) ? b_.apply1(Op::kConj, x) : x; }

ScalarId MatrixLoops::magnitude(ScalarId x) const {
  if (!is_complex(c_.t)) return b_.apply1(Op::kAbs, x);
  return real().add(b_.apply1(Op::kAbs, b_.apply1(Op::kReal, x)), b_.apply1(Op::kAbs, b_.apply1(Op::kImag, x)));
}

ScalarId MatrixLoops::minus_product(ScalarId a, ScalarId x, ScalarId y) const {
  if (is_complex(c_.t)) return c_.sub(a, c_.mul(x, y));
  const ScalarId operands[] = {c_.neg(x), y, a};
  return b_.apply(Op::kFma, c_.t, operands);
}

ScalarId MatrixLoops::rounded_product(ScalarId x, ScalarId y) const {
  if (!is_complex(c_.t)) return c_.mul(x, y);
  const Calc r = real();
  const ScalarId xr = b_.apply1(Op::kReal, x), xi = b_.apply1(Op::kImag, x);
  const ScalarId yr = b_.apply1(Op::kReal, y), yi = b_.apply1(Op::kImag, y);
  return b_.apply2(Op::kComplex, r.sub(r.mul(xr, yr), r.mul(xi, yi)), r.add(r.mul(xr, yi), r.mul(xi, yr)));
}

ScalarId MatrixLoops::inverse_of(ScalarId x) const {
  if (!is_complex(c_.t)) return c_.div(c_.c(1), x);
  const Calc wide{b_, DType::kFloat64}, r = real();
  const ScalarId re = b_.cast(b_.apply1(Op::kReal, x), wide.t), im = b_.cast(b_.apply1(Op::kImag, x), wide.t);
  const ScalarId square = wide.add(wide.mul(re, re), wide.mul(im, im));
  return b_.apply2(Op::kComplex, b_.cast(wide.div(re, square), r.t), b_.cast(wide.div(wide.neg(im), square), r.t));
}

void MatrixLoops::exchange(const ScalarFactors& f, size_t k, std::span<ScalarId* const> rows) const {
  const ScalarId own = *rows[k];
  for (size_t r = k + 1; r < n_; ++r) {
    const ScalarId swapped = f.swaps[k][r - k - 1];
    *rows[k] = b_.select(swapped, *rows[r], *rows[k]);
    *rows[r] = b_.select(swapped, own, *rows[r]);
  }
}

ScalarFactors MatrixLoops::factor(ScalarMatrix a) const {
  ScalarFactors f;
  std::vector<ScalarId*> column(n_);
  for (size_t k = 0; k < n_; ++k) {
    ScalarId best = magnitude(a(k, k));
    std::vector<ScalarId>& swaps = f.swaps.emplace_back();
    for (size_t r = k + 1; r < n_; ++r) {
      const ScalarId other = magnitude(a(r, k));
      const ScalarId larger = b_.compare(Op::kLt, best, other);
      best = b_.select(larger, other, best);
      for (ScalarId& before : swaps) before = b_.apply2(Op::kAnd, before, b_.apply1(Op::kNot, larger));
      swaps.push_back(larger);
    }
    f.pivots.push_back(best);
    for (size_t j = 0; j < n_; ++j) {
      for (size_t i = 0; i < n_; ++i) column[i] = &a(i, j);
      exchange(f, k, column);
    }
    const ScalarId singular = b_.compare(Op::kEq, best, real().c(0));
    const bool divides = !is_complex(c_.t) && n_ <= kMostDivided && k + 2 == n_;
    const ScalarId factor = divides || k + 1 == n_ ? loops::kNoScalar : inverse_of(a(k, k));
    for (size_t i = k + 1; i < n_; ++i) {
      const ScalarId part = divides ? c_.div(a(i, k), a(k, k)) : rounded_product(a(i, k), factor);
      a(i, k) = b_.select(singular, a(i, k), part);
      for (size_t j = k + 1; j < n_; ++j) a(i, j) = c_.sub(a(i, j), rounded_product(a(i, k), a(k, j)));
    }
  }
  f.lu = std::move(a);
  return f;
}

std::vector<ScalarId> MatrixLoops::pivot_rows(const ScalarFactors& f) const {
  std::vector<ScalarId> result;
  for (size_t k = 0; k < n_; ++k) {
    ScalarId row = b_.constant_int(static_cast<int64_t>(k) + 1, DType::kInt32);
    for (size_t r = k + 1; r < n_; ++r) {
      row = b_.select(f.swaps[k][r - k - 1], b_.constant_int(static_cast<int64_t>(r) + 1, DType::kInt32), row);
    }
    result.push_back(row);
  }
  return result;
}

ScalarId MatrixLoops::parity(const ScalarFactors& f) const {
  ScalarId odd = b_.constant_int(0, DType::kBool);
  for (const std::vector<ScalarId>& step : f.swaps) {
    for (const ScalarId swapped : step) odd = b_.apply2(Op::kXor, odd, swapped);
  }
  return b_.select(odd, c_.c(-1), c_.c(1));
}

ScalarId MatrixLoops::singular_at(const ScalarFactors& f) const {
  ScalarId result = b_.constant_int(0, DType::kInt32);
  for (size_t k = n_; k-- > 0;) {
    const ScalarId here = b_.compare(Op::kEq, f.pivots[k], real().c(0));
    result = b_.select(here, b_.constant_int(static_cast<int64_t>(k) + 1, DType::kInt32), result);
  }
  return result;
}

std::vector<ScalarId> MatrixLoops::solve(const ScalarFactors& f, std::vector<ScalarId> right) const {
  std::vector<ScalarId*> rows;
  for (ScalarId& x : right) rows.push_back(&x);
  for (size_t k = 0; k < n_; ++k) exchange(f, k, rows);
  return solve_triangular(f.lu, solve_triangular(f.lu, std::move(right), false, true), true, false);
}

std::vector<ScalarId> MatrixLoops::solve_row(const ScalarFactors& f, std::vector<ScalarId> left) const {
  const ScalarMatrix turned = transposed(f.lu, false);
  left = solve_triangular(turned, solve_triangular(turned, std::move(left), false, false), true, true);
  std::vector<ScalarId*> columns;
  for (ScalarId& x : left) columns.push_back(&x);
  for (size_t k = n_; k-- > 0;) exchange(f, k, columns);
  return left;
}

std::vector<ScalarId> MatrixLoops::solve_triangular(const ScalarMatrix& a, std::vector<ScalarId> right, bool upper,
                                                    bool unit) const {
  for (size_t step = 0; step < n_; ++step) {
    const size_t i = upper ? n_ - 1 - step : step;
    for (size_t before = 0; before < step; ++before) {
      const size_t j = upper ? n_ - 1 - before : before;
      right[i] = minus_product(right[i], a(i, j), right[j]);
    }
    if (!unit) right[i] = c_.div(right[i], a(i, i));
  }
  return right;
}

ScalarMatrix MatrixLoops::inverse(const ScalarFactors& f) const {
  ScalarMatrix result = f.lu;
  for (size_t j = 0; j < n_; ++j) {
    // Column j of L^-1, which begins with a one.
    std::vector<ScalarId> column(n_, zero());
    column[j] = c_.c(1);
    for (size_t i = j + 1; i < n_; ++i) {
      column[i] = c_.neg(f.lu(i, j));
      for (size_t k = j + 1; k < i; ++k) column[i] = minus_product(column[i], f.lu(i, k), column[k]);
    }
    column = solve_triangular(f.lu, std::move(column), true, false);
    for (size_t i = 0; i < n_; ++i) result(i, j) = column[i];
  }
  std::vector<ScalarId*> columns(n_);
  for (size_t k = n_; k-- > 0;) {
    for (size_t i = 0; i < n_; ++i) {
      for (size_t j = 0; j < n_; ++j) columns[j] = &result(i, j);
      exchange(f, k, columns);
    }
  }
  return result;
}

ScalarMatrix MatrixLoops::cholesky(const ScalarMatrix& a, ScalarId* failed_at) const {
  ScalarMatrix l{n_, std::vector<ScalarId>(n_ * n_, zero())};
  const Calc r = real();
  ScalarId failed = b_.constant_int(0, DType::kInt32);
  for (size_t j = 0; j < n_; ++j) {
    const ScalarId going = b_.compare(Op::kEq, failed, b_.constant_int(0, DType::kInt32));
    ScalarId left = a(j, j);
    for (size_t k = 0; k < j; ++k) left = minus_product(left, l(j, k), conjugate(l(j, k)));
    if (is_complex(c_.t)) left = b_.apply1(Op::kReal, left);
    const ScalarId positive = b_.compare(Op::kLt, r.c(0), left);
    const ScalarId number = b_.constant_int(static_cast<int64_t>(j) + 1, DType::kInt32);
    failed = b_.select(b_.apply2(Op::kOr, positive, b_.apply1(Op::kNot, going)), failed, number);
    const ScalarId done = b_.compare(Op::kEq, failed, b_.constant_int(0, DType::kInt32));
    const ScalarId root = b_.cast(b_.apply1(Op::kSqrt, left), c_.t);
    l(j, j) = b_.select(done, root, b_.select(going, b_.cast(left, c_.t), a(j, j)));
    for (size_t i = j + 1; i < n_; ++i) {
      ScalarId x = a(i, j);
      for (size_t k = 0; k < j; ++k) x = minus_product(x, l(i, k), conjugate(l(j, k)));
      l(i, j) = b_.select(done, c_.div(x, root), a(i, j));
    }
  }
  *failed_at = failed;
  return l;
}

ScalarMatrix MatrixLoops::cholesky_inverse(const ScalarMatrix& l) const {
  ScalarMatrix inverse = l, result = l;
  for (size_t j = 0; j < n_; ++j) {
    std::vector<ScalarId> column(n_, zero());
    column[j] = c_.div(c_.c(1), l(j, j));
    for (size_t i = j + 1; i < n_; ++i) {
      column[i] = zero();
      for (size_t k = j; k < i; ++k) column[i] = minus_product(column[i], l(i, k), column[k]);
      column[i] = c_.div(column[i], l(i, i));
    }
    for (size_t i = 0; i < n_; ++i) inverse(i, j) = column[i];
  }
  for (size_t i = 0; i < n_; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      ScalarId sum = c_.mul(conjugate(inverse(i, i)), inverse(i, j));
      for (size_t k = i + 1; k < n_; ++k) sum = minus_product(sum, c_.neg(conjugate(inverse(k, i))), inverse(k, j));
      result(i, j) = sum;
      result(j, i) = conjugate(sum);
    }
  }
  return result;
}

}  // namespace tatara::ops
