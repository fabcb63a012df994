// Whether the host's operators take what a plan gives them.
#include <algorithm>
#include <complex>
#include <string>
#include <vector>

#include "runtime/host/host.h"
#include "runtime/plan/executable.h"
#include "runtime/plan/loop_plan.h"
#include "support/error.h"

namespace tatara {
namespace {

using Kind = HostValue::Kind;

Kind kind_of(const Scalar& scalar) {
  if (std::holds_alternative<bool>(scalar)) return Kind::kBool;
  if (std::holds_alternative<double>(scalar)) return Kind::kDouble;
  if (std::holds_alternative<std::complex<double>>(scalar)) return Kind::kComplex;
  return Kind::kInt;
}

/// What Executable makes of the argument.
HostKind kind_of(const HostCall::HostArg& arg) {
  struct Visitor {
    HostKind operator()(const NoneArg&) const { return {Kind::kNone}; }
    HostKind operator()(const HostCall::TensorSlot& slot) const {
      return {slot.index < 0 ? Kind::kNone : Kind::kTensor};
    }
    HostKind operator()(const HostCall::TensorListSlot& list) const {
      return {Kind::kTensorList, std::any_of(list.indices.begin(), list.indices.end(), [](int i) { return i < 0; })};
    }
    HostKind operator()(const HostCall::OutSlot&) const { return {Kind::kTensor}; }
    HostKind operator()(const HostCall::NumberSlot&) const { return {Kind::kDouble}; }
    HostKind operator()(const Scalar& scalar) const { return {kind_of(scalar)}; }
    HostKind operator()(const SymInts&) const { return {Kind::kIntList}; }
    HostKind operator()(const DType&) const { return {Kind::kDType}; }
    HostKind operator()(const Device&) const { return {Kind::kDevice}; }
    HostKind operator()(const std::string&) const { return {Kind::kString}; }
    HostKind operator()(const std::vector<bool>&) const { return {Kind::kBoolList}; }
    HostKind operator()(const std::vector<double>&) const { return {Kind::kDoubleList}; }
  };
  return std::visit(Visitor(), arg);
}

}  // namespace

void verify_host_calls(const Plan& plan, HostOps* host) {
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr || is_loop_call(*call) || is_table_call(*call) || awaits_condition(*call)) continue;
    const HostOp* op = host != nullptr ? host->find(call->op, call->overload) : nullptr;
    if (op == nullptr) throw CompilationError(str_cat("the host has no operator ", call->op, ".", call->overload));
    std::vector<HostKind> kinds;
    for (const HostCall::HostArg& arg : call->args) kinds.push_back(kind_of(arg));
    const std::string objection = op->objection(kinds, call->results.size());
    if (!objection.empty()) throw CompilationError(str_cat(call->op, ".", call->overload, ": ", objection));
  }
}

}  // namespace tatara
