// Memory of big outputs that the caller has dropped, for the next run of the same graph. Fresh memory costs more than the work
// of many kernels: the system hands it out in pages of 4 KB, cleared at the first touch (50 ms for 65 MB).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "capture/python/py.h"
#include "runtime/host/torch_abi.h"

namespace tatara::capture {

/// The blocks of one output buffer. Guarded by the GIL.
///
/// A block is a storage of the host's that an earlier run returned and that is held here beside the caller's tensors. Once
/// its use count says that this is the only reference left, no tensor, view, NumPy array or saved gradient can see it.
class KeptOutputs {
 public:
  /// `limit`: bytes that all of them together may hold.
  explicit KeptOutputs(int64_t limit) : limit_(limit) {}
  KeptOutputs(KeptOutputs&& other) noexcept
      : blocks_(std::exchange(other.blocks_, {})), limit_(other.limit_), came_(other.came_) {}
  KeptOutputs& operator=(KeptOutputs&&) = delete;
  ~KeptOutputs();

  /// Whether blocks of this size are worth keeping, and this torch lets us.
  bool wants(size_t bytes) const;
  /// Whether fresh memory should have huge pages. Some machines hand them out late, 2 to 5 ms each, and the first block of an
  /// output is often the last (docs/decisions/038). Where later runs go on finding it, take() asks for them (040).
  bool wants_huge_pages() { return std::exchange(came_, true); }
  /// A new tensor over a block of `bytes` that nobody else refers to, and its memory; null when there is none.
  torch_abi::TensorHandle take(std::span<const int64_t> sizes, std::span<const int64_t> strides, size_t bytes,
                               void** data);
  /// Holds the storage of `tensor` (borrowed, as is its Python object), which a run is about to fill and return.
  /// `huge`: huge pages were asked for.
  void keep(torch_abi::TensorHandle tensor, PyObject* object, size_t bytes, bool huge);

 private:
  struct Block {
    torch_abi::TensorHandle tensor;  // a tensor of our own over the storage
    Ref address;                     // of the storage, as an int
    void* data;
    int64_t bytes;
    bool huge;     // pages were asked for
    int uses = 0;  // by take()
  };
  static bool unused(const Block& block);
  void drop(size_t i);
  std::vector<Block> blocks_;
  int64_t limit_;
  bool came_ = false;
};

}  // namespace tatara::capture
