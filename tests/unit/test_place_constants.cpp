// Which values of a graph on a GPU are made there though the program made them on the CPU.
#include <algorithm>

#include "programs.h"
#include "testing.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr Device kGpu{DeviceKind::kCuda, 0}, kCpu{DeviceKind::kCpu, -1};

struct OnGpu : Program {
  OnGpu() : Program(kGpu), x(input({8, 6})) {}

  ValueId x;

  /// 0 to n - 1, made on the CPU.
  ValueId positions(int64_t n, DType dtype = DType::kInt64) {
    return b.op("arange.step", {Scalar(int64_t{0}), Scalar(n), Scalar(int64_t{1}), dtype, NoneArg{}, kCpu});
  }
  ValueId on_gpu(ValueId v) { return b.op("to_gpu", {TensorArg{v}, kGpu, b.type(v).dtype}); }
  ValueId give(ValueId v) {
    graph.add_output(v);
    return v;
  }
  int64_t left_on_cpu() {
    place_constants(graph);
    int64_t left = 0;
    for (size_t v = 0; v < graph.num_values(); ++v) {
      if (graph.type(static_cast<ValueId>(v)).device == kCpu) ++left;
    }
    return left;
  }
};

TEST(PlaceConstants, ATableThatIsCopiedToTheGpu) {
  OnGpu p;
  const ValueId table = p.b.binary("mul", p.b.cast(p.positions(6), DType::kFloat32), Scalar(0.5));
  p.give(p.b.binary("add", p.x, p.on_gpu(table)));
  EXPECT_EQ(p.left_on_cpu(), 0);
  EXPECT_EQ(std::get<Device>(p.graph.node(0).args[5]), kGpu);  // where the positions are made
}

TEST(PlaceConstants, AnIndex) {
  OnGpu p;
  const ValueId rows = p.b.binary("sub", p.b.unary("neg", p.positions(8)), Scalar(int64_t{-7}));
  const ValueId picked = p.b.op("index", {TensorArg{p.x}, TensorList{{rows}}});
  p.give(p.b.op("index_put", {TensorArg{picked}, TensorList{{p.positions(8)}}, TensorArg{p.x}, Scalar(true)}));
  EXPECT_EQ(p.left_on_cpu(), 0);
}

TEST(PlaceConstants, WhatTheProgramSeesStays) {
  OnGpu p;
  const ValueId table = p.b.cast(p.positions(6), DType::kFloat32);
  p.give(p.b.binary("add", p.x, p.on_gpu(p.b.unary("sin", table))));
  p.give(table);
  EXPECT_EQ(p.left_on_cpu(), 3);
}

TEST(PlaceConstants, WhatComesFromTheCpuStays) {
  OnGpu p;
  p.device = kCpu;
  const ValueId given = p.input({6});
  p.give(p.b.binary("add", p.x, p.on_gpu(p.b.binary("add", given, p.positions(6)))));
  EXPECT_EQ(p.left_on_cpu(), 3);
}

TEST(PlaceConstants, ConstantInputsGoToTheGpuAsWell) {
  OnGpu p;
  p.device = kCpu;
  const ValueId table = p.input({6}), number = p.input({}), given = p.input({6});
  p.give(p.b.binary("add", p.x, p.on_gpu(p.b.binary("mul", table, number))));
  p.give(p.b.unary("sin", given));
  EXPECT_EQ(place_constants(p.graph, {false, true, true, true}), std::vector<size_t>{1});
  EXPECT_EQ(p.graph.type(table).device, kGpu);
  EXPECT_EQ(p.graph.type(number).device, kCpu);
  EXPECT_EQ(p.graph.type(given).device, kCpu);
}

TEST(PlaceConstants, RandomNumbersOfTheCpuStay) {
  OnGpu p;
  const ValueId like = p.positions(6, DType::kFloat32);
  p.give(p.b.binary("add", p.x, p.on_gpu(p.b.op("rand_like", {TensorArg{like}}))));
  EXPECT_EQ(p.left_on_cpu(), 2);
}

TEST(PlaceConstants, WhatEagerRefusesStays) {
  OnGpu p;
  p.give(p.b.op("index_select", {TensorArg{p.x}, Scalar(int64_t{0}), TensorArg{p.positions(8)}}));
  EXPECT_EQ(p.left_on_cpu(), 1);
}

TEST(PlaceConstants, AProgramOnTheCpuAlone) {
  OnGpu p;
  p.give(p.b.unary("sin", p.positions(6, DType::kFloat32)));
  EXPECT_EQ(p.left_on_cpu(), 2);
}

}  // namespace
}  // namespace tatara
