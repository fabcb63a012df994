#include "support/log.h"

#include <unistd.h>

#include "support/error.h"
#include "support/options.h"

namespace tatara {
namespace {

// Bit i: channel i is on. The upper half keeps the generation of the options it was read from (0: never read).
std::atomic<uint64_t> g_enabled{0};

uint64_t read_channels(uint64_t generation) {
  uint64_t bits = 0;
  const std::string list = option_text(Option::kLog);
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view word = trim(rest.substr(0, comma));
    for (int i = 0; i < kNumLogChannels; ++i) {
      if (word == "all" || word == log_channel_name(static_cast<LogChannel>(i))) bits |= uint64_t{1} << i;
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  bits |= (generation + 1) << 32;
  g_enabled.store(bits, std::memory_order_release);
  return bits;
}

}  // namespace

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

bool log_enabled(LogChannel channel) {
  const uint64_t generation = options_generation();
  uint64_t bits = g_enabled.load(std::memory_order_acquire);
  if (bits >> 32 != ((generation + 1) & 0xffffffffu)) bits = read_channels(generation);
  return ((bits >> static_cast<int>(channel)) & 1) != 0;
}

void log_line(LogChannel channel, std::string_view text) {
  const std::string line = str_cat("[tatara ", log_channel_name(channel), "] ", text, "\n");
  // A log that cannot be written must not stop the program.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tatara
