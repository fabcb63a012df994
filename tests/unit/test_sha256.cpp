#include "support/sha256.h"

#include <string>

#include "testing.h"

namespace tatara {
namespace {

std::string hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string sha256(std::string_view bytes) { return hex(Sha256().add(bytes).finish()); }

// The examples of FIPS 180-4 (NIST's "SHA256" example values).
TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSame) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * 7);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string_view text = std::string_view(bytes).substr(0, size);
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{63}, size_t{64}, size_t{65}}) {
      Sha256 hash;
      for (size_t at = 0; at < size; at += piece) hash.add(text.substr(at, piece));
      ASSERT_EQ(hex(hash.finish()), sha256(text)) << size << " bytes, " << piece << " at a time";
    }
  }
}

// The seven test cases of RFC 4231.
TEST(Hmac, PublishedVectors) {
  const auto hmac = [](const std::string& key, std::string_view data) { return hex(hmac_sha256(key, {data})); };
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  EXPECT_EQ(hmac(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  const std::string large(131, '\xaa');
  EXPECT_EQ(hmac(large, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac(large,
                 "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
                 "to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Hmac, PartsAreOneText) {
  EXPECT_EQ(hmac_sha256("key", {"ab", "", "c"}), hmac_sha256("key", {"abc"}));
  EXPECT_TRUE(equal_digests(hmac_sha256("key", {"abc"}), hmac_sha256("key", {"abc"})));
  Digest other = hmac_sha256("key", {"abc"});
  other[31] ^= 1;
  EXPECT_FALSE(equal_digests(hmac_sha256("key", {"abc"}), other));
}

}  // namespace
}  // namespace tatara
