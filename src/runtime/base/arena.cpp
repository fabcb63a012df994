#include "runtime/base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

struct Block {
  std::byte* base = nullptr;
  size_t size = 0;
};

std::atomic<int64_t> g_total{0};
// Whether memory has gone back to the system. To clear huge pages in every step, and to make room for them, takes longer than
// the faults of small ones: 330 against 40 ms of BERT's step.
std::atomic<bool> g_comes_and_goes{false};

/// Anonymous pages, huge where the system offers them and all of one is used.
Block map(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20, kPage = 4096;
  const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error("out of memory: an arena of " + std::to_string(bytes) + " bytes");
  if (rounded >= kHuge && !g_comes_and_goes.load()) madvise(memory, rounded / kHuge * kHuge, MADV_HUGEPAGE);
  g_total += static_cast<int64_t>(rounded);
  return {static_cast<std::byte*>(memory), rounded};
}

void unmap(const Block& block) {
  if (block.base == nullptr) return;
  munmap(block.base, block.size);
  g_total -= static_cast<int64_t>(block.size);
}

/// Blocks that no run is using: as many as runs went on at once.
struct Idle {
  ForkSafeMutex mutex;
  std::vector<Block> blocks;

  static Idle& get() { return made_once<Idle>(); }
};

}  // namespace

void Arena::resize(size_t bytes) {
  wanted_ = bytes;
  if (is_shared()) {
    release();
  } else if (bytes > size_) {
    release();
    const Block block = map(bytes);
    base_ = block.base;
    size_ = block.size;
  }
}

std::byte* Arena::enter() {
  if (!is_shared() || base_ != nullptr) return base_;
  Idle& idle = Idle::get();
  Block block;
  {
    const std::lock_guard lock(idle.mutex);
    // The smallest that suffices, else the largest in exchange for a larger one.
    auto found = idle.blocks.end();
    for (auto at = idle.blocks.begin(); at != idle.blocks.end(); ++at) {
      if (found == idle.blocks.end()) {
        found = at;
        continue;
      }
      const bool fits = at->size >= wanted_, known_fits = found->size >= wanted_;
      if (fits != known_fits ? fits : (fits ? at->size < found->size : at->size > found->size)) found = at;
    }
    if (found != idle.blocks.end()) {
      block = *found;
      idle.blocks.erase(found);
    }
  }
  if (block.size < wanted_) {
    unmap(block);
    block = map(wanted_);
  }
  base_ = block.base;
  size_ = block.size;
  return base_;
}

void Arena::leave() {
  if (!is_shared() || base_ == nullptr) return;
  Idle& idle = Idle::get();
  const std::lock_guard lock(idle.mutex);
  idle.blocks.push_back({base_, size_});
  base_ = nullptr;
  size_ = 0;
}

void Arena::release() {
  unmap({base_, size_});
  base_ = nullptr;
  size_ = 0;
}

int64_t Arena::total() { return g_total.load(); }

void Arena::release_idle() {
  Idle& idle = Idle::get();
  std::vector<Block> blocks;
  {
    const std::lock_guard lock(idle.mutex);
    blocks.swap(idle.blocks);
  }
  for (const Block& block : blocks) unmap(block);
  if (!blocks.empty()) g_comes_and_goes = true;
}

}  // namespace tatara
