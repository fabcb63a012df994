#include "runtime/cuda/copy_list.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/cuda_graph.h"
#include "support/fork.h"

namespace tatara::cuda {
namespace {

constexpr size_t kItems = 128;                     // of one launch: parameters may take 4 KB
constexpr size_t kAlone = size_t{8} << 20;         // bytes from which a copy is the driver's
constexpr unsigned kThreads = 256;                 // of a block
constexpr size_t kBytesOfBlock = size_t{1} << 14;  // before another block is worth it
constexpr size_t kMostBlocks = 128;                // for one item

/// Block (x, y) copies the x-th share of item y: 16 bytes at a time where both ends are aligned, what is left byte by byte.
constexpr std::string_view kText = R"(.version 7.0
.target sm_80
.address_size 64

.visible .entry tatara_copies(.param .align 8 .b8 items[3072])
{
  .reg .pred %p<6>;
  .reg .b32 %r<6>;
  .reg .b32 %v<4>;
  .reg .b64 %d<20>;
  .reg .b16 %h;

  mov.u32 %r1, %ctaid.y;
  mul.wide.u32 %d1, %r1, 24;
  mov.b64 %d2, items;
  add.u64 %d3, %d2, %d1;
  ld.param.u64 %d4, [%d3];
  ld.param.u64 %d5, [%d3+8];
  ld.param.u64 %d6, [%d3+16];
  cvta.to.global.u64 %d4, %d4;
  cvta.to.global.u64 %d5, %d5;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d7, %r1, %r2;
  cvt.u64.u32 %d8, %r3;
  add.u64 %d7, %d7, %d8;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %d8, %r4, %r2;

  mov.u64 %d9, 0;
  or.b64 %d10, %d4, %d5;
  and.b64 %d10, %d10, 15;
  setp.ne.u64 %p1, %d10, 0;
  @%p1 bra $rest;

  and.b64 %d9, %d6, -16;
  shl.b64 %d11, %d7, 4;
  shl.b64 %d12, %d8, 4;
$next:
  setp.ge.u64 %p2, %d11, %d9;
  @%p2 bra $rest;
  add.u64 %d13, %d5, %d11;
  add.u64 %d14, %d4, %d11;
  ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%d13];
  st.global.v4.u32 [%d14], {%v0, %v1, %v2, %v3};
  add.u64 %d11, %d11, %d12;
  bra $next;

$rest:
  add.u64 %d15, %d9, %d7;
$byte:
  setp.ge.u64 %p3, %d15, %d6;
  @%p3 bra $end;
  add.u64 %d13, %d5, %d15;
  add.u64 %d14, %d4, %d15;
  ld.global.u8 %h, [%d13];
  st.global.u8 [%d14], %h;
  add.u64 %d15, %d15, %d8;
  bra $byte;
$end:
  ret;
}
)";

/// The kernel on each device, loaded when it is first used there. Never unloaded: the driver may be gone when the process ends.
Handle kernel_on(int device) {
  static ForkSafeMutex mutex;
  static std::vector<Handle> loaded;
  const std::lock_guard lock(mutex);
  const auto index = static_cast<size_t>(device);
  if (loaded.size() <= index) loaded.resize(index + 1, nullptr);
  Handle& function = loaded[index];
  if (function != nullptr) return function;
  const std::string image = assemble(kText, target_of(device));
  Handle module = nullptr;
  check<CompilationError>(driver().cuModuleLoadData(&module, image.c_str()), "loading a kernel on the GPU");
  check<CompilationError>(driver().cuModuleGetFunction(&function, module, "tatara_copies"), "loading a kernel");
  return function;
}

}  // namespace

std::string_view copy_list_ptx() { return kText; }

void CopyList::add(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  items_.push_back({reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes});
}

void CopyList::run(int device, void* stream) {
  const auto listed =
      std::partition(items_.begin(), items_.end(), [](const Item& item) { return item.bytes < kAlone; });
  for (auto item = listed; item != items_.end(); ++item) {
    copy(reinterpret_cast<void*>(item->to), reinterpret_cast<const void*>(item->from), item->bytes, stream);
  }
  items_.erase(listed, items_.end());
  if (items_.size() == 1) {
    copy(reinterpret_cast<void*>(items_[0].to), reinterpret_cast<const void*>(items_[0].from), items_[0].bytes, stream);
    items_.clear();
  }
  for (size_t first = 0; first < items_.size(); first += kItems) {
    const size_t count = std::min(kItems, items_.size() - first);
    std::array<Item, kItems> table{};
    std::copy_n(items_.begin() + static_cast<std::ptrdiff_t>(first), count, table.begin());
    size_t most = 0;
    for (size_t i = 0; i < count; ++i) most = std::max<size_t>(most, table[i].bytes);
    const size_t blocks = std::clamp<size_t>((most + kBytesOfBlock - 1) / kBytesOfBlock, 1, kMostBlocks);
    void* parameters[] = {table.data()};
    check(driver().cuLaunchKernel(kernel_on(device), static_cast<unsigned>(blocks), static_cast<unsigned>(count), 1,
                                  kThreads, 1, 1, 0, stream, parameters, nullptr),
          "copying on the GPU");
  }
  items_.clear();
}

}  // namespace tatara::cuda
