#include "runtime/plan/plan_effects.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "ops/core/op_def.h"
#include "support/made_once.h"

namespace tatara {

const std::set<std::string>& random_operators() {
  return made_once([] {
    std::set<std::string> found;
    for (const OpDef* op : OpRegistry::global().all()) {
      if (!op->draws()) continue;
      const std::string base = op->host_name.empty() ? op->name.substr(0, op->name.find('.')) : op->host_name;
      found.insert(base.find("::") == std::string::npos ? "aten::" + base : base);
    }
    return found;
  });
}

namespace {

/// Of operators that draw random numbers: whether they do so whatever their operands hold.
bool always_draws(const HostCall& call) {
  static constexpr std::string_view kAlways[] = {"aten::rand",         "aten::randn",         "aten::randint",
                                                 "aten::randperm",     "aten::rand_like",     "aten::randn_like",
                                                 "aten::randint_like", "aten::native_dropout"};
  return std::find(std::begin(kAlways), std::end(kAlways), call.op) != std::end(kAlways) ||
         (call.op.rfind("tatara::", 0) == 0 && call.op != "tatara::set_rng_state");
}

}  // namespace

PlanEffects::PlanEffects(const PlanPrograms& programs) : programs_(programs) {
  const Plan& plan = programs_.plan;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i]);
    if (launch == nullptr || !launch->clears) continue;
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(launch->buffers.at(0))];
    clearing_.emplace_back(i, static_cast<size_t>(buffer.index));
  }
  find_failures();
}

void PlanEffects::find_failures() {
  const Plan& plan = programs_.plan;
  const auto draws = [](const PlanStep& step) {
    const auto* call = std::get_if<HostCall>(&step);
    return call != nullptr && random_operators().contains(call->op);
  };
  const auto may_fail = [&](const PlanStep& step) {
    const auto* launch = std::get_if<KernelLaunch>(&step);
    if (launch == nullptr) return !draws(step) || !always_draws(std::get<HostCall>(step));
    return !plan.kernels[static_cast<size_t>(launch->kernel)].fault_sites.empty();
  };
  draws_ = std::any_of(plan.steps.begin(), plan.steps.end(), draws);
  fails_ = std::any_of(plan.steps.begin(), plan.steps.end(), may_fail);
  if (plan.first_write < 0) return;
  fails_late_ = programs_.gpu < 0 && std::any_of(plan.steps.begin() + plan.first_write, plan.steps.end(), may_fail);
}

void PlanEffects::written_inputs(std::span<const int64_t> symbols, size_t most_bytes, WrittenInputs& out) const {
  const Plan& plan = programs_.plan;
  out = {};
  if (!fails_late_) return;
  out.late = true;
  size_t total = 0;
  std::vector<int64_t> sizes, strides;
  for (const InputWrite& write : plan.input_writes) {
    const auto input = static_cast<size_t>(write.input_index);
    values_of(programs_.input_layouts[input].sizes, symbols, sizes);
    values_of(programs_.input_layouts[input].strides, symbols, strides);
    const DType dtype = plan.inputs[input].type.dtype;
    const auto elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    const size_t bytes = static_cast<size_t>(elements * dtype_size(dtype));
    // What lies between the elements of others may change meanwhile.
    const bool dense = std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride >= 0; }) &&
                       span_of(sizes, strides, dtype) == bytes;
    total += bytes;
    if (!dense || total > most_bytes) {
      out = {};
      out.late = true;
      return;
    }
    out.inputs.emplace_back(input, bytes);
  }
  out.all = true;
}

void PlanEffects::leave_out_clearing(RunContext& context, RunIo& io) const {
  context.needless.clear();
  for (const auto& [step, buffer] : clearing_) {
    if (buffer >= io.zero.size() || io.zero[buffer] == 0) continue;
    context.needless.resize(programs_.plan.steps.size());
    context.needless[step] = 1;
    ++io.left_out;
  }
}

}  // namespace tatara
