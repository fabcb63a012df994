#include "ir/graph.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "support/cancel.h"
#include "support/error.h"
#include "support/hash.h"

namespace tatara {

std::string Device::str() const {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return index < 0 ? "cuda" : "cuda:" + std::to_string(index);
    case DeviceKind::kMeta: return "meta";
  }
  return "cpu";
}

std::vector<Expr> contiguous_strides(ExprContext& ctx, const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size());
  Expr running = ctx.constant(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = running;
    running = ctx.mul(running, ctx.max(sizes[i], ctx.constant(1)));
  }
  return strides;
}

Expr TensorType::numel(ExprContext& ctx) const {
  Expr product = ctx.constant(1);
  for (const Expr size : sizes) product = ctx.mul(product, size);
  return product;
}

namespace {
std::string joined(const std::vector<Expr>& list) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + list[i].str();
  return text;
}

std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}
}  // namespace

std::string TensorType::str() const {
  std::string text(dtype_name(dtype));
  text += "[" + joined(sizes);
  if (!sizes.empty() && strides != contiguous_strides(sizes.front().context(), sizes))
    text += "; strides " + joined(strides);
  text += "]";
  if (device.kind != DeviceKind::kCpu) text += "@" + device.str();
  if (is_wrapped_number) text += "#";
  return text;
}

std::string scalar_str(const Scalar& scalar) {
  struct Visitor {
    std::string operator()(bool b) const { return b ? "True" : "False"; }
    std::string operator()(int64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const { return double_text(d); }
    std::string operator()(const std::complex<double>& c) const {
      return "complex(" + double_text(c.real()) + ", " + double_text(c.imag()) + ")";
    }
    std::string operator()(Expr e) const { return "{" + e.str() + "}"; }
  };
  return std::visit(Visitor(), scalar);
}

std::string SourceLocation::str() const {
  if (file == nullptr) return {};
  std::string text = *file + ":" + std::to_string(line);
  if (function != nullptr && !function->empty()) text += " in " + *function;
  return text;
}

UserLocation SourceLocation::user() const {
  return {file != nullptr ? *file : "", line, function != nullptr ? *function : "", call};
}

size_t TypePool::Hash::operator()(const TensorType& type) const {
  uint64_t hash = hash_combine(static_cast<uint64_t>(type.dtype), static_cast<uint64_t>(type.is_wrapped_number));
  hash = hash_combine(hash, static_cast<uint64_t>(type.device.kind) << 16 | static_cast<uint16_t>(type.device.index));
  hash = hash_combine(hash, type.sizes.size());
  for (const std::vector<Expr>* list : {&type.sizes, &type.strides}) {
    for (const Expr e : *list) hash = hash_combine(hash, reinterpret_cast<uintptr_t>(e.node()));
  }
  return hash;
}

ValueId Graph::add_input(TensorType type, std::string name) {
  const auto id = static_cast<ValueId>(values_.size());
  Value value;
  value.type = types_->intern(std::move(type));
  value.input_index = static_cast<int>(inputs_.size());
  values_.push_back(value);
  inputs_.push_back(id);
  input_names_.push_back(std::move(name));
  return id;
}

NodeId Graph::add_node(const OpDef* op, std::vector<Arg> args, std::vector<TensorType> types, SourceLocation location) {
  check_cancelled();
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.op = op;
  node.args = std::move(args);
  node.location = std::move(location);
  for (size_t i = 0; i < types.size(); ++i) {
    Value value;
    value.type = types_->intern(std::move(types[i]));
    value.producer = id;
    value.output_index = static_cast<int>(i);
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(value);
  }
  nodes_.push_back(std::move(node));
  return id;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> counts(values_.size(), 0);
  for (const Node& node : nodes_) for_each_operand(node, [&](ValueId v) { ++counts[static_cast<size_t>(v)]; });
  for (const GraphOutput& output : outputs_) {
    if (output.value != kNoValue) ++counts[static_cast<size_t>(output.value)];
  }
  for (const InputWrite& write : writes_) ++counts[static_cast<size_t>(write.value)];
  return counts;
}

void Graph::truncate_nodes(size_t count) {
  if (count >= nodes_.size()) return;
  size_t first = values_.size();
  for (size_t i = count; i < nodes_.size(); ++i) {
    for (const ValueId v : nodes_[i].outputs) first = std::min(first, static_cast<size_t>(v));
  }
  nodes_.resize(count);
  // Inputs may have been added after the cut; they stay, so only a tail free of inputs can be dropped.
  size_t last_input = 0;
  for (const ValueId v : inputs_) last_input = std::max(last_input, static_cast<size_t>(v) + 1);
  values_.resize(std::max(first, std::min(last_input, values_.size())));
}

std::vector<Expr> symbols_in(const Graph& graph) {
  std::vector<Expr> found;
  const auto collect = [&found](Expr e) { collect_symbols(e, found); };
  for (size_t v = 0; v < graph.num_values(); ++v) {
    const TensorType& type = graph.type(static_cast<ValueId>(v));
    std::for_each(type.sizes.begin(), type.sizes.end(), collect);
    std::for_each(type.strides.begin(), type.strides.end(), collect);
  }
  for (const Node& node : graph.nodes()) for_each_integer(node, collect);
  return found;
}

bool binds(const TensorType& type, Expr symbol) {
  const auto has = [symbol](const std::vector<Expr>& list) {
    return std::find(list.begin(), list.end(), symbol) != list.end();
  };
  return has(type.sizes) || has(type.strides);
}

}  // namespace tatara
