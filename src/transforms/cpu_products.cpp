// Products on a CPU whose matrices stay in its cache. The host takes a microsecond to begin each, multiplies matrices of up to seven rows
// and columns one element after the other, and keeps what follows from fusing. As a reduction such a product is part of a kernel, which
// computes several rows of some columns in registers (schedule/cpu_products.cpp).
#include <algorithm>
#include <cmath>
#include <optional>

#include "loops/cpu_tile.h"
#include "ops/core/builder.h"
#include "ops/core/family_util.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "ops/reduce/softmax_source.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kMostBytes = 1 << 22;      // of the right matrix as float32 or float64
constexpr int64_t kMostOfFloat16 = 1 << 26;  // which the host multiplies by single elements
// Of complex numbers, whose parts lie beside each other: so many products in a sum, or multiplications in all.
constexpr int64_t kMostInnerOfComplex = 4, kMostOfComplex = 4096;
constexpr int64_t kMostInner = 4096;  // products in a sum, that one thread adds up
// Rows at multiples of so many bytes lie in few places of the cache: that many rows are copied further apart.
constexpr int64_t kPlaceBytes = 2048, kLeastRowsOfPlace = 256, kFurther = 64;
constexpr int64_t kSeen = 64;            // for sizes of which nothing is known
constexpr double kNaive = 400;           // multiplications, below which the host does without its library in a batch
constexpr double kAlwaysHere = 1 << 15;  // below which its beginning is most of its time on every machine

// Cycles, measured on a Zen 4 (docs/decisions/076-products-as-loops.md).
constexpr double kHostCall = 3200;
constexpr double kHostBatch = 250;  // of each matrix of a batch
constexpr double kHostRow = 10;
constexpr double kHostElement = 0.5;   // of the result
constexpr double kHostWidth = 16;      // columns that it multiplies at once
constexpr double kHostNaive = 4;       // of a multiplication without the library
constexpr double kHostRate = 0.92;     // of the vectors' rate
constexpr double kHostBFloat16 = 1.8;  // with instructions for it, which begin later
constexpr double kHostBFloat16Call = 60000;
constexpr double kHostFloat16 = 0.2;  // of which it has none
constexpr double kOwnLaunch = 600;
constexpr double kOwnTile = 8;
constexpr double kOwnHalves = 1.9;  // with conversions
// On a Zen 3: vectors of half a line of the cache fetch each line twice where the right matrix does not stay in the first cache.
// Of few rows the host's library reads it as often.
constexpr double kOwnHalfLines = 1.4, kFirstCache = 1 << 16, kLine = 64, kLeastHalfLines = 33;
constexpr double kLatency = 4;     // of a multiplication and addition
constexpr double kOwnSum = 8;      // to add up the lanes of a vector
constexpr double kCopied = 0.6;    // an element of a matrix in another order
constexpr double kCopiedFar = 4;   // where it comes from behind the second cache
constexpr double kNear = 1 << 18;  // bytes that do not
constexpr double kVectorsBeside = 2, kVectorsOfFewRows = 4;
constexpr double kFewRows = 4;
constexpr int64_t kLeastWideRows = 5;    // and columns, of products of narrower numbers, that a tile pays for, and
constexpr int64_t kLeastWide = 1 << 18;  // multiplications

struct CpuProduct {
  ProductArgs form;
  bool columns = true;        // lanes lie along columns, else along what is summed
  bool copies_right = false;  // whose elements lie otherwise
};

/// What a product costs, in cycles of one thread.
class ProductCycles {
 public:
  ProductCycles(ExprContext& ctx, const ProductArgs& form, const TensorType& a, const TensorType& b, int vector_bytes)
      : dtype_(a.dtype), batched_(form.batched) {
    const size_t d = form.batched ? 1 : 0;
    const auto seen = [&ctx](Expr e) { return static_cast<double>(ctx.evaluate_hint(e).value_or(kSeen)); };
    if (form.batched) batch_ = seen(a.sizes[0]);
    rows_ = seen(a.sizes[d]);
    inner_ = seen(a.sizes[d + 1]);
    columns_ = form.vector ? 1 : seen(b.sizes[d + 1]);
    lanes_ = static_cast<double>(vector_bytes) / std::max(dtype_size(a.dtype), 4);
    const double right = inner_ * columns_ * std::max(dtype_size(a.dtype), 4);
    half_lines_ = vector_bytes < kLine && rows_ >= kLeastHalfLines && right > kFirstCache;
  }

  /// Whether the host multiplies without its library.
  bool is_naive() const { return batched_ && each() < kNaive; }
  double each() const { return rows_ * inner_ * columns_; }
  double multiplications() const { return batch_ * each(); }

  double host() const {
    double rate = kHostRate, call = kHostCall;
    if (dtype_ == DType::kBFloat16) {
      rate = kHostBFloat16;
      call = kHostBFloat16Call;
    }
    if (dtype_ == DType::kFloat16) rate = kHostFloat16;
    const bool vector = rows_ == 1 || columns_ == 1;
    const double width = vector ? columns_ : std::ceil(columns_ / kHostWidth) * kHostWidth;
    const double product = rows_ * inner_ * width / (lanes_ * rate) + rows_ * (kHostRow + kHostElement * columns_);
    if (!batched_) return call + product;
    if (is_naive()) return kHostCall + kHostNaive * multiplications();
    return call + batch_ * (kHostBatch + (vector ? 2 : 1) * product);
  }

  double along_columns(bool copied) const {
    const auto rows = static_cast<double>(loops::rows_beside(static_cast<int64_t>(rows_)));
    const double vectors = std::ceil(columns_ / lanes_);
    const double chains = rows * std::min(vectors, rows > kFewRows ? kVectorsBeside : kVectorsOfFewRows);
    const double each = std::max(1.0, kLatency / chains) * (half_lines_ ? kOwnHalfLines : 1);
    const double tile = inner_ * rows * vectors * each + kOwnTile * vectors;
    return kOwnLaunch + halves() * batch_ * std::ceil(rows_ / rows) * tile + copy(copied);
  }

  double along_inner(bool copied) const {
    const double sum = std::ceil(inner_ / lanes_) * 1.2 + kOwnSum;
    return kOwnLaunch + halves() * batch_ * rows_ * columns_ * sum + copy(copied);
  }

 private:
  double halves() const { return is_low_precision(dtype_) ? kOwnHalves : 1; }
  double copy(bool copied) const {
    if (!copied) return 0;
    const double elements = batch_ * inner_ * columns_;
    return kOwnLaunch + elements * (elements * dtype_size(dtype_) > kNear ? kCopiedFar : kCopied);
  }

  DType dtype_;
  bool batched_, half_lines_ = false;
  double batch_ = 1, rows_ = 1, inner_ = 1, columns_ = 1, lanes_ = 1;
};

/// Whether the rows of a matrix as long as its columns would all lie in few places of the cache.
bool meet_in_cache(Expr inner, Expr columns, DType dtype) {
  return inner.is_const() && columns.is_const() && inner.const_value() >= kLeastRowsOfPlace &&
         columns.const_value() * dtype_size(dtype) % kPlaceBytes == 0;
}

bool is_long(ExprContext& ctx, Expr length, int64_t most) { return ctx.evaluate_hint(length).value_or(0) > most; }

std::optional<CpuProduct> cpu_product(const Graph& g, const Node& node, const PassOptions& options) {
  const std::optional<ProductArgs> form = product_args(node);
  if (!form || options.vector_bytes < 32) return std::nullopt;
  const auto* left = std::get_if<TensorArg>(&node.args[form->left]);
  const auto* right = std::get_if<TensorArg>(&node.args[form->left + 1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  const TensorType &a = g.type(left->value), &b = g.type(right->value);
  const bool numbers = is_complex(a.dtype) || (is_floating(a.dtype) && dtype_size(a.dtype) >= 2);
  if (!numbers || a.device.kind == DeviceKind::kCuda) return std::nullopt;
  if (form->added && is_factor(node.args[4], 0)) return std::nullopt;
  const size_t d = form->batched ? 1 : 0;
  ExprContext& ctx = g.ctx();
  const Expr inner = a.sizes[d + 1], columns = form->vector ? ctx.constant(1) : b.sizes[d + 1];
  // Of a dim that is thought to have at most one element no loop is left, ahead of which it would be read even where it has none.
  const auto vanishes = [&ctx](Expr e) { return e.is_const() ? e.is_const(0) : ctx.range(e).hi <= 1; };
  const bool empty = vanishes(inner) || vanishes(columns) || std::any_of(a.sizes.begin(), a.sizes.end(), vanishes);
  const int64_t most = a.dtype == DType::kFloat16 ? kMostOfFloat16 : kMostBytes;
  if (empty || is_long(ctx, inner, kMostInner)) return std::nullopt;
  if (is_long(ctx, ctx.mul(inner, columns), most / std::max(dtype_size(a.dtype), 4))) return std::nullopt;
  const ProductCycles cycles(ctx, *form, a, b, options.vector_bytes);
  const double host = cycles.host();
  if (is_complex(a.dtype) && is_long(ctx, inner, kMostInnerOfComplex) && cycles.each() > kMostOfComplex) {
    return std::nullopt;
  }
  const bool always = cycles.is_naive() || cycles.multiplications() <= kAlwaysHere;
  if (!options.thin_weights && !always) return std::nullopt;
  const bool one_column = columns.is_const(1);
  const bool lie_along_columns =
      !form->vector && b.strides[d + 1].is_const(1) && !meet_in_cache(inner, b.strides[d], a.dtype);
  const bool lie_along_inner = one_column || b.strides[d].is_const(1);
  const bool left_along_inner = a.strides[d + 1].is_const(1);
  const double by_columns = cycles.along_columns(!lie_along_columns && !one_column);
  const double by_inner = cycles.along_inner(!lie_along_inner);
  if (left_along_inner && by_inner < std::min(host, by_columns)) return CpuProduct{*form, false, !lie_along_inner};
  if (by_columns < host) return CpuProduct{*form, true, !lie_along_columns && !one_column};
  return std::nullopt;
}

/// What the float operand of a product is a cast of, where products of ours take that: seen as the operand is.
struct Narrow {
  ValueId value = kNoValue;
  bool turned = false;  // the operand is its transpose
};

struct WideProduct {
  ProductArgs form;
  Narrow right;
};

bool is_narrow(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kBFloat16; }

std::optional<Narrow> narrow_operand(const Graph& g, const std::vector<int>& uses, ValueId operand) {
  Narrow found{operand, false};
  bool cast = false;
  while (g.type(found.value).dtype != DType::kInt8) {
    const Node* node = g.producer(found.value);
    if (node == nullptr) break;
    const bool turns = exchanges(g, *node, -1);
    const bool casts = is_cast(*node) && !cast && uses[static_cast<size_t>(found.value)] == 1;
    if (!turns && !casts) break;
    const ValueId from = std::get<TensorArg>(node->args[0]).value;
    if (casts && !is_narrow(g.type(from).dtype)) break;
    found.turned = found.turned != turns;
    cast = cast || casts;
    found.value = from;
  }
  return is_narrow(g.type(found.value).dtype) ? std::optional(found) : std::nullopt;
}

/// A product of float32 with a matrix of narrower numbers, which is widened where it is packed and not ahead; and those of bfloat16 where
/// the host has no instructions for them.
std::optional<WideProduct> wide_product(const Graph& g, const std::vector<int>& uses, const Node& node,
                                        const PassOptions& options) {
  const std::optional<ProductArgs> form = product_args(node);
  if (!options.wide_products || !form || form->batched || form->vector) return std::nullopt;
  const auto* left = std::get_if<TensorArg>(&node.args[form->left]);
  const auto* right = std::get_if<TensorArg>(&node.args[form->left + 1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  const TensorType &a = g.type(left->value), &b = g.type(right->value);
  const bool half = a.dtype == DType::kBFloat16 && options.slow_bfloat16;
  if (a.device.kind == DeviceKind::kCuda || (a.dtype != DType::kFloat32 && !half)) return std::nullopt;
  if (form->added && is_factor(node.args[4], 0)) return std::nullopt;
  const auto seen = [&g](Expr e) { return g.ctx().evaluate_hint(e).value_or(kSeen); };
  const int64_t rows = seen(a.sizes[0]), inner = seen(a.sizes[1]), columns = seen(b.sizes[1]);
  if (rows < kLeastWideRows || columns < kLeastWideRows || inner < kSeen || rows * columns * inner < kLeastWide)
    return std::nullopt;
  const std::optional<Narrow> narrow = narrow_operand(g, uses, right->value);
  if (!narrow && !half) return std::nullopt;
  return WideProduct{*form, narrow.value_or(Narrow{right->value, false})};
}

/// Writes one product as a reduction.
class CpuWriter {
 public:
  CpuWriter(GraphCopy& copy, const Node& node, const CpuProduct& product)
      : copy_(copy), b_(copy.to()), args_(copy.args(node)), product_(product) {
    b_.set_location(node.location);
  }

  ValueId run(const TensorType& type) {
    const auto [left_at, added, batched, vector] = product_.form;
    ValueId left = tensor(left_at), right = tensor(left_at + 1);
    if (vector) right = b_.unsqueeze(right, 1);
    const int64_t batch = batched ? 1 : 0;
    if (product_.copies_right) right = copied(right, static_cast<size_t>(batch));
    std::vector<Expr> sizes(b_.type(left).sizes.begin(), b_.type(left).sizes.end() - 1);
    sizes.push_back(b_.type(right).sizes.back());
    sizes.push_back(b_.type(left).sizes.back());
    left = b_.expand(b_.unsqueeze(left, batch + 1), sizes);
    right = b_.permute(right, batched ? std::vector<int64_t>{0, 2, 1} : std::vector<int64_t>{1, 0});
    right = b_.expand(b_.unsqueeze(right, batch), sizes);
    ValueId result = b_.op("cpu_product", {TensorArg{left}, TensorArg{right}, Scalar(product_.columns), Scalar(false)});
    if (vector) result = b_.squeeze(result, 1);
    if (added) result = with_sum(result);
    return b_.cast(result, type.dtype);
  }

  ValueId run_wide(const WideProduct& wide, const TensorType& type) {
    ValueId right = copy_[wide.right.value];
    if (wide.right.turned) right = b_.permute(right, {1, 0});
    ValueId result = b_.op("wide_mm", {TensorArg{tensor(wide.form.left)}, TensorArg{right}});
    if (wide.form.added) result = with_sum(result);
    return b_.cast(result, type.dtype);
  }

 private:
  ValueId tensor(size_t i) const { return std::get<TensorArg>(args_[i]).value; }

  /// With neighbours where the lanes lie.
  ValueId copied(ValueId right, size_t batch) {
    const TensorType& type = b_.type(right);
    const Expr rows = type.sizes[batch], columns = type.sizes[batch + 1], one = b_.ctx().constant(1);
    Expr row = product_.columns ? columns : one;
    if (product_.columns && meet_in_cache(rows, columns, type.dtype)) {
      row = b_.ctx().constant(columns.const_value() + kFurther / dtype_size(type.dtype));
    }
    std::vector<Expr> strides(batch, b_.ctx().mul(rows, product_.columns ? row : columns));
    strides.push_back(row);
    strides.push_back(product_.columns ? one : rows);
    return b_.op("relayout", {TensorArg{right}, SymInts{strides}});
  }

  ValueId with_sum(ValueId result) {
    const DType wide = b_.type(result).dtype;
    const ValueId self = is_factor(args_[3], 0) ? kNoValue : b_.cast(tensor(0), wide);
    return product_sum(b_, result, self, args_[3], args_[4]);
  }

  const GraphCopy& copy_;
  GraphBuilder b_;
  const std::vector<Arg> args_;
  const CpuProduct product_;
};

}  // namespace

Graph cpu_products(const Graph& graph, const PassOptions& options) {
  return run_pass("cpu_products", graph, options, [&](const Graph& g) {
    const std::vector<int> uses = g.use_counts();
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const std::optional<CpuProduct> product = cpu_product(g, node, options);
      const std::optional<WideProduct> wide =
          product ? std::optional<WideProduct>() : wide_product(g, uses, node, options);
      if (!product && !wide) {
        copy.copy(node);
        continue;
      }
      const size_t first_new = copy.to().num_nodes();
      const TensorType& type = g.type(node.outputs[0]);
      const ValueId made = product ? CpuWriter(copy, node, *product).run(type)
                                   : CpuWriter(copy, node, {wide->form}).run_wide(*wide, type);
      copy.set(node.outputs[0], with_type(copy, made, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
