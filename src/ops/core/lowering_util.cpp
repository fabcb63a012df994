// Short forms of LoopBuilder, and what a LowerContext tells of its node.
#include "ops/core/lowering.h"

namespace tatara {

ScalarId LoopBuilder::apply1(ScalarOp op, ScalarId a) {
  DType result = dtype(a);
  if (op == ScalarOp::kIsNan || op == ScalarOp::kIsInf || op == ScalarOp::kSignbit) {
    result = DType::kBool;
  } else if (op == ScalarOp::kAbs || op == ScalarOp::kReal || op == ScalarOp::kImag || op == ScalarOp::kAngle) {
    result = real_dtype(result);
  }
  const ScalarId operands[] = {a};
  return apply(op, result, operands);
}

ScalarId LoopBuilder::apply2(ScalarOp op, ScalarId a, ScalarId b) {
  const ScalarId operands[] = {a, b};
  return apply(op, op == ScalarOp::kComplex ? complex_dtype(dtype(a)) : dtype(a), operands);
}

ScalarId LoopBuilder::compare(ScalarOp op, ScalarId a, ScalarId b) {
  const ScalarId operands[] = {a, b};
  return apply(op, DType::kBool, operands);
}

ScalarId LoopBuilder::select(ScalarId c, ScalarId a, ScalarId b) {
  const ScalarId operands[] = {c, a, b};
  return apply(ScalarOp::kSelect, dtype(a), operands);
}

int LowerContext::operand_number(size_t arg) const {
  const std::vector<Arg>& args = node().args;
  const auto* const tensor = std::get_if<TensorArg>(&args[arg]);
  if (tensor == nullptr || tensor->value == kNoValue) return -1;
  int number = 0;
  for (size_t i = 0; i < arg; ++i) {
    if (const auto* one = std::get_if<TensorArg>(&args[i])) {
      number += one->value == kNoValue ? 0 : 1;
    } else if (const auto* list = std::get_if<TensorList>(&args[i])) {
      for (const ValueId v : list->values) number += v == kNoValue ? 0 : 1;
    }
  }
  return number;
}

}  // namespace tatara
