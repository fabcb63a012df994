// Matrix products in kernels of our own for GPUs, without a GPU: which products they take, what fuses with them, and what NVIDIA's
// assembler says of the code.

#include <algorithm>
#include <string>

#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "loops/product_layout.h"
#include "nvidia_assembler.h"
#include "programs.h"
#include "testing.h"

namespace tatara {
namespace {

const Device kGpu{DeviceKind::kCuda, 0};

/// The program's kernels as they would be on a GPU with so many multiprocessors that have the tensor cores.
Schedule schedule_products(Program& p, const std::vector<ValueId>& outputs, int processors = 132) {
  for (const ValueId v : outputs) p.graph.add_output(v);
  PassOptions passes = p.passes;
  passes.product_processors = processors;
  passes.float32_products = true;
  const Graph g = eliminate_dead_code(
      eliminate_common_subexpressions(own_products(canonicalize(decompose(canonicalize(p.graph))), passes)));
  ScheduleOptions options;
  options.gpu = GpuShape{.multiprocessors = processors};
  options.num_threads = processors;
  options.passes = passes;
  Schedule made = schedule_graph(g, options);
  for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
  return made;
}

const loops::Kernel* product_kernel(const Schedule& s) {
  for (const auto& kernel : s.kernels) {
    if (kernel->gpu.shared > 0) return kernel.get();
  }
  return nullptr;
}

ValueId transposed(Program& p, ValueId x) { return p.b.permute(x, {1, 0}); }

ValueId relu_of_layer(Program& p, int64_t rows, int64_t inner, int64_t columns) {
  const ValueId x = p.input({rows, inner}), w = p.input({columns, inner}), bias = p.input({columns});
  const ValueId y = p.b.op("addmm", {TensorArg{bias}, TensorArg{x}, TensorArg{transposed(p, w)}});
  return p.b.unary("relu", y);
}

TEST(GpuProducts, WhatFollowsElementByElementIsPartOfTheKernel) {
  Program p{kGpu};
  const ValueId y = relu_of_layer(p, 4096, 1024, 4096);
  const Schedule s = schedule_products(p, {p.b.binary("add", y, p.input({4096, 4096}))});
  EXPECT_EQ(host_calls(s), 0u);
  EXPECT_TRUE(std::any_of(s.notes.begin(), s.notes.end(), [](const ScheduleNote& note) {
    return note.text == "six products of bfloat16 parts, added as float32, in tiles of 128 x 128";
  }));
  EXPECT_EQ(s.plan.kernels.size(), 2u);  // parts of both operands in one launch, and the product with all that follows
  const loops::Kernel* kernel = product_kernel(s);
  EXPECT_TRUE(kernel != nullptr);
  const std::string text = loops::print_kernel(*kernel);
  EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
  EXPECT_NE(text.find("max("), std::string::npos) << text;
  EXPECT_EQ(kernel->buffers.size(), 9u) << text;  // six parts, bias, what is added, the result
}

TEST(GpuProducts, AProductThatIsReadElsewhereIsStoredToo) {
  Program p{kGpu};
  const ValueId x = p.input({4096, 1024}), w = p.input({1024, 4096});
  const ValueId y = p.b.binary("mm", x, w);
  const Schedule s = schedule_products(p, {y, p.b.unary("relu", y)});
  const loops::Kernel* kernel = product_kernel(s);
  EXPECT_TRUE(kernel != nullptr);
  EXPECT_EQ(kernel->buffers.size(), 8u);
}

TEST(GpuProducts, AFunctionOfEachElementHasAKernelOfItsOwn) {
  Program p{kGpu};
  const ValueId y = relu_of_layer(p, 4096, 1024, 4096);
  const Schedule s = schedule_products(p, {p.b.unary("sigmoid", y)});
  EXPECT_EQ(s.plan.kernels.size(), 3u);
  EXPECT_EQ(host_calls(s), 0u);
}

TEST(GpuProducts, TheHostKeepsWhatItDoesFaster) {
  const auto ours = [](int64_t rows, int64_t inner, int64_t columns, DType dtype, int processors = 132,
                       bool turned = false) {
    Program p{kGpu};
    const ValueId w = turned ? transposed(p, p.input({columns, inner}, dtype)) : p.input({inner, columns}, dtype);
    const Schedule s = schedule_products(p, {p.b.binary("mm", p.input({rows, inner}, dtype), w)}, processors);
    return product_kernel(s) != nullptr;
  };
  EXPECT_TRUE(ours(8192, 8192, 8192, DType::kFloat32));
  EXPECT_TRUE(ours(512, 4096, 4096, DType::kFloat32));
  EXPECT_FALSE(ours(4, 4096, 4096, DType::kFloat32));
  EXPECT_FALSE(ours(65536, 8192, 65536, DType::kFloat32));  // its parts would take gigabytes
  EXPECT_FALSE(ours(128, 128, 128, DType::kFloat32));
  EXPECT_FALSE(ours(8192, 16, 8192, DType::kFloat32));
  EXPECT_TRUE(ours(4096, 1024, 4096, DType::kFloat16, 132, true));
  EXPECT_TRUE(ours(4096, 1024, 4096, DType::kBFloat16, 132, true));
  EXPECT_FALSE(ours(1000, 1001, 4096, DType::kFloat16, 132, true));  // rows off 16 bytes
  EXPECT_FALSE(ours(64, 4096, 4096, DType::kFloat16, 132, true));
  EXPECT_TRUE(ours(4096, 512, 4096, DType::kFloat16));              // columns are exchanged between threads
  EXPECT_FALSE(ours(4096, 512, 4100, DType::kFloat16, 132, true));  // pairs of them are stored
  EXPECT_FALSE(ours(8192, 8192, 8192, DType::kFloat64));
  EXPECT_FALSE(ours(8192, 8192, 8192, DType::kFloat32, 0));
}

TEST(GpuProducts, PartsOfTransposedOperandsAreReadAcross) {
  for (const bool across : {false, true}) {
    Program p{kGpu};
    const ValueId w = p.input({4096, 4096});
    const Schedule s = schedule_products(p, {p.b.binary("mm", p.input({2048, 4096}), across ? w : transposed(p, w))});
    size_t seen = 0;
    for (const auto& kernel : s.kernels) {
      if (kernel->gpu.shared > 0) continue;
      ++seen;
      EXPECT_FALSE(kernel->gpu.tiles);
      EXPECT_EQ(kernel->gpu.lanes, 8) << loops::print_kernel(*kernel);
    }
    EXPECT_GT(seen, 0u);
  }
}

TEST(GpuProducts, TheAssemblerKeepsAllInRegisters) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  struct Size {
    int64_t rows, inner, columns;
  };
  for (const Size& size :
       {Size{8192, 1024, 8192}, {4096, 1024, 4096}, {1000, 4000, 1601}, {8191, 4100, 8190}, {640, 4000, 4096}}) {
    Program p{kGpu};
    const Schedule s = schedule_products(p, {relu_of_layer(p, size.rows, size.inner, size.columns)});
    const loops::Kernel* kernel = product_kernel(s);
    EXPECT_TRUE(kernel != nullptr) << size.rows;
    if (kernel == nullptr) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good) << made.log;
    EXPECT_NE(made.log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << made.log;
    // It warns where multiplications wait for each other.
    EXPECT_EQ(made.log.find("serial"), std::string::npos) << made.log;
    EXPECT_EQ(made.log.find("setmaxnreg ignored"), std::string::npos) << made.log;
  }
}

struct HalfForm {
  bool left, right;  // turned: k does not go along memory
  DType dtype;
  int64_t rows, columns;  // of a tile
};

/// A product with a sum behind it, in the kernel that it gets with such a tile.
Schedule half_product(const HalfForm& form) {
  Program p{kGpu};
  const auto operand = [&](bool turned) {
    const ValueId x = p.input({4096, 4096}, form.dtype);
    return turned ? transposed(p, x) : x;
  };
  const ValueId x = operand(form.left), w = operand(!form.right);
  const ValueId y = p.b.op("matrix_product", {TensorList{{x}}, TensorList{{w}}, SymInts{p.graph.type(x).sizes},
                                              Scalar(form.rows), Scalar(form.columns)});
  return schedule_products(p, {p.b.unary("relu", p.b.binary("add", y, p.input({4096}, form.dtype)))});
}

TEST(GpuProducts, HalvesAreLoadedAsTheyLie) {
  LlvmProvider* llvm = llvm_for_tests();
  const DType half = DType::kFloat16, brain = DType::kBFloat16;
  for (const HalfForm& form : {HalfForm{false, true, half, 128, 128},
                               {false, true, brain, 128, 256},
                               {false, true, half, 64, 128},
                               {false, false, brain, 128, 128},
                               {true, false, half, 128, 256}}) {
    const Schedule s = half_product(form);
    EXPECT_EQ(host_calls(s), 0u);
    EXPECT_EQ(s.kernels.size(), 1u);
    const loops::Kernel* kernel = product_kernel(s);
    EXPECT_TRUE(kernel != nullptr);
    if (kernel == nullptr) continue;
    const std::string text = loops::print_kernel(*kernel);
    EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
    EXPECT_EQ(text.find("interleaved") != std::string::npos, form.right);
    EXPECT_EQ(loops::tensor_maps(*kernel).size(), 2u);
    if (llvm == nullptr || !has_assembler()) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good) << made.log;
    EXPECT_NE(made.log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << made.log;
    EXPECT_EQ(made.log.find("serial"), std::string::npos) << made.log;
    EXPECT_EQ(made.log.find("setmaxnreg ignored"), std::string::npos) << made.log;
  }
}

TEST(GpuProducts, AnOperandThatBeginsBetweenSixteenBytesIsTheHosts) {
  for (const int64_t begin : {0, 1, 8, 12}) {
    Program p{kGpu};
    const ValueId x = p.input({4096, 1040}, DType::kFloat16), w = p.input({4096, 1024}, DType::kFloat16);
    const Expr from = p.graph.ctx().constant(begin), to = p.graph.ctx().constant(begin + 1024);
    const ValueId part = p.b.slice(x, 1, from, to, p.graph.ctx().constant(1));
    const Schedule s = schedule_products(p, {p.b.unary("relu", p.b.binary("mm", part, transposed(p, w)))});
    EXPECT_EQ(product_kernel(s) != nullptr, begin % 8 == 0) << begin;
  }
}

TEST(GpuProducts, FunctionsAreNoPartOfAProductOfHalves) {
  for (const bool dear : {false, true}) {
    Program p{kGpu};
    const ValueId x = p.input({4096, 1024}, DType::kFloat16), w = p.input({4096, 1024}, DType::kFloat16);
    const ValueId y = p.b.binary("mm", x, transposed(p, w));
    const Schedule s = schedule_products(p, {dear ? p.b.unary("exp", y) : p.b.unary("relu", y)});
    EXPECT_TRUE(product_kernel(s) != nullptr);
    EXPECT_EQ(s.kernels.size(), dear ? 2u : 1u);
  }
}

}  // namespace
}  // namespace tatara
