// Elements of rows that are sorted, and their results, in memory.
#include <algorithm>
#include <bit>

#include "codegen/cuda/row_sort.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kAccessBytes = 16;  // of the widest access

}  // namespace

/// Elements in one access of a row whose accesses begin at multiples of it.
int64_t RowSorter::access_width(const Sort::Row& row, int64_t size, int64_t most, int64_t length) const {
  int64_t width = std::min(most, kAccessBytes / size);
  if (!row.stride.is_const(1)) return 1;
  while (width > 1 && (length % width != 0 || !multiple_of(row.index, width))) width /= 2;
  return std::max<int64_t>(width, 1);
}

std::string RowSorter::address(const Sort::Row& row, const std::string& base, const std::string& stride,
                               const std::string& place) {
  std::string offset = ir_.assign("zext i32 " + place + " to i64");
  if (!row.stride.is_const(1)) offset = ir_.binary("mul nsw", "i64", offset, stride);
  return gpu_.memory.address(row.buffer, ir_.binary("add nsw", "i64", base, offset));
}

/// This thread's elements of those from `first` on (i32; `bound` is the end of them all): neighbouring threads read
/// neighbours.
RowSorter::Items RowSorter::load(size_t count, const std::string& first, int64_t bound) {
  const std::string& element = words_.element_type();
  Items items;
  const int64_t width = access_width(sort_.from, dtype_size(dtype_), static_cast<int64_t>(count), sort_.extent);
  const std::string own = ir_.binary("mul nuw nsw", "i32", thread_, std::to_string(width));
  const std::string start = first == "0" ? own : ir_.binary("add nuw", "i32", own, first);
  const std::string flags = gpu_.memory.load_flags(sort_.from.buffer);
  for (size_t i = 0; i < count; i += static_cast<size_t>(width)) {
    const std::string place =
        i == 0 ? start : ir_.binary("add nuw", "i32", start, std::to_string(static_cast<int64_t>(i) * row_));
    std::string inside, safe = place;
    if (bound > sort_.extent) {
      inside = ir_.assign("icmp ult i32 " + place + ", " + std::to_string(sort_.extent));
      safe = words_.choose(inside, "i32", place, "0");
    }
    const std::string at = address(sort_.from, from_, from_stride_, safe);
    const std::string type = width > 1 ? vector_of(static_cast<int>(width), element) : element;
    const std::string vector =
        ir_.assign("load " + type + ", ptr " + at + ", align " + std::to_string(width * dtype_size(dtype_)) + flags);
    for (int64_t k = 0; k < width; ++k) {
      std::string bits = vector;
      if (width > 1) bits = ir_.assign("extractelement " + type + " " + vector + ", i32 " + std::to_string(k));
      const std::string here = k == 0 ? place : ir_.binary("add nuw", "i32", place, std::to_string(k));
      items.push_back(words_.item_of(bits, here, inside));
    }
  }
  return items;
}

/// Elements as they were: where one key stands for several, from their places.
std::vector<std::string> RowSorter::elements(const Items& items) {
  const std::string& element = words_.element_type();
  std::vector<std::string> result;
  std::string any;
  for (const Item& item : items) {
    const auto [bits, special] = words_.element_of(item);
    result.push_back(bits);
    if (!special.empty()) any = any.empty() ? special : ir_.binary("or", "i1", any, special);
  }
  if (any.empty()) return result;
  const std::string again = ir_.label(), done = ir_.label();
  const std::string before = ir_.block();
  ir_.branch(any, again, done);
  ir_.start_block(again);
  std::vector<std::string> read;
  for (const Item& item : items) {
    const std::string place = words_.extreme("umin", words_.place_of(item), std::to_string(sort_.extent - 1));
    const std::string at = address(sort_.from, from_, from_stride_, place);
    read.push_back(ir_.assign("load " + element + ", ptr " + at + ", align " + std::to_string(dtype_size(dtype_)) +
                              gpu_.memory.load_flags(sort_.from.buffer)));
  }
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < items.size(); ++i) {
    result[i] =
        ir_.assign("phi " + element + " [ " + read[i] + ", %" + again + " ], [ " + result[i] + ", %" + before + " ]");
  }
  return result;
}

/// Consecutive ranks from `first` (i32) on, as far as they count.
void RowSorter::store_row(const Sort::Row& row, const std::string& type, int64_t size,
                          const std::vector<std::string>& values, const std::string& first, bool all_count) {
  const auto have = static_cast<int64_t>(values.size());
  const int64_t width = access_width(row, size, static_cast<int64_t>(std::bit_floor(values.size())), sort_.count);
  const std::string base = scope_.index(row.index);
  const std::string stride = scope_.index(row.stride);
  for (int64_t i = 0; i < have; i += width) {
    const std::string rank = i == 0 ? first : ir_.binary("add nuw", "i32", first, std::to_string(i));
    const auto write = [&] {
      std::string value = values[static_cast<size_t>(i)];
      std::string whole = type;
      if (width > 1) {
        whole = vector_of(static_cast<int>(width), type);
        value = "poison";
        for (int64_t k = 0; k < width; ++k) {
          value = ir_.assign("insertelement " + whole + " " + value + ", " + type + " " +
                             values[static_cast<size_t>(i + k)] + ", i32 " + std::to_string(k));
        }
      }
      ir_.line("store " + whole + " " + value + ", ptr " + address(row, base, stride, rank) + ", align " +
               std::to_string(width * size));
    };
    const std::string counts =
        all_count ? std::string() : ir_.assign("icmp ult i32 " + rank + ", " + std::to_string(sort_.count));
    emitter_.run_if(counts, write);
  }
}

void RowSorter::store(const Items& items, const std::string& first, bool all_count) {
  if (sort_.values.buffer >= 0) {
    store_row(sort_.values, words_.element_type(), dtype_size(dtype_), elements(items), first, all_count);
  }
  if (sort_.places.buffer < 0) return;
  std::vector<std::string> places;
  for (const Item& item : items) places.push_back(ir_.assign("zext i32 " + words_.place_of(item) + " to i64"));
  store_row(sort_.places, "i64", 8, places, first, all_count);
}

}  // namespace tatara::codegen
