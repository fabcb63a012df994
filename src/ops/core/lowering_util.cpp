// Short forms of LoopBuilder.
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

}  // namespace tatara
