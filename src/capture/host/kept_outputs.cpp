#include "capture/host/kept_outputs.h"

#include <atomic>
#include <utility>

#include "runtime/base/pages.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

// Below this the allocator's own lists serve as well.
constexpr size_t kSmallest = size_t{256} << 10;
// Two serve a loop whose result is its next argument.
constexpr size_t kBlocks = 2;
// Of a block with ordinary pages; then huge pages take their place, which pays within a few runs.
constexpr int kOrdinaryUses = 4;

/// torch._C's functions for the address of a tensor's storage and for a storage's use count; null where torch lacks them.
struct StorageFunctions {
  Ref address, use_count;
  bool usable = false;

  static const StorageFunctions& get() { return made_once<StorageFunctions>(); }

  StorageFunctions() {
    const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
    const Ref core = torch ? attr_or_null(torch.get(), "_C") : Ref();
    if (core) {
      address = attr_or_null(core.get(), "_storage_address");
      use_count = attr_or_null(core.get(), "_storage_Use_Count");
    }
    forget_error();
    const torch_abi::Api* abi = torch_abi::api();
    usable = address && use_count && abi != nullptr && abi->aoti_torch__reinterpret_tensor != nullptr &&
             abi->aoti_torch_get_storage_size != nullptr;
  }
};

std::atomic<int64_t> g_kept_bytes{0};

}  // namespace

KeptOutputs::~KeptOutputs() {
  while (!blocks_.empty()) drop(blocks_.size() - 1);
}

bool KeptOutputs::wants(size_t bytes) const {
  return bytes >= kSmallest && static_cast<int64_t>(bytes) <= limit_ && StorageFunctions::get().usable;
}

void KeptOutputs::drop(size_t i) {
  g_kept_bytes -= blocks_[i].bytes;
  torch_abi::api()->aoti_torch_delete_tensor_object(blocks_[i].tensor);
  blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
}

bool KeptOutputs::unused(const Block& block) {
  const Ref count = Ref::steal(PyObject_CallOneArg(StorageFunctions::get().use_count.get(), block.address.get()));
  const long users = count ? PyLong_AsLong(count.get()) : -1;
  if (users < 0) forget_error();
  // What other threads did to the memory before they let go of it comes before what the next run does.
  std::atomic_thread_fence(std::memory_order_acquire);
  return users == 1;
}

torch_abi::TensorHandle KeptOutputs::take(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                          size_t bytes, void** data) {
  const torch_abi::Api& abi = *torch_abi::api();
  for (size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    if (!unused(block)) continue;
    // The caller may have resized the storage, or moved it to memory shared with another process.
    int64_t now = 0;
    torch_abi::TensorHandle tensor = nullptr;
    if (block.bytes == static_cast<int64_t>(bytes) && abi.aoti_torch_get_storage_size(block.tensor, &now) == 0 &&
        now == block.bytes && abi.aoti_torch_get_data_ptr(block.tensor, data) == 0 && *data == block.data &&
        abi.aoti_torch__reinterpret_tensor(block.tensor, static_cast<int64_t>(sizes.size()), sizes.data(),
                                           strides.data(), 0, &tensor) == 0) {
      if (!block.huge && ++block.uses > kOrdinaryUses) {
        block.huge = true;
        renew_with_huge_pages(*data, bytes);
      }
      return tensor;
    }
    drop(i);
  }
  return nullptr;
}

void KeptOutputs::keep(torch_abi::TensorHandle tensor, PyObject* object, size_t bytes, bool huge) {
  const torch_abi::Api& abi = *torch_abi::api();
  // Blocks that the caller still uses are the caller's.
  if (blocks_.size() >= kBlocks) drop(0);
  Block block{nullptr, Ref(), nullptr, static_cast<int64_t>(bytes), huge};
  const int64_t one = 1;
  int64_t now = 0;
  if (g_kept_bytes + block.bytes > limit_ || abi.aoti_torch_get_data_ptr(tensor, &block.data) != 0 ||
      abi.aoti_torch_get_storage_size(tensor, &now) != 0 || now != block.bytes) {
    return;
  }
  block.address = Ref::steal(PyObject_CallOneArg(StorageFunctions::get().address.get(), object));
  if (!block.address) {
    forget_error();
    return;
  }
  if (abi.aoti_torch__reinterpret_tensor(tensor, 1, &one, &one, 0, &block.tensor) != 0) return;
  g_kept_bytes += block.bytes;
  blocks_.push_back(std::move(block));
}

}  // namespace tatara::capture
