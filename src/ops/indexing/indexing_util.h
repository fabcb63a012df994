// What the families of operators with indices share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara::ops {

/// A value read as an index into a dimension.
inline Expr lookup(LoopBuilder& b, ScalarId value, Expr size, bool wrap) {
  return b.indirect(b.cast(value, DType::kInt64), size, wrap, true);
}

/// A number as a constant of the type that `dtype` is computed in.
ScalarId scalar_constant(LoopBuilder& b, const Scalar& value, DType dtype);

/// The value of a tensor operand at the same position.
inline ElementFn operand_value(int operand) {
  return [=](LoopBuilder& b, std::span<const Expr> iter) { return b.load(operand, iter); };
}

/// What is added at indices on a GPU, of types that its memory does not add (half types, narrow integers): the operator on wider
/// ones, whose sum is rounded once. `source` is the place of what is added. Empty: it stays as it is.
std::vector<ValueId> add_in_wide(GraphBuilder& b, std::string_view op, std::span<const Arg> arguments, size_t source);

/// Indices out of bounds are an error.
inline void add_checking(OpRegistry& r, OpDef def) {
  def.checks_values = true;
  r.add(std::move(def));
}

}  // namespace tatara::ops
