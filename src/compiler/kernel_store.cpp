#include "compiler/kernel_store.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/base/cache.h"
#include "runtime/cuda/cuda.h"
#include "runtime/jit/jit_loader.h"
#include "runtime/jit/llvm_provider.h"
#include "support/cancel.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/made_once.h"

namespace tatara {
namespace {

// Part of every key: a hash of the emitter's sources, made by the build.
constexpr std::string_view kEmitter = TATARA_EMITTER_HASH;

// One symbol for all kernels of a CPU: each lives in an object of its own, so that names do not spoil sharing.
constexpr const char* kSymbol = "tatara_kernel";

// LLVM's own passes: they unroll and move what does not change out of loops, which here nobody does by hand.
constexpr int kGpuLevel = 2;

/// Code by key. Each kernel has pages of its own, so a program that goes on compiling new kernels must not keep them all:
/// when the table has doubled, those that no plan uses any more go.
struct Store {
  static constexpr size_t kFewest = 256;
  ForkSafeMutex mutex;
  std::unordered_map<std::string, KernelCode> code;
  size_t sweep_at = kFewest;

  KernelCode add(const std::string& key, KernelCode made) {
    const std::lock_guard lock(mutex);
    if (code.size() >= sweep_at) {
      std::erase_if(code, [](const auto& item) { return !item.second.shared(); });
      sweep_at = std::max(kFewest, 2 * code.size());
    }
    return code.emplace(key, std::move(made)).first->second;
  }
};

Store& store() { return made_once<Store>(); }

KernelCode load(std::string_view object, const std::string& symbol, bool on_gpu) {
  if (on_gpu) {
    KernelCode code;
    code.gpu = std::make_shared<cuda::Kernel>(std::string(object), symbol);
    return code;
  }
  std::shared_ptr<LoadedObject> loaded = load_object(object);
  void* address = loaded->find(symbol);
  if (address == nullptr) throw CompilationError("compiled object lacks the symbol " + symbol);
  KernelCode code;
  code.fn = reinterpret_cast<KernelFn>(address);
  code.owner = std::move(loaded);
  return code;
}

TargetOptions target_options(const KernelTarget& target) {
  TargetOptions options;
  if (target.gpu) {
    options.triple = kGpuTriple;
    options.cpu = target.gpu->cpu;
    options.features = target.gpu->features;
    options.opt_level = kGpuLevel;
    options.output = TargetOptions::Output::kAssembly;
    return options;
  }
  options.triple = target.cpu.triple;
  options.cpu = target.cpu.cpu;
  options.features = target.cpu.features;
  options.own_cpu = target.code.cpu;
  options.own_features = target.code.cpu_features;
  options.opt_level = target.code.opt_level;
  return options;
}

/// "tatara_mul_tanh_add".
std::string gpu_symbol(std::string_view name) {
  constexpr size_t kLongest = 100;
  std::string symbol = "tatara_";
  for (const char c : name.substr(0, kLongest)) symbol += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return symbol;
}

/// Of a CPU kernel's text, that LLVM compiles in a few hundredths of a second: nobody need be able to end that early. Most kernels
/// are such, and a thread for each, with memory of its own, makes a first call a twentieth slower where there are many cores.
constexpr size_t kQuickText = 32 * 1024;

CompiledObject compile_text(const std::string& text, const KernelTarget& target) {
  if (!target.gpu && text.size() <= kQuickText) {
    check_cancelled();
    return llvm_provider().compile(text, target_options(target));
  }
  const auto object = std::make_shared<CompiledObject>();
  run_or_abandon([object, text, target] {
    *object = llvm_provider().compile(text, target_options(target));
    if (target.gpu) object->bytes = cuda::assemble(object->bytes, *target.gpu);
  });
  return *object;
}

}  // namespace

std::string emit_kernel(const loops::Kernel& kernel, const KernelTarget& target, std::string_view symbol) {
  return target.gpu ? emit_gpu(kernel, *target.gpu, symbol) : emit_cpu(kernel, target.cpu, symbol);
}

std::string target_key(const KernelTarget& target) {
  KeyBuilder key;
  key.add(kEmitter).add(llvm_fingerprint()).add(target_options(target).key());
  key.add(static_cast<uint64_t>(target.cpu.isa)).add(static_cast<uint64_t>(target.cpu.has_fma));
  key.add(static_cast<uint64_t>(target.gpu ? target.gpu->capability : 0));
  return key.finish().str();
}

KernelRequest make_kernel_request(const loops::Kernel& kernel, const KernelTarget& target) {
  return request_of_text(loops::print_kernel(kernel), kernel.name, target);
}

KernelRequest request_of_text(std::string loop_text, std::string_view name, const KernelTarget& target) {
  KernelRequest request;
  request.loop_text = std::move(loop_text);
  // The first line names the kernel; the rest decides the code.
  std::string_view body = request.loop_text;
  const size_t name_at = body.find(name);
  KeyBuilder key;
  key.add(target_key(target));
  // Profilers of GPUs show symbols, so that there the name is part of the code.
  if (!target.gpu && name_at != std::string_view::npos && name_at < body.find('\n')) {
    key.add(body.substr(0, name_at)).add(body.substr(name_at + name.size()));
  } else {
    key.add(body);
  }
  request.key = key.finish().str();
  request.symbol = target.gpu ? gpu_symbol(name) : kSymbol;
  return request;
}

KernelCode find_kernel(const std::string& key, const std::string& symbol, bool on_gpu, bool use_disk,
                       KernelOrigin& origin) {
  {
    const std::lock_guard lock(store().mutex);
    const auto found = store().code.find(key);
    if (found != store().code.end()) {
      origin = KernelOrigin::kMemory;
      return found->second;
    }
  }
  const std::optional<std::string> object = use_disk ? disk_cache(true).get(key) : std::nullopt;
  if (!object) return {};
  KernelCode code;
  try {
    code = load(*object, symbol, on_gpu);
  } catch (const CompilationError& error) {
    TATARA_LOG(kCache, error.what());
    disk_cache(true).remove(key);
    return {};
  }
  origin = KernelOrigin::kDisk;
  return store().add(key, std::move(code));
}

KernelCode obtain_kernel(const KernelRequest& request, const loops::Kernel& kernel, const KernelTarget& target,
                         bool use_disk, KernelOrigin& origin, std::string* llvm_text) {
  const bool on_gpu = target.gpu.has_value();
  KernelCode code = find_kernel(request.key, request.symbol, on_gpu, use_disk, origin);
  if (code) return code;
  const std::string text = emit_kernel(kernel, target, request.symbol);
  if (llvm_text != nullptr) *llvm_text = text;
  const CompiledObject object = compile_text(text, target);
  code = load(object.bytes, request.symbol, on_gpu);
  origin = KernelOrigin::kCompiled;
  if (use_disk) disk_cache(true).put(request.key, object.bytes);
  return store().add(request.key, std::move(code));
}

void clear_kernel_store() {
  const std::lock_guard lock(store().mutex);
  store().code.clear();
}

}  // namespace tatara
