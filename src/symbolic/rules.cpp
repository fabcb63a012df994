// The statements of the rewrite rules. tests/symbolic/test_rules.py proves each of them with Z3.
#include "symbolic/rules.h"

#include "support/error.h"

namespace tatara {
namespace {

constexpr RuleInfo kRules[] = {
    {Rule::kDivNegativeDivisor, "div_negative_divisor", "a // b", "(-a) // (-b)", "b != 0"},
    {Rule::kModNegativeDivisor, "mod_negative_divisor", "a % b", "-((-a) % (-b))", "b != 0"},
    {Rule::kDivExtractMultiples, "div_extract_multiples", "(b*x + y) // b", "x + y // b", "b != 0"},
    {Rule::kModDropMultiples, "mod_drop_multiples", "(b*x + y) % b", "y % b", "b != 0"},
    {Rule::kDivCancelGcd, "div_cancel_gcd", "(g*x + k) // (g*c)", "(x + k // g) // c", "g > 0 and c > 0"},
    {Rule::kDivFlip, "div_flip", "a // c", "-((-a + c - 1) // c)", "c > 0"},
    {Rule::kModFactorGcd, "mod_factor_gcd", "(g*x + k) % (g*c)", "g*((x + k // g) % c) + k % g", "g > 0 and c > 0"},
    {Rule::kDivOfDiv, "div_of_div", "(x // d + k) // c", "(x + d*k) // (d*c)", "d != 0 and c > 0"},
    {Rule::kDivOfMod, "div_of_mod", "(y % (c*m)) // c", "(y // c) % m", "c > 0 and m > 0", "y // c - m*(y // (c*m))"},
    {Rule::kModOfMod, "mod_of_mod", "(z + k*(y % m)) % c", "(z + k*y) % c", "c != 0 and m != 0 and k*m == c*t",
     "(z + k*y - k*m*(y // m)) % c; (z + k*y - c*(t*(y // m))) % c"},
    {Rule::kDivCancelFactor, "div_cancel_factor", "(g*x) // (g*y)", "x // y", "g != 0 and y != 0"},
    {Rule::kModFactorFactor, "mod_factor_factor", "(g*x) % (g*y)", "g*(x % y)", "g != 0 and y != 0"},
    {Rule::kDivBySum, "div_by_sum", "(b*q + r) // b", "q + r // b", "b != 0"},
    {Rule::kModBySum, "mod_by_sum", "(b*q + r) % b", "r % b", "b != 0"},
    {Rule::kJoinDivMod, "join_div_mod", "k*a*(x // a) + k*(x % a)", "k*x", "a != 0"},
    {Rule::kJoinModMod, "join_mod_mod", "a*((x // a) % b) + x % a", "x % (a*b)", "a != 0 and b > 0"},
    {Rule::kLeTighten, "le_tighten", "g*x + k <= 0", "x - (-k) // g <= 0", "g > 0"},
    {Rule::kLeDivUpper, "le_div_upper", "x // c + m <= 0", "x + c*m - c + 1 <= 0", "c > 0"},
    {Rule::kLeDivLower, "le_div_lower", "m - x // c <= 0", "c*m - x <= 0", "c > 0"},
    {Rule::kEqGcd, "eq_gcd", "g*x + k == 0", "k % g == 0 and x + k // g == 0", "g > 0"},
    {Rule::kMinMaxConstantDifference, "min_max_constant_difference", "min(x, x + k)", "x", "k >= 0"},
    {Rule::kMinMaxConstantDifference, "min_max_constant_difference", "max(x, x + k)", "x + k", "k >= 0"},
    {Rule::kDivByRange, "div_by_range", "x // b", "m", "b > 0 and m*b <= x and x < (m + 1)*b"},
    {Rule::kModByRange, "mod_by_range", "x % b", "x - m*b", "b > 0 and m*b <= x and x < (m + 1)*b"},
    {Rule::kDivSplit, "div_split", "(g*x + r) // (g*b)", "(x + m) // b",
     "g > 0 and b > 0 and m*g <= r and r < (m + 1)*g"},
    {Rule::kModSplit, "mod_split", "(g*x + r) % (g*b)", "g*((x + m) % b) + r - m*g",
     "g > 0 and b > 0 and m*g <= r and r < (m + 1)*g"},
    {Rule::kDivOfDivPositive, "div_of_div_positive", "(x // d) // b", "x // (d*b)", "d != 0 and b > 0"},
    {Rule::kDivOfModPositive, "div_of_mod_positive", "(y % (b*m)) // b", "(y // b) % m", "b > 0 and m > 0",
     "y // b - m*(y // (b*m))"},
    {Rule::kDivExact, "div_exact", "k*c*(x // c)", "k*(x - r)", "c > 0 and x % c == r"},
    {Rule::kDivKnownMultiple, "div_known_multiple", "(x + y) // c", "x // c + y // c", "c > 0 and x % c == 0"},
    {Rule::kModKnownMultiple, "mod_known_multiple", "(x + y) % c", "y % c", "c > 0 and x % c == 0",
     "(c*(x // c) + y) % c"},
    {Rule::kMinMaxOrdered, "min_max_ordered", "min(x, y)", "x", "x <= y"},
    {Rule::kMinMaxOrdered, "min_max_ordered", "max(x, y)", "y", "x <= y"},
    // The last three restate a fact: nothing to prove but that a fact implies itself.
    {Rule::kDecided, "decided", "x <= 0", "True", "x <= 0"},
    {Rule::kPointRange, "point_range", "x", "v", "v <= x and x <= v"},
    {Rule::kSymbolEqual, "symbol_equal", "x", "y", "x == y"},
};

}  // namespace

std::span<const RuleInfo> rewrite_rules() { return kRules; }

std::string_view rule_name(Rule rule) {
  for (const RuleInfo& info : kRules) {
    if (info.rule == rule) return info.name;
  }
  TATARA_UNREACHABLE("Rule ", rule);
}

}  // namespace tatara
