// Types and functional form of operator families (values are compared with eager in tests/ops).
#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "testing.h"

namespace tatara {
namespace {

TensorType floats(ExprContext& ctx, std::initializer_list<int64_t> sizes) {
  TensorType type;
  for (int64_t s : sizes) type.sizes.push_back(ctx.constant(s));
  type.strides = contiguous_strides(ctx, type.sizes);
  return type;
}

struct Fixture {
  std::shared_ptr<ExprContext> ctx = std::make_shared<ExprContext>();
  Graph graph{ctx};
  GraphBuilder builder{graph};
};

TEST(OpsFamilies, MeanOfIntegersIsAnError) {
  Fixture f;
  TensorType type = floats(*f.ctx, {2, 3});
  type.dtype = DType::kInt64;
  const ValueId x = f.graph.add_input(type);
  EXPECT_THROW(f.builder.op("mean", {TensorArg{x}}), InvalidArgument);
}

TEST(OpsFamilies, SumOfBoolIsInt64) {
  Fixture f;
  TensorType type = floats(*f.ctx, {2, 3});
  type.dtype = DType::kBool;
  const ValueId x = f.graph.add_input(type);
  const ValueId sum = f.builder.reduce("sum", x, {1}, true);
  EXPECT_EQ(f.graph.type(sum).str(), std::string("i64[2, 1]"));
}

TEST(OpsFamilies, BatchNormInTrainingWritesItsStatistics) {
  Fixture f;
  Functionalizer fz(f.builder);
  const auto input = [&](std::initializer_list<int64_t> sizes, int index) {
    return fz.input(f.graph.add_input(floats(*f.ctx, sizes)), index);
  };
  const auto x = input({4, 3, 5}, 0);
  const auto mean = input({3}, 1);
  const auto var = input({3}, 2);
  const auto results = fz.apply(OpRegistry::global().get("batch_norm"),
                                {TensorArg{x}, NoneArg{}, NoneArg{}, TensorArg{mean}, TensorArg{var}, Scalar(true),
                                 Scalar(0.1), Scalar(1e-5), Scalar(true)});
  EXPECT_EQ(results.size(), size_t{1});
  EXPECT_EQ(fz.version(mean), int64_t{1});
  EXPECT_EQ(fz.version(var), int64_t{1});
  EXPECT_EQ(fz.version(x), int64_t{0});
}

TEST(OpsFamilies, DropoutInEvaluationIsItsInput) {
  Fixture f;
  Functionalizer fz(f.builder);
  const auto x = fz.input(f.graph.add_input(floats(*f.ctx, {4})), 0);
  const auto results = fz.apply(OpRegistry::global().get("dropout"), {TensorArg{x}, Scalar(0.5), Scalar(false)});
  EXPECT_EQ(results.size(), size_t{1});
  EXPECT_EQ(results[0], x);
}

}  // namespace
}  // namespace tatara
