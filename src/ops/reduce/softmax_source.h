// What passes ask of nodes around a softmax: whether it is one, and what lies between it and products of matrices.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace tatara {

/// Whether the node is a softmax of its first operand along the last dimension; `zero`: of rows that are all -infinity it gives zeros.
struct LastSoftmax {
  bool zero = false;
};
std::optional<LastSoftmax> last_softmax(const Graph& graph, const Node& node);
/// Whether the node is a softmax of its first operand times its second one (`softmax_product`).
std::optional<LastSoftmax> softmax_product(const Node& node);
/// Whether it is a softmax's share, exp(scores - logarithm of their sum), of its operands.
bool is_softmax_share(const Node& node);
/// Whether its result has the elements of its first operand, in the same order.
bool keeps_elements(const Node& node);
/// To another dtype.
bool is_cast(const Node& node);
/// The operand that the node is a copy of; nothing: it is no copy.
std::optional<ValueId> copied(const Node& node);
/// Whether it exchanges two neighbouring dimensions, the later of which is `dim`, counted from the end: -1 is the last one.
bool exchanges(const Graph& graph, const Node& node, int64_t dim);
/// Whether its result has the elements of its first operand: in another order, some of them again.
bool moves_elements(const Node& node);

}  // namespace tatara
