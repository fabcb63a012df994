// What matrix products cost in kernels of our own, and in the host's, and which operands such a kernel takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ir/graph.h"
#include "ops/core/builder.h"

namespace tatara {

/// Tiles, and what they cost (measured on an H200). Seconds are for each round of tiles, in which all multiprocessors are full.
struct ProductTileCost {
  int64_t rows, columns;
  double rate;     // multiplications and additions a second of a multiprocessor
  double seconds;  // in which nothing is multiplied
  double store;  // of a tile's stores, while other warpgroups multiply, where a thread has whole runs of columns; else
  double store_pairs;  // only pairs
  double follow_once,
      follow;  // of what is done with the elements: what nothing hides, and what comes on top for each round
};

/// What kernels of one form cost.
struct ProductForm {
  int64_t parts, bytes;  // of an operand, and of an element of a part
  bool by_blocks;
  std::span<const ProductTileCost> tiles;
  double begin;           // seconds of a launch, ours or the host's
  double host_rate;       // of the host's kernels, all of the GPU
  double host_tile;       // seconds for each round of its tiles
  double gain;            // at least
  double host_inner = 0;  // seconds of the host's for each element of k, at least: no tile is faster
};

extern const ProductForm kFloatProducts, kHalfProducts, kSmallProducts, kSmallBlockProducts;
extern const ProductForm kRowScaledProducts, kRowScaledBlockProducts, kBlockScaledProducts;

struct ProductShape {
  double batch = 1, rows = 1, columns = 1, inner = 1;
  bool runs = false;      // a thread may have whole runs of columns
  bool followed = false;  // by what a kernel of ours does with its elements
};

constexpr int64_t kProductRun = 8;  // columns that a thread may have side by side

double seconds(const ProductShape& shape, const ProductForm& form, const ProductTileCost& tile, int processors);
/// The fastest tile; none where the host's kernels are faster.
std::optional<ProductTileCost> choose_tile(const ProductShape& shape, const ProductForm& form, int processors);

/// Whether the copy engine takes the operand's memory, as far as its type tells.
bool lies_aligned(const TensorType& type, size_t batch);
/// Whether no view on the way to the operand's memory begins between the places where the copy engine may.
bool begins_aligned(const Graph& g, ValueId v);
/// Whether a matrix, or a batch of them, may be an operand as it lies in memory.
bool is_product_operand(const Graph& g, ValueId v, DType dtype);
/// The last two dims exchanged.
ValueId with_turned_matrices(GraphBuilder& b, ValueId x);

}  // namespace tatara
