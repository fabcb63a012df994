// Products of a computed weight with few rows: what becomes loops, what fuses with them, and what NVIDIA's assembler says of the code.
#include <string>
#include <utility>

#include "codegen/emit_cpu.h"
#include "llvm_for_tests.h"
#include "nvidia_assembler.h"
#include "programs.h"
#include "testing.h"

namespace tatara {
namespace {

const Device kGpu{DeviceKind::kCuda, 0};

Schedule schedule_thin(Program& p, ValueId output, PassOptions passes = {}) {
  p.graph.add_output(output);
  const Graph g = eliminate_dead_code(
      eliminate_common_subexpressions(thin_products(canonicalize(decompose(canonicalize(p.graph))), passes)));
  ScheduleOptions options;
  options.num_threads = 2;
  if (p.device.kind == DeviceKind::kCuda) {
    options.gpu = GpuShape{.multiprocessors = 132};
    options.num_threads = 132;
  }
  Schedule made = schedule_graph(g, options);
  for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
  return made;
}

ValueId linear(Program& p, ValueId x, ValueId w) { return p.b.binary("mm", x, p.b.permute(w, {1, 0})); }

ValueId bytes_weight(Program& p, int64_t outer, int64_t inner, DType dtype) {
  const ValueId words = p.input({outer, inner}, DType::kInt8), scale = p.input({outer, 1}, dtype);
  return p.b.binary("mul", p.b.cast(words, dtype), scale);
}

/// Two to a byte, groups of 32 with a scale each; with `table`, levels are looked up.
ValueId packed_weight(Program& p, int64_t outer, int64_t inner, DType dtype, bool table) {
  GraphBuilder& b = p.b;
  ExprContext& ctx = b.ctx();
  const auto n = [&](int64_t number) { return ctx.constant(number); };
  const ValueId words = p.input({outer, inner / 2}, DType::kUInt8), scale = p.input({outer, inner / 32, 1}, dtype);
  const ValueId low = b.unsqueeze(b.binary("bitwise_and", words, Scalar(int64_t{15})), 2);
  const ValueId high = b.unsqueeze(b.binary("bitwise_right_shift", words, Scalar(int64_t{4})), 2);
  ValueId w = b.op("cat", {TensorList{{low, high}}, Scalar(int64_t{2})});
  w = b.reshape(w, {n(outer), n(inner / 32), n(32)});
  if (table) {
    const ValueId levels = p.input({16}, dtype);
    w = b.op("index", {TensorArg{levels}, TensorList{{b.cast(w, DType::kInt64)}}});
  } else {
    w = b.binary("sub", b.cast(w, dtype), Scalar(8.0));
  }
  return b.reshape(b.binary("mul", w, scale), {n(outer), n(inner)});
}

TEST(ThinProducts, TheWeightIsNeverThereAsAWhole) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int kind : {0, 1, 2}) {
      Program p;
      const ValueId w = kind == 0 ? bytes_weight(p, 512, 256, dtype) : packed_weight(p, 512, 256, dtype, kind == 2);
      const ValueId y = linear(p, p.input({4, 256}, dtype), w);
      const Schedule s = schedule_thin(p, p.b.op("gelu", {TensorArg{p.b.binary("add", y, p.input({512}, dtype))}}));
      EXPECT_EQ(host_calls(s), 0u);
      EXPECT_LE(s.plan.kernels.size(), 2u);  // rows, copied apart, and all else
      for (const PlanBuffer& buffer : s.plan.buffers) {
        if (buffer.home == BufferHome::kInput) continue;
        EXPECT_LE(buffer.nbytes.const_value(), 4 * 4 * 512);
      }
      const std::string text = loops::print_kernel(*s.kernels.back());
      EXPECT_NE(text.find("fma("), std::string::npos) << text;
      EXPECT_EQ(text.find("% 2"), std::string::npos) << text;    // no element is chosen at run time
      EXPECT_EQ(text.find("check"), std::string::npos) << text;  // four bits always find a level
    }
  }
}

TEST(ThinProducts, ManyRowsAndPlainWeightsAreTheHosts) {
  for (const int64_t rows : {8, 9, 16, 33}) {
    Program p;
    const ValueId w = bytes_weight(p, 512, 256, DType::kFloat32);
    EXPECT_EQ(host_calls(schedule_thin(p, linear(p, p.input({rows, 256}), w))), rows % 8 != 0 ? 1u : 0u);
  }
  for (const bool slow : {false, true}) {
    Program p;
    const ValueId x = p.input({4, 1024}), w = p.input({1024, 1024});
    PassOptions passes;
    passes.thin_weights = slow;
    EXPECT_EQ(host_calls(schedule_thin(p, linear(p, x, w), passes)), slow ? 0u : 1u);
  }
}

TEST(ThinProducts, AWeightThatIsReadElsewhereIsComputedOnce) {
  Program p;
  const ValueId w = bytes_weight(p, 512, 256, DType::kFloat32);
  p.graph.add_output(w);
  EXPECT_EQ(host_calls(schedule_thin(p, linear(p, p.input({4, 256}), w))), 1u);
}

TEST(ThinProducts, GatedPairsAreOneKernel) {
  Program p;
  const ValueId x = p.input({1, 256});
  const ValueId gate = linear(p, x, bytes_weight(p, 512, 256, DType::kFloat32));
  const ValueId up = linear(p, x, bytes_weight(p, 512, 256, DType::kFloat32));
  const Schedule s = schedule_thin(p, p.b.binary("mul", p.b.op("silu", {TensorArg{gate}}), up));
  EXPECT_EQ(s.plan.kernels.size(), 1u);
}

/// Places are int64, and yet vectors are as long as those of float32 are: the table is permuted in registers.
TEST(ThinProducts, LevelsOfATableAreNotGathered) {
  for (const auto& [isa, permuted] :
       {std::pair{VectorIsa::kAvx2, "avx2.permps"}, {VectorIsa::kAvx512, "permvar.sf.512"}}) {
    Program p;
    const ValueId w = packed_weight(p, 512, 256, DType::kFloat32, true);
    const Schedule s = schedule_thin(p, linear(p, p.input({1, 256}), w));
    CpuTarget target;
    target.isa = isa;
    const std::string text = emit_cpu(*s.kernels.back(), target, "k");
    EXPECT_NE(text.find(permuted), std::string::npos) << text;
    EXPECT_EQ(text.find("masked.gather"), std::string::npos) << text;
  }
}

TEST(ThinProducts, NeighboursOfOtherResultsAreLanes) {
  for (const int64_t rows : {1, 3, 8, 20}) {
    Program p;
    const ValueId w = p.b.cast(p.input({256, 512}, DType::kInt8), DType::kFloat32);
    const Schedule s = schedule_thin(p, p.b.binary("mm", p.input({rows, 256}), w));
    EXPECT_EQ(host_calls(s), 0u);
    for (const PlanBuffer& buffer : s.plan.buffers) {
      if (buffer.home == BufferHome::kInput) continue;
      EXPECT_LE(buffer.nbytes.const_value(), 4 * rows * 512);
    }
  }
}

TEST(ThinProducts, PartsThatFillAWeightAreJoined) {
  for (const bool in_turn : {false, true}) {
    Program p;
    GraphBuilder& b = p.b;
    const ValueId words = p.input({512, 128}, DType::kUInt8);
    const ValueId low = b.cast(b.binary("bitwise_and", words, Scalar(int64_t{15})), DType::kFloat32);
    const ValueId high = b.cast(b.binary("bitwise_right_shift", words, Scalar(int64_t{4})), DType::kFloat32);
    ValueId w = p.input({512, 256});  // all of it is written
    const int64_t end = in_turn ? 256 : 128, step = in_turn ? 2 : 1, second = in_turn ? 1 : 128;
    w = b.op("slice_scatter",
             {TensorArg{w}, TensorArg{low}, Scalar(int64_t{1}), Scalar(int64_t{0}), Scalar(end), Scalar(step)});
    w = b.op("slice_scatter",
             {TensorArg{w}, TensorArg{high}, Scalar(int64_t{1}), Scalar(second), Scalar(int64_t{256}), Scalar(step)});
    const Schedule s = schedule_thin(p, linear(p, p.input({4, 256}), w));
    EXPECT_EQ(host_calls(s), 0u);
    for (const PlanBuffer& buffer : s.plan.buffers) {
      if (buffer.home == BufferHome::kInput) continue;
      EXPECT_LE(buffer.nbytes.const_value(), 4 * 4 * 512);
    }
  }
}

TEST(ThinProducts, NvidiasAssemblerTakesThem) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const int kind : {0, 1, 2}) {
        Program p{kGpu};
        const ValueId w =
            kind == 0 ? bytes_weight(p, 4096, 4096, dtype) : packed_weight(p, 4096, 4096, dtype, kind == 2);
        const Schedule s = schedule_thin(p, p.b.op("gelu", {TensorArg{linear(p, p.input({rows, 4096}, dtype), w)}}));
        EXPECT_EQ(host_calls(s), 0u);
        for (const auto& kernel : s.kernels) {
          const Assembled made = assemble(*llvm, *kernel);
          EXPECT_TRUE(made.good) << made.log;
          EXPECT_FALSE(made.spills()) << kind << " " << rows << made.log << loops::print_kernel(*kernel);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tatara
