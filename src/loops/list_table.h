// What the scheduler, the emitter and the runtime agree on for kernels that run over a list of items.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tatara {

/// The table of arguments that a launch for a list of items passes by value to a GPU, for at most `items` items with `words`
/// words of 64 bits each:
///   uint32 how many blocks each item has, or 0 where they have different numbers; uint32 0
///   uint32 the first block of each item, UINT32_MAX for those that there are not (an even number of these)
///   of each item: one pointer (or value) per buffer, the sizes, and the iterations where the kernel has parallel loops
struct ListTable {
  static constexpr size_t kMostBytes = 4080;  // of a launch's 4,096 bytes; the pointer to the fault comes on top
  int items = 0;
  size_t words = 0;

  static constexpr size_t kFirstBlocks = 8;  // where they begin
  constexpr size_t items_at() const { return kFirstBlocks + 4 * ((static_cast<size_t>(items) + 1) / 2 * 2); }
  constexpr size_t bytes() const { return items_at() + 8 * words * static_cast<size_t>(items); }
  /// Items that fit at most.
  static constexpr int most_items(size_t words) {
    return static_cast<int>((kMostBytes - kFirstBlocks - 4) / (4 + 8 * words));
  }
  /// A table for so many items. There are few lengths, so that lists share their code.
  static constexpr ListTable of(size_t items, size_t words) {
    const size_t whole = std::max<size_t>(std::bit_ceil(items), 2);
    return {static_cast<int>(std::min<size_t>(whole, static_cast<size_t>(most_items(words)))), words};
  }
};

}  // namespace tatara
