#include "codegen/core/scope.h"

#include <algorithm>

#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

std::optional<double> Scope::constant(loops::ScalarId id) const {
  const auto found = constants_.find(id);
  if (found == constants_.end()) return std::nullopt;
  return found->second;
}

void Scope::enter_lanes(Expr var, int lanes) {
  ir_.set_lanes(lanes);
  vector_var_ = var;
}

void Scope::leave_lanes() {
  ir_.set_lanes(1);
  vector_var_ = Expr();
}

bool Scope::same_quotient(Expr e) const {
  if (e.kind() != ExprKind::kFloorDiv || !e.operands()[1].is_const()) return false;
  const Expr place = e.operands()[0];
  const Expr step = place.coefficient_of(vector_var_);
  if (!step.valid() || !step.is_const() || step.const_value() <= 0) return false;
  const Expr rest = kernel_.ctx->sub(place, kernel_.ctx->mul(step, vector_var_));
  const int64_t all = step.const_value() * ir_.lanes();
  return e.operands()[1].const_value() % all == 0 && multiple_of(rest, all) && !varies(rest);
}

bool Scope::varies(Expr e) const {
  if (ir_.lanes() == 1) return false;
  if (e.is_symbol()) {
    if (e == vector_var_) return true;
    const auto found = symbols_.find(e);
    return found != symbols_.end() && found->second.vec;
  }
  if (same_quotient(e)) return false;
  return std::any_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return varies(x); });
}

Stride Scope::stride_of(Expr e) const {
  if (!varies(e)) return Stride::kUniform;
  const Expr coefficient = e.coefficient_of(vector_var_);
  if (!coefficient.valid() || varies(coefficient)) return Stride::kGather;
  const Expr rest = kernel_.ctx->sub(e, kernel_.ctx->mul(coefficient, vector_var_));
  if (varies(rest)) return Stride::kGather;
  if (coefficient.is_const(1)) return Stride::kUnit;
  if (coefficient.is_const(-1)) return Stride::kReversed;
  return Stride::kStrided;
}

std::string Scope::index_vector(Expr e) {
  return varies(e) ? expression(e, true) : ir_.splat("i64", expression(e, false));
}

std::string Scope::symbol(Expr e, bool vec) {
  const auto found = symbols_.find(e);
  TATARA_CHECK(found != symbols_.end(), "index symbol ", e.str(), " has no value in ", kernel_.name);
  if (!vec) return found->second.text;
  if (e != vector_var_) return ir_.as_vec("i64", found->second);
  std::string lanes;
  for (int i = 0; i < ir_.lanes(); ++i) lanes += (i > 0 ? ", i64 " : "i64 ") + std::to_string(i);
  const std::string type = ir_.vec_type("i64");
  return ir_.binary("add", type, ir_.splat("i64", found->second.text), "<" + lanes + ">");
}

/// ((a op b) op c) ...
std::string Scope::fold(const char* op, Expr e, bool vec) {
  const std::string type = ir_.type_of("i64", vec);
  std::string value = operand(e.operands()[0], vec);
  for (size_t i = 1; i < e.operands().size(); ++i) value = ir_.binary(op, type, value, operand(e.operands()[i], vec));
  return value;
}

/// Quotient or remainder, rounded towards minus infinity.
std::string Scope::floor_division(Expr e, bool vec) {
  const bool quotient = e.kind() == ExprKind::kFloorDiv;
  const bool plain = kernel_.ctx->range(e.operands()[0]).lo >= 0 && kernel_.ctx->range(e.operands()[1]).lo > 0;
  if (plain) return fold(quotient ? "udiv" : "urem", e, vec);
  const std::string type = ir_.type_of("i64", vec);
  const std::string a = operand(e.operands()[0], vec);
  const std::string b = operand(e.operands()[1], vec);
  const std::string one = vec ? ir_.splat("i64", "1") : "1";
  const std::string zero = vec ? "zeroinitializer" : "0";
  if (kernel_.ctx->range(e.operands()[1]).lo <= 0) {
    // Of any sign (a sum begins with a positive term, whatever its value): the truncated quotient, less one where the rest has
    // another sign than b.
    const std::string truncated = ir_.binary("sdiv", type, a, b);
    const std::string rest = ir_.binary("sub", type, a, ir_.binary("mul", type, truncated, b));
    const std::string some = ir_.assign("icmp ne " + type + " " + rest + ", " + zero);
    const std::string signs = ir_.binary("xor", type, rest, b);
    const std::string apart = ir_.assign("icmp slt " + type + " " + signs + ", " + zero);
    const std::string off = ir_.binary("and", vec ? ir_.vec_type("i1") : "i1", some, apart);
    return quotient ? ir_.select(off, type, ir_.binary("sub", type, truncated, one), truncated, vec)
                    : ir_.select(off, type, ir_.binary("add", type, rest, b), rest, vec);
  }
  // floor(a / b) for b > 0: (a - ((a < 0) ? b - 1 : 0)) / b, truncating.
  const std::string below = ir_.assign("icmp slt " + type + " " + a + ", " + zero);
  const std::string less = ir_.binary("sub", type, b, one);
  const std::string shift = ir_.select(below, type, less, zero, vec);
  const std::string q = ir_.binary("sdiv", type, ir_.binary("sub", type, a, shift), b);
  return quotient ? q : ir_.binary("sub", type, a, ir_.binary("mul", type, q, b));
}

std::string Scope::expression(Expr e, bool vec) {
  switch (e.kind()) {
    case ExprKind::kConst: {
      const std::string number = std::to_string(e.const_value());
      return vec ? ir_.splat("i64", number) : number;
    }
    case ExprKind::kSymbol: return symbol(e, vec);
    case ExprKind::kAdd: return fold("add nsw", e, vec);
    case ExprKind::kMul: return fold("mul nsw", e, vec);
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: return floor_division(e, vec);
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const std::string type = ir_.type_of("i64", vec);
      const std::string a = operand(e.operands()[0], vec);
      const std::string b = operand(e.operands()[1], vec);
      const std::string test = e.kind() == ExprKind::kMin ? "icmp slt " : "icmp sgt ";
      return ir_.select(ir_.assign(test + type + " " + a + ", " + b), type, a, b, vec);
    }
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: break;
  }
  throw InternalError("a condition as an index: " + e.str());
}

}  // namespace tatara::codegen
