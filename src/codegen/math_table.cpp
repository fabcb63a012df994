#include "codegen/math_table.h"

#include <array>

#include "codegen/math_functions.h"
#include "support/error.h"

namespace tatara::codegen {

using loops::ScalarOp;

namespace {

struct Row {
  ScalarOp op;
  const char* name;
  MathForm f32;
  MathForm f64;
  Val (*unary)(const Val&);
  Val (*binary)(const Val&, const Val&);
};

// Short functions of machine learning's kernels are printed in place: a call would keep their values out of registers.
// The others are one function of the module, so that the copies of a loop's body share its code.
constexpr MathForm kNone = MathForm::kNone;
constexpr MathForm kInline = MathForm::kInline;
constexpr MathForm kCall = MathForm::kCall;
// clang-format off
constexpr Row kRows[] = {
    {ScalarOp::kExp, "exp", kInline, kNone, exp, nullptr},
    {ScalarOp::kExp2, "exp2", kInline, kNone, exp2, nullptr},
    {ScalarOp::kExpm1, "expm1", kInline, kNone, expm1, nullptr},
    {ScalarOp::kLog, "log", kInline, kNone, log, nullptr},
    {ScalarOp::kLog2, "log2", kInline, kNone, log2, nullptr},
    {ScalarOp::kLog10, "log10", kInline, kNone, log10, nullptr},
    {ScalarOp::kLog1p, "log1p", kInline, kNone, log1p, nullptr},
    {ScalarOp::kTanh, "tanh", kInline, kNone, tanh, nullptr},
    {ScalarOp::kSigmoid, "sigmoid", kInline, kNone, sigmoid, nullptr},
    {ScalarOp::kErf, "erf", kInline, kNone, erf, nullptr},
    {ScalarOp::kSin, "sin", kCall, kNone, sin, nullptr},
    {ScalarOp::kCos, "cos", kCall, kNone, cos, nullptr},
    {ScalarOp::kTan, "tan", kCall, kNone, tan, nullptr},
    {ScalarOp::kPow, "pow", kCall, kNone, nullptr, pow},
};
// clang-format on

const Row* find(ScalarOp op) {
  for (const Row& row : kRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

MathForm math_form(ScalarOp op, DType dtype, const MathTarget& target) {
  (void)target;
  const Row* row = find(op);
  if (row == nullptr) return MathForm::kNone;
  if (dtype == DType::kFloat32) return row->f32;
  if (dtype == DType::kFloat64) return row->f64;
  return MathForm::kNone;
}

Val expand_math(ScalarOp op, MathBuilder& builder, std::span<const Val> args) {
  (void)builder;
  const Row* row = find(op);
  TATARA_CHECK(row != nullptr, "the math table has no ", loops::scalar_op_name(op));
  return row->unary != nullptr ? row->unary(args[0]) : row->binary(args[0], args[1]);
}

std::string define_math(ScalarOp op, DType dtype, const MathTarget& target,
                        std::unordered_set<std::string>& declarations) {
  const Row* row = find(op);
  TATARA_CHECK(row != nullptr, "the math table has no ", loops::scalar_op_name(op));
  const Lane lane = dtype == DType::kFloat32 ? Lane::kF32 : Lane::kF64;
  std::string body;
  std::string block = "entry";
  int next = 0;
  MathBuilder builder({&body, &next, &block, &declarations}, target.lanes, target.has_fma);
  const size_t arity = row->unary != nullptr ? 1 : 2;
  const std::string type = builder.type(lane);
  std::vector<Val> args;
  std::string parameters;
  for (size_t i = 0; i < arity; ++i) {
    args.push_back(builder.value(lane, "%x" + std::to_string(i)));
    parameters += (i > 0 ? ", " : "") + type + " " + args.back().text;
  }
  const Val result = expand_math(op, builder, args);
  const std::string name = std::string("@tatara_") + row->name +
                           (target.lanes > 0 ? "_v" + std::to_string(target.lanes) : "_") +
                           (lane == Lane::kF32 ? "f32" : "f64");
  declarations.insert("define internal " + type + " " + name + "(" + parameters + ") " + target.attributes +
                      " {\nentry:\n" + body + "  ret " + type + " " + result.text + "\n}");
  return name;
}

}  // namespace tatara::codegen
