#include "support/options.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

struct State {
  ForkSafeMutex mutex;
  std::array<std::optional<OptionValue>, kNumOptions> values;
  std::atomic<uint64_t> generation{0};
};

State& state() { return made_once<State>(); }

void check_choice(const OptionInfo& info, std::string_view text) {
  if (info.choices.empty() || std::find(info.choices.begin(), info.choices.end(), text) != info.choices.end()) return;
  std::string wanted;
  for (const std::string_view choice : info.choices) wanted += str_cat(wanted.empty() ? "" : ", ", choice);
  throw InvalidArgument(str_cat("option ", info.name, " (", info.env, ") is one of ", wanted, ", not '", text, "'"));
}

OptionValue parse(const OptionInfo& info, std::string_view text) {
  const auto fail = [&](std::string_view wanted) -> InvalidArgument {
    return InvalidArgument(str_cat("option ", info.name, " (", info.env, ") takes ", wanted, ", not '", text, "'"));
  };
  if (std::holds_alternative<bool>(info.fallback)) {
    const std::string_view word = trim(text);
    if (word == "1" || word == "true" || word == "on" || word == "yes") return true;
    if (word == "0" || word == "false" || word == "off" || word == "no" || word.empty()) return false;
    throw fail("0 or 1");
  }
  if (std::holds_alternative<int64_t>(info.fallback)) {
    const std::string_view word = trim(text);
    int64_t value = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (code != std::errc() || end != word.data() + word.size()) throw fail("an integer");
    return value;
  }
  check_choice(info, text);
  return std::string(text);
}

thread_local const OptionOverrides* t_overrides = nullptr;

const OptionInfo& info_of(Option option) { return option_table()[static_cast<size_t>(option)]; }

}  // namespace

const std::vector<OptionInfo>& option_table() {
  using Table = std::vector<OptionInfo>;
  return made_once([] {
    return Table{
        {Option::kLog, "log", "TATARA_LOG", std::string(),
         "Comma-separated channels that log to stderr: capture, guards, graph, fusion, loops, llvm, runtime, cache, "
         "passes, or all."},
        {Option::kDump, "dump", "TATARA_DUMP", std::string(),
         "A directory that receives the text of every stage of every compilation: graph, lowered graph, schedule, and "
         "loops "
         "and LLVM of each kernel."},
        {Option::kDisable, "disable", "TATARA_DISABLE", std::string(),
         "Comma-separated names of passes to skip; * skips every pass that is not needed for correctness.", true},
        {Option::kCache, "cache", "TATARA_CACHE", true, "Keep finished code in the disk cache.", true},
        {Option::kCacheDir, "cache_dir", "TATARA_CACHE_DIR", std::string(),
         "Directory of the disk cache; empty: $XDG_CACHE_HOME/tatara or ~/.cache/tatara. It must belong to the user, "
         "be "
         "writable by no other and be no symbolic link, or it is not used."},
        {Option::kCacheSizeMb, "cache_size_mb", "TATARA_CACHE_SIZE_MB", int64_t{1024},
         "Size of the disk cache in MB beyond which the entries unused for longest are removed."},
        {Option::kNumThreads, "num_threads", "TATARA_NUM_THREADS", int64_t{0},
         "Threads of a kernel; 0: as many as the host (torch.get_num_threads()) uses."},
        {Option::kCompileThreads, "compile_threads", "TATARA_COMPILE_THREADS", int64_t{0},
         "Threads that compile kernels; 0: one per core."},
        {Option::kVerify, "verify", "TATARA_VERIFY", false,
         "Verify the program after every pass, and the loops of every kernel.", true},
        {Option::kLlvm, "llvm", "TATARA_LLVM", std::string(),
         "Path of libllvmlite.so; empty: the one in the installed llvmlite wheel."},
        {Option::kOptLevel, "opt_level", "TATARA_OPT_LEVEL", int64_t{1},
         "LLVM's passes for kernels: 0 none, 1 a short list made for them, 2 and 3 LLVM's own pipelines.", true},
        {Option::kCpu, "cpu", "TATARA_CPU", std::string(),
         "LLVM's name of the CPU to compile for; empty: this machine's.", true},
        {Option::kCpuFeatures, "cpu_features", "TATARA_CPU_FEATURES", std::string(),
         "LLVM's feature string (+avx2,-avx512f,...); empty: this machine's.", true},
        {Option::kVectorWidth, "vector_width", "TATARA_VECTOR_WIDTH", int64_t{0},
         "Vector width in bits that kernels use on the CPU: 512, 256 or 128; 0, or more than there is: the widest.",
         true},
        {Option::kFallback, "fallback", "TATARA_FALLBACK", true,
         "Run what Tatara fails to compile in eager; off: raise the error.", true},
        {Option::kKeepOutputsMb, "keep_outputs_mb", "TATARA_KEEP_OUTPUTS_MB", int64_t{1024},
         "Memory in MB of big outputs that the caller has dropped and that stay allocated for the next call; 0: none.",
         true},
        {Option::kRecompileLimit, "recompile_limit", "TATARA_RECOMPILE_LIMIT", int64_t{16},
         "How many entries (compiled forms) a function may have, or a place behind a graph break; what fits none of "
         "them "
         "runs in eager, with a warning.",
         true},
        {Option::kCudaGraphs, "cuda_graphs", "TATARA_CUDA_GRAPHS", int64_t{8},
         "For how many sets of sizes a compiled graph on a GPU becomes a CUDA graph, launched as a whole; further sets "
         "launch its steps one by one. 0: all do.",
         true},
        {Option::kMatmul,
         "matmul",
         "TATARA_MATMUL",
         std::string("auto"),
         "Who multiplies big float32 and float64 matrices on the CPU: host, its library; native, our own kernels; "
         "auto, "
         "these where the library is MKL and the CPU not Intel's.",
         false,
         {"auto", "native", "host"}},
    };
  });
}

const OptionInfo* find_option(std::string_view name) {
  for (const OptionInfo& info : option_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

OptionScope::OptionScope(const OptionOverrides* overrides) : before_(t_overrides) { t_overrides = overrides; }
OptionScope::~OptionScope() { t_overrides = before_; }
const OptionOverrides* OptionScope::current() { return t_overrides; }

OptionValue option(Option option) {
  if (t_overrides != nullptr) {
    for (const auto& [which, value] : *t_overrides) {
      if (which == option) return value;
    }
  }
  const OptionInfo& info = info_of(option);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::optional<OptionValue>& value = s.values[static_cast<size_t>(option)];
  if (!value) {
    const char* text = std::getenv(std::string(info.env).c_str());
    value = text != nullptr ? parse(info, text) : info.fallback;
  }
  return *value;
}

bool option_bool(Option which) { return std::get<bool>(option(which)); }
int64_t option_int(Option which) { return std::get<int64_t>(option(which)); }
std::string option_text(Option which) { return std::get<std::string>(option(which)); }

void set_option(Option option, OptionValue value) {
  const OptionInfo& info = info_of(option);
  if (value.index() != info.fallback.index()) {
    throw InvalidArgument(str_cat("option ", info.name, " takes ",
                                  info.fallback.index() == 0   ? "a bool"
                                  : info.fallback.index() == 1 ? "an integer"
                                                               : "a string"));
  }
  if (const auto* text = std::get_if<std::string>(&value)) check_choice(info, *text);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.values[static_cast<size_t>(option)] = std::move(value);
  ++s.generation;
}

void set_option_text(Option option, std::string_view text) { set_option(option, parse(info_of(option), text)); }

void reset_option(Option option) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.values[static_cast<size_t>(option)].reset();
  ++s.generation;
}

uint64_t options_generation() { return state().generation.load(std::memory_order_acquire); }

bool is_disabled(std::string_view pass) {
  const std::string list = option_text(Option::kDisable);
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view word = trim(rest.substr(0, comma));
    if (word == pass || word == "*") return true;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return false;
}

std::string options_markdown() {
  std::string out = "| option | environment | default | per function | meaning |\n|---|---|---|---|---|\n";
  for (const OptionInfo& info : option_table()) {
    std::string fallback = std::visit([](const auto& value) { return str_cat(value); }, info.fallback);
    if (fallback.empty()) fallback = "empty";
    out += str_cat("| `", info.name, "` | `", info.env, "` | ", fallback, " | ", info.per_function ? "yes" : "", " | ",
                   info.doc, " |\n");
  }
  return out;
}

}  // namespace tatara
