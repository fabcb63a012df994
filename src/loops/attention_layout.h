// What the scheduler and the emitter agree on for kernels of attention: threads, registers and shared memory of a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loops/kernel.h"
#include "loops/product_layout.h"
#include "loops/tensor_map.h"

namespace tatara::loops {

/// One warpgroup loads: the rows of queries once for each tile, then blocks of keys and values into stages of shared memory. Each of the
/// others has 64 rows of the tile. A matrix lies in boxes of 64 elements of all its rows, swizzled.
struct AttentionLayout {
  int64_t rows, keys, width, value_width;

  static constexpr int64_t kGroup = ProductLayout::kGroup;
  static constexpr int64_t kGroupRows = ProductLayout::kGroupRows;
  static constexpr int64_t kMostStages = 4;
  static constexpr int64_t kLoaderRegisters = ProductLayout::kLoaderRegisters;
  static constexpr int64_t kWidest = 256;  // of the heads

  static AttentionLayout of(const Attention& a) { return {a.extent, a.block, a.queries.width, a.values.width}; }
  /// What a program's heads get: as many rows and keys as a thread's registers have room for.
  static AttentionLayout of_width(int64_t width, int64_t value_width) {
    return {2 * kGroupRows, std::max(width, value_width) > 128 ? 64 : 128, width, value_width};
  }
  int64_t groups() const { return rows / kGroupRows; }
  /// Blocks that a multiprocessor has at once.
  static constexpr int64_t resident() { return 1; }
  int64_t threads() const { return (groups() + 1) * kGroup; }
  static int64_t boxes(int64_t elements) { return (elements + TensorMap::kBox - 1) / TensorMap::kBox; }
  /// Of shared memory.
  static int64_t bytes(int64_t rows, int64_t elements) { return boxes(elements) * rows * TensorMap::kBoxBytes; }
  int64_t query_bytes() const { return bytes(rows, width); }
  int64_t key_bytes() const { return bytes(keys, width); }
  int64_t stage_bytes() const { return key_bytes() + bytes(keys, value_width); }
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
