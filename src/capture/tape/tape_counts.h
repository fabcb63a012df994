// What tatara.stats() counts of the calls on tapes.
#pragma once

#include <cstdint>

namespace tatara::capture {

struct TapeCounts {
  uint64_t recorded = 0;   ///< on the tapes of entries with a graph
  uint64_t converted = 0;  ///< into an ir::Graph: one call may be so more than once
};
inline TapeCounts& tape_counts() {
  static TapeCounts all;
  return all;
}

}  // namespace tatara::capture
