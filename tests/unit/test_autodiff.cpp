// Joint graphs, their cut, and second derivatives, on printed graphs.
#include <algorithm>
#include <sstream>

#include "ops/rules/derivative.h"
#include "programs.h"
#include "support/error.h"
#include "testing.h"
#include "transforms/autodiff.h"
#include "transforms/max_flow.h"

namespace tatara {
namespace {

/// A program that knows which of its inputs need gradients.
struct Trained : Program {
  std::vector<bool> needs;

  ValueId input(const std::vector<int64_t>& sizes, bool grad = true, DType dtype = DType::kFloat32) {
    needs.push_back(grad);
    return Program::input(sizes, dtype);
  }
  JointGraph joint() { return joint_graph(differentiable_form(graph, needs), needs); }
};

/// Joint, forward and backward graph, as text.
std::string stages(Trained& p) {
  const JointGraph joint = p.joint();
  const std::vector<ValueId> saved = choose_saved(joint);
  std::ostringstream out;
  out << "joint " << print_graph(joint.graph) << "saved:";
  for (const ValueId v : saved) out << " %" << v;
  out << "\nforward " << print_graph(eliminate_dead_code(forward_graph(joint, saved).graph));
  out << "backward " << print_graph(eliminate_dead_code(backward_graph(joint, saved).graph));
  return out.str();
}

void check_golden(const std::string& name, Trained& p) { expect_golden_text("autodiff/" + name + ".txt", stages(p)); }

TEST(Autodiff, GoldenMlp) {
  Trained p;
  const ValueId x = p.input({8, 16}, false), w = p.input({32, 16}), bias = p.input({32}), v = p.input({32, 4});
  const ValueId h = p.b.op("gelu", {TensorArg{p.b.op("linear", {TensorArg{x}, TensorArg{w}, TensorArg{bias}})}});
  p.graph.add_output(p.b.op("mean", {TensorArg{p.b.binary("mm", h, v)}}));
  check_golden("mlp", p);
}

TEST(Autodiff, GoldenLayerNorm) {
  Trained p;
  const ValueId x = p.input({8, 16}), w = p.input({16}), bias = p.input({16});
  const SymInts shape{{p.ctx->constant(16)}};
  p.graph.add_output(p.b.op("layer_norm", {TensorArg{x}, shape, TensorArg{w}, TensorArg{bias}}));
  check_golden("layer_norm", p);
}

TEST(Autodiff, GoldenSoftmax) {
  Trained p;
  const ValueId x = p.input({8, 16}), mask = p.input({8, 16}, false, DType::kBool);
  const ValueId hidden = p.b.op("masked_fill", {TensorArg{x}, TensorArg{mask}, Scalar(-1e9)});
  p.graph.add_output(p.b.op("softmax", {TensorArg{hidden}, Scalar(int64_t{-1})}));
  check_golden("softmax", p);
}

TEST(Autodiff, BroadcastOperandsGetSums) {
  Trained p;
  const ValueId x = p.input({4, 8}), row = p.input({8}), one = p.input({4, 1});
  p.graph.add_output(p.b.binary("mul", p.b.binary("add", x, row), one));
  const JointGraph joint = p.joint();
  ASSERT_EQ(joint.gradients.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const ValueId v = joint.graph.outputs()[joint.forward_outputs + i].value;
    EXPECT_TRUE(joint.graph.type(v).sizes == joint.graph.type(joint.graph.inputs()[i]).sizes);
  }
}

TEST(Autodiff, GradientsStopAtDetach) {
  Trained p;
  const ValueId x = p.input({4}), y = p.input({4});
  p.graph.add_output(p.b.binary("mul", p.b.unary("detach", x), y));
  const JointGraph joint = p.joint();
  EXPECT_EQ(joint.gradients, (std::vector<int>{1}));
}

TEST(Autodiff, NothingFlowsFromNodesWithoutGrad) {
  Trained p;
  const ValueId x = p.input({4});
  p.b.set_no_grad(true);
  const ValueId constant = p.b.unary("exp", x);
  p.b.set_no_grad(false);
  p.graph.add_output(p.b.binary("mul", constant, x));
  p.graph.add_output(constant);
  const JointGraph joint = p.joint();
  EXPECT_EQ(joint.cotangents, (std::vector<int>{0}));
  EXPECT_EQ(count(joint.graph, "exp"), 1u);
}

TEST(Autodiff, MissingRulesAreNamed) {
  Trained p;
  const ValueId x = p.input({4});
  p.graph.add_output(p.b.binary("heaviside", x, x));
  EXPECT_THROW(p.joint(), Unsupported);
}

TEST(Autodiff, OutputsChooseTheirCotangents) {
  Trained p;
  const ValueId x = p.input({4}), y = p.input({4});
  p.graph.add_output(p.b.unary("sin", x));
  p.graph.add_output(p.b.unary("cos", y));
  const JointGraph joint = joint_graph(p.graph, p.needs, {false, true});
  EXPECT_EQ(joint.cotangents, (std::vector<int>{1}));
  EXPECT_EQ(joint.gradients, (std::vector<int>{1}));
}

TEST(Autodiff, GradientsOfGradients) {
  Trained p;
  const ValueId x = p.input({4});
  p.graph.add_output(p.b.unary("tanh", x));
  Graph g = p.graph;
  std::vector<bool> needs = p.needs;
  for (int order = 1; order <= 4; ++order) {
    const JointGraph joint = joint_graph(differentiable_form(g, needs), needs);
    ASSERT_EQ(joint.gradients.size(), needs.size());
    g = eliminate_dead_code(backward_of_inputs(joint, {}));
    needs.assign(g.inputs().size(), true);
  }
  EXPECT_EQ(g.outputs().size(), 5u);  // x, its cotangent, and those of three gradients
}

TEST(Autodiff, ProductsAreSavedAndPointwiseIsComputedAgain) {
  Trained p;
  const ValueId x = p.input({64, 64}), w = p.input({64, 64});
  ValueId h = p.b.binary("mm", x, w);
  for (int i = 0; i < 5; ++i) h = p.b.unary("sin", h);
  p.graph.add_output(p.b.binary("mm", h, w));
  const JointGraph joint = p.joint();
  const std::vector<ValueId> saved = choose_saved(joint);
  // x, w and the first product.
  EXPECT_EQ(saved.size(), 3u);
  const BackwardGraph backward = backward_graph(joint, saved);
  EXPECT_EQ(count(backward.graph, "mm"), 4u);
  EXPECT_EQ(count(backward.graph, "sin"), 5u);
}

TEST(Autodiff, TiesAreHistoryAlone) {
  Trained p;
  const ValueId x = p.input({4}), bias = p.input({4});
  const ValueId bound = with_tied_gradient(p.b, bias, {p.b.unary("exp", x)});
  p.graph.add_output(p.b.binary("add", p.b.unary("sin", x), bound));
  const JointGraph joint = p.joint();
  ASSERT_EQ(joint.gradients.size(), 2u);
  // The gradient by the bias is the cotangent: what it is tied to is neither saved nor computed again.
  const std::vector<ValueId> saved = choose_saved(joint);
  EXPECT_EQ(saved, (std::vector<ValueId>{x}));
  const BackwardGraph backward = backward_graph(joint, saved);
  EXPECT_EQ(count(backward.graph, "tied") + count(backward.graph, "exp"), 0u);
  const Graph again = backward_of_inputs(joint, {});
  EXPECT_TRUE(values_needing_grad(again, {true, false, false})[static_cast<size_t>(again.outputs().back().value)]);
}

TEST(Autodiff, OfWideLogitsNarrowOnesAndStatisticsAreSaved) {
  Trained p;
  const ValueId x = p.input({64, 32}, true, DType::kFloat16), w = p.input({32, 5000}, true, DType::kFloat16);
  const ValueId logits = p.b.binary("mm", x, w);
  const ValueId wide = p.b.op("log_softmax", {TensorArg{p.b.cast(logits, DType::kFloat32)}, Scalar(int64_t{1})});
  p.graph.add_output(p.b.op("mean", {TensorArg{wide}}));
  const JointGraph joint = in_parts(p.joint());
  const std::vector<ValueId> saved = choose_saved(joint);
  int narrow = 0, statistics = 0;
  for (const ValueId v : saved) {
    const TensorType& type = joint.graph.type(v);
    const bool large = type.sizes.size() == 2 && type.sizes[1].is_const(5000);
    EXPECT_TRUE(!large || type.dtype == DType::kFloat16);
    narrow += large && type.sizes[0].is_const(64) ? 1 : 0;
    statistics += type.sizes.size() == 2 && type.sizes[0].is_const(64) && type.sizes[1].is_const(1) ? 1 : 0;
  }
  EXPECT_EQ(narrow, 1);
  EXPECT_EQ(statistics, 2);
  const Graph backward = eliminate_dead_code(backward_graph(joint, saved).graph);
  for (const Node& node : backward.nodes()) EXPECT_TRUE(node.op->name != "amax" && node.op->name != "log_softmax");
}

TEST(Autodiff, RandomNumbersAreSaved) {
  Trained p;
  const ValueId x = p.input({64});
  const ValueId noise = p.b.op("rand_like", {TensorArg{x}});
  p.graph.add_output(p.b.unary("sin", p.b.binary("mul", x, noise)));
  const JointGraph joint = p.joint();
  const std::vector<ValueId> saved = choose_saved(joint);
  EXPECT_TRUE(std::find(saved.begin(), saved.end(), noise) != saved.end());
  EXPECT_EQ(random_values(joint), (std::vector<ValueId>{noise}));
  EXPECT_EQ(count(backward_graph(joint, saved).graph, "rand_like"), 0u);
  EXPECT_EQ(backward_of_inputs(joint, random_values(joint)).inputs().size(), 3u);
}

TEST(Autodiff, CotangentsPassThroughWithoutACopy) {
  Trained p;
  const ValueId x = p.input({4}), y = p.input({4});
  p.graph.add_output(p.b.binary("add", x, y));
  const JointGraph joint = p.joint();
  const BackwardGraph backward = backward_graph(joint, choose_saved(joint));
  EXPECT_EQ(backward.outputs, (std::vector<int>{-1, -1}));
  EXPECT_EQ(backward.graph.num_nodes(), 0u);
}

TEST(Autodiff, InputsThatAreWrittenAreCopied) {
  Trained p;
  const ValueId x = p.input({64}), state = p.input({64}, false);
  p.graph.add_output(p.b.binary("mul", x, state));
  p.graph.add_input_write(1, p.b.binary("add", state, Scalar(1.0)));
  const JointGraph joint = p.joint();
  const ForwardGraph forward = forward_graph(joint, choose_saved(joint));
  ASSERT_EQ(forward.saved.size(), 1u);
  EXPECT_TRUE(forward.saved[0].from == ForwardGraph::Saved::From::kOutput);
}

TEST(Autodiff, WritesThatCarryGradientsAreRefused) {
  Trained p;
  const ValueId x = p.input({4}), state = p.input({4}, false);
  p.graph.add_output(x);
  p.graph.add_input_write(1, p.b.binary("add", state, x));
  EXPECT_THROW(p.joint(), Unsupported);
}

TEST(MaxFlow, ClassicNetwork) {
  FlowNetwork net;
  for (int i = 0; i < 6; ++i) net.add_vertex();
  const int edges[][3] = {{0, 1, 16}, {0, 2, 13}, {1, 2, 10}, {2, 1, 4},  {1, 3, 12},
                          {3, 2, 9},  {2, 4, 14}, {4, 3, 7},  {3, 5, 20}, {4, 5, 4}};
  for (const auto& e : edges) net.add_edge(e[0], e[1], e[2]);
  EXPECT_EQ(net.maximise(0, 5), 23);
  const std::vector<bool> side = net.source_side(0);
  int64_t cut = 0;
  for (const auto& e : edges) {
    if (side[static_cast<size_t>(e[0])] && !side[static_cast<size_t>(e[1])]) cut += e[2];
  }
  EXPECT_EQ(cut, 23);
}

TEST(MaxFlow, UnboundedNetworksAreSeen) {
  FlowNetwork net;
  for (int i = 0; i < 3; ++i) net.add_vertex();
  net.add_edge(0, 1, FlowNetwork::kInfinite);
  net.add_edge(1, 2, FlowNetwork::kInfinite);
  EXPECT_EQ(net.maximise(0, 2), FlowNetwork::kInfinite);
}

}  // namespace
}  // namespace tatara
