// What a recorded call's arguments say to the schemas of operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/tape/tape.h"
#include "ops/core/bind.h"
#include "ops/core/builder.h"

namespace tatara::capture {

/// A Python int; Unsupported beyond 64 bits.
int64_t int_value(PyObject* o);
/// The text behind the last dot of str(o): "float32" of torch.float32.
std::string after_dot(PyObject* o);
/// A size of the trace in the context of a graph: the trace's own, or that of a later compilation.
Expr size_in(ExprContext& ctx, Expr e);
/// A number, or a size that varies.
Scalar scalar_of(ExprContext& ctx, PyObject* o);

/// What an overload of the dispatcher (torch.ops.aten.max.dim) says of its arguments; nothing of anything else.
struct OverloadArguments {
  std::vector<std::string> names;
  std::vector<std::string> needed;  // those with another default than None and False
};

/// The arguments of a node, to be bound to a schema. `refs` has the functionalizer's tensor of each slot.
class NodeSource final : public ArgSource {
 public:
  using TensorRef = Functionalizer::TensorRef;

  /// `tape`: numbers that vary are told from tensors by it.
  NodeSource(const TapeNode& node, const std::vector<TensorRef>& refs, ExprContext& ctx, const Tape* tape = nullptr);
  /// The operands of a reflected form the other way round.
  void swap_operands();
  /// The tensors given as out=.
  const std::vector<TensorRef>& out() const { return out_; }

  size_t num_positional() const override { return positional_; }
  bool python_function() const override { return !dispatcher_; }
  std::string_view positional_name(size_t item) const override {
    return item < overload_.names.size() ? std::string_view(overload_.names[item]) : std::string_view();
  }
  const std::vector<std::string>& needed_names() const override { return overload_.needed; }
  size_t num_keywords() const override { return keywords_.size(); }
  std::string_view keyword(size_t k) const override { return keywords_[k]; }
  ArgKind kind(size_t item) const override;
  ValueId tensor(size_t item) override { return ref(items_[item]); }
  std::vector<ValueId> tensors(size_t item) override;
  Scalar scalar(size_t item) override { return scalar_of(ctx_, items_[item]); }
  std::vector<Expr> ints(size_t item) override;
  std::vector<double> floats(size_t item) override;
  std::vector<bool> bools(size_t item) override;
  std::string string(size_t item) override;
  DType dtype(size_t item) override;
  Device device(size_t item) override;

 private:
  template <typename Fn>
  void each(size_t item, Fn&& fn) const {
    PyObject* list = items_[item];
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) fn(PySequence_Fast_GET_ITEM(list, i));
  }
  TensorRef ref(PyObject* o) const { return refs_[static_cast<size_t>(slot_of(o))]; }
  void add_out(PyObject* value);

  const std::vector<TensorRef>& refs_;
  ExprContext& ctx_;
  const Tape* tape_;
  bool dispatcher_;  // the call is of an operator of the dispatcher (torch.ops), not of a Python function
  const OverloadArguments& overload_;
  size_t positional_ = 0;
  std::vector<PyObject*> items_;
  std::vector<std::string> keywords_;
  std::vector<TensorRef> out_;
};

}  // namespace tatara::capture
