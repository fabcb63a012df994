#include "transforms/result_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "transforms/autodiff.h"

namespace tatara {
namespace {

using Mask = std::vector<bool>;  // of results

/// An operation of the host: a recorded call, or a checkpoint that is one node to it.
using Operation = std::pair<const Region*, int>;

Operation operation_of(const Node& node, size_t number) {
  const Region* whole = nullptr;
  for (const Region* each = node.region.get(); each != nullptr; each = each->parent.get()) {
    if (each->reentrant) whole = each;
  }
  if (whole != nullptr) return {whole, 0};
  return {nullptr, node.location.call >= 0 ? node.location.call : -1 - static_cast<int>(number)};
}

void add(Mask& to, const Mask& from) {
  if (from.empty()) return;
  to.resize(from.size(), false);
  for (size_t i = 0; i < from.size(); ++i) to[i] = to[i] || from[i];
}

/// The operations in the histories of results: for each set of results those that just these have in common.
std::map<Mask, std::vector<const Node*>> shared_operations(const Graph& graph, const std::vector<ValueId>& results,
                                                           const std::vector<bool>& needs) {
  std::vector<Mask> of_value(graph.num_values());
  for (size_t i = 0; i < results.size(); ++i) {
    Mask own(results.size(), false);
    own[i] = true;
    add(of_value[static_cast<size_t>(results[i])], own);
  }
  std::map<Operation, std::pair<Mask, std::vector<const Node*>>> operations;
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    Mask mask;
    for (const ValueId v : node.outputs) add(mask, of_value[static_cast<size_t>(v)]);
    if (mask.empty() || !gives_gradients(node, needs)) continue;
    for_each_operand(node, [&](ValueId v) { add(of_value[static_cast<size_t>(v)], mask); });
    auto& [whole, nodes] = operations[operation_of(node, n)];
    add(whole, mask);
    nodes.push_back(&node);
  }
  std::map<Mask, std::vector<const Node*>> shared;
  for (auto& [operation, found] : operations) {
    std::vector<const Node*>& all = shared[found.first];
    all.insert(all.end(), found.second.begin(), found.second.end());
  }
  return shared;
}

/// Which results share something that is used up, with which.
class Shares {
 public:
  explicit Shares(size_t count) : share_(count, Mask(count, false)) {}

  void join(const Mask& mask) {
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) add(share_[i], mask);
    }
  }
  /// Whether these all do, each with each.
  bool all(const Mask& mask) const {
    for (size_t i = 0; i < mask.size(); ++i) {
      for (size_t j = 0; mask[i] && j < i; ++j) {
        if (mask[j] && !share_[i][j]) return false;
      }
    }
    return true;
  }
  bool uses_up(size_t i) const { return share_[i][i]; }
  /// Joins those that share something; where not all do so each with each, they are apart.
  std::vector<int> groups() const {
    const size_t count = share_.size();
    std::vector<int> group(count, -1);
    for (size_t i = 0; i < count; ++i) {
      if (group[i] >= 0) continue;
      Mask mine(count, false);
      mine[i] = true;
      for (bool grows = true; grows;) {
        const Mask before = mine;
        for (size_t j = 0; j < count; ++j) {
          if (before[j]) add(mine, share_[j]);
        }
        grows = mine != before;
      }
      const bool whole = all(mine);
      for (size_t j = 0; j < count; ++j) {
        if (mine[j]) group[j] = static_cast<int>(whole ? i : j);
      }
    }
    return group;
  }

 private:
  std::vector<Mask> share_;
};

}  // namespace

ResultGroups group_results(const Graph& graph, const std::vector<bool>& inputs,
                           const std::function<bool(const Node&)>& saves) {
  const std::vector<bool> needs = values_needing_grad(graph, inputs);
  ResultGroups groups{std::vector<int>(graph.outputs().size(), -1), {}, {}};
  std::vector<ValueId> results;
  std::vector<size_t> places;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    const bool needed = output.value != kNoValue && needs[static_cast<size_t>(output.value)];
    if (!needed || output.alias.kind != OutputAlias::Kind::kFresh) continue;
    results.push_back(output.value);
    places.push_back(i);
  }
  const auto shared = shared_operations(graph, results, needs);
  Shares shares(results.size());
  for (const auto& [mask, nodes] : shared) {
    if (std::any_of(nodes.begin(), nodes.end(), [](const Node* node) { return node->op->traits.always_saves; }))
      shares.join(mask);
  }
  std::vector<bool> known;
  for (size_t i = 0; i < results.size(); ++i) known.push_back(shares.uses_up(i));
  // Asking costs imports the first time.
  for (const auto& [mask, nodes] : shared) {
    if (!shares.all(mask) && std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) { return saves(*node); }))
      shares.join(mask);
  }
  const std::vector<int> group = shares.groups();
  std::map<int, int> numbers;
  for (size_t i = 0; i < results.size(); ++i) {
    const int number = numbers.try_emplace(group[i], static_cast<int>(numbers.size())).first->second;
    groups.of_output[places[i]] = number;
    groups.used_up.resize(numbers.size(), false);
    groups.used_up[static_cast<size_t>(number)] = groups.used_up[static_cast<size_t>(number)] || known[i];
  }
  return groups;
}

}  // namespace tatara
