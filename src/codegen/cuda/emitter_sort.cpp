// Rows sorted by the threads of a GPU that share them: bitonic networks (Batcher 1968), in registers within a thread, by shuffles
// within a warp, through shared memory beyond. Merges begin by comparing an element with its mirror image, so that all comparators
// point upwards.
//
// An element is a word: bits that are ordered as unsigned numbers, followed by its place, which makes the order stable and all words
// different. Keys of 64 bits have their place in a word of its own.
#include <algorithm>
#include <bit>

#include "codegen/core/emitter.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kShortRow = 1 << 15;    // whose places fit in half a word of 32 bits, with those of what pads it
constexpr int64_t kWrittenOutPasses = 4;  // over a row, so that all of its loads are in flight at once
constexpr int64_t kAccessBytes = 16;      // of the widest access

}  // namespace

class GpuSorter {
 public:
  GpuSorter(Emitter& emitter, const Sort& sort)
      : e_(emitter),
        sort_(sort),
        dtype_(e_.kernel_.buffers[static_cast<size_t>(sort.from.buffer)].dtype),
        bits_(8 * dtype_size(dtype_)),
        element_("i" + std::to_string(bits_)),
        row_(e_.kernel_.gpu.row) {
    short_ = bits_ <= 16 && sort.extent <= kShortRow;
    apart_ = bits_ == 64;
    word_ = short_ ? "i32" : "i64";
    key_bits_ = short_ ? 16 : apart_ ? 64 : 32;
  }

  void run() {
    TATARA_CHECK(row_ > 0, "a sort without rows of threads in ", e_.kernel_.name);
    e_.find_members();
    thread_ = e_.ir_.assign("trunc i64 " + e_.gpu_lane_ + " to i32");
    lane_ = e_.ir_.binary("and", "i32", thread_, "31");
    from_ = e_.index(sort_.from.index);
    from_stride_ = e_.index(sort_.from.stride);
    if (sort_.selects()) {
      select();
    } else {
      sort();
    }
  }

 private:
  struct Item {
    std::string word;
    std::string place;  // where keys have 64 bits
  };
  using Items = std::vector<Item>;

  // ---- Words ----

  std::string sign() const { return number(uint64_t{1} << (bits_ - 1)); }
  /// A constant of the element's width.
  std::string number(uint64_t value) const {
    const auto whole = static_cast<int64_t>(value << (64 - bits_)) >> (64 - bits_);
    return std::to_string(whole);
  }
  int mantissa_bits() const {
    switch (bits_) {
      case 16: return dtype_ == DType::kFloat16 ? 10 : 7;
      case 32: return 23;
      default: return 52;
    }
  }
  uint64_t infinity() const {
    const uint64_t sign_bit = uint64_t{1} << (bits_ - 1);
    return sign_bit - (uint64_t{1} << mantissa_bits());
  }
  bool is_signed() const { return !is_floating(dtype_) && dtype_ != DType::kBool && dtype_ != DType::kUInt8; }

  /// The bits of an element as a number without sign. Both zeros get one key, and so do all NaN.
  std::string key_of(const std::string& bits) {
    std::string key = bits;
    if (is_signed()) key = e_.ir_.binary("xor", element_, bits, sign());
    if (is_floating(dtype_)) {
      const std::string all = e_.ir_.binary("ashr", element_, bits, std::to_string(bits_ - 1));
      key = e_.ir_.binary("xor", element_, bits, e_.ir_.binary("or", element_, all, sign()));
      const std::string size = e_.ir_.binary("and", element_, bits, number((uint64_t{1} << (bits_ - 1)) - 1));
      key = choose(e_.ir_.assign("icmp eq " + element_ + " " + size + ", 0"), element_, sign(), key);
      key = choose(e_.ir_.assign("icmp ugt " + element_ + " " + size + ", " + number(infinity())), element_, "-1", key);
    }
    return sort_.descending ? e_.ir_.binary("xor", element_, key, "-1") : key;
  }

  /// The element of a key, and whether it is one of several with that key (zero, NaN); "" for never.
  std::pair<std::string, std::string> element_of(std::string key) {
    if (sort_.descending) key = e_.ir_.binary("xor", element_, key, "-1");
    if (is_signed()) return {e_.ir_.binary("xor", element_, key, sign()), ""};
    if (!is_floating(dtype_)) return {key, ""};
    const std::string negative = e_.ir_.assign("icmp sge " + element_ + " " + key + ", 0");
    const std::string flip = choose(negative, element_, "-1", sign());
    const std::string zero = e_.ir_.assign("icmp eq " + element_ + " " + key + ", " + sign());
    const std::string nan = e_.ir_.assign("icmp eq " + element_ + " " + key + ", -1");
    return {e_.ir_.binary("xor", element_, key, flip), e_.ir_.binary("or", "i1", zero, nan)};
  }

  Item item_of(const std::string& bits, const std::string& place, const std::string& inside) {
    std::string key = key_of(bits);
    if (!inside.empty()) key = choose(inside, element_, key, "-1");
    if (apart_) return {key, place};
    if (word_ != element_) key = e_.ir_.assign("zext " + element_ + " " + key + " to " + word_);
    std::string low = place;
    if (!short_) low = e_.ir_.assign("zext i32 " + place + " to i64");
    return {e_.ir_.binary("or", word_, e_.ir_.binary("shl", word_, key, std::to_string(key_bits_)), low), ""};
  }

  std::string place_of(const Item& item) {
    if (apart_) return item.place;
    if (short_) return e_.ir_.binary("and", "i32", item.word, "65535");
    return e_.ir_.assign("trunc i64 " + item.word + " to i32");
  }

  std::string key_in(const Item& item) {
    if (apart_) return item.word;
    const std::string key = e_.ir_.binary("lshr", word_, item.word, std::to_string(key_bits_));
    return word_ == element_ ? key : e_.ir_.assign("trunc " + word_ + " " + key + " to " + element_);
  }

  std::string choose(const std::string& condition, const std::string& type, const std::string& a,
                     const std::string& b) {
    return e_.ir_.assign("select i1 " + condition + ", " + type + " " + a + ", " + type + " " + b);
  }

  std::string less(const Item& a, const Item& b) {
    const std::string below = e_.ir_.assign("icmp ult " + word_ + " " + a.word + ", " + b.word);
    if (!apart_) return below;
    const std::string same = e_.ir_.assign("icmp eq i64 " + a.word + ", " + b.word);
    const std::string before = e_.ir_.assign("icmp ult i32 " + a.place + ", " + b.place);
    return e_.ir_.binary("or", "i1", below, e_.ir_.binary("and", "i1", same, before));
  }

  Item pick(const std::string& condition, const Item& a, const Item& b) {
    Item item{choose(condition, word_, a.word, b.word), ""};
    if (apart_) item.place = choose(condition, "i32", a.place, b.place);
    return item;
  }

  std::string extreme(const char* which, const std::string& a, const std::string& b) {
    const std::string name = std::string("@llvm.") + which + ".i32";
    e_.ir_.declare("declare i32 " + name + "(i32, i32)");
    return e_.ir_.call(name, "i32", "i32 " + a + ", i32 " + b);
  }

  void exchange(Item& a, Item& b) {
    if (short_) {
      const std::string low = extreme("umin", a.word, b.word);
      b.word = extreme("umax", a.word, b.word);
      a.word = low;
      return;
    }
    const std::string swap = less(b, a);
    const Item low = pick(swap, b, a);
    b = pick(swap, a, b);
    a = low;
  }

  Item lower(const Item& a, const Item& b) {
    if (short_) return {extreme("umin", a.word, b.word), ""};
    return pick(less(b, a), b, a);
  }

  // ---- Networks within a thread ----

  /// From two halves, the lower of which has the lower elements, each a bitonic sequence, to an ordered whole.
  void halve(Items& items, size_t from) {
    for (size_t distance = from; distance >= 1; distance /= 2) {
      for (size_t i = 0; i < items.size(); ++i) {
        if ((i & distance) == 0) exchange(items[i], items[i + distance]);
      }
    }
  }

  void sort_thread(Items& items) {
    for (size_t size = 2; size <= items.size(); size *= 2) {
      for (size_t i = 0; i < items.size(); ++i) {
        if ((i ^ (size - 1)) > i) exchange(items[i], items[i ^ (size - 1)]);
      }
      halve(items, size / 4);
    }
  }

  // ---- Other threads ----

  std::string shuffled(const std::string& type, const std::string& value, const std::string& mask) {
    e_.ir_.declare("declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)");
    const auto fetch = [&](const std::string& part) {
      return e_.ir_.call("@llvm.nvvm.shfl.sync.bfly.i32", "i32",
                         "i32 " + e_.gpu_members_ + ", i32 " + part + ", i32 " + mask + ", i32 31");
    };
    if (type == "i32") return fetch(value);
    const std::string low = fetch(e_.ir_.assign("trunc i64 " + value + " to i32"));
    const std::string high = fetch(e_.ir_.assign("trunc i64 " + e_.ir_.binary("lshr", "i64", value, "32") + " to i32"));
    const std::string upper = e_.ir_.binary("shl", "i64", e_.ir_.assign("zext i32 " + high + " to i64"), "32");
    return e_.ir_.binary("or", "i64", upper, e_.ir_.assign("zext i32 " + low + " to i64"));
  }

  Item of_lane(const Item& item, const std::string& mask) {
    Item other{shuffled(word_, item.word, mask), ""};
    if (apart_) other.place = shuffled("i32", item.place, mask);
    return other;
  }

  /// Keeps the greater elements where `upper`, else the lower ones.
  void keep(Items& items, const Items& others, const std::string& upper) {
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string take = e_.ir_.binary("xor", "i1", less(others[i], items[i]), upper);
      items[i] = pick(take, others[i], items[i]);
    }
  }

  /// Compares with the thread whose number differs by `mask`; `bit` of the own number says which half this one is.
  void exchange_lanes(Items& items, const std::string& mask, const std::string& bit, bool mirrored) {
    Items others;
    for (size_t i = 0; i < items.size(); ++i) {
      others.push_back(of_lane(items[mirrored ? items.size() - 1 - i : i], mask));
    }
    keep(items, others, is_upper(bit));
  }

  std::string is_upper(const std::string& bit) {
    return e_.ir_.assign("icmp ne i32 " + e_.ir_.binary("and", "i32", thread_, bit) + ", 0");
  }

  void exchange_warps(Items& items, const std::string& mask, const std::string& bit, bool mirrored) {
    const std::string other = e_.ir_.binary("xor", "i32", thread_, mask);
    const auto slots = static_cast<int64_t>(items.size()) * row_;
    for (size_t i = 0; i < items.size(); ++i) put(items[i], slots, static_cast<int64_t>(i) * row_, thread_);
    e_.barrier();
    Items others;
    for (size_t i = 0; i < items.size(); ++i) {
      const size_t from = mirrored ? items.size() - 1 - i : i;
      others.push_back(get(slots, static_cast<int64_t>(from) * row_, other));
    }
    e_.barrier();
    keep(items, others, is_upper(bit));
  }

  /// Slot `first + at` of the block's shared memory, which has room for `slots` items.
  std::string slot(const std::string& type, int64_t bytes_before, int64_t first, const std::string& at) {
    const int64_t size = type == "i32" ? 4 : 8;
    const std::string wide = e_.ir_.assign("zext i32 " + at + " to i64");
    const std::string place = e_.ir_.binary("add nuw nsw", "i64", wide, std::to_string(first + bytes_before / size));
    return e_.ir_.assign("getelementptr " + type + ", ptr addrspace(3) @tatara_shared, i64 " + place);
  }
  void put(const Item& item, int64_t slots, int64_t first, const std::string& at) {
    const int64_t words = short_ ? (slots + 1) / 2 : apart_ ? slots + (slots + 1) / 2 : slots;
    e_.gpu_shared_ = std::max(e_.gpu_shared_, static_cast<int>(words));
    e_.ir_.line("store " + word_ + " " + item.word + ", ptr addrspace(3) " + slot(word_, 0, first, at));
    if (apart_) e_.ir_.line("store i32 " + item.place + ", ptr addrspace(3) " + slot("i32", 8 * slots, first, at));
  }
  Item get(int64_t slots, int64_t first, const std::string& at) {
    Item item{e_.ir_.assign("load " + word_ + ", ptr addrspace(3) " + slot(word_, 0, first, at)), ""};
    if (apart_) item.place = e_.ir_.assign("load i32, ptr addrspace(3) " + slot("i32", 8 * slots, first, at));
    return item;
  }

  // ---- Loops ----

  using Number = std::function<std::string(const std::string& counter)>;
  using Pass = std::function<void(const std::string& counter, Items& items)>;

  /// A loop that stays one: `again` is an i1 of the counter (i32), `next` its next value.
  void loop(const std::string& first, Items& items, const Number& again, const Number& next, const Pass& body) {
    e_.gpu_rolled_ = true;
    const std::string head = e_.ir_.label(), inside = e_.ir_.label(), done = e_.ir_.label();
    const std::string before = e_.ir_.block();
    e_.ir_.line("br label %" + head);
    const std::string counter = e_.ir_.fresh();
    Items phis;
    for (size_t i = 0; i < items.size(); ++i) phis.push_back({e_.ir_.fresh(), apart_ ? e_.ir_.fresh() : std::string()});
    Items last = phis;
    std::string advanced, end;
    const std::string text = e_.ir_.apart([&] {
      e_.ir_.start_block(inside);
      body(counter, last);
      advanced = next(counter);
      e_.ir_.line("br label %" + head + ", !llvm.loop !2");
      end = e_.ir_.block();
    });
    e_.ir_.start_block(head);
    const auto phi = [&](const std::string& name, const std::string& type, const std::string& a, const std::string& b) {
      e_.ir_.line(name + " = phi " + type + " [ " + a + ", %" + before + " ], [ " + b + ", %" + end + " ]");
    };
    phi(counter, "i32", first, advanced);
    for (size_t i = 0; i < items.size(); ++i) {
      phi(phis[i].word, word_, items[i].word, last[i].word);
      if (apart_) phi(phis[i].place, "i32", items[i].place, last[i].place);
    }
    e_.ir_.line("br i1 " + again(counter) + ", label %" + inside + ", label %" + done);
    e_.ir_.append(text);
    e_.ir_.start_block(done);
    items = std::move(phis);
  }

  /// Counters 2^k from `first` to `last`.
  void doubling(int64_t first, int64_t last, Items& items, const Pass& body) {
    if (first > last) return;
    loop(
        std::to_string(first), items,
        [&](const std::string& n) { return e_.ir_.assign("icmp ule i32 " + n + ", " + std::to_string(last)); },
        [&](const std::string& n) { return e_.ir_.binary("shl", "i32", n, "1"); }, body);
  }
  /// Counters `first`, half of it, ... down to `last`.
  void halving(const std::string& first, int64_t last, Items& items, const Pass& body) {
    loop(
        first, items,
        [&](const std::string& n) { return e_.ir_.assign("icmp uge i32 " + n + ", " + std::to_string(last)); },
        [&](const std::string& n) { return e_.ir_.binary("lshr", "i32", n, "1"); }, body);
  }

  // ---- Memory ----

  /// Elements in one access of a row whose accesses begin at multiples of it.
  int64_t access_width(const Sort::Row& row, int64_t size, int64_t most, int64_t length) const {
    int64_t width = std::min(most, kAccessBytes / size);
    if (!row.stride.is_const(1)) return 1;
    while (width > 1 && (length % width != 0 || !multiple_of(row.index, width))) width /= 2;
    return std::max<int64_t>(width, 1);
  }

  std::string address(const Sort::Row& row, const std::string& base, const std::string& stride,
                      const std::string& place) {
    std::string offset = e_.ir_.assign("zext i32 " + place + " to i64");
    if (!row.stride.is_const(1)) offset = e_.ir_.binary("mul nsw", "i64", offset, stride);
    return e_.address(row.buffer, e_.ir_.binary("add nsw", "i64", base, offset));
  }

  /// This thread's elements of those from `first` on (i32; `bound` is the end of them all): neighbouring threads read neighbours.
  Items load(size_t count, const std::string& first, int64_t bound) {
    Items items;
    const int64_t width = access_width(sort_.from, dtype_size(dtype_), static_cast<int64_t>(count), sort_.extent);
    const std::string own = e_.ir_.binary("mul nuw nsw", "i32", thread_, std::to_string(width));
    const std::string start = first == "0" ? own : e_.ir_.binary("add nuw", "i32", own, first);
    const std::string flags = e_.load_flags(sort_.from.buffer);
    for (size_t i = 0; i < count; i += static_cast<size_t>(width)) {
      const std::string place =
          i == 0 ? start : e_.ir_.binary("add nuw", "i32", start, std::to_string(static_cast<int64_t>(i) * row_));
      std::string inside, safe = place;
      if (bound > sort_.extent) {
        inside = e_.ir_.assign("icmp ult i32 " + place + ", " + std::to_string(sort_.extent));
        safe = choose(inside, "i32", place, "0");
      }
      const std::string at = address(sort_.from, from_, from_stride_, safe);
      const std::string type = width > 1 ? "<" + std::to_string(width) + " x " + element_ + ">" : element_;
      const std::string vector = e_.ir_.assign("load " + type + ", ptr " + at + ", align " +
                                               std::to_string(width * dtype_size(dtype_)) + flags);
      for (int64_t k = 0; k < width; ++k) {
        std::string bits = vector;
        if (width > 1) bits = e_.ir_.assign("extractelement " + type + " " + vector + ", i32 " + std::to_string(k));
        const std::string here = k == 0 ? place : e_.ir_.binary("add nuw", "i32", place, std::to_string(k));
        items.push_back(item_of(bits, here, inside));
      }
    }
    return items;
  }

  /// Elements as they were: where one key stands for several, from their places.
  std::vector<std::string> elements(const Items& items) {
    std::vector<std::string> result;
    std::string any;
    for (const Item& item : items) {
      const auto [element, special] = element_of(key_in(item));
      result.push_back(element);
      if (!special.empty()) any = any.empty() ? special : e_.ir_.binary("or", "i1", any, special);
    }
    if (any.empty()) return result;
    const std::string again = e_.ir_.label(), done = e_.ir_.label();
    const std::string before = e_.ir_.block();
    e_.ir_.line("br i1 " + any + ", label %" + again + ", label %" + done);
    e_.ir_.start_block(again);
    std::vector<std::string> read;
    for (const Item& item : items) {
      const std::string place = extreme("umin", place_of(item), std::to_string(sort_.extent - 1));
      const std::string at = address(sort_.from, from_, from_stride_, place);
      read.push_back(e_.ir_.assign("load " + element_ + ", ptr " + at + ", align " +
                                   std::to_string(dtype_size(dtype_)) + e_.load_flags(sort_.from.buffer)));
    }
    e_.ir_.line("br label %" + done);
    e_.ir_.start_block(done);
    for (size_t i = 0; i < items.size(); ++i) {
      result[i] = e_.ir_.assign("phi " + element_ + " [ " + read[i] + ", %" + again + " ], [ " + result[i] + ", %" +
                                before + " ]");
    }
    return result;
  }

  /// Consecutive ranks from `first` (i32) on, as far as they count.
  void store_row(const Sort::Row& row, const std::string& type, int64_t size, const std::vector<std::string>& values,
                 const std::string& first, bool all_count) {
    const auto have = static_cast<int64_t>(values.size());
    const int64_t width = access_width(row, size, static_cast<int64_t>(std::bit_floor(values.size())), sort_.count);
    const std::string base = e_.index(row.index);
    const std::string stride = e_.index(row.stride);
    for (int64_t i = 0; i < have; i += width) {
      const std::string rank = i == 0 ? first : e_.ir_.binary("add nuw", "i32", first, std::to_string(i));
      const auto write = [&] {
        std::string value = values[static_cast<size_t>(i)];
        std::string whole = type;
        if (width > 1) {
          whole = "<" + std::to_string(width) + " x " + type + ">";
          value = "poison";
          for (int64_t k = 0; k < width; ++k) {
            value = e_.ir_.assign("insertelement " + whole + " " + value + ", " + type + " " +
                                  values[static_cast<size_t>(i + k)] + ", i32 " + std::to_string(k));
          }
        }
        e_.ir_.line("store " + whole + " " + value + ", ptr " + address(row, base, stride, rank) + ", align " +
                    std::to_string(width * size));
      };
      if (all_count) {
        write();
      } else {
        e_.ir_.when(e_.ir_.assign("icmp ult i32 " + rank + ", " + std::to_string(sort_.count)), write);
      }
    }
  }

  void store(const Items& items, const std::string& first, bool all_count) {
    if (sort_.values.buffer >= 0) {
      store_row(sort_.values, element_, dtype_size(dtype_), elements(items), first, all_count);
    }
    if (sort_.places.buffer < 0) return;
    std::vector<std::string> places;
    for (const Item& item : items) places.push_back(e_.ir_.assign("zext i32 " + place_of(item) + " to i64"));
    store_row(sort_.places, "i64", 8, places, first, all_count);
  }

  // ---- The two ways ----

  /// All of a row, in the registers of its threads: each ends with consecutive ranks.
  void sort() {
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sort_.extent)));
    const auto held = static_cast<size_t>(std::max<int64_t>(padded / row_, 1));
    Items items = load(held, "0", static_cast<int64_t>(held) * row_);
    sort_thread(items);
    const int64_t in_warp = std::min<int64_t>(row_, kWarp);
    const auto mirror = [&](const std::string& threads) { return e_.ir_.binary("sub", "i32", threads, "1"); };
    const auto below = [&](const std::string& threads, const char* by) {
      return e_.ir_.binary("lshr", "i32", threads, by);
    };
    const auto lanes = [&](const std::string& distance, Items& now) { exchange_lanes(now, distance, distance, false); };
    doubling(2, in_warp, items, [&](const std::string& threads, Items& now) {
      exchange_lanes(now, mirror(threads), below(threads, "1"), true);
      halving(below(threads, "2"), 1, now, lanes);
      halve(now, held / 2);
    });
    doubling(2 * kWarp, row_, items, [&](const std::string& threads, Items& now) {
      exchange_warps(now, mirror(threads), below(threads, "1"), true);
      halving(below(threads, "2"), kWarp, now,
              [&](const std::string& distance, Items& far) { exchange_warps(far, distance, distance, false); });
      halving(std::to_string(kWarp / 2), 1, now, lanes);
      halve(now, held / 2);
    });
    const std::string first = e_.ir_.binary("mul nuw nsw", "i32", thread_, std::to_string(held));
    store(items, first, static_cast<int64_t>(held) * row_ == sort_.count);
  }

  /// The lowest of two ordered lists of one length, in order; `others` come last first.
  void merge(Items& items, const Items& others) {
    for (size_t i = 0; i < items.size(); ++i) items[i] = lower(items[i], others[i]);
    halve(items, items.size() / 2);
  }

  /// The first elements of each thread's share, then those of all of them.
  void select() {
    const auto kept = static_cast<size_t>(std::bit_ceil(static_cast<uint64_t>(sort_.count)));
    const int64_t step = static_cast<int64_t>(kept) * row_;
    const int64_t passes = (sort_.extent + step - 1) / step;
    const int64_t bound = passes * step;
    Items best = load(kept, "0", bound);
    sort_thread(best);
    const auto pass = [&](const std::string& first, Items& now) {
      Items more = load(kept, first, bound);
      sort_thread(more);
      std::reverse(more.begin(), more.end());
      merge(now, more);
    };
    if (passes <= kWrittenOutPasses) {
      for (int64_t i = 1; i < passes; ++i) pass(std::to_string(i * step), best);
    } else {
      loop(
          std::to_string(step), best,
          [&](const std::string& n) {
            return e_.ir_.assign("icmp ult i32 " + n + ", " + std::to_string(sort_.extent));
          },
          [&](const std::string& n) { return e_.ir_.binary("add nuw", "i32", n, std::to_string(step)); }, pass);
    }
    const auto join = [&](const std::string& distance, Items& now) {
      Items others;
      for (size_t i = now.size(); i-- > 0;) others.push_back(of_lane(now[i], distance));
      merge(now, others);
    };
    doubling(1, std::min<int64_t>(row_, kWarp) / 2, best, join);
    if (row_ > kWarp) share_warps(best, join);
    e_.ir_.when(e_.ir_.assign("icmp eq i32 " + thread_ + ", 0"), [&] {
      best.resize(static_cast<size_t>(sort_.count));
      store(best, "0", true);
    });
  }

  /// Every warp combines the lists of all of them.
  void share_warps(Items& best, const Pass& join) {
    const int64_t warps = row_ / kWarp;
    const auto slots = static_cast<int64_t>(best.size()) * warps;
    e_.ir_.when(e_.ir_.assign("icmp eq i32 " + lane_ + ", 0"), [&] {
      const std::string warp = e_.ir_.binary("lshr", "i32", thread_, "5");
      for (size_t i = 0; i < best.size(); ++i) put(best[i], slots, static_cast<int64_t>(i) * warps, warp);
    });
    e_.barrier();
    const std::string from = e_.ir_.binary("and", "i32", lane_, std::to_string(warps - 1));
    for (size_t i = 0; i < best.size(); ++i) best[i] = get(slots, static_cast<int64_t>(i) * warps, from);
    doubling(1, warps / 2, best, join);
  }

  Emitter& e_;
  const Sort& sort_;
  DType dtype_;
  int bits_;
  std::string element_;
  int64_t row_;
  bool short_ = false;  // key and place in 32 bits
  bool apart_ = false;  // the place in a word of its own
  std::string word_;
  int key_bits_ = 0;  // by which the key stands above the place
  std::string thread_, lane_;
  std::string from_, from_stride_;
};

void Emitter::statement(const Sort& sort) {
  if (!on_gpu()) throw InternalError("a sort in a kernel for CPUs: " + kernel_.name);
  GpuSorter(*this, sort).run();
}

}  // namespace tatara::codegen
