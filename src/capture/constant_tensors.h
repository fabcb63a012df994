// Tensors of a trace whose values depend on nothing from outside, such as masks made from positions: a branch on one needs
// no graph break.
#pragma once

#include <vector>

#include "capture/tape.h"

namespace tatara::capture {

class ConstantTensors {
 public:
  /// The arguments of a call with every slot replaced by its value; null (no error set) when one of them depends on an
  /// input, on random numbers or on memory that was never written.
  Ref evaluate(const Tape& tape, PyObject* arguments);

 private:
  void advance(const Tape& tape);

  size_t seen_ = 0;
  std::vector<Ref> env_;  // per slot: its value, or null
};

}  // namespace tatara::capture
