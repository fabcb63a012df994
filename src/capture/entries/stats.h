// What tatara.stats() counts.
#pragma once

#include <cstdint>

namespace tatara::capture {

/// Counters of tatara.stats().
struct Stats {
  uint64_t graphs = 0, breaks = 0, recompiles = 0, kernels_compiled = 0, kernels_launched = 0, host_calls = 0,
           cache_hits = 0, guard_hits = 0, fallbacks = 0, cuda_graphs_recorded = 0, cuda_graphs_launched = 0,
           turns_copied = 0;
};
inline Stats& stats() {
  static Stats all;
  return all;
}

}  // namespace tatara::capture
