// Gradients of indexing.
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

ValueId index_put(GraphBuilder& b, ValueId self, const Arg& indices, ValueId values, bool accumulate) {
  return b.op("index_put", {TensorArg{self}, indices, TensorArg{values}, Scalar(accumulate)});
}

void index_rule(VjpContext& v) {
  v.give(0, index_put(v.builder(), zeros_of_operand(v, 0), v.args()[1], v.grad(), true));
}

void index_put_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Arg& indices = v.args()[1];
  if (v.needs(0)) {
    v.give(0, v.args().flag(3) ? v.grad() : index_put(b, v.grad(), indices, zeros_of_operand(v, 2), false));
  }
  if (v.needs(2)) v.give(2, b.op("index", {TensorArg{v.grad()}, indices}));
}

void gather_rule(VjpContext& v) {
  if (v.args().flag(3)) throw Unsupported("the sparse gradient of gather");
  v.give(0, v.builder().op("scatter_add",
                           {TensorArg{zeros_of_operand(v, 0)}, v.args()[1], v.args()[2], TensorArg{v.grad()}}));
}

ValueId gathered(VjpContext& v) {
  return v.builder().op("gather", {TensorArg{v.grad()}, v.args()[1], v.args()[2], Scalar(false)});
}

void scatter_rule(VjpContext& v, bool has_source) {
  if (v.needs(0)) {
    v.give(0, v.builder().op("scatter.value", {TensorArg{v.grad()}, v.args()[1], v.args()[2], Scalar(int64_t{0})}));
  }
  if (has_source && v.needs(3)) v.give(3, gathered(v));
}

void scatter_add_rule(VjpContext& v) {
  v.give(0, v.grad());
  if (v.needs(3)) v.give(3, gathered(v));
}

void index_select_rule(VjpContext& v) {
  v.give(0, v.builder().op("index_add", {TensorArg{zeros_of_operand(v, 0)}, v.args()[1], v.args()[2],
                                         TensorArg{v.grad()}, Scalar(int64_t{1})}));
}

ValueId selected(VjpContext& v) {
  return v.builder().op("index_select", {TensorArg{v.grad()}, v.args()[1], v.args()[2]});
}

void index_add_rule(VjpContext& v) {
  v.give(0, v.grad());
  if (v.needs(3)) v.give(3, v.builder().op("mul", {TensorArg{selected(v)}, v.args()[4]}));
}

ValueId index_filled(VjpContext& v) {
  return v.builder().op("index_fill", {TensorArg{v.grad()}, v.args()[1], v.args()[2], Scalar(int64_t{0})});
}

void index_copy_rule(VjpContext& v) {
  if (v.needs(0)) v.give(0, index_filled(v));
  if (v.needs(3)) v.give(3, selected(v));
}

void index_fill_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  if (v.needs(0)) v.give(0, index_filled(v));
  if (!v.needs(3)) return;
  // Each element once, also where an index is given twice; summed to no dimensions.
  const ValueId none = b.unary("zeros_like", v.grad());
  const ValueId filled = b.op("index_fill", {TensorArg{none}, v.args()[1], v.args()[2], Scalar(int64_t{1})});
  v.give(3, term(v, filled).bin("ne", 0.0).choose(term(v, v.grad()), term(v, none)).id);
}

void take_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const TensorType type = v.args().type(0);
  const std::vector<Expr> flat{type.numel(b.ctx())};
  const ValueId zeros = zeros_of(b, contiguous_type(b.ctx(), type.dtype, type.device, flat));
  const TensorList indices{{v.args().tensor(1)}};
  v.give(0, b.reshape(index_put(b, zeros, indices, v.grad(), true), type.sizes));
}

/// Whether a small table on a GPU is looked up so often that additions to its rows would wait for each other: a product with
/// the matrix of ones where they go is far faster.
bool meets_often(const TensorType& weight, Expr count) {
  constexpr int64_t kFewRows = 256, kManyTimes = 256;
  if (weight.device.kind != DeviceKind::kCuda || weight.dtype != DType::kFloat32) return false;
  if (!weight.sizes[0].is_const() || !count.is_const()) return false;
  const int64_t rows = weight.sizes[0].const_value();
  return rows <= kFewRows && count.const_value() >= kManyTimes * rows;
}

void embedding_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  if (v.args().flag(4)) throw Unsupported("the sparse gradient of embedding");
  if (v.args().flag(3)) return linear_host_derivative(v);  // scaled by frequency
  const int64_t padding = v.args().integer(2);
  const ValueId indices = v.args().tensor(1);
  ValueId g = v.grad();
  if (padding >= 0) {
    const ValueId kept = b.unsqueeze(b.binary("ne", indices, Scalar(padding)), -1);
    g = b.op("where", {TensorArg{kept}, TensorArg{g}, Scalar(0.0)});
  }
  const TensorType weight = v.args().type(0);
  const Expr count = b.type(indices).numel(b.ctx());
  const ValueId flat = b.reshape(indices, {count}), rows = b.reshape(g, {count, weight.sizes[1]});
  if (meets_often(weight, count)) {
    const ValueId places = b.op("arange.step", {Scalar(int64_t{0}), expr_arg(weight.sizes[0]), Scalar(int64_t{1}),
                                                DType::kInt64, NoneArg{}, weight.device});
    const ValueId chosen = b.binary("eq", b.unsqueeze(places, 1), b.unsqueeze(flat, 0));
    v.give(0, b.op("mm", {TensorArg{b.cast(chosen, weight.dtype)}, TensorArg{rows}}));
    return;
  }
  v.give(0, b.op("index_add",
                 {TensorArg{zeros_of(b, weight)}, int_arg(0), TensorArg{flat}, TensorArg{rows}, Scalar(int64_t{1})}));
}

/// The bag of each of `count` indices, of bags that begin at `offsets`.
ValueId bags_of(GraphBuilder& b, ValueId offsets, Expr count) {
  const TensorType begins = b.type(offsets);
  const std::vector<Expr> places{count + b.ctx().constant(1)};  // an empty bag at the end begins behind the last index
  const ValueId one = b.expand(b.constant(1, DType::kInt64, begins.device), begins.sizes);
  const ValueId none = zeros_of(b, contiguous_type(b.ctx(), DType::kInt64, begins.device, places));
  const ValueId begun =
      b.op("index_add", {TensorArg{none}, int_arg(0), TensorArg{offsets}, TensorArg{one}, Scalar(int64_t{1})});
  const ValueId before = b.op("cumsum", {TensorArg{begun}, int_arg(0)});
  return b.binary("sub", b.slice(before, 0, b.ctx().constant(0), count, b.ctx().constant(1)), Scalar(int64_t{1}));
}

/// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx). Sums and
/// means; ATen differentiates the others, which runs the operator again.
void embedding_bag_rule(VjpContext& v) {
  constexpr int64_t kMean = 1, kMaximum = 2;
  GraphBuilder& b = v.builder();
  const Args& args = v.args();
  const int64_t mode = args.integer(4);
  const TensorType weight = args.type(0);
  const bool from_end = !args.none(8) && args.integer(8) < 0;
  const bool other = args.flag(3) || args.flag(5) || mode == kMaximum || (from_end && !weight.sizes[0].is_const());
  if (other || v.for_tangents() || !v.has_grad(0)) return host_derivative(v);
  const ValueId indices = args.tensor(1);
  const Expr count = b.type(indices).numel(b.ctx());
  const ValueId bags = bags_of(b, args.tensor(2), count);
  const auto of_bags = [&](ValueId x) { return b.op("index_select", {TensorArg{x}, int_arg(0), TensorArg{bags}}); };
  ValueId kept = kNoValue;
  if (!args.none(8)) {
    const int64_t padding = args.integer(8);
    kept = b.binary("ne", indices, Scalar(padding < 0 ? padding + weight.sizes[0].const_value() : padding));
  }
  ValueId g = of_bags(v.grad(0));
  if (mode == kMean) {
    const std::vector<Expr> rows{b.type(v.grad(0)).sizes[0]};
    ValueId one = b.expand(b.constant(1, weight.dtype, weight.device), {count});
    if (kept != kNoValue) one = b.cast(kept, weight.dtype);
    const ValueId none = zeros_of(b, contiguous_type(b.ctx(), weight.dtype, weight.device, rows));
    const ValueId sizes =
        b.op("index_add", {TensorArg{none}, int_arg(0), TensorArg{bags}, TensorArg{one}, Scalar(int64_t{1})});
    // A bag with an index that counts has at least one.
    g = b.binary("div", g, b.unsqueeze(b.op("clamp_min", {TensorArg{of_bags(sizes)}, Scalar(int64_t{1})}), 1));
  }
  if (kept != kNoValue) g = b.op("where", {TensorArg{b.unsqueeze(kept, 1)}, TensorArg{g}, Scalar(0.0)});
  if (!args.none(6) && v.needs(6)) {
    const ValueId looked_up = b.op("index_select", {TensorArg{args.tensor(0)}, int_arg(0), TensorArg{indices}});
    v.give(6, b.reduce("sum", b.binary("mul", g, looked_up), std::vector<int64_t>{1}, false));
  }
  if (!v.needs(0)) return;
  if (!args.none(6)) g = b.binary("mul", g, b.unsqueeze(args.tensor(6), 1));
  v.give(0, b.op("index_add",
                 {TensorArg{zeros_of(b, weight)}, int_arg(0), TensorArg{indices}, TensorArg{g}, Scalar(int64_t{1})}));
}

}  // namespace

void register_derivatives_indexing(OpRegistry& r) {
  const auto rule = [&r](const char* name, VjpFn fn) { r.amend(name).vjp = std::move(fn); };
  rule("index", index_rule);
  rule("index_put", index_put_rule);
  rule("gather", gather_rule);
  rule("scatter.src", [](VjpContext& v) { scatter_rule(v, true); });
  rule("scatter.value", [](VjpContext& v) { scatter_rule(v, false); });
  rule("scatter_add", scatter_add_rule);
  rule("index_select", index_select_rule);
  rule("index_add", index_add_rule);
  rule("index_copy", index_copy_rule);
  rule("index_fill", index_fill_rule);
  rule("index_fill.int_Tensor", index_fill_rule);
  rule("take", take_rule);
  rule("embedding", embedding_rule);
  rule("embedding_bag.padding_idx", embedding_bag_rule);
  r.mark(&OpTraits::always_saves, {"embedding"});
  r.mark(&OpTraits::adds_elements, {"index_add", "scatter_add"});
  r.amend("embedding").traits.linear_operands = {0};
  r.amend("scatter.src").traits.linear_operands = {0, 3};
  r.amend("index_put").traits.linear_operands = {0, 2};
  r.amend("index_copy").traits.linear_operands = {0, 3};
  r.amend("masked_scatter").traits.linear_operands = {0, 2};
}

}  // namespace tatara
