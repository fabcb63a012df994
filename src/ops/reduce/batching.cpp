// Batching of reductions, scans, softmax and sorting: their dimensions count one further.
#include "ops/rules/batching_rule.h"

namespace tatara {
namespace {

using namespace ops;

/// Medians of all elements are those of the flat tensor.
BatchFn flat_by_dim(const char* by_dim) {
  return [by_dim](BatchContext& c) {
    c.give_parts([by_dim](GraphBuilder& b, std::span<const Arg> args) -> std::vector<ValueId> {
      const ValueId self = std::get<TensorArg>(args[0]).value;
      const ValueId flat = b.reshape(self, {b.type(self).numel(b.ctx())});
      return {b.op_multi(by_dim, {TensorArg{flat}, int_arg(0)})[0]};
    });
    return true;
  };
}

}  // namespace

void register_batching_reduce(OpRegistry& r) {
  // Composites are here where a rule of derivatives speaks of the whole.
  static constexpr const char* kNames[] = {
      "sum",
      "prod",
      "any",
      "all",
      "amax",
      "amin",
      "max.dim",
      "min.dim",
      "argmax",
      "argmin",
      "aminmax",
      "_welford",
      "cumsum",
      "cumprod",
      "cummax",
      "cummin",
      "logcumsumexp",
      "softmax",
      "log_softmax",
      "_softmax",
      "_log_softmax",
      "sort",
      "sort.stable",
      "argsort",
      "argsort.stable",
      "topk",
      "kthvalue",
      "median.dim",
      "nanmedian.dim",
      "mode",
      "mean",
      "logsumexp",
      "linalg_vector_norm",
  };
  for (const char* name : kNames) r.amend(name).batch = [](BatchContext& c) { return batch_by_dims(c); };
  r.amend("median").batch = flat_by_dim("median.dim");
  r.amend("nanmedian").batch = flat_by_dim("nanmedian.dim");
}

}  // namespace tatara
