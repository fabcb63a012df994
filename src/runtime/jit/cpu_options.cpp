#include "runtime/jit/cpu_options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "support/options.h"

namespace tatara {
namespace {

/// Calls `see` with each part of a list with commas.
template <typename Fn>
void each_word(std::string_view list, Fn&& see) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    see(trim(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

#if defined(__x86_64__)
// The processors that LLVM 22 knows and that run 64-bit code. LLVM can print such a list, but not give it to a program; a
// test compares the two (tests/errors/test_options.py).
constexpr std::array kCpus = {"alderlake",
                              "amdfam10",
                              "arrowlake",
                              "arrowlake-s",
                              "athlon-fx",
                              "athlon64",
                              "athlon64-sse3",
                              "atom",
                              "barcelona",
                              "bdver1",
                              "bdver2",
                              "bdver3",
                              "bdver4",
                              "bonnell",
                              "broadwell",
                              "btver1",
                              "btver2",
                              "cannonlake",
                              "cascadelake",
                              "clearwaterforest",
                              "cooperlake",
                              "core-avx-i",
                              "core-avx2",
                              "core2",
                              "corei7",
                              "corei7-avx",
                              "diamondrapids",
                              "emeraldrapids",
                              "generic",
                              "goldmont",
                              "goldmont-plus",
                              "gracemont",
                              "grandridge",
                              "graniterapids",
                              "graniterapids-d",
                              "haswell",
                              "icelake-client",
                              "icelake-server",
                              "ivybridge",
                              "k8",
                              "k8-sse3",
                              "knl",
                              "knm",
                              "lunarlake",
                              "meteorlake",
                              "nehalem",
                              "nocona",
                              "novalake",
                              "opteron",
                              "opteron-sse3",
                              "pantherlake",
                              "penryn",
                              "raptorlake",
                              "rocketlake",
                              "sandybridge",
                              "sapphirerapids",
                              "sierraforest",
                              "silvermont",
                              "skx",
                              "skylake",
                              "skylake-avx512",
                              "slm",
                              "tigerlake",
                              "tremont",
                              "westmere",
                              "wildcatlake",
                              "x86-64",
                              "x86-64-v2",
                              "x86-64-v3",
                              "x86-64-v4",
                              "znver1",
                              "znver2",
                              "znver3",
                              "znver4",
                              "znver5"};
// Every 64-bit program uses these.
constexpr std::array kNeeded = {"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"};
#else
constexpr std::array kCpus = {"generic"};
constexpr std::array kNeeded = {"fp-armv8", "neon"};
#endif

std::string check_cpu(const std::string& text) {
  if (text.empty() || std::find(kCpus.begin(), kCpus.end(), text) != kCpus.end()) return {};
  std::string known;
  for (const char* cpu : kCpus) known += str_cat(known.empty() ? "" : ", ", cpu);
  return str_cat("an empty string, or one of ", known);
}

/// The machine's features as LLVM has them; empty without an LLVM, and then nothing is compiled either.
std::string host_features() {
  try {
    return llvm_provider().host_features();
  } catch (const Error&) {
    return {};
  }
}

std::string check_features(const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> allowed;
  each_word(host_features(), [&](std::string_view feature) {
    const bool needed = std::find(kNeeded.begin(), kNeeded.end(), feature.substr(1)) != kNeeded.end();
    if (feature.front() == '+') allowed.emplace_back(feature);
    if (!needed) allowed.push_back(str_cat("-", feature.substr(1)));
  });
  if (allowed.empty()) return {};
  bool good = true;
  each_word(text, [&](std::string_view word) {
    good = good && std::find(allowed.begin(), allowed.end(), word) != allowed.end();
  });
  if (good) return {};
  std::string known;
  for (const std::string& word : allowed) known += str_cat(known.empty() ? "" : ", ", word);
  return str_cat("an empty string, or a string with commas between any of ", known);
}

}  // namespace

void install_cpu_option_checks() {
  set_option_checker(Option::kCpu, check_cpu);
  set_option_checker(Option::kCpuFeatures, check_features);
}

std::string lacking_features(const std::string& host_features) {
  std::string lacking;
  each_word(host_features, [&](std::string_view feature) {
    if (feature.substr(0, 1) == "-") lacking += str_cat(lacking.empty() ? "" : ",", feature);
  });
  return lacking;
}

}  // namespace tatara
