// ExprProgram: a postfix program over a small stack.
#include "symbolic/impl.h"

namespace tatara {
namespace {

constexpr size_t kInlineStack = 32;
constexpr int64_t kFormat = 0x7461744578707232;  // "tatExpr2"

}  // namespace

ExprProgram::ExprProgram(Expr e, std::span<const Expr> symbol_order) {
  TATARA_CHECK(e.valid(), "ExprProgram of an invalid Expr");
  const auto emit = [&](auto&& self, NodePtr node) -> void {
    if (node->kind == ExprKind::kConst) {
      code_.push_back({ExprKind::kConst, node->value});
    } else if (node->kind == ExprKind::kSymbol) {
      const auto it = std::find(symbol_order.begin(), symbol_order.end(), Expr(node));
      TATARA_CHECK(it != symbol_order.end(), "ExprProgram: symbol ", Expr(node).str(), " is not among the inputs");
      code_.push_back({ExprKind::kSymbol, it - symbol_order.begin()});
    } else {
      // n operands give n - 1 binary instructions, each as soon as it can be, so the stack stays shallow.
      for (size_t i = 0; i < node->num_operands; ++i) {
        self(self, node->operand(i));
        if (i > 0) code_.push_back({node->kind, 2});
      }
      if (node->num_operands == 1) code_.push_back({node->kind, 1});
    }
  };
  emit(emit, e.node());
  check();
}

void ExprProgram::check() {
  size_t depth = 0;
  num_slots_ = 0;
  max_depth_ = 0;
  for (const Instruction& instruction : code_) {
    bool good = true;
    switch (instruction.kind) {
      case ExprKind::kConst: ++depth; break;
      case ExprKind::kSymbol:
        good = instruction.value >= 0 && instruction.value < (int64_t{1} << 32);
        if (good) num_slots_ = std::max(num_slots_, static_cast<size_t>(instruction.value) + 1);
        ++depth;
        break;
      case ExprKind::kNot: good = depth >= 1 && instruction.value == 1; break;
      case ExprKind::kAdd:
      case ExprKind::kMul:
      case ExprKind::kFloorDiv:
      case ExprKind::kMod:
      case ExprKind::kMin:
      case ExprKind::kMax:
      case ExprKind::kEq:
      case ExprKind::kNe:
      case ExprKind::kLt:
      case ExprKind::kLe:
      case ExprKind::kAnd:
      case ExprKind::kOr:
        good = depth >= 2 && instruction.value == 2;
        --depth;
        break;
    }
    if (!good) throw CompilationError("damaged expression program");
    max_depth_ = std::max(max_depth_, depth);
  }
  if (depth != 1 && !code_.empty()) throw CompilationError("damaged expression program");
}

std::optional<int64_t> ExprProgram::try_evaluate(std::span<const int64_t> symbol_values) const noexcept {
  if (code_.empty() || symbol_values.size() < num_slots_) return std::nullopt;
  int64_t fixed[kInlineStack] = {};
  std::vector<int64_t> large;  // no expression of a real program needs it
  int64_t* top = fixed;
  if (max_depth_ > kInlineStack) [[unlikely]] {
    large.resize(max_depth_);
    top = large.data();
  }
  for (const Instruction& instruction : code_) {
    if (instruction.kind == ExprKind::kConst) {
      *top++ = instruction.value;
      continue;
    }
    if (instruction.kind == ExprKind::kSymbol) {
      *top++ = symbol_values[static_cast<size_t>(instruction.value)];
      continue;
    }
    if (instruction.kind == ExprKind::kNot) {
      top[-1] = top[-1] == 0;
      continue;
    }
    const int64_t b = *--top;
    int64_t& a = top[-1];
    switch (instruction.kind) {
      case ExprKind::kAdd:
        if (__builtin_add_overflow(a, b, &a)) [[unlikely]]
          return std::nullopt;
        break;
      case ExprKind::kMul:
        if (__builtin_mul_overflow(a, b, &a)) [[unlikely]]
          return std::nullopt;
        break;
      case ExprKind::kFloorDiv:
        if (b == 0) return std::nullopt;
        a = floor_div(a, b);
        break;
      case ExprKind::kMod:
        if (b == 0) return std::nullopt;
        a = floor_mod(a, b);
        break;
      case ExprKind::kMin: a = std::min(a, b); break;
      case ExprKind::kMax: a = std::max(a, b); break;
      case ExprKind::kEq: a = a == b; break;
      case ExprKind::kNe: a = a != b; break;
      case ExprKind::kLt: a = a < b; break;
      case ExprKind::kLe: a = a <= b; break;
      case ExprKind::kAnd: a = a != 0 && b != 0; break;
      case ExprKind::kOr: a = a != 0 || b != 0; break;
      case ExprKind::kConst:
      case ExprKind::kSymbol:
      case ExprKind::kNot: break;  // above
    }
  }
  return top[-1];
}

int64_t ExprProgram::evaluate(std::span<const int64_t> symbol_values) const {
  TATARA_CHECK(!code_.empty(), "evaluate() of an empty ExprProgram");
  TATARA_CHECK(symbol_values.size() >= num_slots_, "ExprProgram needs ", num_slots_, " values, got ",
               symbol_values.size());
  const std::optional<int64_t> value = try_evaluate(symbol_values);
  if (!value) throw InvalidArgument("division by zero in a symbolic size, or a size beyond 64 bits");
  return *value;
}

bool ExprProgram::is_const() const { return code_.size() == 1 && code_[0].kind == ExprKind::kConst; }

std::vector<int64_t> ExprProgram::encode() const {
  std::vector<int64_t> out{kFormat, static_cast<int64_t>(code_.size())};
  for (const Instruction& instruction : code_) {
    out.push_back(static_cast<int64_t>(instruction.kind));
    out.push_back(instruction.value);
  }
  return out;
}

ExprProgram ExprProgram::decode(std::span<const int64_t> data) {
  if (data.size() < 2 || data[0] != kFormat || data.size() % 2 != 0 ||
      data[1] != static_cast<int64_t>(data.size() / 2 - 1)) {
    throw CompilationError("damaged expression program");
  }
  ExprProgram program;
  for (size_t i = 2; i < data.size(); i += 2) {
    if (data[i] < 0 || data[i] > static_cast<int64_t>(ExprKind::kNot)) {
      throw CompilationError("damaged expression program");
    }
    program.code_.push_back({static_cast<ExprKind>(data[i]), data[i + 1]});
  }
  program.check();
  return program;
}

}  // namespace tatara
