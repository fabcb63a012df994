// Many copies within a GPU's memory as one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tatara::cuda {

/// Copies that are put together, then done in the order of a stream. A copy of its own takes the host 4 us.
class CopyList {
 public:
  void add(void* to, const void* from, size_t bytes);
  /// Inside of a session of the device. Leaves the list empty.
  void run(int device, void* stream);

 private:
  struct Item {
    uint64_t to, from, bytes;  // as the kernel reads them
  };
  std::vector<Item> items_;
};

/// The kernel's text, for tests that assemble it.
std::string_view copy_list_ptx();

}  // namespace tatara::cuda
