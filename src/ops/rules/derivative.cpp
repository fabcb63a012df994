#include "ops/rules/derivative.h"

#include "support/error.h"

namespace tatara {

using namespace ops;

bool is_empty(const VjpContext& v, ValueId x) {
  for (const Expr size : v.builder().type(x).sizes) {
    if (is_zero(v.ctx(), size)) return true;
  }
  return false;
}

ValueId zeros_of(GraphBuilder& b, const TensorType& type) {
  return b.op("full", {SymInts{type.sizes}, is_integral(type.dtype) ? Scalar(int64_t{0}) : Scalar(0.0), type.dtype,
                       NoneArg{}, type.device});
}

ValueId zeros_of_operand(VjpContext& v, size_t arg) {
  return zeros_of(v.builder(), v.builder().type(v.args().tensor(arg)));
}

ValueId sum_to_sizes(GraphBuilder& b, ValueId value, const std::vector<Expr>& sizes) {
  const std::vector<Expr> from = b.type(value).sizes;
  if (from == sizes) return value;
  if (from.size() < sizes.size()) throw InternalError("a gradient of lower rank than its operand");
  const size_t extra = from.size() - sizes.size();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool reduced = i < extra || (is_one(b.ctx(), sizes[i - extra]) && !is_one(b.ctx(), from[i]));
    if (reduced) dims.push_back(static_cast<int64_t>(i));
  }
  if (!dims.empty()) value = b.reduce("sum", value, dims, true);
  return b.reshape(value, sizes);
}

ValueId tied(GraphBuilder& b, ValueId value, std::vector<ValueId> others, bool zeros) {
  std::erase(others, kNoValue);
  return b.op("tied", {TensorArg{value}, TensorList{std::move(others)}, bool_arg(zeros)});
}

ValueId with_tied_gradient(GraphBuilder& b, ValueId value, std::vector<ValueId> others, bool zeros) {
  std::erase(others, kNoValue);
  return b.op("gradient_tied", {TensorArg{value}, TensorList{std::move(others)}, bool_arg(zeros)});
}

bool is_tie(const OpDef& op) { return op.name == "tied" || op.name == "gradient_tied"; }

ValueId VjpContext::grad(size_t i) {
  if (cotangents_[i] == kNoValue) cotangents_[i] = zeros_of(builder_, builder_.type(out(i)));
  return cotangents_[i];
}

bool VjpContext::needs(size_t arg) const { return args_.is_tensor(arg) && wanted(args_.tensor(arg)); }

bool VjpContext::needs(size_t arg, size_t item) const {
  const auto* list = std::get_if<TensorList>(&args_[arg]);
  return list != nullptr && item < list->values.size() && wanted(list->values[item]);
}

void VjpContext::add(ValueId operand, ValueId value) {
  const TensorType type = builder_.type(operand);
  value = sum_to_sizes(builder_, value, type.sizes);
  const DType now = builder_.type(value).dtype;
  if (is_complex(now) && !is_complex(type.dtype)) value = builder_.unary("real_part", value);
  given_.push_back({operand, builder_.cast(value, type.dtype)});
}

void VjpContext::give(size_t arg, ValueId value) {
  if (needs(arg)) add(args_.tensor(arg), value);
}

void VjpContext::give(size_t arg, size_t item, ValueId value) {
  if (needs(arg, item)) add(std::get<TensorList>(args_[arg]).values[item], value);
}

void VjpContext::give_zeros(size_t arg) {
  if (needs(arg)) add(args_.tensor(arg), zeros_of(builder_, builder_.type(args_.tensor(arg))));
}

namespace ops {

Term masked_product(const VjpContext& v, Term zero, Term g, Term factor) {
  const auto masked = [&](Term x) { return zero.choose(Term{x.b, x.b->unary("zeros_like", x.id)}, x); };
  // A second reversal would give 0 * factor where the product is masked.
  return v.for_tangents() ? g * masked(factor) : masked(g * factor);
}

Term masked_quotient(const VjpContext& v, Term g, Term divisor) {
  const Term zero = divisor.bin("eq", 0.0);
  if (v.for_tangents()) divisor = zero.choose(Term{divisor.b, divisor.b->unary("ones_like", divisor.id)}, divisor);
  const Term share = g / divisor;
  return zero.choose(Term{share.b, share.b->unary("zeros_like", share.id)}, share);
}

}  // namespace ops
}  // namespace tatara
