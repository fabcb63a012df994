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

std::string_view log_channel_name(LogChannel channel);
/// True when TATARA_LOG lists the channel.
bool log_enabled(LogChannel channel);
/// One write(2) per line, so that lines of several threads and processes do not mix.
void log_line(LogChannel channel, std::string_view text);

}  // namespace tatara

/// TATARA_LOG(kFusion, "not fused: ", reason). The parts are evaluated only when the channel is on.
#define TATARA_LOG(channel, ...)                                                         \
  do {                                                                                   \
    if (::tatara::log_enabled(::tatara::LogChannel::channel)) [[unlikely]] {             \
      ::tatara::log_line(::tatara::LogChannel::channel, ::tatara::str_cat(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
