// Random expressions: whatever the canonical constructors, simplify, substitute, text, import and programs do, values
// stay those of a tree that is evaluated as written. Plain seeds: case n of a test is the same everywhere.
//
// TATARA_SYMBOLIC_REWRITES=file makes SymbolicRandom.ValuesStay write each use of a rewrite rule to the file, one JSON
// object a line, and TATARA_SYMBOLIC_RULES=file makes SymbolicRules.Table write the table of rules;
// tests/symbolic/test_rules.py proves the rules and a sample of the uses with Z3.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

#include "support/error.h"
#include "symbolic/expr.h"
#include "symbolic/rules.h"
#include "testing.h"

namespace tatara {
namespace {

/// SplitMix64 by Sebastiano Vigna (public domain).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t in(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(bits() % static_cast<uint64_t>(hi - lo + 1)); }
  bool chance(int percent) { return in(0, 99) < percent; }
  template <typename T>
  const T& of(const std::vector<T>& items) {
    return items[static_cast<size_t>(in(0, static_cast<int64_t>(items.size()) - 1))];
  }

 private:
  uint64_t state_;
};

/// TATARA_SYMBOLIC_CASES multiplies the number of cases, for a long run.
uint64_t cases(uint64_t usual) {
  const char* factor = std::getenv("TATARA_SYMBOLIC_CASES");
  return factor == nullptr ? usual : usual * std::strtoull(factor, nullptr, 10);
}

struct Variable {
  std::string name;
  IntRange range;
};

using Values = std::vector<int64_t>;

/// A division by zero, or a number beyond 64 bits.
struct NoValue {};

/// An expression as written.
struct Tree {
  ExprKind kind;
  int64_t value = 0;  // constant, or number of the variable
  std::vector<std::shared_ptr<Tree>> operands;

  int64_t evaluate(const Values& values) const {
    const auto at = [&](size_t i) { return operands[i]->evaluate(values); };
    switch (kind) {
      case ExprKind::kConst: return value;
      case ExprKind::kSymbol: return values[static_cast<size_t>(value)];
      case ExprKind::kAdd:
      case ExprKind::kMul: {
        const __int128 a = at(0);
        const __int128 out = kind == ExprKind::kAdd ? a + at(1) : a * at(1);
        if (out != static_cast<int64_t>(out)) throw NoValue();
        return static_cast<int64_t>(out);
      }
      case ExprKind::kFloorDiv:
      case ExprKind::kMod: {
        const int64_t a = at(0);
        const int64_t b = at(1);
        if (b == 0 || (a == INT64_MIN && b == -1)) throw NoValue();
        int64_t q = a / b;
        if (q * b != a && (a < 0) != (b < 0)) --q;
        return kind == ExprKind::kFloorDiv ? q : static_cast<int64_t>(a - static_cast<__int128>(q) * b);
      }
      case ExprKind::kMin: return std::min(at(0), at(1));
      case ExprKind::kMax: return std::max(at(0), at(1));
      case ExprKind::kEq: return at(0) == at(1);
      case ExprKind::kNe: return at(0) != at(1);
      case ExprKind::kLt: return at(0) < at(1);
      case ExprKind::kLe: return at(0) <= at(1);
      case ExprKind::kAnd: return static_cast<int>(at(0) != 0) & static_cast<int>(at(1) != 0);
      case ExprKind::kOr: return static_cast<int>(at(0) != 0) | static_cast<int>(at(1) != 0);
      case ExprKind::kNot: return at(0) == 0;
    }
    TATARA_UNREACHABLE("ExprKind ", kind);
  }

  Expr build(ExprContext& ctx, const std::vector<Variable>& variables) const {
    const auto at = [&](size_t i) { return operands[i]->build(ctx, variables); };
    switch (kind) {
      case ExprKind::kConst: return ctx.constant(value);
      case ExprKind::kSymbol: return ctx.symbol(variables[static_cast<size_t>(value)].name);
      case ExprKind::kAdd: return ctx.add(at(0), at(1));
      case ExprKind::kMul: return ctx.mul(at(0), at(1));
      case ExprKind::kFloorDiv: return ctx.floordiv(at(0), at(1));
      case ExprKind::kMod: return ctx.mod(at(0), at(1));
      case ExprKind::kMin: return ctx.min(at(0), at(1));
      case ExprKind::kMax: return ctx.max(at(0), at(1));
      case ExprKind::kEq: return ctx.eq(at(0), at(1));
      case ExprKind::kNe: return ctx.ne(at(0), at(1));
      case ExprKind::kLt: return ctx.lt(at(0), at(1));
      case ExprKind::kLe: return ctx.le(at(0), at(1));
      case ExprKind::kAnd: return ctx.logical_and(at(0), at(1));
      case ExprKind::kOr: return ctx.logical_or(at(0), at(1));
      case ExprKind::kNot: return ctx.logical_not(at(0));
    }
    TATARA_UNREACHABLE("ExprKind ", kind);
  }
};
using TreePtr = std::shared_ptr<Tree>;

TreePtr leaf(ExprKind kind, int64_t value) { return std::make_shared<Tree>(Tree{kind, value, {}}); }
TreePtr node(ExprKind kind, TreePtr a, TreePtr b) {
  return std::make_shared<Tree>(Tree{kind, 0, {std::move(a), std::move(b)}});
}

class Generator {
 public:
  Generator(Random& random, size_t num_variables, bool large = false)
      : random_(random), num_variables_(num_variables), large_(large) {}

  TreePtr integer(int depth) {
    if (depth == 0 || random_.chance(12)) return random_leaf();
    switch (random_.in(0, 12)) {
      case 0:
      case 1:
      case 2: return node(ExprKind::kAdd, integer(depth - 1), integer(depth - 1));
      case 3: return node(ExprKind::kAdd, integer(depth - 1), scaled(integer(depth - 1)));
      case 4: return scaled(integer(depth - 1));
      case 5: return node(ExprKind::kMul, integer(depth - 1), random_leaf());
      case 6:
      case 7: return node(ExprKind::kFloorDiv, integer(depth - 1), divisor(depth));
      case 8:
      case 9: return node(ExprKind::kMod, integer(depth - 1), divisor(depth));
      case 10:
        return node(random_.chance(50) ? ExprKind::kMin : ExprKind::kMax, integer(depth - 1), integer(depth - 1));
      case 11: return recombined(depth);
      default: return view_index(depth);
    }
  }

  TreePtr condition(int depth) {
    const auto compare = [&] {
      const std::vector<ExprKind> kinds = {ExprKind::kEq, ExprKind::kNe, ExprKind::kLt, ExprKind::kLe, ExprKind::kLe};
      return node(random_.of(kinds), integer(depth), integer(std::max(depth - 1, 0)));
    };
    if (depth <= 1 || random_.chance(75)) return compare();
    if (random_.chance(20)) return std::make_shared<Tree>(Tree{ExprKind::kNot, 0, {condition(depth - 1)}});
    return node(random_.chance(50) ? ExprKind::kAnd : ExprKind::kOr, condition(depth - 1), condition(depth - 1));
  }

 private:
  TreePtr constant() {
    static const std::vector<int64_t> kUsual = {1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24};
    static const std::vector<int64_t> kLarge = {INT64_MAX,
                                                INT64_MIN,
                                                INT64_MAX - 1,
                                                INT64_MIN + 1,
                                                -1,
                                                int64_t{1} << 62,
                                                -(int64_t{1} << 62),
                                                int64_t{1} << 32,
                                                3,
                                                -4,
                                                (int64_t{1} << 31) - 1};
    if (large_ && random_.chance(60)) return leaf(ExprKind::kConst, random_.of(kLarge));
    return leaf(ExprKind::kConst, random_.chance(75) ? random_.of(kUsual) : random_.in(-9, 9));
  }
  TreePtr variable() { return leaf(ExprKind::kSymbol, random_.in(0, static_cast<int64_t>(num_variables_) - 1)); }
  TreePtr random_leaf() { return random_.chance(75) ? variable() : constant(); }
  TreePtr scaled(TreePtr tree) { return node(ExprKind::kMul, std::move(tree), constant()); }
  TreePtr divisor(int depth) {
    if (random_.chance(60)) return constant();
    if (random_.chance(60)) return variable();
    if (random_.chance(60)) return node(ExprKind::kMul, variable(), random_leaf());
    return integer(std::min(depth - 1, 1));
  }
  /// (a*i + j) // b or % b with the shapes that views give.
  TreePtr view_index(int depth) {
    if (random_.chance(40)) {  // j is below the unit, by its range or (if the facts say so) below a size
      const int64_t which = random_.in(0, 2);
      const TreePtr unit = random_.chance(60)
                               ? leaf(ExprKind::kConst, std::vector<int64_t>{4, 8, 12}[static_cast<size_t>(which)])
                               : leaf(ExprKind::kSymbol, random_.in(3, 4));
      const TreePtr flat = node(ExprKind::kAdd, node(ExprKind::kMul, integer(1), unit), leaf(ExprKind::kSymbol, which));
      const TreePtr by = node(ExprKind::kMul, unit, random_leaf());
      return node(random_.chance(50) ? ExprKind::kFloorDiv : ExprKind::kMod, flat, by);
    }
    if (random_.chance(20)) {
      const TreePtr unit = leaf(ExprKind::kSymbol, random_.in(3, 4));
      return node(ExprKind::kFloorDiv, node(ExprKind::kMod, integer(1), node(ExprKind::kMul, unit, constant())), unit);
    }
    const TreePtr unit = random_.chance(60) ? constant() : variable();
    TreePtr flat = node(ExprKind::kAdd, node(ExprKind::kMul, variable(), unit), integer(std::min(depth - 1, 1)));
    if (random_.chance(30))
      flat = node(ExprKind::kAdd, flat, node(ExprKind::kMul, node(ExprKind::kMul, variable(), unit), random_leaf()));
    const TreePtr by = random_.chance(70) ? unit : node(ExprKind::kMul, unit, random_leaf());
    return node(random_.chance(50) ? ExprKind::kFloorDiv : ExprKind::kMod, flat, by);
  }

  /// x // a * a + x % a with one or two digits, at times with a wrong weight.
  TreePtr recombined(int depth) {
    const TreePtr x = integer(depth - 1);
    const TreePtr a = random_.chance(60) ? constant() : divisor(1);
    const TreePtr weight = random_.chance(90) ? a : constant();
    TreePtr high = node(ExprKind::kFloorDiv, x, a);
    if (random_.chance(15)) return node(ExprKind::kMul, high, a);
    if (random_.chance(15)) {  // a multiple of a sum, expanded
      const TreePtr by = node(ExprKind::kAdd, variable(), random_leaf());
      const TreePtr all = node(ExprKind::kAdd, node(ExprKind::kMul, by, random_leaf()), random_leaf());
      return node(random_.chance(50) ? ExprKind::kFloorDiv : ExprKind::kMod, all, by);
    }
    if (random_.chance(40)) high = node(ExprKind::kMod, high, constant());
    const TreePtr low = node(ExprKind::kMod, x, a);
    TreePtr both = node(ExprKind::kMul, high, weight);
    if (random_.chance(80)) both = node(ExprKind::kAdd, both, low);
    return random_.chance(30) ? node(ExprKind::kMul, both, random_leaf()) : both;
  }

  Random& random_;
  size_t num_variables_;
  bool large_;
};

/// Loop indices, sizes and unrestricted integers, with facts between them.
struct Setting {
  std::vector<Variable> variables = {{"i0", {0, 3}},  {"i1", {0, 7}},   {"i2", {0, 11}}, {"s0", {2, 12}},
                                     {"s1", {1, 12}}, {"x", {-30, 30}}, {"y", {0, 40}}};
  std::vector<TreePtr> facts;
  std::vector<Values> samples;

  Values draw(Random& random) const {
    Values values;
    for (const Variable& variable : variables) values.push_back(random.in(variable.range.lo, variable.range.hi));
    return values;
  }
  bool holds(const Values& values) const {
    try {
      for (const TreePtr& fact : facts) {
        if (fact->evaluate(values) == 0) return false;
      }
      return true;
    } catch (const NoValue&) {
      return false;
    }
  }

  explicit Setting(Random& random) {
    const Values witness = draw(random);
    samples.push_back(witness);
    Generator generator(random, variables.size());
    const int64_t count = random.in(0, 4);
    for (int64_t n = 0; n < count; ++n) {
      TreePtr fact;
      if (random.chance(50)) {  // i < s
        fact = node(ExprKind::kLt, leaf(ExprKind::kSymbol, random.in(0, 2)), leaf(ExprKind::kSymbol, random.in(3, 4)));
      } else if (random.chance(30)) {  // a remainder is known
        const TreePtr x = leaf(ExprKind::kSymbol, random.in(3, 6));
        const TreePtr remainder = node(ExprKind::kMod, x, leaf(ExprKind::kConst, random.in(2, 8)));
        fact = node(ExprKind::kEq, remainder, leaf(ExprKind::kConst, remainder->evaluate(witness)));
      } else {
        fact = generator.condition(random.chance(70) ? 1 : 2);
      }
      try {
        if (fact->evaluate(witness) == 0) fact = std::make_shared<Tree>(Tree{ExprKind::kNot, 0, {fact}});
        facts.push_back(fact);
      } catch (const NoValue&) {
        // no fact
      }
    }
    for (int n = 0; n < 300 && samples.size() < 24; ++n) {
      Values values = draw(random);
      // Near the witness, so that equations are met too.
      if (n % 2 == 0) {
        for (size_t v = 0; v < values.size(); ++v) {
          if (random.chance(70)) values[v] = witness[v];
        }
      }
      if (holds(values)) samples.push_back(std::move(values));
    }
  }

  void declare(ExprContext& ctx) const {
    for (size_t v = 0; v < variables.size(); ++v) ctx.symbol(variables[v].name, variables[v].range, samples[0][v]);
  }
  bool assume_all(ExprContext& ctx) const {
    for (const TreePtr& fact : facts) ctx.assume(fact->build(ctx, variables));
    return true;
  }
  std::string show(const Values& values) const {
    std::string out;
    for (size_t v = 0; v < variables.size(); ++v) out += str_cat(variables[v].name, "=", values[v], " ");
    return out;
  }
};

int64_t value_of(const ExprContext& ctx, Expr e, const Setting& setting, const Values& values) {
  std::unordered_map<Expr, int64_t, ExprHash> map;
  auto& mutable_ctx = e.context();
  for (size_t v = 0; v < values.size(); ++v) map.emplace(mutable_ctx.symbol(setting.variables[v].name), values[v]);
  return ctx.evaluate(e, map);
}

/// Calls check(values, expected) for the samples at which the tree has a value.
template <typename Check>
void at_samples(const Setting& setting, const Tree& tree, Check&& check) {
  for (const Values& values : setting.samples) {
    int64_t expected = 0;
    try {
      expected = tree.evaluate(values);
    } catch (const NoValue&) {
      continue;
    }
    check(values, expected);
    if (testing::current_test_failed()) return;
  }
}

std::string json(std::string_view text) { return str_cat("\"", text, "\""); }

/// Writes each rewrite of a context with what was known then.
class RewriteLog {
 public:
  RewriteLog() {
    if (const char* path = std::getenv("TATARA_SYMBOLIC_REWRITES")) file_ = std::fopen(path, "w");
  }
  ~RewriteLog() {
    if (file_ != nullptr) std::fclose(file_);
  }
  RewriteLog(const RewriteLog&) = delete;
  RewriteLog& operator=(const RewriteLog&) = delete;

  void attach(ExprContext& ctx, const Setting& setting, uint64_t seed) {
    if (file_ == nullptr) return;
    ctx.observe_rewrites([this, &ctx, &setting, seed](const ExprRewrite& rewrite) {
      if (writing_) return;
      writing_ = true;
      std::string line =
          str_cat("{\"seed\": ", seed, ", \"rule\": ", json(rewrite.rule), ", \"before\": ", json(rewrite.before),
                  ", \"after\": ", json(rewrite.after), ", \"facts\": [",
                  str_join(ctx.facts(), ", ", [](Expr e) { return json(e.str()); }), "], \"ranges\": {");
      line += str_join(setting.variables, ", ", [](const Variable& v) {
        return str_cat(json(v.name), ": [", v.range.lo, ", ", v.range.hi, "]");
      });
      line += "}}\n";
      std::fputs(line.c_str(), file_);
      writing_ = false;
    });
  }

 private:
  std::FILE* file_ = nullptr;
  bool writing_ = false;
};

TEST(SymbolicRandom, ValuesStay) {
  RewriteLog log;
  for (uint64_t seed = 0; seed < cases(6000); ++seed) {
    Random random(seed);
    const Setting setting(random);
    const TreePtr tree = Generator(random, setting.variables.size()).integer(static_cast<int>(random.in(1, 4)));
    ExprContext ctx;
    log.attach(ctx, setting, seed);
    setting.declare(ctx);
    try {
      const Expr built = tree->build(ctx, setting.variables);
      const std::string before = built.str();
      setting.assume_all(ctx);
      const Expr simple = ctx.simplify(built);
      EXPECT_TRUE(ctx.simplify(simple) == simple) << "seed " << seed << ": not a fixed point: " << simple.str();
      const IntRange range = ctx.range(built);
      const IntRange simple_range = ctx.range(simple);
      ctx.observe_rewrites({});
      at_samples(setting, *tree, [&](const Values& values, int64_t expected) {
        EXPECT_EQ(value_of(ctx, built, setting, values), expected)
            << "seed " << seed << ": built " << before << " at " << setting.show(values);
        EXPECT_EQ(value_of(ctx, simple, setting, values), expected)
            << "seed " << seed << ": " << before << " simplified to " << simple.str() << " at " << setting.show(values);
        EXPECT_TRUE(range.lo <= expected && expected <= range.hi)
            << "seed " << seed << ": range of " << before << " is [" << range.lo << ", " << range.hi << "] but it is "
            << expected << " at " << setting.show(values);
        EXPECT_TRUE(simple_range.lo <= expected && expected <= simple_range.hi)
            << "seed " << seed << ": range of " << simple.str() << " at " << setting.show(values);
      });
    } catch (const InvalidArgument&) {
      // Divides by an expression that folds to zero.
    }
    if (testing::current_test_failed()) return;
  }
}

TEST(SymbolicRandom, DecisionsNeverContradict) {
  int decided = 0;
  for (uint64_t seed = 0; seed < cases(6000); ++seed) {
    Random random(seed + 100000000);
    const Setting setting(random);
    const TreePtr tree = Generator(random, setting.variables.size()).condition(static_cast<int>(random.in(1, 3)));
    ExprContext ctx;
    setting.declare(ctx);
    try {
      const Expr condition = tree->build(ctx, setting.variables);
      setting.assume_all(ctx);
      const std::optional<bool> decision = ctx.decide(condition);
      const Expr simple = ctx.simplify(condition);
      decided += decision.has_value();
      at_samples(setting, *tree, [&](const Values& values, int64_t expected) {
        EXPECT_EQ(value_of(ctx, condition, setting, values), expected)
            << "seed " << seed << ": built " << condition.str() << " at " << setting.show(values);
        EXPECT_EQ(value_of(ctx, simple, setting, values), expected)
            << "seed " << seed << ": " << condition.str() << " simplified to " << simple.str() << " at "
            << setting.show(values);
        if (decision) {
          EXPECT_EQ(static_cast<int64_t>(*decision), expected)
              << "seed " << seed << ": decided " << condition.str() << " at " << setting.show(values);
        }
      });
    } catch (const InvalidArgument&) {
    }
    if (testing::current_test_failed()) return;
  }
  EXPECT_GT(decided, 1500);
}

/// Numbers at the limits of 64 bits: refused (Unsupported) or right, and no undefined behaviour on the way.
TEST(SymbolicRandom, LargeNumbers) {
  int checked = 0;
  for (uint64_t seed = 0; seed < cases(6000); ++seed) {
    Random random(seed + 400000000);
    Setting setting(random);
    setting.facts.clear();
    Generator generator(random, setting.variables.size(), true);
    const TreePtr tree =
        random.chance(50) ? generator.condition(2) : generator.integer(static_cast<int>(random.in(1, 3)));
    const TreePtr fact = generator.condition(1);
    ExprContext ctx;
    for (Values& values : setting.samples) {
      for (size_t v = 0; v < values.size(); ++v) {
        if (random.chance(30)) values[v] = random.of(std::vector<int64_t>{INT64_MAX, INT64_MIN, INT64_MAX / 2, 0, -1});
      }
    }
    for (Variable& variable : setting.variables) {
      variable.range = {};
      ctx.symbol(variable.name);
    }
    try {
      if (fact->evaluate(setting.samples[0]) != 0 && random.chance(50)) setting.facts.push_back(fact);
    } catch (const NoValue&) {
    }
    try {
      const Expr built = tree->build(ctx, setting.variables);
      setting.assume_all(ctx);
      const Expr simple = ctx.simplify(built);
      const IntRange range = ctx.range(built);
      const auto decision = ctx.decide(built);
      // Not always the same node: what any 64-bit number fulfils (INT64_MIN <= e) folds when parsed.
      const Expr parsed = ctx.parse(built.str());
      at_samples(setting, *tree, [&](const Values& values, int64_t expected) {
        if (!setting.holds(values)) return;
        EXPECT_TRUE(range.lo <= expected && expected <= range.hi)
            << "seed " << seed << ": range of " << built.str() << " at " << setting.show(values);
        if (decision) {
          EXPECT_EQ(*decision, expected != 0) << "seed " << seed << ": " << built.str();
        }
        try {
          EXPECT_EQ(value_of(ctx, built, setting, values), expected) << "seed " << seed << ": " << built.str();
          EXPECT_EQ(value_of(ctx, parsed, setting, values), expected) << "seed " << seed << ": " << built.str();
          EXPECT_EQ(value_of(ctx, simple, setting, values), expected)
              << "seed " << seed << ": " << built.str() << " simplified to " << simple.str() << " at "
              << setting.show(values);
          ++checked;
        } catch (const Unsupported&) {
          // The canonical order of a sum may leave 64 bits where the tree did not.
        }
      });
    } catch (const InvalidArgument&) {
    } catch (const Unsupported&) {
    }
    if (testing::current_test_failed()) return;
  }
  EXPECT_GT(checked, 5000);
}

/// The file for Z3, and: no rule is left that the random programs never use.
TEST(SymbolicRules, Table) {
  if (const char* path = std::getenv("TATARA_SYMBOLIC_RULES")) {
    std::FILE* file = std::fopen(path, "w");
    ASSERT_TRUE(file != nullptr);
    for (const RuleInfo& rule : rewrite_rules()) {
      const std::string line =
          str_cat("{\"rule\": ", json(rule.name), ", \"lhs\": ", json(rule.lhs), ", \"rhs\": ", json(rule.rhs),
                  ", \"where\": ", json(rule.where), ", \"via\": ", json(rule.via), "}\n");
      std::fputs(line.c_str(), file);
    }
    std::fclose(file);
  }
  std::set<std::string_view> unused;
  for (const RuleInfo& rule : rewrite_rules()) unused.insert(rule.name);
  for (uint64_t seed = 0; seed < 6000 && !unused.empty(); ++seed) {
    Random random(seed);
    const Setting setting(random);
    Generator generator(random, setting.variables.size());
    ExprContext ctx;
    ctx.observe_rewrites([&](const ExprRewrite& rewrite) { unused.erase(rewrite.rule); });
    setting.declare(ctx);
    try {
      setting.assume_all(ctx);
      ctx.simplify(generator.integer(4)->build(ctx, setting.variables));
      ctx.simplify(generator.condition(3)->build(ctx, setting.variables));
    } catch (const InvalidArgument&) {
    }
  }
  EXPECT_EQ(str_join(unused), "");
}

/// Facts enter as guards under the witness; what the guards say must hold there, and imply the outcomes.
TEST(SymbolicRandom, GuardsTellOutcomes) {
  for (uint64_t seed = 0; seed < cases(1000); ++seed) {
    Random random(seed + 200000000);
    const Setting setting(random);
    ExprContext ctx;
    setting.declare(ctx);
    Generator generator(random, setting.variables.size());
    std::vector<std::pair<TreePtr, bool>> outcomes;
    for (int n = 0; n < 5; ++n) {
      const TreePtr tree = generator.condition(static_cast<int>(random.in(1, 2)));
      try {
        outcomes.emplace_back(tree, ctx.guard(tree->build(ctx, setting.variables)));
        EXPECT_EQ(outcomes.back().second, tree->evaluate(setting.samples[0]) != 0) << "seed " << seed;
      } catch (const InvalidArgument&) {
      } catch (const NoValue&) {
        outcomes.pop_back();
      }
    }
    std::set<std::string> texts;
    for (Expr guard : ctx.guards()) EXPECT_TRUE(texts.insert(guard.str()).second) << "twice: " << guard.str();
    for (int n = 0; n < 200; ++n) {
      const Values values = setting.draw(random);
      try {
        bool pass = true;
        for (Expr guard : ctx.guards()) pass = pass && value_of(ctx, guard, setting, values) != 0;
        if (!pass) continue;
        for (const auto& [tree, outcome] : outcomes) {
          EXPECT_EQ(tree->evaluate(values) != 0, outcome) << "seed " << seed << " at " << setting.show(values);
        }
      } catch (const InvalidArgument&) {
      } catch (const NoValue&) {
      }
    }
    if (testing::current_test_failed()) return;
  }
}

TEST(SymbolicRandom, TextImportSubstituteAndProgramsKeepValues) {
  for (uint64_t seed = 0; seed < cases(3000); ++seed) {
    Random random(seed + 300000000);
    const Setting setting(random);
    Generator generator(random, setting.variables.size());
    const bool boolean = random.chance(30);
    const TreePtr tree = boolean ? generator.condition(2) : generator.integer(static_cast<int>(random.in(1, 4)));
    ExprContext ctx;
    setting.declare(ctx);
    try {
      const Expr built = tree->build(ctx, setting.variables);
      EXPECT_TRUE(ctx.parse(built.str()) == built)
          << "seed " << seed << ": " << built.str() << " parses to " << ctx.parse(built.str()).str();
      ExprContext other;  // symbols made in another order
      for (size_t v = setting.variables.size(); v-- > 0;) other.symbol(setting.variables[v].name);
      EXPECT_EQ(other.parse(built.str()).str(), built.str());
      EXPECT_EQ(other.import(built).str(), built.str());
      // Each variable replaced by itself plus another, in one step.
      ExprMap map;
      std::vector<Expr> order;
      for (size_t v = 0; v < setting.variables.size(); ++v) {
        const Expr variable = ctx.symbol(setting.variables[v].name);
        order.push_back(variable);
        map[variable] = variable + ctx.symbol(setting.variables[(v + 1) % setting.variables.size()].name) * 2;
      }
      const Expr replaced = ctx.substitute(built, map);
      const ExprProgram program(built, order);
      const ExprProgram decoded = ExprProgram::decode(program.encode());
      at_samples(setting, *tree, [&](const Values& values, int64_t expected) {
        EXPECT_EQ(program.evaluate(values), expected) << "seed " << seed << ": " << built.str();
        EXPECT_EQ(decoded.evaluate(values), expected) << "seed " << seed;
      });
      for (const Values& values : setting.samples) {
        Values shifted;
        for (size_t v = 0; v < values.size(); ++v) shifted.push_back(values[v] + 2 * values[(v + 1) % values.size()]);
        try {
          const int64_t expected = tree->evaluate(shifted);
          EXPECT_EQ(value_of(ctx, replaced, setting, values), expected)
              << "seed " << seed << ": " << built.str() << " became " << replaced.str();
        } catch (const NoValue&) {
        }
      }
    } catch (const InvalidArgument&) {
    }
    if (testing::current_test_failed()) return;
  }
}

}  // namespace
}  // namespace tatara
