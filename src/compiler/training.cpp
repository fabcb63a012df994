#include "compiler/training.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "ops/core/op_def.h"
#include "support/error.h"
#include "transforms/pass.h"
#include "transforms/passes.h"
#include "transforms/recompute.h"

namespace tatara {
namespace {

/// Whether gradients pass through a checkpoint with use_reentrant=True.
bool passes_reentrant(const JointGraph& joint) {
  for (size_t n = joint.forward_nodes; n < joint.graph.num_nodes(); ++n) {
    const Node& node = joint.graph.node(static_cast<NodeId>(n));
    if (node.region != nullptr && node.region->reentrant) return true;
  }
  return false;
}

/// Inputs of the graph that nothing uses are left out; `kept` are the others.
Graph without_unused_inputs(const Graph& graph, std::vector<int>& kept) {
  const std::vector<int> uses = graph.use_counts();
  Graph result(graph.ctx_ptr());
  std::vector<ValueId> map(graph.num_values(), kNoValue);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId v = graph.inputs()[i];
    if (uses[static_cast<size_t>(v)] == 0) continue;
    kept.push_back(static_cast<int>(i));
    map[static_cast<size_t>(v)] = result.add_input(graph.type(v), graph.name(v));
  }
  return copy_into(graph, std::move(result), std::move(map));
}

/// Results that a value that requires grad decides, but not smoothly.
std::vector<int> constant_results(const Graph& g, const std::vector<bool>& inputs) {
  const std::vector<bool> value_needs = values_needing_grad(g, inputs);
  std::vector<ValueId> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) leaves.push_back(g.inputs()[i]);
  }
  const std::vector<bool> touched = values_with_history(g, leaves);
  std::vector<int> result;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const auto v = static_cast<size_t>(g.outputs()[i].value);
    if (touched[v] && !value_needs[v]) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace

TrainingPlan compile_plan(const Graph& graph, const CompileOptions& options, std::vector<CompileResult>& results) {
  TrainingPlan plan;
  plan.outputs = graph.outputs().size();
  if (plan.outputs == 0 && graph.input_writes().empty()) return plan;
  for (const ValueId v : graph.inputs()) plan.inputs.push_back(graph.type(v));
  CompileOptions own = options;
  own.passes.of_stage = true;
  results.push_back(compile_graph(graph, own));
  plan.executable = results.back().executable;
  return plan;
}

namespace {

/// As it is differentiated and cut.
Graph form_to_cut(const Graph& graph, const std::vector<bool>& needs, const CompileOptions& options) {
  const Graph form = differentiable_form(graph, needs, options.passes);
  return with_generator_states(softmax_products(form, needs, passes_of(form, options)), options.passes);
}

}  // namespace

TrainingStage::TrainingStage(const Graph& forward_graph_of, std::vector<bool> input_needs,
                             const CompileOptions& compile_options, std::vector<CompileResult>& results,
                             const ResultGroups* result_groups)
    : graph(form_to_cut(forward_graph_of, input_needs, compile_options)),
      needs(std::move(input_needs)),
      options(compile_options) {
  ExprContext& ctx = graph.ctx();
  const std::vector<bool> value_needs = values_needing_grad(graph, needs);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    const bool needed = output.value != kNoValue && value_needs[static_cast<size_t>(output.value)];
    outputs_need.push_back(needed);
    if (!needed || output.alias.kind != OutputAlias::Kind::kFresh) continue;
    differentiable.push_back(static_cast<int>(i));
    cotangent_orders.push_back(cotangent_order(ctx, graph.type(output.value)));
  }
  if (std::all_of(cotangent_orders.begin(), cotangent_orders.end(),
                  [](const std::vector<int>& order) { return order.empty(); })) {
    cotangent_orders.clear();
  }
  check_aliases();
  find_groups(result_groups);
  const JointGraph joint = joint_graph(graph, needs);
  BackwardStage whole = cut_ready(joint);
  const SavedAsIs as_is = saved_as_is(result_groups);
  saved = choose_saved(whole.joint, as_is);
  for (const ValueId v : saved) saved_types.push_back(whole.joint.graph.type(v));
  find_carriers();
  ForwardGraph first = forward_graph(whole.joint, saved, as_is);
  saved_places = std::move(first.saved);
  forward = compile_plan(first.graph, options, results);
  values_matter = inputs_read(joint, true);
  for (StageGroup& group : groups) {
    const bool all = groups.size() == 1;
    const JointGraph part = all ? joint : joint_graph(graph, needs, output_mask(mask_of(group.results)));
    BackwardStage made = all ? std::move(whole) : cut_ready(part);
    made.cut = cut_backward(made.joint);
    made.plan = compile_plan(made.cut.graph, options, results);
    complete_group(group, part);
    backwards_.emplace(mask_of(group.results), std::move(made));
  }
  if (result_groups != nullptr) find_checked(*result_groups);
  known_guards = ctx.guards().size();
}

void TrainingStage::find_groups(const ResultGroups* result_groups) {
  std::map<int, size_t> numbers;
  for (size_t i = 0; i < differentiable.size(); ++i) {
    const auto output = static_cast<size_t>(differentiable[i]);
    const int group = result_groups != nullptr ? result_groups->of_output[output] : 0;
    const auto [found, added] = numbers.try_emplace(group, groups.size());
    if (added) groups.emplace_back();
    StageGroup& mine = groups[found->second];
    mine.results.push_back(static_cast<int>(i));
    mine.used_up = result_groups == nullptr || group < 0 || result_groups->used_up[static_cast<size_t>(group)];
  }
}

SavedAsIs TrainingStage::saved_as_is(const ResultGroups* result_groups) const {
  SavedAsIs as_is;
  if (result_groups == nullptr || result_groups->held.empty()) return as_is;
  as_is.inputs.assign(graph.inputs().size(), true);
  as_is.outputs.assign(graph.outputs().size(), true);
  for (const HeldMemory& held : result_groups->held) {
    for (size_t i = 0; i < held.inputs.size(); ++i) as_is.inputs[i] = as_is.inputs[i] && held.inputs[i] != Held::kFree;
    for (size_t i = 0; i < held.outputs.size(); ++i)
      as_is.outputs[i] = as_is.outputs[i] && held.outputs[i] != Held::kFree;
  }
  return as_is;
}

void TrainingStage::find_checked(const ResultGroups& result_groups) {
  using From = ForwardGraph::Saved::From;
  for (StageGroup& group : groups) {
    const int number =
        result_groups.of_output[static_cast<size_t>(differentiable[static_cast<size_t>(group.results[0])])];
    if (number < 0 || static_cast<size_t>(number) >= result_groups.held.size() || !group.used_up) continue;
    const HeldMemory& held = result_groups.held[static_cast<size_t>(number)];
    const auto is_saved = [&](From from, size_t index) {
      return std::any_of(group.saved.begin(), group.saved.end(), [&](int place) {
        if (static_cast<size_t>(place) >= saved_places.size()) return false;
        const ForwardGraph::Saved& s = saved_places[static_cast<size_t>(place)];
        return s.from == from && s.index == static_cast<int>(index);
      });
    };
    for (size_t i = 0; i < held.inputs.size(); ++i) {
      const bool checked = held.inputs[i] == Held::kKept && !is_written(graph, graph.inputs()[i]);
      if (checked && !is_saved(From::kInput, i)) group.checked_inputs.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < held.outputs.size(); ++i) {
      if (held.outputs[i] == Held::kKept && !is_saved(From::kOutput, i))
        group.checked_outputs.push_back(static_cast<int>(i));
    }
  }
}

void TrainingStage::complete_group(StageGroup& group, const JointGraph& joint) {
  if (groups.size() == 1) {
    group.saved.resize(saved.size() + carriers.size());
    std::iota(group.saved.begin(), group.saved.end(), 0);
  } else {
    group.saved = read_by(group, joint);
  }
  // What keeps nothing has nothing to use up.
  group.used_up = group.used_up || std::any_of(group.saved.begin(), group.saved.end(),
                                               [this](int place) { return static_cast<size_t>(place) < saved.size(); });
  group.unreached = unreached_by(group.results, joint);
  const std::vector<bool> read = groups.size() == 1 ? values_matter : inputs_read(joint, false);
  for (size_t i = 0; i < needs.size(); ++i) {
    const bool is_saved = std::any_of(group.saved.begin(), group.saved.end(), [&](int place) {
      if (static_cast<size_t>(place) >= saved_places.size()) return false;
      const ForwardGraph::Saved& s = saved_places[static_cast<size_t>(place)];
      return s.from == ForwardGraph::Saved::From::kInput && s.index == static_cast<int>(i);
    });
    if (!is_saved && read[i]) group.second_inputs.push_back(static_cast<int>(i));
  }
}

std::vector<int> TrainingStage::read_by(const StageGroup& group, const JointGraph& joint) const {
  std::set<int> places;
  const auto add = [&](const JointGraph& part) {
    for (const int input : cut_backward(cut_ready(part).joint).inputs) {
      if (input >= 0) places.insert(input);
    }
  };
  add(joint);
  for (const int result : group.results) {
    if (group.results.size() > 1) add(joint_graph(graph, needs, output_mask(mask_of({result}))));
  }
  for (const ValueId v : random_values(in_parts(joint, options.passes))) {  // second derivatives may read them
    const auto place = std::find(saved.begin(), saved.end(), v);
    if (place != saved.end()) places.insert(static_cast<int>(place - saved.begin()));
  }
  for (size_t k = 0; k < carriers.size(); ++k) places.insert(static_cast<int>(saved.size() + k));
  return {places.begin(), places.end()};
}

std::vector<bool> TrainingStage::mask_of(const std::vector<int>& places) const {
  std::vector<bool> mask(differentiable.size(), false);
  for (const int place : places) mask[static_cast<size_t>(place)] = true;
  return mask;
}

BackwardStage TrainingStage::cut_ready(const JointGraph& joint) const {
  return {in_parts(rematerialize(joint, options.passes), options.passes),
          {Graph(graph.ctx_ptr()), {}, {}},
          {},
          passes_reentrant(joint)};
}

const BackwardStage& TrainingStage::backward(const std::vector<bool>& given) {
  if (const auto found = backwards_.find(given); found != backwards_.end()) return found->second;
  BackwardStage made = cut_ready(joint_graph(graph, needs, output_mask(given)));
  made.cut = cut_backward(made.joint);
  std::vector<CompileResult> results;
  made.plan = compile_plan(made.cut.graph, options, results);
  return backwards_.emplace(given, std::move(made)).first->second;
}

SecondStage TrainingStage::second(const std::vector<bool>& given, const std::vector<bool>& cotangents_need) const {
  const JointGraph joint = joint_graph(graph, needs, output_mask(given));
  const std::vector<ValueId> random = random_values(joint);
  const std::vector<ValueId> numbers =
      random_values(in_parts(joint, options.passes));  // the same values, as `saved` counts them
  const Graph whole = eliminate_dead_code(backward_of_inputs(joint, random), options.passes);
  std::vector<int> kept;
  Graph again = without_unused_inputs(whole, kept);
  SecondStage made;
  std::vector<bool> again_needs;
  for (const int k : kept) {
    const auto at = static_cast<size_t>(k);
    if (at < needs.size()) {
      made.sources.push_back({'i', k});
      again_needs.push_back(needs[at]);
    } else if (at < needs.size() + random.size()) {
      const auto place = std::find(saved.begin(), saved.end(), numbers.at(at - needs.size()));
      if (place == saved.end()) throw InternalError("a random number was not saved");
      made.sources.push_back({'s', static_cast<int>(place - saved.begin())});
      again_needs.push_back(false);
    } else {
      const int output = joint.cotangents[at - needs.size() - random.size()];
      const auto place = std::find(differentiable.begin(), differentiable.end(), output);
      const auto number = static_cast<size_t>(place - differentiable.begin());
      made.sources.push_back({'g', static_cast<int>(number)});
      again_needs.push_back(cotangents_need[number]);
    }
  }
  for (const int k : carry_sizes(again)) {
    made.sources.push_back({'s', static_cast<int>(saved.size()) + k});
    again_needs.push_back(false);
  }
  made.gradients = joint.gradients;
  made.constant = constant_results(again, again_needs);
  std::vector<CompileResult> results;
  made.stage = std::make_unique<TrainingStage>(again, std::move(again_needs), options, results);
  return made;
}

std::vector<int> TrainingStage::unreached_by(const std::vector<int>& places, const JointGraph& joint) const {
  std::vector<int> unreached;
  std::vector<bool> before(graph.num_values(), false);  // what the results are made of at all
  for (const int place : places) {
    const int output = differentiable[static_cast<size_t>(place)];
    before[static_cast<size_t>(graph.outputs()[static_cast<size_t>(output)].value)] = true;
  }
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const auto is_before = [&](ValueId v) { return before[static_cast<size_t>(v)]; };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), is_before)) continue;
    for_each_operand(node, [&](ValueId v) { before[static_cast<size_t>(v)] = true; });
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    const auto input = static_cast<int>(i);
    if (!needs[i] || std::find(joint.gradients.begin(), joint.gradients.end(), input) != joint.gradients.end())
      continue;
    if (!before[static_cast<size_t>(graph.inputs()[i])]) {
      unreached.push_back(input);
      continue;
    }
    std::vector<bool> alone(needs.size(), false);
    alone[i] = true;
    const std::vector<bool> follows = values_needing_grad(graph, alone);
    const bool any = std::any_of(places.begin(), places.end(), [&](int place) {
      const int output = differentiable[static_cast<size_t>(place)];
      return follows[static_cast<size_t>(graph.outputs()[static_cast<size_t>(output)].value)];
    });
    if (!any) unreached.push_back(input);
  }
  return unreached;
}

void TrainingStage::check_aliases() const {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const OutputAlias& alias = graph.outputs()[i].alias;
    if (alias.kind == OutputAlias::Kind::kFresh) continue;
    const auto base = static_cast<size_t>(alias.index);
    const ValueId below = alias.kind == OutputAlias::Kind::kInput ? graph.inputs()[base] : graph.outputs()[base].value;
    const DType from = graph.type(below).dtype, to = graph.type(graph.outputs()[i].value).dtype;
    // Parts of complex numbers are views that the host differentiates; others it has none of.
    const bool parts = (is_complex(from) && real_dtype(from) == to) || (is_complex(to) && real_dtype(to) == from);
    if (from != to && !parts) {
      throw Unsupported("a view with another element type than its base, where gradients are recorded");
    }
    if (!outputs_need[i]) continue;
    const bool fine = alias.kind == OutputAlias::Kind::kInput ? needs[base] : outputs_need[base];
    if (!fine) throw Unsupported("a view that needs a gradient of a tensor that needs none");
  }
}

std::vector<int> TrainingStage::alone_in_memory() const {
  std::vector<int> alone;
  if (forward.executable == nullptr) return alone;
  const std::vector<PlanOutput>& outputs = forward.executable->plan().outputs;
  const auto buffer = [&outputs](int i) { return outputs.at(static_cast<size_t>(i)).ref.buffer; };
  for (const int i : differentiable) {
    if (std::none_of(differentiable.begin(), differentiable.end(),
                     [&](int other) { return other != i && buffer(other) == buffer(i); })) {
      alone.push_back(i);
    }
  }
  return alone;
}

int TrainingStage::nearest_result(size_t output) const {
  const auto overlaps = [this](ValueId v) {  // there as_strided() spreads a gradient otherwise
    const std::vector<Expr>& strides = graph.type(v).strides;
    return std::any_of(strides.begin(), strides.end(), [](Expr e) { return e.is_const() && e.const_value() == 0; });
  };
  ValueId v = graph.outputs()[output].value;
  for (const Node* made = graph.producer(v); made != nullptr && made->op->kind == OpKind::kView;
       made = graph.producer(v)) {
    v = std::get<TensorArg>(made->args.front()).value;
    for (size_t i = 0; i < output; ++i) {
      if (graph.outputs()[i].value == v && outputs_need[i] && !overlaps(v)) return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<bool> TrainingStage::inputs_read(const JointGraph& joint, bool tries) const {
  const std::vector<ValueId> random = random_values(joint);
  const Graph again = eliminate_dead_code(backward_of_inputs(joint, random), options.passes);
  if (tries) {
    std::vector<bool> all = needs;
    all.resize(needs.size() + random.size(), false);
    all.resize(again.inputs().size(), true);
    static_cast<void>(joint_graph(differentiable_form(again, all, options.passes), all));
  }
  const std::vector<int> uses = again.use_counts();
  std::vector<bool> read;
  for (size_t i = 0; i < needs.size(); ++i) read.push_back(uses[static_cast<size_t>(again.inputs()[i])] > 0);
  return read;
}

void TrainingStage::find_carriers() {
  const auto look = [&](const std::vector<Expr>& list, size_t input, bool stride) {
    for (size_t d = 0; d < list.size(); ++d) {
      const Expr e = list[d];
      // Of several groups each keeps a part of what is saved.
      const bool known = !e.is_symbol() ||
                         std::any_of(carriers.begin(), carriers.end(), [&](const auto& c) { return c.symbol == e; }) ||
                         (groups.size() == 1 && std::any_of(saved_types.begin(), saved_types.end(),
                                                            [e](const TensorType& type) { return binds(type, e); }));
      if (!known) carriers.push_back({e, static_cast<int>(input), static_cast<int>(d), stride});
    }
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const TensorType& type = graph.type(graph.inputs()[i]);
    look(type.sizes, i, false);
    look(type.strides, i, true);
  }
}

TensorType TrainingStage::carried_type(const SizeCarrier& carrier) const {
  TensorType type = graph.type(graph.inputs()[static_cast<size_t>(carrier.input)]);
  const Expr one = graph.ctx().constant(1);
  type.sizes = {carrier.symbol, graph.ctx().constant(0)};
  type.strides = {one, one};
  return type;
}

std::vector<int> TrainingStage::carry_sizes(Graph& g) const {
  const std::vector<Expr> used = symbols_in(g);
  std::vector<int> added;
  for (size_t k = 0; k < carriers.size(); ++k) {
    const Expr symbol = carriers[k].symbol;
    const auto bound = [&](ValueId v) { return binds(g.type(v), symbol); };
    const bool uses = std::find(used.begin(), used.end(), symbol) != used.end();
    if (!uses || std::any_of(g.inputs().begin(), g.inputs().end(), bound)) continue;
    g.add_input(carried_type(carriers[k]));
    added.push_back(static_cast<int>(k));
  }
  return added;
}

BackwardGraph TrainingStage::cut_backward(const JointGraph& joint) const {
  BackwardGraph cut = backward_graph(joint, saved);
  if (groups.size() > 1) {  // what a group does not read is not kept for it
    std::vector<int> kept, inputs;
    cut.graph = without_unused_inputs(cut.graph, kept);
    for (const int k : kept) inputs.push_back(cut.inputs[static_cast<size_t>(k)]);
    cut.inputs = std::move(inputs);
  }
  for (const int k : carry_sizes(cut.graph)) cut.inputs.push_back(static_cast<int>(saved.size()) + k);
  return cut;
}

std::vector<bool> TrainingStage::output_mask(const std::vector<bool>& given) const {
  std::vector<bool> mask(graph.outputs().size(), false);
  for (size_t i = 0; i < given.size(); ++i) mask[static_cast<size_t>(differentiable[i])] = given[i];
  return mask;
}

}  // namespace tatara
