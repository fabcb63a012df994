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
  /// The node asks whether a tensor holds, and a graph can look whether it does so again: it will.
  bool take_condition(const TapeNode& node);
  /// Behind all nodes: one check of all these conditions.
  void check_conditions();
  /// Of a float: it is made before the graph runs.
  bool made_before(int slot) const { return host_.contains(slot); }
  /// The slot of a factor (`value`, `alpha`) that is a tensor in place of a number; or -1.
  int factor_of(const TapeNode& node) const;
  /// addcmul, addcdiv, add and sub with such a factor, as eager's kernels round them.
  std::vector<TensorRef> scaled(const TapeNode& node, int factor);
  /// Whether the operator takes the numbers that vary among its arguments, and notes what bounds() says of it.
  bool fits(const OpDef& op, const std::vector<Arg>& args);
  /// A tensor is set to the number in the slot, if it is one. False: by value.
  bool may_set(TensorRef tensor, int slot);
  /// Of the last call.
  const std::vector<NumberWithin>& bounds() const { return bounds_; }
  void forget_bounds() { bounds_.clear(); }
  /// Of torch.tensor: of lists of numbers, some of which are floats that vary.
  bool is_list(const TapeNode& node) const;
  TensorRef list(const TapeNode& node);

 private:
  /// Whether the host reads a number from such a tensor, and a kernel may do that.
  bool multiplies(const TapeNode& node, int factor) const;
  bool on_host(int slot) const;

  TapeConversion& c_;
  std::unordered_set<int> host_;  // slots of floats that are made before the graph runs
  std::vector<NumberWithin> bounds_;
  /// Those on one kind of device so far.
  struct Conditions {
    size_t last = 0;               // the node of the last one
    ValueId otherwise = kNoValue;  // whether one of them falls otherwise than in the trace
  };
  Conditions on_cpu_, on_gpu_;
};

}  // namespace tatara::capture
