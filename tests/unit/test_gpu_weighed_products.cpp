// Products with a computed weight by tensor cores, without a GPU: that the weight never lies in memory, and what NVIDIA's assembler says.
#include <algorithm>
#include <string>

#include "attention_programs.h"
#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "loops/weighed_layout.h"
#include "nvidia_assembler.h"
#include "ops/core/parse.h"
#include "testing.h"

namespace tatara {
namespace {

/// `rows` of bfloat16 times a weight of 256 x 1024, as programs write it.
std::string int8_weight(const std::string& rows) {
  return "graph(%0: bf16[" + rows + R"(, 1024]@cuda:0, %1: i8[256, 1024]@cuda:0, %2: bf16[256]@cuda:0) {
  %3: bf16[256, 1024]@cuda:0 = cast(%1, bf16)
  %4: bf16[256, 1]@cuda:0 = unsqueeze(%2, 1)
  %5: bf16[256, 1024]@cuda:0 = mul(%3, %4)
  %6: bf16[)" +
         rows + R"(, 256]@cuda:0 = linear(%0, %5, None)
  return (%6)
})";
}

/// Two numbers a byte: neighbours, or (`halves`) the first and the second half.
std::string int4_weight(const std::string& rows, bool halves) {
  const std::string words = halves ? "[256, 512]" : "[256, 512, 1]", all = halves ? "[256, 1024]" : "[256, 512, 2]";
  const std::string seen =
      halves ? "  %6: u8" + words + "@cuda:0 = view(%4, " + words + ")\n  %7: u8" + words + "@cuda:0 = view(%5, " +
                   words + ")\n"
             : "  %6: u8" + words + "@cuda:0 = unsqueeze(%4, 2)\n  %7: u8" + words + "@cuda:0 = unsqueeze(%5, 2)\n";
  return "graph(%0: bf16[" + rows + R"(, 1024]@cuda:0, %1: u8[256, 512]@cuda:0, %2: bf16[256, 32]@cuda:0) {
  %4: u8[256, 512]@cuda:0 = bitwise_and(%1, 15)
  %5: u8[256, 512]@cuda:0 = bitwise_right_shift(%1, 4)
)" + seen +
         "  %8: u8" + all + "@cuda:0 = cat([%6, %7], " + (halves ? "1" : "2") + R"()
  %9: u8[256, 32, 32]@cuda:0 = view(%8, [256, 32, 32])
  %10: bf16[256, 32, 32]@cuda:0 = cast(%9, bf16)
  %11: bf16[256, 32, 1]@cuda:0 = unsqueeze(%2, 2)
  %12: bf16[256, 32, 32]@cuda:0 = mul(%10, %11)
  %13: bf16[256, 1024]@cuda:0 = view(%12, [256, 1024])
  %14: bf16[)" +
         rows + R"(, 256]@cuda:0 = linear(%0, %13, None)
  %15: bf16[)" +
         rows + R"(, 256]@cuda:0 = relu(%14)
  return (%15)
})";
}

/// Four numbers a byte, by shifts that a tensor says.
std::string shifted_weight(const std::string& rows) {
  return "graph(%0: u8[256, 256]@cuda:0, %1: u8[4]@cuda:0, %2: bf16[" + rows +
         R"(, 1024]@cuda:0, %3: bf16[256, 1]@cuda:0) {
  %4: u8[256, 256, 1]@cuda:0 = unsqueeze(%0, 2)
  %5: u8[256, 256, 4]@cuda:0 = bitwise_right_shift(%4, %1)
  %6: u8[256, 256, 4]@cuda:0 = bitwise_and(%5, 3)
  %7: u8[256, 1024]@cuda:0 = view(%6, [256, 1024])
  %8: bf16[256, 1024]@cuda:0 = cast(%7, bf16)
  %9: bf16[256, 1024]@cuda:0 = mul(%8, %3)
  %10: bf16[)" +
         rows + R"(, 256]@cuda:0 = linear(%2, %9, None)
  return (%10)
})";
}

/// Eight numbers a word of 32 bits along k, with neighbours of other results beside each other, as GPTQ has them.
std::string gptq_weight(const std::string& rows) {
  return "graph(%0: i32[128, 256]@cuda:0, %1: i32[1, 8, 1]@cuda:0, %2: bf16[" + rows +
         R"(, 1024]@cuda:0, %3: bf16[8, 256]@cuda:0) {
  %4: i32[128, 1, 256]@cuda:0 = unsqueeze(%0, 1)
  %5: i32[128, 8, 256]@cuda:0 = bitwise_right_shift(%4, %1)
  %6: i32[128, 8, 256]@cuda:0 = bitwise_and(%5, 15)
  %7: i32[8, 128, 256]@cuda:0 = view(%6, [8, 128, 256])
  %8: bf16[8, 128, 256]@cuda:0 = cast(%7, bf16)
  %9: bf16[8, 1, 256]@cuda:0 = unsqueeze(%3, 1)
  %10: bf16[8, 128, 256]@cuda:0 = mul(%8, %9)
  %11: bf16[1024, 256]@cuda:0 = view(%10, [1024, 256])
  %12: bf16[)" +
         rows + R"(, 256]@cuda:0 = mm(%2, %11)
  return (%12)
})";
}

const loops::WeighedProduct* weighed(const Schedule& s) {
  return s.kernels.size() == 1 ? loops::find_statement<loops::WeighedProduct>(s.kernels[0]->body) : nullptr;
}

Schedule schedule_text(const std::string& text) {
  return schedule_on_hopper(parse_graph(text, std::make_shared<ExprContext>()), {});
}

TEST(GpuWeighedProducts, OneKernelThatTheAssemblerTakes) {
  LlvmProvider* llvm = llvm_for_tests();
  for (const char* rows : {"1", "8", "12", "32", "50", "64"}) {
    for (const std::string& text :
         {int8_weight(rows), int4_weight(rows, false), int4_weight(rows, true), shifted_weight(rows)}) {
      const Schedule s = schedule_text(text);
      ASSERT_EQ(s.plan.steps.size(), 1U) << text;
      const loops::WeighedProduct* const product = weighed(s);
      ASSERT_TRUE(product != nullptr) << text;
      EXPECT_EQ(product->words * product->parts(), product->parts() == 1 ? 16 : 32);
      EXPECT_LE(loops::WeighedLayout::of(*product).shared_bytes(), loops::WeighedLayout::kMostShared);
      const std::string printed = loops::print_kernel(*s.kernels[0]);
      EXPECT_EQ(loops::print_kernel(loops::parse_kernel(printed)), printed);
      if (llvm == nullptr || !has_assembler()) continue;
      const Assembled code = assemble(*llvm, *s.kernels[0]);
      EXPECT_TRUE(code.good && !code.spills()) << code.log << printed;
      // Bytes become floats without the slow instruction for conversions, and weights are read 16 bytes at once.
      EXPECT_TRUE(code.ptx.find("cvt.rn.f32.") == std::string::npos) << code.ptx;
      EXPECT_TRUE(code.ptx.find("ld.global.nc.v4") != std::string::npos) << code.ptx;
    }
  }
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM, or no ptxas";
}

TEST(GpuWeighedProducts, WordsBesideEachOtherOfOtherResults) {
  for (const char* rows : {"1", "8", "40", "128"}) {
    const Schedule s = schedule_text(gptq_weight(rows));
    ASSERT_EQ(s.plan.steps.size(), 1U);
    const loops::WeighedProduct* const product = weighed(s);
    ASSERT_TRUE(product != nullptr);
    EXPECT_EQ(product->parts(), 8);
    LlvmProvider* llvm = llvm_for_tests();
    if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM, or no ptxas";
    const Assembled code = assemble(*llvm, *s.kernels[0]);
    EXPECT_TRUE(code.good && !code.spills()) << code.log << loops::print_kernel(*s.kernels[0]);
  }
}

TEST(GpuWeighedProducts, NotOfMoreRowsThanPay) {
  EXPECT_EQ(schedule_text(int8_weight("65")).plan.steps.size(), 2U);
  EXPECT_TRUE(weighed(schedule_text(int4_weight("65", false))) != nullptr);
  EXPECT_TRUE(weighed(schedule_text(int4_weight("129", false))) == nullptr);
}

TEST(GpuWeighedProducts, BrokenOnesAreRefused) {
  const Schedule s = schedule_text(int8_weight("16"));
  const std::string text = loops::print_kernel(*s.kernels[0]);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return loops::parse_kernel(other);
  };
  EXPECT_THROW(loops::verify_kernel(changed("rows 16", "rows 12")), InternalError);
  EXPECT_THROW(loops::verify_kernel(changed("words 16", "words 6")), InternalError);
  EXPECT_THROW(loops::verify_kernel(changed("stride 1024", "stride 1023")), InternalError);
  EXPECT_THROW(changed("weights", "heights"), InvalidArgument);
}

}  // namespace
}  // namespace tatara
