// What nodes of a tape are beside calls of operators. Each kind names what it has.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

struct TapeNode;

/// An operator, or what is not among the kinds below.
struct OperatorCall {};

/// Steps of torch.func's transforms. A tape holds what eager does, call by call, so that it runs as it stands; a graph is made
/// from what the calls mean.
enum class FuncStep : uint8_t {
  kNone,
  kEnter,       ///< a level begins
  kExit,        ///< the innermost level ends
  kWrap,        ///< a tensor as the level sees it: (tensor, level)
  kUnwrap,      ///< a tensor of the level as the one around it sees it: (tensor, level)
  kVariable,    ///< gradients are asked by the tensor
  kBatchIn,     ///< one example: (tensor, dim, level)
  kBatchOut,    ///< all examples: (tensor, level, size, dim)
  kMakeDual,    ///< (primal, tangent)
  kUnpackDual,  ///< (dual): primal and tangent
};

struct TransformStep {
  FuncStep step = FuncStep::kNone;
  std::vector<bool> histories;  ///< of kUnpackDual, per output: whether it requires grad
};

/// Gradients of roots by variables. The node's arguments are its operands alone (PassOperands).
struct GradientPass {
  bool of_level = false;        ///< of a level of torch.func; else a pass of the engine
  bool keeps_history = false;   ///< of the engine: another pass may go through the same operations
  bool accumulates = false;     ///< of the engine: the results go to `.grad`
  bool creates_graph = false;   ///< the results can be differentiated again
  Ref hooks;                    ///< {slot: gradient_hooks()} of leaves whose hooks the trace calls itself
  std::vector<bool> histories;  ///< per output: whether it requires grad
};

using NodeKind = std::variant<OperatorCall, GradientPass, TransformStep>;

/// Operands of a pass, as lists of slots.
struct PassOperands {
  PyObject *roots, *cotangents, *variables;
};
PassOperands pass_operands(const TapeNode& pass);
void set_pass_operands(TapeNode& pass, PyObject* roots, PyObject* cotangents, PyObject* variables);

/// Null for nodes of other kinds.
const GradientPass* gradient_pass(const TapeNode& node);
/// The same, but for passes of levels.
const GradientPass* engine_pass(const TapeNode& node);

/// Of nodes of other kinds: kNone.
FuncStep step_of(const TapeNode& node);
/// Of a pass or a step, per output: whether it requires grad. Empty where the operands tell.
const std::vector<bool>& histories_of(const TapeNode& node);

/// Whether the kinds are the same with the same settings. Hooks are not compared.
bool same_kind(const NodeKind& a, const NodeKind& b);

/// Positional arguments of the call that a node makes: `args`, its own with values in place of slots, and what its kind adds.
/// Null with a Python error set.
Ref call_arguments(const TapeNode& node, Ref args);

}  // namespace tatara::capture
