#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/arena.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/options.h"
#include "support/pass_options.h"
#include "support/text_writer.h"
#include "testing.h"

namespace tatara {
namespace {

TEST(StrCat, EveryKindOfPart) {
  EXPECT_EQ(str_cat("a", 1, ' ', int64_t{-2}, ' ', true, ' ', 0.1, ' ', std::string("s"), ' ', 1.0f),
            "a1 -2 true 0.1 s 1");
  EXPECT_EQ(str_join(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(str_join(std::vector<int>{1, 2}, "; ", [](int i) { return str_cat("<", i, ">"); }), "<1>; <2>");
  EXPECT_EQ(trim(" \t x y \n"), "x y");
  EXPECT_EQ(trim("  "), "");
}

TEST(Errors, CheckThrowsInternalErrorWithPlaceAndMessage) {
  const int size = 3;
  try {
    TATARA_CHECK(size == 4, "size is ", size);
    FAIL() << "no exception";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("test_support.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("size == 4: size is 3"), std::string::npos) << text;
  }
  EXPECT_NO_THROW(TATARA_CHECK(size == 3));
}

TEST(Errors, LocationIsAddedOnceAndTheClassIsKept) {
  const Unsupported plain("no such thing");
  EXPECT_STREQ(plain.what(), "no such thing");
  try {
    plain.rethrow_at({"model.py", 12, "forward"});
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no such thing (at model.py:12 in forward)");
    EXPECT_EQ(error.message(), "no such thing");
    EXPECT_EQ(error.kind(), "Unsupported");
    EXPECT_THROW(error.rethrow_at({"other.py", 1, ""}), Unsupported);
    try {
      error.rethrow_at({"other.py", 1, ""});
    } catch (const Error& again) {
      EXPECT_EQ(again.location().file, "model.py");
    }
  }
}

TEST(Options, TableIsInTheOrderOfTheEnum) {
  ASSERT_EQ(option_table().size(), static_cast<size_t>(kNumOptions));
  std::set<std::string_view> names;
  std::set<std::string_view> variables;
  for (size_t i = 0; i < option_table().size(); ++i) {
    const OptionInfo& info = option_table()[i];
    EXPECT_EQ(static_cast<size_t>(info.option), i) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(variables.insert(info.env).second) << info.env;
    EXPECT_FALSE(info.doc.empty());
    EXPECT_NE(options_markdown().find(info.env), std::string::npos);
  }
}

// docs/options.md is made from the table: TATARA_UPDATE=1 rewrites it.
TEST(Options, DocumentedAsTheyAre) {
  const std::string path = TATARA_TEST_DIR "/../docs/options.md";
  const std::string wanted =
      "# Options\n\nMade from the table in `src/support/options.cpp` by `TATARA_UPDATE=1 tatara_unit_tests "
      "--filter=Options`.\nIn Python: `tatara.config.<option>`; those marked \"per function\" may also be given to "
      "`tatara.compile(..., options={...})`.\n\n" +
      options_markdown();
  if (std::getenv("TATARA_UPDATE") != nullptr) std::ofstream(path) << wanted;
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), wanted);
}

TEST(Options, SetParseAndReset) {
  const uint64_t before = options_generation();
  set_option_text(Option::kNumThreads, " 7 ");
  EXPECT_EQ(option_int(Option::kNumThreads), 7);
  EXPECT_GT(options_generation(), before);
  EXPECT_THROW(set_option_text(Option::kNumThreads, "many"), InvalidArgument);
  EXPECT_THROW(set_option_text(Option::kVerify, "perhaps"), InvalidArgument);
  EXPECT_THROW(set_option(Option::kVerify, int64_t{1}), InvalidArgument);
  EXPECT_THROW(set_option(Option::kMatmul, std::string("fastest")), InvalidArgument);
  EXPECT_THROW(set_option_text(Option::kMatmul, "Native"), InvalidArgument);
  for (const int64_t wrong : {int64_t{-1}, int64_t{4097}}) {
    EXPECT_THROW(set_option(Option::kNumThreads, wrong), InvalidArgument);
    EXPECT_THROW(set_option_text(Option::kNumThreads, std::to_string(wrong)), InvalidArgument);
  }
  EXPECT_THROW(set_option(Option::kVectorWidth, int64_t{100}), InvalidArgument);
  EXPECT_THROW(set_option(Option::kDisable, std::string("dce, ces")), InvalidArgument);
  EXPECT_THROW(set_option(Option::kDump, std::string("/dev/null/x")), InvalidArgument);
  EXPECT_THROW(set_option(Option::kLlvm, std::string("/no/such/file.so")), InvalidArgument);
  EXPECT_EQ(option_int(Option::kNumThreads), 7);
  reset_option(Option::kNumThreads);
  EXPECT_EQ(option_int(Option::kNumThreads), 0);
  EXPECT_EQ(find_option("no_such_option"), nullptr);
}

TEST(Options, OwnOnesComeFirst) {
  const OptionOverrides own{{Option::kOptLevel, int64_t{3}}, {Option::kVerify, true}};
  EXPECT_EQ(option_int(Option::kOptLevel, own), 3);
  EXPECT_TRUE(option_bool(Option::kVerify, own));
  EXPECT_EQ(option_int(Option::kVectorWidth, own), 0);
  EXPECT_EQ(option_int(Option::kOptLevel), 1);
}

TEST(Options, DisabledPasses) {
  EXPECT_TRUE(lists_pass("fusion, cse", "fusion"));
  EXPECT_TRUE(lists_pass("fusion, cse", "cse"));
  EXPECT_FALSE(lists_pass("fusion, cse", "dce"));
  EXPECT_FALSE(lists_pass("", "dce"));
  EXPECT_TRUE(lists_pass("*", "dce"));
  EXPECT_THROW((void)lists_pass("", "cs"), InternalError);
  const OptionOverrides own{{Option::kDisable, std::string("grouped_launches")}};
  EXPECT_TRUE(PassOptions::resolve(own).skips("grouped_launches"));
  EXPECT_FALSE(PassOptions::resolve().skips("grouped_launches"));
}

TEST(Options, UnknownWordsGetTheNearestName) {
  const auto message = [](Option option, const char* text) {
    try {
      set_option_text(option, text);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_NE(message(Option::kDisable, "dce, csee").find("did you mean 'cse'?"), std::string::npos);
  EXPECT_NE(message(Option::kDisable, "cannonicalise").find("did you mean 'canonicalize'?"), std::string::npos);
  EXPECT_NE(message(Option::kLog, "loop").find("did you mean 'loops'?"), std::string::npos);
  EXPECT_NE(message(Option::kMatmul, "hosts").find("did you mean 'host'?"), std::string::npos);
  EXPECT_EQ(message(Option::kDisable, "zzzzzzzz").find("did you mean"), std::string::npos);
}

TEST(Log, ChannelsFollowTheOption) {
  set_option(Option::kLog, std::string("fusion, guards"));
  EXPECT_TRUE(log_enabled(LogChannel::kFusion));
  EXPECT_TRUE(log_enabled(LogChannel::kGuards));
  EXPECT_FALSE(log_enabled(LogChannel::kCapture));
  set_option(Option::kLog, std::string());
  EXPECT_FALSE(log_enabled(LogChannel::kFusion));
  set_option(Option::kLog, std::string("all"));
  EXPECT_TRUE(log_enabled(LogChannel::kPasses));
  reset_option(Option::kLog);
}

TEST(TextWriter, IndentsAndLeavesEmptyLinesEmpty) {
  TextWriter out;
  out.line("kernel {");
  {
    const auto block = out.block();
    out.line("x = ", 1);
    out.line();
    out.begin_line().add("y").add(" = ", 2.5).end_line();
  }
  out.line("}");
  EXPECT_EQ(out.str(), "kernel {\n  x = 1\n\n  y = 2.5\n}\n");
}

TEST(BumpArena, AlignsAndKeepsWhatItHandedOut) {
  BumpArena arena(64);
  std::vector<int64_t*> numbers;
  for (int64_t i = 0; i < 1000; ++i) {
    numbers.push_back(arena.make<int64_t>(i));
    arena.copy(std::string_view("abc").substr(0, static_cast<size_t>(i % 4)));
  }
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(*numbers[static_cast<size_t>(i)], i);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers[static_cast<size_t>(i)]) % alignof(int64_t), 0u);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.allocate(1000, 256)) % 256, 0u);
}

// Published values of MurmurHash3_x64_128 with seed 0, as other implementations print them,
// fixed here because keys on disk must not change.
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash128("").str(), "00000000000000000000000000000000");
  EXPECT_EQ(hash128("hello").str(), "cbd8a7b341bd9b025b1e906a48ae1d19");
  EXPECT_EQ(hash128("The quick brown fox jumps over the lazy dog").str(), "e34bbc7bbc071b6c7a433ca9c49a9347");
}

TEST(Hash, EveryByteAndLengthCounts) {
  std::set<std::string> seen;
  std::string text;
  for (int length = 0; length < 64; ++length) {
    EXPECT_TRUE(seen.insert(hash128(text).str()).second);
    text += 'a';
    for (size_t i = 0; i < text.size(); ++i) {
      std::string changed = text;
      changed[i] = 'b';
      EXPECT_TRUE(seen.insert(hash128(changed).str()).second);
    }
  }
  EXPECT_NE(KeyBuilder().add("ab").add("c").finish(), KeyBuilder().add("a").add("bc").finish());
  EXPECT_EQ(KeyBuilder().add("ab").add(uint64_t{3}).finish(), KeyBuilder().add("ab").add(uint64_t{3}).finish());
}

}  // namespace
}  // namespace tatara
