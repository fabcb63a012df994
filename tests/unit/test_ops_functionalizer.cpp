#include <memory>

#include "ops/core/bind.h"
#include "ops/core/builder.h"
#include "support/error.h"
#include "testing.h"

using namespace tatara;
using TensorRef = Functionalizer::TensorRef;

namespace {

struct FunctionalizerTest : testing::Test {
  std::shared_ptr<ExprContext> ctx = std::make_shared<ExprContext>();
  Graph graph{ctx};
  GraphBuilder builder{graph};
  Functionalizer f{builder};

  TensorType type(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
    TensorType t;
    t.dtype = dtype;
    for (const int64_t n : sizes) t.sizes.push_back(ctx->constant(n));
    t.strides = contiguous_strides(*ctx, t.sizes);
    return t;
  }
  TensorRef input(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
    const int index = static_cast<int>(graph.inputs().size());
    return f.input(graph.add_input(type(std::move(sizes), dtype)), index);
  }
  const OpDef& def(std::string_view name) { return OpRegistry::global().get(name); }
  std::vector<Arg> full_args(const OpDef& op, std::vector<Arg> args) {
    for (size_t i = args.size(); i < op.schema.args.size(); ++i)
      args.push_back(default_argument(*ctx, op.schema.args[i]));
    return args;
  }
  TensorRef call(std::string_view name, std::vector<Arg> args) {
    return f.apply(def(name), full_args(def(name), std::move(args))).front();
  }
  TensorRef inplace(std::string_view name, std::vector<Arg> args) {
    return f.apply_inplace(def(name), full_args(def(name), std::move(args)));
  }
  SymInts ints(std::vector<int64_t> values) {
    SymInts list;
    for (const int64_t v : values) list.values.push_back(ctx->constant(v));
    return list;
  }
  std::string producer(TensorRef ref) {
    const Node* node = graph.producer(f.read(ref));
    return node == nullptr ? "input" : node->op->name;
  }
};

Scalar i(int64_t value) { return value; }

}  // namespace

TEST_F(FunctionalizerTest, WriteThroughSliceReachesTheInput) {
  const TensorRef x = input({4, 8});
  const TensorRef part = call("slice", {TensorArg{x}, i(0), i(1), i(3)});
  inplace("add", {TensorArg{part}, i(1)});
  EXPECT_TRUE(f.same_storage(x, part));
  EXPECT_EQ(f.version(x), 1);
  EXPECT_EQ(producer(x), std::string("slice_scatter"));
  const TensorRef sum = call("mul", {TensorArg{x}, TensorArg{x}});
  const TensorRef outs[] = {sum};
  f.finish(outs);
  EXPECT_EQ(graph.input_writes().size(), 1u);
  EXPECT_EQ(graph.outputs().size(), 1u);
  EXPECT_TRUE(graph.outputs()[0].alias.kind == OutputAlias::Kind::kFresh);
}

TEST_F(FunctionalizerTest, OtherViewsSeeTheWrite) {
  const TensorRef x = input({4, 8});
  const TensorRef t = call("t", {TensorArg{x}});
  const TensorRef row = call("select", {TensorArg{x}, i(0), i(2)});
  const ValueId before = f.read(row);
  inplace("mul", {TensorArg{t}, i(2)});
  EXPECT_NE(f.read(row), before);
  EXPECT_EQ(f.type(row).sizes.size(), 1u);
  // The layout of the base is the one it was born with.
  EXPECT_TRUE(graph.type(f.read(x)).strides == f.type(x).strides);
}

TEST_F(FunctionalizerTest, ViewsOfInputsAreAliases) {
  const TensorRef x = input({4, 8});
  const TensorRef v = call("view", {TensorArg{x}, ints({8, 4})});
  const TensorRef last = call("select", {TensorArg{v}, i(0), i(-1)});
  const TensorRef outs[] = {last, x};
  f.finish(outs);
  const OutputAlias& alias = graph.outputs()[0].alias;
  EXPECT_TRUE(alias.kind == OutputAlias::Kind::kInput);
  EXPECT_EQ(alias.index, 0);
  EXPECT_TRUE(alias.storage_offset.is_const(28));
  EXPECT_TRUE(graph.outputs()[1].alias.kind == OutputAlias::Kind::kInput);
  EXPECT_TRUE(graph.input_writes().empty());
}

TEST_F(FunctionalizerTest, ViewsOfAFreshOutputShareIt) {
  const TensorRef x = input({4, 8});
  const TensorRef y = call("add", {TensorArg{x}, i(1)});
  const TensorRef row = call("select", {TensorArg{y}, i(0), i(1)});
  const TensorRef outs[] = {row, y};
  f.finish(outs);
  EXPECT_TRUE(graph.outputs()[0].alias.kind == OutputAlias::Kind::kOutput);
  EXPECT_EQ(graph.outputs()[0].alias.index, 1);
  EXPECT_TRUE(graph.outputs()[0].alias.storage_offset.is_const(8));
}

TEST_F(FunctionalizerTest, TwoViewsOfAHiddenBase) {
  const TensorRef y = call("add", {TensorArg{input({4, 8})}, i(1)});
  const auto& split = def("chunk");
  const std::vector<TensorRef> parts = f.apply(split, full_args(split, {TensorArg{y}, i(2), i(1)}));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(f.same_storage(parts[0], parts[1]));
  f.finish(parts);
  ASSERT_EQ(graph.outputs().size(), 3u);
  EXPECT_EQ(graph.outputs()[0].alias.index, 2);
  EXPECT_TRUE(graph.outputs()[1].alias.storage_offset.is_const(4));
}

TEST_F(FunctionalizerTest, ReshapeIsAViewOrACopy) {
  const TensorRef x = input({4, 8});
  EXPECT_TRUE(f.same_storage(x, call("reshape", {TensorArg{x}, ints({32})})));
  const TensorRef t = call("t", {TensorArg{x}});
  EXPECT_FALSE(f.same_storage(x, call("reshape", {TensorArg{t}, ints({32})})));
  EXPECT_EQ(call("contiguous", {TensorArg{x}}), x);
  EXPECT_FALSE(f.same_storage(x, call("contiguous", {TensorArg{t}})));
}

TEST_F(FunctionalizerTest, InPlaceRules) {
  const TensorRef x = input({4, 8});
  const TensorRef n = input({4, 8}, DType::kInt64);
  const TensorRef row = input({8});
  EXPECT_THROW(inplace("div", {TensorArg{n}, i(2)}), InvalidArgument);  // a float result into an integer tensor
  EXPECT_THROW(inplace("add", {TensorArg{row}, TensorArg{x}}), InvalidArgument);  // the shape would grow
  const TensorRef wide = call("expand", {TensorArg{row}, ints({4, 8})});
  EXPECT_THROW(inplace("add", {TensorArg{wide}, i(1)}), InvalidArgument);
  inplace("eq", {TensorArg{n}, i(2)});  // bool fits everywhere
  EXPECT_TRUE(f.type(n).dtype == DType::kInt64);
}

TEST_F(FunctionalizerTest, CopyOfAnotherInput) {
  const TensorRef x = input({4});
  const TensorRef y = input({4});
  inplace("copy", {TensorArg{x}, TensorArg{y}});
  const TensorRef outs[] = {x};
  f.finish(outs);
  ASSERT_EQ(graph.input_writes().size(), 1u);
  EXPECT_EQ(graph.input_writes()[0].input_index, 0);
  EXPECT_TRUE(graph.outputs()[0].alias.kind == OutputAlias::Kind::kInput);
}

TEST_F(FunctionalizerTest, DiagonalAndSelectScatter) {
  const TensorRef x = input({4, 4});
  inplace("zero", {TensorArg{call("diagonal", {TensorArg{x}})}});
  EXPECT_EQ(producer(x), std::string("diagonal_scatter"));
  inplace("fill", {TensorArg{call("select", {TensorArg{x}, i(1), i(0)})}, i(3)});
  EXPECT_EQ(producer(x), std::string("select_scatter"));
  EXPECT_EQ(f.version(x), 2);
}
