// What torch's own tensor objects (c10::TensorImpl and c10::StorageImpl) hold where, read without calls.
//
// Their layout is no part of torch's interface. It is found in examples when torch is loaded, and each kind of tensor is trusted
// once torch's own answers were the same as what is read; where something is not as known, torch is asked as before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "capture/host/tensor_ref.h"
#include "capture/python/py.h"

namespace tatara::capture {

struct ExchangeType {
  uint8_t code, bits;
};

/// DLPack's code and bits for c10::ScalarType's number; no bits: not known.
inline ExchangeType exchange_type(int32_t scalar_type) {
  static constexpr std::array<ExchangeType, 16> kTypes = {{{1, 8},
                                                           {0, 8},
                                                           {0, 16},
                                                           {0, 32},
                                                           {0, 64},
                                                           {2, 16},
                                                           {2, 32},
                                                           {2, 64},
                                                           {5, 32},
                                                           {5, 64},
                                                           {5, 128},
                                                           {6, 8},
                                                           {},
                                                           {},
                                                           {},
                                                           {4, 16}}};
  if (scalar_type < 0 || static_cast<size_t>(scalar_type) >= kTypes.size()) return {};
  return kTypes[static_cast<size_t>(scalar_type)];
}

/// Where a Python tensor holds its implementation.
inline void* const* impl_place(PyObject* tensor) {
  return reinterpret_cast<void* const*>(reinterpret_cast<const char*>(tensor) + sizeof(PyObject));
}
inline const void* impl_of(PyObject* tensor) { return *impl_place(tensor); }

class TensorWords {
 public:
  using Ask = std::function<bool(PyObject* tensor, TensorRef& out)>;
  /// Finds the words in examples, and compares what they tell with what `ask` does. No error is left set.
  void find(PyObject* torch, const Ask& ask);

  /// What the tensor behind `impl` has where; false: torch is to be asked, and then trust() told.
  bool read(const void* impl, TensorRef& out) const;
  /// `told` is torch's answer for `impl`, whose memory holds its values: later tensors of its kind are read.
  void trust(const void* impl, const TensorRef& told) const;

  /// What read() tells of a tensor whose sizes lie in its own memory, as words of it and of its storage: equal words tell that
  /// nothing has changed since. No words where the layout is not known.
  size_t mark_words() const;
  bool mark(const void* impl, const TensorRef& read, uint64_t* words) const;
  bool is_as_marked(const void* impl, const uint64_t* words) const;

 private:
  // Of a tensor: its virtual table, how many hold it, its storage, what autograd knows of it, what few tensors have besides.
  static constexpr size_t kCountWord = 1, kStorageWord = 2, kExtraWord = 4;
  static constexpr size_t kDataWord = 2, kDeleterWord = 3;  // of a storage: its memory, and who frees that
  static constexpr size_t kOwnerWords = 3;
  static constexpr size_t kMostWords = 26;
  static constexpr uint64_t kMostRank = 64;
  static constexpr int32_t kInlineRank = 5;  // whose sizes lie in the tensor itself
  static constexpr size_t kMostKinds = 16;

  static const uint64_t* storage_of(const uint64_t* tensor) {
    return reinterpret_cast<const uint64_t*>(tensor[kStorageWord]);  // NOLINT: it is an address
  }
  bool find_rank(const uint64_t* words, uint64_t keys);
  bool fields(const uint64_t* words, TensorRef& out) const;

  bool known_ = false;
  size_t rank_ = 0;           // the word that tells the number of dimensions, which all others follow
  uint64_t table_ = 0;        // the virtual table of a plain tensor
  uint64_t copies_late_ = 0;  // who frees the memory of tensors that are copied when one is written
  // Dispatch keys of kinds of tensors that hold their values. Guarded by the GIL.
  mutable std::array<uint64_t, kMostKinds> kinds_{};
  mutable size_t kind_count_ = 0;
};

}  // namespace tatara::capture
