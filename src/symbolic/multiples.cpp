#include "symbolic/multiples.h"

#include <algorithm>

namespace tatara {

bool multiple_of(Expr e, int64_t n) {
  if (n == 1) return true;
  switch (e.kind()) {
    case ExprKind::kConst: return e.const_value() % n == 0;
    case ExprKind::kMul:
      return std::any_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return multiple_of(x, n); });
    case ExprKind::kAdd:
    case ExprKind::kMin:
    case ExprKind::kMax:
      return std::all_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return multiple_of(x, n); });
    case ExprKind::kSymbol:
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: return false;
  }
  return false;
}

}  // namespace tatara
