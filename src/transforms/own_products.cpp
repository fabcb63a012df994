// Matrix products in kernels of our own, on GPUs with tensor cores that multiply half types. A float32 operand becomes three bfloat16
// parts, and of the products of parts those that float32 can tell are summed (the idea is that of Henry, Tang and Heinecke, "Leveraging
// the bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "loops/product_layout.h"
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "transforms/pass.h"
#include "transforms/passes.h"
#include "transforms/product_costs.h"
#include "transforms/scaled_products.h"

namespace tatara {
namespace {

constexpr double kMostParts = 2e9;  // bytes of scratch memory for the parts of a product

/// Place of the left operand; the right one follows. -1: no such product.
int left_of(const Node& node) {
  const std::string& name = node.op->name;
  return name == "mm" || name == "bmm" ? 0 : name == "addmm" || name == "baddbmm" ? 1 : -1;
}

const ProductForm* form_for(DType dtype, const PassOptions& options) {
  if (dtype == DType::kFloat32) return options.float32_products ? &kFloatProducts : nullptr;
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? &kHalfProducts : nullptr;
}

struct ProductChoice {
  ProductTileCost tile;
  int64_t parts;
};

std::optional<ProductChoice> choice_for(const Graph& g, const Node& node, bool followed, const PassOptions& options) {
  const int left = left_of(node);
  if (left < 0) return std::nullopt;
  const TensorType& out = g.type(node.outputs[0]);
  const ProductForm* const form = form_for(out.dtype, options);
  const auto* operand = std::get_if<TensorArg>(&node.args[static_cast<size_t>(left)]);
  const auto* other = std::get_if<TensorArg>(&node.args[static_cast<size_t>(left) + 1]);
  if (operand == nullptr || other == nullptr || out.device.kind != DeviceKind::kCuda || form == nullptr)
    return std::nullopt;
  // Of another size the host's kernel might be much faster.
  const auto known = [](Expr e) { return e.is_const() ? static_cast<double>(e.const_value()) : 0; };
  const size_t batch = out.sizes.size() - 2;
  const TensorType& a = g.type(operand->value);
  const TensorType& b = g.type(other->value);
  const bool runs = known(out.sizes[batch + 1]) != 0 && out.sizes[batch + 1].const_value() % kProductRun == 0;
  const ProductShape shape{batch == 0 ? 1 : known(out.sizes[0]),
                           known(out.sizes[batch]),
                           known(out.sizes[batch + 1]),
                           known(a.sizes[batch + 1]),
                           runs,
                           followed};
  if (shape.batch * shape.rows * shape.columns * shape.inner == 0) return std::nullopt;
  if (form->parts == 1) {
    // A copy of an operand must be aligned too.
    const bool whole = a.sizes[batch + 1].const_value() % loops::Product::Matrices::kAligned == 0;
    const bool same = a.dtype == out.dtype && b.dtype == out.dtype;
    if (!whole || !same || !lies_aligned(a, batch) || !lies_aligned(b, batch)) return std::nullopt;
    if (!begins_aligned(g, operand->value) || !begins_aligned(g, other->value)) return std::nullopt;
  } else if (shape.batch * (shape.rows + shape.columns) * shape.inner * 2 * static_cast<double>(form->parts) >
             kMostParts) {
    return std::nullopt;
  }
  const std::optional<ProductTileCost> tile = choose_tile(shape, *form, options.product_processors);
  return tile ? std::optional(ProductChoice{*tile, form->parts}) : std::nullopt;
}

/// Whether an element costs little beside what a product does for it: a thread that multiplies has few others beside it to hide what
/// functions and divisions wait for.
bool is_cheap(const Node& node) {
  static const std::unordered_set<std::string> names = {
      "add", "sub", "mul", "relu", "neg", "abs", "clamp", "maximum", "minimum", "where", "threshold_backward",
      "lt",  "gt",  "le",  "ge"};
  return node.op->kind == OpKind::kPointwise && names.contains(node.op->name);
}

/// Per value: whether something of its size is computed from it, element by element and cheaply, and nothing else.
std::vector<bool> followed_values(const Graph& g) {
  std::vector<bool> followed(g.num_values(), false), otherwise(g.num_values(), false);
  for (const Node& node : g.nodes()) {
    for (const Arg& arg : node.args) {
      const auto* operand = std::get_if<TensorArg>(&arg);
      if (operand == nullptr || operand->value == kNoValue) continue;
      const bool joins = is_cheap(node) && g.type(operand->value).sizes == g.type(node.outputs[0]).sizes;
      (joins ? followed : otherwise)[static_cast<size_t>(operand->value)] = true;
    }
  }
  for (size_t i = 0; i < followed.size(); ++i) followed[i] = followed[i] && !otherwise[i];
  return followed;
}

Arg operand_parts(GraphBuilder& b, ValueId matrix, int64_t tile, int64_t count) {
  TensorList parts;
  if (count == 1) return TensorList{{matrix}};
  for (int64_t i = 0; i < count; ++i) {
    parts.values.push_back(b.op("product_part", {TensorArg{matrix}, Scalar(i), Scalar(tile)}));
  }
  return parts;
}

ValueId own_product(GraphBuilder& b, const std::vector<Arg>& args, size_t left, const ProductChoice& choice,
                    const TensorType& type) {
  const ValueId x = std::get<TensorArg>(args[left]).value, y = std::get<TensorArg>(args[left + 1]).value;
  const int64_t rows = choice.tile.rows, columns = choice.tile.columns;
  ValueId result = b.op("matrix_product", {operand_parts(b, x, rows, choice.parts),
                                           operand_parts(b, with_turned_matrices(b, y), columns, choice.parts),
                                           SymInts{type.sizes}, Scalar(rows), Scalar(columns)});
  if (left == 0) return result;
  return product_sum(b, result, std::get<TensorArg>(args[0]).value, args[3], args[4]);
}

// ---- Groups ------------------------------------------------------------------------------------------------------------

/// Products of groups of rows with a matrix each, and sums over groups of the inner dimension.
class GroupedProducts {
 public:
  GroupedProducts(GraphCopy& copy, GraphBuilder& b, int processors) : copy_(copy), b_(b), processors_(processors) {}

  /// Values for the node's results; empty: it stays as it is.
  std::vector<ValueId> results(const Node& node) {
    const std::string& name = node.op->name;
    const bool is_torchs = name == "_grouped_mm", is_backward = name == "grouped_gradients";
    if (!is_torchs && !is_backward && name != "grouped_mm_fallback") return {};
    const std::vector<Arg> args = copy_.args(node);
    std::vector<ValueId> tensors;
    for (const Arg& arg : args) {
      const auto* tensor = std::get_if<TensorArg>(&arg);
      if (tensor != nullptr) tensors.push_back(tensor->value);
    }
    if (tensors.size() != (is_backward ? 4 : 3)) return {};
    const ValueId x = tensors[0], y = tensors[1];
    offs_ = tensors[2];
    dtype_ = b_.type(x).dtype;
    if (form_for(dtype_, {}) != &kHalfProducts || b_.type(x).device.kind != DeviceKind::kCuda) return {};
    if (!b_.type(offs_).sizes[0].is_const() || b_.type(offs_).device != b_.type(x).device) return {};
    if (is_backward) {
      const ValueId g = tensors[3];
      const ValueId rows = by_rows(g, turned(y)), matrices = rows == kNoValue ? kNoValue : by_inner(turned(x), g);
      return matrices == kNoValue ? std::vector<ValueId>() : std::vector{rows, matrices};
    }
    const ValueId made = b_.type(y).dim() == 3 ? by_rows(x, y) : by_inner(x, y);
    return made == kNoValue ? std::vector<ValueId>() : std::vector{made};
  }

 private:
  ValueId turned(ValueId x) { return with_turned_matrices(b_, x); }
  int64_t size(ValueId v, size_t d) const { return b_.type(v).sizes[d].const_value(); }
  int64_t groups() const { return b_.type(offs_).sizes[0].const_value(); }

  bool both(ValueId x, ValueId y) const {
    return is_product_operand(b_.graph(), x, dtype_) && is_product_operand(b_.graph(), y, dtype_) &&
           size(x, static_cast<size_t>(b_.type(x).dim()) - 1) == size(y, static_cast<size_t>(b_.type(y).dim()) - 2);
  }

  /// The tile that is fastest where groups have equally many rows.
  template <typename Cost>
  const ProductTileCost& fastest(Cost cost) const {
    return *std::min_element(kHalfProducts.tiles.begin(), kHalfProducts.tiles.end(),
                             [&](const ProductTileCost& a, const ProductTileCost& b) { return cost(a) < cost(b); });
  }

  ValueId product(const char* name, ValueId x, ValueId y, TensorList groups, std::vector<Expr> sizes,
                  const ProductTileCost& tile) {
    return b_.op(name, {TensorList{{x}}, TensorList{{turned(y)}}, std::move(groups), SymInts{std::move(sizes)},
                        Scalar(tile.rows), Scalar(tile.columns)});
  }

  /// [rows, k] x [groups, k, columns].
  ValueId by_rows(ValueId x, ValueId y) {
    if (b_.type(x).dim() != 2 || b_.type(y).dim() != 3 || !both(x, y) || size(y, 0) != groups()) return kNoValue;
    const int64_t rows = size(x, 0), inner = size(x, 1), columns = size(y, 2);
    const auto per_group = static_cast<double>(rows) / static_cast<double>(groups());
    const auto of = [](int64_t n) { return static_cast<double>(n); };
    const ProductTileCost& tile = fastest([&](const ProductTileCost& t) {
      const ProductShape shape{of(groups()), per_group, of(columns), of(inner), columns % kProductRun == 0, false};
      return seconds(shape, kHalfProducts, t, processors_);
    });
    ExprContext& ctx = b_.ctx();
    const Expr total = ctx.constant(rows);
    const ValueId counts = b_.op("group_tile_counts", {TensorArg{offs_}, Scalar(rows), Scalar(tile.rows)});
    const ValueId ends = b_.op("cumsum", {TensorArg{counts}, Scalar(int64_t{0}), NoneArg{}});
    // Each group has one tile that is not full, and so have the rows behind all groups. Eight go side by side.
    const Expr most = ctx.constant((rows / tile.rows + groups() + 1 + 7) / 8 * 8);
    const ValueId seen = b_.expand(b_.unsqueeze(ends, 0), {most, ctx.constant(groups() + 1)});
    const ValueId group = b_.unary("group_of_tile", seen);
    const std::vector<ValueId> tiles = b_.op_multi("group_tiles", {TensorArg{group}, TensorArg{ends}, TensorArg{offs_},
                                                                   Scalar(rows), Scalar(tile.rows), Scalar(inner)});
    return product("rows_product", x, y, TensorList{tiles}, {total, ctx.constant(columns)}, tile);
  }

  /// [rows, k] x [k, columns], a product for each group of k.
  ValueId by_inner(ValueId x, ValueId y) {
    if (b_.type(x).dim() != 2 || b_.type(y).dim() != 2 || !both(x, y)) return kNoValue;
    // What another group has is left out by whole rows of memory.
    if (!b_.type(x).strides[0].is_const(1) || !b_.type(y).strides[1].is_const(1)) return kNoValue;
    const int64_t rows = size(x, 0), columns = size(y, 1);
    const auto of = [](int64_t n) { return static_cast<double>(n); };
    const ProductTileCost& tile = fastest([&](const ProductTileCost& t) {
      const ProductShape shape{
          of(groups()), of(rows), of(columns), of(size(x, 1)) / of(groups()), columns % kProductRun == 0, false};
      return seconds(shape, kHalfProducts, t, processors_);
    });
    ExprContext& ctx = b_.ctx();
    return product("inner_product", x, y, TensorList{{offs_}},
                   {ctx.constant(groups()), ctx.constant(rows), ctx.constant(columns)}, tile);
  }

  GraphCopy& copy_;
  GraphBuilder& b_;
  const int processors_;
  ValueId offs_ = kNoValue;
  DType dtype_ = DType::kFloat32;
};

}  // namespace

Graph own_products(const Graph& graph, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("own_products", graph, options, [&](const Graph& g) {
    GraphCopy copy(g);
    const std::vector<bool> followed = followed_values(g);
    for (const Node& node : g.nodes()) {
      const bool nothing = left_of(node) == 1 && is_factor(node.args[4], 0);
      const bool goes_on = node.outputs.size() == 1 && followed[static_cast<size_t>(node.outputs[0])];
      const std::optional<ProductChoice> choice = nothing ? std::nullopt : choice_for(g, node, goes_on, options);
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      if (!choice) {
        std::vector<ValueId> made = GroupedProducts(copy, b, options.product_processors).results(node);
        if (made.empty()) made = scaled_products(copy, b, node, goes_on, options.product_processors);
        if (made.empty()) copy.copy(node);
        for (size_t i = 0; i < made.size(); ++i) {
          copy.set(node.outputs[i], with_type(copy, made[i], g.type(node.outputs[i]), first_new));
        }
        continue;
      }
      const TensorType& type = g.type(node.outputs[0]);
      const ValueId made = own_product(b, copy.args(node), static_cast<size_t>(left_of(node)), *choice, type);
      copy.set(node.outputs[0], with_type(copy, made, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
