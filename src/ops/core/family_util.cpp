#include "ops/core/family_util.h"

#include <algorithm>
#include <numeric>

#include "support/error.h"

namespace tatara::ops {

// ---- Numbers that vary -----------------------------------------------------------------------------------------------

Quantity Quantity::of(const Quantity& a, const char* op, const Quantity& b, double fixed) {
  GraphBuilder* const builder = a.varies() ? a.builder_ : b.builder_;
  if (builder == nullptr) return fixed;
  const auto wide = [builder](const Quantity& q) {
    return q.varies() ? builder->cast(q.value_, DType::kFloat64) : builder->constant(q.fixed_, DType::kFloat64);
  };
  return {*builder, builder->unary("as_number", builder->binary(op, wide(a), wide(b)))};
}

ValueId with_number(GraphBuilder& b, std::string_view op, ValueId x, const Quantity& number) {
  return b.op(op, {TensorArg{x}, number.arg()});
}

// ---- Arguments -------------------------------------------------------------------------------------------------------

bool Args::none(size_t i) const {
  if (i >= args_.size() || std::holds_alternative<NoneArg>(args_[i])) return true;
  const auto* tensor = std::get_if<TensorArg>(&args_[i]);
  return tensor != nullptr && tensor->value == kNoValue;
}

bool Args::is_tensor(size_t i) const { return !none(i) && std::holds_alternative<TensorArg>(args_[i]); }

ValueId Args::tensor(size_t i) const {
  if (none(i)) return kNoValue;
  const auto* tensor = std::get_if<TensorArg>(&args_[i]);
  TATARA_CHECK(tensor != nullptr, "argument ", i, " is not a tensor");
  return tensor->value;
}

std::vector<ValueId> Args::tensors(size_t i) const {
  if (none(i)) return {};
  const auto* list = std::get_if<TensorList>(&args_[i]);
  TATARA_CHECK(list != nullptr, "argument ", i, " is not a list of tensors");
  return list->values;
}

const TensorType& Args::type(size_t i) const {
  TATARA_CHECK(graph_ != nullptr, "no graph here");
  return graph_->type(tensor(i));
}

Scalar Args::scalar(size_t i) const {
  const auto* scalar = i < args_.size() ? std::get_if<Scalar>(&args_[i]) : nullptr;
  if (scalar == nullptr) throw Unsupported(str_cat("argument ", i, " is not a Python number"));
  return *scalar;
}

Quantity Args::quantity(size_t i) const {
  if (!is_tensor(i)) return number(i);
  TATARA_CHECK(builder_ != nullptr, "no builder here");
  return {*builder_, tensor(i)};
}

Expr Args::expr(size_t i) const {
  const Scalar value = scalar(i);
  if (const auto* e = std::get_if<Expr>(&value)) return *e;
  if (const auto* n = std::get_if<int64_t>(&value)) return ctx_.constant(*n);
  if (const auto* flag = std::get_if<bool>(&value)) return ctx_.constant(*flag ? 1 : 0);
  throw InvalidArgument(str_cat("argument ", i, " is not an integer"));
}

int64_t Args::integer(size_t i) const {
  const Expr e = expr(i);
  return e.is_const() ? e.const_value() : ctx_.specialize(e);
}

double Args::number(size_t i) const {
  const Scalar value = scalar(i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (std::holds_alternative<std::complex<double>>(value)) throw Unsupported(str_cat("argument ", i, " is complex"));
  return static_cast<double>(integer(i));
}

bool Args::flag(size_t i) const {
  const Scalar value = scalar(i);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return integer(i) != 0;
}

std::vector<Expr> Args::exprs(size_t i) const {
  if (none(i)) return {};
  if (const auto* list = std::get_if<SymInts>(&args_[i])) return list->values;
  return {expr(i)};
}

std::vector<int64_t> Args::integers(size_t i) const { return concrete(ctx_, exprs(i)); }

std::optional<DType> Args::dtype(size_t i) const {
  if (none(i)) return std::nullopt;
  const auto* dtype = std::get_if<DType>(&args_[i]);
  TATARA_CHECK(dtype != nullptr, "argument ", i, " is not a dtype");
  return *dtype;
}

std::string Args::str(size_t i) const {
  if (none(i)) return {};
  const auto* text = std::get_if<std::string>(&args_[i]);
  TATARA_CHECK(text != nullptr, "argument ", i, " is not a string");
  return *text;
}

int64_t Args::dim(size_t i, int64_t rank) const { return wrap_dim(integer(i), rank); }

int64_t Args::real_dim(size_t i, int64_t rank) const { return wrap_real_dim(integer(i), rank); }

std::vector<int64_t> Args::dims(size_t i, int64_t rank) const { return wrap_dims(integers(i), rank); }

Arg ints_arg(ExprContext& ctx, const std::vector<int64_t>& values) {
  SymInts list;
  list.values.reserve(values.size());
  for (int64_t value : values) list.values.push_back(ctx.constant(value));
  return list;
}

// ---- Dimensions and sizes --------------------------------------------------------------------------------------------

int64_t wrap_dim(int64_t dim, int64_t rank) {
  const int64_t n = std::max<int64_t>(rank, 1);
  if (dim < -n || dim >= n) {
    throw InvalidArgument(
        str_cat("Dimension out of range (expected to be in range of [", -n, ", ", n - 1, "], but got ", dim, ")"));
  }
  return dim < 0 ? dim + n : dim;
}

int64_t wrap_real_dim(int64_t dim, int64_t rank) {
  if (rank == 0) {
    throw InvalidArgument(str_cat("Dimension specified as ", dim, " but tensor has no dimensions"));
  }
  return wrap_dim(dim, rank);
}

std::vector<int64_t> wrap_dims(const std::vector<int64_t>& dims, int64_t rank) {
  std::vector<int64_t> result;
  if (dims.empty()) {
    result.resize(static_cast<size_t>(rank));
    std::iota(result.begin(), result.end(), int64_t{0});
    return result;
  }
  for (int64_t dim : dims) result.push_back(wrap_dim(dim, rank));
  std::sort(result.begin(), result.end());
  for (size_t i = 1; i < result.size(); ++i) {
    if (result[i] == result[i - 1]) {
      throw InvalidArgument(str_cat("dim ", result[i], " appears multiple times in the list of dims"));
    }
  }
  if (rank == 0) result.clear();
  return result;
}

std::vector<int64_t> concrete(ExprContext& ctx, const std::vector<Expr>& values) {
  std::vector<int64_t> result;
  result.reserve(values.size());
  for (Expr e : values) result.push_back(e.is_const() ? e.const_value() : ctx.specialize(e));
  return result;
}

bool same_size(ExprContext& ctx, Expr a, Expr b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return a.const_value() == b.const_value();
  return ctx.guard(ctx.eq(a, b));
}

bool same_sizes(ExprContext& ctx, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_size(ctx, a[i], b[i])) return false;
  }
  return true;
}

bool is_one(ExprContext& ctx, Expr a) { return a.is_const() ? a.is_const(1) : same_size(ctx, a, ctx.constant(1)); }
bool is_zero(ExprContext& ctx, Expr a) { return a.is_const() ? a.is_const(0) : same_size(ctx, a, ctx.constant(0)); }

Expr product(ExprContext& ctx, std::span<const Expr> values) {
  Expr result = ctx.constant(1);
  for (Expr e : values) result = ctx.mul(result, e);
  return result;
}

TensorType contiguous_type(ExprContext& ctx, DType dtype, Device device, std::vector<Expr> sizes) {
  TensorType type;
  type.dtype = dtype;
  type.device = device;
  type.strides = contiguous_strides(ctx, sizes);
  type.sizes = std::move(sizes);
  return type;
}

namespace {

/// Whether the dimensions of more than one element lie without gaps in this order, innermost first.
bool lies_in_order(ExprContext& ctx, const TensorType& type, std::span<const size_t> order) {
  Expr expected = ctx.constant(1);
  for (const size_t d : order) {
    if (type.sizes[d].is_const(1)) continue;
    if (!same_size(ctx, type.strides[d], expected)) return false;
    expected = ctx.mul(expected, type.sizes[d]);
  }
  return true;
}

/// Dimensions in channels-last order, innermost first; empty for other ranks than 4 and 5.
std::span<const size_t> channels_last_order(size_t rank) {
  static constexpr size_t kOrder4[] = {1, 3, 2, 0};
  static constexpr size_t kOrder5[] = {1, 4, 3, 2, 0};
  if (rank == 4) return kOrder4;
  return rank == 5 ? std::span<const size_t>(kOrder5) : std::span<const size_t>();
}

}  // namespace

bool is_contiguous(ExprContext& ctx, const TensorType& type) {
  const bool empty = std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr size) { return size.is_const(0); });
  std::vector<size_t> order(type.sizes.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return empty || lies_in_order(ctx, type, order);
}

ValueId copy_both_ways(GraphBuilder& b, ValueId x) { return b.op("flip", {TensorArg{x}, ints_arg(b.ctx(), {})}); }

ValueId contiguous_copy(GraphBuilder& b, ValueId x) {
  return b.op("clone", {TensorArg{x}, std::string("contiguous_format")});
}

bool is_contiguous_channels_last(ExprContext& ctx, const TensorType& type) {
  const std::span<const size_t> order = channels_last_order(type.sizes.size());
  return !order.empty() && lies_in_order(ctx, type, order);  // also without elements
}

namespace {

/// The dimensions from the innermost to the outermost.
std::vector<size_t> order_in_memory(ExprContext& ctx, const TensorType& type) {
  std::vector<size_t> order(type.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (type.sizes[a].is_const(1) != type.sizes[b].is_const(1)) return type.sizes[b].is_const(1);
    if (type.sizes[a].is_const(1) || type.strides[a] == type.strides[b]) return false;
    return ctx.guard(ctx.lt(type.strides[a], type.strides[b]));
  });
  return order;
}

}  // namespace

bool is_dense(ExprContext& ctx, const TensorType& type) {
  return is_contiguous(ctx, type) || lies_in_order(ctx, type, order_in_memory(ctx, type));
}

std::vector<Expr> dense_strides(ExprContext& ctx, const TensorType& type) {
  if (!is_dense(ctx, type)) return {};
  const auto known = [](Expr stride) { return stride.is_const(); };
  if (std::all_of(type.strides.begin(), type.strides.end(), known)) return type.strides;
  if (is_contiguous(ctx, type)) return contiguous_strides(ctx, type.sizes);
  std::vector<Expr> strides(type.sizes.size(), ctx.constant(1));
  Expr next = ctx.constant(1);
  for (const size_t d : order_in_memory(ctx, type)) {
    strides[d] = next;
    next = ctx.mul(next, type.sizes[d]);
  }
  return strides;
}

std::vector<Expr> reduced_sizes(ExprContext& ctx, const std::vector<Expr>& sizes, const std::vector<int64_t>& dims,
                                bool keepdim) {
  std::vector<Expr> result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    if (!reduced) {
      result.push_back(sizes[i]);
    } else if (keepdim) {
      result.push_back(ctx.constant(1));
    }
  }
  return result;
}

Layout suggested_layout(ExprContext& ctx, const TensorType& type) {
  // The rule of eager's is_channels_last_strides: from the channel dimension outwards strides must grow; a size of one
  // takes part with its stride, and N111 counts as contiguous.
  const std::span<const size_t> order = channels_last_order(type.sizes.size());
  if (order.empty()) return Layout::kContiguous;
  if (is_zero(ctx, type.strides[1])) return Layout::kContiguous;
  Expr least = ctx.constant(0);
  for (size_t d : order) {
    if (is_zero(ctx, type.sizes[d])) return Layout::kContiguous;
    if (!(type.strides[d] == least) && ctx.guard(ctx.lt(type.strides[d], least))) return Layout::kContiguous;
    if (d == 0 && same_size(ctx, least, type.strides[1])) return Layout::kContiguous;
    least = type.strides[d];
    if (!is_one(ctx, type.sizes[d])) least = ctx.mul(least, type.sizes[d]);
  }
  return Layout::kChannelsLast;
}

std::vector<Expr> layout_strides(ExprContext& ctx, const std::vector<Expr>& sizes, Layout layout) {
  if (layout == Layout::kContiguous || (sizes.size() != 4 && sizes.size() != 5)) return contiguous_strides(ctx, sizes);
  // Eager multiplies by the sizes as they are here: an empty dimension gives strides of zero.
  std::vector<Expr> strides(sizes.size());
  Expr stride = ctx.constant(1);
  const auto take = [&](size_t d) {
    strides[d] = stride;
    stride = ctx.mul(stride, sizes[d]);
  };
  take(1);
  for (size_t d = sizes.size() - 1; d >= 2; --d) take(d);
  take(0);
  return strides;
}

// ---- Lowering --------------------------------------------------------------------------------------------------------

ScalarId Calc::un(ScalarOp op, ScalarId x) const {
  const ScalarId operands[] = {x};
  return b.apply(op, t, operands);
}

ScalarId Calc::bin(ScalarOp op, ScalarId x, ScalarId y) const {
  const ScalarId operands[] = {x, y};
  return b.apply(op, t, operands);
}

ScalarId Calc::cmp(ScalarOp op, ScalarId x, ScalarId y) const {
  const ScalarId operands[] = {x, y};
  return b.apply(op, DType::kBool, operands);
}

ScalarId Calc::select(ScalarId cond, ScalarId x, ScalarId y) const {
  const ScalarId operands[] = {cond, x, y};
  return b.apply(ScalarOp::kSelect, b.dtype(x), operands);
}

ScalarId logical_and(LoopBuilder& b, ScalarId x, ScalarId y) {
  if (x == loops::kNoScalar) return y;
  if (y == loops::kNoScalar) return x;
  const ScalarId operands[] = {x, y};
  return b.apply(ScalarOp::kAnd, DType::kBool, operands);
}

ScalarId logical_or(LoopBuilder& b, ScalarId x, ScalarId y) {
  const ScalarId operands[] = {x, y};
  return b.apply(ScalarOp::kOr, DType::kBool, operands);
}

ScalarId in_range(LoopBuilder& b, Expr e, Expr lo, Expr hi) {
  ExprContext& ctx = b.ctx();
  const Calc calc{b, DType::kInt64};
  ScalarId mask = loops::kNoScalar;
  if (ctx.decide(ctx.le(lo, e)) != std::optional<bool>(true)) {
    mask = calc.cmp(ScalarOp::kLe, b.index_value(lo, DType::kInt64), b.index_value(e, DType::kInt64));
  }
  if (ctx.decide(ctx.lt(e, hi)) != std::optional<bool>(true)) {
    mask = logical_and(b, mask,
                       calc.cmp(ScalarOp::kLt, b.index_value(e, DType::kInt64), b.index_value(hi, DType::kInt64)));
  }
  return mask;
}

ScalarId load_if(LoopBuilder& b, int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other) {
  return mask == loops::kNoScalar ? b.load(operand, indices) : b.load_masked(operand, indices, mask, other);
}

std::vector<Expr> broadcast_indices(ExprContext& ctx, std::span<const Expr> indices, const std::vector<Expr>& sizes) {
  TATARA_CHECK(sizes.size() <= indices.size(), "operand of higher rank than the result");
  const size_t skip = indices.size() - sizes.size();
  std::vector<Expr> result(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) result[i] = sizes[i].is_const(1) ? ctx.constant(0) : indices[skip + i];
  return result;
}

OpDef make_op(const OpRow& row, MetaFn meta, DecomposeFn decompose, LowerFn lower) {
  OpDef def;
  def.name = row.name;
  def.kind = row.kind;
  def.schema_text = row.schema;
  def.names = row.names;
  def.inplace_names = row.inplace_names;
  def.meta = std::move(meta);
  def.decompose = std::move(decompose);
  def.lower = std::move(lower);
  return def;
}

}  // namespace tatara::ops
