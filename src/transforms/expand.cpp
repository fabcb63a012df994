#include "transforms/expand.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/core/builder.h"
#include "ops/core/family_util.h"
#include "ops/core/view_util.h"
#include "support/error.h"
#include "transforms/batching.h"
#include "transforms/forward.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

bool closes(const Node& node) { return is_gradients(node) || is_tangents(node) || is_batch_out(node); }

size_t first_closing(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  return static_cast<size_t>(std::find_if(nodes.begin(), nodes.end(), closes) - nodes.begin());
}

/// Whether an output is there for check_written() alone.
bool is_check(const GraphOutput& output) {
  return output.alias.sharing == OutputAlias::Sharing::kMustNot || output.alias.sharing == OutputAlias::Sharing::kGiven;
}

/// In eager a tangent of a view is a view, of another tangent or of an input, which a fresh output cannot be. Those of a group
/// are settled later.
void refuse_shared_tangents(const Graph& graph) {
  std::vector<ValueId> bases;
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.kind != OutputAlias::Kind::kFresh || output.value == kNoValue) continue;
    if (is_check(output) || output.alias.group >= 0) continue;
    ValueId base = output.value;
    for (const Node* node = graph.producer(base); node != nullptr; node = graph.producer(base)) {
      if (node->op->kind != OpKind::kView && !node->op->traits.copies_to_strides) break;
      base = std::get<TensorArg>(node->args[0]).value;
    }
    const bool shared = graph.producer(base) == nullptr || std::find(bases.begin(), bases.end(), base) != bases.end();
    if (shared) throw Unsupported("a tangent that is a view");
    bases.push_back(base);
  }
}

/// What a value is, or is a view of. `views`: the nodes in between, the last one first.
ValueId below(const Graph& graph, ValueId value, std::vector<ValueId>& views) {
  for (const Node* node = graph.producer(value); node != nullptr && node->op->kind == OpKind::kView;
       node = graph.producer(value)) {
    views.push_back(value);
    value = std::get<TensorArg>(node->args[0]).value;
  }
  return value;
}

/// The value, a view of `base` or that itself, as the same of `other`.
ValueId views_over(GraphBuilder& builder, ValueId value, ValueId base, ValueId other) {
  if (value == base) return other;
  std::vector<ValueId> views;
  below(builder.graph(), value, views);
  for (size_t n = views.size(); n-- > 0;) {
    const Node node = *builder.graph().producer(views[n]);
    std::vector<Arg> args = node.args;
    args[0] = TensorArg{other};
    other = builder.call(*node.op, std::move(args)).front();
  }
  return other;
}

/// Where a gradient that was written to shares memory with anything, a write to one would have to be one to both.
void check_written(Graph& graph) {
  using Sharing = OutputAlias::Sharing;
  std::vector<ValueId> bases;
  std::vector<ValueId> views;
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.sharing == Sharing::kGiven) bases.push_back(below(graph, output.value, views));
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.alias.sharing != Sharing::kMustNot) continue;
    const ValueId base = below(graph, output.value, views);
    if (graph.producer(base) == nullptr || std::find(bases.begin(), bases.end(), base) != bases.end()) {
      throw Unsupported("a write to memory that a gradient shares");
    }
    bases.push_back(base);
  }
  std::erase_if(graph.outputs(), is_check);
}

/// Where the last of the views, the first here, begins in the memory of what is below them.
Expr offset_in_base(const Graph& graph, const std::vector<ValueId>& views) {
  Expr offset = graph.ctx().constant(0);
  for (size_t n = views.size(); n-- > 0;) {
    offset = ops::offset_behind(graph, views[n], offset);
    if (!offset.valid()) throw Unsupported("a result whose place in its base is not known");
  }
  return offset;
}

bool is_base_of_another(const Graph& graph, size_t output) {
  const std::vector<GraphOutput>& outputs = graph.outputs();
  return std::any_of(outputs.begin(), outputs.end(), [output](const GraphOutput& other) {
    return other.alias.kind == OutputAlias::Kind::kOutput && other.alias.index == static_cast<int>(output);
  });
}

/// Makes an output a view of the input that is below it, if one is.
bool share_with_input(Graph& graph, size_t i) {
  std::vector<ValueId> views;
  const ValueId base = below(graph, graph.outputs()[i].value, views);
  const auto input = std::find(graph.inputs().begin(), graph.inputs().end(), base);
  if (input == graph.inputs().end() || is_base_of_another(graph, i)) return false;
  graph.outputs()[i].alias = {OutputAlias::Kind::kInput, static_cast<int>(input - graph.inputs().begin()),
                              offset_in_base(graph, views)};
  return true;
}

/// Makes outputs that come from gradients what eager's are.
void share_outputs(Graph& graph) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    OutputAlias& alias = graph.outputs()[i].alias;
    if (std::exchange(alias.sharing, OutputAlias::Sharing::kNone) == OutputAlias::Sharing::kNone) continue;
    share_with_input(graph, i);
  }
}

/// Tangents of one storage, which nothing else shares: the first that is all of it, or an output that is added for them, has the
/// memory.
void share_group(Graph& graph, const std::vector<size_t>& members) {
  std::vector<ValueId> views;
  std::vector<ValueId> bases;
  for (const size_t i : members) bases.push_back(below(graph, graph.outputs()[i].value, views));
  if (std::any_of(bases.begin(), bases.end(), [&](ValueId base) { return base != bases[0]; })) {
    throw Unsupported("a tangent that is a view");
  }
  const auto shares = [&](const GraphOutput& other) {
    const auto place = static_cast<size_t>(&other - graph.outputs().data());
    return other.value != kNoValue && other.alias.kind != OutputAlias::Kind::kInput &&
           std::find(members.begin(), members.end(), place) == members.end() &&
           below(graph, other.value, views) == bases[0];
  };
  ValueId base = bases[0];
  if (graph.producer(base) == nullptr || std::any_of(graph.outputs().begin(), graph.outputs().end(), shares)) {
    GraphBuilder builder(graph);
    const ValueId copy = copied(builder, base);
    for (const size_t i : members) {
      const ValueId value = views_over(builder, graph.outputs()[i].value, base, copy);
      graph.outputs()[i].value = value;
    }
    base = copy;
  }
  if (members.size() == 1) return;
  const auto whole =
      std::find_if(members.begin(), members.end(), [&](size_t i) { return graph.outputs()[i].value == base; });
  const size_t owner = whole != members.end() ? *whole : graph.outputs().size();
  if (whole == members.end()) graph.add_output(base);
  for (const size_t i : members) {
    if (i == owner) continue;
    views.clear();
    below(graph, graph.outputs()[i].value, views);
    graph.outputs()[i].alias = {OutputAlias::Kind::kOutput, static_cast<int>(owner), offset_in_base(graph, views)};
  }
}

/// Makes outputs that come from tangents what eager's are.
void share_tangents(Graph& graph) {
  std::map<int, std::vector<size_t>> groups;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    OutputAlias& alias = graph.outputs()[i].alias;
    if (alias.group < 0) continue;
    const int group = std::exchange(alias.group, -1);
    if (std::exchange(alias.sharing, OutputAlias::Sharing::kNone) == OutputAlias::Sharing::kOwn) {
      if (is_base_of_another(graph, i)) throw Unsupported("a tangent that is a view");
      groups[group].push_back(i);
    } else if (!share_with_input(graph, i)) {
      throw Unsupported("a tangent that is a view");
    }
  }
  for (const auto& [group, members] : groups) share_group(graph, members);
}

/// Fresh outputs own their memory: none may be an input's value or another output's.
void unshare_outputs(Graph& graph) {
  GraphBuilder builder(graph);
  std::vector<ValueId> taken;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput output = graph.outputs()[i];
    if (output.alias.kind != OutputAlias::Kind::kFresh || output.value == kNoValue) continue;
    ValueId value = output.value;
    if (graph.value(value).producer < 0 || std::find(taken.begin(), taken.end(), value) != taken.end()) {
      value = copied(builder, value);
      graph.outputs()[i].value = value;
    }
    taken.push_back(value);
  }
}

/// The operands of a pass for gradients.
enum : size_t { kRoots, kCotangents, kVariables, kHistories = 4 };

/// Finds the nodes that a pass, the last node, asks about: those that decide its roots and that variables decide. `needed`: what
/// they and the pass read.
class AskedNodes {
 public:
  explicit AskedNodes(const Graph& graph)
      : graph_(graph), asked_(graph.num_nodes(), false), needed_(graph.num_values(), false) {
    std::vector<bool> decided(graph.num_values(), false);
    const Node& pass = graph.nodes().back();
    for (const ValueId v : list(pass, kVariables)) decided[static_cast<size_t>(v)] = true;
    for (size_t n = 0; n + 1 < graph.num_nodes(); ++n) {
      const Node& node = graph.node(static_cast<NodeId>(n));
      bool any = false;
      for_each_operand(node, [&](ValueId v) { any = any || (v != kNoValue && decided[static_cast<size_t>(v)]); });
      asked_[n] = any;
      for (const ValueId v : node.outputs) decided[static_cast<size_t>(v)] = any || decided[static_cast<size_t>(v)];
    }
    for (const size_t arg : {size_t{kRoots}, size_t{kCotangents}, size_t{kVariables}}) {
      for (const ValueId v : list(pass, arg)) need(v);
    }
    for (size_t n = graph.num_nodes() - 1; n-- > 0;) {
      const Node& node = graph.node(static_cast<NodeId>(n));
      asked_[n] = asked_[n] && std::any_of(node.outputs.begin(), node.outputs.end(),
                                           [this](ValueId v) { return needed_[static_cast<size_t>(v)]; });
      if (asked_[n]) for_each_operand(node, [this](ValueId v) { need(v); });
    }
  }

  static const std::vector<ValueId>& list(const Node& pass, size_t arg) {
    return std::get<TensorList>(pass.args[arg]).values;
  }
  bool has_pass() const {
    for (size_t n = 0; n + 1 < graph_.num_nodes(); ++n) {
      if (asked_[n] && closes(graph_.node(static_cast<NodeId>(n)))) return true;
    }
    return false;
  }

  /// With the other values as inputs.
  Graph alone() const {
    const Node& pass = graph_.nodes().back();
    const std::vector<bool> has = values_with_history(graph_, list(pass, kHistories));
    Graph to(graph_.ctx_ptr());
    std::vector<ValueId> map(graph_.num_values(), kNoValue), starts;
    for (size_t v = 0; v < map.size(); ++v) {
      const NodeId made = graph_.value(static_cast<ValueId>(v)).producer;
      if (!needed_[v] || (made >= 0 && asked_[static_cast<size_t>(made)])) continue;
      map[v] = to.add_input(graph_.type(static_cast<ValueId>(v)), {});
      if (has[v]) starts.push_back(map[v]);
    }
    const auto now = [&map](ValueId v) { return v == kNoValue ? v : map[static_cast<size_t>(v)]; };
    const auto add = [&](const Node& node, std::vector<Arg> args) {
      std::vector<TensorType> types;
      for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
      const NodeId id = to.add_node(node.op, std::move(args), std::move(types), node.location);
      to.node(id).take_marks(node);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        map[static_cast<size_t>(node.outputs[i])] = to.node(id).outputs[i];
      }
    };
    for (size_t n = 0; n + 1 < graph_.num_nodes(); ++n) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      if (asked_[n]) add(node, with_operands(node.args, now));
    }
    for (const ValueId v : list(pass, kHistories)) {
      if (now(v) != kNoValue && to.producer(now(v)) != nullptr) starts.push_back(now(v));
    }
    std::vector<Arg> args = pass.args;
    args[kHistories] = TensorList{};
    args = with_operands(args, now);
    args[kHistories] = TensorList{std::move(starts)};
    add(pass, std::move(args));
    for (const ValueId v : pass.outputs) to.add_output(now(v));
    return to;
  }

 private:
  void need(ValueId v) {
    if (v != kNoValue) needed_[static_cast<size_t>(v)] = true;
  }

  const Graph& graph_;
  std::vector<bool> asked_, needed_;
};

}  // namespace

std::vector<std::optional<GradientFound>> last_pass(const Graph& graph) {
  std::vector<std::optional<GradientFound>> found;
  if (is_gradients(graph.nodes().back())) {
    const AskedNodes asked(graph);
    if (!asked.has_pass()) {
      static_cast<void>(expand_transforms(asked.alone(), {}, &found));
      return found;
    }
  }
  static_cast<void>(expand_transforms(graph, {}, &found));
  return found;
}

ValueId copied(GraphBuilder& builder, ValueId value) {
  std::vector<Expr> strides = ops::dense_strides(builder.ctx(), builder.type(value));
  if (strides.empty()) strides = builder.type(value).strides;
  return builder.op("relayout", {TensorArg{value}, SymInts{std::move(strides)}});
}

ValueId on_a_copy(GraphBuilder& builder, ValueId value) {
  std::vector<ValueId> views;
  const ValueId base = below(builder.graph(), value, views);
  return views_over(builder, value, base, copied(builder, base));
}

Graph expand_transforms(const Graph& graph, const PassOptions& options,
                        std::vector<std::optional<GradientFound>>* found) {
  if (first_closing(graph) == graph.num_nodes()) return graph;
  return run_pass("expand_transforms", graph, options, [&](const Graph& g) {
    Graph result = numbered(g);
    bool tangents = false;
    for (size_t at = first_closing(result); at < result.num_nodes(); at = first_closing(result)) {
      const Node& node = result.node(static_cast<NodeId>(at));
      std::vector<std::optional<GradientFound>> here;
      if (is_gradients(node)) {
        result = expand_gradients_at(result, at, here, options);
      } else if (is_tangents(node)) {
        result = expand_tangents_at(result, at, here, options);
        tangents = true;
      } else {
        result = expand_batches_at(result, at, options);
      }
      result = numbered(result);
      if (found != nullptr) *found = std::move(here);
    }
    if (tangents && found == nullptr) refuse_shared_tangents(result);
    check_written(result);
    share_tangents(result);
    share_outputs(result);
    unshare_outputs(result);
    return result;
  });
}

}  // namespace tatara
