#include "runtime/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace tatara {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

struct Pages {
  uintptr_t begin, end;
  size_t bytes() const { return end - begin; }
  void* start() const { return reinterpret_cast<void*>(begin); }  // NOLINT: it is an address
};

/// The whole pages of a block.
Pages pages_of(void* data, size_t bytes, size_t page) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  return {begin, std::max(begin, end)};
}

/// Whether none of the pages lies in memory.
bool none_in_memory(Pages pages, size_t page) {
  constexpr size_t kAtOnce = 16384;
  std::array<unsigned char, kAtOnce> present;
  for (uintptr_t at = pages.begin; at < pages.end; at += kAtOnce * page) {
    const size_t count = std::min<size_t>(kAtOnce, (pages.end - at) / page);
    if (mincore(reinterpret_cast<void*>(at), count * page, present.data()) != 0) return false;  // NOLINT: an address
    const auto is_present = [](unsigned char flags) { return (flags & 1U) != 0; };
    if (std::any_of(present.begin(), present.begin() + static_cast<std::ptrdiff_t>(count), is_present)) return false;
  }
  return true;
}

/// The whole huge pages of a block that is big enough to gain by them.
Pages huge_pages_of(void* data, size_t bytes) {
  const Pages pages = pages_of(data, bytes, kHuge);
  return bytes < 2 * kHuge ? Pages{pages.begin, pages.begin} : pages;
}

}  // namespace

void advise_huge_pages(void* data, size_t bytes) {
  const Pages pages = huge_pages_of(data, bytes);
  if (pages.bytes() > 0) static_cast<void>(madvise(pages.start(), pages.bytes(), MADV_HUGEPAGE));
}

void renew_with_huge_pages(void* data, size_t bytes) {
  const Pages pages = huge_pages_of(data, bytes);
  if (pages.bytes() == 0 || madvise(pages.start(), pages.bytes(), MADV_HUGEPAGE) != 0) return;
  static_cast<void>(madvise(pages.start(), pages.bytes(), MADV_DONTNEED));
}

bool clear_untouched(void* data, size_t bytes) {
  constexpr size_t kLeast = size_t{256} << 10;  // below, clearing costs less than asking
  // The C library maps blocks of this size one by one and so gives them back: advice ends with the block.
  constexpr size_t kOwnMapping = size_t{32} << 20;
  if (bytes < kLeast) return false;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Pages pages = pages_of(data, bytes, page);
  if (bytes >= kOwnMapping) static_cast<void>(madvise(pages.start(), pages.bytes(), MADV_NOHUGEPAGE));
  // Private memory is dropped, as its next reader sees zeros. What an allocator took from elsewhere (a file, a pool of huge pages)
  // stays in memory, or refuses.
  if (madvise(pages.start(), pages.bytes(), MADV_DONTNEED) != 0 || !none_in_memory(pages, page)) return false;
  auto* const begin = static_cast<std::byte*>(data);
  const size_t before = pages.begin - reinterpret_cast<uintptr_t>(data);
  std::memset(begin, 0, before);
  std::memset(begin + before + pages.bytes(), 0, bytes - before - pages.bytes());
  return true;
}

}  // namespace tatara
