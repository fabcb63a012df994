#include <cstring>
#include <random>
#include <vector>

#include "runtime/host/mersenne.h"
#include "testing.h"

namespace tatara {
namespace {

/// A state of the host's generator, just seeded.
std::vector<uint8_t> seeded(uint32_t seed) {
  std::vector<uint8_t> state(5056, 0);
  const int32_t one = 1;
  std::memcpy(state.data() + 8, &one, 4);
  std::memcpy(state.data() + 12, &one, 4);
  uint64_t word = seed;
  for (size_t i = 0; i < 624; ++i) {
    if (i > 0) word = (1812433253U * (word ^ (word >> 30)) + i) & 0xffffffffU;
    std::memcpy(state.data() + 24 + 8 * i, &word, 8);
  }
  return state;
}

TEST(Mersenne, DrawsTheNumbersOfTheStandardLibrary) {
  std::mt19937 standard(11);
  std::vector<uint8_t> state = seeded(11);
  // In pieces, whose ends fall everywhere in the blocks.
  for (const size_t count : {1U, 311U, 1U, 624U, 5000U, 2U}) {
    auto twister = MersenneTwister::load(state);
    ASSERT_TRUE(twister.has_value());
    std::vector<uint8_t> numbers(count);
    twister->bernoulli(0.3, numbers);
    twister->store(state);
    for (const uint8_t number : numbers) {
      const uint64_t high = standard(), low = standard();
      const double drawn = static_cast<double>(((high << 32) | low) & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
      EXPECT_EQ(static_cast<int>(number), drawn < 0.3 ? 1 : 0);
    }
  }
}

TEST(Mersenne, RefusesStatesOfAnotherLayout) {
  std::vector<uint8_t> state = seeded(1);
  EXPECT_FALSE(MersenneTwister::load(std::span(state).first(5000)).has_value());
  state[8] = 0;
  EXPECT_FALSE(MersenneTwister::load(state).has_value());
}

}  // namespace
}  // namespace tatara
