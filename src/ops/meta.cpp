#include "ops/meta.h"

#include <algorithm>
#include <numeric>

#include "ops/op_def.h"
#include "support/error.h"

namespace tatara {

bool MetaContext::is_none(size_t i) const {
  if (i >= args_.size() || std::holds_alternative<NoneArg>(args_[i])) return true;
  const auto* tensor = std::get_if<TensorArg>(&args_[i]);
  return tensor != nullptr && tensor->value == kNoValue;
}

bool MetaContext::is_tensor(size_t i) const { return std::holds_alternative<TensorArg>(args_[i]) && !is_none(i); }

const TensorType& MetaContext::tensor(size_t i) const {
  const auto* tensor = std::get_if<TensorArg>(&args_[i]);
  if (tensor == nullptr || tensor->value == kNoValue) {
    throw InternalError(str_cat("argument ", i, " of ", op_.name, " is not a tensor"));
  }
  return graph_.type(tensor->value);
}

std::vector<const TensorType*> MetaContext::tensor_list(size_t i) const {
  const auto* list = std::get_if<TensorList>(&args_[i]);
  if (list == nullptr) throw InternalError(str_cat("argument ", i, " of ", op_.name, " is not a list of tensors"));
  std::vector<const TensorType*> types;
  for (const ValueId id : list->values) types.push_back(id == kNoValue ? nullptr : &graph_.type(id));
  return types;
}

Scalar MetaContext::scalar(size_t i) const {
  if (const auto* scalar = std::get_if<Scalar>(&args_[i])) return *scalar;
  throw InternalError(str_cat("argument ", i, " of ", op_.name, " is not a number"));
}

int64_t MetaContext::integer(size_t i) const {
  const Scalar value = scalar(i);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  if (const auto* n = std::get_if<int64_t>(&value)) return *n;
  if (const auto* e = std::get_if<Expr>(&value)) return ctx().specialize(*e);
  throw InvalidArgument(str_cat(op_.name, ": an integer is needed"));
}

double MetaContext::number(size_t i) const {
  const Scalar value = scalar(i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  return static_cast<double>(integer(i));
}

bool MetaContext::boolean(size_t i) const { return integer(i) != 0; }

std::vector<Expr> MetaContext::ints(size_t i) const {
  if (const auto* list = std::get_if<SymInts>(&args_[i])) return list->values;
  if (is_none(i)) return {};
  const Scalar value = scalar(i);
  if (const auto* e = std::get_if<Expr>(&value)) return {*e};
  return {ctx().constant(integer(i))};
}

std::optional<DType> MetaContext::dtype(size_t i) const {
  if (is_none(i)) return std::nullopt;
  if (const auto* dtype = std::get_if<DType>(&args_[i])) return *dtype;
  throw InternalError(str_cat("argument ", i, " of ", op_.name, " is not a dtype"));
}

std::string MetaContext::string(size_t i) const {
  if (const auto* text = std::get_if<std::string>(&args_[i])) return *text;
  throw InternalError(str_cat("argument ", i, " of ", op_.name, " is not a string"));
}

int64_t MetaContext::dim(size_t i, int64_t rank) const {
  const int64_t dim = integer(i);
  const int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound) {
    throw InvalidArgument(str_cat("Dimension out of range (expected to be in range of [", -bound, ", ", bound - 1,
                                  "], but got ", dim, ")"));
  }
  return dim < 0 ? dim + bound : dim;
}

std::vector<Expr> MetaContext::broadcast(std::span<const std::vector<Expr>* const> shapes) const {
  size_t rank = 0;
  for (const auto* shape : shapes) rank = std::max(rank, shape->size());
  std::vector<Expr> result(rank, ctx().constant(1));
  for (const auto* shape : shapes) {
    const size_t offset = rank - shape->size();
    for (size_t d = 0; d < shape->size(); ++d) {
      Expr& have = result[offset + d];
      const Expr size = (*shape)[d];
      if (size == have || size.is_const(1)) continue;
      if (have.is_const(1)) {
        have = size;
      } else if (!ctx().guard(ctx().eq(have, size))) {
        throw InvalidArgument(str_cat("The size of tensor a (", have.str(), ") must match the size of tensor b (",
                                      size.str(), ") at non-singleton dimension ", offset + d));
      } else if (size.is_const()) {
        have = size;
      }
    }
  }
  return result;
}

namespace {

struct Categories {
  std::optional<DType> dimensioned;
  std::optional<DType> zero_dim;
  std::optional<DType> wrapped;
};

void join(std::optional<DType>& into, DType dtype) { into = into ? promote_types(*into, dtype) : dtype; }

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || is_complex(*higher)) return higher;
  if (is_floating(*higher)) {
    if (!is_complex(*lower)) return higher;
    return *higher == DType::kBFloat16 ? DType::kComplex64 : complex_dtype(*higher);
  }
  if (*higher == DType::kBool || is_floating(*lower) || is_complex(*lower)) return promote_types(*higher, *lower);
  return higher;
}

}  // namespace

DType MetaContext::result_type(std::span<const size_t> arg_indices) const {
  Categories categories;
  const auto wrapped_of = [&](DType dtype) {
    if (is_complex(dtype)) return complex_dtype(default_dtype_);
    return is_floating(dtype) ? default_dtype_ : dtype;
  };
  for (const size_t i : arg_indices) {
    if (is_none(i)) continue;
    if (is_tensor(i)) {
      const TensorType& type = tensor(i);
      if (type.is_wrapped_number) {
        join(categories.wrapped, wrapped_of(type.dtype));
      } else {
        join(type.dim() == 0 ? categories.zero_dim : categories.dimensioned, type.dtype);
      }
      continue;
    }
    const Scalar value = scalar(i);
    DType dtype = DType::kInt64;
    if (std::holds_alternative<bool>(value)) dtype = DType::kBool;
    if (std::holds_alternative<double>(value)) dtype = default_dtype_;
    if (std::holds_alternative<std::complex<double>>(value)) dtype = complex_dtype(default_dtype_);
    join(categories.wrapped, dtype);
  }
  const auto result = combine(categories.dimensioned, combine(categories.zero_dim, categories.wrapped));
  if (!result) throw InternalError(op_.name + ": no operand to take a dtype from");
  return *result;
}

std::vector<Expr> MetaContext::iterator_strides(const std::vector<Expr>& sizes,
                                                std::span<const TensorType* const> operands) const {
  ExprContext& c = ctx();
  const size_t rank = sizes.size();
  if (rank < 2) return contiguous_strides(c, sizes);
  // Strides of each operand over the broadcast shape; a broadcast dimension has stride 0.
  std::vector<std::vector<Expr>> strides;
  for (const TensorType* type : operands) {
    std::vector<Expr> own(rank, c.constant(0));
    const size_t offset = rank - type->sizes.size();
    for (size_t d = 0; d < type->sizes.size(); ++d) {
      const bool broadcast = type->sizes[d].is_const(1) && !sizes[offset + d].is_const(1);
      if (!broadcast) own[offset + d] = type->strides[d];
    }
    strides.push_back(std::move(own));
  }
  // Operands of the result's shape whose strides agree and fill memory keep them.
  const bool same = !operands.empty() && std::all_of(operands.begin(), operands.end(), [&](const TensorType* type) {
    return type->sizes == sizes && type->strides == operands.front()->strides;
  });
  if (same && operands.front()->strides == contiguous_strides(c, sizes)) return operands.front()->strides;
  const auto order = [&](size_t a, size_t b) {  // > 0: b is faster than a
    for (const auto& own : strides) {
      const Expr x = own[a];
      const Expr y = own[b];
      if (x.is_const(0) || y.is_const(0)) continue;
      if (!(x == y)) return c.guard(c.lt(x, y)) ? -1 : 1;
      if (!(sizes[a] == sizes[b]) && c.guard(c.lt(sizes[b], sizes[a]))) return 1;
    }
    return 0;
  };
  std::vector<size_t> perm(rank);
  for (size_t d = 0; d < rank; ++d) perm[d] = rank - 1 - d;
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      const int comparison = order(perm[j], perm[at]);
      if (comparison > 0) {
        std::swap(perm[j], perm[at]);
        at = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  std::vector<Expr> result(rank);
  Expr running = c.constant(1);
  for (const size_t d : perm) {
    result[d] = running;
    running = c.mul(running, c.max(sizes[d], c.constant(1)));
  }
  return result;
}

}  // namespace tatara
