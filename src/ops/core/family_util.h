// Helpers shared by the operator families: typed access to bound arguments in decompositions, dimension lists, result
// types, scalar arithmetic in lowerings.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/core/builder.h"
#include "ops/core/lowering.h"
#include "ops/core/meta.h"
#include "ops/core/op_def.h"

namespace tatara::ops {

/// A number of a call: the same in each, or one that varies, as a value without dimensions.
class Quantity {
 public:
  Quantity(double fixed) : fixed_(fixed) {}  // NOLINT(google-explicit-constructor): numbers are quantities
  Quantity(GraphBuilder& builder, ValueId value) : builder_(&builder), value_(value) {}

  bool varies() const { return value_ != kNoValue; }
  /// Whether it is this number in every call.
  bool is(double number) const { return !varies() && fixed_ == number; }
  double fixed() const { return fixed_; }
  ValueId value() const { return value_; }
  Arg arg() const { return varies() ? Arg(TensorArg{value_}) : Arg(Scalar(fixed_)); }

  /// In double precision, as arithmetic on Python's floats.
  friend Quantity operator+(const Quantity& a, const Quantity& b) { return of(a, "add", b, a.fixed_ + b.fixed_); }
  friend Quantity operator-(const Quantity& a, const Quantity& b) { return of(a, "sub", b, a.fixed_ - b.fixed_); }
  friend Quantity operator*(const Quantity& a, const Quantity& b) { return of(a, "mul", b, a.fixed_ * b.fixed_); }
  friend Quantity operator/(const Quantity& a, const Quantity& b) { return of(a, "div", b, a.fixed_ / b.fixed_); }
  friend Quantity operator-(const Quantity& a) { return a.varies() ? a * Quantity(-1.0) : Quantity(-a.fixed_); }

 private:
  static Quantity of(const Quantity& a, const char* op, const Quantity& b, double fixed);

  GraphBuilder* builder_ = nullptr;
  double fixed_ = 0;
  ValueId value_ = kNoValue;
};

/// `op` of a tensor and a number.
ValueId with_number(GraphBuilder& b, std::string_view op, ValueId x, const Quantity& number);

/// Bound arguments of a call while it is decomposed or lowered. Accessors raise InternalError on an argument of another
/// kind, Unsupported on what is symbolic where only a number will do.
class Args {
 public:
  Args(GraphBuilder& builder, std::span<const Arg> args)
      : ctx_(builder.ctx()), builder_(&builder), graph_(&builder.graph()), args_(args) {}
  /// Of a node that is being lowered.
  explicit Args(const LowerContext& lower) : ctx_(lower.ctx()), graph_(&lower.graph()), args_(lower.node().args) {}
  /// While types are inferred: everything but `type` and `rank`.
  explicit Args(const MetaContext& meta)
      : ctx_(meta.ctx()),
        args_(meta.num_args() == 0 ? std::span<const Arg>() : std::span(&meta.arg(0), meta.num_args())) {}

  size_t size() const { return args_.size(); }
  const Arg& operator[](size_t i) const { return args_[i]; }
  bool none(size_t i) const;
  bool is_tensor(size_t i) const;
  /// kNoValue for None.
  ValueId tensor(size_t i) const;
  std::vector<ValueId> tensors(size_t i) const;
  const TensorType& type(size_t i) const;
  int64_t rank(size_t i) const { return type(i).dim(); }
  int64_t integer(size_t i) const;  // concrete; a symbolic one is specialised
  Expr expr(size_t i) const;        // an integer, maybe symbolic
  double number(size_t i) const;
  Quantity quantity(size_t i) const;  // may vary, where the operator takes values (OpRegistry::take_values)
  bool flag(size_t i) const;
  Scalar scalar(size_t i) const;
  std::vector<Expr> exprs(size_t i) const;
  std::vector<int64_t> integers(size_t i) const;
  std::optional<DType> dtype(size_t i) const;
  std::string str(size_t i) const;
  /// Dimension i wrapped into [0, rank).
  int64_t dim(size_t i, int64_t rank) const;
  /// The same by wrap_real_dim.
  int64_t real_dim(size_t i, int64_t rank) const;
  /// A dimension list, wrapped, sorted, without duplicates; None and the empty list mean all.
  std::vector<int64_t> dims(size_t i, int64_t rank) const;

 private:
  ExprContext& ctx_;
  GraphBuilder* builder_ = nullptr;
  const Graph* graph_ = nullptr;
  std::span<const Arg> args_;
};

inline Arg int_arg(int64_t value) { return Scalar(value); }
inline Arg bool_arg(bool value) { return Scalar(value); }
inline Arg float_arg(double value) { return Scalar(value); }
inline Arg expr_arg(Expr value) { return value.is_const() ? Scalar(value.const_value()) : Scalar(value); }
inline Arg value_arg(ValueId value) { return value == kNoValue ? Arg(NoneArg{}) : Arg(TensorArg{value}); }
Arg ints_arg(ExprContext& ctx, const std::vector<int64_t>& values);
inline Arg exprs_arg(std::vector<Expr> values) { return SymInts{std::move(values)}; }

/// Wraps `dim`; raises eager's IndexError text as InvalidArgument. A zero-dim tensor counts as one of rank 1.
int64_t wrap_dim(int64_t dim, int64_t rank);
/// The same for operators that need a dimension to be there: raises eager's IndexError text for a zero-dim tensor.
int64_t wrap_real_dim(int64_t dim, int64_t rank);
/// As Args::dims.
std::vector<int64_t> wrap_dims(const std::vector<int64_t>& dims, int64_t rank);
std::vector<int64_t> concrete(ExprContext& ctx, const std::vector<Expr>& values);

/// True when the sizes are equal, recording a guard when that is not decided.
bool same_size(ExprContext& ctx, Expr a, Expr b);
bool same_sizes(ExprContext& ctx, const std::vector<Expr>& a, const std::vector<Expr>& b);
bool is_one(ExprContext& ctx, Expr a);
bool is_zero(ExprContext& ctx, Expr a);
Expr product(ExprContext& ctx, std::span<const Expr> values);

TensorType contiguous_type(ExprContext& ctx, DType dtype, Device device, std::vector<Expr> sizes);
bool is_contiguous(ExprContext& ctx, const TensorType& type);
ValueId contiguous_copy(GraphBuilder& b, ValueId x);
/// A copy whose gradient is a copy too. That of `clone` is the cotangent itself, in eager as well.
ValueId copy_both_ways(GraphBuilder& b, ValueId x);
/// Tensor::is_contiguous(memory_format=channels_last or channels_last_3d).
bool is_contiguous_channels_last(ExprContext& ctx, const TensorType& type);
/// Strides fill memory without gaps or overlaps in some order of the dimensions.
bool is_dense(ExprContext& ctx, const TensorType& type);
/// The strides of such a type in terms of its sizes, for memory that is still to be made; empty: it is none.
std::vector<Expr> dense_strides(ExprContext& ctx, const TensorType& type);
/// Sizes after reducing `dims` (sorted).
std::vector<Expr> reduced_sizes(ExprContext& ctx, const std::vector<Expr>& sizes, const std::vector<int64_t>& dims,
                                bool keepdim);

enum class Layout : uint8_t { kContiguous, kChannelsLast };
/// Tensor::suggest_memory_format: channels last for 4 and 5 dimensions with such strides.
Layout suggested_layout(ExprContext& ctx, const TensorType& type);
std::vector<Expr> layout_strides(ExprContext& ctx, const std::vector<Expr>& sizes, Layout layout);

/// Scalar arithmetic of one dtype inside a lowering.
struct Calc {
  LoopBuilder& b;
  DType t;

  ScalarId c(double value) const {
    return is_integral(t) || t == DType::kBool ? b.constant_int(static_cast<int64_t>(value), t) : b.constant(value, t);
  }
  ScalarId un(ScalarOp op, ScalarId x) const;
  ScalarId bin(ScalarOp op, ScalarId x, ScalarId y) const;
  ScalarId cmp(ScalarOp op, ScalarId x, ScalarId y) const;
  ScalarId add(ScalarId x, ScalarId y) const { return bin(ScalarOp::kAdd, x, y); }
  ScalarId sub(ScalarId x, ScalarId y) const { return bin(ScalarOp::kSub, x, y); }
  ScalarId mul(ScalarId x, ScalarId y) const { return bin(ScalarOp::kMul, x, y); }
  ScalarId div(ScalarId x, ScalarId y) const { return bin(ScalarOp::kDiv, x, y); }
  ScalarId max(ScalarId x, ScalarId y) const { return bin(ScalarOp::kMax, x, y); }
  ScalarId min(ScalarId x, ScalarId y) const { return bin(ScalarOp::kMin, x, y); }
  ScalarId neg(ScalarId x) const { return un(ScalarOp::kNeg, x); }
  ScalarId exp(ScalarId x) const { return un(ScalarOp::kExp, x); }
  ScalarId select(ScalarId cond, ScalarId x, ScalarId y) const;
};

ScalarId logical_and(LoopBuilder& b, ScalarId x, ScalarId y);
ScalarId logical_or(LoopBuilder& b, ScalarId x, ScalarId y);
/// lo <= e < hi as a bool scalar; a bound that ranges decide is left out. kNoScalar when it always holds.
ScalarId in_range(LoopBuilder& b, Expr e, Expr lo, Expr hi);
/// load_masked, or load when the mask is kNoScalar.
ScalarId load_if(LoopBuilder& b, int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other);

/// Indices of an operand of `sizes` under broadcasting to `indices` (right-aligned).
std::vector<Expr> broadcast_indices(ExprContext& ctx, std::span<const Expr> indices, const std::vector<Expr>& sizes);

/// What a family's tables are made of.
struct OpRow {
  const char* name;
  OpKind kind;
  const char* schema;
  const char* names;
  const char* inplace_names = "";
};
OpDef make_op(const OpRow& row, MetaFn meta, DecomposeFn decompose = nullptr, LowerFn lower = nullptr);

}  // namespace tatara::ops
