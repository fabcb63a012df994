// NVIDIA GPUs through the driver's library and nvJitLink, both found when they are first needed. Nothing of CUDA is needed to
// build Tatara.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/abi.h"
#include "codegen/emit_gpu.h"
#include "loops/tensor_map.h"
#include "support/fork.h"

namespace tatara::cuda {

/// Whether this process can run kernels on a GPU; the reason when not.
bool available(std::string* why_not = nullptr);

struct DeviceInfo {
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
};
/// Throws Unsupported without a GPU of that number.
DeviceInfo device_info(int device);
GpuTarget target_of(int device);

/// The stream that the host's program uses at present on the device.
void* current_stream(int device);

/// Machine code from PTX, by nvJitLink. Where that is not found the text itself, which the driver compiles when it loads it
/// (`note` then says so). Throws CompilationError.
std::string assemble(std::string_view ptx, const GpuTarget& target, std::string* note = nullptr);

/// Makes the device's context the thread's for the time of a run.
class Session {
 public:
  explicit Session(int device);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  void* stream() const { return stream_; }

 private:
  bool pushed_ = false;
  void* stream_ = nullptr;
};

/// Parameters of a launch, as emit_gpu has them but for the last one, and its threads.
struct LaunchArguments {
  int64_t blocks = 0;
  int threads = 0;
  int64_t shared = 0;  // bytes of shared memory beside what the code says
  std::span<void* const> buffers;
  std::span<const int64_t> sizes;
  int64_t iterations = 1;
  /// Of a list: buffers and sizes are those of all items in turn.
  int list_items = 0;
  std::span<const int64_t> item_blocks = {};
  std::span<const loops::TensorMap> maps = {};
};
/// The bytes of the table that a kernel for lists gets (loops/list_table.h).
std::vector<uint32_t> list_table(const LaunchArguments& arguments);

/// As the driver writes them.
struct alignas(loops::TensorMap::kAlign) EncodedMap {
  std::array<std::byte, loops::TensorMap::kBytes> bytes;
};
/// The launch's maps for where its buffers lie. Throws Unsupported where the copy engine does not take them.
std::vector<EncodedMap> encoded_maps(const LaunchArguments& arguments);

/// One kernel; loaded on each device when it is first used there. Thread-safe.
class Kernel {
 public:
  Kernel(std::string image, std::string symbol);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Loads it now, inside of a session of the device. Throws CompilationError.
  void load(int device);
  /// Inside of a session of the device.
  void launch(int device, void* stream, const LaunchArguments& arguments);
  /// Calls fn(function, parameters), the parameters as the driver takes them.
  template <typename Fn>
  void with_parameters(int device, const LaunchArguments& arguments, Fn&& fn) {
    Loaded& loaded = on(device, arguments.shared);
    void* fault = loaded.fault;
    std::vector<void*> parameters;
    std::vector<uint32_t> table;
    if (arguments.list_items > 0) {
      table = list_table(arguments);
      parameters.push_back(table.data());
    } else {
      parameters.reserve(arguments.buffers.size() + arguments.sizes.size() + 2);
      for (void* const& buffer : arguments.buffers) parameters.push_back(const_cast<void**>(&buffer));
      for (const int64_t& size : arguments.sizes) parameters.push_back(const_cast<int64_t*>(&size));
      parameters.push_back(const_cast<int64_t*>(&arguments.iterations));
    }
    parameters.push_back(&fault);
    std::vector<EncodedMap> maps = encoded_maps(arguments);
    for (EncodedMap& map : maps) parameters.push_back(&map);
    fn(loaded.function, parameters.data());
  }
  /// What an earlier launch reported, once: bounds checks on a GPU are seen after the fact.
  bool take_fault(KernelFault& fault);

 private:
  struct Loaded {
    void* module = nullptr;
    void* function = nullptr;
    KernelFault* fault = nullptr;  // memory of the host that the device writes
    int64_t shared = 0;            // bytes that a launch may ask for
  };
  Loaded& on(int device, int64_t shared = 0);

  std::string image_;
  std::string symbol_;
  ForkSafeMutex mutex_;
  std::vector<std::unique_ptr<Loaded>> devices_;
};

/// Bytes of the host's memory to the device's, in the order of the stream; the source may go when this returns.
void upload(void* to, const void* from, size_t bytes, void* stream);
/// Bytes of the device's memory, once all that is on the stream has run.
void download(void* to, const void* from, size_t bytes, void* stream);

}  // namespace tatara::cuda
