// One operator, one place: an OpDef says everything Tatara knows about an operator.
//
// Families live in one file each (ops/pointwise/unary.cpp, ops/reduce/softmax.cpp, ...), which define a table of OpDefs; ops.def lists
// the families. Every other list of operators (names to intercept, what is a view, what has a host kernel only) is
// derived from the registry.
#pragma once

#include <climits>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "loops/kernel.h"

namespace tatara {

class GraphBuilder;  // ops/core/builder.h
class MetaContext;   // ops/core/meta.h
class LowerContext;  // ops/core/lowering.h
class VjpContext;    // ops/rules/derivative.h
class BatchContext;  // ops/rules/batching_rule.h

/// The step of a plan that waits for a condition that a GPU computes.
inline constexpr std::string_view kDecideCall = "tatara::decide";

enum class OpKind : uint8_t {
  kPointwise,  // one scalar expression per output element, operands broadcast
  kView,       // output element = input element at another index; aliases operand 0 in eager
  kReduction,
  kScan,
  kCreation,  // no tensor operand is read
  kIndexing,  // gather, index, index_select, embedding, scatter, ...
  kRandom,
  kComposite,  // always decomposed before lowering
  kHost,       // runs by its host kernel (matrix products, convolutions, sort, ...)
};

// ---- Schemas ---------------------------------------------------------------------------------------------------------

enum class ArgType : uint8_t {
  kTensor,
  kOptionalTensor,
  kTensorList,
  kOptionalTensorList,
  kScalar,
  kOptionalScalar,  // Python number
  kTensorOrScalar,  // "Operand": a tensor or a Python number (operands of pointwise operators)
  kInt,
  kOptionalInt,
  kFloat,
  kOptionalFloat,
  kBool,
  kOptionalBool,
  kIntList,
  kOptionalIntList,  // SymInts; an int is taken as a list when list_size says so
  kFloatList,
  kBoolList,
  kDType,
  kDevice,
  kString,
  kOptionalString,
  kMemoryFormat,
  kLayout,
  kGenerator,
};

/// Whether such an argument is a number whose value a kernel may read.
inline bool is_number(ArgType type) {
  return type == ArgType::kScalar || type == ArgType::kOptionalScalar || type == ArgType::kFloat ||
         type == ArgType::kOptionalFloat;
}

/// Finite numbers that float32 holds, unless it says otherwise. `apart`: not this one.
struct Within {
  double low = -3.4028234663852886e38;
  double high = 3.4028234663852886e38;
  std::optional<double> apart = {};
};

struct ArgSpec {
  std::string name;
  ArgType type = ArgType::kTensor;
  int list_size = 0;  // "int[2]": a single int is broadcast
  bool keyword_only = false;
  bool has_default = false;
  Arg default_value = NoneArg{};
  int alias = -1;        // alias set letter (a = 0, ...)
  bool written = false;  // "Tensor(a!)"
  /// Of a number: it may vary from call to call. A tensor without dimensions stands for it then (OpRegistry::take_values).
  bool takes_value = false;
  /// What varies lies within these. Others are errors in eager, or another operator.
  Within within = {};
};

struct OpSchema {
  std::vector<ArgSpec> args;
  int num_outputs = 1;            // -1: a list of tensors whose length depends on arguments
  std::vector<int> output_alias;  // alias set of each output, -1: fresh
};

/// Parses "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" in the host's schema language (native_functions).
/// InvalidArgument on malformed text.
OpSchema parse_schema(std::string_view text);

// ---- The definition --------------------------------------------------------------------------------------------------

/// Result types of a node from its bound arguments: dtype promotion, broadcasting, eager's strides. Raises what eager
/// would: InvalidArgument carries eager's message as far as it is known (the tracer re-runs the call in eager for errors).
using MetaFn = std::function<std::vector<TensorType>(MetaContext&)>;
/// Writes the operator in terms of others; returns the values of its outputs.
using DecomposeFn = std::function<std::vector<ValueId>(GraphBuilder&, std::span<const Arg>)>;
/// Defines the loops of a primitive: see ops/core/lowering.h.
using LowerFn = std::function<void(LowerContext&)>;

/// Builds the cotangents of a node's operands from those of its results: see ops/rules/derivative.h.
using VjpFn = std::function<void(VjpContext&)>;
/// Builds the node over all examples of a batch from operands with a batch dimension: see ops/rules/batching_rule.h. False: the
/// rule does not fit these arguments.
using BatchFn = std::function<bool(BatchContext&)>;

struct Choice {
  std::string op;
  std::vector<Arg> args;
};
using ChooseFn = std::function<Choice(MetaContext&)>;

/// Which strides of its operand a view needs to have a meaning.
enum class StrideUse : uint8_t {
  kNone,
  kOperand,  // whether and how the view is possible depends on them (view, unfold)
  kMemory,   // places in memory are given, not elements (as_strided)
};

/// Where a convolution's images stand among its arguments; the last of them is followed by the weights.
struct ImageArgs {
  size_t first;
  size_t last;
  size_t groups;                                // the argument with their number
  std::optional<size_t> transposed = {};        // the argument that says so
  std::optional<size_t> gradient_strides = {};  // the argument with the strides, of gradients only
  bool always_transposed = false;
};

/// What passes and capture ask about an operator. Set where the operator is registered, or beside its rules; no other place
/// lists operators by name (tests/unit/test_operator_names.cpp).
struct OpTraits {
  // ---- values
  /// A result of the operand's own type is the operand (cast, expand).
  bool repeats_operand = false;
  /// Copies operand 0 to the strides that argument 1 gives.
  bool copies_to_strides = false;
  /// Every element is argument 1.
  bool fills = false;
  /// Operand 0 with elements added, so that a sum may start from another tensor than zeros.
  bool adds_elements = false;
  /// What it adds to operand 0 is multiplied by its last argument ("alpha" of add).
  bool scales_sum = false;
  /// Of the dimension that argument 1 names, one index is left.
  bool picks_index = false;
  /// In eager the tangent of the result is that of operand 0, or a view of it, where both would lie alike in memory (fmod,
  /// view_copy).
  bool hands_tangent_on = false;

  // ---- layouts and memory
  StrideUse stride_use = StrideUse::kNone;
  /// Not of kind kView, but the result may be a view of operand 0.
  bool may_view = false;
  /// The operand without its history.
  bool detaches = false;
  std::optional<ImageArgs> images;
  /// The mask's argument, whose rows ATen's fused kernels for GPUs want to be contiguous.
  std::optional<size_t> mask_arg;

  // ---- derivatives
  /// Eager's node keeps tensors, whatever the operands. Where this is not said, torch is asked.
  bool always_saves = false;
  /// A composite that holds matrix products: never computed twice.
  bool holds_products = false;
  /// Written out before a joint graph is cut, since its parts are smaller than its result (softmax: two numbers a row).
  bool expand_softmax = false;
  /// Linear in these operands, but the reverse rule is not the adjoint: places of a result are written more than once, or
  /// gradients are left out (padding). Their tangent is the operator itself.
  std::vector<size_t> linear_operands;
  /// The argument with weights of classes, along which eager has no tangent.
  std::optional<size_t> class_weights;
  /// ATen differentiates it, so that its tangents are ATen's too.
  bool by_host = false;
  /// A variance: its tangent for one number is not the rule's NaN in eager.
  bool spread = false;

  // ---- random numbers, statistics
  /// Not said to draw random numbers (kRandom, nondeterministic), but results differ from call to call: the parts draw, or
  /// results hold what was in memory before.
  bool varies = false;
  /// The operator that gives the generator's state as a second result, and of that one the operator that draws again.
  std::string with_state, draws_again;
  /// Eager's kernel writes to running statistics without counting the write.
  bool uncounted_statistics = false;
  /// In place it writes nothing where it changes nothing (dropout).
  bool may_write_nothing = false;

  // ---- reports
  /// Kernels that do something else besides are not named after it.
  bool unnamed = false;
};

struct OpDef {
  std::string name;  // unique in the registry: "add", "max.dim", "conv2d"
  OpKind kind = OpKind::kComposite;
  std::string schema_text;
  OpSchema schema;  // parsed at registration
  /// Python callables that mean this operator, space separated: "torch.add torch.Tensor.add torch.Tensor.__add__".
  /// A method form takes self first. In-place forms ("torch.Tensor.add_") are listed in `inplace_names`: they compute the
  /// operator, cast to self's dtype, check that the shape is self's, and write it to self. "numpy.divide" is a
  /// ufunc that means this operator once operands have the types of its loop.
  std::string names;
  std::string inplace_names;
  std::string reflected_names;  // __radd__: operands 0 and 1 are exchanged
  MetaFn meta;
  /// For operators that are a view or a copy depending on strides (reshape, contiguous, to): the operator that this call
  /// is, with its arguments. "alias_self" stands for the very same tensor.
  ChooseFn choose;
  DecomposeFn decompose;  // composite operators; may also refuse (return empty) to leave the node to lower/host
  LowerFn lower;          // primitives
  /// The host operator "aten::mm" with overload ("" or "out", ...), for host calls; empty: the same name without overload
  std::string host_name;
  std::string host_overload;
  bool has_out = true;  // accepts out=: computed, then written to out
  bool nondeterministic = false;
  /// Whether it draws random numbers.
  bool draws() const { return nondeterministic || kind == OpKind::kRandom; }
  /// It reads or sets the generator's state, which all examples of a batch share, whatever vmap is told of random numbers.
  bool of_generator() const { return nondeterministic && kind == OpKind::kHost && host_name.starts_with("tatara::"); }
  /// Some values of the operands are an error (an index out of bounds): the program's call runs though nobody needs its results.
  bool checks_values = false;
  /// It stops where a condition that the program has asked for falls otherwise than in the trace.
  bool decides = false;
  /// An iteration takes a small matrix apart. Where the host raises an error a kernel stops, and the calls run in eager, which words it.
  bool per_matrix = false;

  // Derivatives, attached by the families derivatives_*. Without any of these a result that would need a gradient is
  // Unsupported.
  VjpFn vjp;
  /// Operators with rules that this one is made of, where gradients are wanted; used instead of `vjp`.
  DecomposeFn differentiable_parts;
  /// Results never require grad, as in eager (zeros_like).
  bool not_differentiable = false;
  /// Eager gives a history to the first results only (statistics behind a normalised tensor have none).
  int differentiable_results = INT_MAX;
  /// Results before this one carry none.
  int first_differentiable = 0;

  /// Attached by the families batching_*. Without a rule the operator's parts are batched, else the host's vmap runs it.
  BatchFn batch;

  OpTraits traits;
};

class OpRegistry {
 public:
  /// The registry with every family registered; built once, immutable.
  static const OpRegistry& global();

  const OpDef* find(std::string_view name) const;
  const OpDef& get(std::string_view name) const;  // InternalError if unknown
  const std::vector<const OpDef*>& all() const { return ordered_; }

  struct PythonName {
    const OpDef* op;
    enum class Form : uint8_t { kFunction, kInplace, kReflected } form;
  };
  /// What a dotted Python name ("torch.Tensor.add_") may stand for: candidates in the order of registration, of which the
  /// first whose schema binds counts (torch.max has three). Null when the name is unknown.
  const std::vector<PythonName>* find_python(std::string_view dotted) const;
  /// All dotted names, sorted.
  std::vector<std::string> python_names() const;

  void add(OpDef def);                  // used by the families' register_* functions only
  OpDef& amend(std::string_view name);  // likewise, for tables of further properties
  /// Likewise, for traits that several operators share.
  void mark(bool OpTraits::* trait, std::initializer_list<const char*> names);
  /// Likewise: numbers among the operators' arguments may vary from call to call.
  void take_values(std::initializer_list<const char*> names);
  /// The same of one argument, which may be an Operand that eager's kernel has in the tensor's type.
  void take_value(const char* name, const char* argument, Within within = {});

 private:
  std::vector<const OpDef*> ordered_;
  struct Tables;
  std::shared_ptr<Tables> tables_;
};

}  // namespace tatara
