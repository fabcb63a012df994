// Batching of random numbers, as the host draws them: in one go for all examples, or once where all get the same.
#include "ops/rules/batching_rule.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Factories with sizes in an argument. This is asked for only where every example draws its own.
BatchFn sized(size_t size_arg) {
  return [size_arg](BatchContext& c) {
    std::vector<Arg> args = c.mapped_args();
    args[size_arg] = SymInts{c.with_batch(c.args().exprs(size_arg))};
    c.give_call(std::move(args));
    return true;
  };
}

/// Numbers of a tensor's shape, whatever it holds.
bool batch_like(BatchContext& c) {
  GraphBuilder& b = c.builder();
  std::vector<Arg> args = c.mapped_args();
  if (c.same_random()) {
    args[0] = TensorArg{b.op("select", {TensorArg{c.as_is(0)}, int_arg(0), int_arg(0)})};
    const std::vector<ValueId> results = b.call(*c.node().op, std::move(args));
    for (size_t i = 0; i < results.size(); ++i) c.give(i, results[i], false);
    return true;
  }
  args[0] = TensorArg{c.all(0)};
  c.give_call(std::move(args));
  return true;
}

/// Numbers that depend on what the tensor holds.
bool batch_by_value(BatchContext& c) {
  if (c.same_random()) throw Unsupported(str_cat(c.node().op->name, " of a batch with randomness=\"same\""));
  std::vector<Arg> args = c.mapped_args();
  for (size_t i = 0; i < args.size(); ++i) {
    if (c.args().is_tensor(i)) args[i] = TensorArg{c.all(i)};
  }
  c.give_call(std::move(args));
  return true;
}

constexpr int64_t kMostPermutations = 1024;

bool batch_randperm(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const int64_t count = c.ctx().specialize(c.size());
  if (count > kMostPermutations) throw Unsupported("as many permutations in one graph");
  TensorList rows;
  for (int64_t i = 0; i < count; ++i) rows.values.push_back(b.call(*c.node().op, c.mapped_args())[0]);
  c.give(0, b.op("stack", {rows}));
  return true;
}

}  // namespace

void register_batching_random(OpRegistry& r) {
  for (const char* name : {"rand", "rand.generator", "randn", "randn.generator"}) r.amend(name).batch = sized(0);
  for (const char* name : {"randint", "randint.generator"}) r.amend(name).batch = sized(1);
  for (const char* name : {"randint.low", "randint.low_generator"}) r.amend(name).batch = sized(2);
  for (const char* name : {"rand_like", "randn_like", "randint_like", "randint_like.low_dtype", "bernoulli.p"}) {
    r.amend(name).batch = batch_like;
  }
  r.amend("bernoulli").batch = batch_by_value;
  r.amend("randperm").batch = batch_randperm;
}

}  // namespace tatara
