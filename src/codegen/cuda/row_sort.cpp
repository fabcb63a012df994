#include "codegen/cuda/row_sort.h"

#include <algorithm>
#include <bit>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kWrittenOutPasses = 4;  // over a row, so that all of its loads are in flight at once

}  // namespace

RowSorter::RowSorter(GpuContext& gpu, KernelEmitter& emitter, const Sort& sort)
    : gpu_(gpu),
      ir_(gpu.context.ir),
      scope_(gpu.context.scope),
      emitter_(emitter),
      sort_(sort),
      dtype_(scope_.buffer(sort.from.buffer).dtype),
      words_(ir_, sort, dtype_),
      row_(gpu.context.kernel.gpu.row) {}

void RowSorter::run() {
  TATARA_CHECK(row_ > 0, "a sort without rows of threads in ", gpu_.context.kernel.name);
  gpu_.threads.compute_row_mask();
  thread_ = ir_.assign("trunc i64 " + gpu_.threads.lane() + " to i32");
  lane_ = ir_.binary("and", "i32", thread_, "31");
  from_ = scope_.index(sort_.from.index);
  from_stride_ = scope_.index(sort_.from.stride);
  if (sort_.selects()) {
    select();
  } else {
    sort();
  }
}

// ---- The two ways ------------------------------------------------------------------------------------------------------

/// All of a row, in the registers of its threads: each ends with consecutive ranks.
void RowSorter::sort() {
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sort_.extent)));
  const auto held = static_cast<size_t>(std::max<int64_t>(padded / row_, 1));
  Items items = load(held, "0", static_cast<int64_t>(held) * row_);
  sort_thread(items);
  const int64_t in_warp = std::min<int64_t>(row_, kWarp);
  const auto mirror = [&](const std::string& threads) { return ir_.binary("sub", "i32", threads, "1"); };
  const auto below = [&](const std::string& threads, const char* by) { return ir_.binary("lshr", "i32", threads, by); };
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
  const std::string first = ir_.binary("mul nuw nsw", "i32", thread_, std::to_string(held));
  store(items, first, static_cast<int64_t>(held) * row_ == sort_.count);
}

/// The lowest of two ordered lists of one length, in order; `others` come last first.
void RowSorter::merge(Items& items, const Items& others) {
  for (size_t i = 0; i < items.size(); ++i) items[i] = words_.lower(items[i], others[i]);
  halve(items, items.size() / 2);
}

/// The first elements of each thread's share, then those of all of them.
void RowSorter::select() {
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
        [&](const std::string& n) { return ir_.assign("icmp ult i32 " + n + ", " + std::to_string(sort_.extent)); },
        [&](const std::string& n) { return ir_.binary("add nuw", "i32", n, std::to_string(step)); }, pass);
  }
  const auto join = [&](const std::string& distance, Items& now) {
    Items others;
    for (size_t i = now.size(); i-- > 0;) others.push_back(of_lane(now[i], distance));
    merge(now, others);
  };
  doubling(1, std::min<int64_t>(row_, kWarp) / 2, best, join);
  if (row_ > kWarp) share_warps(best, join);
  ir_.when(ir_.assign("icmp eq i32 " + thread_ + ", 0"), [&] {
    best.resize(static_cast<size_t>(sort_.count));
    store(best, "0", true);
  });
}

/// Every warp combines the lists of all of them.
void RowSorter::share_warps(Items& best, const Pass& join) {
  const int64_t warps = row_ / kWarp;
  const auto slots = static_cast<int64_t>(best.size()) * warps;
  ir_.when(ir_.assign("icmp eq i32 " + lane_ + ", 0"), [&] {
    const std::string warp = ir_.binary("lshr", "i32", thread_, "5");
    for (size_t i = 0; i < best.size(); ++i) put(best[i], slots, static_cast<int64_t>(i) * warps, warp);
  });
  gpu_.threads.barrier();
  const std::string from = ir_.binary("and", "i32", lane_, std::to_string(warps - 1));
  for (size_t i = 0; i < best.size(); ++i) best[i] = get(slots, static_cast<int64_t>(i) * warps, from);
  doubling(1, warps / 2, best, join);
}

// ---- Networks within a thread ------------------------------------------------------------------------------------------

/// From two halves, the lower of which has the lower elements, each a bitonic sequence, to an ordered whole.
void RowSorter::halve(Items& items, size_t from) {
  for (size_t distance = from; distance >= 1; distance /= 2) {
    for (size_t i = 0; i < items.size(); ++i) {
      if ((i & distance) == 0) words_.exchange(items[i], items[i + distance]);
    }
  }
}

void RowSorter::sort_thread(Items& items) {
  for (size_t size = 2; size <= items.size(); size *= 2) {
    for (size_t i = 0; i < items.size(); ++i) {
      if ((i ^ (size - 1)) > i) words_.exchange(items[i], items[i ^ (size - 1)]);
    }
    halve(items, size / 4);
  }
}

// ---- Other threads -----------------------------------------------------------------------------------------------------

/// A value of the thread whose number differs by `mask` (i32).
std::string RowSorter::butterfly(const std::string& type, const std::string& value, const std::string& mask) {
  ir_.declare("declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)");
  const auto fetch = [&](const std::string& part) {
    return ir_.call("@llvm.nvvm.shfl.sync.bfly.i32", "i32",
                    "i32 " + gpu_.threads.row_mask() + ", i32 " + part + ", i32 " + mask + ", i32 31");
  };
  if (type == "i32") return fetch(value);
  const std::string low = fetch(ir_.assign("trunc i64 " + value + " to i32"));
  const std::string high = fetch(ir_.assign("trunc i64 " + ir_.binary("lshr", "i64", value, "32") + " to i32"));
  const std::string upper = ir_.binary("shl", "i64", ir_.assign("zext i32 " + high + " to i64"), "32");
  return ir_.binary("or", "i64", upper, ir_.assign("zext i32 " + low + " to i64"));
}

RowSorter::Item RowSorter::of_lane(const Item& item, const std::string& mask) {
  Item other{butterfly(words_.word_type(), item.word, mask), ""};
  if (words_.has_places_apart()) other.place = butterfly("i32", item.place, mask);
  return other;
}

/// Keeps the greater elements where `upper`, else the lower ones.
void RowSorter::keep(Items& items, const Items& others, const std::string& upper) {
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string take = ir_.binary("xor", "i1", words_.less(others[i], items[i]), upper);
    items[i] = words_.pick(take, others[i], items[i]);
  }
}

/// Compares with the thread whose number differs by `mask`; `bit` of the own number says which half this one is.
void RowSorter::exchange_lanes(Items& items, const std::string& mask, const std::string& bit, bool mirrored) {
  Items others;
  for (size_t i = 0; i < items.size(); ++i) {
    others.push_back(of_lane(items[mirrored ? items.size() - 1 - i : i], mask));
  }
  keep(items, others, is_upper(bit));
}

std::string RowSorter::is_upper(const std::string& bit) {
  return ir_.assign("icmp ne i32 " + ir_.binary("and", "i32", thread_, bit) + ", 0");
}

/// The same beyond a warp, through shared memory.
void RowSorter::exchange_warps(Items& items, const std::string& mask, const std::string& bit, bool mirrored) {
  const std::string other = ir_.binary("xor", "i32", thread_, mask);
  const auto slots = static_cast<int64_t>(items.size()) * row_;
  for (size_t i = 0; i < items.size(); ++i) put(items[i], slots, static_cast<int64_t>(i) * row_, thread_);
  gpu_.threads.barrier();
  Items others;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t from = mirrored ? items.size() - 1 - i : i;
    others.push_back(get(slots, static_cast<int64_t>(from) * row_, other));
  }
  gpu_.threads.barrier();
  keep(items, others, is_upper(bit));
}

/// Slot `first + at` of the block's shared memory, behind `bytes_before`.
std::string RowSorter::slot(const std::string& type, int64_t bytes_before, int64_t first, const std::string& at) {
  const int64_t size = type == "i32" ? 4 : 8;
  const std::string wide = ir_.assign("zext i32 " + at + " to i64");
  const std::string place = ir_.binary("add nuw nsw", "i64", wide, std::to_string(first + bytes_before / size));
  return ir_.assign("getelementptr " + type + ", ptr addrspace(3) @tatara_shared, i64 " + place);
}

void RowSorter::put(const Item& item, int64_t slots, int64_t first, const std::string& at) {
  gpu_.threads.reserve_shared(words_.memory_words(slots));
  const std::string& word = words_.word_type();
  ir_.line("store " + word + " " + item.word + ", ptr addrspace(3) " + slot(word, 0, first, at));
  if (words_.has_places_apart())
    ir_.line("store i32 " + item.place + ", ptr addrspace(3) " + slot("i32", 8 * slots, first, at));
}

RowSorter::Item RowSorter::get(int64_t slots, int64_t first, const std::string& at) {
  const std::string& word = words_.word_type();
  Item item{ir_.assign("load " + word + ", ptr addrspace(3) " + slot(word, 0, first, at)), ""};
  if (words_.has_places_apart())
    item.place = ir_.assign("load i32, ptr addrspace(3) " + slot("i32", 8 * slots, first, at));
  return item;
}

// ---- Loops -------------------------------------------------------------------------------------------------------------

/// A loop that stays one: `again` is an i1 of the counter (i32), `next` its next value.
void RowSorter::loop(const std::string& first, Items& items, const Number& again, const Number& next,
                     const Pass& body) {
  has_loops_ = true;
  const std::string head = ir_.label(), inside = ir_.label(), done = ir_.label();
  const std::string before = ir_.block();
  ir_.jump(head);
  const std::string counter = ir_.fresh();
  Items phis;
  const bool apart = words_.has_places_apart();
  for (size_t i = 0; i < items.size(); ++i) phis.push_back({ir_.fresh(), apart ? ir_.fresh() : std::string()});
  Items last = phis;
  std::string advanced, end;
  const std::string text = ir_.apart([&] {
    ir_.start_block(inside);
    body(counter, last);
    advanced = next(counter);
    ir_.line("br label %" + head + ", !llvm.loop !2");
    end = ir_.block();
  });
  ir_.start_block(head);
  const auto phi = [&](const std::string& name, const std::string& type, const std::string& a, const std::string& b) {
    ir_.line(name + " = phi " + type + " [ " + a + ", %" + before + " ], [ " + b + ", %" + end + " ]");
  };
  phi(counter, "i32", first, advanced);
  for (size_t i = 0; i < items.size(); ++i) {
    phi(phis[i].word, words_.word_type(), items[i].word, last[i].word);
    if (apart) phi(phis[i].place, "i32", items[i].place, last[i].place);
  }
  ir_.branch(again(counter), inside, done);
  ir_.append(text);
  ir_.start_block(done);
  items = std::move(phis);
}

/// Counters 2^k from `first` to `last`.
void RowSorter::doubling(int64_t first, int64_t last, Items& items, const Pass& body) {
  if (first > last) return;
  loop(
      std::to_string(first), items,
      [&](const std::string& n) { return ir_.assign("icmp ule i32 " + n + ", " + std::to_string(last)); },
      [&](const std::string& n) { return ir_.binary("shl", "i32", n, "1"); }, body);
}

/// Counters `first`, half of it, ... down to `last`.
void RowSorter::halving(const std::string& first, int64_t last, Items& items, const Pass& body) {
  loop(
      first, items, [&](const std::string& n) { return ir_.assign("icmp uge i32 " + n + ", " + std::to_string(last)); },
      [&](const std::string& n) { return ir_.binary("lshr", "i32", n, "1"); }, body);
}

}  // namespace tatara::codegen
