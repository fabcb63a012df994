#include "capture/run/held_memory.h"

#include <algorithm>

#include "capture/host/package.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/view_origins.h"
#include "ops/host/recurrent.h"
#include "ops/rules/loop_node.h"
#include "transforms/autodiff.h"

namespace tatara::capture {
namespace {

bool contains(const std::vector<bool>& slots, int slot) { return slot >= 0 && slots[static_cast<size_t>(slot)]; }

template <typename Fn>
void each_operand(const TapeNode& node, Fn&& fn) {
  for_each_slot(node.args.get(), fn);
  for_each_slot(node.kwargs.get(), fn);
}

/// The sizes to ask about: of a sequence in which each step is treated alike, two steps.
Ref sizes_to_ask(const TapeNode& node, const TapeSlot& operand, bool first) {
  constexpr Py_ssize_t kSequenceRank = 3, kSteps = 2;
  const Py_ssize_t last = PyTuple_GET_SIZE(node.args.get()) - 1;
  if (!first || PyTuple_GET_SIZE(operand.sizes.get()) != kSequenceRank || !any_operator(node, repeats_steps))
    return Ref::borrow(operand.sizes.get());
  const Py_ssize_t steps = PyTuple_GET_ITEM(node.args.get(), last) == Py_True ? 1 : 0;
  Ref sizes = Ref::steal(PyTuple_New(kSequenceRank));
  for (Py_ssize_t d = 0; d < kSequenceRank; ++d) {
    const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(operand.sizes.get(), d));
    PyTuple_SET_ITEM(sizes.get(), d, PyLong_FromSsize_t(d == steps ? std::min(size, kSteps) : size));
  }
  return sizes;
}

std::vector<bool> flags(PyObject* tuple) {
  std::vector<bool> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) result.push_back(PyTuple_GET_ITEM(tuple, i) == Py_True);
  return result;
}

}  // namespace

HeldByHost::HeldByHost(const TapeGraph& made, const Tape& tape) : made_(made), tape_(tape) {
  for (const TapeSlot& slot : tape.slots()) needs_.push_back(slot.input && slot.requires_grad);
  answer_of_.assign(tape.nodes().size(), -1);
  roots_.resize(tape.slots().size());
  for (const TapeNode& node : tape.nodes()) {
    bool flows = is_leaf_mark(node);
    each_operand(node, [&](int slot) { flows = flows || needs_[static_cast<size_t>(slot)]; });
    if (!flows || !node.grad || detaches(node)) continue;
    for (const int slot : node.outputs) {
      if (slot >= 0) needs_[static_cast<size_t>(slot)] = true;
    }
  }
}

const std::optional<HeldByHost::Answer>& HeldByHost::ask(size_t n) {
  int& place = answer_of_[n];
  if (place >= 0) return answers_[static_cast<size_t>(place)];
  const TapeNode& node = tape_.nodes()[n];
  if (node.alike >= 0) {
    std::pair<int, std::vector<bool>> key{node.alike, {}};
    each_operand(node, [&](int slot) { key.second.push_back(needs_[static_cast<size_t>(slot)]); });
    const auto [known, first] = alike_.try_emplace(std::move(key), static_cast<int>(answers_.size()));
    place = known->second;
    if (!first) return answers_[static_cast<size_t>(place)];
  }
  place = static_cast<int>(answers_.size());
  return answers_.emplace_back(ask_host(node));
}

std::optional<HeldByHost::Answer> HeldByHost::ask_host(const TapeNode& node) const {
  std::optional<Answer> found;
  if (!node.func || !is_operator_call(node)) return found;
  bool plain = true;
  const auto operand = [&](PyObject* o) -> Ref {
    const int slot = slot_of(o);
    if (slot < 0) return is_size_ref(o) ? size_ref_value(o, tape_.hints()) : Ref::borrow(o);
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    plain = plain && info.sizes && info.strides && info.dtype && !info.number;
    if (!plain) return Ref::borrow(Py_None);
    const Ref sizes = sizes_to_ask(node, info, o == PyTuple_GetItem(node.args.get(), 0));
    return call_package<PackageFunction::kHeldOperand>(sizes.get(), info.strides.get(), info.dtype.get(),
                                                       needs_[static_cast<size_t>(slot)] ? Py_True : Py_False);
  };
  const Ref args = map_structure(node.args.get(), operand);
  const Ref kwargs = node.kwargs ? map_structure(node.kwargs.get(), operand) : Ref::borrow(Py_None);
  if (plain && args && kwargs) {
    const Ref answer = call_package<PackageFunction::kHeldBy>(node.func.get(), args.get(), kwargs.get());
    if (answer && answer.get() != Py_None) {
      found = Answer{flags(PyTuple_GET_ITEM(answer.get(), 0)), flags(PyTuple_GET_ITEM(answer.get(), 1)),
                     PyTuple_GET_ITEM(answer.get(), 2) == Py_True};
    }
  }
  forget_error();
  return found;
}

HeldByHost::Root HeldByHost::root(int slot) {
  if (roots_[static_cast<size_t>(slot)].known) return roots_[static_cast<size_t>(slot)].root;
  const Root found = next_root(slot);
  roots_[static_cast<size_t>(slot)] = {found, true};
  return found;
}

HeldByHost::Root HeldByHost::next_root(int slot) {
  const TapeNode* const maker = tape_.makes(slot) ? tape_.maker(slot) : nullptr;
  if (maker == nullptr || !may_be_view(tape_, *maker)) return {slot, false};
  int first = -1;
  each_operand(*maker, [&](int operand) { first = first < 0 ? operand : first; });
  if (first < 0 || first == slot) return {slot, false};
  const auto& answer = ask(static_cast<size_t>(maker - tape_.nodes().data()));
  if (!answer) return {-1, false};
  if (!answer->alias) return {slot, false};
  Root found = root(first);
  found.uncounted = found.uncounted || maker->name == "data";
  return found;
}

int HeldByHost::visible_slot(int number, bool output) {
  const size_t inputs = made_.inputs.size(), i = static_cast<size_t>(number);
  int slot = -1;
  if (i < inputs) {
    slot = made_.inputs[i];
  } else if (i - inputs < made_.outputs.size()) {
    slot = made_.outputs[i - inputs];
  } else if (i - inputs < made_.graph.outputs().size()) {  // the program has views of it
    const std::vector<GraphOutput>& all = made_.graph.outputs();
    for (size_t o = 0; o < made_.outputs.size() && slot < 0; ++o) {
      const OutputAlias& alias = all[o].alias;
      if (alias.kind == OutputAlias::Kind::kOutput && alias.index == static_cast<int>(i - inputs))
        slot = made_.outputs[o];
    }
  }
  if (slot < 0) return -1;
  const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
  if (info.number || (info.made_before && !output)) return -1;
  return root(slot).slot;
}

std::vector<HeldMemory> HeldByHost::of(const GraphStage& part, const ResultGroups& groups) {
  const auto unknown = [&] {
    return HeldMemory{std::vector<Held>(part.graph.inputs().size(), Held::kAlone),
                      std::vector<Held>(part.graph.outputs().size(), Held::kAlone)};
  };
  std::vector<HeldMemory> held(groups.used_up.size(), unknown());
  const auto marked = [](const Node& node) { return node.region != nullptr; };
  if (std::any_of(part.graph.nodes().begin(), part.graph.nodes().end(), marked)) return held;
  const std::vector<bool> needs = values_needing_grad(part.graph, part.needs);
  std::vector<int> inputs, outputs;
  for (const int number : part.inputs) inputs.push_back(visible_slot(number, false));
  for (const int number : part.outputs) outputs.push_back(visible_slot(number, true));
  for (size_t g = 0; g < held.size(); ++g) {
    std::vector<ValueId> results;
    for (size_t i = 0; i < groups.of_output.size(); ++i) {
      if (groups.of_output[i] == static_cast<int>(g)) results.push_back(part.graph.outputs()[i].value);
    }
    held[g] = of_group(part, results, needs, inputs, outputs);
    if (held[g].inputs.empty()) held[g] = unknown();
  }
  return held;
}

HeldMemory HeldByHost::of_group(const GraphStage& part, const std::vector<ValueId>& results,
                                const std::vector<bool>& needs, const std::vector<int>& inputs,
                                const std::vector<int>& outputs) {
  const Graph& graph = part.graph;
  std::vector<bool> reached(graph.num_values(), false), history(graph.num_values(), false);
  for (const ValueId v : results) reached[static_cast<size_t>(v)] = history[static_cast<size_t>(v)] = true;
  std::vector<int> calls;
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const auto any = [&](const std::vector<bool>& of) {
      return std::any_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId v) { return of[static_cast<size_t>(v)]; });
    };
    if (!any(reached)) continue;
    const bool flows = any(history) && gives_gradients(node, needs);
    for_each_operand(node, [&](ValueId v) {
      reached[static_cast<size_t>(v)] = true;
      if (flows) history[static_cast<size_t>(v)] = true;
    });
    if (!flows) continue;
    if (node.location.call < 0 || static_cast<size_t>(node.location.call) >= tape_.nodes().size()) return {};
    calls.push_back(node.location.call);
    for (const auto& [first, last] : made_.loops) {  // all of its turns
      const bool here = is_loop(*node.op) && first <= node.location.call && node.location.call <= last;
      for (int call = std::max(first, 0); here && call <= last; ++call) calls.push_back(call);
    }
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  std::vector<bool> interesting(tape_.slots().size(), false), kept = interesting;
  const auto add = [&](int slot, ValueId v) {
    if (slot >= 0 && v != kNoValue && reached[static_cast<size_t>(v)]) interesting[static_cast<size_t>(slot)] = true;
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], graph.inputs()[i]);
  for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i], graph.outputs()[i].value);
  for (const int call : calls) {
    if (!add_kept(static_cast<size_t>(call), interesting, kept)) return {};
  }
  // Where the host keeps nothing at all, gradients read nothing.
  if (std::none_of(kept.begin(), kept.end(), [](bool slot) { return slot; }) &&
      std::none_of(calls.begin(), calls.end(), [&](int call) { return keeps(static_cast<size_t>(call)); }))
    return {};
  const auto held = [&](int slot) {
    return !contains(interesting, slot) ? Held::kAlone : contains(kept, slot) ? Held::kKept : Held::kFree;
  };
  HeldMemory found;
  for (const int slot : inputs) found.inputs.push_back(held(slot));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool fresh = graph.outputs()[i].alias.kind == OutputAlias::Kind::kFresh;
    found.outputs.push_back(fresh ? held(outputs[i]) : Held::kAlone);
  }
  return found;
}

bool HeldByHost::keeps(size_t call) {
  const auto& answer = ask(call);
  const auto any = [](const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
  };
  return !answer || any(answer->operands) || any(answer->results);
}

bool HeldByHost::add_kept(size_t call, const std::vector<bool>& interesting, std::vector<bool>& kept) {
  const TapeNode& node = tape_.nodes()[call];
  if (!is_operator_call(node)) return false;
  bool touches = false;
  size_t operands = 0;
  each_operand(node, [&](int slot) {
    ++operands;
    touches = touches || contains(interesting, root(slot).slot);
  });
  for (const int slot : node.outputs) touches = touches || (slot >= 0 && contains(interesting, root(slot).slot));
  if (!touches) return true;
  const auto& answer = ask(call);
  if (!answer || answer->operands.size() != operands || answer->results.size() != node.outputs.size()) return false;
  const auto add = [&](int slot) {
    const Root found = slot < 0 ? Root() : root(slot);
    if (!found.uncounted && found.slot >= 0) kept[static_cast<size_t>(found.slot)] = true;
  };
  size_t at = 0;
  each_operand(node, [&](int slot) {
    if (answer->operands[at++]) add(slot);
  });
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (answer->results[i]) add(node.outputs[i]);
  }
  return true;
}

}  // namespace tatara::capture
