// Memory that is zero before it is touched.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime/base/pages.h"
#include "testing.h"

namespace tatara {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

struct Free {
  void operator()(void* block) const { std::free(block); }
};

bool is_zero(const std::byte* begin, size_t bytes) {
  return std::all_of(begin, begin + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(Pages, ClearsBlocksThatWereUsed) {
  const std::unique_ptr<void, Free> block(std::malloc(3 * kBytes));
  auto* const begin = static_cast<std::byte*>(block.get());
  for (const size_t offset : {0, 1, 64, 4095, 4096}) {
    for (const size_t bytes : {kBytes, kBytes + 1, kBytes + 4095}) {
      std::memset(begin, 7, 3 * kBytes);
      EXPECT_TRUE(clear_untouched(begin + offset, bytes));
      EXPECT_TRUE(is_zero(begin + offset, bytes));
      EXPECT_TRUE(offset == 0 || begin[offset - 1] == std::byte{7});
      EXPECT_TRUE(begin[offset + bytes] == std::byte{7});
    }
  }
}

TEST(Pages, LeavesSmallBlocksToTheCaller) {
  std::byte small[4096];
  EXPECT_FALSE(clear_untouched(small, sizeof(small)));
}

TEST(Pages, SaysWhereMemoryStays) {
  void* const shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_TRUE(shared != MAP_FAILED);
  std::memset(shared, 7, kBytes);
  EXPECT_FALSE(clear_untouched(shared, kBytes));
  munmap(shared, kBytes);

  void* const locked = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_TRUE(locked != MAP_FAILED);
  std::memset(locked, 7, kBytes);
  if (mlock(locked, kBytes) == 0) {
    EXPECT_FALSE(clear_untouched(locked, kBytes));
  }
  munmap(locked, kBytes);
}

}  // namespace
}  // namespace tatara
