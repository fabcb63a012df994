// Defining the loops of a primitive operator.
//
// OpDef::lower calls the LowerContext once. Pointwise, view, creation and indexing operators give each output as a function
// from index expressions to a scalar ("define by run"); reductions and scans give their parts. The scheduler composes these
// functions: a consumer that inlines its producer simply calls the producer's function.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "loops/kernel.h"

namespace tatara {

using loops::ScalarId;
using loops::ScalarOp;

/// Emits scalars into whatever kernel is under construction. One LoopBuilder lives per loop body; equal pure scalars are
/// shared.
class LoopBuilder {
 public:
  virtual ~LoopBuilder() = default;
  virtual ExprContext& ctx() = 0;
  virtual DType dtype(ScalarId id) const = 0;
  virtual ScalarId constant(double value, DType dtype) = 0;
  virtual ScalarId constant_int(int64_t value, DType dtype) = 0;
  virtual ScalarId constant_complex(double re, double im, DType dtype) = 0;
  /// An index expression as a value of the dtype.
  virtual ScalarId index_value(Expr index, DType dtype) = 0;
  virtual ScalarId apply(ScalarOp op, DType result, std::span<const ScalarId> operands) = 0;
  virtual ScalarId cast(ScalarId x, DType dtype) = 0;  // x itself when it has the dtype
  /// A scalar as an index symbol in [0, size): wrapped when negative, checked against size, as asked.
  virtual Expr indirect(ScalarId value, Expr size, bool wrap, bool check) = 0;
  /// Element of an operand tensor of the operator being lowered, at logical indices (one per dimension). Half types arrive
  /// as float32 (their compute dtype).
  virtual ScalarId load(int operand, std::span<const Expr> indices) = 0;
  /// The same, only where `mask` holds; elsewhere `other`.
  virtual ScalarId load_masked(int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other) = 0;

  // Short forms.
  ScalarId apply1(ScalarOp op, ScalarId a);
  ScalarId apply2(ScalarOp op, ScalarId a, ScalarId b);
  ScalarId compare(ScalarOp op, ScalarId a, ScalarId b);
  ScalarId select(ScalarId c, ScalarId a, ScalarId b);
};

using ElementFn = std::function<ScalarId(LoopBuilder&, std::span<const Expr> indices)>;

/// All elements of the last dimensions, in order, at indices of the dimensions before them.
using BlockFn = std::function<std::vector<ScalarId>(LoopBuilder&, std::span<const Expr> before)>;

/// A reduction or scan of k values with an associative combine function.
struct ReductionDef {
  std::vector<int64_t> dims;            // reduced (or scanned: exactly one) dimensions of the input
  std::vector<DType> dtypes;            // of the k accumulators
  std::vector<loops::Combine> combine;  // simple kinds per value, or all kCustom
  std::function<std::vector<ScalarId>(LoopBuilder&)> init;
  /// Contribution of one input element, at full input indices: k values.
  std::function<std::vector<ScalarId>(LoopBuilder&, std::span<const Expr> indices)> element;
  /// Combines partial results a, b (k values each); needed for kCustom.
  std::function<std::vector<ScalarId>(LoopBuilder&, std::span<const ScalarId> a, std::span<const ScalarId> b)> merge;
  /// The accumulators after one more element, where that is less work than `element` combined with them; may be null.
  std::function<std::vector<ScalarId>(LoopBuilder&, std::span<const ScalarId> acc, std::span<const Expr> indices)> fold;
  /// Outputs from the final accumulators (identity if null): one scalar per output of the operator.
  std::function<std::vector<ScalarId>(LoopBuilder&, std::span<const ScalarId> acc, std::span<const Expr> out_indices)>
      finish;
  /// Of a product with a few rows: their dimension. A kernel computes all of them side by side, and reads what else it multiplies once.
  std::optional<size_t> few;
  /// Of a product on a CPU: the dimension of the result along which lanes lie, and that of which several elements are computed side by
  /// side in registers.
  std::optional<size_t> lanes, beside;
  /// Operands that are computed into memory first, for each element is read many times.
  std::vector<int> in_memory;
};

/// output[dest_index(i)] (op)= value(i) over an iteration space, starting from a copy of operand `base`.
struct ScatterDef {
  int base_operand = 0;
  std::vector<Expr> domain;  // sizes of the iteration space
  std::function<std::vector<Expr>(LoopBuilder&, std::span<const Expr> iter)> destination;
  ElementFn value;
  loops::StoreMode mode = loops::StoreMode::kSet;
};

/// Rows along a dimension in order, and where their elements stood: NaN last when ascending, equal elements in their order.
struct SortDef {
  int64_t dim = 0;
  int64_t count = -1;  // elements kept; -1: all
  bool descending = false;
  int values = 0;  // number of the output, -1: none
  int places = 1;  // int64
};

/// Arguments of a product end with the rows and the columns of a tile.
enum class ProductKind : uint8_t {
  kWhole,  // lists of parts of both operands
  kRows,  // then a list of what tiles of rows have: the first row, the end, the matrix, and how much of the inner dimension
  kInner,  // then where each group of the inner dimension ends, one product for each
  kScaled,  // of one-byte elements: then a list of both operands' scales (empty: none), sizes, and whether blocks are summed apart
};

class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual const Graph& graph() const = 0;
  virtual const Node& node() const = 0;
  ExprContext& ctx() const { return graph().ctx(); }
  /// Type of tensor operand number i (counting only tensor operands, lists flattened, None skipped).
  virtual const TensorType& operand(int i) const = 0;
  virtual int num_operands() const = 0;
  /// Which of the tensor operands an argument is; -1: it is no tensor.
  virtual int operand_number(size_t arg) const;
  virtual const TensorType& result(int i = 0) const = 0;

  /// Output i is defined element by element, in the output's dtype or its compute dtype (it is cast on store).
  virtual void pointwise(int output, ElementFn fn) = 0;
  /// Output i in blocks of its last `dims` dimensions (none: of one element), which are short and of known length. What computes one
  /// element of a block computes all: an iteration does a whole block.
  virtual void block(int output, size_t dims, BlockFn fn);
  /// Output 0 is operand 0 seen through an index map: out[i] = in[map(i)]. Views keep being free of memory traffic.
  virtual void view(std::function<std::vector<Expr>(std::span<const Expr>)> map) = 0;
  virtual void reduction(ReductionDef def) = 0;
  virtual void scan(ReductionDef def, bool reverse = false) = 0;
  virtual void scatter(ScatterDef def) = 0;
  /// The host's kernel runs where the target or the row's length does not suit.
  virtual void sort(SortDef def) = 0;
  /// Output 0, [batch..., rows, columns], is the product of operands in blocks (loops::Product): first those of the left one's parts.
  virtual void product(ProductKind form = ProductKind::kWhole) = 0;
  /// Output 0, [batch, heads, rows, keys], has the products of rows of queries and keys. It never lies in memory: what reads it is part of
  /// the kernel of an attention.
  virtual void attention_scores() = 0;
  /// Output 0, [batch, heads, rows, width], is the product of the softmax of the first operand along its last dimension, which is
  /// computed from attention_scores(), with the second one (loops::Attention).
  virtual void attention() = 0;
  /// Output 0, [rows, results], is the product of the first operand, a matrix in memory, and of the others, which are parts of a computed
  /// one (loops::WeighedProduct).
  virtual void weighed_product() = 0;
};

}  // namespace tatara
