// What the families of reductions share.
#pragma once

#include <vector>

#include "ops/core/family_util.h"

namespace tatara::ops {

/// How the result dtype follows from self's.
enum class Result : uint8_t { kSame, kSum, kBool, kInt64, kFloat };

DType result_dtype(Result rule, DType self);

/// InvalidArgument unless the type is real.
void require_real(const MetaContext& m, DType dtype);
/// InvalidArgument for integers and bool.
void require_float(const MetaContext& m, DType dtype);
/// InvalidArgument where one of the dimensions is empty.
void require_elements(const MetaContext& m, const TensorType& self, const std::vector<int64_t>& dims);

/// Dimensions of an optional list or single dimension argument.
std::vector<int64_t> arg_dims(const MetaContext& m, size_t i, int64_t rank);
std::vector<int64_t> arg_dims(const Args& args, size_t i, int64_t rank);

/// The type of a reduction (self, dim, keepdim), with a dtype in argument `dtype_arg` unless it is negative.
MetaFn reduce_meta(Result rule, bool real_only, bool needs_elements, int dtype_arg = -1);

/// How many elements the dimensions have.
Expr reduced_count(GraphBuilder& b, const TensorType& self, const std::vector<int64_t>& dims);
ValueId mean_of(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims, bool keepdim);

}  // namespace tatara::ops
