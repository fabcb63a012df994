// Shared by the passes: the wrapper that names, times, skips and checks them, and copying with replacement.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "support/pass_options.h"

namespace tatara {

struct ImageArgs;  // ops/core/op_def.h

/// Runs `pass` unless the options skip it (then a copy of the graph comes back), logs its time and effect under
/// TATARA_LOG=passes, and checks the result.
Graph run_pass(std::string_view name, const Graph& graph, const PassOptions& options,
               const std::function<Graph(const Graph&)>& pass);

/// Does `work` on behalf of the node: an error names its line and the recorded call that it comes from.
template <typename Work>
void at_node(const Node& node, Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const Error& error) {
    error.rethrow_at(node.location.user());
  }
}

/// A copy under construction: values of the old graph mapped to values of the new one.
class GraphCopy {
 public:
  explicit GraphCopy(const Graph& from);

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  ValueId operator[](ValueId old) const { return old == kNoValue ? kNoValue : map_[static_cast<size_t>(old)]; }
  void set(ValueId old, ValueId now) { map_[static_cast<size_t>(old)] = now; }
  std::vector<Arg> args(const Node& node) const;
  /// The node as it is.
  void copy(const Node& node);
  /// Outputs and writes; ends the copy.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

/// Appends the nodes of `from` to `to`, and its outputs; `map` has the values of `to` that stand for inputs of `from`.
Graph copy_into(const Graph& from, Graph to, std::vector<ValueId> map);

/// Gives a value of the new graph the type that was inferred for the whole operator: eager's strides, which the parts that now
/// make it up may not have. Nodes from `first_new` on are the parts.
ValueId with_type(GraphCopy& copy, ValueId v, const TensorType& type, size_t first_new);

/// Whether its result is zeros, and says so.
bool fills_zeros(const Node& node);

/// Whether the convolution is known to have a single group.
bool is_in_one_group(const Node& node, const ImageArgs& images);

/// Whether the value is an input that the graph writes to. A write of what is there already says that later graphs write to it.
bool is_written(const Graph& graph, ValueId v);
/// Whether the graph itself gives it other contents.
bool is_changed(const Graph& graph, ValueId v);

/// Per value: whether its memory is seen outside as a fresh output or a write (directly or through views). Such values keep
/// an identity of their own.
std::vector<bool> escaping_values(const Graph& graph);

}  // namespace tatara
