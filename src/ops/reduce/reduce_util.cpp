#include "ops/reduce/reduce_util.h"

#include "support/error.h"

namespace tatara::ops {

DType result_dtype(Result rule, DType self) {
  switch (rule) {
    case Result::kSame: return self;
    case Result::kSum: return is_integral(self) || self == DType::kBool ? DType::kInt64 : self;
    case Result::kBool: return self == DType::kUInt8 ? self : DType::kBool;
    case Result::kInt64: return DType::kInt64;
    case Result::kFloat: return self;
  }
  TATARA_UNREACHABLE("Result");
}

void require_real(const MetaContext& m, DType dtype) {
  if (is_complex(dtype)) throw InvalidArgument(str_cat(m.op().name, " is not supported for complex inputs"));
}

void require_float(const MetaContext& m, DType dtype) {
  if (!is_floating(dtype) && !is_complex(dtype)) {
    throw InvalidArgument(str_cat(m.op().name, "(): input dtype should be either floating point or complex"));
  }
}

std::vector<int64_t> arg_dims(const MetaContext& m, size_t i, int64_t rank) {
  if (m.is_none(i)) return wrap_dims({}, rank);
  if (std::holds_alternative<SymInts>(m.arg(i))) return wrap_dims(concrete(m.ctx(), m.ints(i)), rank);
  return wrap_dims({m.integer(i)}, rank);
}

std::vector<int64_t> arg_dims(const Args& args, size_t i, int64_t rank) { return args.dims(i, rank); }

void require_elements(const MetaContext& m, const TensorType& self, const std::vector<int64_t>& dims) {
  for (int64_t d : dims) {
    if (self.sizes[static_cast<size_t>(d)].is_const(0)) {
      throw InvalidArgument(str_cat(m.op().name, "(): Expected reduction dim ", d, " to have non-zero size."));
    }
  }
}

MetaFn reduce_meta(Result rule, bool real_only, bool needs_elements, int dtype_arg) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    if (real_only) require_real(m, self.dtype);
    const std::vector<int64_t> dims = arg_dims(m, 1, self.dim());
    if (needs_elements) require_elements(m, self, dims);
    DType dtype = result_dtype(rule, self.dtype);
    if (dtype_arg >= 0) dtype = m.dtype(static_cast<size_t>(dtype_arg)).value_or(dtype);
    if (rule == Result::kFloat) require_float(m, dtype);
    return {contiguous_type(m.ctx(), dtype, self.device, reduced_sizes(m.ctx(), self.sizes, dims, m.boolean(2)))};
  };
}

Expr reduced_count(GraphBuilder& b, const TensorType& self, const std::vector<int64_t>& dims) {
  Expr count = b.ctx().constant(1);
  for (int64_t d : dims) count = b.ctx().mul(count, self.sizes[static_cast<size_t>(d)]);
  return count;
}

ValueId mean_of(GraphBuilder& b, ValueId x, const std::vector<int64_t>& dims, bool keepdim) {
  const Expr count = reduced_count(b, b.type(x), dims);
  if (dims.empty()) return x;
  const ValueId sum = b.reduce("sum", x, dims, keepdim);
  return b.binary("div", sum, count.is_const() ? Scalar(static_cast<double>(count.const_value())) : Scalar(count));
}

}  // namespace tatara::ops
