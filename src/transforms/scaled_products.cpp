#include "transforms/scaled_products.h"

#include <optional>

#include "ops/core/op_def.h"
#include "transforms/product_costs.h"

namespace tatara {
namespace {

constexpr int64_t kScaled = 128;  // rows, or elements of k, that a scale of a block is of

/// As torch's `_scaled_mm` takes them: one scale of each operand, one of each row and of each column, or, summed apart, one of each row and 128
/// elements of k, and of 128 x 128 of the right operand.
enum class Scaling : uint8_t { kTensor, kRows, kBlocks };

struct ScaledOperands {
  ValueId x, y, x_scale, y_scale;
  int64_t rows, columns, inner;
};

bool is_known(const TensorType& type) {
  for (const Expr size : type.sizes) {
    if (!size.is_const() || size.const_value() <= 0) return false;
  }
  for (const Expr stride : type.strides) {
    if (!stride.is_const()) return false;
  }
  return true;
}

std::optional<Scaling> scaling_of(const Graph& g, const ScaledOperands& o) {
  const TensorType &left = g.type(o.x_scale), &right = g.type(o.y_scale);
  for (const TensorType* type : {&left, &right}) {
    if (type->dtype != DType::kFloat32 || type->device != g.type(o.x).device || !is_known(*type)) return std::nullopt;
  }
  const auto is = [](const TensorType& type, int64_t rows, int64_t columns) {
    return type.dim() == 2 && type.sizes[0].is_const(rows) && type.sizes[1].is_const(columns);
  };
  const auto is_one = [](const TensorType& type) {
    for (const Expr size : type.sizes) {
      if (!size.is_const(1)) return false;
    }
    return true;
  };
  if (is_one(left) && is_one(right)) return Scaling::kTensor;
  // What the host's kernels refuse is theirs to refuse: scales that lie otherwise.
  const auto lies = [](const TensorType& type, int64_t row, int64_t column) {
    return type.strides[0].is_const(row) && type.strides[1].is_const(column);
  };
  if (is(left, o.rows, 1) && is(right, 1, o.columns)) {
    return left.strides[0].is_const(1) && right.strides[1].is_const(1) ? std::optional(Scaling::kRows) : std::nullopt;
  }
  const bool whole = o.inner % kScaled == 0 && o.columns % kScaled == 0;
  const int64_t blocks = o.inner / kScaled;
  // Others than groups of four they read wrongly.
  if (!whole || blocks % 4 != 0) return std::nullopt;
  const bool fits = is(left, o.rows, blocks) && is(right, blocks, o.columns / kScaled);
  return fits && lies(left, 1, o.rows) && lies(right, 1, blocks) ? std::optional(Scaling::kBlocks) : std::nullopt;
}

/// Both operands' rows of k, as the tensor cores read one-byte elements; at most one of them is of the wider type.
std::optional<ScaledOperands> operands_of(const Graph& g, const std::vector<Arg>& args) {
  ScaledOperands o{};
  ValueId* const values[] = {&o.x, &o.y, &o.x_scale, &o.y_scale};
  for (size_t i = 0; i < 4; ++i) {
    const auto* tensor = std::get_if<TensorArg>(&args[i]);
    if (tensor == nullptr) return std::nullopt;
    *values[i] = tensor->value;
  }
  const TensorType &x = g.type(o.x), &y = g.type(o.y);
  for (const ValueId v : {o.x, o.y}) {
    const DType dtype = g.type(v).dtype;
    const bool small = dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2;
    if (!small || g.type(v).device.kind != DeviceKind::kCuda || g.type(v).dim() != 2) return std::nullopt;
    if (!is_product_operand(g, v, dtype)) return std::nullopt;
  }
  if (x.dtype == DType::kFloat8E5M2 && y.dtype == DType::kFloat8E5M2) return std::nullopt;
  if (!x.strides[1].is_const(1) || !y.strides[0].is_const(1) || !(x.sizes[1] == y.sizes[0])) return std::nullopt;
  o.rows = x.sizes[0].const_value();
  o.inner = x.sizes[1].const_value();
  o.columns = y.sizes[1].const_value();
  const auto even = [](int64_t n) { return n % 16 == 0; };  // of others the host says that it takes none
  return even(o.inner) && even(o.columns) ? std::optional(o) : std::nullopt;
}

/// Which types the host's kernels have, so that what they refuse stays refused: of the result, and of a bias.
bool takes_types(Scaling scaling, bool fast, const TensorType& result, const TensorType* bias) {
  const DType dtype = result.dtype;
  if (scaling == Scaling::kBlocks) return dtype == DType::kBFloat16 && !fast && bias == nullptr;
  const bool half = dtype == DType::kBFloat16 || (dtype == DType::kFloat16 && scaling == Scaling::kTensor);
  if (bias == nullptr) return half || dtype == DType::kFloat32;
  return half && bias->dtype == dtype && bias->dim() == 1 && bias->sizes[0] == result.sizes[1] &&
         bias->strides[0].is_const(1);
}

const ProductForm& form_of(Scaling scaling, bool fast) {
  switch (scaling) {
    case Scaling::kTensor: return fast ? kSmallProducts : kSmallBlockProducts;
    case Scaling::kRows: return fast ? kRowScaledProducts : kRowScaledBlockProducts;
    default: return kBlockScaledProducts;
  }
}

}  // namespace

std::vector<ValueId> scaled_products(GraphCopy& copy, GraphBuilder& b, const Node& node, bool followed,
                                     int processors) {
  if (node.op->name != "_scaled_mm" || processors == 0) return {};
  const std::vector<Arg> args = copy.args(node);
  const TensorType& type = copy.from().type(node.outputs[0]);
  const std::optional<ScaledOperands> operands = operands_of(b.graph(), args);
  if (!operands || !std::holds_alternative<NoneArg>(args[5])) return {};
  const ScaledOperands& o = *operands;
  const std::optional<Scaling> scaling = scaling_of(b.graph(), o);
  const auto* bias = std::get_if<TensorArg>(&args[4]);
  const bool fast = std::get<bool>(std::get<Scalar>(args[7])), blocks = scaling == Scaling::kBlocks;
  if (!scaling || !takes_types(*scaling, fast, type, bias != nullptr ? &b.type(bias->value) : nullptr)) return {};
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  const ProductShape shape{1, of(o.rows), of(o.columns), of(o.inner), o.columns % kProductRun == 0, followed};
  const ProductForm& form = form_of(*scaling, fast);
  const std::optional<ProductTileCost> tile = choose_tile(shape, form, processors);
  if (!tile) return {};
  TensorList scales;
  if (blocks) scales.values = {o.x_scale, o.y_scale};
  ValueId result =
      b.op("scaled_product", {TensorList{{o.x}}, TensorList{{with_turned_matrices(b, o.y)}}, scales,
                              SymInts{type.sizes}, Scalar(form.by_blocks), Scalar(tile->rows), Scalar(tile->columns)});
  if (*scaling == Scaling::kTensor) {
    const ValueId both = b.binary("mul", b.reshape(o.x_scale, {}), b.reshape(o.y_scale, {}));
    result = b.binary("mul", result, both);
  } else if (*scaling == Scaling::kRows) {
    result = b.binary("mul", b.binary("mul", result, o.x_scale), o.y_scale);
  }
  if (bias != nullptr) result = b.binary("add", result, b.cast(bias->value, DType::kFloat32));
  return {b.cast(result, type.dtype)};
}

}  // namespace tatara
