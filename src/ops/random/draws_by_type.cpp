#include <set>

#include "ops/rules/draws.h"
#include "support/made_once.h"

namespace tatara {

bool draws_by_type(const OpDef& op) {
  const auto& known = made_once([] {
    std::set<const OpDef*> ops;
    for (const char* name : {"rand_like", "randn_like", "randint_like", "randint_like.low_dtype", "bernoulli.p",
                             "bernoulli_fill", "uniform_fill", "normal_fill", "exponential_fill", "cauchy_fill",
                             "log_normal_fill", "geometric_fill", "random_fill", "random_fill.to", "random_fill.from"})
      ops.insert(&OpRegistry::global().get(name));
    return ops;
  });
  return known.contains(&op);
}

}  // namespace tatara
