#include "codegen/core/c_functions.h"

namespace tatara::codegen {

namespace {

using Op = loops::ScalarOp;

struct Row {
  Op op;
  const char* name;
};

constexpr Row kRows[] = {
    {Op::kExp, "exp"},     {Op::kExpTerm, "exp"}, {Op::kExp2, "exp2"},
    {Op::kExpm1, "expm1"}, {Op::kLog, "log"},     {Op::kLog2, "log2"},
    {Op::kLog10, "log10"}, {Op::kLog1p, "log1p"}, {Op::kSin, "sin"},
    {Op::kCos, "cos"},     {Op::kTan, "tan"},     {Op::kAsin, "asin"},
    {Op::kAcos, "acos"},   {Op::kAtan, "atan"},   {Op::kAtan2, "atan2"},
    {Op::kSinh, "sinh"},   {Op::kCosh, "cosh"},   {Op::kTanh, "tanh"},
    {Op::kAsinh, "asinh"}, {Op::kAcosh, "acosh"}, {Op::kAtanh, "atanh"},
    {Op::kErf, "erf"},     {Op::kErfc, "erfc"},   {Op::kLgamma, "lgamma"},
    {Op::kPow, "pow"},     {Op::kHypot, "hypot"}, {Op::kNextafter, "nextafter"},
    {Op::kFmod, "fmod"},
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
  return row == nullptr ? nullptr : row->name;
}

}  // namespace tatara::codegen
