// Weights that are unpacked into a tensor made before, part by part (`w[:, ::2] = p & 15; w[:, 1::2] = p >> 4`, or one half behind the
// other): all of it is written, so it is these parts joined, which products with few rows see through (thin_products.cpp).
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr size_t kMostUnpackedParts = 8;
constexpr int kMostWalkedNodes = 64;  // nodes between a product and what it is to see through

/// A number among the arguments; none: `absent`.
std::optional<int64_t> number_in(const Arg& arg, int64_t absent) {
  const auto* scalar = std::get_if<Scalar>(&arg);
  if (scalar == nullptr) return std::holds_alternative<NoneArg>(arg) ? std::optional(absent) : std::nullopt;
  if (const auto* n = std::get_if<int64_t>(scalar)) return *n;
  const auto* e = std::get_if<Expr>(scalar);
  return e != nullptr && e->is_const() ? std::optional(e->const_value()) : std::nullopt;
}

/// Equal parts that make up a tensor: neighbours of one dim in turn, or one part behind the other.
struct UnpackedParts {
  size_t dim = 0;
  bool in_turn = false;
  std::vector<ValueId> values;
};

/// The parts that the last of several writes completes.
std::optional<UnpackedParts> written_parts(const Graph& g, ValueId whole) {
  const TensorType& type = g.type(whole);
  UnpackedParts parts;
  std::map<int64_t, ValueId> by_start;
  int64_t step = 0, length = 0, size = 0;
  for (ValueId v = whole; by_start.size() * static_cast<size_t>(length) < static_cast<size_t>(size) || size == 0;) {
    const Node* node = g.producer(v);
    if (node == nullptr || node->op->name != "slice_scatter") return std::nullopt;
    const auto *base = std::get_if<TensorArg>(&node->args[0]), *source = std::get_if<TensorArg>(&node->args[1]);
    const std::optional<int64_t> dim = number_in(node->args[2], 0), by = number_in(node->args[5], 1);
    if (base == nullptr || source == nullptr || !dim || !by || *by < 1) return std::nullopt;
    const auto d = static_cast<size_t>(*dim < 0 ? *dim + type.dim() : *dim);
    if (d >= type.sizes.size() || !type.sizes[d].is_const()) return std::nullopt;
    if (size == 0) {
      parts.dim = d;
      size = type.sizes[d].const_value();
      step = *by;
    }
    const TensorType& part = g.type(source->value);
    std::vector<Expr> expected = type.sizes;
    expected[d] = part.sizes.size() == type.sizes.size() ? part.sizes[d] : Expr();
    if (d != parts.dim || *by != step || part.dtype != type.dtype || !expected[d].valid() || part.sizes != expected ||
        !part.sizes[d].is_const())
      return std::nullopt;
    const int64_t own = part.sizes[d].const_value();
    const std::optional<int64_t> start = number_in(node->args[3], 0);
    if (!start || *start < 0 || own < 1 || (length != 0 && own != length)) return std::nullopt;
    length = own;
    const auto count = static_cast<size_t>(size / length);
    const bool fits = step > 1 ? *start < step && step == static_cast<int64_t>(count) : *start % length == 0;
    if (size % length != 0 || count < 2 || count > kMostUnpackedParts || !fits) return std::nullopt;
    by_start.try_emplace(*start, source->value);  // what is written later counts
    v = base->value;
  }
  parts.in_turn = step > 1;
  for (const auto& [start, value] : by_start) parts.values.push_back(value);
  return parts;
}

/// Adds what such a product reads and is written in parts.
void find_unpacked(const Graph& g, ValueId value, std::map<ValueId, UnpackedParts>& found) {
  std::set<ValueId> seen;
  std::vector<ValueId> pending{value};
  while (!pending.empty() && static_cast<int>(seen.size()) < kMostWalkedNodes) {
    const ValueId v = pending.back();
    pending.pop_back();
    const Node* node = v == kNoValue || !seen.insert(v).second ? nullptr : g.producer(v);
    if (node == nullptr || (node->op->kind != OpKind::kPointwise && node->op->kind != OpKind::kView)) continue;
    if (std::optional<UnpackedParts> parts = written_parts(g, v)) {
      found.emplace(v, std::move(*parts));
      continue;
    }
    for_each_operand(*node, [&](ValueId operand) { pending.push_back(operand); });
  }
}

/// What a copy into a part puts there: the part as it was before tells the type alone.
ValueId without_copy(GraphCopy& copy, GraphBuilder& b, ValueId part) {
  const Graph& g = copy.from();
  const Node* node = g.producer(part);
  if (node == nullptr || node->op->name != "copy") return copy[part];
  const ValueId value = b.cast(copy[std::get<TensorArg>(node->args[1]).value], g.type(part).dtype);
  return b.type(value).sizes == g.type(part).sizes ? value : b.expand(value, g.type(part).sizes);
}

ValueId joined_parts(GraphCopy& copy, const Node& node, const UnpackedParts& parts) {
  GraphBuilder b(copy.to());
  b.set_location(node.location);
  const std::vector<Expr> sizes = copy.from().type(node.outputs[0]).sizes;
  const auto dim = static_cast<int64_t>(parts.dim) + (parts.in_turn ? 1 : 0);
  TensorList list;
  for (const ValueId each : parts.values) {
    const ValueId part = without_copy(copy, b, each);
    list.values.push_back(parts.in_turn ? b.unsqueeze(part, dim) : part);
  }
  return b.reshape(b.op("cat", {Arg(list), Arg(Scalar(dim))}), sizes);
}

}  // namespace

Graph join_unpacked_parts(const Graph& g, int64_t most_rows) {
  std::map<ValueId, UnpackedParts> found;
  for (const Node& node : g.nodes()) {
    const std::optional<ProductArgs> form = product_args(node);
    if (!form || form->batched) continue;
    const auto* left = std::get_if<TensorArg>(&node.args[form->left]);
    const auto* right = std::get_if<TensorArg>(&node.args[form->left + 1]);
    if (left == nullptr || right == nullptr) continue;
    const Expr rows = g.type(left->value).sizes[0];
    if (rows.is_const() && rows.const_value() <= most_rows) find_unpacked(g, right->value, found);
  }
  if (found.empty()) return g;
  GraphCopy joining(g);
  for (const Node& node : g.nodes()) {
    const auto parts = node.outputs.empty() ? found.end() : found.find(node.outputs[0]);
    if (parts == found.end()) {
      joining.copy(node);
    } else {
      const size_t first_new = joining.to().num_nodes();
      const ValueId made = joined_parts(joining, node, parts->second);
      joining.set(node.outputs[0], with_type(joining, made, g.type(node.outputs[0]), first_new));
    }
  }
  return eliminate_dead_code(joining.finish());  // the writes, for who counts uses
}

}  // namespace tatara
