// Type inference helpers for OpDef::meta.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace tatara {

struct OpDef;

/// Typed access to the bound arguments of a call while its result types are inferred. Accessors raise InternalError when
/// the argument is of another kind.
class MetaContext {
 public:
  MetaContext(const Graph& graph, const OpDef& op, std::span<const Arg> args, DType default_dtype)
      : graph_(graph), op_(op), args_(args), default_dtype_(default_dtype) {}

  /// The same graph and defaults for a call of another operator. `args` must outlive the result.
  MetaContext with(const OpDef& op, std::span<const Arg> args) const { return {graph_, op, args, default_dtype_}; }

  ExprContext& ctx() const { return graph_.ctx(); }
  const OpDef& op() const { return op_; }
  size_t num_args() const { return args_.size(); }
  const Arg& arg(size_t i) const { return args_[i]; }
  bool is_none(size_t i) const;
  const TensorType& tensor(size_t i) const;
  std::vector<const TensorType*> tensor_list(size_t i) const;
  bool is_tensor(size_t i) const;
  Scalar scalar(size_t i) const;
  int64_t integer(size_t i) const;  // concrete; specialises a symbolic one
  double number(size_t i) const;
  bool boolean(size_t i) const;
  std::vector<Expr> ints(size_t i) const;
  std::optional<DType> dtype(size_t i) const;
  std::string string(size_t i) const;
  /// torch.get_default_dtype() at the time of the trace.
  DType default_dtype() const { return default_dtype_; }

  /// Dimension argument wrapped into [0, dim); raises eager's IndexError text as InvalidArgument.
  int64_t dim(size_t i, int64_t rank) const;

  // -- rules shared by families --
  /// Broadcast of shapes (guards on symbolic sizes are recorded in ctx). InvalidArgument with eager's message.
  std::vector<Expr> broadcast(std::span<const std::vector<Expr>* const> shapes) const;
  /// torch.result_type over tensors and scalars among the arguments given by index.
  DType result_type(std::span<const size_t> arg_indices) const;
  /// Strides that eager's TensorIterator gives to a fresh output of `sizes` from these operands (null: a Python number).
  std::vector<Expr> iterator_strides(const std::vector<Expr>& sizes, std::span<const TensorType* const> operands) const;

 private:
  const Graph& graph_;
  const OpDef& op_;
  std::span<const Arg> args_;
  DType default_dtype_;
};

}  // namespace tatara
