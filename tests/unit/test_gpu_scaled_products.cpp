// Products of 8-bit floats without a GPU: which become kernels of ours, and what NVIDIA's assembler says.
#include <string>

#include "attention_programs.h"
#include "llvm_for_tests.h"
#include "loops/find.h"
#include "loops/parser.h"
#include "nvidia_assembler.h"
#include "ops/core/parse.h"
#include "support/str_cat.h"
#include "testing.h"

namespace tatara {
namespace {

struct Scaled {
  int64_t rows = 4096, inner = 4096, columns = 4096;
  std::string left_scale = "1", right_scale = "1", fast = "False";
  const char* left = "f8e4m3fn";
  const char* right = "f8e4m3fn";
  const char* out = "bf16";
};

/// x @ w.T with scales and a bias behind it.
std::string program(const Scaled& s) {
  const std::string sizes = str_cat(s.rows, ", ", s.columns), cuda = "]@cuda:0";
  return str_cat("graph(%0: ", s.left, "[", s.rows, ", ", s.inner, cuda, ", %1: ", s.right, "[", s.columns, ", ",
                 s.inner, cuda, ", %2: f32[", s.left_scale, cuda, ", %3: f32[", s.right_scale, cuda,
                 ") {\n  %4: ", s.right, "[", s.inner, ", ", s.columns, "; strides 1, ", s.inner, cuda,
                 " = permute(%1, [1, 0])\n  %5: ", s.out, "[", sizes, cuda,
                 " = _scaled_mm(%0, %4, %2, %3, None, None, ", s.out, ", ", s.fast, ")\n  %6: ", s.out, "[", sizes,
                 cuda, " = relu(%5)\n  return (%6)\n}");
}

Scaled with_rows(Scaled s) {
  s.left_scale = str_cat(s.rows, ", 1");
  s.right_scale = str_cat("1, ", s.columns);
  return s;
}

Scaled with_blocks(Scaled s) {
  s.left_scale = str_cat(s.rows, ", ", s.inner / 128, "; strides 1, ", s.rows);
  s.right_scale = str_cat(s.inner / 128, ", ", s.columns / 128, "; strides 1, ", s.inner / 128);
  return s;
}

void expect_assembled(const Scaled& scaled, bool by_blocks, bool scales) {
  const std::string text = program(scaled);
  const Schedule s = schedule_on_hopper(parse_graph(text, std::make_shared<ExprContext>()), {});
  EXPECT_EQ(host_calls(s), 0u) << text;
  ASSERT_TRUE(s.kernels.size() == 1) << text;
  const loops::Kernel& kernel = *s.kernels[0];
  const auto* product = loops::find_statement<loops::Product>(kernel.body);
  ASSERT_TRUE(product != nullptr) << text;
  EXPECT_EQ(product->by_blocks, by_blocks) << text;
  EXPECT_EQ(product->scales.has_value(), scales) << text;
  const std::string printed = loops::print_kernel(kernel);
  EXPECT_EQ(loops::print_kernel(loops::parse_kernel(printed)), printed);
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM, or no ptxas";
  const Assembled code = assemble(*llvm, kernel);
  EXPECT_TRUE(code.good && !code.spills()) << code.log << printed;
  // Else each multiplication waits for the one before.
  EXPECT_TRUE(code.log.find("serialized") == std::string::npos) << code.log << printed;
}

TEST(GpuScaledProducts, OneScaleOfEachOperand) {
  for (const int64_t rows : {512, 4096, 4097}) {
    expect_assembled({.rows = rows, .fast = "True"}, false, false);
    expect_assembled({.rows = rows}, true, false);
  }
  expect_assembled({.inner = 2064, .columns = 4112, .right = "f8e5m2", .out = "f16"}, true, false);
  expect_assembled({.inner = 2064, .columns = 4112, .left = "f8e5m2", .out = "f32"}, true, false);
}

TEST(GpuScaledProducts, ScalesOfRowsAndColumns) {
  for (const char* fast : {"True", "False"}) {
    for (const int64_t rows : {512, 4096, 4097}) {
      expect_assembled(with_rows({.rows = rows, .fast = fast}), std::string(fast) == "False", false);
    }
  }
}

TEST(GpuScaledProducts, ScalesOfBlocks) {
  for (const int64_t rows : {512, 4096, 4097}) {
    expect_assembled(with_blocks({.rows = rows, .inner = 1024}), true, true);
  }
}

TEST(GpuScaledProducts, WhatTensorCoresDoNotTakeIsTheHosts) {
  for (const Scaled& s : {Scaled{.inner = 4088}, Scaled{.left = "f8e5m2", .right = "f8e5m2"}, Scaled{.out = "f8e4m3fn"},
                          Scaled{.left_scale = "4096, 1"}, Scaled{.left_scale = "2"}}) {
    EXPECT_EQ(host_calls(schedule_on_hopper(parse_graph(program(s), std::make_shared<ExprContext>()), {})), 1u)
        << program(s);
  }
}

}  // namespace
}  // namespace tatara
