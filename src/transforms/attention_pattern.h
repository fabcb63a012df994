// What products with a softmax between them look like in a graph, for the passes that make kernels of attention of them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/core/builder.h"
#include "transforms/pass.h"

namespace tatara {

/// What was found: softmax(scores computed from first) x values = second. Where gradients flow the last two are one node.
struct FoundAttention {
  const Node* first;  // the product of queries and keys
  ValueId scores;
  const Node* second;
  const Node* last;   // its result, or a copy of that for which heads come behind rows, as all that programs do with it
  bool zero = false;  // a row whose scores are all -infinity gives zeros
  bool norms = false;           // with the logarithms of sums
  std::vector<ValueId> inside;  // computed from the first product, up to the scores
};

/// A product of batches of matrices, both operands tensors.
bool is_batched_product(const Node& node);
bool has_known_sizes(const TensorType& type);
bool is_half(DType dtype);
const TensorArg* operand_at(const Node& node, size_t place);
/// Whether a tile's kernel takes heads of this width.
bool fits_attention(Expr width);
/// Behind a cast that changes nothing: half types have all their values in float32.
ValueId before_cast(const Graph& graph, ValueId v);

/// What a value is computed from element by element, up to products of batches of its size.
struct ElementWalk {
  std::vector<const Node*> products;
  std::vector<ValueId>
      inside;  // the products' results, and what lies between them and the value, in the order of the graph
  std::vector<ValueId> dependent;  // those of them that are computed from a product, or are one
};
/// `takes`: whether the walk goes through a node, of which it is told whether the result has as many elements as the value, its last two
/// sizes alike. `again`: whether it sees what is computed again.
ElementWalk walk_to_products(const Graph& graph, ValueId from, bool again,
                             const std::function<bool(const Node& node, bool large)>& takes);

class AttentionFinder {
 public:
  explicit AttentionFinder(const Graph& graph);
  /// By the second product.
  std::optional<FoundAttention> find(const Node& second) const;

 private:
  bool once(ValueId v) const { return uses_[static_cast<size_t>(v)] == 1; }
  std::optional<FoundAttention> start(const Node& second) const;
  const Node* last_copy(const Node& second, const std::vector<Expr>& scores) const;
  bool follow(FoundAttention& found) const;
  bool stays_inside(const FoundAttention& found, const ElementWalk& walk) const;
  bool fits(const FoundAttention& found) const;

  const Graph& g_;
  std::vector<int> uses_;
  std::vector<NodeId> users_;
};

/// Makes the nodes of a kernel, in a copy of the graph.
class AttentionMaker {
 public:
  /// `scores`: the type of what the softmax is of, or of shares; `dtype`: the operands'.
  AttentionMaker(GraphCopy& copy, GraphBuilder& b, const TensorType& scores, DType dtype);
  /// In place of a product of queries and keys.
  ValueId scores(const Node& product);
  /// In place of the second product: as its result, as the copy of that, and the logarithms of sums.
  struct Values {
    ValueId product, last, norms = kNoValue;
  };
  Values values(const FoundAttention& found);
  /// In place of a product of queries and keys, [batch, heads, queries, keys] in float32.
  ValueId plain_scores(const Node& product);
  /// A sum of values, an operand of the graph that is copied, by shares. The last two dims of `value` may be exchanged.
  struct Sum {
    ValueId shares, value;
    bool value_turned;
    DType dtype;
  };
  /// One or two of them in a kernel, from so many products as wide as `widest`. `turned`: rows are keys.
  std::vector<ValueId> sums(const std::vector<Sum>& wanted, ValueId scores, bool turned, int64_t widest,
                            size_t products);

 private:
  ValueId four_dims(ValueId v);
  ValueId matrices(ValueId v, bool turned);
  ValueId fewer_heads(ValueId v, std::vector<Expr> sizes, bool turned);
  ValueId with_rows_along(ValueId v);

  GraphCopy& copy_;
  const Graph& g_;
  GraphBuilder& b_;
  std::vector<Expr> outer_;  // batch and heads
  std::vector<Expr> last_;   // queries and keys
  const DType dtype_;
};

}  // namespace tatara
