#include "capture/graph/tape_history.h"

#include <algorithm>

#include "capture/tape/used_history.h"
#include "support/error.h"
#include "transforms/batching.h"
#include "transforms/expand.h"

namespace tatara::capture {

void TapeHistory::add_input(int slot) {
  if (!c_.slot(slot).requires_grad) return;
  const TensorRef ref = c_.ref(slot);
  const ValueId value = c_.fz.read(ref);
  leaves_[ref] = {{value}, slot, false};
  note_values();
  needs_[static_cast<size_t>(value)] = true;
}

/// Which of the values made since the last call have a history.
void TapeHistory::note_values() {
  const Graph& graph = c_.builder.graph();
  needs_.resize(graph.num_values(), false);
  level_needs_.resize(graph.num_values(), false);
  for (; noted_ < graph.num_nodes(); ++noted_) {
    const Node& node = graph.node(static_cast<NodeId>(noted_));
    for (std::vector<bool>* has : {&needs_, &level_needs_}) {
      bool passes = has == &level_needs_ ? gives_tangents(node, *has) : !node.closed && gives_gradients(node, *has);
      if (is_batch_in(node) || is_batch_out(node)) {
        for_each_operand(node, [&](ValueId v) { passes = passes || (*has)[static_cast<size_t>(v)]; });
      }
      if (!passes) continue;
      for (const ValueId v : node.outputs) (*has)[static_cast<size_t>(v)] = differentiable_result(graph, v);
    }
  }
}

std::vector<TapeHistory::Operand> TapeHistory::before(const TapeNode& node) {
  std::vector<Operand> operands;
  const auto look = [&](int slot) {
    const TensorRef ref = c_.refs[static_cast<size_t>(slot)];
    if (ref < 0) return;
    if (node.grad && c_.fz.is_stale_view(ref) && is_written_leaf(ref)) {
      throw Unsupported("a view of a parameter from before it was written to, in " + node.name);
    }
    const ValueId value = c_.fz.read(ref);
    note_values();
    const ValueId base = c_.fz.base(ref);
    operands.push_back({ref, c_.fz.version(ref), needs(value), needs(base), level_needs(value), level_needs(base)});
  };
  for_each_slot(node.args.get(), look);
  for_each_slot(node.kwargs.get(), look);
  return operands;
}

void TapeHistory::after(const TapeNode& node, const std::vector<Operand>& operands) {
  note_values();
  slot_needs_.resize(c_.tape->slots().size(), false);
  const auto note = [&](int slot) {
    const TensorRef ref = slot < 0 ? -1 : c_.refs[static_cast<size_t>(slot)];
    if (ref >= 0 && needs(c_.fz.read(ref))) slot_needs_[static_cast<size_t>(slot)] = true;
  };
  for (const int slot : node.outputs) note(slot);
  for_each_slot(node.args.get(), note);
  const std::vector<bool>& histories = histories_of(node);
  for (size_t i = 0; i < histories.size(); ++i) {
    if (!histories[i]) continue;
    const ValueId value = c_.fz.read(c_.refs[static_cast<size_t>(node.outputs[i])]);
    histories_.emplace_back(node.level, value);
    needs_[static_cast<size_t>(value)] = true;
  }
  for (const Operand& operand : operands) {
    if (c_.fz.version(operand.ref) != operand.version) note_write(node, operand);
  }
}

bool TapeHistory::make_leaf(const TapeNode& node) {
  const int slot = node.outputs[0];
  const TensorRef ref = c_.refs[static_cast<size_t>(slot)];
  const ValueId value = c_.fz.read(ref);
  note_values();
  // What was computed from it before is no part of its history, which the graph could not tell.
  const Graph& graph = c_.builder.graph();
  bool used = needs(value) || leaves_.contains(ref);
  for (size_t n = 0; n < graph.num_nodes() && !used; ++n) {
    for_each_operand(graph.node(static_cast<NodeId>(n)), [&](ValueId v) { used = used || v == value; });
  }
  if (used) throw Unsupported("requires_grad_() of a tensor that was used before");
  leaves_[ref] = {{value}, slot, true};
  needs_[static_cast<size_t>(value)] = true;
  return c_.tape->slots()[static_cast<size_t>(slot)].input;
}

bool TapeHistory::is_written_leaf(TensorRef ref) const {
  return std::any_of(leaves_.begin(), leaves_.end(), [&](const auto& leaf) {
    return leaf.second.values.size() > 1 && c_.fz.same_storage(leaf.first, ref);
  });
}

void TapeHistory::note_write(const TapeNode& node, const Operand& operand) {
  if (operand.storage_level_history && (!node.mode || !operand.level_history)) {
    throw Unsupported(node.name + " inside of a transform: it changes a tensor, but not its history");
  }
  for (const TensorRef example : examples_) {
    if (c_.fz.same_storage(example, operand.ref)) throw Unsupported(node.name + " on an example of a batch");
  }
  for (const auto& [slot, value] : variables_) {
    if (c_.fz.same_storage(c_.refs[static_cast<size_t>(slot)], operand.ref)) {
      throw Unsupported(node.name + " on a tensor that gradients are asked by");
    }
  }
  if (operand.storage_history && node.level != 0 && !node.grad) {
    throw Unsupported(node.name + " inside of a transform, on a tensor from outside");
  }
  if (!engine_ && operand.storage_history && std::any_of(leaves_.begin(), leaves_.end(), [&](const auto& leaf) {
        return c_.fz.same_storage(leaf.first, operand.ref);
      })) {
    throw Unsupported(node.name + " on the memory of a tensor that requires grad");
  }
  const bool is_leaf = leaves_.contains(operand.ref);
  if (is_leaf && node.grad) throw Unsupported(node.name + " on a leaf, with gradients on");
  bool of_leaf = is_leaf;
  for (auto& [ref, each] : leaves_) {
    if (!c_.fz.same_storage(ref, operand.ref)) continue;
    if (each.made && ref != operand.ref) throw Unsupported(node.name + " on memory that a leaf of the graph shares");
    if (!is_leaf && (node.grad || operand.history)) continue;  // a view with a history of its own
    const ValueId value = c_.fz.read(ref);
    note_values();
    if (each.values.back() != value) each.values.push_back(value);
    needs_[static_cast<size_t>(value)] = true;
    of_leaf = true;
  }
  if (of_leaf || !operand.storage_history) return;
  if (!node.grad || !operand.history) {
    throw Unsupported(node.name + " beside gradients: it changes a tensor, but not its history");
  }
}

std::vector<ValueId> TapeHistory::values_of(PyObject* list) {
  std::vector<ValueId> values;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    values.push_back(c_.fz.read(c_.refs[static_cast<size_t>(slot_of(PyList_GET_ITEM(list, i)))]));
  }
  return values;
}

std::vector<ValueId> TapeHistory::gradients(const TapeNode& pass, std::vector<TensorType> types) {
  GradientsCall call;
  const PassOperands operands = pass_operands(pass);
  call.roots = values_of(operands.roots);
  call.cotangents = values_of(operands.cotangents);
  PyObject* variables = operands.variables;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(variables); ++i) {
    const TensorRef ref = c_.refs[static_cast<size_t>(slot_of(PyList_GET_ITEM(variables, i)))];
    const auto variable = variables_.find(slot_of(PyList_GET_ITEM(variables, i)));
    if (variable != variables_.end()) {
      call.variables.push_back({variable->second});
      continue;
    }
    const auto leaf = leaves_.find(ref);
    call.variables.push_back(leaf != leaves_.end() ? leaf->second.values : std::vector<ValueId>{c_.fz.read(ref)});
  }
  const GradientPass& kind = *gradient_pass(pass);
  call.create_graph = kind.creates_graph;
  call.level = kind.of_level;
  call.histories = starts();
  return add_gradients(c_.builder, call, std::move(types));
}

std::vector<ValueId> TapeHistory::starts() const {
  std::vector<ValueId> values;
  for (const auto& [level, value] : histories_) {
    const bool open = std::find(open_levels_.begin(), open_levels_.end(), level) != open_levels_.end();
    if (level == 0 || open) values.push_back(value);
  }
  for (const auto& [ref, leaf] : leaves_) values.insert(values.end(), leaf.values.begin(), leaf.values.end());
  return values;
}

void TapeHistory::add_variable(int slot) {
  const ValueId value = c_.fz.read(c_.refs[static_cast<size_t>(slot)]);
  variables_[slot] = value;
  add_level_value(value);
}

void TapeHistory::add_level_value(ValueId value) {
  note_values();
  level_needs_[static_cast<size_t>(value)] = true;
}

void TapeHistory::note_pass(const std::vector<TensorRef>& results, const std::vector<TensorRef>& given,
                            OutputAlias::Sharing sharing, int group) {
  // A write to an example of a batch is refused anyway.
  if (std::find(open_batches_.begin(), open_batches_.end(), true) != open_batches_.end()) return;
  Pass& pass = passes_.emplace_back();
  pass.sharing = sharing;
  pass.group = group;
  for (const TensorRef ref : results) pass.results.push_back({ref, c_.fz.version(ref), c_.fz.read(ref)});
  for (const TensorRef ref : given) pass.given.push_back({ref, c_.fz.version(ref), c_.fz.read(ref)});
}

/// Says which outputs may share memory with what was given to a pass, and asks for a check where one of them was written to.
void TapeHistory::mark_sharing(TapeGraph& result) {
  using Sharing = OutputAlias::Sharing;
  const auto written = [&](const Pass::Tensor& tensor) { return c_.fz.version(tensor.ref) != tensor.version; };
  std::vector<std::pair<ValueId, Sharing>> checked;
  for (const Pass& pass : passes_) {
    if (std::any_of(pass.results.begin(), pass.results.end(), written) ||
        std::any_of(pass.given.begin(), pass.given.end(), written)) {
      for (const Pass::Tensor& tensor : pass.results) checked.emplace_back(tensor.value, Sharing::kMustNot);
      for (const Pass::Tensor& tensor : pass.given) checked.emplace_back(tensor.value, Sharing::kGiven);
      continue;
    }
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      const TensorRef ref = c_.refs[static_cast<size_t>(result.outputs[i])];
      const auto holds = [&](const Pass::Tensor& tensor) { return c_.fz.same_storage(tensor.ref, ref); };
      GraphOutput& output = result.graph.outputs()[i];
      if (output.alias.kind != OutputAlias::Kind::kFresh || (engine_ && needs(output.value))) continue;
      if (std::none_of(pass.results.begin(), pass.results.end(), holds)) continue;
      output.alias.sharing = pass.sharing;
      output.alias.group = pass.group;
    }
  }
  for (const auto& [value, sharing] : checked) {
    OutputAlias alias;
    alias.sharing = sharing;
    result.graph.add_output(value, alias);
  }
}

/// Writes the passes out. No result shares memory with a constant, which later calls read too, or with a number.
void TapeHistory::expand(TapeGraph& result, const PassOptions& passes) {
  mark_sharing(result);
  result.graph = expand_transforms(result.graph, passes);
  Graph& graph = result.graph;
  GraphBuilder builder(graph);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput output = graph.outputs()[i];
    if (output.alias.kind != OutputAlias::Kind::kInput) continue;
    const int slot = result.inputs[static_cast<size_t>(output.alias.index)];
    if (slot >= 0 && !c_.slot(slot).number) continue;
    graph.outputs()[i] = {on_a_copy(builder, output.value), {}};
  }
}

void TapeHistory::finish(TapeGraph& result, const PassOptions& passes) {
  if (!engine_) return expand(result, passes);
  note_values();
  const auto leaf_of = [&](int slot) {
    const auto found = slot < 0 ? leaves_.end() : leaves_.find(c_.refs[static_cast<size_t>(slot)]);
    return found == leaves_.end() ? nullptr : &found->second;
  };
  for (const InputWrite& write : result.graph.input_writes()) {
    const int slot = result.inputs[static_cast<size_t>(write.input_index)];
    if (needs(write.value) && leaf_of(slot) == nullptr) {
      throw Unsupported("a write that gives a tensor from outside a history");
    }
  }
  slot_needs_.resize(c_.tape->slots().size(), false);
  UsedHistory histories(*c_.tape, slot_needs_);
  std::vector<size_t> live;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const GraphOutput& output = result.graph.outputs()[i];
    if (!needs(output.value)) continue;
    const int slot = result.outputs[i];
    if (const Leaf* leaf = leaf_of(slot); leaf != nullptr) {
      if (leaf->made) result.leaves.push_back(slot);
    } else if (!c_.slot(slot).spoiled && histories.first_used({slot}) < 0) {
      live.push_back(i);
    } else if (output.alias.kind == OutputAlias::Kind::kFresh) {
      result.used_up.push_back(slot);
    } else {
      throw Unsupported("a view of a result whose history a backward pass or a write has used up");
    }
  }
  result.training = !live.empty();
  if (result.training) stop_used_up(result);
  expand(result, passes);
  if (result.training) check_live(result, live);
}

/// Histories that go on after the graph begin at tensors from before it.
void TapeHistory::check_live(const TapeGraph& result, const std::vector<size_t>& live) const {
  std::vector<bool> inputs(result.inputs.size(), false);
  for (const auto& [ref, leaf] : leaves_) {
    if (leaf.values.size() > 1)
      throw Unsupported("a result that can be differentiated later, beside a write to a leaf");
    const auto place = std::find(result.inputs.begin(), result.inputs.end(), leaf.slot);
    if (place != result.inputs.end()) inputs[static_cast<size_t>(place - result.inputs.begin())] = true;
  }
  const std::vector<bool> needs = values_needing_grad(result.graph, inputs);
  for (const size_t i : live) {
    if (!needs[static_cast<size_t>(result.graph.outputs()[i].value)] || !result.leaves.empty()) {
      throw Unsupported("a result with a history that begins at a leaf of the graph");
    }
  }
}

/// What a pass has used up is a constant to the gradients of the other results.
void TapeHistory::stop_used_up(TapeGraph& result) {
  GraphBuilder builder(result.graph);
  builder.set_no_grad(true);
  for (const std::vector<int>* slots : {&result.used_up, &result.leaves}) {
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      if (std::find(slots->begin(), slots->end(), result.outputs[i]) == slots->end()) continue;
      if (result.graph.outputs()[i].alias.kind != OutputAlias::Kind::kFresh) {
        throw Unsupported("a leaf that shares memory with others, beside a result that can be differentiated later");
      }
      const ValueId value = result.graph.outputs()[i].value;
      result.graph.outputs()[i].value = copied(builder, value);
    }
  }
}

}  // namespace tatara::capture
