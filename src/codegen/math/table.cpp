#include "codegen/math/table.h"

#include <array>

#include "codegen/math/functions.h"
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
    {ScalarOp::kExp, "exp", kInline, kInline, exp, nullptr},
    {ScalarOp::kExpTerm, "exp_term", kInline, kInline, exp_term, nullptr},
    {ScalarOp::kExp2, "exp2", kInline, kInline, exp2, nullptr},
    {ScalarOp::kExpm1, "expm1", kInline, kCall, expm1, nullptr},
    {ScalarOp::kLog, "log", kInline, kCall, log, nullptr},
    {ScalarOp::kLog2, "log2", kInline, kCall, log2, nullptr},
    {ScalarOp::kLog10, "log10", kInline, kCall, log10, nullptr},
    {ScalarOp::kLog1p, "log1p", kInline, kCall, log1p, nullptr},
    {ScalarOp::kSinh, "sinh", kCall, kCall, sinh, nullptr},
    {ScalarOp::kCosh, "cosh", kCall, kCall, cosh, nullptr},
    {ScalarOp::kTanh, "tanh", kInline, kCall, tanh, nullptr},
    {ScalarOp::kSigmoid, "sigmoid", kInline, kInline, sigmoid, nullptr},
    {ScalarOp::kErf, "erf", kInline, kCall, erf, nullptr},
    {ScalarOp::kErfc, "erfc", kCall, kCall, erfc, nullptr},
    {ScalarOp::kErfinv, "erfinv", kCall, kCall, erfinv, nullptr},
    {ScalarOp::kNdtri, "ndtri", kCall, kCall, ndtri, nullptr},
    {ScalarOp::kLogNdtr, "log_ndtr", kCall, kCall, log_ndtr, nullptr},
    {ScalarOp::kLgamma, "lgamma", kCall, kCall, lgamma, nullptr},
    {ScalarOp::kDigamma, "digamma", kCall, kCall, digamma, nullptr},
    {ScalarOp::kI0, "i0", kCall, kCall, i0, nullptr},
    {ScalarOp::kI0e, "i0e", kCall, kCall, i0e, nullptr},
    {ScalarOp::kI1, "i1", kCall, kCall, i1, nullptr},
    {ScalarOp::kI1e, "i1e", kCall, kCall, i1e, nullptr},
    {ScalarOp::kSin, "sin", kCall, kCall, sin, nullptr},
    {ScalarOp::kCos, "cos", kCall, kCall, cos, nullptr},
    {ScalarOp::kTan, "tan", kCall, kCall, tan, nullptr},
    {ScalarOp::kAsin, "asin", kInline, kCall, asin, nullptr},
    {ScalarOp::kAcos, "acos", kInline, kCall, acos, nullptr},
    {ScalarOp::kAtan, "atan", kInline, kCall, atan, nullptr},
    {ScalarOp::kAsinh, "asinh", kCall, kCall, asinh, nullptr},
    {ScalarOp::kAcosh, "acosh", kCall, kCall, acosh, nullptr},
    {ScalarOp::kAtanh, "atanh", kCall, kCall, atanh, nullptr},
    {ScalarOp::kAtan2, "atan2", kCall, kCall, nullptr, atan2},
    {ScalarOp::kPow, "pow", kCall, kCall, nullptr, pow},
    {ScalarOp::kHypot, "hypot", kCall, kCall, nullptr, hypot},
    {ScalarOp::kFmod, "fmod", kCall, kCall, nullptr, fmod},
};
// clang-format on

const Row* find(ScalarOp op) {
  for (const Row& row : kRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

Lane math_lane(DType dtype) {
  return dtype == DType::kFloat32 ? Lane::kF32 : dtype == DType::kFloat64 ? Lane::kF64 : Lane::kI64;
}

MathForm math_form(ScalarOp op, DType dtype, const MathTarget& target) {
  if (op == ScalarOp::kPow && dtype == DType::kInt64) return MathForm::kCall;
  // The long division of float64 needs exact products.
  if (op == ScalarOp::kFmod && dtype == DType::kFloat64 && !target.has_fma) return MathForm::kNone;
  const Row* row = find(op);
  if (row == nullptr) return MathForm::kNone;
  if (dtype == DType::kFloat32) return row->f32;
  if (dtype == DType::kFloat64) return row->f64;
  return MathForm::kNone;
}

Val expand_math(ScalarOp op, std::span<const Val> args) {
  const Row* row = find(op);
  TATARA_CHECK(row != nullptr, "the math table has no ", loops::scalar_op_name(op));
  if (args[0].lane == Lane::kI64) return integer_pow(args[0], args[1]);
  return row->unary != nullptr ? row->unary(args[0]) : row->binary(args[0], args[1]);
}

std::string define_math(ScalarOp op, DType dtype, const MathTarget& target, Declarations& declarations) {
  const Row* row = find(op);
  TATARA_CHECK(row != nullptr, "the math table has no ", loops::scalar_op_name(op));
  const Lane lane = math_lane(dtype);
  std::string entry;
  IrWriter ir(declarations);
  MathBuilder builder(ir, target, &entry);
  const size_t arity = row->unary != nullptr ? 1 : 2;
  const std::string type = builder.type(lane);
  std::vector<Val> args;
  std::string parameters;
  for (size_t i = 0; i < arity; ++i) {
    args.push_back(builder.value(lane, "%x" + std::to_string(i)));
    parameters += (i > 0 ? ", " : "") + type + " " + args.back().text;
  }
  const Val result = expand_math(op, args);
  const char* suffix = lane == Lane::kF32 ? "f32" : lane == Lane::kF64 ? "f64" : "i64";
  const std::string width = target.lanes > 0 ? "_v" + std::to_string(target.lanes) : "_";
  const std::string name = std::string("@tatara_") + row->name + width + suffix;
  declarations.insert("define internal " + type + " " + name + "(" + parameters + ") " + target.attributes +
                      " {\nentry:\n" + entry + ir.take() + "  ret " + type + " " + result.text + "\n}");
  return name;
}

}  // namespace tatara::codegen
