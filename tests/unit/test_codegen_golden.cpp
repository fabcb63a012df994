// LLVM text of small kernels for each instruction set: golden (TATARA_UPDATE_GOLDEN=1 rewrites), accepted by LLVM's
// verifier and turned into an object; and the loop text itself, which parses and prints as it was.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "codegen/emit_cpu.h"
#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "runtime/jit/llvm_provider.h"
#include "support/error.h"
#include "testing.h"

namespace tatara {
namespace {

std::filesystem::path folder(const char* name) { return std::filesystem::path(TATARA_TEST_DIR) / "golden" / name; }

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Machine {
  const char* name;
  VectorIsa isa;
  const char* triple;
  const char* cpu;
};
constexpr Machine kMachines[] = {
    {"avx2", VectorIsa::kAvx2, "x86_64-unknown-linux-gnu", "haswell"},
    {"avx512", VectorIsa::kAvx512, "x86_64-unknown-linux-gnu", "icelake-server"},
    {"neon", VectorIsa::kNeon, "aarch64-unknown-linux-gnu", "neoverse-n1"},
};

std::set<std::filesystem::path> loop_files() {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder("codegen"))) {
    if (entry.path().extension() == ".loops") files.insert(entry.path());
  }
  return files;
}

TEST(CodegenGolden, LoopTextParsesBack) {
  const std::set<std::filesystem::path> files = loop_files();
  EXPECT_GE(files.size(), 10u);
  for (const std::filesystem::path& path : files) {
    const std::string text = read(path);
    const loops::Kernel kernel = loops::parse_kernel(text);
    loops::verify_kernel(kernel);
    if (std::getenv("TATARA_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << loops::print_kernel(kernel);
      continue;
    }
    EXPECT_EQ(loops::print_kernel(kernel), text);
  }
}

TEST(CodegenGolden, TextOfEachMachine) {
  LlvmProvider* llvm = llvm_for_tests();
  for (const std::filesystem::path& path : loop_files()) {
    const loops::Kernel kernel = loops::parse_kernel(read(path));
    for (const Machine& machine : kMachines) {
      CpuTarget target;
      target.isa = machine.isa;
      const std::string text = emit_cpu(kernel, target, kernel.name);
      std::filesystem::path golden = path;
      golden.replace_extension(std::string(".") + machine.name + ".ll");
      if (std::getenv("TATARA_UPDATE_GOLDEN") != nullptr) {
        std::ofstream(golden) << text;
      } else {
        EXPECT_EQ(read(golden), text);
      }
      if (llvm == nullptr) continue;
      TargetOptions options;
      options.triple = machine.triple;
      options.cpu = machine.cpu;
      const CompiledObject object = llvm->compile(text, options);
      EXPECT_GT(object.bytes.size(), 64u);
    }
  }
}

/// Kernels as the scheduler prints them parse back too.
TEST(CodegenGolden, ScheduledKernelsParseBack) {
  int kernels = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder("schedule"))) {
    const std::string text = read(entry.path());
    size_t at = 0;
    while ((at = text.find("kernel ", at)) != std::string::npos) {
      const size_t end = text.find("\n}\n", at);
      const bool starts_line = at == 0 || text[at - 1] == '\n';
      if (!starts_line || end == std::string::npos ||
          text.substr(at, text.find('\n', at) - at).find('(') == std::string::npos) {
        ++at;
        continue;
      }
      const std::string kernel = text.substr(at, end + 3 - at);
      EXPECT_EQ(loops::print_kernel(loops::parse_kernel(kernel)), kernel);
      ++kernels;
      at = end;
    }
  }
  EXPECT_GE(kernels, 10);
}

TEST(CodegenGolden, BadTextIsRefused) {
  const auto refused = [](const char* text) { EXPECT_THROW(loops::parse_kernel(text), InvalidArgument); };
  refused("");
  refused("kernel k(in b0: f32[8]) {\n");
  refused("kernel k(in b0: q32[8]) {\n}\n");
  refused("kernel k(in b0: f32[8]) {\n  %0: f32 = load b1[0]\n}\n");
  refused("kernel k(in b0: f32[8]) {\n  %0: f32 = frobnicate(%0)\n}\n");
  refused("kernel k(in b0: f32[8]) {\n  vector i in 8 {\n}\n");
  refused("kernel k(in b0: f32[8]) {\n  %0: f32 = const(zero)\n}\n");
  refused("kernel k(in b0: f32[8]) {\n  store.div b0[0] = %0\n}\n");
}

}  // namespace
}  // namespace tatara
