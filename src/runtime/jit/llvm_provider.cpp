#include "runtime/jit/llvm_provider.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/jit/cpu_options.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace {

// Handles of llvmlite's C interface (llvmlite/binding/*.py has the signatures). All are opaque.
using Context = void*;
using Module = void*;
using Target = void*;
using TargetMachine = void*;
using PassManager = void*;
using PassBuilder = void*;
using TuningOptions = void*;
using Buffer = void*;

/// The functions of libllvmlite that we call: one line each, with its signature.
#define TATARA_LLVMLITE_FUNCTIONS(F)                                                                                 \
  F(InitializeAllTargetInfos, void())                                                                                \
  F(InitializeAllTargets, void())                                                                                    \
  F(InitializeAllTargetMCs, void())                                                                                  \
  F(InitializeAllAsmPrinters, void())                                                                                \
  F(GetVersionInfo, unsigned())                                                                                      \
  F(GetProcessTriple, void(const char**))                                                                            \
  F(GetHostCPUName, void(const char**))                                                                              \
  F(GetHostCPUFeatures, int(const char**))                                                                           \
  F(DisposeString, void(const char*))                                                                                \
  F(ContextCreate, Context())                                                                                        \
  F(ContextDispose, void(Context))                                                                                   \
  F(ParseAssembly, Module(Context, const char*, const char**))                                                       \
  F(VerifyModule, int(Module, const char**))                                                                         \
  F(DisposeModule, void(Module))                                                                                     \
  F(PrintModuleToString, void(Module, const char**))                                                                 \
  F(GetTargetFromTriple, Target(const char*, const char**))                                                          \
  F(CreateTargetMachine, TargetMachine(Target, const char*, const char*, const char*, int, const char*, const char*, \
                                       int, int, const char*))                                                       \
  F(DisposeTargetMachine, void(TargetMachine))                                                                       \
  F(CreateTargetMachineData, void*(TargetMachine))                                                                   \
  F(CopyStringRepOfTargetData, void(void*, const char**))                                                            \
  F(DisposeTargetData, void(void*))                                                                                  \
  F(TargetMachineEmitToMemory, Buffer(TargetMachine, Module, int, const char**))                                     \
  F(GetBufferStart, const char*(Buffer))                                                                             \
  F(GetBufferSize, size_t(Buffer))                                                                                   \
  F(DisposeMemoryBuffer, void(Buffer))                                                                               \
  F(CreatePipelineTuningOptions, TuningOptions())                                                                    \
  F(PTOSetLoopVectorization, void(TuningOptions, bool))                                                              \
  F(PTOSetSLPVectorization, void(TuningOptions, bool))                                                               \
  F(PTOSetLoopInterleaving, void(TuningOptions, bool))                                                               \
  F(DisposePipelineTuningOptions, void(TuningOptions))                                                               \
  F(CreatePassBuilder, PassBuilder(TargetMachine, TuningOptions))                                                    \
  F(DisposePassBuilder, void(PassBuilder))                                                                           \
  F(buildPerModuleDefaultPipeline, PassManager(PassBuilder, int))                                                    \
  F(CreateNewModulePassManager, PassManager())                                                                       \
  F(module_AddSimplifyCFGPass, void(PassManager))                                                                    \
  F(module_AddSROAPass, void(PassManager))                                                                           \
  F(module_AddNewGVNPass, void(PassManager))                                                                         \
  F(module_AddLoopRotatePass, void(PassManager))                                                                     \
  F(module_AddInstCombinePass, void(PassManager))                                                                    \
  F(RunNewModulePassManager, void(PassManager, Module, PassBuilder))                                                 \
  F(DisposeNewModulePassManger, void(PassManager))

template <typename Signature>
using Pointer = Signature*;

struct Api {
#define TATARA_DECLARE(name, ...) Pointer<__VA_ARGS__> name = nullptr;
  TATARA_LLVMLITE_FUNCTIONS(TATARA_DECLARE)
#undef TATARA_DECLARE
};

Api load_api(const std::string& path) {
  // RTLD_LOCAL: another LLVM in the process (torch's, numba's own) keeps its symbols. Never closed.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw CompilationError(str_cat("LLVM cannot be loaded from ", path, ": ", reason == nullptr ? "unknown" : reason));
  }
  Api api;
  const auto find = [&](const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) throw CompilationError(str_cat("LLVM library ", path, " lacks the function ", name));
    return symbol;
  };
#define TATARA_FIND(name, ...) api.name = reinterpret_cast<Pointer<__VA_ARGS__>>(find("LLVMPY_" #name));
  TATARA_LLVMLITE_FUNCTIONS(TATARA_FIND)
#undef TATARA_FIND
  return api;
}

/// Calls the function when it goes out of scope.
template <typename Fn>
class Finally {
 public:
  explicit Finally(Fn fn) : fn_(std::move(fn)) {}
  ~Finally() { fn_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  Fn fn_;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A target machine and what belongs to it: made once per options and thread, then kept.
struct Machine {
  TargetMachine machine = nullptr;
  TuningOptions tuning = nullptr;
  PassBuilder builder = nullptr;
  std::string layout;
  std::string triple;
};

int effective_level(const TargetOptions& options) { return std::clamp(options.opt_level, 0, 3); }

class LlvmliteProvider final : public LlvmProvider {
 public:
  explicit LlvmliteProvider(const std::string& path) : api_(load_api(path)), path_(path) {
    api_.InitializeAllTargetInfos();
    api_.InitializeAllTargets();
    api_.InitializeAllTargetMCs();
    api_.InitializeAllAsmPrinters();
    host_triple_ = text([&](const char** out) { api_.GetProcessTriple(out); });
    host_cpu_ = text([&](const char** out) { api_.GetHostCPUName(out); });
    host_features_ = text([&](const char** out) { static_cast<void>(api_.GetHostCPUFeatures(out)); });
  }

  ~LlvmliteProvider() override {
    for (auto& [key, machines] : idle_) {
      for (Machine* machine : machines) destroy(machine);
    }
  }

  CompiledObject compile(std::string_view llvm_ir, const TargetOptions& options) override {
    CompiledObject result;
    with_module(llvm_ir, options, result, [&](Module module, const Machine& machine) {
      const auto start = Clock::now();
      const char* error = nullptr;
      const int object = options.output == TargetOptions::Output::kObject ? 1 : 0;
      Buffer buffer = api_.TargetMachineEmitToMemory(machine.machine, module, object, &error);
      const std::string message = take(error);
      if (buffer == nullptr) throw CompilationError(str_cat("LLVM cannot emit code: ", message));
      result.bytes.assign(api_.GetBufferStart(buffer), api_.GetBufferSize(buffer));
      api_.DisposeMemoryBuffer(buffer);
      result.emit_seconds = seconds_since(start);
    });
    TATARA_LOG(kLlvm, "compiled at level ", effective_level(options), ": ", llvm_ir.size(), " bytes of IR to ",
               result.bytes.size(), " bytes: parse ", result.parse_seconds * 1e3, " ms, optimise ",
               result.optimize_seconds * 1e3, " ms, emit ", result.emit_seconds * 1e3, " ms");
    return result;
  }

  std::string optimize(std::string_view llvm_ir, const TargetOptions& options) override {
    std::string out;
    CompiledObject times;
    with_module(llvm_ir, options, times, [&](Module module, const Machine&) {
      out = text([&](const char** printed) { api_.PrintModuleToString(module, printed); });
    });
    return out;
  }

  std::string version() const override {
    const unsigned packed = api_.GetVersionInfo();
    return str_cat("llvmlite LLVM ", packed >> 16, ".", (packed >> 8) & 0xff, ".", packed & 0xff);
  }
  std::string host_triple() const override { return host_triple_; }
  std::string host_cpu() const override { return host_cpu_; }
  std::string host_features() const override { return host_features_; }

 private:
  /// Copies and frees a string that LLVM made. Null gives "".
  std::string take(const char* made) const {
    if (made == nullptr) return {};
    std::string copy = made;
    api_.DisposeString(made);
    return copy;
  }

  template <typename Fn>
  std::string text(Fn&& fn) const {
    const char* made = nullptr;
    fn(&made);
    return take(made);
  }

  /// Parses, verifies and optimises, then calls fn(module, machine).
  template <typename Fn>
  void with_module(std::string_view llvm_ir, const TargetOptions& options, CompiledObject& times, Fn&& fn) {
    // LLVM's own locks (of its registries) are not made for forks.
    const ForkSection section;
    const auto start = Clock::now();
    Machine* machine = acquire(options);
    const Finally give_back([&] { release(options, machine); });
    Context context = api_.ContextCreate();
    const Finally dispose_context([&] { api_.ContextDispose(context); });
    // The parser gives accesses without an alignment the one that the layout has for their type.
    const std::string source =
        str_cat("target datalayout = \"", machine->layout, "\"\ntarget triple = \"", machine->triple, "\"\n", llvm_ir);
    const char* error = nullptr;
    Module module = api_.ParseAssembly(context, source.c_str(), &error);
    std::string message = take(error);
    if (module == nullptr || !message.empty()) {
      if (module != nullptr) api_.DisposeModule(module);
      throw CompilationError(str_cat("LLVM cannot parse the generated code: ", message));
    }
    const Finally dispose_module([&] { api_.DisposeModule(module); });
    error = nullptr;
    const bool broken = api_.VerifyModule(module, &error) != 0;
    message = take(error);
    if (broken) throw CompilationError(str_cat("LLVM rejects the generated code: ", message));
    times.parse_seconds = seconds_since(start);

    const auto optimize_start = Clock::now();
    if (const int level = effective_level(options); level > 0) {
      PassManager passes = level == 1 ? light_pipeline() : api_.buildPerModuleDefaultPipeline(machine->builder, level);
      const Finally dispose_passes([&] { api_.DisposeNewModulePassManger(passes); });
      api_.RunNewModulePassManager(passes, module, machine->builder);
    }
    times.optimize_seconds = seconds_since(optimize_start);
    fn(module, *machine);
  }

  /// What kernels need that are emitted in SSA form with explicit vectors: 1.3 ms where LLVM's own O2 takes 10 ms
  /// (docs/performance.md), with the same code in the end.
  PassManager light_pipeline() const {
    PassManager passes = api_.CreateNewModulePassManager();
    api_.module_AddSimplifyCFGPass(passes);
    api_.module_AddSROAPass(passes);
    api_.module_AddNewGVNPass(passes);
    api_.module_AddLoopRotatePass(passes);
    api_.module_AddInstCombinePass(passes);
    api_.module_AddSimplifyCFGPass(passes);
    return passes;
  }

  Machine* acquire(const TargetOptions& options) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Machine*>& idle = idle_[options.key()];
      if (!idle.empty()) {
        Machine* machine = idle.back();
        idle.pop_back();
        return machine;
      }
    }
    return create(options);
  }

  void release(const TargetOptions& options, Machine* machine) {
    const std::lock_guard lock(mutex_);
    idle_[options.key()].push_back(machine);
  }

  Machine* create(const TargetOptions& options) {
    const bool is_host = options.triple.empty() || options.triple == host_triple_;
    auto machine = std::make_unique<Machine>();
    machine->triple = options.triple.empty() ? host_triple_ : options.triple;
    std::string cpu = options.cpu;
    std::string features = options.features;
    if (is_host && cpu.empty()) {
      cpu = options.own_cpu;
      if (features.empty()) features = options.own_features;
      const auto join = [](const std::string& first, const std::string& then) {
        return first.empty() || then.empty() ? first + then : str_cat(first, ",", then);
      };
      // The code runs on this machine, whatever CPU it is made for.
      features = cpu.empty() ? join(host_features_, features) : join(features, lacking_features(host_features_));
      if (cpu.empty()) cpu = host_cpu_;
    }
    const char* error = nullptr;
    Target target = api_.GetTargetFromTriple(machine->triple.c_str(), &error);
    const std::string message = take(error);
    if (target == nullptr) throw CompilationError(str_cat("LLVM has no target ", machine->triple, ": ", message));
    // Position independent with the small code model: the loader puts code, constants and the tables of addresses of
    // one object into one mapping. Code generation at level 2 whatever the level of the IR passes: level 1 saves a
    // tenth of the time and costs register allocation quality.
    const int level = effective_level(options) == 0 ? 0 : 2;
    machine->machine = api_.CreateTargetMachine(target, machine->triple.c_str(), cpu.c_str(), features.c_str(), level,
                                                "pic", "small", 0, 0, "");
    if (machine->machine == nullptr) {
      throw CompilationError(str_cat("LLVM cannot make a target machine for ", machine->triple, " ", cpu));
    }
    void* data = api_.CreateTargetMachineData(machine->machine);
    machine->layout = text([&](const char** out) { api_.CopyStringRepOfTargetData(data, out); });
    api_.DisposeTargetData(data);
    // Kernels come with explicit vectors: the vectorisers would only cost time and second-guess the schedule.
    machine->tuning = api_.CreatePipelineTuningOptions();
    api_.PTOSetLoopVectorization(machine->tuning, false);
    api_.PTOSetSLPVectorization(machine->tuning, false);
    api_.PTOSetLoopInterleaving(machine->tuning, false);
    machine->builder = api_.CreatePassBuilder(machine->machine, machine->tuning);
    return machine.release();
  }

  void destroy(Machine* machine) const {
    api_.DisposePassBuilder(machine->builder);
    api_.DisposePipelineTuningOptions(machine->tuning);
    api_.DisposeTargetMachine(machine->machine);
    delete machine;
  }

  const Api api_;
  const std::string path_;
  std::string host_triple_;
  std::string host_cpu_;
  std::string host_features_;
  ForkSafeMutex mutex_;
  std::map<std::string, std::vector<Machine*>> idle_;  // by TargetOptions::key()
};

struct Process {
  ForkSafeMutex mutex;
  std::string path;
  std::string fingerprint;  // of the library at fingerprint_path
  std::string fingerprint_path;
  std::atomic<LlvmProvider*> provider{nullptr};
};

Process& process() { return made_once<Process>(); }

std::string present_path(const std::string& from_python) {
  std::string path = option_text(Option::kLlvm);
  if (path.empty()) path = from_python;
  // Without a path the dynamic linker's own search decides.
  return path.empty() ? "libllvmlite.so" : path;
}

/// What the CPU says about itself: model and every feature bit, so that code is not carried to a machine that lacks one.
std::string cpu_fingerprint() {
  std::string out;
#if defined(__x86_64__)
  const auto add = [&](unsigned leaf, unsigned subleaf, bool ebx_too) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) == 0) return;
    out += str_cat("/", a, ".", ebx_too ? b : 0u, ".", c, ".", d);
  };
  out = "x86_64";
  add(1, 0, false);  // its ebx has the number of the core we happen to run on
  add(7, 0, true);
  add(7, 1, true);
  add(0x80000001u, 0, true);
#else
  out = str_cat("hwcap/", getauxval(AT_HWCAP), ".", getauxval(AT_HWCAP2));
#endif
  return out;
}

/// Size and headers of the file, not its path or time: the same wheel in two environments is the same LLVM. The headers
/// hold the build id and the size of every segment.
std::string library_fingerprint(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return str_cat("no file ", path);
  const auto size = static_cast<int64_t>(file.tellg());
  std::string head(4096, '\0');
  file.seekg(0);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return str_cat(size, ".", hash128(head).str());
}

}  // namespace

std::string TargetOptions::key() const {
  const int level = effective_level(*this);
  return str_cat(triple, "|", cpu, "|", features, "|", level, "|", output, "|",
                 cpu.empty() ? own_cpu + "|" + own_features : std::string());
}

std::unique_ptr<LlvmProvider> open_llvmlite(const std::string& path) {
  return std::make_unique<LlvmliteProvider>(path);
}

LlvmProvider& llvm_provider() {
  Process& p = process();
  if (LlvmProvider* provider = p.provider.load(std::memory_order_acquire)) return *provider;
  const std::lock_guard lock(p.mutex);
  if (LlvmProvider* provider = p.provider.load(std::memory_order_acquire)) return *provider;
  const std::string path = present_path(p.path);
  const auto start = Clock::now();
  LlvmProvider* provider = open_llvmlite(path).release();
  TATARA_LOG(kLlvm, "loaded ", provider->version(), " from ", path, " in ", seconds_since(start) * 1e3, " ms");
  p.provider.store(provider, std::memory_order_release);
  return *provider;
}

void set_llvm_path(std::string path) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  p.path = std::move(path);
}

std::string llvm_fingerprint() {
  const std::string& cpu = made_once([] { return cpu_fingerprint(); });
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  const std::string path = present_path(p.path);
  if (p.fingerprint_path != path) {
    p.fingerprint_path = path;
    p.fingerprint = str_cat(library_fingerprint(path), "|", cpu);
  }
  return p.fingerprint;
}

bool llvm_loaded() { return process().provider.load(std::memory_order_acquire) != nullptr; }

}  // namespace tatara
