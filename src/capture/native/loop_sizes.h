// Sizes and ints of the frame that have changed since an earlier program of a loop was made: symbols of the next one, which then
// fits whatever they are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "capture/native/loop_builder.h"

namespace tatara::capture::native {

/// A number, or with a symbol of the program what is added to it.
struct SizeTerm {
  int symbol = -1;
  int64_t offset = 0;
  int64_t value(std::span<const int64_t> sizes) const {
    return symbol < 0 ? offset : sizes[static_cast<size_t>(symbol)] + offset;
  }
};

/// Where a frame has the value of a symbol, when `offset` is taken off.
struct SizePlace {
  enum class Kind : uint8_t { kDimension, kInt, kFirst, kTurns } kind = Kind::kDimension;
  int local = 0, dim = 0;
  int64_t offset = 0;
};

/// Values of symbols. Smaller sizes are special (they may broadcast), and products of larger ones may be no exact floats.
constexpr IntRange kVaryingSize{2, int64_t{1} << 24};

/// Values that changed in the same way are one symbol, or differ by a small number from it.
class SizeSymbols {
 public:
  /// `before`: what it was in the earlier program. Throws Unsupported where it is no value of a symbol.
  SizeTerm term(int64_t before, int64_t now, const SizePlace& place);
  Expr expr(const SizeTerm& term, LoopBuilder& builder) const;
  const std::vector<SizePlace>& places() const { return places_; }

 private:
  struct Change {
    int64_t before, now;
  };
  std::vector<Change> changes_;    // by symbol
  std::vector<SizePlace> places_;  // the same
};

}  // namespace tatara::capture::native
