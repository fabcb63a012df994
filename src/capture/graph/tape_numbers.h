// Python numbers on a tape: arithmetic on floats, and tensors that meet them.
#pragma once

#include <unordered_set>
#include <vector>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

class TapeNumbers {
 public:
  using TensorRef = Functionalizer::TensorRef;
  explicit TapeNumbers(TapeConversion& conversion) : c_(conversion) {}

  /// An input that is a number.
  void add_input(int slot);
  void convert(const TapeNode& node);
  /// Of a float: it is made before the graph runs.
  bool made_before(int slot) const { return host_.contains(slot); }
  /// The slot of a factor (`value`, `alpha`) that is a float of the tape, or a tensor in place of one; or -1.
  int factor_of(const TapeNode& node) const;
  /// addcmul, addcdiv, add and sub with such a factor, as eager's kernels round them.
  std::vector<TensorRef> scaled(const TapeNode& node, int factor);
  /// The tensors of the slots, where a number of the program meets a tensor without dimensions: it has that tensor's type
  /// then. Else empty.
  std::vector<TensorRef> cast(const TapeNode& node);

 private:
  /// Whether the host reads a number from such a tensor, and a kernel may do that.
  bool multiplies(const TapeNode& node, int factor) const;
  bool on_host(int slot) const;

  TapeConversion& c_;
  std::unordered_set<int> host_;  // slots of floats that are made before the graph runs
};

}  // namespace tatara::capture
