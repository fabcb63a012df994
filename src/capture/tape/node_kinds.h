// What the nodes of a tape are. Each kind names what it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

struct CustomBackward;
struct TapeNode;

/// A function or method of torch.
struct OperatorCall {};

/// NumPy's. It ran when it was recorded: its results are in the slots.
struct NumpyOperation {
  Ref errstate;               ///< np.errstate that it ran under, where it is not that of the trace's start
  bool as_it_stands = false;  ///< later calls make it, too, and look at the types and shapes of its results
  bool crosses = false;       ///< the same, with tensors among its operands or results
  int target = -1;            ///< the slot whose memory it writes to, where the trace has made that
  /// Data decide its result, which holds as it fell in the trace: the sizes, or `fell`, a NumPy bool. By "file:line"; else empty.
  std::string decides = {};
  Ref fell = {};
};

/// Arithmetic on Python numbers, or a tensor's value as one: the result is a float or an int.
struct NumberOperation {
  Ref guarded;  ///< what it gave, which is a guard (a comparison, a value that was asked for); null: no guard
};

/// requires_grad_() of a tensor that had no history.
struct LeafMark {};

/// An end of a region whose results gradients compute again (torch.utils.checkpoint). Where the tape runs as it stands it does
/// nothing, but for the run of an open trace, which calls torch's own.
struct RegionMark {
  bool begins = false;
  bool redraws = false;    ///< of an end: eager draws other random numbers when it computes the region again
  bool reentrant = false;  ///< use_reentrant=True
  std::vector<int> given;  ///< of a begin: the tensors among its arguments
};

/// The end of an autograd.Function of the user's: its outputs, made without gradients, get their history. The node's arguments
/// are what it was called with and what it gave (FunctionOperands).
struct FunctionEnd {
  std::shared_ptr<const CustomBackward> backward;
  bool is_hook = false;        ///< a hook on a tensor that the tape makes is recorded as a function that does nothing
  Ref cls = {}, context = {};  ///< the class, and its ctx of the present call; null where the trace has ended
};

/// Steps of torch.func's transforms. A tape holds what eager does, call by call, so that it runs as it stands; a graph is made
/// from what the calls mean.
enum class FuncStep : uint8_t {
  kNone,
  kEnter,       ///< a level begins
  kExit,        ///< the innermost level ends
  kWrap,        ///< a tensor as the level sees it: (tensor)
  kUnwrap,      ///< a tensor of the level as the one around it sees it: (tensor)
  kVariable,    ///< gradients are asked by the tensor
  kBatchIn,     ///< one example: (tensor)
  kBatchOut,    ///< all examples: (tensor, how many)
  kMakeDual,    ///< (primal, tangent)
  kUnpackDual,  ///< (dual): primal and tangent
};

/// What eager makes the tangent of a dual tensor that is given one.
enum class TangentIs : uint8_t {
  kUnknown,
  kGiven,   ///< the very one: it lies in its storage as the primal does
  kCopied,  ///< one that lies as the primal does
};

struct TransformStep {
  FuncStep step = FuncStep::kNone;
  /// Of a tensor that goes into a level or out of it: torch's number of the level. Of a level that is entered: its own
  /// among all of the trace.
  int number = 0;
  int dim = 0;                              ///< of a batch
  std::vector<bool> histories = {};         ///< of kUnpackDual, per output: whether it requires grad
  TangentIs tangent = TangentIs::kUnknown;  ///< of kMakeDual
  bool whole = false;                       ///< of kMakeDual with kGiven: the tangent fills its storage
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

using NodeKind = std::variant<OperatorCall, NumpyOperation, NumberOperation, LeafMark, RegionMark, FunctionEnd,
                              GradientPass, TransformStep>;

bool is_operator_call(const TapeNode& node);
bool is_numpy_operation(const TapeNode& node);
/// How the names of calls begin that draw random numbers by NumPy; their first argument is the generator.
inline constexpr const char* kRandomCalls = "random.";
/// The node by which an array that calls on constants have made becomes a value of the tape.
inline constexpr std::string_view kCopyOfConstants = "copy of constants";
bool draws_by_numpy(const TapeNode& node);
/// One between arrays and tensors.
bool crosses_to_tensors(const TapeNode& node);
bool runs_as_it_stands(const TapeNode& node);
struct TapeSlot;
/// Whether the results are of the kinds that the trace has seen: what reads them counts on that.
bool is_as_recorded(const TapeNode& node, const std::vector<TapeSlot>& slots, const std::vector<Ref>& env);
bool is_leaf_mark(const TapeNode& node);
// Null for nodes of other kinds.
const NumberOperation* number_operation(const TapeNode& node);
const RegionMark* region_mark(const TapeNode& node);
const FunctionEnd* function_end(const TapeNode& node);

/// Operands of a pass, as lists of slots.
struct PassOperands {
  PyObject *roots, *cotangents, *variables;
};
PassOperands pass_operands(const TapeNode& pass);
void set_pass_operands(TapeNode& pass, PyObject* roots, PyObject* cotangents, PyObject* variables);

struct FunctionOperands {
  PyObject *operands, *results;
};
FunctionOperands function_operands(const TapeNode& end);

/// Null for nodes of other kinds.
const GradientPass* gradient_pass(const TapeNode& node);
/// The same, but for passes of levels.
const GradientPass* engine_pass(const TapeNode& node);

/// Of nodes of other kinds: kNone.
FuncStep step_of(const TapeNode& node);
/// Null for nodes of other kinds.
const TransformStep* transform_step(const TapeNode& node);
/// Of a pass or a step, per output: whether it requires grad. Empty where the operands tell.
const std::vector<bool>& histories_of(const TapeNode& node);

/// Whether the kinds are the same with the same settings, as far as graphs are made from them.
bool same_kind(const NodeKind& a, const NodeKind& b);

/// Positional arguments of the call that a node makes: `args`, its own with values in place of slots, with what its kind names.
/// Null with a Python error set.
Ref call_arguments(const TapeNode& node, Ref args);

/// Of the objects that a kind refers to.
int traverse_kind(const NodeKind& kind, const Visitor& visit);

}  // namespace tatara::capture
