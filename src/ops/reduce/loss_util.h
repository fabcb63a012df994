// Shared by the files of losses.
#pragma once

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara::ops {

// torch's enumeration of the reduction argument.
constexpr int64_t kNone = 0;
constexpr int64_t kMean = 1;
constexpr int64_t kSumReduction = 2;

inline ValueId whole_sum(GraphBuilder& b, ValueId x) { return b.op("sum", {TensorArg{x}}); }

inline ValueId reduced(GraphBuilder& b, ValueId loss, int64_t reduction) {
  switch (reduction) {
    case kNone: return loss;
    case kMean: return b.op("mean", {TensorArg{loss}});
    case kSumReduction: return whole_sum(b, loss);
    default: throw InvalidArgument(str_cat("reduction ", reduction));
  }
}

}  // namespace tatara::ops
