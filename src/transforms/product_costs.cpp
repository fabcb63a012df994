#include "transforms/product_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "loops/product_layout.h"
#include "ops/core/op_def.h"

namespace tatara {
namespace {

constexpr std::array<ProductTileCost, 3> kFloatTiles = {{{128, 128, 1.05e12, 2.5e-6, 0, 0, 0, 0},
                                                         {128, 96, 0.95e12, 2.5e-6, 0, 0, 0, 0},
                                                         {64, 128, 0.9e12, 2.5e-6, 0, 0, 0, 0}}};
constexpr std::array<ProductTileCost, 3> kHalfTiles = {{{128, 256, 6.1e12, 1.3e-6, 0, 4.3e-6, 0, 5e-6},
                                                        {128, 128, 5.8e12, 0, 2e-6, 6.7e-6, 4e-6, 1e-6},
                                                        {64, 128, 4.9e12, 0, 1e-6, 5e-6, 2e-6, 2e-6}}};
// Of 8-bit floats: by sums of the tensor cores alone, by sums of blocks, and of blocks with scales.
constexpr std::array<ProductTileCost, 3> kSmallTiles = {{{128, 256, 11.4e12, 1.2e-6, 0, 3e-6, 0, 0.3e-6},
                                                         {128, 128, 11.3e12, 0.5e-6, 1.2e-6, 5e-6, 0, 0.3e-6},
                                                         {64, 128, 9.1e12, 0, 1e-6, 4e-6, 0, 0.5e-6}}};
constexpr std::array<ProductTileCost, 2> kSmallBlockTiles = {
    {{128, 128, 10.4e12, 0, 0.8e-6, 3e-6, 0, 0.4e-6}, {64, 128, 9.8e12, 0, 1e-6, 4e-6, 0, 0.6e-6}}};
constexpr std::array<ProductTileCost, 2> kScaledBlockTiles = {
    {{128, 128, 8.2e12, 0, 0.8e-6, 3e-6, 0, 0.4e-6}, {64, 128, 8e12, 0, 1e-6, 4e-6, 0, 0.6e-6}}};

constexpr double kLaunchSeconds = 3e-6;      // of the kernel that makes the parts
constexpr double kHostSeconds = 4e-6;        // of the host's float32 products beside the multiplications
constexpr double kPartBytes = 10;            // read and written for each element of an operand
constexpr double kBandwidth = 3e12;          // bytes a second
constexpr double kFollowSeconds = 1e-6;      // of a kernel behind the host's product
constexpr double kFollowBandwidth = 4.4e12;  // of what it reads and writes, much of it in the cache
constexpr double kHostTile = 128 * 256;      // elements

double parts_in(double n, int64_t length) { return std::max(1.0, std::ceil(n / static_cast<double>(length))); }

double host_seconds(const ProductShape& s, const ProductForm& form, int processors) {
  const double work = 2 * s.batch * s.rows * s.columns * s.inner / form.host_rate;
  if (form.parts > 1) return work + kHostSeconds;
  const double elements = s.batch * s.rows * s.columns;
  const double follow = s.followed ? kFollowSeconds + 4 * elements / kFollowBandwidth : 0;
  const double tiles = form.host_tile * std::ceil(elements / kHostTile / processors);
  return std::max(work + tiles, s.inner * form.host_inner) + form.begin + follow;
}

}  // namespace

constexpr ProductForm kFloatProducts = {loops::Product::kParts, 2, false, kFloatTiles, 0, 46e12, 0, 1.05};
constexpr ProductForm kHalfProducts = {1, 2, false, kHalfTiles, 3.5e-6, 770e12, 1e-6, 1.02};
constexpr ProductForm kSmallProducts = {1, 1, false, kSmallTiles, 3.5e-6, 1500e12, 1e-6, 1.02};
constexpr ProductForm kSmallBlockProducts = {1, 1, true, kSmallBlockTiles, 3.5e-6, 1410e12, 1e-6, 1.02};
constexpr ProductForm kRowScaledProducts = {1, 1, false, kSmallTiles, 3.5e-6, 1450e12, 1e-6, 1.02, 2.4e-9};
constexpr ProductForm kRowScaledBlockProducts = {1, 1, true, kSmallBlockTiles, 3.5e-6, 1370e12, 1e-6, 1.02, 2.4e-9};
constexpr ProductForm kBlockScaledProducts = {1, 1, true, kScaledBlockTiles, 3.5e-6, 1300e12, 1e-6, 1.02, 2.8e-9};

double seconds(const ProductShape& s, const ProductForm& form, const ProductTileCost& tile, int processors) {
  const loops::ProductLayout layout{tile.rows, tile.columns, form.parts,    form.parts == 1,
                                    false,     form.bytes,   form.by_blocks};
  const double tiles = s.batch * parts_in(s.rows, tile.rows) * parts_in(s.columns, tile.columns);
  const double resident = std::min(static_cast<double>(layout.resident()), std::ceil(tiles / processors));
  const double rounds = std::ceil(tiles / (resident * processors));
  const double work = 2.0 * static_cast<double>(tile.rows * tile.columns) * s.inner;
  const double multiply = work * resident / tile.rate + tile.seconds;
  if (form.parts > 1) {
    const double parts = s.batch * s.inner * (s.rows + s.columns) * kPartBytes / kBandwidth + kLaunchSeconds;
    return rounds * multiply + parts;
  }
  const double store = s.runs ? tile.store : tile.store_pairs;
  const double round = layout.turns() ? std::max(multiply, (multiply + store) / 2) : multiply + store;
  return form.begin + rounds * round + (s.followed ? tile.follow_once + rounds * tile.follow : 0);
}

std::optional<ProductTileCost> choose_tile(const ProductShape& s, const ProductForm& form, int processors) {
  const auto best =
      std::min_element(form.tiles.begin(), form.tiles.end(), [&](const ProductTileCost& a, const ProductTileCost& b) {
        return seconds(s, form, a, processors) < seconds(s, form, b, processors);
      });
  if (seconds(s, form, *best, processors) * form.gain > host_seconds(s, form, processors)) return std::nullopt;
  return *best;
}

bool lies_aligned(const TensorType& type, size_t batch) {
  const int64_t run = loops::Product::Matrices::kAlignedBytes / dtype_size(type.dtype);
  const auto aligned = [&](Expr e) { return e.is_const() && e.const_value() % run == 0; };
  const Expr rows = type.strides[batch], columns = type.strides[batch + 1];
  if (batch == 1 && !aligned(type.strides[0])) return false;
  return (columns.is_const(1) && aligned(rows)) || (rows.is_const(1) && aligned(columns));
}

bool begins_aligned(const Graph& g, ValueId v) {
  const int64_t run = loops::Product::Matrices::kAlignedBytes / dtype_size(g.type(v).dtype);
  for (NodeId made = g.value(v).producer; made >= 0; made = g.value(v).producer) {
    const Node& node = g.node(made);
    if (node.op->kind != OpKind::kView) return true;
    v = std::get<TensorArg>(node.args[0]).value;
    if (node.op->name != "slice" && node.op->name != "select") continue;
    const auto number = [&](size_t i) -> std::optional<int64_t> {
      if (std::holds_alternative<NoneArg>(node.args[i])) return 0;
      const auto* scalar = std::get_if<Scalar>(&node.args[i]);
      if (scalar == nullptr) return std::nullopt;
      if (const auto* n = std::get_if<int64_t>(scalar)) return *n;
      const auto* e = std::get_if<Expr>(scalar);
      return e != nullptr && e->is_const() ? std::optional(e->const_value()) : std::nullopt;
    };
    const std::optional<int64_t> dim = number(1), begin = number(2);
    const TensorType& type = g.type(v);
    if (!dim || !begin || *dim < 0 || *dim >= type.dim()) return false;
    const Expr stride = type.strides[static_cast<size_t>(*dim)];
    if (!stride.is_const() || *begin * stride.const_value() % run != 0) return false;
  }
  return true;
}

bool is_product_operand(const Graph& g, ValueId v, DType dtype) {
  const TensorType& type = g.type(v);
  const auto rank = static_cast<size_t>(type.dim());
  if (type.dtype != dtype || (rank != 2 && rank != 3)) return false;
  for (const Expr size : type.sizes) {
    if (!size.is_const() || size.const_value() <= 0) return false;
  }
  return lies_aligned(type, rank - 2) && begins_aligned(g, v);
}

ValueId with_turned_matrices(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < b.type(x).dim(); ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return b.permute(x, order);
}

}  // namespace tatara
