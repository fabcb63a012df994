// Options: one table of name, type, default, environment variable and text, from which docs and Python's
// tatara.config are made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tatara {

enum class Option : uint8_t {
  kLog,
  kDump,
  kDisable,
  kCache,
  kCacheDir,
  kCacheSizeMb,
  kNumThreads,
  kCompileThreads,
  kVerify,
  kLlvm,
  kOptLevel,
  kCpu,
  kCpuFeatures,
  kVectorWidth,
  kFallback,
  kKeepOutputsMb,
  kRecompileLimit,
  kCudaGraphs,
  kMatmul,
};
inline constexpr int kNumOptions = 19;

/// bool, integer or text.
using OptionValue = std::variant<bool, int64_t, std::string>;

struct OptionInfo {
  Option option;
  std::string_view name;  // in tatara.config: "cache_dir"
  std::string_view env;   // "TATARA_CACHE_DIR"
  OptionValue fallback;   // the default; its alternative is the option's type
  std::string_view doc;
  bool per_function = false;                   // may be given to tatara.compile(options=...)
  std::vector<std::string_view> choices = {};  // of a text; none: any
};

/// All options, in the order of the enum.
const std::vector<OptionInfo>& option_table();
/// Null when there is no such option.
const OptionInfo* find_option(std::string_view name);

/// The present value: set_option, else the environment at first use, else the default. Thread-safe.
OptionValue option(Option option);
bool option_bool(Option option);
int64_t option_int(Option option);
std::string option_text(Option option);

/// InvalidArgument when the value has another type than the option.
void set_option(Option option, OptionValue value);
/// From text, as the environment variable would be read; InvalidArgument when it does not parse.
void set_option_text(Option option, std::string_view text);
/// Back to environment or default.
void reset_option(Option option);
/// Values that hold in this thread for the life of the scope, before those of the process. A thread that works for
/// another one opens a scope with the other's current().
using OptionOverrides = std::vector<std::pair<Option, OptionValue>>;
class OptionScope {
 public:
  explicit OptionScope(const OptionOverrides* overrides);
  ~OptionScope();
  OptionScope(const OptionScope&) = delete;
  OptionScope& operator=(const OptionScope&) = delete;
  /// Null when there are none.
  static const OptionOverrides* current();

 private:
  const OptionOverrides* before_;
};
/// Counts changes of options, so that a reader can keep a parsed form.
uint64_t options_generation();

/// True when TATARA_DISABLE lists the pass (a comma-separated list of names; "*" lists all).
bool is_disabled(std::string_view pass);

/// The table as Markdown, for docs/options.md.
std::string options_markdown();

}  // namespace tatara
