// Runner of the unit tests: see testing.h.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>

#include "testing.h"

namespace testing {
namespace {

struct Case {
  std::string name;
  Factory make;
};

// Function-local: static initialisers of other files add to it.
std::vector<Case>& cases() {
  static std::vector<Case> list;
  return list;
}

bool g_failed = false;
bool g_skipped = false;

/// '*' stands for any text; a pattern without one matches anywhere.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.find('*') == std::string_view::npos) return text.find(pattern) != std::string_view::npos;
  if (pattern.front() == '*') {
    const std::string_view rest = pattern.substr(1);
    if (rest.empty()) return true;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (rest.find('*') == std::string_view::npos ? text.substr(i) == rest : matches(rest, text.substr(i)))
        return true;
    }
    return false;
  }
  if (text.empty() || pattern.front() != text.front()) return false;
  const std::string_view rest = pattern.substr(1);
  if (rest.find('*') == std::string_view::npos) return text.substr(1) == rest;
  return matches(rest, text.substr(1));
}

/// "2/3": every third suite from the second on. False for other texts.
bool read_part(std::string_view text, size_t& part, size_t& parts) {
  const char* const end = text.data() + text.size();
  const auto [slash, first] = std::from_chars(text.data(), end, part);
  if (first != std::errc() || slash == end || *slash != '/') return false;
  const auto [rest, second] = std::from_chars(slash + 1, end, parts);
  return second == std::errc() && rest == end && part >= 1 && part <= parts;
}

void guarded(Test& test, void (Test::*step)()) {
  try {
    (test.*step)();
  } catch (const std::exception& error) {
    record_failure("", 0, std::string("unexpected exception: ") + error.what());
  } catch (...) {
    record_failure("", 0, "unexpected exception");
  }
}

void run(const Case& test_case) {
  g_failed = false;
  g_skipped = false;
  const std::unique_ptr<Test> test(test_case.make());
  guarded(*test, &Test::SetUp);
  if (!g_failed && !g_skipped) guarded(*test, &Test::TestBody);
  guarded(*test, &Test::TearDown);
}

}  // namespace

bool add_test(const char* suite, const char* name, Factory make) {
  cases().push_back({std::string(suite) + "." + name, make});
  return true;
}

void record_failure(const char* file, int line, const std::string& message) {
  g_failed = true;
  if (line > 0) {
    std::printf("  %s:%d: %s\n", file, line, message.c_str());
  } else {
    std::printf("  %s\n", message.c_str());
  }
}

void record_skip(const std::string& message) {
  g_skipped = true;
  std::printf("  skipped: %s\n", message.c_str());
}

bool current_test_failed() { return g_failed; }

}  // namespace testing

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  std::string_view filter;
  std::vector<std::string_view> without;
  bool list = false;
  size_t part = 1, parts = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--filter=")) {
      filter = arg.substr(9);
    } else if (arg == "--filter" && i + 1 < argc) {
      filter = argv[++i];
    } else if (arg.starts_with("--gtest_filter=")) {
      filter = arg.substr(15);
    } else if (arg.starts_with("--without=")) {
      without.push_back(arg.substr(10));
    } else if (arg == "--list") {
      list = true;
    } else if (!arg.starts_with("--part=") || !testing::read_part(arg.substr(7), part, parts)) {
      std::fprintf(stderr, "usage: %s [--filter=text] [--without=text] [--part=1/2] [--list]\n", argv[0]);
      return 2;
    }
  }
  int passed = 0;
  int skipped = 0;
  std::vector<std::string> failed;
  size_t suites = 0;
  std::string_view suite;
  for (const testing::Case& test_case : testing::cases()) {
    if (!filter.empty() && !testing::matches(filter, test_case.name)) continue;
    const auto left_out = [&](std::string_view pattern) { return testing::matches(pattern, test_case.name); };
    if (std::ranges::any_of(without, left_out)) continue;
    const std::string_view name = test_case.name, before = suite;
    suite = name.substr(0, name.find('.'));
    if (suite != before) ++suites;
    // A suite stays together: its tests may share what one of them has made.
    if (suites % parts != part - 1) continue;
    if (list) {
      std::printf("%s\n", test_case.name.c_str());
      continue;
    }
    const auto start = Clock::now();
    testing::run(test_case);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (testing::g_failed) {
      failed.push_back(test_case.name);
      std::printf("FAILED %s\n", test_case.name.c_str());
    } else if (testing::g_skipped) {
      ++skipped;
      std::printf("SKIPPED %s\n", test_case.name.c_str());
    } else {
      ++passed;
      if (seconds > 1) std::printf("slow: %s took %.1f s\n", test_case.name.c_str(), seconds);
    }
    std::fflush(stdout);
  }
  if (list) return 0;
  for (const std::string& name : failed) std::printf("failed: %s\n", name.c_str());
  std::printf("%d passed, %zu failed", passed, failed.size());
  if (skipped > 0) std::printf(", %d skipped", skipped);
  std::printf("\n");
  return failed.empty() && passed + skipped > 0 ? 0 : 1;
}
