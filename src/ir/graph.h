// The graph: a functional SSA list of tensor operators with symbolic shapes and strides.
//
// Values are immutable tensors (or symbolic integers, or lists of tensors). Views are ordinary operators; in-place
// writes were turned into values by the builder, and the final writes to inputs and the aliasing of outputs are kept
// as Effects and OutputAlias. Nodes are kept in execution order; ids are dense and stable until compact().
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "support/error.h"
#include "symbolic/expr.h"

namespace tatara {

struct OpDef;  // ops/core/op_def.h

enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int16_t index = -1;  // -1: none (cpu) or the current device
  friend bool operator==(const Device&, const Device&) = default;
  std::string str() const;  // "cpu", "cuda:0"
};

/// dtype, device, sizes and strides (in elements) of a tensor value.
struct TensorType {
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  /// A zero-dim tensor made from a Python number: takes part in type promotion as a number does.
  bool is_wrapped_number = false;

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  Expr numel(ExprContext& ctx) const;
  std::string str() const;  // f32[4, s0; strides 1, 4]; strides are left out when contiguous
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// Row-major strides of the sizes (a stride over a dimension of size 0 or 1 counts max(size, 1), as in PyTorch).
std::vector<Expr> contiguous_strides(ExprContext& ctx, const std::vector<Expr>& sizes);

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;
using NodeId = int32_t;

/// A Python number, symbolic or not. A symbolic float is a value of kind kScalar in the graph, not a Scalar.
using Scalar = std::variant<bool, int64_t, double, std::complex<double>, Expr>;
std::string scalar_str(const Scalar& scalar);

struct SymInts {
  std::vector<Expr> values;
};
struct TensorList {
  std::vector<ValueId> values;  // kNoValue for None
};
struct TensorArg {
  ValueId value = kNoValue;
};
struct NoneArg {};

/// One bound argument of a node, in the order of the operator's schema. `std::string` serves str arguments
/// (rounding_mode, reduction, padding), DType and Device theirs; lists of bools and floats appear in few schemas.
using Arg = std::variant<NoneArg, TensorArg, TensorList, Scalar, SymInts, DType, Device, std::string, std::vector<bool>,
                         std::vector<double>>;

/// Where in the user's program a node was recorded.
struct SourceLocation {
  std::shared_ptr<const std::string> file;  // null: unknown
  std::shared_ptr<const std::string> function;
  int line = 0;
  int call = -1;            // which of the recorded calls it comes from
  std::string str() const;  // "model.py:12 in forward"
  UserLocation user() const;
};

/// A part of the program whose results gradients compute again instead of keeping them (torch.utils.checkpoint).
struct Region {
  std::shared_ptr<const Region> parent;  // null: the program itself
  int depth = 1;
  /// A node of its own in eager, by which autograd.grad() cannot go (use_reentrant=True).
  bool reentrant = false;
};

class Graph;

struct Node {
  const OpDef* op = nullptr;
  std::vector<Arg> args;
  std::vector<ValueId> outputs;
  SourceLocation location;
  /// Recorded while gradients were off: its results are constants to derivatives.
  bool no_grad = false;
  /// Made by a derivative rule: part of one differentiable operator in eager, whatever it is made of here.
  bool derived = false;
  /// Inside of a function transform around which gradients are off: a constant to derivatives asked for outside.
  bool closed = false;
  /// The innermost region that it was recorded in, or null.
  std::shared_ptr<const Region> region;
  /// Nodes of a region that are computed again for gradients, each time under a number of its own: they are never merged with
  /// other nodes, whose results would have to be kept for them. 0: all others.
  int again = 0;
  /// Of a function with a backward of the user's: what that makes of cotangents (ops/rules/custom_gradient.h).
  std::shared_ptr<const Graph> rule;
  void take_marks(const Node& other) {
    no_grad = other.no_grad;
    closed = other.closed;
    derived = other.derived;
    region = other.region;
    again = other.again;
    rule = other.rule;
  }
};

struct Value {
  const TensorType* type = nullptr;  // in the graph's pool
  NodeId producer = -1;              // -1: a graph input
  int output_index = 0;
  /// Graph inputs only: position in Graph::inputs.
  int input_index = -1;
};

/// Each type once: most values of a large graph have one of few types, which then lie in the cache.
class TypePool {
 public:
  /// Stays where it is for the life of the pool.
  const TensorType* intern(TensorType type) { return &*types_.insert(std::move(type)).first; }

 private:
  struct Hash {
    size_t operator()(const TensorType& type) const;
  };
  std::unordered_set<TensorType, Hash> types_;
};

/// A write to a graph input that must be visible after the run, in order: input <- value (same sizes; the value is
/// cast and broadcast already). When `metadata_only` the input object takes over the value (set_, resize_, .data =).
struct InputWrite {
  int input_index = 0;
  ValueId value = kNoValue;
  int times = 1;  ///< what eager adds to the tensor's count of writes (`_version`)
};

/// How an output relates to storage: a fresh tensor, an alias (view) of an input, or a view of another output.
struct OutputAlias {
  enum class Kind : uint8_t { kFresh, kInput, kOutput };
  Kind kind = Kind::kFresh;
  int index = -1;       // input or output number
  Expr storage_offset;  // in elements of the output, relative to where the base tensor begins; invalid: 0
  /// Of a fresh one that comes from gradients, until expand_transforms(). In eager a gradient may be the cotangent that was given,
  /// or a view of it. Two kinds are there for a check alone: a gradient that was written to, or beside which what was given was
  /// (kMustNot), may share no memory with an input, with what was given (kGiven) or with another of its kind.
  /// A tangent in eager is a view of another, or of what was given, just where its primal is a view. Tangents of one `group`
  /// share memory, with each other alone (kOwn) or with what was given (kMay); where eager's storages are not known, none may.
  enum class Sharing : uint8_t { kNone, kMay, kOwn, kMustNot, kGiven };
  Sharing sharing = Sharing::kNone;
  int group = -1;
};

struct GraphOutput {
  ValueId value = kNoValue;
  OutputAlias alias;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<ExprContext> ctx) : ctx_(std::move(ctx)) {}

  ExprContext& ctx() const { return *ctx_; }
  const std::shared_ptr<ExprContext>& ctx_ptr() const { return ctx_; }

  ValueId add_input(TensorType type, std::string name = {});
  /// Appends a node with outputs of the given types. No inference and no checks here: see ops/core/builder.h.
  NodeId add_node(const OpDef* op, std::vector<Arg> args, std::vector<TensorType> types, SourceLocation location = {});
  void add_output(ValueId value, OutputAlias alias = {}) { outputs_.push_back({value, alias}); }
  void add_input_write(int input_index, ValueId value, int times = 1) {
    writes_.push_back({input_index, value, times});
  }

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return *value(id).type; }
  void set_type(ValueId id, const TensorType& type) { values_[static_cast<size_t>(id)].type = types_->intern(type); }
  /// For printing: of an input, where it has one.
  std::string name(ValueId id) const {
    return value(id).input_index < 0 ? std::string() : input_names_[static_cast<size_t>(value(id).input_index)];
  }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node* producer(ValueId id) const { return value(id).producer < 0 ? nullptr : &node(value(id).producer); }

  size_t num_nodes() const { return nodes_.size(); }
  size_t num_values() const { return values_.size(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  std::vector<GraphOutput>& outputs() { return outputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  std::vector<InputWrite>& input_writes() { return writes_; }
  const std::vector<InputWrite>& input_writes() const { return writes_; }

  /// Number of uses of every value by nodes, outputs and writes.
  std::vector<int> use_counts() const;
  /// Drop nodes from `count` on (used when a trace is cut at a graph break). Values of the dropped nodes vanish.
  void truncate_nodes(size_t count);

 private:
  std::shared_ptr<ExprContext> ctx_;
  std::shared_ptr<TypePool> types_ = std::make_shared<TypePool>();  // of this graph and its copies
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<std::string> input_names_;
  std::vector<GraphOutput> outputs_;
  std::vector<InputWrite> writes_;
};

/// Calls fn(ValueId) for each tensor operand of the node (None entries left out).
template <typename Fn>
void for_each_operand(const Node& node, Fn&& fn) {
  for (const Arg& arg : node.args) {
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) {
      if (tensor->value != kNoValue) fn(tensor->value);
    } else if (const auto* list = std::get_if<TensorList>(&arg)) {
      for (ValueId id : list->values) {
        if (id != kNoValue) fn(id);
      }
    }
  }
}

/// Calls fn(Expr) for each integer among the node's arguments that may depend on sizes.
template <typename Fn>
void for_each_integer(const Node& node, Fn&& fn) {
  for (const Arg& arg : node.args) {
    if (const auto* ints = std::get_if<SymInts>(&arg)) {
      for (const Expr e : ints->values) fn(e);
    } else if (const auto* scalar = std::get_if<Scalar>(&arg)) {
      if (const auto* e = std::get_if<Expr>(scalar)) fn(*e);
    }
  }
}

/// Arguments of a node with their tensors mapped (ValueId -> ValueId); None entries stay so.
template <typename Fn>
std::vector<Arg> with_operands(std::vector<Arg> args, Fn&& mapped) {
  const auto map = [&](ValueId& v) { v = v == kNoValue ? v : mapped(v); };
  for (Arg& arg : args) {
    if (auto* tensor = std::get_if<TensorArg>(&arg)) {
      map(tensor->value);
    } else if (auto* list = std::get_if<TensorList>(&arg)) {
      for (ValueId& v : list->values) map(v);
    }
  }
  return args;
}

/// Symbols in the sizes and strides of the graph's values, and among the arguments of its nodes.
std::vector<Expr> symbols_in(const Graph& graph);
/// Whether one of the type's sizes or strides is the symbol.
bool binds(const TensorType& type, Expr symbol);

/// Readable text, one node a line:
///   graph(%0: f32[4, 8] "x", %1: f32[8]) {
///     %2: f32[4, 8] = add(%0, %1, alpha=1)   # model.py:3
///     return (%2)
///   }
/// Deterministic, parses back with parse_graph (ir/parser.h).
/// `most`: of more nodes than these the first and the last are printed, and how many are between them; 0: all.
std::string print_graph(const Graph& graph, bool with_locations = false, size_t most = 0);

}  // namespace tatara
