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

// ---- Reads of what was written in part --------------------------------------------------------------------------------

struct PartsOfRows : Program {
  ValueId x = input({6, 4}), made = b.unary("exp", x);
  std::vector<Arg> of(ValueId whole, int64_t dim, int64_t index) {
    return {TensorArg{whole}, Scalar(dim), Scalar(index)};
  }
  ValueId row(ValueId whole, int64_t index, int64_t dim = 0) { return b.op("select", of(whole, dim, index)); }
  ValueId with_row(ValueId whole, ValueId source, int64_t index, int64_t dim = 0) {
    return b.op("select_scatter", {TensorArg{whole}, TensorArg{source}, Scalar(dim), Scalar(index)});
  }
  std::vector<Arg> range(int64_t start, int64_t end, int64_t step) {
    return {Scalar(int64_t{0}), Scalar(start), Scalar(end), Scalar(step)};
  }
  ValueId slice(ValueId whole, int64_t start, int64_t end, int64_t step = 1) {
    std::vector<Arg> args = range(start, end, step);
    args.insert(args.begin(), TensorArg{whole});
    return b.op("slice", std::move(args));
  }
  ValueId with_slice(ValueId whole, ValueId source, int64_t start, int64_t end, int64_t step = 1) {
    std::vector<Arg> args = range(start, end, step);
    args.insert(args.begin(), {TensorArg{whole}, TensorArg{source}});
    return b.op("slice_scatter", std::move(args));
  }
  /// What is left where `read`, which no one keeps, is the result.
  Graph reading(ValueId read) {
    graph.add_output(b.unary("sin", read));
    return eliminate_dead_code(read_parts(graph));
  }
};

TEST(Transforms, AReadOfAWrittenPartIsWhatWasWritten) {
  PartsOfRows p;
  const Graph g = p.reading(p.row(p.with_row(p.made, p.input({4}), 2), 2));
  EXPECT_EQ(g.num_nodes(), 1u);
  PartsOfRows negative;
  EXPECT_EQ(negative.reading(negative.row(negative.with_row(negative.made, negative.input({4}), -1), 5)).num_nodes(),
            1u);
}

TEST(Transforms, AReadBesideAWrittenPartIsOfWhatWasThere) {
  PartsOfRows p;
  const ValueId written = p.with_row(p.with_row(p.made, p.input({4}), 2), p.input({4}), 3);
  const Graph g = p.reading(p.row(written, 1));
  EXPECT_EQ(count(g, "select_scatter"), 0u);
  EXPECT_EQ(count(g, "select"), 1u);
}

TEST(Transforms, SlicesMeetOrDoNot) {
  const auto left = [](int64_t start, int64_t end, int64_t step, int64_t from, int64_t to, int64_t by) {
    PartsOfRows p;
    const ValueId source = p.b.unary("cos", p.slice(p.x, start, end, step));
    return count(p.reading(p.slice(p.with_slice(p.made, source, start, end, step), from, to, by)), "slice_scatter");
  };
  EXPECT_EQ(left(0, 2, 1, 2, 6, 1), 0u);
  EXPECT_EQ(left(0, 6, 2, 1, 6, 2), 0u);
  EXPECT_EQ(left(0, 6, 2, 0, 6, 2), 0u);
  EXPECT_EQ(left(0, 3, 1, 2, 6, 1), 1u);
  EXPECT_EQ(left(0, 6, 2, 1, 6, 3), 1u);
  EXPECT_EQ(left(1, 3, 1, 0, 6, 1), 1u);
}

TEST(Transforms, ReadsThroughOtherViewsMeetThePart) {
  PartsOfRows p;
  const auto turned = [&](ValueId v) { return p.b.op("t", {TensorArg{v}}); };
  const ValueId written = turned(p.with_row(turned(p.made), p.input({6}), 1));  // column 1
  EXPECT_EQ(count(p.reading(p.row(written, 1, 1)), "select_scatter"), 0u);
  PartsOfRows q;
  const ValueId column = q.with_row(q.made, q.input({6}), 1, 1);
  EXPECT_EQ(count(q.reading(q.row(column, 1)), "select_scatter"), 1u);  // a row has an element of it
}

TEST(Transforms, WhatIsThereAlreadyIsNotWritten) {
  PartsOfRows p;
  const ValueId sum = p.b.binary("add", p.row(p.made, 1), p.input({4}));
  const ValueId once = p.with_row(p.made, sum, 1);
  const auto again = [&p](ValueId whole, ValueId source) {
    return p.with_row(whole, p.b.op("copy", {TensorArg{p.row(whole, 1)}, TensorArg{source}, Scalar(false)}), 1);
  };
  p.graph.add_output(again(again(once, sum), p.row(once, 1)));
  EXPECT_EQ(count(eliminate_dead_code(read_parts(p.graph)), "select_scatter"), 1u);
}

TEST(Transforms, ResultsThatAreWrittenWhatTheyHaveStayApart) {
  PartsOfRows p;
  p.graph.add_output(p.made);
  p.graph.add_output(p.with_row(p.made, p.row(p.made, 1), 1));
  p.graph.add_output(p.with_row(p.x, p.row(p.x, 1), 1));
  EXPECT_EQ(count(read_parts(p.graph), "select_scatter"), 2u);
  PartsOfRows two;
  const ValueId base = two.b.unary("neg", two.made);
  for (int i = 0; i < 2; ++i) two.graph.add_output(two.with_row(base, two.row(base, i), i));
  const Graph g = read_parts(two.graph);
  EXPECT_NE(g.outputs()[0].value, g.outputs()[1].value);
}

TEST(Transforms, PartsWrittenInPlaceAreReadThere) {
  PartsOfRows p;
  const ValueId once = p.with_row(p.x, p.input({4}), 1);
  const ValueId twice = p.with_row(once, p.b.unary("sin", p.row(once, 2)), 3);
  p.graph.add_input_write(0, twice);
  EXPECT_EQ(count(write_parts(read_parts(p.graph)), "write_part"), 2u);
  const Graph g = read_parts(p.graph);
  const Node& read =
      *g.producer(std::get<TensorArg>(
                      g.producer(std::get<TensorArg>(g.producer(g.input_writes()[0].value)->args[1]).value)->args[0])
                      .value);
  EXPECT_EQ(g.producer(std::get<TensorArg>(read.args[0]).value)->op->name, "select_scatter");
}

TEST(Transforms, SmallPartsOfLargeResultsAreWrittenInPlace) {
  const auto written = [](int64_t rows, bool read, bool kept) {
    Program p;
    const ValueId made = p.b.unary("exp", p.input({rows, 64}));
    const ValueId row = p.b.op("select", {TensorArg{made}, Scalar(int64_t{0}), Scalar(int64_t{1})});
    const ValueId whole = p.b.op(
        "select_scatter", {TensorArg{made}, TensorArg{p.b.unary("neg", row)}, Scalar(int64_t{0}), Scalar(int64_t{1})});
    p.graph.add_output(whole);
    if (read) p.graph.add_output(p.b.unary("sin", whole));
    if (kept) p.graph.add_output(made);
    return count(write_parts(p.graph), "write_part");
  };
  EXPECT_EQ(written(1000, false, false), 1u);
  EXPECT_EQ(written(100, false, false), 0u);
  EXPECT_EQ(written(1000, true, false), 0u);
  EXPECT_EQ(written(1000, false, true), 0u);
}

// ---- Convolutions on GPUs ----------------------------------------------------------------------------------------------

struct Convolutions : Program {
  ValueId on_gpu(const std::vector<int64_t>& sizes, DType dtype = DType::kFloat32) {
    TensorType type;
    type.dtype = dtype;
    type.device.kind = DeviceKind::kCuda;
    for (const int64_t n : sizes) type.sizes.push_back(ctx->constant(n));
    type.strides = contiguous_strides(*ctx, type.sizes);
    return graph.add_input(type);
  }
  ValueId convolution(ValueId x, int64_t filters, int64_t groups = 1, bool bias = false) {
    const int64_t channels = graph.type(x).sizes[1].const_value();
    const ValueId w = on_gpu({filters, channels / groups, 3, 3}, graph.type(x).dtype);
    const auto ones = [this] { return SymInts{{ctx->constant(1), ctx->constant(1)}}; };
    std::vector<Arg> args{TensorArg{x}, TensorArg{w}, NoneArg{}, ones(), ones(), ones(), Scalar(groups)};
    if (bias) args[2] = TensorArg{on_gpu({filters}, graph.type(x).dtype)};
    return b.op("conv2d", std::move(args));
  }
};

TEST(Transforms, BiasesOfConvolutionsOnGpusAreSums) {
  Convolutions p;
  const ValueId x = p.on_gpu({2, 8, 9, 9});
  p.graph.add_output(p.convolution(x, 4, 1, true));
  p.graph.add_output(p.convolution(x, 8, 8, true));  // the host's kernel for groups adds it
  const Graph g = split_biases(p.graph);
  EXPECT_EQ(count(g, "convolution"), 2u);
  EXPECT_EQ(count(g, "add"), 1u);
}

TEST(Transforms, BiasesOfLinearLayersOnGpusAreTheHosts) {
  const auto products = [](const auto& follow, int64_t bias_length = 16) {
    Convolutions p;
    const ValueId rows = p.on_gpu({2, 4, 8}), weights = p.on_gpu({8, 16}), bias = p.on_gpu({bias_length});
    const ValueId product = p.b.binary("mm", p.b.reshape(rows, {p.ctx->constant(8), p.ctx->constant(8)}), weights);
    const ValueId split = p.b.reshape(product, {p.ctx->constant(2), p.ctx->constant(4), p.ctx->constant(16)});
    follow(p, product, p.b.binary("add", split, bias));
    return count(eliminate_dead_code(join_biases(p.graph)), "addmm");
  };
  const auto given = [](Convolutions& p, ValueId, ValueId sum) { p.graph.add_output(sum); };
  EXPECT_EQ(products(given), 1u);
  EXPECT_EQ(products(given, 1), 0u);
  EXPECT_EQ(products([](Convolutions& p, ValueId, ValueId sum) { p.graph.add_output(p.b.unary("relu", sum)); }), 0u);
  EXPECT_EQ(products([](Convolutions& p, ValueId product, ValueId sum) {
              p.graph.add_output(sum);
              p.graph.add_output(product);
            }),
            0u);
  EXPECT_EQ(products([](Convolutions& p, ValueId, ValueId sum) {
              const ValueId again = p.b.reshape(sum, {p.ctx->constant(8), p.ctx->constant(16)});
              p.graph.add_output(p.b.binary("mm", again, p.on_gpu({16, 4})));
            }),
            1u);
}

TEST(Transforms, ConvolutionsOnGpusHaveChannelsLast) {
  Convolutions p;
  const ValueId x = p.on_gpu({16, 64, 64, 64});
  const ValueId y = p.convolution(p.b.unary("relu", p.convolution(x, 64)), 64);
  p.graph.add_output(y);
  const Graph g = channels_last(p.graph);
  EXPECT_EQ(count(g, "relayout"), 2u);  // before the first and behind the last
  EXPECT_TRUE(g.type(g.outputs()[0].value).strides == p.graph.type(y).strides);
}

TEST(Transforms, ACopyForAConvolutionServesWhatAddsIt) {
  Convolutions p;
  const ValueId x = p.on_gpu({16, 64, 64, 64});
  p.graph.add_output(p.b.binary("add", p.convolution(x, 64), x));
  EXPECT_EQ(count(channels_last(p.graph), "relayout"), 2u);
}

TEST(Transforms, ImagesInBothOrdersAreNotMixed) {
  Convolutions p;
  const ValueId x = p.on_gpu({16, 64, 64, 64}), other = p.on_gpu({16, 64, 64, 64});
  const ValueId sum = p.b.binary("add", p.b.unary("relu", p.convolution(x, 64)), other);
  p.graph.add_output(p.b.unary("exp", sum));
  const Graph g = channels_last(p.graph);
  EXPECT_EQ(count(g, "relayout"), 2u);
  for (const Node& node : g.nodes()) {
    if (node.op->name != "add") continue;
    EXPECT_TRUE(g.type(node.outputs[0]).strides == p.graph.type(sum).strides);
  }
}

TEST(Transforms, SomeConvolutionsOnGpusStay) {
  const auto copies = [](Convolutions& p, const PassOptions& options = {}) {
    return count(channels_last(p.graph, options), "relayout");
  };
  Convolutions few;
  few.graph.add_output(few.convolution(few.on_gpu({1, 64, 16, 16}), 64));
  EXPECT_EQ(copies(few), 0u);
  Convolutions wide;
  wide.graph.add_output(wide.convolution(wide.on_gpu({16, 64, 64, 64}, DType::kFloat64), 64));
  EXPECT_EQ(copies(wide), 0u);
  Convolutions in_turns;
  const ValueId x = in_turns.on_gpu({16, 64, 64, 64});
  in_turns.graph.add_output(in_turns.convolution(in_turns.convolution(x, 64, 64), 64));
  EXPECT_EQ(copies(in_turns), 0u);
  Convolutions stage;
  stage.graph.add_output(stage.convolution(stage.on_gpu({16, 64, 64, 64}), 64));
  PassOptions options;
  options.of_stage = true;
  EXPECT_EQ(copies(stage, options), 0u);
  EXPECT_EQ(copies(stage), 2u);
}

}  // namespace
}  // namespace tatara
