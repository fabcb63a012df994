#include "runtime/cuda/cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "loops/list_table.h"
#include "runtime/cuda/cuda_driver.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"
#include "support/log.h"
#include "support/made_once.h"

namespace tatara::cuda {
namespace {

constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kMostSharedMemory = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kHostPortable = 1;
constexpr unsigned kHostMapped = 2;

void find_driver(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.why_not = "no NVIDIA driver (libcuda.so.1) on this machine";
    return;
  }
  driver.library = library;
#define TATARA_FIND(name, symbol, ...)                                            \
  driver.name = reinterpret_cast<Pointer<__VA_ARGS__>>(dlsym(library, symbol));   \
  if (driver.name == nullptr) driver.why_not = "the NVIDIA driver lacks " symbol; \
  if (driver.name == nullptr) return;
  TATARA_DRIVER_FUNCTIONS(TATARA_FIND)
#undef TATARA_FIND
  if (driver.cuInit(0) != 0 || driver.cuDeviceGetCount(&driver.devices) != 0 || driver.devices == 0) {
    driver.why_not = "no NVIDIA GPU is visible to this process";
  }
  driver.opened.resize(static_cast<size_t>(driver.devices));
}

}  // namespace

Driver& driver() {
  return *made_once([] {
    auto made = std::make_unique<Driver>();
    find_driver(*made);
    return made;
  });
}

std::string error_text(Result code) {
  const char* text = nullptr;
  driver().cuGetErrorString(code, &text);
  return text != nullptr ? text : "error " + std::to_string(code);
}

namespace {

const Device& open_device(int number) {
  Driver& d = driver();
  if (!d.why_not.empty()) throw Unsupported(d.why_not);
  const std::lock_guard lock(d.mutex);
  if (number < 0 || number >= d.devices) throw Unsupported(str_cat("no GPU number ", number));
  std::optional<Device>& device = d.opened[static_cast<size_t>(number)];
  if (device) return *device;
  Device made;
  check(d.cuDeviceGet(&made.number, number), "opening a GPU");
  check(d.cuDevicePrimaryCtxRetain(&made.context, made.number), "opening a GPU");
  int major = 0;
  int minor = 0;
  check(d.cuDeviceGetAttribute(&major, kCapabilityMajor, made.number), "reading a GPU's properties");
  check(d.cuDeviceGetAttribute(&minor, kCapabilityMinor, made.number), "reading a GPU's properties");
  check(d.cuDeviceGetAttribute(&made.info.multiprocessors, kMultiprocessors, made.number),
        "reading a GPU's properties");
  made.info.capability = 10 * major + minor;
  device = made;
  return *device;
}

// ---- nvJitLink -----------------------------------------------------------------------------------------------------------

constexpr int kInputPtx = 2;  // NVJITLINK_INPUT_PTX

struct Linker {
  Result (*create)(Handle*, uint32_t, const char**) = nullptr;
  Result (*destroy)(Handle*) = nullptr;
  Result (*add)(Handle, int, const void*, size_t, const char*) = nullptr;
  Result (*complete)(Handle) = nullptr;
  Result (*cubin_size)(Handle, size_t*) = nullptr;
  Result (*cubin)(Handle, void*) = nullptr;
  Result (*log_size)(Handle, size_t*) = nullptr;
  Result (*log)(Handle, char*) = nullptr;
  std::string path;
};

/// The library exports each function under names with the version of its interface.
template <typename Fn>
bool load_function(void* library, Fn& fn, const std::string& name) {
  std::vector<std::string> names = {name};
  for (int minor = 0; minor < 10; ++minor) {
    names.push_back("__" + name + "_13_" + std::to_string(minor));
    names.push_back("__" + name + "_12_" + std::to_string(minor));
  }
  for (const std::string& candidate : names) {
    fn = reinterpret_cast<Fn>(dlsym(library, candidate.c_str()));
    if (fn != nullptr) return true;
  }
  return false;
}

/// Where the library may lie: loaded by the host already, on the linker's path, or in the wheels beside the host's own.
std::vector<std::string> linker_paths() {
  std::vector<std::string> paths = {"libnvJitLink.so.13", "libnvJitLink.so.12"};
  Dl_info info{};
  void* host = torch_abi::open_library("libtorch_cuda.so");
  void* symbol = host != nullptr ? dlsym(host, "aoti_torch_get_current_cuda_stream") : nullptr;
  if (symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) {
    std::string packages = info.dli_fname;
    for (int up = 0; up < 3 && packages.find('/') != std::string::npos; ++up) packages.resize(packages.rfind('/'));
    for (const char* place : {"/nvidia/cu13/lib/libnvJitLink.so.13", "/nvidia/nvjitlink/lib/libnvJitLink.so.13",
                              "/nvidia/nvjitlink/lib/libnvJitLink.so.12"}) {
      paths.push_back(packages + place);
    }
  }
  paths.emplace_back("/usr/local/cuda/lib64/libnvJitLink.so");
  return paths;
}

std::optional<Linker> find_linker() {
  for (const std::string& path : linker_paths()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Linker linker;
    linker.path = path;
    if (load_function(library, linker.create, "nvJitLinkCreate") &&
        load_function(library, linker.destroy, "nvJitLinkDestroy") &&
        load_function(library, linker.add, "nvJitLinkAddData") &&
        load_function(library, linker.complete, "nvJitLinkComplete") &&
        load_function(library, linker.cubin_size, "nvJitLinkGetLinkedCubinSize") &&
        load_function(library, linker.cubin, "nvJitLinkGetLinkedCubin") &&
        load_function(library, linker.log_size, "nvJitLinkGetErrorLogSize") &&
        load_function(library, linker.log, "nvJitLinkGetErrorLog")) {
      TATARA_LOG(kLlvm, "nvJitLink is ", path);
      return linker;
    }
  }
  return std::nullopt;
}

const std::optional<Linker>& linker() {
  return made_once([] { return find_linker(); });
}

}  // namespace

bool available(std::string* why_not) {
  const Driver& d = driver();
  if (why_not != nullptr) *why_not = d.why_not;
  return d.why_not.empty();
}

DeviceInfo device_info(int device) { return open_device(device).info; }

GpuTarget target_of(int device) {
  GpuTarget target;
  target.capability = open_device(device).info.capability;
  target.cpu = "sm_" + std::to_string(target.capability) + (target.capability == 90 ? "a" : "");
  if (target.capability == 90) target.features = "+ptx81";
  if (target.capability < 80) {
    throw Unsupported(str_cat("GPUs of compute capability ", target.capability / 10, ".", target.capability % 10,
                              " (8.0 or newer is needed)"));
  }
  return target;
}

void* current_stream(int device) {
  using Fn = int32_t (*)(int32_t, void**);
  const Fn fn = made_once([] {
    void* library = torch_abi::open_library("libtorch_cuda.so");
    return library == nullptr ? nullptr : reinterpret_cast<Fn>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  });
  void* stream = nullptr;
  if (fn == nullptr || fn(device, &stream) != 0) throw Unsupported("the host does not tell its current stream");
  return stream;
}

std::string assemble(std::string_view ptx, const GpuTarget& target, std::string* note) {
  // Of a program that it might link with others the linker does not know how many registers a warp has once threads gave some away, and
  // keeps sums in memory that would fit. The driver compiles it as a whole.
  if (ptx.find("setmaxnreg") != std::string_view::npos) return std::string(ptx);
  const std::optional<Linker>& l = linker();
  if (!l) {
    if (note != nullptr) *note = "nvJitLink is not found: the driver compiles kernels, on one core";
    return std::string(ptx);
  }
  const std::string arch = "-arch=" + target.cpu;
  std::array<const char*, 2> options = {arch.c_str(), "-O3"};
  Handle handle = nullptr;
  if (l->create(&handle, static_cast<uint32_t>(options.size()), options.data()) != 0) {
    throw CompilationError("nvJitLink cannot be started for " + target.cpu);
  }
  const std::string text(ptx);  // with the terminating zero that the assembler needs
  std::string cubin;
  size_t size = 0;
  const bool good = l->add(handle, kInputPtx, text.c_str(), text.size() + 1, "kernel") == 0 &&
                    l->complete(handle) == 0 && l->cubin_size(handle, &size) == 0;
  std::string log;
  if (good) {
    cubin.resize(size);
    l->cubin(handle, cubin.data());
  } else if (l->log_size(handle, &size) == 0 && size > 0) {
    log.resize(size);
    l->log(handle, log.data());
  }
  l->destroy(&handle);
  if (!good) throw CompilationError("nvJitLink cannot assemble a kernel: " + log);
  return cubin;
}

Session::Session(int device) {
  Driver& d = driver();
  const Device& opened = open_device(device);
  stream_ = current_stream(device);
  Handle present = nullptr;
  check(d.cuCtxGetCurrent(&present), "reading the GPU's context");
  if (present == opened.context) return;
  check(d.cuCtxPushCurrent(opened.context), "setting the GPU's context");
  pushed_ = true;
}

Session::~Session() {
  Handle gone = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&gone);
}

Kernel::Kernel(std::string image, std::string symbol) : image_(std::move(image)), symbol_(std::move(symbol)) {
  devices_.resize(static_cast<size_t>(std::max(driver().devices, 1)));
}

Kernel::~Kernel() {
  // Errors while unloading (the driver is shutting down) have nobody to hear them.
  for (const std::unique_ptr<Loaded>& loaded : devices_) {
    if (loaded == nullptr) continue;
    driver().cuModuleUnload(loaded->module);
    driver().cuMemFreeHost(loaded->fault);
  }
}

Kernel::Loaded& Kernel::on(int device, int64_t shared) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Loaded>& slot = devices_.at(static_cast<size_t>(device));
  Driver& d = driver();
  if (slot == nullptr) {
    auto loaded = std::make_unique<Loaded>();
    check<CompilationError>(d.cuModuleLoadData(&loaded->module, image_.c_str()), "loading a kernel on the GPU");
    check<CompilationError>(d.cuModuleGetFunction(&loaded->function, loaded->module, symbol_.c_str()),
                            "loading a kernel");
    void* memory = nullptr;
    check(d.cuMemHostAlloc(&memory, sizeof(KernelFault), kHostPortable | kHostMapped), "allocating memory for faults");
    loaded->fault = new (memory) KernelFault{};
    slot = std::move(loaded);
  }
  if (shared > slot->shared) {
    check(d.cuFuncSetAttribute(slot->function, kMostSharedMemory, static_cast<int>(shared)),
          "asking for shared memory");
    slot->shared = shared;
  }
  return *slot;
}

void Kernel::load(int device) { static_cast<void>(on(device)); }

std::vector<uint32_t> list_table(const LaunchArguments& arguments) {
  const size_t items = arguments.item_blocks.size();
  const size_t buffers = arguments.buffers.size() / items;
  const size_t sizes = arguments.sizes.size() / items;
  const ListTable layout{arguments.list_items, buffers + sizes};
  std::vector<uint32_t> table(layout.bytes() / sizeof(uint32_t), 0);
  const int64_t each = arguments.item_blocks.front();
  const bool even = std::all_of(arguments.item_blocks.begin(), arguments.item_blocks.end(),
                                [&](int64_t blocks) { return blocks == each; });
  if (even) table[0] = static_cast<uint32_t>(each);
  uint32_t* const first = table.data() + ListTable::kFirstBlocks / sizeof(uint32_t);
  std::fill_n(first, layout.items, UINT32_MAX);
  auto* row = reinterpret_cast<std::byte*>(table.data()) + layout.items_at();
  uint32_t so_far = 0;
  for (size_t i = 0; i < items; ++i) {
    first[i] = so_far;
    so_far += static_cast<uint32_t>(arguments.item_blocks[i]);
    std::memcpy(row, arguments.buffers.data() + i * buffers, buffers * sizeof(void*));
    row += buffers * sizeof(void*);
    if (sizes == 0) continue;
    std::memcpy(row, arguments.sizes.data() + i * sizes, sizes * sizeof(int64_t));
    row += sizes * sizeof(int64_t);
  }
  return table;
}

namespace {

// Numbers of the driver's interface (CUDA Driver API manual, "Tensor Map Object Management").
constexpr int kMapUint8 = 0, kMapUint16 = 1, kMapNotInterleaved = 0, kMapSwizzle128 = 3, kMapPromote256 = 3,
              kMapZeroFill = 0;

using EncodeTiled = Result(void* map, int type, uint32_t rank, void* address, const uint64_t* sizes,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                           int interleave, int swizzle, int promotion, int fill);

EncodeTiled* encode_tiled() {
  static EncodeTiled* const found = reinterpret_cast<EncodeTiled*>(dlsym(driver().library, "cuTensorMapEncodeTiled"));
  return found;
}

}  // namespace

std::vector<EncodedMap> encoded_maps(const LaunchArguments& arguments) {
  std::vector<EncodedMap> encoded(arguments.maps.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    const loops::TensorMap& map = arguments.maps[i];
    if (encode_tiled() == nullptr) throw Unsupported("the NVIDIA driver lacks cuTensorMapEncodeTiled");
    const auto bytes = static_cast<uint64_t>(map.bytes);
    std::vector<uint64_t> sizes, strides;
    std::vector<uint32_t> box;
    for (const auto& [size, stride, taken] : map.dims) {
      sizes.push_back(static_cast<uint64_t>(size));
      if (sizes.size() > 1) strides.push_back(static_cast<uint64_t>(stride) * bytes);
      box.push_back(static_cast<uint32_t>(taken));
    }
    const std::vector<uint32_t> each(box.size(), 1);
    auto* const from =
        static_cast<std::byte*>(arguments.buffers[static_cast<size_t>(map.buffer)]) + map.offset * map.bytes;
    check<Unsupported>(encode_tiled()(&encoded[i], map.bytes == 1 ? kMapUint8 : kMapUint16,
                                      static_cast<uint32_t>(box.size()), from, sizes.data(), strides.data(), box.data(),
                                      each.data(), kMapNotInterleaved, kMapSwizzle128, kMapPromote256, kMapZeroFill),
                       "describing an operand of a product to the copy engine");
  }
  return encoded;
}

void Kernel::launch(int device, void* stream, const LaunchArguments& arguments) {
  if (arguments.blocks <= 0) return;
  if (arguments.blocks > INT32_MAX) throw Unsupported("a kernel with more than 2^31 blocks");
  with_parameters(device, arguments, [&](void* function, void** parameters) {
    check(driver().cuLaunchKernel(function, static_cast<unsigned>(arguments.blocks), 1, 1,
                                  static_cast<unsigned>(arguments.threads), 1, 1,
                                  static_cast<unsigned>(arguments.shared), stream, parameters, nullptr),
          "launching a kernel on the GPU");
  });
}

bool Kernel::take_fault(KernelFault& fault) {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Loaded>& loaded : devices_) {
    if (loaded == nullptr || static_cast<volatile KernelFault*>(loaded->fault)->raised == 0) continue;
    fault = *loaded->fault;
    *loaded->fault = {};
    return true;
  }
  return false;
}

void upload(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  check(driver().cuMemcpyHtoDAsync(reinterpret_cast<uint64_t>(to), from, bytes, stream), "copying to the GPU");
  check(driver().cuStreamSynchronize(stream), "copying to the GPU");
}

void download(void* to, const void* from, size_t bytes, void* stream) {
  check(driver().cuMemcpyDtoHAsync(to, reinterpret_cast<uint64_t>(from), bytes, stream), "copying from the GPU");
  check(driver().cuStreamSynchronize(stream), "copying from the GPU");
}

}  // namespace tatara::cuda
