// Gradients of attention in kernels of our own, without a GPU: that no scores lie in memory, and what NVIDIA's assembler says.
#include <algorithm>
#include <limits>
#include <string>

#include "attention_programs.h"
#include "llvm_for_tests.h"
#include "loops/attention_layout.h"
#include "loops/parser.h"
#include "nvidia_assembler.h"
#include "testing.h"
#include "transforms/autodiff.h"
#include "transforms/recompute.h"

namespace tatara {
namespace {

/// Forward and backward plans of a graph all of whose floating inputs need gradients.
struct TwoPlans {
  Schedule forward, backward;
  size_t saved = 0;      // bytes
  size_t gradients = 0;  // kernels of attention in the backward plan

  explicit TwoPlans(const Program& p) {
    std::vector<bool> needs;
    for (const ValueId v : p.graph.inputs()) needs.push_back(is_floating(p.graph.type(v).dtype));
    PassOptions passes = p.passes;
    passes.product_processors = 132;
    const Graph form = softmax_products(differentiable_form(p.graph, needs), needs, passes);
    const JointGraph joint = in_parts(rematerialize(joint_graph(form, needs)));
    const std::vector<ValueId> kept = choose_saved(joint);
    const ForwardGraph first = forward_graph(joint, kept);
    for (const ForwardGraph::Saved& each : first.saved) {
      if (each.from == ForwardGraph::Saved::From::kInput) continue;
      const TensorType& type = first.graph.type(first.graph.outputs()[static_cast<size_t>(each.index)].value);
      saved += static_cast<size_t>(type.numel(form.ctx()).const_value()) * dtype_size(type.dtype);
    }
    forward = schedule_on_hopper(first.graph, passes);
    backward = schedule_on_hopper(backward_graph(joint, kept).graph, passes);
    for (const auto& kernel : backward.kernels)
      gradients += loops::find_statement<loops::Attention>(kernel->body) != nullptr ? 1 : 0;
  }
};

size_t largest_buffer(const Schedule& s) {
  int64_t most = 0;
  for (const auto& kernel : s.kernels) {
    for (const loops::BufferArg& buffer : kernel->buffers) most = std::max(most, buffer.numel.const_value());
  }
  return static_cast<size_t>(most);
}

TEST(GpuAttentionGradients, NoScoresLieInMemory) {
  for (const int64_t width : {64, 128}) {
    Program p{kGpu};
    const AttentionForm form{.rows = 4096, .keys = 4096, .width = width};
    p.graph.add_output(attend(p, form, as_it_is));
    const TwoPlans plans(p);
    EXPECT_EQ(host_calls(plans.forward) + host_calls(plans.backward), 0u);
    EXPECT_EQ(plans.gradients, width > 64 ? 3u : 2u);
    const size_t operand = 2 * 4 * 4096 * static_cast<size_t>(width);
    EXPECT_LE(largest_buffer(plans.forward), operand);
    EXPECT_LE(largest_buffer(plans.backward), operand);
    // The result, and a number for each row.
    EXPECT_LE(plans.saved, operand * 2 + size_t{4} * 2 * 4 * 4096);
    for (const auto& kernel : plans.backward.kernels) {
      const std::string text = loops::print_kernel(*kernel);
      EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
    }
  }
}

TEST(GpuAttentionGradients, TheAssemblerKeepsAllInRegisters) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  const auto soft_cap = [](Program& p) {
    return [&p](ValueId x) { return p.b.binary("mul", p.b.unary("tanh", p.b.cast(x, DType::kFloat32)), Scalar(20.0)); };
  };
  for (const AttentionForm& form : {AttentionForm{},
                                    {2, 4, 500, 304, 128, DType::kBFloat16},
                                    {1, 2, 512, 1024, 256},
                                    {1, 2, 512, 1000, 80},
                                    {2, 4, 2048, 2048, 128}}) {
    for (const bool capped : {false, true}) {
      Program p{kGpu};
      p.graph.add_output(capped ? attend(p, form, soft_cap(p)) : attend(p, form, as_it_is));
      const TwoPlans plans(p);
      EXPECT_EQ(plans.gradients, form.width > 64 ? 3u : 2u) << form.width;
      for (const Schedule* s : {&plans.forward, &plans.backward}) {
        for (const auto& kernel : s->kernels) {
          if (loops::find_statement<loops::Attention>(kernel->body) == nullptr) continue;
          const Assembled made = assemble(*llvm, *kernel);
          EXPECT_TRUE(made.good && !made.spills()) << kernel->name << " " << form.width << made.log;
          EXPECT_EQ(made.log.find("serial"), std::string::npos) << made.log;
          EXPECT_EQ(made.log.find("setmaxnreg ignored"), std::string::npos) << made.log;
        }
      }
    }
  }
}

TEST(GpuAttentionGradients, MasksByPlacesLeaveBlocksOut) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  Program p{kGpu};
  const AttentionForm form{.rows = 4096, .keys = 4096};
  const auto causal = [&](ValueId x) {
    const ValueId places =
        p.b.op("arange.step", {Scalar(int64_t{0}), Scalar(int64_t{4096}), Scalar(int64_t{1}), Arg(NoneArg{}),
                               Arg(NoneArg{}), Arg(kGpu), Arg(NoneArg{}), Scalar(false)});
    return p.b.op("where", {TensorArg{p.b.binary("ge", p.b.unsqueeze(places, 1), places)}, TensorArg{x},
                            Scalar(-std::numeric_limits<double>::infinity())});
  };
  p.graph.add_output(attend(p, form, causal));
  const TwoPlans plans(p);
  EXPECT_EQ(plans.gradients, 2u);
  for (const auto& kernel : plans.backward.kernels) {
    if (loops::find_statement<loops::Attention>(kernel->body) == nullptr) continue;
    const Assembled made = assemble(*llvm, *kernel);
    EXPECT_TRUE(made.good && !made.spills()) << made.log;
    EXPECT_NE(made.ptx.find("vote"), std::string::npos) << kernel->name;
  }
}

TEST(GpuAttentionGradients, FilledScoresAreFused) {
  Program p{kGpu};
  const AttentionForm form{.rows = 512, .keys = 512};
  const ValueId mask = p.input({form.rows, form.keys}, DType::kBool);
  const auto filled = [&](ValueId x) {
    return p.b.op("masked_fill", {TensorArg{x}, TensorArg{mask}, Scalar(-std::numeric_limits<double>::infinity())});
  };
  p.graph.add_output(attend(p, form, filled, "_safe_softmax"));
  const TwoPlans plans(p);
  EXPECT_EQ(plans.gradients, 2u);
  EXPECT_EQ(host_calls(plans.backward), 0u);
}

TEST(GpuAttentionGradients, WhatElseReadsScoresHasThemInMemory) {
  Program p{kGpu};
  const AttentionForm form{.rows = 512, .keys = 512};
  ValueId seen = kNoValue;
  p.graph.add_output(attend(p, form, [&](ValueId x) { return seen = p.b.binary("mul", x, Scalar(2.0)); }));
  p.graph.add_output(seen);
  const TwoPlans plans(p);
  EXPECT_EQ(plans.gradients, 0u);
  EXPECT_TRUE(attention_kernel(plans.forward) == nullptr);
}

}  // namespace
}  // namespace tatara
