// Gradients of operators that run by host kernels, by the host's own backward kernels.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "ops/rules/derivative.h"
#include "ops/rules/host_transform.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- Any operator -----------------------------------------------------------------------------------------------------

/// Operators whose schema is the host's and whose results the host differentiates where they are numbers.
constexpr const char* kHostDerivatives[] = {
    "_lu_with_info",
    "_weight_norm",
    "acos.host",
    "acosh.host",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "asin.host",
    "asinh.host",
    "atan.host",
    "atanh.host",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "bilinear",
    "binary_cross_entropy",
    "cdist.host",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cos.host",
    "cosh.host",
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "cumprod",
    "digamma",
    "exp2.host",
    "expm1.host",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "inner",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "linalg_cond",
    "linalg_det",
    "linalg_eigh",
    "linalg_eigvals",
    "linalg_eigvalsh",
    "linalg_householder_product",
    "linalg_inv",
    "linalg_inv_ex",
    "linalg_lu",
    "linalg_lu_factor",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord",
    "linalg_matrix_power",
    "linalg_multi_dot",
    "linalg_norm",
    "linalg_pinv.atol_rtol_float",
    "linalg_pinv.atol_rtol_tensor",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve",
    "linalg_solve_ex",
    "linalg_solve_triangular",
    "linalg_svd",
    "linalg_svdvals",
    "linalg_tensorinv",
    "linalg_tensorsolve",
    "linalg_vecdot.host",
    "log10.host",
    "log1p.host",
    "log2.host",
    "logcumsumexp",
    "logdet",
    "lu_solve",
    "matrix_exp",
    "max_pool1d",
    "max_pool1d_with_indices",
    "multi_margin_loss.host",
    "multilabel_margin_loss",
    "mvlgamma",
    "ormqr",
    "pdist",
    "pinverse",
    "polygamma",
    "qr",
    "reciprocal.host",
    "renorm.host",
    "rsqrt.host",
    "segment_reduce",
    "sgn.host",
    "sigmoid.host",
    "sin.host",
    "sinh.host",
    "special_polygamma",
    "stft",
    "svd",
    "tan.host",
    "tanh.host",
    "tensordot.host",
    "triangular_solve",
    "triplet_margin_loss.host",
    "vdot",
};

/// The same, where the gradient depends on the operands by comparisons at most: in eager it does not require grad by them.
constexpr const char* kLinearHostDerivatives[] = {
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact1d.vec",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d.vec",
    "channel_shuffle",
    "fft_fft",
    "fft_fft2",
    "fft_fftn",
    "fft_hfft",
    "fft_hfft2",
    "fft_hfftn",
    "fft_ifft",
    "fft_ifft2",
    "fft_ifftn",
    "fft_ihfft",
    "fft_ihfft2",
    "fft_ihfftn",
    "fft_irfft",
    "fft_irfft2",
    "fft_irfftn",
    "fft_rfft",
    "fft_rfft2",
    "fft_rfftn",
    "frexp.Tensor",
    "gradient.scalarint",
    "im2col",
    "index_put.host",
    "kthvalue",
    "lu_unpack",
    "max_pool2d_with_indices_backward",
    "max_unpool2d.host",
    "median",
    "msort",
    "nanmedian",
    "nanquantile.scalar",
    "pixel_shuffle",
    "pixel_unshuffle",
    "quantile.scalar",
    "unfold",
    "upsample_bicubic2d",
    "upsample_bicubic2d.vec",
    "upsample_bilinear2d",
    "upsample_bilinear2d.vec",
    "upsample_linear1d",
    "upsample_linear1d.vec",
    "upsample_nearest1d",
    "upsample_nearest1d.vec",
    "upsample_nearest2d",
    "upsample_nearest2d.vec",
    "upsample_nearest3d",
    "upsample_nearest3d.vec",
    "upsample_trilinear3d",
    "upsample_trilinear3d.vec",
};

constexpr int64_t kNearestPixel = 1;

/// Operators that are linear in one operand.
constexpr std::pair<const char*, size_t> kLinearOperands[] = {
    {"cholesky_solve", 0},   {"gradient.tensorarray", 0},    {"linalg_lu_solve", 2},    {"linalg_solve", 1},
    {"linalg_solve_ex", 1},  {"linalg_solve_triangular", 1}, {"linalg_tensorsolve", 1}, {"lu_solve", 0},
    {"triangular_solve", 0},
};

using Which = std::function<bool(size_t)>;

using Finish = std::function<ValueId(ValueId)>;

/// `fixed`: operands (by argument) that the gradient does not depend on, but by comparisons. `left_out`: those without one.
/// `finish`: done to each gradient. `registered`: the operator behind with_registered_derivative().
void derive(
    VjpContext& v, const Which& fixed, const Which& left_out = [](size_t) { return false; },
    const Finish& finish = [](ValueId gradient) { return gradient; }, const OpDef* registered = nullptr) {
  GraphBuilder& b = v.builder();
  const Node& node = v.node();
  std::vector<Arg> args = node.args;
  if (registered != nullptr) args.resize(args.size() - 2);
  TensorList cotangents;
  for (size_t i = 0; i < node.outputs.size(); ++i) cotangents.values.push_back(v.has_grad(i) ? v.grad(i) : kNoValue);
  std::vector<bool> needs;
  std::vector<TensorType> types;
  struct Place {
    size_t arg, item;
    bool listed;
  };
  std::vector<Place> places;
  const auto look = [&](size_t arg, size_t item, bool listed, ValueId operand) {
    if (operand == kNoValue) return;
    needs.push_back(!left_out(arg) && (listed ? v.needs(arg, item) : v.needs(arg)));
    if (!needs.back()) return;
    places.push_back({arg, item, listed});
    const TensorType type = b.type(operand);
    types.push_back(contiguous_type(v.ctx(), type.dtype, type.device, type.sizes));
    // As most functions make it: zeros_like(operand).
    std::vector<Expr> alike = registered != nullptr ? dense_strides(v.ctx(), type) : std::vector<Expr>();
    if (!alike.empty()) types.back().strides = std::move(alike);
  };
  const auto constant = [&](ValueId x) { return x == kNoValue ? x : b.unary("detach", x); };
  for (size_t i = 0; i < args.size(); ++i) {
    if (const auto* tensor = std::get_if<TensorArg>(&args[i])) look(i, 0, false, tensor->value);
    if (const auto* list = std::get_if<TensorList>(&args[i])) {
      for (size_t k = 0; k < list->values.size(); ++k) look(i, k, true, list->values[k]);
    }
  }
  if (places.empty()) return;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& name = node.op->schema.args[i].name;
    const auto* flag = std::get_if<Scalar>(&args[i]);
    const bool on = flag != nullptr && std::holds_alternative<bool>(*flag) && std::get<bool>(*flag);
    if (on && (name == "sparse" || name == "sparse_grad")) {
      throw Unsupported("the sparse gradient of " + node.op->name);
    }
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (!fixed(i)) continue;
    if (auto* tensor = std::get_if<TensorArg>(&args[i])) tensor->value = constant(tensor->value);
    if (auto* list = std::get_if<TensorList>(&args[i])) {
      for (ValueId& item : list->values) item = constant(item);
    }
  }
  if (registered != nullptr) {
    TensorList results{node.outputs};
    for (ValueId& result : results.values) result = fixed(args.size()) ? constant(result) : result;
    args.emplace_back(std::move(results));
  }
  args.emplace_back(std::move(cotangents));
  args.emplace_back(std::move(needs));
  const OpDef& transformed = registered != nullptr ? host_transform(*registered, HostTransform::kRegistered)
                                                   : host_transform(*node.op, HostTransform::kDerivative);
  const Values gradients = b.host_call(transformed, std::move(args), std::move(types));
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].listed) {
      v.give(places[i].arg, places[i].item, finish(gradients[i]));
    } else {
      v.give(places[i].arg, finish(gradients[i]));
    }
  }
}

/// Operators that are linear in one operand: a gradient by that one alone does not depend on it.
VjpFn linear_in(size_t operand) {
  return [operand](VjpContext& v) {
    bool alone = true;
    for (size_t i = 0; i < v.args().size(); ++i) alone = alone && (i == operand || !v.needs(i));
    derive(v, [&](size_t arg) { return alone && arg == operand; });
  };
}

/// Operators that are linear in each of their operands.
void multilinear(VjpContext& v) {
  size_t wanted = 0;
  for (size_t i = 0; i < v.args().size(); ++i) wanted += v.needs(i) ? 1 : 0;
  derive(v, [&](size_t arg) { return wanted == 1 && v.needs(arg); });
}

/// The same with a case in which the gradient is that of the result, in another shape.
VjpFn identity_if(bool (*holds)(const VjpContext&), VjpFn otherwise) {
  return [=](VjpContext& v) {
    if (!holds(v)) return otherwise(v);
    if (v.has_grad(0)) v.give(0, v.builder().reshape(v.grad(), v.args().type(0).sizes));
  };
}

/// At most one element.
bool is_single(const VjpContext& v) {
  const Expr count = v.args().type(0).numel(v.ctx());
  return v.ctx().guard(v.ctx().le(count, v.ctx().constant(1)));
}

/// Matrices of one element, or none at all.
bool is_trivial_matrix(const VjpContext& v) {
  const TensorType& type = v.args().type(0);
  return is_zero(v.ctx(), type.numel(v.ctx())) || is_one(v.ctx(), type.sizes.back());
}

void determinant_rule(VjpContext& v) {
  if (is_zero(v.ctx(), v.args().type(0).numel(v.ctx()))) return v.give_zeros(0);
  host_derivative(v);
}

// (input1, input2, weight, bias)
void bilinear_rule(VjpContext& v) {
  const int wanted = (v.needs(0) ? 1 : 0) + (v.needs(1) ? 1 : 0) + (v.needs(2) ? 1 : 0);
  // Linear in each of the three.
  derive(v, [&](size_t arg) { return arg == 3 || (wanted == 1 && v.needs(arg)); }, [](size_t arg) { return arg == 3; });
  if (v.needs(3)) v.give(3, v.grad());  // summed to the bias's shape
}

/// (input, output_size). To one element it is a mean.
void adaptive_avg_pool_rule(VjpContext& v) {
  const auto& wanted = std::get<SymInts>(v.args()[1]).values;
  if (std::all_of(wanted.begin(), wanted.end(), [&](Expr size) { return is_one(v.ctx(), size); })) {
    return linear_host_derivative(v);
  }
  host_derivative(v);
}

/// (input, tau)
void householder_rule(VjpContext& v) {
  if (!is_empty(v, v.args().tensor(0)) && !is_empty(v, v.args().tensor(1))) host_derivative(v);  // none in eager
}

/// (input, tau, other, left, transpose): linear in `other`.
void ormqr_rule(VjpContext& v) {
  const bool alone = !v.needs(0) && !v.needs(1);
  const ValueId input = v.args().tensor(0), tau = v.args().tensor(1);
  const bool no_reflectors = is_empty(v, input) || is_empty(v, tau);
  derive(
      v, [=](size_t arg) { return no_reflectors || (alone && arg == 2); },
      [=](size_t arg) { return no_reflectors && arg != 2; },
      [&](ValueId gradient) {
        return no_reflectors && !alone ? tied(v.builder(), gradient, {input, tau}, false) : gradient;
      });
}

/// (input, grid, interpolation, padding, align_corners). The nearest pixel's place matters by comparisons alone: gradients again
/// are zeros by the grid, and none by the input.
void grid_sampler_rule(VjpContext& v) {
  if (v.args().integer(2) != kNearestPixel) return host_derivative(v);
  const ValueId input = v.args().tensor(0), grid = v.args().tensor(1);
  derive(
      v, [](size_t) { return true; }, [](size_t) { return false; },
      [&](ValueId gradient) { return tied(v.builder(), tied(v.builder(), gradient, {grid}), {input}, false); });
}

/// By a real number the angle is constant but for its sign.
void angle_rule(VjpContext& v) {
  if (!is_complex(v.args().type(0).dtype)) return linear_host_derivative(v);
  const Term x = operand(v, 0), re = x.un("real"), im = x.un("imag"), zero = x.bin("eq", 0.0);
  Term square = re * re + im * im;
  if (v.for_tangents()) square = zero.choose(Term{x.b, x.b->unary("ones_like", square.id)}, square);
  const Term share = gradient(v) / square;
  const Term slope = term(v, v.builder().op("complex", {TensorArg{(-share * im).id}, TensorArg{(share * re).id}}));
  v.give(0, zero.choose(Term{x.b, x.b->unary("zeros_like", slope.id)}, slope).id);
}

/// (self, dim, index, source, reduce, include_self): sums, means and extrema are linear where they do not jump.
void reduction_to_places_rule(VjpContext& v) {
  if (v.args().str(4) == "prod") return host_derivative(v);
  linear_host_derivative(v);
}

void matrix_power_rule(VjpContext& v) {
  if (v.args().integer(1) == 0) return v.give_zeros(0);
  host_derivative(v);
}

}  // namespace

void host_derivative(VjpContext& v) {
  derive(v, [](size_t) { return false; });
}

void linear_host_derivative(VjpContext& v) {
  derive(v, [](size_t) { return true; });
}

const OpDef& with_registered_derivative(const OpDef& op) {
  struct Made {
    ForkSafeMutex mutex;
    std::map<const OpDef*, std::unique_ptr<OpDef>> definitions;
  };
  Made& made = made_once<Made>();
  const std::lock_guard lock(made.mutex);
  std::unique_ptr<OpDef>& place = made.definitions[&op];
  if (place != nullptr) return *place;
  place = std::make_unique<OpDef>();
  place->name = "results of " + op.name;
  place->kind = OpKind::kPointwise;
  place->schema = op.schema;
  ArgSpec& values = place->schema.args.emplace_back();
  values.name = "values";
  values.type = ArgType::kTensorList;
  ArgSpec& kept = place->schema.args.emplace_back();
  kept.name = "kept";
  kept.type = ArgType::kBoolList;
  place->decompose = [](GraphBuilder&, std::span<const Arg> args) {
    return std::get<TensorList>(args[args.size() - 2]).values;
  };
  place->vjp = [&op](VjpContext& v) {
    const auto kept_here = std::get<std::vector<bool>>(v.node().args.back());
    const auto not_kept = [&kept_here](size_t place_of) { return !kept_here[place_of]; };
    derive(v, not_kept, [](size_t) { return false; }, [](ValueId gradient) { return gradient; }, &op);
  };
  return *place;
}

VjpFn host_derivative_of(const OpDef& op) {
  using Rule = void (*)(VjpContext&);
  const Rule* rule = op.vjp.target<Rule>();
  return rule != nullptr && *rule == linear_host_derivative ? linear_host_derivative : host_derivative;
}

bool is_host_differentiated(const OpDef& op) {
  return (is_host_transform(op) && op.vjp != nullptr) || op.traits.by_host;
}

/// Operators of which the derivative by ATen depends on more, or on less, than the whole program's would: gradients that are
/// constant or absent, and the phase of eigenvectors, which is checked in all cotangents together.
constexpr const char* kByWholeTape[] = {
    "addr.host",   "gradient.array", "gradient.scalararray", "gradient.tensorarrayint", "lerp.Scalar",
    "lerp.Tensor", "linalg_eig",     "linalg_vander.host",   "logcumsumexp.host",       "nanquantile",
    "quantile",    "vander"};

void register_derivatives_host(OpRegistry& r) {
  // Where a family has the operator with a rule of its own, ATen's kernel beside it is meant.
  const auto by_host = [&r](const char* name, VjpFn rule) {
    const std::string beside = str_cat(name, ".host");
    const OpDef& def = r.get(name);
    const bool has_rule = (def.vjp || def.differentiable_parts) && r.find(beside) != nullptr;
    OpDef& meant = r.amend(has_rule ? beside : name);
    meant.vjp = std::move(rule);
    meant.traits.by_host = true;
  };
  for (const char* name : kHostDerivatives) by_host(name, host_derivative);
  for (const char* name : {"linalg_eigh", "linalg_svd", "svd"}) {
    r.amend(name).vjp = [](VjpContext& v) {
      // Complex vectors have a free phase, which the host checks in all cotangents together.
      if (is_complex(v.args().type(0).dtype)) throw Unsupported("the derivative of complex singular vectors");
      host_derivative(v);
    };
  }
  for (const char* name : {"cumprod", "logcumsumexp"}) r.amend(name).vjp = identity_if(is_single, host_derivative);
  r.amend("linalg_det").vjp = identity_if(is_trivial_matrix, determinant_rule);
  for (const char* name : {"angle", "angle.host"}) r.amend(name).vjp = angle_rule;
  for (const char* name : {"index_reduce.host", "scatter_reduce"}) r.amend(name).vjp = reduction_to_places_rule;
  r.amend("linalg_matrix_power").vjp = matrix_power_rule;
  r.amend("bilinear").vjp = bilinear_rule;
  for (const char* name : {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}) {
    r.amend(name).vjp = adaptive_avg_pool_rule;
  }
  for (const char* name : {"inner", "stft", "tensordot.host", "vdot"}) r.amend(name).vjp = multilinear;
  r.amend("linalg_householder_product").vjp = householder_rule;
  r.amend("ormqr").vjp = ormqr_rule;
  for (const char* name : {"grid_sampler_2d", "grid_sampler_3d"}) r.amend(name).vjp = grid_sampler_rule;
  for (const auto& [name, operand] : kLinearOperands) r.amend(name).vjp = linear_in(operand);
  r.amend("linalg_norm").vjp = [](VjpContext& v) {
    if (std::holds_alternative<Scalar>(v.args()[1]) && v.args().number(1) == 0) return;  // none in eager
    host_derivative(v);
  };
  for (const char* name : kLinearHostDerivatives) by_host(name, linear_host_derivative);
  r.amend("lu_unpack").first_differentiable = 1;  // permutations have none
  r.amend("histc").not_differentiable = true;
  // What has no rule is differentiated by ATen, which runs it again: one node, and not its whole graph.
  const std::unordered_set<std::string_view> whole(std::begin(kByWholeTape), std::end(kByWholeTape));
  for (const OpDef* op : r.all()) {
    if (whole.contains(op->name)) continue;
    const bool aliases = std::any_of(op->schema.output_alias.begin(), op->schema.output_alias.end(),
                                     [](int alias) { return alias >= 0; });
    const bool by_rule = op->vjp || op->differentiable_parts || op->not_differentiable;
    const bool runs_alone = op->kind == OpKind::kHost && !op->meta && !op->decompose && !op->choose;
    if (by_rule || !runs_alone || aliases || op->nondeterministic) continue;
    OpDef& meant = r.amend(op->name);
    meant.vjp = host_derivative;
    meant.traits.by_host = true;
  }
}

}  // namespace tatara
