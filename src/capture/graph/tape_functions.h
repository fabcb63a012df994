// Functions with a backward of the user's (autograd.Function) on a tape.
#pragma once

#include <functional>
#include <vector>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

class TapeFunctions {
 public:
  using TensorRef = Functionalizer::TensorRef;
  explicit TapeFunctions(TapeConversion& conversion) : c_(conversion) {}

  /// The outputs get the history that the backward, as it was traced, gives them. `each` converts its nodes.
  void convert(const TapeNode& node, const std::function<void(const TapeNode&)>& each);
  /// A result shares memory with another tensor in eager, here it has memory of its own: neither may be written to, nor
  /// leave the graph (`wanted`) together with the other. Throws Unsupported.
  void check(const std::vector<TensorRef>& wanted) const;

 private:
  TapeConversion& c_;
  struct Renewed {
    TensorRef raw;
    int64_t raw_version;
    TensorRef made;
    int64_t made_version;
  };
  std::vector<Renewed> renewed_;  // results, before and with their history
};

}  // namespace tatara::capture
