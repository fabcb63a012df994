#include "ir/graph.h"

#include <memory>

#include "ops/core/builder.h"
#include "ops/core/parse.h"
#include "support/error.h"
#include "testing.h"

using namespace tatara;

namespace {

const char* const kText =
    "graph(%0: f32[4, s0] \"x\", %1: f32[s0], %2: i64[4]) {\n"
    "  %3: f32[4, s0] = add(%0, %1, alpha=2)\n"
    "  %4: f32[s0, 4; strides 1, s0] = permute(%3, [1, 0])\n"
    "  %5: f32[4, s0] = clamp(%3, -1.5, None)\n"
    "  %6: i64[4] = add(%2, 1, alpha=1)\n"
    "  %7: f32[2, s0] = slice(%3, 0, 1, 3, 1)\n"
    "  %8: f32[3] = full([3], 0.5, dtype=f32, layout=None, device=@cpu, pin_memory=None, requires_grad=False)\n"
    "  write input 2 <- %6\n"
    "  return (%4, %5, %7 alias of output 0 at s0, %8)\n"
    "}\n";

std::shared_ptr<ExprContext> context() {
  auto ctx = std::make_shared<ExprContext>();
  (void)ctx->fresh_size_symbol(8);
  return ctx;
}

}  // namespace

TEST(Graph, TextOfManyNodesLeavesTheMiddleOut) {
  const std::string text = print_graph(parse_graph(kText, context()), false, 4);
  EXPECT_EQ(text.find("clamp"), std::string::npos);
  EXPECT_EQ(text.find("add(%2"), std::string::npos);
  EXPECT_NE(text.find("permute(%3, [1, 0])\n  ... 2 nodes more\n  %7: f32[2, s0] = slice("), std::string::npos);
  EXPECT_EQ(print_graph(parse_graph(kText, context()), false, 6), std::string(kText));
}

TEST(Graph, TextGoesRound) {
  const Graph graph = parse_graph(kText, context());
  EXPECT_EQ(print_graph(graph), std::string(kText));
  EXPECT_NO_THROW(verify_graph(graph));
  EXPECT_EQ(graph.num_nodes(), 6u);
  EXPECT_EQ(graph.outputs().size(), 4u);
}

TEST(Graph, MalformedTextNamesTheLine) {
  const auto message = [](std::string_view text) {
    try {
      (void)parse_graph(text, context());
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("graph(%0: f32[2]) {\n  %1: f32[2] = nonsense(%0)\n}").find("line 2: no operator nonsense"),
            std::string::npos);
  EXPECT_NE(message("graph(%0: f32[2]) {\n  return (%7)\n}").find("%7 is not defined"), std::string::npos);
  EXPECT_NE(message("graph(%0: f99[2]) {\n}").find("line 1: unknown element type"), std::string::npos);
  EXPECT_NE(message("graph(%0: f32[2]) {\n").find("closing brace"), std::string::npos);
}

TEST(Graph, VerifierFindsWhatIsBroken) {
  Graph graph = parse_graph(kText, context());
  graph.node(0).args.pop_back();
  EXPECT_THROW(verify_graph(graph), InternalError);
  Graph swapped = parse_graph(kText, context());
  std::get<TensorArg>(swapped.node(0).args[0]).value = 4;  // not defined yet there
  EXPECT_THROW(verify_graph(swapped), InternalError);
  Graph kinds = parse_graph(kText, context());
  kinds.node(1).args[1] = std::string("dims");
  EXPECT_THROW(verify_graph(kinds), InternalError);
  Graph write = parse_graph(kText, context());
  write.input_writes()[0].input_index = 0;
  EXPECT_THROW(verify_graph(write), InternalError);
}

TEST(Graph, TruncateDropsTheTail) {
  Graph graph = parse_graph(kText, context());
  graph.outputs().clear();
  graph.input_writes().clear();
  graph.truncate_nodes(2);
  EXPECT_EQ(graph.num_nodes(), 2u);
  EXPECT_EQ(graph.num_values(), 5u);
  EXPECT_NO_THROW(verify_graph(graph));
}

TEST(Graph, UseCounts) {
  const Graph graph = parse_graph(kText, context());
  const std::vector<int> counts = graph.use_counts();
  EXPECT_EQ(counts[3], 3);
  EXPECT_EQ(counts[6], 1);
  EXPECT_EQ(counts[1], 1);
}

TEST(DType, Promotion) {
  EXPECT_TRUE(promote_types(DType::kUInt8, DType::kInt8) == DType::kInt16);
  EXPECT_TRUE(promote_types(DType::kFloat16, DType::kBFloat16) == DType::kFloat32);
  EXPECT_TRUE(promote_types(DType::kInt64, DType::kFloat16) == DType::kFloat16);
  EXPECT_TRUE(promote_types(DType::kFloat64, DType::kComplex64) == DType::kComplex128);
  EXPECT_TRUE(promote_types(DType::kBool, DType::kInt32) == DType::kInt32);
  EXPECT_TRUE(parse_dtype("bfloat16") == DType::kBFloat16);
  EXPECT_EQ(dtype_size(DType::kComplex128), 16);
}
