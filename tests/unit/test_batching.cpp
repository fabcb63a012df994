// vmap inside graphs: batched code for the nodes between the markers of a level, on printed graphs.
#include "programs.h"
#include "support/error.h"
#include "testing.h"
#include "transforms/autodiff.h"
#include "transforms/batching.h"

namespace tatara {
namespace {

/// A program with levels of vmap.
struct Batched : Program {
  ValueId in(ValueId x, int64_t dim = 0, int64_t level = 1, Randomness randomness = Randomness::kError) {
    return add_batch_in(b, x, dim, level, randomness);
  }
  /// Closes the level and expands it; the graph then has the results.
  void out(const std::vector<ValueId>& results, int64_t size, int64_t dim = 0, int64_t level = 1) {
    const size_t at = graph.num_nodes();
    for (const ValueId v : results) graph.add_output(add_batch_out(b, v, dim, level, ctx->constant(size)));
    graph = expand_batches_at(graph, at);
  }
  std::vector<int64_t> sizes(size_t output) {
    std::vector<int64_t> result;
    for (const Expr size : graph.type(graph.outputs()[output].value).sizes) result.push_back(size.const_value());
    return result;
  }
};

using Sizes = std::vector<int64_t>;

void check_golden(const std::string& name, Batched& p) {
  expect_golden_text("batching/" + name + ".txt", print_graph(eliminate_dead_code(p.graph)));
}

TEST(Batching, GoldenMlp) {
  Batched p;
  const ValueId x = p.in(p.input({5, 16})), w = p.input({16, 32}), v = p.in(p.input({32, 5, 4}), 1);
  const ValueId h = p.b.unary("relu", p.b.binary("mm", p.b.unsqueeze(x, 0), w));
  const ValueId y = p.b.op("softmax", {TensorArg{p.b.binary("mm", h, v)}, Scalar(int64_t{-1})});
  p.out({p.b.reduce("sum", y, {0}, false)}, 5);
  EXPECT_EQ(p.sizes(0), (Sizes{5, 4}));
  EXPECT_EQ(count(p.graph, "mm"), 1u);
  EXPECT_EQ(count(p.graph, "bmm"), 1u);
  check_golden("mlp", p);
}

TEST(Batching, GoldenIndexing) {
  Batched p;
  const ValueId x = p.in(p.input({5, 8, 3})), table = p.input({7, 4});
  const ValueId at = p.in(p.input({5, 2}, DType::kInt64));
  const ValueId rows = p.b.op("index", {TensorArg{x}, TensorList{{at}}});
  const ValueId columns = p.b.op("index", {TensorArg{p.input({3, 9})}, TensorList{{kNoValue, at}}});
  const ValueId found = p.b.op("embedding", {TensorArg{table}, TensorArg{at}});
  p.out({rows, columns, found}, 5);
  EXPECT_EQ(p.sizes(0), (Sizes{5, 2, 3}));
  EXPECT_EQ(p.sizes(1), (Sizes{5, 3, 2}));
  EXPECT_EQ(p.sizes(2), (Sizes{5, 2, 4}));
  check_golden("indexing", p);
}

TEST(Batching, OperandsAlignByTheirOwnRanks) {
  Batched p;
  const ValueId row = p.in(p.input({5, 3})), matrix = p.in(p.input({2, 3, 5}), 2), plain = p.input({4, 1, 1});
  p.out({p.b.binary("add", p.b.binary("mul", row, matrix), plain)}, 5, 1);
  EXPECT_EQ(p.sizes(0), (Sizes{4, 5, 2, 3}));
}

TEST(Batching, WhatDoesNotDependStaysAsItIs) {
  Batched p;
  const ValueId x = p.in(p.input({5, 3})), w = p.input({3});
  const ValueId shared = p.b.unary("exp", w);
  p.out({p.b.binary("mul", x, shared)}, 5);
  for (const Node& node : p.graph.nodes()) {
    if (node.op->name != "exp") continue;
    EXPECT_EQ(p.graph.type(node.outputs[0]).dim(), 1);
  }
}

TEST(Batching, ResultsThatDoNotDependAreExpanded) {
  const auto close = [](bool used) {
    Batched p;
    const ValueId x = p.in(p.input({5, 3})), shared = p.b.unary("exp", p.input({3}));
    const size_t at = p.graph.num_nodes();
    const ValueId one = add_batch_out(p.b, p.b.unary("sin", x), 0, 1, p.ctx->constant(5));
    const ValueId other = add_batch_out(p.b, shared, 0, 1, p.ctx->constant(5));
    p.graph.add_output(used ? p.b.binary("add", one, other) : other);
    p.graph = expand_batches_at(p.graph, at + 1);
    return p.sizes(0);
  };
  EXPECT_EQ(close(true), (Sizes{5, 3}));
  // Capture refuses results that repeat one example in memory: what comes here is a factory's, which lie as others do.
  EXPECT_EQ(close(false), (Sizes{5, 3}));
}

TEST(Batching, ExamplesWithoutDimensionsKeepTheirPartInPromotion) {
  Batched p;
  const ValueId number = p.in(p.input({5}, DType::kFloat64)), row = p.in(p.input({5, 3}, DType::kFloat32));
  p.out({p.b.binary("add", number, row)}, 5);
  EXPECT_TRUE(p.graph.type(p.graph.outputs()[0].value).dtype == DType::kFloat32);
}

TEST(Batching, LevelsNest) {
  Batched p;
  const ValueId x = p.input({5, 3}), y = p.input({4, 3});
  const ValueId one = p.in(x, 0, 1), other = p.in(y, 0, 2);
  const size_t inner = p.graph.num_nodes() + 1;
  const ValueId dot = p.b.binary("dot", one, other);
  const ValueId row = add_batch_out(p.b, dot, 0, 2, p.ctx->constant(4));
  p.graph.add_output(add_batch_out(p.b, row, 0, 1, p.ctx->constant(5)));
  Graph g = expand_batches_at(p.graph, inner);
  size_t outer = 0;
  while (!is_batch_out(g.node(static_cast<NodeId>(outer)))) ++outer;
  p.graph = expand_batches_at(g, outer);
  EXPECT_EQ(p.sizes(0), (Sizes{5, 4}));
  for (const Node& node : p.graph.nodes()) EXPECT_FALSE(is_batch_in(node) || is_batch_out(node));
}

TEST(Batching, ConvolutionsOfOneWeightFoldTheBatchAndOthersBecomeGroups) {
  for (const bool own : {false, true}) {
    Batched p;
    const ValueId x = p.in(p.input({5, 2, 3, 8, 8})),
                  weight = own ? p.in(p.input({5, 4, 3, 3, 3})) : p.input({4, 3, 3, 3});
    const auto ints = [&](int64_t n) { return SymInts{{p.ctx->constant(n), p.ctx->constant(n)}}; };
    p.out({p.b.op("convolution", {TensorArg{x}, TensorArg{weight}, NoneArg{}, ints(1), ints(1), ints(1), Scalar(false),
                                  ints(0), Scalar(int64_t{1})})},
          5);
    EXPECT_EQ(p.sizes(0), (Sizes{5, 2, 4, 8, 8}));
    for (const Node& node : p.graph.nodes()) {
      if (node.op->name != "convolution") continue;
      EXPECT_EQ(std::get<int64_t>(std::get<Scalar>(node.args[8])), own ? 5 : 1);
    }
    EXPECT_EQ(count(p.graph, "convolution"), 1u);
  }
}

TEST(Batching, GradientsFlowThroughBatchedCode) {
  Batched p;
  const ValueId x = p.input({5, 3}), w = p.input({3, 4});
  const ValueId y = p.b.unary("tanh", p.b.op("reshape", {TensorArg{p.b.binary("mm", p.b.unsqueeze(p.in(x), 0), w)},
                                                         SymInts{{p.ctx->constant(4)}}}));
  p.out({p.b.op("sum", {TensorArg{y}})}, 5);
  const std::vector<bool> needs{true, true};
  const JointGraph joint = joint_graph(differentiable_form(p.graph, needs), needs);
  ASSERT_EQ(joint.gradients.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const ValueId v = joint.graph.outputs()[joint.forward_outputs + i].value;
    EXPECT_TRUE(joint.graph.type(v).sizes == joint.graph.type(joint.graph.inputs()[i]).sizes);
  }
}

TEST(Batching, RandomnessFollowsTheLevel) {
  const auto drawn = [](Randomness randomness) {
    Batched p;
    const ValueId x = p.in(p.input({5, 3}), 0, 1, randomness);
    const ValueId noise = p.b.op("rand", {SymInts{{p.ctx->constant(3)}}});
    p.out({p.b.binary("add", x, noise)}, 5);
    for (const Node& node : p.graph.nodes()) {
      if (node.op->name == "rand") return p.graph.type(node.outputs[0]).dim();
    }
    return int64_t{0};
  };
  EXPECT_EQ(drawn(Randomness::kSame), 1);
  EXPECT_EQ(drawn(Randomness::kDifferent), 2);
  EXPECT_THROW(drawn(Randomness::kError), Unsupported);
}

TEST(Batching, HostOperatorsRunUnderTheHostsVmap) {
  Batched p;
  const ValueId x = p.in(p.input({3, 5, 3}), 1);
  std::vector<TensorType> types{p.graph.type(x)};
  p.out(p.b.host_call(OpRegistry::global().get("linalg_matrix_exp"), {TensorArg{x}}, types), 5);
  EXPECT_EQ(p.sizes(0), (Sizes{5, 3, 3}));
  EXPECT_EQ(count(p.graph, "vmap of linalg_matrix_exp"), 1u);
}

TEST(Batching, ValuesOfOneExampleStayInside) {
  Batched p;
  const ValueId x = p.in(p.input({5, 3}));
  const ValueId y = p.b.unary("exp", x);
  p.graph.add_output(y);
  EXPECT_THROW(p.out({y}, 5), Unsupported);
}

TEST(Batching, DimensionsAreChecked) {
  Batched p;
  EXPECT_THROW(p.in(p.input({5}), 1), InvalidArgument);
}

}  // namespace
}  // namespace tatara
