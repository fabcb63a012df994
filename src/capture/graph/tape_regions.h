// Regions of a tape that gradients compute again (torch.utils.checkpoint).
#pragma once

#include <memory>
#include <vector>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

class TapeRegions {
 public:
  explicit TapeRegions(TapeConversion& conversion) : c_(conversion) {}

  /// An end of a region.
  void convert(const TapeNode& node);
  bool inside() const { return !open_.empty(); }

 private:
  void check(const RegionMark& end) const;

  TapeConversion& c_;
  struct Open {
    std::shared_ptr<const Region> region;
    std::vector<int64_t> versions;
    size_t nodes;
  };
  std::vector<Open> open_;
};

}  // namespace tatara::capture
