// Attention in kernels of our own for GPUs, without a GPU: what becomes one, and what NVIDIA's assembler says of the code.

#include <limits>
#include <string>

#include "attention_programs.h"
#include "llvm_for_tests.h"
#include "loops/attention_layout.h"
#include "loops/parser.h"
#include "nvidia_assembler.h"
#include "testing.h"

namespace tatara {
namespace {

TEST(GpuAttention, TwoProductsAndASoftmaxAreOneKernel) {
  Program p{kGpu};
  const Schedule s = schedule_attention(p, {attend(p, {}, as_it_is)});
  EXPECT_EQ(host_calls(s), 0u);
  EXPECT_EQ(s.plan.kernels.size(), 1u);
  const loops::Kernel* kernel = attention_kernel(s);
  EXPECT_TRUE(kernel != nullptr);
  if (kernel == nullptr) return;
  const std::string text = loops::print_kernel(*kernel);
  EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
  EXPECT_EQ(kernel->buffers.size(), 4u) << text;
  EXPECT_EQ(loops::tensor_maps(*kernel).size(), 3u);
}

TEST(GpuAttention, HeadsThatShareKeysAreNotCopied) {
  Program p{kGpu};
  const auto c = [&](int64_t n) { return p.graph.ctx().constant(n); };
  const auto repeated = [&] {
    const ValueId x = p.input({2, 2, 512, 64}, DType::kFloat16);
    const ValueId wide =
        p.b.op("expand", {TensorArg{p.b.unsqueeze(x, 2)}, SymInts{{c(2), c(2), c(4), c(512), c(64)}}, Scalar(false)});
    return p.b.op("clone", {TensorArg{p.b.reshape(wide, {c(2), c(8), c(512), c(64)})}, Arg(NoneArg{})});
  };
  const ValueId q = p.b.reshape(p.input({2, 8, 512, 64}, DType::kFloat16), {c(16), c(512), c(64)});
  const ValueId k = p.b.reshape(p.b.permute(repeated(), {0, 1, 3, 2}), {c(16), c(64), c(512)});
  const ValueId v = p.b.reshape(repeated(), {c(16), c(512), c(64)});
  const ValueId scores = p.b.reshape(p.b.binary("bmm", q, k), {c(2), c(8), c(512), c(512)});
  const ValueId shares = p.b.op("softmax", {TensorArg{scores}, Scalar(int64_t{-1}), Arg(NoneArg{})});
  const Schedule s = schedule_attention(p, {p.b.binary("bmm", p.b.reshape(shares, {c(16), c(512), c(512)}), v)});
  EXPECT_EQ(s.plan.kernels.size(), 1u);
  EXPECT_EQ(host_calls(s), 0u);
  EXPECT_TRUE(attention_kernel(s) != nullptr);
}

TEST(GpuAttention, MasksByPlacesLeaveBlocksOut) {
  LlvmProvider* llvm = llvm_for_tests();
  for (const bool causal : {true, false}) {
    Program p{kGpu};
    const AttentionForm form{.rows = 4096, .keys = 4096};
    const auto mask = [&](ValueId x) {
      const ValueId places =
          p.b.op("arange.step", {Scalar(int64_t{0}), Scalar(int64_t{4096}), Scalar(int64_t{1}), Arg(NoneArg{}),
                                 Arg(NoneArg{}), Arg(kGpu), Arg(NoneArg{}), Scalar(false)});
      const ValueId kept =
          causal ? p.b.binary("ge", p.b.unsqueeze(places, 1), places) : p.input({form.rows, form.keys}, DType::kBool);
      return p.b.op("where", {TensorArg{kept}, TensorArg{x}, Scalar(-std::numeric_limits<double>::infinity())});
    };
    const Schedule s = schedule_attention(p, {attend(p, form, mask)});
    const loops::Kernel* kernel = attention_kernel(s);
    EXPECT_TRUE(kernel != nullptr);
    if (kernel == nullptr || llvm == nullptr || !has_assembler()) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good) << made.log;
    EXPECT_FALSE(made.spills()) << made.log;
    EXPECT_EQ(made.log.find("serial"), std::string::npos) << made.log;
    EXPECT_EQ(made.ptx.find("vote") != std::string::npos, causal);
  }
}

TEST(GpuAttention, MasksByDataHaveATableOfBlocks) {
  LlvmProvider* llvm = llvm_for_tests();
  for (const int64_t rows : {4096, 4000}) {
    Program p{kGpu};
    const AttentionForm form{.rows = rows, .keys = rows};
    const auto documents = [&](ValueId x) {
      const ValueId document = p.input({form.batch, rows}, DType::kInt64);
      const ValueId of_rows = p.b.unsqueeze(p.b.unsqueeze(document, 1), 3),
                    of_keys = p.b.unsqueeze(p.b.unsqueeze(document, 1), 1);
      // As a mask of flex_attention arrives, repeated for each head.
      const auto c = [&](int64_t n) { return p.graph.ctx().constant(n); };
      const ValueId same = p.b.op(
          "clone",
          {TensorArg{p.b.expand(p.b.binary("eq", of_rows, of_keys), {c(form.batch), c(form.heads), c(rows), c(rows)})},
           Arg(NoneArg{})});
      return p.b.op("where", {TensorArg{same}, TensorArg{x}, Scalar(-std::numeric_limits<double>::infinity())});
    };
    const Schedule s = schedule_attention(p, {attend(p, form, documents)});
    const loops::Kernel* kernel = attention_kernel(s);
    EXPECT_TRUE(kernel != nullptr);
    if (kernel == nullptr) continue;
    const std::string text = loops::print_kernel(*kernel);
    EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
    EXPECT_EQ(loops::find_statement<loops::Attention>(kernel->body)->table >= 0, rows % 128 == 0) << text;
    for (const loops::BufferArg& buffer : kernel->buffers) EXPECT_LE(buffer.numel.const_value(), 2 * 4 * 4096 * 64);
    if (llvm == nullptr || !has_assembler()) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good && !made.spills() && made.log.find("serial") == std::string::npos) << made.log;
  }
}

TEST(GpuAttention, ABiasByPlacesIsComputedInTheKernel) {
  Program p{kGpu};
  const AttentionForm form{.batch = 4, .heads = 16, .rows = 4096, .keys = 4096, .dtype = DType::kBFloat16};
  const auto arange = [&](int64_t n) {
    return p.b.op("arange.step", {Scalar(int64_t{0}), Scalar(n), Scalar(int64_t{1}), Arg(NoneArg{}), Arg(NoneArg{}),
                                  Arg(kGpu), Arg(NoneArg{}), Scalar(false)});
  };
  const auto slopes = [&](ValueId x) {
    const ValueId i = p.b.unsqueeze(arange(4096), 1), j = arange(4096), h = arange(16);
    const ValueId slope = p.b.unary("exp2", p.b.binary("mul", p.b.binary("add", h, Scalar(int64_t{1})), Scalar(-0.5)));
    const ValueId places = p.b.cast(p.b.binary("sub", j, i), DType::kFloat32);
    const ValueId bias = p.b.binary("mul", places, p.b.unsqueeze(p.b.unsqueeze(slope, 1), 1));
    return p.b.binary("add", p.b.cast(x, DType::kFloat32), bias);
  };
  const Schedule s = schedule_attention(p, {attend(p, form, slopes)});
  EXPECT_EQ(s.plan.kernels.size(), 2u);  // the slopes, and all else
  for (const auto& kernel : s.kernels) {
    for (const loops::BufferArg& buffer : kernel->buffers) EXPECT_LE(buffer.numel.const_value(), 4 * 16 * 4096 * 64);
  }
}

TEST(GpuAttention, TheAssemblerKeepsAllInRegisters) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  // What is done with scores decides how many registers are left: nothing, and much.
  for (const AttentionForm& form : {AttentionForm{2, 4, 4096, 4096, 64, DType::kBFloat16},
                                    {2, 4, 4096, 4096, 128},
                                    {2, 4, 4096, 4096, 96},
                                    {2, 4, 4096, 4096, 256}}) {
    Program p{kGpu};
    const Assembled made = assemble(*llvm, *attention_kernel(schedule_attention(p, {attend(p, form, as_it_is)})));
    EXPECT_TRUE(made.good && !made.spills() && made.log.find("serial") == std::string::npos) << made.log;
  }
  for (const AttentionForm& form :
       {AttentionForm{}, {2, 4, 500, 300, 128, DType::kBFloat16}, {1, 2, 512, 1024, 256}, {1, 2, 512, 1001, 80}}) {
    Program p{kGpu};
    const ValueId bias = p.input({form.heads, form.rows, form.keys}, form.dtype);
    const auto soft_cap = [&](ValueId x) {
      return p.b.binary("mul", p.b.unary("tanh", p.b.binary("add", x, bias)), Scalar(20.0));
    };
    const Schedule s = schedule_attention(p, {attend(p, form, soft_cap)});
    const loops::Kernel* kernel = attention_kernel(s);
    EXPECT_TRUE(kernel != nullptr) << form.width;
    if (kernel == nullptr) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good) << made.log;
    EXPECT_FALSE(made.spills()) << form.width << made.log;
    EXPECT_EQ(made.log.find("serial"), std::string::npos) << made.log;
    EXPECT_EQ(made.log.find("setmaxnreg ignored"), std::string::npos) << made.log;
  }
}

TEST(GpuIntegers, ThoseWhoseBoundsFitHave32Bits) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  for (const int64_t count : {int64_t{1} << 20, int64_t{1} << 36}) {
    const loops::Kernel kernel =
        loops::parse_kernel(str_cat("kernel k(out b0: f32[", count, R"(], gpu threads 256 row 0 lanes 1) {
  vector i0 in )",
                                    count, R"( {
    %0: i64 = index(i0)
    %1: i64 = const(3)
    %2: i64 = sub(%1, %0)
    %3: f32 = cast(%2)
    store b0[i0] = %3
  }
}
)"));
    const Assembled made = assemble(*llvm, kernel);
    EXPECT_TRUE(made.good) << made.log;
    EXPECT_EQ(made.ptx.find("cvt.rn.f32.s64") == std::string::npos, count < INT32_MAX) << made.ptx;
  }
}

}  // namespace
}  // namespace tatara
