// The callables that capture knows: known_calls.def lists all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/host/package.h"
#include "capture/host/torch_api.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// Calls of torch's function transforms, forward-mode levels and checkpoints, and of the package's own around these.
enum class TransformCall : uint8_t {
  kNone,
  kEnterGrad,
  kEnterJvp,
  kEnterVmap,
  kEnterDual,
  kExit,
  kExitDual,
  kWrap,
  kUnwrap,
  kAllowVariables,
  kGradients,
  kBatchIn,
  kBatchOut,
  kIsBatched,
  kMakeDual,
  kUnpackDual,
  kForwardSwitch,
  kLoadRules,
  kOldVmap,  // the level of torch._vmap_internals begins or ends
  kCheckpoint,
  kRegion,
  kReentrant,
  kRegionMark,
  kUnwrapDead,
  kAttachBackward,
  kLinearize,
  kRecord,
  kReplay,
  kChoose,
  kStop,
  kAsks,      // for what is not so while the trace is open
  kAsksOpen,  // whether a level is open
};

/// What a call is answered by before anything else is asked about it.
enum class SpecialCall : uint8_t {
  kNone,
  kTransform,       ///< KnownCall::transform
  kStandIn,         ///< a function of the package: KnownCall::stand_in
  kEngine,          ///< run_backward of torch's engine
  kRegisterHook,    ///< Tensor.register_hook
  kFunctionApply,   ///< apply of a torch.autograd.Function
  kLevelFunction,   ///< the same inside of torch.func's levels
  kUpdateScaler,    ///< GradScaler.update
  kScaledStep,      ///< GradScaler._maybe_opt_step
  kIsCompiling,     ///< torch.compiler.is_compiling
  kAsksMode,        ///< handle_torch_function, of functions in Python
  kMakeSubclass,    ///< Tensor._make_subclass, which makes parameters
  kGeneratorState,  ///< torch.get_rng_state, set_rng_state and manual_seed
  kOtherWords,      ///< what a function of the package says in other words, for some operands
  kOfGenerator,     ///< methods of torch.Generator that read or set its state
  kOfRandom,        ///< those of random.Random that draw a number or seed it
};

/// What a function in C does, as far as a trace is concerned.
enum class CallHandler : uint8_t {
  kNone,              ///< no row says it
  kPure,              ///< nothing besides its result
  kWatched,           ///< the same, but it reads a state of its own: guards call it again
  kAttribute,         ///< getattr and hasattr
  kSetAttribute,      ///< setattr and delattr
  kChangesFirst,      ///< changes its first argument: KnownCall::method
  kHandled,           ///< tells of the exception that is being handled
  kBreak,             ///< breaks the graph
  kTorch,             ///< reaches the torch function mode
  kSwitchesTorch,     ///< changes a state of torch's that no graph restores
  kThrownSwitch,      ///< a switch that later calls throw, too
  kNoModes,           ///< asks whether modes are on: under a trace those alone that give a device
  kAskModes,          ///< asks for the stack of modes
  kPushesMode,        ///< puts a torch-function mode on it
  kPopsMode,          ///< takes one off
  kHasTorchFunction,  ///< asks for a __torch_function__
  kEvalFrame,         ///< switches torch's compiler
  kGroupTensors,      ///< torch._C._group_tensors_by_device_and_dtype
  kCallsApart,        ///< breaks the graph for the reason that it is given
  kApartInMemory,     ///< asks whether tensors share memory
};

/// What code in Python does that is no part of the program, or is traced in a way of its own.
enum class KnownCode : uint8_t {
  kNone,
  kOpaque,       ///< it runs for real, within a trace, too
  kAsksLevel,    ///< Logger.isEnabledFor
  kLogs,         ///< Logger._log
  kLastBits,     ///< LBFGS, which takes a branch by each of its sums
  kGivesDevice,  ///< a default device's mode: calls that are recorded have its device already (with_default_device)
  kOnce,         ///< what once_differentiable makes of a backward
};

/// What else is known of a callable, or of all methods and functions of a name.
enum CallTrait : uint64_t {
  kMutates = 1ULL << 0,           ///< changes what it is a method of
  kAdds = 1ULL << 1,              ///< and takes nothing away
  kAsksType = 1ULL << 2,          ///< of its operands, or their identity
  kItemsOnly = 1ULL << 3,         ///< looks at its operands' items, but not into these
  kCompares = 1ULL << 4,          ///< its operands
  kUnseen = 1ULL << 5,            ///< a tensor's, which modes for torch functions do not see, or not in all forms
  kReadsClock = 1ULL << 6,        ///< as a method of a type of datetime's
  kReadsState = 1ULL << 7,        ///< that no watch sees
  kMakesTensor = 1ULL << 8,       ///< that no torch function makes
  kNeedsEngine = 1ULL << 9,       ///< of gradients, which needs real tensors
  kAppliesFunction = 1ULL << 10,  ///< needs real tensors where gradients are on
  kCallsArguments = 1ULL << 11,
  kImmutable = 1ULL << 12,      ///< a type whose methods never change anything
  kHolds = 1ULL << 13,          ///< a type in C that only keeps, finds and compares objects
  kCounts = 1ULL << 14,         ///< the same but for counts and places
  kTakesNumbers = 1ULL << 15,   ///< hands numbers on, or asks their slots
  kReadsNumbers = 1ULL << 16,   ///< of a module whose functions otherwise take them
  kTakesItems = 1ULL << 17,     ///< takes numbers inside of containers
  kComputes = 1ULL << 18,       ///< with objects of any type, whose types it may check
  kHandsOn = 1ULL << 19,        ///< hands arrays on, or asks for their type only
  kIterates = 1ULL << 20,       ///< over its arguments
  kReadsKey = 1ULL << 21,       ///< looks its first argument up, or counts by it
  kArrayMethod = 1ULL << 22,    ///< of arrays and scalars: one node each
  kArrayFunction = 1ULL << 23,  ///< of NumPy: one node each
  kArrayFacts = 1ULL << 24,     ///< of NumPy: does not depend on elements
  kArrayBuiltin = 1ULL << 25,   ///< of NumPy, in C and no dispatcher: one node each
  kArraySize = 1ULL << 26,      ///< and its arguments decide a size
  kArrayWrites = 1ULL << 27,    ///< to an operand
  kArraySetup = 1ULL << 28,     ///< of NumPy: runs as it is
  kMethodWrites = 1ULL << 30,   ///< to the array that it is a method of
  kArrayBody = 1ULL << 31,      ///< of NumPy: its body in Python is traced
  kPlainCall = 1ULL << 29,      ///< a type in C whose objects may be called: they run what they hold
  kArrayPlain = 1ULL << 32,     ///< of arrays: tells nothing of their elements
  kArrayShape = 1ULL << 33,     ///< of arrays: its arguments decide a shape
  kReadsOneKey = 1ULL << 34,    ///< of a dict: looks one key up
  kArrayOperator = 1ULL << 35,  ///< of the language: calls a ufunc for arrays
  kOfWhole = 1ULL << 36,        ///< gives a whole number as it is
  kPlainGuard = 1ULL << 37,     ///< a context manager of torch's that changes nothing that a graph could miss
  kAsksRegistry = 1ULL << 38,   ///< of an abstract base class, whether a class is a subclass
  kSizeOnly = 1ULL << 39,       ///< asks how many items its operand has
  kGivesView = 1ULL << 42,      ///< of a dict: gives a view of it
  kArraySized = 1ULL << 41,     ///< of NumPy or arrays: data decide how large its results are
  kArrayReads = 1ULL << 40,     ///< of arrays: gives elements as Python's own numbers
};

struct KnownCall {
  SpecialCall special = SpecialCall::kNone;
  TransformCall transform = TransformCall::kNone;
  PackageFunction stand_in = PackageFunction::kError;
  CallHandler handler = CallHandler::kNone;
  KnownCode code = KnownCode::kNone;
  uint64_t traits = 0;           ///< of CallTrait
  const char* method = nullptr;  ///< kChangesFirst: the method that it calls on its first argument; null: its own name

  bool is(uint64_t trait) const { return (traits & trait) != 0; }
};

/// One look-up by identity. What a callable is not known by yet is found in the table once, by what it says of itself: its
/// name and module. That of a method is what is known of its function.
KnownCall known_call(PyObject* callable);
/// What is known of the types that `type` is one of. The same, for a type as an owner of methods and as a callable.
KnownCall known_type(const PyTypeObject* type);
/// Of a function in Python, by its code.
KnownCall known_code(PyCodeObject* code);
/// Of all methods of this name.
uint64_t name_traits(std::string_view name);

/// What TorchApi makes of a torch function, a method of tensors or an attribute, by its name.
enum TorchTrait : uint32_t {
  kOfValues = 1U << 0,    ///< kBreak: gives Python data made from the operands' values
  kOfSizes = 1U << 1,     ///< kMetadata: depends on sizes or strides
  kOfLayout = 1U << 2,    ///< kMetadata: depends on strides
  kFactory = 1U << 3,     ///< takes device=
  kGradGetter = 1U << 4,  ///< an attribute that is None on a placeholder and real on others
  kViewGetter = 1U << 5,  ///< an attribute that gives a tensor
  kDeviceGetter = 1U << 6,
  kBreaksAsOperator =
      1U << 7,  ///< of the dispatcher: for an operand that requires grad its result has a history that raises
  kTakesNumber = 1U << 8,       ///< with another operand, a number that varies is one, too
  kGivesTuple = 1U << 9,        ///< also where it holds one tensor
  kWithoutHistory = 1U << 10,   ///< its results never require grad
  kDiffersInLevels = 1U << 11,  ///< an attribute that differs between a tensor and what a transform wraps
  kKeepsLeaf = 1U << 12,        ///< in place, and may be called on a leaf
  kDependsOnBase = 1U << 13,    ///< an attribute that depends on what a tensor is a view of
  kCountsSteps = 1U << 14,      ///< what optimizers count their steps with
  kChangesLayout = 1U << 15,    ///< of a tensor, and not its values
  kTurnsDims = 1U << 16,        ///< exchanges two dimensions
  kHandsTangents = 1U << 17,    ///< the tangent of its result is the operand's, the very object
  kGivesOneForEach = 1U << 18,  ///< of a list of tensors, also where that holds one
  kMayCopy = 1U << 19,          ///< gives a copy of its operand where that lies otherwise in memory than asked for
  kDataDecide = 1U << 20,  ///< how many rows the first result has; a second one is as the operand, a third as the first
  kTakesMasks = 1U << 21,  ///< indexes its first operand by what follows
  kSelects = 1U << 22,     ///< the same, both of them broadcast
  kGivesPlaces = 1U << 23,  ///< a tensor for each dimension of its operand, if told so where it gives rows else
  kRepeats = 1U << 24,      ///< rows of its first operand, each as often as the second says
  kTakesArray = 1U << 25,   ///< makes a tensor of an array
  kOfElements = 1U << 26,   ///< of a sparse tensor: depends on how many elements it has
};
struct KnownTorch {
  TorchKind kind = TorchKind::kRecord;
  uint32_t traits = 0;
  bool is(uint32_t trait) const { return (traits & trait) != 0; }
};
/// kRecord without traits for names that are in no row.
KnownTorch known_torch(std::string_view name);
/// The ufunc that a special method of arrays is; null: none.
const char* ufunc_of_method(std::string_view name);

/// A row of the table, as it is in this process.
struct CallRow {
  std::string_view kind, place, name, versions;
  bool loaded = false;  ///< its module is
  bool found = false;   ///< there is such a callable, and it is known as this row's
};
/// Imports nothing.
std::vector<CallRow> call_rows();
/// Rows of loaded modules that name nothing, on the log's channel `capture`.
void log_unknown_rows();

struct CallCounts {
  uint64_t calls = 0;     ///< that a trace has met
  uint64_t look_ups = 0;  ///< of callables: of those that are called, and of functions given to code in C
};
CallCounts call_counts();
void count_call();

}  // namespace tatara::capture
