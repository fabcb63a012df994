// States of the host's generators of random numbers.
#pragma once

#include <utility>
#include <vector>

#include "capture/tape.h"

namespace tatara::capture {

/// What the default generators and those that the tape's calls are given would draw next, to be put back after a run that failed
/// where something else runs in its place: it draws the same numbers, and leaves the generators as eager does.
class GeneratorStates {
 public:
  /// Keeps nothing where a state cannot be read.
  GeneratorStates(const Tape& tape, const TorchApi& api);
  /// Leaves the present Python error as it is.
  void put_back() const;

 private:
  void keep(PyObject* generator);

  std::vector<std::pair<Ref, Ref>> states_;  // (generator, state)
};

}  // namespace tatara::capture
