#include <cstring>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "ops/core/op_def.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {

namespace {

template <typename T>
void add_bytes(std::string& key, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  key.append(bytes, sizeof(T));
}

void add_scalar(std::string& key, const Scalar& scalar) {
  key += static_cast<char>('0' + scalar.index());
  if (const auto* b = std::get_if<bool>(&scalar)) key += *b ? '1' : '0';
  if (const auto* n = std::get_if<int64_t>(&scalar)) add_bytes(key, *n);
  if (const auto* d = std::get_if<double>(&scalar)) add_bytes(key, *d);
  if (const auto* c = std::get_if<std::complex<double>>(&scalar)) {
    add_bytes(key, c->real());
    add_bytes(key, c->imag());
  }
  if (const auto* e = std::get_if<Expr>(&scalar)) add_bytes(key, e->node());
}

/// Equal keys mean equal nodes: every argument by its bits.
std::string key_of(const Node& node, const std::vector<Arg>& args) {
  std::string key;
  add_bytes(key, node.op);
  add_bytes(key, node.again);
  add_bytes(key, node.rule.get());
  for (const Arg& arg : args) {
    key += static_cast<char>('A' + arg.index());
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) {
      add_bytes(key, tensor->value);
    } else if (const auto* list = std::get_if<TensorList>(&arg)) {
      add_bytes(key, list->values.size());
      for (const ValueId v : list->values) add_bytes(key, v);
    } else if (const auto* scalar = std::get_if<Scalar>(&arg)) {
      add_scalar(key, *scalar);
    } else if (const auto* ints = std::get_if<SymInts>(&arg)) {
      add_bytes(key, ints->values.size());
      for (const Expr e : ints->values) add_bytes(key, e.node());
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      add_bytes(key, *dtype);
    } else if (const auto* device = std::get_if<Device>(&arg)) {
      key += device->str();
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      add_bytes(key, text->size());
      key += *text;
    } else if (const auto* bools = std::get_if<std::vector<bool>>(&arg)) {
      add_bytes(key, bools->size());
      for (const bool b : *bools) key += b ? '1' : '0';
    } else if (const auto* doubles = std::get_if<std::vector<double>>(&arg)) {
      add_bytes(key, doubles->size());
      for (const double d : *doubles) add_bytes(key, d);
    }
  }
  return key;
}

}  // namespace

Graph eliminate_common_subexpressions(const Graph& graph, const PassOptions& options) {
  return run_pass("cse", graph, options, [](const Graph& g) {
    // Two fresh outputs stay two tensors, even when they are equal.
    const std::vector<bool> escapes = escaping_values(g);
    std::unordered_map<std::string, NodeId> seen;
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      bool shared = !node.op->draws();
      for (const ValueId v : node.outputs) shared = shared && !escapes[static_cast<size_t>(v)];
      if (!shared) {
        copy.copy(node);
        continue;
      }
      const std::string key = key_of(node, copy.args(node));
      const auto found = seen.find(key);
      bool same = found != seen.end();
      for (size_t i = 0; same && i < node.outputs.size(); ++i) {
        const TensorType& old = copy.to().type(copy.to().node(found->second).outputs[i]);
        const TensorType& now = g.type(node.outputs[i]);
        same = old.strides == now.strides && old.is_wrapped_number == now.is_wrapped_number && old.dtype == now.dtype;
      }
      if (same) {
        for (size_t i = 0; i < node.outputs.size(); ++i)
          copy.set(node.outputs[i], copy.to().node(found->second).outputs[i]);
        continue;
      }
      copy.copy(node);
      seen[key] = static_cast<NodeId>(copy.to().num_nodes()) - 1;
    }
    return copy.finish();
  });
}

}  // namespace tatara
