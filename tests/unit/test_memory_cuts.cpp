#include <algorithm>
#include <random>
#include <vector>

#include "runtime/base/memory_cuts.h"
#include "testing.h"

namespace tatara {
namespace {

using Steps = std::vector<StepMemory>;

/// The most that is held when each stretch makes all before it and frees all after it.
int64_t most_held(const Steps& steps, const std::vector<size_t>& ends) {
  int64_t held = 0, most = 0;
  size_t begin = 0;
  for (const size_t end : ends) {
    for (size_t i = begin; i < end; ++i) held += steps[i].made;
    most = std::max(most, held);
    for (size_t i = begin; i < end; ++i) held -= steps[i].freed;
    begin = end;
  }
  return most;
}

std::vector<size_t> single(const Steps& steps) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < steps.size(); ++i) ends.push_back(i + 1);
  return ends;
}

TEST(MemoryCuts, NothingToCut) {
  EXPECT_TRUE(cut_by_memory({}, 0).empty());
  const Steps steps(5);
  EXPECT_EQ(cut_by_memory(steps, 0), (std::vector<size_t>{5}));
}

TEST(MemoryCuts, AtTheMostMemoryOneByOneThenInLongStretches) {
  // A backward pass: each step makes one and lets go of two.
  const Steps steps(16, {1, 2});
  const std::vector<size_t> ends = cut_by_memory(steps, 0);
  EXPECT_EQ(ends, (std::vector<size_t>{1, 3, 7, 15, 16}));
  EXPECT_EQ(most_held(steps, ends), most_held(steps, single(steps)));
}

TEST(MemoryCuts, StepsAlone) {
  Steps steps(6);
  steps[2].alone = true;
  EXPECT_EQ(cut_by_memory(steps, 0), (std::vector<size_t>{2, 3, 6}));
}

TEST(MemoryCuts, NeverMoreThanTheSlack) {
  std::mt19937 random(0);
  for (int trial = 0; trial < 200; ++trial) {
    Steps steps(random() % 40);
    const auto now_and_then = [&random] { return random() % 3 == 0 ? static_cast<int64_t>(random() % 100) : 0; };
    for (StepMemory& step : steps) step = {now_and_then(), now_and_then()};
    for (const int64_t slack : {0, 50, 1000}) {
      const std::vector<size_t> ends = cut_by_memory(steps, slack);
      EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
      EXPECT_LE(most_held(steps, ends), most_held(steps, single(steps)) + slack);
      EXPECT_EQ(steps.empty() ? 0 : ends.back(), steps.size());
    }
  }
}

}  // namespace
}  // namespace tatara
