// Gradients of attention: by the host's fused kernels where eager's forward takes them, else by its parts.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "ops/linear/idle_mask.h"
#include "ops/rules/derivative.h"
#include "ops/rules/fused_attention.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

constexpr const char* kFlash = "_scaled_dot_product_flash_attention_for_cpu";
constexpr const char* kFlashBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";

Term last_two_swapped(Term x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.type().dim(); ++d) dims.push_back(d);
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return {x.b, x.b->permute(x.id, dims)};
}

Quantity scale_of(const Args& args, size_t at, const TensorType& query) {
  if (!args.none(at)) return args.quantity(at);
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
  const Quantity scale = scale_of(args, 6, q);
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
  const double root = std::sqrt(std::abs(scale.fixed()));
  const Term left = query * (scale.varies() ? scale : Quantity(scale.fixed() < 0 ? -root : root));
  const Term right = scale.varies() ? last_two_swapped(key) : last_two_swapped(key) * root;
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

/// A mask of bools as what is added to the scores.
Arg added_mask(GraphBuilder& b, const Args& args) {
  if (args.none(3)) return NoneArg{};
  if (args.type(3).dtype != DType::kBool) return args[3];
  const TensorType q = args.type(0);
  const Term seen{&b, args.tensor(3)}, zero{&b, b.constant(0, q.dtype, q.device)};
  return TensorArg{seen.choose(zero, -INFINITY).id};
}

/// [batch, heads, length, size], laid out as [batch, length, heads, size].
TensorType heads_inside(ExprContext& ctx, const TensorType& like) {
  TensorType type = contiguous_type(ctx, like.dtype, like.device, like.sizes);
  const Expr size = like.sizes[3], row = ctx.mul(like.sizes[1], size);
  type.strides = {ctx.mul(like.sizes[2], row), size, row, ctx.constant(1)};
  return type;
}

// ---- GPUs --------------------------------------------------------------------------------------------------------------

struct Chooser {
  ForkSafeMutex mutex;
  ChooseFusedAttention function;
};

Chooser& chooser() { return made_once<Chooser>(); }

ChooseFusedAttention present_chooser() {
  const std::lock_guard lock(chooser().mutex);
  return chooser().function;
}

bool constant_layout(const TensorType& type) {
  const auto known = [](Expr e) { return e.is_const(); };
  return std::all_of(type.sizes.begin(), type.sizes.end(), known) &&
         std::all_of(type.strides.begin(), type.strides.end(), known);
}

/// The kernel that eager would take; nothing where it composes attention of its parts.
std::optional<FusedAttention> fused_kernel(GraphBuilder& b, const Args& args) {
  AttentionCall call;
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
    const TensorType type = args.type(i);
    if (type.dim() != 4 || type.device.kind != DeviceKind::kCuda || !constant_layout(type)) return std::nullopt;
    for (const Expr size : type.sizes) {
      if (is_zero(b.ctx(), size)) return std::nullopt;
    }
    call.operands.push_back(type);
  }
  if (!args.none(3)) {
    if (!constant_layout(args.type(3))) return std::nullopt;
    call.mask = args.type(3);
    // fused() lays it out so. With dropout the kernel has to be eager's own choice: each draws other numbers.
    if (args.number(4) == 0) call.mask->strides = contiguous_strides(b.ctx(), call.mask->sizes);
  }
  call.dropout = args.number(4);
  call.causal = args.flag(5);
  if (!args.none(6)) call.scale = args.number(6);
  call.grouped = args.flag(7);
  const ChooseFusedAttention choose = present_chooser();
  return choose ? choose(b.ctx(), call) : std::nullopt;
}

constexpr const char* kFused = "fused_attention";
constexpr const char* kFusedRandom = "fused_attention_dropout";
constexpr const char* kFusedBackward = "fused_attention_backward";
constexpr const char* kFusedRandomBackward = "fused_attention_dropout_backward";
// Places of the arguments: query, key, value, mask come first.
enum : size_t { kDropout = 4, kCausal, kScale, kKernel, kSeedSize, kSeedDType, kSeedDevice, kOffsetSize };

ValueId fused(GraphBuilder& b, std::span<const Arg> arguments, const FusedAttention& kernel) {
  const Args args(b, arguments);
  Arg mask = added_mask(b, args);
  const TensorType q = args.type(0), k = args.type(1);
  if (const auto* tensor = std::get_if<TensorArg>(&mask)) {
    // The kernels want contiguous rows.
    const TensorType type = b.type(tensor->value);
    ValueId rows = tensor->value;
    if (type.dim() > 0 && !is_one(b.ctx(), type.strides.back())) {
      rows = b.op("relayout", {TensorArg{rows}, SymInts{contiguous_strides(b.ctx(), type.sizes)}});
    }
    mask = TensorArg{b.expand(rows, {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]})};
  }
  std::vector<Arg> all{arguments[0], arguments[1], arguments[2], mask, arguments[4], arguments[5], arguments[6]};
  all.emplace_back(Scalar(int64_t{kernel.kernel}));
  for (const TensorType* type : {&kernel.seed, &kernel.offset}) {
    all.emplace_back(SymInts{type->sizes});
    all.emplace_back(type->dtype);
    all.emplace_back(type->device);
  }
  return b.op_multi(args.number(4) != 0 ? kFusedRandom : kFused, std::move(all)).front();
}

constexpr int64_t kEfficient = 2;        // the host's number of the kernel that was made for it by CUTLASS
constexpr int64_t kAlignedQueries = 32;  // of that one, in logsumexp

/// A result with the sizes of `like`. One of the kernels has the heads of a position beside each other, the others keep the
/// layout.
TensorType laid_out_by(MetaContext& m, int64_t kernel, const TensorType& like) {
  if (kernel == kEfficient) return heads_inside(m.ctx(), like);
  TensorType type = like;
  type.is_wrapped_number = false;
  const TensorType* operands[] = {&like};
  type.strides = m.iterator_strides(like.sizes, operands);
  return type;
}

// (query, key, value, mask, dropout_p, is_causal, scale, kernel, and size, dtype and device of seed and offset)
std::vector<TensorType> fused_meta(MetaContext& m) {
  const TensorType &q = m.tensor(0), &v = m.tensor(2);
  const int64_t kernel = m.integer(kKernel);
  ExprContext& ctx = m.ctx();
  TensorType out = q;
  out.sizes[3] = v.sizes[3];
  if (!same_size(ctx, q.sizes[3], v.sizes[3])) out.strides = contiguous_strides(ctx, out.sizes);
  Expr queries = q.sizes[2];
  if (kernel == kEfficient)
    queries = ctx.ceildiv(queries, ctx.constant(kAlignedQueries)) * ctx.constant(kAlignedQueries);
  std::vector<TensorType> types{
      laid_out_by(m, kernel, out),
      contiguous_type(ctx, DType::kFloat32, q.device, {q.sizes[0], q.sizes[1], ctx.simplify(queries)})};
  for (const size_t at : {size_t{kSeedSize}, size_t{kOffsetSize}}) {
    types.push_back(
        contiguous_type(m.ctx(), m.dtype(at + 1).value_or(DType::kInt64), std::get<Device>(m.arg(at + 2)), m.ints(at)));
  }
  return types;
}

// (grad_out, query, key, value, mask, out, logsumexp, seed, offset, dropout_p, is_causal, scale, kernel)
std::vector<TensorType> fused_backward_meta(MetaContext& m) {
  std::vector<TensorType> types;
  for (const size_t i : {size_t{1}, size_t{2}, size_t{3}}) {
    types.push_back(laid_out_by(m, m.integer(12), m.tensor(i)));
  }
  types.push_back(m.is_none(4) ? contiguous_type(m.ctx(), m.tensor(1).dtype, m.tensor(1).device, {})
                               : contiguous_type(m.ctx(), m.tensor(4).dtype, m.tensor(4).device, m.tensor(4).sizes));
  return types;
}

constexpr const char* kMissing = "missing_derivative";

constexpr const char* kNoSecond =
    "derivative for aten::_scaled_dot_product_efficient_attention_backward is not implemented";

/// The masks of the fused kernels are theirs alone, and eager has no second derivative either: whoever asks for its values
/// gets eager's error.
void missing_rule(VjpContext& v) {
  for (size_t i = 0; i < 5; ++i) {
    if (v.needs(i)) v.give(i, v.builder().op(kMissing, {TensorArg{v.args().tensor(i)}, std::string(kNoSecond)}));
  }
}

void fused_rule(VjpContext& v) {
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const Args& a = v.args();
  const bool random = a.number(kDropout) != 0;
  const Arg seed = random ? Arg(TensorArg{v.out(2)}) : Arg(NoneArg{}),
            offset = random ? Arg(TensorArg{v.out(3)}) : seed;
  const Values gradients =
      b.op_multi(random ? kFusedRandomBackward : kFusedBackward,
                 {TensorArg{v.grad(0)}, a[0], a[1], a[2], a[3], TensorArg{v.out(0)}, TensorArg{v.out(1)}, seed, offset,
                  a[kDropout], a[kCausal], a[kScale], a[kKernel], Scalar(v.needs(3))});
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) v.give(i, gradients[i]);
  if (v.needs(3)) v.give(3, gradients[3]);
}

/// Without a mask that leaves everything in. Eager Python's libraries make none, and the kernel is to be eager's.
std::vector<Arg> without_idle_mask(GraphBuilder& b, std::span<const Arg> arguments) {
  std::vector<Arg> own(arguments.begin(), arguments.end());
  if (mask_says_nothing(b.graph(), own[3])) own[3] = NoneArg{};
  return own;
}

/// Where gradients flow.
Values attention_parts(GraphBuilder& b, std::span<const Arg> given) {
  const std::vector<Arg> arguments = without_idle_mask(b, given);
  const Args args(b, arguments);
  if (const auto kernel = fused_kernel(b, args)) return {fused(b, arguments, *kernel)};
  if (!fits_flash(b, args)) return composition(b, args);
  const Arg mask = added_mask(b, args);
  return {b.op_multi(kFlash, {arguments[0], arguments[1], arguments[2], arguments[4], arguments[5], mask, arguments[6]})
              .front()};
}

/// Where none do: only random numbers ask for the parts.
Values decompose_attention(GraphBuilder& b, std::span<const Arg> given) {
  const std::vector<Arg> arguments = without_idle_mask(b, given);
  const Args args(b, arguments);
  if (args.number(4) == 0) return {};
  if (const auto kernel = fused_kernel(b, args)) return {fused(b, arguments, *kernel)};
  return composition(b, args);
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
  Quantity scale = 1.0;
};

/// What the gradients of attention are made of, computed again.
Pieces pieces_of(GraphBuilder& b, const Args& args, size_t first, size_t causal_at, size_t mask_at, size_t scale_at) {
  const TensorType q = args.type(first);
  Pieces p{Term{&b, args.tensor(first)}, grouped(Term{&b, args.tensor(first + 1)}, q),
           grouped(Term{&b, args.tensor(first + 2)}, q), Term{}, scale_of(args, scale_at, q)};
  const bool causal = args.flag(causal_at);
  const Term scores = masked(p.query.bin("matmul", last_two_swapped(p.key)) * p.scale, args, mask_at, causal);
  p.weights = weights_of(scores, causal || !args.none(mask_at));
  return p;
}

Term scores_gradient(const Pieces& p, Term g) {
  const Term by_weight = g.bin("matmul", last_two_swapped(p.value)) * p.weights;
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
  return {scores.bin("matmul", p.key).id, ungrouped(last_two_swapped(scores).bin("matmul", p.query), args.type(2)),
          ungrouped(last_two_swapped(p.weights).bin("matmul", g), args.type(3))};
}

Values fused_backward_parts(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Term g{&b, args.tensor(0)};
  const Pieces p = pieces_of(b, args, 1, 10, 4, 11);
  const Term by_score = scores_gradient(p, g), scores = by_score * p.scale;
  return {scores.bin("matmul", p.key).id, ungrouped(last_two_swapped(scores).bin("matmul", p.query), args.type(2)),
          ungrouped(last_two_swapped(p.weights).bin("matmul", g), args.type(3)),
          args.none(4) ? b.constant(0, args.type(1).dtype, args.type(1).device) : by_score.id};
}

}  // namespace

void set_fused_attention_chooser(ChooseFusedAttention function) {
  const std::lock_guard lock(chooser().mutex);
  chooser().function = std::move(function);
}

void register_derivatives_attention(OpRegistry& r) {
  OpDef& attention = r.amend("scaled_dot_product_attention");
  attention.decompose = decompose_attention;
  attention.differentiable_parts = attention_parts;
  attention.traits.always_saves = true;
  attention.traits.varies = true;  // dropout
  attention.traits.mask_arg = 3;
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
  const std::string schema =
      "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, "
      "int kernel, SymInt[] seed_size, ScalarType seed_dtype, Device seed_device, SymInt[] offset_size, "
      "ScalarType offset_dtype, Device offset_device) -> "
      "(Tensor output, Tensor logsumexp, Tensor seed, Tensor offset)";
  for (const char* name : {kFused, kFusedRandom}) {
    OpDef def = make_op({name, OpKind::kHost, schema.c_str(), ""}, fused_meta);
    def.host_name = str_cat("tatara::", name);
    def.nondeterministic = name == kFusedRandom;
    def.vjp = fused_rule;
    r.add(std::move(def));
  }
  for (const char* name : {kFusedBackward, kFusedRandomBackward}) {
    OpDef def = make_op({name, OpKind::kHost,
                         "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor out, "
                         "Tensor logsumexp, Tensor? seed, Tensor? offset, float dropout_p, bool is_causal, "
                         "float? scale, int kernel, bool of_mask) -> "
                         "(Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor grad_mask)",
                         ""},
                        fused_backward_meta);
    def.host_name = str_cat("tatara::", kFusedBackward);
    if (name == kFusedBackward) {
      def.differentiable_parts = fused_backward_parts;
    } else {
      def.vjp = missing_rule;
    }
    r.add(std::move(def));
  }
  OpDef missing = make_op({kMissing, OpKind::kHost, "(Tensor self, str error) -> Tensor", ""},
                          [](MetaContext& m) -> std::vector<TensorType> { return {m.tensor(0)}; });
  missing.host_name = str_cat("tatara::", kMissing);
  missing.vjp = [](VjpContext& v) { v.give(0, v.grad()); };
  r.add(std::move(missing));
  for (const char* name : {kFlash, kFlashBackward}) r.take_value(name, "scale");
}

}  // namespace tatara
