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

namespace {

/// The element of a block at this place, where that is not known before the kernel runs.
ScalarId chosen(LoopBuilder& b, const std::vector<ScalarId>& all, Expr place) {
  const ScalarId at = b.index_value(place, DType::kInt32);
  ScalarId result = all.front();
  for (size_t i = 1; i < all.size(); ++i) {
    const ScalarId here = b.compare(ScalarOp::kEq, at, b.constant_int(static_cast<int64_t>(i), DType::kInt32));
    result = b.select(here, all[i], result);
  }
  return result;
}

}  // namespace

void LowerContext::block(int output, size_t dims, BlockFn fn) {
  const std::vector<Expr>& sizes = result(output).sizes;
  pointwise(output, [&c = ctx(), &sizes, dims, fn = std::move(fn)](LoopBuilder& b, std::span<const Expr> indices) {
    const size_t before = sizes.size() - dims;
    Expr place = c.constant(0);
    for (size_t d = before; d < sizes.size(); ++d) place = c.add(c.mul(place, sizes[d]), indices[d]);
    place = c.simplify(place);
    const std::vector<ScalarId> all = fn(b, indices.first(before));
    return place.is_const() ? all[static_cast<size_t>(place.const_value())] : chosen(b, all, place);
  });
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
