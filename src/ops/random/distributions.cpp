// What torch.distributions draws by kernels of its own, and the derivatives of its samples.
#include "ops/core/pointwise_util.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

DType sampled_type(MetaContext& m) {
  const DType dtype = m.tensor(0).dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) throw Unsupported(str_cat(m.op().name, " of this type"));
  return dtype;
}

/// A sample for each element, in memory of its own.
std::vector<TensorType> sample_meta(MetaContext& m) {
  return {contiguous_type(m.ctx(), sampled_type(m), m.tensor(0).device, m.tensor(0).sizes)};
}

MetaFn of_operands(std::vector<size_t> operands) {
  return [operands = std::move(operands)](MetaContext& m) -> std::vector<TensorType> {
    const DType dtype = sampled_type(m);
    for (const size_t i : operands) {
      if (m.tensor(i).dtype != dtype) throw Unsupported(str_cat(m.op().name, " of several types"));
    }
    return {pointwise_type(m, operands, dtype)};
  };
}

void gamma_rule(VjpContext& v) {
  GraphBuilder& b = v.builder();
  const ValueId slope = b.binary("_standard_gamma_grad", v.args().tensor(0), v.out());
  v.give(0, b.binary("mul", v.grad(), slope));
}

void add_sampler(OpRegistry& r, const char* name, const char* callable, VjpFn rule) {
  OpDef def =
      make_op({name, OpKind::kRandom, "(Tensor self, Generator? generator=None) -> Tensor", callable}, sample_meta);
  def.nondeterministic = true;
  def.vjp = std::move(rule);
  r.add(std::move(def));
}

}  // namespace

void register_distributions(OpRegistry& r) {
  add_sampler(r, "_sample_dirichlet", "torch._sample_dirichlet", nullptr);
  add_sampler(r, "_standard_gamma", "torch._standard_gamma", gamma_rule);
  r.add(make_op(
      {"_standard_gamma_grad", OpKind::kHost, "(Tensor self, Tensor output) -> Tensor", "torch._standard_gamma_grad"},
      of_operands({0, 1})));
  r.add(make_op(
      {"_dirichlet_grad", OpKind::kHost, "(Tensor x, Tensor alpha, Tensor total) -> Tensor", "torch._dirichlet_grad"},
      of_operands({0, 1, 2})));
}

}  // namespace tatara
