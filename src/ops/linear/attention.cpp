// Attention: kernels of the host, with eager's layouts.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Whether eager's CPU dispatch takes its flash kernel for these operands (else the plain composition).
bool takes_flash(const MetaContext& m) {
  ExprContext& ctx = m.ctx();
  const TensorType& q = m.tensor(0);
  const TensorType& k = m.tensor(1);
  const TensorType& v = m.tensor(2);
  if (q.device.kind != DeviceKind::kCpu || m.number(4) != 0.0) return false;
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) return false;
  const bool grouped = m.boolean(7);
  const auto same = [&](Expr a, Expr b) { return same_size(ctx, a, b); };
  if (!same(q.sizes[0], k.sizes[0]) || !same(q.sizes[0], v.sizes[0])) return false;
  if (!grouped && (!same(q.sizes[1], k.sizes[1]) || !same(q.sizes[1], v.sizes[1]))) return false;
  if (!same(q.sizes[3], k.sizes[3]) || !same(q.sizes[3], v.sizes[3])) return false;
  if (is_zero(ctx, q.sizes[2]) || is_zero(ctx, k.sizes[2])) return false;
  for (const TensorType* t : {&q, &k, &v}) {
    if (!is_one(ctx, t->strides[3])) return false;
  }
  if (m.is_none(3)) return true;
  const TensorType& mask = m.tensor(3);
  const auto fits = [&](size_t from_end, Expr size) {
    const Expr s = mask.sizes[mask.sizes.size() - from_end];
    return is_one(ctx, s) || same(s, size);
  };
  if (mask.dim() != 2 && mask.dim() != 4) return false;
  if (!fits(2, q.sizes[2]) || !fits(1, k.sizes[2])) return false;
  return mask.dim() == 2 || (fits(4, q.sizes[0]) && fits(3, q.sizes[1]));
}

std::vector<TensorType> attention_meta(MetaContext& m) {
  const TensorType& q = m.tensor(0);
  const TensorType& k = m.tensor(1);
  const TensorType& v = m.tensor(2);
  if (q.dtype != k.dtype || q.dtype != v.dtype) {
    throw InvalidArgument("Expected query, key, and value to have the same dtype");
  }
  if (!is_floating(q.dtype)) throw Unsupported("attention over such a dtype runs in eager");
  if (q.dim() < 2 || k.dim() < 2 || v.dim() < 2)
    throw InvalidArgument("Expected query, key, and value to all be at least 2 dimensional");
  if (m.is_tensor(6) && q.device.kind == DeviceKind::kCuda) throw Unsupported("attention by a scale that varies");
  if (m.number(4) != 0.0 && !q.sizes.back().is_const())
    throw Unsupported("attention with dropout over a symbolic head size");
  if (q.device.kind == DeviceKind::kCuda && q.dim() == 4 && k.dim() == 4 && v.dim() == 4) {
    // The fused kernels for half types lay their result out as the query, that for float32 with the heads of a position
    // beside each other.
    ExprContext& ctx = m.ctx();
    const std::vector<Expr> sizes = {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]};
    TensorType type = contiguous_type(ctx, q.dtype, q.device, sizes);
    if (q.dtype != DType::kFloat32 && same_size(ctx, q.sizes[3], v.sizes[3])) {
      const TensorType* operands[] = {&q};
      type.strides = m.iterator_strides(q.sizes, operands);
      return {type};
    }
    const std::vector<Expr> inside = contiguous_strides(ctx, {sizes[0], sizes[2], sizes[1], sizes[3]});
    type.strides = {inside[0], inside[2], inside[1], inside[3]};
    return {type};
  }
  if (takes_flash(m)) {
    TensorType type = q;
    const TensorType* operands[] = {&q};
    type.strides = m.iterator_strides(q.sizes, operands);
    return {type};
  }
  if (m.boolean(7) && m.number(4) == 0.0) {
    throw Unsupported("grouped attention outside of the flash kernel runs in eager");
  }
  std::vector<Expr> batch_q(q.sizes.begin(), q.sizes.end() - 2);
  std::vector<Expr> batch_k(k.sizes.begin(), k.sizes.end() - 2);
  std::vector<Expr> batch_v(v.sizes.begin(), v.sizes.end() - 2);
  if (m.boolean(7)) batch_k = batch_v = batch_q;
  const std::vector<Expr>* shapes[] = {&batch_q, &batch_k, &batch_v};
  std::vector<Expr> sizes = m.broadcast(shapes);
  sizes.push_back(q.sizes[q.sizes.size() - 2]);
  sizes.push_back(v.sizes.back());
  return {contiguous_type(m.ctx(), q.dtype, q.device, sizes)};
}

}  // namespace

void register_attention(OpRegistry& r) {
  r.add(make_op({"scaled_dot_product_attention", OpKind::kHost,
                 "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
                 "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
                 "torch._C._nn.scaled_dot_product_attention"},
                attention_meta));
  r.take_value("scaled_dot_product_attention", "scale");
}

}  // namespace tatara
