// Products as loops on a CPU: which ones, what is computed side by side, what fuses with them.
#include <string>

#include "programs.h"
#include "testing.h"

namespace tatara {
namespace {

Schedule schedule_products(Program& p, const std::vector<ValueId>& outputs, bool slow_host = true,
                           int vector_bytes = 64) {
  for (const ValueId v : outputs) p.graph.add_output(v);
  PassOptions passes;
  passes.vector_bytes = vector_bytes;
  passes.thin_weights = slow_host;
  ScheduleOptions options;
  options.num_threads = 1;
  options.vector_bytes = vector_bytes;
  const Graph g = eliminate_dead_code(
      eliminate_common_subexpressions(cpu_products(canonicalize(decompose(canonicalize(p.graph))), passes)));
  Schedule made = schedule_graph(g, options);
  for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
  return made;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

ValueId linear_of(Program& p, ValueId x, int64_t columns, int64_t inner) {
  return p.b.op("linear", {TensorArg{x}, TensorArg{p.input({columns, inner})}, TensorArg{p.input({columns})}});
}

TEST(CpuProducts, NarrowVectorsLeaveLargeMatricesToTheHost) {
  for (const int vector_bytes : {32, 64}) {
    for (const int64_t n : {64, 256}) {
      Program p;
      const ValueId y = p.b.binary("mm", p.input({n, n}), p.input({n, n}));
      const Schedule s = schedule_products(p, {p.b.op("gelu", {TensorArg{y}})}, true, vector_bytes);
      EXPECT_EQ(host_calls(s), vector_bytes == 32 && n == 256 ? 1u : 0u);
    }
  }
}

TEST(CpuProducts, RowsAreSideBySideAndWhatFollowsIsInTheKernel) {
  Program p;
  const ValueId y = p.b.binary("mm", p.input({16, 20}), p.input({20, 24}));
  const Schedule s = schedule_products(p, {p.b.op("gelu", {TensorArg{y}})});
  EXPECT_EQ(host_calls(s), 0u);
  ASSERT_EQ(s.plan.kernels.size(), 1u);
  const std::string text = loops::print_kernel(*s.kernels[0]);
  EXPECT_EQ(count(text, "fma("), 8u) << text;
  EXPECT_EQ(count(text, "store b"), 8u) << text;
  EXPECT_NE(text.find("vector i1 in 24"), std::string::npos) << text;
}

TEST(CpuProducts, TheLastRowIsComputedAgainWhereAGroupIsNotFull) {
  Program p;
  // Rows of two dims follow each other: the bound is that of both.
  const ValueId x = p.input({2, 12, 32});
  const ValueId q = linear_of(p, x, 32, 32), k = linear_of(p, x, 32, 32), v = linear_of(p, x, 32, 32);
  const Schedule s = schedule_products(p, {q, k, v});
  bool found = false;
  for (const auto& kernel : s.kernels) {
    const std::string text = loops::print_kernel(*kernel);
    if (text.find("fma(") == std::string::npos) continue;
    found = true;
    EXPECT_EQ(count(text, "fma("), 15u) << text;  // five rows of three products
    EXPECT_NE(text.find("min(23, 5*i0 + 4)"), std::string::npos) << text;
  }
  EXPECT_TRUE(found);
}

TEST(CpuProducts, WalksOverARowAreKernelsOfTheirOwn) {
  Program p;
  const ValueId y = p.b.binary("mm", p.input({16, 20}), p.input({20, 24}));
  const Schedule s = schedule_products(p, {p.b.op("softmax", {TensorArg{y}, Scalar(int64_t{-1})})});
  EXPECT_EQ(s.plan.kernels.size(), 2u);
  EXPECT_EQ(count(loops::print_kernel(*s.kernels[0]), "fma("), 8u);
}

TEST(CpuProducts, BigOnesAreTheHosts) {
  for (const bool slow : {false, true}) {
    for (const int64_t n : {16, 256, 4096}) {
      Program p;
      const Schedule s = schedule_products(p, {p.b.binary("mm", p.input({64, n}), p.input({n, n}))}, slow);
      EXPECT_EQ(host_calls(s), n == 16 || (slow && n == 256) ? 0u : 1u) << n;
    }
  }
  // A batch of tiny ones is slow everywhere.
  Program p;
  EXPECT_EQ(host_calls(schedule_products(p, {p.b.binary("bmm", p.input({5000, 4, 4}), p.input({5000, 4, 4}))}, false)),
            0u);
}

TEST(CpuProducts, NarrowMatricesAreWidenedWhereTheyArePacked) {
  for (const DType x : {DType::kFloat32, DType::kBFloat16}) {
    for (const DType w : {DType::kInt8, DType::kBFloat16, DType::kFloat32}) {
      Program p;
      const ValueId weight = p.b.cast(p.input({512, 256}, w), x);
      p.graph.add_output(p.b.binary("mm", p.input({64, 256}, x), p.b.permute(weight, {1, 0})));
      PassOptions passes;
      passes.wide_products = passes.slow_bfloat16 = true;
      const Graph g = eliminate_dead_code(cpu_products(canonicalize(p.graph), passes));
      const std::string text = print_graph(g);
      const bool wide = x == DType::kBFloat16 || w != DType::kFloat32;
      EXPECT_EQ(count(text, "wide_mm("), wide ? 1u : 0u) << text;
      // What a float32 weight is rounded to is not left out, nor is the result's own type.
      const size_t casts = (x == DType::kBFloat16 ? 1 : 0) + (w == DType::kFloat32 && x == DType::kBFloat16 ? 1 : 0);
      EXPECT_EQ(count(text, "cast("), casts) << text;
      passes.slow_bfloat16 = false;
      const Graph fast = eliminate_dead_code(cpu_products(canonicalize(p.graph), passes));
      EXPECT_EQ(count(print_graph(fast), "wide_mm("), wide && x == DType::kFloat32 ? 1u : 0u);
    }
  }
}

}  // namespace
}  // namespace tatara
