#include "transforms/loop_gradients.h"

#include <algorithm>
#include <utility>

#include "ops/core/builder.h"
#include "ops/rules/derivative.h"
#include "ops/rules/loop_node.h"
#include "transforms/autodiff.h"
#include "transforms/pass.h"

namespace tatara {
namespace {

std::vector<bool> operands_needing(const Graph& graph, const Node& node, const std::vector<bool>& needs) {
  std::vector<bool> result;
  for (const ValueId v : loop_operands(node)) {
    result.push_back(needs[static_cast<size_t>(v)] && differentiable_result(graph, v));
  }
  return result;
}

/// Inputs of the body with a gradient: a carried value has one as soon as a turn gives it one.
std::vector<bool> inputs_needing(const LoopForm& form, std::vector<bool> inputs, std::vector<bool>& values) {
  for (bool changed = true; changed;) {
    changed = false;
    values = values_needing_grad(*form.body, inputs);
    for (size_t k = 0; k < form.carries(); ++k) {
      if (inputs[k] || !values[static_cast<size_t>(form.body->outputs()[k].value)]) continue;
      inputs[k] = changed = true;
    }
  }
  return inputs;
}

/// Which results depend on one input of the body: last values, histories of all carried values, stacks.
std::vector<bool> results_of(const LoopForm& form, size_t input) {
  std::vector<bool> one(form.body->inputs().size(), false), values;
  one[input] = true;
  const std::vector<bool> histories = inputs_needing(form, std::move(one), values);
  std::vector<bool> results;
  for (const GraphOutput& output : form.body->outputs()) results.push_back(values[static_cast<size_t>(output.value)]);
  const auto carries = static_cast<std::ptrdiff_t>(form.carries());
  results.insert(results.begin() + carries, histories.begin(), histories.begin() + carries);
  return results;
}

/// Builds the body of the loop that gives gradients.
class ReverseBody {
 public:
  ReverseBody(const LoopForm& form, const JointGraph& joint, const ForwardGraph& forward, const BackwardGraph& back,
              const std::vector<bool>& inputs)
      : form_(form), joint_(joint), forward_(forward), back_(back), inputs_(inputs), body_(back.graph.ctx_ptr()) {}

  LoopLinks links;
  /// Carried values of which the history is read.
  std::vector<bool> kept;

  Graph build() {
    kept.assign(form_.carries(), false);
    find_links();
    std::vector<ValueId> map(back_.graph.num_values(), kNoValue);
    add_inputs(map);
    const auto mapped = [&](ValueId v) { return map[static_cast<size_t>(v)]; };
    for (const Node& node : back_.graph.nodes()) {
      std::vector<TensorType> types;
      for (const ValueId v : node.outputs) types.push_back(back_.graph.type(v));
      const NodeId id = body_.add_node(node.op, with_operands(node.args, mapped), std::move(types), node.location);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        map[static_cast<size_t>(node.outputs[i])] = body_.node(id).outputs[i];
      }
    }
    for (size_t k = 0; k < links.carries.size(); ++k) add_carry(k, map);
    for (const int64_t scan : links.stacked) {
      body_.add_output(gradient_of(form_.carries() + static_cast<size_t>(scan), map));
    }
    return std::move(body_);
  }

 private:
  using Kind = LoopLinks::Kind;

  int gradient_number(size_t input) const {
    const auto found = std::find(joint_.gradients.begin(), joint_.gradients.end(), static_cast<int>(input));
    return found == joint_.gradients.end() ? -1 : static_cast<int>(found - joint_.gradients.begin());
  }

  /// What the backward graph is given as input `i`.
  LoopLinks::Link source_of(size_t i) const {
    const int code = back_.inputs[i];
    const auto carries = static_cast<int>(form_.carries()), scans = static_cast<int>(form_.scans.size());
    if (code < 0) {
      const int output = joint_.cotangents[static_cast<size_t>(-1 - code)];
      return output < carries ? LoopLinks::Link{Kind::kCarry, output}
                              : LoopLinks::Link{Kind::kStackGiven, output - carries};
    }
    const ForwardGraph::Saved& saved = forward_.saved[static_cast<size_t>(code)];
    if (saved.from == ForwardGraph::Saved::From::kOutput) {
      return saved.index < carries ? LoopLinks::Link{Kind::kNext, saved.index}
                                   : LoopLinks::Link{Kind::kStack, saved.index - carries};
    }
    if (saved.index < carries) return {Kind::kHistory, saved.index};
    return saved.index < carries + scans ? LoopLinks::Link{Kind::kScan, saved.index - carries}
                                         : LoopLinks::Link{Kind::kStays, saved.index};
  }

  void find_links() {
    const size_t scans = form_.carries() + form_.scans.size();
    for (size_t k = 0; k < form_.carries(); ++k) {
      if (inputs_[k]) links.carries.push_back({Kind::kCarry, static_cast<int64_t>(k)});
    }
    for (size_t i = scans; i < inputs_.size(); ++i) {
      if (inputs_[i] && gradient_number(i) >= 0) links.carries.push_back({Kind::kSum, static_cast<int64_t>(i)});
    }
    const std::vector<int> uses = back_.graph.use_counts();
    for (size_t i = 0; i < back_.inputs.size(); ++i) {
      const LoopLinks::Link link = source_of(i);
      const bool given = std::find(back_.outputs.begin(), back_.outputs.end(), back_.inputs[i]) != back_.outputs.end();
      if (link.kind == Kind::kCarry || (!given && uses[static_cast<size_t>(back_.graph.inputs()[i])] == 0)) continue;
      if (link.kind == Kind::kHistory || link.kind == Kind::kNext) kept[static_cast<size_t>(link.index)] = true;
      (link.kind == Kind::kStays ? links.stays : links.scans).push_back(link);
    }
    for (size_t k = 0; k < form_.carries(); ++k) {
      if (inputs_[k] && form_.history[k]) links.scans.push_back({Kind::kHistoryGiven, static_cast<int64_t>(k)});
    }
    for (size_t i = form_.carries(); i < scans; ++i) {
      if (inputs_[i] && gradient_number(i) >= 0) links.stacked.push_back(static_cast<int64_t>(i - form_.carries()));
    }
  }

  TensorType contiguous(TensorType type) const {
    type.strides = contiguous_strides(body_.ctx(), type.sizes);
    type.is_wrapped_number = false;
    return type;
  }

  void add_inputs(std::vector<ValueId>& map) {
    std::vector<ValueId> of_carry(form_.carries(), kNoValue);
    for (const LoopLinks::Link& link : links.carries) {
      const auto at = static_cast<size_t>(link.index);
      const ValueId v = body_.add_input(contiguous(form_.body->type(form_.body->inputs()[at])));
      given_.push_back(v);
      if (link.kind == Kind::kCarry) of_carry[at] = v;
    }
    const auto input_with = [&](const LoopLinks::Link& link) {
      for (size_t i = 0; i < back_.inputs.size(); ++i) {
        const LoopLinks::Link own = source_of(i);
        if (own.kind == link.kind && own.index == link.index) return back_.graph.inputs()[i];
      }
      return kNoValue;
    };
    std::vector<std::pair<size_t, ValueId>> sums;
    for (const std::vector<LoopLinks::Link>* list : {&links.scans, &links.stays}) {
      for (const LoopLinks::Link& link : *list) {
        if (link.kind == Kind::kHistoryGiven) {
          const auto at = static_cast<size_t>(link.index);
          sums.emplace_back(at, body_.add_input(contiguous(form_.body->type(form_.body->inputs()[at]))));
          continue;
        }
        const ValueId old = input_with(link);
        map[static_cast<size_t>(old)] = body_.add_input(back_.graph.type(old));
      }
    }
    GraphBuilder builder(body_);
    for (const auto& [carry, given] : sums) of_carry[carry] = builder.binary("add", of_carry[carry], given);
    for (size_t i = 0; i < back_.inputs.size(); ++i) {
      const LoopLinks::Link link = source_of(i);
      if (link.kind == Kind::kCarry) {
        map[static_cast<size_t>(back_.graph.inputs()[i])] = of_carry[static_cast<size_t>(link.index)];
      }
    }
  }

  /// Of an input of the body; kNoValue where none reaches it.
  ValueId gradient_of(size_t input, const std::vector<ValueId>& map) const {
    const int number = gradient_number(input);
    if (number < 0) return kNoValue;
    const int output = back_.outputs[static_cast<size_t>(number)];
    if (output >= 0) return map[static_cast<size_t>(back_.graph.outputs()[static_cast<size_t>(output)].value)];
    const auto place = std::find(back_.inputs.begin(), back_.inputs.end(), output) - back_.inputs.begin();
    return map[static_cast<size_t>(back_.graph.inputs()[static_cast<size_t>(place)])];
  }

  void add_carry(size_t k, const std::vector<ValueId>& map) {
    GraphBuilder builder(body_);
    ValueId value = gradient_of(static_cast<size_t>(links.carries[k].index), map);
    if (value == kNoValue) {
      value = zeros_of(builder, body_.type(given_[k]));
    } else if (links.carries[k].kind == Kind::kSum) {
      value = builder.binary("add", given_[k], value);
    }
    body_.add_output(value);
  }

  const LoopForm& form_;
  const JointGraph& joint_;
  const ForwardGraph& forward_;
  const BackwardGraph& back_;
  const std::vector<bool>& inputs_;
  Graph body_;
  std::vector<ValueId> given_;  // per carried value
};

/// Whether the gradients that the loop has take those of all results that the graph reads. Results that were added for gradients are
/// read by these alone, until they are differentiated themselves.
bool takes_all_given(const Graph& graph, const Node& node, const LoopForm& form, const LoopLinks& links,
                     const std::vector<bool>& needs) {
  using Kind = LoopLinks::Kind;
  std::vector<ValueId> missing;
  const auto add_missing = [&](Kind kind, size_t index, size_t result) {
    const auto own = [&](const LoopLinks::Link& link) {
      return link.kind == kind && link.index == static_cast<int64_t>(index);
    };
    const ValueId v = node.outputs[result];
    if (needs[static_cast<size_t>(v)] && std::none_of(links.scans.begin(), links.scans.end(), own))
      missing.push_back(v);
  };
  for (size_t k = 0; k < form.carries(); ++k) {
    if (form.history[k]) add_missing(Kind::kHistoryGiven, k, form.history_result(k));
  }
  for (size_t k = 0; k < form.stacks(); ++k) add_missing(Kind::kStackGiven, k, form.stack_result(k));
  if (missing.empty()) return true;
  const std::vector<int> uses = graph.use_counts();
  return std::all_of(missing.begin(), missing.end(), [&](ValueId v) { return uses[static_cast<size_t>(v)] == 0; });
}

}  // namespace

std::vector<bool> loop_results_needing(const Graph& graph, const Node& node, const std::vector<bool>& needs) {
  const LoopForm form = read_loop(node.args, graph.ctx_ptr());
  std::vector<bool> values, result;
  const std::vector<bool> inputs = inputs_needing(form, operands_needing(graph, node, needs), values);
  const auto output = [&](size_t i) { return values[static_cast<size_t>(form.body->outputs()[i].value)]; };
  for (size_t k = 0; k < form.carries(); ++k) result.push_back(output(k));
  for (size_t k = 0; k < form.carries(); ++k) {
    if (form.history[k]) result.push_back(inputs[k]);
  }
  for (size_t k = 0; k < form.stacks(); ++k) result.push_back(output(form.carries() + k));
  return result;
}

std::vector<ValueId> with_loop_gradients(Graph& to, const Graph& graph, const Node& node,
                                         const std::vector<bool>& needs, const std::vector<ValueId>& operands) {
  LoopForm form = read_loop(node.args, graph.ctx_ptr());
  const std::vector<bool> wanted = operands_needing(graph, node, needs);
  if (!form.backward.empty()) {
    const LoopLinks links = LoopLinks::decode(form.links);
    if (links.needs == wanted && takes_all_given(graph, node, form, links, needs)) return {};
  }
  std::vector<bool> values;
  const std::vector<bool> inputs = inputs_needing(form, wanted, values);
  const bool any = std::any_of(form.body->outputs().begin(), form.body->outputs().end(),
                               [&](const GraphOutput& output) { return values[static_cast<size_t>(output.value)]; });
  if (!any) return {};
  form.body = std::make_shared<const Graph>(differentiable_form(*form.body, inputs));
  const JointGraph joint = in_parts(joint_graph(*form.body, inputs));
  const std::vector<ValueId> saved = choose_saved(joint);
  const ForwardGraph forward = forward_graph(joint, saved);
  const BackwardGraph back = backward_graph(joint, saved);
  ReverseBody reverse(form, joint, forward, back, inputs);
  const Graph body = reverse.build();
  LoopForm made = form;
  made.body = std::make_shared<const Graph>(forward.graph);
  for (size_t k = 0; k < form.carries(); ++k) made.history[k] = form.history[k] || reverse.kept[k];
  made.backward = loop_text(body);
  for (const LoopLinks::Link& link : reverse.links.carries) {
    reverse.links.reached_by.push_back(results_of(form, static_cast<size_t>(link.index)));
  }
  for (const int64_t scan : reverse.links.stacked) {
    reverse.links.reached_by.push_back(results_of(form, form.carries() + static_cast<size_t>(scan)));
  }
  reverse.links.needs = wanted;
  made.links = reverse.links.encode();
  GraphBuilder builder(to);
  builder.set_location(node.location);
  const std::vector<ValueId> all = add_loop(builder, made, operands);
  std::vector<ValueId> results;
  for (size_t k = 0; k < form.carries(); ++k) results.push_back(all[k]);
  for (size_t k = 0; k < form.carries(); ++k) {
    if (form.history[k]) results.push_back(all[made.history_result(k)]);
  }
  for (size_t k = 0; k < form.stacks(); ++k) results.push_back(all[made.stack_result(k)]);
  return results;
}

}  // namespace tatara
