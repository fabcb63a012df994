#include "codegen/core/emitter.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

Emitter::Emitter(const Kernel& kernel, const CpuTarget& target, std::string_view symbol)
    : kernel_(kernel), target_(target), symbol_(symbol), regs_(kernel.scalar_types.size()) {}

// ---- Indices ---------------------------------------------------------------------------------------------------------

bool Emitter::varies(Expr e) const {
  if (ir_.lanes() == 1) return false;
  if (e.is_symbol()) {
    if (e == vector_var_) return true;
    const auto found = symbols_.find(e);
    return found != symbols_.end() && found->second.vec;
  }
  return std::any_of(e.operands().begin(), e.operands().end(), [&](Expr x) { return varies(x); });
}

std::string Emitter::index(Expr e) { return index_expr(e, false); }

std::string Emitter::index_vector(Expr e) {
  return varies(e) ? index_expr(e, true) : ir_.splat("i64", index_expr(e, false));
}

std::string Emitter::index_expr(Expr e, bool vec) {
  if (e.is_const()) return vec ? ir_.splat("i64", std::to_string(e.const_value())) : std::to_string(e.const_value());
  if (e.is_symbol()) {
    const auto found = symbols_.find(e);
    TATARA_CHECK(found != symbols_.end(), "index symbol ", e.str(), " has no value in ", kernel_.name);
    if (vec && e == vector_var_) {
      std::string lanes = ir_.vec_type("i64") + " <";
      std::string list;
      for (int i = 0; i < ir_.lanes(); ++i) list += (i > 0 ? ", i64 " : "i64 ") + std::to_string(i);
      return ir_.assign("add " + ir_.vec_type("i64") + " " + ir_.splat("i64", found->second.text) + ", <" + list + ">");
    }
    return vec ? ir_.as_vec("i64", found->second) : found->second.text;
  }
  const std::string type = vec ? ir_.vec_type("i64") : "i64";
  const auto operand = [&](Expr x) { return vec ? index_vector(x) : index_expr(x, false); };
  const auto fold = [&](const char* op) {
    std::string value = operand(e.operands()[0]);
    for (size_t i = 1; i < e.operands().size(); ++i) value = ir_.binary(op, type, value, operand(e.operands()[i]));
    return value;
  };
  const auto nonnegative = [&](Expr x) { return kernel_.ctx->range(x).lo >= 0; };
  switch (e.kind()) {
    case ExprKind::kAdd: return fold("add nsw");
    case ExprKind::kMul: return fold("mul nsw");
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      if (!nonnegative(e.operands()[0]) || kernel_.ctx->range(e.operands()[1]).lo <= 0) {
        // floor(a / b) for b > 0: (a - ((a < 0) ? b - 1 : 0)) / b, truncating.
        const std::string a = operand(e.operands()[0]);
        const std::string b = operand(e.operands()[1]);
        const std::string one = vec ? ir_.splat("i64", "1") : "1";
        const std::string zero = vec ? "zeroinitializer" : "0";
        const std::string below = ir_.assign("icmp slt " + type + " " + a + ", " + zero);
        const std::string less = ir_.binary("sub", type, b, one);
        const std::string shift = ir_.select(below, type, less, zero, vec);
        const std::string q = ir_.binary("sdiv", type, ir_.binary("sub", type, a, shift), b);
        return e.kind() == ExprKind::kFloorDiv ? q : ir_.binary("sub", type, a, ir_.binary("mul", type, q, b));
      }
      return fold(e.kind() == ExprKind::kFloorDiv ? "udiv" : "urem");
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const std::string a = operand(e.operands()[0]);
      const std::string b = operand(e.operands()[1]);
      const char* test = e.kind() == ExprKind::kMin ? "slt" : "sgt";
      return ir_.select(ir_.assign(std::string("icmp ") + test + " " + type + " " + a + ", " + b), type, a, b, vec);
    }
    case ExprKind::kConst:
    case ExprKind::kSymbol:
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

Stride Emitter::stride_of(Expr e) const {
  if (!varies(e)) return Stride::kUniform;
  const Expr coefficient = e.coefficient_of(vector_var_);
  if (!coefficient.valid() || varies(coefficient)) return Stride::kGather;
  const Expr rest = kernel_.ctx->sub(e, kernel_.ctx->mul(coefficient, vector_var_));
  if (varies(rest)) return Stride::kGather;
  if (coefficient.is_const(1)) return Stride::kUnit;
  if (coefficient.is_const(-1)) return Stride::kReversed;
  return Stride::kStrided;
}

// ---- Statements --------------------------------------------------------------------------------------------------------

void Emitter::statement(const Let& let) {
  if (let.scalar.op == ScalarOp::kConst && is_floating(let.scalar.dtype)) {
    constants_[let.dst] = let.scalar.const_re;
  }
  const auto product = products_.find(let.dst);
  if (product == products_.end()) {
    set(let.dst, scalar(let.scalar));
    return;
  }
  const DType type = let.scalar.dtype;
  const bool vec = std::any_of(product->second.begin(), product->second.end(), [&](ScalarId x) { return reg(x).vec; });
  std::vector<std::string> args;
  for (const ScalarId x : product->second) args.push_back(vec ? ir_.as_vec(llvm_type(type), reg(x)) : reg(x).text);
  set(let.dst, {ir_.intrinsic("fmuladd", type, vec, args), vec});
}

void Emitter::statement(const If& branch) {
  if (reg(branch.condition).vec) throw InternalError("a branch on a vector in " + kernel_.name);
  ir_.when(reg(branch.condition).text, [&] { block(*branch.body); });
}

void Emitter::block(const Block& b) {
  for (const Stmt& stmt : b.stmts) {
    std::visit([&](const auto& s) { statement(s); }, stmt);
  }
}

std::string Emitter::run() {
  std::string head =
      "define dso_local i32 @" + symbol_ +
      "(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, "
      "ptr noalias %fault) #0 {\nentry:\n";
  size_t argument = 0;
  for (const BufferArg& buffer : kernel_.buffers) {
    if (buffer.kind == ArgKind::kScratch) {
      const int64_t bytes = buffer.numel.const_value() * dtype_size(buffer.dtype);
      bases_.push_back(ir_.assign("alloca [" + std::to_string(bytes) + " x i8], align 64"));
      continue;
    }
    const std::string slot = ir_.assign("getelementptr ptr, ptr %buffers, i64 " + std::to_string(argument++));
    bases_.push_back(ir_.assign("load ptr, ptr " + slot));
  }
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    const std::string slot = ir_.assign("getelementptr i64, ptr %sizes, i64 " + std::to_string(i));
    symbols_[kernel_.sizes[i]] = {ir_.assign("load i64, ptr " + slot), false};
  }
  for (size_t i = 0; i < kernel_.scalar_args.size(); ++i) {
    const std::string slot = ir_.assign("getelementptr i64, ptr %scalars, i64 " + std::to_string(i));
    const DType type = kernel_.scalar_args[i];
    const DType stored = is_floating(type) ? DType::kFloat64 : DType::kInt64;
    const std::string raw = ir_.assign("load " + llvm_type(stored) + ", ptr " + slot);
    set(kernel_.scalar_arg_ids[i], cast(stored, type, {raw, false}));
  }
  block(kernel_.body);
  ir_.line("ret i32 0");
  std::string text = head + ir_.take() + "}\n" + text_of(declarations_);
  std::string attributes =
      "attributes #0 = { nounwind \"prefer-vector-width\"=\"" + std::to_string(target_.vector_bytes() * 8) + "\" }\n";
  return text + attributes + "!0 = !{!\"branch_weights\", i32 1, i32 1000000}\n";
}

}  // namespace tatara::codegen
