// Finding torch's stable C interface in this process, and the numbers that stand for dtypes there.
#include "runtime/host/torch_abi.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "support/error.h"
#include "support/made_once.h"

namespace tatara {
namespace torch_abi {
namespace {

struct Loaded {
  Api api;
  bool ok = false;
  std::string why_not;
};

Loaded load_api() {
  Loaded loaded;
  void* library = open_library("libtorch_cpu.so");
  if (library == nullptr) {
    loaded.why_not = "torch is not loaded in this process";
    return loaded;
  }
#define TATARA_LOAD_SHIM(name, result, args)                                       \
  loaded.api.name = reinterpret_cast<result(*) args>(dlsym(library, #name));       \
  if (loaded.api.name == nullptr) {                                                \
    loaded.why_not = "this torch lacks " #name " (supported: torch 2.11 to 2.13)"; \
    return loaded;                                                                 \
  }
  TATARA_TORCH_SHIMS(TATARA_LOAD_SHIM)
#undef TATARA_LOAD_SHIM
  loaded.api.torch_exception_get_what_without_backtrace =
      reinterpret_cast<const char* (*)()>(dlsym(library, "torch_exception_get_what_without_backtrace"));
  loaded.api.torch_new_stable_ivalue =
      reinterpret_cast<ErrorCode (*)(StableIValue**)>(dlsym(library, "torch_new_stable_ivalue"));
  loaded.api.aoti_torch__reinterpret_tensor = reinterpret_cast<decltype(loaded.api.aoti_torch__reinterpret_tensor)>(
      dlsym(library, "aoti_torch__reinterpret_tensor"));
  loaded.api.aoti_torch_get_storage_size =
      reinterpret_cast<decltype(loaded.api.aoti_torch_get_storage_size)>(dlsym(library, "aoti_torch_get_storage_size"));
  load_symbol(library, loaded.api.is_conj, "_ZN2at6native7is_conjERKNS_6TensorE");
  load_symbol(library, loaded.api.is_neg, "_ZN2at6native6is_negERKNS_6TensorE");
  loaded.ok = true;
  return loaded;
}

}  // namespace

void* open_library(const char* file_name) {
  struct Search {
    const char* wanted;
    std::string path;
  } search{file_name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, s->wanted) == nullptr) return 0;
        s->path = info->dlpi_name;
        return 1;
      },
      &search);
  return search.path.empty() ? nullptr : dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

const Api* api(std::string* why_not) {
  // A failed look-up is not remembered: torch may be imported later.
  static constinit std::atomic<const Loaded*> good{nullptr};
  if (const Loaded* known = good.load(std::memory_order_acquire)) return &known->api;
  const Loaded attempt = load_api();
  if (!attempt.ok) {
    if (why_not != nullptr) *why_not = attempt.why_not;
    return nullptr;
  }
  const Loaded& first = made_once([&] { return attempt; });
  good.store(&first, std::memory_order_release);
  return &first.api;
}

namespace {
constexpr std::pair<DType, int32_t> kScalarTypes[] = {
    {DType::kUInt8, 0},     {DType::kInt8, 1},        {DType::kInt16, 2},         {DType::kInt32, 3},
    {DType::kInt64, 4},     {DType::kFloat16, 5},     {DType::kFloat32, 6},       {DType::kFloat64, 7},
    {DType::kComplex32, 8}, {DType::kComplex64, 9},   {DType::kComplex128, 10},   {DType::kBool, 11},
    {DType::kBFloat16, 15}, {DType::kFloat8E5M2, 23}, {DType::kFloat8E4M3FN, 24}, {DType::kUInt16, 27},
    {DType::kUInt32, 28},   {DType::kUInt64, 29},
};
}  // namespace

int32_t scalar_type(DType dtype) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (ours == dtype) return theirs;
  }
  throw InternalError("dtype without a host number");
}

DType from_scalar_type(int32_t code) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (theirs == code) return ours;
  }
  throw InvalidArgument("the host's dtype number " + std::to_string(code) + " is not supported");
}

const char* dtype_attribute(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "uint8";
    case DType::kInt8: return "int8";
    case DType::kUInt16: return "uint16";
    case DType::kInt16: return "int16";
    case DType::kUInt32: return "uint32";
    case DType::kInt32: return "int32";
    case DType::kUInt64: return "uint64";
    case DType::kInt64: return "int64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kComplex32: return "complex32";
    case DType::kComplex64: return "complex64";
    case DType::kComplex128: return "complex128";
    case DType::kFloat8E4M3FN: return "float8_e4m3fn";
    case DType::kFloat8E5M2: return "float8_e5m2";
  }
  return "float32";
}

}  // namespace torch_abi

}  // namespace tatara
