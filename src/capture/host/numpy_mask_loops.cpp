// NumPy's loops by masks and places: what is picked, written, counted, or left once. Each stops the plan where a size is another one.
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_set>

#include "capture/host/numpy_loops_internal.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// Whether a mask lies as one row; its elements then.
std::optional<std::span<const uint8_t>> in_one_row_of(const TensorView& mask) {
  int64_t count = 1;
  for (size_t d = mask.sizes.size(); d-- > 0;) {
    if (mask.sizes[d] != 1 && mask.strides[d] != count) return std::nullopt;
    count *= mask.sizes[d];
  }
  return std::span(static_cast<const uint8_t*>(mask.data), static_cast<size_t>(count));
}

/// `put(i, k)` with k as the place among those that hold, for each i in turn until there are `wanted`; without branches by the mask, so
/// that it may be called again for the same k. Returns how many hold, or more than wanted.
template <class Put>
int64_t for_held_in_row(std::span<const uint8_t> mask, int64_t wanted, const Put& put) {
  int64_t count = 0;
  size_t i = 0;
  for (; i < mask.size() && count < wanted; ++i) {
    put(i, count);
    count += mask[i];
  }
  const bool more = std::any_of(mask.begin() + static_cast<ptrdiff_t>(i), mask.end(), [](uint8_t m) { return m != 0; });
  return more ? wanted + 1 : count;
}

template <class T>
int64_t pick_row(std::span<const uint8_t> mask, const TensorView& x, const TensorView& out) {
  const auto* from = static_cast<const T*>(x.data);
  auto* to = static_cast<T*>(out.data);
  return for_held_in_row(mask, out.sizes[0], [&](size_t i, int64_t k) { to[k] = from[i]; });
}

/// Of arrays that lie as one row, with a mask of the same shape. Nothing: they do not.
std::optional<int64_t> pick_in_rows(const TensorView& x, const TensorView& mask, const TensorView& out) {
  const auto row = in_one_row_of(mask);
  if (!row || !in_one_row_of(x) || x.sizes.size() != mask.sizes.size() || out.strides[0] != 1) return std::nullopt;
  struct Two {
    uint64_t parts[2];
  };
  switch (dtype_size(x.dtype)) {
    case 1: return pick_row<uint8_t>(*row, x, out);
    case 2: return pick_row<uint16_t>(*row, x, out);
    case 4: return pick_row<uint32_t>(*row, x, out);
    case 8: return pick_row<uint64_t>(*row, x, out);
    case 16: return pick_row<Two>(*row, x, out);
    default: return std::nullopt;
  }
}

template <class Take>
int64_t for_each_held(const TensorView& mask, const Take& take) {
  std::vector<int64_t> index(mask.sizes.size(), 0);
  const auto* at = static_cast<const bool*>(mask.data);
  if (std::find(mask.sizes.begin(), mask.sizes.end(), 0) != mask.sizes.end()) return 0;
  const size_t last = mask.sizes.size() - 1;
  int64_t count = 0;
  while (true) {
    for (int64_t& i = index[last] = 0; i < mask.sizes[last]; ++i) {
      if (at[i * mask.strides[last]]) take(index, count++);
    }
    size_t d = last;
    while (d > 0) {
      --d;
      at += mask.strides[d];
      if (++index[d] < mask.sizes[d]) break;
      at -= mask.strides[d] * mask.sizes[d];
      index[d] = 0;
      if (d == 0) return count;
    }
    if (last == 0) return count;
  }
}

}  // namespace

const OpDef& places_loop() {
  return add_numpy_loop("places", [](const LoopViews& views) {
    const int64_t wanted = views[1]->sizes.at(0);
    if (const auto row = in_one_row_of(*views[0]); row && views[0]->sizes.size() == 1 && views[1]->strides[0] == 1) {
      auto* to = static_cast<int64_t*>(views[1]->data);
      const int64_t held =
          for_held_in_row(*row, wanted, [to](size_t i, int64_t k) { to[k] = static_cast<int64_t>(i); });
      return stop_unless(held, wanted);
    }
    const int64_t found = for_each_held(*views[0], [&](const std::vector<int64_t>& index, int64_t count) {
      const TensorView& out = *views[1];
      for (size_t d = 0; count < wanted && d < index.size(); ++d) {
        static_cast<int64_t*>(out.data)[count * out.strides[0] + static_cast<int64_t>(d) * out.strides[1]] = index[d];
      }
    });
    stop_unless(found, wanted);
  });
}

const OpDef& picked_loop() {
  return add_numpy_loop("picked", [](const LoopViews& views) {
    const TensorView &x = *views[0], &mask = *views[1], &out = *views[2];
    const size_t rank = mask.sizes.size();
    if (const auto held = pick_in_rows(x, mask, out)) return stop_unless(*held, out.sizes[0]);
    const int64_t wanted = out.sizes.at(0), item = dtype_size(x.dtype);
    TensorView from = x, to = out;
    from.sizes.erase(from.sizes.begin(), from.sizes.begin() + static_cast<ptrdiff_t>(rank));
    from.strides.erase(from.strides.begin(), from.strides.begin() + static_cast<ptrdiff_t>(rank));
    to.sizes.erase(to.sizes.begin());
    to.strides.erase(to.strides.begin());
    const int64_t found = for_each_held(mask, [&](const std::vector<int64_t>& index, int64_t count) {
      if (count >= wanted) return;
      int64_t offset = 0;
      for (size_t d = 0; d < rank; ++d) offset += index[d] * x.strides[d];
      char* source = static_cast<char*>(x.data) + offset * item;
      char* target = static_cast<char*>(out.data) + count * out.strides[0] * item;
      if (from.sizes.empty()) {
        std::memcpy(target, source, static_cast<size_t>(item));
        return;
      }
      from.data = source;
      to.data = target;
      copy_elements(from, to);
    });
    stop_unless(found, wanted);
  });
}

const OpDef& assign_loop() {
  return add_numpy_loop("assign", [](const LoopViews& views) {
    const TensorView &x = *views[0], &places = *views[1], &values = *views[2], &out = *views[3];
    copy_elements(x, out);
    const int64_t item = dtype_size(x.dtype);
    TensorView from = values, to = out;
    for (TensorView* view : {&from, &to}) {
      view->sizes.erase(view->sizes.begin());
      view->strides.erase(view->strides.begin());
    }
    for (int64_t i = 0; i < places.sizes[0]; ++i) {
      int64_t at = static_cast<const int64_t*>(places.data)[i * places.strides[0]];
      at += at < 0 ? x.sizes[0] : 0;
      if (at < 0 || at >= x.sizes[0]) throw Unsupported("a place out of range");
      from.data = static_cast<char*>(values.data) + i * values.strides[0] * item;
      to.data = static_cast<char*>(out.data) + at * out.strides[0] * item;
      if (from.sizes.empty()) {
        copy_item(to.data, from.data, item);
      } else {
        copy_elements(from, to);
      }
    }
  });
}

const OpDef& masked_loop(bool again) {
  return add_numpy_loop(again ? "masked_again" : "masked", [again](const LoopViews& views) {
    const TensorView &mask = *views[1], &values = *views[2], &out = *views[3];
    copy_elements(*views[0], out);
    const int64_t given = values.sizes[0], item = dtype_size(out.dtype);
    const auto row = in_one_row_of(mask);
    if (row && in_one_row_of(out) && mask.sizes.size() == out.sizes.size() && given > 0 && !again) {
      int64_t held = 0;
      for (size_t i = 0; i < row->size(); ++i) {
        if ((*row)[i] == 0) continue;
        if (held < given) {
          copy_item(static_cast<char*>(out.data) + static_cast<int64_t>(i) * item,
                    static_cast<const char*>(values.data) + held * values.strides[0] * item, item);
        }
        ++held;
      }
      return stop_unless(held, given);
    }
    const int64_t found = for_each_held(mask, [&](const std::vector<int64_t>& index, int64_t count) {
      if (given == 0 || (!again && count >= given)) return;
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * out.strides[d];
      copy_item(
          static_cast<char*>(out.data) + offset * item,
          static_cast<const char*>(values.data) + (count < given ? count : count % given) * values.strides[0] * item,
          item);
    });
    if (!again || given == 0) stop_unless(found, given);
  });
}

const OpDef& count_loop(bool last) {
  return add_numpy_loop(last ? "counts_to_last" : "counts", [last](const LoopViews& views) {
    const TensorView &x = *views[0], &out = *views[1];
    auto* counts = static_cast<int64_t*>(out.data);
    const auto* at = static_cast<const int64_t*>(x.data);
    for (int64_t i = 0; i < out.sizes[0]; ++i) counts[i * out.strides[0]] = 0;
    for (int64_t i = 0; i < x.sizes[0]; ++i) {
      const int64_t number = at[i * x.strides[0]];
      if (number < 0 || number >= out.sizes[0]) throw Unsupported("a number out of range");
      ++counts[number * out.strides[0]];
    }
    if (last) stop_unless(counts[(out.sizes[0] - 1) * out.strides[0]] > 0 ? 1 : 0, 1);
  });
}

namespace {

/// Numbers that differ in order, of which a comparison tells.
template <class T>
int64_t leave_different(T* row, int64_t n) {
  return std::unique(row, row + n) - row;
}

template <class T>
int64_t leave_different(std::complex<T>* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (const T part : {row[i].real(), row[i].imag()}) {
      if (std::isnan(part) || (part == 0 && std::signbit(part))) throw Unsupported("numbers that equal others");
    }
  }
  return std::unique(row, row + n) - row;
}

template <class T>
int64_t leave_different_in(void* row, int64_t n) {
  return leave_different(static_cast<T*>(row), n);
}

using Leave = int64_t (*)(void* row, int64_t n);
Leave leave_of(DType dtype) {
  if (dtype == DType::kComplex64) return leave_different_in<std::complex<float>>;
  if (dtype == DType::kComplex128) return leave_different_in<std::complex<double>>;
  switch (dtype_size(dtype)) {
    case 1: return leave_different_in<uint8_t>;
    case 2: return leave_different_in<uint16_t>;
    case 4: return leave_different_in<uint32_t>;
    default: return leave_different_in<uint64_t>;
  }
}

}  // namespace

const OpDef& unique_loop(const NumpyApi& np, DType dtype) {
  const auto sort = reinterpret_cast<SortFunction>(np.array_function(dtype, kSort));
  return add_numpy_loop(str_cat("unique_", letter_of(dtype)), [sort, leave = leave_of(dtype)](const LoopViews& views) {
    TensorView row = *views[0];
    const int64_t n = row.sizes[0], item = dtype_size(row.dtype);
    std::vector<char> elements(static_cast<size_t>(n * item));
    row.data = elements.data();
    row.strides[0] = 1;
    copy_elements(*views[0], row);
    // Where few differ, a table of them is faster than a sort of all.
    constexpr int64_t kFew = 256;
    if (n > kFew && item == 8) {
      std::unordered_set<uint64_t> different;
      auto* all = reinterpret_cast<uint64_t*>(elements.data());
      const auto most = static_cast<size_t>(std::max(kFew, n / 8));
      int64_t i = 0;
      for (; i < n && different.size() <= most; ++i) different.insert(all[i]);
      if (i == n) row.sizes[0] = std::copy(different.begin(), different.end(), all) - all;
    }
    if (row.sizes[0] > 1) sort(row.data, row.sizes[0], nullptr);
    row.sizes[0] = leave(row.data, row.sizes[0]);
    stop_unless(row.sizes[0], views[1]->sizes[0]);
    copy_elements(row, *views[1]);
  });
}

}  // namespace tatara::capture
