#include "transforms/stages.h"

#include <algorithm>
#include <map>

#include "ops/core/op_def.h"
#include "support/error.h"
#include "transforms/autodiff.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

/// Views and constants are made again where they are wanted.
bool made_again(const Node& node) { return node.op->kind == OpKind::kView || node.op->kind == OpKind::kCreation; }

class Splitter {
 public:
  Splitter(const Graph& graph, const std::vector<bool>& inputs)
      : graph_(graph),
        input_needs_(inputs),
        needs_(values_needing_grad(graph, inputs)),
        level_(graph.num_values(), 0),
        ends_(graph.num_values(), false),
        first_crossing_(static_cast<int>(graph.inputs().size() + graph.outputs().size())),
        next_number_(first_crossing_) {
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const GraphOutput& output = graph.outputs()[i];
      if (output.value == kNoValue || graph.producer(output.value) == nullptr) continue;
      number_.emplace(output.value, static_cast<int>(graph.inputs().size() + i));
      ends_[static_cast<size_t>(output.value)] = needs_[static_cast<size_t>(output.value)];
    }
    find_levels();
  }

  int last() const { return last_; }

  std::vector<GraphStage> split() {
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.alias.kind == OutputAlias::Kind::kInput &&
          is_changed(graph_, graph_.inputs()[static_cast<size_t>(output.alias.index)])) {
        throw Unsupported("results that depend on each other, and a view of an input that is written to");
      }
    }
    std::vector<GraphStage> stages;
    for (int k = last_; k >= 0; --k) stages.push_back(build(k));
    std::reverse(stages.begin(), stages.end());
    for (GraphStage& stage : stages) stage.crossing = numbered_;
    return stages;
  }

 private:
  /// Values that gradients come to from results.
  std::vector<bool> wanted_values() const {
    std::vector<bool> wanted(graph_.num_values(), false);
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.value != kNoValue)
        wanted[static_cast<size_t>(output.value)] = needs_[static_cast<size_t>(output.value)];
    }
    for (size_t n = graph_.num_nodes(); n-- > 0;) {
      const Node& node = graph_.node(static_cast<NodeId>(n));
      const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
      if (!any || !gives_gradients(node, needs_)) continue;
      for_each_operand(node, [&](ValueId v) { wanted[static_cast<size_t>(v)] = true; });
    }
    return wanted;
  }

  void find_levels() {
    const std::vector<bool> wanted = wanted_values();
    int drawn = 0;  // the stage of the last random number: the next ones are no earlier, as they are in eager
    for (const Node& node : graph_.nodes()) {
      const bool draws = node.op->draws() || node.op->traits.varies;
      int level = draws ? drawn : 0;
      bool through = false;
      const bool view = node.op->kind == OpKind::kView;
      // Else no gradient comes here from a result.
      const bool onward = !view && gives_gradients(node, needs_) &&
                          std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
      for_each_operand(node, [&](ValueId v) {
        const auto at = static_cast<size_t>(v);
        level = std::max(level, level_[at] + (ends_[at] && onward ? 1 : 0));
        through = through || (view && ends_[at]);
      });
      if (draws) drawn = level;
      for (const ValueId v : node.outputs) {
        level_[static_cast<size_t>(v)] = level;
        if (through) ends_[static_cast<size_t>(v)] = true;
      }
      last_ = std::max(last_, level);
    }
  }

  struct Part {
    GraphStage stage;
    std::vector<ValueId> map;
    int level;
  };

  int number_of(ValueId v) {
    const auto [found, inserted] = number_.emplace(v, next_number_);
    if (inserted) {
      ++next_number_;
      numbered_.push_back(v);
    }
    return found->second;
  }

  ValueId value_in(Part& part, ValueId v) {
    ValueId& known = part.map[static_cast<size_t>(v)];
    if (known != kNoValue) return known;
    const Node* producer = graph_.producer(v);
    const bool result = level_[static_cast<size_t>(v)] < part.level && number_.contains(v);  // gradients go through it
    if (producer != nullptr && made_again(*producer) && !result) {
      copy_node(part, *producer);
      return part.map[static_cast<size_t>(v)];
    }
    if (producer != nullptr && level_[static_cast<size_t>(v)] == part.level) {
      throw InternalError("a stage uses a value before it is defined");
    }
    const Value& value = graph_.value(v);
    part.stage.inputs.push_back(producer == nullptr ? value.input_index : number_of(v));
    part.stage.needs.push_back(producer == nullptr ? input_needs_[static_cast<size_t>(value.input_index)]
                                                   : needs_[static_cast<size_t>(v)]);
    if (producer != nullptr && number_of(v) >= first_crossing_) crossing_.push_back(v);
    return known = part.stage.graph.add_input(graph_.type(v), graph_.name(v));
  }

  void copy_node(Part& part, const Node& node) {
    std::vector<Arg> args = with_operands(node.args, [&](ValueId v) { return value_in(part, v); });
    std::vector<TensorType> types;
    for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
    Graph& g = part.stage.graph;
    const NodeId id = g.add_node(node.op, std::move(args), std::move(types), node.location);
    g.node(id).take_marks(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      part.map[static_cast<size_t>(node.outputs[i])] = g.node(id).outputs[i];
    }
  }

  int level_of_output(const GraphOutput& output) const {
    if (output.alias.kind == OutputAlias::Kind::kOutput) {
      return level_of_output(graph_.outputs()[static_cast<size_t>(output.alias.index)]);
    }
    return output.value == kNoValue ? 0 : level_[static_cast<size_t>(output.value)];
  }

  /// The last stage writes: those before it read what was there, and one that refuses to run has changed nothing. They are
  /// told that the input's memory will change by a write of what is there already: gradients may not count on it.
  void write_inputs(Part& part) {
    for (const InputWrite& write : graph_.input_writes()) {
      const ValueId input = graph_.inputs()[static_cast<size_t>(write.input_index)];
      const bool last = part.level == last_;
      if (!last && part.map[static_cast<size_t>(input)] == kNoValue) continue;
      const ValueId target = value_in(part, input);
      Graph& g = part.stage.graph;
      const ValueId value = last ? value_in(part, write.value) : target;
      g.add_input_write(g.value(target).input_index, value, last ? write.times : 0);
    }
  }

  /// Inputs that nothing reads, and whose sizes tell those of what the stage computes.
  void bind_sizes(Part& part) {
    Graph& g = part.stage.graph;
    for (const Expr symbol : symbols_in(g)) {
      const auto own = [&](ValueId v) { return binds(g.type(v), symbol); };
      const auto whole = [&](ValueId v) { return binds(graph_.type(v), symbol); };
      if (std::any_of(g.inputs().begin(), g.inputs().end(), own)) continue;
      const auto found = std::find_if(graph_.inputs().begin(), graph_.inputs().end(), whole);
      if (found != graph_.inputs().end()) static_cast<void>(value_in(part, *found));
    }
  }

  GraphStage build(int level) {
    Part part{{Graph(graph_.ctx_ptr()), {}, {}, {}, {}}, std::vector<ValueId>(graph_.num_values(), kNoValue), level};
    for (const Node& node : graph_.nodes()) {
      if (node.outputs.empty() || level_[static_cast<size_t>(node.outputs[0])] != level || made_again(node)) continue;
      copy_node(part, node);
    }
    write_inputs(part);
    const auto inputs = static_cast<int>(graph_.inputs().size());
    std::map<int, int> place;  // output of the whole -> of the stage
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (level_of_output(graph_.outputs()[i]) != level) continue;
      place.emplace(static_cast<int>(i), static_cast<int>(place.size()));
    }
    for (const auto& [whole, mine] : place) {
      const GraphOutput& output = graph_.outputs()[static_cast<size_t>(whole)];
      OutputAlias alias = output.alias;
      if (alias.kind == OutputAlias::Kind::kOutput) alias.index = place.at(alias.index);
      if (alias.kind == OutputAlias::Kind::kInput) {
        const ValueId base = graph_.inputs()[static_cast<size_t>(alias.index)];
        alias.index = part.stage.graph.value(value_in(part, base)).input_index;
      }
      part.stage.graph.add_output(value_in(part, output.value), alias);
      part.stage.outputs.push_back(inputs + whole);
      static_cast<void>(mine);
    }
    for (const ValueId v : crossing_) {
      if (level_[static_cast<size_t>(v)] != level) continue;
      const int number = number_of(v);
      auto& numbers = part.stage.outputs;
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) continue;
      part.stage.graph.add_output(value_in(part, v));
      numbers.push_back(number);
    }
    bind_sizes(part);
    return std::move(part.stage);
  }

  const Graph& graph_;
  const std::vector<bool>& input_needs_;
  const std::vector<bool> needs_;
  std::vector<int> level_;  // the stage of each value
  std::vector<bool> ends_;  // results that need a gradient, and views of them
  std::map<ValueId, int> number_;
  std::vector<ValueId> crossing_, numbered_;
  int first_crossing_, next_number_;
  int last_ = 0;
};

}  // namespace

std::vector<GraphStage> split_stages(const Graph& graph, const std::vector<bool>& inputs) {
  Splitter splitter(graph, inputs);
  if (splitter.last() > 0) {
    refuse_written_gradients(graph, inputs);  // a stage may get from another one what it writes
    return splitter.split();
  }
  GraphStage whole{graph, inputs, {}, {}, {}};
  const size_t count = graph.inputs().size();
  for (size_t i = 0; i < count; ++i) whole.inputs.push_back(static_cast<int>(i));
  for (size_t i = 0; i < graph.outputs().size(); ++i) whole.outputs.push_back(static_cast<int>(count + i));
  std::vector<GraphStage> one;
  one.push_back(std::move(whole));
  return one;
}

}  // namespace tatara
