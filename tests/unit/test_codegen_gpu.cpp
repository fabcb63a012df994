// Kernels for NVIDIA GPUs without a GPU: the scheduler's mapping to threads, PTX by LLVM, and what NVIDIA's assembler says of it
// (registers and spills in tests/golden/gpu/resources.txt; TATARA_UPDATE_GOLDEN=1 rewrites).
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <sstream>

#include "codegen/abi.h"
#include "codegen/emit_cpu.h"
#include "codegen/emit_gpu.h"
#include "llvm_for_tests.h"
#include "loops/parser.h"
#include "programs.h"
#include "run_command.h"
#include "runtime/cuda/copy_list.h"
#include "runtime/cuda/cuda.h"
#include "runtime/jit/jit_loader.h"
#include "runtime/jit/llvm_provider.h"
#include "testing.h"

namespace tatara {
namespace {

const Device kGpu{DeviceKind::kCuda, 0};

using Build = std::vector<ValueId> (*)(Program&);

struct Case {
  const char* name;
  Build build;
};

ValueId softmax(Program& p, ValueId x) { return p.b.op("softmax", {TensorArg{x}, Scalar(int64_t{-1})}); }

ValueId contiguous(Program& p, ValueId x) { return p.b.op("clone", {TensorArg{x}, std::string("contiguous_format")}); }

ValueId exp_of_transposed(Program& p, ValueId x) { return contiguous(p, p.b.unary("exp", p.b.permute(x, {1, 0}))); }

/// Of the four neighbours of each inner element of a matrix, and the element itself.
ValueId stencil(Program& p, ValueId x) {
  ExprContext& c = *p.ctx;
  const auto part = [&](int64_t row, int64_t column) {
    const ValueId rows = p.b.slice(x, 0, c.constant(row), p.b.type(x).sizes[0] - (2 - row), c.constant(1));
    return p.b.slice(rows, 1, c.constant(column), p.b.type(x).sizes[1] - (2 - column), c.constant(1));
  };
  ValueId sum = part(1, 1);
  for (const auto& [row, column] : {std::pair{0, 1}, {2, 1}, {1, 0}, {1, 2}})
    sum = p.b.binary("add", sum, part(row, column));
  return p.b.binary("mul", sum, Scalar(0.2));
}

std::vector<ValueId> in_order(Program& p, const char* op, ValueId x, int64_t kept) {
  std::vector<Arg> args{TensorArg{x}};
  if (kept > 0) args.push_back(Scalar(kept));
  args.push_back(Scalar(int64_t{-1}));
  return p.b.op_multi(op, args);
}

ValueId channel_norm(Program& p, ValueId x) {
  const ValueId wide = p.b.cast(x, DType::kFloat32);
  const ValueId mean = p.b.reduce("mean", p.b.binary("mul", wide, wide), {1}, true);
  const ValueId scale = p.b.unary("rsqrt", p.b.binary("add", mean, Scalar(1e-5)));
  return p.b.cast(p.b.binary("mul", wide, scale), p.graph.type(x).dtype);
}

ValueId scattered(Program& p, DType dtype, const char* kind) {
  const ValueId base = p.input({1 << 16, 64}, dtype), index = p.input({8, 64}, DType::kInt64);
  return p.b.op("scatter_reduce_to_self", {TensorArg{base}, Scalar(int64_t{0}), TensorArg{index},
                                           TensorArg{p.input({8, 64}, dtype)}, std::string(kind)});
}

const Case kCases[] = {
    {"scale_add",
     [](Program& p) {
       return std::vector{p.b.binary("add", p.b.binary("mul", p.input({1 << 20}), Scalar(2.0)), Scalar(1.0))};
     }},
    {"scale_odd", [](Program& p) { return std::vector{p.b.binary("mul", p.input({1000003}), Scalar(2.0))}; }},
    {"gelu_bias_f16",
     [](Program& p) {
       const ValueId x = p.input({4096, 3072}, DType::kFloat16);
       return std::vector{p.b.op("gelu", {TensorArg{p.b.binary("add", x, p.input({3072}, DType::kFloat16))}})};
     }},
    {"mul_bf16",
     [](Program& p) {
       return std::vector{
           p.b.binary("mul", p.input({4096, 1024}, DType::kBFloat16), p.input({4096, 1024}, DType::kBFloat16))};
     }},
    {"broadcast_symbolic",
     [](Program& p) {
       const Expr n = p.ctx->fresh_size_symbol(128);
       const ValueId x = p.symbolic({n, p.ctx->constant(768)});
       return std::vector{p.b.unary("tanh", p.b.binary("add", x, p.input({768})))};
     }},
    {"softmax_1k", [](Program& p) { return std::vector{softmax(p, p.input({4096, 1024}))}; }},
    {"softmax_64", [](Program& p) { return std::vector{softmax(p, p.input({4096, 64}))}; }},
    {"softmax_odd", [](Program& p) { return std::vector{softmax(p, p.input({4096, 1001}))}; }},
    {"softmax_32k", [](Program& p) { return std::vector{softmax(p, p.input({512, 32768}))}; }},
    {"softmax_f16", [](Program& p) { return std::vector{softmax(p, p.input({4096, 2048}, DType::kFloat16))}; }},
    {"softmax_symbolic",
     [](Program& p) {
       const Expr n = p.ctx->fresh_size_symbol(512);
       return std::vector{softmax(p, p.symbolic({p.ctx->fresh_size_symbol(64), n}))};
     }},
    {"layer_norm",
     [](Program& p) {
       const ValueId x = p.input({4096, 768}, DType::kFloat16);
       const ValueId w = p.input({768}, DType::kFloat16);
       return std::vector{p.b.op("layer_norm", {TensorArg{x}, SymInts{{p.ctx->constant(768)}}, TensorArg{w},
                                                TensorArg{p.input({768}, DType::kFloat16)}})};
     }},
    {"cross_entropy",
     [](Program& p) {
       const ValueId x = p.input({16384, 32000});
       return std::vector{p.b.op("cross_entropy_loss", {TensorArg{x}, TensorArg{p.input({16384}, DType::kInt64)}})};
     }},
    {"cross_entropy_f16_odd",
     [](Program& p) {
       const ValueId x = p.input({4096, 50257}, DType::kFloat16);
       return std::vector{p.b.op("cross_entropy_loss", {TensorArg{x}, TensorArg{p.input({4096}, DType::kInt64)}})};
     }},
    {"logsumexp_128k",
     [](Program& p) {
       const Arg dims = SymInts{{p.ctx->constant(1)}};
       return std::vector{p.b.op("logsumexp", {TensorArg{p.input({2048, 128256})}, dims})};
     }},
    {"stencil", [](Program& p) { return std::vector{stencil(p, p.input({1 << 16, 2048}))}; }},
    {"log_softmax_column",
     [](Program& p) {
       const ValueId y = p.b.op("log_softmax", {TensorArg{p.input({1 << 18, 512})}, Scalar(int64_t{1})});
       const ValueId first = p.b.op("select", {TensorArg{y}, Scalar(int64_t{1}), Scalar(int64_t{0})});
       return std::vector{p.b.op("mean", {TensorArg{first}})};
     }},
    {"var_mean_all", [](Program& p) { return p.b.op_multi("var_mean", {TensorArg{p.input({1 << 17, 1024})}}); }},
    {"norm_columns",
     [](Program& p) {
       const ValueId x = p.input({1 << 16, 2048});
       return std::vector{p.b.unary("sqrt", p.b.reduce("sum", p.b.binary("mul", x, x), {0}, false))};
     }},
    {"sum_all", [](Program& p) { return std::vector{p.b.reduce("sum", p.input({1 << 24}), {0}, false)}; }},
    {"sum_columns", [](Program& p) { return std::vector{p.b.reduce("sum", p.input({8192, 1024}), {0}, false)}; }},
    {"argmax_rows",
     [](Program& p) {
       return std::vector{p.b.op("argmax", {TensorArg{p.input({512, 4096})}, Scalar(int64_t{1}), Scalar(false)})};
     }},
    {"var_rows",
     [](Program& p) {
       return std::vector{p.b.op("var.dim", {TensorArg{p.input({512, 4096})}, SymInts{{p.ctx->constant(1)}}})};
     }},
    {"transpose",
     [](Program& p) {
       return std::vector{p.b.binary("mul", p.b.permute(p.input({1024, 2048}), {1, 0}), p.input({2048, 1024}))};
     }},
    {"embedding",
     [](Program& p) {
       return std::vector{
           p.b.op("embedding", {TensorArg{p.input({30000, 768})}, TensorArg{p.input({8, 512}, DType::kInt64)}})};
     }},
    {"cumsum",
     [](Program& p) { return std::vector{p.b.op("cumsum", {TensorArg{p.input({512, 1000})}, Scalar(int64_t{1})})}; }},
    {"transpose_f16",
     [](Program& p) {
       const ValueId x = p.b.permute(p.input({1000, 2000}, DType::kFloat16), {1, 0});
       return std::vector{contiguous(p, p.b.binary("mul", x, Scalar(2.0)))};
     }},
    {"transpose_odd", [](Program& p) { return std::vector{exp_of_transposed(p, p.input({1001, 2049}))}; }},
    {"transpose_i8",
     [](Program& p) {
       const ValueId x = p.b.permute(p.input({2048, 4096}, DType::kInt8), {1, 0});
       return std::vector{contiguous(p, p.b.binary("add", x, Scalar(int64_t{1})))};
     }},
    {"transpose_f64_symbolic",
     [](Program& p) {
       const ValueId x = p.symbolic({p.ctx->fresh_size_symbol(300), p.ctx->fresh_size_symbol(500)}, DType::kFloat64);
       return std::vector{exp_of_transposed(p, x)};
     }},
    {"transpose_narrow", [](Program& p) { return std::vector{exp_of_transposed(p, p.input({1 << 18, 12}))}; }},
    {"transpose_five",
     [](Program& p) {
       ValueId sum = p.input({2048, 2048});
       for (int i = 0; i < 5; ++i) sum = p.b.binary("add", sum, p.b.permute(p.input({2048, 2048}), {1, 0}));
       return std::vector{sum};
     }},
    {"cumsum_odd",
     [](Program& p) { return std::vector{p.b.op("cumsum", {TensorArg{p.input({512, 99999})}, Scalar(int64_t{1})})}; }},
    {"cumsum_i64",
     [](Program& p) {
       return std::vector{p.b.op("cumsum", {TensorArg{p.input({4, 64}, DType::kInt64)}, Scalar(int64_t{1})})};
     }},
    {"sum_middle", [](Program& p) { return std::vector{p.b.reduce("sum", p.input({30, 100, 50}), {1}, false)}; }},
    {"channel_norm_f16",
     [](Program& p) { return std::vector{channel_norm(p, p.input({2, 640, 16, 16}, DType::kFloat16))}; }},
    {"channel_norm_odd", [](Program& p) { return std::vector{channel_norm(p, p.input({3, 100, 7, 7}))}; }},
    {"channel_norm_symbolic",
     [](Program& p) {
       const Expr n = p.ctx->fresh_size_symbol(4), w = p.ctx->fresh_size_symbol(14);
       return std::vector{channel_norm(p, p.symbolic({n, p.ctx->fresh_size_symbol(320), w, w}, DType::kBFloat16))};
     }},
    {"channel_layer_norm",
     [](Program& p) {
       const ValueId x = p.b.permute(p.input({8, 384, 28, 28}, DType::kFloat16), {0, 2, 3, 1});
       const ValueId w = p.input({384}, DType::kFloat16);
       return std::vector{p.b.op("layer_norm", {TensorArg{x}, SymInts{{p.ctx->constant(384)}}, TensorArg{w},
                                                TensorArg{p.input({384}, DType::kFloat16)}})};
     }},
    {"channel_softmax",
     [](Program& p) {
       return std::vector{
           p.b.op("softmax", {TensorArg{p.input({8, 1000, 6, 6}, DType::kFloat16)}, Scalar(int64_t{1})})};
     }},
    {"channel_argmax",
     [](Program& p) {
       return std::vector{p.b.op("argmax", {TensorArg{p.input({4, 500, 40})}, Scalar(int64_t{1}), Scalar(false)})};
     }},
    {"channel_complex",
     [](Program& p) {
       const ValueId x = p.input({4, 300, 24}, DType::kComplex64);
       return std::vector{p.b.binary("div", x, p.b.reduce("sum", x, {1}, true))};
     }},
    {"scatter_amax_f16", [](Program& p) { return std::vector{scattered(p, DType::kFloat16, "amax")}; }},
    {"scatter_prod", [](Program& p) { return std::vector{scattered(p, DType::kFloat32, "prod")}; }},
    {"scatter_amin_i8", [](Program& p) { return std::vector{scattered(p, DType::kInt8, "amin")}; }},
    {"complex_exp_log",
     [](Program& p) { return std::vector{p.b.unary("exp", p.b.unary("log", p.input({4096}, DType::kComplex64)))}; }},
    {"complex_tanh_sqrt",
     [](Program& p) { return std::vector{p.b.unary("tanh", p.b.unary("sqrt", p.input({4096}, DType::kComplex128)))}; }},
    {"index_add",
     [](Program& p) {
       const ValueId x = p.input({1000, 64});
       const ValueId index = p.input({100}, DType::kInt64);
       return std::vector{
           p.b.op("index_add", {TensorArg{x}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{p.input({100, 64})}})};
     }},
    {"trigonometry_f64",
     [](Program& p) {
       const ValueId x = p.input({65536}, DType::kFloat64);
       return std::vector{p.b.binary("pow", p.b.unary("sin", x), p.b.unary("exp", x))};
     }},
    {"complex_mul",
     [](Program& p) {
       return std::vector{p.b.binary("mul", p.input({4096}, DType::kComplex64), p.input({4096}, DType::kComplex64))};
     }},
    {"sort_256", [](Program& p) { return in_order(p, "sort", p.input({8192, 256}), -1); }},
    {"sort_f16_1000", [](Program& p) { return in_order(p, "sort", p.input({8192, 1000}, DType::kFloat16), -1); }},
    {"sort_4096", [](Program& p) { return in_order(p, "sort", p.input({512, 4096}), -1); }},
    {"sort_i64_3000", [](Program& p) { return in_order(p, "sort", p.input({512, 3000}, DType::kInt64), -1); }},
    {"sort_f64_5", [](Program& p) { return in_order(p, "sort", p.input({512, 5}, DType::kFloat64), -1); }},
    {"topk_8", [](Program& p) { return in_order(p, "topk", p.input({32768, 1024}), 8); }},
    {"topk_16_f64", [](Program& p) { return in_order(p, "topk", p.input({64, 5000}, DType::kFloat64), 16); }},
    {"topk_5_vocabulary", [](Program& p) { return in_order(p, "topk", p.input({8, 50257}, DType::kBFloat16), 5); }},
    {"rotary",
     [](Program& p) {
       const ValueId x = p.input({16, 512, 64});
       ExprContext& c = *p.ctx;
       const ValueId low = p.b.slice(x, 2, c.constant(0), c.constant(32), c.constant(1));
       const ValueId high = p.b.slice(x, 2, c.constant(32), c.constant(64), c.constant(1));
       const ValueId turned = p.b.op("cat", {TensorList{{p.b.unary("neg", high), low}}, Scalar(int64_t{2})});
       return std::vector{
           p.b.binary("add", p.b.binary("mul", x, p.input({512, 64})), p.b.binary("mul", turned, p.input({512, 64})))};
     }},
    {"embedding_sum",
     [](Program& p) {
       const ValueId rows =
           p.b.op("embedding", {TensorArg{p.input({30000, 256})}, TensorArg{p.input({512, 512}, DType::kInt64)}});
       return std::vector{p.b.binary("add", rows, p.input({512, 256}))};
     }},
    {"nbody",
     [](Program& p) {
       const ValueId x = p.input({4096, 3}), mass = p.input({4096});
       const ValueId delta = p.b.binary("sub", p.b.unsqueeze(x, 0), p.b.unsqueeze(x, 1));
       const ValueId squares = p.b.reduce("sum", p.b.binary("mul", delta, delta), {2}, false);
       const ValueId inverse = p.b.unary("rsqrt", p.b.binary("add", squares, Scalar(1e-3)));
       const ValueId cube = p.b.binary("pow", inverse, Scalar(int64_t{3}));
       const ValueId weight = p.b.unsqueeze(p.b.binary("mul", cube, p.b.unsqueeze(mass, 0)), 2);
       return std::vector{p.b.reduce("sum", p.b.binary("mul", delta, weight), {1}, false)};
     }},
    {"adamw_list",
     [](Program& p) {
       std::vector<ValueId> results;
       for (const int64_t n : {1 << 20, 768, 3072, 50257}) {
         const ValueId w = p.input({n}), g = p.input({n}), m = p.input({n}), v = p.input({n});
         const auto mix = [&](ValueId old, double keep, ValueId now) {
           return p.b.binary("add", p.b.binary("mul", old, Scalar(keep)), p.b.binary("mul", now, Scalar(1 - keep)));
         };
         const ValueId first = mix(m, 0.9, g), second = mix(v, 0.999, p.b.binary("mul", g, g));
         const ValueId root = p.b.binary("add", p.b.unary("sqrt", second), Scalar(1e-8));
         results.push_back(first);
         results.push_back(second);
         results.push_back(p.b.binary("sub", w, p.b.binary("mul", p.b.binary("div", first, root), Scalar(1e-3))));
       }
       return results;
     }},
    {"cast_list",
     [](Program& p) {
       std::vector<ValueId> results;
       for (const int64_t n : {768, 3072, 1024}) {
         for (int i = 0; i < 40; ++i) results.push_back(p.b.cast(p.input({n, 768}), DType::kFloat16));
       }
       return results;
     }},
    {"softmax_list",
     [](Program& p) {
       std::vector<ValueId> results;
       for (int i = 0; i < 3; ++i) results.push_back(softmax(p, p.input({4096, 1024})));
       return results;
     }},
    {"norm_list",
     [](Program& p) {
       std::vector<ValueId> results;
       for (int i = 0; i < 3; ++i) {
         const ValueId x = p.input({1 << 20});
         results.push_back(p.b.unary("sqrt", p.b.reduce("sum", p.b.binary("mul", x, x), {0}, false)));
       }
       return results;
     }},
    {"int_arithmetic",
     [](Program& p) {
       const ValueId x = p.input({4096}, DType::kInt64);
       return std::vector{p.b.binary("remainder", p.b.binary("add", x, Scalar(int64_t{3})), Scalar(int64_t{7}))};
     }},
};

TEST(CodegenGpu, MappingPrintsAndParsesBack) {
  for (const Case& c : kCases) {
    Program p{kGpu};
    const Schedule s = p.schedule(c.build(p));
    EXPECT_GT(s.kernels.size(), 0u);
    for (const auto& kernel : s.kernels) {
      EXPECT_GT(kernel->gpu.threads, 0) << c.name;
      const std::string text = loops::print_kernel(*kernel);
      EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
    }
  }
}

std::string first_kernel(const char* name) {
  for (const Case& c : kCases) {
    if (std::string_view(c.name) != name) continue;
    Program p{kGpu};
    return emit_gpu(*p.schedule(c.build(p)).kernels[0], {}, "k");
  }
  return {};
}

TEST(CodegenGpu, WideAccessesAndRowsInRegisters) {
  EXPECT_NE(first_kernel("scale_add").find("load <4 x float>, ptr %v"), std::string::npos);
  EXPECT_NE(first_kernel("gelu_bias_f16").find("load <8 x half>, ptr %v"), std::string::npos);
  EXPECT_NE(first_kernel("scale_add").find("align 16, !invariant.load"), std::string::npos);
  // An odd row length leaves rows unaligned.
  EXPECT_EQ(first_kernel("softmax_odd").find("x float>"), std::string::npos);
}

TEST(CodegenGpu, ThreadsShareColumnsThatAreFewOrWalkedAgain) {
  Program few{kGpu};
  const Schedule norm = few.schedule({channel_norm(few, few.input({2, 640, 16, 16}, DType::kFloat16))});
  EXPECT_EQ(norm.kernels.size(), 1u);
  const loops::GpuMapping& shared = norm.kernels[0]->gpu;
  EXPECT_EQ(shared.row, 0);
  EXPECT_GT(shared.column, 16);
  EXPECT_EQ(shared.threads % shared.column, 0);
  EXPECT_GT(norm.plan.kernels.size(), 0u);
  Program many{kGpu};
  const Schedule sum = many.schedule({many.b.reduce("sum", many.input({64, 100, 1 << 16}), {1}, false)});
  EXPECT_EQ(sum.kernels[0]->gpu.column, 1);
  Program again{kGpu};
  const Schedule twice = again.schedule({channel_norm(again, again.input({64, 100, 1 << 16}))});
  EXPECT_GT(twice.kernels[0]->gpu.column, 1);
}

TEST(CodegenGpu, RowsInAnotherOrderAreCopiedFirst) {
  for (const int64_t side : {28, 7}) {
    Program p{kGpu};
    const ValueId x = p.b.permute(p.input({32, 384, side, side}, DType::kFloat16), {0, 2, 3, 1});
    const Schedule s = p.schedule({softmax(p, p.b.binary("mul", x, x))});
    EXPECT_EQ(s.kernels.size(), 2u);
    EXPECT_TRUE(s.kernels[0]->gpu.tiles);
    EXPECT_GT(s.kernels[1]->gpu.row, 0);
    EXPECT_GT(s.kernels[1]->gpu.lanes, 1);
  }
  Program small{kGpu};
  const ValueId x = small.b.permute(small.input({2, 64, 8, 8}), {0, 2, 3, 1});
  EXPECT_EQ(small.schedule({softmax(small, small.b.binary("mul", x, x))}).kernels.size(), 1u);
}

TEST(CodegenGpu, FewRowsAreNotWalkedAgainByFewThreads) {
  const auto kernels = [](int64_t batch) {
    Program p{kGpu};
    const ValueId x = p.input({batch, 16384, 64});  // as instance norm sees an image in channels last
    const ValueId mean = p.b.reduce("mean", x, {1}, true);
    return p.schedule({p.b.binary("sub", x, mean)}).kernels.size();
  };
  EXPECT_EQ(kernels(4), 3u);  // two for the sums, one that subtracts
  EXPECT_EQ(kernels(2048), 1u);
}

struct Resources {
  int registers = -1;
  int spills = -1;
};

TEST(CodegenGpu, OddVocabularyIsSplit) {
  Program p{kGpu};
  const ValueId x = p.input({4096, 768}, DType::kFloat16);
  const ValueId w = p.b.permute(p.input({50257, 768}, DType::kFloat16), {1, 0});
  p.graph.add_output(p.b.binary("mm", x, w));
  const Graph split = align_matmuls(p.graph);
  std::vector<int64_t> columns;
  for (const Node& node : split.nodes()) {
    if (node.op->name == "mm") columns.push_back(split.type(node.outputs[0]).sizes[1].const_value());
  }
  EXPECT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0], 50256);
  EXPECT_EQ(columns[1], 1);
  EXPECT_EQ(split.type(split.outputs()[0].value).str(), p.graph.type(p.graph.outputs()[0].value).str());
}

TEST(CodegenGpu, MasksOfAttentionHaveContiguousRows) {
  Program p{kGpu};
  const std::vector<int64_t> heads{2, 8, 64, 64};
  const ValueId q = p.input(heads, DType::kFloat16), k = p.input(heads, DType::kFloat16);
  const ValueId v = p.input(heads, DType::kFloat16);
  const ValueId bias = p.b.unsqueeze(p.b.permute(p.input({64, 64, 8}, DType::kFloat16), {2, 0, 1}), 0);
  p.graph.add_output(
      p.b.op("scaled_dot_product_attention", {TensorArg{q}, TensorArg{k}, TensorArg{v}, TensorArg{bias}}));
  const Graph dense = align_attention_masks(p.graph);
  for (const Node& node : dense.nodes()) {
    if (node.op->name != "scaled_dot_product_attention") continue;
    EXPECT_EQ(dense.type(std::get<TensorArg>(node.args[3]).value).strides.back().str(), "1");
  }
  EXPECT_EQ(dense.nodes().size(), p.graph.nodes().size() + 1);
}

/// The mask that attention has after the pass, where its mask was `mask`; null: none.
const Node* mask_after(Program& p, ValueId mask, Graph& after) {
  const std::vector<int64_t> heads{2, 8, 64, 64};
  const ValueId q = p.input(heads, DType::kFloat16), k = p.input(heads, DType::kFloat16);
  const ValueId v = p.input(heads, DType::kFloat16);
  p.graph.add_output(
      p.b.op("scaled_dot_product_attention", {TensorArg{q}, TensorArg{k}, TensorArg{v}, TensorArg{mask}}));
  after = align_attention_masks(p.graph);
  for (const Node& node : after.nodes()) {
    if (node.op->name != "scaled_dot_product_attention") continue;
    const auto* arg = std::get_if<TensorArg>(&node.args[3]);
    return arg == nullptr ? nullptr : &after.node(after.value(arg->value).producer);
  }
  throw InternalError("no attention");
}

/// [1, 1, 64, 1] of the numbers from `start` on.
ValueId places(Program& p, int64_t start) {
  const ValueId all =
      p.b.op("arange.step", {Scalar(start), Scalar(start + 64), Scalar(int64_t{1}), NoneArg{}, NoneArg{}, kGpu});
  const ValueId moved = p.b.op("add", {TensorArg{all}, Scalar(int64_t{0})});  // as libraries write it
  return p.b.unsqueeze(p.b.unsqueeze(p.b.unsqueeze(moved, 0), 0), 3);
}

TEST(CodegenGpu, AMaskThatIsTrueEverywhereIsLeftOut) {
  for (const int64_t bound : {0, 1, 63}) {
    Program p{kGpu};
    const ValueId from = p.b.op("ge", {TensorArg{places(p, 0)}, Scalar(bound)});
    ExprContext& ctx = p.graph.ctx();
    const SymInts sizes{{ctx.constant(2), ctx.constant(1), ctx.constant(64), ctx.constant(64)}};
    const ValueId mask = p.b.op("expand", {TensorArg{from}, sizes});
    Graph after(p.graph);
    const Node* made = mask_after(p, mask, after);
    EXPECT_EQ(made == nullptr, bound == 0) << bound;
    // The rows of what stays repeat one element, which no fused kernel takes.
    const std::string name = made == nullptr ? "relayout" : made->op->name;
    EXPECT_EQ(name, "relayout");
  }
}

int number_before(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return -1;
  size_t begin = at;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  return begin == at ? -1 : std::stoi(text.substr(begin, at - begin));
}

constexpr const char* kChips[] = {"sm_80", "sm_90a", "sm_100"};

/// Kept by what LLVM gets: two tests go over all cases, and LLVM takes most of their time.
std::string ptx_of(LlvmProvider& llvm, const loops::Kernel& kernel, const char* chip) {
  TargetOptions options;
  options.triple = kGpuTriple;
  options.cpu = chip;
  options.opt_level = 2;
  options.output = TargetOptions::Output::kAssembly;
  GpuTarget target{std::string_view(chip) == "sm_80" ? 80 : std::string_view(chip) == "sm_100" ? 100 : 90, chip, ""};
  if (target.capability == 90) options.features = target.features = "+ptx81";
  static std::map<std::pair<std::string, std::string>, std::string> kept;
  const std::string code = emit_gpu(kernel, target, "k");
  std::string& ptx = kept[{code, chip}];
  if (ptx.empty()) ptx = llvm.compile(code, options).bytes;
  return ptx;
}

size_t occurrences(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(CodegenGpu, HalvesThatChangePlacesAreReadInWholeVectors) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const Case& c : kCases) {
    if (std::string_view(c.name) != "rotary") continue;
    Program p{kGpu};
    const Schedule s = p.schedule(c.build(p));
    EXPECT_EQ(s.kernels.size(), 1u);
    EXPECT_EQ(s.kernels[0]->gpu.lanes, 4);
    const std::string ptx = ptx_of(*llvm, *s.kernels[0], "sm_90a");
    EXPECT_EQ(occurrences(ptx, "ld.global.nc.v4"), 5u) << ptx;
    EXPECT_EQ(occurrences(ptx, "ld.global.nc.b32"), 0u) << ptx;
  }
}

TEST(CodegenGpu, LookedUpRowsAreReadSeveralVectorsAtOnce) {
  Program p{kGpu};
  const ValueId rows =
      p.b.op("embedding", {TensorArg{p.input({30000, 256})}, TensorArg{p.input({512, 512}, DType::kInt64)}});
  const Schedule s = p.schedule(std::vector{p.b.binary("add", rows, p.input({512, 256}))});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0]->gpu.passes, 4);
  const std::string text = loops::print_kernel(*s.kernels[0]);
  EXPECT_EQ(loops::parse_kernel(text).gpu.passes, 4);
}

TEST(CodegenGpu, StencilsReadWhatRowsShareOnce) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  Program p{kGpu};
  const Schedule s = p.schedule(std::vector{stencil(p, p.input({1 << 16, 2048}))});
  EXPECT_EQ(s.kernels.size(), 1u);
  const std::string text = loops::print_kernel(*s.kernels[0]);
  EXPECT_EQ(occurrences(text, "= load b0"), 10u + 8u + 8u) << text;  // ten rows for eight, and neighbours to both sides
  EXPECT_EQ(occurrences(text, "store b1"), 8u) << text;
  const std::string ptx = ptx_of(*llvm, *s.kernels[0], "sm_90a");
  EXPECT_EQ(occurrences(ptx, "ld.global.nc.v2"), 16u) << ptx;
  EXPECT_EQ(occurrences(ptx, "ld.global.nc.b32"), 4u) << ptx;
}

TEST(CodegenGpu, NeighboursOfEveryTypeCompile) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const char* dtype : {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f8e4m3fn", "f32", "f64", "c64"}) {
    std::string text =
        "kernel neighbours(in b0: T[4096], out b1: T[4096], gpu threads 128 row 0 lanes 4) {\n"
        "  vector i in 4000 {\n"
        "    %0: T = load b0[i]\n"
        "    %1: T = load b0[i + 1]\n"
        "    %2: bool = eq(%0, %1)\n"
        "    %3: T = select(%2, %0, %1)\n"
        "    store b1[i] = %3\n"
        "  }\n"
        "}\n";
    for (size_t at = text.find('T'); at != std::string::npos; at = text.find('T', at)) text.replace(at, 1, dtype);
    const std::string ptx = ptx_of(*llvm, loops::parse_kernel(text), "sm_90a");
    EXPECT_GT(occurrences(ptx, "ld.global.nc"), 1u) << dtype << ptx;
  }
}

TEST(CodegenGpu, RowsThatShareNothingHaveThreadsOfTheirOwn) {
  const auto stores = [](auto&& build) {
    Program p{kGpu};
    const Schedule s = p.schedule(std::vector<ValueId>{build(p)});
    EXPECT_EQ(s.kernels.size(), 1u);
    return occurrences(loops::print_kernel(*s.kernels[0]), "store ");
  };
  const auto rows = [](Program& p, ValueId x, int64_t from, int64_t to) {
    return p.b.slice(x, 0, p.ctx->constant(from), p.ctx->constant(to), p.ctx->constant(1));
  };
  // Differences down the columns of long rows share rows; few of them, and those of a parameter for all rows, do not.
  EXPECT_EQ(stores([&](Program& p) {
              const ValueId x = p.input({65536, 2048});
              return p.b.binary("sub", rows(p, x, 2, 65536),
                                p.b.binary("mul", rows(p, x, 1, 65535), rows(p, x, 0, 65534)));
            }),
            8u);
  EXPECT_EQ(stores([&](Program& p) {
              const ValueId x = p.input({66, 2048});
              return p.b.binary("sub", rows(p, x, 2, 66), p.b.binary("mul", rows(p, x, 1, 65), rows(p, x, 0, 64)));
            }),
            1u);
  EXPECT_EQ(stores([&](Program& p) { return p.b.binary("mul", p.input({4096, 512, 64}), p.input({512, 64})); }), 1u);
}

size_t one_walk_nodes(Program& p, const std::vector<ValueId>& outputs) {
  for (const ValueId v : outputs) p.graph.add_output(v);
  const Graph g = eliminate_common_subexpressions(canonicalize(decompose(p.graph)));
  return count(online_softmax(g), "_softmax_parts");
}

TEST(CodegenGpu, LongRowsAreWalkedOnce) {
  const auto log_softmax = [](Program& p, int64_t columns) {
    return p.b.op("log_softmax", {TensorArg{p.input({4096, columns})}, Scalar(int64_t{1})});
  };
  const auto column = [](Program& p, ValueId x) {
    return p.b.op("select", {TensorArg{x}, Scalar(int64_t{1}), Scalar(int64_t{3})});
  };
  const auto nodes = [&](int64_t columns, bool whole, Device device = kGpu) {
    Program p{device};
    const ValueId all = log_softmax(p, columns);
    return one_walk_nodes(p, {whole ? all : column(p, all)});
  };
  EXPECT_EQ(nodes(32000, false), 1u);
  EXPECT_EQ(nodes(32000, false, Device{}), 0u);  // a CPU keeps its two walks
  EXPECT_EQ(nodes(8192, false), 0u);             // a row that stays in registers beside others
  EXPECT_EQ(nodes(32768, true), 0u);             // one that stays there until it is walked again
  EXPECT_EQ(nodes(65536, true), 1u);             // one that does not
  Program p{kGpu};
  const ValueId all = log_softmax(p, 32000);
  EXPECT_EQ(one_walk_nodes(p, {p.b.reduce("sum", all, {1}, false), column(p, all)}), 0u);
  for (const Case& c : kCases) {
    if (std::string_view(c.name) != "cross_entropy") continue;
    Program loss{kGpu};
    const Schedule s = loss.schedule(c.build(loss));
    EXPECT_EQ(occurrences(loops::print_kernel(*s.kernels[0]), "vector i"), 1u);
    EXPECT_EQ(s.kernels[0]->gpu.row, 256);  // several blocks on each multiprocessor
  }
}

/// The largest element and the sum of exponentials in one walk: what two walks give, with infinities and NaN. On the CPU.
TEST(CodegenGpu, SoftmaxPartsInOneWalk) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  const float inf = INFINITY, nan = NAN, least = std::numeric_limits<float>::lowest();
  for (const int64_t columns : {1, 3, 16, 100, 4000}) {
    const int64_t rows = 10;
    std::vector<float> in;
    std::mt19937 engine(5);
    for (int64_t i = 0; i < rows * columns; ++i) in.push_back(std::normal_distribution<float>(0, 9)(engine));
    const auto row = [&](int64_t r) { return std::span(in).subspan(static_cast<size_t>(r * columns), columns); };
    std::ranges::fill(row(1), -inf);
    row(2).back() = inf;
    row(3).front() = nan;
    std::ranges::fill(row(4), least);
    std::ranges::fill(row(5), -inf);
    row(5).back() = -3;
    std::ranges::sort(row(6));
    row(7).front() = -inf;
    std::ranges::fill(row(8), 88.0F);
    Program p;
    const std::vector<ValueId> parts = p.b.op_multi(
        "_softmax_parts", {TensorArg{p.input({rows, columns})}, SymInts{{p.ctx->constant(1)}}, Scalar(true)});
    const Schedule s = p.schedule(parts);
    EXPECT_EQ(s.kernels.size(), 1u);
    const CompiledObject code = llvm->compile(emit_cpu(*s.kernels[0], host_cpu_target(), "k"), {});
    const std::shared_ptr<LoadedObject> object = load_object(code.bytes);
    std::vector<float> largest(rows), sums(rows);
    void* buffers[] = {in.data(), largest.data(), sums.data()};
    KernelFault fault{};
    EXPECT_EQ(reinterpret_cast<KernelFn>(object->find("k"))(buffers, nullptr, nullptr, 0, rows, &fault), 0);
    for (int64_t r = 0; r < rows; ++r) {
      float top = -inf;
      for (const float x : row(r)) top = std::isnan(x) || std::isnan(top) ? nan : std::max(x, top);
      double sum = 0;
      for (const float x : row(r)) sum += std::exp(static_cast<double>(x - top));
      const auto same = [](double a, double b) {
        return std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) < 1e-6 * b;
      };
      EXPECT_TRUE(same(largest[static_cast<size_t>(r)], top)) << r << " of " << columns << ": " << top;
      EXPECT_TRUE(same(sums[static_cast<size_t>(r)], sum))
          << r << " of " << columns << ": " << sum << " is " << sums[static_cast<size_t>(r)];
    }
  }
}

TEST(CodegenGpu, PairwiseSumsAreOneKernel) {
  for (const Case& c : kCases) {
    if (std::string_view(c.name) != "nbody") continue;
    Program p{kGpu};
    const Schedule s = p.schedule(c.build(p));
    EXPECT_EQ(s.kernels.size(), 1u);
    const std::string text = loops::print_kernel(*s.kernels[0]);
    // The three coordinates are summed side by side: what they share is computed once.
    EXPECT_EQ(occurrences(text, "carry "), 3u) << text;
    EXPECT_EQ(occurrences(text, "rsqrt("), 1u) << text;
  }
}

TEST(CodegenGpu, ShortRowsThatAreDearStayReductions) {
  Program p{kGpu};
  const Schedule s = p.schedule(std::vector{softmax(p, p.input({65536, 8}))});
  size_t functions = 0;
  for (const auto& kernel : s.kernels) functions += occurrences(loops::print_kernel(*kernel), "exp(");
  EXPECT_LT(functions, 12u);
}

TEST(CodegenGpu, RowsOfTilesAreLongOnBothSides) {
  struct Tiled {
    DType dtype;
    std::vector<int64_t> sizes;
    int inputs;
    std::vector<int64_t> scratch;  // elements of each tile with its padding
    int threads, row, lanes;
  };
  const Tiled cases[] = {
      {DType::kFloat32, {65536, 2048}, 1, {64 * 65}, 256, 16, 4},
      {DType::kFloat32, {65536, 2047}, 1, {64 * 65}, 256, 16, 4},  // only stores are aligned
      {DType::kFloat32, {65535, 2048}, 1, {64 * 65}, 256, 64, 1},
      {DType::kBFloat16, {8192, 8192}, 1, {128 * 130}, 256, 16, 8},
      {DType::kInt8, {8192, 8192}, 1, {128 * 132}, 256, 16, 8},
      {DType::kFloat64, {8192, 8192}, 1, {32 * 33}, 128, 16, 2},
      {DType::kFloat32, {8192, 8192}, 3, {64 * 33, 64 * 33, 64 * 33}, 256, 8, 4},
      {DType::kFloat32, {512, 512}, 1, {32 * 33}, 64, 8, 4},        // larger ones would leave processors idle
      {DType::kFloat32, {1 << 20, 12}, 1, {16 * 257}, 256, 64, 4},  // one side is short
      {DType::kFloat32, {1 << 20, 31}, 1, {32 * 129}, 256, 32, 4},
  };
  for (const Tiled& c : cases) {
    Program p{kGpu};
    ValueId sum = kNoValue;
    for (int i = 0; i < c.inputs; ++i) {
      const ValueId x = p.b.permute(p.input(c.sizes, c.dtype), {1, 0});
      sum = i == 0 ? p.b.binary("mul", x, Scalar(int64_t{3})) : p.b.binary("add", sum, x);
    }
    const Schedule s = p.schedule(std::vector{contiguous(p, sum)});
    ASSERT_EQ(s.kernels.size(), 1u);
    const loops::Kernel& kernel = *s.kernels[0];
    const std::string text = loops::print_kernel(kernel);
    std::vector<int64_t> scratch;
    for (const loops::BufferArg& buffer : kernel.buffers) {
      if (buffer.kind == loops::ArgKind::kScratch) scratch.push_back(buffer.numel.const_value());
    }
    EXPECT_EQ(scratch, c.scratch) << text;
    EXPECT_TRUE(kernel.gpu.tiles) << text;
    EXPECT_EQ(std::tuple(kernel.gpu.threads, kernel.gpu.row, kernel.gpu.lanes), std::tuple(c.threads, c.row, c.lanes))
        << text;
    EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
  }
}

TEST(CodegenGpu, TilesAreReadAndWrittenInWholeVectors) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  // Of 64 x 64 elements each of 256 threads has four vectors, which it reads before it waits and writes in a loop; rows of
  // odd length are read or written one by one.
  const std::tuple<std::vector<int64_t>, size_t, size_t, size_t, size_t> cases[] = {{{65536, 2048}, 4, 0, 1, 0},
                                                                                    {{65536, 2047}, 0, 16, 1, 0},
                                                                                    {{65535, 2048}, 4, 0, 0, 1},
                                                                                    {{65500, 2044}, 4, 0, 1, 0}};
  for (const auto& [sizes, wide_loads, loads, wide_stores, stores] : cases) {
    Program p{kGpu};
    const Schedule s = p.schedule(std::vector{exp_of_transposed(p, p.input(sizes))});
    const std::string ptx = ptx_of(*llvm, *s.kernels.at(0), "sm_90a");
    EXPECT_EQ(occurrences(ptx, "ld.global.nc.v4"), wide_loads) << ptx;
    EXPECT_EQ(occurrences(ptx, "ld.global.nc.b32"), loads) << ptx;
    EXPECT_EQ(occurrences(ptx, "st.global.v4"), wide_stores) << ptx;
    EXPECT_EQ(occurrences(ptx, "st.global.b32"), stores) << ptx;
    EXPECT_EQ(occurrences(ptx, "bar.sync"), 1u) << ptx;
    EXPECT_EQ(ptx.find("div."), std::string::npos) << ptx;
  }
}

TEST(CodegenGpu, NeighboursAreAddedByOneInstruction) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  Program p{kGpu};
  const ValueId index = p.input({1000}, DType::kInt64);
  const ValueId sum = p.b.op("index_add", {TensorArg{p.input({64, 256})}, Scalar(int64_t{0}), TensorArg{index},
                                           TensorArg{p.input({1000, 256})}});
  std::string all, older;
  for (const auto& kernel : p.schedule(std::vector{sum}).kernels) {
    all += ptx_of(*llvm, *kernel, "sm_90a");
    older += ptx_of(*llvm, *kernel, "sm_80");
  }
  EXPECT_NE(all.find("red.relaxed.gpu.global.add.v4.f32"), std::string::npos);
  EXPECT_EQ(older.find("add.v4.f32"), std::string::npos);
}

TEST(CodegenGpu, HalvesAreAddedAsFloats) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt8}) {
    for (const char* op : {"index_add", "scatter_add", "index_put"}) {
      Program p{kGpu};
      const bool rows = std::string_view(op) != "scatter_add", list = std::string_view(op) == "index_put";
      const ValueId base = p.input({64, 8}, dtype), added = p.input({1000, 8}, dtype);
      const ValueId index = rows ? p.input({1000}, DType::kInt64) : p.input({1000, 8}, DType::kInt64);
      const std::vector<Arg> by_list{TensorArg{base}, TensorList{{index}}, TensorArg{added}, Scalar(true)};
      const std::vector<Arg> by_dim{TensorArg{base}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{added}};
      std::string all;
      for (const auto& kernel : p.schedule({p.b.op(op, list ? by_list : by_dim)}).kernels) {
        all += ptx_of(*llvm, *kernel, "sm_90a");
      }
      const char* const floats = list || rows ? "red.relaxed.gpu.global.add.v4.f32" : "atom.global.add.f32";
      const char* const added_by = dtype == DType::kInt8 ? "atom.global.add.u32" : floats;
      EXPECT_NE(all.find(added_by), std::string::npos) << op << " " << dtype_name(dtype) << "\n" << all;
    }
  }
}

TEST(CodegenGpu, ScattersOfAnyTypeAndKindAreDoneByTheMemory) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
                            DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kComplex64}) {
    for (const char* kind : {"sum", "prod", "amin", "amax"}) {
      if (is_complex(dtype) && kind != std::string_view("sum")) continue;
      Program p{kGpu};
      // Much larger than what is added: narrow types are not widened first.
      const ValueId base = p.input({1 << 16, 64}, dtype), added = p.input({8, 64}, dtype);
      const ValueId index = p.input({8, 64}, DType::kInt64);
      const std::vector<Arg> args{TensorArg{base}, Scalar(int64_t{0}), TensorArg{index}, TensorArg{added},
                                  std::string(kind)};
      const Schedule s = p.schedule({p.b.op("scatter_reduce_to_self", args)});
      const loops::Kernel& last = *s.kernels.back();
      EXPECT_NE(loops::print_kernel(last).find(".atomic"), std::string::npos) << kind << " " << dtype_name(dtype);
      const std::string ptx = ptx_of(*llvm, last, "sm_90a");
      EXPECT_TRUE(ptx.find("atom.") != std::string::npos || ptx.find("red.") != std::string::npos)
          << kind << " " << dtype_name(dtype) << "\n"
          << ptx;
    }
  }
}

/// ptxas takes the store of half of a register for a conversion of the float64 in it.
TEST(CodegenGpu, WordsAreStoredWhole) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const DType dtype : {DType::kFloat64, DType::kInt64, DType::kComplex128}) {
    for (const int64_t columns : {7, 200, 500, 1000, 3000, 20000}) {
      for (const char* kind : {"sum", "prod", "mean", "cumsum"}) {
        if (kind == std::string_view("mean") && dtype == DType::kInt64) continue;
        Program p{kGpu};
        const ValueId x = p.input({500, columns}, dtype);
        const bool scan = kind == std::string_view("cumsum");
        const ValueId y = scan ? p.b.op(kind, {TensorArg{x}, Scalar(int64_t{1})})
                               : p.b.reduce(kind, x, std::vector<int64_t>{1}, false);
        for (const auto& kernel : p.schedule({y}).kernels) {
          std::istringstream lines(ptx_of(*llvm, *kernel, "sm_90a"));
          for (std::string line; std::getline(lines, line);) {
            const bool part =
                line.find("st.shared.b32") != std::string::npos && line.find("], %rd") != std::string::npos;
            EXPECT_FALSE(part) << kind << " " << dtype_name(dtype) << " " << columns << line;
          }
        }
      }
    }
  }
}

TEST(CodegenGpu, ListsReadTheirItemOnceFromTheParameters) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const Case& c : kCases) {
    if (!std::string_view(c.name).ends_with("_list")) continue;
    Program p{kGpu};
    for (const auto& kernel : p.schedule(c.build(p)).kernels) {
      EXPECT_GT(kernel->gpu.items, 1) << c.name;
      const std::string ptx = ptx_of(*llvm, *kernel, "sm_90a");
      // The table stays where it is, what its pointers show is memory of the device, the function for one item is in place.
      for (const char* other : {".local", "call", "\tld.b", "\tld.v", "\tst.b", "\tst.v"}) {
        EXPECT_EQ(ptx.find(other), std::string::npos) << c.name << other << "\n" << ptx;
      }
      EXPECT_NE(ptx.find("ld.global"), std::string::npos) << c.name;
    }
  }
}

TEST(CodegenGpu, PositionsAreDividedIn32Bits) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  Program p{kGpu};
  const ValueId x = p.input({1024, 2047});
  const ValueId part = p.b.slice(x, 1, p.ctx->constant(1), p.ctx->constant(2046), p.ctx->constant(1));
  const Schedule s = p.schedule(std::vector{p.b.binary("mul", part, Scalar(2.0))});
  const std::string ptx = ptx_of(*llvm, *s.kernels.at(0), "sm_90a");
  EXPECT_EQ(ptx.find("mul.hi.u64"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find("div.u64"), std::string::npos) << ptx;
}

TEST(CodegenGpu, PtxCallsNothingOutside) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  for (const Case& c : kCases) {
    Program p{kGpu};
    for (const auto& kernel : p.schedule(c.build(p)).kernels) {
      for (const char* chip : kChips) {
        const std::string ptx = ptx_of(*llvm, *kernel, chip);
        EXPECT_NE(ptx.find(".visible .entry k("), std::string::npos) << c.name;
        EXPECT_NE(ptx.find(std::string(".target ") + chip), std::string::npos) << c.name;
        EXPECT_EQ(ptx.find(".extern"), std::string::npos) << c.name << "\n" << ptx;
      }
    }
  }
}

TEST(CodegenGpu, NvidiasAssemblerTakesEveryKernel) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM";
  const char* given = std::getenv("TATARA_PTXAS");
  const std::string ptxas = given != nullptr ? given : "ptxas";
  const auto [version, missing] = run_command(ptxas + " --version");
  if (missing != 0) GTEST_SKIP() << "no ptxas";
  std::ostringstream table;
  const size_t release = version.find("release ");
  table << "# registers and spilled bytes by ptxas " << version.substr(release, version.find('\n', release) - release)
        << "\n";
  const char* const kept = std::getenv("TATARA_KEEP_PTX");  // a folder, to look at it
  const std::filesystem::path folder =
      kept != nullptr ? std::filesystem::path(kept)
                      : std::filesystem::temp_directory_path() / str_cat("tatara_ptx_", static_cast<int64_t>(getpid()));
  std::filesystem::create_directory(folder);
  for (const Case& c : kCases) {
    Program p{kGpu};
    const Schedule s = p.schedule(c.build(p));
    for (size_t k = 0; k < s.kernels.size(); ++k) {
      table << c.name << " " << k << ":";
      for (const char* chip : kChips) {
        const auto file = folder / (kept ? str_cat(c.name, "-", static_cast<int64_t>(k), "-", chip, ".ptx") : "k.ptx");
        if (kept)
          std::ofstream(folder / str_cat(c.name, "-", static_cast<int64_t>(k), ".ll"))
              << emit_gpu(*s.kernels[k], {}, "k");
        if (kept)
          std::ofstream(folder / str_cat(c.name, "-", static_cast<int64_t>(k), ".txt"))
              << loops::print_kernel(*s.kernels[k]);
        std::ofstream(file) << ptx_of(*llvm, *s.kernels[k], chip);
        const auto [said, failed] =
            run_command(ptxas + " -v -arch=" + chip + " -o " + (folder / "k.cubin").string() + " " + file.string());
        EXPECT_EQ(failed, 0) << c.name << " " << chip << "\n" << said;
        const Resources used{number_before(said, " registers"), number_before(said, " bytes spill stores")};
        EXPECT_EQ(used.spills, 0) << c.name << " " << chip;
        table << " " << chip << " " << used.registers << " " << used.spills;
      }
      table << "\n";
    }
  }
  for (const char* chip : kChips) {
    std::ofstream(folder / "copies.ptx") << cuda::copy_list_ptx();
    const auto [said, failed] = run_command(ptxas + " -arch=" + chip + " -o " + (folder / "k.cubin").string() + " " +
                                            (folder / "copies.ptx").string());
    EXPECT_EQ(failed, 0) << chip << "\n" << said;
  }
  if (kept == nullptr) std::filesystem::remove_all(folder);
  const std::string golden = std::string(TATARA_TEST_DIR) + "/golden/gpu/resources.txt";
  if (std::getenv("TATARA_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(golden) << table.str();
    return;
  }
  std::ifstream file(golden);
  std::stringstream expected;
  expected << file.rdbuf();
  // Another assembler allocates otherwise.
  if (expected.str().substr(0, expected.str().find('\n')) == table.str().substr(0, table.str().find('\n'))) {
    EXPECT_EQ(expected.str(), table.str());
  }
}

TEST(CodegenGpu, NoGpuIsOneClearLine) {
  std::string why_not;
  if (cuda::available(&why_not)) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(why_not.empty());
  EXPECT_EQ(why_not.find('\n'), std::string::npos);
  try {
    static_cast<void>(cuda::target_of(0));
    FAIL() << "no exception";
  } catch (const Unsupported& error) {
    EXPECT_EQ(error.message(), why_not);
  }
}

}  // namespace
}  // namespace tatara
