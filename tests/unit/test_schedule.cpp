// The scheduler's loops as text: what fuses, how loops are ordered, what is stored.

#include <set>

#include "programs.h"
#include "testing.h"

namespace tatara {
namespace {

void expect_golden(const std::string& name, const Schedule& schedule) {
  expect_golden_text("schedule/" + name + ".txt", print_schedule(schedule));
}

TEST(Schedule, GeluBias) {
  Program p;
  const ValueId x = p.input({128, 3072});
  const ValueId bias = p.input({3072});
  const ValueId y = p.b.op("gelu", {TensorArg{p.b.binary("add", x, bias)}});
  const Schedule s = p.schedule({y});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("gelu_bias", s);
}

TEST(Schedule, Softmax) {
  Program p;
  const ValueId x = p.input({4096, 1024});
  const Schedule s = p.schedule({p.b.op("softmax", {TensorArg{x}, Scalar(int64_t{-1})})});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("softmax", s);
}

TEST(Schedule, LayerNormSymbolic) {
  Program p;
  const Expr n = p.ctx->fresh_size_symbol(16);
  const ValueId x = p.symbolic({n, p.ctx->constant(128), p.ctx->constant(768)});
  const ValueId w = p.input({768});
  const ValueId bias = p.input({768});
  const ValueId y =
      p.b.op("layer_norm", {TensorArg{x}, SymInts{{p.ctx->constant(768)}}, TensorArg{w}, TensorArg{bias}});
  const Schedule s = p.schedule({y});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("layer_norm", s);
}

TEST(Schedule, SumOverRows) {
  Program p;
  const ValueId x = p.input({1000, 512});
  const Schedule s = p.schedule({p.b.reduce("sum", x, {0}, false)});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("sum_rows", s);
}

TEST(Schedule, SumOfAllIsSplit) {
  Program p;
  const ValueId x = p.input({1 << 20});
  const Schedule s = p.schedule({p.b.unary("sqrt", p.b.reduce("sum", p.b.binary("mul", x, x), {0}, false))});
  EXPECT_EQ(s.kernels.size(), 2u);
  expect_golden("sum_all", s);
}

TEST(Schedule, SumOfFewColumnsIsSplit) {
  Program p;
  const ValueId x = p.input({100000, 24});
  const Schedule s = p.schedule({p.b.reduce("sum", x, {0}, false)});
  EXPECT_EQ(s.kernels.size(), 2u);
  expect_golden("sum_few_columns", s);
}

TEST(Schedule, ArgmaxOfAllIsSplit) {
  Program p;
  const ValueId x = p.symbolic({p.ctx->fresh_size_symbol(2000), p.ctx->constant(1000)});
  const Schedule s = p.schedule({p.b.op("argmax", {TensorArg{x}, NoneArg{}, Scalar(false)})});
  EXPECT_EQ(s.kernels.size(), 2u);
  expect_golden("argmax_all", s);
}

TEST(Schedule, SmallSumStaysWhole) {
  Program p;
  const Schedule s = p.schedule({p.b.reduce("sum", p.input({8, 1000}), {0, 1}, false)});
  EXPECT_EQ(s.kernels.size(), 1u);
}

TEST(Schedule, SumOfAllOnOneThreadStaysWhole) {
  Program p;
  const Schedule s = p.schedule({p.b.reduce("sum", p.input({1 << 20}), {0}, false)}, 1);
  EXPECT_EQ(s.kernels.size(), 1u);
}

TEST(Schedule, CrossEntropyStoresNoLogProbabilities) {
  Program p;
  const ValueId logits = p.input({64, 8000});
  const ValueId target = p.input({64, 1}, DType::kInt64);
  const ValueId logs = p.b.op("log_softmax", {TensorArg{logits}, Scalar(int64_t{-1})});
  const ValueId picked = p.b.op("gather", {TensorArg{logs}, Scalar(int64_t{1}), TensorArg{target}});
  const Schedule s = p.schedule({p.b.reduce("sum", picked, {0, 1}, false)});
  EXPECT_EQ(s.kernels.size(), 2u);
  EXPECT_LE(s.plan.arena_bytes.const_value(), 2 * 64 * 4);
  expect_golden("cross_entropy", s);
}

TEST(Schedule, TransposeAdd) {
  Program p;
  const ValueId x = p.input({64, 96});
  const ValueId y = p.input({96, 64});
  const Schedule s = p.schedule({p.b.binary("add", p.b.permute(x, {1, 0}), y)});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("transpose_add", s);
}

TEST(Schedule, MatrixProductBetween) {
  Program p;
  const ValueId x = p.input({32, 64});
  const ValueId w = p.input({64, 128});
  const ValueId h = p.b.binary("mm", p.b.unary("relu", x), p.b.permute(p.input({128, 64}), {1, 0}));
  const Schedule s = p.schedule({p.b.binary("add", p.b.unary("tanh", h), p.b.binary("mm", x, w))});
  EXPECT_EQ(s.kernels.size(), 2u);
  EXPECT_EQ(s.plan.steps.size(), 4u);
  expect_golden("mm_between", s);
}

/// A chain of products with what `between` makes of each.
template <typename Between>
Schedule chain(int layers, Between&& between) {
  Program p;
  ValueId x = p.input({64, 64});
  const ValueId w = p.input({64, 64});
  for (int i = 0; i < layers; ++i) x = between(p, p.b.binary("mm", x, w), i);
  return p.schedule({x});
}

size_t count_distinct(const Schedule& s) {
  std::set<const loops::Kernel*> distinct;
  for (const auto& kernel : s.kernels) distinct.insert(kernel.get());
  return distinct.size();
}

TEST(Schedule, EqualKernelsAreOne) {
  const Schedule same = chain(12, [](Program& p, ValueId x, int) { return p.b.unary("tanh", x); });
  EXPECT_EQ(same.kernels.size(), 12u);
  EXPECT_EQ(count_distinct(same), 1u);
  // Another operator, a number, even of another sign alone, or dimension.
  const Schedule operators =
      chain(12, [](Program& p, ValueId x, int i) { return p.b.unary(i % 3 ? "tanh" : "sin", x); });
  EXPECT_EQ(count_distinct(operators), 2u);
  const Schedule numbers = chain(
      12, [](Program& p, ValueId x, int i) { return p.b.op("mul", {TensorArg{x}, Scalar(i % 2 == 0 ? 0.0 : -0.0)}); });
  EXPECT_EQ(count_distinct(numbers), 2u);
  const Schedule dims = chain(
      12, [](Program& p, ValueId x, int i) { return p.b.binary("sub", x, p.b.reduce("amax", x, {i % 2}, true)); });
  EXPECT_EQ(count_distinct(dims), 2u);
}

TEST(Schedule, KernelsAreOneWhereTheirTextsAre) {
  // Each is made anew for a graph of its own, so that nothing is shared, and then all of them in one graph.
  const auto layer = [](Program& p, ValueId x, int i) {
    const ValueId scaled = p.b.op("mul", {TensorArg{x}, Scalar(0.5 * (i % 4))});
    const ValueId mapped = p.b.unary(i % 3 == 0 ? "tanh" : i % 3 == 1 ? "relu" : "exp", scaled);
    return i % 5 == 0 ? p.b.binary("sub", mapped, p.b.reduce("amax", mapped, {i % 2}, true)) : mapped;
  };
  const Schedule together = chain(60, layer);
  std::set<std::string> different;
  for (int i = 0; i < 60; ++i) {
    const Schedule alone = chain(1, [&](Program& p, ValueId x, int) { return layer(p, x, i); });
    ASSERT_EQ(alone.kernels.size(), 1u);
    const std::string text = loops::print_kernel(*alone.kernels[0]);
    EXPECT_EQ(loops::print_kernel(*together.kernels[static_cast<size_t>(i)]), text);
    different.insert(text);
  }
  EXPECT_EQ(count_distinct(together), different.size());
}

/// Numbers of the steps that are calls of the host.
std::vector<size_t> host_steps(const Schedule& s) {
  std::vector<size_t> result;
  for (size_t i = 0; i < s.plan.steps.size(); ++i) {
    if (std::holds_alternative<HostCall>(s.plan.steps[i])) result.push_back(i);
  }
  return result;
}

TEST(Schedule, WhatShrinksMemoryDoesNotWait) {
  // The gradients of two linear layers: the second one's by its weight is the last to read the hidden layer.
  Program p;
  const ValueId before = p.input({64, 512}), above = p.input({64, 16}), down = p.input({16, 512}),
                up = p.input({512, 8});
  const ValueId hidden = p.b.unary("relu", before);
  const ValueId gradient = p.b.binary("mul", p.b.binary("mm", above, down), p.input({64, 512}));
  const ValueId result = p.b.binary("mm", gradient, up);
  const ValueId weight = p.b.binary("mm", p.b.permute(above, {1, 0}), hidden);
  const Schedule s = p.schedule({result, weight});
  const std::vector<size_t> calls = host_steps(s);
  EXPECT_EQ(calls.size(), 3u);
  EXPECT_EQ(std::get<HostCall>(s.plan.steps[calls[0]]).tensors.back().sizes[0].const_value(), 16);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 64 * 512 * 4);
}

TEST(Schedule, ScaledMaskIsNotStored) {
  Program p;
  const ValueId mask = p.input({64, 128}, DType::kBool), x = p.input({64, 128}), w = p.input({128, 32});
  const ValueId scale = p.b.binary("div", p.b.cast(mask, DType::kFloat32), p.b.constant(0.9, DType::kFloat32));
  const ValueId dropped = p.b.binary("mul", x, scale);
  const Schedule s = p.schedule({p.b.binary("mm", dropped, w), p.b.binary("mul", p.b.unary("sin", x), scale)});
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 64 * 128 * 4);  // of the product's operand
}

TEST(Schedule, OnlyThePartThatTheHostReadsIsStored) {
  Program p;
  const ValueId sum = p.b.binary("add", p.input({3, 64, 128}), p.input({128}));
  const auto part = [&](int64_t i) { return p.b.op("select", {TensorArg{sum}, Scalar(int64_t{0}), Scalar(i)}); };
  const ValueId product = p.b.binary("mm", part(2), p.input({128, 32}));
  const Schedule s = p.schedule({product, p.b.unary("sin", part(0)), p.b.binary("mul", part(1), part(0))});
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 64 * 128 * 4);
}

TEST(Schedule, ReshapedResidualJoins) {
  Program p;
  const ValueId x = p.input({2, 8, 64});
  const ValueId y = p.input({16, 64});
  const ValueId h = p.b.binary("add", p.b.reshape(x, p.graph.type(y).sizes), y);
  const ValueId back = p.b.reshape(h, p.graph.type(x).sizes);
  const ValueId normed = p.b.op("layer_norm", {TensorArg{back}, SymInts{{p.ctx->constant(64)}}});
  const Schedule s = p.schedule({normed, h});
  EXPECT_EQ(s.kernels.size(), 1u);
}

TEST(Schedule, CatOfExpressions) {
  Program p;
  const ValueId x = p.input({32, 64});
  const ValueId y = p.input({32, 16});
  const ValueId joined = p.b.op("cat", {TensorList{{p.b.unary("exp", x), y}}, Scalar(int64_t{1})});
  const Schedule s = p.schedule({joined});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("cat", s);
}

TEST(Schedule, EmbeddingAddLayerNorm) {
  Program p;
  const ValueId table = p.input({1000, 64});
  const ValueId ids = p.input({2, 16}, DType::kInt64);
  const ValueId position = p.input({16, 64});
  const ValueId h = p.b.binary("add", p.b.op("embedding", {TensorArg{table}, TensorArg{ids}}), position);
  const Schedule s = p.schedule({p.b.op("layer_norm", {TensorArg{h}, SymInts{{p.ctx->constant(64)}}})});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("embedding_layer_norm", s);
}

TEST(Schedule, Rope) {
  Program p;
  const ValueId x = p.input({2, 4, 8, 32});
  const ValueId cos = p.input({8, 32});
  const ValueId sin = p.input({8, 32});
  const auto half = [&](int64_t from, int64_t to) {
    return p.b.slice(x, 3, p.ctx->constant(from), p.ctx->constant(to), p.ctx->constant(1));
  };
  const ValueId rotated =
      p.b.op("cat", {TensorList{{p.b.unary("neg", half(16, 32)), half(0, 16)}}, Scalar(int64_t{-1})});
  const Schedule s = p.schedule({p.b.binary("add", p.b.binary("mul", x, cos), p.b.binary("mul", rotated, sin))});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("rope", s);
}

TEST(Schedule, WriteIntoInput) {
  Program p;
  const ValueId w = p.input({256});
  const ValueId g = p.input({256});
  const ValueId updated = p.b.binary("sub", w, p.b.binary("mul", g, Scalar(0.1)));
  p.graph.add_input_write(0, updated);
  const Schedule s = p.schedule({p.b.unary("exp", w)});
  // The old value is still read beside the write, at the same element.
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 0);
  expect_golden("write_input", s);
}

TEST(Schedule, HalfRoundsBetweenOperators) {
  Program p;
  const ValueId x = p.input({64}, DType::kFloat16);
  const Schedule s = p.schedule({p.b.binary("add", p.b.binary("mul", x, x), x)});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("half_rounding", s);
}

TEST(Schedule, IndexAdd) {
  Program p;
  const ValueId x = p.input({100, 64});
  const ValueId index = p.input({10}, DType::kInt64);
  const ValueId source = p.input({10, 64});
  const Schedule s =
      p.schedule({p.b.op("index_add", {TensorArg{x}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{source}})});
  EXPECT_EQ(s.kernels.size(), 2u);
  expect_golden("index_add", s);
}

TEST(Schedule, IndexAddIntoInput) {
  Program p;
  const ValueId x = p.input({100, 64});
  const ValueId index = p.input({10}, DType::kInt64);
  const ValueId source = p.input({10, 64});
  p.graph.add_input_write(0,
                          p.b.op("index_add", {TensorArg{x}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{source}}));
  const Schedule s = p.schedule({});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 0);
}

TEST(Schedule, IndexAddOfItselfIntoInputKeepsWhatItAdds) {
  Program p;
  const ValueId x = p.input({100, 64});
  const ValueId index = p.input({100}, DType::kInt64);
  p.graph.add_input_write(
      0, p.b.op("index_add", {TensorArg{x}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{p.b.unary("neg", x)}}));
  const Schedule s = p.schedule({});
  EXPECT_EQ(s.kernels.size(), 2u);  // what is added, then the sum in place
}

TEST(Schedule, PointwiseTakesThePlaceOfWhatDies) {
  Program p;
  const ValueId x = p.input({64, 64});
  const ValueId w = p.input({64, 64});
  const ValueId h = p.b.unary("relu", p.b.binary("mm", x, w));
  const Schedule s = p.schedule({p.b.binary("mm", h, w)});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 64 * 64 * 4);
  expect_golden("in_place", s);
}

TEST(Schedule, SoftmaxTakesThePlaceOfWhatDies) {
  Program p;
  const ValueId x = p.input({64, 64});
  const ValueId h = p.b.op("softmax", {TensorArg{p.b.binary("mm", x, x)}, Scalar(int64_t{-1})});
  const Schedule s = p.schedule({p.b.binary("mm", h, x)});
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 64 * 64 * 4);
}

TEST(Schedule, TransposeTakesNoPlace) {
  Program p;
  const ValueId x = p.input({64, 64});
  const ValueId h = p.b.binary("mm", x, x);
  const ValueId sum = p.b.binary("add", p.b.permute(h, {1, 0}), h);
  const Schedule s = p.schedule({p.b.binary("mm", sum, x)});
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 2 * 64 * 64 * 4);
}

TEST(Schedule, ChannelsNormalisedThroughTiles) {
  Program p;
  const ValueId x = p.input({2, 96, 14, 14});
  const ValueId last = p.b.permute(x, {0, 2, 3, 1});
  const Schedule s = p.schedule({p.b.op("layer_norm", {TensorArg{last}, SymInts{{p.ctx->constant(96)}}})});
  EXPECT_EQ(s.kernels.size(), 1u);
  expect_golden("channels_norm", s);
}

/// The mean over all but the channels of images, and images less it.
ValueId centred(Program& p, ValueId x) { return p.b.binary("sub", x, p.b.reduce("mean", x, {0, 2, 3}, true)); }

ValueId images(Program& p, const std::vector<int64_t>& sizes, bool channels_last) {
  TensorType type;
  for (const int64_t n : sizes) type.sizes.push_back(p.ctx->constant(n));
  type.strides = contiguous_strides(*p.ctx, type.sizes);
  if (channels_last) {
    type.strides = {p.ctx->constant(sizes[1] * sizes[2] * sizes[3]), p.ctx->constant(1),
                    p.ctx->constant(sizes[1] * sizes[3]), p.ctx->constant(sizes[1])};
  }
  return p.graph.add_input(type);
}

TEST(Schedule, FewColumnsAreWalkedAgainInAKernelOfTheirOwn) {
  Program p;
  const Schedule s = p.schedule({centred(p, images(p, {32, 16, 32, 32}, true))});
  // The sum in chunks and what combines them, then the pointwise part: each on all threads.
  EXPECT_EQ(s.kernels.size(), 3u);
  expect_golden("few_columns_again", s);
}

TEST(Schedule, RowsAreWalkedAgainInTheirKernel) {
  Program p;
  const Schedule s = p.schedule({centred(p, images(p, {32, 16, 32, 32}, false))});
  EXPECT_EQ(s.kernels.size(), 1u);
}

TEST(Schedule, FewColumnsOnOneThreadStayTogether) {
  Program p;
  const Schedule s = p.schedule({centred(p, images(p, {8, 16, 16, 16}, true))}, 1);
  EXPECT_EQ(s.kernels.size(), 1u);
}

TEST(Schedule, AStoreAcrossTheOthersIsAKernelOfItsOwn) {
  Program p;
  const ValueId y = p.b.unary("exp", images(p, {32, 16, 32, 32}, true));
  const SymInts rows{contiguous_strides(*p.ctx, p.graph.type(y).sizes)};
  const Schedule s = p.schedule({y, p.b.op("relayout", {TensorArg{y}, rows})});
  EXPECT_EQ(s.kernels.size(), 2u);
  expect_golden("store_across", s);
}

TEST(Schedule, ArenaIsUsedAgain) {
  Program p;
  ValueId x = p.input({64, 64});
  const ValueId w = p.input({64, 64});
  for (int i = 0; i < 6; ++i) x = p.b.unary("relu", p.b.binary("mm", x, w));
  const Schedule s = p.schedule({x});
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 2 * 64 * 64 * 4);
}

TEST(Schedule, WhatIsComputedAgainWaitsForItsReader) {
  // As a backward graph begins: values of every layer come first, each is read by one layer.
  Program p;
  ValueId g = p.input({64, 64});
  std::vector<ValueId> saved, again, results;
  for (int i = 0; i < 6; ++i) saved.push_back(p.input({64, 64}));
  for (const ValueId v : saved) again.push_back(p.b.unary("exp", v));
  for (size_t i = 0; i < saved.size(); ++i) {
    results.push_back(p.b.binary("mm", g, again[i]));
    g = p.b.binary("mm", g, saved[i]);
  }
  results.push_back(g);
  const Schedule s = p.schedule(results);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), 3 * 64 * 64 * 4);
}

TEST(Schedule, WhatShrinksDoesNotWaitForItsReader) {
  Program p;
  ValueId g = p.input({64, 64});
  std::vector<ValueId> sums;
  for (int i = 0; i < 6; ++i) {
    g = p.b.binary("mm", g, g);
    sums.push_back(p.b.unary("exp", p.b.reduce("sum", g, {0}, true)));
  }
  ValueId total = g;
  for (const ValueId v : sums) total = p.b.binary("mm", total, p.b.expand(v, p.graph.type(g).sizes));
  const Schedule s = p.schedule({total});
  // Two products, and sums of 256 bytes each, which are not expanded before they are read.
  EXPECT_LE(s.plan.arena_bytes.const_value(), 4 * 64 * 64 * 4);
}

TEST(Schedule, AKernelWithALateMemberHurriesNobody) {
  // The first kernel waits for the end of the chain. What comes off the chain on the way is computed as it comes: into the
  // results, since only sums that start there are still to come.
  Program p;
  ValueId g = p.input({64, 64});
  const ValueId w = p.input({64, 64});
  const ValueId rows = p.input({1}, DType::kInt64);
  const ValueId first = p.b.unary("exp", w);
  std::vector<ValueId> parts;
  for (int i = 0; i < 6; ++i) {
    g = p.b.binary("mm", g, w);
    parts.push_back(p.b.binary("mm", w, g));
  }
  std::vector<ValueId> results{p.b.binary("mm", w, first), p.b.binary("mul", first, g)};
  const ValueId row = p.b.reduce("sum", g, {0}, true);
  for (const ValueId part : parts) {
    results.push_back(p.b.op("index_add", {TensorArg{part}, Scalar(int64_t{0}), TensorArg{rows}, TensorArg{row}}));
  }
  const Schedule s = p.schedule(results);
  EXPECT_LE(s.plan.arena_bytes.const_value(), 4 * 64 * 64 * 4);
}

TEST(Schedule, TurnsOfALoopAreOneKernel) {
  Program p;
  const ValueId rows = p.input({8, 1000});
  const ValueId w = p.input({1000, 1000});
  ValueId h = p.input({1, 1000});
  for (int64_t i = 0; i < 8; ++i) {
    const ValueId row = p.b.slice(rows, 0, p.ctx->constant(i), p.ctx->constant(i + 1), p.ctx->constant(1));
    h = p.b.unary("tanh", p.b.binary("add", p.b.binary("mm", h, w), row));
  }
  const Schedule s = p.schedule({h});
  std::set<const loops::Kernel*> kernels;
  for (const auto& kernel : s.kernels) kernels.insert(kernel.get());
  // The first row begins where the buffer does.
  EXPECT_EQ(kernels.size(), 2u);
  int64_t row = 0;
  for (const PlanStep& step : s.plan.steps) {
    const auto* launch = std::get_if<KernelLaunch>(&step);
    if (launch == nullptr) continue;
    int64_t start = 0;
    for (const Expr offset : launch->buffer_offsets) start += offset.valid() ? offset.const_value() : 0;
    EXPECT_EQ(start, 1000 * row++);
  }
  EXPECT_EQ(row, 8);
}

}  // namespace
}  // namespace tatara
