// A stable 128-bit hash for cache keys: MurmurHash3_x64_128 by Austin Appleby (public domain; described at
// https://github.com/aappleby/smhasher/wiki/MurmurHash3), seed 0. Not for untrusted input: the cache directory is the
// user's own. The same bytes give the same hash on every machine and in every release.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tatara {

struct Hash128 {
  uint64_t lo = 0;
  uint64_t hi = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  /// 32 hexadecimal digits, `lo` first.
  std::string str() const;
};

Hash128 hash128(std::string_view bytes);

/// A key from several parts: each part counts with its length, so that ("ab", "c") and ("a", "bc") differ.
class KeyBuilder {
 public:
  KeyBuilder& add(std::string_view part);
  KeyBuilder& add(uint64_t number);
  Hash128 finish() const { return hash128(bytes_); }

 private:
  std::string bytes_;
};

/// Mixes a value into a running hash for in-memory tables (the finaliser of MurmurHash3).
constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) {
  uint64_t k = seed * 0x9e3779b97f4a7c15u + value;
  k ^= k >> 33;
  k *= 0xff51afd7ed558ccdu;
  k ^= k >> 33;
  k *= 0xc4ceb9fe1a85ec53u;
  k ^= k >> 33;
  return k;
}

}  // namespace tatara
