// What passes of the engine of gradients on a tape have used up.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// A pass of the engine after which the graph of gradients is gone.
inline bool frees_history(const TapeNode& node) {
  const GradientPass* pass = engine_pass(node);
  return pass != nullptr && !pass->keeps_history;
}

/// Eager refuses to go through an operation a second time where the operation had saved something, and only there.
class UsedHistory {
 public:
  /// `needs`: slots that may have a history.
  UsedHistory(const Tape& tape, std::vector<bool> needs) : tape_(tape), needs_(std::move(needs)) {}
  /// An operation in the history of these tensors that an earlier pass went through and that had saved something; -1: none.
  int first_used(const std::vector<int>& slots);
  /// Whether the host's node for an operation of the tape keeps tensors.
  bool saves(size_t node);

 private:
  /// The nodes before `count` that the histories of the slots are made of.
  std::vector<bool> nodes_of(const std::vector<int>& slots, size_t count) const;

  const Tape& tape_;
  std::vector<bool> needs_;
  std::unordered_map<size_t, std::vector<bool>> passes_;  // by node: what they went through
  std::vector<std::optional<bool>> saves_;
};

}  // namespace tatara::capture
