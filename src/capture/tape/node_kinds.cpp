#include "capture/tape/node_kinds.h"

#include "capture/tape/tape.h"

namespace tatara::capture {

PassOperands pass_operands(const TapeNode& pass) {
  PyObject* args = pass.args.get();
  return {PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1), PyTuple_GET_ITEM(args, 2)};
}

void set_pass_operands(TapeNode& pass, PyObject* roots, PyObject* cotangents, PyObject* variables) {
  pass.args = Ref::steal(PyTuple_Pack(3, roots, cotangents, variables));
}

const GradientPass* gradient_pass(const TapeNode& node) { return std::get_if<GradientPass>(&node.kind); }

const GradientPass* engine_pass(const TapeNode& node) {
  const GradientPass* pass = gradient_pass(node);
  return pass != nullptr && !pass->of_level ? pass : nullptr;
}

FuncStep step_of(const TapeNode& node) {
  const auto* step = std::get_if<TransformStep>(&node.kind);
  return step != nullptr ? step->step : FuncStep::kNone;
}

const std::vector<bool>& histories_of(const TapeNode& node) {
  static const std::vector<bool> none;
  if (const GradientPass* pass = gradient_pass(node)) return pass->histories;
  const auto* step = std::get_if<TransformStep>(&node.kind);
  return step != nullptr ? step->histories : none;
}

bool same_kind(const NodeKind& a, const NodeKind& b) {
  if (a.index() != b.index()) return false;
  if (const auto* step = std::get_if<TransformStep>(&a); step != nullptr) {
    return step->step == std::get<TransformStep>(b).step && step->histories == std::get<TransformStep>(b).histories;
  }
  const auto* one = std::get_if<GradientPass>(&a);
  const auto* other = std::get_if<GradientPass>(&b);
  return one == nullptr || (one->of_level == other->of_level && one->keeps_history == other->keeps_history &&
                            one->accumulates == other->accumulates && one->creates_graph == other->creates_graph &&
                            one->histories == other->histories);
}

Ref call_arguments(const TapeNode& node, Ref args) {
  const GradientPass* pass = gradient_pass(node);
  if (pass == nullptr || !args) return args;
  const auto flag = [](bool set) { return set ? Py_True : Py_False; };
  const Ref how =
      Ref::steal(PyTuple_Pack(3, flag(pass->keeps_history), flag(pass->accumulates), flag(pass->creates_graph)));
  return how ? Ref::steal(PySequence_Concat(args.get(), how.get())) : Ref();
}

}  // namespace tatara::capture
