// A set of a few small values, in order, in one piece of memory; the first ones need none of their own.
#pragma once

#include <algorithm>
#include <cstddef>

#include "support/inline_vec.h"

namespace tatara {

template <typename T>
class FlatSet {
 public:
  bool contains(const T& value) const { return std::binary_search(values_.begin(), values_.end(), value); }

  void insert(const T& value) {
    const auto place = std::lower_bound(values_.begin(), values_.end(), value);
    if (place == values_.end() || value < *place) values_.insert(static_cast<size_t>(place - values_.begin()), value);
  }

  void insert_all(const FlatSet& other) {
    for (const T& value : other) insert(value);
  }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }

 private:
  InlineVec<T, 4> values_;
};

}  // namespace tatara
