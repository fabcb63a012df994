#include "runtime/host/mersenne.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// One function for each set of vector instructions, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TATARA_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define TATARA_VECTOR_CLONES
#endif

namespace tatara {
namespace {

constexpr size_t kWords = 624, kShift = 397;

/// The layout of the state: seed (8 bytes), left and seeded (4 each), next (8), 624 words of 8 bytes, and what normal
/// numbers keep.
constexpr size_t kLeftAt = 8, kSeededAt = 12, kNextAt = 16, kWordsAt = 24, kBytes = 5056;

inline uint32_t twisted(uint32_t high, uint32_t low) {
  const uint32_t both = (high & 0x80000000U) | (low & 0x7fffffffU);
  return (both >> 1) ^ ((0U - (low & 1U)) & 0x9908b0dfU);
}

TATARA_VECTOR_CLONES void next_block(uint32_t* w) {
  for (size_t i = 0; i < kWords - kShift; ++i) w[i] = w[i + kShift] ^ twisted(w[i], w[i + 1]);
  for (size_t i = kWords - kShift; i < kWords - 1; ++i) w[i] = w[i + kShift - kWords] ^ twisted(w[i], w[i + 1]);
  w[kWords - 1] = w[kShift - 1] ^ twisted(w[kWords - 1], w[0]);
}

TATARA_VECTOR_CLONES void temper(const uint32_t* __restrict__ from, uint32_t* __restrict__ to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t y = from[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    to[i] = y ^ (y >> 18);
  }
}

/// The first of two words has the upper bits.
TATARA_VECTOR_CLONES void compare(const uint32_t* __restrict__ words, int64_t bound, uint8_t* __restrict__ out,
                                  size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = (static_cast<uint64_t>(words[2 * i] & 0x1fffffU) << 32) | words[2 * i + 1];
    out[i] = static_cast<int64_t>(bits) < bound ? 1 : 0;
  }
}

template <typename T>
T read(std::span<const uint8_t> from, size_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof(T));
  return value;
}

}  // namespace

std::optional<MersenneTwister> MersenneTwister::load(std::span<const uint8_t> state) {
  if (state.size() != kBytes || read<int32_t>(state, kSeededAt) == 0) return std::nullopt;
  MersenneTwister made;
  const auto left = read<int32_t>(state, kLeftAt);
  const auto next = read<uint64_t>(state, kNextAt);
  if (left < 1 || left > static_cast<int32_t>(kWords) || next > kWords) return std::nullopt;
  made.left_ = static_cast<size_t>(left) - 1;
  made.next_ = next;
  if (made.next_ + made.left_ > kWords) return std::nullopt;
  for (size_t i = 0; i < kWords; ++i) {
    made.words_[i] = static_cast<uint32_t>(read<uint64_t>(state, kWordsAt + i * sizeof(uint64_t)));
  }
  return made;
}

void MersenneTwister::store(std::span<uint8_t> state) const {
  const auto write = [&](size_t at, auto value) { std::memcpy(state.data() + at, &value, sizeof(value)); };
  write(kLeftAt, static_cast<int32_t>(left_ + 1));
  write(kNextAt, static_cast<uint64_t>(next_));
  for (size_t i = 0; i < kWords; ++i) write(kWordsAt + i * sizeof(uint64_t), static_cast<uint64_t>(words_[i]));
}

size_t MersenneTwister::draw(uint32_t* to, size_t count) {
  if (left_ == 0) {
    next_block(words_.data());
    next_ = 0;
    left_ = kWords;
  }
  const size_t taken = std::min(count, left_);
  temper(words_.data() + next_, to, taken);
  next_ += taken;
  left_ -= taken;
  return taken;
}

void MersenneTwister::bernoulli(double p, std::span<uint8_t> out) {
  // bits * 2^-53 < p, where p * 2^53 is exact.
  const auto bound = static_cast<int64_t>(std::ceil(std::ldexp(p, 53)));
  std::array<uint32_t, kWords + 1> words;
  size_t held = 0, done = 0;
  while (done < out.size()) {
    const size_t wanted = 2 * (out.size() - done) - held;
    held += draw(words.data() + held, std::min(wanted, kWords));
    const size_t pairs = held / 2;
    compare(words.data(), bound, out.data() + done, pairs);
    done += pairs;
    if (held % 2 != 0) words[0] = words[held - 1];
    held %= 2;
  }
}

}  // namespace tatara
