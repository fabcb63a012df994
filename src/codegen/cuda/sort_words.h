// What is compared when rows are sorted on a GPU. An element is a word: bits that are ordered as unsigned numbers, followed by
// its place in the row, which makes the order stable and all words different. Keys of 64 bits have their place in a word of its
// own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// An element in the registers of a thread.
struct SortItem {
  std::string word;
  std::string place;  // where keys have 64 bits
};
using SortItems = std::vector<SortItem>;

class SortWords {
 public:
  SortWords(IrWriter& ir, const loops::Sort& sort, DType dtype);

  /// "i16", "i32" or "i64": of an element's bits, and of a word.
  const std::string& element_type() const { return element_; }
  const std::string& word_type() const { return word_; }
  bool has_places_apart() const { return apart_; }
  /// Words of 64 bits that so many items take in memory.
  int64_t memory_words(int64_t items) const;

  /// The item of an element (its bits) at `place` (i32). It comes last where it is not `inside` (i1; "" for always).
  SortItem item_of(const std::string& bits, const std::string& place, const std::string& inside);
  std::string place_of(const SortItem& item);
  /// The bits of the element, and whether it is one of several with the same key (zero, NaN); "" for never.
  std::pair<std::string, std::string> element_of(const SortItem& item);

  std::string less(const SortItem& a, const SortItem& b);
  SortItem pick(const std::string& condition, const SortItem& a, const SortItem& b);
  SortItem lower(const SortItem& a, const SortItem& b);
  /// Afterwards `a` is the lower one.
  void exchange(SortItem& a, SortItem& b);
  /// "umin" or "umax" of two i32.
  std::string extreme(const char* which, const std::string& a, const std::string& b);
  std::string choose(const std::string& condition, const std::string& type, const std::string& a,
                     const std::string& b) {
    return ir_.select(condition, type, a, b, false);
  }

 private:
  std::string number(uint64_t value) const;
  std::string sign() const { return number(uint64_t{1} << (bits_ - 1)); }
  uint64_t infinity() const;
  bool has_sign() const { return !is_floating(dtype_) && dtype_ != DType::kBool && dtype_ != DType::kUInt8; }
  std::string key_of(const std::string& bits);
  std::string key_in(const SortItem& item);

  IrWriter& ir_;
  DType dtype_;
  bool descending_;
  int bits_;
  std::string element_;
  std::string word_;
  bool short_;    // key and place in 32 bits
  bool apart_;    // the place in a word of its own
  int key_bits_;  // by which the key stands above the place
};

}  // namespace tatara::codegen
