// The state of the host's CPU generator, read and set by a program.
#include "ops/core/family_util.h"
#include "ops/rules/batching_rule.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Of a state, as torch.get_rng_state() gives it.
constexpr int64_t kStateBytes = 5056;

std::vector<TensorType> given_state(MetaContext& m) {
  return {contiguous_type(m.ctx(), DType::kUInt8, Device{}, {m.ctx().constant(kStateBytes)})};
}

/// The call gives nothing; the node has a result, since all nodes have.
std::vector<TensorType> nothing_given(MetaContext& m) {
  const TensorType& state = m.tensor(0);
  const bool fits = state.dtype == DType::kUInt8 && state.device.kind == DeviceKind::kCpu && state.dim() == 1 &&
                    same_size(m.ctx(), state.sizes[0], m.ctx().constant(kStateBytes)) && state.strides[0].is_const(1);
  if (!fits) throw Unsupported("a generator's state of another form");
  return {contiguous_type(m.ctx(), DType::kUInt8, Device{}, {m.ctx().constant(1)})};
}

std::vector<TensorType> seeded(MetaContext& m) {
  static_cast<void>(m.integer(0));
  return {contiguous_type(m.ctx(), DType::kUInt8, Device{}, {m.ctx().constant(1)})};
}

/// A generator has one state for all examples.
bool once(BatchContext& c) {
  GraphBuilder& b = c.builder();
  if (c.args().size() > 0 && c.batched(0)) throw Unsupported("a generator's state for each example of a batch");
  c.give(0, b.call(*c.node().op, c.mapped_args())[0], false);
  return true;
}

void add_state(OpRegistry& r, const char* name, const char* schema, MetaFn meta) {
  const std::string callable = std::string("torch.random.") + name;
  OpDef def = make_op({name, OpKind::kHost, schema, callable.c_str()}, std::move(meta));
  def.host_name = std::string("tatara::") + name;
  def.host_overload = "out";
  def.has_out = false;
  def.nondeterministic = true;
  def.not_differentiable = true;
  def.batch = once;
  r.add(std::move(def));
}

}  // namespace

void register_generator_states(OpRegistry& r) {
  add_state(r, "get_rng_state", "() -> Tensor", given_state);
  add_state(r, "set_rng_state", "(Tensor new_state) -> Tensor", nothing_given);
  add_state(r, "manual_seed", "(int seed) -> Tensor", seeded);
  r.amend("set_rng_state").checks_values = true;
}

}  // namespace tatara
