// Products of groups of rows with a matrix each, without a GPU: which become kernels of ours, and what NVIDIA's assembler says.
#include <string>

#include "attention_programs.h"
#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "nvidia_assembler.h"
#include "ops/core/parse.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

struct Groups {
  int64_t rows = 512, inner = 256, columns = 384, groups = 4;
  bool columns_first = false;  // weights [groups, columns, inner], seen the other way round
  const char* dtype = "bf16";
};

/// Rows of groups times a matrix each, with a ReLU.
std::string by_rows(const Groups& g) {
  const auto type = [&](const std::string& sizes) { return str_cat(g.dtype, "[", sizes, "]@cuda:0"); };
  const std::string sizes = str_cat(g.groups, ", ", g.inner, ", ", g.columns);
  const std::string seen = type(str_cat(sizes, "; strides ", g.inner * g.columns, ", 1, ", g.inner));
  const std::string given = type(g.columns_first ? str_cat(g.groups, ", ", g.columns, ", ", g.inner) : sizes);
  const std::string result = type(str_cat(g.rows, ", ", g.columns));
  return str_cat("graph(%0: ", type(str_cat(g.rows, ", ", g.inner)), ", %1: ", given, ", %2: i32[", g.groups,
                 "]@cuda:0) {\n", g.columns_first ? str_cat("  %3: ", seen, " = permute(%1, [0, 2, 1])\n") : "",
                 "  %4: ", result, " = _grouped_mm(%0, ", g.columns_first ? "%3" : "%1",
                 ", %2, None, None)\n  %5: ", result, " = relu(%4)\n  return (%5)\n}");
}

/// For each group the product of its part of the inner dimension.
std::string by_inner(const Groups& g) {
  const auto type = [&](const std::string& sizes) { return str_cat(g.dtype, "[", sizes, "]@cuda:0"); };
  return str_cat("graph(%0: ", type(str_cat(g.inner, ", ", g.rows)), ", %1: ", type(str_cat(g.inner, ", ", g.columns)),
                 ", %2: i32[", g.groups,
                 "]@cuda:0) {\n  %3: ", type(str_cat(g.rows, ", ", g.inner, "; strides 1, ", g.rows)),
                 " = permute(%0, [1, 0])\n  %4: ", type(str_cat(g.groups, ", ", g.rows, ", ", g.columns)),
                 " = _grouped_mm(%3, %1, %2, None, None)\n  return (%4)\n}");
}

/// The kernel with the product; all others make what it knows of the groups.
const loops::Kernel* product_kernel(const Schedule& s) {
  const loops::Kernel* found = nullptr;
  for (const auto& kernel : s.kernels) {
    if (loops::find_statement<loops::Product>(kernel->body) != nullptr) found = kernel.get();
  }
  return found;
}

Schedule schedule_text(const std::string& text) {
  return schedule_on_hopper(parse_graph(text, std::make_shared<ExprContext>()), {});
}

void expect_assembled(const std::string& text, size_t steps) {
  const Schedule s = schedule_text(text);
  EXPECT_EQ(host_calls(s), 0u) << text;
  EXPECT_EQ(s.plan.steps.size(), steps) << text;
  const loops::Kernel* const kernel = product_kernel(s);
  ASSERT_TRUE(kernel != nullptr) << text;
  EXPECT_TRUE(loops::find_statement<loops::Product>(kernel->body)->span.has_value());
  const std::string printed = loops::print_kernel(*kernel);
  EXPECT_EQ(loops::print_kernel(loops::parse_kernel(printed)), printed);
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM, or no ptxas";
  for (const auto& each : s.kernels) {
    const Assembled code = assemble(*llvm, *each);
    EXPECT_TRUE(code.good && !code.spills()) << code.log << loops::print_kernel(*each);
    // Else each multiplication waits for the one before.
    EXPECT_TRUE(code.log.find("serialized") == std::string::npos) << code.log << loops::print_kernel(*each);
  }
}

TEST(GpuGroupedProducts, RowsOfGroups) {
  // Numbers of tiles, what each tile has (where there are many groups, which one it has comes before), the product.
  for (const bool columns_first : {false, true}) {
    for (const int64_t rows : {64, 1000, 65536}) {
      expect_assembled(by_rows({.rows = rows, .columns_first = columns_first}), 3);
    }
    expect_assembled(
        by_rows({.rows = 32768, .inner = 2048, .columns = 1408, .groups = 64, .columns_first = columns_first}), 4);
    expect_assembled(
        by_rows({.rows = 32768, .inner = 4096, .columns = 14336, .groups = 8, .columns_first = columns_first}), 3);
  }
  expect_assembled(by_rows({.rows = 4096, .columns = 200, .groups = 128, .dtype = "f16"}), 4);
}

TEST(GpuGroupedProducts, PartsOfTheInnerDimension) {
  expect_assembled(by_inner({}), 1);
  expect_assembled(by_inner({.rows = 4096, .inner = 1001, .columns = 2048, .groups = 16, .dtype = "f16"}), 1);
}

TEST(GpuGroupedProducts, WhatTheCopyEngineDoesNotTakeIsTheHosts) {
  for (const Groups& g : {Groups{.inner = 252}, Groups{.columns = 100}, Groups{.dtype = "f32"}}) {
    const Schedule s = schedule_text(by_rows(g));
    EXPECT_EQ(host_calls(s), 1u);
    EXPECT_TRUE(product_kernel(s) == nullptr);
  }
  EXPECT_EQ(host_calls(schedule_text(by_inner({.rows = 100}))), 1u);
}

TEST(GpuGroupedProducts, BrokenOnesAreRefused) {
  const Schedule s = schedule_text(by_inner({}));
  const std::string text = loops::print_kernel(*product_kernel(s));
  std::string other = text;
  // k along memory: what another group has could not be left out.
  other.replace(other.find("strides 0 1 512"), 15, "strides 0 512 1");
  EXPECT_THROW(loops::verify_kernel(loops::parse_kernel(other)), InternalError) << text;
}

}  // namespace
}  // namespace tatara
