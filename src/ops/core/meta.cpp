#include "ops/core/meta.h"

#include <algorithm>
#include <numeric>

#include "ops/core/family_util.h"
#include "ops/core/op_def.h"
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

namespace {

bool is_channels_last_4d(ExprContext& c, const TensorType& type) {
  if (type.dim() != 4) return false;
  Expr expected = c.constant(1);
  for (const size_t d : {size_t{1}, size_t{3}, size_t{2}, size_t{0}}) {
    if (type.sizes[d].is_const(1)) continue;
    if (!ops::same_size(c, type.strides[d], expected)) return false;
    expected = c.mul(expected, type.sizes[d]);
  }
  return true;
}

/// What eager's iterator does when all operands have the shape of the result: nullopt when that path is not taken.
std::optional<std::vector<Expr>> same_shape_strides(ExprContext& c, const std::vector<Expr>& sizes,
                                                    std::span<const TensorType* const> operands) {
  for (const TensorType* type : operands) {
    if (type == nullptr || type->sizes != sizes) return std::nullopt;
  }
  const auto all = [&](auto&& test) { return std::all_of(operands.begin(), operands.end(), test); };
  const std::vector<Expr> plain = contiguous_strides(c, sizes);
  if (all([&](const TensorType* t) { return t->strides == plain || ops::is_contiguous(c, *t); })) return plain;
  if (all([&](const TensorType* t) { return is_channels_last_4d(c, *t); })) {
    return ops::layout_strides(c, sizes, ops::Layout::kChannelsLast);
  }
  const TensorType* last = operands.back();
  if (all([&](const TensorType* t) { return ops::same_sizes(c, t->strides, last->strides) && ops::is_dense(c, *t); })) {
    return last->strides;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Expr> MetaContext::iterator_strides(const std::vector<Expr>& sizes,
                                                std::span<const TensorType* const> operands) const {
  ExprContext& c = ctx();
  const size_t rank = sizes.size();
  if (operands.empty() || rank <= 1) return contiguous_strides(c, sizes);
  if (auto fast = same_shape_strides(c, sizes, operands)) return *fast;

  // Broadcast strides of each operand; dimensions are then sorted by them, innermost first, ties left as they are.
  const Expr zero = c.constant(0);
  std::vector<std::vector<Expr>> strides;
  for (const TensorType* type : operands) {
    if (type == nullptr || type->dim() == 0) continue;
    std::vector<Expr> row(rank, zero);
    const size_t skip = rank - type->sizes.size();
    for (size_t i = 0; i < type->sizes.size(); ++i) {
      const bool repeated = type->sizes[i].is_const(1) && !sizes[skip + i].is_const(1);
      if (!repeated) row[skip + i] = type->strides[i];
    }
    strides.push_back(std::move(row));
  }
  const auto less = [&](Expr a, Expr b) { return !(a == b) && c.guard(c.lt(a, b)); };
  const auto compare = [&](size_t d0, size_t d1) {
    for (const auto& row : strides) {
      if (row[d0].is_const(0) || row[d1].is_const(0)) continue;
      if (less(row[d0], row[d1])) return -1;
      if (less(row[d1], row[d0])) return 1;
      if (less(sizes[d1], sizes[d0])) return 1;
    }
    return 0;
  };
  std::vector<size_t> perm(rank);
  for (size_t i = 0; i < rank; ++i) perm[i] = rank - 1 - i;
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t before = i; before-- > 0;) {
      const int order = compare(perm[before], perm[at]);
      if (order > 0) {
        std::swap(perm[before], perm[at]);
        at = before;
      } else if (order < 0) {
        break;
      }
    }
  }
  bool inverted = true;
  for (size_t i = 0; i < rank; ++i) inverted = inverted && perm[i] == rank - 1 - i;
  if (inverted) return contiguous_strides(c, sizes);
  std::vector<Expr> result(rank);
  Expr next = c.constant(1);
  for (const size_t d : perm) {
    result[d] = next;
    next = c.mul(next, sizes[d]);
  }
  return result;
}

}  // namespace tatara
