#include "support/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tatara {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLengthBytes = 8;

constexpr std::array<uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big(const uint8_t* data) {
  return uint32_t{data[0]} << 24 | uint32_t{data[1]} << 16 | uint32_t{data[2]} << 8 | uint32_t{data[3]};
}

void store_big(uint8_t* data, uint32_t word) {
  for (int i = 0; i < 4; ++i) data[i] = static_cast<uint8_t>(word >> (24 - 8 * i));
}

}  // namespace

void Sha256::block(const uint8_t* data) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_big(data + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> change{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += change[i];
}

Sha256& Sha256::add(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  const size_t have = length_ % kBlock;
  length_ += left;
  if (have > 0) {
    const size_t taken = std::min(left, kBlock - have);
    std::memcpy(pending_.data() + have, data, taken);
    data += taken;
    left -= taken;
    if (have + taken < kBlock) return *this;
    block(pending_.data());
  }
  for (; left >= kBlock; data += kBlock, left -= kBlock) block(data);
  if (left > 0) std::memcpy(pending_.data(), data, left);
  return *this;
}

Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  // A one, zeros up to the last eight bytes of a block, the length in bits.
  static constexpr char kEnd[kBlock] = {static_cast<char>(0x80)};
  const size_t have = length_ % kBlock;
  const size_t room = have < kBlock - kLengthBytes ? kBlock : 2 * kBlock;
  add({kEnd, room - kLengthBytes - have});
  std::array<uint8_t, kLengthBytes> length;
  store_big(length.data(), static_cast<uint32_t>(bits >> 32));
  store_big(length.data() + 4, static_cast<uint32_t>(bits));
  add({reinterpret_cast<const char*>(length.data()), length.size()});
  Digest digest;
  for (size_t i = 0; i < 8; ++i) store_big(digest.data() + 4 * i, state_[i]);
  return digest;
}

Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  const auto text = [](const auto& bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::array<uint8_t, kBlock> padded{};
  if (key.size() > kBlock) {
    const Digest shorter = Sha256().add(key).finish();
    std::copy(shorter.begin(), shorter.end(), padded.begin());
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  const auto masked = [&](uint8_t mask) {
    std::array<uint8_t, kBlock> result;
    for (size_t i = 0; i < kBlock; ++i) result[i] = static_cast<uint8_t>(padded[i] ^ mask);
    return result;
  };
  Sha256 inner;
  inner.add(text(masked(0x36)));
  for (const std::string_view part : parts) inner.add(part);
  const Digest first = inner.finish();
  return Sha256().add(text(masked(0x5c))).add(text(first)).finish();
}

bool equal_digests(const Digest& a, const Digest& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace tatara
