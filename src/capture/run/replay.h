// Calls of a detached tape that are made once more as eager makes them: also those that only graphs know otherwise, the
// backward of a user's autograd.Function and regions that gradients compute again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

class Replay {
 public:
  /// Whether the tape is one that can be replayed.
  static bool possible(const Tape& tape);
  /// Whether nodes before and from `cut` on are in one region.
  static bool cuts_region(const Tape& tape, size_t cut);

  Replay(std::shared_ptr<const Tape> tape, std::vector<int64_t> symbols);

  /// Nodes [first, last), which hold regions whole. Nothing in `env` is dropped. False with a Python error set.
  bool run(std::vector<Ref>& env, size_t first, size_t last) const;

 private:
  struct Calls;
  using Saved = std::vector<std::pair<int, Ref>>;  // tensors by slot
  bool attach_backward(const TapeNode& node, std::vector<Ref>& env) const;
  bool run_region(std::vector<Ref>& env, size_t begin, size_t end) const;

  std::shared_ptr<const Calls> calls_;
};

}  // namespace tatara::capture
