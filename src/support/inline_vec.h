// A short vector that needs no allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

namespace tatara {

/// A vector of trivial items with room for N in place, for fewer than 2^32.
template <typename T, size_t N>
class InlineVec {
 public:
  InlineVec() = default;
  InlineVec(const InlineVec& other) { *this = other; }
  InlineVec(InlineVec&& other) noexcept { *this = std::move(other); }
  ~InlineVec() = default;
  InlineVec(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  InlineVec& operator=(const InlineVec& other) {
    if (this == &other) return *this;
    size_ = 0;
    for (const T& item : other) push_back(item);
    return *this;
  }
  InlineVec& operator=(InlineVec&& other) noexcept {
    if (this == &other) return *this;
    if (other.heap_ == nullptr) std::copy(other.inline_, other.inline_ + other.size_, inline_);
    heap_ = std::move(other.heap_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
    return *this;
  }
  void push_back(const T& item) {
    if (size_ == capacity_) grow();
    data()[size_++] = item;
  }
  /// Items from number i on, as many as `count`.
  void erase(size_t i, size_t count = 1) {
    std::move(begin() + i + count, end(), begin() + i);
    size_ -= static_cast<uint32_t>(count);
  }
  /// Becomes number i.
  void insert(size_t i, const T& item) {
    push_back(item);
    std::rotate(begin() + i, end() - 1, end());
  }
  void clear() { size_ = 0; }
  void resize_down(size_t size) { size_ = static_cast<uint32_t>(size); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  friend bool operator<(const InlineVec& a, const InlineVec& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void grow() {
    auto bigger = std::make_unique_for_overwrite<T[]>(size_t{capacity_} * 2);
    std::copy(begin(), end(), bigger.get());
    heap_ = std::move(bigger);
    capacity_ *= 2;
  }
  T inline_[N];
  std::unique_ptr<T[]> heap_;
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
};

}  // namespace tatara
