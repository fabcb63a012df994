#include <utility>

#include "ops/core/parse.h"
#include "stored_plans.h"

namespace tatara {
namespace {

constexpr std::pair<const char*, const char*> kPrograms[] = {
    {"pointwise and reductions", R"(graph(%0: f32[6, 40], %1: f64[40]) {
  %2: f32[6, 40] = mul(%0, 2.5)
  %3: f32[6, 40] = tanh(%2)
  %4: f32[6, 40] = softmax(%3, 1, None)
  %5: f64[] = sum(%1, None, False, dtype=None)
  %6: f64[40] = mul(%1, %5)
  return (%4, %6, %5)
}
)"},
    {"writes and aliases", R"(graph(%0: f32[8, 8], %1: f32[8, 8]) {
  %2: f32[8, 8] = mm(%0, %1)
  %3: f32[8, 8] = add(%0, 1, alpha=1)
  %4: f32[] = sum(%2, None, False, dtype=None)
  %5: f32[8, 8] = mul(%3, %4)
  %6: f32[8, 8] = relu(%2)
  %7: f32[7, 8] = slice(%5, 0, 1, None, 1)
  %8: f32[8, 8; strides 1, 8] = permute(%2, [1, 0])
  write input 0 <- %5
  return (%6, %7 alias of input 0 at 8, %8)
}
)"},
    {"results of the host", R"(graph(%0: f32[8, 8], %1: i64[2], %2: f32[8, 8, 3]) {
  %3: f32[8, 8], %4: i64[8, 8] = sort(%0, 1, False)
  %5: f32[16, 8] = cat([%3, %0], 0)
  %6: f32[2, 8] = index_select(%5, 0, %1)
  %7: f32[1, 8, 8] = unsqueeze(%0, 0)
  %8: f32[1, 8, 6] = convolution(%7, %2, None, [1], [0], [1], False, [0], 1)
  %9: f32[1, 8, 6] = exp(%8)
  return (%6, %4, %9)
}
)"},
    {"products through the arena", R"(graph(%0: f32[16, 16], %1: f32[16]) {
  %2: f32[16, 16] = mm(%0, %0)
  %3: f32[16, 16] = tanh(%2)
  %4: f32[16, 16] = mm(%3, %0)
  %5: f32[16, 16] = sigmoid(%4)
  %6: f32[16, 16] = addmm(%1, %5, %3, beta=1, alpha=1)
  %7: f32[16, 16] = add(%6, %2, alpha=1)
  %8: f32[16, 16] = mm(%7, %7)
  return (%8)
}
)"},
    {"rows of an input", R"(graph(%0: f32[4, 16], %1: f32[16, 16]) {
  %2: f32[1, 16] = slice(%0, 0, 1, 2, 1)
  %3: f32[1, 16] = mm(%2, %1)
  %4: f32[1, 16] = slice(%0, 0, 3, 4, 1)
  %5: f32[1, 16] = add(%3, %4, alpha=1)
  return (%5)
}
)"},
    {"masks", R"(graph(%0: f32[8, 8]) {
  %1: bool[8, 8] = bernoulli_mask([8, 8], 0.5, f32)
  %2: f32[8, 8] = cast(%1, f32)
  %3: f32[8, 8] = div(%2, 0.5)
  %4: f32[8, 8] = mul(%0, %3)
  %5: f32[8] = sum(%4, [0], False, dtype=None)
  return (%5, %4)
}
)"},
    {"nothing in it", R"(graph(%0: f32[0, 8], %1: f32[4]) {
  %2: f32[0, 8] = exp(%0)
  %3: f32[] = sum(%2, None, False, dtype=None)
  %4: f32[4] = mul(%1, %3)
  return (%2, %4)
}
)"},
};

}  // namespace

std::vector<StoredCase> stored_cases() {
  std::vector<StoredCase> cases;
  for (const auto& [name, text] : kPrograms) {
    auto program = std::make_shared<Program>();
    program->graph = parse_graph(text, program->ctx);
    cases.push_back(stored_case(name, program, {}));
  }
  return cases;
}

}  // namespace tatara
