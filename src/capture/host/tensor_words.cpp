#include "capture/host/tensor_words.h"

#include <algorithm>
#include <cstring>

namespace tatara::capture {
namespace {

// Words from the number of dimensions on: sizes, strides, the first element's place, how many elements, dtype and device, keys.
constexpr size_t kToSizes = 1, kToOffset = 11, kToCount = 12, kToType = 13, kToKeys = 14;

const uint64_t* words_at(const void* place) { return static_cast<const uint64_t*>(place); }
const int64_t* numbers_at(uint64_t address) { return reinterpret_cast<const int64_t*>(address); }  // NOLINT: it is one

Ref call(PyObject* object, const char* name) {
  Ref result = Ref::steal(object != nullptr ? PyObject_CallMethod(object, name, nullptr) : nullptr);
  if (!result) forget_error();
  return result;
}

bool same(const TensorRef& a, const TensorRef& b) {
  return a.data == b.data && a.rank == b.rank && a.device_type == b.device_type && a.device_id == b.device_id &&
         a.code == b.code && a.bits == b.bits && std::equal(a.sizes, a.sizes + a.rank, b.sizes) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

}  // namespace

bool TensorWords::find_rank(const uint64_t* words, uint64_t keys) {
  // Of (3, 5) by (11, 2).
  for (size_t i = kExtraWord + 1; i + kToKeys < kMostWords; ++i) {
    const uint64_t* at = words + i;
    const uint64_t* strides = at + kToSizes + kInlineRank;
    if (at[0] == 2 && at[kToSizes] == 3 && at[kToSizes + 1] == 5 && strides[0] == 11 && strides[1] == 2 &&
        at[kToOffset] == 0 && at[kToCount] == 15 && at[kToKeys] == keys) {
      rank_ = i;
      return true;
    }
  }
  return false;
}

void TensorWords::find(PyObject* torch, const Ask& ask) {
  const Ref core = attr_or_null(torch, "_C");
  const Ref example = Ref::steal(PyObject_CallMethod(torch, "empty_strided", "(ii)(ii)", 3, 5, 11, 2));
  const Ref keys =
      core && example ? Ref::steal(PyObject_CallMethod(core.get(), "_dispatch_keys", "O", example.get())) : Ref();
  const Ref raw = call(keys.get(), "raw_repr");
  const uint64_t* words = example ? words_at(impl_of(example.get())) : nullptr;
  if (!raw || !find_rank(words, PyLong_AsUnsignedLongLongMask(raw.get()))) {
    forget_error();
    return;
  }
  if (words[kStorageWord] == 0) return;  // of another kind than those of programs
  table_ = words[0];
  const Ref shared = Ref::steal(PyObject_CallMethod(torch, "empty", "i", 1));
  const auto deleter = [](const Ref& of) { return of ? storage_of(words_at(impl_of(of.get())))[kDeleterWord] : 0; };
  bool copies_are_known = deleter(shared) == deleter(example);
  const Ref copy = shared ? Ref::steal(PyObject_CallMethod(torch, "_lazy_clone", "O", shared.get())) : Ref();
  copies_late_ = deleter(shared);
  copies_are_known = copies_are_known && copy && copies_late_ == deleter(copy) && copies_late_ != deleter(example);
  const Ref row = Ref::steal(PyObject_CallMethod(example.get(), "select", "ii", 0, 1));
  const Ref deep = Ref::steal(PyObject_CallMethod(torch, "empty", "iiiiii", 1, 2, 1, 3, 2, 1));
  const Ref none = Ref::steal(PyObject_CallMethod(torch, "empty", "ii", 0, 3));
  const Ref whole = call(example.get(), "long"), truth = call(example.get(), "bool");
  const auto agrees = [&](const Ref& each) {
    TensorRef here, told;
    return each && ask(each.get(), told) && fields(words_at(impl_of(each.get())), here) && same(here, told);
  };
  known_ = copies_are_known && agrees(example) && agrees(row) && agrees(deep) && agrees(none) && agrees(whole) &&
           agrees(truth);
  forget_error();
}

bool TensorWords::fields(const uint64_t* words, TensorRef& out) const {
  if (words[0] != table_ || words[kExtraWord] != 0 || words[kStorageWord] == 0) return false;
  const uint64_t* storage = storage_of(words);
  if (storage[kDeleterWord] == copies_late_) return false;
  const uint64_t* at = words + rank_;
  const uint64_t type = at[kToType];
  const ExchangeType known = exchange_type(static_cast<int32_t>(type & 0xffff));
  const auto device = static_cast<int8_t>(type >> 16);
  if (known.bits == 0 || device < 0 || device > 1 || at[0] > kMostRank) return false;
  out.rank = static_cast<int32_t>(at[0]);
  out.sizes = out.rank <= kInlineRank ? reinterpret_cast<const int64_t*>(at + kToSizes) : numbers_at(at[kToSizes]);
  out.strides = out.sizes + std::max(out.rank, out.rank <= kInlineRank ? kInlineRank : 0);
  out.data = nullptr;
  if (at[kToCount] != 0) {
    out.data = reinterpret_cast<char*>(storage[kDataWord]) + at[kToOffset] * (known.bits / 8);  // NOLINT: an address
  }
  out.device_type = device == 0 ? kDlpackCpu : kDlpackCuda;
  out.device_id = device == 0 ? 0 : static_cast<int8_t>(type >> 24);
  out.code = known.code;
  out.bits = known.bits;
  return true;
}

bool TensorWords::read(const void* impl, TensorRef& out) const {
  if (!known_) return false;
  const uint64_t* words = words_at(impl);
  const uint64_t keys = words[rank_ + kToKeys];
  for (size_t i = 0; i < kind_count_; ++i) {
    if (kinds_[i] == keys) return fields(words, out);
  }
  return false;
}

void TensorWords::trust(const void* impl, const TensorRef& told) const {
  TensorRef here;
  const uint64_t* words = words_at(impl);
  if (!known_ || kind_count_ == kMostKinds || !fields(words, here) || !same(here, told)) return;
  const uint64_t keys = words[rank_ + kToKeys];
  if (std::find(kinds_.begin(), kinds_.begin() + kind_count_, keys) == kinds_.begin() + kind_count_) {
    kinds_[kind_count_++] = keys;
  }
}

size_t TensorWords::mark_words() const { return known_ ? 1 + kOwnerWords + rank_ + kToKeys + 1 : 0; }

bool TensorWords::mark(const void* impl, const TensorRef& read, uint64_t* words) const {
  if (!known_ || read.rank > kInlineRank || impl == nullptr || words_at(impl)[kStorageWord] == 0) return false;
  const uint64_t* storage = storage_of(words_at(impl)) + kDataWord;
  if (reinterpret_cast<uint64_t>(read.data) < storage[0]) return false;
  words[0] = reinterpret_cast<uint64_t>(impl);
  std::memcpy(words + 1, storage, kOwnerWords * sizeof(uint64_t));
  std::memcpy(words + 1 + kOwnerWords, impl, (mark_words() - 1 - kOwnerWords) * sizeof(uint64_t));
  words[1 + kOwnerWords + kCountWord] = 0;
  return true;
}

bool TensorWords::is_as_marked(const void* impl, const uint64_t* words) const {
  if (words[0] != reinterpret_cast<uint64_t>(impl)) return false;
  constexpr size_t kAfterCount = kCountWord + 1;
  const uint64_t* of_tensor = words + 1 + kOwnerWords;
  if (of_tensor[0] != *words_at(impl) ||
      std::memcmp(of_tensor + kAfterCount, words_at(impl) + kAfterCount,
                  (mark_words() - 1 - kOwnerWords - kAfterCount) * sizeof(uint64_t)) != 0) {
    return false;
  }
  return std::memcmp(words + 1, storage_of(words_at(impl)) + kDataWord, kOwnerWords * sizeof(uint64_t)) == 0;
}

}  // namespace tatara::capture
