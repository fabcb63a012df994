#include "transforms/batching.h"

#include <algorithm>
#include <optional>

#include "ops/rules/batching_rule.h"
#include "ops/rules/host_transform.h"
#include "support/error.h"
#include "support/made_once.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

// ---- Markers -----------------------------------------------------------------------------------------------------------

OpDef marker(const char* name) {
  OpDef made;
  made.name = name;
  made.not_differentiable = true;
  return made;
}

const OpDef& batch_in_op() {
  return made_once([] { return marker("batch_in"); });  // (operand, dim, level, randomness)
}

const OpDef& batch_out_op() {
  return made_once([] { return marker("batch_out"); });  // (operand, dim, level, size)
}

int64_t integer(const Node& node, size_t arg) { return std::get<int64_t>(std::get<Scalar>(node.args[arg])); }
ValueId tensor_operand(const Node& node) { return std::get<TensorArg>(node.args[0]).value; }
int64_t level_of(const Node& node) { return integer(node, 2); }

template <typename T>
void erase_at(std::vector<T>& values, int64_t place) {
  values.erase(values.begin() + place);
}

// ---- Nodes ---------------------------------------------------------------------------------------------------------------

constexpr int kMaxDepth = 24;

/// Writes batched nodes for nodes of single examples.
class Batcher {
 public:
  Batcher(Graph& to, Expr size, Randomness randomness) : builder_(to), size_(size), randomness_(randomness) {}

  /// `example` is the graph that the node is in, `values` what stands for its values; sets those of the node's results.
  void through(Graph& example, NodeId id, std::vector<BatchValue>& values, int depth = 0) {
    const Node node = example.node(id);
    builder_.set_location(node.location);
    builder_.set_no_grad(node.no_grad);
    builder_.set_closed(node.closed);
    bool any = false;
    for_each_operand(node, [&](ValueId v) { any = any || values[at(v)].batched; });
    const bool random = node.op->draws() && !is_library_operator(*node.op) && !node.op->of_generator();
    if (random && randomness_ == Randomness::kError) {
      throw Unsupported(str_cat("random operator ", node.op->name, " inside of vmap with randomness=\"error\""));
    }
    if (!any && !(random && randomness_ == Randomness::kDifferent)) {
      copy(example, node, values);
      return;
    }
    GraphBuilder of_example(example);
    const bool same = randomness_ == Randomness::kSame;
    BatchContext context(builder_, of_example, node, values, size_, same,
                         [&](const DecomposeFn& parts) { return batch_parts(example, node, parts, values, depth); });
    if (!apply_rule(context, node, example, values, depth)) {
      if (random) throw Unsupported(str_cat("random operator ", node.op->name, " inside of vmap"));
      batch_by_host(context);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) set(example, node, i, context.results()[i], values);
  }

 private:
  static size_t at(ValueId v) { return static_cast<size_t>(v); }

  void copy(const Graph& example, const Node& node, std::vector<BatchValue>& values) {
    std::vector<Arg> args = with_operands(node.args, [&](ValueId v) { return values[at(v)].id; });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(example.type(v));
    const std::vector<ValueId> outputs = builder_.host_call(*node.op, std::move(args), std::move(types));
    for (size_t i = 0; i < outputs.size(); ++i) values[at(node.outputs[i])] = {outputs[i], false};
  }

  bool apply_rule(BatchContext& context, const Node& node, Graph& example, const std::vector<BatchValue>& values,
                  int depth) {
    const size_t before = builder_.graph().num_nodes();
    if (node.op->batch && node.op->batch(context)) return true;
    builder_.graph().truncate_nodes(before);
    for (const DecomposeFn* parts : {&node.op->decompose, &node.op->differentiable_parts}) {
      if (!*parts) continue;
      if (parts == &node.op->differentiable_parts) refuse_promotion(context);
      const std::vector<BatchValue> results = try_parts(example, node, *parts, values, depth);
      if (results.size() < node.outputs.size()) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) context.give(i, results[i].id, results[i].batched);
      return true;
    }
    return false;
  }

  /// Empty where the parts refuse.
  std::vector<BatchValue> try_parts(const Graph& example, const Node& node, const DecomposeFn& parts,
                                    const std::vector<BatchValue>& values, int depth) {
    if (node.op->kind == OpKind::kComposite) return batch_parts(example, node, parts, values, depth);
    const size_t before = builder_.graph().num_nodes();
    try {
      return batch_parts(example, node, parts, values, depth);
    } catch (const Unsupported&) {
      builder_.graph().truncate_nodes(before);
      return {};
    }
  }

  /// Writes the parts for one example into a graph of their own and batches its nodes.
  std::vector<BatchValue> batch_parts(const Graph& example, const Node& node, const DecomposeFn& parts,
                                      const std::vector<BatchValue>& values, int depth) {
    if (depth > kMaxDepth) throw InternalError(str_cat("the parts of ", node.op->name, " do not end"));
    Graph inner(example.ctx_ptr());
    std::vector<BatchValue> inside;
    std::vector<std::pair<ValueId, ValueId>> known;
    const auto enter = [&](ValueId v) {
      for (const auto& [outer, own] : known) {
        if (outer == v) return own;
      }
      known.emplace_back(v, inner.add_input(example.type(v)));
      inside.push_back(values[at(v)]);
      return known.back().second;
    };
    const std::vector<Arg> args = with_operands(node.args, enter);
    GraphBuilder builder(inner);
    builder.set_location(node.location);
    builder.set_no_grad(node.no_grad);
    builder.set_closed(node.closed);
    const std::vector<ValueId> results = parts(builder, args);
    inside.resize(inner.num_values());
    for (size_t n = 0; n < inner.num_nodes(); ++n) through(inner, static_cast<NodeId>(n), inside, depth + 1);
    builder_.set_location(node.location);
    builder_.set_no_grad(node.no_grad);
    builder_.set_closed(node.closed);
    std::vector<BatchValue> found;
    for (const ValueId v : results) found.push_back(v == kNoValue ? BatchValue{} : inside[at(v)]);
    return found;
  }

  /// A result must be what the operator gives for one example, with the batch in front.
  void set(const Graph& example, const Node& node, size_t i, const BatchValue& result,
           std::vector<BatchValue>& values) {
    const TensorType& wanted = example.type(node.outputs[i]);
    BatchValue& place = values[at(node.outputs[i])];
    place = result;
    if (result.id == kNoValue) return;
    const TensorType found = builder_.type(result.id);
    std::vector<Expr> sizes = wanted.sizes;
    if (result.batched) sizes.insert(sizes.begin(), size_);
    if (found.sizes.size() != sizes.size() || !ops::same_sizes(builder_.ctx(), found.sizes, sizes)) {
      throw InternalError(str_cat("batching ", node.op->name, " gave ", found.str(), " for examples ", wanted.str()));
    }
    if (found.dtype != wanted.dtype) place.id = builder_.cast(result.id, wanted.dtype);
  }

  GraphBuilder builder_;
  const Expr size_;
  const Randomness randomness_;
};

// ---- Levels --------------------------------------------------------------------------------------------------------------

/// How many examples a level has, and what random operators do in it.
struct Level {
  Expr size;
  Randomness randomness = Randomness::kError;
  size_t first = 0;  // its first batch_in
};

Level find_level(const Graph& graph, size_t end, int64_t level) {
  for (size_t n = 0; n < end; ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    if (!is_batch_in(node) || level_of(node) != level) continue;
    const Expr size = graph.type(tensor_operand(node)).sizes[static_cast<size_t>(integer(node, 1))];
    return {size, static_cast<Randomness>(integer(node, 3)), n};
  }
  throw Unsupported("a result of vmap that no batch entered");
}

/// The value with all examples, as the batch_out node promises it.
ValueId leave(GraphBuilder& b, const Graph& graph, const Node& node, const BatchValue& value, Expr size) {
  const int64_t dim = integer(node, 1);
  const TensorType& wanted = graph.type(node.outputs[0]);
  ValueId now = value.id;
  if (value.batched) {
    now = move_dim(b, now, 0, dim);
  } else {
    std::vector<Expr> sizes = b.type(now).sizes;
    sizes.insert(sizes.begin() + dim, size);
    now = b.expand(b.unsqueeze(now, dim), sizes);
  }
  if (b.type(now).strides != wanted.strides) now = b.op("relayout", {TensorArg{now}, SymInts{wanted.strides}});
  return now;
}

/// A copy in which nodes from the level's first on are batched where they depend on it.
class Expansion {
 public:
  Expansion(const Graph& graph, size_t node)
      : graph_(graph),
        example_(graph),
        end_(node),
        level_number_(level_of(graph.node(static_cast<NodeId>(node)))),
        level_(find_level(graph, node, level_number_)),
        to_(graph.ctx_ptr()),
        values_(graph.num_values()),
        batcher_(to_, level_.size, level_.randomness) {
    while (end_ < graph.num_nodes() && closes(graph.node(static_cast<NodeId>(end_)))) ++end_;
  }

  Graph run(size_t node) {
    for (const ValueId v : graph_.inputs()) set(v, to_.add_input(graph_.type(v), graph_.name(v)));
    for (size_t n = 0; n < level_.first; ++n) copy(graph_.node(static_cast<NodeId>(n)));
    for (size_t n = level_.first; n < node; ++n) inside(static_cast<NodeId>(n));
    for (size_t n = node; n < end_; ++n) {
      const Node& out = graph_.node(static_cast<NodeId>(n));
      GraphBuilder builder(to_);
      builder.set_location(out.location);
      builder.set_no_grad(out.no_grad);
      builder.set_closed(out.closed);
      set(out.outputs[0], leave(builder, graph_, out, values_[at(tensor_operand(out))], level_.size));
    }
    for (size_t n = end_; n < graph_.num_nodes(); ++n) copy(graph_.node(static_cast<NodeId>(n)));
    for (const GraphOutput& output : graph_.outputs()) to_.add_output(plain(output.value), output.alias);
    for (const InputWrite& write : graph_.input_writes())
      to_.add_input_write(write.input_index, plain(write.value), write.times);
    return std::move(to_);
  }

 private:
  static size_t at(ValueId v) { return static_cast<size_t>(v); }
  bool closes(const Node& node) const { return is_batch_out(node) && level_of(node) == level_number_; }
  void set(ValueId v, ValueId now) { values_[at(v)] = {now, false}; }

  ValueId plain(ValueId v) const {
    if (v == kNoValue) return v;
    if (values_[at(v)].batched) throw Unsupported("a value of one example is used outside of its vmap");
    return values_[at(v)].id;
  }

  void copy(const Node& node) {
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
    std::vector<Arg> args = with_operands(node.args, [this](ValueId v) { return plain(v); });
    const NodeId id = to_.add_node(node.op, std::move(args), std::move(types), node.location);
    to_.node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], to_.node(id).outputs[i]);
  }

  void inside(NodeId id) {
    const Node& node = graph_.node(id);
    if (is_batch_in(node)) {
      enter(node);
    } else if (is_batch_out(node)) {
      throw InternalError("a level of vmap was not expanded before the one around it");
    } else {
      at_node(node, [&] { batcher_.through(example_, id, values_); });
    }
  }

  /// This level's markers put the batch in front; those of levels outside see it shifted, and stay.
  void enter(const Node& node) {
    GraphBuilder builder(to_);
    builder.set_location(node.location);
    builder.set_no_grad(node.no_grad);
    builder.set_closed(node.closed);
    const BatchValue& from = values_[at(tensor_operand(node))];
    if (level_of(node) != level_number_) {
      const int64_t dim = integer(node, 1) + (from.batched ? 1 : 0);
      const auto randomness = static_cast<Randomness>(integer(node, 3));
      values_[at(node.outputs[0])] = {add_batch_in(builder, from.id, dim, level_of(node), randomness), from.batched};
      return;
    }
    if (from.batched) throw Unsupported("a batch inside of the same vmap's batch");
    values_[at(node.outputs[0])] = {move_dim(builder, from.id, integer(node, 1), 0), true};
  }

  const Graph& graph_;
  Graph example_;
  size_t end_;
  const int64_t level_number_;
  const Level level_;
  Graph to_;
  std::vector<BatchValue> values_;
  Batcher batcher_;
};

}  // namespace

bool is_batch_in(const Node& node) { return node.op == &batch_in_op(); }
bool is_batch_out(const Node& node) { return node.op == &batch_out_op(); }

ValueId add_batch_in(GraphBuilder& builder, ValueId operand, int64_t dim, int64_t level, Randomness randomness) {
  TensorType type = builder.type(operand);
  if (dim < 0 || dim >= type.dim()) throw InvalidArgument(str_cat("vmap over dimension ", dim, " of ", type.str()));
  erase_at(type.sizes, dim);
  erase_at(type.strides, dim);
  std::vector<Arg> args{TensorArg{operand}, Scalar(dim), Scalar(level), Scalar(static_cast<int64_t>(randomness))};
  return builder.host_call(batch_in_op(), std::move(args), {std::move(type)}).front();
}

ValueId add_batch_out(GraphBuilder& builder, ValueId operand, int64_t dim, int64_t level, Expr size) {
  TensorType type = builder.type(operand);
  if (dim < 0 || dim > type.dim()) throw InvalidArgument(str_cat("vmap to dimension ", dim, " of ", type.str()));
  type.is_wrapped_number = false;
  std::vector<Expr> physical = type.sizes;
  physical.insert(physical.begin(), size);
  std::vector<Expr> strides = contiguous_strides(builder.ctx(), physical);
  const Expr stride = strides.front();
  strides.erase(strides.begin());
  strides.insert(strides.begin() + dim, stride);
  type.sizes.insert(type.sizes.begin() + dim, size);
  type.strides = std::move(strides);
  std::vector<Arg> args{TensorArg{operand}, Scalar(dim), Scalar(level), Scalar(size)};
  return builder.host_call(batch_out_op(), std::move(args), {std::move(type)}).front();
}

Graph expand_batches_at(const Graph& graph, size_t node, const PassOptions& options) {
  return run_pass("expand_batches", graph, options, [&](const Graph& g) {
    TATARA_CHECK(node < g.num_nodes() && is_batch_out(g.node(static_cast<NodeId>(node))),
                 "expand_batches_at wants a batch_out node");
    return Expansion(g, node).run(node);
  });
}

}  // namespace tatara
