#include "codegen/core/c_functions.h"

namespace tatara::codegen {

namespace {

using Op = loops::ScalarOp;

struct Row {
  Op op;
  const char* real;
  const char* complex;
};

constexpr Row kRows[] = {
    {Op::kExp, "exp", "cexp"},        {Op::kExpTerm, "exp", nullptr},
    {Op::kExp2, "exp2", nullptr},     {Op::kExpm1, "expm1", nullptr},
    {Op::kLog, "log", "clog"},        {Op::kLog2, "log2", nullptr},
    {Op::kLog10, "log10", nullptr},   {Op::kLog1p, "log1p", nullptr},
    {Op::kSqrt, nullptr, "csqrt"},    {Op::kSin, "sin", "csin"},
    {Op::kCos, "cos", "ccos"},        {Op::kTan, "tan", "ctan"},
    {Op::kAsin, "asin", "casin"},     {Op::kAcos, "acos", "cacos"},
    {Op::kAtan, "atan", "catan"},     {Op::kAtan2, "atan2", nullptr},
    {Op::kSinh, "sinh", "csinh"},     {Op::kCosh, "cosh", "ccosh"},
    {Op::kTanh, "tanh", "ctanh"},     {Op::kAsinh, "asinh", "casinh"},
    {Op::kAcosh, "acosh", "cacosh"},  {Op::kAtanh, "atanh", "catanh"},
    {Op::kErf, "erf", nullptr},       {Op::kErfc, "erfc", nullptr},
    {Op::kLgamma, "lgamma", nullptr}, {Op::kPow, "pow", "cpow"},
    {Op::kHypot, "hypot", nullptr},   {Op::kNextafter, "nextafter", nullptr},
    {Op::kFmod, "fmod", nullptr},
};

const Row* find(Op op) {
  for (const Row& row : kRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

const char* c_function(Op op) {
  const Row* row = find(op);
  return row == nullptr ? nullptr : row->real;
}

const char* complex_c_function(Op op) {
  const Row* row = find(op);
  return row == nullptr ? nullptr : row->complex;
}

}  // namespace tatara::codegen
