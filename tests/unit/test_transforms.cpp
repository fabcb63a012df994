// Passes over graphs: what they remove, what they must keep.
#include <algorithm>

#include "programs.h"
#include "support/options.h"
#include "testing.h"
#include "transforms/pipeline.h"

namespace tatara {
namespace {

TEST(Transforms, DeadCodeGoes) {
  Program p;
  const ValueId x = p.input({4});
  p.b.unary("exp", x);
  p.graph.add_output(p.b.unary("sin", x));
  const Graph g = eliminate_dead_code(p.graph);
  EXPECT_EQ(g.num_nodes(), 1u);
  EXPECT_EQ(count(g, "sin"), 1u);
}

TEST(Transforms, RandomNumbersStayDrawn) {
  Program p;
  const ValueId x = p.input({4});
  p.b.op("rand_like", {TensorArg{x}});
  p.graph.add_output(p.b.unary("sin", x));
  EXPECT_EQ(count(eliminate_dead_code(p.graph), "rand_like"), 1u);
}

TEST(Transforms, EqualExpressionsAreOne) {
  Program p;
  const ValueId x = p.input({4});
  p.graph.add_output(p.b.binary("mul", p.b.unary("exp", x), p.b.unary("exp", x)));
  EXPECT_EQ(count(eliminate_common_subexpressions(p.graph), "exp"), 1u);
}

TEST(Transforms, EqualExpressionsOfDifferentNumbersStay) {
  Program p;
  const ValueId x = p.input({4});
  const ValueId a = p.b.binary("add", x, Scalar(0.0));
  const ValueId c = p.b.binary("add", x, Scalar(-0.0));
  p.graph.add_output(p.b.binary("div", a, c));
  EXPECT_EQ(count(eliminate_common_subexpressions(p.graph), "add"), 2u);
}

TEST(Transforms, EqualOutputsStayTwoTensors) {
  Program p;
  const ValueId x = p.input({4});
  p.graph.add_output(p.b.unary("exp", x));
  p.graph.add_output(p.b.unary("exp", x));
  const Graph g = eliminate_common_subexpressions(p.graph);
  EXPECT_EQ(count(g, "exp"), 2u);
  EXPECT_NE(g.outputs()[0].value, g.outputs()[1].value);
}

TEST(Transforms, RandomNumbersAreNotShared) {
  Program p;
  const ValueId x = p.input({4});
  p.graph.add_output(p.b.binary("sub", p.b.op("rand_like", {TensorArg{x}}), p.b.op("rand_like", {TensorArg{x}})));
  EXPECT_EQ(count(eliminate_common_subexpressions(p.graph), "rand_like"), 2u);
}

TEST(Transforms, SoftmaxDecomposes) {
  Program p;
  const ValueId x = p.input({4, 8});
  p.graph.add_output(p.b.op("softmax", {TensorArg{x}, Scalar(int64_t{1})}));
  const Graph g = decompose(p.graph);
  EXPECT_EQ(count(g, "softmax"), 0u);
  EXPECT_EQ(count(g, "amax"), 1u);
  EXPECT_EQ(count(g, "sum"), 1u);
}

TEST(Transforms, DisabledPassDoesNothing) {
  Program p;
  const ValueId x = p.input({4});
  p.b.unary("exp", x);
  p.graph.add_output(x);
  const size_t nodes = eliminate_dead_code(p.graph, {.disabled = "dce"}).num_nodes();
  EXPECT_EQ(nodes, 1u);
  EXPECT_EQ(eliminate_dead_code(p.graph).num_nodes(), 0u);
}

TEST(Transforms, OutputOfADecompositionIsNoInput) {
  Program p;
  const ValueId x = p.input({0, 3});
  p.graph.add_output(p.b.op("softmax", {TensorArg{x}, Scalar(int64_t{0})}));
  const Graph g = decompose(p.graph);
  EXPECT_TRUE(g.producer(g.outputs()[0].value) != nullptr);
}

// The option `disable` knows the passes that there are, and no others.
TEST(Transforms, EveryPassIsInTheTableOfOptions) {
  std::vector<std::string_view> names;
  for (const PassInfo& pass : all_passes()) names.push_back(pass.name);
  std::sort(names.begin(), names.end());
  std::vector<std::string_view> words = find_option("disable")->range.words;
  std::erase(words, "*");
  std::sort(words.begin(), words.end());
  EXPECT_TRUE(names == words);
  for (const GraphPass& pass : lowering_passes()) {
    const auto named = [&](const PassInfo& info) {
      return info.name == pass.name && info.phase == PassInfo::Phase::kLowering;
    };
    EXPECT_TRUE(std::any_of(all_passes().begin(), all_passes().end(), named)) << pass.name;
  }
}

/// Zeros of these sizes with `source` as row `index`.
ValueId with_row(Program& p, ValueId source, int64_t rows, int64_t index) {
  const TensorType row = p.b.type(source);
  std::vector<Expr> sizes = row.sizes;
  sizes.insert(sizes.begin(), p.ctx->constant(rows));
  const ValueId zeros = p.b.op("full", {SymInts{sizes}, Scalar(0.0), row.dtype, NoneArg{}, row.device});
  return p.b.op("select_scatter", {TensorArg{zeros}, TensorArg{source}, Scalar(int64_t{0}), Scalar(index)});
}

ValueId sum_of_rows(Program& p, int64_t rows, const std::vector<int64_t>& indices) {
  ValueId sum = kNoValue;
  for (const int64_t index : indices) {
    const ValueId row = with_row(p, p.input({4}), rows, index);
    sum = sum == kNoValue ? row : p.b.binary("add", sum, row);
  }
  return sum;
}

TEST(Transforms, PartsThatDoNotMeetAreOneTensor) {
  Program p;
  p.graph.add_output(sum_of_rows(p, 3, {2, 0, 1}));
  const Graph g = eliminate_dead_code(sum_parts(eliminate_common_subexpressions(p.graph)));
  EXPECT_EQ(count(g, "add"), 0u);
  EXPECT_EQ(count(g, "select_scatter"), 0u);
  EXPECT_EQ(count(g, "cat"), 1u);
}

TEST(Transforms, ManyPartsAreWrittenToTheirPlaces) {
  Program p;
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 20; ++i) all.push_back(i);
  p.graph.add_output(sum_of_rows(p, 21, all));
  const Graph g = sum_parts(eliminate_common_subexpressions(p.graph));
  EXPECT_EQ(count(eliminate_dead_code(g), "add"), 0u);
  EXPECT_EQ(count(eliminate_dead_code(write_parts(g)), "write_part"), 20u);
}

TEST(Transforms, ManyPartsOnAGpuStayOneKernel) {
  Program p(Device{DeviceKind::kCuda, 0});
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 20; ++i) all.push_back(i);
  p.graph.add_output(sum_of_rows(p, 21, all));
  EXPECT_EQ(count(eliminate_dead_code(sum_parts(eliminate_common_subexpressions(p.graph))), "add"), 19u);
}

TEST(Transforms, PartsThatMeetAreAdded) {
  Program p;
  p.graph.add_output(sum_of_rows(p, 3, {1, 1}));
  EXPECT_EQ(count(eliminate_dead_code(sum_parts(eliminate_common_subexpressions(p.graph))), "add"), 1u);
}

}  // namespace
}  // namespace tatara
