// The rewrite rules by name. Every rule has its statement as text, which the tests prove with Z3; each use can be
// observed (ExprContext::observe_rewrites) and is proved there as well.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tatara {

enum class Rule : uint8_t {
  // hold for all integers (with divisors that are not zero); applied when an expression is built
  kDivNegativeDivisor,
  kModNegativeDivisor,
  kDivExtractMultiples,
  kModDropMultiples,
  kDivCancelGcd,
  kDivFlip,
  kModFactorGcd,
  kDivOfDiv,
  kDivOfMod,
  kModOfMod,
  kDivCancelFactor,
  kModFactorFactor,
  kDivBySum,
  kModBySum,
  kJoinDivMod,
  kJoinModMod,
  kLeTighten,
  kLeDivUpper,
  kLeDivLower,
  kEqGcd,
  kMinMaxConstantDifference,
  // need ranges or facts; applied by simplify()
  kDivByRange,
  kModByRange,
  kDivSplit,
  kModSplit,
  kDivOfDivPositive,
  kDivOfModPositive,
  kDivExact,
  kDivKnownMultiple,
  kModKnownMultiple,
  kMinMaxOrdered,
  kDecided,
  kPointRange,
  kSymbolEqual,
};

struct RuleInfo {
  Rule rule;
  std::string_view name;
  /// Python text over integer variables; `lhs` equals `rhs` wherever `where` holds (empty: always).
  std::string_view lhs;
  std::string_view rhs;
  std::string_view where;
  /// Steps between them, separated by ';', where the proof needs them.
  std::string_view via = {};
};

/// The table, one entry a rule at least (some rules state several forms), in the order of the enum.
std::span<const RuleInfo> rewrite_rules();
std::string_view rule_name(Rule rule);

}  // namespace tatara
