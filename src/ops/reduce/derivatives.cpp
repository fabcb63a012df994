// Gradients of reductions, scans, softmax and normalisations.
#include <cmath>

#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// The dimensions that a reduction of operand 0 took, from its argument `at` (a list, one number, or None).
std::vector<int64_t> reduced_dims(const VjpContext& v, size_t at) {
  const int64_t rank = v.args().rank(0);
  if (const auto* one = std::get_if<Scalar>(&v.args()[at]); one != nullptr) {
    return wrap_dims({v.args().integer(at)}, rank);
  }
  return v.args().dims(at, rank);
}

/// A reduced value with its dimensions of size 1 back.
Term kept(VjpContext& v, ValueId reduced, const std::vector<int64_t>& dims, bool keepdim) {
  GraphBuilder& b = v.builder();
  if (keepdim) return term(v, reduced);
  return term(v, b.reshape(reduced, reduced_sizes(b.ctx(), v.args().type(0).sizes, dims, true)));
}

Term spread(VjpContext& v, Term x) { return {x.b, x.b->expand(x.id, v.args().type(0).sizes)}; }

Scalar count_of(VjpContext& v, const std::vector<int64_t>& dims) {
  std::vector<Expr> sizes;
  for (const int64_t d : dims) {
    if (v.args().rank(0) > 0) sizes.push_back(v.args().type(0).sizes[static_cast<size_t>(d)]);
  }
  return std::get<Scalar>(expr_arg(product(v.ctx(), sizes)));
}

Term over(Term x, Scalar s) { return {x.b, x.b->binary("div", x.id, s)}; }

/// The result dtype is computed in first; what comes back is cast by give().
void sum_rule(VjpContext& v) {
  const auto dims = reduced_dims(v, 1);
  v.give(0, spread(v, kept(v, v.grad(), dims, v.args().flag(2))).id);
}

void mean_rule(VjpContext& v) {
  const auto dims = reduced_dims(v, 1);
  v.give(0, spread(v, over(kept(v, v.grad(), dims, v.args().flag(2)), count_of(v, dims))).id);
}

void nansum_rule(VjpContext& v) {
  const auto dims = reduced_dims(v, 1);
  const Term g = spread(v, kept(v, v.grad(), dims, v.args().flag(2)));
  v.give(0, operand(v, 0).fixed().un("isnan").choose(Term{g.b, g.b->unary("zeros_like", g.id)}, g).id);
}

/// amax, amin, max and min of all: equal elements share the gradient. No number equals itself, so where one is the result the
/// gradients are none either, unless `nans` share it.
void shared_extreme(VjpContext& v, size_t output, const std::vector<int64_t>& dims, bool keepdim, bool nans = false) {
  if (!v.has_grad(output)) return;
  GraphBuilder& b = v.builder();
  const Term x = operand(v, 0).fixed();
  const Term extreme = kept(v, v.out(output), dims, keepdim).fixed();
  Term best = x.bin("eq", extreme);
  if (nans && is_floating(x.type().dtype)) best = best || (x.un("isnan") && extreme.un("isnan"));
  const Term g = kept(v, v.grad(output), dims, keepdim);
  const Term count = term(v, b.reduce("sum", best.id, dims, true));
  v.give(0, nans ? best.choose(g / count, 0.0).id : (g * best / count).id);
}

void pick_rule(VjpContext& v) {
  // max.dim and its kin: the gradient goes where the index says.
  if (!v.has_grad(0)) return;
  GraphBuilder& b = v.builder();
  const std::vector<int64_t> dims = wrap_dims({v.args().dim(1, v.args().rank(0))}, v.args().rank(0));
  const bool keepdim = v.args().size() < 3 || v.args().flag(2);
  if (v.args().rank(0) == 0) return v.give(0, copy_both_ways(v.builder(), v.grad(0)));
  const ValueId zeros = zeros_of(b, v.args().type(0));
  v.give(0, b.op("scatter_add",
                 {TensorArg{zeros}, int_arg(dims[0]), TensorArg{kept(v, v.out(1), dims, keepdim).fixed().id},
                  TensorArg{kept(v, v.grad(0), dims, keepdim).id}}));
}

void cumulative_extreme_rule(VjpContext& v) {
  if (!v.has_grad(0)) return;
  if (v.args().rank(0) == 0) return v.give(0, copy_both_ways(v.builder(), v.grad(0)));
  GraphBuilder& b = v.builder();
  v.give(0, b.op("scatter_add", {TensorArg{zeros_of(b, v.args().type(0))}, v.args()[1],
                                 TensorArg{result(v, 1).fixed().id}, TensorArg{v.grad(0)}}));
}

/// sort, topk: each value goes back to its place; no two have one.
VjpFn back_to_places(size_t dim_arg) {
  return [dim_arg](VjpContext& v) {
    if (!v.has_grad(0)) return;
    if (v.args().rank(0) == 0) return v.give(0, copy_both_ways(v.builder(), v.grad(0)));
    GraphBuilder& b = v.builder();
    v.give(0, b.op("scatter.src", {TensorArg{zeros_of(b, v.args().type(0))}, v.args()[dim_arg],
                                   TensorArg{result(v, 1).fixed().id}, TensorArg{v.grad(0)}}));
  };
}

void cumsum_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  if (v.args().rank(0) == 0) return v.give(0, v.grad());
  const SymInts dims{{b.ctx().constant(v.args().dim(1, v.args().rank(0)))}};
  const auto flip = [&](ValueId x) { return b.op("flip", {TensorArg{x}, dims}); };
  v.give(0, flip(b.op("cumsum", {TensorArg{flip(v.grad())}, v.args()[1]})));
}

void logsumexp_rule(VjpContext& v) {
  const auto dims = reduced_dims(v, 1);
  const bool keepdim = v.args().flag(2);
  const Term out = kept(v, v.out(), dims, keepdim), x = operand(v, 0);
  const Term weight = (x - out).un("exp");
  v.give(0, (kept(v, v.grad(), dims, keepdim) * weight).id);
}

struct Spread {
  std::vector<int64_t> dims;
  bool keepdim = false;
  double correction = 1;
};

/// The arguments of var, std and their kin, by form.
Spread spread_args(const VjpContext& v) {
  const std::string& name = v.node().op->name;
  Spread s;
  const auto& a = v.args();
  if (name.ends_with(".correction") || name == "_welford") {
    const size_t correction = name == "_welford" ? 3 : 2, keepdim = name == "_welford" ? 2 : 3;
    s.dims = reduced_dims(v, 1);
    s.correction = a.none(correction) ? 1 : a.number(correction);
    s.keepdim = a.flag(keepdim);
  } else if (name.ends_with(".dim")) {
    s.dims = reduced_dims(v, 1);
    s.correction = a.flag(2) ? 1 : 0;
    s.keepdim = a.flag(3);
  } else {
    s.dims = wrap_dims({}, a.rank(0));
    s.correction = a.flag(1) ? 1 : 0;
  }
  return s;
}

/// Variance, or its root, with the mean as a second result or without.
void variance_rule(VjpContext& v, bool root) {
  GraphBuilder& b = v.builder();
  const Spread s = spread_args(v);
  const Term x = operand(v, 0);
  const Scalar count = count_of(v, s.dims);
  Term total;
  if (v.has_grad(0)) {
    const Term mean = v.node().outputs.size() > 1 ? kept(v, v.out(1), s.dims, s.keepdim)
                                                  : over(term(v, b.reduce("sum", x.id, s.dims, true)), count);
    Term g = kept(v, v.grad(0), s.dims, s.keepdim);
    if (root) {
      const Term out = kept(v, v.out(0), s.dims, s.keepdim);
      g = masked_quotient(v, g, out * 2.0);
    }
    Scalar freedom = count;
    if (const auto* n = std::get_if<int64_t>(&count)) {
      freedom = std::max(0.0, static_cast<double>(*n) - s.correction);
    } else if (s.correction != 0) {
      const auto whole = static_cast<int64_t>(s.correction);
      if (static_cast<double>(whole) != s.correction) throw Unsupported("a fractional correction of symbolic sizes");
      freedom = b.ctx().sub(std::get<Expr>(count), b.ctx().constant(whole));
    }
    total = over(g * 2.0, freedom) * (x - mean);
  }
  if (v.node().outputs.size() > 1 && v.has_grad(1)) {
    const Term share = spread(v, over(kept(v, v.grad(1), s.dims, s.keepdim), count));
    total = total.b == nullptr ? share : total + share;
  }
  if (total.b != nullptr) v.give(0, total.id);
}

void norm_rule(VjpContext& v, double p, const std::vector<int64_t>& dims, bool keepdim) {
  GraphBuilder& b = v.builder();
  Term x = operand(v, 0);
  const DType wide = b.type(v.out()).dtype;
  x = term(v, b.cast(x.id, is_complex(x.type().dtype) ? complex_dtype(wide) : wide));
  const Term g = kept(v, v.grad(), dims, keepdim);
  const auto zeros = [&](Term like) { return Term{like.b, like.b->unary("zeros_like", like.id)}; };
  const auto safe = [&](Term numerator, Term denominator) { return masked_quotient(v, numerator, denominator); };
  const auto sign = [&] { return is_complex(x.type().dtype) ? safe(x, x.un("abs")) : x.un("sign"); };
  if (p == 0) return;  // none at all in eager
  if (p == 1) return v.give(0, (sign() * g).id);
  const Term out = kept(v, v.out(), dims, keepdim);
  if (p == 2) return v.give(0, safe(x * g, out).id);
  if (std::isinf(p)) {
    const Term best = x.un("abs").bin("eq", out);
    const Term count = term(v, b.reduce("sum", best.id, dims, true));
    return v.give(0, best.choose(sign() * (g / count), 0.0).id);
  }
  const Term zero = x.bin("eq", 0.0);
  if (p < 2) {
    const Term power = sign() * x.un("abs").bin("pow", p - 1);
    const Term slope = zero.choose(zeros(power), power);
    return v.give(0, (slope * safe(g, out.bin("pow", p - 1))).id);
  }
  v.give(0, (x * x.un("abs").bin("pow", p - 2) * safe(g, out.bin("pow", p - 1))).id);
}

void vector_norm_rule(VjpContext& v) { norm_rule(v, v.args().number(1), reduced_dims(v, 2), v.args().flag(3)); }

void norm_dim_rule(VjpContext& v) {
  norm_rule(v, v.args().none(1) ? 2 : v.args().number(1), reduced_dims(v, 2), v.args().flag(3));
}

void norm_whole_rule(VjpContext& v) {
  norm_rule(v, v.args().none(1) ? 2 : v.args().number(1), wrap_dims({}, v.args().rank(0)), false);
}

void softmax_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const auto dims = wrap_dims({v.args().dim(1, v.args().rank(0))}, v.args().rank(0));
  const Term g = gradient(v), y = result(v);
  const Term weighted = g * y;
  v.give(0, (weighted - y * term(v, b.reduce("sum", weighted.id, dims, true))).id);
}

void log_softmax_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const auto dims = wrap_dims({v.args().dim(1, v.args().rank(0))}, v.args().rank(0));
  const Term g = gradient(v), y = result(v);
  v.give(0, (g - y.un("exp") * term(v, b.reduce("sum", g.id, dims, true))).id);
}

/// A product of all others, without division: of those before and those after.
void prod_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const Term g = gradient(v);
  if (v.args().rank(0) == 0) return v.give(0, g.id);
  const bool whole = v.args().none(1);
  const std::vector<Expr> sizes = v.args().type(0).sizes;
  ValueId x = v.args().tensor(0);
  int64_t dim = whole ? 0 : v.args().dim(1, v.args().rank(0));
  if (whole) x = b.reshape(x, {v.args().type(0).numel(b.ctx())});
  x = b.cast(x, b.type(v.out()).dtype);
  const Expr length = b.type(x).sizes[static_cast<size_t>(dim)];
  if (is_zero(b.ctx(), length)) {
    return v.give(0, tied(b, zeros_of(b, v.args().type(0)), {v.args().tensor(0)}));
  }
  const Expr zero = b.ctx().constant(0), one = b.ctx().constant(1);
  const SymInts flipped{{b.ctx().constant(dim)}};
  const auto before = [&](ValueId values) {
    const ValueId front = b.slice(values, dim, zero, b.ctx().sub(length, one), one);
    const ValueId first = b.unary("ones_like", b.slice(values, dim, zero, one, one));
    return b.op("cumprod", {TensorArg{b.op("cat", {TensorList{{first, front}}, int_arg(dim)})}, int_arg(dim)});
  };
  const auto flip = [&](ValueId values) { return b.op("flip", {TensorArg{values}, flipped}); };
  const Term others = term(v, before(x)) * term(v, flip(before(flip(x))));
  const Term wide = whole ? g : kept(v, g.id, {dim}, v.args().flag(2));
  v.give(0, b.reshape((others.conj() * wide).id, sizes));
}

}  // namespace

void register_derivatives_reduce(OpRegistry& r) {
  const auto rule = [&r](const char* name, VjpFn fn) { r.amend(name).vjp = std::move(fn); };
  rule("sum", sum_rule);
  rule("mean", mean_rule);
  rule("nansum", nansum_rule);
  rule("prod", prod_rule);
  rule("amax", [](VjpContext& v) { shared_extreme(v, 0, reduced_dims(v, 1), v.args().flag(2)); });
  rule("amin", [](VjpContext& v) { shared_extreme(v, 0, reduced_dims(v, 1), v.args().flag(2)); });
  rule("max", [](VjpContext& v) { shared_extreme(v, 0, wrap_dims({}, v.args().rank(0)), false, true); });
  rule("min", [](VjpContext& v) { shared_extreme(v, 0, wrap_dims({}, v.args().rank(0)), false, true); });
  rule("aminmax", [](VjpContext& v) {
    const auto dims = v.args().none(1) ? wrap_dims({}, v.args().rank(0)) : reduced_dims(v, 1);
    shared_extreme(v, 0, dims, v.args().flag(2));
    shared_extreme(v, 1, dims, v.args().flag(2));
  });
  rule("max.dim", pick_rule);
  rule("min.dim", pick_rule);
  for (const char* name : {"median.dim", "nanmedian.dim", "mode"}) rule(name, pick_rule);
  rule("sort", back_to_places(1));
  rule("sort.stable", back_to_places(2));
  rule("topk", back_to_places(2));
  rule("cummax", cumulative_extreme_rule);
  rule("cummin", cumulative_extreme_rule);
  rule("cumsum", cumsum_rule);
  rule("logsumexp", logsumexp_rule);
  for (const char* name :
       {"var", "var.dim", "var.correction", "var_mean", "var_mean.dim", "var_mean.correction", "_welford"}) {
    rule(name, [](VjpContext& v) { variance_rule(v, false); });
  }
  for (const char* name : {"std", "std.dim", "std.correction", "std_mean", "std_mean.dim", "std_mean.correction"}) {
    rule(name, [](VjpContext& v) { variance_rule(v, true); });
  }
  r.mark(&OpTraits::spread, {"var", "var.dim", "var.correction", "var_mean", "var_mean.dim", "var_mean.correction",
                             "std", "std.dim", "std.correction", "std_mean", "std_mean.dim", "std_mean.correction"});
  r.mark(&OpTraits::always_saves,
         {"logsumexp", "softmax", "log_softmax", "layer_norm", "group_norm", "batch_norm", "nll_loss_nd", "mse_loss",
          "binary_cross_entropy", "binary_cross_entropy_with_logits"});
  for (const char* name : {"nll_loss_nd", "cross_entropy_loss"}) r.amend(name).traits.class_weights = 2;
  rule("linalg_vector_norm", vector_norm_rule);
  rule("norm.ScalarOpt_dim", norm_dim_rule);
  rule("norm.ScalarOpt_dim_dtype", norm_dim_rule);
  rule("norm.Scalar", norm_whole_rule);
  rule("norm.ScalarOpt_dtype", norm_whole_rule);
  for (const char* name : {"softmax", "special_softmax", "_softmax", "_safe_softmax"}) rule(name, softmax_rule);
  for (const char* name : {"log_softmax", "special_log_softmax", "_log_softmax"}) rule(name, log_softmax_rule);
  // These are made of operators with rules, and nothing in them has a kink of its own.
  for (const char* name : {"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "batch_norm",
                           "native_batch_norm", "instance_norm", "nanmean", "prelu"}) {
    OpDef& op = r.amend(name);
    op.differentiable_parts = op.decompose;
  }
  // Eager's statistics do not require grad, nor do the running ones, which are written back.
  for (const char* name : {"native_layer_norm", "native_batch_norm", "batch_norm", "instance_norm"}) {
    OpDef& op = r.amend(name);
    op.differentiable_results = 1;
    op.differentiable_parts = [parts = op.decompose](GraphBuilder& b, std::span<const Arg> arguments) {
      std::vector<ValueId> results = parts(b, arguments);
      for (size_t i = 1; i < results.size(); ++i) results[i] = b.unary("detach", results[i]);
      return results;
    };
  }
}

}  // namespace tatara
