// A bump allocator for objects that live and die together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tatara {

/// Not thread-safe. Only trivially destructible types: the arena runs no destructors. Blocks double up to `block_bytes`, so that
/// a small arena is small.
class BumpArena {
 public:
  explicit BumpArena(size_t block_bytes = size_t{16} << 10) : block_bytes_(block_bytes) {}
  BumpArena(const BumpArena&) = delete;
  BumpArena& operator=(const BumpArena&) = delete;
  BumpArena(BumpArena&&) = default;
  BumpArena& operator=(BumpArena&&) = default;

  void* allocate(size_t bytes, size_t align) {
    size_t offset = (cursor_ + align - 1) / align * align;
    if (blocks_.empty() || offset + bytes > capacity_) {
      // operator new aligns to the largest fundamental type; larger alignments pay in padding.
      next_block_ = std::min(next_block_ * 2, block_bytes_);
      capacity_ = std::max(bytes + align, next_block_);
      blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(capacity_));
      const auto base = reinterpret_cast<uintptr_t>(blocks_.back().get());
      offset = (base + align - 1) / align * align - base;
    }
    cursor_ = offset + bytes;
    used_ += bytes;
    return blocks_.back().get() + offset;
  }

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
  }

  template <typename T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (items.empty()) return {};
    T* data = static_cast<T*>(allocate(items.size_bytes(), alignof(T)));
    std::memcpy(data, items.data(), items.size_bytes());
    return {data, items.size()};
  }

  std::string_view copy(std::string_view text) {
    const std::span<char> chars = copy(std::span<const char>(text.data(), text.size()));
    return {chars.data(), chars.size()};
  }

  /// Bytes handed out.
  size_t used() const { return used_; }

 private:
  size_t block_bytes_;
  size_t next_block_ = 480;  // half of the first, which malloc still counts as small
  size_t capacity_ = 0;
  size_t cursor_ = 0;
  size_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace tatara
