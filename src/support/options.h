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

/// Values that an option takes, within its type.
struct OptionRange {
  enum class Kind : uint8_t {
    kAny,        // bools, and texts that a checker looks at
    kInteger,    // from least to most
    kNumber,     // one of `numbers`
    kWord,       // one of `words`
    kWords,      // words with commas between them
    kFile,       // empty, a file that there is, or a name without a slash
    kDirectory,  // empty, a directory, or a path where one can be made
  } kind = Kind::kAny;
  int64_t least = 0, most = 0;
  std::vector<int64_t> numbers = {};
  std::vector<std::string_view> words = {};

  static OptionRange integer(int64_t least, int64_t most) { return {Kind::kInteger, least, most}; }
  static OptionRange of(std::vector<int64_t> numbers) { return {Kind::kNumber, 0, 0, std::move(numbers)}; }
  static OptionRange word(std::vector<std::string_view> words) { return {Kind::kWord, 0, 0, {}, std::move(words)}; }
  static OptionRange list(std::vector<std::string_view> words) { return {Kind::kWords, 0, 0, {}, std::move(words)}; }
};

struct OptionInfo {
  Option option;
  std::string_view name;  // in tatara.config: "cache_dir"
  std::string_view env;   // "TATARA_CACHE_DIR"
  OptionValue fallback;   // the default; its alternative is the option's type
  OptionRange range;
  std::string_view doc;
  bool per_function = false;  // may be given to tatara.compile(options=...)
};

/// All options, in the order of the enum.
const std::vector<OptionInfo>& option_table();
/// Null when there is no such option.
const OptionInfo* find_option(std::string_view name);

/// "an integer from 0 to 3": what the option takes, for messages and docs.
std::string option_takes(const OptionInfo& info);
/// InvalidArgument, with the option, the value and what is allowed, unless the option takes the value.
void check_option(const OptionInfo& info, const OptionValue& value);
/// For options whose values other parts of the core know (names of CPUs): says what is allowed where `text` is not.
using OptionChecker = std::string (*)(const std::string& text);
void set_option_checker(Option option, OptionChecker checker);
/// Reads every variable of the environment now: InvalidArgument for the first that is wrong.
void check_environment();

/// Values of one compiled function, which come before those of the process.
using OptionOverrides = std::vector<std::pair<Option, OptionValue>>;
/// The present value: that of `own`, else set_option, else the environment at first use, else the default. Thread-safe.
OptionValue option(Option option, const OptionOverrides& own = {});
bool option_bool(Option option, const OptionOverrides& own = {});
int64_t option_int(Option option, const OptionOverrides& own = {});
std::string option_text(Option option, const OptionOverrides& own = {});

/// InvalidArgument as check_option().
void set_option(Option option, OptionValue value);
/// From text, as the environment variable would be read; InvalidArgument when it does not parse.
void set_option_text(Option option, std::string_view text);
/// Back to environment or default; InvalidArgument when the environment is wrong, and then nothing changes.
void reset_option(Option option);
/// Counts changes of options, so that a reader can keep a parsed form.
uint64_t options_generation();

/// Whether a value of the option `disable` lists the pass (names with commas between them; "*" lists all). Names are those
/// of the table: InternalError for others.
bool lists_pass(std::string_view disable, std::string_view pass);

/// The table as Markdown, for docs/options.md.
std::string options_markdown();

}  // namespace tatara
