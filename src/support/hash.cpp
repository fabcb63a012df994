#include "support/hash.h"

#include <bit>
#include <cstddef>

namespace tatara {
namespace {

constexpr uint64_t kC1 = 0x87c37b91114253d5u;
constexpr uint64_t kC2 = 0x4cf5ad432745937fu;

constexpr uint64_t fmix(uint64_t k) {
  k ^= k >> 33;
  k *= 0xff51afd7ed558ccdu;
  k ^= k >> 33;
  k *= 0xc4ceb9fe1a85ec53u;
  k ^= k >> 33;
  return k;
}

// Little-endian, byte by byte: the hash is the same on every machine. `count` at most 8.
uint64_t load(const char* data, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(data[i])} << (8 * i);
  }
  return value;
}

}  // namespace

Hash128 hash128(std::string_view bytes) {
  uint64_t h1 = 0;
  uint64_t h2 = 0;
  const size_t full = bytes.size() / 16;
  for (size_t i = 0; i < full; ++i) {
    uint64_t k1 = load(bytes.data() + i * 16, 8);
    uint64_t k2 = load(bytes.data() + i * 16 + 8, 8);
    h1 ^= std::rotl(k1 * kC1, 31) * kC2;
    h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= std::rotl(k2 * kC2, 33) * kC1;
    h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  const char* tail = bytes.data() + full * 16;
  const size_t rest = bytes.size() % 16;
  if (rest > 8) h2 ^= std::rotl(load(tail + 8, rest - 8) * kC2, 33) * kC1;
  if (rest > 0) h1 ^= std::rotl(load(tail, rest < 8 ? rest : 8) * kC1, 31) * kC2;
  h1 ^= bytes.size();
  h2 ^= bytes.size();
  h1 += h2;
  h2 += h1;
  h1 = fmix(h1);
  h2 = fmix(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

std::string Hash128::str() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint64_t word : {lo, hi}) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(word >> shift) & 15];
  }
  return out;
}

KeyBuilder& KeyBuilder::add(std::string_view part) {
  add(uint64_t{part.size()});
  bytes_ += part;
  return *this;
}

KeyBuilder& KeyBuilder::add(uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>((number >> shift) & 0xff);
  return *this;
}

}  // namespace tatara
