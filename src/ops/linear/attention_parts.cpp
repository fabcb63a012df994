// Attention in kernels of our own (loops::Attention): what passes for GPUs make of products with a softmax between them, and of their
// gradients. No program has these operators.
#include <limits>

#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

using Values = std::vector<ValueId>;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<TensorType> scores_meta(MetaContext& m) {
  const TensorType& query = m.tensor(0);
  const TensorType& key = m.tensor(1);
  if (query.dim() != 4 || key.dim() != 4) throw InvalidArgument("attention_scores of no four-dimensional tensors");
  return {contiguous_type(m.ctx(), DType::kFloat32, query.device,
                          {query.sizes[0], query.sizes[1], query.sizes[2], key.sizes[2]})};
}

TensorType values_type(MetaContext& m) {
  const TensorType& scores = m.tensor(0);
  const TensorType& value = m.tensor(1);
  if (scores.dim() != 4 || value.dim() != 4) throw InvalidArgument("attention_values of no four-dimensional tensors");
  ExprContext& ctx = m.ctx();
  TensorType type = contiguous_type(ctx, value.dtype, value.device,
                                    {scores.sizes[0], scores.sizes[1], scores.sizes[2], value.sizes[3]});
  if (m.boolean(4)) {
    const Expr row = ctx.mul(type.sizes[1], type.sizes[3]);
    type.strides = {ctx.mul(row, type.sizes[2]), type.sizes[3], row, ctx.constant(1)};
  }
  return type;
}

std::vector<TensorType> values_meta(MetaContext& m) { return {values_type(m)}; }

/// One number for each row of the scores.
TensorType norms_type(MetaContext& m) {
  std::vector<Expr> sizes = m.tensor(0).sizes;
  sizes.back() = m.ctx().constant(1);
  return contiguous_type(m.ctx(), DType::kFloat32, m.tensor(0).device, sizes);
}

std::vector<TensorType> values_and_norms_meta(MetaContext& m) { return {values_type(m), norms_type(m)}; }

/// Of a sum whose values are operand `value`, with what its rows are, and its dtype.
TensorType sum_type(MetaContext& m, size_t value, bool turned, std::optional<DType> dtype) {
  const TensorType& shares = m.tensor(0);
  const TensorType& of = m.tensor(value);
  if (shares.dim() != 4 || of.dim() != 4) throw InvalidArgument("attention_sums of no four-dimensional tensors");
  return contiguous_type(m.ctx(), dtype.value_or(of.dtype), of.device,
                         {shares.sizes[0], shares.sizes[1], shares.sizes[turned ? 3 : 2], of.sizes[3]});
}

std::vector<TensorType> sums_meta(MetaContext& m) { return {sum_type(m, 1, m.boolean(4), m.dtype(5))}; }

std::vector<TensorType> two_sums_meta(MetaContext& m) {
  const bool turned = m.boolean(6);
  return {sum_type(m, 1, turned, m.dtype(7)), sum_type(m, 4, turned, m.dtype(8))};
}

// ---- While gradients are made ------------------------------------------------------------------------------------------

std::vector<TensorType> softmax_product_meta(MetaContext& m) {
  const TensorType& scores = m.tensor(0);
  const TensorType& value = m.tensor(1);
  if (scores.dim() < 3 || value.dim() != 3) throw InvalidArgument("softmax_product of other than batches of matrices");
  return {contiguous_type(m.ctx(), value.dtype, value.device,
                          {value.sizes[0], scores.sizes[scores.sizes.size() - 2], value.sizes[2]}),
          norms_type(m)};
}

/// As matrices of a batch.
ValueId as_batch(GraphBuilder& b, ValueId x, Expr batch) {
  const std::vector<Expr> sizes = b.type(x).sizes;
  return b.reshape(x, {batch, sizes[sizes.size() - 2], sizes.back()});
}

/// (scores, value, zero)
Values decompose_softmax_product(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const bool zero = args.flag(2);
  const TensorType value = args.type(1);
  const ValueId scores = b.cast(args.tensor(0), DType::kFloat32);
  const ValueId most = b.reduce("amax", scores, {-1}, true);
  const ValueId base = b.where(b.binary("eq", most, Scalar(-kInf)), b.constant(0, DType::kFloat32, value.device), most);
  const ValueId sum = b.reduce("sum", b.unary("exp", b.binary("sub", scores, base)), {-1}, true);
  const ValueId past =
      b.constant(zero ? kInf : std::numeric_limits<double>::quiet_NaN(), DType::kFloat32, value.device);
  const ValueId norm = b.where(b.binary("eq", sum, Scalar(0.0)), past, b.binary("add", base, b.unary("log", sum)));
  const ValueId shares = b.op(zero ? "_safe_softmax" : "softmax", {TensorArg{scores}, Scalar(int64_t{-1}), NoneArg{}});
  const ValueId out = b.binary("bmm", as_batch(b, b.cast(shares, value.dtype), value.sizes[0]), args.tensor(1));
  return {out, norm};
}

/// The derivative by the logarithms of sums, so that no share need be kept: of each score its share, times what the gradient of the
/// share has over the sum of gradients by shares of the row (Dao et al., "FlashAttention", 2022, section 3.1).
void softmax_product_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const TensorType scores_type = v.args().type(0), value_type = v.args().type(1);
  const Node* made = b.graph().producer(v.args().tensor(0));
  // What is computed once more belongs to the scores' region.
  if (made != nullptr) b.set_region(made->region);
  const Expr batch = value_type.sizes[0];
  const ValueId grad = v.grad(0);
  const Term scores = term(v, b.cast(v.args().tensor(0), DType::kFloat32));
  const Term share = term(v, b.op("softmax_share", {TensorArg{scores.id}, TensorArg{v.out(1)}}));
  const auto turned = [&](ValueId x) { return b.permute(x, {0, 2, 1}); };
  if (v.needs(1)) {
    v.give(1, b.binary("bmm", turned(as_batch(b, b.cast(share.id, value_type.dtype), batch)), grad));
  }
  if (!v.needs(0)) return;
  const ValueId by_share = b.binary("bmm", grad, turned(v.args().tensor(1)));
  const Term gradient = term(v, b.reshape(b.cast(by_share, DType::kFloat32), scores_type.sizes));
  const auto wide = [&](ValueId x) { return term(v, b.cast(x, DType::kFloat32)); };
  const ValueId sums = b.reduce("sum", (wide(grad) * wide(v.out(0))).id, {-1}, true);
  Term sum = term(v, b.reshape(sums, b.type(v.out(1)).sizes));
  if (v.has_grad(1)) sum = sum - term(v, v.grad(1));
  v.give(0, (share * (gradient - sum)).id);
}

std::vector<TensorType> share_meta(MetaContext& m) {
  return {contiguous_type(m.ctx(), DType::kFloat32, m.tensor(0).device, m.tensor(0).sizes)};
}

void lower_share(LowerContext& c) {
  c.pointwise(0, [&c](LoopBuilder& b, std::span<const Expr> at) {
    const std::vector<Expr> row = broadcast_indices(c.ctx(), at, c.operand(1).sizes);
    const ScalarId less = b.apply2(ScalarOp::kSub, b.load(0, at), b.load(1, row));
    return b.apply1(ScalarOp::kExpTerm, less);
  });
}

Values share_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {b.unary("exp", b.binary("sub", args.tensor(0), args.tensor(1)))};
}

}  // namespace

void register_attention_parts(OpRegistry& r) {
  // [batch, heads, rows, width] x [1 or batch, some heads, keys, width] of a half type: [batch, heads, rows, keys] in float32, and then,
  // through operators that go element by element, softmax(scores) x [1 or batch, some heads, keys, width]. A row whose scores are all
  // -infinity gives zeros, or no numbers. `needed`: which blocks of keys are (needed_blocks). `outside`: in the
  // result's memory rows lie outside of heads.
  r.add(make_op({"attention_scores", OpKind::kIndexing, "(Tensor query, Tensor key) -> Tensor", ""}, scores_meta,
                nullptr, [](LowerContext& c) { c.attention_scores(); }));
  r.add(make_op({"attention_values", OpKind::kIndexing,
                 "(Tensor scores, Tensor value, Tensor? needed, bool zero, bool outside) -> Tensor", ""},
                values_meta, nullptr, [](LowerContext& c) { c.attention(); }));
  // Likewise, with the logarithm of each row's sum of exponentials: +infinity for a row that gives zeros.
  r.add(make_op({"attention_values_and_norms", OpKind::kIndexing,
                 "(Tensor scores, Tensor value, Tensor? needed, bool zero, bool outside) -> (Tensor, Tensor)", ""},
                values_and_norms_meta, nullptr, [](LowerContext& c) { c.attention(); }));
  // shares x [1 or batch, some heads, keys, width], or with `turned` their adjoint x [..., rows, width]; shares are computed element by
  // element from one or two attention_scores, and zero where `scores` are -infinity.
  r.add(make_op(
      {"attention_sums", OpKind::kIndexing,
       "(Tensor shares, Tensor value, Tensor scores, Tensor? needed, bool turned, ScalarType? dtype) -> Tensor", ""},
      sums_meta, nullptr, [](LowerContext& c) { c.attention(); }));
  // Two of these in one kernel.
  r.add(make_op({"attention_two_sums", OpKind::kIndexing,
                 "(Tensor shares, Tensor value, Tensor scores, Tensor more_shares, Tensor more_value, Tensor? needed, "
                 "bool turned, ScalarType? dtype, ScalarType? more_dtype) -> (Tensor, Tensor)",
                 ""},
                two_sums_meta, nullptr, [](LowerContext& c) { c.attention(); }));

  // softmax(scores [..., rows, keys]) of a half type x value [batch, keys, width], and the logarithms as above [..., rows, 1].
  OpDef product = make_op(
      {"softmax_product", OpKind::kComposite, "(Tensor scores, Tensor value, bool zero) -> (Tensor, Tensor)", ""},
      softmax_product_meta, decompose_softmax_product);
  product.traits.holds_products = true;
  product.vjp = softmax_product_rule;
  r.add(std::move(product));
  // exp(scores - norms) in float32, at most 1: [..., rows, keys] and [..., rows, 1].
  OpDef share = make_op({"softmax_share", OpKind::kPointwise, "(Tensor scores, Tensor norms) -> Tensor", ""},
                        share_meta, nullptr, lower_share);
  share.differentiable_parts = share_parts;
  r.add(std::move(share));
}

}  // namespace tatara
