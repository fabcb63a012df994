#include "ops/reduce/softmax_source.h"

#include <optional>
#include <vector>

#include "ops/core/op_def.h"

namespace tatara {

std::optional<LastSoftmax> last_softmax(const Graph& graph, const Node& node) {
  const std::string& name = node.op->name;
  const bool zero = name == "_safe_softmax";
  if (name != "softmax" && name != "_softmax" && !zero) return std::nullopt;
  const auto* dim = std::get_if<Scalar>(&node.args[1]);
  const auto* at = dim == nullptr ? nullptr : std::get_if<int64_t>(dim);
  const int64_t rank = graph.type(node.outputs[0]).dim();
  return at != nullptr && (*at == -1 || *at == rank - 1) ? std::optional(LastSoftmax{zero}) : std::nullopt;
}

std::optional<LastSoftmax> softmax_product(const Node& node) {
  if (node.op->name != "softmax_product") return std::nullopt;
  return LastSoftmax{std::get<bool>(std::get<Scalar>(node.args[2]))};
}

bool is_softmax_share(const Node& node) { return node.op->name == "softmax_share"; }

bool keeps_elements(const Node& node) {
  const std::string& name = node.op->name;
  return name == "view" || name == "reshape_copy" || name == "clone";
}

bool is_cast(const Node& node) { return node.op->name == "cast"; }

std::optional<ValueId> copied(const Node& node) {
  const std::string& name = node.op->name;
  const bool second = name == "copy";
  if (name != "clone" && name != "reshape_copy" && name != "relayout" && !second) return std::nullopt;
  const auto* from = std::get_if<TensorArg>(&node.args[second ? 1 : 0]);
  return from != nullptr ? std::optional(from->value) : std::nullopt;
}

bool exchanges(const Graph& graph, const Node& node, int64_t dim) {
  const int64_t rank = graph.type(node.outputs[0]).dim();
  if (node.op->name != "permute" || rank + dim < 1) return false;
  const std::vector<Expr>& order = std::get<SymInts>(node.args[1]).values;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t given = order[static_cast<size_t>(d)].is_const() ? order[static_cast<size_t>(d)].const_value() : rank;
    const int64_t from = given < 0 ? given + rank : given;
    if (from != (d == rank + dim ? d - 1 : d == rank + dim - 1 ? d + 1 : d)) return false;
  }
  return true;
}

bool moves_elements(const Node& node) {
  const std::string& name = node.op->name;
  return keeps_elements(node) || name == "permute" || name == "expand" || name == "unsqueeze";
}

}  // namespace tatara
