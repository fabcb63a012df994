#include "capture/tape/node_kinds.h"

#include "capture/tape/tape.h"

namespace tatara::capture {

bool is_operator_call(const TapeNode& node) { return std::holds_alternative<OperatorCall>(node.kind); }
bool is_numpy_operation(const TapeNode& node) { return std::holds_alternative<NumpyOperation>(node.kind); }
bool draws_by_numpy(const TapeNode& node) {
  return (is_numpy_operation(node) || number_operation(node) != nullptr) && node.name.starts_with(kRandomCalls);
}
bool crosses_to_tensors(const TapeNode& node) {
  const auto* call = std::get_if<NumpyOperation>(&node.kind);
  return call != nullptr && call->crosses;
}
bool runs_as_it_stands(const TapeNode& node) {
  const auto* call = std::get_if<NumpyOperation>(&node.kind);
  return call != nullptr && call->as_it_stands;
}
bool is_leaf_mark(const TapeNode& node) { return std::holds_alternative<LeafMark>(node.kind); }
const NumberOperation* number_operation(const TapeNode& node) { return std::get_if<NumberOperation>(&node.kind); }
const RegionMark* region_mark(const TapeNode& node) { return std::get_if<RegionMark>(&node.kind); }
const FunctionEnd* function_end(const TapeNode& node) { return std::get_if<FunctionEnd>(&node.kind); }

PassOperands pass_operands(const TapeNode& pass) {
  PyObject* args = pass.args.get();
  return {PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1), PyTuple_GET_ITEM(args, 2)};
}

void set_pass_operands(TapeNode& pass, PyObject* roots, PyObject* cotangents, PyObject* variables) {
  pass.args = Ref::steal(PyTuple_Pack(3, roots, cotangents, variables));
}

FunctionOperands function_operands(const TapeNode& end) {
  return {PyTuple_GET_ITEM(end.args.get(), 0), PyTuple_GET_ITEM(end.args.get(), 1)};
}

const GradientPass* gradient_pass(const TapeNode& node) { return std::get_if<GradientPass>(&node.kind); }

const GradientPass* engine_pass(const TapeNode& node) {
  const GradientPass* pass = gradient_pass(node);
  return pass != nullptr && !pass->of_level ? pass : nullptr;
}

const TransformStep* transform_step(const TapeNode& node) { return std::get_if<TransformStep>(&node.kind); }

FuncStep step_of(const TapeNode& node) {
  const TransformStep* step = transform_step(node);
  return step != nullptr ? step->step : FuncStep::kNone;
}

const std::vector<bool>& histories_of(const TapeNode& node) {
  static const std::vector<bool> none;
  if (const GradientPass* pass = gradient_pass(node)) return pass->histories;
  const TransformStep* step = transform_step(node);
  return step != nullptr ? step->histories : none;
}

namespace {

bool same(const OperatorCall&, const OperatorCall&) { return true; }
bool same(const NumpyOperation&, const NumpyOperation&) { return true; }  // NumPy's graphs are not compared
bool same(const NumberOperation& a, const NumberOperation& b) { return a.guarded.get() == b.guarded.get(); }
bool same(const LeafMark&, const LeafMark&) { return true; }
bool same(const RegionMark& a, const RegionMark& b) {
  return a.begins == b.begins && a.redraws == b.redraws && a.reentrant == b.reentrant;
}
bool same(const FunctionEnd& a, const FunctionEnd& b) { return a.backward == b.backward; }
bool same(const GradientPass& a, const GradientPass& b) {
  return a.of_level == b.of_level && a.keeps_history == b.keeps_history && a.accumulates == b.accumulates &&
         a.creates_graph == b.creates_graph && a.histories == b.histories;
}
bool same(const TransformStep& a, const TransformStep& b) {
  return a.step == b.step && a.number == b.number && a.dim == b.dim && a.histories == b.histories;
}

}  // namespace

bool same_kind(const NodeKind& a, const NodeKind& b) {
  return a.index() == b.index() &&
         std::visit([&b]<typename Kind>(const Kind& one) { return same(one, std::get<Kind>(b)); }, a);
}

int traverse_kind(const NodeKind& kind, const Visitor& visit) {
  if (const auto* call = std::get_if<NumpyOperation>(&kind)) return visit(call->errstate);
  if (const auto* call = std::get_if<NumberOperation>(&kind)) return visit(call->guarded);
  if (const auto* pass = std::get_if<GradientPass>(&kind)) return visit(pass->hooks);
  if (const auto* end = std::get_if<FunctionEnd>(&kind)) return visit(end->cls, end->context);
  return 0;
}

namespace {

Ref pass_arguments(const GradientPass& pass, const Ref& args) {
  const auto flag = [](bool set) { return set ? Py_True : Py_False; };
  const Ref how =
      Ref::steal(PyTuple_Pack(3, flag(pass.keeps_history), flag(pass.accumulates), flag(pass.creates_graph)));
  return how ? Ref::steal(PySequence_Concat(args.get(), how.get())) : Ref();
}

Ref function_arguments(const FunctionEnd& end, const Ref& args) {
  const Ref which = Ref::steal(PyTuple_Pack(2, end.cls.get(), end.context.get()));
  return which ? Ref::steal(PySequence_Concat(which.get(), args.get())) : Ref();
}

/// In the order of torch's functions.
Ref step_arguments(const TransformStep& step, const Ref& args) {
  const auto at = [&args](Py_ssize_t place) { return PyTuple_GET_ITEM(args.get(), place); };
  const Ref number = Ref::steal(PyLong_FromLong(step.number)), dim = Ref::steal(PyLong_FromLong(step.dim));
  if (!number || !dim) return {};
  switch (step.step) {
    case FuncStep::kWrap:
    case FuncStep::kUnwrap: return Ref::steal(PyTuple_Pack(2, at(0), number.get()));
    case FuncStep::kBatchIn: return Ref::steal(PyTuple_Pack(3, at(0), dim.get(), number.get()));
    case FuncStep::kBatchOut: return Ref::steal(PyTuple_Pack(4, at(0), number.get(), at(1), dim.get()));
    default: return args;
  }
}

}  // namespace

Ref call_arguments(const TapeNode& node, Ref args) {
  if (!args) return args;
  if (const GradientPass* pass = gradient_pass(node)) return pass_arguments(*pass, args);
  if (const FunctionEnd* end = function_end(node)) return function_arguments(*end, args);
  if (const TransformStep* step = transform_step(node)) return step_arguments(*step, args);
  return args;
}

}  // namespace tatara::capture
