// The generator of torch's CPU numbers, MT19937 (Matsumoto and Nishimura 1998), over the bytes of its state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tatara {

/// Draws what the host's generator would draw next, many numbers at a time.
class MersenneTwister {
 public:
  /// From `torch.Generator.get_state()`; nothing where the bytes are not of the layout that torch has had since 1.6.
  static std::optional<MersenneTwister> load(std::span<const uint8_t> state);
  /// Writes the position back into the same bytes.
  void store(std::span<uint8_t> state) const;

  /// One byte per trial, 1 with probability `p`: torch's `bernoulli_(p)`, which draws a double of 53 bits for each.
  void bernoulli(double p, std::span<uint8_t> out);

 private:
  static constexpr size_t kWords = 624;
  /// Appends the next numbers, at most the rest of a block.
  size_t draw(uint32_t* to, size_t count);

  std::array<uint32_t, kWords> words_{};
  size_t next_ = 0;  // of words_
  size_t left_ = 0;  // unread ones
};

}  // namespace tatara
