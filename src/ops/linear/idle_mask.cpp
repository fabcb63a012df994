#include "ops/linear/idle_mask.h"

#include <optional>
#include <string>

#include "ops/core/op_def.h"

namespace tatara {
namespace {

std::optional<double> number_at(const Node& node, size_t i) {
  const auto* scalar = i < node.args.size() ? std::get_if<Scalar>(&node.args[i]) : nullptr;
  if (scalar == nullptr) return std::nullopt;
  if (const auto* n = std::get_if<int64_t>(scalar)) return static_cast<double>(*n);
  if (const auto* d = std::get_if<double>(scalar)) return *d;
  if (const auto* b = std::get_if<bool>(scalar)) return *b ? 1 : 0;
  const auto* e = std::get_if<Expr>(scalar);
  return e != nullptr && e->is_const() ? std::optional(static_cast<double>(e->const_value())) : std::nullopt;
}

ValueId operand_at(const Node& node, size_t i) {
  const auto* operand = i < node.args.size() ? std::get_if<TensorArg>(&node.args[i]) : nullptr;
  return operand == nullptr ? kNoValue : operand->value;
}

/// The node behind views, which have the elements of their operand; null for an input.
const Node* maker(const Graph& g, ValueId v) {
  while (v != kNoValue && g.value(v).producer >= 0) {
    const Node& node = g.node(g.value(v).producer);
    if (node.op->kind != OpKind::kView || g.type(operand_at(node, 0)).dtype != g.type(v).dtype) return &node;
    v = operand_at(node, 0);
  }
  return nullptr;
}

/// What no element is below; nullopt: not known.
std::optional<double> lower_bound(const Graph& g, ValueId v) {
  const Node* node = maker(g, v);
  if (node == nullptr) return std::nullopt;
  if (node->op->name == "add") {
    const std::optional<double> least = lower_bound(g, operand_at(*node, 0));
    const std::optional<double> more = number_at(*node, 1), factor = number_at(*node, 2);
    return least && more && factor ? std::optional(*least + *more * *factor) : std::nullopt;
  }
  if (node->op->name != "arange.step") return std::nullopt;
  const std::optional<double> start = number_at(*node, 0), step = number_at(*node, 2);
  return step && *step > 0 ? start : std::nullopt;
}

bool always_true(const Graph& g, ValueId v) {
  const Node* node = maker(g, v);
  if (node == nullptr || g.type(v).dtype != DType::kBool) return false;
  const std::string& name = node->op->name;
  if (name == "logical_and" || name == "bitwise_and") {
    return always_true(g, operand_at(*node, 0)) && always_true(g, operand_at(*node, 1));
  }
  if (name == "full") return number_at(*node, 1).value_or(0) != 0;
  if (name != "ge" && name != "gt") return false;
  const std::optional<double> least = lower_bound(g, operand_at(*node, 0)), bound = number_at(*node, 1);
  return least && bound && (name == "ge" ? *least >= *bound : *least > *bound);
}

}  // namespace

bool mask_says_nothing(const Graph& graph, const Arg& mask) {
  const auto* operand = std::get_if<TensorArg>(&mask);
  return operand != nullptr && operand->value != kNoValue && always_true(graph, operand->value);
}

}  // namespace tatara
