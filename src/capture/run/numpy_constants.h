// Calls of NumPy's that give the same in each run.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "capture/host/numpy_api.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

class ConstantCalls {
 public:
  /// Results of a call, by slot: each run gives copies.
  using Results = std::vector<std::pair<int, Ref>>;

  ConstantCalls(const Tape& tape, const NumpyApi& np);
  /// What the call gives in each run; empty: that varies, or the call has more to it than its results.
  Results results(const TapeNode& node);
  /// False with a Python error set.
  static bool give(const Results& results, std::vector<Ref>& env, const NumpyApi& np);

 private:
  Ref value(int slot);
  bool run(const TapeNode& node);

  const Tape& tape_;
  const NumpyApi& np_;
  bool writes_;
  std::map<int, Ref> values_;
};

}  // namespace tatara::capture
