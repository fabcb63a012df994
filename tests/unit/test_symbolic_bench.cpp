// Figures of the symbolic integers, printed when TATARA_BENCH is set: nanoseconds an operation.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "symbolic/expr.h"
#include "testing.h"

namespace tatara {
namespace {

template <typename Fn>
void measure(const char* what, int operations, Fn&& fn) {
  double best = 1e30;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < 2000; ++n) fn(n);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / 2000 / operations);
  }
  std::printf("%-44s %7.1f ns\n", what, best);
}

TEST(SymbolicBench, Print) {
  if (std::getenv("TATARA_BENCH") == nullptr) GTEST_SKIP() << "set TATARA_BENCH=1 for figures";
  ExprContext ctx;
  const Expr s0 = ctx.fresh_size_symbol(8);
  const Expr s1 = ctx.fresh_size_symbol(5);
  const Expr i = ctx.loop_symbol("i", s1);
  const Expr j = ctx.loop_symbol("j", s0);
  const Expr k = ctx.loop_symbol("k", ctx.constant(64));
  Expr sink;
  measure("add of two symbols (known)", 1, [&](int) { sink = ctx.add(s0, s1); });
  measure("i*s0 + j (known)", 2, [&](int) { sink = i * s0 + j; });
  measure("64*s0*i + 64*j + k + n", 6, [&](int n) { sink = i * s0 * 64 + j * 64 + k + n; });
  measure("floordiv(64*i + k, 64)", 3, [&](int) { sink = ctx.floordiv(i * 64 + k, ctx.constant(64)); });
  measure("eq(s0, 1) and decide", 2, [&](int) { sink = ctx.decide(ctx.eq(s0, ctx.constant(1))) ? s0 : s1; });
  measure("eq(s0, s1) and decide: unknown", 2, [&](int) { sink = ctx.decide(ctx.eq(s0, s1)) ? s0 : s1; });
  measure("decide(i*s0 + j < s0*s1): a proof", 1,
          [&](int) { sink = ctx.decide(ctx.lt(i * s0 + j, s0 * s1)) ? s0 : s1; });
  measure("simplify((64*s0*i + 64*j + k + 64*n) // 64)", 1, [&](int n) {
    sink = ctx.simplify(ctx.floordiv(i * s0 * 64 + j * 64 + k + int64_t{n} * 64, ctx.constant(64)));
  });
  const Expr flat = ctx.add(ctx.mul(i, s0), j);
  measure("simplify((i*s0 + j + n*s0) % s0)", 1, [&](int n) { sink = ctx.simplify(ctx.mod(flat + s0 * n, s0)); });
  measure("substitute i, j, k in 64*s0*i + 64*j + k", 1,
          [&](int n) { sink = ctx.substitute(i * s0 * 64 + j * 64 + k, {{i, i + n}, {j, k}, {k, j}}); });
  const ExprProgram program(flat * 64 + k, std::vector<Expr>{s0, s1, i, j, k});
  const int64_t values[] = {8, 5, 3, 4, 7};
  int64_t total = 0;
  measure("program 64*i*s0 + 64*j + k", 1, [&](int) { total += program.evaluate(values); });
  EXPECT_TRUE(sink.valid() && total > 0);
}

}  // namespace
}  // namespace tatara
