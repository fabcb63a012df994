// What the pointwise families share: operands that may be tensors or numbers, promotion, result layout.
#pragma once

#include <span>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara::ops {

/// How the result dtype comes from the promoted operands.
enum class Promotion : uint8_t {
  kSame,        // the promoted type
  kIntToFloat,  // integers and bool become the default dtype
  kBool,        // computed in the promoted type, the result is bool
};

/// What eager's kernel makes of numbers among its operands: tensors without dimensions, which its iterator sees, or parameters.
enum class Numbers : uint8_t { kTensors, kParameters };

/// Type of a pointwise result over the given arguments (tensors or numbers).
TensorType pointwise_type(MetaContext& m, std::span<const size_t> operands, DType dtype,
                          Numbers numbers = Numbers::kTensors);
/// Strides of a tensor like `self` in torch's preserve_format.
std::vector<Expr> preserved_strides(MetaContext& m, const TensorType& self);
DType promoted(MetaContext& m, std::span<const size_t> operands, Promotion promotion);

/// Argument `arg` of a node being lowered as a scalar of `dtype` at the output's indices: a broadcast load or a constant.
ScalarId operand_at(LowerContext& ctx, LoopBuilder& b, size_t arg, DType dtype, std::span<const Expr> indices);
/// The same as eager's iterator hands it to the kernel of `common`, the dtype that the operands are promoted to: converted to that,
/// which rounds where it is a half type. `kept`: an operand of one element is read as it is.
ScalarId converted_at(LowerContext& ctx, LoopBuilder& b, size_t arg, DType common, bool kept,
                      std::span<const Expr> indices);
ScalarId number_as(LoopBuilder& b, const Scalar& value, DType dtype);
/// What these arguments are promoted to (integers made floating on request).
DType common_dtype(const LowerContext& ctx, std::span<const size_t> operands, Promotion promotion);
/// Defines output 0 as body(scalars of the operands, all of the computing dtype).
using PointwiseBody = std::function<ScalarId(LoopBuilder&, DType, std::span<const ScalarId>)>;
/// Which operands of one element eager's kernels of half types read as they are, without rounding.
enum class Keeps : uint8_t { kNone, kLast, kLastAndNumbers };
LowerFn pointwise_lower(std::vector<size_t> operands, Promotion promotion, PointwiseBody body,
                        Keeps keeps = Keeps::kNone);
MetaFn pointwise_meta(std::vector<size_t> operands, Promotion promotion);

}  // namespace tatara::ops
