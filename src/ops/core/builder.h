// Builds graphs operator by operator: infers types, functionalises views and in-place writes.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/core/op_def.h"

namespace tatara {

/// Appends checked nodes to a graph. Used by the tracer, by decompositions and by derivative rules alike.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph, DType default_dtype = DType::kFloat32)
      : graph_(graph), default_dtype_(default_dtype) {}

  Graph& graph() { return graph_; }
  ExprContext& ctx() { return graph_.ctx(); }
  DType default_dtype() const { return default_dtype_; }
  void set_location(SourceLocation location) { location_ = std::move(location); }
  /// Marks the nodes that follow as recorded while gradients were off.
  void set_no_grad(bool no_grad) { no_grad_ = no_grad; }
  bool no_grad() const { return no_grad_; }
  /// Marks them as inside of a function transform around which gradients are off.
  void set_closed(bool closed) { closed_ = closed; }
  bool closed() const { return closed_; }
  /// The region that they belong to.
  void set_region(std::shared_ptr<const Region> region) { region_ = std::move(region); }

  /// Adds a node of `op` with fully bound arguments (one Arg per schema argument), inferring result types.
  std::vector<ValueId> call(const OpDef& op, std::vector<Arg> args);
  /// By name, filling defaults for trailing arguments; for operators with one output.
  ValueId op(std::string_view name, std::vector<Arg> args);
  std::vector<ValueId> op_multi(std::string_view name, std::vector<Arg> args);
  /// A node of a host operator that the registry does not know, with result types given by the host.
  std::vector<ValueId> host_call(const OpDef& op, std::vector<Arg> args, std::vector<TensorType> types);

  const TensorType& type(ValueId id) const { return graph_.type(id); }

  // Short forms used by decompositions and rules.
  ValueId constant(double value, DType dtype, Device device = {});  // zero-dim full
  ValueId cast(ValueId x, DType dtype);                             // no node when it is that dtype already
  ValueId unary(std::string_view name, ValueId x) { return op(name, {TensorArg{x}}); }
  ValueId binary(std::string_view name, ValueId a, ValueId b) { return op(name, {TensorArg{a}, TensorArg{b}}); }
  ValueId binary(std::string_view name, ValueId a, Scalar b) { return op(name, {TensorArg{a}, b}); }
  ValueId where(ValueId c, ValueId a, ValueId b);
  ValueId reduce(std::string_view name, ValueId x, std::vector<int64_t> dims, bool keepdim);
  ValueId expand(ValueId x, const std::vector<Expr>& sizes);
  ValueId reshape(ValueId x, const std::vector<Expr>& sizes);
  ValueId permute(ValueId x, const std::vector<int64_t>& dims);
  ValueId unsqueeze(ValueId x, int64_t dim);
  ValueId squeeze(ValueId x, int64_t dim);
  ValueId slice(ValueId x, int64_t dim, Expr start, Expr end, Expr step);

 private:
  Graph& graph_;
  DType default_dtype_;
  SourceLocation location_;
  bool no_grad_ = false;
  bool closed_ = false;
  std::shared_ptr<const Region> region_;
};

/// Tensors with identity, on top of the functional graph: the tracer's view of the host's tensors. Each Storage holds the
/// graph value of a whole base tensor; an Alias is a view of it by a chain of view operators. A write through one alias
/// makes a new base value; the other aliases see it when they are read next.
class Functionalizer {
 public:
  explicit Functionalizer(GraphBuilder& builder) : builder_(builder) {}

  using TensorRef = int32_t;

  /// A graph input (kept as the base of its own storage).
  TensorRef input(ValueId value, int input_index);
  /// A further input that shares memory with an earlier one: a view of it with given strides and offset. Returns -1 when the
  /// overlap can't be expressed (the tracer then falls back).
  TensorRef aliased_input(TensorRef base, const TensorType& type, Expr storage_offset);
  /// A fresh value.
  TensorRef fresh(ValueId value);
  /// A view made by a node of kind kView from `base`.
  TensorRef view(TensorRef base, const OpDef& op, std::vector<Arg> args);
  /// Calls an operator. In `args` the numbers in TensorArg and TensorList are TensorRefs. Views, and composite operators that
  /// may return a view (reshape, contiguous, to, split, ...; known by their schema's alias marks), give aliases of their
  /// operand where eager does; everything else gives fresh tensors.
  std::vector<TensorRef> apply(const OpDef& op, std::vector<Arg> args);
  /// An operator whose result types the host gave; its results are fresh tensors.
  std::vector<TensorRef> host_call(const OpDef& op, std::vector<Arg> args, std::vector<TensorType> types);
  /// The in-place form: computes the operator, checks shape and dtype as eager does, writes operand 0 and returns it.
  TensorRef apply_inplace(const OpDef& op, std::vector<Arg> args);
  /// A view that becomes operand 0 itself, which is returned; its other views stay as they are.
  TensorRef reshape_inplace(const OpDef& op, std::vector<Arg> args);
  /// The out= form. Unsupported when an out tensor would have to be resized.
  void apply_out(const OpDef& op, std::vector<Arg> args, std::span<const TensorRef> out);
  /// The present value of the tensor (regenerates views after writes).
  ValueId read(TensorRef tensor);
  /// tensor[...] = value, already cast and broadcast to the tensor's type.
  void write(TensorRef tensor, ValueId value);
  const TensorType& type(TensorRef tensor) const;
  /// Whether two tensors share storage.
  bool same_storage(TensorRef a, TensorRef b) const;
  /// The value of the whole storage that the tensor lies in.
  ValueId base(TensorRef tensor) const;
  /// A view of a storage that was written to since the view was read last.
  bool is_stale_view(TensorRef tensor) const;
  /// Version of the storage's contents, counted as eager counts in-place writes.
  int64_t version(TensorRef tensor) const;
  /// Writes to the storage that eager does not count.
  void uncount(TensorRef tensor, int64_t writes);

  /// Adds graph outputs for `tensors` (with aliasing kept) and input writes for every mutated input. Output i is tensors[i];
  /// outputs behind those are bases that several of the returned views share (an alias index may name a later output).
  void finish(std::span<const TensorRef> tensors);

 private:
  std::vector<Arg> read_args(std::vector<Arg> args);
  /// The tensor that `value` is, when it came from `base` by views only; -1 otherwise.
  TensorRef alias_of(TensorRef base, ValueId operand, ValueId value);
  void write_cast(TensorRef tensor, ValueId value);
  /// Elements from the start of the storage's base to the tensor's first; invalid when the element type changes.
  Expr offset_of(TensorRef tensor);

  GraphBuilder& builder_;
  struct Storage {
    ValueId base = kNoValue;
    int input_index = -1;
    int64_t version = 0;
    TensorRef first = -1;
    int64_t uncounted = 0;  // of the writes
    int64_t reshaped = 0;   // those that changed a shape, and no contents
  };
  struct ViewStep {
    const OpDef* op;
    std::vector<Arg> args;  // operand 0 is filled in
    bool no_grad, closed;   // as when it was made, whatever a later read is recorded under
  };
  struct Alias {
    int32_t storage = -1;
    std::vector<ViewStep> chain;
    ValueId cached = kNoValue;
    int64_t cached_version = -1;
    TensorType type;
    bool itself = true;  // no view of the base, but for changes of its shape in place
    bool whole = true;   // these have left it all of the storage
  };
  std::vector<Storage> storages_;
  std::vector<Alias> aliases_;
};

}  // namespace tatara
