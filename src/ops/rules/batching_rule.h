// Rules of batching: for one node whose operands are examples, a node (or several) over all examples at once. Batched values
// keep the batch as dimension 0.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara {

/// The value that stands for one of the unbatched graph.
struct BatchValue {
  ValueId id = kNoValue;
  bool batched = false;
};

/// One application of a rule.
class BatchContext {
 public:
  /// Runs `parts` on values of single examples and batches each node of it.
  using PartsFn = std::function<std::vector<BatchValue>(const DecomposeFn& parts)>;

  /// `example` builds the graph of single examples, whose node is `node`; `values` has what stands for each of its values.
  BatchContext(GraphBuilder& builder, GraphBuilder& example, const Node& node, const std::vector<BatchValue>& values,
               Expr size, bool same_random, PartsFn parts)
      : builder_(builder),
        example_(example),
        node_(node),
        args_(example, node_.args),
        values_(values),
        size_(size),
        same_random_(same_random),
        parts_(std::move(parts)),
        results_(node_.outputs.size()) {}
  BatchContext(const BatchContext&) = delete;
  BatchContext& operator=(const BatchContext&) = delete;

  GraphBuilder& builder() const { return builder_; }
  ExprContext& ctx() const { return builder_.ctx(); }
  const Node& node() const { return node_; }
  const GraphBuilder& example() const { return example_; }
  /// Arguments and types of one example.
  const ops::Args& args() const { return args_; }
  const TensorType& out_type(size_t i = 0) const { return example_.type(node_.outputs[i]); }
  /// How many examples there are.
  Expr size() const { return size_; }
  /// Random operators give all examples the same numbers.
  bool same_random() const { return same_random_; }

  bool batched(size_t arg) const { return args_.is_tensor(arg) && of(args_.tensor(arg)).batched; }
  BatchValue of(ValueId example) const {
    return example == kNoValue ? BatchValue{} : values_[static_cast<size_t>(example)];
  }
  /// Operand `arg` over all examples: the batch in front, expanded where it is the same for all. kNoValue for None.
  ValueId all(size_t arg) const { return all_of(args_.tensor(arg)); }
  ValueId all_of(ValueId example) const;
  /// As it is: with the batch in front when batched.
  ValueId as_is(size_t arg) const { return of(args_.tensor(arg)).id; }
  /// The same with ones behind the batch, so that it broadcasts with batched values of `rank` dimensions an example.
  ValueId aligned(ValueId example, int64_t rank) const;
  /// [batch, sizes...]
  std::vector<Expr> with_batch(std::vector<Expr> sizes) const;
  /// The node's tensors, of one example.
  std::vector<ValueId> operands() const;
  /// The node's arguments with tensors replaced by as_is(): for rules that change a few of them.
  std::vector<Arg> mapped_args() const;

  /// torch.result_type of these arguments of one example.
  DType promoted_type(std::span<const size_t> args) const;

  void give(size_t i, ValueId value, bool batched = true) { results_[i] = {value, batched}; }
  void give_all(const std::vector<ValueId>& values);
  /// The node's own operator with these arguments; its results are batched.
  void give_call(std::vector<Arg> args);
  /// The results are those of these operators on single examples.
  void give_parts(const DecomposeFn& parts);
  const std::vector<BatchValue>& results() const { return results_; }

 private:
  GraphBuilder& builder_;
  GraphBuilder& example_;
  const Node node_;
  ops::Args args_;
  const std::vector<BatchValue>& values_;
  Expr size_;
  bool same_random_;
  PartsFn parts_;
  std::vector<BatchValue> results_;
};

/// Dimension `from` moved to `to`.
ValueId move_dim(GraphBuilder& b, ValueId x, int64_t from, int64_t to);

/// The rule of pointwise operators: operands are aligned and broadcast.
bool batch_pointwise(BatchContext& c);
/// The rule of operators over named dimensions (`dim`, `dims`, ...) of their operands: these count one further. An example
/// without dimensions gets one of size one. `shared`: an argument that stays as it is.
bool batch_by_dims(BatchContext& c, int shared = -1);
/// The rule of operators over the last dimensions, whatever stands before them: the same call.
bool batch_as_is(BatchContext& c);
/// The rule of those whose result has the first operand's shape and dtype (copy, fill, masked_fill).
bool batch_into_self(BatchContext& c);
/// Unsupported for integers with floats as numbers: alone the host rounds these, under vmap it computes in floats.
void refuse_promotion(const BatchContext& c);

/// A node that runs the host's own vmap over the operator, whose schema is the host's.
void batch_by_host(BatchContext& c);

}  // namespace tatara
