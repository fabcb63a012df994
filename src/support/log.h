// Logging by channel: TATARA_LOG=capture,fusion. A channel that is off costs one load and a branch.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/str_cat.h"

namespace tatara {

enum class LogChannel : uint8_t { kCapture, kGuards, kGraph, kFusion, kLoops, kLlvm, kRuntime, kCache, kPasses };
inline constexpr int kNumLogChannels = 9;

namespace log_detail {
/// Bit i: channel i may be on. All are until the option is read, and again after a change of it.
extern constinit std::atomic<uint32_t> may_be_on;
bool is_on(LogChannel channel);
}  // namespace log_detail

std::string_view log_channel_name(LogChannel channel);
/// True when TATARA_LOG lists the channel.
inline bool log_enabled(LogChannel channel) {
  const uint32_t bits = log_detail::may_be_on.load(std::memory_order_relaxed);
  return ((bits >> static_cast<int>(channel)) & 1) != 0 && log_detail::is_on(channel);
}
/// The option `log` has another value.
void log_option_changed();
/// The lines of `text`, each behind the channel's name, in one write(2), so that those of several threads and processes do
/// not mix.
void log_line(LogChannel channel, std::string_view text);

}  // namespace tatara

/// TATARA_LOG(kFusion, "not fused: ", reason). The parts are evaluated only when the channel is on.
#define TATARA_LOG(channel, ...)                                                         \
  do {                                                                                   \
    if (::tatara::log_enabled(::tatara::LogChannel::channel)) [[unlikely]] {             \
      ::tatara::log_line(::tatara::LogChannel::channel, ::tatara::str_cat(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
