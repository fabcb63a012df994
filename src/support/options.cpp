#include "support/options.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>

#include "support/error.h"
#include "support/fork.h"
#include "support/log.h"
#include "support/made_once.h"

namespace tatara {
namespace {

struct State {
  ForkSafeMutex mutex;
  std::array<std::optional<OptionValue>, kNumOptions> values;
  std::atomic<uint64_t> generation{0};
  std::array<std::atomic<OptionChecker>, kNumOptions> checkers{};
};

State& state() { return made_once<State>(); }

bool is_one_of(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Calls `see` with each word of a list with commas until it returns false; whether it never did. An empty list has none.
template <typename Fn>
bool all_words(std::string_view list, Fn&& see) {
  while (!trim(list).empty()) {
    const size_t comma = list.find(',');
    if (!see(trim(list.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return true;
}

/// Insertions, deletions and replacements that make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

/// "; did you mean 'cse'?" for the first of the words in `text` that is none of those allowed; empty: nothing is like it.
std::string suggestion(const OptionRange& range, std::string_view text) {
  std::string wrong;
  if (range.kind == OptionRange::Kind::kWord) wrong = text;
  if (range.kind == OptionRange::Kind::kWords) {
    static_cast<void>(all_words(text, [&](std::string_view word) {
      if (!is_one_of(range.words, word)) wrong = word;
      return wrong.empty();
    }));
  }
  std::string_view nearest;
  size_t least = wrong.size() / 2 + 1;
  for (const std::string_view word : range.words) {
    const size_t distance = edit_distance(wrong, word);
    if (distance >= least) continue;
    nearest = word;
    least = distance;
  }
  return wrong.empty() || nearest.empty() ? std::string() : str_cat("; did you mean '", nearest, "'?");
}

template <typename T>
std::string listed(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) out += str_cat(out.empty() ? "" : ", ", value);
  return out;
}

/// Whether `text` is a directory, or lies (at any depth) in one.
bool may_be_directory(const std::string& text) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(text, error);
  while (!error && !std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return std::filesystem::is_directory(place, error);
}

bool takes_text(const OptionRange& range, const std::string& text) {
  using Kind = OptionRange::Kind;
  // C code, which reads paths and names, would see a part of it.
  if (text.find('\0') != std::string::npos) return false;
  std::error_code error;
  switch (range.kind) {
    case Kind::kWord: return is_one_of(range.words, text);
    case Kind::kWords: return all_words(text, [&](std::string_view word) { return is_one_of(range.words, word); });
    case Kind::kFile: return text.find('/') == std::string::npos || std::filesystem::is_regular_file(text, error);
    case Kind::kDirectory: return text.empty() || may_be_directory(text);
    default: return true;
  }
}

bool takes_number(const OptionRange& range, int64_t number) {
  if (range.kind == OptionRange::Kind::kInteger) return number >= range.least && number <= range.most;
  return std::find(range.numbers.begin(), range.numbers.end(), number) != range.numbers.end();
}

OptionValue parse(const OptionInfo& info, std::string_view text) {
  const auto fail = [&](std::string_view value) {
    return InvalidArgument(str_cat("option ", info.name, " (environment ", info.env, ") takes ", option_takes(info),
                                   ", not '", value, "'"));
  };
  const std::string_view word = trim(text);
  if (std::holds_alternative<bool>(info.fallback)) {
    if (word == "1" || word == "true" || word == "on" || word == "yes") return true;
    if (word == "0" || word == "false" || word == "off" || word == "no" || word.empty()) return false;
    throw fail(text);
  }
  if (std::holds_alternative<int64_t>(info.fallback)) {
    int64_t value = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (code != std::errc() || end != word.data() + word.size()) throw fail(text);
    check_option(info, value);
    return value;
  }
  std::string value(text);
  check_option(info, value);
  return value;
}

OptionValue from_environment(const OptionInfo& info) {
  const char* text = std::getenv(std::string(info.env).c_str());
  return text != nullptr ? parse(info, text) : info.fallback;
}

const OptionInfo& info_of(Option option) { return option_table()[static_cast<size_t>(option)]; }

}  // namespace

const std::vector<OptionInfo>& option_table() {
  using Table = std::vector<OptionInfo>;
  using Range = OptionRange;
  constexpr int64_t kMany = int64_t{1} << 30;
  const Range any, file{Range::Kind::kFile}, directory{Range::Kind::kDirectory};
  return made_once([&] {
    return Table{
        {Option::kLog, "log", "TATARA_LOG", std::string(),
         Range::list({"capture", "guards", "graph", "fusion", "loops", "llvm", "runtime", "cache", "passes", "all"}),
         "Comma-separated channels that log to stderr."},
        {Option::kDump, "dump", "TATARA_DUMP", std::string(), directory,
         "A directory that receives the text of every stage of every compilation: graph, the graph before and after "
         "each "
         "pass (for tatara-opt), schedule, loops and LLVM of each kernel; and of every entry its tape, graph and "
         "guards."},
        {Option::kDisable, "disable", "TATARA_DISABLE", std::string(),
         Range::list({"*",
                      "align_attention_masks",
                      "align_matmuls",
                      "attention_gradients",
                      "canonicalize",
                      "split_biases",
                      "channels_last",
                      "cpu_products",
                      "copy_turns",
                      "cse",
                      "dce",
                      "decompose",
                      "delays",
                      "differentiable_form",
                      "expand_batches",
                      "expand_softmax",
                      "expand_transforms",
                      "fuse_attention",
                      "fusion",
                      "generator_states",
                      "grouped_launches",
                      "join_biases",
                      "online_softmax",
                      "own_products",
                      "read_parts",
                      "rematerialize",
                      "draw_ahead",
                      "join_writes",
                      "roll_loops",
                      "short_reductions",
                      "softmax_products",
                      "sum_parts",
                      "thin_products",
                      "write_parts"}),
         "Comma-separated names of passes to skip; * skips all. A graph that does not compile without them runs in "
         "eager.",
         true},
        {Option::kCache, "cache", "TATARA_CACHE", true, any, "Keep finished code in the disk cache.", true},
        {Option::kCacheDir, "cache_dir", "TATARA_CACHE_DIR", std::string(), any,
         "Directory of the disk cache; empty: $XDG_CACHE_HOME/tatara or ~/.cache/tatara. It must belong to the user, "
         "be "
         "writable by no other and be no symbolic link, or it is not used."},
        {Option::kCacheSizeMb, "cache_size_mb", "TATARA_CACHE_SIZE_MB", int64_t{1024}, Range::integer(0, kMany),
         "Size of the disk cache in MB beyond which the entries unused for longest are removed."},
        {Option::kNumThreads, "num_threads", "TATARA_NUM_THREADS", int64_t{0}, Range::integer(0, 4096),
         "Threads of a kernel; 0: as many as torch uses (torch.get_num_threads())."},
        {Option::kCompileThreads, "compile_threads", "TATARA_COMPILE_THREADS", int64_t{0}, Range::integer(0, 4096),
         "Threads that compile kernels; 0: one per core."},
        {Option::kVerify, "verify", "TATARA_VERIFY", false, any,
         "Verify the program after every pass, and the loops of every kernel.", true},
        {Option::kLlvm, "llvm", "TATARA_LLVM", std::string(), file,
         "Path of libllvmlite.so; empty: the one in the installed llvmlite wheel."},
        {Option::kOptLevel, "opt_level", "TATARA_OPT_LEVEL", int64_t{1}, Range::integer(0, 3),
         "LLVM's passes for kernels: 0 none, 1 a short list made for them, 2 and 3 LLVM's own pipelines.", true},
        {Option::kCpu, "cpu", "TATARA_CPU", std::string(), any,
         "LLVM's name of the CPU to compile for; empty: this machine's. Instructions that this machine lacks are not "
         "used.",
         true},
        {Option::kCpuFeatures, "cpu_features", "TATARA_CPU_FEATURES", std::string(), any,
         "LLVM's names of features of this machine to use or not (+avx2,-avx512f,...), beside those of the CPU.", true},
        {Option::kVectorWidth, "vector_width", "TATARA_VECTOR_WIDTH", int64_t{0}, Range::of({0, 128, 256, 512}),
         "Vector width in bits that kernels use on the CPU; 0, or more than there is: the widest.", true},
        {Option::kFallback, "fallback", "TATARA_FALLBACK", true, any,
         "Run what Tatara fails to compile in eager; off: raise the error.", true},
        {Option::kKeepOutputsMb, "keep_outputs_mb", "TATARA_KEEP_OUTPUTS_MB", int64_t{1024}, Range::integer(0, kMany),
         "Memory in MB of big outputs that the caller has dropped and that stay allocated for the next call; 0: none.",
         true},
        {Option::kRecompileLimit, "recompile_limit", "TATARA_RECOMPILE_LIMIT", int64_t{16}, Range::integer(1, kMany),
         "How many entries (compiled forms) a function may have, or a place behind a graph break; what fits none of "
         "them runs in eager, with a warning.",
         true},
        {Option::kCudaGraphs, "cuda_graphs", "TATARA_CUDA_GRAPHS", int64_t{8}, Range::integer(0, kMany),
         "For how many sets of sizes a compiled graph on a GPU becomes a CUDA graph, launched as a whole; further sets "
         "launch its steps one by one. 0: all do.",
         true},
        {Option::kMatmul, "matmul", "TATARA_MATMUL", std::string("auto"), Range::word({"auto", "native", "host"}),
         "Who multiplies big float32 and float64 matrices on the CPU: host, torch's library; native, our own kernels; "
         "auto, ours where the library is MKL and the CPU is not Intel's."},
    };
  });
}

const OptionInfo* find_option(std::string_view name) {
  for (const OptionInfo& info : option_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

std::string option_takes(const OptionInfo& info) {
  using Kind = OptionRange::Kind;
  const OptionRange& range = info.range;
  if (std::holds_alternative<bool>(info.fallback)) return "True or False (1 or 0 in the environment)";
  switch (range.kind) {
    case Kind::kInteger: return str_cat("an integer from ", range.least, " to ", range.most);
    case Kind::kNumber: return str_cat("one of ", listed(range.numbers));
    case Kind::kWord: return str_cat("one of ", listed(range.words));
    case Kind::kWords: return str_cat("a string with commas between any of ", listed(range.words));
    case Kind::kFile:
      return "the path of a file that there is, a name that the dynamic linker knows, or an empty string";
    case Kind::kDirectory: return "the path of a directory, or an empty string";
    default: return "a string";
  }
}

void check_option(const OptionInfo& info, const OptionValue& value) {
  bool good = value.index() == info.fallback.index();
  std::string allowed;
  if (const auto* number = std::get_if<int64_t>(&value); good && number != nullptr) {
    good = takes_number(info.range, *number);
  } else if (const auto* text = std::get_if<std::string>(&value); good && text != nullptr) {
    good = takes_text(info.range, *text);
    const OptionChecker checker = state().checkers[static_cast<size_t>(info.option)];
    if (good && checker != nullptr) allowed = checker(*text);
  }
  if (good && allowed.empty()) return;
  const std::string shown = std::visit([](const auto& each) { return str_cat(each); }, value);
  throw InvalidArgument(str_cat("option ", info.name, " takes ", allowed.empty() ? option_takes(info) : allowed,
                                ", not '", shown, "' (tatara.config.", info.name, ", environment ", info.env, ")",
                                suggestion(info.range, shown)));
}

void set_option_checker(Option option, OptionChecker checker) {
  state().checkers[static_cast<size_t>(option)] = checker;
}

void check_environment() {
  for (const OptionInfo& info : option_table()) (void)option(info.option);
}

OptionValue option(Option option, const OptionOverrides& own) {
  for (const auto& [which, value] : own) {
    if (which == option) return value;
  }
  const OptionInfo& info = info_of(option);
  State& s = state();
  std::optional<OptionValue>& value = s.values[static_cast<size_t>(option)];
  {
    const std::lock_guard lock(s.mutex);
    if (value) return *value;
  }
  // Without the lock: a checker may ask for other options.
  OptionValue read = from_environment(info);
  const std::lock_guard lock(s.mutex);
  if (!value) value = std::move(read);
  return *value;
}

bool option_bool(Option which, const OptionOverrides& own) { return std::get<bool>(option(which, own)); }
int64_t option_int(Option which, const OptionOverrides& own) { return std::get<int64_t>(option(which, own)); }
std::string option_text(Option which, const OptionOverrides& own) { return std::get<std::string>(option(which, own)); }

void set_option(Option option, OptionValue value) {
  const OptionInfo& info = info_of(option);
  check_option(info, value);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.values[static_cast<size_t>(option)] = std::move(value);
  ++s.generation;
  if (option == Option::kLog) log_option_changed();
}

void set_option_text(Option option, std::string_view text) { set_option(option, parse(info_of(option), text)); }

void reset_option(Option option) {
  OptionValue value = from_environment(info_of(option));
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.values[static_cast<size_t>(option)] = std::move(value);
  ++s.generation;
  if (option == Option::kLog) log_option_changed();
}

uint64_t options_generation() { return state().generation.load(std::memory_order_acquire); }

bool lists_pass(std::string_view disable, std::string_view pass) {
  TATARA_CHECK(is_one_of(info_of(Option::kDisable).range.words, pass), "pass ", pass,
               " is not in the table of options");
  return !all_words(disable, [&](std::string_view word) { return word != pass && word != "*"; });
}

std::string options_markdown() {
  std::string out = "| option | environment | default | takes | per function | meaning |\n|---|---|---|---|---|---|\n";
  for (const OptionInfo& info : option_table()) {
    std::string fallback = std::visit([](const auto& value) { return str_cat(value); }, info.fallback);
    if (fallback.empty()) fallback = "empty";
    out += str_cat("| `", info.name, "` | `", info.env, "` | ", fallback, " | ", option_takes(info), " | ",
                   info.per_function ? "yes" : "", " | ", info.doc, " |\n");
  }
  return out;
}

}  // namespace tatara
