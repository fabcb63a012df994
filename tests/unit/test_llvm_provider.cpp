#include "runtime/jit/llvm_provider.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "llvm_for_tests.h"
#include "runtime/base/thread_pool.h"
#include "runtime/jit/jit_loader.h"
#include "support/error.h"
#include "testing.h"

namespace tatara {
namespace {

constexpr const char* kAddIr = R"(
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
})";

// Constants in .rodata, writable data, a call of another function of the module, calls of libm and memcpy.
constexpr const char* kMixedIr = R"(
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@counter = internal global i64 40
@zeros = internal global [100 x i64] zeroinitializer
@bytes = private unnamed_addr constant [8 x i8] c"tatara!\00"
declare double @cbrt(double)
declare ptr @memcpy(ptr, ptr, i64)
define internal double @pick(i64 %i) noinline {
  %p = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %v = load double, ptr %p
  ret double %v
}
define double @root(i64 %i) {
  %v = call double @pick(i64 %i)
  %r = call double @cbrt(double %v)
  ret double %r
}
define i64 @count() {
  %old = load volatile i64, ptr @counter
  %new = add i64 %old, 1
  store volatile i64 %new, ptr @counter
  %z = load volatile i64, ptr getelementptr ([100 x i64], ptr @zeros, i64 0, i64 77)
  %s = add i64 %new, %z
  ret i64 %s
}
define void @name(ptr %out, i64 %n) {
  %r = call ptr @memcpy(ptr %out, ptr @bytes, i64 %n)
  ret void
}
declare void @missing()
)";

template <typename Fn>
Fn* function(const LoadedObject& object, const char* name) {
  return reinterpret_cast<Fn*>(object.find(name));
}

#define NEED_LLVM()                      \
  LlvmProvider* llvm = llvm_for_tests(); \
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM: set TATARA_LLVM"

TEST(LlvmProvider, CompilesLoadsAndRuns) {
  NEED_LLVM();
  const CompiledObject code = llvm->compile(kAddIr, {});
  const auto object = load_object(code.bytes);
  auto* add = function<int64_t(int64_t, int64_t)>(*object, "add");
  ASSERT_TRUE(add != nullptr);
  EXPECT_EQ(add(40, 2), 42);
  EXPECT_EQ(object->find("no_such_symbol"), nullptr);
  EXPECT_TRUE(llvm_loaded());
  EXPECT_NE(llvm->version().find("LLVM"), std::string::npos);
  EXPECT_FALSE(llvm->host_cpu().empty());
}

TEST(LlvmProvider, EveryOptimisationLevelGivesTheSameValues) {
  NEED_LLVM();
  for (int level = 0; level <= 3; ++level) {
    TargetOptions options;
    options.opt_level = level;
    const auto object = load_object(llvm->compile(kMixedIr, options).bytes);
    auto* root = function<double(int64_t)>(*object, "root");
    auto* count = function<int64_t()>(*object, "count");
    auto* name = function<void(char*, int64_t)>(*object, "name");
    ASSERT_TRUE(root != nullptr && count != nullptr && name != nullptr);
    for (int64_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(root(i), std::cbrt(std::exp2(static_cast<double>(i))));
    EXPECT_EQ(count(), 41);
    EXPECT_EQ(count(), 42);
    char text[8] = {};
    name(text, 8);
    EXPECT_STREQ(text, "tatara!");
  }
}

TEST(LlvmProvider, OptimizeShowsTheModuleAfterThePasses) {
  NEED_LLVM();
  const std::string text = llvm->optimize("define i64 @f(i64 %a) {\n  %b = add i64 %a, 0\n  ret i64 %b\n}\n", {});
  EXPECT_NE(text.find("ret i64 %a"), std::string::npos) << text;
}

TEST(LlvmProvider, BadTextIsACompilationErrorWithLlvmsMessage) {
  NEED_LLVM();
  EXPECT_THROW(llvm->compile("this is no IR", {}), CompilationError);
  try {
    // Parses, but %b does not dominate its use.
    llvm->compile("define i64 @f(i64 %a) {\nx:\n  %c = add i64 %b, 1\n  %b = add i64 %a, 1\n  ret i64 %c\n}\n", {});
    FAIL() << "no exception";
  } catch (const CompilationError& error) {
    EXPECT_NE(error.message().find("dominate"), std::string::npos) << error.what();
  }
  TargetOptions options;
  options.triple = "pdp11-unknown-none";
  EXPECT_THROW(llvm->compile(kAddIr, options), CompilationError);
  EXPECT_EQ(function<int64_t(int64_t, int64_t)>(*load_object(llvm->compile(kAddIr, {}).bytes), "add") != nullptr, true);
}

TEST(LlvmProvider, LibraryThatDoesNotLoadIsAClearError) {
  EXPECT_THROW(open_llvmlite("/nonexistent/libllvmlite.so"), CompilationError);
  EXPECT_THROW(open_llvmlite("libc.so.6"), CompilationError);  // loads, but lacks the functions
}

TEST(LlvmProvider, NvptxGivesPtxText) {
  NEED_LLVM();
  TargetOptions options;
  options.triple = "nvptx64-nvidia-cuda";
  options.cpu = "sm_90";
  options.features = "+ptx80";
  options.output = TargetOptions::Output::kAssembly;
  const CompiledObject ptx = llvm->compile(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %i, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
)",
                                           options);
  EXPECT_NE(ptx.bytes.find(".visible .entry k("), std::string::npos) << ptx.bytes;
  EXPECT_NE(ptx.bytes.find(".target sm_90"), std::string::npos);
}

TEST(LlvmProvider, ThreadsCompileAtOnce) {
  NEED_LLVM();
  std::vector<int64_t> results(16, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < results.size(); i += 4) {
        const std::string ir = str_cat("define i64 @f() {\n  ret i64 ", i * 3, "\n}\n");
        results[i] = function<int64_t()>(*load_object(llvm->compile(ir, {}).bytes), "f")();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], static_cast<int64_t>(i * 3));
}

TEST(LlvmProvider, KeysTellTargetsApart) {
  TargetOptions a;
  TargetOptions b;
  EXPECT_EQ(a.key(), b.key());
  b.opt_level = 3;
  EXPECT_NE(a.key(), b.key());
  b = a;
  b.output = TargetOptions::Output::kAssembly;
  EXPECT_NE(a.key(), b.key());
  EXPECT_EQ(llvm_fingerprint(), llvm_fingerprint());
}

TEST(JitLoader, UnknownFunctionIsNamed) {
  NEED_LLVM();
  const CompiledObject code = llvm->compile(
      "declare void @no_such_function()\ndefine void @f() {\n  call void @no_such_function()\n  ret void\n}", {});
  try {
    load_object(code.bytes);
    FAIL() << "no exception";
  } catch (const CompilationError& error) {
    EXPECT_NE(error.message().find("no_such_function"), std::string::npos) << error.what();
  }
  static bool called = false;
  called = false;
  register_runtime_symbol("no_such_function", reinterpret_cast<void*>(+[] { called = true; }));
  function<void()>(*load_object(code.bytes), "f")();
  EXPECT_TRUE(called);
  register_runtime_symbol("no_such_function", nullptr);
}

TEST(JitLoader, RuntimeSymbols) {
  EXPECT_NE(runtime_symbol("memcpy"), nullptr);
  EXPECT_NE(runtime_symbol("expf"), nullptr);
  EXPECT_EQ(runtime_symbol("no_such_symbol_at_all"), nullptr);
}

TEST(JitLoader, CodeIsNotWritable) {
  NEED_LLVM();
  const auto object = load_object(llvm->compile(kAddIr, {}).bytes);
  FILE* maps = fopen("/proc/self/maps", "r");
  ASSERT_TRUE(maps != nullptr);
  char line[512];
  bool found = false;
  const auto address = reinterpret_cast<uintptr_t>(object->find("add"));
  while (fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[8] = {};
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3) continue;
    if (address < begin || address >= end) continue;
    found = true;
    EXPECT_STREQ(std::string(rights).substr(0, 3), "r-x");
  }
  fclose(maps);
  EXPECT_TRUE(found);
}

TEST(JitLoader, TruncatedObjectsAreErrors) {
  NEED_LLVM();
  const std::string bytes = llvm->compile(kMixedIr, {}).bytes;
  int loaded = 0;
  for (size_t size = 0; size < bytes.size(); size += size < 128 ? 1 : 7) {
    try {
      load_object(std::string_view(bytes).substr(0, size));
      ++loaded;
    } catch (const CompilationError&) {
    }
  }
  EXPECT_EQ(loaded, 0);  // the section headers come last in the file
}

TEST(JitLoader, DamagedObjectsAreErrorsOrLoadWithoutHarm) {
  NEED_LLVM();
  const std::string bytes = llvm->compile(kMixedIr, {}).bytes;
  uint64_t random = 12345;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (int change = 0; change < 1 + round % 4; ++change) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      damaged[(random >> 33) % damaged.size()] = static_cast<char>(random >> 24);
    }
    try {
      load_object(damaged);  // never run
    } catch (const CompilationError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(JitLoader, ForeignObjectIsLinkedButNotLoaded) {
  NEED_LLVM();
  TargetOptions options;
  options.triple = "aarch64-unknown-linux-gnu";
  options.cpu = "generic";
  const CompiledObject code = llvm->compile(kMixedIr, options);
#if !defined(__aarch64__)
  EXPECT_THROW(load_object(code.bytes), CompilationError);
#endif
  const auto object = link_foreign_object(code.bytes, runtime_symbol);
  auto* words = reinterpret_cast<const uint32_t*>(object->find("name"));
  ASSERT_TRUE(words != nullptr);
  // name(): adrp + add must give the address of the bytes "tatara!", which the loader put in the constants.
  uint64_t found = 0;
  for (int i = 0; i < 16 && found == 0; ++i) {
    if ((words[i] & 0x9f000000u) != 0x90000000u) continue;  // adrp
    const uint64_t pages = ((words[i] >> 5 & 0x7ffffu) << 2) | (words[i] >> 29 & 3u);
    const auto distance = static_cast<int64_t>(pages << 43) >> 31;  // sign of 21 bits, times 4096
    const uint64_t page = (reinterpret_cast<uint64_t>(words + i) & ~uint64_t{0xfff}) + static_cast<uint64_t>(distance);
    for (int j = i + 1; j < i + 4; ++j) {
      if ((words[j] & 0xffc00000u) == 0x91000000u) found = page + (words[j] >> 10 & 0xfffu);  // add, immediate
    }
  }
  ASSERT_TRUE(found != 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(found), "tatara!");
}

}  // namespace
}  // namespace tatara
