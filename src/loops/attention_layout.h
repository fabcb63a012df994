// What the scheduler and the emitter agree on for kernels of attention: threads, registers and shared memory of a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "loops/kernel.h"
#include "loops/product_layout.h"
#include "loops/tensor_map.h"

namespace tatara::loops {

/// One warpgroup loads: the rows of queries once for each tile, then blocks of keys and values into stages of shared memory. Each of the
/// others has 64 rows of the tile. A matrix lies in boxes of 64 elements of all its rows, swizzled.
struct AttentionLayout {
  int64_t rows, keys;
  std::vector<int64_t> widths = {};        // of the products
  std::vector<int64_t> value_widths = {};  // of the sums
  std::vector<int> keys_of = {};           // likewise: which product's keys its values are (Attention::keys_of)

  static constexpr int64_t kGroup = ProductLayout::kGroup;
  static constexpr int64_t kGroupRows = ProductLayout::kGroupRows;
  static constexpr int64_t kMostStages = 4;
  static constexpr int64_t kLoaderRegisters = ProductLayout::kLoaderRegisters;
  static constexpr int64_t kWidest = 256;  // of the heads

  static AttentionLayout of(const Attention& a) {
    AttentionLayout layout{a.extent, a.block};
    for (const Attention::Score& score : a.scores) layout.widths.push_back(score.queries.width);
    for (const Attention::Sum& sum : a.sums) {
      layout.value_widths.push_back(sum.values.width);
      layout.keys_of.push_back(a.keys_of(sum));
    }
    return layout;
  }
  /// Rows and keys that a thread's registers have room for, where `widest` is the widest of all matrices. All products and sums of a block
  /// lie in registers at once.
  static AttentionLayout of_width(int64_t widest, size_t products = 1, size_t sums = 1) {
    if (products + sums == 2) return {2 * kGroupRows, widest > 128 ? 64 : 128};
    return {2 * kGroupRows, widest > 128 ? 32 : 64};
  }
  int64_t groups() const { return rows / kGroupRows; }
  /// Blocks that a multiprocessor has at once.
  static constexpr int64_t resident() { return 1; }
  int64_t threads() const { return (groups() + 1) * kGroup; }
  static int64_t boxes(int64_t elements) { return (elements + TensorMap::kBox - 1) / TensorMap::kBox; }
  /// Of shared memory.
  static int64_t bytes(int64_t rows, int64_t elements) { return boxes(elements) * rows * TensorMap::kBoxBytes; }
  /// Queries of the first products, one behind the other.
  int64_t query_bytes(size_t products) const {
    int64_t all = 0;
    for (size_t i = 0; i < products; ++i) all += bytes(rows, widths[i]);
    return all;
  }
  int64_t query_bytes() const { return query_bytes(widths.size()); }
  /// Likewise keys, of a stage.
  int64_t key_bytes(size_t products) const {
    int64_t all = 0;
    for (size_t i = 0; i < products; ++i) all += bytes(keys, widths[i]);
    return all;
  }
  int64_t key_bytes() const { return key_bytes(widths.size()); }
  /// Behind them the values of the first sums, as far as these are no product's keys.
  int64_t value_bytes(size_t sums) const {
    int64_t all = 0;
    for (size_t i = 0; i < sums; ++i) all += keys_of[i] < 0 ? bytes(keys, value_widths[i]) : 0;
    return all;
  }
  int64_t value_bytes() const { return value_bytes(value_widths.size()); }
  /// Where the values of a sum begin in a stage.
  int64_t values_at(size_t sum) const {
    return keys_of[sum] < 0 ? key_bytes() + value_bytes(sum) : key_bytes(static_cast<size_t>(keys_of[sum]));
  }
  int64_t stage_bytes() const { return key_bytes() + value_bytes(); }
  /// Behind the stages are barriers of 8 bytes: two of the queries, then of each stage two that say that something is there (keys,
  /// values) and one that it is free.
  static constexpr int64_t kStageBarriers = 24, kQueryBarriers = 16;
  int64_t stages() const {
    const int64_t room = ProductLayout::kSharedBytes - (1 << 10) - query_bytes() - kQueryBarriers;
    return std::min(kMostStages, room / (stage_bytes() + kStageBarriers));
  }
  int64_t shared_bytes() const { return query_bytes() + stages() * (stage_bytes() + kStageBarriers) + kQueryBarriers; }
  int64_t group_registers() const {
    const int64_t each = ProductLayout::kRegisters / threads() / 8 * 8;
    return std::min<int64_t>((each * threads() / kGroup - kLoaderRegisters) / groups() / 8 * 8, 240);
  }
};

}  // namespace tatara::loops
