#include "support/log.h"

#include <unistd.h>

#include "support/error.h"
#include "support/options.h"

namespace tatara {
namespace {

uint32_t read_channels() {
  uint32_t bits = 0;
  const std::string list = option_text(Option::kLog);
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view word = trim(rest.substr(0, comma));
    for (int i = 0; i < kNumLogChannels; ++i) {
      if (word == "all" || word == log_channel_name(static_cast<LogChannel>(i))) bits |= uint32_t{1} << i;
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return bits;
}

constexpr uint32_t kNotRead = ~uint32_t{0};

}  // namespace

constinit std::atomic<uint32_t> log_detail::may_be_on{kNotRead};

bool log_detail::is_on(LogChannel channel) {
  uint32_t bits = may_be_on.load();
  while (bits == kNotRead) {
    const uint64_t generation = options_generation();
    bits = read_channels();
    uint32_t expected = kNotRead;
    may_be_on.compare_exchange_strong(expected, bits);
    if (options_generation() != generation) log_option_changed();
    bits = may_be_on.load();
  }
  return ((bits >> static_cast<int>(channel)) & 1) != 0;
}

void log_option_changed() { log_detail::may_be_on = kNotRead; }

std::string_view log_channel_name(LogChannel channel) {
  switch (channel) {
    case LogChannel::kCapture: return "capture";
    case LogChannel::kGuards: return "guards";
    case LogChannel::kGraph: return "graph";
    case LogChannel::kFusion: return "fusion";
    case LogChannel::kLoops: return "loops";
    case LogChannel::kLlvm: return "llvm";
    case LogChannel::kRuntime: return "runtime";
    case LogChannel::kCache: return "cache";
    case LogChannel::kPasses: return "passes";
  }
  TATARA_UNREACHABLE("log channel ", channel);
}

void log_line(LogChannel channel, std::string_view text) {
  const std::string head = str_cat("[tatara ", log_channel_name(channel), "] ");
  std::string lines;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (bool more = true; more;) {
    const size_t end = text.find('\n');
    more = end != std::string_view::npos;
    lines += str_cat(head, text.substr(0, end), "\n");
    if (more) text.remove_prefix(end + 1);
  }
  // A log that cannot be written must not stop the program.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, lines.data(), lines.size());
}

}  // namespace tatara
