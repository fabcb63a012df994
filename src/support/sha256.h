// SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): what tells bytes that this user's Tatara wrote from all others.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tatara {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256& add(std::string_view bytes);
  /// The digest of all that was added. Nothing may be added afterwards.
  Digest finish();

 private:
  void block(const uint8_t* data);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t length_ = 0;  // bytes so far
};

/// HMAC-SHA256 of the parts one after the other, without marks between them.
Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts);

/// Takes the same time wherever the first difference is.
bool equal_digests(const Digest& a, const Digest& b);

}  // namespace tatara
