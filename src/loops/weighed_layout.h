// What the scheduler and the emitter agree on for tiles of products whose weight is computed.
#pragma once

#include <cstdint>

#include "loops/kernel.h"

namespace tatara::loops {

/// Warps lie beside each other along results, and along what is summed; the latter leave their sums in shared memory, where they are added in
/// order.
struct WeighedLayout {
  int64_t rows, extent, bands, slices;

  static constexpr int64_t kWarp = 32;
  static constexpr int64_t kRowsOfStep = 8;  // that a multiplication has
  static constexpr int64_t kApart = 4;       // floats between rows of sums: threads of a warp write to different banks
  static constexpr int64_t kMostShared = 96 << 10;

  static WeighedLayout of(const WeighedProduct& w) { return {w.rows, w.extent, w.bands, w.slices}; }
  int64_t threads() const { return kWarp * bands * slices; }
  /// Multiplications of 16 results each that a warp has beside each other.
  int64_t deep() const { return extent / (bands * WeighedProduct::kBand); }
  int64_t pitch() const { return extent + kApart; }
  int64_t shared_bytes() const { return slices * rows * pitch() * 4; }
};

}  // namespace tatara::loops
