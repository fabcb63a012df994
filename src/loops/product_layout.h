// What the scheduler and the emitter agree on for tiles of matrix products: threads, registers and shared memory of a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loops/kernel.h"
#include "loops/tensor_map.h"

namespace tatara::loops {

/// One warpgroup loads blocks of the operands into stages of shared memory, one after the other. Each of the others multiplies 64 rows
/// of the tile, or they take turns.
struct ProductLayout {
  int64_t rows, columns, parts;
  bool matrices = false;  // operands are loaded as they lie in memory
  bool cut = false;       // each tile has a part of its own of k
  int64_t bytes = 2;      // of an element
  bool by_blocks = false;

  static constexpr int64_t kGroup = 128;              // threads of a warpgroup
  static constexpr int64_t kGroupRows = 64;           // that it multiplies
  static constexpr int64_t kRegisters = 65536;        // of a multiprocessor
  static constexpr int64_t kSharedBytes = 227 << 10;  // of a multiprocessor, that blocks may have
  static constexpr int64_t kMostStages = 8;
  static constexpr int64_t kRun = 8;  // elements of k beside each other, and rows whose runs lie beside each other
  static constexpr int64_t kLoaderRegisters = 40;
  static constexpr int64_t kStateBytes = 16;

  static ProductLayout of(const Product& product) {
    return {product.left.extent,
            product.right.extent,
            static_cast<int64_t>(product.left.parts.size()),
            product.left.matrices.has_value(),
            product.span && product.span->is_cut(),
            product.left.matrices ? product.left.matrices->bytes : 2,
            product.by_blocks};
  }
  /// Elements of k in a block.
  int64_t step() const { return matrices ? TensorMap::kBoxBytes / bytes : Product::kStep; }
  /// Whether warpgroups take turns: each has every other tile to itself, and what becomes of its elements is done while the other multiplies.
  bool turns() const { return matrices && !by_blocks && rows == 2 * kGroupRows && columns <= 128; }
  int64_t groups() const { return rows / kGroupRows; }
  /// Rows of a tile that a warpgroup has.
  int64_t group_rows() const { return turns() ? rows : kGroupRows; }
  /// Elements of k that an instruction multiplies.
  int64_t deep() const { return 32 / bytes; }
  /// Elements of the result that a thread has.
  int64_t sums() const { return group_rows() * columns / kGroup; }
  int64_t threads() const { return (groups() + 1) * kGroup; }
  /// Blocks that a multiprocessor has at once: two where the registers of both suffice for their sums.
  int64_t resident() const { return groups() == 1 && columns <= (by_blocks ? 128 : 192) ? 2 : 1; }
  /// Of one part of the left operand's block, and of the right one's.
  int64_t left_bytes() const { return rows * step() * bytes; }
  int64_t right_bytes() const { return columns * step() * bytes; }
  int64_t stage_bytes() const { return parts * (left_bytes() + right_bytes()); }
  /// A stage has two barriers of 8 bytes, behind all stages. A block has a kilobyte that is not its own.
  int64_t stages() const {
    return std::min(kMostStages, (kSharedBytes / resident() - (1 << 10) - kStateBytes) / (stage_bytes() + 16));
  }
  /// Behind the barriers: the stage, and the parity of its round, from which the warpgroup whose turn it is goes on.
  int64_t state_at() const { return stages() * (stage_bytes() + 16); }
  int64_t shared_bytes() const { return state_at() + kStateBytes; }
  /// Of a thread that multiplies: what the others leave.
  int64_t group_registers() const {
    const int64_t each = kRegisters / (resident() * threads()) / 8 * 8;
    return std::min<int64_t>((each * threads() / kGroup - kLoaderRegisters) / groups() / 8 * 8, 240);
  }
};

}  // namespace tatara::loops
