// Float32 matrix products on GPUs whose tensor cores multiply bfloat16 much faster than their other units multiply float32: each operand
// becomes three bfloat16 parts, and of the products of parts those that float32 can tell are summed (the idea is that of Henry, Tang
// and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "loops/product_layout.h"
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

/// Tiles, and multiplications and additions a second of a multiprocessor that is full of them (measured on an H200).
struct Tile {
  int64_t rows, columns;
  double rate;
};
constexpr std::array<Tile, 3> kTiles = {{{128, 128, 1.05e12}, {128, 96, 0.95e12}, {64, 128, 0.9e12}}};
constexpr double kTileSeconds = 2.5e-6;  // of a tile's begin and end, in which nothing is multiplied
constexpr double kLaunchSeconds = 3e-6;  // of the kernel that makes the parts
constexpr double kPartBytes = 10;        // read and written for each element of an operand
constexpr double kMostParts = 2e9;       // bytes of scratch memory for the parts of a product
constexpr double kBandwidth = 3e12;      // bytes a second
constexpr double kHostRate = 46e12;      // of the host's kernels, all of the GPU
constexpr double kHostSeconds = 4e-6;
constexpr double kGain = 1.05;  // at least

struct Shape {
  double batch = 1, rows = 1, columns = 1, inner = 1;
};

/// Place of the left operand; the right one follows. -1: no such product.
int left_of(const Node& node) {
  const std::string& name = node.op->name;
  return name == "mm" || name == "bmm" ? 0 : name == "addmm" || name == "baddbmm" ? 1 : -1;
}

double parts_in(double n, int64_t length) { return std::max(1.0, std::ceil(n / static_cast<double>(length))); }

double seconds(const Shape& s, const Tile& tile, int processors) {
  const loops::ProductLayout layout{tile.rows, tile.columns, loops::Product::kParts};
  const double tiles = s.batch * parts_in(s.rows, tile.rows) * parts_in(s.columns, tile.columns);
  const auto resident = static_cast<double>(layout.resident());
  const double rounds = std::ceil(tiles / (resident * processors));
  const double work = 2.0 * static_cast<double>(tile.rows * tile.columns) * s.inner;
  const double operands = s.batch * s.inner * (s.rows + s.columns);
  return rounds * (work * resident / tile.rate + kTileSeconds) + operands * kPartBytes / kBandwidth + kLaunchSeconds;
}

/// The fastest tile; none where the host's kernels are faster.
std::optional<Tile> choose_tile(const Shape& s, int processors) {
  const auto best = std::min_element(kTiles.begin(), kTiles.end(), [&](const Tile& a, const Tile& b) {
    return seconds(s, a, processors) < seconds(s, b, processors);
  });
  const double host = 2 * s.batch * s.rows * s.columns * s.inner / kHostRate + kHostSeconds;
  if (seconds(s, *best, processors) * kGain > host) return std::nullopt;
  return *best;
}

std::optional<Tile> tile_for(const Graph& g, const Node& node, int processors) {
  const int left = left_of(node);
  if (left < 0) return std::nullopt;
  const TensorType& out = g.type(node.outputs[0]);
  const auto* operand = std::get_if<TensorArg>(&node.args[static_cast<size_t>(left)]);
  if (operand == nullptr || out.device.kind != DeviceKind::kCuda || out.dtype != DType::kFloat32) return std::nullopt;
  // Of another size the host's kernel might be much faster.
  const auto known = [](Expr e) { return e.is_const() ? static_cast<double>(e.const_value()) : 0; };
  const size_t batch = out.sizes.size() - 2;
  const Shape shape{batch == 0 ? 1 : known(out.sizes[0]), known(out.sizes[batch]), known(out.sizes[batch + 1]),
                    known(g.type(operand->value).sizes[batch + 1])};
  if (shape.batch * shape.rows * shape.columns * shape.inner == 0) return std::nullopt;
  const double bytes = shape.batch * (shape.rows + shape.columns) * shape.inner * 2 * loops::Product::kParts;
  if (bytes > kMostParts) return std::nullopt;
  return choose_tile(shape, processors);
}

Arg operand_parts(GraphBuilder& b, ValueId matrix, int64_t tile) {
  TensorList parts;
  for (int64_t i = 0; i < loops::Product::kParts; ++i) {
    parts.values.push_back(b.op("product_part", {TensorArg{matrix}, Scalar(i), Scalar(tile)}));
  }
  return parts;
}

bool is_number(const Arg& arg, double value) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return false;
  if (const auto* n = std::get_if<int64_t>(scalar)) return static_cast<double>(*n) == value;
  const auto* d = std::get_if<double>(scalar);
  return d != nullptr && *d == value;
}

/// Nothing is added or multiplied with a factor of zero or one: the host leaves it out, and with it infinities and NaN.
ValueId own_product(GraphBuilder& b, const std::vector<Arg>& args, size_t left, const Tile& tile,
                    const TensorType& type) {
  const ValueId x = std::get<TensorArg>(args[left]).value, y = std::get<TensorArg>(args[left + 1]).value;
  std::vector<int64_t> order;
  for (int64_t d = 0; d < type.dim(); ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  ValueId result = b.op("matrix_product", {operand_parts(b, x, tile.rows),
                                           operand_parts(b, b.permute(y, order), tile.columns), SymInts{type.sizes}});
  if (left == 0) return result;
  const Arg& beta = args[3];
  if (!is_number(args[4], 1)) result = b.binary("mul", result, std::get<Scalar>(args[4]));
  if (is_number(beta, 0)) return result;
  const ValueId self = std::get<TensorArg>(args[0]).value;
  return b.binary("add", result, is_number(beta, 1) ? self : b.binary("mul", self, std::get<Scalar>(beta)));
}

}  // namespace

Graph own_products(const Graph& graph, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("own_products", graph, options, [&](const Graph& g) {
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const std::optional<Tile> tile = tile_for(g, node, options.product_processors);
      const bool nothing = left_of(node) == 1 && is_number(node.args[4], 0);
      if (!tile || nothing) {
        copy.copy(node);
        continue;
      }
      GraphBuilder b(copy.to());
      b.set_location(node.location);
      const size_t first_new = copy.to().num_nodes();
      const TensorType& type = g.type(node.outputs[0]);
      const ValueId made = own_product(b, copy.args(node), static_cast<size_t>(left_of(node)), *tile, type);
      copy.set(node.outputs[0], with_type(copy, made, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
