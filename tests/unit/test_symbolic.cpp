// Symbolic integers: canonical forms, simplification, ranges, facts, guards, text, programs.
#include <malloc.h>

#include <map>
#include <memory>
#include <string>

#include "support/error.h"
#include "symbolic/expr.h"
#include "symbolic/rules.h"
#include "testing.h"

namespace tatara {
namespace {

/// A context with index symbols of known ranges and two size symbols.
class Symbolic : public testing::Test {
 public:
  std::string text(const char* source) { return ctx.parse(source).str(); }
  std::string simple(const char* source) { return ctx.simplify(ctx.parse(source)).str(); }
  std::string decided(const char* source) {
    const auto value = ctx.decide(ctx.parse(source));
    return !value ? "unknown" : *value ? "true" : "false";
  }
  void loop(const char* name, const char* extent) { ctx.loop_symbol(name, ctx.parse(extent)); }
  void size(const char* name, int64_t hint, IntRange range = {2, INT64_MAX}) { ctx.symbol(name, range, hint); }

  ExprContext ctx;
};

TEST_F(Symbolic, EqualExpressionsAreOneNode) {
  EXPECT_TRUE(ctx.parse("s0 + 2*(s1 + 3)") == ctx.parse("6 + s1 + s0 + s1"));
  EXPECT_TRUE(ctx.parse("(s0 + 1)*(s1 + 1)") == ctx.parse("s1*s0 + s1 + s0 + 1"));
  EXPECT_TRUE(ctx.parse("s0 - s0").is_const(0));
  EXPECT_TRUE(ctx.parse("min(s1, s0, s1)") == ctx.parse("min(s0, s1)"));
  EXPECT_TRUE(ctx.parse("s0 < s1") == ctx.parse("not (s0 >= s1)"));
  EXPECT_TRUE(ctx.parse("2*s0 <= 5") == ctx.parse("s0 <= 2"));
}

TEST_F(Symbolic, TextDoesNotDependOnTheOrderOfCreation) {
  ctx.symbol("s10");
  ctx.symbol("s2");
  EXPECT_EQ(text("s10 + s2 + i1 // 2 + 4*s0 - 3"), "4*s0 + s2 + s10 + i1 // 2 - 3");
  EXPECT_EQ(text("s10*s2*5 - s2"), "-s2 + 5*s2*s10");
}

TEST_F(Symbolic, TextKeepsPythonsPrecedence) {
  EXPECT_EQ(text("-(x // 4)"), "-(x // 4)");
  EXPECT_EQ(text("y - x // 4"), "y - x // 4");
  EXPECT_EQ(text("y + 3*(x // 4)"), "y + 3*(x // 4)");
  EXPECT_EQ(text("(x + 1) // y"), "(x + 1) // y");
  EXPECT_EQ(text("x % (y // 3)"), "x % (y // 3)");
  EXPECT_EQ(text("(x % y) // 3"), "x % y // 3");
  EXPECT_EQ(text("a == b and (c <= 3 or d <= 4)"), "a == b and (c <= 3 or d <= 4)");
  EXPECT_EQ(text("2*(x <= 3)"), "2*(x <= 3)");
  EXPECT_EQ(text("s0 > 1"), "2 <= s0");
  EXPECT_EQ(text("s0 - s1 < 0"), "s0 + 1 <= s1");
}

TEST_F(Symbolic, BadTextNamesThePosition) {
  EXPECT_THROW(ctx.parse("s0 +"), InvalidArgument);
  EXPECT_THROW(ctx.parse("(s0"), InvalidArgument);
  EXPECT_THROW(ctx.parse("s0 s1"), InvalidArgument);
  EXPECT_THROW(ctx.parse("99999999999999999999"), InvalidArgument);
  EXPECT_THROW(ctx.parse("x // 0"), InvalidArgument);
  EXPECT_THROW(ctx.parse(std::string(100000, '(')), InvalidArgument);
  EXPECT_THROW(ctx.parse(std::string(100000, '-') + "x"), InvalidArgument);
  try {
    ctx.parse("s0 * )");
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("position 5"), std::string::npos);
  }
}

TEST_F(Symbolic, DivisionRulesThatAlwaysHold) {
  EXPECT_EQ(text("(4*i + 8*j) // 4"), "i + 2*j");
  EXPECT_EQ(text("(4*i + 2) // 8"), "i // 2");
  EXPECT_EQ(text("(4*i + 6*j + 2) // 8"), "(2*i + 3*j + 1) // 4");
  EXPECT_EQ(text("(x // 3) // 5"), "x // 15");
  EXPECT_EQ(text("(6*x + y) % 6"), "y % 6");
  EXPECT_EQ(text("(x % 12) % 4"), "x % 4");
  EXPECT_EQ(text("(x % 12) // 4"), "x // 4 % 3");
  EXPECT_EQ(text("(x // 4)*4 + x % 4"), "x");
  EXPECT_EQ(text("12*(x // 12) + 4*((x // 4) % 3) + x % 4"), "x");
  EXPECT_EQ(text("(s0*i + j) // s0"), "i + j // s0");
  EXPECT_EQ(text("(s0*i + j) % s0"), "j % s0");
  EXPECT_EQ(text("(x // s0)*s0 + x % s0"), "x");
  EXPECT_EQ(text("s1*s0*(x // s0) + s1*(x % s0)"), "s1*x");
  EXPECT_EQ(text("(s0*s1*8) // (s0*2)"), "4*s1");
  EXPECT_EQ(text("((s0 + s1)*8) // (s0 + s1)"), "8");
  EXPECT_EQ(text("((s0 + 1)*s1 + s2) % (s0 + 1)"), "s2 % (s0 + 1)");
  EXPECT_EQ(text("x // -4"), "-((x + 3) // 4)");
  EXPECT_EQ(text("-(-x // 4)"), "(x + 3) // 4");
  EXPECT_EQ(ctx.ceildiv(ctx.symbol("x"), ctx.constant(4)).str(), "(x + 3) // 4");
  EXPECT_EQ(text("x // 1"), "x");
  EXPECT_EQ(text("x % 1"), "0");
}

TEST_F(Symbolic, ComposedViewIndexing) {
  loop("i", "16");
  loop("j", "4");
  loop("k", "3");
  EXPECT_EQ(simple("(4*i + j) // 4"), "i");
  EXPECT_EQ(simple("(4*i + j) % 4"), "j");
  EXPECT_EQ(simple("(4*i + j) // 8"), "i // 2");
  EXPECT_EQ(simple("(4*i + j) % 8"), "j + 4*(i % 2)");
  EXPECT_EQ(simple("j // 4"), "0");
  EXPECT_EQ(simple("j % 4"), "j");
  EXPECT_EQ(simple("(j + 9) % 8"), "j + 1");
  EXPECT_EQ(simple("(12*i + 3*j + k) // 12 * 12 + (12*i + 3*j + k) // 3 % 4 * 3 + (12*i + 3*j + k) % 3"),
            "12*i + 3*j + k");
  EXPECT_EQ(simple("((12*i + 3*j + k) // 3) % 4"), "j");
  EXPECT_EQ(simple("min(j, 10)"), "j");
  EXPECT_EQ(simple("max(j, 0) + min(i, 15)"), "i + j");
}

TEST_F(Symbolic, SymbolicDivisors) {
  size("s0", 8);
  size("s1", 5);
  loop("i", "s1");
  loop("j", "s0");
  loop("k", "7");
  EXPECT_EQ(simple("(s0*i + j) // s0"), "i");
  EXPECT_EQ(simple("(s0*i + j) % s0"), "j");
  EXPECT_EQ(simple("(s0*i + j) // (s0*s1)"), "0");
  EXPECT_EQ(simple("(s0*i + j) % (s0*s1)"), "i*s0 + j");
  EXPECT_EQ(simple("(7*s0*i + 7*j + k) // (7*s0)"), "i");
  EXPECT_EQ(simple("(7*s0*i + 7*j + k) // 7 % s0"), "j");
  EXPECT_EQ(simple("(7*s0*i + 7*j + k) % 7"), "k");
  EXPECT_EQ(simple("(s0*i - 1) // s0"), "i - 1");
  EXPECT_EQ(simple("(x // s0) // s1"), "x // (s0*s1)");
  EXPECT_EQ(decided("s0*i + j < s0*s1"), "true");
  EXPECT_EQ(decided("0 <= s0*i + j"), "true");
  EXPECT_EQ(decided("j < s0 + 1"), "true");
  EXPECT_EQ(decided("j < s0 - 1"), "unknown");
  EXPECT_EQ(decided("j == s0"), "false");
}

TEST_F(Symbolic, OneFlatLoopOverSymbolicDimensions) {
  size("s0", 8);
  size("s1", 5);
  loop("t", "s0*s1*64");
  EXPECT_EQ(simple("64*s1*(t // (64*s1)) + 64*(t // 64 % s1) + t % 64"), "t");
  EXPECT_EQ(simple("(t // (64*s1)) % s0"), "t // (64*s1)");
  EXPECT_EQ(decided("t // (64*s1) < s0"), "true");
  EXPECT_EQ(decided("t // 64 % s1 < s1"), "true");
  EXPECT_EQ(decided("s1*(t // (64*s1)) + t // 64 % s1 < s0*s1"), "true");
  EXPECT_EQ(simple("(s0*s1*768) // (s0*12)"), "64*s1");
}

TEST_F(Symbolic, FlipsSlicesAndTiles) {
  size("s0", 8);
  loop("i", "s0");
  EXPECT_EQ(decided("0 <= s0 - 1 - i"), "true");
  EXPECT_EQ(decided("s0 - 1 - i < s0"), "true");
  EXPECT_EQ(simple("min(s0 - 1 - i, s0)"), "-i + s0 - 1");
  loop("half", "s0 // 2");
  EXPECT_EQ(decided("2*half + 1 < s0"), "true");
  EXPECT_EQ(decided("2*half + 2 < s0"), "unknown");
  loop("outer", "(s0 + 7) // 8");
  loop("inner", "8");
  EXPECT_EQ(simple("(8*outer + inner) // 8"), "outer");
  EXPECT_EQ(decided("8*outer < s0"), "true");
  EXPECT_EQ(decided("8*outer + inner < s0"), "unknown");
  EXPECT_EQ(decided("8*outer + inner < s0 + 7"), "true");
}

TEST_F(Symbolic, KnownMultiples) {
  size("s0", 8);
  loop("i", "10");
  loop("j", "8");
  ctx.assume(ctx.parse("s0 % 8 == 0"));
  EXPECT_EQ(decided("(s0*i + 16) % 8 == 0"), "true");
  EXPECT_EQ(simple("(s0*i + j) % 8"), "j");
  EXPECT_EQ(simple("(s0*i + j) // 8"), "i*s0 // 8");
  EXPECT_EQ(simple("s0 // 8 * 8"), "s0");
  EXPECT_EQ(decided("s0 % 4 == 0"), "true");
  EXPECT_EQ(decided("s0 % 16 == 0"), "unknown");
}

/// A fact may be multiplied only by what is not negative.
TEST_F(Symbolic, ScaledFactsKeepTheirSign) {
  for (const char* name : {"a", "b", "any"}) ctx.symbol(name);
  size("s0", 4);
  ctx.assume(ctx.parse("a < b"));
  EXPECT_EQ(decided("a*any < b*any"), "unknown");
  EXPECT_EQ(decided("a*any <= b*any"), "unknown");
  EXPECT_EQ(decided("a*s0 < b*s0"), "true");
  EXPECT_EQ(decided("a*s0 + s0 <= b*s0"), "true");
  EXPECT_EQ(decided("a*s0 + s0 < b*s0"), "unknown");
}

TEST_F(Symbolic, ANameKeepsItsMeaning) {
  ctx.symbol("i0", {0, 3});
  EXPECT_NO_THROW(ctx.symbol("i0"));
  EXPECT_NO_THROW(ctx.symbol("i0", {0, 3}));
  EXPECT_THROW(ctx.symbol("i0", {0, 7}), InternalError);
  EXPECT_THROW(ctx.loop_symbol("i0", ctx.constant(8)), InternalError);
  const Expr s0 = ctx.fresh_size_symbol(8);
  ctx.loop_symbol("i1", s0);
  EXPECT_NO_THROW(ctx.loop_symbol("i1", s0));
  EXPECT_THROW(ctx.loop_symbol("i1", s0 + 1), InternalError);
  EXPECT_EQ(ctx.loop_symbol("i2_4*s0 + 1", s0 * 4 + 1).str(), "i2_4.42s0.431");
  EXPECT_THROW(ctx.symbol("min"), InvalidArgument);
  EXPECT_THROW(ctx.symbol("1x"), InvalidArgument);
  EXPECT_THROW(ctx.symbol("a b"), InvalidArgument);
}

TEST_F(Symbolic, DeepExpressionsAreRefused) {
  Expr e = ctx.symbol("x");
  const auto nest = [&] {
    for (int n = 0; n < 1000; ++n) e = ctx.min(ctx.floordiv(e, ctx.constant(3)) + n, ctx.symbol("y") + n * e);
  };
  EXPECT_THROW(nest(), Unsupported);
  EXPECT_TRUE(ctx.parse(ctx.constant(1).str()).is_const(1));
  ctx.simplify(ctx.symbol("x"));
}

TEST_F(Symbolic, DeepExpressionsWithinTheLimitWork) {
  Expr e = ctx.symbol("x", {0, 1000});
  for (int n = 0; n < 150; ++n) e = ctx.min(ctx.floordiv(e, ctx.constant(3)), ctx.symbol("y") + n);
  const std::string source = e.str();
  EXPECT_TRUE(ctx.parse(source) == e);
  EXPECT_TRUE(ctx.simplify(e).valid());
  EXPECT_EQ(ctx.evaluate(e, {{ctx.symbol("x"), 5}, {ctx.symbol("y"), 7}}), 0);
  EXPECT_EQ(ExprProgram(e, ctx.symbols()).evaluate(std::vector<int64_t>{5, 7}), 0);
}

TEST_F(Symbolic, RangesSaturate) {
  const Expr x = ctx.symbol("x", {0, INT64_MAX});
  const Expr y = ctx.symbol("y", {3, 10});
  EXPECT_TRUE((ctx.range(x + 5) == IntRange{5, INT64_MAX}));
  EXPECT_TRUE((ctx.range(x * INT64_MAX) == IntRange{0, INT64_MAX}));
  EXPECT_TRUE((ctx.range(-x) == IntRange{INT64_MIN, 0}));
  EXPECT_TRUE((ctx.range(ctx.floordiv(y, ctx.constant(4))) == IntRange{0, 2}));
  EXPECT_TRUE((ctx.range(ctx.mod(x, y)) == IntRange{0, 9}));
  EXPECT_TRUE((ctx.range(ctx.mod(y, ctx.constant(16))) == IntRange{3, 10}));
  EXPECT_TRUE((ctx.range(y * y) == IntRange{9, 100}));
  EXPECT_TRUE((ctx.range(y - x) == IntRange{INT64_MIN, 10}));
  EXPECT_TRUE((ctx.range(ctx.min(x, y)) == IntRange{0, 10}));
  EXPECT_THROW(ctx.constant(INT64_MAX) + 1, Unsupported);
}

TEST_F(Symbolic, UnboundedEndsOfSlices) {
  size("s0", 8);
  EXPECT_EQ(text("min(s0, 9223372036854775807)"), "s0");
  EXPECT_EQ(text("s0 <= 9223372036854775807"), "1");
  EXPECT_EQ(text("-9223372036854775808 <= s0"), "1");
  EXPECT_EQ(text("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(decided("9223372036854775807 < s0"), "false");
}

TEST_F(Symbolic, FactsDecide) {
  for (const char* name : {"a", "b", "c", "d"}) ctx.symbol(name);
  EXPECT_EQ(decided("a < c"), "unknown");
  ctx.assume(ctx.parse("a < b"));
  ctx.assume(ctx.parse("b < c"));
  EXPECT_EQ(decided("a < b"), "true");
  EXPECT_EQ(decided("b <= a"), "false");
  EXPECT_EQ(decided("a < c"), "true");
  EXPECT_EQ(decided("a + 2 <= c"), "true");
  EXPECT_EQ(decided("a + 3 <= c"), "unknown");
  EXPECT_EQ(decided("a == c"), "false");
  EXPECT_EQ(decided("a == d"), "unknown");
  ctx.assume(ctx.parse("d % 8 == 0"));
  EXPECT_EQ(simple("d % 8"), "0");
  EXPECT_EQ(simple("8*(d // 8)"), "d");
  EXPECT_EQ(decided("c // 4 * 4 <= c"), "true");
  EXPECT_EQ(decided("min(a, d) <= c"), "true");
}

TEST_F(Symbolic, EqualSymbolsBecomeOne) {
  size("s0", 8);
  size("s1", 8);
  ctx.assume(ctx.parse("s0 == s1"));
  EXPECT_EQ(simple("s1*4 + x // s1"), "4*s0 + x // s0");
  EXPECT_EQ(decided("s0*3 == 3*s1"), "true");
  ctx.assume(ctx.parse("s0 == 8"));
  EXPECT_EQ(simple("s1*4"), "32");
}

TEST_F(Symbolic, GuardsAreRecordedOnce) {
  const Expr s0 = ctx.fresh_size_symbol(10);
  const Expr s1 = ctx.fresh_size_symbol(10);
  EXPECT_EQ(s0.str(), "s0");
  EXPECT_FALSE(ctx.guard(ctx.eq(s0, ctx.constant(1))));
  EXPECT_TRUE(ctx.guard(ctx.eq(s0, s1)));
  EXPECT_TRUE(ctx.guard(ctx.eq(s0, s1)));
  EXPECT_TRUE(ctx.guard(ctx.lt(s0, ctx.constant(20))));
  EXPECT_TRUE(ctx.guard(ctx.lt(s1, ctx.constant(21))));
  EXPECT_FALSE(ctx.guard(ctx.eq(ctx.mod(s0, ctx.constant(4)), ctx.constant(0))));
  std::string all;
  for (Expr guard : ctx.guards()) all += guard.str() + "; ";
  EXPECT_EQ(all, "s0 == s1; s0 <= 19; s0 % 4 != 0; ");
  EXPECT_EQ(ctx.specialize(s1 * 2), 20);
  EXPECT_EQ(ctx.guards().size(), 4u);
  EXPECT_EQ(ctx.simplify(s0).str(), "10");
  EXPECT_THROW(ctx.guard(ctx.parse("unhinted == 3")), InternalError);
}

TEST_F(Symbolic, CoefficientsOfAffineExpressions) {
  const Expr i = ctx.symbol("i");
  EXPECT_EQ(ctx.parse("4*i + i*s0 + 3").coefficient_of(i).str(), "s0 + 4");
  EXPECT_EQ(ctx.parse("j + 3").coefficient_of(i).str(), "0");
  EXPECT_EQ(i.coefficient_of(i).str(), "1");
  EXPECT_FALSE(ctx.parse("i*i").coefficient_of(i).valid());
  EXPECT_FALSE(ctx.parse("i + i // 3").coefficient_of(i).valid());
  EXPECT_TRUE(ctx.parse("i + i // 3").contains(i));
  EXPECT_FALSE(ctx.parse("j").contains(i));
}

TEST_F(Symbolic, SubstitutionIsSimultaneous) {
  const Expr x = ctx.symbol("x");
  const Expr y = ctx.symbol("y");
  EXPECT_EQ(ctx.substitute(ctx.parse("x + 2*y"), {{x, y}, {y, x}}).str(), "2*x + y");
  EXPECT_EQ(ctx.substitute(ctx.parse("3*x*y + x"), {{ctx.parse("x*y"), ctx.parse("z")}}).str(), "x + 3*z");
  EXPECT_EQ(ctx.substitute(ctx.parse("x // 4 + x % 4"), {{x, ctx.parse("4*x")}}).str(), "x");
  EXPECT_EQ(ctx.substitute(ctx.parse("min(x, y)"), {{x, ctx.constant(1)}, {y, ctx.constant(2)}}).str(), "1");
}

TEST_F(Symbolic, ImportCopiesByName) {
  ExprContext other;
  const Expr s0 = other.symbol("s0", {2, 100}, 7);
  const Expr copy = ctx.import(other.parse("s0 // 3 + min(s0, t)"));
  EXPECT_EQ(copy.str(), "s0 // 3 + min(s0, t)");
  EXPECT_TRUE((ctx.range(ctx.import(s0)) == IntRange{2, 100}));
  EXPECT_TRUE(ctx.hint(ctx.import(s0)) == 7);
  EXPECT_THROW(ctx.add(s0, copy), InternalError);
}

// Each kernel of a graph has a context of its own: together they must not take the square of the graph.
TEST_F(Symbolic, ImportTakesNoMemoryForTheRestOfTheSource) {
  for (int i = 0; i < 20'000; ++i) ctx.symbol("s" + std::to_string(i));
  const Expr small = ctx.parse("7*s1 + s2 // 3 + min(s19999, 12)");
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = in_use();
  std::vector<std::unique_ptr<ExprContext>> kernels;
  for (int i = 0; i < 100; ++i) {
    kernels.push_back(std::make_unique<ExprContext>());
    EXPECT_EQ(kernels.back()->import(small).str(), small.str());
  }
  EXPECT_TRUE(in_use() - before < 100 * (size_t{12} << 10));
}

TEST_F(Symbolic, ProgramsEvaluateAndSurviveEncoding) {
  const std::vector<Expr> order = {ctx.symbol("a"), ctx.symbol("b")};
  const int64_t values[] = {-7, 3};
  const std::pair<const char*, int64_t> cases[] = {
      {"a // b", -3},        {"a % b", 2},  {"2*a + 3*b*b - 1", 12}, {"min(a, b, 0) + max(a, b)", -4},
      {"a < b", 1},          {"a == b", 0}, {"a != b", 1},           {"a < b and b < 3", 0},
      {"a < b or b < 3", 1}, {"41", 41},
  };
  for (const auto& [source, expected] : cases) {
    const ExprProgram program(ctx.parse(source), order);
    EXPECT_EQ(program.evaluate(values), expected) << source;
    EXPECT_EQ(ExprProgram::decode(program.encode()).evaluate(values), expected) << source;
  }
  EXPECT_TRUE(ExprProgram(ctx.constant(3), {}).is_const());
  const ExprProgram division(ctx.parse("a // b"), order);
  const int64_t zero[] = {1, 0};
  EXPECT_THROW(division.evaluate(zero), InvalidArgument);
  EXPECT_FALSE(division.try_evaluate(zero).has_value());
  const int64_t extreme[] = {INT64_MIN, -1};
  EXPECT_EQ(division.evaluate(extreme), INT64_MIN);
  EXPECT_THROW(ExprProgram(ctx.parse("c"), order), InternalError);
  EXPECT_THROW(ExprProgram().evaluate(zero), InternalError);
  EXPECT_FALSE(ExprProgram().try_evaluate(zero).has_value());
}

TEST_F(Symbolic, DamagedProgramsAreRefused) {
  const ExprProgram program(ctx.parse("a // b + 1"), std::vector<Expr>{ctx.symbol("a"), ctx.symbol("b")});
  const std::vector<int64_t> good = program.encode();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(ExprProgram::decode(std::span(good).first(length)), CompilationError) << length;
  }
  for (const int64_t kind : {int64_t{-1}, int64_t{15}, INT64_MAX}) {
    std::vector<int64_t> bad = good;
    bad[2] = kind;
    EXPECT_THROW(ExprProgram::decode(bad), CompilationError);
  }
}

TEST_F(Symbolic, LogicFolds) {
  EXPECT_EQ(text("a <= 3 and a <= 3"), "a <= 3");
  EXPECT_EQ(text("a <= 3 and a > 3"), "0");
  EXPECT_EQ(text("a <= 3 or a > 3"), "1");
  EXPECT_EQ(text("not (a <= 3 and b == 2)"), "b != 2 or 4 <= a");
  EXPECT_EQ(text("2*a == 3"), "0");
  EXPECT_EQ(text("4*a == 6*b + 2"), "2*a == 3*b + 1");
  EXPECT_EQ(text("x // 4 < s0"), "x + 1 <= 4*s0");
  EXPECT_EQ(text("i < s0 // 4"), "4*i + 4 <= s0");
}

}  // namespace
}  // namespace tatara
