#include "codegen/cuda/sort_words.h"

namespace tatara::codegen {

namespace {

constexpr int64_t kShortRow = 1 << 15;  // whose places fit in half a word of 32 bits, with those of what pads it

/// Of a floating type with so many bits.
int mantissa_bits(DType dtype, int bits) {
  if (bits == 16) return dtype == DType::kFloat16 ? 10 : 7;
  return bits == 32 ? 23 : 52;
}

}  // namespace

SortWords::SortWords(IrWriter& ir, const loops::Sort& sort, DType dtype)
    : ir_(ir),
      dtype_(dtype),
      descending_(sort.descending),
      bits_(8 * dtype_size(dtype)),
      element_("i" + std::to_string(bits_)),
      short_(bits_ <= 16 && sort.extent <= kShortRow),
      apart_(bits_ == 64) {
  word_ = short_ ? "i32" : "i64";
  key_bits_ = short_ ? 16 : apart_ ? 64 : 32;
}

int64_t SortWords::memory_words(int64_t items) const {
  const int64_t halves = (items + 1) / 2;
  if (short_) return halves;
  return apart_ ? items + halves : items;
}

/// A constant of the element's width.
std::string SortWords::number(uint64_t value) const {
  const auto whole = static_cast<int64_t>(value << (64 - bits_)) >> (64 - bits_);
  return std::to_string(whole);
}

uint64_t SortWords::infinity() const {
  const uint64_t sign_bit = uint64_t{1} << (bits_ - 1);
  return sign_bit - (uint64_t{1} << mantissa_bits(dtype_, bits_));
}

/// The bits of an element as a number without sign. Both zeros get one key, and so do all NaN.
std::string SortWords::key_of(const std::string& bits) {
  std::string key = bits;
  if (has_sign()) key = ir_.binary("xor", element_, bits, sign());
  if (is_floating(dtype_)) {
    const std::string all = ir_.binary("ashr", element_, bits, std::to_string(bits_ - 1));
    key = ir_.binary("xor", element_, bits, ir_.binary("or", element_, all, sign()));
    const std::string size = ir_.binary("and", element_, bits, number((uint64_t{1} << (bits_ - 1)) - 1));
    key = choose(ir_.assign("icmp eq " + element_ + " " + size + ", 0"), element_, sign(), key);
    key = choose(ir_.assign("icmp ugt " + element_ + " " + size + ", " + number(infinity())), element_, "-1", key);
  }
  return descending_ ? ir_.binary("xor", element_, key, "-1") : key;
}

std::pair<std::string, std::string> SortWords::element_of(const SortItem& item) {
  std::string key = key_in(item);
  if (descending_) key = ir_.binary("xor", element_, key, "-1");
  if (has_sign()) return {ir_.binary("xor", element_, key, sign()), ""};
  if (!is_floating(dtype_)) return {key, ""};
  const std::string negative = ir_.assign("icmp sge " + element_ + " " + key + ", 0");
  const std::string flip = choose(negative, element_, "-1", sign());
  const std::string zero = ir_.assign("icmp eq " + element_ + " " + key + ", " + sign());
  const std::string nan = ir_.assign("icmp eq " + element_ + " " + key + ", -1");
  return {ir_.binary("xor", element_, key, flip), ir_.binary("or", "i1", zero, nan)};
}

SortItem SortWords::item_of(const std::string& bits, const std::string& place, const std::string& inside) {
  std::string key = key_of(bits);
  if (!inside.empty()) key = choose(inside, element_, key, "-1");
  if (apart_) return {key, place};
  if (word_ != element_) key = ir_.assign("zext " + element_ + " " + key + " to " + word_);
  std::string low = place;
  if (!short_) low = ir_.assign("zext i32 " + place + " to i64");
  return {ir_.binary("or", word_, ir_.binary("shl", word_, key, std::to_string(key_bits_)), low), ""};
}

std::string SortWords::place_of(const SortItem& item) {
  if (apart_) return item.place;
  if (short_) return ir_.binary("and", "i32", item.word, "65535");
  return ir_.assign("trunc i64 " + item.word + " to i32");
}

std::string SortWords::key_in(const SortItem& item) {
  if (apart_) return item.word;
  const std::string key = ir_.binary("lshr", word_, item.word, std::to_string(key_bits_));
  return word_ == element_ ? key : ir_.assign("trunc " + word_ + " " + key + " to " + element_);
}

std::string SortWords::less(const SortItem& a, const SortItem& b) {
  const std::string below = ir_.assign("icmp ult " + word_ + " " + a.word + ", " + b.word);
  if (!apart_) return below;
  const std::string same = ir_.assign("icmp eq i64 " + a.word + ", " + b.word);
  const std::string before = ir_.assign("icmp ult i32 " + a.place + ", " + b.place);
  return ir_.binary("or", "i1", below, ir_.binary("and", "i1", same, before));
}

SortItem SortWords::pick(const std::string& condition, const SortItem& a, const SortItem& b) {
  SortItem item{choose(condition, word_, a.word, b.word), ""};
  if (apart_) item.place = choose(condition, "i32", a.place, b.place);
  return item;
}

std::string SortWords::extreme(const char* which, const std::string& a, const std::string& b) {
  const std::string name = std::string("@llvm.") + which + ".i32";
  ir_.declare("declare i32 " + name + "(i32, i32)");
  return ir_.call(name, "i32", "i32 " + a + ", i32 " + b);
}

void SortWords::exchange(SortItem& a, SortItem& b) {
  if (short_) {
    const std::string low = extreme("umin", a.word, b.word);
    b.word = extreme("umax", a.word, b.word);
    a.word = low;
    return;
  }
  const std::string swap = less(b, a);
  const SortItem low = pick(swap, b, a);
  b = pick(swap, a, b);
  a = low;
}

SortItem SortWords::lower(const SortItem& a, const SortItem& b) {
  if (short_) return {extreme("umin", a.word, b.word), ""};
  return pick(less(b, a), b, a);
}

}  // namespace tatara::codegen
