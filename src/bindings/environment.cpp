#include "bindings/environment.h"

#include <nanobind/stl/string.h>

#include "codegen/emit_cpu.h"
#include "runtime/base/cache.h"
#include "runtime/base/thread_pool.h"
#include "runtime/jit/llvm_provider.h"
#include "support/error.h"

namespace nb = nanobind;

namespace tatara {
namespace {

const char* isa_name(VectorIsa isa) {
  switch (isa) {
    case VectorIsa::kScalar: return "scalar";
    case VectorIsa::kAvx2: return "AVX2";
    case VectorIsa::kAvx512: return "AVX-512";
    case VectorIsa::kNeon: return "NEON";
  }
  return "?";
}

/// Loads LLVM.
nb::dict machine() {
  nb::dict dict;
  dict["vectors"] = isa_name(host_cpu_target().isa);
  dict["cores"] = available_cores();
  dict["threads"] = num_threads();
  dict["thread_pool"] = thread_pool_kind();
  try {
    LlvmProvider& llvm = llvm_provider();
    dict["llvm"] = llvm.version();
    dict["cpu"] = llvm.host_cpu();
    dict["triple"] = llvm.host_triple();
  } catch (const Error& error) {
    dict["llvm"] = std::string("not loaded: ") + error.what();
  }
  return dict;
}

nb::dict cache() {
  DiskCache& disk = disk_cache();
  const DiskCache::Size size = disk.size();
  const CacheStats stats = disk.stats();
  nb::dict dict;
  dict["directory"] = disk.directory();
  dict["why_not"] = disk.why_not();
  dict["key"] = disk.key_path();
  dict["entries"] = size.entries;
  dict["bytes"] = size.bytes;
  dict["hits"] = stats.hits;
  dict["misses"] = stats.misses;
  dict["damaged"] = stats.damaged;
  dict["foreign"] = stats.foreign;
  dict["writes"] = stats.writes;
  dict["failed_writes"] = stats.failed_writes;
  dict["evicted"] = stats.evicted;
  return dict;
}

}  // namespace

void bind_environment(nb::module_& m) {
  m.def("machine", &machine, nb::sig("def machine() -> dict[str, object]"),
        "What code is made for: vectors, CPU, LLVM, threads. Loads LLVM.");
  m.def("cache", &cache, nb::sig("def cache() -> dict[str, typing.Any]"),
        "The disk cache: place, size, counters, why it is not used.");
  m.def("clear_cache", [] { disk_cache().clear(); }, "Removes every entry of the disk cache.");
  m.def("llvm_loaded", &llvm_loaded, "Whether LLVM was loaded in this process.");
}

}  // namespace tatara
