// What the choice of products as loops on a CPU and the scheduler agree on: rows that an iteration computes side by side.
#pragma once

#include <cstdint>

namespace tatara::loops {

constexpr int64_t kMostRowsBeside = 8, kLeastRowsBeside = 5;

/// At most `most` of `count` rows, so many that few are computed for nothing.
inline int64_t rows_beside(int64_t count, int64_t most = kMostRowsBeside) {
  if (count <= most) return count > 1 ? count : 1;
  const auto all = [count](int64_t rows) { return (count + rows - 1) / rows * rows; };
  const int64_t least = most < kLeastRowsBeside ? most : kLeastRowsBeside;
  int64_t best = most;
  for (int64_t rows = most - 1; rows >= least; --rows) {
    if (all(rows) < all(best)) best = rows;
  }
  return best;
}

}  // namespace tatara::loops
