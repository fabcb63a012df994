// Gradients of attention: by the host's flash kernels where eager's forward takes them, else by its parts.
#include <cmath>

#include "ops/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr const char* kFlash = "_scaled_dot_product_flash_attention_for_cpu";
constexpr const char* kFlashBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";

Term transposed(Term x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.type().dim(); ++d) dims.push_back(d);
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return {x.b, x.b->permute(x.id, dims)};
}

double scale_of(const Args& args, size_t at, const TensorType& query) {
  if (!args.none(at)) return args.number(at);
  if (!query.sizes.back().is_const()) throw Unsupported("the derivative of attention over a symbolic head size");
  return 1 / std::sqrt(static_cast<double>(query.sizes.back().const_value()));
}

/// Scores with what may not be seen at -inf.
Term masked(Term scores, const Args& args, size_t mask_at, bool causal) {
  GraphBuilder& b = *scores.b;
  if (causal) {
    const TensorType type = scores.type();
    const Expr rows = type.sizes[type.sizes.size() - 2], columns = type.sizes.back();
    const ValueId ones = b.op("full", {SymInts{{rows, columns}}, Scalar(true), DType::kBool, NoneArg{}, type.device});
    scores = Term{&b, b.op("tril", {TensorArg{ones}})}.choose(scores, -INFINITY);
  }
  if (!args.none(mask_at)) {
    const Term mask{&b, args.tensor(mask_at)};
    scores = mask.type().dtype == DType::kBool ? mask.choose(scores, -INFINITY) : scores + mask;
  }
  return scores;
}

/// Weights of the keys. A row without any key weighs nothing.
Term weights_of(Term scores, bool hidden_rows) {
  return {scores.b,
          scores.b->op(hidden_rows ? "_safe_softmax" : "softmax", {TensorArg{scores.id}, int_arg(-1), NoneArg{}})};
}

/// Keys or values with one head for each head of the query.
Term grouped(Term x, TensorType query) {
  const TensorType type = x.type();
  if (type.dim() < 3) throw Unsupported("grouped attention without heads");
  const size_t at = type.sizes.size() - 3;
  ExprContext& ctx = x.b->ctx();
  if (same_size(ctx, type.sizes[at], query.sizes[at])) return x;
  const Expr times = ctx.floordiv(query.sizes[at], type.sizes[at]);
  return {x.b, x.b->op("repeat_interleave.self_int",
                       {TensorArg{x.id}, expr_arg(times), int_arg(static_cast<int64_t>(at)), NoneArg{}})};
}

/// softmax(q @ k.T * scale + mask) @ v, as eager's plain composition computes it, in float32 for smaller dtypes.
/// (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
Values composition(GraphBuilder& b, const Args& args) {
  const TensorType q = args.type(0);
  const double scale = scale_of(args, 6, q);
  const bool small = q.dtype == DType::kFloat16 || q.dtype == DType::kBFloat16;
  const auto wide = [&](size_t i) {
    return Term{&b, small ? b.cast(args.tensor(i), DType::kFloat32) : args.tensor(i)};
  };
  const Term query = wide(0);
  Term key = wide(1), value = wide(2);
  if (args.flag(7)) {
    key = grouped(key, q);
    value = grouped(value, q);
  }
  const double root = std::sqrt(std::abs(scale));
  const Term left = query * (scale < 0 ? -root : root), right = transposed(key) * root;
  const bool causal = args.flag(5);
  const Term scores = masked(left.bin("matmul", right), args, 3, causal);
  Term weights = weights_of(scores, causal || !args.none(3));
  if (args.number(4) != 0) {
    weights = Term{&b, b.op("dropout", {TensorArg{weights.id}, Scalar(args.number(4)), Scalar(true)})};
  }
  return {b.cast(weights.bin("matmul", value).id, q.dtype)};
}

bool fits_flash(GraphBuilder& b, const Args& args) {
  if (args.number(4) != 0) return false;
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
    const TensorType type = args.type(i);
    if (type.dim() != 4 || type.device.kind != DeviceKind::kCpu || !is_one(b.ctx(), type.strides[3])) return false;
  }
  const TensorType q = args.type(0), k = args.type(1), v = args.type(2);
  for (const size_t d : {size_t{0}, size_t{3}}) {
    if (!same_size(b.ctx(), q.sizes[d], k.sizes[d]) || !same_size(b.ctx(), q.sizes[d], v.sizes[d])) return false;
  }
  if (!args.flag(7) && (!same_size(b.ctx(), q.sizes[1], k.sizes[1]) || !same_size(b.ctx(), q.sizes[1], v.sizes[1]))) {
    return false;
  }
  if (is_zero(b.ctx(), q.sizes[2]) || is_zero(b.ctx(), k.sizes[2])) return false;
  if (args.none(3)) return true;
  // A mask of exactly the scores' sizes, or of ones: what else eager's kernel takes is left to the composition.
  const TensorType mask = args.type(3);
  if (mask.dim() != 4 && mask.dim() != 2) return false;
  const Expr full[] = {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]};
  for (size_t i = 0; i < mask.sizes.size(); ++i) {
    const Expr size = mask.sizes[i];
    if (!is_one(b.ctx(), size) && !same_size(b.ctx(), size, full[4 - mask.sizes.size() + i])) return false;
  }
  return true;
}

/// Where gradients flow.
Values attention_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (!fits_flash(b, args)) return composition(b, args);
  Arg mask = arguments[3];
  if (!args.none(3) && args.type(3).dtype == DType::kBool) {
    const TensorType q = args.type(0);
    const Term seen{&b, args.tensor(3)}, zero{&b, b.constant(0, q.dtype, q.device)};
    mask = TensorArg{seen.choose(zero, -INFINITY).id};
  }
  return {b.op_multi(kFlash, {arguments[0], arguments[1], arguments[2], arguments[4], arguments[5], mask, arguments[6]})
              .front()};
}

/// Where none do: only random numbers ask for the parts.
Values decompose_attention(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.number(4) == 0) return {};
  return composition(b, args);
}

/// [batch, heads, length, size], laid out as [batch, length, heads, size].
TensorType heads_inside(ExprContext& ctx, const TensorType& like) {
  TensorType type = contiguous_type(ctx, like.dtype, like.device, like.sizes);
  const Expr size = like.sizes[3], row = ctx.mul(like.sizes[1], size);
  type.strides = {ctx.mul(like.sizes[2], row), size, row, ctx.constant(1)};
  return type;
}

// (query, key, value, dropout_p, is_causal, attn_mask, scale)
std::vector<TensorType> flash_meta(MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& q = m.tensor(0);
  TensorType out = q;
  const TensorType* operands[] = {&q};
  out.is_wrapped_number = false;
  out.strides = m.iterator_strides(q.sizes, operands);
  const bool small = q.dtype == DType::kFloat16 || q.dtype == DType::kBFloat16;
  TensorType sums =
      contiguous_type(ctx, small ? DType::kFloat32 : q.dtype, q.device, {q.sizes[0], q.sizes[1], q.sizes[2]});
  sums.strides = {ctx.mul(q.sizes[1], q.sizes[2]), ctx.constant(1), q.sizes[1]};
  return {out, sums};
}

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)
std::vector<TensorType> flash_backward_meta(MetaContext& m) {
  return {heads_inside(m.ctx(), m.tensor(1)), heads_inside(m.ctx(), m.tensor(2)), heads_inside(m.ctx(), m.tensor(3))};
}

struct Pieces {
  Term query, key, value, weights;
  double scale = 1;
};

/// What the gradients of attention are made of, computed again.
Pieces pieces_of(GraphBuilder& b, const Args& args, size_t first, size_t causal_at, size_t mask_at, size_t scale_at) {
  const TensorType q = args.type(first);
  Pieces p{Term{&b, args.tensor(first)}, grouped(Term{&b, args.tensor(first + 1)}, q),
           grouped(Term{&b, args.tensor(first + 2)}, q), Term{}, scale_of(args, scale_at, q)};
  const bool causal = args.flag(causal_at);
  const Term scores = masked(p.query.bin("matmul", transposed(p.key)) * p.scale, args, mask_at, causal);
  p.weights = weights_of(scores, causal || !args.none(mask_at));
  return p;
}

Term scores_gradient(const Pieces& p, Term g) {
  const Term by_weight = g.bin("matmul", transposed(p.value)) * p.weights;
  const Term sums{g.b, g.b->reduce("sum", by_weight.id, {by_weight.type().dim() - 1}, true)};
  return by_weight - p.weights * sums;
}

/// Gradients of grouped heads, summed over each group.
ValueId ungrouped(Term x, TensorType type) {  // by value: the graph moves
  GraphBuilder& b = *x.b;
  if (same_size(b.ctx(), x.type().sizes[1], type.sizes[1])) return x.id;
  const std::vector<Expr> sizes{type.sizes[0], type.sizes[1], b.ctx().floordiv(x.type().sizes[1], type.sizes[1]),
                                type.sizes[2], type.sizes[3]};
  return b.reduce("sum", b.reshape(x.id, sizes), {2}, false);
}

void flash_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  if (!v.has_grad(0)) return;
  const Args& a = v.args();
  if (v.needs(0) || v.needs(1) || v.needs(2)) {
    const Values gradients = b.op_multi(kFlashBackward, {TensorArg{v.grad(0)}, a[0], a[1], a[2], TensorArg{v.out(0)},
                                                         TensorArg{v.out(1)}, a[3], a[4], a[5], a[6]});
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) v.give(i, gradients[i]);
  }
  if (v.needs(5)) v.give(5, scores_gradient(pieces_of(b, a, 0, 4, 5, 6), gradient(v)).id);
}

/// The host has no derivative for its backward kernel; its parts have.
Values flash_backward_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Term g{&b, args.tensor(0)};
  const Pieces p = pieces_of(b, args, 1, 7, 8, 9);
  const Term scores = scores_gradient(p, g) * p.scale;
  return {scores.bin("matmul", p.key).id, ungrouped(transposed(scores).bin("matmul", p.query), args.type(2)),
          ungrouped(transposed(p.weights).bin("matmul", g), args.type(3))};
}

}  // namespace

void register_derivatives_attention(OpRegistry& r) {
  OpDef& attention = r.amend("scaled_dot_product_attention");
  attention.decompose = decompose_attention;
  attention.differentiable_parts = attention_parts;
  OpDef flash = make_op({kFlash, OpKind::kHost,
                         "(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, "
                         "Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
                         ""},
                        flash_meta);
  flash.vjp = flash_rule;
  r.add(std::move(flash));
  OpDef backward = make_op({kFlashBackward, OpKind::kHost,
                            "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
                            "float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None) -> "
                            "(Tensor grad_query, Tensor grad_key, Tensor grad_value)",
                            ""},
                           flash_backward_meta);
  backward.differentiable_parts = flash_backward_parts;
  r.add(std::move(backward));
}

}  // namespace tatara
