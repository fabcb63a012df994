// What of a graph on a GPU the CPU computes by itself, and when a plan waits for a condition of the GPU's.
#include <algorithm>
#include <variant>

#include "programs.h"
#include "testing.h"
#include "transforms/host_share.h"

namespace tatara {
namespace {

constexpr Device kGpu{DeviceKind::kCuda, 0}, kCpu{DeviceKind::kCpu, -1};

/// A parameter, its gradient, and a counter of steps on the CPU.
struct Step : Program {
  Step() : Program(kGpu), weight(input({8, 6})), gradient(input({8, 6})) {
    TensorType type = b.type(weight);
    type.device = kCpu;
    type.sizes.clear();
    type.strides.clear();
    counter = graph.add_input(type);
    raised = b.binary("add", counter, Scalar(1.0));
    graph.add_input_write(2, raised);
  }

  /// Updates the parameter by a factor that the counter decides.
  void update() {
    const ValueId change = b.binary("div", gradient, b.unary("sqrt", raised));
    graph.add_input_write(0, b.binary("sub", weight, change));
  }

  ValueId weight, gradient, counter = kNoValue, raised = kNoValue;
};

bool on(const Graph& graph, DeviceKind kind) {
  for (size_t v = 0; v < graph.num_values(); ++v) {
    if (graph.type(static_cast<ValueId>(v)).device.kind == kind) return true;
  }
  return false;
}

TEST(HostShare, ACounterOfSteps) {
  Step p;
  p.update();
  const std::optional<HostShare> share = take_host_share(p.graph);
  ASSERT_TRUE(share.has_value());
  EXPECT_FALSE(share->ahead.graph.has_value());
  ASSERT_TRUE(share->behind.graph.has_value());
  EXPECT_FALSE(on(*share->behind.graph, DeviceKind::kCuda));
  EXPECT_EQ(share->behind.inputs, std::vector<size_t>{2});
  EXPECT_EQ(share->behind.graph->input_writes().size(), 1U);
  EXPECT_EQ(share->writes[0].input_index, 2);
  ASSERT_EQ(share->gpu.input_writes().size(), 1U);  // the parameter's, by the number that kernels compute again
  EXPECT_EQ(share->gpu.input_writes()[0].input_index, 0);
}

TEST(HostShare, AConditionOfTheCounter) {
  Step p;
  p.update();
  const ValueId late = p.b.binary("gt", p.raised, Scalar(5.0));
  p.graph.add_output(p.b.unary("decided", late));
  const std::optional<HostShare> share = take_host_share(p.graph);
  ASSERT_TRUE(share.has_value());
  ASSERT_TRUE(share->ahead.graph.has_value());
  EXPECT_EQ(share->ahead.graph->input_writes().size(), 0U);
  EXPECT_EQ(share->ahead.inputs, std::vector<size_t>{2});
  EXPECT_EQ(share->gpu.outputs()[0].value, kNoValue);  // outputs keep their places
  for (const Node& node : share->gpu.nodes()) EXPECT_FALSE(node.op->decides);
}

TEST(HostShare, NothingOfAGraphOnOneDevice) {
  Program cpu;
  const ValueId x = cpu.input({4});
  cpu.graph.add_input_write(0, cpu.b.unary("sin", x));
  EXPECT_FALSE(take_host_share(cpu.graph).has_value());
}

TEST(HostShare, WhatAGpuDecidesIsNotTheCpus) {
  Step p;
  p.graph.input_writes().clear();
  const ValueId sum = p.b.op("sum", {TensorArg{p.gradient}, SymInts{}, Scalar(false), NoneArg{}});
  p.graph.add_output(p.b.unary("decided_on_host", p.b.binary("gt", sum, Scalar(1.0))));
  EXPECT_FALSE(take_host_share(p.graph).has_value());
}

TEST(HostShare, APlanWaitsBeforeItWrites) {
  Step p;
  p.graph.input_writes().clear();
  const ValueId sum = p.b.op("sum", {TensorArg{p.gradient}, SymInts{}, Scalar(false), NoneArg{}});
  p.graph.add_output(p.b.unary("decided_on_host", p.b.binary("gt", sum, Scalar(1.0))));
  p.graph.add_output(p.b.op("sum", {TensorArg{p.weight}, SymInts{}, Scalar(false), NoneArg{}}));
  p.graph.add_input_write(0, p.b.binary("sub", p.weight, p.gradient));
  ScheduleOptions options;
  options.gpu = GpuShape{.multiprocessors = 132};
  const Schedule schedule = schedule_graph(p.graph, options);
  const std::vector<PlanStep>& steps = schedule.plan.steps;
  const auto wait =
      std::find_if(steps.begin(), steps.end(), [](const PlanStep& step) { return awaits_condition(step); });
  ASSERT_TRUE(wait != steps.end());
  EXPECT_TRUE(wait - steps.begin() < schedule.plan.first_write);
  EXPECT_TRUE(wait - steps.begin() >= 1);
  EXPECT_TRUE(schedule.plan.decides());
}

}  // namespace
}  // namespace tatara
