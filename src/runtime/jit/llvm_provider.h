// LLVM as a service: IR text in, object code or assembly out.
//
// The first provider is the shared library inside the llvmlite wheel, reached by dlopen and its exported C functions:
// nothing of LLVM is needed to build Tatara. Another one (a system libLLVM through the LLVM-C API) only has to implement
// LlvmProvider.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tatara {

struct TargetOptions {
  std::string triple;    // "": this machine's
  std::string cpu;       // "": this machine's, when the triple is this machine's
  std::string features;  // "": this machine's, when cpu is empty too
  // Of this machine, where `cpu` is empty: what is to be compiled for, without instructions that the machine lacks (options
  // cpu and cpu_features).
  std::string own_cpu, own_features;
  int opt_level = 1;  // of the IR passes: 0 none, 1 a short list for kernels, 2 and 3 LLVM's own
  enum class Output : uint8_t {
    kObject,    // a relocatable ELF object, for load_object (runtime/jit/jit_loader.h)
    kAssembly,  // text: PTX for NVPTX triples
  };
  Output output = Output::kObject;

  /// Everything that decides the result, for cache keys.
  std::string key() const;
};

struct CompiledObject {
  std::string bytes;
  double parse_seconds = 0;
  double optimize_seconds = 0;
  double emit_seconds = 0;
};

/// Thread-safe: any number of threads compile at once, each with a context of its own.
class LlvmProvider {
 public:
  virtual ~LlvmProvider() = default;
  /// Throws CompilationError when the text does not parse or verify, or the target is unknown.
  virtual CompiledObject compile(std::string_view llvm_ir, const TargetOptions& options) = 0;
  /// The module after the IR passes, as text, for explain() and for golden tests.
  virtual std::string optimize(std::string_view llvm_ir, const TargetOptions& options) = 0;
  /// Name and version, part of cache keys.
  virtual std::string version() const = 0;
  virtual std::string host_triple() const = 0;
  virtual std::string host_cpu() const = 0;
  virtual std::string host_features() const = 0;
};

/// The process's provider, loaded at first use (option llvm, else set_llvm_path, else whatever the dynamic linker finds as
/// libllvmlite.so). Throws CompilationError with the reason when it cannot be loaded; a later call tries again.
LlvmProvider& llvm_provider();
/// Path of libllvmlite.so as Python found it.
void set_llvm_path(std::string path);
/// True when LLVM was loaded in this process (a warm start must not need it).
bool llvm_loaded();
/// Identifies LLVM (size and headers of the library) and this machine's CPU for cache keys, without loading LLVM.
std::string llvm_fingerprint();
/// For tests: opens one library, not the process's.
std::unique_ptr<LlvmProvider> open_llvmlite(const std::string& path);

}  // namespace tatara
