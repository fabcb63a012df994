// Operators on batches of small matrices, as loops over the batch: each iteration takes one matrix apart. The host's operators are made of
// them (ops/linear/small_matrix_parts.cpp); no program has them. Right sides are rows, that is, transposed.
#include <utility>

#include "ops/linear/matrix_loops.h"
#include "ops/rules/batching_rule.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

constexpr int64_t kMostInBlock = 16;  // elements that an iteration computes side by side

// ---- Types ------------------------------------------------------------------------------------------------------------

std::vector<Expr> batch_of(const TensorType& matrices) { return {matrices.sizes.begin(), matrices.sizes.end() - 2}; }

MetaFn like_operand(size_t operand) {
  return [operand](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& type = m.tensor(operand);
    return {contiguous_type(m.ctx(), type.dtype, type.device, type.sizes)};
  };
}

TensorType each(MetaContext& m, DType dtype) {
  return contiguous_type(m.ctx(), dtype, m.tensor(0).device, batch_of(m.tensor(0)));
}

std::vector<TensorType> lu_types(MetaContext& m) {
  const TensorType& type = m.tensor(0);
  std::vector<Expr> pivots(type.sizes.begin(), type.sizes.end() - 1);
  return {contiguous_type(m.ctx(), type.dtype, type.device, type.sizes),
          contiguous_type(m.ctx(), DType::kInt32, type.device, std::move(pivots))};
}

std::vector<TensorType> info_type(MetaContext& m) { return {each(m, DType::kInt32)}; }
std::vector<TensorType> det_type(MetaContext& m) { return {each(m, m.tensor(0).dtype)}; }
std::vector<TensorType> slogdet_types(MetaContext& m) {
  const DType dtype = m.tensor(0).dtype;
  return {each(m, dtype), each(m, real_dtype(dtype))};
}

// ---- Loops ------------------------------------------------------------------------------------------------------------

/// The program's error, which the call has in eager (OpDef::per_matrix).
void stop_if(LoopBuilder& b, ScalarId info) {
  const ScalarId failed = b.compare(Op::kNe, info, b.constant_int(0, DType::kInt32));
  b.indirect(b.cast(failed, DType::kInt64), b.ctx().constant(1), false, true);
}

using Before = std::span<const Expr>;
/// What an iteration does: `m` for the matrices of operand `matrix`.
using Body = std::function<std::vector<ScalarId>(const MatrixLoops& m, LoopBuilder& b, Before before)>;

void per_matrix(LowerContext& c, int output, size_t dims, int matrix, Body body) {
  const TensorType& type = c.operand(matrix);
  const auto n = static_cast<size_t>(type.sizes.back().const_value());
  c.block(output, dims, [n, dtype = type.dtype, body = std::move(body)](LoopBuilder& b, Before before) {
    return body(MatrixLoops(b, dtype, n), b, before);
  });
}

void lower_inverse(LowerContext& c) {
  const bool checked = Args(c).flag(1);
  per_matrix(c, 0, 2, 0, [checked](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarFactors f = m.factor(m.load(0, before));
    if (checked) stop_if(b, m.singular_at(f));
    return m.inverse(f).elements;
  });
}

using Solve = std::function<std::vector<ScalarId>(std::vector<ScalarId> right)>;

/// Right sides are rows of operand `rows`. A few are solved side by side, of more each by an iteration.
void per_rows(LowerContext& c, int rows, int matrix,
              std::function<Solve(const MatrixLoops& m, LoopBuilder& b, Before batch)> solver) {
  const TensorType& type = c.operand(rows);
  const Expr count = type.sizes[type.sizes.size() - 2];
  const bool together = count.is_const() && count.const_value() * type.sizes.back().const_value() <= kMostInBlock;
  const int64_t rows_each = together ? count.const_value() : 1;
  per_matrix(c, 0, together ? 2 : 1, matrix, [=](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const Solve solve = solver(m, b, together ? before : before.first(before.size() - 1));
    std::vector<Expr> at(before.begin(), before.end());
    if (together) at.emplace_back();
    std::vector<ScalarId> result;
    for (int64_t row = 0; row < rows_each; ++row) {
      if (together) at.back() = b.ctx().constant(row);
      const std::vector<ScalarId> solved = solve(m.load_row(rows, at));
      result.insert(result.end(), solved.begin(), solved.end());
    }
    return result;
  });
}

/// (A, rows, left, checked): A x = b of each row b, or x A = b.
void lower_solve(LowerContext& c) {
  const Args args(c);
  const bool left = args.flag(2), checked = args.flag(3);
  per_rows(c, 1, 0, [left, checked](const MatrixLoops& m, LoopBuilder& b, Before batch) -> Solve {
    ScalarFactors f = m.factor(m.load(0, batch));
    if (checked) stop_if(b, m.singular_at(f));
    return [m, f = std::move(f), left](std::vector<ScalarId> right) {
      return left ? m.solve(f, std::move(right)) : m.solve_row(f, std::move(right));
    };
  });
}

void lower_solve_triangular(LowerContext& c) {
  const Args args(c);
  const bool upper = args.flag(2), unit = args.flag(3);
  per_rows(c, 1, 0, [upper, unit](const MatrixLoops& m, LoopBuilder&, Before batch) -> Solve {
    return [m, a = m.load(0, batch), upper, unit](std::vector<ScalarId> right) {
      return m.solve_triangular(a, std::move(right), upper, unit);
    };
  });
}

/// By a factor L, and its adjoint.
std::vector<ScalarId> solve_by_factor(const MatrixLoops& m, const ScalarMatrix& lower, const ScalarMatrix& upper,
                                      std::vector<ScalarId> right) {
  return m.solve_triangular(upper, m.solve_triangular(lower, std::move(right), false, false), true, false);
}

void lower_cholesky_solve(LowerContext& c) {
  const bool upper = Args(c).flag(2);
  per_rows(c, 0, 1, [upper](const MatrixLoops& m, LoopBuilder&, Before batch) -> Solve {
    const ScalarMatrix factor = m.load(1, batch), adjoint = m.transposed(factor, true);
    return [m, factor, adjoint, upper](std::vector<ScalarId> right) {
      return solve_by_factor(m, upper ? adjoint : factor, upper ? factor : adjoint, std::move(right));
    };
  });
}

void lower_cholesky_inverse(LowerContext& c) {
  const bool upper = Args(c).flag(1);
  per_matrix(c, 0, 2, 0, [upper](const MatrixLoops& m, LoopBuilder& b, Before before) {
    ScalarMatrix factor = m.load(0, before);
    if (upper) factor = m.transposed(factor, true);
    ScalarId info = b.constant_int(0, DType::kInt32);
    for (size_t j = 0; j < m.size(); ++j) {
      const ScalarId zero = b.compare(Op::kEq, m.magnitude(factor(j, j)), b.constant(0, real_dtype(m.calc().t)));
      info = b.select(zero, b.constant_int(1, DType::kInt32), info);
    }
    stop_if(b, info);
    return m.cholesky_inverse(factor).elements;
  });
}

void lower_lu(LowerContext& c) {
  const bool checked = Args(c).flag(1);
  per_matrix(c, 0, 2, 0, [checked](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarFactors f = m.factor(m.load(0, before));
    if (checked) stop_if(b, m.singular_at(f));
    return f.lu.elements;
  });
  per_matrix(c, 1, 1, 0, [](const MatrixLoops& m, LoopBuilder&, Before before) {
    return m.pivot_rows(m.factor(m.load(0, before)));
  });
}

void lower_singular_at(LowerContext& c) {
  const bool checked = Args(c).flag(1);
  per_matrix(c, 0, 0, 0, [checked](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarId info = m.singular_at(m.factor(m.load(0, before)));
    if (checked) stop_if(b, info);
    return std::vector{info};
  });
}

void lower_det(LowerContext& c) {
  per_matrix(c, 0, 0, 0, [](const MatrixLoops& m, LoopBuilder&, Before before) {
    const ScalarFactors f = m.factor(m.load(0, before));
    ScalarId product = f.lu(0, 0);
    for (size_t k = 1; k < m.size(); ++k) product = m.calc().mul(product, f.lu(k, k));
    return std::vector{m.calc().mul(m.parity(f), product)};
  });
}

/// x / |x|, and 0 of 0.
ScalarId sign_of(LoopBuilder& b, const Calc& c, ScalarId x) {
  if (!is_complex(c.t)) {
    const ScalarId zero = c.c(0);
    return c.sub(b.cast(b.compare(Op::kLt, zero, x), c.t), b.cast(b.compare(Op::kLt, x, zero), c.t));
  }
  const ScalarId length = b.apply1(Op::kAbs, x), none = b.constant(0, real_dtype(c.t));
  return b.select(b.compare(Op::kEq, length, none), c.c(0), c.div(x, b.cast(length, c.t)));
}

void lower_slogdet(LowerContext& c) {
  per_matrix(c, 0, 0, 0, [](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarFactors f = m.factor(m.load(0, before));
    ScalarId sign = m.parity(f);
    for (size_t k = 0; k < m.size(); ++k) sign = m.calc().mul(sign, sign_of(b, m.calc(), f.lu(k, k)));
    return std::vector{sign};
  });
  per_matrix(c, 1, 0, 0, [](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarFactors f = m.factor(m.load(0, before));
    ScalarId sum = b.apply1(Op::kLog, b.apply1(Op::kAbs, f.lu(0, 0)));
    for (size_t k = 1; k < m.size(); ++k) {
      sum = b.apply2(Op::kAdd, sum, b.apply1(Op::kLog, b.apply1(Op::kAbs, f.lu(k, k))));
    }
    return std::vector{sum};
  });
}

/// Of (A, upper, checked): the lower factor, and where it fails.
std::pair<ScalarMatrix, ScalarId> cholesky_of(const MatrixLoops& m, LoopBuilder& b, Before before, bool upper,
                                              bool checked) {
  const ScalarMatrix a = m.load(0, before);
  ScalarId failed_at = loops::kNoScalar;
  ScalarMatrix l = m.cholesky(upper ? m.transposed(a, true) : a, &failed_at);
  if (checked) stop_if(b, failed_at);
  return {std::move(l), failed_at};
}

void lower_cholesky(LowerContext& c) {
  const Args args(c);
  const bool upper = args.flag(1), checked = args.flag(2);
  per_matrix(c, 0, 2, 0, [upper, checked](const MatrixLoops& m, LoopBuilder& b, Before before) {
    const ScalarMatrix l = cholesky_of(m, b, before, upper, checked).first;
    return upper ? m.transposed(l, true).elements : l.elements;
  });
}

void lower_not_positive_at(LowerContext& c) {
  const Args args(c);
  const bool upper = args.flag(1), checked = args.flag(2);
  per_matrix(c, 0, 0, 0, [upper, checked](const MatrixLoops& m, LoopBuilder& b, Before before) {
    return std::vector{cholesky_of(m, b, before, upper, checked).second};
  });
}

}  // namespace

void register_small_matrices(OpRegistry& r) {
  const auto add = [&r](const char* name, const char* schema, MetaFn meta, LowerFn lower) {
    OpDef def = make_op({name, OpKind::kIndexing, schema, ""}, std::move(meta), nullptr, std::move(lower));
    def.batch = batch_as_is;
    def.per_matrix = true;
    r.add(std::move(def));
  };
  add("small_inverse", "(Tensor a, bool checked) -> Tensor", like_operand(0), lower_inverse);
  add("small_solve", "(Tensor a, Tensor rows, bool left, bool checked) -> Tensor", like_operand(1), lower_solve);
  add("small_lu", "(Tensor a, bool checked) -> (Tensor, Tensor)", lu_types, lower_lu);
  add("small_singular_at", "(Tensor a, bool checked) -> Tensor", info_type, lower_singular_at);
  add("small_det", "(Tensor a) -> Tensor", det_type, lower_det);
  add("small_slogdet", "(Tensor a) -> (Tensor, Tensor)", slogdet_types, lower_slogdet);
  add("small_cholesky", "(Tensor a, bool upper, bool checked) -> Tensor", like_operand(0), lower_cholesky);
  add("small_not_positive_at", "(Tensor a, bool upper, bool checked) -> Tensor", info_type, lower_not_positive_at);
  add("small_solve_triangular", "(Tensor a, Tensor rows, bool upper, bool unit) -> Tensor", like_operand(1),
      lower_solve_triangular);
  add("small_cholesky_solve", "(Tensor rows, Tensor factor, bool upper) -> Tensor", like_operand(0),
      lower_cholesky_solve);
  add("small_cholesky_inverse", "(Tensor factor, bool upper) -> Tensor", like_operand(0), lower_cholesky_inverse);
}

}  // namespace tatara
