// Entries of the disk cache changed at random. `make fuzz-cache` makes a million changes of each kind under the sanitizers; by
// default it is a few thousand.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "plan_runner.h"
#include "runtime/base/cache.h"
#include "runtime/jit/jit_loader.h"
#include "schedule/plan_check.h"
#include "schedule/plan_io.h"
#include "stored_plans.h"
#include "support/error.h"
#include "testing.h"

namespace tatara {
namespace {

namespace fs = std::filesystem;

size_t rounds() {
  const char* count = std::getenv("TATARA_FUZZ_COUNT");
  return count != nullptr ? static_cast<size_t>(std::strtoull(count, nullptr, 10)) : 3000;
}

class Changes {
 public:
  explicit Changes(uint64_t seed) : engine_(seed) {}

  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(engine_() % n); }

  /// One to four of: bits, bytes, numbers, parts moved, left out, put in, taken from another entry.
  std::string change(std::string bytes, const std::string& other) {
    for (size_t n = below(4) + 1; n > 0; --n) once(bytes, other);
    return bytes;
  }

 private:
  void once(std::string& bytes, const std::string& other) {
    const size_t at = below(bytes.size());
    const auto put = [&](uint64_t value, size_t size) {
      for (size_t i = 0; i < size && at + i < bytes.size(); ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
    };
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          2,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          uint64_t{1} << 32,
                                          INT64_MAX,
                                          uint64_t{1} << 63,
                                          ~uint64_t{0},
                                          ~uint64_t{0} - 63};
    switch (below(8)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1: put(engine_(), 1); break;
      case 2: put(kEdges[below(std::size(kEdges))], size_t{1} << below(4)); break;
      case 3: bytes.resize(at); break;
      case 4: bytes.erase(at, below(64) + 1); break;
      case 5: bytes.insert(at, below(64) + 1, static_cast<char>(engine_())); break;
      case 6: bytes.insert(at, bytes.substr(below(bytes.size()), below(256))); break;
      default: bytes.replace(at, below(256), other.substr(below(other.size()), below(256)));
    }
  }

  std::mt19937_64 engine_;
};

class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/tatara-fuzz-XXXXXX";
    path_ = mkdtemp(name) != nullptr ? name : "";
    setenv("XDG_STATE_HOME", (path_ + "/state").c_str(), 1);
  }
  ~Scratch() {
    unsetenv("XDG_STATE_HOME");
    fs::remove_all(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// Files changed without the key: the seal fits none.
TEST(CacheFuzz, FilesOfEntries) {
  const Scratch scratch;
  DiskCache cache(scratch.path() + "/cache", uint64_t{1} << 30);
  std::vector<std::string> contents;
  for (const StoredCase& stored : stored_cases()) contents.push_back(stored.bytes());
  contents.push_back("");
  std::vector<fs::path> paths;
  for (size_t i = 0; i < contents.size(); ++i) {
    ASSERT_TRUE(cache.put(str_cat("key", i), contents[i]));
    for (const auto& file : fs::directory_iterator(cache.directory())) {
      const bool known = std::find(paths.begin(), paths.end(), file.path()) != paths.end();
      if (!known && file.path().extension() == ".tatara") paths.push_back(file.path());
    }
  }
  ASSERT_EQ(paths.size(), contents.size());
  std::vector<std::string> files;
  for (const fs::path& path : paths) files.push_back(slurp(path));
  Changes changes(1);
  for (size_t round = 0; round < rounds(); ++round) {
    const size_t i = changes.below(paths.size());
    const std::string changed = changes.below(20) == 0 ? files[changes.below(files.size())]
                                                       : changes.change(files[i], files[changes.below(files.size())]);
    if (std::FILE* file = std::fopen(paths[i].c_str(), "wb")) {
      fchmod(fileno(file), 0600);
      std::fwrite(changed.data(), 1, changed.size(), file);
      std::fclose(file);
    }
    const std::optional<std::string> found = cache.get(str_cat("key", i));
    ASSERT_EQ(found.has_value(), changed == files[i]) << "round " << round;
    if (found) {
      ASSERT_EQ(*found, contents[i]);
    }
  }
}

// Plans changed by somebody who has the key: refused, or run without reaching beyond any memory.
TEST(CacheFuzz, SealedPlans) {
  const std::vector<StoredCase> cases = stored_cases();
  std::vector<std::string> encoded;
  for (const StoredCase& stored : cases) encoded.push_back(stored.bytes());
  Changes changes(2);
  size_t accepted = 0;
  for (size_t round = 0; round < rounds(); ++round) {
    const size_t i = changes.below(cases.size());
    const StoredCase& stored = cases[i];
    try {
      StoredPlan made;
      if (changes.below(4) == 0) {
        // The text of a kernel, with the key that fits it.
        made = decode_stored_plan(encoded[i]);
        if (made.plan.kernels.empty()) continue;
        PlanKernel& kernel = made.plan.kernels[changes.below(made.plan.kernels.size())];
        kernel.loop_text =
            changes.change(kernel.loop_text, cases[changes.below(cases.size())].schedule.plan.kernels[0].loop_text);
        const KernelRequest request = request_of_text(kernel.loop_text, kernel.name, stored.target);
        kernel.cache_key = request.key;
      } else {
        made = decode_stored_plan(changes.change(encoded[i], encoded[changes.below(encoded.size())]));
      }
      verify_stored_plan(made.plan, stored.graph(), stored.target);
      std::vector<loops::Kernel> kernels;
      for (const PlanKernel& kernel : made.plan.kernels) kernels.push_back(loops::parse_kernel(kernel.loop_text));
      std::vector<const loops::Kernel*> list;
      for (const loops::Kernel& kernel : kernels) list.push_back(&kernel);
      PlanRunner(made.plan, list).run();
      ++accepted;
    } catch (const Error&) {
      // Refused.
    }
  }
  // Names, lines, numbers of Python and the like may be any; all else is held to.
  EXPECT_LT(accepted, rounds() / 3 + 10);
}

// Objects changed by somebody who has the key are malformed, or linked within their own memory. (What they would do is not asked:
// nobody without the key gets here.)
TEST(CacheFuzz, SealedObjects) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  const std::string source = R"(
@table = private constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
declare double @cos(double)
define double @f(i64 %i) {
  %p = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %x = load double, ptr %p
  %y = call double @cos(double %x)
  ret double %y
}
)";
  const std::string object = llvm->compile(source, {}).bytes;
  const std::string other = llvm->compile("define i64 @g(i64 %x) { ret i64 %x }", {}).bytes;
  Changes changes(3);
  for (size_t round = 0; round < rounds(); ++round) {
    try {
      load_object(changes.change(object, other));
    } catch (const CompilationError&) {
      // Malformed.
    }
  }
}

}  // namespace
}  // namespace tatara
